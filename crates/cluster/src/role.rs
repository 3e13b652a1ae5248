//! What a machine does in its cluster: one cluster role, and a set of Kubernetes roles. Two types, so that neither is taken
//! for the other; how they are stored stands beside them. Says nothing of who may give or take one.

use std::fmt;

/// What a machine does for the cluster itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterRole {
    /// Runs etcd, holds the master secret and the keys of the authorities, signs.
    Coordinator,
    /// Every other member; holds only its own keys.
    Node,
}

/// What a machine does for Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KubernetesRole {
    /// Runs the apiserver and what belongs to it; only on coordinators.
    ControlPlane,
    /// Runs pods, so it has a pod prefix.
    Worker,
}

/// A set of [`KubernetesRole`]s; a machine may have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KubernetesRoles(u8);

/// Any role that is given or taken by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnyRole {
    /// The coordinator's; who has it not is a node.
    Coordinator,
    /// A Kubernetes role.
    Kubernetes(KubernetesRole),
}

impl ClusterRole {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Node => "node",
        }
    }

    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Coordinator => 1,
            Self::Node => 2,
        }
    }

    pub(crate) const fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Coordinator),
            2 => Some(Self::Node),
            _ => None, // whatever a later version knows
        }
    }
}

impl KubernetesRole {
    /// All of them, in the order in which they are stored.
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Worker];

    /// The words for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "Kubernetes control plane",
            Self::Worker => "Kubernetes worker",
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::ControlPlane => 1,
            Self::Worker => 2,
        }
    }
}

/// Why stored numbers are no set of Kubernetes roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRoles {
    /// A cluster role this version does not know.
    #[error("the unknown cluster role {0}")]
    Cluster(u32),
    /// A Kubernetes role this version does not know.
    #[error("the unknown Kubernetes role {0}")]
    Kubernetes(u32),
    /// Not in their order, or one twice.
    #[error("its Kubernetes roles are not each once and in order")]
    Order,
    /// A control plane on a machine that is no coordinator.
    #[error("a Kubernetes control plane on a machine that is no coordinator")]
    ControlPlaneOnNode,
}

impl KubernetesRoles {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// Whether it has `role`.
    #[must_use]
    pub const fn has(self, role: KubernetesRole) -> bool {
        self.0 & 1 << role.number() != 0
    }

    /// The same with `role`.
    #[must_use]
    pub const fn with(self, role: KubernetesRole) -> Self {
        Self(self.0 | 1 << role.number())
    }

    /// The same without `role`.
    #[must_use]
    pub const fn without(self, role: KubernetesRole) -> Self {
        Self(self.0 & !(1 << role.number()))
    }

    /// Those it has, in order.
    pub fn iter(self) -> impl Iterator<Item = KubernetesRole> {
        KubernetesRole::ALL.into_iter().filter(move |role| self.has(*role))
    }

    pub(crate) fn numbers(self) -> Vec<u32> {
        self.iter().map(KubernetesRole::number).collect()
    }
}

/// A cluster role with the Kubernetes roles that it allows.
///
/// # Errors
/// [`BadRoles`] for numbers that are none, out of order, or do not go together.
pub(crate) fn read(cluster: u32, kubernetes: &[u32]) -> Result<(ClusterRole, KubernetesRoles), BadRoles> {
    let role = ClusterRole::of(cluster).ok_or(BadRoles::Cluster(cluster))?;
    let mut roles = KubernetesRoles::NONE;
    for number in kubernetes {
        let one = KubernetesRole::ALL.into_iter().find(|one| one.number() == *number);
        roles = roles.with(one.ok_or(BadRoles::Kubernetes(*number))?);
    }
    if roles.numbers() != kubernetes {
        return Err(BadRoles::Order);
    }
    if fits(role, roles) { Ok((role, roles)) } else { Err(BadRoles::ControlPlaneOnNode) }
}

/// Whether a machine of this cluster role may have these Kubernetes roles.
pub(crate) fn fits(role: ClusterRole, roles: KubernetesRoles) -> bool {
    role == ClusterRole::Coordinator || !roles.has(KubernetesRole::ControlPlane)
}

impl FromIterator<KubernetesRole> for KubernetesRoles {
    fn from_iter<I: IntoIterator<Item = KubernetesRole>>(roles: I) -> Self {
        roles.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for ClusterRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl fmt::Display for KubernetesRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl fmt::Display for AnyRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.pad("coordinator"),
            Self::Kubernetes(role) => role.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_stored_and_no_others() {
        let all: KubernetesRoles = KubernetesRole::ALL.into_iter().collect();
        for role in [ClusterRole::Coordinator, ClusterRole::Node] {
            for roles in [KubernetesRoles::NONE, KubernetesRoles::NONE.with(KubernetesRole::Worker), all] {
                let expected = if fits(role, roles) { Ok((role, roles)) } else { Err(BadRoles::ControlPlaneOnNode) };
                assert_eq!(read(role.number(), &roles.numbers()), expected);
            }
        }
        assert_eq!(all.without(KubernetesRole::ControlPlane), KubernetesRoles::NONE.with(KubernetesRole::Worker));
        assert_eq!(read(0, &[]), Err(BadRoles::Cluster(0)));
        assert_eq!(read(1, &[3]), Err(BadRoles::Kubernetes(3)));
        assert_eq!(read(1, &[2, 1]), Err(BadRoles::Order));
        assert_eq!(read(1, &[2, 2]), Err(BadRoles::Order));
        assert_eq!(read(2, &[1]), Err(BadRoles::ControlPlaneOnNode));
    }
}
