//! The VPN API of a coordinator: other machines of the cluster announce themselves, and hear of each other. It is bound to
//! the VPN address, and takes connections of the cluster's machines only; each call is let in by its machine's record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::vpn_server::VpnServer;
use api::{CertificateRequests, FloatingAddresses, HandedOver, Presence, wire};
use cluster::peers::News;
use cluster::record::MachineRecord;
use cluster::state::HandOverError;
use cluster::{Denial, Knowledge, View, Word};
use door::{Changes, PutOff};
use keys::identity::{Identity, machine_id};
use model::{Chain, MachineId, MachinePubKey, VPN_API_PORT};
use pki::client_auth::{Who, members};
use pki::{CertificateDer, PrivateKey};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::http::{self, Extensions};
use tonic::codegen::{BoxFuture, Service as _};
use tonic::{Request, Response, Status};

use super::access::{Methods, Reader};
use super::underway::Underway;
use super::{Callers, Front};
use crate::enrolment;
use crate::facts::Facts;
use crate::records::{CertifyError, GrantError, NewsFor, NoNews, Records};
use crate::rpc;
use crate::runtime::services::{Ends, Run, Unit};
use crate::runtime::tls::Clock;
use crate::runtime::{clock, lock, tasks};

/// Calls of one machine that are answered at a time, beside its stream of news.
pub(super) const MEMBER_CALLS: u32 = 8;
/// Time after which a caller that takes no bytes is taken to read nothing: its own patience is half of that.
const UNREAD: Duration = Duration::from_secs(30);
/// Least time between two questions of a machine for floating addresses: it asks each 2 s.
const BETWEEN_HOLDS: Duration = Duration::from_secs(1);
/// Name of the API's task and thread.
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

/// Unit that serves the VPN API at the machine's address there, over the records of this coordinator.
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
    let mut tls = members(pki::TlsIdentity { chain, key: &key }, authority, holder.cluster, Arc::new(Clock))?;
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
        let vpn = VpnServer::new(Vpn::over(records.clone()))
            .max_decoding_message_size(api::limits::MACHINE_REQUEST_BYTES)
            .max_encoding_message_size(api::MOST_NEWS_BYTES);
        Self { facts, records, vpn }
    }
}

impl Methods for VpnMethods {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn knows(&self, machine: &MachineId) -> bool {
        let belongs = |view: &View| view.state().machine(machine).is_some_and(MachineRecord::belongs);
        self.records.read(|view, _| belongs(view)).unwrap_or(false)
    }

    fn owner_called(&self) {}

    /// The mesh knows where a member is.
    fn called_early(&self, _: MachineId, _: IpAddr) {}

    /// A certificate outlives what a machine is; its record does not.
    fn call(&self, request: http::Request<Body>) -> BoxFuture<http::Response<Body>, Infallible> {
        let key = member(request.extensions());
        match key.and_then(|key| Ok(news(&self.records, key, Knowledge::default()).may_hear()?)) {
            Ok(()) => self.vpn.clone().call(request),
            Err(refused) => Box::pin(ready(Ok(refused.into_http()))),
        }
    }
}

impl From<NoNews> for Status {
    fn from(error: NoNews) -> Self {
        match error {
            // It may have a leader: whoever asks before a recovery asks again.
            NoNews::Unread(_) => api::not_yet(error.to_string()),
            NoNews::Lapsed => Self::failed_precondition(error.to_string()),
            NoNews::NotMember => Self::permission_denied(error.to_string()),
        }
    }
}

fn not_handed_over(why: HandOverError) -> Status {
    match why {
        HandOverError::NotAdded => api::not_yet(why.to_string()),
        HandOverError::Votes => Status::failed_precondition(why.to_string()),
        HandOverError::NoCoordinator => Status::permission_denied(why.to_string()),
    }
}

/// The machine that calls, as the access table has let it in.
fn member(extensions: &Extensions) -> Result<MachinePubKey, Status> {
    match extensions.get() {
        Some(Who::Member(key)) => Ok(*key),
        Some(Who::Stranger | Who::Person(_) | Who::User(..) | Who::Machine(_) | Who::Owner(_)) | None => {
            Err(Status::unauthenticated("no machine of the cluster calls; nothing was done"))
        }
    }
}

fn news(records: &Records, key: MachinePubKey, known: Knowledge) -> NewsFor {
    records.news(machine_id(&key.0), known)
}

