//! Lives of the machines whose data is open, performed in virtual time: each effect takes a drawn time, may fail, may lose its answer,
//! and is over when the machine is switched off or its life panics. The one place where an effect of the crate `member` becomes
//! something in this world; decides nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster::decision::Decision;
use cluster::peers::{News, PeerBook};
use cluster::request::Request;
use member::{
    Announcement, Effect, EffectKind, EffectOutcome, EtcdStart, Event as Hears, Face, KeptFile, Life, LifeFacts,
    OwnRecords, OwnRequest,
};
use model::{ClusterRole, MachineId};

use super::cables::INTERVAL;
use super::kubernetes::Kubernetes;
use super::listen::LAPSED;
use super::machine::{Heard, Living, Power, Running};
use super::records::RecordsCopy;
use super::{Event, Who, World, seen};
use crate::cast;
use crate::laws::Breach;
use crate::laws::life::{self as law, Facts};

impl World {
    pub(super) fn instant(&self) -> Instant {
        self.begin + Duration::from_millis(self.now)
    }

    /// Begins the life of a machine whose data is open, from what lies on its disk and what runs.
    pub(super) fn begins(&mut self, n: u16, boot: u64) -> Result<(), Breach> {
        let unread = !self.calm && self.random.below(30) == 0;
        let (now, number) = (self.instant(), self.sequence);
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        if machine.power == Power::Off || machine.boot != boot || machine.living.is_some() {
            return Ok(());
        }
        let Some(desired) = machine.disk.desired.clone() else { return Ok(()) };
        let Some(role) = (self.parts.find)(machine.found(), unread) else {
            let after = 200 + self.below(800);
            self.put(after, Event::Begins(n, boot));
            return Ok(());
        };
        let found = LifeFacts {
            own: cast::id(n),
            desired,
            peers: machine.known.version(),
            electorate: machine.disk.electorate.clone(),
            announcement: Announcement { endpoints: Vec::new(), epoch: None },
            role,
            kubernetes: machine.kubernetes.runs.clone(),
        };
        let mut out = Vec::new();
        let life = Life::start(found, now, &mut out);
        machine.heard = Heard::default();
        machine.living =
            Some(Living { life, number, wakes: None, stream: None, asked: BTreeMap::new(), step: None, units: 0 });
        self.sequence += 1;
        self.follow(n, out)?;
        if self.machines[&n].running.is_some() {
            self.put(1, Event::Own(n));
        }
        Ok(())
    }

    /// Wakes a life whose deadline has come.
    pub(super) fn wakes(&mut self, n: u16, number: u64) -> Result<(), Breach> {
        let now = self.now;
        let living = self.machines.get_mut(&n).and_then(|machine| machine.living.as_mut());
        let Some(living) = living.filter(|living| living.number == number && living.wakes == Some(now)) else {
            return Ok(());
        };
        living.wakes = None;
        self.lives(n, Hears::Tick)
    }

    /// Tells a life of an event, and begins the effects that follow.
    pub(super) fn lives(&mut self, n: u16, event: Hears) -> Result<(), Breach> {
        let now = self.instant();
        let told = matches!(event, Hears::Told { .. });
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        let Some(living) = &mut machine.living else { return Ok(()) };
        let before = living.life.desired().at;
        let mut out = Vec::new();
        let view = self.coordinators.get(&cast::id(n)).map(|copy| &copy.view);
        living.life.handle(event, view, now, &mut out);
        let after = living.life.desired().at;
        if told {
            let others = living.life.desired().coordinators.keys().filter(|id| **id != cast::id(n)).count();
            law::version(n, (before, after), (machine.heard.behind.len(), others))?;
            if after > before {
                machine.heard.behind.clear();
            }
        }
        self.follow(n, out)
    }

