//! The VPN API of a coordinator: other machines of the cluster announce themselves, and hear of each other. It is bound to
//! the VPN address, and takes connections of the cluster's machines only; each call is let in by its machine's record.

use std::convert::Infallible;
use std::future::ready;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use api::vpn_server::VpnServer;
use api::{Announced, HandedOver, PeersAnswer, wire};
use cluster::Denied;
use cluster::peers::News;
use cluster::state::{NotHandedOver, PeerVersion};
use keys::identity::Identity;
use model::{Chain, MachinePubKey, VPN_API_PORT};
use pki::client_auth::{Who, members};
use pki::{CertificateDer, PrivateKey};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::http::{self, Extensions};
use tonic::codegen::{BoxFuture, Service as _};
use tonic::{Request, Response, Status};

use super::access::Methods;
use super::{Callers, Front};
use crate::consensus::{NewsFor, NoNews, NotGranted, Records, Tells};
use crate::enrolment;
use crate::facts::Facts;
use crate::rpc;
use crate::runtime::services::{Ends, Run, Unit};
use crate::runtime::tasks;
use crate::runtime::tls::Clock;

/// Its task and its thread.
const NAME: &str = "vpn-api";

/// Why it cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The machine's key is none.
    #[error("use the machine's key for the VPN API")]
    Key(#[from] pki::KeyError),
    /// Certificate and key do not fit.
    #[error("configure the VPN API")]
    Tls(#[from] pki::TlsError),
}

/// What serves it at the machine's address in the VPN, over the records of this coordinator.
///
/// # Errors
/// [`Error`] names the step.
pub(crate) fn unit(identity: &Identity, vpn_ip: Ipv4Addr, facts: &Facts, records: &Records) -> Result<Unit, Error> {
    let address = SocketAddr::from((vpn_ip, VPN_API_PORT));
    let (facts, records) = (facts.clone(), records.clone());
    // It stays the same for as long as the machine coordinates.
    let front = watch::Sender::new(front(identity)?);
    let serve = Run::task(move || {
        let methods = VpnMethods::new(facts.clone(), records.clone());
        rpc::serve(NAME, address, Box::new(methods), front.subscribe())
    });
    Ok(Unit::task(NAME, Ends::Never, serve))
}

fn front(identity: &Identity) -> Result<Front, Error> {
    let Identity { key, holder, certificate, ca_certificate, .. } = identity;
    let key = PrivateKey::ed25519(key.seed())?;
    let authority = CertificateDer::from(ca_certificate.clone());
    let chain = vec![CertificateDer::from(certificate.clone()), authority.clone()];
    let mut tls = members(pki::Identity { chain, key: &key }, authority, holder.cluster, Arc::new(Clock))?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Front { tls: Arc::new(tls), callers: Callers::Members })
}

/// All methods that the port has.
#[derive(Debug)]
struct VpnMethods {
    facts: Facts,
    records: Records,
    vpn: VpnServer<Vpn>,
}

impl VpnMethods {
    fn new(facts: Facts, records: Records) -> Self {
        let vpn = VpnServer::new(Vpn(records.clone()))
            .max_decoding_message_size(api::limits::MACHINE_REQUEST_BYTES)
            .max_encoding_message_size(api::MOST_NEWS_BYTES);
        Self { facts, records, vpn }
    }
}

impl Methods for VpnMethods {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn owner_called(&self) {}

    /// A certificate outlives what a machine is; its record does not.
    fn call(&self, request: http::Request<Body>) -> BoxFuture<http::Response<Body>, Infallible> {
        let key = member(request.extensions());
        match key.and_then(|key| Ok(news(&self.records, key, None).may_hear()?)) {
            Ok(()) => self.vpn.clone().call(request),
            Err(refused) => Box::pin(ready(Ok(refused.into_http()))),
        }
    }
}

impl From<NoNews> for Status {
    fn from(error: NoNews) -> Self {
        match error {
            NoNews::Unread(_) | NoNews::Members => api::not_yet(error.to_string()),
            NoNews::NotMember => Self::permission_denied(error.to_string()),
        }
    }
}

fn not_handed_over(why: NotHandedOver) -> Status {
    match why {
        NotHandedOver::NotAdded => api::not_yet(why.to_string()),
        NotHandedOver::Votes => Status::failed_precondition(why.to_string()),
        NotHandedOver::NoCoordinator => Status::permission_denied(why.to_string()),
    }
}

/// The machine that calls, as the access table has let it in.
fn member(extensions: &Extensions) -> Result<MachinePubKey, Status> {
    match extensions.get() {
        Some(Who::Member(key)) => Ok(*key),
        Some(Who::Stranger | Who::Machine(_) | Who::Owner(_)) | None => {
            Err(Status::unauthenticated("no machine of the cluster calls; nothing was done"))
        }
    }
}

