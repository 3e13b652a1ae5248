//! Properties by which one machine's Kubernetes differs from another's. All else is the same everywhere and stands in
//! the code.

use std::net::{Ipv4Addr, SocketAddrV4};

use model::{
    Assignment, ClusterId, ClusterRole, KUBERNETES_API_PORT, KubernetesRole, MachineId, NodeName, SERVICE_PREFIX,
};

use crate::service::Wanted;

/// Where the key that signs service account tokens is (PEM, secret, mode 0600).
pub const SERVICE_ACCOUNT_KEY: &str = "/run/cairn/pki/service-account.key";
/// Where its public half is (PEM).
pub const SERVICE_ACCOUNT_PUBLIC: &str = "/run/cairn/pki/service-account.pub";

/// With whose certificates etcd takes no client (a revocation list, DER, mode 0600): read anew at each handshake, and without it none succeeds.
pub const ETCD_REVOKED: &str = "/run/cairn/pki/etcd-revoked.crl";

/// A directory that has to exist before the first service starts, owned by root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// Absolute.
    pub path: &'static str,
    /// Permission bits of the directory (chmod(2)).
    pub mode: u32,
}

/// All of them, parents first. What is under /run is memory.
pub const DIRECTORIES: &[Directory] = &[
    Directory { path: "/run/cairn/kube", mode: 0o755 },
    Directory { path: "/run/cairn/kube/net.d", mode: 0o755 },
    Directory { path: "/run/cairn/pki", mode: 0o700 },
    // etcd complains about anything wider.
    Directory { path: "/data/etcd", mode: 0o700 },
    Directory { path: "/data/containerd", mode: 0o711 },
    Directory { path: "/data/kubelet", mode: 0o750 },
    Directory { path: "/data/kubelet/volume-plugins", mode: 0o755 },
    Directory { path: "/data/var/log/pods", mode: 0o755 },
];

/// Cluster that etcd begins with. But for the last it is read only while etcd has no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdCluster {
    /// None: the coordinators of the plan found one together.
    New,
    /// A cluster that has added this member already; the coordinators of the plan are its members.
    Existing,
    /// The member's own data, which is all that is left of the cluster: all other members are taken out, at each start.
    Recovered,
}

/// Whether etcd knows its users, and asks who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdUsers {
    /// Not yet: whoever came first could do everything, so PID 1 comes first.
    Unknown,
    /// etcd knows its users from its first moment on.
    Known,
}

/// Coordinator of the cluster beside this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    /// Name of the machine, also in etcd.
    pub node: NodeName,
    /// VPN address of the machine, where its etcd and its apiserver are.
    pub vpn: Ipv4Addr,
}

/// Machine with its place in the cluster, as its services are planned by it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which it is.
    pub machine: MachineId,
    /// Name of the machine, also in Kubernetes and etcd.
    pub node: NodeName,
    /// Cluster of the machine: keeps etcd members of different clusters apart.
    pub cluster: ClusterId,
    /// Address of the machine, where etcd, the apiserver and the kubelet are bound; its roles; the addresses of its
    /// pods.
    pub assignment: Assignment,
    /// Cluster that its etcd begins with, if it is a coordinator.
    pub etcd: EtcdCluster,
    /// Whether its etcd knows its users.
    pub etcd_users: EtcdUsers,
    /// The coordinators beside this machine: none while it is the only one.
    pub others: Vec<Coordinator>,
    /// Where the components are in the image: all in one directory, CNI plugins too.
    pub bin: &'static str,
}

impl Plan {
    /// Where etcd, the apiserver and the kubelet are bound.
    #[must_use]
    pub const fn vpn(&self) -> Ipv4Addr {
        self.assignment.vpn_ip()
    }

    /// A component's path in the image.
    pub(crate) fn program(&self, name: &str) -> String {
        format!("{}/{name}", self.bin)
    }

    /// Whether the machine has this role.
    #[must_use]
    pub fn wants(&self, role: Wanted) -> bool {
        match role {
            Wanted::Coordinator => self.assignment.role() == ClusterRole::Coordinator,
            Wanted::ControlPlane => self.assignment.kubernetes().contains(&KubernetesRole::ControlPlane),
            Wanted::Worker => self.assignment.kubernetes().contains(&KubernetesRole::Worker),
        }
    }

    /// All coordinators, this machine first if it is one.
    #[must_use]
    pub fn coordinators(&self) -> Vec<Coordinator> {
        let this = self.wants(Wanted::Coordinator).then(|| Coordinator { node: self.node.clone(), vpn: self.vpn() });
        this.into_iter().chain(self.others.iter().cloned()).collect()
    }

    /// Where PID 1 asks the Kubernetes API: this machine's own apiserver, or by the balancer one that answers.
    #[must_use]
    pub fn kubernetes_api(&self) -> SocketAddrV4 {
        if self.wants(Wanted::ControlPlane) { SocketAddrV4::new(self.vpn(), KUBERNETES_API_PORT) } else { LOCAL_API }
    }

    /// `--leader-elect`: an election costs a lone coordinator seconds at each start and decides nothing.
    pub(crate) const fn elect_leader(&self) -> &'static str {
        if self.others.is_empty() { "--leader-elect=false" } else { "--leader-elect=true" }
    }
}

/// The apiserver as clients on the machine reach it: a balancer of PID 1 over the coordinators.
pub(crate) const LOCAL_API: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, KUBERNETES_API_PORT);

/// The first address of the service prefix: the `kubernetes` service (fixed by the apiserver).
pub(crate) fn kubernetes_service() -> Ipv4Addr {
    SERVICE_PREFIX.nth(1).expect("the service prefix has 65 536 addresses")
}
