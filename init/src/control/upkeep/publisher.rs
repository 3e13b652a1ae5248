//! Addresses of services that are published, written into their objects, and floating addresses moved to machines that are
//! there. Decides nothing.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Mutex;

use cluster::record::PublishRecord;
use cluster::request::Request;
use cluster::state::State;
use kubeapi::Reflector;
use model::{MachineId, NodeName, Prefixes};
use tokio::sync::Notify;
use upkeep::floating::SILENT;
use upkeep::publishing::{ENDPOINT_SLICES, EndpointSlice, SERVICES, ServiceObject};
use upkeep::{
    AddressMove, AddressMover, FloatingAddress, NamespaceRule, NodeObject, PublishWorld, ServicePublisher, Workers,
    nodes,
};

use super::{Upkeep, UpkeepError, workers};
use crate::control::apiserver::Apiserver;
use crate::network::mesh::roll::Roll;
use crate::records::GrantError;
use crate::runtime::services::until;
use crate::runtime::{clock, lock};

/// Collections, as they are known.
#[derive(Debug)]
struct Followed {
    nodes: Mutex<Reflector<NodeObject>>,
    services: Mutex<Reflector<ServiceObject>>,
    slices: Mutex<Reflector<EndpointSlice>>,
    /// Wakes who acts on them.
    news: Notify,
}

/// Cluster as its records have it.
#[derive(Debug)]
struct Recorded {
    workers: Workers,
    /// Rules by which ports are open for services.
    rules: Vec<NamespaceRule>,
    /// Prefixes of the cluster's own; none before they are known.
    inside: Option<Prefixes>,
}

impl Upkeep {
    /// Publishes services; a task for good. By the `roll` it is found out which machines are there.
    ///
    /// # Errors
    /// [`UpkeepError`].
    pub(in crate::control) async fn publish(self, roll: Roll) -> Result<(), UpkeepError> {
        let followed = Followed {
            nodes: Mutex::new(Reflector::of(nodes::NODES)),
            services: Mutex::new(Reflector::of(SERVICES)),
            slices: Mutex::new(Reflector::of(ENDPOINT_SLICES)),
            news: Notify::new(),
        };
        let (news, apiserver) = (&followed.news, self.apiserver());
        let ended: Result<Infallible, UpkeepError> = tokio::select! {
            ended = apiserver.follow(&followed.nodes, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.services, news) => ended.map_err(Into::into),
            ended = apiserver.follow(&followed.slices, news) => ended.map_err(Into::into),
            ended = self.write_addresses(&followed, &apiserver, &roll) => ended,
        };
        ended.map(|never| match never {})
    }

    async fn write_addresses(
        &self,
        followed: &Followed,
        apiserver: &Apiserver,
        roll: &Roll,
    ) -> Result<Infallible, UpkeepError> {
        let (mut api, mut changes) = (apiserver.session()?, self.records.changes());
        let (mut publisher, mut mover) = (ServicePublisher::default(), AddressMover::default());
        loop {
            let recorded = self.recorded(Recorded::of).await?;
            for write in followed.in_world(&recorded, |world| publisher.due(world, clock::unix())) {
                api.write(write).await?;
            }
            if mover.is_to_look(&recorded.rules, clock::uptime()) {
                let there = self.there(&recorded.workers, roll).await;
                for moved in followed.in_world(&recorded, |world| mover.due(world, &there, clock::uptime())) {
                    self.give(moved).await?;
                }
            }
            let floats = recorded.rules.iter().any(|rule| rule.floating.is_some());
            let look = mover.poll_timeout().filter(|_| floats);
            tokio::select! {
                () = followed.news.notified() => {}
                () = changes.next() => {}
                () = until(look.map(clock::at_uptime)) => {}
            }
        }
    }

    /// Workers that have just been heard, this machine among them.
    async fn there(&self, workers: &Workers, roll: &Roll) -> BTreeSet<NodeName> {
        let (seen, now) = (roll.call().await, clock::unix_millis());
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
}

impl Followed {
    /// Steps over services and where they are reached, as both are known; none before the cluster's prefixes are.
    fn in_world<T>(&self, recorded: &Recorded, due: impl FnOnce(PublishWorld<'_>) -> Vec<T>) -> Vec<T> {
        let services = lock::even_if_poisoned(&self.services);
        let slices = lock::even_if_poisoned(&self.slices);
        let nodes = lock::even_if_poisoned(&self.nodes);
        let Recorded { workers, rules, inside } = recorded;
        let Some(inside) = *inside else { return Vec::new() };
        let (services, slices, nodes) = (services.objects(), slices.objects(), nodes.objects());
        due(PublishWorld { services, slices, nodes, workers, rules, inside })
    }
}

impl Recorded {
    fn of(state: &State) -> Self {
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
        Self {
            workers: workers(state),
            rules: rules.collect(),
            inside: state.cluster().map(|cluster| cluster.prefixes),
        }
    }
}
