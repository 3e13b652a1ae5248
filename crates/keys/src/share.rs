//! The share: what a coordinator holds of the cold-start key of one epoch, and its own cluster key under that key. Its
//! binding holds the share itself. It names its disk, so one that an abandoned create left behind is ignored.
//!
//! ```text
//! message Share { oneof binding { Tpm tpm = 1; Unprotected unprotected = 2; } bytes disk = 3; uint32 key_generation = 4;
//!                 uint32 epoch = 5; repeated bytes holders = 6; bytes wrapped = 7; }
//! ```

use std::collections::BTreeSet;

use formats::strict::{self, Field, Kind, Malformed, Message, Rule};
use model::{DiskUuid, MachineId, Uuid};
use prost::Message as _;
use zeroize::Zeroizing;

use crate::binding::{BadBinding, Binding, BindingWire, TPM, UNPROTECTED};
use crate::cold_start::{BadEpoch, Epoch, WRAPPED_BYTES, Wrapped};
use crate::pair::{self, File, Next, Pair, Slot, TooLarge};

/// A share as it is stored.
#[derive(Debug)]
pub struct Share {
    /// What releases the share.
    pub binding: Binding,
    /// Which key it is a share of.
    pub epoch: Epoch,
    /// The machine's cluster key under that key.
    pub wrapped: Wrapped,
}

/// Why a share makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The binding.
    #[error(transparent)]
    Binding(#[from] BadBinding),
    /// Not a UUID of 16 bytes.
    #[error("the share names no disk")]
    Disk,
    /// A holder's id is not 16 bytes, or the ids are not each once and in order.
    #[error("the share's holders are not machines, each once and in order")]
    Holders,
    /// No such epoch.
    #[error(transparent)]
    Epoch(#[from] BadEpoch),
    /// Not a key of 32 bytes and a tag.
    #[error("the share's wrapped key has {0} bytes instead of {WRAPPED_BYTES}")]
    Wrapped(usize),
}

/// The shares in the two files that are for `disk`, those that a TPM holds before those in clear, the newest first; the
/// rest is of no use.
#[must_use]
pub fn read(slots: [&[u8]; 2], disk: DiskUuid) -> (Vec<Share>, Next) {
    let pair = Pair::read(File::Share, slots);
    let decoded = pair.newest_first.iter().filter_map(|slot| Share::decode(slot.clear()).ok());
    let mut ours: Vec<_> = decoded.filter(|share| share.wrapped.disk == disk).collect();
    ours.sort_by_key(|share| share.binding.in_clear());
    (ours, pair.next)
}

/// Where the next share for `disk` is written: not over the one of the epoch that `stands`, which all its holders may need.
#[must_use]
pub fn place(slots: [&[u8]; 2], disk: DiskUuid, stands: Option<u32>) -> Next {
    let next = Pair::read(File::Share, slots).next;
    let share = Slot::read(File::Share, slots[next.slot]).ok().and_then(|slot| Share::decode(slot.clear()).ok());
    let of_use = |share: Share| share.wrapped.disk == disk && Some(share.epoch.number()) == stands;
    let slot = if share.is_some_and(of_use) { 1 - next.slot } else { next.slot };
    Next { slot, ..next }
}

impl Share {
    /// Reads a share, strictly.
    ///
    /// # Errors
    /// [`ShareError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShareError> {
        strict::check(bytes, &SHARE)?;
        let wire = ShareWire::decode(bytes).map_err(|_| Malformed::Truncated(SHARE.name))?;
        let no_binding = Malformed::NoArm { message: SHARE.name, oneof: "binding" };
        let cipher = wire.wrapped.as_slice().try_into().map_err(|_| ShareError::Wrapped(wire.wrapped.len()))?;
        Ok(Self {
            binding: Binding::from_wire(wire.binding.as_ref().ok_or(no_binding)?)?,
            epoch: Epoch::new(wire.epoch, holders(&wire.holders)?)?,
            wrapped: Wrapped {
                disk: DiskUuid(Uuid(wire.disk.as_slice().try_into().map_err(|_| ShareError::Disk)?)),
                key_generation: wire.key_generation,
                cipher,
            },
        })
    }

    /// The bytes of a share file.
    ///
    /// # Errors
    /// [`TooLarge`] when the TPM's blobs do not fit.
    pub fn emit(&self, generation: u64) -> Result<Vec<u8>, TooLarge> {
        let wire = ShareWire {
            binding: Some(self.binding.to_wire()),
            disk: self.wrapped.disk.0.0.to_vec(),
            key_generation: self.wrapped.key_generation,
            epoch: self.epoch.number(),
            holders: self.epoch.holders().iter().map(|id| id.0.to_vec()).collect(),
            wrapped: self.wrapped.cipher.to_vec(),
        };
        pair::emit(File::Share, generation, &Zeroizing::new(wire.encode_to_vec()), None)
    }
}

