//! The public API of this boot: opened with a certificate that says nothing, given the machine's own once there is one,
//! for those who call the machine by its name. To everybody else it goes on saying nothing.

mod activate;
mod cluster_volumes;
mod context;
mod contribute;
mod convert;
#[cfg(feature = "faults")]
mod debug;
mod drain;
mod etcd;
#[cfg(feature = "faults")]
mod faults;
mod first_contact;
mod forward;
mod images;
mod kubernetes;
mod leaving;
mod machines;
mod methods;
mod metrics;
mod person;
mod records;
mod recover;
mod redeem;
mod release;
mod restore;
mod snapshot;
mod streams;
mod users;
mod volumes;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use enrol::found::Findings;
use enrol::plan::Capped;
use keys::identity::Identity;
use pki::client_auth::{NamedIdentity, Owners, nameless_certificate, server_config};
use pki::{CertificateDer, PrivateKey, PublicKey, machine_tls_name};
use supervise::{Backoff, ChangeError, Critical, Restart, Spec};
use tokio::sync::{mpsc, watch};

use crate::enrolment::{Member, Ways};
use crate::facts::{Address, Names};
use crate::machine::power::PowerRequest;
use crate::rpc::{self, Callers, Front, Roster};
use crate::runtime::child::Children;
use crate::runtime::services::{Ends, Run, Services, Unit};
use crate::runtime::tls::Clock;
use crate::shown::board::BoardReader;

pub(crate) use context::Context;
#[cfg(feature = "faults")]
pub(crate) use faults::Broken;
use first_contact::{ClaimSecret, Claimable};
pub(crate) use kubernetes::KubernetesAccess;
pub(in crate::rpc) use methods::PublicMethods;

/// Name of the API's task and thread.
const NAME: &str = "api";

