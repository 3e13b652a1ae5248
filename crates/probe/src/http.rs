//! A small HTTP/1.1 client for the machine's own services: one request at a time, one bounded answer, over a connection
//! that is kept. A TLS handshake costs both ends more than all else a look at a service does.

mod lines;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub use self::lines::AnswerLines;
use crate::PAUSE;

/// The largest answer that is read: a list of the pods of a machine.
const ANSWER_BYTES: usize = 4 << 20;
/// Status of an answer to who is not known (RFC 9110, section 15.5.2).
const UNAUTHORIZED: u16 = 401;
/// Any form of an answer.
const ANY: &str = "*/*";
/// A server that accepts and says nothing is given up after this time, unless its session says otherwise. One that starts under
/// emulation is slow to answer, and a new connection makes it slower.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are not acknowledged for so long end a connection: the machine at its other end is gone.
pub const UNACKNOWLEDGED: Duration = Duration::from_millis(1500);

/// A server of this machine.
#[derive(Debug, Clone)]
pub struct LocalServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// How it is spoken to: in clear only on loopback.
    pub tls: Option<Tls>,
}

/// Both ends of a TLS connection.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The name the server's certificate is valid for.
    pub name: ServerName<'static>,
    /// Authority that the server must be certified by, and our client certificate.
    pub config: Arc<ClientConfig>,
}

/// Asks one server, over one connection for as long as that lasts.
#[derive(Debug)]
pub struct Session {
    endpoint: LocalServer,
    /// Longest time for an answer.
    patience: Duration,
    /// Not here while a request is under way: one that is given up takes its connection with it.
    kept: Option<Connection>,
}

/// Connection to a server.
#[derive(Debug)]
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// Carries the bytes; ends with the value.
    _carrying: JoinSet<()>,
}

/// Answer of a server, with its whole body.
#[derive(Debug)]
pub struct HttpAnswer {
    /// HTTP status code.
    pub status: u16,
    /// Body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// No byte came for too long.
    #[error("no answer within {} s", .0.as_secs())]
    Silence(Duration),
    /// A line of an answer is too long.
    #[error("a line of the answer does not end")]
    Line,
    /// Silence lasts longer than the answer may be quiet.
    #[error("nothing came for {} s", .0.as_secs())]
    Quiet(Duration),
}

impl Session {
    /// With `endpoint`; connects when it is first asked.
    pub const fn with(endpoint: LocalServer) -> Self {
        Self { endpoint, patience: PATIENCE, kept: None }
    }

    /// The same session, which waits so long for an answer.
    #[must_use]
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Asks until GET `path` is answered 200.
    pub async fn ready(&mut self, path: &str) {
        while !self.get(path).await.is_ok_and(|answer| answer.status == 200) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// GET `path`.
    ///
    /// # Errors
    /// [`Error`] when there is no answer; an answer with any status is one.
    pub async fn get(&mut self, path: &str) -> Result<HttpAnswer, Error> {
        self.send(Method::GET, (path, ANY), Bytes::new()).await
    }

    /// GET `path` in the form that `accept` names.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn fetch(&mut self, path: &str, accept: &'static str) -> Result<HttpAnswer, Error> {
        self.send(Method::GET, (path, accept), Bytes::new()).await
    }

