//! The tree against a small model of the world, in virtual time: services that start slowly or never, die of
//! anything at any moment, leave children behind, ignore SIGTERM, survive SIGKILL for a while; and whoever owns the tree,
//! who wants other services at any moment, too.
//! The model judges every effect; it must never look into the machine except through its public face.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use supervise::{
    Backoff, ChangeError, Critical, Effect, Ending, Event, Fingerprint, Instance, Name, Need, Readiness, Report,
    Restart, RunExit, Spec, StopReason, Tree, UnitState,
};

const NAMES: [&str; 7] = ["kernel", "uplink", "mesh", "etcd", "containerd", "apiserver", "kubelet"];
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), stable: Duration::from_secs(20) };

/// How one run behaves; times in milliseconds after its spawn.
#[derive(Debug, Clone, Copy)]
struct Script {
    spawn: Spawn,
    ready_after: Option<u64>,
    dies: Option<(u64, RunExit)>,
    /// `None`: SIGTERM is ignored.
    obeys_after: Option<u64>,
    orphans: Orphans,
    kill_takes: u64,
    /// The cgroup's event overtakes the exit status.
    empty_first: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    ExitFirst,
    EmptyFirst,
}

#[derive(Debug, Clone, Copy)]
enum Spawn {
    Takes(u64),
    Fails,
}

#[derive(Debug, Clone, Copy)]
enum Orphans {
    None,
    EndAfter(u64),
    StayUntilKilled,
}

/// Extent to which a run exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Alive {
    attempt: u64,
    spawned: bool,
    main: bool,
    children: bool,
    ready: bool,
    told_to_stop: bool,
    killed: bool,
    exit_seen: bool,
    empty_seen: bool,
    script: usize,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Spawn,
    BecomeReady,
    MainDies(RunExit),
    ChildrenEnd,
    ReportExit(RunExit),
    ReportEmpty,
    Restart,
    StopAll(Duration),
    /// The set of this index is wanted.
    Want(usize),
}

struct World {
    now: Instant,
    tree: Tree,
    /// Services of the tree's own.
    own: Vec<Spec>,
    /// Sets that are wanted beside them, in time.
    sets: Vec<Vec<Spec>>,
    /// The set that was wanted last and was a table.
    wanted: BTreeMap<Name, Spec>,
    /// Services that the tree has, as the world knows it.
    present: BTreeMap<Name, Spec>,
    /// Services among them that leave.
    leaving: BTreeSet<Name>,
    /// Told to stop for reasons of their own before they had to leave, whose order does not bind them.
    stopping_before_leaving: BTreeSet<Name>,
    /// Services that are to be restarted since somebody asks for it, or since they were not ready in time.
    asked: BTreeSet<Name>,
    /// The last attempt of each name.
    attempts: BTreeMap<Name, u64>,
    scripts: Vec<Script>,
    next_script: usize,
    alive: BTreeMap<Name, Alive>,
    /// Latest state of tasks that ended well.
    finished: Vec<Name>,
    agenda: BTreeMap<(Instant, u64), (Instance, Due)>,
    sequence: u64,
    waits: BTreeMap<Name, Vec<Duration>>,
    stop_until: Option<Instant>,
    /// Told to stop for reasons of their own before the stop of all, whose order does not bind them.
    stopping_before: Vec<Name>,
    forced: bool,
    over: bool,
    /// Services that survived the stop.
    left: Vec<Name>,
    escalated: Vec<Name>,
}

