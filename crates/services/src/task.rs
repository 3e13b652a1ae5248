//! Tasks of PID 1 itself for etcd and Kubernetes on a machine, beside the programs: what each waits for and which role
//! wants it. What a task does is PID 1's matter.

use std::time::Duration;

use supervise::{Fingerprint, Need, Restart, Spec};

use crate::names;
use crate::plan::{EtcdUsers, ServicePlan, ServiceRole};
use crate::spec::{BACKOFF, lasting};

/// A task of PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Makes etcd's users, and has it ask who calls.
    Users,
    /// Carries clients of the Kubernetes API, the machine's and its pods', to an apiserver that answers.
    Balancer,
    /// Imports the images that the root brings.
    Images,
    /// Creates the first objects of a new cluster.
    Bootstrap,
    /// Keeps node objects as the records have them.
    Nodes,
    /// Writes where services are published, and moves floating addresses.
    Publisher,
    /// Has machines make the volumes of claims.
    Provisioner,
    /// Compiles the policies of Kubernetes' network for all workers.
    PolicyCompiler,
    /// Says what nodes and pods use, in the apiserver's place.
    Metrics,
    /// Looks whether the node is Ready.
    Observer,
    /// Tells the pods' resolver where names outside the cluster are asked for.
    Resolvers,
    /// Serves kubelet as the driver of the machine's volumes.
    Volumes,
    /// Says where containerd pulls images from.
    Registries,
    /// Has the machine's pods go by the policies that it was told.
    Policies,
    /// Ends the pods when the machine ends.
    Pods,
}

/// For pods, each of which has 30 s.
const PODS_END: Duration = Duration::from_secs(40);

impl Task {
    const ALL: [Self; 15] = [
        Self::Users,
        Self::Balancer,
        Self::Images,
        Self::Bootstrap,
        Self::Nodes,
        Self::Publisher,
        Self::Provisioner,
        Self::PolicyCompiler,
        Self::Metrics,
        Self::Observer,
        Self::Resolvers,
        Self::Volumes,
        Self::Registries,
        Self::Policies,
        Self::Pods,
    ];

    /// Name of the task in the tree.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Users => names::MAKES_USERS,
            Self::Balancer => names::BALANCER,
            Self::Images => names::IMAGES,
            Self::Bootstrap => names::BOOTSTRAP,
            Self::Nodes => names::NODES,
            Self::Publisher => names::PUBLISHER,
            Self::Provisioner => names::PROVISIONER,
            Self::PolicyCompiler => names::COMPILES_POLICIES,
            Self::Metrics => names::METRICS,
            Self::Observer => names::OBSERVER,
            Self::Resolvers => names::RESOLVERS,
            Self::Volumes => names::VOLUMES,
            Self::Registries => names::REGISTRIES,
            Self::Policies => names::POLICIES,
            Self::Pods => names::PODS,
        }
    }

    /// Units that the task waits for on a machine of this plan.
    pub(crate) fn needs(self, plan: &ServicePlan) -> Vec<Need> {
        match self {
            Self::Users => vec![Need::ready(names::ETCD)],
            // Images are written to containerd's store by its API; at the end pods are gone before it is.
            Self::Images | Self::Pods => vec![Need::ready(names::CONTAINERD)],
            Self::Bootstrap => vec![Need::ready(names::APISERVER)],
            // Before, they may do nothing.
            Self::Nodes | Self::Publisher | Self::Provisioner => vec![Need::finished(names::BOOTSTRAP)],
            // What compiles policies may do nothing before, and a node that is said to be Ready takes pods.
            Self::PolicyCompiler | Self::Observer if plan.wants(ServiceRole::ControlPlane) => {
                vec![Need::finished(names::BOOTSTRAP)]
            }
            // It is asked by the apiserver.
            Self::Metrics => Vec::new(),
            // It asks another machine's, which no tree of this one knows.
            Self::PolicyCompiler | Self::Observer | Self::Balancer => Vec::new(),
            Self::Resolvers | Self::Registries | Self::Policies => Vec::new(),
            // Kubelet looks for it.
            Self::Volumes => Vec::new(),
        }
    }

    /// How the task begins, and what its end means.
    pub(crate) fn spec(self, plan: &ServicePlan) -> Spec {
        let spec = lasting(self.name(), self.needs(plan));
        match self {
            Self::Users | Self::Images | Self::Bootstrap => Spec { restart: Restart::UntilSuccess(BACKOFF), ..spec },
            // Where it, or the resolver, listens for pods.
            Self::Balancer | Self::Resolvers => Spec { content: Fingerprint::of(&plan.assignment.gateway()), ..spec },
            // Whose packets it judges.
            Self::Policies => Spec { content: Fingerprint::of(&plan.assignment.pods()), ..spec },
            Self::Nodes | Self::Publisher | Self::Provisioner => spec,
            Self::PolicyCompiler | Self::Metrics | Self::Observer => spec,
            Self::Volumes | Self::Registries => spec,
            Self::Pods => Spec { stop_deadline: PODS_END, ..spec },
        }
    }

    /// The roles any of which wants it.
    const fn wanted_by(self) -> &'static [ServiceRole] {
        match self {
            // Every coordinator tells workers of policies, with an apiserver of its own or without.
            Self::Users | Self::PolicyCompiler => &[ServiceRole::Coordinator],
            Self::Balancer => &[ServiceRole::ControlPlane, ServiceRole::Worker],
            Self::Bootstrap | Self::Metrics => &[ServiceRole::ControlPlane],
            Self::Nodes | Self::Publisher | Self::Provisioner => &[ServiceRole::ControlPlane],
            Self::Images | Self::Observer | Self::Resolvers | Self::Volumes | Self::Pods => &[ServiceRole::Worker],
            Self::Registries | Self::Policies => &[ServiceRole::Worker],
        }
    }

    /// The tasks that the machine's roles want. What is done for good is none.
    pub(crate) fn wanted(plan: &ServicePlan) -> impl Iterator<Item = Self> + '_ {
        let done =
            |task: &Self| *task == Self::Users && plan.etcd.as_ref().is_some_and(|etcd| etcd.users == EtcdUsers::Known);
        let wanted = move |task: &Self| !done(task) && task.wanted_by().iter().any(|role| plan.wants(*role));
        Self::ALL.into_iter().filter(wanted)
    }
}
