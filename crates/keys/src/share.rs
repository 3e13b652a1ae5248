//! The share: a lone coordinator's cluster key, so that it can start cold without anybody. Its binding holds the key
//! itself. It names its disk and generation, so one that an abandoned create left behind is ignored.
//!
//! ```text
//! message Share { oneof binding { Tpm tpm = 1; Unprotected unprotected = 2; } bytes disk = 3; uint32 key_generation = 4; }
//! ```

use formats::strict::{self, Field, Kind, Malformed, Message, Rule};
use model::{ClusterKey, DiskUuid, Uuid};
use prost::Message as _;
use zeroize::Zeroizing;

use crate::binding::{BadBinding, Binding, BindingWire, TPM, UNPROTECTED};
use crate::data_key::ClusterHalf;
use crate::pair::{self, File, Next, Pair, TooLarge};

/// A share as it is stored.
#[derive(Debug)]
pub struct Share {
    /// What releases the cluster key.
    pub binding: Binding,
    /// The disk the key is for.
    pub disk: DiskUuid,
    /// The key's generation.
    pub key_generation: u32,
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
}

/// The shares in the two files that are for `disk`, those that a TPM holds before those in clear, the newest first; the
/// rest is of no use.
#[must_use]
pub fn read(slots: [&[u8]; 2], disk: DiskUuid) -> (Vec<Share>, Next) {
    let pair = Pair::read(File::Share, slots);
    let decoded = pair.newest_first.iter().filter_map(|slot| Share::decode(slot.clear()).ok());
    let mut ours: Vec<_> = decoded.filter(|share| share.disk == disk).collect();
    ours.sort_by_key(|share| share.binding.in_clear());
    (ours, pair.next)
}

impl Share {
    /// The cluster's half, once the binding released it.
    #[must_use]
    pub fn half(&self, key: ClusterKey) -> ClusterHalf {
        ClusterHalf { key, disk: self.disk, generation: self.key_generation }
    }

    /// Reads a share, strictly.
    ///
    /// # Errors
    /// [`ShareError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShareError> {
        strict::check(bytes, &SHARE)?;
        let wire = ShareWire::decode(bytes).map_err(|_| Malformed::Truncated(SHARE.name))?;
        let no_binding = Malformed::NoArm { message: SHARE.name, oneof: "binding" };
        Ok(Self {
            binding: Binding::from_wire(wire.binding.as_ref().ok_or(no_binding)?)?,
            disk: DiskUuid(Uuid(wire.disk.as_slice().try_into().map_err(|_| ShareError::Disk)?)),
            key_generation: wire.key_generation,
        })
    }

    /// The bytes of a share file.
    ///
    /// # Errors
    /// [`TooLarge`] when the TPM's blobs do not fit.
    pub fn emit(&self, generation: u64) -> Result<Vec<u8>, TooLarge> {
        let wire = ShareWire {
            binding: Some(self.binding.to_wire()),
            disk: self.disk.0.0.to_vec(),
            key_generation: self.key_generation,
        };
        pair::emit(File::Share, generation, &Zeroizing::new(wire.encode_to_vec()), None)
    }
}

const SHARE: Message = Message {
    name: "Share",
    fields: &[
        Field { number: 1, name: "tpm", kind: Kind::Message(&TPM), rule: Rule::Arm("binding") },
        Field { number: 2, name: "unprotected", kind: Kind::Message(&UNPROTECTED), rule: Rule::Arm("binding") },
        Field { number: 3, name: "disk", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 4, name: "key_generation", kind: Kind::U32, rule: Rule::Required },
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
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;
    use crate::pair::SLOT_BYTES;

    fn share(disk: u8, generation: u64) -> Vec<u8> {
        let binding = Binding::Unprotected(Secret::take(&mut [disk; 32]));
        let disk = DiskUuid(Uuid([disk; 16]));
        Share { binding, disk, key_generation: 1 }.emit(generation).expect("fits")
    }

    fn wire() -> ShareWire {
        let binding = Binding::Unprotected(Secret::take(&mut [3; 32])).to_wire();
        ShareWire { binding: Some(binding), disk: vec![4; 16], key_generation: 5 }
    }

    #[test]
    fn a_share_says_what_it_is_for_and_what_is_wrong_with_it() {
        let decode = |wire: &ShareWire| Share::decode(&wire.encode_to_vec());
        let good = decode(&wire()).expect("a good share");
        assert!(matches!(&good.binding, Binding::Unprotected(secret) if secret.expose() == &[3; 32]));
        assert_eq!((good.disk, good.key_generation), (DiskUuid(Uuid([4; 16])), 5));
        let half = good.half(ClusterKey(Secret::take(&mut [6; 32])));
        assert_eq!((half.key.expose(), half.disk, half.generation), (&[6; 32], good.disk, 5));

        for length in [0, 15, 17] {
            let refused = decode(&ShareWire { disk: vec![4; length], ..wire() });
            assert_eq!(refused.err(), Some(ShareError::Disk), "{length} bytes");
        }
        let no_arm = Malformed::NoArm { message: "Share", oneof: "binding" };
        assert_eq!(decode(&ShareWire { binding: None, ..wire() }).err(), Some(ShareError::Malformed(no_arm)));
        // Field 2 (unprotected) with 31 bytes of secret in place of 32.
        let short = [&[0x12, 33, 0x0a, 31][..], &[3; 31], &[0x1a, 16], &[4; 16], &[0x20, 5]].concat();
        assert_eq!(Share::decode(&short).err(), Some(ShareError::Binding(BadBinding::Secret)));
        let trailing = [wire().encode_to_vec(), vec![0x30, 1]].concat();
        assert!(matches!(Share::decode(&trailing), Err(ShareError::Malformed(_))), "an unknown field 6");
    }

    #[test]
    fn of_two_shares_for_one_disk_the_newest_comes_first() {
        let of = |generation: u64, held: u8| {
            let binding = Binding::Unprotected(Secret::take(&mut [held; 32]));
            Share { binding, disk: DiskUuid(Uuid([1; 16])), key_generation: 1 }.emit(generation).expect("fits")
        };
        for slots in [[of(1, 7), of(2, 8)], [of(2, 8), of(1, 7)]] {
            let (shares, _) = read([&slots[0], &slots[1]], DiskUuid(Uuid([1; 16])));
            let held = |share: &Share| match &share.binding {
                Binding::Unprotected(secret) => secret.expose()[0],
                Binding::Tpm(_) => 0,
            };
            assert_eq!(shares.iter().map(held).collect::<Vec<_>>(), [8, 7]);
        }
    }

    #[test]
    fn a_share_of_an_abandoned_attempt_is_ignored() {
        let blank = vec![0; SLOT_BYTES];
        let ours = DiskUuid(Uuid([1; 16]));
        let (shares, next) = read([&share(1, 1), &share(2, 2)], ours);
        assert_eq!(shares.iter().map(|share| share.disk).collect::<Vec<_>>(), [ours]);
        assert_eq!(next, Next { slot: 0, generation: 3 });
        assert!(read([&share(2, 1), &blank], ours).0.is_empty());
    }
}