impl World {
    /// A tree that begins with its own services, and is to have `sets` beside them.
    fn new(own: Vec<Spec>, sets: Vec<Vec<Spec>>, scripts: Vec<Script>) -> Self {
        let now = testkit::origin();
        let mut out = Vec::new();
        let present = own.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
        let tree = Tree::start(own.clone(), now, &mut out).expect("needs name earlier services only");
        let mut world = Self {
            now,
            tree,
            own,
            sets,
            wanted: BTreeMap::new(),
            present,
            leaving: BTreeSet::new(),
            stopping_before_leaving: BTreeSet::new(),
            asked: BTreeSet::new(),
            attempts: BTreeMap::new(),
            scripts,
            next_script: 0,
            alive: BTreeMap::new(),
            finished: Vec::new(),
            agenda: BTreeMap::new(),
            sequence: 0,
            waits: BTreeMap::new(),
            stop_until: None,
            stopping_before: Vec::new(),
            forced: false,
            over: false,
            left: Vec::new(),
            escalated: Vec::new(),
        };
        world.perform(out);
        world
    }

    fn plan(&mut self, after: u64, instance: Instance, due: Due) {
        self.sequence += 1;
        self.agenda.insert((self.now + Duration::from_millis(after), self.sequence), (instance, due));
    }

    /// Lets the next thing happen, whichever side it is on; false when neither has anything left to do.
    fn step(&mut self) -> bool {
        let own = self.agenda.first_key_value().map(|(&(at, _), _)| at);
        let tree = self.tree.poll_timeout().map(|(at, _)| at);
        match (own, tree) {
            (None, None) => return false,
            (own, Some(due)) if own.is_none_or(|at| due <= at) => {
                self.now = self.now.max(due);
                self.tell(Event::Tick);
            }
            (Some(_), _) | (None, Some(_)) => {
                let ((at, _), (instance, due)) = self.agenda.pop_first().expect("looked at above");
                self.now = self.now.max(at);
                self.happen(instance, due);
            }
        }
        true
    }

    fn tell(&mut self, event: Event) {
        let mut out = Vec::new();
        self.tree.handle(event, self.now, &mut out);
        self.perform(out);
    }

    fn happen(&mut self, instance: Instance, due: Due) {
        match due {
            Due::Restart => {
                if self.present.contains_key(&instance.service) {
                    self.asked.insert(instance.service.clone());
                    self.tell(Event::RestartRequested(instance.service));
                }
                return;
            }
            Due::Want(set) => return self.want(set),
            Due::StopAll(within) => {
                let until = self.now + within;
                if self.stop_until.is_none() {
                    let stopping =
                        self.tree.statuses().into_iter().filter(|status| status.state == UnitState::Stopping);
                    self.stopping_before = stopping.map(|status| status.name).collect();
                    // What leaves stops with all others, and nothing takes its place.
                    self.leaving.clear();
                }
                self.stop_until = Some(self.stop_until.map_or(until, |earlier| earlier.min(until)));
                return self.tell(Event::StopAll { reason: StopReason::PowerOff, within });
            }
            Due::Spawn
            | Due::BecomeReady
            | Due::MainDies(_)
            | Due::ChildrenEnd
            | Due::ReportExit(_)
            | Due::ReportEmpty => {}
        }
        let Some(run) = self.alive.get_mut(&instance.service).filter(|run| run.attempt == instance.attempt) else {
            return;
        };
        let script = self.scripts[run.script];
        match due {
            Due::Spawn => match script.spawn {
                Spawn::Fails => {
                    self.alive.remove(&instance.service);
                    self.tell(Event::SpawnFailed { instance, errno: 12 });
                }
                Spawn::Takes(_) => {
                    run.spawned = true;
                    run.main = true;
                    run.children = !matches!(script.orphans, Orphans::None);
                    if let Some((after, exit)) = script.dies {
                        self.plan(after, instance.clone(), Due::MainDies(exit));
                    }
                    self.tell(Event::Spawned(instance));
                }
            },
            Due::BecomeReady => {
                if run.main {
                    run.ready = true;
                    self.tell(Event::Ready(instance));
                }
            }
            Due::MainDies(exit) => {
                if !run.main {
                    return;
                }
                run.main = false;
                let empty = !run.children;
                match script.empty_first {
                    Order::EmptyFirst if empty => {
                        self.plan(0, instance.clone(), Due::ReportEmpty);
                        self.plan(3, instance.clone(), Due::ReportExit(exit));
                    }
                    Order::EmptyFirst | Order::ExitFirst => {
                        self.plan(0, instance.clone(), Due::ReportExit(exit));
                        if empty {
                            self.plan(3, instance.clone(), Due::ReportEmpty);
                        }
                    }
                }
                match script.orphans {
                    Orphans::EndAfter(after) => self.plan(after, instance, Due::ChildrenEnd),
                    Orphans::None | Orphans::StayUntilKilled => {}
                }
            }
            Due::ChildrenEnd => {
                if run.children {
                    run.children = false;
                    if !run.main {
                        self.plan(1, instance, Due::ReportEmpty);
                    }
                }
            }
            Due::ReportExit(exit) => {
                run.exit_seen = true;
                self.forget_if_gone(&instance.service, Some(exit));
                self.tell(Event::Exited { instance, exit });
            }
            Due::ReportEmpty => {
                if !run.empty_seen {
                    run.empty_seen = true;
                    self.forget_if_gone(&instance.service, None);
                    self.tell(Event::CgroupEmpty(instance));
                }
            }
            Due::Restart | Due::StopAll(_) | Due::Want(_) => {}
        }
    }