    fn follow(&mut self, n: u16, out: Vec<Effect>) -> Result<(), Breach> {
        for effect in out {
            self.effect_begins(n, effect)?;
        }
        let (now, begin) = (self.now, self.begin);
        let living = self.machines.get_mut(&n).and_then(|machine| machine.living.as_mut());
        let Some(living) = living else { return Ok(()) };
        let Some((due, why)) = living.life.poll_timeout() else { return Ok(()) };
        let due = due.saturating_duration_since(begin).as_micros().div_ceil(1000);
        let due = u64::try_from(due).expect("worlds end");
        law::waits(n, due <= now, why)?;
        if living.wakes.is_none_or(|wakes| due < wakes) {
            living.wakes = Some(due);
            let number = living.number;
            self.put(due - now, Event::Wakes(n, number));
        }
        Ok(())
    }

    /// Begins an effect; those without an end are performed at once.
    fn effect_begins(&mut self, n: u16, effect: Effect) -> Result<(), Breach> {
        let machine = self.machines.get_mut(&n).expect("it lives");
        let living = machine.living.as_mut().expect("it lives");
        let number = living.number;
        match effect {
            Effect::Attend { coordinator: (by, _), known } => self.attends(n, by, known),
            Effect::Leave => living.stream = None,
            Effect::Mesh(news) => self.hears(n, news)?,
            // No machine here pulls an image.
            Effect::Order(_) => {}
            Effect::Announce(said) => {
                let generation = machine.locked_with;
                let Some((via, stream)) = living.stream.as_ref().map(|stream| (stream.by, stream.number)) else {
                    return Ok(());
                };
                let request = super::announces(n, said.endpoints, generation);
                let after = 1 + self.below(20);
                self.put(after, Event::Ask { who: Who::Life(n, stream), decision: Decision::new(request), via });
                if let Some(epoch) = said.epoch {
                    self.acknowledges(n, epoch)?;
                    let acknowledges = Request::AcknowledgeEpoch { machine: cast::machine_key(n), number: epoch };
                    let decision = Decision::new(acknowledges);
                    self.put(after + 1, Event::Ask { who: Who::Coordinator, decision, via });
                }
            }
            Effect::NeedOwner(why) => return Err(law::needs_owner(n, why)),
            // There are no people here, nor any directories.
            Effect::Report(..) | Effect::Directory { .. } | Effect::TakesKey(None) => {}
            Effect::TakesKey(Some(generation)) => {
                let is_carried = self.esps.carry(cast::id(n), cast::disk(machine.disk_of(n)), generation);
                law::takes(n, generation, is_carried)?;
            }
            effect @ (Effect::AskDirectory(_)
            | Effect::Keep(_)
            | Effect::NoteJoin
            | Effect::TakeKeys(_)
            | Effect::LookAtEtcd
            | Effect::Units(_)
            | Effect::Kubernetes { .. }
            | Effect::Face(_)
            | Effect::EraseShares
            | Effect::EraseKeys
            | Effect::EraseEtcd
            | Effect::PutEtcdAside
            | Effect::CommitRecovery
            | Effect::DropRecovery
            | Effect::WriteShare(..)
            | Effect::ReadOwnCopy { .. }
            | Effect::AskVote
            | Effect::KeepRecords
            | Effect::Decide(_)
            | Effect::LookAtMembers
            | Effect::ChangeMember(_)
            | Effect::PassLead
            | Effect::Defragment(_)
            | Effect::Restore { .. }
            | Effect::DropSnapshot
            | Effect::Revoke(_)
            | Effect::TrimAudit) => {
                let kind = effect.kind().expect("only such take time");
                // What asks an etcd is over once other units are to run.
                living.units += u64::from(kind == EffectKind::Units);
                let units = living.units;
                if kind.is_of_the_role() {
                    law::one_step(n, living.step.replace(kind), kind)?;
                    self.note(format!("{:>6} ms    {n} begins {effect:?}", self.now));
                }
                if !kind.asks_etcd() {
                    law::performs(n, &effect, &self.facts(n))?;
                }
                if kind == EffectKind::Units {
                    self.loses(cast::id(n));
                }
                if let Effect::Decide(OwnRequest::AcknowledgeEpoch(epoch)) = effect {
                    self.acknowledges(n, epoch)?;
                }
                let after = 1 + self.below(150);
                self.put(after, Event::Performs { n, number, units, effect: Box::new(effect) });
            }
        }
        Ok(())
    }

