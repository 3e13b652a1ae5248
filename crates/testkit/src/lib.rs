//! Virtual time for tests of pure crates: where the clock begins.
//! The only place in a test that may ask the real clock, and it never asks twice for one test.

use std::time::{Duration, Instant};

/// An instant far enough from the clock's own zero that a test may subtract up to a day from it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "`Instant` has no other source; tests advance it by hand from here")]
pub fn origin() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}