    fn forget_if_gone(&mut self, name: &Name, exit: Option<RunExit>) {
        let run = self.alive[name];
        let may_finish = !matches!(self.spec(name).restart, Restart::Always(_));
        if may_finish && exit.is_some_and(RunExit::is_success) && !run.told_to_stop {
            self.finished.push(name.clone());
        }
        if run.exit_seen && run.empty_seen {
            self.alive.remove(name);
        }
    }

    fn spec(&self, name: &Name) -> &Spec {
        self.present.get(name).expect("a service of this tree")
    }

    /// All that `name` needs, through others too.
    fn needs_of(&self, name: &Name) -> Vec<Name> {
        let mut found = Vec::new();
        let mut open = vec![name.clone()];
        while let Some(current) = open.pop() {
            for need in self.spec(&current).needs.iter().map(Need::service) {
                if !found.contains(need) {
                    found.push(need.clone());
                    open.push(need.clone());
                }
            }
        }
        found
    }

    /// Has the tree want a set, and judges what it says: a set is taken exactly where it is a table beside the tree's own.
    fn want(&mut self, set: usize) {
        let specs = self.sets[set].clone();
        let table = [self.own.clone(), specs.clone()].concat();
        let is_table = Tree::start(table, self.now, &mut Vec::new()).is_ok();
        let before = self.tree.statuses();
        let mut out = Vec::new();
        let anew = match self.tree.want(specs.clone(), self.now, &mut out) {
            Ok(anew) => anew,
            Err(refused) => {
                let stops = self.stop_until.is_some();
                assert!(
                    stops == (refused == ChangeError::Stopping) && (stops || !is_table),
                    "{refused} about {specs:?}"
                );
                assert_eq!((&out[..], self.tree.statuses()), (&[][..], before), "a refusal changes nothing");
                return;
            }
        };
        assert!(self.stop_until.is_none() && is_table, "{specs:?} beside {:?}", self.own);
        let equal = specs.iter().filter(|spec| self.present.get(&spec.name) == Some(spec)).map(|spec| &spec.name);
        let equal: BTreeSet<Name> = equal.filter(|name| !self.leaving.contains(*name)).cloned().collect();
        let is_own = |name: &Name| self.own.iter().any(|spec| spec.name == *name);
        for status in before {
            let stays = is_own(&status.name) || equal.contains(&status.name);
            if stays && !matches!(status.state, UnitState::Waiting(_)) {
                assert_eq!(self.tree.status(status.name.as_str()), Some(status), "what is equal is not touched");
            } else if !stays {
                let fresh = self.leaving.insert(status.name.clone());
                // One that was replaced alone while it was being spawned is told so as soon as it exists.
                let untold = self.alive.get(&status.name).is_some_and(|run| !run.spawned);
                if status.state == UnitState::Stopping && (fresh || untold) {
                    self.stopping_before_leaving.insert(status.name);
                }
            }
        }
        let expected: BTreeSet<&Name> =
            specs.iter().map(|spec| &spec.name).filter(|name| !equal.contains(*name)).collect();
        assert_eq!(anew.iter().collect::<BTreeSet<_>>(), expected, "what is new, differs or returns is started");
        self.wanted = specs.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
        for spec in specs {
            self.present.entry(spec.name.clone()).or_insert(spec);
        }
        self.perform(out);
    }

