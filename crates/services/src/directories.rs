//! Directories that services work in. What is under /run is memory.

use crate::CONTAINERD_DATA;
use crate::plan::ServiceRole;
use crate::registries::REGISTRIES;

/// A directory that has to exist before the first service starts, owned by root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceDirectory {
    /// Absolute.
    pub path: &'static str,
    /// Permission bits of the directory (chmod(2)).
    pub mode: u32,
    /// Role without which it is not made.
    pub role: Option<ServiceRole>,
}

/// All of them, parents first. What is under /run is memory.
pub const DIRECTORIES: &[ServiceDirectory] = &[
    ServiceDirectory { path: "/run/cairn/kube", mode: 0o755, role: None },
    ServiceDirectory { path: "/run/cairn/kube/net.d", mode: 0o755, role: None },
    ServiceDirectory { path: REGISTRIES, mode: 0o755, role: Some(ServiceRole::Worker) },
    // As containerd makes it; the one below is read by gVisor's shim, and empty without.
    ServiceDirectory { path: "/run/containerd", mode: 0o711, role: Some(ServiceRole::Worker) },
    ServiceDirectory { path: "/run/containerd/runsc", mode: 0o711, role: Some(ServiceRole::Worker) },
    ServiceDirectory { path: "/run/cairn/dns", mode: 0o755, role: Some(ServiceRole::Worker) },
    // Whoever is not root finds the certificates that it knows by name, and reads no other's key.
    ServiceDirectory { path: "/run/cairn/pki", mode: 0o711, role: None },
    // etcd complains about anything wider.
    ServiceDirectory { path: "/data/etcd", mode: 0o700, role: Some(ServiceRole::Coordinator) },
    ServiceDirectory { path: CONTAINERD_DATA, mode: 0o711, role: None },
    ServiceDirectory { path: "/data/kubelet", mode: 0o750, role: None },
    ServiceDirectory { path: "/data/kubelet/volume-plugins", mode: 0o755, role: None },
    ServiceDirectory { path: "/data/var/log/pods", mode: 0o755, role: None },
];
