//! Copy of the cluster's records on a coordinator: read once its etcd votes, since a learner answers no question, and kept up by a watch
//! until that ends.
//!
//! ```text
//!   Vote ─ asked each 0.5 s, or 0.1 s while nobody answers ─ etcd votes ─► Read ─ records are kept ─► Kept
//!     ▲                                                                     └──── ends ──► ◄── ends ──┘
//!     └──────────────────────────────────── 0.25 s, doubling to 2 s ────────────────────────┘
//! ```

use std::time::{Duration, Instant};

use crate::effect::{Effect, EffectOutcome};

/// Time between two questions to an etcd that does not vote yet.
const VOTES: Duration = Duration::from_millis(500);
/// Time between two questions to an etcd that does not answer: it starts, and others wait for it.
const ANSWERS: Duration = Duration::from_millis(100);
/// Pause behind a copy that was kept up for a while.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause: without quorum etcd tells nothing for as long as that lasts, and is to be read as soon as it has one again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Text about an etcd that does not vote.
const NO_VOTE: &str = "etcd keeps a copy here, and does not vote yet";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Whether etcd votes is asked then.
    Vote(Instant),
    /// Whether etcd votes is being asked.
    Ask,
    /// The records are being read.
    Read,
    /// The records are kept up.
    Kept,
}

/// Copy of the records, from the start of a coordinator's units on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copying {
    state: State,
    pause: Duration,
}

impl Copying {
    /// Copy of a coordinator whose units start.
    pub(crate) const fn begin(now: Instant) -> Self {
        Self { state: State::Vote(now), pause: FIRST_PAUSE }
    }

    /// Next deadline, and why.
    pub(crate) const fn due(&self) -> Option<(Instant, &'static str)> {
        match self.state {
            State::Vote(due) => Some((due, "etcd is asked whether it votes")),
            State::Ask | State::Read | State::Kept => None,
        }
    }

    /// Asks for the next step.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Effect> {
        match self.state {
            State::Vote(due) if now >= due => {
                self.state = State::Ask;
                Some(Effect::AskVote)
            }
            State::Vote(_) | State::Ask | State::Read | State::Kept => None,
        }
    }

    /// A quorum keeps the records up.
    pub(crate) fn kept(&mut self) {
        if self.state == State::Read {
            (self.state, self.pause) = (State::Kept, FIRST_PAUSE);
        }
    }

    /// Takes the end of a step, and asks for the one that follows at once; the text to report, if there is one.
    pub(crate) fn done(
        &mut self,
        outcome: Result<EffectOutcome, String>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) -> Option<String> {
        match (self.state, outcome) {
            (State::Ask, Ok(EffectOutcome::Votes(true))) => {
                self.state = State::Read;
                out.push(Effect::KeepRecords);
                None
            }
            (State::Ask, Ok(_)) => {
                self.state = State::Vote(now + VOTES);
                Some(NO_VOTE.to_owned())
            }
            (State::Ask, Err(why)) => {
                self.state = State::Vote(now + ANSWERS);
                Some(why)
            }
            (_, ended) => {
                self.state = State::Vote(now + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                ended.err()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::record::{ColdStartEpochs, Generations};

    use super::*;
    use crate::RecoveryNote;
    use crate::fixture::{World, view};
    use crate::{EffectKind, Event, OwnRecords};

    /// A coordinator whose units have just started.
    fn coordinator() -> World {
        let mut world = World::coordinator();
        world.votes = false;
        world.start().settle().past();
        world
    }

    fn asked(world: &mut World) -> Vec<EffectKind> {
        let kinds = world.past().into_iter().filter_map(|effect| effect.kind());
        kinds.filter(|kind| [EffectKind::AskVote, EffectKind::KeepRecords].contains(kind)).collect()
    }

    /// Proves: K6
    #[test]
    fn records_are_read_once_etcd_votes() {
        let mut world = coordinator();
        world.pass(2);
        assert_eq!(asked(&mut world), [EffectKind::AskVote; 4]);
        world.votes = true;
        world.pass(1);
        assert_eq!(asked(&mut world), [EffectKind::AskVote, EffectKind::KeepRecords]);
        world.pass(60);
        assert_eq!(asked(&mut world), [], "they are being read, or kept up");
    }

    /// Proves: K6
    #[test]
    fn lost_records_are_read_again_within_two_seconds() {
        let mut world = coordinator();
        world.votes = true;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            world.pass(3).past();
            let end = Event::Done(EffectKind::KeepRecords, Err(String::from("no leader")));
            let lost = world.now;
            world.handle(end);
            while asked(&mut world).is_empty() {
                world.now += FIRST_PAUSE;
                world.handle(Event::Tick).settle();
            }
            pauses.push((world.now - lost).as_millis());
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 2000, 2000]);
        world.view = Some(view(5, &[1], &ColdStartEpochs::default(), Generations::One(1)));
        world.handle(Event::Records(OwnRecords::Kept { desired: None, peers: None })).settle().past();
        world.handle(Event::Done(EffectKind::KeepRecords, Err(String::from("no leader"))));
        world.now += FIRST_PAUSE;
        world.handle(Event::Tick).settle();
        assert_eq!(asked(&mut world), [EffectKind::AskVote, EffectKind::KeepRecords], "it was kept up in between");
    }

    /// Proves: S5
    #[test]
    fn an_etcd_that_starts_is_asked_ten_times_a_second() {
        let mut world = coordinator();
        for _ in 0..5 {
            world.now += VOTES;
            world.handle(Event::Tick).fails(EffectKind::AskVote).settle();
            let due = world.life.as_ref().and_then(|life| life.poll_timeout());
            assert_eq!(due.map(|(due, _why)| due), Some(world.now + ANSWERS));
        }
    }

    /// Proves: S14
    #[test]
    fn units_that_end_take_the_copy_with_them() {
        let mut world = coordinator();
        world.votes = true;
        world.pass(1);
        world.note = Some(RecoveryNote::Ordered);
        world.past();
        world.handle(Event::Recover).settle();
        let kinds = [EffectKind::Units, EffectKind::AskVote, EffectKind::KeepRecords];
        let past = world.past().into_iter().filter_map(|effect| effect.kind()).filter(|kind| kinds.contains(kind));
        let of_one_start = [EffectKind::Units, EffectKind::Units, EffectKind::AskVote, EffectKind::KeepRecords];
        assert_eq!(past.collect::<Vec<_>>(), of_one_start.repeat(2), "recovered, and then as always");
    }
}
