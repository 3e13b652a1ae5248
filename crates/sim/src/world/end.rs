//! The end of a world: everything is on and whole, nothing fails any more, and owners ask for nothing. Whatever was cut, lost or panicked
//! before, each machine comes to be what the records say of it. Not judged: a machine that knows no coordinator of now, or only one and
//! another recovery than the last, which needs its owner's word; and steps of etcd's members that wait for a machine which is lost.

use cluster::desired::{Desired, EtcdPart};
use cluster::record::MachineRecord;
use member::{EtcdStart, Event as Hears, Face};
use model::ClusterRole;

use super::kubernetes::Certificates;
use super::machine::{Cable, Machine, Power};
use super::{Event, World, seen};
use crate::cast;
use crate::laws::Breach;

pub(super) const LAW: &str = "no cut or panic changes an end state: each machine comes to be what the records say";
/// Time that all may take, in milliseconds: whoever asks in vain pauses for 30 s, and a few times.
const SETTLES: u64 = 120_000;
/// Between two looks whether all is so, and of an owner for machines that wait for a word before they erase anything.
const LOOKS: u64 = 5000;

impl World {
    /// Has all be as it will be, and compares.
    pub(super) fn settles(&mut self) -> Result<(), Breach> {
        self.calm = true;
        for n in self.machines.keys().copied().collect::<Vec<_>>() {
            self.cut(n, Cable::Whole);
            self.power(n, Power::On);
        }
        let end = self.now + SETTLES;
        loop {
            self.passes(LOOKS)?;
            self.erases()?;
            let settled = self.is_settled();
            if settled.is_ok() || self.now >= end {
                return settled;
            }
        }
    }

    /// Passes time in which nobody asks for anything new, and nothing is cut.
    fn passes(&mut self, lasts: u64) -> Result<(), Breach> {
        let end = self.now + lasts;
        while let Some(next) = self.agenda.first_entry().filter(|next| next.key().0 <= end) {
            let ((at, _), event) = next.remove_entry();
            self.now = at;
            let is_over = matches!(
                event,
                Event::Owner | Event::Recover | Event::AllOff | Event::Cut(_, Cable::Cut) | Event::Power(_, Power::Off)
            );
            if !is_over {
                self.happen(event)?;
            }
        }
        self.now = end;
        Ok(())
    }

    /// An owner says of each node that it may erase what a coordinator has.
    fn erases(&mut self) -> Result<(), Breach> {
        let state = self.store.state();
        let is_node = |n: &u16| state.machine(&cast::id(*n)).is_none_or(|machine| machine.role == ClusterRole::Node);
        for n in self.machines.keys().copied().filter(is_node).collect::<Vec<_>>() {
            let machine = self.machines.get_mut(&n).expect("it is one of them");
            if machine.living.is_some() && !machine.heard.nodes.is_empty() {
                machine.heard.itself = true;
                self.lives(n, Hears::Erase)?;
            }
        }
        Ok(())
    }

    /// Whether each machine that is told of it is what the records say.
    pub(super) fn is_settled(&self) -> Result<(), Breach> {
        if !self.etcd.has_quorum() {
            return Ok(()); // only its owner could have it go on
        }
        let mut view = seen(&self.etcd);
        view.see(self.etcd.members(), self.etcd.look());
        for (n, machine) in &self.machines {
            let id = cast::id(*n);
            let belongs = view.state().machine(&id).is_some_and(MachineRecord::belongs);
            let Some(kept) = machine.disk.desired.as_ref().filter(|_| belongs && machine.living.is_some()) else {
                continue;
            };
            let Ok(desired) = view.state().desired(&id) else { continue };
            let is_told = kept.coordinators.keys().any(|by| self.serves(*by) && self.leads(*by));
            let jumps = desired.at.zip(kept.at).is_some_and(|(now, kept)| now.jumps_from(kept));
            if is_told
                && !jumps
                && let Some(differs) = self.differs(*n, machine, kept, &desired)
            {
                let how =
                    format!("machine {n}: {differs}; it keeps the word of {:?}, and is to be {desired:?}", kept.at);
                return Err(Breach { law: LAW, how });
            }
        }
        Ok(())
    }

    /// How a machine differs from what it is to be.
    fn differs(&self, n: u16, machine: &Machine, kept: &Desired, desired: &Desired) -> Option<&'static str> {
        let (id, disk) = (cast::id(n), cast::disk(machine.disk_of(n)));
        let checks = match (desired.assignment.role(), &desired.etcd) {
            (ClusterRole::Node, EtcdPart::Out) => [
                (!machine.disk.keys, "keys of a coordinator lie there"),
                (machine.disk.etcd.is_none(), "etcd's data lies there"),
                (machine.running.is_none(), "units of a coordinator run"),
                (machine.face == Some(Face::Node), "it does not show itself as a node"),
                (!self.esps.holds_any(id), "a share lies on its ESP"),
            ],
            // Where others led while it recovered, its vote has no data until an owner makes it a node.
            (ClusterRole::Coordinator, EtcdPart::Voter) if machine.disk.etcd.is_some() => {
                let runs = machine.running.as_ref();
                let stands = desired.shares.stands.as_ref();
                [
                    (machine.disk.keys, "a coordinator's keys do not lie there"),
                    (machine.disk.etcd == self.etcd.added(&id) && !machine.disk.alone, "etcd's data is of another"),
                    (runs.is_some_and(|runs| runs.plan != EtcdStart::Recovered && runs.led), "etcd does not run"),
                    (machine.face == Some(Face::Coordinator), "it does not show itself as a coordinator"),
                    (
                        stands.is_none_or(|stands| self.esps.holds(id, disk, stands.epoch.number())),
                        "its share is not there",
                    ),
                ]
            }
            (ClusterRole::Node | ClusterRole::Coordinator, _) => return None,
        };
        let (roles, runs) = (desired.assignment.kubernetes(), machine.kubernetes.runs.as_ref());
        let runs_them = runs.map_or(roles.is_empty(), |runs| runs.kubernetes() == roles);
        let same = [
            (desired.says_the_same(kept), "it keeps something else"),
            (runs_them, "it runs other roles of Kubernetes"),
            (machine.kubernetes.certificates != Certificates::Due, "certificates of a worker are due"),
        ];
        same.into_iter().chain(checks).find(|(is_so, _)| !is_so).map(|(_, differs)| differs)
    }
}
