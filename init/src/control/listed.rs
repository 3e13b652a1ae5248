//! All objects of a collection of the Kubernetes API, at one moment.

use kubeapi::{Collection, FollowError, ListRequest, Objects, Reflector, Resource};
use probe::http::{self, Session};

/// Why the objects are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListedError {
    /// No apiserver answers.
    #[error("ask the Kubernetes API")]
    Http(#[from] http::Error),
    /// The answer is no list.
    #[error(transparent)]
    Follow(#[from] FollowError),
}

/// Lists a collection, page by page.
///
/// # Errors
/// [`ListedError`].
pub(crate) async fn all<T: Resource + Clone>(api: &mut Session, of: Collection) -> Result<Objects<T>, ListedError> {
    selected(api, Reflector::of(of)).await
}

/// Lists what a follower that has not begun selects, page by page.
///
/// # Errors
/// [`ListedError`].
pub(super) async fn selected<T: Resource + Clone>(
    api: &mut Session,
    mut reflector: Reflector<T>,
) -> Result<Objects<T>, ListedError> {
    loop {
        match (reflector.objects(), reflector.request()) {
            (Some(objects), _) => return Ok(objects.clone()),
            (None, ListRequest::List(path) | ListRequest::Watch(path)) => {
                let answer = api.fetch(&path, reflector.accepts()).await?;
                reflector.listed(answer.status, &answer.body)?;
            }
        }
    }
}
