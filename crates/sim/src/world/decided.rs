//! Questions to coordinators: decided over what the asked one has seen, committed to etcd, judged by the laws, and answered, or not.
//! Each asker makes of the answer what is its own.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::decision::{Decision, Next, Proposal};
use cluster::denial::Denial;
use cluster::key::AUDIT;
use cluster::request::Request;
use cluster::state::Change;
use cluster::txn::Grant;
use member::{EffectKind, EffectOutcome, Event as Hears};
use model::{Level, MachineId};

use super::records::RecordsCopy;
use super::trail::short;
use super::{Event, MOST_TRIES, Power, Who, World, asks_to_join};
use crate::cast;
use crate::laws::Breach;

impl World {
    /// A coordinator decides over what it has seen, unless it is off.
    pub(super) fn ask(&mut self, who: Who, decision: Decision, via: MachineId) -> Result<(), Breach> {
        let now = self.clock(via);
        let serves = matches!(who, Who::Own { .. } | Who::Coordinator) || self.serves(via);
        if !self.hears_from(who, via) {
            return self.unanswered(who);
        }
        let Some(copy) = self.coordinators.get(&via).filter(|_| serves) else {
            return self.unanswered(who); // no coordinator any more
        };
        // Machines go by their last look, which does not show yet who has come to vote since.
        let mut view = Cow::Borrowed(&copy.view);
        if *decision.request() == Request::BeginEpoch {
            view.to_mut().see(self.etcd.members(), self.etcd.look());
        }
        let proposal = catch_unwind(AssertUnwindSafe(|| (self.parts.decide)(&decision, view.state(), now)));
        let how = || format!("{:?}", decision.request());
        let proposal = proposal.map_err(|_| Breach { law: "decide never panics", how: how() })?;
        let after = 1 + self.below(40);
        self.put(after, Event::Commit { who, decision, via, proposal });
        Ok(())
    }

    pub(super) fn commit(
        &mut self,
        who: Who,
        mut decision: Decision,
        via: MachineId,
        proposal: Proposal,
    ) -> Result<(), Breach> {
        // The leader changes: whether it was committed, nobody is told.
        let (reaches, answered) = match self.random.below(30) {
            0 => (false, false),
            1 => (true, false),
            _ => (true, true), // most of the time nothing happens
        };
        // Nor has one that was taken out an etcd that takes anything.
        if !reaches || !self.leads(via) {
            return self.unanswered(who);
        }
        let before = self.etcd.revision();
        let Ok(outcome) = (self.parts.commit)(&mut self.etcd, proposal.txn()) else {
            return self.unanswered(who);
        };
        match decision.after(proposal, outcome) {
            Next::Answer(answer) => {
                self.check()?;
                let line =
                    |change: &Change| matches!(change, Change::Put(pair) if pair.key.starts_with(AUDIT.as_bytes()));
                let changed = |revision| !self.etcd.changed_in(revision).iter().all(line);
                if let Err(denied) = &answer
                    && (before + 1..=self.etcd.revision()).any(changed)
                {
                    let how = format!("{denied:?} to {:?}", decision.request());
                    return Err(Breach { law: "a refusal changes nothing but the audit", how });
                }
                if let Ok(granted) = answer {
                    self.laws.granted(granted)?;
                }
                match answer {
                    Ok(granted) if answered => {
                        self.watch(via); // what was written is seen before it is told
                        self.granted(who, granted)?;
                    }
                    Err(denied) if answered => self.refused(who, decision.request(), &denied)?,
                    Ok(_) | Err(_) => self.unanswered(who)?,
                }
            }
            Next::Again { seen } => {
                self.watch(via);
                let version = |copy: &RecordsCopy| copy.view.state().version().map_or(0, |(_, revision)| revision);
                let version = self.coordinators.get(&via).filter(|copy| copy.followed).map(version);
                let how = || format!("{} has not seen revision {seen}", short(via));
                if version.is_some_and(|version| version < seen) {
                    return Err(Breach { law: "a watch tells what a transaction was refused for", how: how() });
                }
                let after = 1 + self.below(if version.is_some() { 10 } else { 300 });
                self.put(after, Event::Ask { who, decision, via });
            }
            Next::GiveUp => self.unanswered(who)?,
        }
        Ok(())
    }

    /// Every revision that was not checked yet.
    pub(super) fn check(&mut self) -> Result<(), Breach> {
        while self.checked < self.etcd.revision() {
            self.checked += 1;
            self.laws.changed(self.etcd.changed_in(self.checked))?;
            self.store.changed(self.etcd.changed_in(self.checked), self.checked, self.now);
            if let Some(epoch) = self.laws.stands() {
                self.laws.voters(&self.etcd.members())?;
                let disks = self.disks();
                self.esps.opens(&epoch, &disks, &mut self.random)?;
                self.report.epochs += 1;
            }
            for id in self.coordinators.keys().copied().collect::<Vec<_>>() {
                let after = 1 + self.below(120);
                self.put(after, Event::Watch(id));
            }
        }
        Ok(())
    }

