//! The board: what people are told of the machine, in one place. Steps and services write to it; console and API draw it
//! together with the facts.
//!
//! Nothing decides by it: whoever has a [`Board`] writes and cannot read. What is written on it is read with a
//! [`BoardReader`], which goes to the sheet and to the API and nowhere else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{Condition, ConditionName, Milestone, MilestoneKind, Truth, UnixMillis};
use model::{Halted, MachinePubKey, MachineState, Settled, Underway, Waiting};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::facts::{Address, Facts, Link, Now};
use crate::runtime::clock;

/// Why no condition holds at the end.
const STOPPING: &str = "the machine is stopping";
/// Why none holds while people are told that the machine cannot go on.
const HALTED: &str = "the machine cannot go on in this boot";

/// Words on the board, beside the facts.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    /// From the first moment of a shutdown or halt on nothing holds any more, whatever is reported late.
    over: bool,
    pub(crate) step: &'static str,
    /// Reason of the state; with the time since when the machine is in it.
    pub(crate) reason: String,
    pub(crate) state_since: UnixMillis,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) waits_for: Vec<String>,
    /// Work that goes on beside, for a person who wonders why something takes its time; empty when there is none.
    pub(crate) meanwhile: &'static str,
    pub(crate) last_error: String,
    pub(crate) timeline: Vec<Milestone>,
    /// For the screen and nothing else: whoever reads it may activate the machine.
    pub(crate) code: Option<OnScreen>,
    /// While it asks a cluster to let it in: by this key a ticket names the machine.
    pub(crate) key: Option<MachinePubKey>,
}

impl Words {
    /// No condition holds from now on, because of `reason`.
    fn hold_nothing(&mut self, reason: &str) {
        let now = clock::unix_millis();
        self.over = true;
        for condition in &mut self.conditions {
            if condition.truth != Truth::False {
                condition.since = now;
            }
            condition.truth = Truth::False;
            reason.clone_into(&mut condition.reason);
        }
    }
}

/// A text that only who stands before the machine is to read: it is in no answer of the API and in no log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OnScreen(Zeroizing<String>);

impl OnScreen {
    /// Text in clear, for the sheet.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OnScreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnScreen")
    }
}

/// Reason of a condition that nobody has told.
pub(crate) const NOT_REPORTED: &str = "nothing reports it yet";

/// The board, to be written on; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    facts: Facts,
    words: Arc<watch::Sender<Words>>,
}

/// The board, to be read by what shows it to people.
#[derive(Debug, Clone)]
pub(crate) struct BoardReader(Board);

impl Board {
    /// An empty board about these facts.
    pub(crate) fn new(facts: Facts) -> (Self, BoardReader) {
        let now = clock::unix_millis();
        let unknown = |name: ConditionName| Condition {
            name: name.word().to_owned(),
            truth: Truth::Unknown,
            reason: NOT_REPORTED.to_owned(),
            since: now,
        };
        let words = Words {
            over: false,
            step: "start",
            reason: String::new(),
            state_since: now,
            conditions: ConditionName::ALL.map(unknown).to_vec(),
            waits_for: Vec::new(),
            meanwhile: "",
            last_error: String::new(),
            timeline: Vec::new(),
            code: None,
            key: None,
        };
        let board = Self { facts, words: Arc::new(watch::Sender::new(words)) };
        (board.clone(), BoardReader(board))
    }

    /// Facts that the board shows: by these, rules decide.
    pub(crate) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The machine is on its way to be a member, because of `reason`.
    pub(crate) fn underway(&self, underway: &Underway, reason: &str) {
        self.state(underway.state(), reason, || self.facts.underway(underway));
    }

    /// The machine has arrived where it stays until the next boot, because of `reason`.
    pub(crate) fn settled(&self, settled: &Settled, reason: &str) {
        self.state(settled.state(), reason, || self.facts.settled(settled));
    }

    /// The machine waits, because of `reason`.
    pub(crate) fn waiting(&self, waiting: &Waiting, reason: &str) {
        self.state(waiting.state(), reason, || self.facts.waiting(waiting));
    }

    /// The boot cannot go on, because of `reason`.
    pub(crate) fn halted(&self, halted: &Halted, reason: &str) {
        self.state(halted.state(), reason, || self.facts.halted(halted));
        self.words.send_modify(|words| words.hold_nothing(HALTED));
    }

    /// The fact changes while nobody reads the board: a state is shown with its own reason.
    fn state(&self, state: MachineState, reason: &str, change: impl FnOnce()) {
        self.words.send_modify(|words| {
            words.step = "";
            reason.clone_into(&mut words.reason);
            words.state_since = clock::unix_millis();
            change();
        });
        tracing::info!(%state, reason, "machine state");
    }

    /// The machine may be activated by this code; none: no longer.
    pub(crate) fn code(&self, code: Option<Zeroizing<String>>) {
        self.words.send_modify(|words| words.code = code.map(OnScreen));
    }

    /// The machine asks a cluster to let it in, by this key; none: no longer.
    pub(crate) fn key(&self, key: Option<MachinePubKey>) {
        self.words.send_modify(|words| words.key = key);
    }

