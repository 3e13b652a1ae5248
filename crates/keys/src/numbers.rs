//! The numbers that stand for policy words in stored protobuf: in the seal and in the enrolment config alike.
//! Zero stands for nothing, so that a forgotten field is not a choice.

use std::collections::BTreeSet;

use model::{BootClass, ClusterRole, ColdStart, KubernetesRole, Level};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $type:ty { $($variant:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        pub mod $name {
            use super::*;

            /// The number that is stored.
            #[must_use]
            pub const fn number(value: $type) -> u32 {
                match value { $(<$type>::$variant => $number,)* }
            }

            /// Meaning of a stored number; none for those of a later version.
            #[must_use]
            pub const fn of(number: u32) -> Option<$type> {
                match number {
                    $($number => Some(<$type>::$variant),)*
                    _ => None, // whatever a later version knows
                }
            }
        }
    )*};
}

numbers! {
    /// Levels of protection.
    level: Level { Insecure = 1, Encrypted = 2, Authenticated = 3, }
    /// Boot classes.
    boot_class: BootClass { UefiSecureBoot = 1, Uefi = 2, Direct = 3, }
    /// Cold start policies.
    cold_start: ColdStart { Automatic = 1, Manual = 2, }
    /// Cluster roles.
    cluster_role: ClusterRole { Coordinator = 1, Node = 2, }
    /// Kubernetes roles.
    kubernetes_role: KubernetesRole { ControlPlane = 1, Worker = 2, }
}

/// Why numbers are no set of Kubernetes roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKubernetesRoles {
    /// A role that this version does not know.
    #[error("the unknown Kubernetes role {0}")]
    Unknown(u32),
    /// A role that is there twice.
    #[error("the Kubernetes role {0} twice")]
    Twice(KubernetesRole),
}

/// Numbers that are stored for a set of Kubernetes roles, in its order.
#[must_use]
pub fn of_kubernetes_roles(roles: &BTreeSet<KubernetesRole>) -> Vec<u32> {
    roles.iter().map(|role| kubernetes_role::number(*role)).collect()
}

/// The set of Kubernetes roles that is meant.
///
/// # Errors
/// [`BadKubernetesRoles`] names the first number that does not fit.
pub fn kubernetes_roles(numbers: &[u32]) -> Result<BTreeSet<KubernetesRole>, BadKubernetesRoles> {
    let mut roles = BTreeSet::new();
    for number in numbers {
        let role = kubernetes_role::of(*number).ok_or(BadKubernetesRoles::Unknown(*number))?;
        if !roles.insert(role) {
            return Err(BadKubernetesRoles::Twice(role));
        }
    }
    Ok(roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_own_number_and_zero_none() {
        assert!(Level::ALL.iter().all(|value| level::of(level::number(*value)) == Some(*value)));
        assert!(BootClass::ALL.iter().all(|value| boot_class::of(boot_class::number(*value)) == Some(*value)));
        assert!(ColdStart::ALL.iter().all(|value| cold_start::of(cold_start::number(*value)) == Some(*value)));
        assert!(ClusterRole::ALL.iter().all(|value| cluster_role::of(cluster_role::number(*value)) == Some(*value)));
        let of = |role| kubernetes_role::of(kubernetes_role::number(role));
        assert!(KubernetesRole::ALL.iter().all(|value| of(*value) == Some(*value)));
        // Those of FORMATS.md.
        assert_eq!([1, 2, 3].map(level::of), [Level::Insecure, Level::Encrypted, Level::Authenticated].map(Some));
        assert_eq!(boot_class::of(1), Some(BootClass::UefiSecureBoot));
        assert_eq!([2, 3].map(boot_class::of), [BootClass::Uefi, BootClass::Direct].map(Some));
        assert_eq!([1, 2].map(cold_start::of), [ColdStart::Automatic, ColdStart::Manual].map(Some));
        assert_eq!([1, 2].map(cluster_role::of), [ClusterRole::Coordinator, ClusterRole::Node].map(Some));
        assert_eq!([1, 2].map(kubernetes_role::of), [KubernetesRole::ControlPlane, KubernetesRole::Worker].map(Some));
        assert_eq!((level::of(0), boot_class::of(0), cold_start::of(0)), (None, None, None));
        assert_eq!((cluster_role::of(0), kubernetes_role::of(0)), (None, None));
    }

    #[test]
    fn a_set_of_roles_has_each_once() {
        assert_eq!(kubernetes_roles(&[2, 1]), Ok(KubernetesRole::ALL.iter().copied().collect()));
        assert_eq!(kubernetes_roles(&[]), Ok(BTreeSet::new()));
        assert_eq!(of_kubernetes_roles(&KubernetesRole::ALL.iter().copied().collect()), [1, 2]);
        assert_eq!(kubernetes_roles(&[1, 7]), Err(BadKubernetesRoles::Unknown(7)));
        assert_eq!(kubernetes_roles(&[2, 2]), Err(BadKubernetesRoles::Twice(KubernetesRole::Worker)));
    }
}