    /// GET `path` in the form that `accept` names, as lines that come until the server ends them or is silent for `silence`. Any
    /// other request is made over another connection.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn lines(
        &mut self,
        path: &str,
        accept: &'static str,
        silence: Duration,
    ) -> Result<(u16, AnswerLines), Error> {
        let patience = self.patience;
        let begun = self.begin(Method::GET, (path, accept), Bytes::new());
        let (connection, answer) = timeout(patience, begun).await.map_err(|_elapsed| Error::Silence(patience))??;
        Ok((answer.status().as_u16(), AnswerLines::of(answer.into_body(), connection, silence)))
    }

    /// DELETE what is at `path`, with JSON options.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn delete(&mut self, path: &str, options: Bytes) -> Result<HttpAnswer, Error> {
        self.send(Method::DELETE, (path, ANY), options).await
    }

    /// POST a JSON `body` to `path`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<HttpAnswer, Error> {
        self.send(Method::POST, (path, ANY), body).await
    }

    /// PATCH a JSON `body` into what is at `path`, as RFC 7396 merges.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn merge(&mut self, path: &str, body: Bytes) -> Result<HttpAnswer, Error> {
        self.send(Method::PATCH, (path, ANY), body).await
    }

    async fn send(&mut self, method: Method, what: (&str, &str), body: Bytes) -> Result<HttpAnswer, Error> {
        let patience = self.patience;
        timeout(patience, self.exchange(method, what, body)).await.map_err(|_elapsed| Error::Silence(patience))?
    }

    async fn exchange(&mut self, method: Method, what: (&str, &str), body: Bytes) -> Result<HttpAnswer, Error> {
        let (connection, answer) = self.begin(method, what, body).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await.map_err(Error::Body)?.to_bytes();
        // The client's certificate may be over, which a server may see at each request; a new connection shows the one of then.
        self.kept = (status != UNAUTHORIZED).then_some(connection);
        Ok(HttpAnswer { status, body })
    }

    /// Sends a request; the connection is the answer's until that has been read.
    async fn begin(
        &mut self,
        method: Method,
        (path, accept): (&str, &str),
        body: Bytes,
    ) -> Result<(Connection, Response<Incoming>), Error> {
        let mut connection = match self.kept.take() {
            Some(kept) if !kept.requests.is_closed() => kept,
            Some(_) | None => self.endpoint.connect().await?,
        };
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("accept", accept)
            .header("content-type", content)
            .body(Full::new(body))?;
        connection.requests.ready().await?;
        let answer = connection.requests.send_request(request).await?;
        Ok((connection, answer))
    }
}

impl LocalServer {
    async fn connect(&self) -> Result<Connection, Error> {
        let stream = TcpStream::connect(self.address).await?;
        // A request is small and its answer awaited.
        stream.set_nodelay(true)?;
        end_unacknowledged(&stream)?;
        match &self.tls {
            None => handshake(stream).await,
            Some(Tls { name, config }) => {
                handshake(TlsConnector::from(config.clone()).connect(name.clone(), stream).await?).await
            }
        }
    }
}

/// Has a connection end after [`UNACKNOWLEDGED`] (`TCP_USER_TIMEOUT`, tcp(7)).
///
/// # Errors
/// The kernel's, for a socket that is none of TCP.
pub fn end_unacknowledged(stream: &TcpStream) -> std::io::Result<()> {
    let milliseconds = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, milliseconds)?)
}

