//! Machines that call with nothing but their own key, whatever they ask for: which one it is, and that of those behind one address
//! one is answered at a time.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Mutex;

use model::MachinePubKey;
use pki::client_auth::Who;
use tonic::Status;

use crate::rpc::session::Origin;
use crate::runtime::lock;

/// From where a machine asks for something now.
#[derive(Debug, Default)]
pub(super) struct Underway(Mutex<HashSet<IpAddr>>);

/// One that asks; its place is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Underway, IpAddr);

impl Underway {
    /// Begins to answer a machine that calls from there.
    ///
    /// # Errors
    /// When another one of that address is being answered.
    pub(super) fn begin(&self, source: IpAddr) -> Result<Place<'_>, Status> {
        let begins = lock::even_if_poisoned(&self.0).insert(source);
        // Made only then: who drops one gives it back.
        let busy = "a machine of this address is being answered; nothing was done; try again";
        if begins { Ok(Place(self, source)) } else { Err(Status::resource_exhausted(busy)) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock::even_if_poisoned(&self.0.0).remove(&self.1);
    }
}

/// The machine that calls, as the access table has let it in.
pub(super) fn caller<T>(request: &tonic::Request<T>) -> Result<(MachinePubKey, Origin), Status> {
    match (request.extensions().get(), request.extensions().get::<Origin>()) {
        (Some(Who::Machine(key)), Some(origin)) => Ok((*key, origin.clone())),
        _ => Err(Status::unauthenticated("no machine calls; nothing was done")), // the table lets nobody else in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_is_answered_at_a_time_from_one_address() {
        let underway = Underway::default();
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let first = underway.begin(one).expect("nobody is before it");
        assert_eq!(underway.begin(one).map(|_| ()).map_err(|busy| busy.code()), Err(tonic::Code::ResourceExhausted));
        assert!(underway.begin(other).is_ok(), "somebody else is not kept waiting");
        drop(first);
        assert!(underway.begin(one).is_ok());
    }
}
