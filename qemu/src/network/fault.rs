//! Faults of a bad cable in one direction, in virtual time, and the same again for the same seed. Pure.
//!
//! ```text
//!   send ─► cut? too long? lost? ─► once or twice ─► waits for the rate ─► delay, jitter, reordering ─► receive
//! ```
//! It keeps the order of frames but for those that it reorders, and counts each that it drops.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::counters::{DropReason, FrameCounters};
use super::frame::{Frame, HEADER};

/// Faults of one direction of a cable. The default is a good cable: no delay, no loss, no end of its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Whether anything gets through at all.
    pub cable: Cut,
    /// How many frames are lost.
    pub loss: Chance,
    /// How many arrive twice.
    pub duplicate: Chance,
    /// How many are overtaken by those of the next [`HELD_BACK`].
    pub reorder: Chance,
    /// How long each is on its way at least.
    #[serde(with = "micros")]
    pub delay: Duration,
    /// How much longer, at most; by chance, and never so that frames change their order.
    #[serde(with = "micros")]
    pub jitter: Duration,
    /// Bits per second, if there is an end to it; the bits of the Ethernet header count.
    pub rate: Option<u64>,
    /// The longest payload of a frame in bytes; what is longer is dropped in silence.
    pub mtu: Option<u16>,
}

impl Faults {
    /// Faults of a cable that lets nothing through.
    #[must_use]
    pub fn cut() -> Self {
        Self { cable: Cut::Cut, ..Self::default() }
    }
}

/// A cable that is whole, or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Frames get through.
    #[default]
    Whole,
    /// None does, and those on their way are lost.
    Cut,
}

/// How likely something is, in parts of a million.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Chance(u32);

impl Chance {
    const CERTAIN: u32 = 1_000_000;

    /// So many of a million.
    ///
    /// # Errors
    /// [`MoreThanAll`]
    pub const fn per_million(parts: u32) -> Result<Self, MoreThanAll> {
        if parts > Self::CERTAIN { Err(MoreThanAll(parts)) } else { Ok(Self(parts)) }
    }
}

impl TryFrom<u32> for Chance {
    type Error = MoreThanAll;

    fn try_from(parts: u32) -> Result<Self, MoreThanAll> {
        Self::per_million(parts)
    }
}

impl From<Chance> for u32 {
    fn from(chance: Chance) -> Self {
        chance.0
    }
}

/// A chance above certainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} of a million is no chance")]
pub struct MoreThanAll(pub u32);

/// The longest delay or jitter that can be asked for: whatever waits longer has given up.
pub const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// How long a frame is held back that is to be overtaken.
pub const HELD_BACK: Duration = Duration::from_millis(10);
/// A frame that would wait longer for a slow cable is dropped, as the short queue of a good router would.
pub const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// Bytes on their way in one direction, more than a gigabit per second at 50 ms fills.
pub const ON_THE_WAY: usize = 8 << 20;

/// Times that can be asked for, as microseconds.
mod micros {
    use super::*;
    use serde::de::Error as _;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let time = Duration::from_micros(u64::deserialize(from)?);
        if time > LONGEST_DELAY { Err(D::Error::custom("a delay of more than a minute")) } else { Ok(time) }
    }
}

/// Direction of a cable, with the frames that are on their way.
#[derive(Debug)]
pub(super) struct Line {
    faults: Faults,
    random: Random,
    /// By when they arrive, then by when they were sent.
    on_the_way: BTreeMap<(Duration, u64), Frame>,
    bytes: usize,
    sent: u64,
    /// When the last bit of what was sent is on the cable.
    free_at: Duration,
    /// When the last frame arrives whose order is kept.
    last_arrival: Duration,
}

impl Line {
    /// A good one. The same seed makes the same draws.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            faults: Faults::default(),
            random: Random(seed),
            on_the_way: BTreeMap::new(),
            bytes: 0,
            sent: 0,
            free_at: Duration::ZERO,
            last_arrival: Duration::ZERO,
        }
    }

    /// From now on it has these faults. What is on its way arrives as it was going to, and may be overtaken by what is
    /// sent over a cable that has become shorter; only a cut loses it.
    pub(super) fn set_faults(&mut self, faults: Faults, counters: &mut FrameCounters) {
        self.faults = faults;
        (self.free_at, self.last_arrival) = (Duration::ZERO, Duration::ZERO);
        if faults.cable == Cut::Cut {
            counters.drop(DropReason::Cut, self.on_the_way.len());
            self.on_the_way.clear();
            self.bytes = 0;
        }
    }

    /// Puts a frame on the cable.
    pub(super) fn send(&mut self, frame: &Frame, now: Duration, counters: &mut FrameCounters) {
        counters.taken += 1;
        let too_long = self.faults.mtu.is_some_and(|mtu| frame.bytes().len() > HEADER + usize::from(mtu));
        if self.faults.cable == Cut::Cut {
            return counters.drop(DropReason::Cut, 1);
        }
        if too_long {
            return counters.drop(DropReason::Mtu, 1);
        }
        if self.random.happens(self.faults.loss) {
            return counters.drop(DropReason::Loss, 1);
        }
        self.hold(frame.clone(), now, counters);
        if self.random.happens(self.faults.duplicate) {
            counters.duplicated += 1;
            self.hold(frame.clone(), now, counters);
        }
    }

    /// The next frame that has arrived by now.
    pub(super) fn receive(&mut self, now: Duration) -> Option<Frame> {
        let first = self.on_the_way.first_entry().filter(|first| first.key().0 <= now)?;
        let frame = first.remove();
        self.bytes -= frame.bytes().len();
        Some(frame)
    }

    /// When the next frame arrives.
    pub(super) fn next_arrival(&self) -> Option<Duration> {
        self.on_the_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// Frames on their way.
    pub(super) fn held(&self) -> usize {
        self.on_the_way.len()
    }

    fn hold(&mut self, frame: Frame, now: Duration, counters: &mut FrameCounters) {
        let length = frame.bytes().len();
        if self.bytes + length > ON_THE_WAY {
            return counters.drop(DropReason::Full, 1);
        }
        let begins = self.free_at.max(now);
        if begins > now + LONGEST_WAIT {
            return counters.drop(DropReason::Rate, 1);
        }
        self.free_at = begins + self.faults.rate.map_or(Duration::ZERO, |rate| time_of(length, rate));
        let mut arrival = self.free_at + self.faults.delay + self.random.up_to(self.faults.jitter);
        if self.random.happens(self.faults.reorder) {
            arrival += HELD_BACK;
        } else {
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        self.sent += 1;
        self.bytes += length;
        self.on_the_way.insert((arrival, self.sent), frame);
    }
}

/// How long so many bytes take at so many bits per second. A rate of zero is the slowest there is.
fn time_of(bytes: usize, rate: u64) -> Duration {
    let nanoseconds = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): any seed is a good one.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, chance: Chance) -> bool {
        chance.0 > 0 && self.draw() % u64::from(Chance::CERTAIN) < u64::from(chance.0)
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        let nanoseconds = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        if nanoseconds == 0 { Duration::ZERO } else { Duration::from_nanos(self.draw() % (nanoseconds + 1)) }
    }
}

#[cfg(test)]
mod tests;
