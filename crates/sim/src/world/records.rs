//! Records and etcd as a coordinator's life asks them: a vote, a copy that a watch keeps up, looks at etcd's members, their changes, and
//! requests of its own. Each is an effect that a life begins, and none is answered once other units are to run. Decides nothing.
//!
//! ```text
//!   KeepRecords ─ a leader ─► read ─► followed ─ no leader, compacted, panic ─► lost: the view stays, and is old
//!   LookAtMembers ─► members of now ─ 2 s while one of them is not reached ─► seen in the view, however old they are by then
//! ```

use cluster::backends::Backends;
use cluster::decision::Decision;
use cluster::denial::Denial;
use cluster::epochs;
use cluster::members::{Learner, Look, MemberStep, Members, Voter};
use cluster::request::Request;
use cluster::view::View;
use member::{EffectKind, EffectOutcome, Event as Hears, OwnRequest};
use model::MachineId;

use super::trail::short;
use super::{Event, Who, World, seen};
use crate::cast;
use crate::laws::Breach;

/// Time that a look at the members waits for one that says nothing.
const SILENT: u64 = 2000;

/// Copy of the records on a coordinator, from the first reading since its units were started on.
#[derive(Debug, Clone)]
pub(super) struct RecordsCopy {
    pub(super) view: View,
    /// Whether a watch tells what is changed.
    pub(super) followed: bool,
    /// Time at which it was read.
    pub(super) since: u64,
    /// Time since when it may be old; none while it is kept up. While a recovery is noted it counts as old.
    pub(super) lost: Option<u64>,
}

impl RecordsCopy {
    /// Copy that nothing keeps up yet.
    pub(super) const fn unkept(view: View) -> Self {
        Self { view, followed: false, since: 0, lost: Some(0) }
    }
}

/// Look at etcd's members that was not shown yet.
#[derive(Debug, Clone)]
pub(super) struct MembersLook {
    members: Members,
    /// Moment at which they were listed.
    at: Look,
    /// Whether the etcd of the machine that looks led them; none before the others have said how they are.
    leads: Option<bool>,
}

/// Members as etcd lists them, by their health at the look before; nothing is known of who is new.
fn by_health_before(listed: &Members, before: &Members) -> Members {
    let voter = |id: &MachineId| {
        let was_ready =
            || before.learners.get(id).map(|it| if *it == Learner::Ready { Voter::Live } else { Voter::Silent });
        before.voters.get(id).copied().or_else(was_ready).unwrap_or(Voter::Silent)
    };
    let learner = |id: &MachineId| before.learners.get(id).copied().unwrap_or(Learner::Behind);
    Members {
        voters: listed.voters.keys().map(|id| (*id, voter(id))).collect(),
        learners: listed.learners.keys().map(|id| (*id, learner(id))).collect(),
    }
}

impl World {
    /// Whether a machine's etcd votes; an error where it does not run.
    pub(super) fn votes(&self, n: u16) -> Result<EffectOutcome, String> {
        let (id, machine) = (cast::id(n), &self.machines[&n]);
        if machine.running.is_none() || machine.disk.etcd.is_none() || machine.disk.etcd != self.etcd.added(&id) {
            return Err(String::from("etcd does not answer"));
        }
        Ok(EffectOutcome::Votes(self.etcd.members().voters.contains_key(&id)))
    }

    /// Reads all records, and has a watch keep them up.
    pub(super) fn reads(&mut self, n: u16) -> Result<(), String> {
        let (id, since) = (cast::id(n), self.now);
        if !self.leads(id) {
            return Err(String::from("etcd has no leader"));
        }
        // While the cluster is being recovered its etcd is not here to stay.
        let lost = self.machines[&n].disk.note.map(|_| since);
        let copy = RecordsCopy { view: seen(&self.etcd), followed: true, since, lost };
        self.coordinators.insert(id, copy);
        self.has_news(id);
        Ok(())
    }

