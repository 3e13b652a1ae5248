//! Kubernetes, etcd and containerd on a machine, as data: what runs with which flags, which files and certificates it
//! needs, when it is ready, what it waits for, and the first objects in a new cluster.
//!
//! Everything is a function of a [`Plan`]; nothing here touches a file, a socket, a clock or a key.
//!
//! ```text
//!   Plan ──► files(): written as they are        ┐
//!        ──► credentials(): issued by `pki`      ├─► services(): argv, environment, probe, needs
//!        ──► cgroups, directories: made before   ┘        │ apiserver ready
//!                                                         └─► bootstrap::objects(): applied once
//! ```

pub mod audit;
pub mod bootstrap;
mod containerd;
mod control_plane;
mod credential;
mod etcd;
pub mod images;
mod kubeconfig;
mod kubelet;
pub mod node_roles;
pub mod node_status;
mod plan;
pub mod reserve;
mod secrets;
mod service;
mod task;

pub use credential::{Credential, authority_path};
pub use etcd::{ETCD_USERS, EtcdRights, EtcdUser};
pub use kubeconfig::{OwnerKubeconfig, owner_kubeconfig};
pub use plan::{
    Coordinator, DIRECTORIES, Directory, ETCD_REVOKED, EtcdCluster, EtcdUsers, Plan, SERVICE_ACCOUNT_KEY,
    SERVICE_ACCOUNT_PUBLIC,
};
pub use secrets::{SECRETS_ENCRYPTION, secrets_encryption};
pub use service::{
    Condition, Limits, Need, OwnLog, Privileges, Probe, ServiceFile, ServiceSpec, Until, Wanted, files, services,
};
pub use task::{Task, tasks};

/// The cgroup all pods run under. It has to exist, with every controller of the root in its `subtree_control`.
pub const POD_CGROUP: &str = "/pods";
/// The cgroup of containerd's shims: outside containerd's own, so that pods survive its restart. It has to exist.
pub const SHIM_CGROUP: &str = "/shims";
/// Where containerd listens.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// containerd's namespace for what Kubernetes runs.
pub const CONTAINERD_NAMESPACE: &str = "k8s.io";
