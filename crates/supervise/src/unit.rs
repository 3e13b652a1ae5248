//! Unit of the tree, which is a service: its state by value, and how it looks from outside. It must never know another
//! service; what concerns several is `tree`'s.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::{Instance, Name, Need, RunExit, Spec};

/// So many failures in a row are called a crash loop.
const CRASH_LOOP: u32 = 3;

/// A service as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStatus {
    /// Name of the service.
    pub name: Name,
    /// Where it is between start and end.
    pub state: UnitState,
    /// When it came into that state.
    pub since: Instant,
    /// How often it was started after the first time.
    pub restarts: u64,
    /// Failures in a row; forgotten after stable uptime.
    pub failures: u32,
    /// How its last run ended.
    pub last: Option<Ending>,
}

impl UnitStatus {
    /// Whether it fails again and again.
    #[must_use]
    pub const fn is_crash_looping(&self) -> bool {
        self.failures >= CRASH_LOOP
    }
}

/// Where a service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitState {
    /// The service is to run as soon as nothing of this is in its way.
    Waiting(Vec<Blocker>),
    /// Started, not yet ready.
    Starting,
    /// Does its work.
    Ready,
    /// Failed, tried again then.
    BackingOff {
        /// The end of the wait.
        until: Instant,
    },
    /// To be stopped, or told to stop and not yet gone.
    Stopping,
    /// Stopped for good: with the whole tree, or on its way out and waiting for the end of what needs it.
    Stopped,
    /// A task that did what it was for.
    Finished,
    /// Not tried again unless asked.
    Failed,
}

/// Obstacle that keeps a service from being started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// This need does not hold.
    Need(Need),
    /// This member of its group is not ready to be restarted.
    Group(Name),
}

impl Blocker {
    /// The service that is in the way.
    #[must_use]
    pub const fn service(&self) -> &Name {
        match self {
            Self::Need(need) => need.service(),
            Self::Group(member) => member,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By its exit.
    Exit(RunExit),
    /// The run never began: the system's error number.
    SpawnFailed(i32),
    /// The run was not ready in time and stopped.
    StartDeadline,
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) spec: Spec,
    /// Successor in its place and name once it has left; only while it is on its way out.
    pub(crate) next: Option<Spec>,
    pub(crate) phase: Phase,
    pub(crate) since: Instant,
    pub(crate) attempts: u64,
    /// The attempts before it was taken: others may have had its name.
    before: u64,
    pub(crate) failures: u32,
    pub(crate) last: Option<Ending>,
    /// When a critical service failed, as far back as its window needs; empty for others.
    history: VecDeque<Instant>,
}

/// Where the machine has the service.
#[derive(Debug)]
pub(crate) enum Phase {
    Waiting,
    /// Something of an instance exists.
    Up {
        run: Run,
        stage: Stage,
    },
    BackingOff {
        until: Instant,
    },
    Stopped,
    Finished,
    Failed,
    /// On its way out, and nothing of it runs: it goes once nothing that also leaves needs it.
    Leaving,
}

/// How far the instance has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Starting {
        deadline: Instant,
    },
    Ready {
        stable_at: Option<Instant>,
    },
    /// To be stopped once nothing that needs it and also stops is left.
    Draining {
        then: Then,
    },
    Stopping {
        then: Then,
        kill_at: Instant,
        kills: u32,
    },
}

/// Extent to which an instance exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// Asked for.
    Launching,
    /// Main process and cgroup.
    Whole,
    /// The main process is gone, others of its cgroup may be left.
    Orphans,
    /// The cgroup is empty, the exit status has not come.
    Unreaped,
}

/// Next phase of a service once its run is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Wait,
    BackOff(Duration),
    Finish,
    Fail,
    Leave,
}

impl Unit {
    /// A unit that has not run yet; its attempts are counted on from `before`.
    pub(crate) fn new(spec: Spec, before: u64, now: Instant) -> Self {
        Self {
            spec,
            next: None,
            phase: Phase::Waiting,
            since: now,
            attempts: before,
            before,
            failures: 0,
            last: None,
            history: VecDeque::new(),
        }
    }

