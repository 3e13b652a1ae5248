//! The way of owners and users into Kubernetes: a certificate for a day or an hour, and where the tunnel leads. No private key is handed
//! out.

use std::sync::Arc;
use std::time::Duration;

use api::{ClientCertificate, UnixMillis};
use model::Chain;
use pki::{Authority, CertificateProfile, UnixTime};

use probe::http::Session;

use super::person::Person;
use crate::control::{self, Apiservers, NoControlPlane, NodeError, VolumeCalls};

/// The Kubernetes API's certificate is valid for this name, whatever address it is reached by.
const NAME: &str = "kubernetes";

/// Authority that signs kubeconfigs, and the way to the Kubernetes API.
#[derive(Debug)]
pub(crate) struct KubernetesAccess {
    /// Signs kubeconfigs.
    pub(crate) authority: Arc<Authority>,
    /// Apiservers to which a tunnel leads.
    pub(crate) apiservers: Apiservers,
    /// Way to the workers' volumes.
    pub(crate) volumes: VolumeCalls,
}

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsigned {
    /// The request is not one, or does not prove possession of its key.
    #[error("{0}; nothing was signed")]
    Request(#[from] pki::BadRequest),
    /// The authority failed.
    #[error("sign the certificate")]
    Issue(#[from] pki::IssueError),
}

impl From<Unsigned> for tonic::Status {
    fn from(error: Unsigned) -> Self {
        match &error {
            Unsigned::Request(_) => Self::invalid_argument(error.to_string()),
            Unsigned::Issue(_) => Self::internal(Chain(&error).to_string()),
        }
    }
}

/// Why the Kubernetes API is not asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSession {
    /// There is none.
    #[error(transparent)]
    Nowhere(#[from] NoControlPlane),
    /// No certificate for it.
    #[error(transparent)]
    Client(#[from] NodeError),
}

impl KubernetesAccess {
    /// A session with an apiserver, as PID 1 of a coordinator.
    pub(super) fn session(&self) -> Result<Session, NoSession> {
        Ok(control::session(&self.authority, &CertificateProfile::KubeCoordinator, self.apiservers.first()?)?)
    }

    /// Access by this authority to these apiservers, of some coordinator.
    #[cfg(test)]
    pub(super) fn fixture(authority: Authority, apiservers: Apiservers) -> Self {
        let holder = keys::data_key::Holder { cluster: model::ClusterId([3; 16]), machine: model::MachineId([4; 16]) };
        let identity = keys::identity::Identity {
            key: keys::identity::SigningKey::from_seed(model::Secret::take(&mut [8; 32])).into(),
            name: model::NodeName::derived(holder.machine),
            holder,
            certificate: Vec::new(),
            ca_certificate: Vec::new(),
        };
        let volumes = VolumeCalls::as_coordinator(identity.into(), authority.public().pin());
        Self { authority: Arc::new(authority), apiservers, volumes }
    }

    /// Signs the key of a certificate request (DER) for who asks; `now` is Unix time.
    pub(super) fn certify(&self, whose: Person, request: &[u8], now: Duration) -> Result<ClientCertificate, Unsigned> {
        let key = pki::accept_request(request)?;
        let profile = match whose {
            Person::Owner(_) => CertificateProfile::KubeOwner,
            Person::User(name) => CertificateProfile::KubeUser { name },
        };
        let certificate = self.authority.issue(&profile, &key, UnixTime::since_unix_epoch(now))?;
        let end = now + profile.row().lifetime;
        Ok(ClientCertificate {
            ca_certificate: self.authority.certificate().to_vec(),
            client_certificate: certificate.to_vec(),
            tls_server_name: NAME.to_owned(),
            expires: UnixMillis(u64::try_from(end.as_millis()).unwrap_or(u64::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use pki::{AuthorityKind, PrivateKey, make_request};

    use super::*;

    #[test]
    fn a_request_is_signed_for_an_owners_day_or_a_users_hour() {
        let now = Duration::from_secs(1_800_000_000);
        let authority = Authority::create(AuthorityKind::Kubernetes, UnixTime::since_unix_epoch(now)).expect("a CA");
        let access = KubernetesAccess::fixture(authority, Apiservers::of(Ipv4Addr::LOCALHOST, Vec::new));
        let request = make_request(&PrivateKey::generate().expect("a key")).expect("a request");
        let owner = Person::Owner(model::OwnerPubKey([1; 32]));
        let answer = access.certify(owner, &request, now).expect("signed");
        assert!(answer.expires.0 <= 1_800_086_400_000, "a day at most: {:?}", answer.expires);
        assert_eq!(answer.ca_certificate, access.authority.certificate().to_vec());
        let user = Person::User("alice".parse().expect("a name"));
        let answer = access.certify(user, &request, now).expect("signed");
        assert_eq!(answer.expires.0, 1_800_003_600_000, "an hour");
        let subject = |certificate: &[u8]| {
            ["alice", "cairn:owner"].map(|name| certificate.windows(name.len()).any(|part| part == name.as_bytes()))
        };
        assert_eq!(subject(&answer.client_certificate), [true, false], "the name, and no group");
        let refused = access.certify(user, b"no request", now).expect_err("garbage");
        assert_eq!(tonic::Status::from(refused).code(), tonic::Code::InvalidArgument);
    }
}
