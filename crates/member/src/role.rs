//! Coordinator role of the machine: what of it runs and lies here, and the next step from there to what is wanted. Each step may be
//! cut or done twice; after a start the steps follow from what is found.
//!
//! ```text
//!   promote: join noted ▸ keys in the folder ▸ units ▸ face
//!   demote:  face without records ▸ units gone ▸ shares erased ▸ keys ▸ etcd ▸ face of a node
//!   recover: units gone ▸ noted as begun, etcd recovered ▸ committed ▸ units gone ▸ etcd as always
//! ```

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use cluster::desired::{Desired, EtcdPart};
use model::NodeName;

use crate::effect::{Effect, EffectKind, EffectOutcome, EtcdStart, Face, OwnerReason};
use crate::source::VpnPlace;

/// Pause behind a step that failed: mostly another coordinator or etcd is not ready yet.
pub const AGAIN: Duration = Duration::from_secs(1);
/// Time that etcd mostly takes until it has begun, after which its members are compared.
const BEGINS: Duration = Duration::from_secs(10);

/// Role that the machine is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'a> {
    /// Coordinator.
    Coordinator {
        /// Desired state that is kept.
        desired: &'a Desired,
        /// Whether it was heard in this boot.
        heard: bool,
        /// Coordinators that keys may come from.
        givers: &'a [VpnPlace],
    },
    /// Node; what is left of a coordinator is erased.
    Node,
    /// Coordinator anew: etcd has let go of the machine, and has added it again. What it has is of no use, and kept aside.
    Rejoin,
    /// Node by one voice: nothing of a coordinator runs, and nothing is erased.
    Stopped {
        /// Whether a second voice was sought in vain. Before, nobody is told that the machine is a node: whoever removes it then
        /// would keep it from hearing that voice.
        in_vain: bool,
    },
}

/// Next step towards the role that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Perform this.
    Do(Effect),
    /// Look again then.
    At(Instant, &'static str),
    /// Wait for an event: all is as it should be, or a step is under way.
    Rest,
    /// Wait until something else is heard, for this reason.
    Wait(&'static str),
}

/// A coordinator that ends its etcd to start it anew answers again within this: it leads, or cannot say yet.
const STARTS_ANEW: Duration = Duration::from_secs(10);

/// Recovery of the cluster with this machine alone, as a note on its disk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryNote {
    /// An owner has ordered it.
    Ordered,
    /// etcd was started for it, and may have taken all other members out.
    Begun,
}

/// Recovery of the cluster with this machine alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    No,
    /// A note lies there of an earlier boot, or one that could not be done; others may lead by now.
    Noted,
    /// Others lead: the note is to go, and with it an etcd that has taken them out.
    Over,
    Due,
    Committed,
}

/// Facts about what runs and lies here of a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    keys: bool,
    /// Whether etcd has begun; none where that has to be looked at.
    begun: Option<bool>,
    running: Option<EtcdStart>,
    /// Whether units may run though they could not be started, or stopped, all.
    half: bool,
    /// When the units were started.
    since: Instant,
    face: Option<Face>,
    /// Keys and data of a coordinator that never began lie here since before this boot.
    stale: bool,
    shares_erased: bool,
    keys_erased: bool,
    etcd_erased: bool,
    join_noted: bool,
    recovery: Recovery,
    /// Whether etcd here may have taken all other members out, which the records do not count yet.
    is_alone: bool,
    /// End of the first of the last rounds in which no coordinator said that it leads, or may.
    nobody_since: Option<Instant>,
    /// Tries of having keys handed over.
    tries: usize,
    busy: Option<EffectKind>,
    again: Option<Instant>,
}

/// Facts that a start reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleFacts {
    /// Whether a coordinator's keys are there, whole.
    pub keys: bool,
    /// Whether etcd has begun.
    pub begun: bool,
    /// Note of a recovery.
    pub recovery: Option<RecoveryNote>,
    /// How etcd was started that runs already: the machine's life begins anew behind a panic.
    pub running: Option<EtcdStart>,
}

