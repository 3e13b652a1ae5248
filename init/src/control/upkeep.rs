//! Crate `upkeep`, performed on a control plane by tasks that stand by themselves: what cannot be read of volumes stops no publishing.
//! Each follows what it needs by the apiserver of this machine, and does what a look at that leads to. Decides nothing; two control
//! planes at it do no harm.

use std::net::IpAddr;
use std::sync::Arc;

use cluster::state::State;
use keys::endpoint::Endpoint;
use pki::Authority;
use services::ServicePlan;
use upkeep::{Worker, Workers};

use super::apiserver::{Apiserver, ApiserverError};
use crate::records::{GrantError, Records, Unread};

mod nodes;
mod provisioner;
mod publisher;

/// Why Kubernetes is not kept as the records have it; a new attempt begins with new lists.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpkeepError {
    /// The apiserver is not followed, or does not take a write.
    #[error(transparent)]
    Apiserver(#[from] ApiserverError),
    /// The records cannot be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The records are not those of a quorum.
    #[error(transparent)]
    Unconfirmed(#[from] GrantError),
}

/// Parts that each of the tasks is made of.
#[derive(Debug, Clone)]
pub(super) struct Upkeep {
    /// Signs the certificate that the apiserver is shown.
    pub(super) kubernetes: Arc<Authority>,
    pub(super) plan: Arc<ServicePlan>,
    pub(super) records: Records,
}

impl Upkeep {
    fn apiserver(&self) -> Apiserver {
        Apiserver { kubernetes: self.kubernetes.clone(), at: self.plan.kubernetes_api() }
    }

    /// Records as a quorum has them by now.
    async fn recorded<T>(&self, read: impl FnOnce(&State) -> T) -> Result<T, UpkeepError> {
        self.records.catch_up().await?;
        Ok(self.records.read(|view, _| read(view.state()))?)
    }
}

/// Workers of the cluster, by the names of their nodes.
fn workers(state: &State) -> Workers {
    let workers = state.workers().map(|(id, record)| {
        let reported = record.endpoints.reported.iter().filter_map(Endpoint::address);
        let addresses = reported.filter_map(|at| if let IpAddr::V4(ip) = at.ip() { Some(ip) } else { None });
        let worker = Worker { machine: *id, roles: record.kubernetes.clone(), addresses: addresses.collect() };
        (record.name.clone(), worker)
    });
    workers.collect()
}
