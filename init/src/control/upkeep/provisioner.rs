//! Volumes of claims: machines are called for them, and their answers written. Decides nothing.

use std::convert::Infallible;
use std::sync::Mutex;

use cluster::state::State;
use kubeapi::Reflector;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use upkeep::volumes::{
    CAPACITIES, CLAIMS, PersistentVolume, RemovedMachines, StorageCapacity, UpkeepTime, VOLUMES, VolumeAnswer,
    VolumeCall, VolumeClaim, VolumeEffect,
};
use upkeep::{VolumeKeeper, VolumeWorld, Workers};

use super::{Upkeep, UpkeepError, workers};
use crate::control::apiserver::Apiserver;
use crate::control::volume_calls::VolumeCalls;
use crate::records::Records;
use crate::runtime::services::until;
use crate::runtime::{clock, lock};

/// Collections, as they are known.
#[derive(Debug)]
struct Followed {
    claims: Mutex<Reflector<VolumeClaim>>,
    volumes: Mutex<Reflector<PersistentVolume>>,
    capacities: Mutex<Reflector<StorageCapacity>>,
    /// Wakes who acts on them.
    news: Notify,
}

impl Upkeep {
    /// Provisions volumes; a task for good. By `calls` the machines' own halves of the driver are reached.
    ///
    /// # Errors
    /// [`UpkeepError`].
    pub(in crate::control) async fn provision(self, calls: VolumeCalls) -> Result<(), UpkeepError> {
        let followed = Followed {
            claims: Mutex::new(Reflector::of(CLAIMS)),
            volumes: Mutex::new(Reflector::of(VOLUMES)),
            capacities: Mutex::new(Reflector::of(CAPACITIES)),
            news: Notify::new(),
        };
        let (news, apiserver) = (&followed.news, self.apiserver());
        let ended: Result<Infallible, UpkeepError> = tokio::select! {
            ended = apiserver.follow(&followed.claims, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.volumes, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.capacities, news) => ended.map_err(Into::into),
            ended = self.make_volumes(&followed, &apiserver, &calls) => ended,
        };
        ended.map(|never| match never {})
    }

    async fn make_volumes(
        &self,
        followed: &Followed,
        apiserver: &Apiserver,
        calls: &VolumeCalls,
    ) -> Result<Infallible, UpkeepError> {
        let (mut api, mut changes) = (apiserver.session()?, self.records.changes());
        let mut keeper = VolumeKeeper::default();
        loop {
            let (workers, removed) = self.recorded(|state| (workers(state), removed(state))).await?;
            let mut called = JoinSet::new();
            for step in followed.due(&mut keeper, (&workers, &removed)) {
                match step {
                    VolumeEffect::Write(write) | VolumeEffect::Warn(write) => api.write(write).await?,
                    VolumeEffect::Call(call) => drop(called.spawn(make(calls.clone(), self.records.clone(), call))),
                }
            }
            // Machines answer beside each other: one that is silent keeps none waiting for long.
            // A call that panicked has no answer, and is made again.
            while let Some(answered) = called.join_next().await {
                let Ok((call, answer)) = answered else { continue };
                for write in keeper.answered(&call, answer, moment()) {
                    api.write(write).await?;
                }
            }
            tokio::select! {
                () = followed.news.notified() => {}
                () = changes.next() => {}
                () = until(keeper.poll_timeout().map(clock::at_uptime)) => {}
            }
        }
    }
}

impl Followed {
    /// Steps for volumes, once all collections are known.
    fn due(&self, keeper: &mut VolumeKeeper, (workers, removed): (&Workers, &RemovedMachines)) -> Vec<VolumeEffect> {
        let claims = lock::even_if_poisoned(&self.claims);
        let volumes = lock::even_if_poisoned(&self.volumes);
        let capacities = lock::even_if_poisoned(&self.capacities);
        match (claims.objects(), volumes.objects(), capacities.objects()) {
            (Some(claims), Some(volumes), Some(capacities)) => {
                keeper.due(VolumeWorld { claims, volumes, capacities, workers, removed }, moment())
            }
            _ => Vec::new(),
        }
    }
}

/// Machines whose records say that they were removed.
fn removed(state: &State) -> RemovedMachines {
    let removed = state.machines().filter(|(_, record)| !record.belongs());
    removed.map(|(id, record)| (*id, record.name.clone())).collect()
}

fn moment() -> UpkeepTime {
    UpkeepTime { uptime: clock::uptime(), unix: clock::unix() }
}

async fn make(calls: VolumeCalls, records: Records, call: VolumeCall) -> (VolumeCall, VolumeAnswer) {
    let answer = calls.make(&records, &call).await;
    tracing::debug!(machine = %call.machine, ask = ?call.ask, ?answer, "a machine is asked for a volume");
    (call, answer)
}
