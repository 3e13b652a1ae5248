//! One accepted connection: its bytes, who is at the other end, and its place among the bounded number.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::access::Caller;
use pki::client_auth::Caller as Who;
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::Front;
use super::sources::Place;

/// Who calls, as the handshake proved it; requests carry it as an extension.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// By certificate.
    pub(super) who: Who,
    /// Where from.
    pub(super) peer: SocketAddr,
    /// 32 bytes both ends derive from the session, for `Claim`.
    pub(super) exporter: [u8; 32],
}

/// Why a finished handshake is not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    NotAnOwner(#[from] pki::client_auth::NotAnOwner),
    #[error("export the session's keying material")]
    Exporter(#[from] rustls::Error),
}

impl Origin {
    pub(super) fn of(session: &ServerConnection, peer: SocketAddr, front: &Front) -> Result<Self, Refused> {
        let who = front.owners.caller(session.peer_certificates())?;
        let exporter = session.export_keying_material([0; 32], keys::first_contact::EXPORTER_LABEL, None)?;
        Ok(Self { who, peer, exporter })
    }

    /// As the access table asks.
    pub(super) const fn caller(&self) -> Caller {
        match self.who {
            Who::Anonymous => Caller::Unknown,
            Who::Owner(_) => Caller::Owner,
        }
    }
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Session {
    stream: TlsStream<TcpStream>,
    origin: Origin,
    _place: Place,
}

impl Session {
    pub(super) const fn new(stream: TlsStream<TcpStream>, origin: Origin, place: Place) -> Self {
        Self { stream, origin, _place: place }
    }
}

impl Connected for Session {
    type ConnectInfo = Origin;

    fn connect_info(&self) -> Origin {
        self.origin.clone()
    }
}

impl AsyncRead for Session {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Session {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