    /// The mesh takes news.
    fn hears(&mut self, n: u16, news: News) -> Result<(), Breach> {
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        let before = machine.known.version();
        self.report.heard += u64::from(!(self.parts.hear)(&mut machine.known, news).is_empty());
        if machine.known.version() < before {
            return Err(Breach { law: "nobody forgets who the others are", how: format!("machine {n}") });
        }
        Ok(())
    }

    /// Ends an effect that takes time, unless the life that began it is over.
    pub(super) fn performs(&mut self, n: u16, asked: (u64, u64), effect: Effect) -> Result<(), Breach> {
        let (number, units) = asked;
        let living = self.machines.get_mut(&n).and_then(|machine| machine.living.as_mut());
        let Some(living) = living.filter(|living| living.number == number) else { return Ok(()) };
        let kind = effect.kind().expect("only such take time");
        if kind.asks_etcd() && living.units != units {
            return Ok(());
        }
        if kind.is_of_the_role() {
            living.step = None;
        }
        // A coordinator asks etcd all the time.
        let bound = if kind.asks_etcd() { 400 } else { 60 };
        let chance = if self.calm { usize::MAX } else { self.random.below(bound) };
        if effect == Effect::Units(Some(EtcdStart::Recovered)) {
            self.begins_recovery(n);
        }
        if chance == 0 {
            return self.lives(n, Hears::Done(kind, Err(String::from("it fails"))));
        }
        let keeps = matches!(effect, Effect::Keep(KeptFile::Desired(_)));
        let was_node = !self.machines[&n].coordinates();
        let outcome = if effect == Effect::KeepRecords {
            self.reads(n).err().map(Err)
        } else if effect == Effect::LookAtMembers {
            self.looks(n, asked).err().map(Err)
        } else if let Effect::Decide(request) = effect {
            self.decides(n, asked, request);
            None
        } else {
            Some(self.applies(n, effect)?)
        };
        if keeps {
            let heard = &mut self.machines.get_mut(&n).expect("it lives").heard;
            heard.unsure = chance == 1 && (was_node || heard.unsure);
        }
        match (chance, outcome) {
            (2, _) => {
                self.panics(n);
                Ok(())
            }
            (1, Some(_)) => self.lives(n, Hears::Done(kind, Err(String::from("its answer is lost")))),
            (1, None) => {
                self.loses(cast::id(n));
                Ok(())
            }
            (3, Some(outcome)) => {
                // An effect of another kind that was given up ends, too.
                self.lives(n, Hears::Done(EffectKind::Announce, Ok(EffectOutcome::Whole)))?;
                self.lives(n, Hears::Done(EffectKind::AskDirectory, Ok(EffectOutcome::Whole)))?;
                self.lives(n, Hears::Done(kind, outcome))
            }
            (_, Some(outcome)) => self.lives(n, Hears::Done(kind, outcome)),
            (_, None) => Ok(()), // it ends later
        }
    }

    /// Ends a life and all that it has begun; it is begun anew from what lies there.
    fn panics(&mut self, n: u16) {
        let after = 200 + self.below(800);
        let Some(machine) = self.machines.get_mut(&n) else { return };
        machine.living = None;
        let boot = machine.boot;
        self.put(after, Event::Begins(n, boot));
        self.loses(cast::id(n));
    }