    /// Ends a service that leaves, of which nothing is left; what is wanted under its name takes its place.
    fn left(&mut self, name: &Name) {
        assert!(self.leaving.remove(name), "{name} leaves, and once");
        assert!(!self.alive.contains_key(name), "{name} is gone while something of it runs");
        for other in &self.leaving {
            assert!(!self.needs_of(other).contains(name), "{name} is gone before {other}, which needs it and leaves");
        }
        match self.wanted.get(name) {
            Some(spec) => drop(self.present.insert(name.clone(), spec.clone())),
            None => drop(self.present.remove(name)),
        }
        assert_eq!(self.tree.find(name.as_str()).is_some(), self.present.contains_key(name), "{name}");
        self.stopping_before_leaving.remove(name);
        self.asked.remove(name);
        self.waits.remove(name);
        self.finished.retain(|finished| finished != name);
        self.escalated.retain(|escalated| escalated != name);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        // The world looks at the tree only when all of this has come out of it.
        for effect in effects {
            if self.over {
                assert!(matches!(effect, Effect::Report(_)), "only reports after the end, not {effect:?}");
                continue;
            }
            match effect {
                Effect::Start(instance) => self.start(instance),
                Effect::Probe(instance) => {
                    let run = self.alive[&instance.service];
                    assert!(run.spawned && !run.ready, "probed once, after its spawn");
                    if let Some(after) = self.scripts[run.script].ready_after {
                        self.plan(after, instance, Due::BecomeReady);
                    }
                }
                Effect::Terminate(instance) => self.terminate(instance),
                Effect::Kill(instance) => self.kill(instance),
                Effect::Escalate { service, .. } => {
                    assert!(self.spec(&service).critical.is_some(), "only critical services escalate");
                    self.escalated.push(service);
                }
                Effect::Report(report) => self.note(report),
                Effect::Left(name) => self.left(&name),
                Effect::AllStopped { left, .. } => {
                    let until = self.stop_until.expect("stopped because it was asked to");
                    assert!(self.now <= until, "the stop ends in time");
                    let alive: Vec<Name> = self.alive.keys().cloned().collect();
                    let mut listed: Vec<Name> = left.iter().map(|instance| instance.service.clone()).collect();
                    listed.sort_unstable();
                    assert_eq!(listed, alive, "what is left is told");
                    assert!(left.is_empty() || self.now == until, "nothing is given up before the time is over");
                    self.over = true;
                    self.left = listed;
                }
            }
        }
    }

