//! Person who calls, as the access table has let them in.

use model::{OwnerPubKey, UserName};
use pki::client_auth::Who;
use tonic::{Request, Status};

/// Owner of the cluster, or user of its Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Person {
    /// Owner, by their key.
    Owner(OwnerPubKey),
    /// User, by their name.
    User(UserName),
}

/// The owner who calls.
pub(super) fn owner<T>(request: &Request<T>) -> Result<OwnerPubKey, Status> {
    let key = match request.extensions().get() {
        Some(Who::Owner(key)) => key.as_ed25519(),
        Some(Who::Stranger | Who::Person(_) | Who::User(..) | Who::Machine(_) | Who::Member(_)) | None => None,
    };
    key.map(OwnerPubKey).ok_or_else(|| Status::unauthenticated("no owner calls; nothing was done"))
}

/// The owner or user who calls.
pub(super) fn person<T>(request: &Request<T>) -> Result<Person, Status> {
    match request.extensions().get() {
        Some(Who::User(name, _)) => Ok(Person::User(*name)),
        Some(Who::Owner(_) | Who::Stranger | Who::Person(_) | Who::Machine(_) | Who::Member(_)) | None => {
            owner(request).map(Person::Owner)
        }
    }
}
