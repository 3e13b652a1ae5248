//! Asks the coordinators of a ticket until one lets the machine in. What is asked, which answer is taken and when is asked
//! again is `enrol`'s matter; here are the connections. Must never touch the disk.
//!
//! ```text
//!   Asker ─► round of all endpoints ─ answered, and it fits ─► Admission
//!              ▲ └ nobody, or refused: the reason is shown; pause
//!              └──────────────────┘
//! ```

use std::future::ready;
use std::io;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::public_client::PublicClient;
use api::wire;
use cluster::record::{BadRecord, Release};
use cluster::redeem::{Answer, MOST_ANSWER_BYTES};
use enrol::join::pace::{self, Pace, Round};
use enrol::join::{About, Admission, Asker, NotAccepted};
use enrol::making::Issued;
use hyper_util::rt::TokioIo;
use keys::endpoint::{Endpoint, MOST_ENDPOINTS};
use keys::ticket::EXPORTER_LABEL;
use model::{Chain, VPN_PORT};
use pki::client_auth::machine_certificate;
use pki::server_auth::{any_coordinator, verify_member};
use pki::{CertificateDer, Identity, PrivateKey, PublicKey, SpkiPin, VerifyError, cluster_tls_name};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Endpoint as Destination, Uri};
use tonic::{Code, Status};
use tower::service_fn;
use zeroize::Zeroizing;

use super::create::random;
use crate::facts::Link;
use crate::runtime::lock;
use crate::runtime::tls::Clock;
use crate::shown::board::Board;
use crate::version::VERSION;

/// A lease takes a second or two; a machine whose address is static has it at once.
const LINKS: Duration = Duration::from_secs(15);
/// Under emulation on a busy host a handshake takes seconds.
const CONNECTS: Duration = Duration::from_secs(10);
/// A decision over etcd, and what is issued after it.
const ANSWERS: Duration = Duration::from_secs(30);

