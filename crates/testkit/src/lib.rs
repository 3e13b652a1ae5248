//! Virtual time for tests of pure crates, numbers that are the same on every run, rounds of benches, and a strict reader of
//! OpenMetrics. The only place in a test that may ask the real clock, and it never asks twice for one test.

pub mod openmetrics;
pub mod rounds;

use std::time::{Duration, Instant};

/// An instant far enough from the clock's own zero that a test may subtract up to a day from it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "`Instant` has no other source; tests advance it by hand from here")]
pub fn origin() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

/// xorshift64* (Vigna 2016): enough to spread what tests try, and the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(if seed == 0 { 1 } else { seed }) // zero would stay zero
    }

    /// The next number below `bound`, zero if that is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).expect("31 bits") % bound.max(1)
    }
}
