//! Readiness by asking: a socket that accepts, or an HTTPS address that answers 200.
//! A probe only looks; what its success means is the tree's matter.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;

use crate::http::{self, Endpoint};

/// How one sees that a service is ready.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    /// This unix socket accepts.
    UnixSocket(PathBuf),
    /// This path of an HTTPS server answers 200.
    Https(Arc<Endpoint>, String),
    /// This path of a plain HTTP server on loopback answers 200.
    Http(std::net::SocketAddr, String),
}

/// Between two looks. Under emulation a look costs a millisecond, a service needs seconds.
const PAUSE: Duration = Duration::from_millis(100);
/// A server that accepts and says nothing is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

impl Probe {
    /// Looks until it succeeds.
    pub(crate) async fn succeeded(&self) {
        while !matches!(tokio::time::timeout(PATIENCE, self.look()).await, Ok(true)) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look(&self) -> bool {
        match self {
            Self::UnixSocket(path) => UnixStream::connect(path).await.is_ok(),
            Self::Https(endpoint, path) => endpoint.get(path).await.is_ok_and(|answer| answer.status == 200),
            Self::Http(address, path) => http::plain(*address, path).await.is_ok_and(|answer| answer.status == 200),
        }
    }
}
