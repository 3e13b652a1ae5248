//! Assignment of a machine in its cluster: address, role, pods. Given once, kept by the machine, computed from nothing.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::machine::{ClusterRole, KubernetesRole};
use crate::net::{Ipv4Prefix, POD_PREFIX, Prefixes};

/// A machine's address in the mesh, its roles, and the addresses of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    vpn_ip: Ipv4Addr,
    role: ClusterRole,
    kubernetes: BTreeSet<KubernetesRole>,
    pods: Option<Ipv4Prefix>,
}

/// Why no machine can be assigned this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAssignment {
    /// There is no apiserver without etcd beside it.
    #[error("only a coordinator can run a Kubernetes control plane")]
    ControlPlane,
    /// Workers have pods, and nobody else.
    #[error("a Kubernetes worker, and nobody else, has a prefix for its pods")]
    Pods,
    /// Pods have a /24; whether it is one of the cluster's, the desired state is judged by.
    #[error("a worker's pods have a prefix of 24 bits, and {0} has not")]
    PodPrefix(Ipv4Prefix),
}

impl Assignment {
    /// Brings them together.
    ///
    /// # Errors
    /// [`BadAssignment`] when they do not fit.
    pub fn new(
        vpn_ip: Ipv4Addr,
        role: ClusterRole,
        kubernetes: BTreeSet<KubernetesRole>,
        pods: Option<Ipv4Prefix>,
    ) -> Result<Self, BadAssignment> {
        if role == ClusterRole::Node && kubernetes.contains(&KubernetesRole::ControlPlane) {
            return Err(BadAssignment::ControlPlane);
        }
        if pods.is_some() != kubernetes.contains(&KubernetesRole::Worker) {
            return Err(BadAssignment::Pods);
        }
        match pods {
            Some(pods) if pods.bits() != POD_BITS => Err(BadAssignment::PodPrefix(pods)),
            Some(_) | None => Ok(Self { vpn_ip, role, kubernetes, pods }),
        }
    }

    /// Assignment of a cluster's first machine: it coordinates, and has the first address and the first pods of all.
    ///
    /// # Panics
    /// When the VPN prefix has one address only.
    #[must_use]
    pub fn first(prefixes: &Prefixes, kubernetes: BTreeSet<KubernetesRole>) -> Self {
        let pods = kubernetes
            .contains(&KubernetesRole::Worker)
            .then(|| Ipv4Prefix::around(prefixes.pods.address(), POD_BITS).expect("at most 32 bits"));
        let vpn_ip = prefixes.vpn.nth(1).expect("a VPN prefix has 8 to 24 bits");
        Self { vpn_ip, role: ClusterRole::Coordinator, kubernetes, pods }
    }

    /// The same in the role of a node, which runs no control plane.
    #[must_use]
    pub fn as_node(mut self) -> Self {
        self.kubernetes.remove(&KubernetesRole::ControlPlane);
        Self { role: ClusterRole::Node, ..self }
    }

    /// The same with the roles in Kubernetes, and the pods, of another; without one it has none.
    #[must_use]
    pub fn with_kubernetes_of(&self, other: Option<&Self>) -> Self {
        let kubernetes = other.map(|other| other.kubernetes.clone()).unwrap_or_default();
        Self { kubernetes, pods: other.and_then(|other| other.pods), ..*self }
    }

    /// Where the mesh reaches the machine.
    #[must_use]
    pub const fn vpn_ip(&self) -> Ipv4Addr {
        self.vpn_ip
    }

    /// Role of the machine in its cluster.
    #[must_use]
    pub const fn role(&self) -> ClusterRole {
        self.role
    }

    /// Roles of the machine in Kubernetes.
    #[must_use]
    pub const fn kubernetes(&self) -> &BTreeSet<KubernetesRole> {
        &self.kubernetes
    }

    /// Where a worker's pods get their addresses from: a /24 of the cluster's.
    #[must_use]
    pub const fn pods(&self) -> Option<Ipv4Prefix> {
        self.pods
    }