    /// A coordinator sees what was changed.
    pub(super) fn watch(&mut self, id: MachineId) {
        if !self.leads(id) {
            return;
        }
        let until = self.etcd.revision();
        let Some(copy) = self.coordinators.get_mut(&id).filter(|copy| copy.followed) else { return };
        let (revision, version) = (copy.view.revision(), copy.view.state().state_version());
        match (self.parts.watch)(&self.etcd, revision, until) {
            Ok(changes) => copy.view.take(changes, until).expect("the laws read the same"),
            Err(_compacted) => return self.loses(id),
        }
        let is_news = copy.view.state().state_version() != version;
        if copy.view.revision() != revision {
            self.put(1, Event::Own(self.numbers[&id]));
        }
        if is_news {
            self.has_news(id);
        }
    }

    /// Ends what keeps a coordinator's records up; its life hears of that.
    pub(super) fn loses(&mut self, id: MachineId) {
        let (now, n) = (self.now, self.numbers[&id]);
        let Some(copy) = self.coordinators.get_mut(&id).filter(|copy| copy.followed) else { return };
        copy.followed = false;
        copy.lost.get_or_insert(now);
        if let Some(living) = self.machines.get(&n).and_then(|machine| machine.living.as_ref()) {
            let (number, units) = (living.number, living.units);
            self.put(1, Event::Lost { n, number, units });
        }
        self.put(1, Event::Own(n));
    }

    /// Tells a life that its records are not kept up any more.
    pub(super) fn lost(&mut self, n: u16, asked: (u64, u64)) -> Result<(), Breach> {
        self.etcd_answers(n, asked, EffectKind::KeepRecords, Err(String::from("the watch of the records ended")))
    }

    /// Tells a life what became of something that it asked etcd, unless it asked with other units.
    pub(super) fn etcd_answers(
        &mut self,
        n: u16,
        (number, units): (u64, u64),
        kind: EffectKind,
        outcome: Result<EffectOutcome, String>,
    ) -> Result<(), Breach> {
        let living = self.machines.get(&n).and_then(|machine| machine.living.as_ref());
        if living.is_none_or(|living| (living.number, living.units) != (number, units)) {
            return Ok(());
        }
        self.lives(n, Hears::Done(kind, outcome))
    }

    /// Looks at etcd's members, who are shown at once by the health of the look before, and once all have answered, or have not.
    pub(super) fn looks(&mut self, n: u16, (number, units): (u64, u64)) -> Result<(), String> {
        let id = cast::id(n);
        if !self.leads(id) || !self.coordinators.contains_key(&id) {
            return Err(String::from("etcd has no leader"));
        }
        let members = self.etcd.members();
        let all = || members.voters.keys().chain(members.learners.keys());
        let is_reached = |id: &MachineId| self.machines.get(&self.numbers[id]).is_some_and(|it| it.is_reached());
        let all_answer = all().all(is_reached);
        let (at, leads) = (self.etcd.look(), self.etcd.leader() == Some(id));
        let before = self.coordinators[&id].view.state();
        if before.look().is_some() {
            let members = by_health_before(&members, before.members());
            let look = Box::new(MembersLook { members, at, leads: None });
            self.put(1, Event::Looked { n, number, units, look });
        }
        let look = Box::new(MembersLook { members, at, leads: Some(leads) });
        let after = if all_answer { 1 + self.below(60) } else { SILENT };
        self.put(after, Event::Looked { n, number, units, look });
        Ok(())
    }

    /// Shows etcd's members in the view of a coordinator that has looked at them.
    pub(super) fn looked(&mut self, n: u16, asked: (u64, u64), look: MembersLook) -> Result<(), Breach> {
        let id = cast::id(n);
        let living = self.machines.get(&n).and_then(|machine| machine.living.as_ref());
        if living.is_none_or(|living| (living.number, living.units) != asked) {
            return Ok(());
        }
        let copy = self.coordinators.get_mut(&id).expect("its units run, and it was read");
        if copy.view.see(look.members, look.at) {
            self.has_news(id);
        }
        match look.leads {
            Some(leads) => {
                let leads = EffectOutcome::Leads(leads.then(Backends::default));
                self.etcd_answers(n, asked, EffectKind::LookAtMembers, Ok(leads))
            }
            None => Ok(()),
        }
    }

