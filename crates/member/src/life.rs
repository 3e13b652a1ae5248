//! Life: one value that holds all parts, takes events, and asks for effects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cluster::desired::{Desired, EtcdPart};
use cluster::orders::Order;
use cluster::peers::News;
use cluster::restores;
use cluster::state::StateVersion;
use cluster::{View, Word};
use model::{Assignment, ClusterRole, MachineId};

use crate::announcement::{Announcement, Announcing};
use crate::belief::{Belief, Disbelief, is_confirmed};
use crate::copy::Copying;
use crate::duties::{self, Duties};
use crate::effect::{Effect, EffectKind, EffectOutcome, Event, KeptFile, OwnRecords, OwnRequest, Part};
use crate::keep::Keeping;
use crate::kubernetes::{Beside, Kubernetes, runs_control_plane};
use crate::role::{self, Goal, Role, Step};
use crate::shares::{self, Sharing};
use crate::source::{Source, Turn, VpnPlace, round};

/// Time between two rounds for a second voice, while one coordinator says that the machine is a node.
const SECOND_VOICE: Duration = Duration::from_secs(30);

/// Report while one coordinator says so.
const IN_DOUBT: &str = "one coordinator says that this machine is a node; what a coordinator has is kept here until a second one says \
                        so, or an owner: cairnctl machine role erase";

/// Facts that a start reads, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifeFacts {
    /// The machine itself.
    pub own: MachineId,
    /// Desired state that is kept.
    pub desired: Desired,
    /// Version of the peers that are kept.
    pub peers: Option<StateVersion>,
    /// Other coordinators as the machine's own records named them last, while etcd had a leader; none where it never read them.
    pub electorate: Option<BTreeSet<MachineId>>,
    /// Announcement of the machine as it is reached now.
    pub announcement: Announcement,
    /// Parts of a coordinator that are there.
    pub role: role::RoleFacts,
    /// Assignment of which Kubernetes runs already: the machine's life begins anew behind a panic.
    pub kubernetes: Option<Assignment>,
}

/// Life of one member.
#[derive(Debug, Clone)]
pub struct Life {
    own: MachineId,
    belief: Belief,
    source: Source,
    announcing: Announcing,
    keeping: Keeping,
    role: Role,
    kubernetes: Kubernetes,
    /// Whether desired state was heard in this boot.
    heard: bool,
    /// Desired state of a node, by too few voices yet.
    doubtful: Option<Box<Desired>>,
    /// Coordinators that say so.
    voices: BTreeSet<MachineId>,
    second_voice: Option<Instant>,
    /// Whether a second voice was sought for a while.
    in_vain: bool,
    electorate: Option<BTreeSet<MachineId>>,
    /// Desired state that is obeyed once what etcd has here is put aside.
    rejoining: Option<Box<Desired>>,
    directory: Option<(StateVersion, Vec<VpnPlace>)>,
    missing: BTreeSet<MachineId>,
    /// Whether a quorum keeps the machine's own records up.
    records_kept: bool,
    /// Whether the machine created the cluster, and kept nothing yet that its records say.
    created: bool,
    copying: Copying,
    sharing: Sharing,
    duties: Option<Duties>,
    underway: BTreeMap<EffectKind, Effect>,
    step_due: Option<(Instant, &'static str)>,
    reported: BTreeMap<Part, String>,
}

impl Life {
    /// Begins the life of a machine whose data is open.
    #[must_use]
    pub fn start(found: LifeFacts, now: Instant, out: &mut Vec<Effect>) -> Self {
        let LifeFacts { own, desired, peers, electorate, announcement, role: found, kubernetes } = found;
        let coordinates = desired.assignment.role() == ClusterRole::Coordinator && found.keys && found.begun;
        let (created, role) = (desired.at.is_none() && peers.is_none(), Role::new(&found, desired.at.is_none(), now));
        let waits_for_records = coordinates && !role.asks_who_leads();
        let mut member = Self {
            own,
            belief: Belief::new(desired, peers),
            source: Source::begin(waits_for_records, now),
            announcing: Announcing::new(announcement),
            keeping: Keeping::default(),
            role,
            kubernetes: Kubernetes::new(kubernetes),
            heard: false,
            doubtful: None,
            voices: BTreeSet::new(),
            second_voice: None,
            in_vain: false,
            electorate,
            rejoining: None,
            directory: None,
            missing: BTreeSet::new(),
            records_kept: false,
            created,
            copying: Copying::begin(now),
            sharing: Sharing::begin(now),
            duties: None,
            underway: BTreeMap::new(),
            step_due: None,
            reported: BTreeMap::new(),
        };
        member.advance(None, now, out);
        member
    }

