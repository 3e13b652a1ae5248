//! Performs the policies of crate `upkeep` on a coordinator: follows pods, namespaces and network policies by an apiserver that answers,
//! its own or another's, and has machines told what comes of them. Decides nothing; every coordinator does it, on a thread of its own.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};

use cluster::state::State;
use kubeapi::Reflector;
use netpolicy::{NAMESPACES, NETWORK_POLICIES, NetworkPolicy, NodePrefixes, PODS, PolicyNamespace, PolicyPod};
use pki::Authority;
use tokio::sync::Notify;
use upkeep::volumes::UpkeepTime;
use upkeep::{PolicyKeeper, PolicyLook, PolicyWorld};

use super::apiserver::{Apiserver, ApiserverError};
use super::balancer::Apiservers;
use crate::records::Records;
use crate::runtime::services::until;
use crate::runtime::{clock, lock, tasks};

/// Name of the thread.
const NAME: &str = "policies";

/// Why policies are not compiled: nothing is said of them until all objects are heard again, and machines go by what they were told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompilerError {
    /// The thread does not begin, or has panicked.
    #[error("compile network policies")]
    Thread(#[from] io::Error),
    /// An apiserver cannot be followed.
    #[error("compile network policies, by the apiserver at {0}")]
    Apiserver(SocketAddrV4, #[source] ApiserverError),
}

/// Parts that the compiler is made of.
#[derive(Debug, Clone)]
pub(super) struct PolicyCompiler {
    /// Signs the certificate that the apiserver is shown.
    pub(super) kubernetes: Arc<Authority>,
    pub(super) records: Records,
    pub(super) apiservers: Apiservers,
}

/// Collections, as they are known.
#[derive(Debug)]
struct Followed {
    pods: Mutex<Reflector<PolicyPod>>,
    namespaces: Mutex<Reflector<PolicyNamespace>>,
    policies: Mutex<Reflector<NetworkPolicy>>,
    /// Wakes who acts on them.
    news: Notify,
}

/// As long as it is there, what is told is of objects that are followed.
struct Heard<'a>(&'a Records);

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        self.0.tell_policies(None);
    }
}

impl PolicyCompiler {
    /// Compiles at each change; a task for good.
    ///
    /// # Errors
    /// [`CompilerError`].
    pub(super) async fn keep(self) -> Result<(), CompilerError> {
        let ended = tasks::apart(NAME, move || async move { self.follow().await }).await?;
        ended.map(|never| match never {})
    }

    async fn follow(&self) -> Result<Infallible, CompilerError> {
        let apiserver = Apiserver { kubernetes: self.kubernetes.clone(), at: self.control_plane().await };
        let followed = Followed {
            pods: Mutex::new(Reflector::of(PODS)),
            namespaces: Mutex::new(Reflector::of(NAMESPACES)),
            policies: Mutex::new(Reflector::of(NETWORK_POLICIES)),
            news: Notify::new(),
        };
        let news = &followed.news;
        let ended: Result<Infallible, ApiserverError> = tokio::select! {
            ended = apiserver.follow(&followed.pods, news) => ended,
            ended = apiserver.follow(&followed.namespaces, news) => ended,
            ended = apiserver.follow(&followed.policies, news) => ended,
            ended = self.act(&followed, &apiserver) => ended,
        };
        ended.map_err(|error| {
            if matches!(error, ApiserverError::Http(_)) {
                self.apiservers.missed(apiserver.at);
            }
            CompilerError::Apiserver(apiserver.at, error)
        })
    }

    /// Where there is an apiserver; a cluster without any has no policies to wait for.
    async fn control_plane(&self) -> SocketAddrV4 {
        let mut changes = self.records.changes();
        loop {
            match self.apiservers.first() {
                Ok(at) => return at,
                Err(_none) => changes.next().await,
            }
        }
    }

    async fn act(&self, followed: &Followed, apiserver: &Apiserver) -> Result<Infallible, ApiserverError> {
        let (mut api, mut keeper) = (apiserver.session()?, PolicyKeeper::default());
        let mut changes = self.records.changes();
        let _heard = Heard(&self.records);
        loop {
            let Ok(nodes) = self.records.read(|view, _| prefixes(view.state())) else {
                changes.next().await;
                continue;
            };
            if let Some(PolicyLook { policies, events }) = look(&mut keeper, followed, &nodes) {
                tracing::debug!(notices = events.len(), "network policies are compiled");
                self.records.tell_policies(Some(policies));
                for event in events {
                    api.write(event).await?;
                }
            }
            let next = keeper.poll_timeout().map(clock::at_uptime);
            tokio::select! {
                () = followed.news.notified() => keeper.changed(clock::uptime()),
                () = changes.next() => {}
                () = until(next) => {}
            }
        }
    }
}

/// Outcome of a look at the collections.
fn look(keeper: &mut PolicyKeeper, followed: &Followed, nodes: &NodePrefixes) -> Option<PolicyLook> {
    let pods = lock::even_if_poisoned(&followed.pods);
    let namespaces = lock::even_if_poisoned(&followed.namespaces);
    let policies = lock::even_if_poisoned(&followed.policies);
    let (pods, namespaces, policies) = (pods.objects(), namespaces.objects(), policies.objects());
    let now = UpkeepTime { uptime: clock::uptime(), unix: clock::unix() };
    keeper.due(PolicyWorld { pods, namespaces, policies, nodes }, now)
}

/// Prefixes of workers, by the names of their nodes.
fn prefixes(state: &State) -> NodePrefixes {
    state.workers().filter_map(|(_, worker)| Some((worker.name.as_str().to_owned(), worker.pods?))).collect()
}