    /// A step of the boot list begins.
    pub(crate) fn step(&self, step: &'static str) {
        self.words.send_modify(|words| words.step = step);
    }

    /// A step is done, a service ready: the timeline keeps the first time, with the uptime.
    pub(crate) fn reached(&self, name: &str, kind: MilestoneKind) {
        self.reached_at(name, kind, clock::uptime());
    }

    /// As [`Self::reached`], for what happened before PID 1 could record it.
    pub(crate) fn reached_at(&self, name: &str, kind: MilestoneKind, uptime: Duration) {
        let first = self.words.send_if_modified(|words| {
            let first = !words.timeline.iter().any(|known| known.kind == kind && known.name == name);
            if first {
                words.timeline.push(Milestone { name: name.to_owned(), uptime, kind });
            }
            first
        });
        if first {
            tracing::debug!(name, ?uptime, "reached");
        }
    }

    /// An error that the person in front of the machine should see.
    pub(crate) fn error(&self, error: &str) {
        self.words.send_modify(|words| error.clone_into(&mut words.last_error));
        tracing::error!(error, "error");
    }

    /// The machine waits for these services, which fail again and again.
    pub(crate) fn waits_for(&self, services: Vec<String>) {
        self.words.send_modify(|words| words.waits_for = services);
    }

    /// This goes on beside; nothing when empty.
    pub(crate) fn meanwhile(&self, what: &'static str) {
        self.words.send_if_modified(|words| std::mem::replace(&mut words.meanwhile, what) != what);
    }

    /// The machine begins to stop: no condition holds from now on.
    pub(crate) fn stopping(&self) {
        self.words.send_modify(|words| {
            words.step = "stopping";
            words.hold_nothing(STOPPING);
        });
    }

    /// A condition is now so; of a machine that stops none is. The first time it is true goes to the timeline.
    pub(crate) fn condition(&self, name: ConditionName, truth: Truth, reason: &str) {
        let mut first_true = false;
        self.words.send_if_modified(|words| {
            if words.over {
                return false;
            }
            let Some(condition) = words.conditions.iter_mut().find(|condition| condition.name == name.word()) else {
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
            first_true = truth == Truth::True && self.facts.holds(name);
            true
        });
        if first_true {
            self.reached(name.word(), MilestoneKind::Condition);
            tracing::info!(condition = %name, "now true");
        }
    }
}

impl BoardReader {
    /// Where what is read is written.
    pub(crate) const fn board(&self) -> &Board {
        &self.0
    }

    /// Answers a question about facts and words as they are now. `question` must not ask or change either itself.
    pub(crate) fn read<T>(&self, question: impl FnOnce(&Now, &Words) -> T) -> T {
        let words = self.0.words.borrow();
        self.0.facts.read(|now| question(now, &words))
    }

    /// Watches board and facts from now on.
    pub(crate) fn changes(&self) -> Changes {
        Changes { facts: self.0.facts.watch(), words: self.0.words.subscribe() }
    }
}

/// The changes of the board and of its facts.
#[derive(Debug)]
pub(crate) struct Changes {
    facts: watch::Receiver<Now>,
    words: watch::Receiver<Words>,
}

impl Changes {
    /// Waits for the next one.
    ///
    /// # Errors
    /// When there will be none.
    pub(crate) async fn next(&mut self) -> Result<(), watch::error::RecvError> {
        tokio::select! {
            changed = self.facts.changed() => changed,
            changed = self.words.changed() => changed,
        }
    }
}

/// The public addresses, as people read them.
pub(crate) fn public_addresses(facts: &Now) -> Vec<String> {
    facts.links.iter().map(|Link { name, address }| format!("{} ({name})", with_bits(address))).collect()
}

/// The addresses in the mesh, as people read them.
pub(crate) fn vpn_addresses(facts: &Now) -> Vec<String> {
    facts.vpn.iter().map(with_bits).collect()
}

fn with_bits(address: &Address) -> String {
    format!("{}/{}", address.ip, address.prefix.bits())
}

#[cfg(test)]
mod tests {

    use model::{Ipv4Prefix, PowerOn, WaitState};

    use super::*;
    use crate::machine::kernel::Boot;

    fn board() -> (Board, BoardReader, PowerOn) {
        let boot = Boot::fixture();
        let (facts, power_on) = Facts::new(boot);
        let (board, reader) = Board::new(facts);
        (board, reader, power_on)
    }

    fn of(reader: &BoardReader, name: ConditionName) -> (Truth, String) {
        let named = |condition: &&Condition| condition.name == name.word();
        let found = reader.read(|_, words| words.conditions.iter().find(named).cloned());
        found.map(|condition| (condition.truth, condition.reason)).expect("all are on the board")
    }