    /// Address among those of a worker's pods that is the machine's own: where it serves them.
    #[must_use]
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.pods?.nth(1)
    }
}

const POD_BITS: u8 = 24;

/// The `number`th of the 256 prefixes for a worker's pods.
///
/// # Panics
/// Never: [`POD_PREFIX`] has 256 of them.
#[must_use]
pub fn pod_prefix(number: u8) -> Ipv4Prefix {
    let address = POD_PREFIX.nth(u32::from(number) << (32 - POD_BITS)).expect("the prefix has 256 of them");
    Ipv4Prefix::new(address, POD_BITS).expect("a multiple of 256")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::VPN_PREFIX;

    const BOTH: [KubernetesRole; 2] = [KubernetesRole::ControlPlane, KubernetesRole::Worker];

    fn assigned(
        role: ClusterRole,
        kubernetes: &[KubernetesRole],
        pods: Option<&str>,
    ) -> Result<Assignment, BadAssignment> {
        let pods = pods.map(|pods| pods.parse().expect("a prefix"));
        Assignment::new(Ipv4Addr::new(10, 118, 0, 9), role, kubernetes.iter().copied().collect(), pods)
    }

    #[test]
    fn roles_and_pods_fit_together() {
        use ClusterRole::{Coordinator, Node};
        let (control_plane, worker) = (&BOTH[..1], &BOTH[1..]);
        assert!(assigned(Coordinator, &BOTH, Some("10.244.255.0/24")).is_ok());
        assert!(assigned(Coordinator, control_plane, None).is_ok());
        assert!(assigned(Node, worker, Some("10.244.0.0/24")).is_ok());
        assert!(assigned(Node, &[], None).is_ok());
        assert_eq!(assigned(Node, &BOTH, Some("10.244.0.0/24")), Err(BadAssignment::ControlPlane));
        assert_eq!(assigned(Node, worker, None), Err(BadAssignment::Pods));
        assert_eq!(assigned(Coordinator, control_plane, Some("10.244.0.0/24")), Err(BadAssignment::Pods));
        assert!(assigned(Node, worker, Some("10.32.7.0/24")).is_ok(), "a cluster may keep another prefix for pods");
        for foreign in ["10.244.0.0/23", "10.244.0.0/25"] {
            let pods = foreign.parse().expect("a prefix");
            assert_eq!(assigned(Node, worker, Some(foreign)), Err(BadAssignment::PodPrefix(pods)));
        }
    }

    #[test]
    fn the_first_machine_has_the_first_of_everything() {
        let first = Assignment::first(&Prefixes::of(VPN_PREFIX), BOTH.into());
        let expected = assigned(ClusterRole::Coordinator, &BOTH, Some("10.244.0.0/24")).expect("they fit");
        assert_eq!(first, Assignment { vpn_ip: Ipv4Addr::new(10, 118, 0, 1), ..expected });
        let elsewhere = Prefixes { pods: "10.32.0.0/16".parse().expect("a prefix"), ..Prefixes::of(VPN_PREFIX) };
        let pods = Assignment::first(&elsewhere, BOTH.into()).pods();
        assert_eq!(pods, Some("10.32.0.0/24".parse().expect("a prefix")));
        let lone = Assignment::first(&elsewhere, BTreeSet::new());
        assert_eq!((lone.pods(), lone.role()), (None, ClusterRole::Coordinator));
        let node = assigned(ClusterRole::Node, &BOTH[1..], Some("10.244.0.0/24")).expect("they fit");
        assert_eq!(first.as_node(), Assignment { vpn_ip: Ipv4Addr::new(10, 118, 0, 1), ..node });
    }

    #[test]
    fn no_two_pod_prefixes_overlap() {
        let prefixes: BTreeSet<_> = (0..=u8::MAX).map(|number| pod_prefix(number).address()).collect();
        assert_eq!(prefixes.len(), 256);
        assert!(prefixes.iter().all(|address| POD_PREFIX.contains(*address)));
        assert_eq!(pod_prefix(255).to_string(), "10.244.255.0/24");
    }
}
