//! Connections from their place at the door to their end: handshake, HTTP/2, deadlines. How long each may take is
//! decided by `door`; this performs it.
//!
//! ```text
//!   place ─► TLS 1.3 within 5 s ─► who? ─► settled as stranger or owner ─► HTTP/2 until `Visit` or the peer ends it
//! ```
//! Wherever it is, it ends when the machine has stood still: a copy of the machine would have the session's keys.
//! All that belongs to a connection ends with it, its place last.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use door::{Guest, NewPlace, Place, SettleError, Visit};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::{Caller, Ipv4Prefix};
use pki::client_auth::Who;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::Front;
use super::access::{Gate, Guarded};
use super::session::{Origin, Session};
use super::vpn::MEMBER_CALLS;
use crate::runtime::clock;
use crate::runtime::lock;
use crate::runtime::streams::{EndsStreams, Streams};
use crate::runtime::tls::STOOD_STILL;

/// From connection to finished handshake; under emulation one takes 60 ms.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A peer that does not answer HTTP/2 pings is gone.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Streams at a time: an owner's tools carry a tunnel's connections on one each.
const OWNER_STREAMS: u32 = 32;
/// A user's kubectl has a connection or two, each with requests of its own inside.
const USER_STREAMS: u32 = 12;
/// A machine of the cluster has one stream of news, and eight calls.
const MEMBER_STREAMS: u32 = 1 + MEMBER_CALLS;
/// `GetState` and `Claim` come one after the other.
const STRANGER_STREAMS: u32 = 2;
/// A stranger's largest request and its framing.
const STRANGER_WINDOW: u32 = 2 << 10;
/// The least there is (RFC 9113, section 6.9.2).
const STRANGER_CONNECTION_WINDOW: u32 = (64 << 10) - 1;
/// Names and values of a request's head; our tools send 300 bytes.
const HEAD: u32 = 4 << 10;
/// Answers that wait for a stranger to read them.
const STRANGER_ANSWERS: usize = 16 << 10;

/// State that all connections of the port share.
#[derive(Debug)]
pub(super) struct Port {
    guarded: Arc<Guarded>,
    front: watch::Receiver<Front>,
    door: Mutex<Door>,
}

/// The door, and whom to end when it says so.
#[derive(Debug, Default)]
struct Door {
    decides: door::Door,
    inside: std::collections::HashMap<Place, (IpAddr, AbortHandle)>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
struct Inside {
    port: Arc<Port>,
    place: Place,
}

impl Port {
    pub(super) fn new(guarded: Arc<Guarded>, front: watch::Receiver<Front>) -> Arc<Self> {
        Arc::new(Self { guarded, front, door: Mutex::default() })
    }

    /// Takes a connection in, or closes it.
    pub(super) fn enter<S>(self: &Arc<Self>, connections: &mut JoinSet<()>, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if is_a_pods(peer.ip(), self.guarded.facts().read(|now| now.prefixes.map(|own| own.pods))) {
            self.guarded.audit.connection(peer.ip(), "a pod's address");
            return;
        }
        let entered = lock::even_if_poisoned(&self.door).decides.knock(peer.ip(), clock::now());
        match entered {
            Ok(NewPlace { place, instead_of }) => {
                self.make_room(instead_of);
                let inside = Inside { port: self.clone(), place };
                let visit = connections.spawn(visit(inside, stream, peer));
                lock::even_if_poisoned(&self.door).inside.insert(place, (peer.ip(), visit));
            }
            Err(refused) => self.guarded.audit.connection(peer.ip(), refused.because()),
        }
    }

    /// By what the caller's places are counted.
    pub(super) fn guest(&self, who: &Who) -> Guest {
        match who {
            Who::Stranger | Who::Person(_) | Who::Machine(_) => Guest::Stranger,
            Who::User(name, _) => Guest::User(*name),
            Who::Owner(_) => Guest::Owner,
            Who::Member(key) => {
                let machine = keys::identity::machine_id(&key.0);
                if self.guarded.knows(&machine) { Guest::Member(machine) } else { Guest::Newcomer(machine) }
            }
        }
    }

