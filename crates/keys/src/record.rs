//! The recovery record: the master secret, for the owner only. Lies on the ESP, and wherever the owner copies it.
//!
//! ```text
//! message Record { uint32 kind = 1; bytes cluster_id = 2; bytes machine_id = 3; bytes disk = 4;
//!                  uint32 key_generation = 5; bytes encapsulated = 6; bytes ciphertext = 7; }
//! ```

use formats::strict::{self, Field, Kind as FieldKind, Malformed, Message, Rule};
use model::{ClusterId, DiskUuid, MachineId, Uuid};
use prost::Message as _;

use crate::pair::{self, File, TooLarge};
use crate::recovery::{Context, Kind, SealedToOwner};

/// A sealed secret and what it is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What it is bound to; not believed before it opened.
    pub context: Context,
    /// The secret.
    pub sealed: SealedToOwner,
}

/// Why a record makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
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
        let wire = RecordWire::decode(bytes).map_err(|_| Malformed::Truncated(RECORD.name))?;
        Ok(Self {
            context: Context {
                kind: Kind::from_number(wire.kind).ok_or(RecordError::Kind(wire.kind))?,
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

    /// The bytes of a record file.
    ///
    /// # Errors
    /// Never in fact: a record is far smaller than its file.
    pub fn emit(&self, generation: u64) -> Result<Vec<u8>, TooLarge> {
        let wire = RecordWire {
            kind: self.context.kind.number(),
            cluster_id: self.context.cluster.0.to_vec(),
            machine_id: self.context.machine.0.to_vec(),
            disk: self.context.disk.0.0.to_vec(),
            key_generation: self.context.key_generation,
            encapsulated: self.sealed.encapsulated.to_vec(),
            ciphertext: self.sealed.ciphertext.to_vec(),
        };
        pair::emit(File::Record, generation, &wire.encode_to_vec(), None)
    }
}

fn sized<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], RecordError> {
    bytes.try_into().map_err(|_| RecordError::Size(field))
}

const RECORD: Message = Message {
    name: "Record",
    fields: &[
        Field { number: 1, name: "kind", kind: FieldKind::U32, rule: Rule::Required },
        Field { number: 2, name: "cluster_id", kind: FieldKind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "machine_id", kind: FieldKind::Bytes, rule: Rule::Required },
        Field { number: 4, name: "disk", kind: FieldKind::Bytes, rule: Rule::Required },
        Field { number: 5, name: "key_generation", kind: FieldKind::U32, rule: Rule::Required },
        Field { number: 6, name: "encapsulated", kind: FieldKind::Bytes, rule: Rule::Required },
        Field { number: 7, name: "ciphertext", kind: FieldKind::Bytes, rule: Rule::Required },
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
