//! Orders that the machine goes by: what coordinators told it, its own records among them. Whoever performs them follows.

use std::sync::Arc;

use cluster::View;
use cluster::orders::{KnownParts, Order, OrderBook};
use cluster::part::PartHash;
use cluster::state::State;
use model::{MachineId, NodeName};
use netpolicy::{CompiledPolicies, EncodedPart};
use tokio::sync::watch;

/// Orders of the machine; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders(Arc<watch::Sender<OrderBook>>);

impl Orders {
    /// Parts that this version understands, as they are known.
    pub(crate) fn known(&self) -> KnownParts {
        self.0.borrow().known()
    }

    /// Takes an order of a coordinator.
    pub(crate) fn take(&self, order: Order) {
        self.0.send_if_modified(|book| book.take(order));
    }

    /// Takes what the machine's own records order, and the policies, where they are compiled.
    pub(super) fn take_own(&self, view: &View, machine: &MachineId, policies: Option<&CompiledPolicies>) {
        let mut known = self.known();
        let mut next = || {
            let order = view.state().order(machine, &mut known);
            order.or_else(|| policy_order(view.state(), machine, policies?, &mut known))
        };
        while let Some(order) = next() {
            self.take(order);
        }
    }

    /// Tells of each other order.
    pub(crate) fn watch(&self) -> watch::Receiver<OrderBook> {
        self.0.subscribe()
    }
}

/// Order of the policies as this coordinator has compiled them, where it is news to the machine.
pub(super) fn policy_order(
    state: &State,
    machine: &MachineId,
    policies: &CompiledPolicies,
    known: &mut KnownParts,
) -> Option<Order> {
    let part = |node: &NodeName| {
        let EncodedPart { hash, bytes } = policies.part(node.as_str());
        (PartHash(*hash), &bytes[..])
    };
    state.policy_order(machine, part, known)
}
