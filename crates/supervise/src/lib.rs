//! The supervision tree as a pure machine: events and `now` in, effects and the next deadline out.
//! It owns which service may run, when it is tried again and in which order all of it ends. It must never spawn,
//! signal, probe, sleep or read a clock; a shell performs the effects and reports what came of them.
//!
//! One service:
//! ```text
//!               needs hold                spawned, ready
//!    Waiting ───────────────► Starting ───────────────────► Ready
//!       ▲                        │ │                         │ │
//!       │ until                  │ └── exit, no spawn, late ─┼─┘──────────────┐
//!       │                        └── restart, group, stop ───┤                ▼
//!    BackingOff                                              ▼             Stopping ── kill, again and again
//!       ▲                                                 Draining ──────►  (until its cgroup is empty)
//!       │                                          (until what needs it       │
//!       │                                           and also stops is gone)   │
//!       └────────────────────────────────────────────────────────────────────┴──► Waiting, Stopped, Finished, Failed
//! ```
//! A tree takes services while it runs and gives them up. One that is given up goes from wherever it is by Draining and
//! Stopping to Leaving, where nothing of it runs, and out of the tree once nothing that needs it is left there:
//! ```text
//!   take ──► Waiting ··· any state ── give up ──► Draining ──► Stopping ──► Leaving ──► GivenUp: the name is free
//!                                       └──────── nothing of it runs ──────────┘
//! ```
//! Taking judges the whole table with the new services in it; giving up refuses what a service that stays needs. There is no
//! deadline over all that is given up: each has its own, and one that survives SIGKILL keeps what it needs from being
//! stopped under it, and is killed again and again.
//!
//! What a shell keeps to:
//! - every event about an instance names the [`Instance`] of the [`Effect::Start`] that made it;
//! - `Spawned` or `SpawnFailed` answers every `Start`; `Exited` and `CgroupEmpty` both follow every `Spawned`, in any
//!   order; an instance counts as running until both have come (a task's shell reports both at once);
//! - `Terminate`, `Kill` and `Probe` of an instance that has ended meanwhile do nothing;
//! - it calls [`Tree::handle`] with [`Event::Tick`] when [`Tree::poll_timeout`] is due.

mod event;
mod spec;
mod tree;
mod unit;

pub use event::{Effect, Event, Exit, Instance, Report, StopReason};
pub use spec::{Backoff, Critical, InvalidTree, Name, Need, NotGivenUp, NotTaken, Readiness, Restart, Spec};
pub use tree::Tree;
pub use unit::{Blocker, Ending, State, Status};