    fn start(&mut self, instance: Instance) {
        let name = &instance.service;
        assert!(self.stop_until.is_none(), "{name} started during the stop");
        assert!(self.present.contains_key(name) && !self.leaving.contains(name), "{name} started on its way out");
        assert!(!self.alive.contains_key(name), "two instances of {name}");
        let earlier = self.attempts.insert(name.clone(), instance.attempt);
        assert!(earlier.is_none_or(|earlier| earlier < instance.attempt), "two runs of {name} have one number");
        for need in &self.spec(name).needs {
            let other = need.service();
            let finished = self.finished.contains(other);
            let run = self.alive.get(other).filter(|run| !run.told_to_stop && !run.exit_seen);
            let holds = match (need, self.spec(other).ready) {
                (Need::Finished(_), _) => false,
                (Need::Ready(_), Readiness::Probe) => run.is_some_and(|run| run.ready),
                (Need::Ready(_), Readiness::OnStart) | (Need::Started(_), _) => run.is_some_and(|run| run.spawned),
            };
            assert!(finished || holds, "{name} started although {need:?} does not hold");
        }
        if let Some(group) = &self.spec(name).group {
            let beside = |spec: &&Spec| spec.group.as_ref() == Some(group) && spec.name != *name;
            for other in self.present.values().filter(beside).filter(|other| !self.leaving.contains(&other.name)) {
                let run = self.alive.get(&other.name);
                assert!(
                    run.is_none_or(|run| !run.told_to_stop && !run.exit_seen),
                    "{name} started while {} of its group is still ending",
                    other.name
                );
            }
        }
        let script = self.next_script % self.scripts.len();
        self.next_script += 1;
        self.asked.remove(name);
        self.finished.retain(|finished| finished != name);
        self.alive.insert(
            name.clone(),
            Alive {
                attempt: instance.attempt,
                spawned: false,
                main: false,
                children: false,
                ready: false,
                told_to_stop: false,
                killed: false,
                exit_seen: false,
                empty_seen: false,
                script,
            },
        );
        let after = match self.scripts[script].spawn {
            Spawn::Takes(after) => after,
            Spawn::Fails => 1,
        };
        self.plan(after, instance, Due::Spawn);
    }

    fn terminate(&mut self, instance: Instance) {
        if self.stop_until.is_some() && !self.forced && !self.stopping_before.contains(&instance.service) {
            let behind = self.alive.keys().find(|other| self.needs_of(other).contains(&instance.service));
            assert_eq!(behind, None, "{} told to stop before what needs it was gone", instance.service);
        }
        let name = &instance.service;
        if self.leaving.contains(name) && !self.stopping_before_leaving.contains(name) && !self.forced {
            let waited = |other: &&Name| self.leaving.contains(*other) || !self.wanted.contains_key(name);
            let behind = self.alive.keys().filter(waited).find(|other| self.needs_of(other).contains(name));
            assert_eq!(behind, None, "{name} has to leave before what needs it was gone");
        }
        if self.stop_until.is_none() && !self.leaving.contains(name) {
            let cause = self.spec(name).group.is_some() || self.asked.contains(name);
            assert!(cause, "{name} told to stop though it stays, and nobody asked for it");
        }
        let run = self.alive.get_mut(&instance.service).expect("told to stop while it exists");
        assert!(run.spawned && !run.told_to_stop, "told to stop once, after its spawn");
        run.told_to_stop = true;
        if let Some(after) = self.scripts[run.script].obeys_after {
            self.plan(after, instance, Due::MainDies(RunExit::Signal(15)));
        }
    }

    fn kill(&mut self, instance: Instance) {
        let run = self.alive.get_mut(&instance.service).expect("killed while it exists");
        assert!(run.spawned, "killed after its spawn");
        run.told_to_stop = true;
        if !std::mem::replace(&mut run.killed, true) {
            let after = self.scripts[run.script].kill_takes;
            self.plan(after, instance.clone(), Due::ChildrenEnd);
            self.plan(after, instance, Due::MainDies(RunExit::Signal(9)));
        }
    }

    fn note(&mut self, report: Report) {
        match report {
            Report::Failed { instance, failures, ending, retry: Some(delay) } => {
                if ending == Ending::StartDeadline {
                    self.asked.insert(instance.service.clone());
                }
                let waits = self.waits.entry(instance.service).or_default();
                if failures == 1 {
                    waits.clear();
                }
                waits.push(delay);
                assert_eq!(waits.len(), failures as usize, "every failure in a row is counted");
                assert!(waits.is_sorted(), "back-off never shrinks while it fails");
                assert!(*waits.last().expect("just pushed") <= BACKOFF.cap, "back-off has a cap");
                assert_eq!(delay, BACKOFF.delay(failures), "back-off is exponential");
            }
            Report::Stable(instance) => {
                let status = self.tree.status(instance.service.as_str()).expect("a service of this tree");
                assert!(self.now >= status.since + BACKOFF.stable, "forgiven after stable uptime only");
                self.waits.remove(&instance.service);
            }
            Report::StopForced { .. } => self.forced = true,
            Report::Failed { instance, .. } => drop(self.asked.insert(instance.service)),
            Report::Finished(_) | Report::StopDeadline(_) | Report::Unkillable { .. } | Report::DoesNotFit { .. } => {}
            Report::UnknownService(event) | Report::StaleInstance(event) => {
                panic!("the world speaks only of what exists: {event:?}")
            }
        }
    }
}

