//! Pace of a machine that holds a ticket: whom it asks, and when: all endpoints of the ticket in rounds, each round from
//! another one on, with pauses that grow; rarely once the cluster refused. It never gives up by itself: the cluster's record
//! says how long the ticket lives, and another config is another boot.
//!
//! ```text
//!   round ── nobody answered ──► pause 1, 2, 4, … 64 s ──► round
//!         └─ refused ──────────► pause 5 min ────────────► round
//! ```

use std::time::Duration;

use keys::endpoint::Endpoint;

/// After the first round in which nobody answered; doubled after each further one. A boot waits here.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// After any such round at most: coordinators may be back at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// After a refusal: somebody has to change something first, and each is a line in the cluster's log.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// No coordinator answered that is believed.
    Unanswered,
    /// A coordinator said no, or what it said does not fit.
    Refused,
}

/// Length of pauses, from round to round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pause: Duration,
}

impl Pace {
    /// Before the first round.
    #[must_use]
    pub const fn new() -> Self {
        Self { pause: FIRST_PAUSE }
    }

    /// How long to wait behind a round that ended so. `random` spreads machines that were switched on together: the pause is
    /// half of it to all of it.
    #[must_use]
    pub fn after(&mut self, round: Round, random: u32) -> Duration {
        let pause = match round {
            Round::Unanswered => {
                let pause = self.pause;
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            }
            Round::Refused => {
                self.pause = FIRST_PAUSE;
                REFUSED_PAUSE
            }
        };
        pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

/// All endpoints, each once, from one of chance on: so that many machines do not all ask the first.
pub fn round(endpoints: &[Endpoint], random: u32) -> impl Iterator<Item = &Endpoint> {
    let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX).max(1);
    let first = usize::try_from(random % count).unwrap_or(0);
    endpoints[first..].iter().chain(&endpoints[..first])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Proves: N5
    #[test]
    fn pauses_grow_to_a_minute_and_a_refusal_is_asked_again_rarely() {
        let mut pace = Pace::new();
        let waited: Vec<_> = (0..9).map(|_| pace.after(Round::Unanswered, u32::MAX).as_secs()).collect();
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(pace.after(Round::Refused, u32::MAX).as_secs(), 300);
        assert_eq!(pace.after(Round::Unanswered, u32::MAX).as_secs(), 1, "somebody was there");
    }

    /// Proves: N5
    #[test]
    fn chance_spreads_pauses_over_their_second_half() {
        for random in [0, 1, u32::MAX / 2, u32::MAX] {
            let pause = Pace::new().after(Round::Refused, random);
            assert!((150..=300).contains(&pause.as_secs()), "{pause:?}");
        }
        assert_ne!(Pace::new().after(Round::Unanswered, 0), Pace::new().after(Round::Unanswered, u32::MAX));
    }

    /// Proves: N5
    #[test]
    fn a_round_asks_each_endpoint_once_and_begins_anywhere() {
        let endpoints: Vec<_> = (1..=3).map(|n| Endpoint::read(&format!("a:{n}")).expect("an endpoint")).collect();
        let mut first = HashSet::new();
        for random in 0..9 {
            let asked: Vec<_> = round(&endpoints, random).collect();
            assert_eq!(asked.iter().collect::<HashSet<_>>().len(), 3);
            first.insert(asked[0].clone());
        }
        assert_eq!(first.len(), 3);
        assert_eq!(round(&[], 7).count(), 0);
    }
}
