//! A machine's node that is to be drained.

use model::NodeName;

use crate::{FieldError, Problem, wire};

/// The longest drain, in seconds.
const MOST_SECONDS: u32 = 3600;

/// Order to drain a node, or to have it take pods again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainRequest {
    /// Name of the machine, which is its node's.
    pub node: NodeName,
    /// Whether pods end that nobody makes again, or that cannot run elsewhere.
    pub force: bool,
    /// Whether the node takes new pods again instead.
    pub undo: bool,
    /// How long it may take.
    pub seconds: u32,
    /// Whether pods end whose volumes are on the machine: it leaves the cluster, and they go with it.
    pub with_volumes: bool,
}

impl From<DrainRequest> for wire::DrainMachineRequest {
    fn from(DrainRequest { node, force, undo, seconds, with_volumes }: DrainRequest) -> Self {
        Self { node: node.to_string(), force, undo, seconds, with_volumes }
    }
}

impl TryFrom<wire::DrainMachineRequest> for DrainRequest {
    type Error = FieldError;

    fn try_from(request: wire::DrainMachineRequest) -> Result<Self, FieldError> {
        let wire::DrainMachineRequest { node, force, undo, seconds, with_volumes } = request;
        let node = NodeName::stored(&node).map_err(|_| FieldError::new("node", Problem::Unusable))?;
        if seconds > MOST_SECONDS {
            return Err(FieldError::new("seconds", Problem::Range));
        }
        Ok(Self { node, force, undo, seconds, with_volumes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_crosses_the_wire_and_no_other_node_does() {
        let drain = DrainRequest {
            node: NodeName::stored("m2").expect("a name"),
            force: true,
            undo: false,
            seconds: 300,
            with_volumes: false,
        };
        for drain in [drain.clone(), DrainRequest { force: false, with_volumes: true, ..drain.clone() }] {
            assert_eq!(DrainRequest::try_from(wire::DrainMachineRequest::from(drain.clone())), Ok(drain));
        }
        let field = |edit: fn(&mut wire::DrainMachineRequest)| {
            let mut request = wire::DrainMachineRequest::from(drain.clone());
            edit(&mut request);
            DrainRequest::try_from(request).map_err(|wrong| wrong.field)
        };
        assert_eq!(field(|it| it.node = "m2/status".to_owned()), Err("node"));
        assert_eq!(field(|it| it.seconds = 3601), Err("seconds"));
    }
}
