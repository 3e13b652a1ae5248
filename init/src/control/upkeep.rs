//! Performs crate `upkeep` on a control plane: follows nodes, claims and volumes by the apiserver of this machine, and does what a look
//! at them leads to. Decides nothing; two control planes at it do no harm.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use cluster::state::State;
use kubeapi::Reflector;
use model::MachineId;
use pki::Authority;
use services::ServicePlan;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use upkeep::volumes::{
    CAPACITIES, CLAIMS, PersistentVolume, StorageCapacity, UpkeepTime, VOLUMES, VolumeAnswer, VolumeCall, VolumeClaim,
    VolumeEffect,
};
use upkeep::{NodeObject, VolumeKeeper, VolumeWorld, Worker, Workers, nodes};

use super::apiserver::{Apiserver, ApiserverError};
use super::volume_calls;
use crate::records::{GrantError, Records, Unread};
use crate::runtime::services::until;
use crate::runtime::{clock, lock};

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

/// Parts that upkeep is made of.
#[derive(Debug, Clone)]
pub(super) struct Upkeep {
    /// Signs the certificate that the apiserver is shown.
    pub(super) kubernetes: Arc<Authority>,
    pub(super) plan: Arc<ServicePlan>,
    pub(super) records: Records,
    /// Way to the machines' own halves of the driver of volumes.
    pub(super) calls: volume_calls::VolumeCalls,
}

/// Collections, as they are known.
#[derive(Debug)]
struct Followed {
    nodes: Mutex<Reflector<NodeObject>>,
    claims: Mutex<Reflector<VolumeClaim>>,
    volumes: Mutex<Reflector<PersistentVolume>>,
    capacities: Mutex<Reflector<StorageCapacity>>,
    /// Wakes who acts on them.
    news: Notify,
}

impl Upkeep {
    /// Keeps what Kubernetes holds; a task for good.
    ///
    /// # Errors
    /// [`UpkeepError`].
    pub(super) async fn keep(self) -> Result<(), UpkeepError> {
        let followed = Followed {
            nodes: Mutex::new(Reflector::of(nodes::NODES)),
            claims: Mutex::new(Reflector::of(CLAIMS)),
            volumes: Mutex::new(Reflector::of(VOLUMES)),
            capacities: Mutex::new(Reflector::of(CAPACITIES)),
            news: Notify::new(),
        };
        let (news, kubernetes) = (&followed.news, self.kubernetes.clone());
        let apiserver = Apiserver { kubernetes, at: self.plan.kubernetes_api() };
        let ended: Result<Infallible, UpkeepError> = tokio::select! {
            ended = apiserver.follow(&followed.nodes, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.claims, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.volumes, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.capacities, news) => ended.map_err(Into::into),
            ended = self.act(&followed, &apiserver) => ended,
        };
        ended.map(|never| match never {})
    }

    async fn call(self, call: VolumeCall) -> (VolumeCall, VolumeAnswer) {
        let answer = self.calls.make(&self.records, &call).await;
        tracing::debug!(machine = %call.machine, ask = ?call.ask, ?answer, "a machine is asked for a volume");
        (call, answer)
    }

    /// Does what each look leads to.
    async fn act(&self, followed: &Followed, apiserver: &Apiserver) -> Result<Infallible, UpkeepError> {
        let (mut api, mut keeper) = (apiserver.session()?, VolumeKeeper::default());
        let mut changes = self.records.changes();
        loop {
            let listed = lock::even_if_poisoned(&followed.nodes).objects().cloned();
            // Behind the list: whoever registered a node that it shows was a worker before.
            self.records.catch_up().await?;
            let (workers, members) = self.records.read(|view, _| machines(view.state()))?;
            for write in listed.iter().flat_map(|nodes| nodes::changes(nodes, &workers)) {
                api.write(write).await?;
            }
            let mut calls = JoinSet::new();
            for step in due(&mut keeper, followed, (&workers, &members)) {
                match step {
                    VolumeEffect::Write(write) | VolumeEffect::Warn(write) => api.write(write).await?,
                    VolumeEffect::Call(call) => drop(calls.spawn(self.clone().call(call))),
                }
            }
            // Machines answer beside each other: one that is silent keeps none waiting for long.
            // A call that panicked has no answer, and is made again.
            while let Some(answered) = calls.join_next().await {
                let Ok((call, answer)) = answered else { continue };
                for write in keeper.answered(&call, answer, moment()) {
                    api.write(write).await?;
                }
            }
            let next = keeper.poll_timeout().map(|at| clock::now() + at.saturating_sub(clock::uptime()));
            tokio::select! {
                () = followed.news.notified() => {}
                () = changes.next() => {}
                () = until(next) => {}
            }
        }
    }
}

/// Steps for volumes, once all collections are known.
fn due(
    keeper: &mut VolumeKeeper,
    followed: &Followed,
    (workers, members): (&Workers, &BTreeSet<MachineId>),
) -> Vec<VolumeEffect> {
    let claims = lock::even_if_poisoned(&followed.claims);
    let volumes = lock::even_if_poisoned(&followed.volumes);
    let capacities = lock::even_if_poisoned(&followed.capacities);
    let (Some(claims), Some(volumes), Some(capacities)) = (claims.objects(), volumes.objects(), capacities.objects())
    else {
        return Vec::new();
    };
    keeper.due(VolumeWorld { claims, volumes, capacities, workers, members }, moment())
}

fn moment() -> UpkeepTime {
    UpkeepTime { uptime: clock::uptime(), unix: clock::unix() }
}

/// Workers, and all machines of the cluster.
fn machines(state: &State) -> (Workers, BTreeSet<MachineId>) {
    let workers = state.workers().map(|(id, record)| {
        let worker = Worker { machine: *id, roles: record.kubernetes.clone() };
        (record.name.clone(), worker)
    });
    let members = state.machines().filter(|(_, record)| record.belongs()).map(|(id, _)| *id);
    (workers.collect(), members.collect())
}