#[derive(Debug, Clone)]
struct Vpn {
    records: Records,
    underway: Arc<Underway>,
    /// Certificates that machines were given lately.
    certified: Arc<Mutex<Changes>>,
    /// When machines asked for floating addresses last.
    holders: Arc<Mutex<HashMap<MachineId, Instant>>>,
    /// Ends the stream of news that a machine has; gone when that has ended.
    listeners: Arc<Mutex<HashMap<MachineId, oneshot::Sender<Infallible>>>>,
}

impl Vpn {
    fn over(records: Records) -> Self {
        let underway = Arc::new(Underway::at_most(MEMBER_CALLS));
        Self { records, underway, certified: Arc::default(), holders: Arc::default(), listeners: Arc::default() }
    }

    /// A machine asks for floating addresses, each of which costs a look at what a quorum has.
    fn may_ask(&self, machine: MachineId, now: Instant) -> Result<(), GrantError> {
        let mut holders = lock::even_if_poisoned(&self.holders);
        holders.retain(|_, asked| now < *asked + BETWEEN_HOLDS);
        match holders.entry(machine) {
            Entry::Occupied(_) => Err(GrantError::PutOff),
            Entry::Vacant(first) => {
                first.insert(now);
                Ok(())
            }
        }
    }

    /// A machine listens from now on, and where it did before no more; tells when it listens elsewhere.
    fn listens(&self, machine: MachineId) -> oneshot::Receiver<Infallible> {
        let (ends, elsewhere) = oneshot::channel();
        let mut listeners = lock::even_if_poisoned(&self.listeners);
        listeners.retain(|_, ends| !ends.is_closed());
        listeners.insert(machine, ends);
        elsewhere
    }
}

#[tonic::async_trait]
impl api::vpn_server::Vpn for Vpn {
    type PeersStream = Pin<Box<dyn Stream<Item = Result<wire::PeersResponse, Status>> + Send>>;

    async fn announce(
        &self,
        request: Request<wire::AnnounceRequest>,
    ) -> Result<Response<wire::AnnounceResponse>, Status> {
        let machine = member(request.extensions())?;
        let _place = self.underway.begin(machine_id(&machine.0))?;
        let Presence { release, endpoints, key_generation: generation, epoch } = request.into_inner().try_into()?;
        self.records.grant(cluster::request::Request::Announce { machine, release, endpoints, generation }).await?;
        if let Some(number) = epoch {
            match self.records.grant(cluster::request::Request::AcknowledgeEpoch { machine, number }).await {
                // It may have seen an older one: of the newest it hears, and says so then.
                Err(GrantError::Denied(Denial::UnknownEpoch(_))) => {}
                granted => drop(granted?),
            }
        }
        Ok(Response::new(wire::AnnounceResponse {}))
    }

    async fn peers(&self, request: Request<wire::PeersRequest>) -> Result<Response<Self::PeersStream>, Status> {
        let machine = member(request.extensions())?;
        let reader = request.extensions().get::<Reader>().cloned();
        let known = Knowledge::try_from(request.into_inner())?;
        let elsewhere = self.listens(machine_id(&machine.0));
        Ok(Response::new(told(news(&self.records, machine, known), elsewhere, reader)))
    }

    async fn hand_over(
        &self,
        request: Request<wire::HandOverRequest>,
    ) -> Result<Response<wire::HandOverResponse>, Status> {
        let machine = machine_id(&member(request.extensions())?.0);
        let _place = self.underway.begin(machine)?;
        let may = || self.records.hands_over_to(machine).map_err(NoNews::from)?.map_err(not_handed_over);
        may()?;
        // And by what a quorum has now: a copy that is cut off would hand keys to whom the others have removed.
        self.records.catch_up().await?;
        may()?;
        let keys = enrolment::hand_over().await.map_err(|error| {
            tracing::error!(%machine, error = %Chain(&error), "a coordinator's keys cannot be handed over");
            Status::unavailable(format!("the keys cannot be read: {}; ask again", Chain(&error)))
        })?;
        tracing::info!(%machine, "a coordinator's keys are handed over");
        Ok(Response::new(HandedOver { keys }.into()))
    }

    async fn certify(&self, request: Request<wire::CertifyRequest>) -> Result<Response<wire::CertifyResponse>, Status> {
        let machine = machine_id(&member(request.extensions())?.0);
        let _place = self.underway.begin(machine)?;
        let requests = CertificateRequests::try_from(request.into_inner())?;
        // A machine that asks for ever costs six rounds of etcd and as many lines a minute, no more.
        let taken = lock::even_if_poisoned(&self.certified).ask(machine, clock::now());
        taken.map_err(|PutOff| GrantError::PutOff)?;
        let certified = self.records.certify(machine, requests).await?;
        tracing::info!(%machine, "a worker's certificates are signed");
        Ok(Response::new(certified.into()))
    }