    /// Proves: S7
    #[test]
    fn a_state_has_reason_and_time_and_is_none_before_a_decision() {
        let (board, reader, power_on) = board();
        assert_eq!(reader.read(|facts, _| facts.state()), None);
        board.step("found");
        let underway = power_on.opens();
        board.underway(&underway, "opening");
        let shown = reader.read(|facts, words| (facts.state(), words.reason.clone(), words.step));
        assert_eq!(shown, (Some(MachineState::AwaitingKeys), String::from("opening"), ""));
        assert!(reader.read(|_, words| words.state_since.0 > 0));
    }

    #[test]
    fn the_timeline_keeps_the_first_time_of_each() {
        let (board, reader, _power_on) = board();
        let reached = |kind, seconds| board.reached_at("etcd", kind, Duration::from_secs(seconds));
        reached(MilestoneKind::Service, 1);
        reached(MilestoneKind::Service, 2);
        reached(MilestoneKind::Step, 3);
        let times = reader.read(|_, words| words.timeline.iter().map(|one| one.uptime.as_secs()).collect::<Vec<_>>());
        assert_eq!(times, [1, 3]);
    }

    /// Proves: S7
    #[test]
    fn a_state_is_never_read_with_another_ones_reason() {
        let (board, reader, _power_on) = board();
        let wait = |state| {
            let waiting = PowerOn::new().waits(state);
            board.waiting(&waiting, waiting.state().word());
        };
        wait(WaitState::Blank);
        std::thread::scope(|threads| {
            let changing = threads.spawn(|| {
                let both = [WaitState::Failed, WaitState::Blank];
                (0..20_000).for_each(|_| both.into_iter().for_each(wait));
            });
            while !changing.is_finished() {
                let (state, reason) = reader.read(|facts, words| (facts.state(), words.reason.clone()));
                assert_eq!(state.map(MachineState::word), Some(reason.as_str()));
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_facts_and_of_words_are_told() {
        let (board, reader, _power_on) = board();
        let mut changes = reader.changes();
        let mut told = async || tokio::time::timeout(Duration::from_secs(1), changes.next()).await.is_ok();
        board.facts().update(|now| now.protection = model::Protection::Tpm);
        assert!(told().await, "a fact");
        board.step("identity");
        assert!(told().await, "a word");
        assert!(!told().await, "nothing");
    }

    #[test]
    fn addresses_are_shown_with_their_prefix_and_link() {
        let (board, reader, _power_on) = board();
        let address = |text: &str, bits| {
            let ip = text.parse().expect("an address");
            Address { ip, prefix: Ipv4Prefix::around(ip, bits).expect("a length") }
        };
        board.facts().update(|now| {
            now.link("eth0", Some(address("192.0.2.10", 24)));
            now.link("eth1", Some(address("198.51.100.7", 32)));
            now.vpn = Some(address("10.118.0.1", 16));
        });
        let shown = reader.read(|facts, _| (public_addresses(facts), vpn_addresses(facts)));
        let public = ["192.0.2.10/24 (eth0)", "198.51.100.7/32 (eth1)"].map(str::to_owned).to_vec();
        assert_eq!(shown, (public, vec![String::from("10.118.0.1/16")]));
    }

    #[test]
    fn once_the_machine_stops_no_condition_holds_any_more() {
        let (board, reader, _power_on) = board();
        board.condition(ConditionName::EtcdReady, Truth::True, "");
        assert_eq!(of(&reader, ConditionName::EtcdReady), (Truth::True, String::new()));
        board.stopping();
        board.condition(ConditionName::NodeReady, Truth::True, "an answer that was under way");
        board.condition(ConditionName::EtcdReady, Truth::False, "is stopping");
        for name in ConditionName::ALL {
            assert_eq!(of(&reader, name), (Truth::False, STOPPING.to_owned()), "{name}");
        }
        assert!(reader.read(|_, words| words.timeline.iter().all(|milestone| milestone.name != "NodeReady")));
    }

    #[test]
    fn the_timeline_keeps_the_first_time_a_condition_was_true() {
        let (board, reader, _power_on) = board();
        for truth in [Truth::True, Truth::False, Truth::True] {
            board.condition(ConditionName::NodeReady, truth, "");
        }
        assert_eq!(reader.read(|_, words| words.timeline.len()), 1);
        assert!(board.facts().read(|now| now.has_held(ConditionName::NodeReady)));
        assert!(!board.facts().read(|now| now.has_held(ConditionName::EtcdReady)));
    }
    /// Proves: S7
    #[test]
    fn nothing_holds_of_a_machine_that_cannot_go_on() {
        let (board, reader, power_on) = board();
        board.settled(&power_on.opens().runs(), "");
        board.condition(ConditionName::Running, Truth::True, "");
        board.halted(&Halted::needs_owner(), "a damaged disk");
        // Whatever still comes to its end reports it late.
        board.condition(ConditionName::EtcdReady, Truth::True, "");
        for name in ConditionName::ALL {
            assert_eq!(of(&reader, name), (Truth::False, String::from(HALTED)));
        }
        let shown = reader.read(|facts, words| (facts.state(), words.reason.clone()));
        assert_eq!(shown, (Some(MachineState::NeedsOwner), String::from("a damaged disk")));
    }
}
