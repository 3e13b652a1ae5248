//! Machines that call with nothing but their own key, whatever they ask for: which one it is.

use model::MachinePubKey;
use pki::client_auth::Who;
use tonic::Status;

use crate::rpc::session::Origin;

/// The machine that calls, as the access table has let it in.
pub(super) fn caller<T>(request: &tonic::Request<T>) -> Result<(MachinePubKey, Origin), Status> {
    match (request.extensions().get(), request.extensions().get::<Origin>()) {
        (Some(Who::Machine(key)), Some(origin)) => Ok((*key, origin.clone())),
        _ => Err(Status::unauthenticated("no machine calls; nothing was done")), // the table lets nobody else in
    }
}
