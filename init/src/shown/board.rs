//! The board: what the machine knows about itself, in one place that console, API and tests read.
//!
//! Steps and services write to it; nothing decides by it. Readers wait on its changes.

use std::sync::Arc;
use std::time::Duration;

use api::{Condition, ConditionName, LevelInForce, Milestone, MilestoneKind, Truth, UnixMillis};
use model::{ClusterId, ColdStart, MachineId, MachineState, PowerOn, Protection, Role, Settled, Underway, Waiting};
use tokio::sync::watch;

use crate::machine::kernel::Boot;
use crate::runtime::clock;

/// Why no condition holds at the end.
const STOPPING: &str = "the machine is stopping";

/// What changes.
#[derive(Debug, Clone)]
pub(crate) struct View {
    state: Option<MachineState>,
    /// From the first moment of a shutdown on nothing holds any more, whatever is reported late.
    stopping: bool,
    pub(crate) step: &'static str,
    pub(crate) reason: String,
    pub(crate) state_since: UnixMillis,
    pub(crate) name: String,
    pub(crate) machine: Option<MachineId>,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) roles: Vec<Role>,
    pub(crate) level: Option<LevelInForce>,
    pub(crate) protection: Protection,
    pub(crate) cold_start: Option<ColdStart>,
    pub(crate) public_addresses: Vec<String>,
    pub(crate) vpn_addresses: Vec<String>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) waits_for: Vec<String>,
    /// What goes on beside, for a person who wonders why something takes its time; nothing when empty.
    pub(crate) meanwhile: &'static str,
    pub(crate) last_error: String,
    pub(crate) timeline: Vec<Milestone>,
}

impl View {
    /// The machine's state; none while nothing is decided, which is before the public API opens. Only a transition
    /// changes it: [`Board::underway`], [`Board::settled`].
    pub(crate) const fn state(&self) -> Option<MachineState> {
        self.state
    }

    /// Whether a condition has been true in this boot.
    pub(crate) fn has_been(&self, name: ConditionName) -> bool {
        let known = |milestone: &Milestone| milestone.kind == MilestoneKind::Condition && milestone.name == name.word();
        self.timeline.iter().any(known)
    }
}

/// The board; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    boot: Arc<Boot>,
    view: Arc<watch::Sender<View>>,
}

impl Board {
    /// A board for a machine about which nothing is decided yet, and the beginning of what it goes through.
    pub(crate) fn new(boot: Boot) -> (Self, PowerOn) {
        let now = clock::unix_millis();
        let unknown = |name: ConditionName| Condition {
            name: name.word().to_owned(),
            truth: Truth::Unknown,
            reason: String::from("nothing reports it yet"),
            since: now,
        };
        let view = View {
            state: None,
            stopping: false,
            step: "start",
            reason: String::new(),
            state_since: now,
            name: String::new(),
            machine: None,
            cluster: None,
            roles: Vec::new(),
            level: None,
            protection: Protection::None,
            cold_start: None,
            public_addresses: Vec::new(),
            vpn_addresses: Vec::new(),
            conditions: ConditionName::ALL.map(unknown).to_vec(),
            waits_for: Vec::new(),
            meanwhile: "",
            last_error: String::new(),
            timeline: Vec::new(),
        };
        (Self { boot: Arc::new(boot), view: Arc::new(watch::Sender::new(view)) }, PowerOn::new())
    }

    /// What never changes.
    pub(crate) fn boot(&self) -> &Boot {
        &self.boot
    }

    /// Answers a question about what is on it now. `question` must not ask or change the board itself.
    pub(crate) fn read<T>(&self, question: impl FnOnce(&View) -> T) -> T {
        question(&self.view.borrow())
    }

