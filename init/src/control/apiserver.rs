//! An apiserver, followed and written to by a coordinator, with a certificate that it signs for itself. Decides nothing.

use std::convert::Infallible;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubeapi::{ApiWrite, FollowError, ListRequest, ListStep, Reflector, Resource};
use pki::{Authority, CertificateProfile};
use probe::http::{self, Session};
use tokio::sync::Notify;

use super::certificates;
use super::node::{self, Error as SessionError};
use crate::runtime::{clock, lock};

/// Longest silence of a watch, which the server ends after five minutes.
const SILENCE: Duration = Duration::from_secs(360);

/// Why an apiserver is not followed, or not written to; a new attempt begins with new lists.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiserverError {
    /// No certificate for the apiserver.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The apiserver does not answer.
    #[error("ask the Kubernetes API")]
    Http(#[from] http::Error),
    /// A collection cannot be followed.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The apiserver does not take a write.
    #[error("write `{path}`: the Kubernetes API answers {status}")]
    Write {
        /// Path of the object or its collection.
        path: String,
        /// HTTP status.
        status: u16,
    },
}

/// An apiserver, and who signs the certificate that it is shown.
#[derive(Debug, Clone)]
pub(super) struct Apiserver {
    pub(super) kubernetes: Arc<Authority>,
    pub(super) at: SocketAddrV4,
}

/// Session with the apiserver, by a certificate that is not due.
pub(super) struct ApiSession<'a> {
    apiserver: &'a Apiserver,
    session: Session,
    made: Duration,
}

impl Apiserver {
    pub(super) fn session(&self) -> Result<ApiSession<'_>, ApiserverError> {
        let session = node::session(&self.kubernetes, &CertificateProfile::KubeCoordinator, self.at)?;
        Ok(ApiSession { apiserver: self, session, made: clock::unix() })
    }

    /// Follows one collection, and tells each change.
    pub(super) async fn follow<T: Resource>(
        &self,
        reflector: &Mutex<Reflector<T>>,
        news: &Notify,
    ) -> Result<Infallible, ApiserverError> {
        let mut api = self.session()?;
        loop {
            let (request, accepts) = {
                let reflector = lock::even_if_poisoned(reflector);
                (reflector.request(), reflector.accepts())
            };
            match request {
                ListRequest::List(path) => {
                    let answer = match api.fresh()?.fetch(&path, accepts).await {
                        // Broken off, or too large: fewer objects do no harm.
                        Err(http::Error::Body(_)) if lock::even_if_poisoned(reflector).too_large() => continue,
                        answer => answer?,
                    };
                    tell(lock::even_if_poisoned(reflector).listed(answer.status, &answer.body)?, news);
                }
                ListRequest::Watch(path) => {
                    let (status, mut lines) = api.fresh()?.lines(&path, accepts, SILENCE).await?;
                    if !lock::even_if_poisoned(reflector).watching(status)? {
                        continue;
                    }
                    while let Some(line) = lines.next().await? {
                        let followed = lock::even_if_poisoned(reflector).line(&line)?;
                        tell(followed, news);
                        if followed == ListStep::Anew {
                            break;
                        }
                    }
                }
            }
        }
    }
}

fn tell(followed: ListStep, news: &Notify) {
    match followed {
        // The place is kept for who acts just now.
        ListStep::Changed => news.notify_one(),
        ListStep::Same | ListStep::Anew => {}
    }
}

impl ApiSession<'_> {
    /// Session whose certificate is not due.
    fn fresh(&mut self) -> Result<&mut Session, ApiserverError> {
        if certificates::are_due(self.made, clock::unix()) {
            *self = self.apiserver.session()?;
        }
        Ok(&mut self.session)
    }

    /// Writes. A refusal of that one write, as in a namespace that ends, is left to a later look, and keeps nothing else waiting.
    pub(super) async fn write(&mut self, write: ApiWrite) -> Result<(), ApiserverError> {
        let session = self.fresh()?;
        let answer = match write.clone() {
            ApiWrite::Create { path, body } => session.post(&path, body.into()).await,
            ApiWrite::Merge { path, patch } => session.merge(&path, patch.into()).await,
            ApiWrite::Delete { path, options } => session.delete(&path, options.into()).await,
        };
        let status = answer?.status;
        match status {
            status if write.is_settled(status) => Ok(()),
            400 | 403 | 404 | 422 => {
                tracing::info!(path = write.path(), status, "the Kubernetes API refuses a write of this coordinator");
                Ok(())
            }
            status => Err(ApiserverError::Write { path: write.path().to_owned(), status }),
        }
    }
}
