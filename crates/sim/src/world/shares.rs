//! Work of voters for the cold-start key in a world: they hold shares, by what they have seen, and a quorum of shares opens each disk with
//! the key that it is locked with. What a share is, and when one is due, is the matter of `unlock` and `cluster`.

use cluster::decide;
use cluster::decision::Decision;
use cluster::epochs::{Due, due, stands};
use cluster::record::Machine;
use cluster::request::Request;
use model::{Level, MachineId};

use super::{Event, Who, World, seen};
use crate::cast;
use crate::esp::Disks;
use crate::laws::{Broken, life as law};

impl World {
    /// Writes the shares that a coordinator with a leader is to hold, by its copy of the records, and says which it has. Without one its own
    /// life writes the next share.
    pub(super) fn hold(&mut self, id: MachineId) -> Result<(), Broken> {
        let n = self.numbers[&id];
        let Some(state) = self.coordinators.get(&id).map(|view| view.state()).filter(|_| self.leads(id)) else {
            return Ok(());
        };
        let next = match due(state, &id) {
            Some(Due::Hold(holding)) => Some(holding),
            Some(Due::Begin) | None => None,
        };
        let (standing, settled) = (stands(state, &id), state.cold_start().next.is_none());
        let running = self.machines.get_mut(&n).and_then(|machine| machine.running.as_mut()).expect("it leads");
        let holds = standing.clone().filter(|_| settled && next.is_none());
        if std::mem::replace(&mut running.held, holds.clone()) == holds && holds.is_some() {
            return Ok(()); // nothing is to be written
        }
        if let Some(holding) = &standing {
            (self.parts.hold)(&mut self.esps, id, holding);
        }
        let Some(holding) = next else {
            return match standing.filter(|_| settled) {
                Some(holding) => self.esps.settle(id, &holding),
                None => Ok(()),
            };
        };
        (self.parts.hold)(&mut self.esps, id, &holding);
        self.opens_still()?;
        let number = holding.epoch.number();
        law::acknowledged(id, number, self.esps.holds(id, holding.disk, number))?;
        let decision = Decision::new(Request::AcknowledgeEpoch { machine: cast::machine_key(n), number });
        let after = 1 + self.below(200);
        self.put(after, Event::Ask { who: Who::Coordinator, decision, via: id });
        Ok(())
    }

    /// Law that the epoch that stands opens all disks of its holders.
    pub(super) fn opens_still(&mut self) -> Result<(), Broken> {
        let disks = self.disks();
        match self.laws.standing() {
            Some(epoch) => self.esps.opens(epoch, &disks, &mut self.random),
            None => Ok(()),
        }
    }

    /// All machines were switched off at this moment: any quorum of the holders opens, and a coordinator that has opened gives every
    /// member the key that its disk is locked with. What coordinators have seen does not count then, only what lies in etcd and on ESPs.
    pub(super) fn comes_back(&mut self) -> Result<(), Broken> {
        let disks = self.disks();
        let Some(epoch) = self.laws.standing() else { return Ok(()) };
        self.esps.opens(epoch, &disks, &mut self.random)?;
        let view = seen(&self.etcd);
        let state = view.state();
        for n in self.machines.iter().filter(|(_, machine)| machine.is_member()).map(|(n, _)| *n) {
            let id = cast::id(n);
            if !state.machine(&id).is_some_and(Machine::belongs) {
                continue; // removed, and not told so yet
            }
            let ((disk, generation), level) = (disks[&id], Level::Encrypted);
            let machine = cast::machine_key(n);
            let request = Request::ReleaseKey { machine, disk, generation, level };
            decide(state, &request, self.clock(cast::id(1))).map_err(|denied| {
                let law = "after a total power-off every member gets its key again";
                Broken { law, how: format!("machine {n}, generation {generation}: {denied}") }
            })?;
        }
        Ok(())
    }

    /// The disk of each machine, and which key it is locked with.
    pub(super) fn disks(&self) -> Disks {
        let disks = self.laws.disks().into_iter();
        disks.map(|(id, disk)| (id, (disk, self.machines[&self.numbers[&id]].locked_with))).collect()
    }
}
