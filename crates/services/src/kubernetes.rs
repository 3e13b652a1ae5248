//! Kubernetes: its control plane, its node's agent, its first objects, and what PID 1 reads and writes of a node.

use supervise::Need;

use crate::names;
use crate::plan::{ServicePlan, ServiceRole};

pub mod audit;
pub mod balancer;
pub mod bootstrap;
pub(crate) mod control_plane;
pub mod dns;
pub(crate) mod kubeconfig;
pub(crate) mod kubelet;
pub mod node_status;
pub(crate) mod proxy;
pub mod reserve;
pub mod sandbox;
pub(crate) mod secrets;
pub mod storage;

/// Need of a client for the machine's own apiserver, if it runs one: where it does not, another machine's serves already.
fn own_apiserver(plan: &ServicePlan) -> Option<Need> {
    plan.wants(ServiceRole::ControlPlane).then(|| Need::ready(names::APISERVER))
}
