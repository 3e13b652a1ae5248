//! An API's port: accepts, shakes hands, says who calls, and hands requests to the API's methods. What belongs to one API
//! alone is below it: `public`, `vpn`.
//!
//! ```text
//!   TCP ─► door: rate, place ─► TLS 1.3 within 5 s ─► stranger | member | owner ─► HTTP/2 ─► access table ─► methods
//! ```
//! Bounded in everything a stranger can cause: handshakes, places, time, bytes, log lines. A port has a thread of its own:
//! what strangers make it work keeps neither the supervisor nor the balancer waiting.

mod access;
mod audit;
mod connection;
pub(crate) mod public;
mod session;
mod underway;
pub(crate) mod vpn;
#[cfg(test)]
mod world;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::access::CallRefusal;
use cluster::users::UsersOfNow;
use model::UserPubKey;
use pki::CertificateDer;
use pki::client_auth::{Owners, UnknownMember, UnknownOwner, Who, member};
use rustix::net::sockopt;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use access::{Guarded, Methods};
use connection::Port;

use crate::runtime::tasks;

/// A peer that acknowledges nothing for so long is gone, whatever waits to be sent to it. HTTP/2 pings see to those to
/// whom nothing is sent.
const VANISHED: Duration = Duration::from_secs(40);

/// Why the port cannot be opened or served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The port cannot be bound.
    #[error("listen on TCP {0}")]
    Listen(u16, #[source] io::Error),
    /// The thread that serves it did not start, or panicked.
    #[error("serve the API `{0}`")]
    Serve(&'static str, #[source] io::Error),
}

/// Certificates and owners with which connections are answered; replaced when the machine gets its identity.
#[derive(Debug, Clone)]
struct Front {
    /// TLS with the present certificates.
    tls: Arc<ServerConfig>,
    /// Callers that are let in.
    callers: Callers,
}

/// Callers of an API, by the certificates that its handshakes let through.
#[derive(Debug, Clone)]
enum Callers {
    /// Anybody; of them, these are the owners, and these the users.
    Any(Owners, Roster),
    /// Machines that the cluster let in.
    Members,
}

/// Users of Kubernetes, as far as this machine knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Roster {
    /// The machine is no coordinator.
    #[default]
    Elsewhere,
    /// A coordinator that has not read the records yet.
    Unread,
    /// Users of now, by the records.
    Known(Arc<UsersOfNow>),
}

impl Roster {
    /// The holder of a certificate who calls itself a user, if it is one.
    fn user(&self, key: UserPubKey) -> Who {
        match self {
            Self::Known(users) => users.name(&key).map_or(Who::Person(key), |name| Who::User(name, key)),
            Self::Elsewhere | Self::Unread => Who::Person(key),
        }
    }

    /// Why such a holder is none.
    const fn refusal(&self) -> CallRefusal {
        match self {
            Self::Elsewhere => CallRefusal::NoUsersHere,
            Self::Unread => CallRefusal::UsersUnread,
            Self::Known(_) => CallRefusal::UnknownUser,
        }
    }
}

/// The certificates are of nobody who is let in now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum UnknownCaller {
    #[error(transparent)]
    Owner(#[from] UnknownOwner),
    #[error(transparent)]
    Member(#[from] UnknownMember),
}

impl Callers {
    fn who(&self, shown: &[CertificateDer<'_>]) -> Result<Who, UnknownCaller> {
        match self {
            Self::Any(owners, users) => match owners.who(Some(shown))? {
                Who::Person(key) => Ok(users.user(key)),
                who @ (Who::Stranger | Who::User(..) | Who::Machine(_) | Who::Member(_) | Who::Owner(_)) => Ok(who),
            },
            Self::Members => Ok(member(shown)?),
        }
    }

    /// Users that are known now.
    fn users(&self) -> Roster {
        match self {
            Self::Any(_, users) => users.clone(),
            Self::Members => Roster::Elsewhere,
        }
    }

    /// Takes on other users; where none are let in, nothing changes.
    fn know(&mut self, users: Roster) {
        match self {
            Self::Any(_, known) => *known = users,
            Self::Members => {}
        }
    }

    /// The refusal of this caller, whom the table refuses as it refuses strangers: in words for who calls itself a user.
    fn refusal(&self, who: &Who, refused: CallRefusal) -> CallRefusal {
        match (self, who, refused) {
            (Self::Any(_, users), Who::Person(_), CallRefusal::NoCertificate) => users.refusal(),
            _ => refused, // everybody else, and for every other reason
        }
    }
}

impl From<UnknownCaller> for CallRefusal {
    fn from(error: UnknownCaller) -> Self {
        match error {
            UnknownCaller::Owner(UnknownOwner) => Self::NotTheOwner,
            UnknownCaller::Member(UnknownMember) => Self::NoMember,
        }
    }
}

/// Bytes of a segment at most: it fits a path of 1 280 bytes, which any path of IPv6 carries (RFC 8200, section 5), with headers of
/// 60. A path that drops larger packets without a word would let nobody through.
const SEGMENT: u32 = 1220;

/// Serves the API `name` at `address` until it fails; run as a task of the tree, works on a thread of its own.
async fn serve(
    name: &'static str,
    address: SocketAddr,
    methods: Box<dyn Methods>,
    front: watch::Receiver<Front>,
) -> Result<(), Error> {
    let guarded = Guarded::new(methods);
    let served = tasks::apart(name, move || accept(address, Port::new(guarded, front)));
    let Err(error) = served.await.map_err(|error| Error::Serve(name, error))?;
    Err(error)
}

async fn accept(address: SocketAddr, port: Arc<Port>) -> Result<Infallible, Error> {
    let listener = listen(address).await.map_err(|error| Error::Listen(address.port(), error))?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match prepare(&stream) {
                    Ok(()) => port.enter(&mut connections, stream, peer),
                    Err(error) => tracing::debug!(%error, "a connection was gone already"),
                },
                Err(error) => {
                    // Out of descriptors or a peer that left already: the next one may work, and a short wait keeps it cool.
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            // Those that were ended are told where that was decided, a panic by the hook.
            Some(_ended) = connections.join_next() => {}
        }
    }
}

/// Every connection of the listener keeps to [`SEGMENT`] in both directions (tcp(7), `TCP_MAXSEG`).
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    SockRef::from(&listener).set_tcp_mss(SEGMENT)?;
    Ok(listener)
}

/// Answers go out at once, and a peer that vanished is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let milliseconds = u32::try_from(VANISHED.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, milliseconds)?)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Proves: Q1
    #[tokio::test]
    async fn neither_side_of_a_connection_sends_larger_segments() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a port");
        let caller = TcpStream::connect(listener.local_addr().expect("its own")).await.expect("connects");
        let (stream, _) = listener.accept().await.expect("accepts");
        for side in [&caller, &stream] {
            let segment = SockRef::from(side).tcp_mss().expect("told");
            assert!(segment <= SEGMENT, "{segment} bytes");
        }
    }
}
