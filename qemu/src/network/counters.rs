//! Counters of the frames of one direction of a cable. Every frame is counted once as taken, and once as delivered,
//! dropped for a named reason, or still held; all that pass frames on keep to that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a frame went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The frame has no whole Ethernet header.
    Runt,
    /// The cable's end is not plugged in.
    Unplugged,
    /// The cable is cut.
    Cut,
    /// The cable loses one in so many.
    Loss,
    /// The frame is longer than the cable takes.
    Mtu,
    /// The frame would have waited too long for a slow cable.
    Rate,
    /// Too much is on its way over a slow or long cable.
    Full,
    /// The machine takes frames more slowly than they come.
    Backlog,
    /// The frame says that it is from a group of stations, which no station is.
    GroupSource,
    /// The frame's station is where the frame came from.
    SamePort,
    /// The segment has no other station.
    Alone,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Runt,
        Self::Unplugged,
        Self::Cut,
        Self::Loss,
        Self::Mtu,
        Self::Rate,
        Self::Full,
        Self::Backlog,
        Self::GroupSource,
        Self::SamePort,
        Self::Alone,
    ];
}

/// Frames by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameCounters {
    /// Put on the cable.
    pub taken: u64,
    /// Made from one that was taken.
    pub duplicated: u64,
    /// Arrived: at the cable's end, or through the switch at one port or more.
    pub delivered: u64,
    /// Went no further.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Still on the cable, or before a machine that has not taken them yet.
    pub held: u64,
}

impl FrameCounters {
    pub(super) fn drop(&mut self, reason: DropReason, frames: usize) {
        if frames > 0 {
            *self.dropped.entry(reason).or_default() += frames as u64;
        }
    }

    /// Whether no frame was lost without a reason, and none came from nowhere.
    #[must_use]
    pub fn balance(&self) -> bool {
        self.taken + self.duplicated == self.delivered + self.dropped.values().sum::<u64>() + self.held
    }
}