impl Role {
    pub(crate) fn new(found: &RoleFacts, created: bool, now: Instant) -> Self {
        let RoleFacts { keys, begun, recovery, running } = found.clone();
        Self {
            keys,
            begun: Some(begun),
            stale: running.is_none() && keys && !begun && !created,
            since: now,
            face: None,
            shares_erased: false,
            keys_erased: false,
            etcd_erased: false,
            join_noted: false,
            recovery: match (recovery, &running) {
                // The data that it is of was put aside, and the note was to follow.
                (Some(_), None) if !begun => Recovery::No,
                (None, _) => Recovery::No,
                // Whoever noted it in this boot has asked the others.
                (Some(_), Some(_)) => Recovery::Due,
                (Some(_), None) => Recovery::Noted,
            },
            is_alone: recovery == Some(RecoveryNote::Begun),
            nobody_since: None,
            running,
            half: false,
            tries: 0,
            busy: None,
            again: None,
        }
    }

    /// Whether anything lies here that only a confirmed word may erase: etcd has begun.
    pub(crate) fn is_worth_confirming(&self) -> bool {
        self.has_begun() && !(self.shares_erased && self.keys_erased && self.etcd_erased)
    }

    /// Whether etcd has begun here, as far as that is known.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun != Some(false)
    }

    /// Whether units of a coordinator run.
    pub(crate) const fn runs(&self) -> bool {
        self.running.is_some()
    }

    /// Whether all units of a coordinator run, as far as is known.
    pub(crate) const fn runs_whole(&self) -> bool {
        self.running.is_some() && !self.half
    }

    /// Whether units of a coordinator are to start from what lies here, or start by now.
    pub(crate) const fn is_to_run(&self) -> bool {
        self.keys && !self.stale
    }

    /// Whether any unit of a coordinator may run.
    const fn may_run(&self) -> bool {
        self.running.is_some() || self.half
    }

    /// EffectKind of the step that is under way.
    pub(crate) const fn busy(&self) -> Option<EffectKind> {
        self.busy
    }

    /// Whether it has to be known whether others lead, before anything runs.
    pub(crate) fn asks_who_leads(&self) -> bool {
        self.recovery == Recovery::Noted
    }

    /// Somebody has a leader: what was noted is over.
    pub(crate) fn others_lead(&mut self) -> bool {
        let was = self.recovery == Recovery::Noted;
        if was {
            self.recovery = Recovery::Over;
        }
        was
    }

    /// Lets a recovery that was noted be tried, once: in all rounds of [`STARTS_ANEW`] no coordinator that answered had a leader.
    pub(crate) fn nobody_leads(&mut self, now: Instant) {
        if self.recovery == Recovery::Noted && now >= *self.nobody_since.get_or_insert(now) + STARTS_ANEW {
            (self.recovery, self.nobody_since) = (Recovery::Due, None);
        }
    }

    /// A coordinator of the round that is over leads, or cannot say yet.
    pub(crate) const fn somebody_may_lead(&mut self) {
        self.nobody_since = None;
    }

    /// An owner has noted a recovery.
    pub(crate) fn recover(&mut self) {
        if self.running.is_some() {
            self.recovery = Recovery::Due;
        }
    }

    /// Takes the end of the step that was under way.
    pub(crate) fn done(&mut self, effect: &Effect, outcome: Result<EffectOutcome, ()>, now: Instant) {
        self.busy = None;
        self.is_alone |= *effect == Effect::Units(Some(EtcdStart::Recovered));
        let Ok(outcome) = outcome else {
            self.again = Some(now + AGAIN);
            if matches!(effect, Effect::TakeKeys(_)) {
                self.tries += 1;
            }
            if matches!(effect, Effect::Units(_)) {
                // Half of them may run, etcd among them.
                self.face = self.face.map(|_| Face::Leaving);
                self.half = true;
                self.begun = self.begun.filter(|begun| *begun);
            }
            if *effect == Effect::Units(Some(EtcdStart::Recovered)) {
                self.recovery = Recovery::Noted;
            }
            return;
        };
        self.again = None;
        match effect {
            Effect::NoteJoin => {
                self.join_noted = true;
                self.recovery = Recovery::No;
            }
            Effect::TakeKeys(_) => self.keys = true,
            Effect::LookAtEtcd => {
                if let EffectOutcome::Begun(begun) = outcome {
                    self.begun = Some(begun);
                }
            }
            Effect::Units(plan) => {
                // It may have begun in the meantime; whoever recovers has data.
                let recovered = plan.as_ref().or(self.running.as_ref()) == Some(&EtcdStart::Recovered);
                self.begun = (self.begun == Some(true) || recovered).then_some(true);
                if plan.is_some() {
                    // The APIs are to show the records of these.
                    self.face = None;
                }
                (self.running, self.half, self.since) = (plan.clone(), false, now);
            }
            Effect::Face(face) => self.face = Some(*face),
            Effect::EraseShares => self.shares_erased = true,
            Effect::EraseKeys => (self.keys, self.keys_erased) = (false, true),
            Effect::EraseEtcd => {
                (self.begun, self.etcd_erased, self.stale) = (Some(false), true, false);
                (self.join_noted, self.recovery, self.is_alone) = (false, Recovery::No, false);
            }
            Effect::PutEtcdAside => {
                (self.keys, self.begun, self.stale) = (false, Some(false), false);
                (self.join_noted, self.recovery, self.is_alone) = (false, Recovery::No, false);
            }
            Effect::CommitRecovery => (self.recovery, self.is_alone) = (Recovery::Committed, false),
            Effect::DropRecovery => self.recovery = Recovery::No,
            // No step of the role.
            Effect::Attend { .. }
            | Effect::Leave
            | Effect::Announce(_)
            | Effect::AskDirectory(_)
            | Effect::Directory { .. }
            | Effect::Mesh(_)
            | Effect::Order(_)
            | Effect::Kubernetes { .. }
            | Effect::Keep(_)
            | Effect::WriteShare(..)
            | Effect::TakesKey(_)
            | Effect::ReadOwnCopy { .. }
            | Effect::Decide(_)
            | Effect::AskVote
            | Effect::KeepRecords
            | Effect::LookAtMembers
            | Effect::ChangeMember(_)
            | Effect::PassLead
            | Effect::Defragment(_)
            | Effect::Restore { .. }
            | Effect::DropSnapshot
            | Effect::Revoke(_)
            | Effect::TrimAudit
            | Effect::NeedOwner(_)
            | Effect::Report(..) => {}
        }
    }

    /// Next step towards `goal`; it is under way once it is given.
    pub(crate) fn step(&mut self, goal: Goal<'_>, now: Instant) -> Step {
        if self.busy.is_some() {
            return Step::Rest;
        }
        if let Some(again) = self.again
            && now < again
        {
            return Step::At(again, "a step is tried again");
        }
        let step = match goal {
            Goal::Node => self.towards_node(),
            Goal::Rejoin => self.towards_rejoining(),
            Goal::Stopped { in_vain } => self.towards_stopped(in_vain),
            Goal::Coordinator { desired, heard, givers } => self.towards_coordinator(desired, heard, givers, now),
        };
        if self.running.is_some() && self.begun == Some(false) {
            self.begun = None; // it held for this step alone
        }
        if let Step::Do(effect) = &step {
            self.busy = effect.kind();
            if matches!(effect, Effect::TakeKeys(_) | Effect::Units(Some(_))) {
                (self.shares_erased, self.keys_erased, self.etcd_erased) = (false, false, false);
            }
        }
        step
    }

    fn towards_rejoining(&self) -> Step {
        if self.face == Some(Face::Coordinator) {
            return Step::Do(Effect::Face(Face::Leaving));
        }
        Step::Do(if self.may_run() { Effect::Units(None) } else { Effect::PutEtcdAside })
    }

    fn towards_stopped(&self, in_vain: bool) -> Step {
        match (&self.face, self.may_run()) {
            (Some(Face::Coordinator), _) => Step::Do(Effect::Face(Face::Leaving)),
            (_, true) => Step::Do(Effect::Units(None)),
            (Some(Face::Leaving) | None, false) if in_vain => Step::Do(Effect::Face(Face::Node)),
            (Some(Face::Node | Face::Leaving) | None, false) => Step::Rest,
        }
    }

    fn towards_node(&self) -> Step {
        if self.face == Some(Face::Coordinator) {
            return Step::Do(Effect::Face(Face::Leaving));
        }
        if self.may_run() {
            return Step::Do(Effect::Units(None));
        }
        if !self.shares_erased {
            return Step::Do(Effect::EraseShares);
        }
        if !self.keys_erased {
            return Step::Do(Effect::EraseKeys);
        }
        if !self.etcd_erased {
            return Step::Do(Effect::EraseEtcd);
        }
        if self.face != Some(Face::Node) {
            return Step::Do(Effect::Face(Face::Node));
        }
        Step::Rest
    }

    fn towards_coordinator(&self, desired: &Desired, heard: bool, givers: &[VpnPlace], now: Instant) -> Step {
        if let Some(step) = self.recovery(givers) {
            return step;
        }
        if !self.keys || self.stale {
            return self.towards_keys(desired, heard, givers);
        }
        let Some(running) = &self.running else { return self.begin(desired) };
        if self.face != Some(Face::Coordinator) {
            return Step::Do(Effect::Face(Face::Coordinator));
        }
        // etcd begins only beside the very members that there are.
        let EtcdStart::Existing { others } = running else { return Step::Rest };
        if self.begun == Some(true) || other_members(desired).is_none_or(|members| members == *others) {
            return Step::Rest;
        }
        let due = self.since + BEGINS;
        match self.begun {
            _ if now < due => Step::At(due, "etcd's members are others"),
            None => Step::Do(Effect::LookAtEtcd),
            Some(_) => Step::Do(Effect::Units(None)),
        }
    }

    fn recovery(&self, givers: &[VpnPlace]) -> Option<Step> {
        // Whoever is alone has nobody to ask.
        let is_due = self.recovery == Recovery::Noted && givers.is_empty();
        let effect = match (if is_due { Recovery::Due } else { self.recovery }, &self.running) {
            // Committed in this boot, or before a panic of the life.
            (Recovery::No | Recovery::Committed, Some(EtcdStart::Recovered)) => Effect::Units(None),
            (Recovery::No | Recovery::Committed, _) => return None,
            (Recovery::Noted, _) => return Some(Step::Wait("whether other coordinators have a leader is asked")),
            (Recovery::Over, _) if self.is_alone && self.may_run() => Effect::Units(None),
            (Recovery::Over, _) if self.is_alone => Effect::PutEtcdAside,
            (Recovery::Over, _) => Effect::DropRecovery,
            (Recovery::Due, None) => Effect::Units(Some(EtcdStart::Recovered)),
            (Recovery::Due, Some(EtcdStart::Recovered)) if self.face != Some(Face::Coordinator) => {
                Effect::Face(Face::Coordinator)
            }
            (Recovery::Due, Some(EtcdStart::Recovered)) => Effect::CommitRecovery,
            (Recovery::Due, Some(EtcdStart::New | EtcdStart::Existing { .. })) => Effect::Units(None),
        };
        Some(Step::Do(effect))
    }

    fn towards_keys(&self, desired: &Desired, heard: bool, givers: &[VpnPlace]) -> Step {
        let Some(giver) = givers.get(self.tries % givers.len().max(1)) else {
            return Step::Do(Effect::NeedOwner(OwnerReason::Alone));
        };
        if self.stale {
            return Step::Do(if self.keys { Effect::EraseKeys } else { Effect::PutEtcdAside });
        }
        match &desired.etcd {
            _ if !heard => Step::Wait("no coordinator has said yet what this machine is to be"),
            EtcdPart::Out => Step::Wait("etcd has not added this machine yet"),
            EtcdPart::Voter => Step::Wait(
                "this machine votes in etcd and has none of its data: make it a node first, then a coordinator",
            ),
            EtcdPart::Learner { .. } if !self.join_noted => Step::Do(Effect::NoteJoin),
            EtcdPart::Learner { .. } => Step::Do(Effect::TakeKeys(*giver)),
        }
    }

    fn begin(&self, desired: &Desired) -> Step {
        let plan = match (self.begun, &desired.etcd) {
            (None, _) => return Step::Do(Effect::LookAtEtcd),
            (Some(true), _) => EtcdStart::Existing { others: Vec::new() },
            (Some(false), _) if desired.at.is_none() => EtcdStart::New,
            (Some(false), EtcdPart::Learner { .. }) => {
                EtcdStart::Existing { others: other_members(desired).unwrap_or_default() }
            }
            (Some(false), EtcdPart::Out) => return Step::Wait("etcd has not added this machine yet"),
            (Some(false), EtcdPart::Voter) => {
                return Step::Wait(
                    "this machine votes in etcd and has none of its data: make it a node first, then a coordinator",
                );
            }
        };
        Step::Do(Effect::Units(Some(plan)))
    }
}

/// Members beside which a learner's etcd begins; none where the machine is no learner.
fn other_members(desired: &Desired) -> Option<Vec<(NodeName, Ipv4Addr)>> {
    let EtcdPart::Learner { members } = &desired.etcd else { return None };
    let own = desired.assignment.vpn_ip();
    Some(members.iter().filter(|(_, vpn_ip)| *vpn_ip != own).cloned().collect())
}

#[cfg(test)]
mod tests;
