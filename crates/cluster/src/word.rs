//! Word of a coordinator to one machine of its cluster: desired state of that machine, orders, news of the others, a signed directory.

use crate::desired::Desired;
use crate::orders::{KnownParts, Order};
use crate::peers::News;
use crate::state::StateVersion;

/// Word of a coordinator to a machine that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Desired state of the machine.
    Desired(Box<Desired>),
    /// News of the other machines.
    News(News),
    /// Part that the machine is to go by.
    Order(Order),
    /// Directory of the coordinators, signed: whoever takes it verifies it.
    Directory(Vec<u8>),
}

/// Knowledge with which a machine begins to listen: it is told what it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Knowledge {
    /// Version of the peers that it knows; none asks for all.
    pub peers: Option<StateVersion>,
    /// Parts of orders that it understands.
    pub parts: KnownParts,
}