/// Failed step of the public API's start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No key for this boot.
    #[error("make a key for the public API")]
    Key(#[from] pki::KeyError),
    /// No certificate for this boot.
    #[error("make a certificate for the public API")]
    Certificate(#[from] pki::IssueError),
    /// Certificate and key do not fit.
    #[error("configure the public API")]
    Tls(#[from] pki::TlsError),
    /// The API's task is not taken into the tree.
    #[error("start the public API")]
    Tree(#[from] ChangeError),
}

/// Public API that answers, for the boot to steer.
#[derive(Debug)]
pub(crate) struct PublicApi {
    /// Parts that the API's methods read.
    pub(crate) context: Arc<Context>,
    /// Reboots and power-offs that were asked for.
    pub(crate) power: mpsc::Receiver<PowerRequest>,
    /// PID 1's own tasks, the one that serves among them.
    pub(crate) tree: Services,
    front: watch::Sender<Front>,
    nameless: Nameless,
}

/// Certificate for callers that do not know this machine: of this boot only, so that it does not tell one boot from
/// another machine's, and made of a key that nothing else uses.
#[derive(Debug)]
struct Nameless {
    certificate: CertificateDer<'static>,
    key: PrivateKey,
}

impl PublicApi {
    /// Opens the port by a task of `tree`, as what the seal says this machine is. Where nothing is known until
    /// [`Self::admit`], everybody is a stranger, and the certificate is one of this boot only.
    ///
    /// # Errors
    /// [`Error`] names the step.
    pub(crate) async fn open(
        shown: BoardReader,
        children: &Children,
        tree: &Services,
        found: &Findings,
        ways: Ways,
    ) -> Result<Self, Error> {
        let key = PrivateKey::generate()?;
        let nameless = Nameless { certificate: nameless_certificate(&key)?, key };
        let (front, present) = watch::channel(nameless.front(None, Owners::default())?);
        let (context, power) = Context::new(shown, children, ways, nameless.key.public().pin());
        context.panel.show(tree);
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, model::PUBLIC_API_PORT));
        let (served, users) = (context.clone(), front.clone());
        let task = Unit::task(
            NAME,
            Ends::Never,
            Run::task(move || {
                let (context, present, users) = (served.clone(), present.clone(), users.clone());
                async move {
                    let methods = PublicMethods::new(context.clone());
                    let serves = rpc::serve(NAME, address, Box::new(methods), present);
                    #[cfg(feature = "faults")]
                    let serves = context.faults.beside(Broken::Api, serves);
                    tokio::select! {
                        ended = serves => ended,
                        never = users::follow(&context.reach, &users) => match never {},
                    }
                }
            }),
        );
        let spec = Spec {
            restart: Restart::Always(Backoff {
                first: Duration::from_millis(200),
                cap: Duration::from_secs(5),
                stable: Duration::from_secs(60),
            }),
            // The API is the only way in: a machine that cannot serve it for a minute starts again.
            critical: Some(Critical { failures: 12, within: Duration::from_secs(60) }),
            ..task.spec
        };
        tree.take(vec![Unit { spec, ..task }]).await?;
        let api = Self { context, power, tree: tree.clone(), front, nameless };
        api.know(found)?;
        Ok(api)
    }

    /// Takes on what was found: at first, and when a waiting machine looks again.
    ///
    /// # Errors
    /// As [`Self::prove`].
    pub(crate) fn know(&self, found: &Findings) -> Result<(), Error> {
        found.seal().map_or(Ok(()), |seal| self.prove(&seal.body.identity, &[seal.body.owner_pub_key]))?;
        if let Some(reason) = found.refused() {
            self.context.entrance.stand(Claimable::Never(reason));
        }
        Ok(())
    }

    /// Takes on the machine's identity: from now on it proves itself and knows its owners, also where its data stays shut.
    ///
    /// # Errors
    /// [`Error`] when certificate and key do not fit.
    pub(crate) fn prove(&self, identity: &Identity, owners: &[[u8; 32]]) -> Result<(), Error> {
        let Identity { key, holder, certificate, ca_certificate, .. } = identity;
        let key = PrivateKey::ed25519(key.seed())?;
        let owners = owners.iter().map(|owner| PublicKey::from_ed25519(*owner)).collect();
        let chain = [certificate, ca_certificate].map(|certificate| CertificateDer::from(certificate.clone())).into();
        let named = NamedIdentity {
            name: machine_tls_name(holder.machine, holder.cluster),
            identity: pki::TlsIdentity { chain, key: &key },
        };
        let proved = self.nameless.front(Some(named), Owners::new(owners))?;
        self.front.send_modify(|front| {
            let users = front.callers.users();
            *front = proved;
            front.callers.know(users);
        });
        self.context.facts.update(|now| now.names = Some(Names::of(identity)));
        Ok(())
    }

    /// Takes on a member, behind the cap: its identity, its authorities, and first contact where that has not been.
    ///
    /// # Errors
    /// As [`Self::prove`].
    pub(crate) fn admit(&self, member: &mut Member, _behind_the_cap: &Capped) -> Result<(), Error> {
        self.prove(&member.identity, &member.owners())?;
        let vpn = Address { ip: member.desired.assignment.vpn_ip(), prefix: member.desired.prefixes.vpn };
        self.context.facts.update(|now| {
            now.assignment = Some(member.assignment());
            now.cold_start = Some(member.desired.cold_start);
            now.vpn = Some(vpn);
        });
        // Taken, not copied: with the owner's first call it is gone.
        self.context.entrance.stand(match member.first_contact.take() {
            Some((secret, config)) => {
                Claimable::Open(ClaimSecret { secret, config, identity: member.identity.clone() })
            }
            None => Claimable::Over,
        });
        Ok(())
    }

    /// Shows a further tree through the API.
    pub(crate) fn show(&self, tree: &Services) {
        self.context.panel.show(tree);
    }
}

impl Nameless {
    /// With `named` to those who know its name.
    fn front(&self, named: Option<NamedIdentity<'_>>, owners: Owners) -> Result<Front, pki::TlsError> {
        let nameless = pki::TlsIdentity { chain: vec![self.certificate.clone()], key: &self.key };
        let mut tls = server_config(nameless, named, owners.clone(), Arc::new(Clock))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Front { tls: Arc::new(tls), callers: Callers::Any(owners, Roster::default()) })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use keys::data_key::Holder;
    use keys::identity::SigningKey;
    use model::{ClusterRole, NodeName, Secret};
    use pki::{Authority, AuthorityKind, CertificateProfile, UnixTime};
    use tonic::Code;
    use tonic::codegen::http::Request;

    use super::*;
    use crate::rpc::access::Gate;
    use crate::rpc::world::{Machine, origin};
    use crate::runtime::clock;

    fn identity() -> Identity {
        let (now, key) = (UnixTime::since_unix_epoch(clock::unix()), SigningKey::from_seed(Secret::take(&mut [5; 32])));
        let authority = Authority::create(AuthorityKind::Cairn, now).expect("a CA");
        let (machine, cluster) =
            (keys::identity::machine_id(&key.public()), keys::identity::cluster_id(&authority.public().spki()));
        let profile = CertificateProfile::Machine { machine, cluster, role: ClusterRole::Node };
        let certificate =
            authority.issue(&profile, &PublicKey::from_ed25519(key.public()), now).expect("a certificate");
        Identity {
            key: key.into(),
            holder: Holder { machine, cluster },
            name: NodeName::derived(machine),
            certificate: certificate.to_vec(),
            ca_certificate: authority.certificate().to_vec(),
        }
    }

    /// Proves: Q1
    #[tokio::test]
    async fn an_open_session_goes_by_the_owners_that_are_proved_now() {
        let machine = Machine::running();
        let key = PrivateKey::generate().expect("a key");
        let nameless = Nameless { certificate: nameless_certificate(&key).expect("a certificate"), key };
        let Machine { context, front, owner, .. } = &machine;
        let tree = Services::start(&Children::default(), Vec::new()).expect("a tree");
        let api =
            PublicApi { context: context.clone(), power: mpsc::channel(1).1, tree, front: front.clone(), nameless };
        let new = PrivateKey::ed25519(&Secret::take(&mut [7; 32])).expect("a key");
        let [old_key, new_key] = [owner, &new].map(|key| key.public().as_ed25519().expect("it is one"));
        let of_old = machine.gate(origin(Some(owner), "192.0.2.8:1008"));
        let ask = async |gate: &Gate| {
            let request = Request::post("/cairn.v1.Public/Status").header("content-type", "application/grpc");
            let answer = gate.answer(request.body(Full::from(&[0; 5][..])).expect("a request")).await;
            tonic::Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code())
        };
        let identity = identity();
        api.prove(&identity, &[old_key, new_key]).expect("they fit");
        let of_new = machine.gate(origin(Some(&new), "192.0.2.8:1009"));
        assert_eq!((ask(&of_old).await, ask(&of_new).await), (Code::Ok, Code::Ok));
        api.prove(&identity, &[new_key]).expect("they fit");
        assert_eq!((ask(&of_old).await, ask(&of_new).await), (Code::PermissionDenied, Code::Ok));
    }
}
