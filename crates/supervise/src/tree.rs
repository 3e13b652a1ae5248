//! The machine: which service starts, which stops, which waits, in what order all of it ends.
//! It must never read a clock or do anything itself; see the crate's page for the picture and the shell's duties.
//!
//! The tree as a whole runs, stops in order, is killed, and is over:
//! ```text
//!    Running ── StopAll ──► Ordered ── the end is near ──► Forced
//!                              └──── nothing left ────►  Over ◄── nothing left, or the end
//! ```

use std::time::{Duration, Instant};

use crate::spec::Order;
use crate::unit::{Phase, Run, Stage, Then, Unit};
use crate::{
    Blocker, ChangeError, Effect, Ending, Event, Instance, InvalidTree, Name, Readiness, Report, Restart, RunExit,
    Spec, StopReason, UnitStatus,
};

/// Between two kills of what survives them: a process in uninterruptible sleep may need that long.
const KILL_REPEAT: Duration = Duration::from_secs(2);
/// Longest end of the time to stop everything that is kept for killing: a quarter, but no more than this.
const KILL_RESERVE: Duration = Duration::from_secs(5);

/// Supervision tree: all services with their states, and the order of their needs.
#[derive(Debug)]
pub struct Tree {
    /// First its own, then those that are wanted, or were and leave.
    units: Vec<Unit>,
    /// How many of them are its own.
    own: usize,
    order: Order,
    course: Course,
    /// The highest attempt of all services that have left: who comes later under the same name counts on from here.
    attempts_left: u64,
}

#[derive(Debug, Clone, Copy)]
enum Course {
    Running,
    Ordered { reason: StopReason, kill_at: Instant, end: Instant },
    Forced { reason: StopReason, end: Instant },
    Over,
}

/// Whether an event could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
}

impl Tree {
    /// Takes the table of its own services, which stay for as long as it runs, and starts what needs nothing.
    ///
    /// # Errors
    /// [`InvalidTree`] names the services of a table that cannot work.
    pub fn start(specs: Vec<Spec>, now: Instant, out: &mut Vec<Effect>) -> Result<Self, InvalidTree> {
        let order = Order::of(&specs.iter().collect::<Vec<_>>())?;
        let units: Vec<Unit> = specs.into_iter().map(|spec| Unit::new(spec, 0, now)).collect();
        let mut tree = Self { own: units.len(), units, order, course: Course::Running, attempts_left: 0 };
        tree.settle(now, out);
        Ok(tree)
    }

    /// Takes further services of its own, all of them or none, which stay for as long as it runs, and starts those whose needs
    /// hold. They need each other and those that were its own before, none of those that are wanted.
    ///
    /// # Errors
    /// [`ChangeError`]
    pub fn take(&mut self, specs: Vec<Spec>, now: Instant, out: &mut Vec<Effect>) -> Result<(), ChangeError> {
        self.judge(&specs)?;
        let (_, wanted) = self.units.split_at(self.own);
        if let Some(named) = specs.iter().find(|spec| wanted.iter().any(|unit| unit.spec.name == spec.name)) {
            return Err(InvalidTree::Duplicate(named.name.clone()).into());
        }
        let fresh: Vec<Unit> = specs.into_iter().map(|spec| Unit::new(spec, self.attempts_left, now)).collect();
        let more = self.own + fresh.len();
        self.units.splice(self.own..self.own, fresh);
        self.own = more;
        self.change(now, out);
        Ok(())
    }

