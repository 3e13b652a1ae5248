//! Shares of the cold-start key in a world: whoever is to hold one writes it as its life says, and a quorum of shares opens each disk with
//! the key that it is locked with. What a share is, and when one is due, is the matter of `unlock` and `cluster`.

use cluster::decide;
use cluster::epochs::ShareOrder;
use cluster::record::MachineRecord;
use cluster::request::Request;
use member::ShareReason;
use model::{Level, MachineId};

use super::records::RecordsCopy;
use super::{World, seen};
use crate::cast;
use crate::esp::Disks;
use crate::laws::{Breach, life as law};

impl World {
    /// Writes a share onto a machine's ESP. All that the epoch that stands supersedes is erased with it, once none follows.
    pub(super) fn writes_share(
        &mut self,
        id: MachineId,
        holding: &ShareOrder,
        reason: ShareReason,
    ) -> Result<(), Breach> {
        let before = self.esps.writes();
        (self.parts.hold)(&mut self.esps, id, holding);
        if self.esps.writes() == before {
            return Ok(()); // it lies there
        }
        self.opens_still()?;
        let follows = |copy: &RecordsCopy| copy.view.state().cold_start().next.is_some();
        let is_settled =
            holding.stands == Some(holding.epoch.number()) && !self.coordinators.get(&id).is_some_and(follows);
        match reason {
            ShareReason::Stands | ShareReason::Rotates if is_settled => self.esps.settle(id, holding),
            ShareReason::Stands | ShareReason::Rotates | ShareReason::Next | ShareReason::OwnCopy => Ok(()),
        }
    }

    /// Law that whoever acknowledges an epoch holds its share.
    pub(super) fn acknowledges(&self, n: u16, number: u32) -> Result<(), Breach> {
        let id = cast::id(n);
        law::acknowledged(id, number, self.esps.holds(id, self.laws.disks()[&id], number))
    }

    /// Law that the epoch that stands opens all disks of its holders.
    pub(super) fn opens_still(&mut self) -> Result<(), Breach> {
        let disks = self.disks();
        match self.laws.standing() {
            Some(epoch) => self.esps.opens(epoch, &disks, &mut self.random),
            None => Ok(()),
        }
    }

    /// All machines were switched off at this moment: any quorum of the holders opens, and a coordinator that has opened gives every
    /// member the key that its disk is locked with. What coordinators have seen does not count then, only what lies in etcd and on ESPs.
    pub(super) fn comes_back(&mut self) -> Result<(), Breach> {
        let disks = self.disks();
        let Some(epoch) = self.laws.standing() else { return Ok(()) };
        self.esps.opens(epoch, &disks, &mut self.random)?;
        let view = seen(&self.etcd);
        let state = view.state();
        for n in self.machines.iter().filter(|(_, machine)| machine.is_member()).map(|(n, _)| *n) {
            let id = cast::id(n);
            if !state.machine(&id).is_some_and(MachineRecord::belongs) {
                continue; // removed, and not told so yet
            }
            let ((disk, generation), level) = (disks[&id], Level::Encrypted);
            let machine = cast::machine_key(n);
            let request = Request::ReleaseKey { machine, disk, generation, level };
            decide(state, &request, self.clock(cast::id(1))).map_err(|denied| {
                let law = "after a total power-off every member gets its key again";
                Breach { law, how: format!("machine {n}, generation {generation}: {denied}") }
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
