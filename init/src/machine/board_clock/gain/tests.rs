//! A machine and its board in virtual time: looks fast and slow, drift, boards that are set back, and standstills.

use proptest::prelude::*;

use super::*;
use crate::runtime::clock;

const SECOND: Duration = Duration::from_secs(1);

/// A machine, and how far its board is, to the nanosecond.
struct World {
    comparison: Comparison,
    now: Instant,
    /// Since 1970.
    board: Duration,
    /// How many millionths the board's second is longer than the machine's.
    slower: i32,
    /// Time that the machine stood still since the board was read last by a good look.
    stood: Duration,
    /// Durations of the last two good looks.
    took: [Duration; 2],
}

/// Durations within a look: from the first reading of the monotonic clock to the board's, and from there to the second.
#[derive(Debug, Clone, Copy)]
struct Pace(Duration, Duration);

const AT_ONCE: Pace = Pace(Duration::ZERO, Duration::ZERO);

impl World {
    fn new(board: Duration) -> Self {
        let now = clock::now();
        let (stood, took) = (Duration::ZERO, [Duration::ZERO; 2]);
        Self { comparison: Comparison::start(now), now, board, slower: 0, stood, took }
    }

    /// Lets the machine run for so long.
    fn runs(&mut self, time: Duration) {
        self.now += time;
        let drift = time * self.slower.unsigned_abs() / 1_000_000;
        self.board += if self.slower < 0 { time + drift } else { time.saturating_sub(drift) };
    }

    /// The machine stands still, the board does not.
    fn stands_still(&mut self, time: Duration) {
        self.board += time;
        self.stood += time;
    }

    /// A look when it is due; what came of it, and for how long the machine stood still before the board was read.
    fn looks(&mut self, Pace(to_board, from_board): Pace) -> (Option<Duration>, Duration) {
        self.runs(self.comparison.poll_timeout().0.saturating_duration_since(self.now));
        let before = self.now;
        self.runs(to_board);
        let seconds = self.board.as_secs();
        self.runs(from_board);
        let took = to_board + from_board;
        let stood = self.stood;
        if took <= SLOW {
            (self.stood, self.took) = (Duration::ZERO, [self.took[1], took]);
        }
        (self.comparison.look(before, seconds, self.now), stood)
    }
}

/// Proves: S13
#[test]
fn what_the_board_gained_is_told_once() {
    let mut world = World::new(SECOND * 1_000);
    for _ in 0..3 {
        assert_eq!(world.looks(AT_ONCE).0, None);
    }
    world.stands_still(SECOND * 70);
    assert_eq!(world.looks(AT_ONCE).0, Some(SECOND * 70));
    assert_eq!(world.looks(AT_ONCE).0, None);
}

#[test]
fn a_look_begins_at_once_and_comes_again_each_second() {
    let now = clock::now();
    let mut comparison = Comparison::start(now);
    assert_eq!(comparison.poll_timeout().0, now);
    comparison.look(now, 7, now + SECOND / 4);
    assert_eq!(comparison.poll_timeout().0, now + SECOND / 4 + SECOND);
    comparison.skip(now + SECOND * 9);
    assert_eq!(comparison.poll_timeout().0, now + SECOND * 10);
}

#[test]
fn a_look_over_half_a_second_is_dropped_and_the_next_one_tells() {
    let mut world = World::new(SECOND * 1_000);
    world.looks(AT_ONCE);
    world.stands_still(SECOND * 10);
    assert_eq!(world.looks(Pace(Duration::ZERO, Duration::from_millis(501))).0, None);
    let told =
        world.looks(Pace(Duration::ZERO, Duration::from_millis(500))).0.expect("the good look before is compared with");
    assert!(told.abs_diff(SECOND * 10) <= SECOND * 3 / 2, "{told:?}");
}