/// Why one coordinator did not let the machine in.
#[derive(Debug, thiserror::Error)]
enum NotLetIn {
    /// Nothing listens, or nothing leads there.
    #[error("connect to {0}")]
    Connect(Endpoint, #[source] io::Error),
    /// Nobody says anything.
    #[error("{0} does not answer")]
    Silent(Endpoint),
    /// What the connection needs cannot be made of the machine's key.
    #[error("make ready to ask")]
    Ready(#[source] ReadyError),
    /// The coordinator cannot decide now.
    #[error("{0} cannot answer now: {1}")]
    Unavailable(Endpoint, String),
    /// The coordinator says no.
    #[error("{0} refuses: {1}")]
    Refused(Endpoint, String),
    /// It says something that makes no sense.
    #[error("the answer of {0} cannot be read")]
    Answer(Endpoint, #[source] BadRecord),
    /// Its certificates do not hold.
    #[error("the certificates that {0} gives are refused")]
    Certificates(Endpoint, #[source] VerifyError),
    /// It does not fit this machine.
    #[error("the answer of {0} is not taken")]
    NotAccepted(Endpoint, #[source] NotAccepted),
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
enum ReadyError {
    #[error(transparent)]
    Key(#[from] pki::KeyError),
    #[error(transparent)]
    Certificate(#[from] pki::IssueError),
    #[error(transparent)]
    Tls(#[from] pki::TlsError),
}

impl NotLetIn {
    /// How a round ends in which this was the last word of one coordinator.
    const fn round(&self) -> Round {
        match self {
            Self::Connect(..) | Self::Silent(_) | Self::Ready(_) | Self::Unavailable(..) => Round::Unanswered,
            Self::Refused(..) | Self::Answer(..) | Self::Certificates(..) | Self::NotAccepted(..) => Round::Refused,
        }
    }
}

/// Asks until a coordinator lets the machine in. What each says is shown; nothing of the disk is touched.
pub(super) async fn admission(asker: &Asker, board: &Board) -> Admission {
    let mut pace = Pace::new();
    has_a_link(board).await;
    loop {
        let mut ended = Round::Unanswered;
        for endpoint in pace::round(&asker.ticket().coordinator_public_endpoints, chance()) {
            board.step("redeem");
            match ask(asker, board, endpoint).await {
                Ok(admission) => return admission,
                Err(why) => {
                    ended = if why.round() == Round::Refused { Round::Refused } else { ended };
                    let reason = Chain(&why).to_string();
                    tracing::warn!(reason, "not let in");
                    board.error(&format!("not let in: {reason}. Nothing was changed; this machine asks again"));
                }
            }
        }
        sleep(pace.after(ended, chance())).await;
    }
}

/// Until the machine has an address, or might never get one.
async fn has_a_link(board: &Board) {
    let mut facts = board.facts().watch();
    let has_one = facts.wait_for(|now| !now.links.is_empty());
    let _or_asks_without = timeout(LINKS, has_one).await;
}

/// Spreads machines that were switched on together; where there is no randomness they are not spread.
fn chance() -> u32 {
    let mut bytes = [0; 4];
    let _or_zero = random(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Asks one coordinator, once.
async fn ask(asker: &Asker, board: &Board, endpoint: &Endpoint) -> Result<Admission, NotLetIn> {
    let silent = || NotLetIn::Silent(endpoint.clone());
    let session = timeout(CONNECTS, connect(asker, endpoint)).await.map_err(|_elapsed| silent())??;
    let mut exporter = [0; 32];
    session.get_ref().1.export_keying_material(&mut exporter, EXPORTER_LABEL, None).map_err(|_| silent())?;
    let request = asker.request(&about(board), &exporter);
    let answered = timeout(ANSWERS, redeem(session, request)).await.map_err(|_elapsed| silent())?;
    let bytes = answered.map_err(|status| not_let_in(endpoint, &status))?;
    let answer = Answer::decode(&bytes).map_err(|error| NotLetIn::Answer(endpoint.clone(), error))?;
    let issued = issued(asker, &answer).map_err(|error| NotLetIn::Certificates(endpoint.clone(), error))?;
    let admission = Admission { answer, issued };
    asker.takes(&admission).map_err(|why| NotLetIn::NotAccepted(endpoint.clone(), why))?;
    Ok(admission)
}

/// What a status means: a coordinator that decided says so, any other cannot decide now.
fn not_let_in(endpoint: &Endpoint, status: &Status) -> NotLetIn {
    let (endpoint, said) = (endpoint.clone(), status.message().to_owned());
    let undecided =
        [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::ResourceExhausted];
    if undecided.contains(&status.code()) {
        NotLetIn::Unavailable(endpoint, said)
    } else {
        NotLetIn::Refused(endpoint, said)
    }
}

/// A TLS session with a coordinator of the ticket's cluster, as the machine that the attempt made.
async fn connect(asker: &Asker, endpoint: &Endpoint) -> Result<TlsStream<TcpStream>, NotLetIn> {
    let failed = |error| NotLetIn::Connect(endpoint.clone(), error);
    let tls = client(asker).map_err(NotLetIn::Ready)?;
    let tcp = TcpStream::connect(endpoint.as_str()).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let name =
        ServerName::try_from(cluster_tls_name(asker.ticket().cluster)).expect("hex digits and dots are a DNS name");
    TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.map_err(failed)
}

fn client(asker: &Asker) -> Result<ClientConfig, ReadyError> {
    let key = PrivateKey::ed25519(asker.identity().seed())?;
    let identity = Identity { chain: vec![machine_certificate(&key)?], key: &key };
    let ticket = asker.ticket();
    let mut tls = any_coordinator(ticket.cluster, SpkiPin(ticket.ca_spki), identity, Arc::new(Clock))?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(tls)
}

/// One call over this one session. What comes back is a secret.
async fn redeem(session: TlsStream<TcpStream>, request: Vec<u8>) -> Result<Zeroizing<Vec<u8>>, Status> {
    let session = Mutex::new(Some(session));
    let once = service_fn(move |_: Uri| {
        let session = lock::even_if_poisoned(&session).take();
        ready(session.map(TokioIo::new).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    // The authority of requests says nothing about the machine: TLS has said it.
    let coordinator = Destination::from_static("https://machine.cairn.internal");
    let channel = coordinator.connect_with_connector(once).await;
    let channel = channel.map_err(|error| Status::unavailable(Chain(&error).to_string()))?;
    let mut client = PublicClient::new(channel).max_decoding_message_size(MOST_ANSWER_BYTES + 16);
    let answer = client.redeem(wire::RedeemRequest { request }).await?;
    Ok(Zeroizing::new(answer.into_inner().response))
}

/// What an answer's certificates are for: the machine's own key, under the ticket's pin.
fn issued(asker: &Asker, answer: &Answer) -> Result<Issued, VerifyError> {
    let leaf = CertificateDer::from(answer.certificate.as_slice());
    let authority = CertificateDer::from(answer.ca_certificate.as_slice());
    let (ticket, key) = (asker.ticket(), PublicKey::from_ed25519(asker.identity().public()));
    verify_member(&leaf, &authority, ticket.cluster, SpkiPin(ticket.ca_spki), &key)?;
    let ca = pki::public_key_of(&authority).map_err(|_| VerifyError::OtherKey)?;
    Ok(Issued {
        ca_spki: ca.spki(),
        ca_certificate: answer.ca_certificate.clone(),
        machine_certificate: answer.certificate.clone(),
    })
}

/// What the machine says of itself: its image, and where its WireGuard listens.
fn about(board: &Board) -> About {
    let boot = board.facts().boot();
    About {
        release: Release::read(VERSION).expect("a version of this workspace is three numbers"),
        root_hash: boot.root_hash,
        endpoints: board.facts().read(|now| wireguards(&now.links)),
    }
}

fn wireguards(links: &[Link]) -> Vec<Endpoint> {
    let endpoint = |link: &Link| Endpoint::read(&SocketAddrV4::new(link.address.ip, VPN_PORT).to_string()).ok();
    let mut endpoints: Vec<_> = links.iter().filter_map(endpoint).collect();
    endpoints.dedup();
    endpoints.truncate(MOST_ENDPOINTS);
    endpoints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Address;

    fn endpoint() -> Endpoint {
        Endpoint::read("192.0.2.1:7836").expect("an endpoint")
    }

    /// Proves: S3
    #[test]
    fn a_refusal_is_told_in_the_clusters_words_and_asked_again_rarely() {
        let denied = cluster::denied::Denied::TicketUsedUp(1);
        let status = Status::failed_precondition(format!("{denied}; nothing was changed"));
        let why = not_let_in(&endpoint(), &status);
        let expected =
            "192.0.2.1:7836 refuses: the ticket is used up: it has admitted 1 of 1 machines; nothing was changed";
        assert_eq!(Chain(&why).to_string(), expected);
        assert_eq!(why.round(), Round::Refused);
        for busy in
            [Status::unavailable("no quorum"), Status::resource_exhausted("try again"), Status::unknown("broken")]
        {
            assert_eq!(not_let_in(&endpoint(), &busy).round(), Round::Unanswered, "{busy}");
        }
        let silent = NotLetIn::Connect(endpoint(), io::ErrorKind::ConnectionRefused.into());
        assert_eq!(silent.round(), Round::Unanswered);
    }

    #[test]
    fn a_machine_says_where_its_wireguard_listens() {
        let link = |ip: [u8; 4]| Link {
            name: "eth0".to_owned(),
            address: Address { ip: ip.into(), prefix: "192.0.2.0/24".parse().expect("a prefix") },
        };
        let links: Vec<_> = (1..=9).map(|n| link([192, 0, 2, n])).collect();
        let said = wireguards(&links);
        assert_eq!((said.len(), said[0].as_str()), (8, "192.0.2.1:7838"));
        assert!(wireguards(&[]).is_empty());
    }
}
