//! Dialling a machine: one TCP connection, one TLS session, one gRPC channel over it. Nothing here reconnects: a second
//! connection would be one whose session nobody has looked at.

use std::fmt;
use std::future::{Ready, ready};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use model::NodeName;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::failure::{Advice, Code, NOTHING};

/// A machine that does not finish a handshake within this is not there. One under emulation takes a second; but a first
/// packet that got lost is sent again after 1, 3, 7 and 15 s (tcp(7)), and into QEMU's user network after 6 and 18 s.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// How long we let the server speak first. In TLS 1.3 a server looks at our certificate after we have finished: one that
/// accepts it sends its HTTP/2 settings at once, one that does not sends an alert. A server that keeps silent is spoken
/// to after this; its refusal would then come with the first call.
const GREETING: Duration = Duration::from_secs(3);

/// A machine that vanishes without a word (a cable, a power cut) is noticed after twice this, also by who only listens.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Carrier of bytes to a machine: TCP, or a tunnel through another machine.
pub trait Carries: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Carries for T {}

/// An open TLS session. What its server said first, if it was waited for, has not been read.
pub type Stream = BufReader<TlsStream<Box<dyn Carries>>>;

/// Where a machine's public API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address: HOST, HOST:PORT or [IPv6]:PORT")]
pub struct BadAddress(String);

impl Advice for BadAddress {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        Code::Usage
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(bad)?,
            // More than one colon: a bare IPv6 address.
            None if text.matches(':').count() > 1 => (text, ""),
            None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| bad())?,
            None if port.is_empty() => model::PUBLIC_API_PORT,
            None => return Err(bad()),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'%');
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl Address {
    /// Address of a machine that is reached through another one, by its name.
    pub(super) fn of_name(name: &NodeName) -> Self {
        Self { host: name.as_str().to_owned(), port: model::PUBLIC_API_PORT }
    }
}

impl Address {
    /// As a machine that carries bytes can be told it: as an IPv4 address, of the public API's own port.
    pub(crate) fn outside(&self) -> Option<Ipv4Addr> {
        self.host.parse().ok().filter(|_| self.port == model::PUBLIC_API_PORT)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No program listens there, or no route leads there.
    #[error("connect to {address}")]
    Connect { address: Address, source: io::Error },
    /// The address did not answer in time.
    #[error("{address} does not answer within {} s", HANDSHAKE.as_secs())]
    Silent { address: Address },
    /// The listener could not prove to be the machine, or did not accept who we are.
    #[error("{address} is not the machine it should be, or does not know this owner")]
    Refused { address: Address, source: rustls::Error },
    /// The other end hung up before it said anything in TLS that can be understood.
    #[error(
        "{address} ended the connection before TLS stood: the machine is off or boots, nothing listens behind a forward, or \
         the path drops large packets"
    )]
    Closed { address: Address, source: io::Error },
    /// The listener speaks no TLS, or the connection broke.
    #[error("speak TLS with {address}")]
    Broken { address: Address, source: io::Error },
    /// The channel over an open session could not be made.
    #[error("open a channel to {address}")]
    Channel { address: Address, source: tonic::transport::Error },
}

impl Advice for DialError {
    fn code(&self) -> Code {
        match self {
            Self::Connect { .. }
            | Self::Silent { .. }
            | Self::Closed { .. }
            | Self::Broken { .. }
            | Self::Channel { .. } => Code::Unreachable,
            Self::Refused { .. } => Code::Refused,
        }
    }

    fn unchanged(&self) -> &'static str {
        "nothing was sent"
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Connect { .. } | Self::Silent { .. } | Self::Broken { .. } | Self::Channel { .. } => {
                "see whether the machine runs and the address is right: cairnctl cluster list".to_owned()
            }
            Self::Closed { .. } => {
                "see whether the machine runs: cairnctl cluster list, or its screen; if it does, lower the \
                                    MTU of this host's link: ip link set dev LINK mtu 1280"
                    .to_owned()
            }
            Self::Refused { .. } => {
                "somebody else answers at this address, or the machine belongs to another owner: check --address"
                    .to_owned()
            }
        })
    }
}

/// A TLS session with whoever `tls` accepts under `name`, and who accepts us. Nothing but the handshake was sent.
pub(crate) async fn dial(address: &Address, tls: ClientConfig, name: &str) -> Result<Stream, DialError> {
    let silent = || DialError::Silent { address: address.clone() };
    let connect = TcpStream::connect((address.host.as_str(), address.port));
    let tcp = timeout(HANDSHAKE, connect)
        .await
        .map_err(|_| silent())?
        .map_err(|source| DialError::Connect { address: address.clone(), source })?;
    // Requests are small and answered one by one: waiting to fill a segment only adds delay. Optional, so not fatal.
    let _immediate = tcp.set_nodelay(true);
    secure(address, Box::new(tcp), tls, name).await
}

