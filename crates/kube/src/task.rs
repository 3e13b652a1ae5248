//! Tasks of PID 1 itself for etcd and Kubernetes on a machine, beside the services: what each waits for and which role
//! wants it. What a task does is PID 1's matter.

use crate::plan::{EtcdUsers, Plan};
use crate::service::{Need, PODS, Until, Wanted};
use crate::{containerd, control_plane, etcd};

/// A task of PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Makes etcd's users, and has it ask who calls.
    Users,
    /// Keeps the cluster's records, and decides over them.
    Cluster,
    /// Carries this machine's clients of the Kubernetes API to one that answers.
    Balancer,
    /// Imports the images that the root brings.
    Images,
    /// Creates the first objects of a new cluster, and labels the node.
    Bootstrap,
    /// Looks whether the node is Ready.
    Observer,
    /// Ends the pods when the machine ends.
    Pods,
}

impl Task {
    const ALL: [Self; 7] =
        [Self::Users, Self::Cluster, Self::Balancer, Self::Images, Self::Bootstrap, Self::Observer, Self::Pods];

    /// Name of the task in the tree.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Users => "etcd.users",
            Self::Cluster => "cluster",
            Self::Balancer => "kube.balancer",
            Self::Images => "images",
            Self::Bootstrap => "kube.bootstrap",
            Self::Observer => "kube.observer",
            Self::Pods => PODS,
        }
    }

    /// Services that the task waits for on a machine of this plan.
    #[must_use]
    pub fn needs(self, plan: &Plan) -> Vec<Need> {
        let until = |until, service, because| vec![Need { service, until, because }];
        let ready = |service, because| until(Until::Ready, service, because);
        match self {
            Self::Users => ready(etcd::NAME, "it asks this machine's etcd"),
            Self::Cluster => {
                let mut needs = ready(etcd::NAME, "it asks this machine's etcd");
                if plan.etcd_users == EtcdUsers::Unknown {
                    let because = "while its users are made etcd refuses who asked before";
                    needs.extend(until(Until::Finished, Self::Users.name(), because));
                }
                needs
            }
            Self::Balancer => Vec::new(),
            Self::Images => ready(containerd::NAME, "it writes to containerd's store by its API"),
            Self::Bootstrap => ready(control_plane::APISERVER, "it asks this machine's apiserver"),
            Self::Observer if plan.wants(Wanted::ControlPlane) => {
                ready(control_plane::APISERVER, "it asks this machine's apiserver")
            }
            // It asks another machine's, which no tree of this one knows.
            Self::Observer => Vec::new(),
            Self::Pods => ready(containerd::NAME, "at the end pods are gone before containerd is"),
        }
    }

    /// The roles any of which wants it.
    const fn wanted_by(self) -> &'static [Wanted] {
        match self {
            Self::Users | Self::Cluster => &[Wanted::Coordinator],
            Self::Balancer => &[Wanted::ControlPlane, Wanted::Worker],
            Self::Bootstrap => &[Wanted::ControlPlane],
            Self::Images | Self::Observer | Self::Pods => &[Wanted::Worker],
        }
    }
}

/// The tasks that the machine's roles want. What is done for good is none.
#[must_use]
pub fn tasks(plan: &Plan) -> Vec<Task> {
    let done = |task: &Task| *task == Task::Users && plan.etcd_users == EtcdUsers::Known;
    let wanted = |task: &Task| !done(task) && task.wanted_by().iter().any(|role| plan.wants(*role));
    Task::ALL.into_iter().filter(wanted).collect()
}
