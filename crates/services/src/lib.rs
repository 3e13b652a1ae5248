//! etcd, containerd and Kubernetes on a machine, as data in supervise's words: what runs with which flags, files and certificates,
//! when it is ready, what it waits for, and the first objects in a new cluster.
//!
//! Everything is a function of a [`ServicePlan`]; nothing here touches a file, a socket, a clock or a key.
//!
//! ```text
//!   ServicePlan ──► wanted(): units, each with its spec ──► programs: argv, environment, limits, probe, texts of files,
//!        │                                       │             names of credentials, which `pki` issues
//!        │                                       └─► tasks of PID 1
//!        └─► directories, cgroups: made before ────► bootstrap::sets(): applied once
//! ```
//! A unit that is equal to one that runs is that one; where a byte of it differs, it is replaced. So nothing is in it that changes by
//! itself: certificates are named, and a renewal replaces nothing; etcd's members are those that it was started with
//! ([`EtcdPlan`]), and a later list of members changes nobody's etcd.
//!
//! # Invariants
//! - A machine runs the services that its roles want, each with bounds of its own; they listen on the VPN address and loopback,
//!   and no secret stands in an argument: `crates/services/tests/plan.rs`
//! - Nobody but PID 1 reaches an etcd that does not ask who calls, so nobody else reads or writes the records:
//!   `crates/services/tests/plan.rs`

mod containerd;
mod credential;
mod directories;
mod etcd;
mod kubernetes;
pub mod names;
mod plan;
mod spec;
mod task;
mod unit;
mod wanted;

pub use containerd::{images, registries};
pub use credential::{Credential, authority_path};
pub use directories::{DIRECTORIES, ServiceDirectory};
pub use etcd::users::{ETCD_USERS, EtcdRights, EtcdUser};
pub use kubernetes::kubeconfig::{OwnerKubeconfig, owner_kubeconfig};
pub use kubernetes::secrets::{SECRETS_ENCRYPTION, secrets_encryption};
pub use kubernetes::{audit, balancer, bootstrap, dns, node_status, reserve, sandbox, storage};
pub use plan::{EtcdCluster, EtcdPlan, EtcdUsers, ServicePlan, ServiceRole};
pub use task::Task;
pub use unit::{
    Limits, OwnLog, ReadinessProbe, Run, ServiceCapability, ServiceFile, ServicePage, ServicePrivileges,
    ServiceProgram, Unit,
};
pub use wanted::{programs, wanted};

/// The cgroup all pods run under. It has to exist, with every controller of the root in its `subtree_control`.
pub const POD_CGROUP: &str = "/pods";
/// The cgroup of containerd's shims: outside containerd's own, so that pods survive its restart. It has to exist.
pub const SHIM_CGROUP: &str = "/shims";
/// Where containerd listens.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Where containerd keeps images and what containers write.
pub const CONTAINERD_DATA: &str = "/data/containerd";
/// containerd's namespace for what Kubernetes runs.
pub const CONTAINERD_NAMESPACE: &str = "k8s.io";
/// Where the key that signs service account tokens is (PEM, secret, mode 0600).
pub const SERVICE_ACCOUNT_KEY: &str = "/run/cairn/pki/service-account.key";
/// Where its public half is (PEM).
pub const SERVICE_ACCOUNT_PUBLIC: &str = "/run/cairn/pki/service-account.pub";
/// With whose certificates etcd takes no client (a revocation list, DER, mode 0600): read anew at each handshake, and without it
/// none succeeds.
pub const ETCD_REVOKED: &str = "/run/cairn/pki/etcd-revoked.crl";
