//! Performs crate `upkeep` on a control plane: follows nodes, claims, volumes and services by the apiserver of this machine, and does what
//! a look at them leads to. Decides nothing; two control planes at it do no harm.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use cluster::record::PublishRecord;
use cluster::request::Request;
use cluster::state::State;
use keys::endpoint::Endpoint;
use kubeapi::{ApiWrite, Reflector};
use model::{MachineId, NodeName, Prefixes};
use pki::Authority;
use services::ServicePlan;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use upkeep::floating::SILENT;
use upkeep::publishing::{ENDPOINT_SLICES, EndpointSlice, SERVICES, ServiceObject};
use upkeep::volumes::{
    CAPACITIES, CLAIMS, PersistentVolume, RemovedMachines, StorageCapacity, UpkeepTime, VOLUMES, VolumeAnswer,
    VolumeCall, VolumeClaim, VolumeEffect,
};
use upkeep::{
    AddressMove, AddressMover, FloatingAddress, NamespaceRule, NodeObject, PublishWorld, ServicePublisher,
    VolumeKeeper, VolumeWorld, Worker, Workers, nodes,
};

use super::apiserver::{Apiserver, ApiserverError};
use super::volume_calls;
use crate::network::mesh::roll::Roll;
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
    /// By which it is found out which machines are there.
    pub(super) roll: Roll,
}

/// Collections, as they are known.
#[derive(Debug)]
struct Followed {
    nodes: Mutex<Reflector<NodeObject>>,
    claims: Mutex<Reflector<VolumeClaim>>,
    volumes: Mutex<Reflector<PersistentVolume>>,
    capacities: Mutex<Reflector<StorageCapacity>>,
    services: Mutex<Reflector<ServiceObject>>,
    slices: Mutex<Reflector<EndpointSlice>>,
    /// Wakes who acts on them.
    news: Notify,
}

