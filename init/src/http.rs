//! A small HTTP/1.1 client for the machine's own services: one request at a time, one bounded answer, over a connection
//! that is kept. A TLS handshake costs both ends more than all else a look at a service does.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tasks::{self, Task};

/// The largest answer that is read: a list of the pods of a machine.
const ANSWER_BYTES: usize = 4 << 20;

/// A server of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// How it is spoken to: in clear only on loopback.
    pub(crate) tls: Option<Tls>,
}

/// Both ends of a TLS connection.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// The name the server's certificate is valid for.
    pub(crate) name: ServerName<'static>,
    /// Its authority, and our client certificate.
    pub(crate) config: Arc<ClientConfig>,
}

/// Asks one server, over one connection for as long as that lasts.
#[derive(Debug)]
pub(crate) struct Session {
    endpoint: Endpoint,
    /// Not here while a request is under way: one that is given up takes its connection with it.
    kept: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    _carrying: Task<()>,
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

impl Session {
    /// With `endpoint`; connects when it is first asked.
    pub(crate) const fn with(endpoint: Endpoint) -> Self {
        Self { endpoint, kept: None }
    }

    /// GET `path`.
    ///
    /// # Errors
    /// [`Error`] when there is no answer; an answer with any status is one.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer, Error> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// POST a JSON `body` to `path`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<Answer, Error> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Answer, Error> {
        let mut connection = match self.kept.take() {
            Some(kept) if !kept.requests.is_closed() => kept,
            Some(_) | None => self.endpoint.connect().await?,
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        connection.requests.ready().await?;
        let answer = connection.requests.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await.map_err(Error::Body)?.to_bytes();
        self.kept = Some(connection);
        Ok(Answer { status, body })
    }
}

impl Endpoint {
    async fn connect(&self) -> Result<Connection, Error> {
        let stream = TcpStream::connect(self.address).await?;
        // A request is small and its answer awaited.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => handshake(stream).await,
            Some(Tls { name, config }) => {
                handshake(TlsConnector::from(config.clone()).connect(name.clone(), stream).await?).await
            }
        }
    }
}

async fn handshake<S>(stream: S) -> Result<Connection, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let carrying = tasks::spawn(async move {
        let _the_sender_says_so_too = connection.await;
    });
    Ok(Connection { requests, _carrying: carrying })
}
