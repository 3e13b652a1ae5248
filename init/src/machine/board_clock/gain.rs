//! Time that the board's clock gained on the monotonic clock between two looks: for so long the machine stood still.
//! Pure.
//!
//! ```text
//!   machine    ─before─ board ─after──────────── stands still ─── before ─ board ─ after
//!   monotonic  ────── goes on ──────────────────┤             ├── goes on from there ───
//!   board      ────── goes on, in whole seconds ────────────────────────────────────────
//! ```
//! It must never take for a gain what the board's whole seconds and the time of a look make up.

use std::time::{Duration, Instant};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// In a look that took longer, nobody knows when the board was read.
const SLOW: Duration = Duration::from_millis(500);
/// Two looks differ by up to a second for the board's whole seconds, and by up to another one for what they took: less than that
/// is no gain. One of 4 s never looks like less than this.
const LEAST: Duration = Duration::from_secs(3);

/// The comparison of the two clocks, from one good look to the next.
#[derive(Debug)]
pub(super) struct Comparison {
    last: Option<Look>,
    next: Instant,
}

/// The board showed these seconds at some time between the two.
#[derive(Debug, Clone, Copy)]
struct Look {
    before: Instant,
    board: u64,
    after: Instant,
}

impl Comparison {
    /// Begins with a look at once.
    pub(super) const fn start(now: Instant) -> Self {
        Self { last: None, next: now }
    }

    /// Takes a look: the board's seconds since 1970, read between these two. What the board gained since the last good one, where it
    /// did; off by a second and half of what both looks took, at most.
    pub(super) fn look(&mut self, before: Instant, board: u64, after: Instant) -> Option<Duration> {
        self.next = after + EVERY;
        let look = Look { before, board, after };
        if look.took() > SLOW {
            return None;
        }
        let last = self.last.replace(look)?;
        // A board that was set back gained nothing.
        let board = Duration::from_secs(board.checked_sub(last.board)?);
        if board.saturating_sub(before.saturating_duration_since(last.after)) < LEAST {
            return None;
        }
        Some(board.saturating_sub(look.middle().saturating_duration_since(last.middle())))
    }

    /// There is nothing to look at now.
    pub(super) fn skip(&mut self, now: Instant) {
        self.next = now + EVERY;
    }

    /// When to come back, and why.
    pub(super) const fn poll_timeout(&self) -> (Instant, &'static str) {
        (self.next, "look at the board's clock")
    }
}

impl Look {
    fn took(&self) -> Duration {
        self.after.saturating_duration_since(self.before)
    }

    /// When the board was read, as likely as not.
    fn middle(&self) -> Instant {
        self.before + self.took() / 2
    }
}

#[cfg(test)]
mod tests;
