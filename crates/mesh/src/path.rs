//! How large a packet to one peer may be: measured by echoes of several sizes, of which those too large for the path between
//! never come back, and nobody says so.
//!
//! WireGuard's packets may be cut in two on their way: it forbids that to nobody (`send4`, `drivers/net/wireguard/socket.c`).
//! A router with a narrow link does so. A switch, or somebody else's tunnel that pretends to be a cable, does not: it drops
//! what is too large, and TCP sends it again for ever. So paths are measured inside of the tunnel, and what is too large is
//! never sent.
//!
//! ```text
//!   unmeasured ── the peer is heard ──► measuring: the largest, then all that are larger than what came back
//!       ▲                                  │ the largest is back, or all rounds are over
//!       └── 10 minutes, another endpoint, silence ◄── measured
//! ```

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// The sizes that are tried: whole packets inside of the tunnel. WireGuard fills packets up to whole 16 bytes, so that sizes
/// between would tell nothing. All networks carry the smallest (IPv6's minimum, RFC 8200), the largest is the interface's.
const SIZES: [u16; 10] = [1280, 1296, 1312, 1328, 1344, 1360, 1376, 1392, 1408, LARGEST];
/// 1500 less an outer IPv6 header, UDP and WireGuard's own 32 bytes, so that both families fit.
pub const LARGEST: u16 = 1420;
/// Paths change rarely; where one has become narrower, silence tells sooner.
const AGAIN: Duration = Duration::from_secs(600);
/// The first asks for the largest alone, which mostly is enough. The other three are for what a bad path loses.
const ROUNDS: u8 = 4;
/// So many echoes at most measure a path once.
pub const MOST_ECHOES: usize = 1 + (ROUNDS as usize - 1) * SIZES.len();

/// Measurements of the path to one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path {
    /// The largest size that came back when all were tried.
    passes: Option<u16>,
    /// Where the peer was then.
    endpoint: Option<SocketAddrV4>,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    Unmeasured,
    Measuring {
        /// So many have begun.
        rounds: u8,
        /// The largest size that is back.
        back: Option<u16>,
        /// Whether that has grown since the last look: then more may be on its way.
        grows: bool,
    },
    Measured {
        again_at: Instant,
    },
}

/// Whether the path to a peer may be measured now, if it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The peer was heard since the last look, and there are not too many that are measured.
    Good,
    /// The peer was not heard, or too many are measured: an echo would only wake a peer that has nothing to say.
    Bad,
}

impl Path {
    /// The largest packet that may be sent, where that is less than the interface allows.
    #[must_use]
    pub fn limit(&self) -> Option<u16> {
        self.passes.filter(|passes| *passes < LARGEST)
    }

    /// Whether echoes are awaited.
    #[must_use]
    pub const fn is_measuring(&self) -> bool {
        matches!(self.step, Step::Measuring { .. })
    }

    /// Doubts what was measured: it holds no longer for sure, but is all that is known.
    pub const fn doubt(&mut self) {
        self.step = Step::Unmeasured;
    }

    /// The sizes to ask for now, a second at least after those before.
    pub fn look(&mut self, endpoint: Option<SocketAddrV4>, moment: Moment, now: Instant) -> &'static [u16] {
        if self.endpoint != endpoint {
            self.doubt();
        }
        match self.step {
            Step::Measuring { rounds, back, .. } if rounds < ROUNDS => {
                self.step = Step::Measuring { rounds: rounds + 1, back, grows: false };
                larger_than(back)
            }
            // Echoes that waited for a handshake come back in one go, and this look may be amid them.
            Step::Measuring { rounds, back, grows: true } => {
                self.step = Step::Measuring { rounds, back, grows: false };
                &[]
            }
            // Where not even the smallest came back, nobody was there.
            Step::Measuring { back, .. } => {
                self.is_measured(back.or(self.passes), now);
                &[]
            }
            Step::Measured { again_at } if now < again_at => &[],
            Step::Measured { .. } | Step::Unmeasured if moment == Moment::Bad => &[],
            Step::Measured { .. } | Step::Unmeasured => {
                self.endpoint = endpoint;
                self.step = Step::Measuring { rounds: 1, back: None, grows: false };
                &SIZES[SIZES.len() - 1..]
            }
        }
    }

    /// An echo of this size is back. It may be late: then it is news all the same.
    pub fn echoed(&mut self, size: u16, now: Instant) {
        let size = SIZES.into_iter().rfind(|it| *it <= size);
        match &mut self.step {
            Step::Measuring { back, grows, .. } => {
                *grows |= size > *back;
                *back = size.max(*back);
                if *back == Some(LARGEST) {
                    self.is_measured(Some(LARGEST), now);
                }
            }
            Step::Measured { .. } => self.passes = size.max(self.passes),
            Step::Unmeasured => {}
        }
    }

    fn is_measured(&mut self, passes: Option<u16>, now: Instant) {
        self.passes = passes;
        self.step = Step::Measured { again_at: now + AGAIN };
    }
}

