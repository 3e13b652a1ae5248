//! Assignment of a machine in its cluster, as the machine keeps it on its data partition.
//!
//! ```text
//! message Assignment {
//!   fixed32 vpn_ip = 1; uint32 role = 2; repeated uint32 kubernetes_roles = 3 [packed = false]; Prefix pods = 4;
//! }
//! ```

use std::net::Ipv4Addr;

use formats::strict::{self, FormatError};
use model::{Assignment, BadAssignment};
use prost::Message as _;

use crate::network::{self, PREFIX, PrefixWire, can_be_a_host};
use crate::numbers::{self, BadKubernetesRoles};

/// Why bytes are no assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// A cluster role this version does not know.
    #[error("the assignment names the unknown role {0}")]
    Role(u32),
    /// The Kubernetes roles are no set that this version knows.
    #[error("the assignment names {0}")]
    KubernetesRoles(BadKubernetesRoles),
    /// No machine can have the address.
    #[error("{0} is not an address a machine can have")]
    Address(Ipv4Addr),
    /// The pods' prefix is no prefix.
    #[error("the pods' prefix is none")]
    Prefix(#[from] model::BadPrefix),
    /// The assignment's parts do not fit each other.
    #[error(transparent)]
    Unfit(#[from] BadAssignment),
}

/// The bytes of an assignment.
#[must_use]
pub fn encode(assignment: &Assignment) -> Vec<u8> {
    let wire = AssignmentWire {
        vpn_ip: assignment.vpn_ip().to_bits(),
        role: numbers::cluster_role::number(assignment.role()),
        kubernetes_roles: numbers::of_kubernetes_roles(assignment.kubernetes()),
        pods: assignment.pods().map(network::prefix_to_wire),
    };
    wire.encode_to_vec()
}

/// Reads an assignment, strictly.
///
/// # Errors
/// [`AssignmentError`] names what makes no sense.
pub fn decode(bytes: &[u8]) -> Result<Assignment, AssignmentError> {
    strict::check(bytes, &ASSIGNMENT)?;
    let wire = AssignmentWire::decode(bytes).map_err(|_| FormatError::Truncated(ASSIGNMENT.name))?;
    let role = numbers::cluster_role::of(wire.role).ok_or(AssignmentError::Role(wire.role))?;
    let kubernetes = numbers::kubernetes_roles(&wire.kubernetes_roles).map_err(AssignmentError::KubernetesRoles)?;
    let vpn_ip = Ipv4Addr::from_bits(wire.vpn_ip);
    if !can_be_a_host(vpn_ip) {
        return Err(AssignmentError::Address(vpn_ip));
    }
    let pods = wire.pods.as_ref().map(network::prefix_from_wire).transpose()?;
    Ok(Assignment::new(vpn_ip, role, kubernetes, pods)?)
}

formats::strict_message! {
    struct AssignmentWire, ASSIGNMENT = "Assignment" {
        1 required fixed32 vpn_ip;
        2 required u32 role;
        3 repeated u32 kubernetes_roles;
        4 optional message(PrefixWire, PREFIX) pods;
    }
}

#[cfg(test)]
mod tests {
    use model::{KubernetesRole, Prefixes, VPN_PREFIX};

    use super::*;

    #[test]
    fn what_was_kept_is_read_back() {
        for kubernetes in [&[][..], &KubernetesRole::ALL[..1], KubernetesRole::ALL] {
            let assignment = Assignment::first(&Prefixes::of(VPN_PREFIX), kubernetes.iter().copied().collect());
            assert_eq!(decode(&encode(&assignment)), Ok(assignment));
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let pods = network::prefix_to_wire(model::pod_prefix(7));
        let good = AssignmentWire { vpn_ip: 0x0a76_0009, role: 2, kubernetes_roles: vec![2], pods: Some(pods) };
        let read = |change: fn(&mut AssignmentWire)| {
            let mut wire = good.clone();
            change(&mut wire);
            decode(&wire.encode_to_vec()).map(|assignment| assignment.vpn_ip())
        };
        assert_eq!(read(|_| ()), Ok(Ipv4Addr::new(10, 118, 0, 9)));
        assert_eq!(read(|wire| wire.role = 3), Err(AssignmentError::Role(3)));
        let unknown = Err(AssignmentError::KubernetesRoles(BadKubernetesRoles::Unknown(9)));
        assert_eq!(read(|wire| wire.kubernetes_roles.push(9)), unknown);
        assert_eq!(read(|wire| wire.vpn_ip = 0), Err(AssignmentError::Address(Ipv4Addr::UNSPECIFIED)));
        assert_eq!(read(|wire| wire.pods = None), Err(AssignmentError::Unfit(BadAssignment::Pods)));
        let control_plane = Err(AssignmentError::Unfit(BadAssignment::ControlPlane));
        assert_eq!(read(|wire| wire.kubernetes_roles.push(1)), control_plane);
        let with_host_bits = |wire: &mut AssignmentWire| {
            let prefix = PrefixWire::decode(&[0x0d, 1, 0, 0xf4, 0x0a, 0x10, 24][..]).expect("a message");
            wire.pods = Some(prefix);
        };
        assert!(matches!(read(with_host_bits), Err(AssignmentError::Prefix(_))));
        assert!(matches!(decode(&[]), Err(AssignmentError::Malformed(_))));
        let with_a_fifth_field = [good.encode_to_vec(), vec![0x28, 1]].concat();
        assert!(matches!(decode(&with_a_fifth_field), Err(AssignmentError::Malformed(_))));
    }
}