fn exit() -> impl Strategy<Value = RunExit> {
    prop_oneof![Just(RunExit::Code(0)), Just(RunExit::Code(1)), Just(RunExit::Signal(11)), Just(RunExit::Panicked)]
}

fn script() -> impl Strategy<Value = Script> {
    let spawn = prop_oneof![8 => (0_u64..50).prop_map(Spawn::Takes), 1 => Just(Spawn::Fails), 1 => (500_u64..4000).prop_map(Spawn::Takes)];
    let ready_after = prop_oneof![6 => (0_u64..1500).prop_map(Some), 1 => Just(None)];
    let dies = prop_oneof![
        2 => (0_u64..3000, exit()).prop_map(Some),
        2 => (0_u64..60_000, exit()).prop_map(Some),
        2 => Just(None)
    ];
    let obeys_after = prop_oneof![5 => (0_u64..2500).prop_map(Some), 1 => Just(None)];
    let orphans = prop_oneof![
        3 => Just(Orphans::None),
        1 => (0_u64..3000).prop_map(Orphans::EndAfter),
        1 => Just(Orphans::StayUntilKilled)
    ];
    let kill_takes = prop_oneof![6 => 0_u64..20, 1 => 1000_u64..15_000];
    let empty_first = prop_oneof![Just(Order::ExitFirst), Just(Order::EmptyFirst)];
    (spawn, ready_after, dies, obeys_after, orphans, kill_takes, empty_first).prop_map(
        |(spawn, ready_after, dies, obeys_after, orphans, kill_takes, empty_first)| Script {
            spawn,
            ready_after,
            dies,
            obeys_after,
            orphans,
            kill_takes,
            empty_first,
        },
    )
}

/// A service of a random table, whose services have `names`; needs point to earlier services only.
fn spec(names: [&'static str; 7], index: usize) -> impl Strategy<Value = Spec> {
    let needs = proptest::collection::btree_map(0..index.max(1), 0_u8..3, 0..=index.min(3));
    let critical = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Critical { failures: 4, within: Duration::from_secs(10) }))
    ];
    (needs, 0_u8..4, any::<bool>(), 0_u8..5, critical, 200_u64..3000).prop_map(
        move |(needs, group, probe, restart, critical, stop)| {
            let needs: Vec<Need> = needs
                .into_iter()
                .map(|(other, kind)| match kind {
                    0 => Need::ready(names[other]),
                    1 => Need::started(names[other]),
                    _ => Need::finished(names[other]),
                })
                .collect();
            let group = (group == 0).then(|| Name::from("pair"));
            let restart = match (&group, restart) {
                (None, 0) => Restart::Never,
                (None, 1) => Restart::UntilSuccess(BACKOFF),
                (None | Some(_), _) => Restart::Always(BACKOFF),
            };
            Spec {
                name: names[index].into(),
                content: Fingerprint::TASK,
                needs,
                group,
                start_deadline: Duration::from_secs(2),
                stop_deadline: Duration::from_millis(stop),
                restart,
                ready: if probe { Readiness::Probe } else { Readiness::OnStart },
                critical,
            }
        },
    )
}

