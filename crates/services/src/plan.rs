//! Properties by which one machine's Kubernetes differs from another's. All else is the same everywhere and stands in
//! the code.

use std::net::{Ipv4Addr, SocketAddrV4};

use model::{Assignment, ClusterId, ClusterRole, KUBERNETES_API_PORT, KubernetesRole, MachineId, NodeName, Prefixes};

/// Cluster that etcd begins with. But for the last it is read only while etcd has no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdCluster {
    /// None: this member founds one.
    New,
    /// A cluster that has added this member already.
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

/// Plan of a machine's etcd: what it is started with. It is no wish: a list of members that changes later changes nothing in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdPlan {
    /// Cluster that it begins with.
    pub begins: EtcdCluster,
    /// Members of that cluster beside this machine: name and VPN address.
    pub others: Vec<(NodeName, Ipv4Addr)>,
    /// Whether it knows its users.
    pub users: EtcdUsers,
}

/// A role of a machine that wants units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceRole {
    /// Every coordinator: the store.
    Coordinator,
    /// A coordinator with Kubernetes' control plane.
    ControlPlane,
    /// A machine that runs pods.
    Worker,
}

impl ServiceRole {
    pub(crate) fn is_given_by(self, assignment: &Assignment) -> bool {
        match self {
            Self::Coordinator => assignment.role() == ClusterRole::Coordinator,
            Self::ControlPlane => assignment.kubernetes().contains(&KubernetesRole::ControlPlane),
            Self::Worker => assignment.kubernetes().contains(&KubernetesRole::Worker),
        }
    }
}

/// Machine with its place in the cluster, as its services are planned by it.
#[derive(Debug, Clone)]
pub struct ServicePlan {
    /// Which it is.
    pub machine: MachineId,
    /// Name of the machine, also in Kubernetes and etcd.
    pub node: NodeName,
    /// Cluster of the machine: keeps etcd members of different clusters apart.
    pub cluster: ClusterId,
    /// Address of the machine, where etcd, the apiserver and the kubelet are bound; its roles; the addresses of its
    /// pods.
    pub assignment: Assignment,
    /// Address ranges that the cluster keeps for itself.
    pub prefixes: Prefixes,
    /// Plan of the etcd that runs here; without one, nothing that needs it runs.
    pub etcd: Option<EtcdPlan>,
    /// Where the components are in the image: all in one directory, CNI plugins too.
    pub bin: &'static str,
    /// Whether gVisor is among them.
    pub has_gvisor: bool,
}

impl ServicePlan {
    /// Where etcd, the apiserver and the kubelet are bound.
    #[must_use]
    pub const fn vpn(&self) -> Ipv4Addr {
        self.assignment.vpn_ip()
    }

    /// A component's path in the image.
    pub(crate) fn program(&self, name: &str) -> String {
        format!("{}/{name}", self.bin)
    }

    /// Whether the units of this role are to run: the machine has it, and its own etcd where they need one.
    #[must_use]
    pub fn wants(&self, role: ServiceRole) -> bool {
        let needs_etcd = match role {
            ServiceRole::Coordinator | ServiceRole::ControlPlane => true,
            ServiceRole::Worker => false,
        };
        role.is_given_by(&self.assignment) && (self.etcd.is_some() || !needs_etcd)
    }

    /// Members of the cluster that its etcd begins with, this machine first.
    pub(crate) fn members(&self) -> impl Iterator<Item = (NodeName, Ipv4Addr)> {
        let this = (self.node.clone(), self.vpn());
        std::iter::once(this).chain(self.etcd.iter().flat_map(|etcd| etcd.others.iter().cloned()))
    }

    /// Where PID 1 asks the Kubernetes API: this machine's own apiserver, or by the balancer one that answers.
    #[must_use]
    pub fn kubernetes_api(&self) -> SocketAddrV4 {
        if self.wants(ServiceRole::ControlPlane) {
            SocketAddrV4::new(self.vpn(), KUBERNETES_API_PORT)
        } else {
            LOCAL_API
        }
    }
}

/// The apiserver as clients on the machine reach it: a balancer of PID 1 over the coordinators.
pub(crate) const LOCAL_API: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, KUBERNETES_API_PORT);
