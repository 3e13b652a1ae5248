//! Kubernetes: its control plane, its node's agent, its first objects, and what PID 1 reads and writes of a node.

pub mod audit;
pub mod balancer;
pub mod bootstrap;
pub(crate) mod control_plane;
pub mod dns;
pub(crate) mod kubeconfig;
pub(crate) mod kubelet;
mod node_roles;
pub mod node_status;
pub(crate) mod proxy;
pub mod reserve;
pub(crate) mod secrets;
pub mod upkeep;
