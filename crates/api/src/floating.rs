//! Questions of a machine for floating addresses, and what it may hold of them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cluster::record::MOST_PUBLISHED;

use crate::{FieldError, Problem, wire};

/// Floating addresses that a machine asks for, or may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloatingAddresses(pub BTreeSet<Ipv4Addr>);

impl From<FloatingAddresses> for wire::HoldRequest {
    fn from(FloatingAddresses(addresses): FloatingAddresses) -> Self {
        Self { addresses: addresses.into_iter().map(u32::from).collect() }
    }
}

impl TryFrom<wire::HoldRequest> for FloatingAddresses {
    type Error = FieldError;

    fn try_from(request: wire::HoldRequest) -> Result<Self, FieldError> {
        read(request.addresses)
    }
}

impl From<FloatingAddresses> for wire::HoldResponse {
    fn from(FloatingAddresses(addresses): FloatingAddresses) -> Self {
        Self { addresses: addresses.into_iter().map(u32::from).collect() }
    }
}

impl TryFrom<wire::HoldResponse> for FloatingAddresses {
    type Error = FieldError;

    fn try_from(response: wire::HoldResponse) -> Result<Self, FieldError> {
        read(response.addresses)
    }
}

fn read(addresses: Vec<u32>) -> Result<FloatingAddresses, FieldError> {
    if addresses.len() > MOST_PUBLISHED || !addresses.is_sorted_by(|one, other| one < other) {
        return Err(FieldError::new("addresses", Problem::Range));
    }
    Ok(FloatingAddresses(addresses.into_iter().map(Ipv4Addr::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: W8
    #[test]
    fn addresses_cross_the_wire_in_their_order() {
        let addresses = FloatingAddresses([50, 9].map(|last| Ipv4Addr::new(192, 0, 2, last)).into());
        assert_eq!(wire::HoldRequest::from(addresses.clone()).try_into(), Ok(addresses.clone()));
        assert_eq!(wire::HoldResponse::from(addresses.clone()).try_into(), Ok(addresses));
        let most = u32::try_from(MOST_PUBLISHED).expect("few");
        for bad in [vec![2, 1], vec![1, 1], (0..=most).collect()] {
            let refused = FloatingAddresses::try_from(wire::HoldRequest { addresses: bad.clone() });
            assert_eq!(refused, Err(FieldError::new("addresses", Problem::Range)));
            assert!(FloatingAddresses::try_from(wire::HoldResponse { addresses: bad }).is_err());
        }
    }
}
