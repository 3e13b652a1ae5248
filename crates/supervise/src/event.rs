//! The words between the machine and its shell: events in, effects out.
//! It must never decide anything.

use std::time::{Duration, Instant};

use crate::{Ending, Name};

/// Run of a service: no two of a service exist at a time, and none has the attempt of another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The service that runs.
    pub service: Name,
    /// Which run: it grows with each, also over the time in which nobody wanted the service. In a tree that no service has left
    /// it counts from 1.
    pub attempt: u64,
}

/// Event in the world that the tree is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The main process (or the task) exists.
    Spawned(Instance),
    /// The main process (or the task) could not be made; nothing of it exists.
    SpawnFailed {
        /// The run that was asked for.
        instance: Instance,
        /// Number of the error that the call returned (errno(3)).
        errno: i32,
    },
    /// The probe succeeded.
    Ready(Instance),
    /// The main process was reaped, or the task returned.
    Exited {
        /// The run whose main process or task it was.
        instance: Instance,
        /// As wait(2) tells it, or the task's handle.
        exit: RunExit,
    },
    /// No process of the run is left.
    CgroupEmpty(Instance),
    /// Somebody asks for a fresh run: of the service and its group; also ends waiting and failure.
    RestartRequested(Name),
    /// All services are to stop, in order, in at most this time. A second request can only make it shorter.
    StopAll {
        /// Action of the shell once all have stopped.
        reason: StopReason,
        /// Until [`Effect::AllStopped`]; the last part of it is kept for killing.
        within: Duration,
    },
    /// A deadline is due.
    Tick,
}

/// Why the whole tree stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The machine starts again.
    Reboot,
    /// The machine is switched off.
    PowerOff,
    /// The policy above the tree gave up on this boot.
    Fatal,
}

/// How a main process or a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunExit {
    /// The process returned this code; 0 is success. For a task: 0 for `Ok`.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// The task's panic was caught.
    Panicked,
}

impl RunExit {
    /// Whether a task that may finish has finished.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

/// Effect that the shell performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Spawn it in a cgroup of its own.
    Start(Instance),
    /// Probe it until it is ready or has ended.
    Probe(Instance),
    /// SIGTERM to its main process; cancel a task.
    Terminate(Instance),
    /// SIGKILL to everything in its cgroup; abort a task.
    Kill(Instance),
    /// Tell the log.
    Report(Report),
    /// A critical service failed too often; it is not tried again unless asked. What follows is policy.
    Escalate {
        /// The critical one.
        service: Name,
        /// So many failures
        failures: u32,
        /// in this time.
        within: Duration,
    },
    /// Report that nothing is left of a service that is not wanted any more, or not as it was; nor of those that needed it and left.
    /// If the name is wanted, what it stands for now is started when its needs hold.
    Left(Name),
    /// No service is left running but the listed ones; the machine has ended and only reports from now on.
    AllStopped {
        /// Reason of the first request to stop.
        reason: StopReason,
        /// Runs that survived SIGKILL until the overall deadline.
        left: Vec<Instance>,
    },
}

/// Report for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A service failed.
    Failed {
        /// The run that failed.
        instance: Instance,
        /// By exit, by no start, or by a start that took too long.
        ending: Ending,
        /// Failures in a row, this one included.
        failures: u32,
        /// How long it waits once its run is gone; `None`: it is not tried again.
        retry: Option<Duration>,
    },
    /// A task did what it was for.
    Finished(Instance),
    /// The service's failures are forgotten: it has been ready for long enough.
    Stable(Instance),
    /// The service's stop deadline passed; everything in its cgroup is killed.
    StopDeadline(Instance),
    /// The service survives SIGKILL; it is killed again.
    Unkillable {
        /// The run that was to end.
        instance: Instance,
        /// When its stop began.
        since: Instant,
    },
    /// The time for an ordered stop is over; all that is left is killed.
    StopForced {
        /// The runs that get SIGKILL, in the order of the table.
        left: Vec<Instance>,
    },
    /// The event names no service of this tree.
    UnknownService(Event),
    /// The event is about another run than the present one.
    StaleInstance(Event),
    /// The event does not fit the state.
    DoesNotFit {
        /// As the shell told it.
        event: Event,
        /// The phase that the service was in, in words for the log.
        state: &'static str,
    },
}
