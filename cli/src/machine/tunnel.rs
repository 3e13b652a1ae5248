//! Connections carried to a target inside the machine, or to another machine behind it, each as one `Tunnel` call of the
//! owner's session.
//!
//! ```text
//!   kubectl ──TCP, 127.0.0.1──► Tunnel::serve ══ one stream per connection, one session ══► machine ──► target
//! ```
//! Listens on loopback only. What goes through is TLS of its own: kubectl verifies the Kubernetes API by its CA, and this program
//! the other machine by its pins.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use api::limits::{REQUEST_BYTES, TUNNEL_CHUNK};
use api::public_client::PublicClient;
use api::wire::TunnelResponse;
use api::{Target, TunnelPart};
use tokio::io::{self as tokio_io, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::call::CallError;
use crate::failure::{Advice, Code, NOTHING};

/// Pieces on their way to the machine, per connection: enough to keep the wire busy, 256 KiB at most.
const IN_FLIGHT: usize = 8;

/// Opens streams to targets inside one machine.
#[derive(Debug, Clone)]
pub(crate) struct Tunnel {
    client: PublicClient<Channel>,
}

/// Why a tunnel does not carry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    /// No port of this host to listen on.
    #[error("listen on 127.0.0.1:{port}")]
    Listen {
        /// The port asked for; 0 means any.
        port: u16,
        source: io::Error,
    },
    /// No more connections can be taken.
    #[error("take a connection of the tunnel")]
    Accept(#[source] io::Error),
    /// The machine ended it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The local connection broke.
    #[error("carry bytes of the tunnel")]
    Carry(#[from] io::Error),
}

impl Advice for TunnelError {
    fn code(&self) -> Code {
        match self {
            Self::Call(error) => error.code(),
            Self::Listen { .. } | Self::Accept(_) | Self::Carry(_) => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Listen { .. } => NOTHING,
            Self::Call(error) => error.unchanged(),
            Self::Accept(_) | Self::Carry(_) => "what went through the tunnel before was done",
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Listen { .. } => Some("choose another --port".to_owned()),
            Self::Call(error) => error.next(),
            Self::Accept(_) | Self::Carry(_) => None,
        }
    }
}

/// A loopback port whose connections are not carried yet.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on a port of loopback; 0 takes a free one.
    pub(crate) async fn bind(port: u16) -> Result<Self, TunnelError> {
        let failed = |source| TunnelError::Listen { port, source };
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Self { tcp, address })
    }

    /// Address at which it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Tunnel {
    pub(super) const fn new(client: PublicClient<Channel>) -> Self {
        Self { client }
    }

    /// Carries every connection to `target` until the session ends, which is the error this returns. A connection that
    /// fails alone ends alone.
    pub(crate) async fn serve(
        &self,
        listener: &Listener,
        target: Target,
    ) -> Result<std::convert::Infallible, TunnelError> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                taken = listener.tcp.accept() => {
                    let (connection, _) = taken.map_err(TunnelError::Accept)?;
                    // Small writes of a TLS handshake must not wait for each other. Optional, so not fatal.
                    let _immediate = connection.set_nodelay(true);
                    let tunnel = self.clone();
                    connections.spawn(async move { tunnel.connect(target).await?.carry(connection).await });
                }
                // Of all that ends a connection only the session's end matters here; the rest its own ends have seen.
                Some(ended) = connections.join_next() => {
                    if let Ok(Err(TunnelError::Call(error @ CallError::Gone { .. }))) = ended {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Opens a connection to `target`. It is carried as long as what is returned beside it is there.
    pub(super) async fn open(
        self,
        target: Target,
    ) -> Result<(DuplexStream, JoinSet<Result<(), TunnelError>>), CallError> {
        let connected = self.connect(target).await?;
        let (near, far) = tokio_io::duplex(TUNNEL_CHUNK);
        let mut carrying = JoinSet::new();
        carrying.spawn(connected.carry(far));
        Ok((near, carrying))
    }

    async fn connect(mut self, target: Target) -> Result<Connected, CallError> {
        let (pieces, requests) = mpsc::channel(IN_FLIGHT);
        // The channel is empty, so this never waits; it fails only if the receiver below were gone.
        let _queued = pieces.send(TunnelPart::Open(target).into()).await;
        let answers = self.client.tunnel(ReceiverStream::new(requests)).await.map_err(CallError::of("Tunnel"))?;
        Ok(Connected { pieces, answers: answers.into_inner(), _session: self.client })
    }
}

/// A stream to a target that has answered.
struct Connected {
    pieces: mpsc::Sender<api::wire::TunnelRequest>,
    answers: Streaming<TunnelResponse>,
    /// Which would end with the last that holds it.
    _session: PublicClient<Channel>,
}

impl Connected {
    async fn carry(self, connection: impl AsyncRead + AsyncWrite) -> Result<(), TunnelError> {
        let Self { pieces, answers, _session } = self;
        let (read, write) = tokio_io::split(connection);
        let (upload, download) = (upload(read, pieces), download(answers, write));
        // The far end's last word ends it; ours only ends its input.
        tokio::pin!(upload, download);
        let mut uploading = true;
        loop {
            tokio::select! {
                done = &mut download => return done,
                done = &mut upload, if uploading => {
                    done?;
                    uploading = false;
                }
            }
        }
    }
}

/// Local bytes to the machine, until the local side closes. Dropping `pieces` tells the machine so.
async fn upload(
    mut from: impl AsyncRead + Unpin,
    pieces: mpsc::Sender<api::wire::TunnelRequest>,
) -> Result<(), TunnelError> {
    loop {
        let mut piece = Vec::with_capacity(TUNNEL_CHUNK);
        let length = (&mut from).take(TUNNEL_CHUNK as u64).read_buf(&mut piece).await?;
        if length == 0 || pieces.send(TunnelPart::Data(piece).into()).await.is_err() {
            return Ok(());
        }
    }
}

/// The machine's bytes to the local side, until the machine ends the stream.
async fn download(mut answers: Streaming<TunnelResponse>, mut to: impl AsyncWrite + Unpin) -> Result<(), TunnelError> {
    while let Some(answer) = answers.next().await {
        to.write_all(&answer.map_err(CallError::of("Tunnel"))?.data).await?;
    }
    Ok(to.shutdown().await?)
}

const _: () = assert!(TUNNEL_CHUNK < REQUEST_BYTES);
