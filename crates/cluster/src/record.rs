//! The records: what stands behind the keys of etcd, as values and as bytes. Strictly read: what this version would not
//! write, it does not understand. Decides nothing.
//!
//! Every record is protobuf with its version in field 1; what all fields are stands in the modules.

mod audit;
mod cluster;
mod cold_start;
mod machine;
mod publish;
mod registry;
mod restore;
mod ticket;
mod user;

use std::collections::BTreeSet;
use std::fmt;

use formats::strict::{self, FormatError, Message};
use keys::assignment::AssignmentError;
use keys::cold_start::BadEpoch;
use keys::endpoint::BadEndpoint;
use keys::network::{self, BadNetwork, PrefixWire};
use model::{BadNodeName, BadPrefix, BadUserName, MachineId};
use prost::Message as _;

pub use audit::{AuditLine, MOST_AUDIT_LINES, MOST_AUDIT_LINES_OF_ONE};
pub use cluster::{Cluster, MOST_OWNERS, OwnerRecord, Policy};
pub(crate) use cluster::{OWNER, OwnerWire, read_owners};
pub use cold_start::{ColdStartEpochs, NextEpoch};
pub(crate) use cold_start::{EPOCH, EpochWire};
pub use machine::{Admission, Endpoints, Generations, MachineRecord, Standing, Times};
pub use publish::{
    BadPublish, MOST_PUBLISHED, MOST_PUBLISHED_PORTS, MOST_PUBLISHED_SOURCES, MOST_PUBLISHING_MACHINES, PortUsers,
    PublishRecord, PublishTerms,
};
pub(crate) use publish::{in_order, texts};
pub use registry::{
    BadRegistry, MOST_AUTHORITIES_BYTES, MOST_MIRRORS, MOST_REGISTRIES, MOST_REGISTRIES_BYTES, RegistryRecord,
};
pub(crate) use registry::{REGISTRY, RegistryWire};
pub use restore::RestoreRecord;
pub use ticket::{Revocation, TicketRecord};
pub use user::{MOST_USER_KEYS, MOST_USERS, UserRecord, UserTerms};

use crate::role::BadRoles;

/// The version that is written.
const VERSION: u32 = 1;
/// No record is larger: etcd's own bound for a request is 1.5 MiB, and a transaction writes a few records.
pub const MOST_RECORD_BYTES: usize = 64 << 10;

/// Seconds of Unix time, by the coordinators' clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixSeconds(pub u64);

/// The version of Cairn that a machine runs: three numbers, compared from the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(pub u32, pub u32, pub u32);

/// Not three numbers of the form `1.2.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a release is three numbers: 1.2.3")]
pub struct BadRelease;

