//! Where a peer is heard though its cluster does not name that place: it is behind a router that changes addresses, or has not
//! said yet that it has moved. Says it when the peer stays there, and seldom.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// So long a peer has to be heard at one place. Whoever has moved says so itself within that.
pub const STAYS: Duration = Duration::from_secs(15);
/// At least between two places of one peer, and until one is told again that is not named by then: all machines are told of each.
pub const REST: Duration = Duration::from_secs(300);

/// Endpoint of a peer that was learnt, and when it is told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Learning {
    at: Option<SocketAddrV4>,
    due: Option<Instant>,
}

impl Learning {
    /// Notes that the peer was heard, at a place that nobody names or at none such. Returns that place, when it is to
    /// be told.
    pub(crate) fn heard(&mut self, unnamed: Option<SocketAddrV4>, now: Instant) -> Option<SocketAddrV4> {
        if self.at != unnamed {
            self.at = unnamed;
            self.due = self.due.max(Some(now + STAYS));
        }
        let at = unnamed.filter(|_| self.due <= Some(now))?;
        self.due = Some(now + REST);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Proves: M6
    #[test]
    fn a_place_is_told_when_the_peer_stays_there_and_seldom() {
        let (mut learning, begin) = (Learning::default(), testkit::origin());
        let place = |n| Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, n), 7838));
        let mut heard = |unnamed, after| learning.heard(unnamed, begin + after);
        let second = Duration::from_secs(1);
        assert_eq!(heard(None, second), None);
        assert_eq!(heard(place(1), second), None, "it may be about to say so");
        assert_eq!(heard(place(2), second * 2), None);
        assert_eq!(heard(place(2), STAYS), None, "it was elsewhere before");
        assert_eq!(heard(place(2), second * 2 + STAYS), place(2));
        assert_eq!(heard(place(2), second * 3 + STAYS), None, "once");
        assert_eq!(heard(None, second * 4 + STAYS), None);
        assert_eq!(heard(place(3), second * 5 + STAYS), None);
        assert_eq!(heard(place(3), REST), None, "it moves about");
        assert_eq!(heard(place(3), second * 2 + STAYS + REST), place(3));
        assert_eq!(heard(place(3), second * 2 + STAYS + REST * 2), place(3), "nobody has taken that up");
        let mut learning = Learning::default();
        assert_eq!(learning.heard(place(1), begin), None, "though it was never heard elsewhere");
        assert_eq!(learning.heard(place(1), begin + STAYS), place(1));
    }
}
