//! Readiness by asking: a socket that accepts, or an HTTP server that answers 200. PID 1 and the floor it is measured
//! against look in this one way. A probe only looks; it must never decide what its success means.

pub mod http;

use std::path::PathBuf;
use std::time::Duration;

use tokio::net::UnixStream;

use crate::http::{LocalServer, Session};

/// How one sees that a service is ready.
#[derive(Debug, Clone)]
pub enum Probe {
    /// This unix socket accepts.
    UnixSocket(PathBuf),
    /// This path of an HTTP server answers 200.
    Http(LocalServer, String),
}

/// Between two looks. Under emulation a look costs a millisecond, a service needs seconds.
pub const PAUSE: Duration = Duration::from_millis(100);

impl Probe {
    /// Looks until it succeeds.
    pub async fn succeeded(&self) {
        match self {
            Self::UnixSocket(path) => {
                while UnixStream::connect(path).await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Self::Http(endpoint, path) => Session::with(endpoint.clone()).ready(path).await,
        }
    }
}