/// The same over what leads to the machine already; `address` is what messages call it.
pub(super) async fn secure(
    address: &Address,
    carried: Box<dyn Carries>,
    tls: ClientConfig,
    name: &str,
) -> Result<Stream, DialError> {
    let mut session = handshake(address, carried, tls, name).await?;
    if let Ok(greeting) = timeout(GREETING, session.fill_buf()).await
        && greeting.map_err(|error| tls_error(address, error))?.is_empty()
    {
        return Err(tls_error(address, io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(session)
}

/// The same, without a word of the server's: whether it accepts our certificate shows at the first call.
///
/// # Errors
/// When nobody answers in time, or whoever does is not accepted.
pub async fn handshake(
    address: &Address,
    carried: Box<dyn Carries>,
    mut tls: ClientConfig,
    name: &str,
) -> Result<Stream, DialError> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| DialError::Broken {
        address: address.clone(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    })?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let handshake = TlsConnector::from(Arc::new(tls)).connect(name, carried);
    let silent = |_elapsed| DialError::Silent { address: address.clone() };
    let session = timeout(HANDSHAKE, handshake).await.map_err(silent)?;
    Ok(BufReader::new(session.map_err(|error| tls_error(address, error))?))
}

/// gRPC over this one session. When it ends, calls fail; the channel never dials again.
///
/// # Errors
/// When the session ends before both ends have spoken HTTP/2.
pub async fn channel(address: &Address, session: Stream) -> Result<Channel, DialError> {
    let session = Mutex::new(Some(session));
    let once = service_fn(move |_: Uri| -> Ready<io::Result<TokioIo<Stream>>> {
        let session = session.lock().unwrap_or_else(PoisonError::into_inner).take();
        ready(session.map(TokioIo::new).ok_or_else(|| io::ErrorKind::NotConnected.into()))
    });
    // The authority of requests says nothing about the machine: TLS has said it.
    Endpoint::from_static("https://machine.cairn.internal")
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .connect_with_connector(once)
        .await
        .map_err(|source| DialError::Channel { address: address.clone(), source })
}

/// rustls hides its errors in I/O errors; a refusal is told from a broken wire here.
fn tls_error(address: &Address, error: io::Error) -> DialError {
    let address = address.clone();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(refused @ (rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))) => {
            DialError::Refused { address, source: refused.clone() }
        }
        None if is_end(error.kind()) => DialError::Closed { address, source: error },
        // All other errors of TLS are of a server that is none of ours, or of a broken connection.
        Some(_) | None => DialError::Broken { address, source: error },
    }
}

/// Whether the other end is gone.
const fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

#[cfg(test)]
mod tests {
    use rustls::time_provider::DefaultTimeProvider;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Error of a handshake with a host that answers so, and hangs up.
    async fn answered(answer: &[u8]) -> DialError {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = Address::from(listener.local_addr().unwrap());
        let tls = pki::danger::first_contact(Arc::new(DefaultTimeProvider)).unwrap();
        let listens = async {
            let (mut caller, _) = listener.accept().await.unwrap();
            assert!(caller.read(&mut [0; 4096]).await.unwrap() > 0);
            caller.write_all(answer).await.unwrap();
        };
        tokio::join!(dial(&address, tls, "machine.cairn.internal"), listens).0.err().expect("no TLS stands")
    }

    /// Proves: Q6
    #[tokio::test]
    async fn a_handshake_that_is_cut_off_says_what_that_may_be() {
        let closed = answered(b"").await;
        assert!(matches!(closed, DialError::Closed { .. }), "{closed:?}");
        let said = format!("{closed}; {}", closed.next().unwrap());
        for cause in ["off or boots", "behind a forward", "drops large packets", "cairnctl cluster list", "mtu 1280"] {
            assert!(said.contains(cause), "{said}");
        }
        // Whoever answers something else is there.
        let other = answered(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        assert!(matches!(other, DialError::Broken { .. }), "{other:?}");
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe] {
            let address = "192.0.2.1".parse().unwrap();
            assert!(matches!(tls_error(&address, kind.into()), DialError::Closed { .. }), "{kind}");
        }
    }

    #[test]
    fn addresses_are_hosts_with_or_without_a_port() {
        for (text, shown) in [
            ("192.0.2.1", "192.0.2.1:7836"),
            ("host.example:1", "host.example:1"),
            ("2001:db8::1", "[2001:db8::1]:7836"),
            ("[2001:db8::1]", "[2001:db8::1]:7836"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
        for bad in ["", ":1", "host:", "host:x", "host:65536", "[::1", "[::1]x", "a b", "https://host"] {
            assert_eq!(bad.parse::<Address>(), Err(BadAddress(bad.to_owned())), "{bad}");
        }
    }
}