    /// Takes an event, and asks for the effects that follow. `view` are the machine's own records, as they were seen last since its units
    /// were started; none before they were read.
    pub fn handle(&mut self, event: Event, view: Option<&View>, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Told { by, word } => self.told(by, word, now, out),
            Event::Left { by, why, may_lead } => {
                if may_lead && self.source.attended() == Some(by) {
                    self.source.told(now);
                }
                self.left(by, why, now, out);
            }
            Event::Records(records) => self.records(records, now, out),
            Event::Endpoints(endpoints) => self.announcing.endpoints(endpoints),
            Event::Directory { at, coordinators } => self.directory = Some((at, coordinators)),
            Event::Learnt(machines) => {
                if let Some(duties) = &mut self.duties {
                    duties.hear(machines);
                }
            }
            Event::Missing(machines) => self.missing = machines,
            Event::Recover => self.role.recover(),
            Event::Erase => {
                if let Some(desired) = self.doubtful.clone() {
                    self.confirm(desired);
                }
            }
            Event::Renew => self.kubernetes.renew(),
            Event::Done(kind, outcome) => self.done(kind, outcome, now, out),
            Event::Tick => {}
        }
        self.advance(view, now, out);
    }

    /// Next deadline, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let announcing = self.announcing.due().map(|due| (due, "the announcement was put off"));
        let second = self.second_voice.map(|due| (due, "a second voice is sought"));
        let copy = self.copying.due().filter(|_| self.is_running());
        let of_records = [copy, self.sharing.due(), self.duties.as_ref().and_then(Duties::due)];
        let keeping = self.keeping.due(self.is_underway(EffectKind::Keep), self.is_underway(EffectKind::KeepPeers));
        let kubernetes = self.kubernetes.due().filter(|_| !self.is_underway(EffectKind::Kubernetes));
        let others = [self.source.due(), announcing, keeping, self.step_due, second, kubernetes];
        others.into_iter().chain(of_records).flatten().min()
    }

    /// Coordinator that is listened to.
    #[must_use]
    pub const fn attended(&self) -> Option<MachineId> {
        self.source.attended()
    }

    /// Desired state that the machine goes by.
    #[must_use]
    pub const fn desired(&self) -> &Desired {
        self.belief.desired()
    }

    /// Coordinators that are believed: those of the newer of desired state and signed directory.
    fn believed(&self) -> Vec<VpnPlace> {
        let desired = self.belief.desired();
        match &self.directory {
            Some((at, coordinators)) if Some(*at) > desired.at => coordinators.clone(),
            Some(_) | None => desired.coordinators.iter().map(|(id, it)| (*id, it.vpn_ip)).collect(),
        }
    }

    fn others(&self) -> BTreeSet<MachineId> {
        self.believed().into_iter().map(|(machine, _)| machine).filter(|machine| *machine != self.own).collect()
    }

    fn told(&mut self, by: MachineId, word: Word, now: Instant, out: &mut Vec<Effect>) {
        if self.source.attended() != Some(by) {
            return; // its stream had not ended yet when it was left
        }
        self.source.told(now);
        self.report(Part::Source, None, out);
        match word {
            Word::Directory(signed) => out.push(Effect::Directory { by, signed }),
            Word::Desired(desired) => self.told_desired(by, desired, now, out),
            Word::News(news) => self.told_news(by, news, now, out),
            Word::Order(order) => self.told_order(by, order, now, out),
        }
    }

    /// An order has the version of all records, which is none before that of the peers.
    fn told_order(&mut self, by: MachineId, order: Order, now: Instant, out: &mut Vec<Effect>) {
        match self.belief.judge(by, Some(order.version), &self.others()) {
            Ok(()) => out.push(Effect::Order(order)),
            Err(why) => self.leave(by, why.to_string(), now, out),
        }
    }

    fn told_news(&mut self, by: MachineId, news: News, now: Instant, out: &mut Vec<Effect>) {
        let others = self.others();
        let Some(version) = news.version() else {
            if news == News::Behind {
                self.belief.doubt(by, &others);
                self.leave(by, Disbelief::Behind.to_string(), now, out);
            }
            return;
        };
        match self.belief.judge(by, Some(version), &others) {
            Ok(()) => {
                if self.belief.take_peers(version) {
                    self.keeping.peers();
                }
                out.push(Effect::Mesh(news));
            }
            Err(why) => self.leave(by, why.to_string(), now, out),
        }
    }

    fn told_desired(&mut self, by: MachineId, desired: Box<Desired>, now: Instant, out: &mut Vec<Effect>) {
        // Only a coordinator that has a leader tells anybody what to be.
        if self.role.others_lead() {
            let text = "other coordinators have a leader: the recovery that was noted is not done";
            self.report(Part::Role, Some(text.to_owned()), out);
        }
        if let Err(why) = self.belief.judge_desired(by, &desired, &self.others()) {
            if desired.assignment.role() == ClusterRole::Coordinator {
                self.voices.remove(&by); // not believed, and no voice that the machine is a node either
            }
            return self.leave(by, why.to_string(), now, out);
        }
        if !self.is_doubtful(&desired) {
            return self.believe(desired, out);
        }
        let is_new = self.voices.insert(by);
        let electorate = self.electorate.clone().unwrap_or_default();
        if is_confirmed(&self.voices, &electorate) {
            return self.confirm(desired);
        }
        self.doubtful = Some(desired);
        self.report(Part::Doubt, Some(IN_DOUBT.to_owned()), out);
        if is_new && !electorate.is_subset(&self.voices) {
            self.seek(now, out);
        }
    }

    /// Has a word that was doubtful be kept, in place of one that waits for etcd's data to be put aside.
    fn confirm(&mut self, desired: Box<Desired>) {
        self.rejoining = None;
        self.keeping.desired(Some(desired));
    }

    /// Whether a word needs a second voice: it makes a node of a coordinator whose own records named others.
    fn is_doubtful(&self, desired: &Desired) -> bool {
        desired.assignment.role() == ClusterRole::Node
            && self.belief.desired().assignment.role() == ClusterRole::Coordinator
            && self.electorate.is_some()
            && self.role.is_worth_confirming()
    }

    /// Asks those first who have not said yet that the machine is a node.
    fn seek(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.second_voice = Some(now + SECOND_VOICE);
        self.turn(now, out, |source, turns| source.anew(now, turns));
    }

    /// Has desired state that was judged be kept, and obeyed then.
    fn believe(&mut self, desired: Box<Desired>, out: &mut Vec<Effect>) {
        self.certain(out);
        self.rejoining = None;
        if desired.says_the_same(self.belief.desired()) && !self.keeping.is_unsure() {
            self.keeping.desired(None);
            self.belief.take(*desired);
            self.heard = true;
        } else if self.has_left_etcd(&desired) {
            self.keeping.desired(None);
            self.rejoining = Some(desired);
        } else {
            self.keeping.desired(Some(desired));
        }
    }

    /// Whether etcd let go of this machine, which goes on as a coordinator: what lies here, and what runs, is of a membership that is
    /// over. One that waits to begin would begin beside the next one's members by itself, and its data would be taken for old.
    fn has_left_etcd(&self, desired: &Desired) -> bool {
        let is_node = desired.assignment.role() == ClusterRole::Node;
        let (begun, runs) = (self.role.has_begun(), self.role.runs());
        match (&self.belief.desired().etcd, &desired.etcd) {
            (EtcdPart::Voter | EtcdPart::Learner { .. }, EtcdPart::Out) => !is_node && (begun || runs),
            (EtcdPart::Voter, EtcdPart::Learner { .. }) => begun,
            (EtcdPart::Out, EtcdPart::Learner { .. }) => begun && !runs,
            _ => false,
        }
    }

    /// No voice says any more that the machine is a node, or enough do.
    fn certain(&mut self, out: &mut Vec<Effect>) {
        self.report(Part::Doubt, None, out);
        self.doubtful = None;
        self.voices.clear();
        (self.second_voice, self.in_vain) = (None, false);
    }

    /// Leaves the coordinator that is attended, for this reason.
    fn leave(&mut self, by: MachineId, why: String, now: Instant, out: &mut Vec<Effect>) {
        out.push(Effect::Leave);
        self.left(by, why, now, out);
    }

    fn left(&mut self, by: MachineId, why: String, now: Instant, out: &mut Vec<Effect>) {
        if self.source.attended() != Some(by) {
            return; // it was left before
        }
        self.report(Part::Source, Some(why), out);
        self.silence();
        self.turn(now, out, |source, turns| source.left(now, turns));
    }

    /// Ends the announcing: no coordinator hears the machine any more.
    fn silence(&mut self) {
        self.announcing.leaves();
        self.underway.remove(&EffectKind::Announce);
    }

    fn records(&mut self, records: OwnRecords, now: Instant, out: &mut Vec<Effect>) {
        self.records_kept = self.role.runs() && records != OwnRecords::Lost;
        let OwnRecords::Kept { desired, peers } = records else { return self.source.lost(now) };
        if !self.records_kept {
            return; // of units that are gone by now
        }
        self.copying.kept();
        self.report(Part::Copy, None, out);
        self.turn(now, out, Source::kept);
        if peers.is_some_and(|version| self.belief.take_peers(version)) {
            self.keeping.peers();
        }
        let Some(desired) = desired else { return };
        let electorate: BTreeSet<_> = desired.coordinators.keys().filter(|id| **id != self.own).copied().collect();
        if self.electorate.as_ref() != Some(&electorate) {
            self.electorate = Some(electorate.clone());
            self.keeping.electorate(electorate);
        }
        self.believe(desired, out);
    }

    fn done(&mut self, kind: EffectKind, outcome: Result<EffectOutcome, String>, now: Instant, out: &mut Vec<Effect>) {
        let Some(effect) = self.underway.remove(&kind) else { return };
        match (&effect, &outcome) {
            (Effect::Announce(_), Ok(EffectOutcome::PutOff)) => self.announcing.put_off(now),
            (Effect::Announce(_), Ok(_)) => self.announcing.heard(),
            (Effect::Announce(_), Err(why)) => {
                if let Some(by) = self.source.attended() {
                    self.leave(by, why.clone(), now, out);
                }
            }
            (Effect::AskDirectory(_), _) => {}
            (Effect::Keep(KeptFile::Desired(desired)), Ok(_)) => {
                self.keeping.kept();
                self.belief.take((**desired).clone());
                self.heard = true;
                self.report(Part::Keep, None, out);
                if desired.assignment.role() == ClusterRole::Node {
                    // A word that came while this one was written needs no second voice any more.
                    let later =
                        self.doubtful.take().filter(|later| (later.at, later.look) > (desired.at, desired.look));
                    self.certain(out);
                    if let Some(later) = later {
                        self.believe(later, out);
                    }
                }
            }
            (Effect::Keep(_), Ok(_)) => self.report(Part::Keep, None, out),
            (Effect::Keep(file), Err(why)) => {
                self.keeping.failed(file, now);
                self.report(Part::Keep, Some(why.clone()), out);
            }
            (
                Effect::WriteShare(..)
                | Effect::ReadOwnCopy { .. }
                | Effect::Decide(OwnRequest::BeginEpoch | OwnRequest::AcknowledgeEpoch(_)),
                _,
            ) => {
                if let Some(text) = self.sharing.done(&effect, outcome, &self.own, now) {
                    self.report(Part::Shares, text, out);
                }
                self.announcing.epoch(self.sharing.epoch());
            }
            (
                Effect::Decide(_)
                | Effect::LookAtMembers
                | Effect::ChangeMember(_)
                | Effect::PassLead
                | Effect::Defragment(_)
                | Effect::Restore { .. }
                | Effect::DropSnapshot
                | Effect::Revoke(_)
                | Effect::TrimAudit,
                _,
            ) => {
                if let Some(text) = self.duties.as_mut().and_then(|duties| duties.done(&effect, outcome, now)) {
                    self.report(Part::Duty(kind), text, out);
                }
            }
            (Effect::Kubernetes { assignment, .. }, _) => {
                self.kubernetes.done(assignment, outcome.is_ok(), now);
                self.report(Part::Kubernetes, outcome.err(), out);
            }
            (Effect::AskVote | Effect::KeepRecords, _) => {
                let mut next = Vec::new();
                if let Some(text) = self.copying.done(outcome, now, &mut next) {
                    self.report(Part::Copy, Some(text), out);
                }
                self.begin(next, out);
            }
            _ if self.role.busy() == Some(kind) => {
                if let Err(why) = &outcome {
                    self.report(Part::Role, Some(why.clone()), out);
                }
                if outcome.is_ok() && matches!(effect, Effect::Units(None)) {
                    self.source.none(now);
                }
                if outcome.is_ok() && effect == Effect::PutEtcdAside {
                    self.electorate = None;
                    if let Some(desired) = self.rejoining.take() {
                        self.keeping.desired(Some(desired));
                    }
                }
                self.role.done(&effect, outcome.map_err(drop), now);
            }
            _ => {} // every other kind is the role's
        }
    }

    fn is_underway(&self, kind: EffectKind) -> bool {
        self.underway.contains_key(&kind)
    }

    /// Asks for all that is due and not under way.
    fn advance(&mut self, view: Option<&View>, now: Instant, out: &mut Vec<Effect>) {
        if self.second_voice.is_some_and(|due| now >= due) {
            self.in_vain = true;
            self.seek(now, out);
        }
        let (own, believed) = (self.own, self.believed());
        let first: BTreeSet<_> = match (&self.doubtful, &self.electorate) {
            (Some(_), Some(electorate)) => electorate.difference(&self.voices).copied().collect(),
            _ => BTreeSet::new(),
        };
        self.turn(now, out, |source, turns| source.tick(now, || round(own, &first, &believed), turns));
        let mut due = Vec::new();
        let (keeps, keeps_peers) = (self.is_underway(EffectKind::Keep), self.is_underway(EffectKind::KeepPeers));
        self.keeping.next(keeps, keeps_peers, now, &mut due);
        // Whether others lead is said by their words alone: an announcement that fails says nothing of that, and would end the listening.
        if self.source.attended().is_some() && !self.role.asks_who_leads() {
            due.extend(self.announcing.next(now).map(Effect::Announce));
        }
        if !self.is_underway(EffectKind::AskDirectory) {
            due.extend(self.next_missing().map(Effect::AskDirectory));
        }
        let givers: Vec<_> = round(self.own, &BTreeSet::new(), &self.believed()).into();
        due.extend(self.step(&givers, now, out));
        due.extend(self.next_of_kubernetes(&givers, now));
        if due.iter().any(|effect| matches!(effect, Effect::Units(_))) {
            self.underway.retain(|kind, _| !kind.asks_etcd());
            self.records_kept = false;
            (self.copying, self.sharing) = (Copying::begin(now), Sharing::begin(now));
            self.announcing.epoch(None);
        }
        if self.is_running() {
            due.extend(self.copying.next(now));
        }
        if let Some(why) = self.tend(view, now, &mut due) {
            self.report(Part::Duty(EffectKind::Decide), Some(why.to_owned()), out);
        }
        if let Some(view) = view.filter(|_| self.records_kept) {
            self.report(Part::Restore, restores::standstill(view.state(), &self.own), out);
        }
        self.share(view, now, &mut due);
        self.begin(due, out);
    }

    /// Asks for effects, which are under way from then on.
    fn begin(&mut self, due: Vec<Effect>, out: &mut Vec<Effect>) {
        for effect in due {
            if let Some(kind) = effect.kind() {
                self.underway.insert(kind, effect.clone());
            }
            out.push(effect);
        }
    }

    /// Whether units of a coordinator run, and neither start nor stop.
    fn is_running(&self) -> bool {
        self.role.runs() && self.role.busy() != Some(EffectKind::Units)
    }

    /// Next coordinator whose directory is missing, each once.
    fn next_missing(&mut self) -> Option<VpnPlace> {
        let (attended, believed) = (self.source.attended()?, self.believed());
        while let Some(machine) = self.missing.pop_first() {
            let place = believed.iter().find(|(it, _)| *it == machine && *it != attended && *it != self.own);
            if let Some(place) = place {
                return Some(*place);
            }
        }
        None
    }

    /// Has the machine do its duties, as long as its records are kept up; the reason for which it does none, if there is one.
    fn tend(&mut self, view: Option<&View>, now: Instant, due: &mut Vec<Effect>) -> Option<&'static str> {
        let Some(view) = view.filter(|_| self.records_kept) else {
            self.duties = None;
            return None;
        };
        let is_wanted = runs_control_plane(&self.belief.desired().assignment);
        let has_stopped =
            !is_wanted && !self.is_underway(EffectKind::Kubernetes) && !self.kubernetes.may_run_control_plane();
        let ground = duties::Ground {
            own: &self.own,
            view,
            has_stopped,
            created: self.created,
            endpoints: self.announcing.places(),
            underway: &self.underway,
        };
        self.duties.get_or_insert_with(|| Duties::begin(now)).next(ground, now, due)
    }

    /// Has the machine hold its shares, as long as it coordinates.
    fn share(&mut self, view: Option<&View>, now: Instant, due: &mut Vec<Effect>) {
        let is_coordinator = self.belief.desired().assignment.role() == ClusterRole::Coordinator;
        if !is_coordinator || !self.is_running() {
            return self.sharing.pause();
        }
        let ground = shares::Ground {
            own: &self.own,
            view,
            may_write: !self.is_underway(EffectKind::WriteShare),
            may_decide: self.records_kept
                && !self.is_underway(EffectKind::Decide)
                && !due.iter().any(|effect| matches!(effect, Effect::Decide(_))),
        };
        self.sharing.next(ground, now, due);
    }

    /// Has Kubernetes run as it should.
    fn next_of_kubernetes(&mut self, signers: &[VpnPlace], now: Instant) -> Option<Effect> {
        if self.is_underway(EffectKind::Kubernetes) {
            return None;
        }
        let desired = self.belief.desired();
        let is_wanted = desired.assignment.role() == ClusterRole::Coordinator && self.doubtful.is_none();
        let beside = match () {
            () if self.is_running() && self.role.runs_whole() => Beside::Coordinator,
            () if is_wanted && self.rejoining.is_none() && self.role.is_to_run() => Beside::Soon,
            () => Beside::Nothing,
        };
        let may_run = |assignment: &Assignment| self.keeping.may_run(assignment.kubernetes());
        let effect = self.kubernetes.next(desired, (beside, signers), now);
        effect.filter(|effect| matches!(effect, Effect::Kubernetes { assignment, .. } if may_run(assignment)))
    }

    /// Next step of the role.
    fn step(&mut self, givers: &[VpnPlace], now: Instant, out: &mut Vec<Effect>) -> Option<Effect> {
        self.step_due = None;
        let desired = self.belief.desired();
        match desired.assignment.role() {
            // A share that comes to lie there behind the erasure would stay.
            ClusterRole::Node if self.is_underway(EffectKind::WriteShare) => return None,
            // Its file may say that it is a node: until it is known what that says, nothing of a coordinator starts.
            ClusterRole::Coordinator
                if self.doubtful.is_none() && self.rejoining.is_none() && !self.keeping.may_coordinate() =>
            {
                return None;
            }
            ClusterRole::Node | ClusterRole::Coordinator => {}
        }
        let goal = match (desired.assignment.role(), &self.doubtful) {
            (ClusterRole::Node, _) => Goal::Node,
            (ClusterRole::Coordinator, _) if self.rejoining.is_some() => Goal::Rejoin,
            (ClusterRole::Coordinator, Some(_)) => Goal::Stopped { in_vain: self.in_vain },
            (ClusterRole::Coordinator, None) => Goal::Coordinator { desired, heard: self.heard, givers },
        };
        let step = self.role.step(goal, now);
        match step {
            Step::Do(Effect::NeedOwner(need)) => {
                // Said once: the life ends with it.
                return (self.reported.insert(Part::Role, need.to_string()) != Some(need.to_string()))
                    .then_some(Effect::NeedOwner(need));
            }
            Step::Do(effect) => return Some(effect),
            Step::At(due, why) => self.step_due = Some((due, why)),
            Step::Wait(why) => self.report(Part::Role, Some(why.to_owned()), out),
            Step::Rest if self.role.busy().is_none() => self.report(Part::Role, None, out),
            Step::Rest => {}
        }
        None
    }

    fn turn(&mut self, now: Instant, out: &mut Vec<Effect>, change: impl FnOnce(&mut Source, &mut Vec<Turn>)) {
        let mut turns = Vec::new();
        change(&mut self.source, &mut turns);
        for turn in turns {
            match turn {
                Turn::Attend(coordinator) => {
                    self.silence();
                    self.announcing.attends();
                    out.push(Effect::Attend { coordinator, known: self.belief.asks_with() });
                }
                Turn::Leave => {
                    self.silence();
                    out.push(Effect::Leave);
                }
                Turn::RoundOver { heard: false } => self.role.nobody_leads(now),
                Turn::RoundOver { heard: true } => self.role.somebody_may_lead(),
            }
        }
    }

    fn report(&mut self, part: Part, text: Option<String>, out: &mut Vec<Effect>) {
        if self.reported.get(&part) != text.as_ref() {
            match &text {
                Some(text) => drop(self.reported.insert(part, text.clone())),
                None => drop(self.reported.remove(&part)),
            }
            out.push(Effect::Report(part, text));
        }
    }
}
