//! Time on the wire. Nothing here asks a clock.

/// Milliseconds since 1970-01-01 00:00 UTC, by the clock of the machine that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// How many milliseconds lie between `earlier` and this; zero when it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_earlier_is_no_time_ago() {
        let (early, late) = (UnixMillis(1_000), UnixMillis(1_250));
        assert_eq!((late.since(early), early.since(late), late.since(late)), (250, 0, 0));
    }
}
