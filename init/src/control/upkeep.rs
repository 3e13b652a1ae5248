//! Performs crate `upkeep` on a control plane: follows nodes, claims and volumes by the apiserver of this machine, and does what a look
//! at them leads to. Decides nothing; two control planes at it do no harm.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::state::State;
use kubeapi::{ApiWrite, FollowError, ListRequest, ListStep, Reflector, Resource};
use model::MachineId;
use pki::{Authority, CertificateProfile};
use probe::http::{self, Session};
use services::ServicePlan;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use upkeep::volumes::{
    CAPACITIES, CLAIMS, PersistentVolume, StorageCapacity, UpkeepTime, VOLUMES, VolumeAnswer, VolumeCall, VolumeClaim,
    VolumeEffect,
};
use upkeep::{NodeObject, VolumeKeeper, VolumeWorld, Worker, Workers, nodes};

use super::node::{self, Error as SessionError};
use super::{certificates, volume_calls};
use crate::records::{GrantError, Records, Unread};
use crate::runtime::services::until;
use crate::runtime::{clock, lock};

/// Longest silence of a watch, which the server ends after five minutes.
const SILENCE: Duration = Duration::from_secs(360);

/// Why Kubernetes is not kept as the records have it; a new attempt begins with new lists.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpkeepError {
    /// No certificate for the apiserver.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The apiserver does not answer.
    #[error("ask the Kubernetes API")]
    Http(#[from] http::Error),
    /// A collection cannot be followed.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The apiserver does not take a write.
    #[error("write `{path}`: the Kubernetes API answers {status}")]
    Write {
        /// Path of the object or its collection.
        path: String,
        /// HTTP status.
        status: u16,
    },
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

/// Session with the apiserver, by a certificate that is not due.
struct Api<'a> {
    upkeep: &'a Upkeep,
    session: Session,
    made: Duration,
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
        let news = &followed.news;
        let ended: Result<Infallible, UpkeepError> = tokio::select! {
            ended = self.follow(&followed.nodes, news) => ended,
            ended = self.follow(&followed.claims, news) => ended,
            ended = self.follow(&followed.volumes, news) => ended,
            ended = self.follow(&followed.capacities, news) => ended,
            ended = self.act(&followed) => ended,
        };
        ended.map(|never| match never {})
    }

    async fn call(self, call: VolumeCall) -> (VolumeCall, VolumeAnswer) {
        let answer = self.calls.make(&self.records, &call).await;
        tracing::debug!(machine = %call.machine, ask = ?call.ask, ?answer, "a machine is asked for a volume");
        (call, answer)
    }

    fn api(&self) -> Result<Api<'_>, UpkeepError> {
        let session =
            node::session(&self.kubernetes, &CertificateProfile::KubeCoordinator, self.plan.kubernetes_api())?;
        Ok(Api { upkeep: self, session, made: clock::unix() })
    }

    /// Follows one collection, and tells each change.
    async fn follow<T: Resource>(
        &self,
        reflector: &Mutex<Reflector<T>>,
        news: &Notify,
    ) -> Result<Infallible, UpkeepError> {
        let mut api = self.api()?;
        loop {
            let (request, accepts) = {
                let reflector = lock::even_if_poisoned(reflector);
                (reflector.request(), reflector.accepts())
            };
            match request {
                ListRequest::List(path) => {
                    let answer = api.fresh()?.fetch(&path, accepts).await?;
                    tell(lock::even_if_poisoned(reflector).listed(answer.status, &answer.body)?, news);
                }
                ListRequest::Watch(path) => {
                    let (status, mut lines) = api.fresh()?.lines(&path, accepts, SILENCE).await?;
                    if !lock::even_if_poisoned(reflector).watching(status)? {
                        continue;
                    }
                    while let Some(line) = lines.next().await? {
                        let followed = lock::even_if_poisoned(reflector).line(&line)?;
                        tell(followed, news);
                        if followed == ListStep::Anew {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Does what each look leads to.
    async fn act(&self, followed: &Followed) -> Result<Infallible, UpkeepError> {
        let (mut api, mut keeper) = (self.api()?, VolumeKeeper::default());
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

fn tell(followed: ListStep, news: &Notify) {
    match followed {
        // The place is kept for who acts just now.
        ListStep::Changed => news.notify_one(),
        ListStep::Same | ListStep::Anew => {}
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
    let workers = state.machines().filter_map(|(id, _)| state.worker(id).map(|record| (id, record)));
    let workers = workers.map(|(id, record)| {
        let worker = Worker { machine: *id, roles: record.kubernetes.clone() };
        (record.name.clone(), worker)
    });
    let members = state.machines().filter(|(_, record)| record.belongs()).map(|(id, _)| *id);
    (workers.collect(), members.collect())
}

impl Api<'_> {
    /// Session whose certificate is not due.
    fn fresh(&mut self) -> Result<&mut Session, UpkeepError> {
        if certificates::are_due(self.made, clock::unix()) {
            *self = self.upkeep.api()?;
        }
        Ok(&mut self.session)
    }

    /// Writes. A refusal of that one write, as in a namespace that ends, is left to a later look, and keeps nothing else waiting.
    async fn write(&mut self, write: ApiWrite) -> Result<(), UpkeepError> {
        let session = self.fresh()?;
        let answer = match write.clone() {
            ApiWrite::Create { path, body } => session.post(&path, body.into()).await,
            ApiWrite::Merge { path, patch } => session.merge(&path, patch.into()).await,
            ApiWrite::Delete { path, options } => session.delete(&path, options.into()).await,
        };
        let status = answer?.status;
        match status {
            status if write.is_settled(status) => Ok(()),
            400 | 403 | 404 | 422 => {
                tracing::info!(path = write.path(), status, "the Kubernetes API refuses a write of upkeep");
                Ok(())
            }
            status => Err(UpkeepError::Write { path: write.path().to_owned(), status }),
        }
    }
}