fn holders(wire: &[Vec<u8>]) -> Result<BTreeSet<MachineId>, ShareError> {
    if !wire.is_sorted_by(|one, next| one < next) {
        return Err(ShareError::Holders);
    }
    let id = |id: &Vec<u8>| id.as_slice().try_into().map(MachineId).map_err(|_| ShareError::Holders);
    wire.iter().map(id).collect()
}

const SHARE: Message = Message {
    name: "Share",
    fields: &[
        Field { number: 1, name: "tpm", kind: Kind::Message(&TPM), rule: Rule::Arm("binding") },
        Field { number: 2, name: "unprotected", kind: Kind::Message(&UNPROTECTED), rule: Rule::Arm("binding") },
        Field { number: 3, name: "disk", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 4, name: "key_generation", kind: Kind::U32, rule: Rule::Required },
        Field { number: 5, name: "epoch", kind: Kind::U32, rule: Rule::Required },
        Field { number: 6, name: "holders", kind: Kind::Bytes, rule: Rule::Repeated },
        Field { number: 7, name: "wrapped", kind: Kind::Bytes, rule: Rule::Required },
    ],
};

#[derive(Clone, PartialEq, prost::Message)]
struct ShareWire {
    #[prost(oneof = "BindingWire", tags = "1, 2")]
    binding: Option<BindingWire>,
    #[prost(bytes = "vec", required, tag = "3")]
    disk: Vec<u8>,
    #[prost(uint32, required, tag = "4")]
    key_generation: u32,
    #[prost(uint32, required, tag = "5")]
    epoch: u32,
    #[prost(bytes = "vec", repeated, tag = "6")]
    holders: Vec<Vec<u8>>,
    #[prost(bytes = "vec", required, tag = "7")]
    wrapped: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;
    use crate::pair::SLOT_BYTES;

    /// A share of `held` for `disk`.
    fn share(disk: u8, held: u8, generation: u64) -> Vec<u8> {
        let binding = Binding::Unprotected(Secret::take(&mut [held; 32]));
        let epoch = Epoch::new(1, [MachineId([1; 16])].into()).expect("an epoch");
        let wrapped = Wrapped { disk: DiskUuid(Uuid([disk; 16])), key_generation: 1, cipher: [0; WRAPPED_BYTES] };
        Share { binding, epoch, wrapped }.emit(generation).expect("fits")
    }

    fn wire() -> ShareWire {
        let binding = Some(Binding::Unprotected(Secret::take(&mut [3; 32])).to_wire());
        let holders = vec![vec![7; 16], vec![8; 16]];
        ShareWire { binding, disk: vec![4; 16], key_generation: 5, epoch: 6, holders, wrapped: vec![9; WRAPPED_BYTES] }
    }

