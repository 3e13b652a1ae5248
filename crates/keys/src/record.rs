//! The recovery record: the master secret or this disk's cluster key, for the owner only. Lies on the ESP, and wherever the owner copies it.
//!
//! ```text
//! message Record { uint32 kind = 1; bytes cluster_id = 2; bytes machine_id = 3; bytes disk = 4 (16 B each);
//!                  uint32 key_generation = 5; bytes encapsulated = 6 (32 B); bytes ciphertext = 7 (48 B); }
//! ```

use formats::strict::{self, Field, FormatError, Kind, Message, Rule};
use model::{ClusterId, ClusterKey, DiskUuid, MachineId, MasterSecret, Secret, Uuid};
use prost::Message as _;

use crate::data_key::{ClusterHalf, Holder};
use crate::identity::cluster_key;
use crate::recovery::{self, RecoveryOpenError, SealedToOwner, SecretContext, SecretKind};
use crate::two_slot::{self, File, NextSlot, TooLarge, TwoSlotFile};

/// A sealed secret and what it is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Context that the secret is bound to; not believed before it opened.
    pub context: SecretContext,
    /// The secret.
    pub sealed: SealedToOwner,
}

/// Why a record makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// A kind of secret this version does not know.
    #[error("the record holds a secret of the unknown kind {0}")]
    Kind(u32),
    /// A field of fixed size has another one.
    #[error("field {0} of the record has the wrong size")]
    Size(&'static str),
}

impl Record {
    /// Reads a record, strictly.
    ///
    /// # Errors
    /// [`RecordError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        strict::check(bytes, &RECORD)?;
        let wire = RecordWire::decode(bytes).map_err(|_| FormatError::Truncated(RECORD.name))?;
        Ok(Self {
            context: SecretContext {
                kind: SecretKind::from_number(wire.kind).ok_or(RecordError::Kind(wire.kind))?,
                cluster: ClusterId(sized("cluster_id", &wire.cluster_id)?),
                machine: MachineId(sized("machine_id", &wire.machine_id)?),
                disk: DiskUuid(Uuid(sized("disk", &wire.disk)?)),
                key_generation: wire.key_generation,
            },
            sealed: SealedToOwner {
                encapsulated: sized("encapsulated", &wire.encapsulated)?,
                ciphertext: sized("ciphertext", &wire.ciphertext)?,
            },
        })
    }

    /// The newest record of the two slots that leads to the cluster key of `disk` and `generation`; else the newest that makes sense.
    #[must_use]
    pub fn fitting(slots: [&[u8]; 2], disk: DiskUuid, generation: u32) -> Option<Self> {
        let newest_first = TwoSlotFile::read(File::Record, slots).newest_first;
        let records = || newest_first.iter().filter_map(|slot| Self::decode(slot.clear()).ok());
        records().find(|record| record.fits(disk, generation)).or_else(|| records().next())
    }

    /// Where the next record is written: not over the one that fits.
    #[must_use]
    pub fn place(slots: [&[u8]; 2], disk: DiskUuid, generation: u32) -> NextSlot {
        let fits = |record: Self| record.fits(disk, generation);
        two_slot::beside(File::Record, slots, |slot| Self::decode(slot.clear()).is_ok_and(fits))
    }

    fn fits(&self, disk: DiskUuid, generation: u32) -> bool {
        let SecretContext { kind, disk: of, key_generation, .. } = self.context;
        let leads = match kind {
            SecretKind::MasterSecret => true,
            SecretKind::ClusterKey => key_generation == generation,
            SecretKind::VolumeKey => false,
        };
        of == disk && leads
    }

    /// Bytes that [`Self::decode`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = RecordWire {
            kind: self.context.kind.number(),
            cluster_id: self.context.cluster.0.to_vec(),
            machine_id: self.context.machine.0.to_vec(),
            disk: self.context.disk.0.0.to_vec(),
            key_generation: self.context.key_generation,
            encapsulated: self.sealed.encapsulated.to_vec(),
            ciphertext: self.sealed.ciphertext.to_vec(),
        };
        wire.encode_to_vec()
    }

    /// The bytes of a record file.
    ///
    /// # Errors
    /// Never in fact: a record is far smaller than its file.
    pub fn emit(&self, generation: u64) -> Result<Vec<u8>, TooLarge> {
        two_slot::emit(File::Record, generation, &self.encode(), None)
    }

    /// The cluster's half that `asked` names, for the owner whose private recovery key this is. `asked` is whom the caller
    /// has proof of: a record of any other machine or disk is not opened at all.
    ///
    /// # Errors
    /// [`HalfError`].
    pub fn cluster_half(&self, private: &Secret<32>, asked: &HalfRequest) -> Result<ClusterHalf, HalfError> {
        let HalfRequest { holder, disk, generation } = *asked;
        let SecretContext { kind, cluster, machine, disk: of, key_generation } = self.context;
        if (cluster, machine, of) != (holder.cluster, holder.machine, disk) {
            return Err(HalfError::Another);
        }
        let key = match kind {
            SecretKind::MasterSecret => {
                let master = MasterSecret(recovery::open(private, &self.context, &self.sealed)?);
                cluster_key(&master, cluster, disk, generation)
            }
            SecretKind::ClusterKey if key_generation == generation => {
                ClusterKey(recovery::open(private, &self.context, &self.sealed)?)
            }
            SecretKind::ClusterKey => return Err(HalfError::Generation { of: key_generation, asked: generation }),
            SecretKind::VolumeKey => return Err(HalfError::Kind),
        };
        Ok(ClusterHalf { key, disk, generation, next: None })
    }
}

