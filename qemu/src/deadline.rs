//! Deadlines: the one place of this crate that asks the clock.
//!
//! Whoever waits takes a [`Deadline`]; nobody sleeps for a fixed time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A stretch of time that began when it was made.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    clock: Stopwatch,
    length: Duration,
}

impl Deadline {
    /// Ends `length` from now.
    #[must_use]
    pub fn after(length: Duration) -> Self {
        Self { clock: Stopwatch::start(), length }
    }

    /// Time that is left; none when the deadline has passed.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.length.checked_sub(self.clock.elapsed()).filter(|left| !left.is_zero())
    }

    /// How long it was from the start, for messages.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }
}

/// Time since something began.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Stopwatch that begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The instant it was started.
    pub(crate) fn began(&self) -> Instant {
        self.0
    }

    /// Time since it was started.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Time of the wall clock, from 1970; for people, who compare records by it, and for clocks of machines that are set by
/// it; for no decision but with which file a day's tests begin.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_of_no_length_has_passed() {
        assert_eq!(Deadline::after(Duration::ZERO).left(), None);
    }

    #[test]
    fn a_long_deadline_has_not_passed() {
        let deadline = Deadline::after(Duration::from_secs(3600));
        assert!(deadline.left().is_some_and(|left| left <= deadline.length()));
    }
}
