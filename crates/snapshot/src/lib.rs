//! Kubernetes' objects as a file: what etcd holds below `/registry/` at one revision, written and read piece by piece, so that nobody
//! holds all of it.
//!
//! ```text
//!   SnapshotHead, entries in order ──SnapshotWriter──► pieces ══ wire, disk ══► pieces ──SnapshotReader──► head, entries, SnapshotSummary
//!   entries of a file, entries of etcd ──RegistryDifference─► puts and deletions, a transaction at a time
//! ```
//! An owner has it, so no record, ticket or certificate of the cluster is in it, and Secrets are as etcd has them: encrypted under the
//! master secret. Its hash finds what was cut off or changed by accident; whoever can write the file can write the hash, too.
//! The bytes: FORMATS.md, *Snapshot*.
//!
//! # Invariants
//! - A file that is cut off, or of which one bit differs, is never taken for whole: `no_part_or_changed_bit_of_a_file_is_whole`
//! - Nothing outside of Kubernetes' keys is in a file, or read from one: `what_etcd_does_not_keep_for_kubernetes_is_no_entry`
//! - etcd comes to hold what the file does, whenever that is cut off, and an object of both is never gone meanwhile:
//!   `what_etcd_holds_becomes_the_snapshot`
//! - A reader holds one entry and one piece at most: `a_reader_holds_no_more_than_an_entry`

mod difference;
mod entry;
mod reader;
mod writer;

use std::fmt;

use model::ClusterId;

pub use difference::{MOST_BATCH_BYTES, MOST_CHANGES, ObjectSide, RegistryChange, RegistryDifference};
pub use entry::{EntryError, Exclusion, MOST_ENTRY_BYTES, NOT_KEPT, REGISTRY, RegistryEntry, is_kept};
pub use reader::{SnapshotError, SnapshotPart, SnapshotReader};
pub use writer::SnapshotWriter;

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"CAIRNKUB";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Bytes before the first entry: magic, version, cluster, release, revision.
const HEAD_BYTES: usize = 48;
/// Bytes in front of an entry's key: lengths of key and value.
const LENGTH_BYTES: usize = 8;
/// Bytes behind the last entry and two lengths of zero: the count, and the hash.
const COUNT_BYTES: usize = 8;
const HASH_BYTES: usize = 32;

/// Release of Kubernetes: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesRelease(pub u32, pub u32, pub u32);

impl fmt::Display for KubernetesRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "v{major}.{minor}.{patch}")
    }
}

/// Origin of a snapshot, as its file begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Cluster whose objects they are.
    pub cluster: ClusterId,
    /// Release of the apiserver that had written them.
    pub release: KubernetesRelease,
    /// Revision of etcd that they are of.
    pub revision: u64,
}

/// Extent of a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// Number of objects.
    pub entries: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of all bytes before it, with which the file ends.
    pub hash: [u8; 32],
}