/// Which half is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HalfRequest {
    /// Holder of the disk that asks.
    pub holder: Holder,
    /// For which disk.
    pub disk: DiskUuid,
    /// Which of its keys.
    pub generation: u32,
}

/// Why a record gives no half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HalfError {
    /// Somebody else's record.
    #[error("the record is of another machine, disk or cluster than the one that shows it")]
    Another,
    /// A key that the disk had before, or will have.
    #[error("the record holds the disk's cluster key of generation {of}, and generation {asked} is needed")]
    Generation {
        /// Which one is in the record.
        of: u32,
        /// Which one is needed.
        asked: u32,
    },
    /// No secret that leads to a cluster key.
    #[error("the record holds no secret that a cluster key comes from")]
    Kind,
    /// Another owner's, or damaged.
    #[error(transparent)]
    NotOurs(#[from] RecoveryOpenError),
}

fn sized<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], RecordError> {
    bytes.try_into().map_err(|_| RecordError::Size(field))
}

const RECORD: Message = Message {
    name: "Record",
    fields: &[
        Field { number: 1, name: "kind", kind: Kind::U32, rule: Rule::Required },
        Field { number: 2, name: "cluster_id", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "machine_id", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 4, name: "disk", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 5, name: "key_generation", kind: Kind::U32, rule: Rule::Required },
        Field { number: 6, name: "encapsulated", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 7, name: "ciphertext", kind: Kind::Bytes, rule: Rule::Required },
    ],
};

