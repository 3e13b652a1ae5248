//! Asking a coordinator of a cluster that is known by its CA's key: over which connection, in which rounds, and what its refusal
//! means. Says nothing of what is asked; must never touch the disk.
//!
//! ```text
//!   first ─► round of all endpoints ─ one answers, and it fits ─► the answer
//!              ▲ └ nobody, or refused: the reason is shown; pause, a short one where other endpoints are heard of
//!              └──────────────────┘
//! ```

use std::error::Error;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::public_client::PublicClient;
use enrol::join::pace::{self, Pace, Round};
use keys::endpoint::Endpoint;
use keys::identity::SigningKey;
use model::{Chain, ClusterId, MachineId};
use pki::client_auth::machine_certificate;
use pki::server_auth::{any_coordinator, one_member};
use pki::{PrivateKey, SpkiPin, TlsError, TlsIdentity, cluster_tls_name, machine_tls_name};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::time_provider::TimeProvider;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint as Destination, Uri};
use tonic::{Code, Response, Status};
use tower::service_fn;

use super::create::random;
use crate::runtime::lock;
use crate::runtime::tls::Clock;
use crate::shown::board::Board;

/// A lease takes a second or two; a machine whose address is static has it at once.
const LINKS: Duration = Duration::from_secs(15);
/// Under emulation on a busy host a handshake takes seconds.
const CONNECTS: Duration = Duration::from_secs(10);
/// A decision over etcd, and what is issued after it.
const ANSWERS: Duration = Duration::from_secs(30);