    async fn hold(&self, request: Request<wire::HoldRequest>) -> Result<Response<wire::HoldResponse>, Status> {
        let machine = machine_id(&member(request.extensions())?.0);
        let _place = self.underway.begin(machine)?;
        let FloatingAddresses(asked) = request.into_inner().try_into()?;
        self.may_ask(machine, clock::now())?;
        let held = self.records.hold(machine, &asked).await?;
        Ok(Response::new(FloatingAddresses(held).into()))
    }
}

impl From<CertifyError> for Status {
    fn from(error: CertifyError) -> Self {
        match error {
            CertifyError::NoWorker => Self::permission_denied(error.to_string()),
            CertifyError::Unread(error) => NoNews::from(error).into(),
            CertifyError::Unconfirmed(error) => error.into(),
            CertifyError::Request(_) => Self::invalid_argument(error.to_string()),
            CertifyError::Issue(_) => Self::internal(Chain(&error).to_string()),
        }
    }
}

/// The news, one after the other, until there are none for this machine, or it listens elsewhere; the task that waits for them ends
/// with the stream. A stream that is not read ends with its connection.
fn told(
    mut news: NewsFor,
    elsewhere: oneshot::Receiver<Infallible>,
    reader: Option<Reader>,
) -> Pin<Box<dyn Stream<Item = Result<wire::PeersResponse, Status>> + Send>> {
    // One is under way while the next is waited for.
    let (sender, answers) = mpsc::channel(1);
    let (reads, gone) = oneshot::channel::<Infallible>();
    let telling = tasks::spawn(async move {
        let tells = async {
            loop {
                let next = news.next().await;
                let last = matches!(next, Ok(Word::News(News::Behind)) | Err(_));
                let answer = next.map(wire::PeersResponse::from).map_err(Status::from);
                let read = timeout(UNREAD, sender.send(answer)).await;
                if last || !matches!(read, Ok(Ok(()))) {
                    return;
                }
            }
        };
        tokio::select! {
            () = tells => {}
            _ended = elsewhere => {}
        }
        drop(sender);
        // Whoever reads comes to the end now, and nothing of this is left.
        let _reads_nothing = timeout(UNREAD, gone).await;
        if let Some(reader) = reader {
            reader.reads_nothing();
        }
    });
    Box::pin(ReceiverStream::new(answers).map(move |answer| {
        let _live_as_long_as_the_stream = (&telling, &reads);
        answer
    }))
}

#[cfg(test)]
mod tests {
    use api::vpn_server::Vpn as _;
    use cluster::record::Standing;
    use door::{Guest, Over, Visit};
    use model::Caller;

    use super::*;
    use crate::records::fixture::{machine, records};
    use crate::rpc::access::Guarded;
    use crate::rpc::connection::Port;
    use crate::rpc::world;
    use crate::runtime::clock;

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

    /// A coordinator whose records know machine 1 and 2, and what ends a connection to it.
    fn vpn() -> (Vpn, Arc<watch::Sender<Visit>>) {
        let facts = world::Machine::running().facts;
        let known = [1, 2].map(|n| machine(n, Standing::Member));
        let mut visit = Visit::new(Caller::Member, clock::now());
        visit.heard();
        (Vpn::over(records(&facts, &known, None)), Arc::new(watch::Sender::new(visit)))
    }

    fn request<T>(n: u8, visit: &Arc<watch::Sender<Visit>>, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.extensions_mut().insert(Who::Member(MachinePubKey([n; 32])));
        request.extensions_mut().insert(Reader(visit.clone()));
        request
    }

    /// Proves: Q1
    #[tokio::test(start_paused = true)]
    async fn a_machine_has_one_stream_of_news() {
        let (vpn, visit) = vpn();
        let listens = async |n| {
            let asked = wire::PeersRequest::from(Knowledge::default());
            vpn.peers(request(n, &visit, asked)).await.expect("news").into_inner()
        };
        let mut first = listens(1).await;
        assert!(first.next().await.is_some_and(|told| told.is_ok()));
        let mut other = listens(2).await;
        let mut second = listens(1).await;
        while let Some(told) = timeout(Duration::from_secs(1), first.next()).await.expect("it ends") {
            told.expect("what was under way");
        }
        drop(first);
        for _ in 0..20 {
            for stream in [&mut other, &mut second] {
                assert!(stream.next().await.is_some_and(|told| told.is_ok()), "it goes on");
            }
        }
        drop((other, second));
        tokio::task::yield_now().await;
        listens(1).await.next().await.expect("a third").expect("news");
        assert_eq!(lock::even_if_poisoned(&vpn.listeners).len(), 1, "whoever listens no more is forgotten");
        assert_eq!(visit.borrow().ends(), None, "all have read what they were told");
    }

