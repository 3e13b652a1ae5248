//! Source of a member's knowledge: its own records while a quorum keeps them up, else one coordinator at a time, in rounds over
//! those that it believes.
//!
//! ```text
//!            own records are kept                     lost for 5 s, or none any more
//!   Own ◄──────────────────────────── any state     Own ─► Lapse ─► round
//!   round: Attend the next ─ says nothing for 15 s, refuses, is behind, ends ─► the next ─ … ─► Pause, 1 to 30 s ─► round
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use model::MachineId;

/// Own records may be lost for so long before others are asked: an election is over by then.
pub const LAPSE: Duration = Duration::from_secs(5);
/// A coordinator says something every 5 s; silent for three times as long, it is left.
pub const SILENT: Duration = Duration::from_secs(15);
/// Pause after a round in which somebody told something, and after the first in which nobody did.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause; each round in which nobody tells anything doubles it up to here.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Coordinator with its address in the VPN.
pub type VpnPlace = (MachineId, Ipv4Addr);

/// Change of whom the machine listens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Listen to this coordinator, and to no other.
    Attend(VpnPlace),
    /// Listen to nobody.
    Leave,
    /// End a round: all were asked.
    RoundOver {
        /// Whether anybody told anything in it.
        heard: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Own,
    Lapse(Instant),
    Pause(Instant),
    Attend(Attending),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Attending {
    whom: MachineId,
    silent_at: Instant,
    rest: VecDeque<VpnPlace>,
    /// Whether anybody told anything in this round.
    heard: bool,
}

/// Source of what the machine hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    state: State,
    pause: Duration,
}

impl Source {
    /// Source of a machine that begins: with `records` of its own they are waited for first.
    pub(crate) fn begin(records: bool, now: Instant) -> Self {
        let state = if records { State::Lapse(now + LAPSE) } else { State::Pause(now) };
        Self { state, pause: FIRST_PAUSE }
    }

    /// Coordinator that is listened to now.
    pub(crate) const fn attended(&self) -> Option<MachineId> {
        match &self.state {
            State::Attend(attending) => Some(attending.whom),
            State::Own | State::Lapse(_) | State::Pause(_) => None,
        }
    }

    /// Goes by the machine's own records.
    pub(crate) fn kept(&mut self, out: &mut Vec<Turn>) {
        if matches!(self.state, State::Attend(_)) {
            out.push(Turn::Leave);
        }
        self.state = State::Own;
        self.pause = FIRST_PAUSE;
    }

    /// Own records are not kept up any more.
    pub(crate) fn lost(&mut self, now: Instant) {
        if self.state == State::Own {
            self.state = State::Lapse(now + LAPSE);
        }
    }

    /// No own records are kept any more.
    pub(crate) fn none(&mut self, now: Instant) {
        if matches!(self.state, State::Own | State::Lapse(_)) {
            self.state = State::Pause(now);
        }
    }

    /// Begins a round anew, at once: whoever is to be asked first has changed.
    pub(crate) fn anew(&mut self, now: Instant, out: &mut Vec<Turn>) {
        if matches!(self.state, State::Attend(_)) {
            out.push(Turn::Leave);
            self.state = State::Pause(now);
        }
    }

    /// Word of the coordinator that is attended.
    pub(crate) fn told(&mut self, now: Instant) {
        if let State::Attend(attending) = &mut self.state {
            attending.silent_at = now + SILENT;
            attending.heard = true;
        }
    }

    /// Turns to the next one: no more is heard of the coordinator that was attended.
    pub(crate) fn left(&mut self, now: Instant, out: &mut Vec<Turn>) {
        let State::Attend(Attending { rest, heard, .. }) = &mut self.state else { return };
        let (rest, heard) = (std::mem::take(rest), *heard);
        self.next(rest, heard, now, out);
    }

    /// Acts on deadlines that have come; `round` are those whom a round that begins now asks, in this order.
    pub(crate) fn tick(&mut self, now: Instant, round: impl FnOnce() -> VecDeque<VpnPlace>, out: &mut Vec<Turn>) {
        match &self.state {
            State::Lapse(due) | State::Pause(due) if now >= *due => self.next(round(), false, now, out),
            State::Attend(Attending { silent_at, .. }) if now >= *silent_at => {
                out.push(Turn::Leave);
                self.left(now, out);
            }
            State::Own | State::Lapse(_) | State::Pause(_) | State::Attend(_) => {}
        }
    }

    fn next(&mut self, mut rest: VecDeque<VpnPlace>, heard: bool, now: Instant, out: &mut Vec<Turn>) {
        if let Some(place) = rest.pop_front() {
            self.state = State::Attend(Attending { whom: place.0, silent_at: now + SILENT, rest, heard });
            out.push(Turn::Attend(place));
            return;
        }
        self.pause = if heard { FIRST_PAUSE } else { (self.pause * 2).min(LONGEST_PAUSE) };
        self.state = State::Pause(now + self.pause);
        out.push(Turn::RoundOver { heard });
    }

    /// Next deadline, and why.
    pub(crate) const fn due(&self) -> Option<(Instant, &'static str)> {
        match &self.state {
            State::Own => None,
            State::Lapse(due) => Some((*due, "own records have lapsed")),
            State::Pause(due) => Some((*due, "a round begins")),
            State::Attend(attending) => Some((attending.silent_at, "a coordinator is silent")),
        }
    }
}

