//! Announcement of the machine to the coordinator that it listens to: on connecting, when it is reached elsewhere, and when it holds
//! a share of another epoch. Put off by the coordinator, it is made again with what holds by then, and none before.

use std::time::Instant;

use keys::endpoint::Endpoint;

/// Statement of the machine about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Announcement {
    /// Places where the machine is reached.
    pub endpoints: Vec<Endpoint>,
    /// Epoch of the cold-start key of which the machine holds a share that it cannot acknowledge itself.
    pub epoch: Option<u32>,
}

/// Whether others have to be told where the machine is reached `now`, to whom `said` was told: at an address that is not among those.
/// An address that is gone stays said until another comes: its lease may come back, and whoever is switched off meanwhile would know none
/// at all.
#[must_use]
pub fn is_news(said: &[Endpoint], now: &[Endpoint]) -> bool {
    now.iter().any(|endpoint| !said.contains(endpoint))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// No coordinator listens to the machine.
    Idle,
    /// The coordinator that is attended has heard nothing yet.
    Unsaid,
    /// The announcement is under way.
    Saying(Announcement),
    Said(Announcement),
    PutOff(Instant),
}

/// Announcing of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcing {
    now: Announcement,
    state: State,
}

impl Announcing {
    pub(crate) const fn new(now: Announcement) -> Self {
        Self { now, state: State::Idle }
    }

    /// Takes where the machine is reached now.
    pub(crate) fn endpoints(&mut self, endpoints: Vec<Endpoint>) {
        self.now.endpoints = endpoints;
    }

    /// Places where the machine is reached now.
    pub(crate) fn places(&self) -> &[Endpoint] {
        &self.now.endpoints
    }

    /// Takes of which epoch it holds a share.
    pub(crate) const fn epoch(&mut self, epoch: Option<u32>) {
        self.now.epoch = epoch;
    }

    /// Begins anew: another coordinator listens, and has heard nothing.
    pub(crate) fn attends(&mut self) {
        self.state = State::Unsaid;
    }

    /// Ends what was said: no coordinator listens any more.
    pub(crate) fn leaves(&mut self) {
        self.state = State::Idle;
    }

    /// The coordinator has taken what was said.
    pub(crate) fn heard(&mut self) {
        if let State::Saying(said) = &mut self.state {
            self.state = State::Said(std::mem::take(said));
        }
    }

    /// The coordinator has put it off.
    pub(crate) fn put_off(&mut self, now: Instant) {
        if matches!(self.state, State::Saying(_)) {
            self.state = State::PutOff(now + door::AGAIN);
        }
    }

    /// Announcement that is due now, if any; under way from then on.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Announcement> {
        let is_due = match &self.state {
            State::Idle | State::Saying(_) => false,
            State::Unsaid => true,
            State::Said(said) => self.now.epoch != said.epoch || is_news(&said.endpoints, &self.now.endpoints),
            State::PutOff(again) => now >= *again,
        };
        if !is_due {
            return None;
        }
        self.state = State::Saying(self.now.clone());
        Some(self.now.clone())
    }

    /// Deadline by which an announcement that was put off is made again.
    pub(crate) const fn due(&self) -> Option<Instant> {
        match &self.state {
            State::PutOff(again) => Some(*again),
            State::Idle | State::Unsaid | State::Saying(_) | State::Said(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(host: u8) -> Vec<Endpoint> {
        vec![Endpoint::read(&format!("192.0.2.{host}:7838")).expect("an endpoint")]
    }

    /// Forty addresses, each 100 ms apart; then nothing for half a minute. Proves: M6
    #[test]
    fn the_last_announcement_of_many_is_heard() {
        let (machine, begin) = (model::MachineId([1; 16]), testkit::origin());
        let (mut announcing, mut changes) = (Announcing::new(Announcement::default()), door::Changes::default());
        let mut heard = Vec::new();
        announcing.attends();
        for tick in 0..340_u64 {
            let now = begin + Duration::from_millis(100 * tick);
            announcing.endpoints(at(u8::try_from(tick.min(40)).expect("few")));
            let Some(said) = announcing.next(now) else { continue };
            assert_eq!(announcing.next(now), None, "one at a time");
            if changes.ask(machine, now).is_ok() {
                heard.push(said.endpoints);
                announcing.heard();
            } else {
                announcing.put_off(now);
            }
        }
        assert_eq!((heard.len(), heard.last()), (6, Some(&at(40))));
    }

    #[test]
    fn only_what_the_coordinator_has_not_heard_is_said() {
        let now = testkit::origin();
        let mut announcing = Announcing::new(Announcement { endpoints: at(1), epoch: None });
        assert_eq!(announcing.next(now), None, "nobody listens");
        announcing.attends();
        assert!(announcing.next(now).is_some());
        announcing.heard();
        announcing.endpoints(vec![]);
        assert_eq!(announcing.next(now), None, "an address that is gone may come back");
        announcing.epoch(Some(3));
        assert_eq!(announcing.next(now).map(|said| said.epoch), Some(Some(3)));
        announcing.heard();
        announcing.endpoints(at(2));
        announcing.leaves();
        assert_eq!(announcing.next(now), None, "nobody listens any more");
        announcing.attends();
        assert!(announcing.next(now).is_some(), "another coordinator has heard nothing");
    }

    /// Proves: M6
    #[test]
    fn an_announcement_that_is_put_off_is_due_at_its_time() {
        let now = testkit::origin();
        let mut announcing = Announcing::new(Announcement { endpoints: at(1), epoch: None });
        announcing.attends();
        assert_eq!(announcing.due(), None);
        announcing.put_off(now);
        assert!(announcing.next(now).is_some(), "only what is under way is put off");
        announcing.put_off(now);
        let again = now + door::AGAIN;
        assert_eq!(announcing.due(), Some(again));
        assert_eq!([now, again - Duration::from_millis(1)].map(|now| announcing.next(now)), [None, None]);
        assert!(announcing.next(again).is_some());
        assert_eq!(announcing.due(), None);
    }

    /// Proves: M6
    #[test]
    fn an_address_that_is_gone_stays_said_until_another_comes() {
        let at = |host| at(host).remove(0);
        let said = [at(1), at(2)];
        for now in [&[at(2), at(1)][..], &[at(1)], &[]] {
            assert!(!is_news(&said, now), "{now:?}");
        }
        for now in [&[at(3)][..], &[at(1), at(3)], &[at(1), at(2), at(3)]] {
            assert!(is_news(&said, now), "{now:?}");
        }
    }
}