/// A table; the order of its services is that of [`NAMES`] or the opposite, so that two of them may contradict each other.
fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let names = any::<bool>().prop_map(|opposite| {
        let mut names = NAMES;
        if opposite {
            names.reverse();
        }
        names
    });
    (names, 1..=NAMES.len())
        .prop_flat_map(|(names, count)| (0..count).map(|index| spec(names, index)).collect::<Vec<_>>())
}

/// Whether a set has all that a service of it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    /// Services alone that have their bit in the mask: mostly refused.
    Alone,
    /// With all that they need.
    WithNeeds,
}

/// How a set is chosen from tables: by a mask of the first, with some services as the second has them, and others changed in their
/// content alone.
#[derive(Debug, Clone)]
struct Choice {
    at: u64,
    chosen: Chosen,
    mask: u8,
    second: u8,
    changed: u8,
}

fn choice() -> impl Strategy<Value = Choice> {
    let chosen = prop_oneof![1 => Just(Chosen::Alone), 6 => Just(Chosen::WithNeeds)];
    // Sets differ in little, as a rule.
    let few = || prop_oneof![2 => Just(0_u8), 1 => any::<u8>()];
    (0_u64..60_000, chosen, any::<u8>(), few(), few()).prop_map(|(at, chosen, mask, second, changed)| Choice {
        at,
        chosen,
        mask,
        second,
        changed,
    })
}

impl Choice {
    fn set(&self, first: &[Spec], second: &[Spec], own: &[Spec]) -> Vec<Spec> {
        let bit = |mask: u8, name: &Name| {
            NAMES.iter().position(|other| name == other).is_some_and(|bit| mask & (1 << bit) != 0)
        };
        let named = |name: &Name| {
            let table = if bit(self.second, name) { second } else { first };
            let spec = table.iter().chain(first).find(|spec| spec.name == *name)?;
            let content = if bit(self.changed, name) { Fingerprint::of(&"changed") } else { Fingerprint::TASK };
            Some(Spec { content, ..spec.clone() })
        };
        let is_own = |name: &Name| own.iter().any(|spec| spec.name == *name);
        let mut set: Vec<Spec> = Vec::new();
        let mut open: Vec<Name> = NAMES.map(Name::from).into_iter().filter(|name| bit(self.mask, name)).collect();
        while let Some(name) = open.pop() {
            if is_own(&name) || set.iter().any(|spec| spec.name == name) {
                continue;
            }
            if let Some(spec) = named(&name) {
                if self.chosen == Chosen::WithNeeds {
                    open.extend(spec.needs.iter().map(|need| need.service().clone()));
                }
                set.push(spec);
            }
        }
        ending(own, set)
    }
}