    pub(crate) fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        self.since = now;
    }

    /// From now on it is to be stopped, when it is its turn.
    pub(crate) fn drain(&mut self, run: Run, then: Then, now: Instant) {
        self.enter(Phase::Up { run, stage: Stage::Draining { then } }, now);
    }

    /// The present or last instance.
    pub(crate) fn instance(&self) -> Instance {
        Instance { service: self.spec.name.clone(), attempt: self.attempts }
    }

    pub(crate) const fn run(&self) -> Option<Run> {
        if let Phase::Up { run, .. } = self.phase { Some(run) } else { None }
    }

    pub(crate) const fn run_mut(&mut self) -> Option<&mut Run> {
        if let Phase::Up { run, .. } = &mut self.phase { Some(run) } else { None }
    }

    pub(crate) const fn stage(&self) -> Option<Stage> {
        if let Phase::Up { stage, .. } = self.phase { Some(stage) } else { None }
    }

    /// Next phase once the run is gone; none while its end has not begun.
    pub(crate) const fn then(&self) -> Option<Then> {
        match self.stage() {
            Some(Stage::Draining { then } | Stage::Stopping { then, .. }) => Some(then),
            Some(Stage::Starting { .. } | Stage::Ready { .. }) | None => None,
        }
    }

    /// Told to end, or about to be.
    pub(crate) const fn is_ending(&self) -> bool {
        self.then().is_some()
    }

    /// Whether it is on its way out of the tree.
    pub(crate) const fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving) || matches!(self.then(), Some(Then::Leave))
    }

    /// From now on it is on its way out of the tree, and `next` takes its place.
    pub(crate) fn leave(&mut self, next: Option<Spec>, now: Instant) {
        self.next = next;
        match &mut self.phase {
            Phase::Up { stage: Stage::Draining { then } | Stage::Stopping { then, .. }, .. } => *then = Then::Leave,
            Phase::Up { run, stage: Stage::Starting { .. } | Stage::Ready { .. } } => {
                let run = *run;
                self.drain(run, Then::Leave, now);
            }
            Phase::Waiting | Phase::BackingOff { .. } | Phase::Stopped | Phase::Finished | Phase::Failed => {
                self.enter(Phase::Leaving, now);
            }
            Phase::Leaving => {}
        }
    }

    /// From now on it stays in the tree, though it was on its way out: it stops with all others, and nothing takes its place.
    pub(crate) fn stay(&mut self, now: Instant) {
        self.next = None;
        match &mut self.phase {
            Phase::Leaving => self.enter(Phase::Stopped, now),
            Phase::Up {
                stage: Stage::Draining { then: then @ Then::Leave } | Stage::Stopping { then: then @ Then::Leave, .. },
                ..
            } => *then = Then::Wait,
            Phase::Up { .. }
            | Phase::Waiting
            | Phase::BackingOff { .. }
            | Phase::Stopped
            | Phase::Finished
            | Phase::Failed => {}
        }
    }

    /// Whether this service, as a need, holds.
    pub(crate) const fn satisfies(&self, need: &Need) -> bool {
        match (need, &self.phase) {
            (_, Phase::Finished)
            | (Need::Ready(_) | Need::Started(_), Phase::Up { stage: Stage::Ready { .. }, .. }) => true,
            (Need::Started(_), Phase::Up { run, stage: Stage::Starting { .. } }) => !matches!(run, Run::Launching),
            (Need::Ready(_), Phase::Up { stage: Stage::Starting { .. }, .. })
            | (Need::Finished(_), Phase::Up { stage: Stage::Starting { .. } | Stage::Ready { .. }, .. })
            | (_, Phase::Up { stage: Stage::Draining { .. } | Stage::Stopping { .. }, .. })
            | (_, Phase::Waiting | Phase::BackingOff { .. } | Phase::Stopped | Phase::Failed | Phase::Leaving) => false,
        }
    }

    /// Counts a failure; true when it is the one that escalates.
    pub(crate) fn count_failure(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let Some(critical) = self.spec.critical else { return false };
        self.history.retain(|&earlier| now.saturating_duration_since(earlier) <= critical.within);
        self.history.push_back(now);
        self.history.len() >= critical.failures as usize
    }

    /// Failures are forgotten: somebody who knows better asks for a fresh start.
    pub(crate) fn forgive(&mut self) {
        self.failures = 0;
        self.history.clear();
    }

    pub(crate) const fn deadline(&self) -> Option<(Instant, &'static str)> {
        match self.phase {
            Phase::Up { stage, .. } => match stage {
                Stage::Starting { deadline } => Some((deadline, "start deadline")),
                Stage::Ready { stable_at: Some(at) } => Some((at, "stable uptime")),
                Stage::Stopping { kill_at, kills: 0, .. } => Some((kill_at, "stop deadline")),
                Stage::Stopping { kill_at, .. } => Some((kill_at, "kill again")),
                Stage::Ready { stable_at: None } | Stage::Draining { .. } => None,
            },
            Phase::BackingOff { until } => Some((until, "back-off")),
            Phase::Waiting | Phase::Stopped | Phase::Finished | Phase::Failed | Phase::Leaving => None,
        }
    }

    pub(crate) const fn phase_name(&self) -> &'static str {
        match self.phase {
            Phase::Waiting => "waiting",
            Phase::Up { stage: Stage::Starting { .. }, .. } => "starting",
            Phase::Up { stage: Stage::Ready { .. }, .. } => "ready",
            Phase::Up { stage: Stage::Draining { .. }, .. } => "draining",
            Phase::Up { stage: Stage::Stopping { .. }, .. } => "stopping",
            Phase::BackingOff { .. } => "backing off",
            Phase::Stopped => "stopped",
            Phase::Finished => "finished",
            Phase::Failed => "failed",
            Phase::Leaving => "leaving",
        }
    }

    /// Status of the service, given the blockers of one that waits.
    pub(crate) fn status(&self, blockers: Vec<Blocker>) -> UnitStatus {
        let state = match self.phase {
            Phase::Waiting => UnitState::Waiting(blockers),
            Phase::Up { stage: Stage::Starting { .. }, .. } => UnitState::Starting,
            Phase::Up { stage: Stage::Ready { .. }, .. } => UnitState::Ready,
            Phase::Up { stage: Stage::Draining { .. } | Stage::Stopping { .. }, .. } => UnitState::Stopping,
            Phase::BackingOff { until } => UnitState::BackingOff { until },
            Phase::Stopped | Phase::Leaving => UnitState::Stopped,
            Phase::Finished => UnitState::Finished,
            Phase::Failed => UnitState::Failed,
        };
        UnitStatus {
            name: self.spec.name.clone(),
            state,
            since: self.since,
            restarts: (self.attempts - self.before).saturating_sub(1),
            failures: self.failures,
            last: self.last,
        }
    }
}
