//! The tunnel's stream: one message that opens, then bytes. Targets have names, never addresses.

use crate::malformed::{known, present};
use crate::{Malformed, wire};

/// What can be reached inside the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The Kubernetes API.
    KubernetesApi,
}

/// One message from the caller. The first is `Open`, all others are `Data`; the server holds callers to it.
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
            TunnelPart::Open(target) => wire::tunnel_request::Part::Open(wire::TunnelTarget::from(target).into()),
            TunnelPart::Data(data) => wire::tunnel_request::Part::Data(data),
        };
        Self { part: Some(part) }
    }
}

impl TryFrom<wire::TunnelRequest> for TunnelPart {
    type Error = Malformed;

    fn try_from(request: wire::TunnelRequest) -> Result<Self, Malformed> {
        match present("part", request.part)? {
            wire::tunnel_request::Part::Open(target) => {
                let target = wire::TunnelTarget::try_from(target).ok().and_then(wire::TunnelTarget::known);
                known("open", target).map(Self::Open)
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
        for part in [TunnelPart::Open(Target::KubernetesApi), TunnelPart::Data(vec![1, 2])] {
            assert_eq!(TunnelPart::try_from(wire::TunnelRequest::from(part.clone())), Ok(part));
        }
        for target in [0, 2, -1] {
            let request = wire::TunnelRequest { part: Some(wire::tunnel_request::Part::Open(target)) };
            assert_eq!(TunnelPart::try_from(request), Err(Malformed::new("open", Problem::Unknown)));
        }
        let empty = wire::TunnelRequest { part: None };
        assert_eq!(TunnelPart::try_from(empty), Err(Malformed::new("part", Problem::Missing)));
    }
}
