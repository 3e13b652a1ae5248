//! Machines that are cut off from all others, coordinators too: what they ask reaches nobody, what they know gets old, and etcd
//! goes on without them, or not at all. A law says how soon whoever is reached again knows what etcd holds.

use cluster::record::MachineRecord;
use cluster::state::{Change, State, StateVersion};
use cluster::view::View;
use model::MachineId;

use super::listen::LAPSED;
use super::records::RecordsCopy;
use super::{Cable, Event, Power, Who, World};
use crate::cast;
use crate::etcd::Etcd;
use crate::laws::Breach;

/// Time within which a machine that is reached hears what is new.
pub(super) const INTERVAL: u64 = 3000;
/// How long an answer is on its way at most, and how much older what a coordinator has seen.
const ANSWERED: u64 = 1000;

/// Which versions of the peers etcd has held, and from when on.
pub(super) struct Versions {
    view: View,
    held: Vec<(u64, StateVersion)>,
}

impl Versions {
    pub(super) fn new(view: View) -> Self {
        Self { view, held: Vec::new() }
    }

    /// Takes the changes of a revision.
    pub(super) fn changed(&mut self, changes: &[Change], revision: u64, now: u64) {
        self.view.take(changes.to_vec(), revision).expect("the laws read the same");
        let version = self.view.state().state_version();
        if self.held.last().is_none_or(|(_, last)| *last < version) {
            self.held.push((now, version));
        }
    }

    /// State that etcd holds now.
    pub(super) const fn state(&self) -> &State {
        self.view.state()
    }

    /// Takes etcd's members of now.
    pub(super) fn sees(&mut self, etcd: &Etcd) {
        self.view.see(etcd.members(), etcd.look());
    }

    /// The newest at that time.
    fn at(&self, time: u64) -> Option<StateVersion> {
        let later = self.held.partition_point(|(at, _)| *at <= time);
        later.checked_sub(1).map(|last| self.held[last].1)
    }
}

impl World {
    /// Cuts a machine off, or ends that. Each cut is followed by another one, elsewhere.
    pub(super) fn cut(&mut self, n: u16, cable: Cable) {
        if cable == Cable::Cut {
            let (lasts, after) = (300 + self.below(4000), 2000 + self.below(7000));
            self.put(lasts, Event::Cut(n, Cable::Whole));
            let coordinator = self.random.below(self.coordinators.len());
            let coordinator = self.coordinators.keys().nth(coordinator).map(|id| self.numbers[id]);
            let any = self.other();
            let next = if self.random.below(3) == 0 { any } else { coordinator.unwrap_or(any) };
            self.put(after, Event::Cut(next, Cable::Cut));
        }
        let (now, id) = (self.now, cast::id(n));
        let Some(machine) = self.machines.get_mut(&n) else { return };
        (machine.cable, machine.reached_since) = (cable, now);
        if cable == Cable::Cut {
            self.report.cuts += 1;
            self.breaks(n);
            self.breaks_streams_of(id);
        }
        self.turns(n);
        self.put(1, Event::Watch(id));
    }

    pub(super) fn is_cut(&self, id: MachineId) -> bool {
        self.machines.get(&self.numbers[&id]).is_some_and(|machine| machine.cable == Cable::Cut)
    }

    /// Whether what somebody says is heard by that coordinator. An owner stands beside it.
    pub(super) fn hears_from(&self, who: Who, via: MachineId) -> bool {
        let (Who::Machine(n) | Who::Life(n, _)) = who else { return true };
        let id = cast::id(n);
        id == via || !self.is_cut(id) && !self.is_cut(via)
    }

    /// A coordinator that is on and that this machine reaches.
    pub(super) fn reached_by(&mut self, n: u16) -> Option<MachineId> {
        let all = self.coordinators.keys().copied().filter(|via| self.serves(*via));
        let reached: Vec<_> = all.filter(|via| self.hears_from(Who::Machine(n), *via)).collect();
        reached.get(self.random.below(reached.len())).copied()
    }

    /// Law that a machine which was a member, on, and reached for two intervals knows what etcd held before these.
    pub(super) fn is_up_to_date(&self, n: u16) -> Result<(), Breach> {
        let machine = &self.machines[&n];
        let Some(listens) = machine.living.as_ref().and_then(|living| living.stream.as_ref()) else { return Ok(()) };
        let Some(before) = self.now.checked_sub(2 * INTERVAL + ANSWERED) else { return Ok(()) };
        // A coordinator that has lost its records is listened to until they have lapsed.
        let is_kept = |copy: &RecordsCopy| copy.lost.is_none() && copy.since <= before;
        let is_kept = self.coordinators.get(&listens.by).is_some_and(is_kept);
        let before = if is_kept { before } else { before.saturating_sub(LAPSED) };
        // Who was removed is told nothing more, and may not have asked since.
        let belongs = self.store.view.state().machine(&cast::id(n)).is_some_and(MachineRecord::belongs);
        if !machine.is_member()
            || machine.power == Power::Off
            || machine.reached_since > before
            || listens.since > before
            || !belongs
        {
            return Ok(());
        }
        let (knows, held) = (machine.known.version(), self.store.at(before));
        let law = "every live machine converges to the store's peers within two intervals of reachability";
        let how = || format!("machine {n} knows {knows:?}, etcd held {held:?} at {before} ms");
        if knows >= held { Ok(()) } else { Err(Breach { law, how: how() }) }
    }
}
