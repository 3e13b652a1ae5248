//! Readiness by asking: a socket that accepts, or an HTTP server that answers 200.
//! A probe only looks; what its success means is the tree's matter.

use std::path::PathBuf;
use std::time::Duration;

use tokio::net::UnixStream;

use crate::http::{Endpoint, Session};

/// How one sees that a service is ready.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    /// This unix socket accepts.
    UnixSocket(PathBuf),
    /// This path of an HTTP server answers 200.
    Http(Endpoint, String),
}

/// Between two looks. Under emulation a look costs a millisecond, a service needs seconds.
const PAUSE: Duration = Duration::from_millis(100);
/// A server that accepts and says nothing is asked again. One that starts under emulation is slow to answer, and a new
/// connection makes it slower.
const PATIENCE: Duration = Duration::from_secs(10);

impl Probe {
    /// Looks until it succeeds.
    pub(crate) async fn succeeded(&self) {
        match self {
            Self::UnixSocket(path) => {
                while UnixStream::connect(path).await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Self::Http(endpoint, path) => {
                let mut session = Session::with(endpoint.clone());
                while !matches!(tokio::time::timeout(PATIENCE, session.get(path)).await, Ok(Ok(answer)) if answer.status == 200)
                {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
