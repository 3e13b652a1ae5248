//! The share: what a coordinator holds of the cold-start key of one epoch, and its own cluster key under that key. The share itself
//! lies under a key that follows from the local key: whoever opens the seal opens it, and a new one is written while the TPM is
//! closed. It names its disk, so one that an abandoned create left behind is ignored.
//!
//! ```text
//! message Share { bytes disk = 1 (16 B); uint32 key_generation = 2; uint32 epoch = 3 (from 1);
//!                 repeated bytes holders = 4 (1 to 7 machine ids of 16 B, ascending); bytes share = 5 (48 B); bytes wrapped = 6 (48 B);
//!                 optional bytes wrapped_next = 7 (48 B); }
//! ```

use std::collections::BTreeSet;

use formats::strict::{self, Field, FormatError, Kind, Message, Rule};
use model::{DiskUuid, LocalKey, MachineId, Secret, Uuid};
use prost::Message as _;

use crate::cold_start::{BadEpoch, Epoch, WRAPPED_BYTES, WrappedKey};
use crate::data_key::Holder;
use crate::derive::{Unauthentic, decrypt, encrypt, hkdf, secret, sha256};
use crate::purpose::Purpose;
use crate::two_slot::{self, File, NextSlot, TooLarge, TwoSlotFile};

/// A share as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Which key it is a share of.
    pub epoch: Epoch,
    /// The machine's cluster key under that key.
    pub wrapped: WrappedKey,
    /// The share itself, closed.
    pub closed: [u8; WRAPPED_BYTES],
}

/// Key that opens and closes a machine's shares.
#[derive(Debug)]
pub struct ShareKey(Secret<32>);

impl ShareKey {
    /// The same once more, for whoever keeps it.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(self.0.duplicate())
    }

    /// Key that follows from what the machine's seal keeps.
    #[must_use]
    pub fn of(local: &LocalKey, holder: &Holder) -> Self {
        Self(hkdf(&holder.cluster.0, local.expose(), Purpose::Share, &[&holder.machine.0]))
    }

    /// Digest beside a directory of this body: the machine's owner had it take that while its seal of this generation was in force.
    /// No other can make the digest, and beside another seal it says nothing.
    pub(crate) fn owners_word(&self, seal: u64, directory: &[u8]) -> [u8; 32] {
        *hkdf(&[], self.0.expose(), Purpose::OwnersWord, &[&seal.to_be_bytes(), &sha256(&[directory])]).expose()
    }

    /// Key for one share, so that none closes two: the same epoch has the same share.
    fn of_one(&self, epoch: &Epoch, wrapped: &WrappedKey) -> Secret<32> {
        let holders: Vec<u8> = epoch.holders().iter().flat_map(|id| id.0).collect();
        let length = u32::try_from(holders.len()).expect("few holders").to_be_bytes();
        let number = epoch.number().to_be_bytes();
        let generation = wrapped.key_generation.to_be_bytes();
        let next = wrapped.next.as_ref().map_or(&[][..], |next| next);
        let context: &[&[u8]] = &[&wrapped.disk.0.0, &generation, &number, &length, &holders, &wrapped.cipher, next];
        hkdf(&[], self.0.expose(), Purpose::ShareWrap, context)
    }
}

