//! Word of a coordinator to one machine of its cluster: desired state of that machine, news of the others, a signed directory.

use crate::desired::Desired;
use crate::peers::News;

/// Word of a coordinator to a machine that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Desired state of the machine.
    Desired(Box<Desired>),
    /// News of the other machines.
    News(News),
    /// Directory of the coordinators, signed: whoever takes it verifies it.
    Directory(Vec<u8>),
}
