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
//! Beside its own services, which stay, a tree runs those that are wanted, and is told the whole set of them. What is not wanted
//! any more, or not as it is, goes from wherever it is by Draining and Stopping to Leaving, where nothing of it runs, and out of
//! the tree once nothing that needs it and also leaves is there. What is equal is not touched:
//! ```text
//!   want ──► Waiting ··· any state ── want others ──► Draining ──► Stopping ──► Leaving ──► Left
//!               ▲                          └──────── nothing of it runs ──────────┘          │
//!               └──────────────── the name is wanted (again, or as another service) ─────────┘
//! ```
//! A set is judged with the tree's own services, and refused where that is no table; so nobody who stays needs what leaves.
//! There is no deadline over all that leaves: each has its own, and one that survives SIGKILL keeps what it needs from being
//! stopped under it, and is killed again and again. Once the whole tree stops, what leaves stops with all others and stays.
//!
//! What a shell keeps to:
//! - every event about an instance names the [`Instance`] of the [`Effect::Start`] that made it;
//! - `Spawned` or `SpawnFailed` answers every `Start`; `Exited` and `CgroupEmpty` both follow every `Spawned`, in any
//!   order; an instance counts as running until both have come (a task's shell reports both at once);
//! - `Terminate`, `Kill` and `Probe` of an instance that has ended meanwhile do nothing;
//! - it calls [`Tree::handle`] with [`Event::Tick`] when [`Tree::poll_timeout`] is due.
//!
//! # Invariants
//! - Services start by needs, one instance at a time, and stop in order within bounds; what is given up stops after all
//!   that need it: `crates/supervise/tests/world.rs`
//! - A service that needs a task's work waits for the task's end: `who_needs_what_a_task_does_waits_for_its_end`

mod event;
mod spec;
mod tree;
mod unit;

pub use event::{Effect, Event, Instance, Report, RunExit, StopReason};
pub use spec::{Backoff, ChangeError, Critical, Fingerprint, InvalidTree, Name, Need, Readiness, Restart, Spec};
pub use tree::Tree;
pub use unit::{Blocker, Ending, UnitState, UnitStatus};