    /// Its changes.
    pub(crate) fn watch(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// Changes what is on it.
    pub(crate) fn update(&self, change: impl FnOnce(&mut View)) {
        self.view.send_modify(change);
    }

    /// The machine is on its way to be a member, because of `reason`.
    pub(crate) fn underway(&self, underway: &Underway, reason: &str) {
        self.state(underway.state(), reason);
    }

    /// The machine has arrived where it stays until the next boot, because of `reason`.
    pub(crate) fn settled(&self, settled: &Settled, reason: &str) {
        self.state(settled.state(), reason);
    }

    /// The machine waits, because of `reason`.
    pub(crate) fn waiting(&self, waiting: &Waiting, reason: &str) {
        self.state(waiting.state(), reason);
    }

    fn state(&self, state: MachineState, reason: &str) {
        self.update(|view| {
            view.state = Some(state);
            view.step = "";
            reason.clone_into(&mut view.reason);
            view.state_since = clock::unix_millis();
        });
        tracing::info!(%state, reason, "machine state");
    }

    /// A step of the boot list begins.
    pub(crate) fn step(&self, step: &'static str) {
        self.update(|view| view.step = step);
    }

    /// A step is done, a service ready: the timeline keeps it, with the uptime.
    pub(crate) fn reached(&self, name: &str, kind: MilestoneKind) {
        self.reached_at(name, kind, clock::uptime());
    }

    /// As [`Self::reached`], for what happened before PID 1 could record it.
    pub(crate) fn reached_at(&self, name: &str, kind: MilestoneKind, uptime: Duration) {
        let milestone = Milestone { name: name.to_owned(), uptime, kind };
        self.update(|view| view.timeline.push(milestone));
        tracing::debug!(name, ?uptime, "reached");
    }

    /// An error that the person in front of the machine should see.
    pub(crate) fn error(&self, error: &str) {
        self.update(|view| error.clone_into(&mut view.last_error));
        tracing::error!(error, "error");
    }

    /// The machine begins to stop: no condition holds from now on.
    pub(crate) fn stopping(&self) {
        let now = clock::unix_millis();
        self.update(|view| {
            view.step = "stopping";
            view.stopping = true;
            for condition in &mut view.conditions {
                if condition.truth != Truth::False {
                    condition.since = now;
                }
                condition.truth = Truth::False;
                STOPPING.clone_into(&mut condition.reason);
            }
        });
    }

    /// A condition is now so; of a machine that stops none is. The first time it is true goes to the timeline.
    pub(crate) fn condition(&self, name: ConditionName, truth: Truth, reason: &str) {
        let mut first_true = false;
        self.view.send_if_modified(|view| {
            if view.stopping {
                return false;
            }
            let Some(condition) = view.conditions.iter_mut().find(|condition| condition.name == name.word()) else {
                return false;
            };
            if condition.truth == truth && condition.reason == reason {
                return false;
            }
            if condition.truth != truth {
                condition.since = clock::unix_millis();
            }
            condition.truth = truth;
            reason.clone_into(&mut condition.reason);
            first_true = truth == Truth::True && !view.has_been(name);
            true
        });
        if first_true {
            self.reached(name.word(), MilestoneKind::Condition);
            tracing::info!(condition = %name, "now true");
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Profile;
    use model::{BootClass, RootHash};

    use super::*;

    fn board() -> Board {
        let boot = Boot {
            profile: Profile::Release,
            root_hash: RootHash([1; 32]),
            boot_id: String::from("b"),
            class: BootClass::Direct,
        };
        Board::new(boot).0
    }

    fn of(board: &Board, name: ConditionName) -> (Truth, String) {
        let found = |view: &View| view.conditions.iter().find(|condition| condition.name == name.word()).cloned();
        board.read(found).map(|condition| (condition.truth, condition.reason)).expect("all are on the board")
    }

    /// Proves: S7
    #[test]
    fn a_state_is_shown_with_reason_and_time_and_none_before_it_is_decided() {
        let board = board();
        assert_eq!(board.read(View::state), None);
        board.step("found");
        let underway = PowerOn::new().opens();
        board.underway(&underway, "opening");
        assert_eq!(board.read(View::state), Some(MachineState::AwaitingKeys));
        assert_eq!(board.read(|view| (view.reason.clone(), view.step)), (String::from("opening"), ""));
        assert!(board.read(|view| view.state_since.0 > 0));
    }

    #[test]
    fn when_the_machine_stops_nothing_holds_and_nothing_comes_to_hold() {
        let board = board();
        board.condition(ConditionName::EtcdReady, Truth::True, "");
        assert_eq!(of(&board, ConditionName::EtcdReady), (Truth::True, String::new()));
        board.stopping();
        board.condition(ConditionName::NodeReady, Truth::True, "an answer that was under way");
        board.condition(ConditionName::EtcdReady, Truth::False, "is stopping");
        for name in ConditionName::ALL {
            assert_eq!(of(&board, name), (Truth::False, STOPPING.to_owned()), "{name}");
        }
        assert!(board.read(|view| view.timeline.iter().all(|milestone| milestone.name != "NodeReady")));
    }

    #[test]
    fn the_timeline_keeps_the_first_time_a_condition_was_true() {
        let board = board();
        for truth in [Truth::True, Truth::False, Truth::True] {
            board.condition(ConditionName::NodeReady, truth, "");
        }
        assert_eq!(board.read(|view| view.timeline.len()), 1);
        assert!(board.read(|view| view.has_been(ConditionName::NodeReady) && !view.has_been(ConditionName::EtcdReady)));
    }
}