/// Why a share makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// Not a UUID of 16 bytes.
    #[error("the share names no disk")]
    Disk,
    /// A holder's id is not 16 bytes, or the ids are not each once and in order.
    #[error("the share's holders are not machines, each once and in order")]
    Holders,
    /// No such epoch.
    #[error(transparent)]
    Epoch(#[from] BadEpoch),
    /// Not 32 bytes and a tag.
    #[error("field {0} of the share has {1} bytes instead of {WRAPPED_BYTES}")]
    Size(&'static str, usize),
}

/// The shares in the two files that are for `disk`, the newest first; the rest is of no use.
#[must_use]
pub fn read(slots: [&[u8]; 2], disk: DiskUuid) -> (Vec<Share>, NextSlot) {
    let file = TwoSlotFile::read(File::Share, slots);
    let decoded = file.newest_first.iter().filter_map(|slot| Share::decode(slot.clear()).ok());
    (decoded.filter(|share| share.wrapped.disk == disk).collect(), file.next)
}

/// Where the share of `epoch` for `disk` is written: not over the one of the epoch that `stands`, which all its holders may need.
/// One of that epoch itself not over one of a newer epoch: the cluster may have been told that it lies there.
#[must_use]
pub fn place(slots: [&[u8]; 2], disk: DiskUuid, epoch: u32, stands: Option<u32>) -> NextSlot {
    let spared = |number| if Some(epoch) == stands { number > epoch } else { Some(number) == stands };
    let of_use = |share: Share| share.wrapped.disk == disk && spared(share.epoch.number());
    two_slot::beside(File::Share, slots, |slot| Share::decode(slot.clear()).is_ok_and(of_use))
}

impl Share {
    /// Closes `share`, this machine's of `epoch`, beside its cluster key under the key of that epoch.
    ///
    /// # Panics
    /// Never: a share has 32 bytes.
    #[must_use]
    pub fn close(key: &ShareKey, epoch: Epoch, share: &Secret<32>, wrapped: WrappedKey) -> Self {
        let closed = encrypt(&key.of_one(&epoch, &wrapped), [0; 12], &[], share.expose());
        Self { epoch, wrapped, closed: closed.try_into().expect("a share and a tag") }
    }

    /// The inverse of [`Self::close`].
    ///
    /// # Errors
    /// [`Unauthentic`] under another machine's key, and for a file in which anything was changed.
    pub fn open(&self, key: &ShareKey) -> Result<Secret<32>, Unauthentic> {
        let plain = decrypt(&key.of_one(&self.epoch, &self.wrapped), [0; 12], &[], &self.closed)?;
        secret(&plain).ok_or(Unauthentic)
    }

    /// Reads a share, strictly.
    ///
    /// # Errors
    /// [`ShareError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShareError> {
        strict::check(bytes, &SHARE)?;
        let wire = ShareWire::decode(bytes).map_err(|_| FormatError::Truncated(SHARE.name))?;
        let sized = |name, bytes: &[u8]| bytes.try_into().map_err(|_| ShareError::Size(name, bytes.len()));
        Ok(Self {
            epoch: Epoch::new(wire.epoch, holders(&wire.holders)?)?,
            wrapped: WrappedKey {
                disk: DiskUuid(Uuid(wire.disk.as_slice().try_into().map_err(|_| ShareError::Disk)?)),
                key_generation: wire.key_generation,
                cipher: sized("wrapped", &wire.wrapped)?,
                next: wire.wrapped_next.map(|next| sized("wrapped_next", &next)).transpose()?,
            },
            closed: sized("share", &wire.share)?,
        })
    }

    /// The bytes of a share file.
    ///
    /// # Errors
    /// Never in fact: a share is far smaller than its file.
    pub fn emit(&self, generation: u64) -> Result<Vec<u8>, TooLarge> {
        let wire = ShareWire {
            disk: self.wrapped.disk.0.0.to_vec(),
            key_generation: self.wrapped.key_generation,
            epoch: self.epoch.number(),
            holders: self.epoch.holders().iter().map(|id| id.0.to_vec()).collect(),
            share: self.closed.to_vec(),
            wrapped: self.wrapped.cipher.to_vec(),
            wrapped_next: self.wrapped.next.map(|next| next.to_vec()),
        };
        two_slot::emit(File::Share, generation, &wire.encode_to_vec(), None)
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
        Field { number: 1, name: "disk", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "key_generation", kind: Kind::U32, rule: Rule::Required },
        Field { number: 3, name: "epoch", kind: Kind::U32, rule: Rule::Required },
        Field { number: 4, name: "holders", kind: Kind::Bytes, rule: Rule::Repeated },
        Field { number: 5, name: "share", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 6, name: "wrapped", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 7, name: "wrapped_next", kind: Kind::Bytes, rule: Rule::Optional },
    ],
};