    #[test]
    fn a_share_says_what_it_is_of_and_what_is_wrong_with_it() {
        let decode = |wire: &ShareWire| Share::decode(&wire.encode_to_vec());
        let good = decode(&wire()).expect("a good share");
        assert!(matches!(&good.binding, Binding::Unprotected(secret) if secret.expose() == &[3; 32]));
        let disk = DiskUuid(Uuid([4; 16]));
        assert_eq!(good.wrapped, Wrapped { disk, key_generation: 5, cipher: [9; WRAPPED_BYTES] });
        let epoch = Epoch::new(6, [MachineId([7; 16]), MachineId([8; 16])].into());
        assert_eq!(Ok(good.epoch), epoch);

        for length in [0, 15, 17] {
            let refused = decode(&ShareWire { disk: vec![4; length], ..wire() });
            assert_eq!(refused.err(), Some(ShareError::Disk), "{length} bytes");
            let refused = decode(&ShareWire { holders: vec![vec![7; length]], ..wire() });
            assert_eq!(refused.err(), Some(ShareError::Holders), "{length} bytes");
        }
        for wrong in [vec![vec![8; 16], vec![7; 16]], vec![vec![7; 16], vec![7; 16]]] {
            assert_eq!(decode(&ShareWire { holders: wrong, ..wire() }).err(), Some(ShareError::Holders));
        }
        let nobody = decode(&ShareWire { holders: Vec::new(), ..wire() });
        assert_eq!(nobody.err(), Some(ShareError::Epoch(BadEpoch::Holders(0))));
        assert_eq!(decode(&ShareWire { epoch: 0, ..wire() }).err(), Some(ShareError::Epoch(BadEpoch::Number)));
        let short = decode(&ShareWire { wrapped: vec![9; 32], ..wire() });
        assert_eq!(short.err(), Some(ShareError::Wrapped(32)));
        let no_arm = Malformed::NoArm { message: "Share", oneof: "binding" };
        assert_eq!(decode(&ShareWire { binding: None, ..wire() }).err(), Some(ShareError::Malformed(no_arm)));
        // Field 2 (unprotected) with 31 bytes of secret in place of 32.
        let rest = ShareWire { binding: None, ..wire() }.encode_to_vec();
        let short = [&[0x12, 33, 0x0a, 31][..], &[3; 31], &rest].concat();
        assert_eq!(Share::decode(&short).err(), Some(ShareError::Binding(BadBinding::Secret)));
        let trailing = [wire().encode_to_vec(), vec![0x40, 1]].concat();
        assert!(matches!(Share::decode(&trailing), Err(ShareError::Malformed(_))), "an unknown field 8");
    }

    #[test]
    fn of_two_shares_for_one_disk_the_newest_comes_first() {
        for slots in [[share(1, 7, 1), share(1, 8, 2)], [share(1, 8, 2), share(1, 7, 1)]] {
            let (shares, _) = read([&slots[0], &slots[1]], DiskUuid(Uuid([1; 16])));
            let held = |share: &Share| match &share.binding {
                Binding::Unprotected(secret) => secret.expose()[0],
                Binding::Tpm(_) => 0,
            };
            assert_eq!(shares.iter().map(held).collect::<Vec<_>>(), [8, 7]);
        }
    }

    #[test]
    fn a_share_of_the_epoch_that_stands_is_not_written_over() {
        let disk = DiskUuid(Uuid([1; 16]));
        let of = |epoch: u32, generation: u64| {
            let epoch = Epoch::new(epoch, [MachineId([1; 16])].into()).expect("an epoch");
            let wrapped = Wrapped { disk, key_generation: 1, cipher: [0; WRAPPED_BYTES] };
            let binding = Binding::Unprotected(Secret::take(&mut [7; 32]));
            Share { binding, epoch, wrapped }.emit(generation).expect("fits")
        };
        let blank = vec![0; SLOT_BYTES];
        let slot = |slots: [&[u8]; 2], stands| place(slots, disk, stands);
        assert_eq!(slot([&blank, &blank], None), Next { slot: 0, generation: 1 });
        let (older, newer) = (of(1, 1), of(2, 2));
        assert_eq!(slot([&older, &newer], Some(1)), Next { slot: 1, generation: 3 }, "epoch 2 was never whole");
        assert_eq!(slot([&older, &newer], Some(2)), Next { slot: 0, generation: 3 });
        assert_eq!(slot([&newer, &older], Some(1)), Next { slot: 0, generation: 3 });
        assert_eq!(slot([&older, &newer], None), Next { slot: 0, generation: 3 }, "the older one");
        // The same number on another disk stands for nothing.
        assert_eq!(slot([&share(2, 7, 1), &newer], Some(1)), Next { slot: 0, generation: 3 });
    }

    #[test]
    fn a_share_of_an_abandoned_attempt_is_ignored() {
        let blank = vec![0; SLOT_BYTES];
        let ours = DiskUuid(Uuid([1; 16]));
        let (shares, next) = read([&share(1, 7, 1), &share(2, 7, 2)], ours);
        assert_eq!(shares.iter().map(|share| share.wrapped.disk).collect::<Vec<_>>(), [ours]);
        assert_eq!(next, Next { slot: 0, generation: 3 });
        assert!(read([&share(2, 7, 1), &blank], ours).0.is_empty());
    }
}