    /// Runs `specs` beside its own services from now on, and nothing else. What is not among them leaves after all that need it
    /// have left; what is new starts; what differs leaves alone, and its successor waits until it has left, as does a name that
    /// returns on its way out. What is equal is not touched. Returns the names of `specs` that are started anew, now or later;
    /// where such a name is in the tree already, [`Effect::Left`] comes first.
    ///
    /// # Errors
    /// [`ChangeError`]
    pub fn want(&mut self, specs: Vec<Spec>, now: Instant, out: &mut Vec<Effect>) -> Result<Vec<Name>, ChangeError> {
        self.judge(&specs)?;
        let mut wanted: Vec<Option<Spec>> = specs.into_iter().map(Some).collect();
        let mut anew = Vec::new();
        for unit in &mut self.units[self.own..] {
            let named = |spec: &&mut Option<Spec>| spec.as_ref().is_some_and(|spec| spec.name == unit.spec.name);
            let next = wanted.iter_mut().find(named).and_then(Option::take);
            if !unit.is_leaving() && next.as_ref() == Some(&unit.spec) {
                continue;
            }
            anew.extend(next.as_ref().map(|spec| spec.name.clone()));
            unit.leave(next, now);
        }
        for spec in wanted.into_iter().flatten() {
            anew.push(spec.name.clone());
            self.units.push(Unit::new(spec, self.attempts_left, now));
        }
        self.change(now, out);
        Ok(anew)
    }

    /// Services that are on their way out: [`Effect::Left`] tells of each when it is gone.
    pub fn leaving(&self) -> impl Iterator<Item = &Name> {
        self.units.iter().filter(|unit| unit.is_leaving()).map(|unit| &unit.spec.name)
    }

    /// Judges `specs` as a table beside the tree's own services.
    fn judge(&self, specs: &[Spec]) -> Result<(), ChangeError> {
        if !matches!(self.course, Course::Running) {
            return Err(ChangeError::Stopping);
        }
        Order::of(&self.units[..self.own].iter().map(|unit| &unit.spec).chain(specs).collect::<Vec<_>>())?;
        Ok(())
    }

    /// Reads the order of a table that has changed, and goes on by it.
    fn change(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.read_order();
        self.settle(now, out);
    }

    /// Reads the order of a table in which services on their way out stand beside those of a later set. Each that is needed is there:
    /// what leaves, and what it is replaced by, does so after all that need it and leave. So nothing of an earlier set comes to need
    /// a later one, and needs go in no circle.
    fn read_order(&mut self) {
        self.order = Order::read(&self.units.iter().map(|unit| &unit.spec).collect::<Vec<_>>());
    }

