//! Roles as they are given and taken, and as records store them: one cluster role, and a set of Kubernetes roles that it
//! allows. Says nothing of who may give or take one.

use std::collections::BTreeSet;
use std::fmt;

use keys::numbers;
use model::{ClusterRole, KubernetesRole};

/// Any role that is given or taken by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnyRole {
    /// The coordinator's; who has it not is a node.
    Coordinator,
    /// A Kubernetes role.
    Kubernetes(KubernetesRole),
}

/// Why stored numbers are no roles of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRoles {
    /// A cluster role this version does not know.
    #[error("the unknown cluster role {0}")]
    Cluster(u32),
    /// Not a set of Kubernetes roles that this version knows.
    #[error("they are no set of Kubernetes roles")]
    Kubernetes(#[source] numbers::BadKubernetesRoles),
    /// Not in their order.
    #[error("its Kubernetes roles are not in order")]
    Order,
    /// A control plane on a machine that is no coordinator.
    #[error("a Kubernetes control plane on a machine that is no coordinator")]
    ControlPlaneOnNode,
}

/// A cluster role with the Kubernetes roles that it allows.
///
/// # Errors
/// [`BadRoles`] for numbers that are none, out of order, or do not go together.
pub(crate) fn read(cluster: u32, kubernetes: &[u32]) -> Result<(ClusterRole, BTreeSet<KubernetesRole>), BadRoles> {
    let role = numbers::cluster_role::of(cluster).ok_or(BadRoles::Cluster(cluster))?;
    let roles = numbers::kubernetes_roles(kubernetes).map_err(BadRoles::Kubernetes)?;
    if numbers::of_kubernetes_roles(&roles) != kubernetes {
        return Err(BadRoles::Order);
    }
    if fits(role, &roles) { Ok((role, roles)) } else { Err(BadRoles::ControlPlaneOnNode) }
}

/// Whether a machine of this cluster role may have these Kubernetes roles.
pub(crate) fn fits(role: ClusterRole, roles: &BTreeSet<KubernetesRole>) -> bool {
    role == ClusterRole::Coordinator || !roles.contains(&KubernetesRole::ControlPlane)
}

impl AnyRole {
    /// Every role there is.
    pub const ALL: [Self; 3] =
        [Self::Coordinator, Self::Kubernetes(KubernetesRole::ControlPlane), Self::Kubernetes(KubernetesRole::Worker)];

    /// Word by which people call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => ClusterRole::Coordinator.word(),
            Self::Kubernetes(role) => role.word(),
        }
    }
}

impl fmt::Display for AnyRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_stored_and_no_others() {
        let sets = [&[][..], &KubernetesRole::ALL[1..], KubernetesRole::ALL];
        for role in ClusterRole::ALL {
            for roles in sets.map(|roles| roles.iter().copied().collect()) {
                let stored = numbers::of_kubernetes_roles(&roles);
                let read = read(numbers::cluster_role::number(*role), &stored);
                let expected = if fits(*role, &roles) { Ok((*role, roles)) } else { Err(BadRoles::ControlPlaneOnNode) };
                assert_eq!(read, expected);
            }
        }
        assert_eq!(read(0, &[]), Err(BadRoles::Cluster(0)));
        assert_eq!(read(1, &[3]), Err(BadRoles::Kubernetes(numbers::BadKubernetesRoles::Unknown(3))));
        assert_eq!(read(1, &[2, 1]), Err(BadRoles::Order));
        assert!(matches!(read(1, &[2, 2]), Err(BadRoles::Kubernetes(numbers::BadKubernetesRoles::Twice(_)))));
        assert_eq!(read(2, &[1]), Err(BadRoles::ControlPlaneOnNode));
    }
}