/// Cluster as its records have it.
#[derive(Debug)]
struct Recorded {
    workers: Workers,
    /// Machines whose records say that they were removed.
    removed: RemovedMachines,
    /// Rules by which ports are open for services.
    rules: Vec<NamespaceRule>,
    /// Prefixes of the cluster's own; none before they are known.
    inside: Option<Prefixes>,
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
            services: Mutex::new(Reflector::of(SERVICES)),
            slices: Mutex::new(Reflector::of(ENDPOINT_SLICES)),
            news: Notify::new(),
        };
        let (news, kubernetes) = (&followed.news, self.kubernetes.clone());
        let apiserver = Apiserver { kubernetes, at: self.plan.kubernetes_api() };
        let ended: Result<Infallible, UpkeepError> = tokio::select! {
            ended = apiserver.follow(&followed.nodes, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.claims, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.volumes, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.capacities, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.services, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.slices, news) => ended.map_err(Into::into),
            ended = self.act(&followed, &apiserver) => ended,
        };
        ended.map(|never| match never {})
    }

    async fn call(self, call: VolumeCall) -> (VolumeCall, VolumeAnswer) {
        let answer = self.calls.make(&self.records, &call).await;
        tracing::debug!(machine = %call.machine, ask = ?call.ask, ?answer, "a machine is asked for a volume");
        (call, answer)
    }

    /// Workers that have just been heard, this machine among them.
    async fn there(&self, workers: &Workers) -> BTreeSet<NodeName> {
        let (seen, now) = (self.roll.call().await, clock::unix_millis());
        let silent = u64::try_from(SILENT.as_millis()).unwrap_or(u64::MAX);
        let is_there = |machine: &MachineId| {
            *machine == self.plan.machine || seen.get(machine).is_some_and(|at| now.since(*at) < silent)
        };
        workers.iter().filter(|(_, worker)| is_there(&worker.machine)).map(|(node, _)| node.clone()).collect()
    }

    /// Has the records name another holder of a floating address.
    async fn give(&self, AddressMove { address, machine }: AddressMove) -> Result<(), UpkeepError> {
        match self.records.grant(Request::Hold { address, machine }).await {
            Ok(_) => tracing::info!(%address, %machine, "a floating address is to be held by another machine"),
            // An owner was faster.
            Err(GrantError::Denied(denied)) => {
                tracing::debug!(%address, %machine, %denied, "it is to be held by nobody")
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Does what each look leads to.
    async fn act(&self, followed: &Followed, apiserver: &Apiserver) -> Result<Infallible, UpkeepError> {
        let (mut api, mut keeper) = (apiserver.session()?, VolumeKeeper::default());
        let (mut publisher, mut mover) = (ServicePublisher::default(), AddressMover::default());
        let mut changes = self.records.changes();
        loop {
            let listed = lock::even_if_poisoned(&followed.nodes).objects().cloned();
            // Behind the list: whoever registered a node that it shows was a worker before.
            self.records.catch_up().await?;
            let recorded = self.records.read(|view, _| Recorded::of(view.state()))?;
            for write in listed.iter().flat_map(|nodes| nodes::changes(nodes, &recorded.workers)) {
                api.write(write).await?;
            }
            for write in published(&mut publisher, followed, &recorded) {
                api.write(write).await?;
            }
            let floats = recorded.rules.iter().any(|rule| rule.floating.is_some());
            if mover.is_to_look(&recorded.rules, clock::uptime()) {
                let there = self.there(&recorded.workers).await;
                for moved in moved(&mut mover, followed, &recorded, &there) {
                    self.give(moved).await?;
                }
            }
            let mut calls = JoinSet::new();
            for step in due(&mut keeper, followed, &recorded) {
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
            let look = mover.poll_timeout().filter(|_| floats);
            let next = keeper.poll_timeout().into_iter().chain(look).min();
            let next = next.map(|at| clock::now() + at.saturating_sub(clock::uptime()));
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
    Recorded { workers, removed, .. }: &Recorded,
) -> Vec<VolumeEffect> {
    let claims = lock::even_if_poisoned(&followed.claims);
    let volumes = lock::even_if_poisoned(&followed.volumes);
    let capacities = lock::even_if_poisoned(&followed.capacities);
    let (Some(claims), Some(volumes), Some(capacities)) = (claims.objects(), volumes.objects(), capacities.objects())
    else {
        return Vec::new();
    };
    keeper.due(VolumeWorld { claims, volumes, capacities, workers, removed }, moment())
}

fn moment() -> UpkeepTime {
    UpkeepTime { uptime: clock::uptime(), unix: clock::unix() }
}

/// Writes for services that are published, once all collections are known.
fn published(publisher: &mut ServicePublisher, followed: &Followed, recorded: &Recorded) -> Vec<ApiWrite> {
    in_world(followed, recorded, |world| publisher.due(world, clock::unix()))
}

/// Floating addresses that are to go elsewhere, once all collections are known.
fn moved(
    mover: &mut AddressMover,
    followed: &Followed,
    recorded: &Recorded,
    there: &BTreeSet<NodeName>,
) -> Vec<AddressMove> {
    in_world(followed, recorded, |world| mover.due(world, there, clock::uptime()))
}

/// Steps over services and where they are reached, as both are known; none before the cluster's prefixes are.
fn in_world<T>(followed: &Followed, recorded: &Recorded, due: impl FnOnce(PublishWorld<'_>) -> Vec<T>) -> Vec<T> {
    let services = lock::even_if_poisoned(&followed.services);
    let slices = lock::even_if_poisoned(&followed.slices);
    let nodes = lock::even_if_poisoned(&followed.nodes);
    let Recorded { workers, rules, inside, .. } = recorded;
    let Some(inside) = *inside else { return Vec::new() };
    let (services, slices, nodes) = (services.objects(), slices.objects(), nodes.objects());
    due(PublishWorld { services, slices, nodes, workers, rules, inside })
}

impl Recorded {
    fn of(state: &State) -> Self {
        let workers = state.workers().map(|(id, record)| {
            let reported = record.endpoints.reported.iter().filter_map(Endpoint::address);
            let addresses = reported.filter_map(|at| if let IpAddr::V4(ip) = at.ip() { Some(ip) } else { None });
            let worker = Worker { machine: *id, roles: record.kubernetes.clone(), addresses: addresses.collect() };
            (record.name.clone(), worker)
        });
        let rules = state.published().values().filter_map(|PublishRecord { terms, .. }| {
            let nodes = state.workers().filter(|(id, _)| terms.users().are_on(id));
            let nodes = nodes.map(|(_, worker)| worker.name.clone()).collect();
            let floating = terms.address().map(|address| {
                let holder = state.floating().get(&address).and_then(|(machine, _)| state.worker(machine));
                FloatingAddress { address, holder: holder.map(|worker| worker.name.clone()) }
            });
            let namespace = terms.users().namespace()?.clone();
            Some(NamespaceRule { namespace, ports: terms.ports().clone(), nodes, floating })
        });
        let removed = state.machines().filter(|(_, record)| !record.belongs());
        Self {
            workers: workers.collect(),
            removed: removed.map(|(id, record)| (*id, record.name.clone())).collect(),
            rules: rules.collect(),
            inside: state.cluster().map(|cluster| Prefixes::of(cluster.vpn_prefix)),
        }
    }
}