    /// A machine asks for what opens its disk, or to be let in.
    pub(super) fn opens(&mut self, n: u16) -> Result<(), Breach> {
        let (other_key, shares) = (self.random.below(8) == 0, self.random.below(40));
        let via = self.reached_by(n);
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        machine.asks = false;
        if machine.power == Power::Off || machine.refused {
            return Ok(());
        }
        machine.tries += 1;
        let waits = machine.disk.desired.is_some() && machine.living.is_none();
        if machine.tries > MOST_TRIES && !waits {
            return Ok(());
        }
        let request = match &machine.disk.desired {
            None => {
                let ticket = &self.tickets[usize::from(machine.ticket)];
                let lies = machine.lies;
                let redeem = machine.redeem.get_or_insert_with(|| Box::new(asks_to_join(n, ticket, lies)));
                Request::Redeem(redeem.clone())
            }
            // Holders of shares open each other.
            Some(_) if machine.living.is_none() && machine.coordinates() => {
                let boot = machine.boot;
                self.put(1 + u64::try_from(shares).expect("few"), Event::Begins(n, boot));
                self.later(n);
                return Ok(());
            }
            Some(_) => {
                let (generation, level) = (machine.locked_with, Level::Encrypted);
                let of = machine.disk_of(n);
                let disk = cast::disk(if other_key { of + 1 } else { of });
                Request::ReleaseKey { machine: cast::machine_key(n), disk, generation, level }
            }
        };
        let Some(via) = via else {
            self.later(n);
            return Ok(());
        };
        let who = Who::Machine(n);
        if self.random.below(12) == 0 {
            // It asks two at once.
            let (request, after) = (request.clone(), 1 + self.below(20));
            let via = self.reached_by(n).unwrap_or(via);
            self.put(after, Event::Ask { who, decision: Decision::new(request), via });
        }
        let after = 1 + self.below(20);
        self.put(after, Event::Ask { who, decision: Decision::new(request), via });
        if self.calm {
            return Ok(());
        }
        if self.random.below(15) == 0 {
            self.put(5, Event::Power(n, Power::Off));
        }
        if self.random.below(6) == 0 {
            let place = cast::endpoint(self.random.below(250));
            self.lives(n, Hears::Endpoints(vec![place]))?;
        }
        Ok(())
    }

    /// An asker makes something of a yes.
    fn granted(&mut self, who: Who, granted: Grant) -> Result<(), Breach> {
        match who {
            Who::Life(n, number) => {
                if let Some(machine) = self.machines.get_mut(&n) {
                    machine.tries = 0;
                }
                self.answered(n, number, Ok(EffectOutcome::Whole))
            }
            Who::Machine(n) => {
                if let Grant::Admitted(_) = granted {
                    self.joins(n)?;
                }
                if let Grant::ClusterKey { generation, next, .. } = granted {
                    self.report.released += 1;
                    let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
                    // Its disk takes the next one in this boot. It may be switched off before it tells that, and starts with the new one.
                    if let Some(next) = next.filter(|_| generation == machine.locked_with)
                        && self.esps.carry(cast::id(n), cast::disk(machine.disk_of(n)), next)
                    {
                        machine.locked_with = next;
                        self.report.rotated += 1;
                    }
                    let boot = machine.boot;
                    self.begins(n, boot)?;
                }
                self.later(n);
                Ok(())
            }
            Who::Own { n, number, units } => {
                self.etcd_answers(n, (number, units), EffectKind::Decide, Ok(EffectOutcome::Whole))
            }
            Who::Coordinator | Who::Owner => Ok(()),
        }
    }

    pub(super) fn refused(&mut self, who: Who, request: &Request, denied: &Denial) -> Result<(), Breach> {
        self.note(format!("{:>6} ms    denied: {denied}", self.now));
        let kind = format!("{denied:?}");
        *self.report.denied.entry(kind.split(['(', ' ']).next().unwrap_or_default().to_owned()).or_default() += 1;
        match who {
            Who::Life(n, number) => self.answered(n, number, Err(denied.to_string())),
            Who::Own { n, number, units } => {
                let outcome = Self::denied_itself(request, denied);
                self.etcd_answers(n, (number, units), EffectKind::Decide, outcome)
            }
            Who::Machine(n) => {
                if let Some(machine) = self.machines.get_mut(&n) {
                    if let (Request::ReleaseKey { generation, .. }, Denial::UnknownGeneration(_)) = (request, denied)
                        && *generation == machine.locked_with
                    {
                        let law = "the cluster gives the key that a member's disk is locked with";
                        return Err(Breach { law, how: format!("machine {n}, generation {generation}") });
                    }
                    machine.refused |= *denied == Denial::MachineRemoved;
                }
                self.later(n);
                Ok(())
            }
            Who::Coordinator | Who::Owner => Ok(()),
        }
    }

    /// No answer came: whoever asked asks again, some time, somewhere.
    fn unanswered(&mut self, who: Who) -> Result<(), Breach> {
        match who {
            Who::Life(n, number) => self.answered(n, number, Err(String::from("no answer"))),
            Who::Own { n, number, units } => {
                self.etcd_answers(n, (number, units), EffectKind::Decide, Err(String::from("no answer")))
            }
            Who::Machine(n) => {
                self.later(n);
                Ok(())
            }
            Who::Coordinator | Who::Owner => Ok(()),
        }
    }

    /// Tells a life what became of its announcement, unless it has left that coordinator since.
    fn answered(&mut self, n: u16, number: u64, outcome: Result<EffectOutcome, String>) -> Result<(), Breach> {
        if self.machines.get_mut(&n).is_none_or(|machine| machine.stream(number).is_none()) {
            return Ok(());
        }
        self.lives(n, Hears::Done(EffectKind::Announce, outcome))
    }

    pub(super) fn later(&mut self, n: u16) {
        let after = 300 + self.below(2700);
        self.asks_in(n, after);
    }

    /// Has a machine ask after a time, unless it will anyhow.
    pub(super) fn asks_in(&mut self, n: u16, after: u64) {
        let Some(machine) = self.machines.get_mut(&n) else { return };
        if !std::mem::replace(&mut machine.asks, true) {
            self.put(after, Event::Opens(n));
        }
    }
}