/// Order of a round: `first` before the others, each once, without the machine itself.
pub(crate) fn round(own: MachineId, first: &BTreeSet<MachineId>, believed: &[VpnPlace]) -> VecDeque<VpnPlace> {
    let (ahead, behind): (Vec<VpnPlace>, Vec<VpnPlace>) =
        believed.iter().partition(|(machine, _)| first.contains(machine));
    ahead.into_iter().chain(behind).filter(|(machine, _)| *machine != own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u8) -> VpnPlace {
        (MachineId([n; 16]), Ipv4Addr::new(10, 118, 0, n))
    }

    /// A test's clock, a source, and what it asked for.
    struct World {
        begin: Instant,
        source: Source,
        turns: Vec<Turn>,
    }

    impl World {
        fn new(records: bool) -> Self {
            let begin = testkit::origin();
            Self { begin, source: Source::begin(records, begin), turns: Vec::new() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begin + Duration::from_secs(seconds)
        }

        fn tick(&mut self, seconds: u64) -> Vec<Turn> {
            let now = self.at(seconds);
            self.source.tick(now, || [place(1), place(2)].into(), &mut self.turns);
            std::mem::take(&mut self.turns)
        }

        fn left(&mut self, seconds: u64) -> Vec<Turn> {
            let now = self.at(seconds);
            self.source.left(now, &mut self.turns);
            std::mem::take(&mut self.turns)
        }
    }

    /// Proves: M2
    #[test]
    fn each_coordinator_is_asked_and_left_when_silent() {
        let mut world = World::new(false);
        assert_eq!(world.tick(0), [Turn::Attend(place(1))]);
        assert_eq!(world.tick(14), []);
        let now = world.at(14);
        world.source.told(now);
        assert_eq!(world.tick(28), [], "it was heard at 14 s");
        assert_eq!(world.tick(29), [Turn::Leave, Turn::Attend(place(2))]);
        assert_eq!(world.left(30), [Turn::RoundOver { heard: true }]);
        assert_eq!((world.tick(30), world.tick(31)), (vec![], vec![Turn::Attend(place(1))]), "a second later");
    }

    /// Proves: M2
    #[test]
    fn pauses_double_while_nobody_tells_anything() {
        let mut world = World::new(false);
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..7 {
            assert_eq!(world.tick(now), [Turn::Attend(place(1))]);
            world.left(now);
            assert_eq!(world.left(now), [Turn::RoundOver { heard: false }]);
            let (due, _why) = world.source.due().expect("a pause");
            pauses.push((due - world.at(now)).as_secs());
            now += pauses.last().expect("just pushed");
        }
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30, 30]);
        world.tick(now);
        let told = world.at(now);
        world.source.told(told);
        world.left(now);
        world.left(now);
        assert_eq!(world.source.due().map(|(due, _)| due), Some(world.at(now + 1)));
    }

    /// Proves: S5
    #[test]
    fn others_are_asked_once_own_records_have_lapsed() {
        let mut world = World::new(true);
        assert_eq!((world.tick(4), world.tick(5)), (vec![], vec![Turn::Attend(place(1))]));
        let mut turns = Vec::new();
        world.source.kept(&mut turns);
        assert_eq!((turns, world.tick(100)), (vec![Turn::Leave], vec![]));
        let now = world.at(100);
        world.source.lost(now);
        let before = world.at(103);
        world.source.lost(before);
        assert_eq!((world.tick(104), world.tick(105)), (vec![], vec![Turn::Attend(place(1))]), "since the first loss");
        let mut world = World::new(true);
        let now = world.at(1);
        world.source.none(now);
        assert_eq!(world.tick(1), [Turn::Attend(place(1))], "there is nothing to wait for");
    }

    /// Another coordinator is to be asked first, so the round of before is over. Proves: S14
    #[test]
    fn a_round_begins_anew_with_whom_is_asked_by_then() {
        let mut world = World::new(false);
        let now = world.at(0);
        world.source.anew(now, &mut world.turns);
        assert_eq!((world.turns.len(), world.source.attended()), (0, None), "there is no round yet");
        world.tick(0);
        assert_eq!(world.source.attended(), Some(place(1).0));
        assert_eq!(world.source.due(), Some((world.at(15), "a coordinator is silent")));
        world.source.anew(now, &mut world.turns);
        assert_eq!((std::mem::take(&mut world.turns), world.source.attended()), (vec![Turn::Leave], None));
        assert_eq!(world.source.due(), Some((now, "a round begins")));
        assert_eq!(world.tick(0), [Turn::Attend(place(1))]);
    }

    /// Proves: S5
    #[test]
    fn own_records_that_are_kept_have_no_deadline() {
        let mut world = World::new(true);
        assert_eq!(world.source.due(), Some((world.at(5), "own records have lapsed")));
        let mut turns = Vec::new();
        world.source.kept(&mut turns);
        assert_eq!((turns, world.source.due(), world.left(1)), (vec![], None, vec![]), "nobody was listened to");
        let now = world.at(2);
        world.source.told(now);
        assert_eq!(world.source.due(), None, "a word that comes late changes nothing");
    }

    #[test]
    fn a_round_has_each_once_and_never_itself() {
        let own = place(2).0;
        let first = [place(3).0].into();
        assert_eq!(round(own, &first, &[place(1), place(2), place(3)]), [place(3), place(1)]);
    }
}
