//! A machine redeems a ticket: what it sends is verified on its connection, decided over the records, and answered with all
//! that it needs. Whoever asks as a machine costs one decision at a time.

use cluster::redeem::RedeemRequest;
use cluster::request::Request;
use cluster::txn::Grant;
use model::{Chain, MachinePubKey};
use tonic::Status;

use crate::records::Records;
use crate::rpc::session::Origin;
use crate::rpc::underway::Underway;

/// Lets the machine in, if its ticket does, and says what it is given.
pub(super) async fn redeem(
    underway: &Underway,
    records: &Records,
    (key, origin): (MachinePubKey, Origin),
    bytes: &[u8],
) -> Result<Vec<u8>, Status> {
    let machine = keys::identity::machine_id(&key.0);
    let _place = underway.begin(machine)?;
    let redeem = RedeemRequest::verify(bytes, key, &origin.redeem)
        .map_err(|bad| Status::invalid_argument(format!("{}; nothing was changed", Chain(&bad))))?;
    let granted = records.grant(Request::Redeem(Box::new(redeem))).await?;
    let Grant::Admitted(admitted) = granted else {
        return Err(Status::internal("a machine asked to be let in, and something else was granted"));
    };
    tracing::info!(%machine, "a machine is admitted");
    let answer = records.answer(admitted).await.map_err(|error| {
        tracing::error!(%machine, error = %Chain(&error), "an admitted machine cannot be answered");
        Status::unavailable(format!("the machine is admitted, and cannot be answered: {}; ask again", Chain(&error)))
    })?;
    Ok(answer.to_vec())
}