    /// Takes one event and appends what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        if matches!(self.course, Course::Over) {
            if event != Event::Tick {
                out.push(Effect::Report(Report::DoesNotFit { event, state: "all stopped" }));
            }
            return;
        }
        self.apply(event, now, out);
        self.expire(now, out);
        self.settle(now, out);
    }

    /// When [`Event::Tick`] is due next, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let whole = match self.course {
            Course::Running => None,
            Course::Ordered { kill_at, .. } => Some((kill_at, "end of the ordered stop")),
            Course::Forced { end, .. } => Some((end, "end of the stop")),
            Course::Over => return None,
        };
        self.units.iter().filter_map(Unit::deadline).chain(whole).min_by_key(|&(at, _)| at)
    }

    /// Whether [`Effect::AllStopped`] has been given.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.course, Course::Over)
    }

    /// The tree's own word for a name that came from outside.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Name> {
        Some(self.units[self.index(name)?].spec.name.clone())
    }

    /// Status of a service as the API shows it; `None` for a name that the tree does not have.
    #[must_use]
    pub fn status(&self, name: &str) -> Option<UnitStatus> {
        let index = self.index(name)?;
        Some(self.units[index].status(self.blockers(index)))
    }

    /// All services, in the order of the table.
    #[must_use]
    pub fn statuses(&self) -> Vec<UnitStatus> {
        self.units.iter().enumerate().map(|(index, unit)| unit.status(self.blockers(index))).collect()
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.units.iter().position(|unit| unit.spec.name == name)
    }

    fn apply(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        let name = match &event {
            Event::Tick => return,
            Event::StopAll { reason, within } => {
                if self.stop_all(*reason, *within, now) == Fit::No {
                    out.push(Effect::Report(Report::DoesNotFit { event, state: "stopping all" }));
                }
                return;
            }
            Event::RestartRequested(name) => name,
            Event::Spawned(instance)
            | Event::SpawnFailed { instance, .. }
            | Event::Ready(instance)
            | Event::Exited { instance, .. }
            | Event::CgroupEmpty(instance) => {
                if self
                    .index(instance.service.as_str())
                    .is_some_and(|index| self.units[index].attempts != instance.attempt)
                {
                    out.push(Effect::Report(Report::StaleInstance(event)));
                    return;
                }
                &instance.service
            }
        };
        let Some(index) = self.index(name.as_str()) else {
            out.push(Effect::Report(Report::UnknownService(event)));
            return;
        };
        let state = self.units[index].phase_name();
        let fit = match event {
            Event::Spawned(_) => self.spawned(index, now, out),
            Event::SpawnFailed { errno, .. } => self.spawn_failed(index, errno, now, out),
            Event::Ready(_) => self.ready(index, now),
            Event::Exited { exit, .. } => self.exited(index, exit, now, out),
            Event::CgroupEmpty(_) => self.cgroup_empty(index, now),
            Event::RestartRequested(_) => self.restart(index, now),
            Event::StopAll { .. } | Event::Tick => Fit::Yes,
        };
        if fit == Fit::No {
            out.push(Effect::Report(Report::DoesNotFit { event, state }));
        }
    }

    fn spawned(&mut self, index: usize, now: Instant, out: &mut Vec<Effect>) -> Fit {
        let unit = &mut self.units[index];
        let instance = unit.instance();
        let Some(run @ Run::Launching) = unit.run_mut() else { return Fit::No };
        *run = Run::Whole;
        match unit.stage() {
            Some(Stage::Starting { .. }) => match unit.spec.ready {
                Readiness::OnStart => enter_ready(unit, Run::Whole, now),
                Readiness::Probe => out.push(Effect::Probe(instance)),
            },
            Some(Stage::Stopping { kills: 0, .. }) => out.push(Effect::Terminate(instance)),
            Some(Stage::Stopping { .. }) => out.push(Effect::Kill(instance)),
            Some(Stage::Ready { .. } | Stage::Draining { .. }) | None => {}
        }
        Fit::Yes
    }

    fn spawn_failed(&mut self, index: usize, errno: i32, now: Instant, out: &mut Vec<Effect>) -> Fit {
        let unit = &self.units[index];
        let Some(Run::Launching) = unit.run() else { return Fit::No };
        let ending = Ending::SpawnFailed(errno);
        let then = match unit.then() {
            Some(then) => {
                self.note_ending(index, ending, then);
                then
            }
            None => self.fail(index, ending, now, out),
        };
        self.gone(index, then, now);
        Fit::Yes
    }

    fn ready(&mut self, index: usize, now: Instant) -> Fit {
        let unit = &mut self.units[index];
        let Phase::Up { run: run @ (Run::Whole | Run::Unreaped), stage: Stage::Starting { .. } } = unit.phase else {
            return Fit::No;
        };
        enter_ready(unit, run, now);
        Fit::Yes
    }

    fn exited(&mut self, index: usize, exit: RunExit, now: Instant, out: &mut Vec<Effect>) -> Fit {
        let unit = &self.units[index];
        let instance = unit.instance();
        let Some(run) = unit.run() else { return Fit::No };
        let fit = match run {
            Run::Whole | Run::Unreaped => Fit::Yes,
            // An exit is proof of a spawn: it is used, and the missing word is reported.
            Run::Launching => Fit::No,
            Run::Orphans => return Fit::No,
        };
        let ending = Ending::Exit(exit);
        let then = match (unit.then(), unit.spec.restart) {
            (Some(then), _) => {
                self.note_ending(index, ending, then);
                then
            }
            (None, Restart::UntilSuccess(_) | Restart::Never) if exit.is_success() => {
                self.units[index].last = Some(ending);
                out.push(Effect::Report(Report::Finished(instance.clone())));
                Then::Finish
            }
            (None, Restart::Always(_) | Restart::UntilSuccess(_) | Restart::Never) => {
                self.fail(index, ending, now, out)
            }
        };
        if run == Run::Unreaped {
            self.gone(index, then, now);
        } else if let Phase::Up { run, stage: Stage::Stopping { .. } } = &mut self.units[index].phase {
            *run = Run::Orphans;
        } else {
            // What a dead main process leaves behind has nobody to end it in good order.
            out.push(Effect::Kill(instance));
            let stage = Stage::Stopping { then, kill_at: now + KILL_REPEAT, kills: 1 };
            self.units[index].enter(Phase::Up { run: Run::Orphans, stage }, now);
        }
        fit
    }

    fn cgroup_empty(&mut self, index: usize, now: Instant) -> Fit {
        let unit = &mut self.units[index];
        if let Phase::Up { run: Run::Orphans, stage: Stage::Stopping { then, .. } } = unit.phase {
            self.gone(index, then, now);
            return Fit::Yes;
        }
        match unit.run_mut() {
            Some(run @ Run::Whole) => {
                *run = Run::Unreaped;
                Fit::Yes
            }
            Some(Run::Launching | Run::Orphans | Run::Unreaped) | None => Fit::No,
        }
    }

    /// Restarts a service with its group; fits when any of them had something to do.
    fn restart(&mut self, index: usize, now: Instant) -> Fit {
        if !matches!(self.course, Course::Running) {
            return Fit::No;
        }
        let mut fit = Fit::No;
        for member in self.members(index) {
            let unit = &mut self.units[member];
            if unit.is_leaving() {
                continue;
            }
            match &mut unit.phase {
                Phase::Waiting | Phase::Leaving => continue,
                Phase::Up { stage: Stage::Draining { then } | Stage::Stopping { then, .. }, .. } => *then = Then::Wait,
                Phase::Up { run, stage: Stage::Starting { .. } | Stage::Ready { .. } } => {
                    let run = *run;
                    unit.drain(run, Then::Wait, now);
                }
                Phase::BackingOff { .. } | Phase::Stopped | Phase::Finished | Phase::Failed => {
                    unit.enter(Phase::Waiting, now);
                }
            }
            unit.forgive();
            fit = Fit::Yes;
        }
        fit
    }

    fn stop_all(&mut self, reason: StopReason, within: Duration, now: Instant) -> Fit {
        let end = now + within;
        let kill_at = end - (within / 4).min(KILL_RESERVE);
        match &mut self.course {
            Course::Running => {}
            Course::Ordered { kill_at: present_kill_at, end: present_end, .. } if end < *present_end => {
                *present_end = end;
                *present_kill_at = kill_at.min(*present_kill_at);
                return Fit::Yes;
            }
            Course::Forced { end: present_end, .. } if end < *present_end => {
                *present_end = end;
                return Fit::Yes;
            }
            Course::Ordered { .. } | Course::Forced { .. } | Course::Over => return Fit::No,
        }
        self.course = Course::Ordered { reason, kill_at, end };
        for unit in &mut self.units {
            unit.stay(now);
            match unit.phase {
                Phase::Waiting | Phase::BackingOff { .. } => unit.enter(Phase::Stopped, now),
                Phase::Up { run, stage: Stage::Starting { .. } | Stage::Ready { .. } } => {
                    unit.drain(run, Then::Wait, now);
                }
                Phase::Up { stage: Stage::Draining { .. } | Stage::Stopping { .. }, .. } => {}
                Phase::Stopped | Phase::Finished | Phase::Failed | Phase::Leaving => {}
            }
        }
        Fit::Yes
    }

    /// Counts a failure of a running service and says what becomes of it; takes its group down with it.
    fn fail(&mut self, index: usize, ending: Ending, now: Instant, out: &mut Vec<Effect>) -> Then {
        let unit = &mut self.units[index];
        let escalates = unit.count_failure(now);
        unit.last = Some(ending);
        let then = match unit.spec.restart {
            Restart::Always(backoff) | Restart::UntilSuccess(backoff) if !escalates => {
                Then::BackOff(backoff.delay(unit.failures))
            }
            Restart::Always(_) | Restart::UntilSuccess(_) | Restart::Never => Then::Fail,
        };
        let retry = if let Then::BackOff(delay) = then { Some(delay) } else { None };
        let (instance, failures) = (unit.instance(), unit.failures);
        out.push(Effect::Report(Report::Failed { instance: instance.clone(), ending, failures, retry }));
        if let Some(critical) = unit.spec.critical.filter(|_| escalates) {
            let (failures, within) = (critical.failures, critical.within);
            out.push(Effect::Escalate { service: instance.service, failures, within });
        }
        for member in self.members(index).into_iter().filter(|&member| member != index) {
            let unit = &mut self.units[member];
            if let Phase::Up { run, stage: Stage::Starting { .. } | Stage::Ready { .. } } = unit.phase {
                unit.drain(run, Then::Wait, now);
            }
        }
        then
    }

    /// The cause of a stop outlives the signal that ended it: only a stop without failure is remembered by its exit.
    fn note_ending(&mut self, index: usize, ending: Ending, then: Then) {
        match then {
            Then::Wait => self.units[index].last = Some(ending),
            Then::BackOff(_) | Then::Finish | Then::Fail | Then::Leave => {}
        }
    }

    /// Ends a run of which nothing is left.
    fn gone(&mut self, index: usize, then: Then, now: Instant) {
        let running = matches!(self.course, Course::Running);
        let phase = match then {
            Then::Finish => Phase::Finished,
            Then::Fail => Phase::Failed,
            Then::Leave => Phase::Leaving,
            Then::Wait if running => Phase::Waiting,
            Then::BackOff(delay) if running => Phase::BackingOff { until: now + delay },
            Then::Wait | Then::BackOff(_) => Phase::Stopped,
        };
        self.units[index].enter(phase, now);
    }

    /// A service and those restarted with it, in the order of the table. What leaves belongs to no group any more.
    fn members(&self, index: usize) -> Vec<usize> {
        let unit = &self.units[index];
        if unit.spec.group.is_none() || unit.is_leaving() {
            return vec![index];
        }
        let beside = |other: &Unit| other.spec.group == unit.spec.group && !other.is_leaving();
        (0..self.units.len()).filter(|&other| beside(&self.units[other])).collect()
    }

    fn blockers(&self, index: usize) -> Vec<Blocker> {
        let unit = &self.units[index];
        let needs = self.order.needs[index].iter().zip(&unit.spec.needs);
        let unmet = needs.filter(|&(&other, need)| !self.units[other].satisfies(need));
        let mut blockers: Vec<Blocker> = unmet.map(|(_, need)| Blocker::Need(need.clone())).collect();
        for member in self.members(index).into_iter().filter(|&member| member != index) {
            let other = &self.units[member];
            if other.is_ending() || matches!(other.phase, Phase::BackingOff { .. } | Phase::Failed) {
                blockers.push(Blocker::Group(other.spec.name.clone()));
            }
        }
        blockers
    }

    /// Takes the steps that are due by the clock alone.
    fn expire(&mut self, now: Instant, out: &mut Vec<Effect>) {
        for index in 0..self.units.len() {
            let unit = &mut self.units[index];
            let instance = unit.instance();
            let since = unit.since;
            if unit.deadline().is_none_or(|(at, _)| at > now) {
                continue;
            }
            match &mut unit.phase {
                Phase::Up { run, stage: Stage::Starting { .. } } => {
                    let run = *run;
                    let then = self.fail(index, Ending::StartDeadline, now, out);
                    self.units[index].drain(run, then, now);
                }
                Phase::Up { stage: Stage::Ready { stable_at }, .. } => {
                    *stable_at = None;
                    unit.failures = 0;
                    out.push(Effect::Report(Report::Stable(instance)));
                }
                Phase::Up { run, stage: Stage::Stopping { kill_at, kills, .. } } => {
                    out.push(Effect::Report(if *kills == 0 {
                        Report::StopDeadline(instance.clone())
                    } else {
                        Report::Unkillable { instance: instance.clone(), since }
                    }));
                    if *run != Run::Launching {
                        out.push(Effect::Kill(instance));
                    }
                    *kills = kills.saturating_add(1);
                    *kill_at = now + KILL_REPEAT;
                }
                Phase::BackingOff { .. } => unit.enter(Phase::Waiting, now),
                // These have no deadline.
                Phase::Up { stage: Stage::Draining { .. }, .. } => {}
                Phase::Waiting | Phase::Stopped | Phase::Finished | Phase::Failed | Phase::Leaving => {}
            }
        }
        match self.course {
            Course::Ordered { reason, kill_at, end } if kill_at <= now => self.force(reason, end, now, out),
            Course::Forced { .. } | Course::Ordered { .. } | Course::Running | Course::Over => {}
        }
    }

    /// The ordered stop took too long: everything left is killed at once.
    fn force(&mut self, reason: StopReason, end: Instant, now: Instant, out: &mut Vec<Effect>) {
        let left = self.left();
        if !left.is_empty() {
            out.push(Effect::Report(Report::StopForced { left }));
        }
        for unit in &mut self.units {
            let instance = unit.instance();
            if let (Some(run), Some(then)) = (unit.run(), unit.then()) {
                let stage = Stage::Stopping { then, kill_at: now + KILL_REPEAT, kills: 1 };
                unit.phase = Phase::Up { run, stage };
                if run != Run::Launching {
                    out.push(Effect::Kill(instance));
                }
            }
        }
        self.course = Course::Forced { reason, end };
    }

    fn left(&self) -> Vec<Instance> {
        self.units.iter().filter(|unit| unit.run().is_some()).map(Unit::instance).collect()
    }

    /// Takes the steps that have become possible: stops whose dependents are gone, leaving, starts whose needs hold,
    /// the end of all.
    fn settle(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.let_go(now, out);
        for index in 0..self.units.len() {
            let free = !self.order.dependents[index].iter().any(|&other| self.units[other].is_ending());
            let unit = &mut self.units[index];
            let instance = unit.instance();
            if let (true, Phase::Up { run, stage: Stage::Draining { then } }) = (free, &unit.phase) {
                let (run, then) = (*run, *then);
                let stage = Stage::Stopping { then, kill_at: now + unit.spec.stop_deadline, kills: 0 };
                unit.phase = Phase::Up { run, stage };
                if run != Run::Launching {
                    out.push(Effect::Terminate(instance));
                }
            }
        }
        match self.course {
            Course::Running => self.start_free(now, out),
            Course::Ordered { reason, end, .. } | Course::Forced { reason, end } => {
                let left = self.left();
                if left.is_empty() || end <= now {
                    self.course = Course::Over;
                    out.push(Effect::AllStopped { reason, left });
                }
            }
            Course::Over => {}
        }
    }

    /// Takes out of the tree what leaves, does not run any more and is needed by nothing that also leaves, and puts in its place
    /// what is wanted there; one may free the next.
    fn let_go(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let free = |tree: &Self, index: usize| {
            matches!(tree.units[index].phase, Phase::Leaving)
                && !tree.order.dependents[index].iter().any(|&other| tree.units[other].is_leaving())
        };
        while let Some(index) = (0..self.units.len()).find(|&index| free(self, index)) {
            let mut gone = self.units.remove(index);
            self.attempts_left = self.attempts_left.max(gone.attempts);
            if let Some(spec) = gone.next.take() {
                self.units.insert(index, Unit::new(spec, self.attempts_left, now));
            }
            self.read_order();
            out.push(Effect::Left(gone.spec.name));
        }
    }

    fn start_free(&mut self, now: Instant, out: &mut Vec<Effect>) {
        for index in 0..self.units.len() {
            if matches!(self.units[index].phase, Phase::Waiting) && self.blockers(index).is_empty() {
                let unit = &mut self.units[index];
                unit.attempts += 1;
                let deadline = now + unit.spec.start_deadline;
                unit.enter(Phase::Up { run: Run::Launching, stage: Stage::Starting { deadline } }, now);
                out.push(Effect::Start(unit.instance()));
            }
        }
    }
}

fn enter_ready(unit: &mut Unit, run: Run, now: Instant) {
    let stable_at = match unit.spec.restart {
        Restart::Always(backoff) | Restart::UntilSuccess(backoff) if unit.failures > 0 => Some(now + backoff.stable),
        Restart::Always(_) | Restart::UntilSuccess(_) | Restart::Never => None,
    };
    unit.enter(Phase::Up { run, stage: Stage::Ready { stable_at } }, now);
}