    /// Facts by which laws judge an effect.
    fn facts(&self, n: u16) -> Facts<'_> {
        let machine = &self.machines[&n];
        let (id, disk) = (cast::id(n), &machine.disk);
        let mut known = disk.desired.iter().flat_map(|desired| desired.coordinators.keys().copied());
        // A word of then may be on its way.
        let tells = |copy: &RecordsCopy| copy.lost.is_none_or(|lost| self.now - lost < LAPSED + INTERVAL);
        Facts {
            kept: disk.desired.as_ref().expect("it lives"),
            goes_on_as_node: machine.heard.unsure,
            keys: disk.keys,
            has_begun: disk.etcd.is_some(),
            is_member: disk.etcd.is_some() && disk.etcd == self.etcd.added(&id) && !disk.alone,
            runs: machine.running.as_ref().map(|running| &running.plan),
            voices: machine.voices(),
            is_doubted: machine.heard.itself || !machine.heard.nodes.is_empty(),
            is_noted: disk.note.is_some(),
            noted_before: disk.note.is_some_and(|note| note.boot != machine.boot),
            is_recovered: disk.note.is_none_or(|note| self.laws.recoveries() > note.recoveries),
            is_alone: self.etcd.members().voters.keys().eq([&id]),
            may_be_uncounted: disk.note.is_some_and(|note| note.begun && note.recoveries == self.laws.recoveries()),
            is_uncounted: disk.alone,
            others_lead: known.any(|other| other != id && self.leads(other) && self.would_say(n, other)),
            others_tell: self.coordinators.iter().any(|(other, copy)| *other != id && tells(copy)),
        }
    }

    /// Whether a coordinator's etcd has a leader, and others reach it.
    pub(super) fn leads(&self, id: MachineId) -> bool {
        self.machines[&self.numbers[&id]].leads()
    }

    /// Whether a coordinator that leads would have said so when this machine asked it last; also where it was never asked.
    fn would_say(&self, n: u16, other: MachineId) -> bool {
        let machine = &self.machines[&n];
        let asked = machine.living.as_ref().and_then(|living| living.asked.get(&other));
        let reached_since = machine.reached_since.max(self.machines[&self.numbers[&other]].reached_since);
        asked.is_none_or(|asked| reached_since <= *asked)
    }

    /// Performs an effect on what lies and runs here.
    fn applies(&mut self, n: u16, effect: Effect) -> Result<Result<EffectOutcome, String>, Breach> {
        let id = cast::id(n);
        let machine = self.machines.get_mut(&n).expect("it lives");
        match effect {
            Effect::Keep(KeptFile::Desired(desired)) => machine.disk.desired = Some(*desired),
            Effect::Keep(KeptFile::Electorate(electorate)) => machine.disk.electorate = Some(electorate),
            Effect::Keep(KeptFile::Peers) => machine.disk.peers = machine.known.clone(),
            Effect::NoteJoin | Effect::DropRecovery => {
                machine.disk.note = None;
                self.all_turn();
            }
            Effect::TakeKeys((giver, _)) => return self.takes_keys(n, giver),
            Effect::LookAtEtcd => return Ok(Ok(EffectOutcome::Begun(machine.disk.etcd.is_some()))),
            Effect::Units(plan) => return self.units(n, plan),
            Effect::Kubernetes { assignment, signer } => return self.runs_kubernetes(n, (assignment, signer)),
            Effect::Face(face) => machine.face = Some(face),
            Effect::EraseShares => {
                self.esps.erase(id);
                self.opens_still()?;
            }
            Effect::EraseKeys => machine.disk.keys = false,
            Effect::EraseEtcd | Effect::PutEtcdAside => {
                (machine.disk.etcd, machine.disk.note, machine.disk.electorate) = (None, None, None);
                machine.disk.alone = false;
                self.all_turn();
            }
            Effect::CommitRecovery => return self.commits_recovery(n),
            Effect::WriteShare(holding, reason) => self.writes_share(id, &holding, reason)?,
            Effect::ReadOwnCopy { since } => return Ok(self.own_copy(n, since)),
            Effect::AskVote => return Ok(self.votes(n)),
            Effect::ChangeMember(step) => return self.changes_member(n, step),
            Effect::PassLead => {
                if self.etcd.leader() == Some(id) {
                    self.etcd.moves_leader();
                }
            }
            // etcd's backends, what Kubernetes keeps there, its list of revoked certificates and its audit are not shown.
            Effect::Defragment(_)
            | Effect::Restore { .. }
            | Effect::DropSnapshot
            | Effect::Revoke(_)
            | Effect::TrimAudit => {}
            Effect::Attend { .. }
            | Effect::Leave
            | Effect::Announce(_)
            | Effect::AskDirectory(_)
            | Effect::Directory { .. }
            | Effect::Mesh(_)
            | Effect::Order(_)
            | Effect::NeedOwner(_)
            | Effect::TakesKey(_)
            | Effect::Report(..)
            // Performed as they began, or answered later.
            | Effect::KeepRecords
            | Effect::Decide(_)
            | Effect::LookAtMembers => {}
        }
        Ok(Ok(EffectOutcome::Whole))
    }

    /// Copy of the records in a coordinator's own etcd, which is no newer than it was when that had a leader; a learner's is.
    fn own_copy(&self, n: u16, since: Option<u64>) -> Result<EffectOutcome, String> {
        let (id, machine) = (cast::id(n), &self.machines[&n]);
        if self.leads(id) || machine.disk.etcd.is_none() {
            return Ok(EffectOutcome::Whole);
        }
        let view = self.coordinators.get(&id).map_or_else(|| seen(&self.etcd), |copy| copy.view.clone());
        let is_newer = since.is_none_or(|since| view.revision() > since);
        Ok(if is_newer { EffectOutcome::OwnCopy(view.into()) } else { EffectOutcome::Whole })
    }

    /// Has a coordinator hand its keys over.
    pub(super) fn takes_keys(&mut self, n: u16, giver: MachineId) -> Result<Result<EffectOutcome, String>, Breach> {
        let id = cast::id(n);
        if !self.serves(giver) || !self.hears_from(Who::Machine(n), giver) {
            return Ok(Err(String::from("it is not reached")));
        }
        let (is_led, copy) = (self.leads(giver), &self.coordinators[&giver]);
        let etcd = is_led.then_some(&mut self.etcd);
        if let Err(why) = (self.parts.hand_over)(etcd, copy.view.state(), &id) {
            return Ok(Err(why));
        }
        law::given(n, is_led)?;
        let mut now = seen(&self.etcd);
        now.see(self.etcd.members(), self.etcd.look());
        law::handed_over(n, now.state().hands_over_to(&id))?;
        self.machines.get_mut(&n).expect("it lives").disk.keys = true;
        Ok(Ok(EffectOutcome::Whole))
    }

    /// Runs what a coordinator runs, or none of it.
    fn units(&mut self, n: u16, plan: Option<EtcdStart>) -> Result<Result<EffectOutcome, String>, Breach> {
        let (id, since) = (cast::id(n), self.now);
        let machine = self.machines.get_mut(&n).expect("it lives");
        machine.running = None;
        self.stops_serving(id);
        if let Some(plan) = plan {
            let machine = self.machines.get_mut(&n).expect("it lives");
            machine.disk.alone |= plan == EtcdStart::Recovered;
            machine.running = Some(Running { plan, led: false, since });
            self.turns(n);
        }
        Ok(Ok(EffectOutcome::Whole))
    }

    /// Has a machine's etcd run, or not, and its records be read or lost.
    pub(super) fn turns(&mut self, n: u16) {
        let id = cast::id(n);
        let others = self.other_members(id);
        let is_kept_off = self.is_kept_off(n);
        let (added, had_quorum) = (self.etcd.added(&id), self.etcd.has_quorum());
        let Some(machine) = self.machines.get_mut(&n) else { return };
        let reached = machine.is_reached() && !is_kept_off;
        let Some(running) = &mut machine.running else { return self.etcd.set_up(id, false) };
        if machine.disk.etcd.is_none() && added.is_some() && reached && had_quorum {
            // An etcd without data begins only beside the very members that there are.
            let begins = match &running.plan {
                EtcdStart::Existing { others: planned } => {
                    let mut planned: Vec<_> = planned.iter().map(|(_, vpn_ip)| *vpn_ip).collect();
                    planned.sort_unstable();
                    planned == others
                }
                EtcdStart::New | EtcdStart::Recovered => false,
            };
            machine.disk.etcd = added.filter(|_| begins);
        }
        let runs = reached && added.is_some() && machine.disk.etcd == added && !machine.disk.alone;
        self.etcd.set_up(id, runs);
        let led = runs && self.etcd.has_quorum() && self.etcd.members().voters.contains_key(&id);
        if led == running.led {
            return;
        }
        running.led = led;
        if !led {
            self.loses(id);
        }
    }

    /// Addresses of etcd's members beside one, in order.
    fn other_members(&self, id: MachineId) -> Vec<std::net::Ipv4Addr> {
        let members = self.etcd.members();
        let state = self.store.state();
        let all = members.voters.keys().chain(members.learners.keys()).filter(|other| **other != id);
        let mut all: Vec<_> = all.filter_map(|other| state.machine(other)).map(|machine| machine.vpn_ip).collect();
        all.sort_unstable();
        all
    }

    /// A coordinator's records are gone: nobody hears it any more.
    pub(super) fn stops_serving(&mut self, id: MachineId) {
        self.coordinators.remove(&id);
        self.turns(self.numbers[&id]);
        self.breaks_streams_of(id);
    }

    /// Tells a machine how its own records are.
    pub(super) fn own_records(&mut self, n: u16) -> Result<(), Breach> {
        let id = cast::id(n);
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        if machine.running.is_none() {
            return Ok(());
        }
        let Some(copy) = self.coordinators.get(&id).filter(|copy| copy.lost.is_none()) else {
            return self.lives(n, Hears::Records(OwnRecords::Lost));
        };
        let state = copy.view.state();
        if state.cluster().is_none() {
            return self.lives(n, Hears::Records(OwnRecords::Kept { desired: None, peers: None }));
        }
        let news = state.news(machine.known.version());
        (self.parts.hear)(&mut machine.known, news);
        let desired = (self.parts.desire)(state, &id).ok();
        let role = desired.as_ref().map(|desired| desired.assignment.role());
        machine.heard.itself |= role == Some(ClusterRole::Node);
        let records = OwnRecords::Kept { desired: desired.map(Box::new), peers: machine.known.version() };
        self.lives(n, Hears::Records(records))?;
        if role == Some(ClusterRole::Coordinator) {
            self.machines.get_mut(&n).expect("it lives").heard.coordinates();
        }
        Ok(())
    }

    /// Lets a machine in that was told so.
    pub(super) fn joins(&mut self, n: u16) -> Result<(), Breach> {
        let Some(desired) = self.store.state().desired_of_newcomer(&cast::id(n)) else { return Ok(()) };
        let machine = self.machines.get_mut(&n).expect("it asked");
        if machine.disk.desired.is_none() {
            machine.disk.desired = Some(desired);
            let boot = machine.boot;
            self.begins(n, boot)?;
        }
        Ok(())
    }

    /// Switches a machine off, or on.
    pub(super) fn power(&mut self, n: u16, power: Power) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&n) else { return };
        if machine.power == power {
            return;
        }
        (machine.power, machine.reached_since) = (power, now);
        match power {
            Power::Off => {
                (machine.living, machine.running, machine.face) = (None, None, None);
                machine.kubernetes = Kubernetes::default();
                machine.known = machine.disk.peers.clone();
                let recovers = machine.disk.note.is_some();
                self.stops_serving(cast::id(n));
                if recovers {
                    self.all_turn(); // nobody keeps them off any more
                }
                let after = 200 + self.below(1500);
                self.put(after, Event::Power(n, Power::On));
            }
            Power::On => {
                machine.boot += 1;
                self.asks_in(n, 30);
            }
        }
    }

    /// Law that every member on hears what there is of the others, asked for once more.
    pub(super) fn converges(&mut self) -> Result<(), Breach> {
        let all = seen(&self.etcd);
        for (n, machine) in &mut self.machines {
            if machine.is_member() && machine.power == Power::On {
                let news = all.state().news(machine.known.version());
                (self.parts.hear)(&mut machine.known, news);
                law::knows(*n, PeerBook::peers(&machine.known) == &all.state().peers())?;
            }
        }
        Ok(())
    }

    /// Whether machines ask this coordinator, and owners.
    pub(super) fn serves(&self, id: MachineId) -> bool {
        let machine = &self.machines[&self.numbers[&id]];
        self.coordinators.contains_key(&id) && machine.face == Some(Face::Coordinator)
    }
}