#[derive(Clone, PartialEq, prost::Message)]
struct RecordWire {
    #[prost(uint32, required, tag = "1")]
    kind: u32,
    #[prost(bytes = "vec", required, tag = "2")]
    cluster_id: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "3")]
    machine_id: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "4")]
    disk: Vec<u8>,
    #[prost(uint32, required, tag = "5")]
    key_generation: u32,
    #[prost(bytes = "vec", required, tag = "6")]
    encapsulated: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "7")]
    ciphertext: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::{RecoveryPubKey, seal};

    fn owner(byte: u8) -> Secret<32> {
        Secret::take(&mut [byte; 32])
    }

    fn asked() -> HalfRequest {
        let holder = Holder { cluster: ClusterId([1; 16]), machine: MachineId([2; 16]) };
        HalfRequest { holder, disk: DiskUuid(Uuid([3; 16])), generation: 4 }
    }

    fn record(kind: SecretKind, secret: u8) -> Record {
        let HalfRequest { holder: Holder { cluster, machine }, disk, generation } = asked();
        let context = SecretContext { kind, cluster, machine, disk, key_generation: generation };
        let sealed = seal(&RecoveryPubKey::of(&owner(7)), &context, &owner(secret)).expect("seals");
        Record { context, sealed }
    }

    /// Proves: K5 K6
    #[test]
    fn the_owner_alone_finds_the_half_in_either_kind_of_record() {
        let HalfRequest { holder, disk, generation } = asked();
        let half = |record: Record, private| record.cluster_half(&owner(private), &asked()).map(|half| half.key);
        let derived = cluster_key(&MasterSecret(owner(9)), holder.cluster, disk, generation);
        let master = record(SecretKind::MasterSecret, 9);
        assert_eq!(half(master, 7).expect("the owner's").expose(), derived.expose());
        assert_eq!(half(record(SecretKind::ClusterKey, 9), 7).expect("the owner's").expose(), &[9; 32]);
        for kind in [SecretKind::MasterSecret, SecretKind::ClusterKey] {
            assert_eq!(half(record(kind, 9), 8).err(), Some(HalfError::NotOurs(RecoveryOpenError)));
        }
        assert_eq!(half(record(SecretKind::VolumeKey, 9), 7).err(), Some(HalfError::Kind));
    }

    /// A machine that shows another one's record is told nothing. Proves: K5
    #[test]
    fn a_record_opens_for_the_machine_and_disk_that_it_is_of() {
        let HalfRequest { holder, .. } = asked();
        let others = [
            HalfRequest { holder: Holder { cluster: ClusterId([9; 16]), ..holder }, ..asked() },
            HalfRequest { holder: Holder { machine: MachineId([9; 16]), ..holder }, ..asked() },
            HalfRequest { disk: DiskUuid(Uuid([9; 16])), ..asked() },
        ];
        for other in others {
            for kind in [SecretKind::MasterSecret, SecretKind::ClusterKey] {
                let refused = record(kind, 9).cluster_half(&owner(7), &other).map(|_| ());
                assert_eq!(refused, Err(HalfError::Another));
            }
        }
        let next = HalfRequest { generation: 5, ..asked() };
        let refused = record(SecretKind::ClusterKey, 9).cluster_half(&owner(7), &next).map(|_| ());
        assert_eq!(refused, Err(HalfError::Generation { of: 4, asked: 5 }));
        let derived =
            record(SecretKind::MasterSecret, 9).cluster_half(&owner(7), &next).expect("any generation follows");
        assert_eq!(derived.generation, 5);
    }

    #[test]
    fn a_record_is_read_strictly() {
        let whole = record(SecretKind::ClusterKey, 9);
        assert_eq!(Record::decode(&whole.encode()), Ok(whole));
        for more in [[1 << 3, 2], [8 << 3, 1]] {
            let refused = Record::decode(&[&whole.encode()[..], &more].concat());
            assert!(matches!(refused, Err(RecordError::Malformed(_))), "{refused:?}");
        }
    }

    #[test]
    fn the_newest_record_that_makes_sense_counts() {
        let file = |secret, generation| record(SecretKind::ClusterKey, secret).emit(generation).expect("fits");
        let (older, newer) = (file(1, 1), file(2, 2));
        let HalfRequest { disk, generation, .. } = asked();
        let read = |slots: [&[u8]; 2]| {
            Record::fitting(slots, disk, generation).map(|record| record.cluster_half(&owner(7), &asked()))
        };
        let key = |slots| read(slots).expect("there is one").expect("it opens").key;
        assert_eq!(key([&older, &newer]).expose(), &[2; 32]);
        assert_eq!(key([&newer, &older]).expose(), &[2; 32]);
        assert_eq!(key([&older, &[]]).expose(), &[1; 32]);
        assert!(read([&[], &[]]).is_none());
    }

    /// While a key rotates the two slots hold one of either generation. Proves: K5 D13
    #[test]
    fn the_record_of_the_generation_asked_for_counts_and_stays() {
        let HalfRequest { disk, generation, .. } = asked();
        let of = |key_generation| {
            let record = record(SecretKind::ClusterKey, 1);
            Record { context: SecretContext { key_generation, ..record.context }, ..record }
        };
        let (old, new) = (of(generation).emit(1).expect("fits"), of(generation + 1).emit(2).expect("fits"));
        let blank = vec![0; two_slot::SLOT_BYTES];
        for slots in [[&old[..], &new], [&new, &old]] {
            let at = |wanted: &[u8]| slots.iter().position(|slot| *slot == wanted).expect("one of the two");
            let fits = |asked| Record::fitting(slots, disk, asked).expect("one of the two").context.key_generation;
            assert_eq!([generation, generation + 1].map(fits), [generation, generation + 1]);
            assert_eq!(fits(generation + 2), generation + 1, "the newest, where none fits");
            for (asked, spared) in [(generation, &old), (generation + 1, &new)] {
                assert_eq!(Record::place(slots, disk, asked), NextSlot { slot: 1 - at(spared), generation: 3 });
            }
        }
        // A secret that leads to no cluster key fits nothing.
        let volume = record(SecretKind::VolumeKey, 1).emit(3).expect("fits");
        let fits = Record::fitting([&old, &volume], disk, generation).map(|record| record.context.kind);
        assert_eq!(fits, Some(SecretKind::ClusterKey));
        let elsewhere = Record::fitting([&old, &new], DiskUuid(Uuid([9; 16])), generation);
        assert_eq!(elsewhere.map(|record| record.context.key_generation), Some(generation + 1), "no record is of it");
        let master = record(SecretKind::MasterSecret, 1).emit(1).expect("fits");
        assert_eq!(Record::place([&blank, &master], disk, generation + 7), NextSlot { slot: 0, generation: 2 });
        let any = Record::fitting([&master, &new], disk, generation + 7).expect("it is there");
        assert_eq!(any.context.kind, SecretKind::MasterSecret, "any generation follows from the master secret");
    }
}
