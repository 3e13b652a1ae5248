//! Stay of a connection behind its handshake. A stranger has seconds for what it came for; an owner may stay as long as
//! somebody is there, which keepalive finds out.

use std::time::{Duration, Instant};

use model::Caller;

/// From handshake to the first bytes of HTTP/2, and the longest time a stranger may have no request under way.
const QUIET: Duration = Duration::from_secs(5);
/// The greatest age of a stranger's connection, whatever it does: `GetState` and `Claim` take one round trip each.
const AGE: Duration = Duration::from_secs(15);

/// Stay of one connection, from its handshake on.
#[derive(Debug, Clone)]
pub struct Visit {
    caller: Caller,
    began: Instant,
    heard: bool,
    open: u32,
    quiet_since: Instant,
    unread: bool,
}

/// Why a visit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// TLS, and then nothing.
    NoHttp,
    /// A stranger without a request.
    Idle,
    /// A stranger that stayed too long.
    TooOld,
    /// A machine that does not take what it asked for.
    Unread,
}

impl Over {
    /// The reason in words, for the log.
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::NoHttp => "no HTTP/2 within 5 s of the handshake",
            Self::Idle => "no request for 5 s, and no owner",
            Self::TooOld => "connected for 15 s, and no owner",
            Self::Unread => "what it asked for is not read",
        }
    }
}

impl Visit {
    /// Begins with the end of the handshake.
    #[must_use]
    pub const fn new(caller: Caller, now: Instant) -> Self {
        Self { caller, began: now, heard: false, open: 0, quiet_since: now, unread: false }
    }

    /// Notes that the caller has sent something behind its handshake.
    pub const fn heard(&mut self) {
        self.heard = true;
    }

    /// A request has begun.
    pub const fn asks(&mut self) {
        self.open += 1;
    }

    /// A request that had begun was answered or given up.
    pub const fn asked(&mut self, now: Instant) {
        self.open = self.open.saturating_sub(1);
        self.quiet_since = now;
    }

    /// An answer has waited too long for its caller to read it.
    pub const fn leaves_unread(&mut self) {
        self.unread = true;
    }

    /// When it is over if nothing else happens; none for an owner who is there.
    #[must_use]
    pub fn ends(&self) -> Option<(Instant, Over)> {
        if self.unread {
            return Some((self.began, Over::Unread));
        }
        match (self.caller, self.heard, self.open) {
            (Caller::Owner | Caller::User | Caller::Member | Caller::Stranger | Caller::Machine, false, _) => {
                Some((self.began + QUIET, Over::NoHttp))
            }
            (Caller::Owner | Caller::User | Caller::Member, true, _) => None,
            (Caller::Stranger | Caller::Machine, true, 0) => {
                Some((self.quiet_since + QUIET, Over::Idle).min_by_time((self.began + AGE, Over::TooOld)))
            }
            (Caller::Stranger | Caller::Machine, true, _) => Some((self.began + AGE, Over::TooOld)),
        }
    }
}

trait MinByTime {
    fn min_by_time(self, other: Self) -> Self;
}

impl MinByTime for (Instant, Over) {
    fn min_by_time(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// Proves: Q1
    #[test]
    fn a_stranger_has_seconds_and_an_owner_who_speaks_has_no_end() {
        let now = testkit::origin();
        for caller in [Caller::Stranger, Caller::Machine, Caller::Member, Caller::User, Caller::Owner] {
            assert_eq!(Visit::new(caller, now).ends(), Some((now + seconds(5), Over::NoHttp)), "{caller:?}");
        }
        for stays in [Caller::Owner, Caller::User, Caller::Member] {
            let mut visit = Visit::new(stays, now);
            visit.heard();
            assert_eq!(visit.ends(), None, "{stays:?}");
            visit.leaves_unread();
            assert_eq!(visit.ends(), Some((now, Over::Unread)), "{stays:?}");
        }

        let mut stranger = Visit::new(Caller::Stranger, now);
        stranger.heard();
        assert_eq!(stranger.ends(), Some((now + seconds(5), Over::Idle)), "a word is no request");
        stranger.asks();
        assert_eq!(stranger.ends(), Some((now + seconds(15), Over::TooOld)));
        stranger.asks();
        stranger.asked(now + seconds(1));
        assert_eq!(stranger.ends(), Some((now + seconds(15), Over::TooOld)), "one is still open");
        stranger.asked(now + seconds(2));
        assert_eq!(stranger.ends(), Some((now + seconds(7), Over::Idle)));
        stranger.asks();
        stranger.asked(now + seconds(11));
        assert_eq!(stranger.ends(), Some((now + seconds(15), Over::TooOld)), "the earlier one");
    }

    proptest! {
        #[test]
        fn no_stranger_outlives_its_age_whatever_it_does(steps in prop::collection::vec((0u8..3, 0u64..4000), 0..50)) {
            let began = testkit::origin();
            let mut now = began;
            let mut visit = Visit::new(Caller::Stranger, began);
            for (what, millis) in steps {
                let (ends, _) = visit.ends().expect("a stranger's always ends");
                prop_assert!(ends <= began + AGE);
                now += Duration::from_millis(millis);
                if now >= ends {
                    break;
                }
                match what {
                    0 => visit.heard(),
                    1 => visit.asks(),
                    _ => visit.asked(now),
                }
            }
        }
    }
}
