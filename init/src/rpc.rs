//! The public API's port: accepts, shakes hands, says who calls, and hands requests to `public`.
//!
//! ```text
//!   TCP 7836 ─► per-source bound ─► TLS 1.3 within 5 s ─► HTTP/2 ─► access table ─► public
//! ```
//! Bounded in everything a stranger can cause: connections, handshakes, request sizes, log lines.

mod access;
mod audit;
mod context;
mod debug;
mod first_contact;
mod kubernetes;
mod public;
mod session;
mod sources;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::debug_server::DebugServer;
use api::public_server::PublicServer;
use pki::client_auth::Owners;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use audit::Audit;
pub(crate) use context::{Context, PowerRequest};
pub(crate) use first_contact::{ClaimSecret, Claimable};
pub(crate) use kubernetes::KubernetesAccess;
use session::{Origin, Session};
use sources::{Place, Sources};

use crate::tasks;

/// From connection to finished handshake; under emulation one takes 60 ms.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A peer that does not answer HTTP/2 pings is gone.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Why the port cannot be opened or served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The port cannot be bound.
    #[error("listen on TCP {}", model::PUBLIC_API_PORT)]
    Listen(#[source] io::Error),
    /// HTTP/2 over the accepted connections ended.
    #[error("serve the public API")]
    Serve(#[source] tonic::transport::Error),
}

/// What connections are answered with: certificates, accepted owners. Replaced when the machine gets its identity.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    /// TLS with the present certificates.
    pub(crate) tls: Arc<ServerConfig>,
    /// Who an owner is.
    pub(crate) owners: Owners,
}

/// Serves the public API until it fails; run as a task of the tree.
pub(crate) async fn serve(context: Arc<Context>, front: watch::Receiver<Front>) -> Result<(), Error> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, model::PUBLIC_API_PORT));
    let listener = TcpListener::bind(address).await.map_err(Error::Listen)?;
    let (accepted, sessions) = mpsc::channel(1);
    let sources = Sources::default();
    let _accepting = tasks::spawn(accept(listener, front, sources.clone(), accepted));
    let service = PublicServer::new(public::Public(context.clone()))
        .max_decoding_message_size(api::limits::REQUEST_BYTES)
        .max_encoding_message_size(api::limits::RESPONSE_BYTES);
    let debug =
        (context.board.boot().profile == api::Profile::Debug).then(|| DebugServer::new(debug::Debug(context.clone())));
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(32)
        .initial_stream_window_size(64 << 10)
        .initial_connection_window_size(256 << 10)
        .layer(access::Layer::new(context, Audit::new(sources)))
        .add_service(service)
        .add_optional_service(debug)
        .serve_with_incoming(ReceiverStream::new(sessions))
        .await
        .map_err(Error::Serve)
}

async fn accept(
    listener: TcpListener,
    front: watch::Receiver<Front>,
    sources: Sources,
    accepted: mpsc::Sender<io::Result<Session>>,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or a peer that left already: the next one may work, and a short wait keeps it cool.
                tracing::debug!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = sources.admit(peer.ip()) else {
            sources.tell(peer.ip(), "too many connections");
            continue;
        };
        let (front, accepted, sources) = (front.borrow().clone(), accepted.clone(), sources.clone());
        handshaking(async move {
            match tokio::time::timeout(HANDSHAKE, shake_hands(stream, peer, &front, place)).await {
                Ok(Ok(session)) => {
                    let _server_ended = accepted.send(Ok(session)).await;
                }
                Ok(Err(error)) => sources.tell(peer.ip(), &format!("handshake failed: {error}")),
                Err(_elapsed) => sources.tell(peer.ip(), "handshake took longer than 5 s"),
            }
        });
    }
}

/// A handshake runs beside the others and ends by itself within [`HANDSHAKE`]; [`Sources`] bounds how many there are.
#[expect(clippy::disallowed_methods, reason = "bounded in time and number, and nobody waits for one")]
fn handshaking(future: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(future));
}

async fn shake_hands(stream: TcpStream, peer: SocketAddr, front: &Front, place: Place) -> io::Result<Session> {
    stream.set_nodelay(true)?;
    let stream = TlsAcceptor::from(front.tls.clone()).accept(stream).await?;
    let origin = Origin::of(stream.get_ref().1, peer, front).map_err(io::Error::other)?;
    Ok(Session::new(stream, origin, place))
}
