//! The tunnel's stream: one message that opens, then bytes. Targets have names or ids; an address only where there is no
//! other name yet.

use std::net::Ipv4Addr;

use model::MachineId;

use crate::field_error::{fixed, known, present};
use crate::{FieldError, wire};

/// Server that can be reached by way of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The Kubernetes API.
    KubernetesApi,
    /// The public API of another machine of the cluster, over the VPN.
    Machine(MachineId),
    /// The public API at this address outside of the cluster: of a machine that is to be activated.
    Outside(Ipv4Addr),
}

/// Message from the caller of a tunnel. The first is `Open`, all others are `Data`; the server holds callers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelPart {
    /// Connect to this.
    Open(Target),
    /// Bytes for it.
    Data(Vec<u8>),
}

impl From<TunnelPart> for wire::TunnelRequest {
    fn from(part: TunnelPart) -> Self {
        let part = match part {
            TunnelPart::Open(Target::KubernetesApi) => {
                wire::tunnel_request::Part::Open(wire::TunnelTarget::KubernetesApi.into())
            }
            TunnelPart::Open(Target::Machine(machine)) => wire::tunnel_request::Part::Machine(machine.0.to_vec()),
            TunnelPart::Open(Target::Outside(address)) => {
                wire::tunnel_request::Part::Outside(address.octets().to_vec())
            }
            TunnelPart::Data(data) => wire::tunnel_request::Part::Data(data),
        };
        Self { part: Some(part) }
    }
}

impl TryFrom<wire::TunnelRequest> for TunnelPart {
    type Error = FieldError;

    fn try_from(request: wire::TunnelRequest) -> Result<Self, FieldError> {
        match present("part", request.part)? {
            wire::tunnel_request::Part::Open(target) => {
                let named = matches!(wire::TunnelTarget::try_from(target), Ok(wire::TunnelTarget::KubernetesApi));
                known("open", named.then_some(Self::Open(Target::KubernetesApi)))
            }
            wire::tunnel_request::Part::Machine(machine) => {
                Ok(Self::Open(Target::Machine(MachineId(fixed("machine", &machine)?))))
            }
            wire::tunnel_request::Part::Outside(address) => {
                let address: [u8; 4] = fixed("outside", &address)?;
                Ok(Self::Open(Target::Outside(address.into())))
            }
            wire::tunnel_request::Part::Data(data) => Ok(Self::Data(data)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Problem;

    #[test]
    fn parts_cross_the_wire_and_unknown_targets_do_not() {
        let machine = Target::Machine(MachineId([3; 16]));
        let outside = Target::Outside(Ipv4Addr::new(192, 0, 2, 9));
        let opens = [Target::KubernetesApi, machine, outside].map(TunnelPart::Open);
        for part in opens.into_iter().chain([TunnelPart::Data(vec![1, 2])]) {
            assert_eq!(TunnelPart::try_from(wire::TunnelRequest::from(part.clone())), Ok(part));
        }
        for target in [0, 2, -1] {
            let request = wire::TunnelRequest { part: Some(wire::tunnel_request::Part::Open(target)) };
            assert_eq!(TunnelPart::try_from(request), Err(FieldError::new("open", Problem::Unknown)));
        }
        let short = wire::TunnelRequest { part: Some(wire::tunnel_request::Part::Machine(vec![3; 15])) };
        assert_eq!(TunnelPart::try_from(short).expect_err("15 bytes").field, "machine");
        let long = wire::TunnelRequest { part: Some(wire::tunnel_request::Part::Outside(vec![3; 16])) };
        assert_eq!(TunnelPart::try_from(long).expect_err("16 bytes").field, "outside");
        let empty = wire::TunnelRequest { part: None };
        assert_eq!(TunnelPart::try_from(empty), Err(FieldError::new("part", Problem::Missing)));
    }
}
