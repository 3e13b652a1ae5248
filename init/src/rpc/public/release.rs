//! A member asks for the cluster's half of what opens its disk: decided over the records by the key that its connection proved,
//! and derived only once that is written down. Whoever asks costs one decision at a time.

use api::{KeyRequest, ReleasedKey};
use cluster::record::UnixSeconds;
use cluster::request::Request;
use cluster::txn::Grant;
use model::{Chain, MachinePubKey};
use tonic::Status;

use crate::enrolment;
use crate::records::{GrantError, Records};
use crate::rpc::underway::Underway;
use crate::runtime::clock;

/// Gives the half, if the record of this machine is of that disk and of that key.
pub(super) async fn release(
    underway: &Underway,
    records: &Records,
    key: MachinePubKey,
    asked: KeyRequest,
) -> Result<ReleasedKey, Status> {
    let _place = underway.begin(keys::identity::machine_id(&key.0))?;
    let granted = records.grant(request(key, asked)).await.map_err(|refused| {
        // etcd has agreed to it, which takes a leader.
        let decided = matches!(refused, GrantError::Denied(_));
        let refusal = Status::from(refused);
        if decided { records.by_leader(&refusal) } else { refusal }
    })?;
    let cluster = records.read(|view, _| view.state().cluster().map(|cluster| cluster.id))?;
    let (Grant::ClusterKey { machine, disk, generation, next }, Some(cluster)) = (granted, cluster) else {
        return Err(Status::internal("a machine asked for its key, and something else was granted"));
    };
    let directory = records.directory()?;
    let derive = async |generation| {
        enrolment::cluster_key(cluster, disk, generation).await.map_err(|error| {
            tracing::error!(%machine, error = %Chain(&error), "a key that may be released cannot be derived");
            Status::unavailable(format!("the key cannot be derived: {}; ask again", Chain(&error)))
        })
    };
    let key = derive(generation).await?;
    let along = match next {
        Some(next) => Some(derive(next).await?),
        None => None,
    };
    tracing::info!(%machine, %disk, generation, next, level = %asked.level, "a key is released");
    Ok(ReleasedKey { time: UnixSeconds(clock::unix().as_secs()), key, next: along, directory })
}

/// Request in the name of the machine whose key the connection proved, whatever the body says.
const fn request(machine: MachinePubKey, asked: KeyRequest) -> Request {
    let KeyRequest { disk, generation, level } = asked;
    Request::ReleaseKey { machine, disk, generation, level }
}