async fn handshake<S>(stream: S) -> Result<Connection, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut carrying = JoinSet::new();
    carrying.spawn(async move {
        let _the_sender_says_so_too = connection.await;
    });
    Ok(Connection { requests, _carrying: carrying })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn server() -> (TcpListener, Session) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        (listener, Session::with(LocalServer { address, tls: None }))
    }

    /// Reads one request without a body and answers it.
    async fn answer(stream: &mut TcpStream, answer: &str) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.expect("a request"));
        }
        stream.write_all(answer.as_bytes()).await.expect("the client reads");
    }

    #[tokio::test]
    async fn a_connection_is_kept_until_the_server_ends_it() {
        let (listener, mut session) = server().await;
        let serving = async {
            let (mut first, _) = listener.accept().await.expect("a connection");
            answer(&mut first, "HTTP/1.1 503 wait\r\ncontent-length: 0\r\n\r\n").await;
            answer(&mut first, "HTTP/1.1 200 ok\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi").await;
            drop(first);
            let (mut second, _) = listener.accept().await.expect("another connection");
            answer(&mut second, "HTTP/1.1 204 nothing\r\n\r\n").await;
        };
        let asking = async {
            session.ready("/").await;
            session.get("/").await.expect("an answer").status
        };
        assert_eq!(tokio::join!(serving, asking).1, 204);
    }

    /// Proves: Q9
    #[tokio::test]
    async fn who_is_not_known_any_more_comes_by_another_connection() {
        let (listener, mut session) = server().await;
        let serving = async {
            let (mut first, _) = listener.accept().await.expect("a connection");
            answer(&mut first, "HTTP/1.1 401 who\r\ncontent-length: 0\r\n\r\n").await;
            let (mut second, _) = listener.accept().await.expect("another connection");
            answer(&mut second, "HTTP/1.1 204 nothing\r\n\r\n").await;
        };
        let asking = async {
            let refused = session.get("/").await.expect("an answer").status;
            (refused, session.get("/").await.expect("an answer").status)
        };
        assert_eq!(tokio::join!(serving, asking).1, (401, 204));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_accepts_and_says_nothing_is_given_up() {
        let (_listener, mut session) = server().await;
        let began = tokio::time::Instant::now();
        assert!(matches!(session.get("/").await, Err(Error::Silence(PATIENCE))));
        const LONGER: Duration = Duration::from_secs(60);
        assert!(matches!(session.waiting(LONGER).get("/").await, Err(Error::Silence(LONGER))));
        assert_eq!(began.elapsed().as_secs(), 70);
    }

    /// Lines come as the server cuts them, until it ends the answer; other requests go on beside. Proves: W1
    #[tokio::test]
    async fn lines_are_read_as_they_come_beside_other_requests() {
        let (listener, mut session) = server().await;
        let serving = async {
            let (mut first, _) = listener.accept().await.expect("a connection");
            answer(&mut first, "HTTP/1.1 200 ok\r\nconnection: close\r\n\r\n{\"a\"").await;
            let (mut second, _) = listener.accept().await.expect("another connection");
            answer(&mut second, "HTTP/1.1 204 nothing\r\n\r\n").await;
            first.write_all(b":1}\n{}\n\n{cut").await.expect("the client reads");
        };
        let asking = async {
            let silence = Duration::from_secs(9);
            let (status, mut lines) = session.lines("/", "*/*", silence).await.expect("it begins");
            let beside = session.get("/").await.expect("an answer").status;
            let mut read = Vec::new();
            while let Ok(Some(line)) = lines.next().await {
                read.push(String::from_utf8(line.to_vec()).expect("text"));
            }
            (status, beside, read)
        };
        let (status, beside, read) = tokio::join!(serving, asking).1;
        assert_eq!((status, beside, read), (200, 204, ["{\"a\":1}", "{}", ""].map(str::to_owned).to_vec()));
    }

    #[tokio::test]
    async fn an_endless_or_silent_line_is_given_up() {
        let (listener, mut session) = server().await;
        let (_keeps, kept) = tokio::sync::oneshot::channel::<()>();
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            answer(&mut stream, "HTTP/1.1 200 ok\r\nconnection: close\r\n\r\n").await;
            let _cut = stream.write_all(&vec![b'x'; 3 << 20]).await;
            let (mut stream, _) = listener.accept().await.expect("a connection");
            answer(&mut stream, "HTTP/1.1 200 ok\r\nconnection: close\r\n\r\nnothing").await;
            kept.await
        };
        let asking = async {
            let mut next = async |silence| {
                let (_, mut lines) = session.lines("/", "*/*", silence).await.expect("it begins");
                lines.next().await.expect_err("it is given up")
            };
            let long = next(Duration::from_secs(9)).await;
            (long, next(Duration::from_millis(20)).await)
        };
        let (long, quiet) = tokio::select! { _ = serving => panic!("it waits"), asked = asking => asked };
        assert!(matches!(long, Error::Line), "{long:?}");
        assert!(matches!(quiet, Error::Quiet(_)), "{quiet:?}");
    }

    #[tokio::test]
    async fn an_answer_beyond_the_bound_is_refused() {
        let (listener, mut session) = server().await;
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let body = "x".repeat(ANSWER_BYTES + 1);
            let head = format!("HTTP/1.1 200 ok\r\ncontent-length: {}\r\n\r\n", body.len());
            answer(&mut stream, &head).await;
            // The client hangs up in the middle.
            let _cut = stream.write_all(body.as_bytes()).await;
        };
        let (_, answer) = tokio::join!(serving, session.get("/"));
        assert!(matches!(answer, Err(Error::Body(_))), "{answer:?}");
    }
}
