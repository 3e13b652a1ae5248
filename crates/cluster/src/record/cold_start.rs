//! The cold-start key's epochs: which one holds, which one is being made, and who has it already. Holds no share.
//!
//! ```text
//! message ColdStart { uint32 version = 1; optional Epoch current = 2; optional Epoch next = 3; }
//! message Epoch     { uint32 number = 1; repeated bytes holders = 2; repeated bytes acknowledged = 3; }
//! ```

use std::collections::BTreeSet;

use model::MachineId;
use prost::Message as _;

use super::{BadRecord, VERSION, decode, sized};

/// The epochs there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColdStartEpoch {
    /// The newest that all its holders acknowledged; none under policy `manual` and before the first.
    pub current: Option<Epoch>,
    /// The one that is being made; `current` stands until all its holders acknowledged it.
    pub next: Option<Epoch>,
}

/// One epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Counts from 1.
    pub number: u32,
    /// Who holds a share: the voters. One or more.
    pub holders: BTreeSet<MachineId>,
    /// Which of them have it on their disk.
    pub acknowledged: BTreeSet<MachineId>,
}

impl Epoch {
    /// Whether each holder has acknowledged it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.acknowledged == self.holders
    }

    fn to_wire(&self) -> EpochWire {
        let ids = |ids: &BTreeSet<MachineId>| ids.iter().map(|id| id.0.to_vec()).collect();
        EpochWire { number: self.number, holders: ids(&self.holders), acknowledged: ids(&self.acknowledged) }
    }

    fn read(wire: &EpochWire) -> Result<Self, BadRecord> {
        let epoch = Self { number: wire.number, holders: ids(&wire.holders)?, acknowledged: ids(&wire.acknowledged)? };
        if epoch.number == 0 || epoch.holders.is_empty() {
            return Err(BadRecord::Contradiction("an epoch has a number from 1 and a holder"));
        }
        if !epoch.acknowledged.is_subset(&epoch.holders) {
            return Err(BadRecord::Contradiction("an epoch is acknowledged by who does not hold it"));
        }
        Ok(epoch)
    }
}

/// Ids in ascending order, each once.
fn ids(wire: &[Vec<u8>]) -> Result<BTreeSet<MachineId>, BadRecord> {
    if !wire.is_sorted_by(|one, next| one < next) {
        return Err(BadRecord::Contradiction("machines are not each once and in order"));
    }
    wire.iter().map(|id| sized("machine id", id).map(MachineId)).collect()
}

impl ColdStartEpoch {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = |epoch: &Option<Epoch>| epoch.as_ref().map(Epoch::to_wire);
        ColdStartWire { version: VERSION, current: wire(&self.current), next: wire(&self.next) }.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: ColdStartWire = decode(bytes, &COLD_START)?;
        let read = |epoch: &Option<EpochWire>| epoch.as_ref().map(Epoch::read).transpose();
        let (current, next) = (read(&wire.current)?, read(&wire.next)?);
        if current.as_ref().is_some_and(|current| !current.is_whole()) {
            return Err(BadRecord::Contradiction("the current epoch is not acknowledged by all its holders"));
        }
        let reached = current.as_ref().map_or(0, |current| current.number);
        if next.as_ref().is_some_and(|next| next.number <= reached) {
            return Err(BadRecord::Contradiction("the next epoch is not behind the current one"));
        }
        Ok(Self { current, next })
    }
}

formats::strict_message! {
    struct EpochWire, EPOCH = "Epoch" {
        1 required u32 number;
        2 repeated bytes holders;
        3 repeated bytes acknowledged;
    }
}

formats::strict_message! {
    struct ColdStartWire, COLD_START = "ColdStart" {
        1 required u32 version;
        2 optional message(EpochWire, EPOCH) current;
        3 optional message(EpochWire, EPOCH) next;
    }
}