/// Why one coordinator gives no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    /// No connection: the endpoint does not listen, or no route leads there.
    #[error("connect to {0}")]
    Connect(Endpoint, #[source] io::Error),
    /// The coordinator does not answer in time.
    #[error("{0} does not answer")]
    Silent(Endpoint),
    /// The connection's TLS configuration cannot be made of the machine's key.
    #[error("make ready to ask")]
    Ready(#[source] ReadyError),
    /// The coordinator cannot decide now.
    #[error("{0} cannot answer now: {1}")]
    Unavailable(Endpoint, String),
    /// The coordinator says no.
    #[error("{0} refuses: {1}")]
    Refused(Endpoint, String),
    /// A coordinator that has a leader says no; with what it says of where the coordinators are.
    #[error("{0} refuses: {1}")]
    Led(Endpoint, String, Vec<u8>),
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadyError {
    #[error(transparent)]
    Key(#[from] pki::KeyError),
    #[error(transparent)]
    Certificate(#[from] pki::IssueError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// How a round ends in which this was the last word of one coordinator.
pub(super) trait Ends: Error {
    fn round(&self) -> Round;
}

impl Ends for QuestionError {
    fn round(&self) -> Round {
        match self {
            Self::Connect(..) | Self::Silent(_) | Self::Ready(_) | Self::Unavailable(..) => Round::Unanswered,
            Self::Refused(..) | Self::Led(..) => Round::Refused,
        }
    }
}

/// How a question is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// On the screen, while somebody is asked.
    pub(super) step: &'static str,
    /// Outcome of a round in which nobody gives a good answer, as it is shown.
    pub(super) failed: &'static str,
}

/// Asks in rounds until an answer is good, at the places of now: where they become others, the next round begins soon. What each
/// coordinator says is shown; nothing of the disk is touched.
pub(super) async fn first<T, E: Ends>(
    mut places: watch::Receiver<Vec<Endpoint>>,
    board: &Board,
    shown: Shown,
    ask: impl AsyncFn(&Endpoint) -> Result<T, E>,
) -> T {
    let Shown { step, failed } = shown;
    let mut pace = Pace::new();
    has_a_link(board).await;
    loop {
        let mut ended = Round::Unanswered;
        let endpoints = places.borrow_and_update().clone();
        for endpoint in pace::round(&endpoints, chance()) {
            board.step(step);
            let mut standstill = board.facts().standstills().watch_after_a_look().await;
            let answered = tokio::select! {
                answered = ask(endpoint) => answered,
                // The session with it may be a copy's, too: it ends here, and another one is asked.
                () = standstill.wait() => continue,
            };
            match answered {
                Ok(answer) => return answer,
                Err(why) => {
                    ended = if why.round() == Round::Refused { Round::Refused } else { ended };
                    let reason = Chain(&why).to_string();
                    tracing::warn!(reason, "{failed}");
                    board.error(&format!("{failed}: {reason}. Nothing was changed; this machine asks again"));
                }
            }
        }
        tokio::select! {
            () = sleep(pace.after(ended, chance())) => {}
            // Whoever has them change pays for it: others are not asked more often than in a first pause.
            Ok(()) = places.changed() => {
                pace = Pace::new();
                sleep(pace.after(Round::Unanswered, chance())).await;
            }
        }
    }
}

/// Until the machine has an address, or might never get one.
pub(super) async fn has_a_link(board: &Board) {
    let mut facts = board.facts().watch();
    let has_one = facts.wait_for(|now| !now.links.is_empty());
    let _or_asks_without = timeout(LINKS, has_one).await;
}

/// Spreads machines that were switched on together; where there is no randomness they are not spread.
pub(super) fn chance() -> u32 {
    let mut bytes = [0; 4];
    let _or_zero = random(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Parties of a question: the machine that asks, and the cluster that is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asks<'a> {
    /// The cluster of which any coordinator will do.
    pub(super) cluster: ClusterId,
    /// The key of its CA.
    pub(super) authority: SpkiPin,
    /// The asking machine's key.
    pub(super) key: &'a SigningKey,
}

/// A TLS session with a coordinator of the cluster; nothing was asked in it.
#[derive(Debug)]
pub(super) struct Session<'a> {
    endpoint: &'a Endpoint,
    stream: TlsStream<TcpStream>,
}

/// Makes the TLS configuration that decides who is believed to be at the other end.
type Whom = fn(ClusterId, SpkiPin, TlsIdentity<'_>, Arc<dyn TimeProvider>) -> Result<ClientConfig, TlsError>;

impl Asks<'_> {
    /// Connects to who has to be a coordinator.
    ///
    /// # Errors
    /// [`QuestionError`].
    pub(super) async fn connect(self, endpoint: &Endpoint) -> Result<Session<'_>, QuestionError> {
        self.connect_as(any_coordinator, cluster_tls_name(self.cluster), endpoint).await
    }

    /// Connects to who has to be this machine.
    ///
    /// # Errors
    /// [`QuestionError`].
    pub(super) async fn connect_to(
        self,
        machine: MachineId,
        endpoint: &Endpoint,
    ) -> Result<Session<'_>, QuestionError> {
        self.connect_as(one_member, machine_tls_name(machine, self.cluster), endpoint).await
    }

    async fn connect_as(self, whom: Whom, name: String, endpoint: &Endpoint) -> Result<Session<'_>, QuestionError> {
        let silent = |_elapsed| QuestionError::Silent(endpoint.clone());
        let stream = timeout(CONNECTS, self.handshake(whom, name, endpoint)).await.map_err(silent)??;
        Ok(Session { endpoint, stream })
    }

    async fn handshake(
        self,
        whom: Whom,
        name: String,
        endpoint: &Endpoint,
    ) -> Result<TlsStream<TcpStream>, QuestionError> {
        let failed = |error| QuestionError::Connect(endpoint.clone(), error);
        let tls = self.client(whom).map_err(QuestionError::Ready)?;
        let tcp = TcpStream::connect(endpoint.as_str()).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let name = ServerName::try_from(name).expect("hex digits and dots are a DNS name");
        TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.map_err(failed)
    }

    fn client(self, whom: Whom) -> Result<ClientConfig, ReadyError> {
        let key = PrivateKey::ed25519(self.key.seed())?;
        let identity = TlsIdentity { chain: vec![machine_certificate(&key)?], key: &key };
        let mut tls = whom(self.cluster, self.authority, identity, Arc::new(Clock))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(tls)
    }
}

impl Session<'_> {
    /// Derives 32 bytes that both ends of this session know, and nobody else (RFC 8446, section 7.5).
    ///
    /// # Errors
    /// [`QuestionError::Silent`] where the session is over.
    pub(super) fn exporter(&self, label: &[u8]) -> Result<[u8; 32], QuestionError> {
        let silent = |_| QuestionError::Silent(self.endpoint.clone());
        let exported = self.stream.get_ref().1.export_keying_material([0; 32], label, None);
        exported.map_err(silent)
    }

    /// Makes one call over this session; its answer has at most `most_bytes`.
    ///
    /// # Errors
    /// [`QuestionError`] when there is no answer, or it is a refusal.
    pub(super) async fn call<T>(
        self,
        most_bytes: usize,
        call: impl AsyncFnOnce(&mut PublicClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, QuestionError> {
        let endpoint = self.endpoint;
        self.ask(most_bytes, call).await?.map_err(|status| refusal(endpoint, &status))
    }

    /// Makes one call over this session; its answer, of at most `most_bytes`, or the status that was answered instead.
    ///
    /// # Errors
    /// [`QuestionError::Silent`] when there is no answer.
    pub(super) async fn ask<T>(
        self,
        most_bytes: usize,
        call: impl AsyncFnOnce(&mut PublicClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<Result<T, Status>, QuestionError> {
        let Self { endpoint, stream } = self;
        let answered = timeout(ANSWERS, async {
            let mut client = PublicClient::new(channel(stream).await?).max_decoding_message_size(most_bytes);
            call(&mut client).await
        });
        let answered = answered.await.map_err(|_elapsed| QuestionError::Silent(endpoint.clone()))?;
        Ok(answered.map(Response::into_inner))
    }
}

async fn channel(session: TlsStream<TcpStream>) -> Result<Channel, Status> {
    let session = Mutex::new(Some(session));
    let once = service_fn(move |_: Uri| {
        let session = lock::even_if_poisoned(&session).take();
        ready(session.map(hyper_util::rt::TokioIo::new).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    // The authority of requests says nothing about the machine: TLS has said it.
    let coordinator = Destination::from_static("https://machine.cairn.internal");
    let channel = coordinator.connect_with_connector(once).await;
    channel.map_err(|error| Status::unavailable(Chain(&error).to_string()))
}

/// Meaning of a status: a coordinator that decided says so, any other cannot decide now.
fn refusal(endpoint: &Endpoint, status: &Status) -> QuestionError {
    let (endpoint, said) = (endpoint.clone(), status.message().to_owned());
    if let Some(directory) = api::told_by_leader(status) {
        return QuestionError::Led(endpoint, said, directory.to_vec());
    }
    let undecided = [
        api::NOT_YET,
        Code::Unavailable,
        Code::Unknown,
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::ResourceExhausted,
    ];
    if undecided.contains(&status.code()) {
        QuestionError::Unavailable(endpoint, said)
    } else {
        QuestionError::Refused(endpoint, said)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv4Addr;

    use model::{ClusterRole, Secret};
    use pki::client_auth::{Owners, server_config};
    use pki::{Authority, AuthorityKind, CertificateProfile, UnixTime};
    use tokio::net::TcpListener;
    use tokio::time::Instant;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::facts::Facts;
    use crate::machine::kernel::Boot;
    use crate::runtime::clock;

    fn endpoint() -> Endpoint {
        Endpoint::read("192.0.2.1:7836").expect("an endpoint")
    }

    /// Proves: S3
    #[test]
    fn a_refusal_is_told_in_the_clusters_words_and_rarely_retried() {
        let denied = cluster::denial::Denial::TicketUsedUp(1);
        let status = Status::failed_precondition(format!("{denied}; nothing was changed"));
        let why = refusal(&endpoint(), &status);
        let expected =
            "192.0.2.1:7836 refuses: the ticket is used up: it has admitted 1 of 1 machines; nothing was changed";
        assert_eq!(Chain(&why).to_string(), expected);
        assert_eq!(why.round(), Round::Refused);
        let unread = api::not_yet("the cluster's records are not read yet");
        let text = Chain(&refusal(&endpoint(), &unread)).to_string();
        assert_eq!(text, "192.0.2.1:7836 cannot answer now: the cluster's records are not read yet");
        let (no_quorum, busy) = (Status::unavailable("no quorum"), Status::resource_exhausted("try again"));
        for busy in [unread, no_quorum, busy, Status::unknown("broken")] {
            assert_eq!(refusal(&endpoint(), &busy).round(), Round::Unanswered, "{busy}");
        }
        let led = api::by_leader(&Status::failed_precondition("no"), Some(vec![7]));
        let led = refusal(&endpoint(), &led);
        assert!(matches!(&led, QuestionError::Led(_, _, told) if *told == [7]));
        assert_eq!((led.round(), Chain(&led).to_string().as_str()), (Round::Refused, "192.0.2.1:7836 refuses: no"));
        let silent = QuestionError::Connect(endpoint(), io::ErrorKind::ConnectionRefused.into());
        assert_eq!(silent.round(), Round::Unanswered);
    }

    /// Coordinators that are heard of in a long pause are asked soon, and a flood of such news asks nobody more often. Proves: K6 M6
    #[tokio::test(start_paused = true)]
    async fn places_that_are_heard_of_are_asked_soon_and_not_at_each_word() {
        let (facts, _power_on) = Facts::new(Boot::fixture());
        let board = Board::new(facts).0;
        let place = |number: u8| Endpoint::read(&format!("192.0.2.{number}:7836")).expect("an endpoint");
        let (heard, places) = watch::channel(vec![place(1)]);
        let rounds = RefCell::new(Vec::new());
        let asked = first(places, &board, Shown { step: "ask", failed: "no" }, async |at| {
            rounds.borrow_mut().push(Instant::now());
            if *at == place(9) { Ok(()) } else { Err(QuestionError::Refused(at.clone(), String::from("no"))) }
        });
        let tells = async {
            // Behind the first round, which was refused: the next one by itself is minutes away.
            sleep(LINKS + Duration::from_secs(1)).await;
            assert_eq!(rounds.borrow().len(), 1);
            for told in 0..100 {
                heard.send_replace(vec![place(2 + told % 2)]);
                sleep(Duration::from_millis(100)).await;
            }
            assert!((5..=21).contains(&rounds.borrow().len()), "in 10 s: {}", rounds.borrow().len());
            heard.send_replace(vec![place(1), place(9)]);
        };
        let began = Instant::now();
        tokio::join!(asked, tells);
        assert!(began.elapsed() < LINKS + Duration::from_secs(14), "{:?}", began.elapsed());
    }

    /// An impostor at a coordinator's address, whatever its own CA calls it, gets no further than the handshake: it is
    /// asked nothing, and whoever is there later is.
    ///
    /// Proves: A5 S3
    #[tokio::test]
    async fn an_impostor_at_a_coordinators_address_is_asked_nothing() {
        let now = UnixTime::since_unix_epoch(clock::unix());
        let authority = || Authority::create(AuthorityKind::Cairn, now).expect("an authority");
        let (ours, its_own) = (authority(), authority());
        let cluster = keys::identity::cluster_id(&ours.public().spki());
        let [coordinator, asker] = [1, 2].map(|seed| SigningKey::from_seed(Secret::take(&mut [seed; 32])));
        let asks = Asks { cluster, authority: ours.public().pin(), key: &asker };
        let machine = keys::identity::machine_id(&coordinator.public());
        let coordinator = PrivateKey::ed25519(coordinator.seed()).expect("a key");
        let issued = |by: &Authority, role| {
            let profile = CertificateProfile::Machine { machine, cluster, role };
            by.issue(&profile, coordinator.public(), now).expect("a certificate")
        };
        let (coordinates, node) = (ClusterRole::Coordinator, ClusterRole::Node);
        for (leaf, behind, believed) in [
            (issued(&ours, coordinates), &ours, true),
            (issued(&its_own, coordinates), &its_own, false),
            (issued(&its_own, coordinates), &ours, false),
            (issued(&ours, node), &ours, false),
        ] {
            let shown = TlsIdentity { chain: vec![leaf, behind.certificate().clone()], key: &coordinator };
            let server = server_config(shown, None, Owners::default(), Arc::new(Clock)).expect("a server");
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
            let at = listener.local_addr().expect("an address").to_string();
            let at = Endpoint::read(&at).expect("an endpoint");
            let answers = async {
                let (caller, _) = listener.accept().await.expect("somebody calls");
                TlsAcceptor::from(Arc::new(server)).accept(caller).await
            };
            let (asked, met) = tokio::join!(asks.connect(&at), answers);
            assert_eq!((asked.is_ok(), met.is_ok()), (believed, believed));
            let round = asked.err().map(|why| why.round());
            assert_eq!(round, (!believed).then_some(Round::Unanswered));
        }
    }
}
