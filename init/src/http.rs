//! A small HTTP/1.1 client for the machine's own services: one request, one connection, one bounded answer.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tasks;

/// The largest answer that is read: a list of the pods of a machine.
const ANSWER_BYTES: usize = 4 << 20;

/// An HTTPS server of this machine, and who we are to it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The name its certificate is valid for.
    pub(crate) name: ServerName<'static>,
    /// Its authority, and our client certificate.
    pub(crate) tls: Arc<ClientConfig>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// HTTP status code.
    pub(crate) status: u16,
    /// Body.
    pub(crate) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// TCP or TLS failed.
    #[error("connect")]
    Connect(#[from] std::io::Error),
    /// The request cannot be made.
    #[error("make the request")]
    Request(#[from] hyper::http::Error),
    /// HTTP failed.
    #[error("exchange HTTP")]
    Http(#[from] hyper::Error),
    /// The body broke off or is too large.
    #[error("read the answer")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Endpoint {
    /// GET `path`.
    ///
    /// # Errors
    /// [`Error`] when there is no answer; an answer with any status is one.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Error> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// POST a JSON `body` to `path`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Answer, Error> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, Error> {
        let stream = TcpStream::connect(self.address).await?;
        let stream = TlsConnector::from(self.tls.clone()).connect(self.name.clone(), stream).await?;
        exchange(stream, method, path, body).await
    }
}

/// GET `path` from a plain HTTP server.
///
/// # Errors
/// As [`Endpoint::get`].
pub(crate) async fn plain(address: SocketAddr, path: &str) -> Result<Answer, Error> {
    exchange(TcpStream::connect(address).await?, Method::GET, path, Bytes::new()).await
}

async fn exchange<S>(stream: S, method: Method, path: &str, body: Bytes) -> Result<Answer, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _carrying = tasks::spawn(async move {
        let _the_sender_says_so_too = connection.await;
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await.map_err(Error::Body)?.to_bytes();
    Ok(Answer { status, body })
}
