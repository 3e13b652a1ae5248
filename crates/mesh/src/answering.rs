//! Whether a peer answers, from the kernel's counters alone: they know nothing of clocks that were set.
//!
//! Heard is a peer whose handshake was finished, or whose packets came while a session could carry them: an initiation that somebody
//! replays for a machine that is off is neither.
//!
//! WireGuard answers everything within ten seconds, if only with an empty packet (whitepaper, section 6.5, passive
//! keepalive). So who got something and has said nothing for longer than that is not there, or not there any more.

use std::time::{Duration, Instant};

use crate::kernel::Counters;

/// A passive keepalive comes after 10 s at the latest (`KEEPALIVE_TIMEOUT`); one more for the way and a busy host.
pub const SILENT_AFTER: Duration = Duration::from_secs(11);
/// An answer to a first handshake takes one round trip. WireGuard tries again 5 s after a try (`REKEY_TIMEOUT`), so the next
/// endpoint is in place by then.
pub const TRY: Duration = Duration::from_secs(3);

/// The same for another way to who answered until now: it needs no handshake, and is asked for an echo at each look. Where several
/// ways are tried, the last of them has to come in time.
pub const TRY_WAY: Duration = Duration::from_secs(2);

/// Time after which a peer is deaf: asked for an echo at each look while nothing comes, it has not answered four of
/// them by then. That many are not lost by chance where a link still carries anything.
pub const DEAF_AFTER: Duration = Duration::from_secs(4);

/// A session carries nothing after this (whitepaper, section 6.1, `REJECT_AFTER_TIME`).
pub(crate) const SESSION: Duration = Duration::from_secs(180);

/// Answers of one peer, as far as its counters tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerAnswers {
    seen: Option<Counters>,
    /// When the last handshake was seen to be finished.
    shaken: Option<Instant>,
    /// The peer has answered since something new was tried.
    answered: bool,
    /// Since when something that was sent has no answer.
    waits_since: Option<Instant>,
    /// The peer said something between the last two looks.
    heard: bool,
    /// The last words of the peer were no answer.
    talks: bool,
}

impl PeerAnswers {
    /// State of a peer that the kernel has from before: what was counted by then says nothing of now, but its session
    /// may hold.
    #[must_use]
    pub fn since(counters: Counters, now: Instant) -> Self {
        Self { seen: Some(counters), shaken: counters.handshake.map(|_| now), ..Self::default() }
    }

    /// Takes a look at the counters.
    pub fn look(&mut self, counters: Counters, now: Instant) {
        let before = match self.seen.replace(counters) {
            // The kernel's peer was made anew: it has no session yet.
            Some(before) if before.sent > counters.sent || before.received > counters.received => {
                self.shaken = None;
                Counters::default()
            }
            Some(before) => before,
            None => Counters::default(),
        };
        if counters.handshake != before.handshake {
            self.shaken = counters.handshake.map(|_| now);
        }
        let carries = self.shaken.is_some_and(|shaken| now.saturating_duration_since(shaken) < SESSION);
        self.heard = carries && counters.received > before.received;
        if self.heard {
            self.answered = true;
            self.talks = self.waits_since.take().is_none();
        } else if counters.sent > before.sent {
            self.waits_since.get_or_insert(now);
        }
    }

    /// Something new is tried from now on: another endpoint, or the same peer made anew.
    pub const fn try_again(&mut self) {
        self.answered = false;
        // Nothing was sent there yet.
        self.waits_since = None;
    }