fn news(records: &Records, key: MachinePubKey, known: Option<PeerVersion>) -> NewsFor {
    records.news(keys::identity::machine_id(&key.0), known)
}

#[derive(Debug, Clone)]
struct Vpn(Records);

#[tonic::async_trait]
impl api::vpn_server::Vpn for Vpn {
    type PeersStream = Pin<Box<dyn Stream<Item = Result<wire::PeersResponse, Status>> + Send>>;

    async fn announce(
        &self,
        request: Request<wire::AnnounceRequest>,
    ) -> Result<Response<wire::AnnounceResponse>, Status> {
        let machine = member(request.extensions())?;
        let Announced { release, endpoints, key_generation: generation, epoch } = request.into_inner().try_into()?;
        self.0.grant(cluster::request::Request::Announce { machine, release, endpoints, generation }).await?;
        if let Some(number) = epoch {
            match self.0.grant(cluster::request::Request::AcknowledgeEpoch { machine, number }).await {
                // It may have seen an older one: of the newest it hears, and says so then.
                Err(NotGranted::Denied(Denied::UnknownEpoch(_))) => {}
                granted => drop(granted?),
            }
        }
        Ok(Response::new(wire::AnnounceResponse {}))
    }

    async fn peers(&self, request: Request<wire::PeersRequest>) -> Result<Response<Self::PeersStream>, Status> {
        let machine = member(request.extensions())?;
        Ok(Response::new(told(news(&self.0, machine, request.into_inner().into()))))
    }

    async fn hand_over(
        &self,
        request: Request<wire::HandOverRequest>,
    ) -> Result<Response<wire::HandOverResponse>, Status> {
        let machine = keys::identity::machine_id(&member(request.extensions())?.0);
        let members = self.0.members_for(machine).map_err(NoNews::from)?.map_err(not_handed_over)?;
        let keys = enrolment::hand_over().await.map_err(|error| {
            tracing::error!(%machine, error = %Chain(&error), "a coordinator's keys cannot be handed over");
            Status::unavailable(format!("the keys cannot be read: {}; ask again", Chain(&error)))
        })?;
        tracing::info!(%machine, "a coordinator's keys are handed over");
        Ok(Response::new(HandedOver { keys, members }.into()))
    }
}

/// The news, one after the other, until there are none for this machine; the task that waits for them ends with the stream.
fn told(mut news: NewsFor) -> Pin<Box<dyn Stream<Item = Result<wire::PeersResponse, Status>> + Send>> {
    // One is under way while the next is waited for.
    let (sender, answers) = mpsc::channel(1);
    let telling = tasks::spawn(async move {
        loop {
            let next = news.next().await;
            let last = matches!(next, Ok(Tells::News(News::Behind)) | Err(_));
            let answer = next.and_then(|tells| answer(tells, &news)).map(wire::PeersResponse::from);
            let answer = answer.map_err(Status::from);
            if sender.send(answer).await.is_err() || last {
                return;
            }
        }
    });
    Box::pin(ReceiverStream::new(answers).map(move |answer| {
        let _lives_as_long_as_the_stream = &telling;
        answer
    }))
}

fn answer(tells: Tells, of: &NewsFor) -> Result<PeersAnswer, NoNews> {
    Ok(match tells {
        Tells::News(news) => PeersAnswer::News { news, role: of.role()? },
        Tells::Directory(signed) => PeersAnswer::Directory(signed),
    })
}

#[cfg(test)]
mod tests {
    use cluster::record::Standing;

    use super::*;
    use crate::consensus::fixture::{machine, records};
    use crate::rpc::world;

    /// The certificate of each is as good as before. Proves: Q1
    #[tokio::test]
    async fn only_machines_of_the_cluster_reach_a_method() {
        let facts = world::Machine::running().facts;
        let known = [(1, Standing::Admitted), (2, Standing::Member), (3, Standing::Removed)];
        let known = known.map(|(n, standing)| machine(n, standing));
        let methods = VpnMethods::new(facts.clone(), records(&facts, &known, None));
        let call = async |who: Option<Who>| {
            let mut request = http::Request::post("/cairn.v1.Vpn/Nothing").body(Body::empty()).expect("a request");
            if let Some(who) = who {
                request.extensions_mut().insert(who);
            }
            let Ok(answer) = methods.call(request).await;
            Status::from_header_map(answer.headers()).expect("it has no such method").code()
        };
        let member = |n| Some(Who::Member(MachinePubKey([n; 32])));
        for n in [1, 2] {
            assert_eq!(call(member(n)).await, tonic::Code::Unimplemented, "{n} reaches it, and there is none");
        }
        for n in [3, 4] {
            assert_eq!(call(member(n)).await, tonic::Code::PermissionDenied, "{n} was removed, or never let in");
        }
        for who in [None, Some(Who::Stranger), Some(Who::Machine(MachinePubKey([2; 32])))] {
            assert_eq!(call(who).await, tonic::Code::Unauthenticated);
        }
    }
}