    /// Ends the connection that lost its place.
    fn make_room(&self, leaves: Option<Place>) {
        let Some(leaves) = leaves else { return };
        let ended = lock::even_if_poisoned(&self.door).inside.remove(&leaves);
        if let Some((source, visit)) = ended {
            visit.abort();
            self.guarded.audit.connection(source, "made room for others");
        }
    }
}

/// Whether it is one of the many addresses that a machine has for its pods. WireGuard lets a peer send from these and from its own
/// in the VPN: by the latter alone it is one source. No pod has a reason to call a machine.
fn is_a_pods(source: IpAddr, pods: Option<Ipv4Prefix>) -> bool {
    match source.to_canonical() {
        IpAddr::V4(source) => pods.is_some_and(|pods| pods.contains(source)),
        IpAddr::V6(_) => false,
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut door = lock::even_if_poisoned(&self.port.door);
        door.decides.leave(self.place);
        door.inside.remove(&self.place);
    }
}

/// Serves one connection; where the machine ended it, the audit says why.
async fn visit<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(inside: Inside, stream: S, peer: SocketAddr) {
    let mut standstill = inside.port.guarded.facts().standstills().watch_after_a_look().await;
    let ended = tokio::select! {
        ended = meet(&inside, stream, peer) => ended,
        () = standstill.wait() => Err(String::from(STOOD_STILL)),
    };
    if let Err(why) = ended {
        inside.port.guarded.audit.connection(peer.ip(), &why);
    }
}

/// From the handshake to the end.
async fn meet<S>(inside: &Inside, stream: S, peer: SocketAddr) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tls = inside.port.front.borrow().tls.clone();
    match timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => match Origin::of(stream.get_ref().1, peer) {
            Ok(origin) => serve(inside, stream, origin).await,
            Err(error) => Err(format!("handshake failed: {error}")),
        },
        Ok(Err(error)) => Err(format!("handshake failed: {error}")),
        Err(_elapsed) => Err(String::from("handshake took longer than 5 s")),
    }
}

/// HTTP/2 until the peer or the visit's deadline ends it.
async fn serve<S>(inside: &Inside, stream: S, origin: Origin) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let port = &inside.port;
    let mut front = port.front.clone();
    // The owners of now: they may be others than when the handshake began.
    let who = match origin.who(&front.borrow_and_update().callers) {
        Ok(who) => who,
        Err(error) => return Err(format!("handshake failed: {error}")),
    };
    let (caller, guest) = (who.caller(), port.guest(&who));
    let settled = lock::even_if_poisoned(&port.door).decides.settle(inside.place, guest);
    match settled {
        Ok(instead_of) => port.make_room(instead_of),
        Err(SettleError::Left) => return Ok(()), // ended already, and written down
        Err(SettleError::Full) => return Err(String::from("too many machines that the records do not know")),
    }
    let (visit, mut changes) = watch::channel(Visit::new(caller, clock::now()));
    let visit = Arc::new(visit);
    let streams = Streams::default();
    let _end_with_it = EndsStreams(streams.clone());
    let gate = Gate::new(port.guarded.clone(), port.front.clone(), origin.clone(), visit.clone());
    let session = TokioIo::new(Session::new(stream, caller, visit));
    let mut connection = pin!(http(caller, streams).serve_connection(session, gate));
    loop {
        let ends = changes.borrow_and_update().ends();
        tokio::select! {
            ended = connection.as_mut() => {
                // However the peer left: it is gone.
                let _left = ended;
                return Ok(());
            }
            over = until(ends) => return Err(String::from(over.because())),
            Ok(()) = changes.changed() => {}
            Ok(()) = front.changed() => {
                let now = origin.who(&front.borrow_and_update().callers);
                if now.as_ref() != Ok(&who) {
                    return Err(String::from(no_more(&who)));
                }
            }
        }
    }
}

/// Why a connection ends whose caller is not what it was.
const fn no_more(who: &Who) -> &'static str {
    match who {
        Who::Owner(_) => "its owner is no owner any more",
        Who::User(..) => "its user is no user any more",
        Who::Stranger | Who::Person(_) | Who::Machine(_) | Who::Member(_) => "its caller is known as another by now",
    }
}

async fn until(ends: Option<(Instant, door::Over)>) -> door::Over {
    match ends {
        Some((at, over)) => {
            sleep_until(at.into()).await;
            over
        }
        None => std::future::pending().await,
    }
}

fn http(caller: Caller, streams: Streams) -> http2::Builder<Streams> {
    let mut http = http2::Builder::new(streams);
    http.timer(TokioTimer::new());
    http.keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE).max_header_list_size(HEAD);
    let streams = match caller {
        Caller::Stranger | Caller::Machine => STRANGER_STREAMS,
        Caller::Member => MEMBER_STREAMS,
        Caller::User => USER_STREAMS,
        Caller::Owner => OWNER_STREAMS,
    };
    http.max_concurrent_streams(streams);
    match caller {
        Caller::Stranger | Caller::Machine | Caller::Member => http
            .initial_stream_window_size(STRANGER_WINDOW)
            .initial_connection_window_size(STRANGER_CONNECTION_WINDOW)
            .max_send_buf_size(STRANGER_ANSWERS),
        Caller::User | Caller::Owner => {
            http.initial_stream_window_size(64 << 10).initial_connection_window_size(256 << 10)
        }
    };
    http
}

#[cfg(test)]
mod tests;