    /// Something is sent to it now that it has to answer.
    pub fn ask(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// When this peer is given up where it is, if it says nothing until then; `patience` is for one that has answered there, `first`
    /// for one that has not yet.
    #[must_use]
    pub fn silent_at(&self, patience: Duration, first: Duration) -> Option<Instant> {
        self.waits_since.map(|since| since + if self.answered { patience } else { first })
    }

    /// Whether it says things by itself, so that its silence means something.
    #[must_use]
    pub const fn talks(&self) -> bool {
        self.talks
    }

    /// Whether something that was sent has no answer.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Whether it said something between the last two looks.
    #[must_use]
    pub const fn is_heard(&self) -> bool {
        self.heard
    }

    /// Whether it has answered since something new was tried.
    #[must_use]
    pub const fn has_answered(&self) -> bool {
        self.answered
    }

    /// Whether it answers where it is: what works is not to be changed for what might.
    #[must_use]
    pub const fn works(&self) -> bool {
        self.answered && self.waits_since.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    /// After a handshake, where anything was received.
    fn at(sent: u64, received: u64) -> Counters {
        Counters { sent, received, handshake: NonZeroU64::new(received.min(1)) }
    }

    /// Proves: M6
    #[test]
    fn who_has_finished_no_handshake_is_not_heard() {
        let start = testkit::origin();
        let second = |number| start + Duration::from_secs(number);
        let mut peer = PeerAnswers::default();
        peer.look(Counters { sent: 92, received: 148, handshake: None }, second(0));
        peer.look(Counters { sent: 184, received: 296, handshake: None }, second(1));
        assert!(!peer.is_heard() && !peer.has_answered() && peer.waits(), "initiations, and nobody takes the answers");
        let shaken = |received, at| Counters { sent: 184, received, handshake: NonZeroU64::new(at) };
        peer.look(shaken(328, 7), second(2));
        assert!(peer.is_heard() && peer.works());
        peer.look(shaken(360, 7), second(181));
        assert!(peer.is_heard(), "what its session carries");
        peer.look(shaken(508, 7), second(182));
        assert!(!peer.is_heard(), "its session carries nothing any more");
        peer.look(shaken(540, 8), second(183));
        assert!(peer.is_heard(), "another one");
        // By a mesh that begins anew.
        let mut anew = PeerAnswers::since(shaken(540, 8), second(183));
        anew.look(shaken(540, 8), second(184));
        assert!(!anew.is_heard() && !anew.has_answered(), "that was before");
        anew.look(shaken(572, 8), second(185));
        assert!(anew.is_heard());
        let mut anew = PeerAnswers::since(Counters { handshake: None, ..shaken(540, 8) }, second(183));
        anew.look(Counters { handshake: None, ..shaken(688, 8) }, second(184));
        assert!(!anew.is_heard());
    }

    /// Proves: M12
    #[test]
    fn who_says_something_unasked_talks_until_it_only_answers() {
        let start = testkit::origin();
        let second = |number| start + Duration::from_secs(number);
        let mut peer = PeerAnswers::default();
        peer.look(at(100, 100), second(0));
        peer.look(at(100, 500), second(1));
        assert!(peer.talks());
        peer.look(at(100, 500), second(2));
        assert!(peer.talks() && !peer.is_heard(), "it has fallen silent, and was told nothing");
        assert!(!peer.waits());
        peer.ask(second(2));
        peer.look(at(160, 560), second(3));
        assert!(!peer.talks() && peer.works(), "an answer");
        peer.look(at(160, 900), second(4));
        assert!(peer.talks());
    }

    /// Proves: M6
    #[test]
    fn a_peer_that_was_told_and_says_nothing_is_silent_soon() {
        let start = testkit::origin();
        let second = |number| start + Duration::from_secs(number);
        let mut peer = PeerAnswers::default();
        peer.look(at(0, 0), second(0));
        assert_eq!((peer.silent_at(SILENT_AFTER, TRY), peer.works()), (None, false), "nobody asked it for anything");
        peer.look(at(148, 0), second(1));
        assert_eq!(peer.silent_at(SILENT_AFTER, TRY), Some(second(4)), "a first handshake");
        peer.look(at(148, 92), second(2));
        assert_eq!((peer.silent_at(SILENT_AFTER, TRY), peer.works(), peer.is_heard()), (None, true, true));
        peer.look(at(300, 92), second(3));
        assert!(!peer.is_heard(), "not since the last look");
        assert_eq!(peer.silent_at(SILENT_AFTER, TRY), Some(second(14)), "it may take ten seconds to answer");
        peer.look(at(400, 92), second(9));
        assert_eq!(
            (peer.silent_at(SILENT_AFTER, TRY), peer.works()),
            (Some(second(14)), false),
            "more of the same changes nothing"
        );
        peer.look(at(400, 124), second(13));
        assert_eq!((peer.silent_at(SILENT_AFTER, TRY), peer.works()), (None, true), "an empty packet is an answer");
    }

    #[test]
    fn a_peer_that_was_made_anew_counts_from_zero() {
        let start = testkit::origin();
        let mut peer = PeerAnswers::default();
        peer.look(at(5000, 5000), start);
        peer.try_again();
        assert_eq!((peer.works(), peer.silent_at(SILENT_AFTER, TRY)), (false, None));
        peer.look(at(148, 0), start);
        assert_eq!(peer.silent_at(SILENT_AFTER, TRY), Some(start + TRY));
        peer.look(at(148, 92), start);
        assert!(peer.works());
        // An initiation is not heard: the session of before is gone.
        let mut peer = PeerAnswers::default();
        peer.look(at(5000, 5000), start);
        peer.look(Counters { sent: 240, received: 148, handshake: None }, start);
        assert!(!peer.is_heard() && peer.waits());
        // By either of the two that is less than before.
        for before in [at(5000, 92), at(100, 5000)] {
            let mut peer = PeerAnswers::default();
            peer.look(before, start);
            peer.look(at(148, 92), start);
            assert!(peer.is_heard() && !peer.waits());
        }
    }
}