    /// Proves: Q1
    #[tokio::test(start_paused = true)]
    async fn a_stream_of_news_that_nobody_reads_ends_its_connection() {
        let begin = || wire::PeersRequest::from(Knowledge::default());
        let unread = async |visit: &Arc<watch::Sender<Visit>>| {
            let mut changes = visit.subscribe();
            let told = timeout(Duration::from_secs(3600), changes.wait_for(|visit| visit.ends().is_some())).await;
            told.expect("within an hour").expect("the sender is there").ends().map(|(_, why)| why)
        };
        let (vpn, visit) = vpn();
        let mut stream = vpn.peers(request(1, &visit, begin())).await.expect("news").into_inner();
        stream.next().await.expect("the first").expect("news");
        let began = tokio::time::Instant::now();
        assert_eq!(unread(&visit).await, Some(Over::Unread));
        assert!(began.elapsed() <= Duration::from_secs(70), "{:?}", began.elapsed());
        // So does one that another one has ended.
        let (vpn, visit) = self::vpn();
        let _first = vpn.peers(request(1, &visit, begin())).await.expect("news");
        let mut second = vpn.peers(request(1, &visit, begin())).await.expect("news").into_inner();
        tokio::select! {
            why = unread(&visit) => assert_eq!(why, Some(Over::Unread)),
            () = async { while second.next().await.is_some() {} } => panic!("it is read, and has no end"),
        }
    }

    /// Proves: Q1 W8
    #[tokio::test]
    async fn a_machine_asks_for_addresses_once_a_second() {
        let (vpn, visit) = vpn();
        let asks = async |n| {
            let asked = request(n, &visit, wire::HoldRequest { addresses: vec![0xc000_0232] });
            vpn.hold(asked).await.map(|told| told.into_inner().addresses).map_err(|refused| refused.code())
        };
        assert_eq!((asks(1).await, asks(2).await), (Ok(vec![]), Ok(vec![])), "they are named for none");
        assert_eq!(asks(1).await, Err(tonic::Code::ResourceExhausted));
        let (one, now) = (machine(1, Standing::Member).id(), clock::now());
        assert!(vpn.may_ask(one, now + BETWEEN_HOLDS).is_ok() && vpn.may_ask(one, now + BETWEEN_HOLDS).is_err());
    }

    /// Proves: Q1
    #[tokio::test]
    async fn a_machine_has_eight_calls_at_a_time() {
        let (vpn, visit) = vpn();
        let asks = async |n| {
            let refused = vpn.hand_over(request(n, &visit, wire::HandOverRequest {})).await;
            refused.expect_err("it is to be no coordinator").code()
        };
        let one = machine(1, Standing::Member).id();
        let mut underway: Vec<_> = (0..8).map(|_| vpn.underway.begin(one).expect("eight")).collect();
        assert_eq!((asks(1).await, asks(2).await), (tonic::Code::ResourceExhausted, tonic::Code::PermissionDenied));
        let announced =
            Presence { release: crate::version::release(), endpoints: vec![], key_generation: 1, epoch: None };
        let refused = vpn.announce(request(1, &visit, announced.into())).await.expect_err("there are eight");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        underway.pop();
        assert_eq!(asks(1).await, tonic::Code::PermissionDenied);
    }

    /// Proves: Q1
    #[tokio::test]
    async fn whom_the_records_know_is_no_newcomer() {
        let facts = world::Machine::running().facts;
        let known = [(1, Standing::Admitted), (2, Standing::Removed)].map(|(n, standing)| machine(n, standing));
        let methods = VpnMethods::new(facts.clone(), records(&facts, &known, None));
        let port = Port::new(Guarded::new(Box::new(methods)), world::Machine::running().front.subscribe());
        let guest = |n: u8| port.guest(&Who::Member(MachinePubKey([n; 32])));
        let [one, two, three] = [1, 2, 3].map(|n| machine(n, Standing::Member).id());
        assert_eq!([1, 2, 3].map(guest), [Guest::Member(one), Guest::Newcomer(two), Guest::Newcomer(three)]);
        assert_eq!(port.guest(&Who::Stranger), Guest::Stranger);
    }
}