impl Release {
    /// Reads one in its one spelling.
    ///
    /// # Errors
    /// [`BadRelease`] when it is not.
    pub fn read(text: &str) -> Result<Self, BadRelease> {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
        let mut next = || parts.next().flatten().ok_or(BadRelease);
        let release = Self(next()?, next()?, next()?);
        if release.to_string() == text { Ok(release) } else { Err(BadRelease) }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Why bytes are no record, or no message of those that are made like one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// More than any of its kind has.
    #[error("it has {found} bytes, at most {most} are read")]
    TooLarge { found: usize, most: usize },
    /// Not the protobuf that it should be.
    #[error("it is malformed")]
    Malformed(#[from] FormatError),
    /// A later version.
    #[error("it was written by a newer Cairn (version {0})")]
    Newer(u64),
    /// A version that never was.
    #[error("it has the unknown version 0")]
    Version,
    /// An id or key of another size.
    #[error("its {field} has {found} bytes instead of {expected}")]
    Size { field: &'static str, found: usize, expected: usize },
    /// A number that stands for nothing.
    #[error("its {field} is the unknown number {number}")]
    Number { field: &'static str, number: u32 },
    /// A key that everybody knows.
    #[error("its {0} is no usable key")]
    WeakKey(&'static str),
    /// Roles that are none, or do not go together.
    #[error("its roles make no sense")]
    Roles(#[from] BadRoles),
    /// A name that is none.
    #[error("its name cannot be used")]
    Name(#[from] BadNodeName),
    /// A user's name that is none.
    #[error("its user's name cannot be used")]
    UserName(#[from] BadUserName),
    /// An endpoint that is none.
    #[error("its endpoints cannot be used")]
    Endpoints(#[from] BadEndpoint),
    /// A prefix that is none.
    #[error("its {field} is no prefix")]
    Prefix { field: &'static str, source: BadPrefix },
    /// Prefixes that no cluster can have.
    #[error("its prefixes cannot be used")]
    Prefixes(#[from] BadNetwork),
    /// Roles and addresses that no machine can be assigned.
    #[error("its assignment cannot be used")]
    Assignment(#[from] AssignmentError),
    /// Bytes that cannot be a certificate.
    #[error("its {0} has no size that a certificate has")]
    Certificate(&'static str),
    /// Not a release.
    #[error("its release cannot be read")]
    Release(#[from] BadRelease),
    /// An epoch that there is not.
    #[error("its epoch makes no sense")]
    Epoch(#[from] BadEpoch),
    /// A registry that is none.
    #[error("its registry cannot be used")]
    Registry(#[from] BadRegistry),
    /// Ports that cannot be published so.
    #[error("its ports cannot be published so")]
    Publish(#[from] BadPublish),
    /// Two fields that contradict each other, or a list that says the same twice.
    #[error("it contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// Decodes a message that has its version in field 1.
///
/// # Errors
/// [`BadRecord`] when it is too large, newer, or not of the table.
pub(crate) fn decode<M: prost::Message + Default>(bytes: &[u8], table: &'static Message) -> Result<M, BadRecord> {
    decode_within(MOST_RECORD_BYTES, bytes, table)
}

/// The same for a message of at most `most` bytes.
///
/// # Errors
/// [`BadRecord`] when it is too large, newer, or not of the table.
pub(crate) fn decode_within<M: prost::Message + Default>(
    most: usize,
    bytes: &[u8],
    table: &'static Message,
) -> Result<M, BadRecord> {
    if bytes.len() > most {
        return Err(BadRecord::TooLarge { found: bytes.len(), most });
    }
    match strict::version(bytes, table, "version", 1)? {
        Some(0) => return Err(BadRecord::Version),
        Some(newer) if newer > u64::from(VERSION) => return Err(BadRecord::Newer(newer)),
        Some(_) | None => strict::check(bytes, table)?,
    }
    keys::wiped::decode(bytes).map_err(|_| FormatError::Truncated(table.name).into())
}

/// The bytes of a field that has one size.
pub(crate) fn sized<const LEN: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; LEN], BadRecord> {
    bytes.try_into().map_err(|_| BadRecord::Size { field, found: bytes.len(), expected: LEN })
}

/// Ids of machines, as a message repeats them.
fn to_wire(ids: &BTreeSet<MachineId>) -> Vec<Vec<u8>> {
    ids.iter().map(|id| id.0.to_vec()).collect()
}

/// Ids in ascending order, each once.
fn ids(wire: &[Vec<u8>]) -> Result<BTreeSet<MachineId>, BadRecord> {
    if !wire.is_sorted_by(|one, next| one < next) {
        return Err(BadRecord::Contradiction("machines are not each once and in order"));
    }
    wire.iter().map(|id| sized("machine id", id).map(MachineId)).collect()
}

/// The same of a field that may be absent.
pub(crate) fn sized_if_there<const LEN: usize>(
    field: &'static str,
    bytes: Option<&[u8]>,
) -> Result<Option<[u8; LEN]>, BadRecord> {
    bytes.map(|bytes| sized(field, bytes)).transpose()
}

/// Whether `level` protects less than `least`: their numbers ascend.
pub(crate) const fn is_below(level: model::Level, least: model::Level) -> bool {
    keys::numbers::level::number(level) < keys::numbers::level::number(least)
}

/// Finds the value that a number stands for.
pub(crate) fn known<T>(field: &'static str, number: u32, of: fn(u32) -> Option<T>) -> Result<T, BadRecord> {
    of(number).ok_or(BadRecord::Number { field, number })
}

/// The prefix that a field means.
pub(crate) fn prefix(field: &'static str, wire: &PrefixWire) -> Result<model::Ipv4Prefix, BadRecord> {
    network::prefix_from_wire(wire).map_err(|source| BadRecord::Prefix { field, source })
}

/// Record of the key [`crate::key::Key::Version`]: how many changes there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCount(pub u64);

/// Record of a key of [`crate::key::Key::Disk`], `VpnKey`, `Address` or `Pods`: the machine that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderRecord(pub MachineId);

formats::strict_message! {
    struct ChangesWire, CHANGES = "Changes" {
        1 required u32 version;
        2 required u64 changes;
    }
}

formats::strict_message! {
    struct HolderWire, HOLDER = "Holder" {
        1 required u32 version;
        2 required bytes machine_id;
    }
}

impl ChangeCount {
    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        ChangesWire { version: VERSION, changes: self.0 }.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] when it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        decode::<ChangesWire>(bytes, &CHANGES).map(|wire| Self(wire.changes))
    }
}

impl HolderRecord {
    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        HolderWire { version: VERSION, machine_id: self.0.0.to_vec() }.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] when it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: HolderWire = decode(bytes, &HOLDER)?;
        Ok(Self(MachineId(sized("machine id", &wire.machine_id)?)))
    }
}

#[cfg(test)]
mod tests;