/// Specs in which nobody waits for the end of a service that runs for good, be it of `own`, but until that is ready.
fn ending(own: &[Spec], mut specs: Vec<Spec>) -> Vec<Spec> {
    let endless = |spec: &&Spec| matches!(spec.restart, Restart::Always(_));
    let endless: Vec<Name> = own.iter().chain(&specs).filter(endless).map(|spec| spec.name.clone()).collect();
    for need in specs.iter_mut().flat_map(|spec| &mut spec.needs) {
        if let Need::Finished(name) = need
            && endless.contains(name)
        {
            *need = Need::Ready(name.clone());
        }
    }
    specs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Proves: O2, O12. Whatever the world does: one instance at a time, no start before its needs hold, group members
    /// start only when all are ready to, back-off grows and is forgiven by stable uptime only, the stop goes in
    /// reverse order of needs, ends within its time and nothing but reports follows it. Other services are wanted meanwhile:
    /// what is equal is not touched, what differs is replaced alone, who leaves stops after all that need it and leave,
    /// leaves nothing, and comes back only then.
    #[test]
    fn the_tree_keeps_its_rules_in_any_world(
        first in specs(),
        second in specs(),
        own in 0..3_usize,
        choices in proptest::collection::vec(choice(), 0..8),
        scripts in proptest::collection::vec(script(), 1..24),
        restarts in proptest::collection::vec((0_u64..60_000, 0..NAMES.len()), 0..4),
        stop_at in 0_u64..90_000,
        within in 100_u64..30_000,
    ) {
        let own = ending(&[], first[..own.min(first.len())].to_vec());
        let sets = choices.iter().map(|choice| choice.set(&first, &second, &own)).collect();
        let mut world = World::new(own, sets, scripts);
        let nobody = Instance { service: "".into(), attempt: 0 };
        for (at, index) in restarts {
            world.plan(at, Instance { service: NAMES[index].into(), attempt: 0 }, Due::Restart);
        }
        for (index, choice) in choices.iter().enumerate() {
            world.plan(choice.at, nobody.clone(), Due::Want(index));
        }
        world.plan(stop_at, nobody.clone(), Due::StopAll(Duration::from_millis(within)));
        world.plan(stop_at + 50, nobody, Due::StopAll(Duration::from_millis(within * 2)));
        let mut steps = 0;
        while world.step() {
            steps += 1;
            prop_assert!(steps < 100_000, "the world comes to rest");
        }
        prop_assert!(world.over && world.tree.is_over());
        prop_assert!(world.tree.poll_timeout().is_none());
        for status in world.tree.statuses().into_iter().filter(|status| !world.left.contains(&status.name)) {
            prop_assert!(matches!(status.state, UnitState::Stopped | UnitState::Finished | UnitState::Failed), "{status:?}");
        }
    }

    /// A world that stops misbehaving ends up with every service up that is wanted, as it was wanted last: nothing is forgotten on
    /// the way, and what is not wanted is gone.
    #[test]
    fn a_healthy_world_becomes_ready(
        mut first in specs(),
        mut second in specs(),
        mut scripts in proptest::collection::vec(script(), 0..16),
        own in 0..3_usize,
        choices in proptest::collection::vec(choice(), 1..5),
    ) {
        for spec in first.iter_mut().chain(&mut second) {
            spec.restart = Restart::Always(BACKOFF);
            spec.critical = None;
        }
        let own = ending(&[], first[..own.min(first.len())].to_vec());
        let bad = scripts.len();
        let healthy = Script {
            spawn: Spawn::Takes(1),
            ready_after: Some(5),
            dies: None,
            obeys_after: Some(1),
            orphans: Orphans::None,
            kill_takes: 1,
            empty_first: Order::ExitFirst,
        };
        // Later runs are healthy: the scripts are used round and round, so there are more of these than of runs.
        scripts.extend(std::iter::repeat_n(healthy, 10_000));
        let sets = choices.iter().map(|choice| choice.set(&first, &second, &own)).collect();
        let mut world = World::new(own, sets, scripts);
        let nobody = Instance { service: "".into(), attempt: 0 };
        for (index, choice) in choices.iter().enumerate() {
            // Soon after one another: what the one has leave is there still when the next is wanted.
            world.plan(choice.at / 20, nobody.clone(), Due::Want(index));
        }
        (0..50_000).find(|_| !world.step()).expect("the world comes to rest");
        prop_assert!(world.leaving.is_empty(), "{:?}", world.leaving);
        prop_assert_eq!(world.tree.leaving().count(), 0);
        let own = world.own.iter().map(|spec| (spec.name.clone(), spec.clone()));
        let all: BTreeMap<Name, Spec> = own.chain(world.wanted.clone()).collect();
        prop_assert_eq!(&world.present, &all);
        prop_assert!(world.next_script < 10_000 + bad);
        let names: BTreeSet<Name> = world.tree.statuses().into_iter().map(|status| status.name).collect();
        prop_assert_eq!(names, all.into_keys().collect());
        for status in world.tree.statuses() {
            prop_assert_eq!(status.state, UnitState::Ready, "{}", status.name);
            prop_assert_eq!(status.failures, 0);
            prop_assert!(!matches!(status.last, Some(Ending::StartDeadline)) || status.restarts > 0);
        }
    }
}
