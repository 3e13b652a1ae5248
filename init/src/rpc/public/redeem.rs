//! A machine redeems a ticket: what it sends is verified on its connection, decided over the records, and answered with all
//! that it needs. Whoever asks as a machine costs one decision at a time.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Mutex;

use cluster::denied::Denied;
use cluster::redeem::Redeem;
use cluster::request::Request;
use cluster::txn::Granted;
use model::{Chain, MachinePubKey};
use pki::client_auth::Who;
use tonic::Status;

use crate::consensus::{NotGranted, Records};
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
pub(super) fn machine<T>(request: &tonic::Request<T>) -> Result<(MachinePubKey, Origin), Status> {
    match (request.extensions().get(), request.extensions().get::<Origin>()) {
        (Some(Who::Machine(key)), Some(origin)) => Ok((*key, origin.clone())),
        _ => Err(Status::unauthenticated("no machine calls; nothing was done")), // the table lets nobody else in
    }
}

/// Lets the machine in, if its ticket does, and says what it is given.
pub(super) async fn redeem(
    underway: &Underway,
    records: &Records,
    (key, origin): (MachinePubKey, Origin),
    bytes: &[u8],
) -> Result<Vec<u8>, Status> {
    let _place = underway.begin(origin.peer.ip())?;
    let redeem = Redeem::verify(bytes, key, &origin.redeem)
        .map_err(|bad| Status::invalid_argument(format!("{}; nothing was changed", Chain(&bad))))?;
    let machine = keys::identity::machine_id(&key.0);
    let granted = records.decide(Request::Redeem(Box::new(redeem))).await.inspect_err(|refused| {
        // Anybody can make up a ticket: of those the audit counts the calls.
        if !matches!(refused, NotGranted::Denied(Denied::UnknownTicket)) {
            tracing::info!(%machine, reason = %refused, "a ticket is not redeemed");
        }
    })?;
    let Granted::Admitted(admitted) = granted else {
        return Err(Status::internal("a machine asked to be let in, and something else was granted"));
    };
    tracing::info!(%machine, "a machine is admitted");
    let answer = records.answer(admitted).await.map_err(|error| {
        tracing::error!(%machine, error = %Chain(&error), "an admitted machine cannot be answered");
        Status::unavailable(format!("the machine is admitted, and cannot be answered: {}; ask again", Chain(&error)))
    })?;
    Ok(answer.to_vec())
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