/// Read at the end of one slow look and at the beginning of the next, at the worst place within the board's second.
/// Proves: S13
#[test]
fn four_seconds_are_told_however_looks_are_rounded_or_slow() {
    let half = Duration::from_millis(500);
    let mut world = World::new(SECOND * 1_000 - half);
    world.looks(Pace(half, Duration::ZERO));
    world.stands_still(SECOND * 4);
    world.runs(SECOND * 199 / 100);
    let (told, stood) = world.looks(Pace(Duration::ZERO, half));
    assert!(told.expect("it is told").abs_diff(stood) <= SECOND * 3 / 2, "{told:?}");
}

/// As when somebody sets the host's clock: what was lost is not made up for, and nothing is set back.
#[test]
fn a_board_set_back_gains_nothing_and_is_followed_from_there() {
    let mut world = World::new(SECOND * 10_000);
    world.looks(AT_ONCE);
    world.board -= SECOND * 3_600;
    assert_eq!(world.looks(AT_ONCE).0, None);
    world.stands_still(SECOND * 5);
    assert_eq!(world.looks(AT_ONCE).0, Some(SECOND * 5));
}

/// A look, and what the machine did before it: a standstill in the tenths of a second given, mostly none.
#[derive(Debug, Clone)]
struct Step {
    stood: Duration,
    late: Duration,
    pace: Pace,
    set_back: Duration,
}

fn any_step() -> impl Strategy<Value = Step> {
    let millis = |most: u64| (0..=most).prop_map(Duration::from_millis);
    let pace =
        prop_oneof![4 => (millis(2), millis(2)), 2 => (millis(250), millis(250)), 1 => (millis(5_000), millis(5_000))];
    let stood = prop_oneof![6 => Just(Duration::ZERO), 1 => millis(8_000), 1 => millis(90_000_000)];
    let set_back = prop_oneof![12 => Just(Duration::ZERO), 1 => millis(100_000)];
    (stood, millis(300), pace, set_back).prop_map(|(stood, late, (to, from), set_back)| Step {
        stood,
        late,
        pace: Pace(to, from),
        set_back,
    })
}

proptest! {
    /// From 4 s on a standstill is always told, by the first good look behind it; below 3 s less a second, and less what the looks
    /// took, never. What is told is near to what it was, so a clock that is put forward by it is within 2 s of the board's.
    /// Proves: S13
    #[test]
    fn a_standstill_is_told_where_it_was_one_and_only_there(
        nanos in 0..1_000_000_000_u32,
        // Worse than any crystal: a second in 3 h.
        slower in -100..=100_i32,
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut world = World::new(Duration::new(1_000_000, nanos));
        world.slower = slower;
        world.looks(AT_ONCE);
        let mut is_set_back = false;
        for Step { stood, late, pace, set_back } in steps {
            world.board -= set_back;
            is_set_back |= set_back > Duration::ZERO;
            world.stands_still(stood);
            world.runs(late);
            let since = world.now;
            let (told, stood) = world.looks(pace);
            let is_good = pace.0 + pace.1 <= SLOW;
            prop_assert!(is_good || told.is_none());
            // Drift since the last good look: sixty bad ones of 11 s each.
            let slack = Duration::from_millis(70);
            let took: Duration = world.took.iter().sum();
            if let Some(told) = told {
                prop_assert!(stood + SECOND + took + slack > LEAST, "{told:?} is told, and it was {stood:?}");
                prop_assert!(is_set_back || told.abs_diff(stood) <= SECOND + took / 2 + slack, "{told:?}, and it was {stood:?}");
                prop_assert!(is_set_back || told.abs_diff(stood) < SECOND * 2);
            } else if is_good && !is_set_back {
                prop_assert!(stood < LEAST + SECOND + slack, "{stood:?} is not told");
            }
            prop_assert!(world.now.duration_since(since) <= EVERY + pace.0 + pace.1, "the next look is not put off");
            is_set_back &= !is_good;
        }
    }
}
