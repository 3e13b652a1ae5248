//! TLS as this machine uses it: certificates are checked against its clock, and clients of gRPC connect by it. A session ends when the
//! machine has stood still: a copy of it would go on with the same keys.

use std::io;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::runtime::clock;
use crate::runtime::standstills::{NextStandstill, Standstills};

/// Why a session ends that did nothing wrong.
pub(crate) const STOOD_STILL: &str = "the machine stood still";

/// The machine's clock as rustls asks it.
#[derive(Debug)]
pub(crate) struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::unix()))
    }
}

/// Configuration of a gRPC client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Certificate that the client shows, and those that it believes.
    pub(crate) config: ClientConfig,
    /// Standstills of the machine, each of which ends its sessions.
    pub(crate) standstills: Standstills,
}

impl Client {
    /// A client whose packets never leave the machine: nobody else has them, and its sessions go on behind a standstill.
    pub(crate) fn within_the_machine(&self) -> Self {
        Self { standstills: Standstills::default(), ..self.clone() }
    }
}

/// A client's connection to `address`, where the server is to be `name`; made when something is asked, and made again when
/// it is lost. The authority of `endpoint` says nothing: TLS says whom we speak to.
pub(crate) fn channel(
    endpoint: &Endpoint,
    address: SocketAddrV4,
    name: ServerName<'static>,
    client: Client,
) -> Channel {
    let Client { mut config, standstills } = client;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(config));
    let connect = service_fn(move |_: Uri| {
        let (tls, name, standstills) = (tls.clone(), name.clone(), standstills.clone());
        async move {
            // Before the handshake, which may be a copy's, too.
            let standstill = standstills.watch_after_a_look().await;
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            Ok::<_, io::Error>(TokioIo::new(Unbroken::new(tls.connect(name, tcp).await?, standstill)))
        }
    });
    endpoint.connect_with_connector_lazy(connect)
}

/// A stream on which nothing is read or written once the machine has stood still: its keys may be a copy's, too.
struct Unbroken<S> {
    stream: S,
    /// Standstill that ends the session; absent once it has come.
    standstill: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> Unbroken<S> {
    fn new(stream: S, mut standstill: NextStandstill) -> Self {
        Self { stream, standstill: Some(Box::pin(async move { standstill.wait().await })) }
    }

    /// Has whoever reads or writes woken by a standstill, too.
    fn goes_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.standstill.as_mut().is_some_and(|standstill| standstill.as_mut().poll(cx).is_pending()) {
            return Ok(());
        }
        self.standstill = None;
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, STOOD_STILL))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unbroken<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unbroken<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_standstill_ends_an_idle_stream_and_no_later_one() {
        let standstills = Standstills::default();
        let stream = |standstills: &Standstills| {
            let (ours, theirs) = duplex(64);
            (Unbroken::new(ours, standstills.watch()), theirs)
        };
        let (mut early, mut other_end) = stream(&standstills);
        other_end.write_all(b"a").await.expect("room");
        assert_eq!(early.read_u8().await.expect("a byte"), b'a');
        let waits = timeout(Duration::from_secs(60), early.read_u8());
        let read = tokio::join!(waits, async { standstills.count() }).0.expect("it is woken");
        assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionAborted));
        assert!(early.write_all(b"b").await.is_err() && early.read_u8().await.is_err(), "nor does it go on after that");
        let (mut late, _other_end) = stream(&standstills);
        late.write_all(b"c").await.expect("room");
        assert!(timeout(Duration::from_secs(60), late.read_u8()).await.is_err(), "it is open");
    }

    #[tokio::test(start_paused = true)]
    async fn within_the_machine_a_standstill_ends_nothing() {
        let config = pki::danger::first_contact(Arc::new(Clock)).expect("a configuration");
        let client = Client { config, standstills: Standstills::default() };
        let within = client.within_the_machine();
        let mut standstills = [&client, &within].map(|client| client.standstills.watch());
        client.standstills.count();
        let mut ended = Vec::new();
        for standstill in &mut standstills {
            ended.push(timeout(Duration::from_secs(60), standstill.wait()).await.is_ok());
        }
        assert_eq!(ended, [true, false]);
    }
}
