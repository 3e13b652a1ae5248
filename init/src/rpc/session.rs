//! Connections behind their handshakes: their bytes, and who is at the other end by the owners of now.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use door::Visit;
use keys::activation::Tries;
use model::Caller;
use pki::client_auth::Who;
use rustls::ServerConnection;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::{Callers, UnknownCaller};

/// Bytes that a stranger's connection may send in its few seconds, HTTP/2 included: a request takes a few hundred.
pub(super) const STRANGER_SENDS: usize = 64 << 10;

/// Certificates, address and exporters of a handshake; requests carry it as an extension.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The certificates that the caller showed, whose key it has proven to hold.
    pub(super) shown: Arc<[CertificateDer<'static>]>,
    /// Where from.
    pub(super) peer: SocketAddr,
    /// 32 bytes both ends derive from the session, for `Claim`.
    pub(super) exporter: [u8; 32],
    /// The same for `Redeem`.
    pub(super) redeem: [u8; 32],
    /// The same for `ProveCode` and `Activate`.
    pub(super) activation: [u8; 32],
    /// How many wrong codes the connection may still bring.
    pub(super) tries: Arc<Mutex<Tries>>,
}

impl Origin {
    pub(super) fn of(session: &ServerConnection, peer: SocketAddr) -> Result<Self, rustls::Error> {
        let shown = session.peer_certificates().unwrap_or_default().iter().map(|shown| shown.clone().into_owned());
        let exporter = |label| session.export_keying_material([0; 32], label, None);
        Ok(Self {
            shown: shown.collect(),
            peer,
            exporter: exporter(keys::first_contact::EXPORTER_LABEL)?,
            redeem: exporter(keys::ticket::EXPORTER_LABEL)?,
            activation: exporter(keys::activation::EXPORTER_LABEL)?,
            tries: Arc::default(),
        })
    }

    /// Caller by the owners and users of now. Asked anew for each request: they come and go while a connection lives.
    ///
    /// # Errors
    /// The certificate is of no owner now. It was of one at the handshake, or there would be no connection, which ends.
    pub(super) fn who(&self, callers: &Callers) -> Result<Who, UnknownCaller> {
        callers.who(&self.shown)
    }
}

/// A connection's bytes: says when the first are heard, and ends a stranger's that sends too many.
#[derive(Debug)]
pub(super) struct Session<S> {
    stream: S,
    visit: Arc<watch::Sender<Visit>>,
    heard: bool,
    /// Bytes that the connection may still send; none for an owner, a user or a member.
    left: Option<usize>,
}

impl<S> Session<S> {
    pub(super) fn new(stream: S, caller: Caller, visit: Arc<watch::Sender<Visit>>) -> Self {
        let left = match caller {
            Caller::Stranger | Caller::Machine => Some(STRANGER_SENDS),
            Caller::Member | Caller::User | Caller::Owner => None,
        };
        Self { stream, visit, heard: false, left }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Session<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        let read = into.filled().len() - before;
        if read > 0 && !self.heard {
            self.heard = true;
            self.visit.send_modify(Visit::heard);
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(read).ok_or_else(|| io::Error::other("a stranger that sends too much"))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Session<S> {
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
