//! The cold-start key's epochs: which one holds, which one is being made, and who has it already. Holds no share.
//!
//! ```text
//! message ColdStart { uint32 version = 1; optional Epoch current = 2; optional Epoch next = 3; repeated bytes acknowledged = 4; }
//! message Epoch     { uint32 number = 1; repeated bytes holders = 2; }
//! ```

use std::collections::BTreeSet;

use keys::cold_start::Epoch;
use model::MachineId;
use prost::Message as _;

use super::{BadRecord, VERSION, decode, ids, to_wire};

/// The epochs there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColdStartEpochs {
    /// The newest that all its holders acknowledged; none under policy `manual` and before the first.
    pub current: Option<Epoch>,
    /// The one that is being made; `current` stands until all its holders acknowledged it.
    pub next: Option<NextEpoch>,
}

/// An epoch that some holder has not acknowledged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextEpoch {
    /// The epoch that is being made.
    pub epoch: Epoch,
    /// Which of its holders have their share on their ESP: not all.
    pub acknowledged: BTreeSet<MachineId>,
}

impl ColdStartEpochs {
    /// The newest that was begun, whole or not.
    #[must_use]
    pub fn newest(&self) -> Option<&Epoch> {
        self.next.as_ref().map(|next| &next.epoch).or(self.current.as_ref())
    }

    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let next = self.next.as_ref();
        let wire = ColdStartWire {
            version: VERSION,
            current: self.current.as_ref().map(EpochWire::of),
            next: next.map(|next| EpochWire::of(&next.epoch)),
            acknowledged: next.map(|next| to_wire(&next.acknowledged)).unwrap_or_default(),
        };
        wire.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: ColdStartWire = decode(bytes, &COLD_START)?;
        let epoch = |wire: &Option<EpochWire>| wire.as_ref().map(EpochWire::read).transpose();
        let (current, next, acknowledged) = (epoch(&wire.current)?, epoch(&wire.next)?, ids(&wire.acknowledged)?);
        let Some(epoch) = next else {
            return match acknowledged.len() {
                0 => Ok(Self { current, next: None }),
                _ => Err(BadRecord::Contradiction("an epoch is acknowledged that is not being made")),
            };
        };
        if epoch.number() <= current.as_ref().map_or(0, Epoch::number) {
            return Err(BadRecord::Contradiction("the next epoch is not behind the current one"));
        }
        if !acknowledged.is_subset(epoch.holders()) {
            return Err(BadRecord::Contradiction("an epoch is acknowledged by who does not hold it"));
        }
        if acknowledged == *epoch.holders() {
            return Err(BadRecord::Contradiction("the next epoch is acknowledged by all its holders"));
        }
        Ok(Self { current, next: Some(NextEpoch { epoch, acknowledged }) })
    }
}

impl EpochWire {
    pub(crate) fn of(epoch: &Epoch) -> Self {
        Self { number: epoch.number(), holders: to_wire(epoch.holders()) }
    }

    pub(crate) fn read(&self) -> Result<Epoch, BadRecord> {
        Ok(Epoch::new(self.number, ids(&self.holders)?)?)
    }
}

formats::strict_message! {
    struct EpochWire, EPOCH = "Epoch" {
        1 required u32 number;
        2 repeated bytes holders;
    }
}

formats::strict_message! {
    struct ColdStartWire, COLD_START = "ColdStart" {
        1 required u32 version;
        2 optional message(EpochWire, EPOCH) current;
        3 optional message(EpochWire, EPOCH) next;
        4 repeated bytes acknowledged;
    }
}
