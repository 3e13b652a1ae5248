//! A token bucket as one instant: when it will be full again. Nothing has to fill it.

use std::time::{Duration, Instant};

/// How fast a bucket fills and how much it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Time in which one token comes in.
    pub(crate) every: Duration,
    /// Tokens that it holds at most.
    pub(crate) burst: u32,
}

/// A bucket, full at first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bucket {
    full_at: Option<Instant>,
}

impl Bucket {
    /// How many tokens are in it at `now`.
    pub(crate) fn tokens(&self, rate: Rate, now: Instant) -> u32 {
        let until_full = self.full_at.map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        let missing = until_full.as_nanos().div_ceil(rate.every.as_nanos());
        rate.burst.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// Takes one, if more than `keep` are there.
    pub(crate) fn take(&mut self, rate: Rate, keep: u32, now: Instant) -> bool {
        let enough = self.tokens(rate, now) > keep;
        if enough {
            self.full_at = Some(self.full_at.map_or(now, |full| full.max(now)) + rate.every);
        }
        enough
    }

    /// Puts one token back.
    pub(crate) fn put_back(&mut self, rate: Rate) {
        self.full_at = self.full_at.and_then(|full| full.checked_sub(rate.every));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { every: Duration::from_millis(500), burst: 3 };

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let (mut bucket, now) = (Bucket::default(), testkit::origin());
        let after = |millis| now + Duration::from_millis(millis);
        assert_eq!((0..9).filter(|_| bucket.take(RATE, 0, now)).count(), 3);
        assert!(!bucket.take(RATE, 0, after(499)), "not yet");
        assert!(bucket.take(RATE, 0, after(500)) && !bucket.take(RATE, 0, after(500)), "one");
        assert_eq!(bucket.tokens(RATE, after(60_000)), 3, "never more than it holds");
        assert_eq!((0..9).filter(|_| bucket.take(RATE, 0, after(60_000))).count(), 3, "nor gives more");
    }

    #[test]
    fn tokens_kept_for_others_stay_and_those_put_back_are_there() {
        let (mut bucket, now) = (Bucket::default(), testkit::origin());
        assert!(bucket.take(RATE, 2, now) && !bucket.take(RATE, 2, now), "two are kept");
        bucket.put_back(RATE);
        assert_eq!(bucket.tokens(RATE, now), 3);
        bucket.put_back(RATE);
        assert_eq!(bucket.tokens(RATE, now), 3, "not above the brim");
    }
}
