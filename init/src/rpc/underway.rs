//! Calls of machines that are being answered: counted by the machine, whose key its connection proved, and by nothing that it can
//! have more of.

use std::sync::Mutex;

use door::Calls;
use model::MachineId;
use tonic::Status;

use crate::runtime::lock;

/// Calls of all machines.
#[derive(Debug)]
pub(super) struct Underway(Mutex<Calls>);

/// Place of one call that is being answered; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Underway, MachineId);

impl Underway {
    /// At most so many of one machine.
    pub(super) fn at_most(calls: u32) -> Self {
        Self(Mutex::new(Calls::at_most(calls)))
    }

    /// Begins to answer a machine.
    ///
    /// # Errors
    /// When as many of its calls are being answered as may be.
    pub(super) fn begin(&self, machine: MachineId) -> Result<Place<'_>, Status> {
        let begins = lock::even_if_poisoned(&self.0).begin(machine);
        // Made only then: who drops one gives it back.
        let busy = "too many calls of this machine are being answered; nothing was done; try again";
        if begins { Ok(Place(self, machine)) } else { Err(Status::resource_exhausted(busy)) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock::even_if_poisoned(&self.0.0).end(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines behind one address do not wait for each other, and one machine does for itself. Proves: Q1
    #[test]
    fn a_machine_that_is_being_answered_waits_for_its_next_call() {
        let underway = Underway::at_most(1);
        let [one, other] = [1, 2].map(|n| MachineId([n; 16]));
        let first = underway.begin(one).expect("nobody is before it");
        assert_eq!(underway.begin(one).map(|_| ()).map_err(|busy| busy.code()), Err(tonic::Code::ResourceExhausted));
        assert!(underway.begin(other).is_ok(), "somebody else is not kept waiting");
        drop(first);
        assert!(underway.begin(one).is_ok());
    }
}