    /// Changes etcd's members as they were at the last look. A leader does not take itself out while another voter can lead.
    pub(super) fn changes_member(&mut self, n: u16, step: MemberStep) -> Result<Result<EffectOutcome, String>, Breach> {
        let id = cast::id(n);
        let Some(copy) = self.coordinators.get(&id).filter(|_| self.leads(id)) else {
            return Ok(Err(String::from("etcd has no leader")));
        };
        let is_current = *copy.view.state().members() == self.etcd.members();
        if step == MemberStep::Remove(id) && self.etcd.leader() == Some(id) && self.etcd.moves_leader() {
            return Ok(Ok(EffectOutcome::Whole));
        }
        // Machines take a step that was due a moment ago; whom it lets vote, an epoch may have left behind by then.
        let mut now = seen(&self.etcd);
        now.see(self.etcd.members(), self.etcd.look());
        if matches!(step, MemberStep::Promote(_)) && epochs::step(now.state()) != Some(step) {
            return Ok(Ok(EffectOutcome::Whole));
        }
        let done = (self.parts.change)(&mut self.etcd, step);
        self.note(format!("{:>6} ms  {step:?} by {}: {done:?}", self.now, short(id)));
        let Err(refused) = done else {
            self.report.steps += 1;
            self.laws.members(&self.etcd.members())?;
            if let MemberStep::Remove(gone) = step {
                self.turns(self.numbers[&gone]);
            }
            return Ok(Ok(EffectOutcome::Whole));
        };
        if is_current {
            let law = "no change of members begins that etcd refuses";
            return Err(Breach { law, how: format!("{step:?}: {refused}") });
        }
        Ok(Ok(EffectOutcome::Whole))
    }

    /// Has a request that a coordinator makes of itself decided over its own copy.
    pub(super) fn decides(&mut self, n: u16, (number, units): (u64, u64), request: OwnRequest) {
        let (machine, itself) = (cast::machine_key(n), &self.machines[&n]);
        let request = match request {
            OwnRequest::BeginEpoch => Request::BeginEpoch,
            OwnRequest::AcknowledgeEpoch(number) => Request::AcknowledgeEpoch { machine, number },
            OwnRequest::Create => {
                let desired = itself.disk.desired.as_ref().expect("it lives");
                Request::Create(Box::new(cast::creation(desired.prefixes.vpn)))
            }
            OwnRequest::Announce(endpoints) => super::announces(n, endpoints, itself.locked_with),
            OwnRequest::AcknowledgeRestore(..) => Request::AcknowledgeRestore { machine },
            OwnRequest::EndRestore(hash) => Request::EndRestore { machine, hash },
            OwnRequest::Observe { machine, endpoint } => Request::Observe { machine, endpoint },
        };
        let who = Who::Own { n, number, units };
        self.put(1, Event::Ask { who, decision: Decision::new(request), via: cast::id(n) });
    }

    /// Outcome of a request that a coordinator made of itself and that was denied: what others have done before it is done.
    pub(super) fn denied_itself(request: &Request, denied: &Denial) -> Result<EffectOutcome, String> {
        match (request, denied) {
            (Request::Create(_), Denial::ClusterExists) | (Request::Announce { .. } | Request::Observe { .. }, _) => {
                Ok(EffectOutcome::Whole)
            }
            (_, denied) => Err(denied.to_string()),
        }
    }

    /// Learners catch up, etcds that were started begin, and who has a leader sees that.
    pub(super) fn catches_up(&mut self) {
        let running: Vec<_> = self.machines.iter().filter(|(_, machine)| machine.running.is_some()).collect();
        let running: Vec<_> = running.into_iter().map(|(n, _)| *n).collect();
        self.etcd.catch_up();
        running.into_iter().for_each(|n| self.turns(n));
    }
}