fn larger_than(back: Option<u16>) -> &'static [u16] {
    let known = SIZES.partition_point(|size| Some(*size) <= back);
    &SIZES[known..]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const HOME: Option<SocketAddrV4> = Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 7838));
    const OTHER: Option<SocketAddrV4> = Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 7838));

    /// Looks once a second, so long; echoes up to `widest` come back at once. How many were asked for.
    fn measure(path: &mut Path, widest: u16, from: Instant, seconds: u64) -> usize {
        let mut asked = 0;
        for second in 0..seconds {
            let now = from + Duration::from_secs(second);
            for size in path.look(HOME, Moment::Good, now) {
                asked += 1;
                if *size <= widest {
                    path.echoed(*size, now);
                }
            }
        }
        asked
    }

    /// Proves: M9
    #[test]
    fn a_wide_path_is_measured_by_one_echo_every_ten_minutes() {
        let mut path = Path::default();
        assert_eq!(measure(&mut path, 9000, testkit::origin(), 3600), 6);
        assert_eq!((path.limit(), path.is_measuring()), (None, false));
    }

    /// Proves: M9
    #[test]
    fn another_endpoint_or_a_doubt_has_a_path_measured_again() {
        let start = testkit::origin();
        let mut path = Path::default();
        assert!(path.look(HOME, Moment::Bad, start).is_empty(), "nobody is woken");
        // The largest, then all, then twice those six that are larger than what came back.
        assert_eq!(measure(&mut path, 1340, start, 10), 1 + SIZES.len() + 2 * 6);
        assert_eq!(path.limit(), Some(1328));
        assert!(path.look(HOME, Moment::Good, start).is_empty(), "it is known");
        assert!(path.look(OTHER, Moment::Bad, start).is_empty());
        assert_eq!(path.look(OTHER, Moment::Good, start), [LARGEST]);
        assert_eq!(path.limit(), Some(1328), "what is known stays until more is");
        path.echoed(LARGEST, start);
        assert_eq!(path.limit(), None);
        path.doubt();
        assert_eq!(path.look(OTHER, Moment::Good, start), [LARGEST]);
    }

    #[test]
    fn an_answer_that_comes_late_is_an_answer_and_silence_is_none() {
        let start = testkit::origin();
        let mut path = Path::default();
        measure(&mut path, 0, start, 10);
        assert_eq!((path.limit(), path.is_measuring()), (None, false), "nobody was there: nothing is learnt");
        path.doubt();
        measure(&mut path, 1300, start, 10);
        assert_eq!(path.limit(), Some(1296));
        path.echoed(1376, start);
        assert_eq!(path.limit(), Some(1376));
        path.echoed(1280, start);
        assert_eq!(path.limit(), Some(1376));
        path.doubt();
        measure(&mut path, 0, start, 10);
        assert_eq!(path.limit(), Some(1376), "what is known stays");
        path.doubt();
        path.look(HOME, Moment::Good, start);
        path.echoed(1392, start);
        path.echoed(1280, start);
        measure(&mut path, 0, start, 10);
        assert_eq!(path.limit(), Some(1392), "they come back in any order");
    }

    /// Looks of a second each ask in vain; then all answers come, with a look amid them.
    ///
    /// Proves: M7 M9
    #[test]
    fn answers_that_come_in_one_go_are_waited_for() {
        let (mut path, start) = (Path::default(), testkit::origin());
        measure(&mut path, LARGEST, start, 1);
        path.doubt();
        measure(&mut path, 0, start, ROUNDS.into());
        for size in SIZES {
            assert_eq!(path.limit(), None, "nothing is changed by what is not over");
            path.echoed(size, start);
            path.look(HOME, Moment::Good, start);
        }
        assert_eq!((path.limit(), path.is_measuring()), (None, false));
        path.doubt();
        measure(&mut path, 0, start, ROUNDS.into());
        path.echoed(1296, start);
        measure(&mut path, 0, start, 2);
        assert_eq!((path.limit(), path.is_measuring()), (Some(1296), false), "there is no more");
    }

    proptest! {
        /// The largest size that passes is found on any path, though each size is lost twice, by a bounded number of
        /// echoes.
        ///
        /// Proves: M9
        #[test]
        fn the_largest_size_that_passes_is_found(
            widest in 1280..1500_u16,
            lost in proptest::collection::vec(0..3_u8, SIZES.len()),
        ) {
            let (mut path, start) = (Path::default(), testkit::origin());
            let mut lost: std::collections::BTreeMap<u16, u8> = SIZES.into_iter().zip(lost).collect();
            let mut asked = 0;
            for second in 0..20 {
                let now = start + Duration::from_secs(second);
                for size in path.look(HOME, Moment::Good, now) {
                    asked += 1;
                    let left = lost.get_mut(size).expect("a size of the list");
                    if *left > 0 {
                        *left -= 1;
                    } else if *size <= widest {
                        path.echoed(*size, now);
                    }
                }
            }
            let expected = SIZES.into_iter().rfind(|size| *size <= widest);
            prop_assert_eq!(path.limit().or(Some(LARGEST)), expected);
            prop_assert!(asked <= MOST_ECHOES);
        }
    }
}
