//! A cluster that goes on with one coordinator alone, because too few of its voters reach each other and its owner will not
//! wait. Its etcd is its own from its start on, and the cluster's once the records count it. The owner keeps the other voters off until
//! then, as it is told to; where the machine is switched off in between, they are back. Not shown: what is lost with a copy that was behind
//! (this one has all that was ever committed), and an etcd that those who are taken out still run among themselves (it ends at once, as
//! where it reaches the one that went on).

use cluster::decide;
use cluster::members::Voter;
use cluster::request::{Asks, Request};

use member::{EffectOutcome, Event as Hears};
use model::MachineId;

use super::machine::{Machine, Note, Power};
use super::{Event, World, seen};
use crate::cast;
use crate::laws::Breach;

pub(super) const LAW: &str = "a recovery is in the records, and leaves one coordinator";

impl World {
    /// Where etcd has no quorum, the owner has a voter that runs go on, if by its records that may be.
    pub(super) fn recovers(&mut self) -> Result<(), Breach> {
        let after = 400 + self.below(2000);
        self.put(after, Event::Recover);
        if self.etcd.has_quorum() {
            return Ok(());
        }
        let voters = self.etcd.members().voters.into_iter();
        let live: Vec<_> = voters.filter(|(_, voter)| *voter == Voter::Live).map(|(id, _)| id).collect();
        let serves =
            |id: &MachineId| self.machines[&self.numbers[id]].running.is_some() && self.coordinators.contains_key(id);
        let live: Vec<_> = live.into_iter().filter(serves).collect();
        let Some(id) = live.get(self.random.below(live.len())).copied() else { return Ok(()) };
        // What is denied then would be denied for ever, and the other members would be gone.
        if decide(seen(&self.etcd).state(), &recover(id), self.clock(id)).is_err() {
            return Ok(());
        }
        let (n, recoveries) = (self.numbers[&id], self.laws.recoveries());
        let machine = self.machines.get_mut(&n).expect("it runs");
        machine.disk.note = Some(Note { boot: machine.boot, recoveries, begun: false });
        self.all_turn();
        // Its next start finds the note, or what became of it.
        if self.random.below(3) == 0 {
            let after = 1 + self.below(400);
            self.put(after, Event::Power(n, Power::Off));
        }
        self.lives(n, Hears::Recover)
    }

    /// Notes that etcd is started for a recovery, which may fail.
    pub(super) fn begins_recovery(&mut self, n: u16) {
        if let Some(note) = &mut self.machines.get_mut(&n).expect("it lives").disk.note {
            note.begun = true;
        }
    }

    /// Writes a recovery into the records, then removes its note.
    pub(super) fn commits_recovery(&mut self, n: u16) -> Result<Result<EffectOutcome, String>, Breach> {
        let (id, noted) = (cast::id(n), self.machines[&n].disk.note);
        if !self.machines[&n].is_reached() {
            return Ok(Err(String::from("a lone etcd here has no leader while its machine is cut off")));
        }
        if self.is_kept_off(n) {
            return Ok(Err(String::from("its owner keeps it off, and recovers with another one")));
        }
        if self.machines[&n].disk.alone {
            self.etcd.set_up(id, true);
            if self.etcd.go_on_alone(id).is_err() {
                return Ok(Err(String::from("etcd has let go of it")));
            }
            self.machines.get_mut(&n).expect("it runs").disk.alone = false;
            self.all_turn();
        }
        let before = self.laws.recoveries();
        // It is written once, whenever its answer is lost.
        if noted.is_some_and(|note| note.recoveries == before) {
            if let Err(denied) = decide(seen(&self.etcd).state(), &recover(id), self.clock(id)) {
                return Ok(Err(denied.to_string()));
            }
            self.at_once(recover(id))?;
            let (counted, coordinates) = (self.laws.recoveries(), self.store.state().coordinators());
            if counted != before + 1 || !coordinates.iter().eq([&id]) {
                return Err(Breach { law: LAW, how: format!("{id}: {counted} after {before}, {coordinates:?}") });
            }
            self.report.recoveries += 1;
        }
        self.machines.get_mut(&n).expect("it runs").disk.note = None;
        self.all_turn();
        Ok(Ok(EffectOutcome::Whole))
    }

    /// Whether an owner keeps this voter off, while another one recovers in the boot in which that was ordered.
    pub(super) fn is_kept_off(&self, n: u16) -> bool {
        let recovers = |machine: &Machine| {
            machine.power == Power::On && machine.disk.note.is_some_and(|note| note.boot == machine.boot)
        };
        self.machines.iter().any(|(other, machine)| *other != n && recovers(machine))
    }

    /// Has each machine's etcd run, or not.
    pub(super) fn all_turn(&mut self) {
        self.machines.keys().copied().collect::<Vec<_>>().into_iter().for_each(|n| self.turns(n));
    }
}

/// Request that has the cluster go on with one coordinator.
fn recover(id: MachineId) -> Request {
    Request::Owner { by: cast::owner(1).key, asks: Asks::Recover(id) }
}