#[derive(Clone, PartialEq, prost::Message)]
struct ShareWire {
    #[prost(bytes = "vec", required, tag = "1")]
    disk: Vec<u8>,
    #[prost(uint32, required, tag = "2")]
    key_generation: u32,
    #[prost(uint32, required, tag = "3")]
    epoch: u32,
    #[prost(bytes = "vec", repeated, tag = "4")]
    holders: Vec<Vec<u8>>,
    #[prost(bytes = "vec", required, tag = "5")]
    share: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "6")]
    wrapped: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "7")]
    wrapped_next: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use model::{ClusterId, Secret};

    use super::*;
    use crate::two_slot::SLOT_BYTES;

    const HOLDER: Holder = Holder { cluster: ClusterId([5; 16]), machine: MachineId([1; 16]) };

    fn share_key(byte: u8) -> ShareKey {
        ShareKey::of(&LocalKey(Secret::take(&mut [byte; 32])), &HOLDER)
    }

    fn share_of(disk: u8, epoch: u32, held: u8) -> Share {
        let epoch = Epoch::new(epoch, [MachineId([1; 16])].into()).expect("an epoch");
        let (disk, cipher) = (DiskUuid(Uuid([disk; 16])), [0; WRAPPED_BYTES]);
        let wrapped = WrappedKey { disk, key_generation: 1, cipher, next: None };
        Share::close(&share_key(6), epoch, &Secret::take(&mut [held; 32]), wrapped)
    }

    /// A share of `held` for `disk`.
    fn share(disk: u8, held: u8, generation: u64) -> Vec<u8> {
        share_of(disk, 1, held).emit(generation).expect("fits")
    }

    fn wire() -> ShareWire {
        let (holders, share) = (vec![vec![7; 16], vec![8; 16]], vec![3; WRAPPED_BYTES]);
        let wrapped = vec![9; WRAPPED_BYTES];
        ShareWire { disk: vec![4; 16], key_generation: 5, epoch: 6, holders, share, wrapped, wrapped_next: None }
    }

    /// Proves: D2
    #[test]
    fn a_share_opens_with_its_machines_local_key_as_it_was_closed() {
        let whole = share_of(1, 1, 7);
        assert_eq!(whole.open(&share_key(6)).expect("it is its own").expose(), &[7; 32]);
        let other_local = share_key(5);
        let elsewhere = Holder { machine: MachineId([2; 16]), ..HOLDER };
        let other_machine = ShareKey::of(&LocalKey(Secret::take(&mut [6; 32])), &elsewhere);
        let elsewhere = Holder { cluster: ClusterId([6; 16]), ..HOLDER };
        let other_cluster = ShareKey::of(&LocalKey(Secret::take(&mut [6; 32])), &elsewhere);
        for other in [other_local, other_machine, other_cluster] {
            assert_eq!(whole.open(&other).err(), Some(Unauthentic));
        }
        let mut closed = whole.closed;
        closed[0] ^= 1;
        let two = Epoch::new(1, [MachineId([1; 16]), MachineId([2; 16])].into()).expect("an epoch");
        let changed = [
            Share { epoch: Epoch::new(2, [MachineId([1; 16])].into()).expect("an epoch"), ..whole.clone() },
            Share { epoch: two, ..whole.clone() },
            Share { wrapped: WrappedKey { disk: DiskUuid(Uuid([2; 16])), ..whole.wrapped }, ..whole.clone() },
            Share { wrapped: WrappedKey { key_generation: 2, ..whole.wrapped }, ..whole.clone() },
            Share { wrapped: WrappedKey { cipher: [1; WRAPPED_BYTES], ..whole.wrapped }, ..whole.clone() },
            Share { wrapped: WrappedKey { next: Some([0; WRAPPED_BYTES]), ..whole.wrapped }, ..whole.clone() },
            Share { closed, ..whole },
        ];
        for share in changed {
            assert_eq!(share.open(&share_key(6)).err(), Some(Unauthentic), "{share:?}");
        }
    }

    #[test]
    fn a_share_says_what_it_is_of_and_what_is_wrong_with_it() {
        let decode = |wire: &ShareWire| Share::decode(&wire.encode_to_vec());
        let good = decode(&wire()).expect("a good share");
        assert_eq!(good.closed, [3; WRAPPED_BYTES]);
        let disk = DiskUuid(Uuid([4; 16]));
        let wrapped = WrappedKey { disk, key_generation: 5, cipher: [9; WRAPPED_BYTES], next: None };
        assert_eq!(good.wrapped, wrapped);
        let both = decode(&ShareWire { wrapped_next: Some(vec![8; WRAPPED_BYTES]), ..wire() }).expect("a good share");
        assert_eq!(both.wrapped, WrappedKey { next: Some([8; WRAPPED_BYTES]), ..wrapped });
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
        assert_eq!(short.err(), Some(ShareError::Size("wrapped", 32)));
        let short = decode(&ShareWire { share: vec![9; 49], ..wire() });
        assert_eq!(short.err(), Some(ShareError::Size("share", 49)));
        let short = decode(&ShareWire { wrapped_next: Some(vec![]), ..wire() });
        assert_eq!(short.err(), Some(ShareError::Size("wrapped_next", 0)));
        let trailing = [wire().encode_to_vec(), vec![0x40, 1]].concat();
        assert!(matches!(Share::decode(&trailing), Err(ShareError::Malformed(_))), "an unknown field 8");
    }

    #[test]
    fn of_two_shares_for_one_disk_the_newest_comes_first() {
        for slots in [[share(1, 7, 1), share(1, 8, 2)], [share(1, 8, 2), share(1, 7, 1)]] {
            let (shares, _) = read([&slots[0], &slots[1]], DiskUuid(Uuid([1; 16])));
            let held = |share: &Share| share.open(&share_key(6)).expect("its own").expose()[0];
            assert_eq!(shares.iter().map(held).collect::<Vec<_>>(), [8, 7]);
        }
    }

    #[test]
    fn a_share_of_the_epoch_that_stands_is_not_written_over() {
        let disk = DiskUuid(Uuid([1; 16]));
        let of = |epoch: u32, generation: u64| share_of(1, epoch, 7).emit(generation).expect("fits");
        let blank = vec![0; SLOT_BYTES];
        let slot = |slots: [&[u8]; 2], stands| place(slots, disk, 9, stands);
        assert_eq!(slot([&blank, &blank], None), NextSlot { slot: 0, generation: 1 });
        let (older, newer) = (of(1, 1), of(2, 2));
        assert_eq!(slot([&older, &newer], Some(1)), NextSlot { slot: 1, generation: 3 }, "epoch 2 was never whole");
        assert_eq!(slot([&older, &newer], Some(2)), NextSlot { slot: 0, generation: 3 });
        assert_eq!(slot([&newer, &older], Some(1)), NextSlot { slot: 0, generation: 3 });
        assert_eq!(slot([&older, &newer], None), NextSlot { slot: 0, generation: 3 }, "the older one");
        // Its own, once more: not over what may be counted on already.
        assert_eq!(place([&older, &newer], disk, 1, Some(1)), NextSlot { slot: 0, generation: 3 });
        assert_eq!(place([&blank, &newer], disk, 1, Some(1)), NextSlot { slot: 0, generation: 3 });
        assert_eq!(place([&newer, &older], disk, 2, Some(2)), NextSlot { slot: 1, generation: 3 });
        // Written twice, as while a key rotates: the newer one counts.
        assert_eq!(slot([&of(1, 1), &of(1, 2)], Some(1)), NextSlot { slot: 0, generation: 3 });
        assert_eq!(slot([&of(1, 2), &of(1, 1)], Some(1)), NextSlot { slot: 1, generation: 3 });
        // The same number on another disk stands for nothing.
        assert_eq!(slot([&share(2, 7, 1), &newer], Some(1)), NextSlot { slot: 0, generation: 3 });
    }

    #[test]
    fn a_share_of_an_abandoned_attempt_is_ignored() {
        let blank = vec![0; SLOT_BYTES];
        let ours = DiskUuid(Uuid([1; 16]));
        let (shares, next) = read([&share(1, 7, 1), &share(2, 7, 2)], ours);
        assert_eq!(shares.iter().map(|share| share.wrapped.disk).collect::<Vec<_>>(), [ours]);
        assert_eq!(next, NextSlot { slot: 0, generation: 3 });
        assert!(read([&share(2, 7, 1), &blank], ours).0.is_empty());
    }
}
