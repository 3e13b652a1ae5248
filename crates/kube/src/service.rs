//! A service as the supervisor takes it: how to start it, how to see that it is ready, what has to come first.

use std::net::{Ipv4Addr, SocketAddrV4};

use pki::AuthorityKind;

use crate::credential::Credential;
use crate::plan::Plan;
use crate::{containerd, control_plane, etcd, kubelet};

/// Service of a machine, as PID 1 is to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Name of the service in the tree, in logs and on the command line.
    pub name: &'static str,
    /// Program and arguments; never a secret. The multicall of Kubernetes goes by the name of the program.
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub environment: Vec<(&'static str, String)>,
    /// The paths that have to exist before it starts, beside the program itself.
    pub files: Vec<String>,
    /// How to see that it serves.
    pub probe: Probe,
    /// Services that have to run or answer before it is started.
    pub needs: Vec<Need>,
    /// Which of a machine's roles wants it.
    pub wanted_by: Wanted,
    /// Resources that it may take at most. Far above what it needs: a leak ends in a restart, not in a machine without
    /// memory.
    pub limits: Limits,
    /// Whether what it executes may have more privileges than itself.
    pub privileges: Privileges,
    /// Condition that holds as long as it is ready.
    pub condition: Option<Condition>,
    /// Lines of its output that are kept apart from the rest.
    pub record: Option<OwnLog>,
    /// A directory of the data partition of which it needs every file: without one of them no restart helps.
    pub data: Option<&'static str>,
}

/// A role of a machine that wants services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Every coordinator: the store.
    Coordinator,
    /// A coordinator with Kubernetes' control plane.
    ControlPlane,
    /// A machine that runs pods.
    Worker,
}

/// Upper bounds of a service and all that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
}

impl Limits {
    pub(crate) const fn gib(gib: u64, pids: u32) -> Self {
        Self { memory: gib << 30, pids }
    }
}

/// Whether what a service executes may have more privileges than itself (`no_new_privs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Never.
    Fixed,
    /// The service starts programs for others, and decides for them.
    MayGrow,
}

/// Condition that a service stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// etcd answers.
    Etcd,
    /// containerd's socket answers.
    Containerd,
    /// The Kubernetes API answers.
    KubernetesApi,
}

/// Lines that belong into a log of their own: there they are not lost among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLog {
    /// The text that each of them begins with.
    pub start: &'static str,
    /// The name of the log they go to, beside that of the service.
    pub log: &'static str,
}

/// The task that ends the pods, which kubelet and PID 1 have to agree on.
pub(crate) const PODS: &str = "pods";

/// A service waits for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// [`ServiceSpec::name`] of the other, or the name of a task.
    pub service: &'static str,
    /// How far it has to be.
    pub until: Until,
    /// Why the other has to be that far first.
    pub because: &'static str,
}

/// How far a service has to be before another starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The service's process runs.
    Started,
    /// The service's probe has succeeded.
    Ready,
    /// The service is a task, and has ended well.
    Finished,
}

/// How to see that a service serves. Each answers within a second or has failed this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A GET over TLS 1.3 that answers 200.
    HttpsGet {
        /// On loopback, or on the VPN address.
        address: SocketAddrV4,
        /// The request's path and query.
        path: &'static str,
        /// Authority that signed the server's certificate, whose name is the address.
        authority: AuthorityKind,
        /// Which certificate PID 1 shows; none where the path answers anybody.
        client: Option<Credential>,
    },
    /// A GET in clear, on loopback, that answers 200.
    HttpGet {
        /// On loopback.
        address: SocketAddrV4,
        /// The request's path and query.
        path: &'static str,
    },
    /// A Unix stream socket that accepts.
    UnixSocket {
        /// The socket's file.
        path: &'static str,
    },
}

/// A file to be written before its service starts: mode 0644, nothing secret. Its directory is in
/// [`crate::DIRECTORIES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFile {
    /// Absolute, below `/run/cairn`.
    pub path: &'static str,
    /// The whole text.
    pub contents: String,
}

/// The services that the machine's roles want, in the order of their start.
#[must_use]
pub fn services(plan: &Plan) -> Vec<ServiceSpec> {
    let all = [
        etcd::service(plan),
        containerd::service(plan),
        control_plane::apiserver(plan),
        kubelet::service(plan),
        control_plane::controller_manager(plan),
        control_plane::scheduler(plan),
    ];
    all.into_iter().filter(|service| plan.wants(service.wanted_by)).collect()
}

/// The files those services read, beside certificates and keys.
#[must_use]
pub fn files(plan: &Plan) -> Vec<ServiceFile> {
    let mut files = Vec::new();
    if plan.wants(Wanted::Worker) {
        files.extend(containerd::files(plan));
    }
    if plan.wants(Wanted::ControlPlane) {
        files.extend(control_plane::files());
    }
    if plan.wants(Wanted::Worker) {
        files.extend(kubelet::files(plan));
    }
    files
}

pub(crate) const fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// The paths of credentials and authorities a service reads.
pub(crate) fn paths(credentials: &[Credential], authorities: &[AuthorityKind]) -> Vec<String> {
    credentials
        .iter()
        .flat_map(|credential| [credential.certificate_path(), credential.key_path()])
        .chain(authorities.iter().map(|kind| crate::authority_path(*kind)))
        .collect()
}
