//! Reader of a snapshot, piece by piece. Each entry is judged when it comes, all of them when the file ends: nothing may be done with an
//! entry before [`SnapshotReader::finish`] has said that the file is whole.
//!
//! ```text
//!   Head ──48 bytes──► Lengths ⇄ Entry
//!                         └──0, 0──► Trailer ──► Nothing
//! ```

use aws_lc_rs::digest::{Context, SHA256};
use model::ClusterId;

use crate::entry::{Order, length};
use crate::{
    COUNT_BYTES, EntryError, HASH_BYTES, HEAD_BYTES, KubernetesRelease, LENGTH_BYTES, MAGIC, RegistryEntry,
    SnapshotHead, SnapshotSummary, VERSION,
};

/// Why a file is no snapshot that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The file begins otherwise.
    #[error("this is no snapshot of Kubernetes")]
    Foreign,
    /// Another version of Cairn has written it.
    #[error("the snapshot has version {0}, and this Cairn reads version {VERSION}")]
    Version(u32),
    /// The objects are another cluster's.
    #[error("the snapshot is of another cluster: {0}")]
    OtherCluster(ClusterId),
    /// An entry is in it that cannot be in one.
    #[error("the snapshot is damaged")]
    Entry(#[from] EntryError),
    /// The file ends before its last byte.
    #[error("the snapshot is cut off")]
    Cut,
    /// There are other entries than it says.
    #[error("the snapshot is damaged: it says that it has {said} objects, and has {found}")]
    Count {
        /// Number by the file's own word.
        said: u64,
        /// Number of entries.
        found: u64,
    },
    /// A byte of it was changed.
    #[error("the snapshot is damaged: its hash is another one")]
    Hash,
    /// More follows behind its end.
    #[error("something follows behind the end of the snapshot")]
    Trailing,
}

/// Part of a file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotPart {
    /// Origin of the objects; comes first and once.
    Head(SnapshotHead),
    /// Next object.
    Entry(RegistryEntry),
}

/// Part of a file that comes next.
#[derive(Debug, Clone, Copy)]
enum Awaits {
    Head,
    Lengths,
    Entry { key: usize, value: usize },
    Trailer,
    Nothing(SnapshotSummary),
}

/// Reader of the snapshot of a cluster.
#[derive(Clone)]
pub struct SnapshotReader {
    cluster: ClusterId,
    awaits: Awaits,
    /// Bytes that came, up to where a part of the file is whole.
    rest: Vec<u8>,
    hash: Context,
    order: Order,
    entries: u64,
    bytes: u64,
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotReader")
            .field("entries", &self.entries)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl SnapshotReader {
    /// Begins to read a file of this cluster.
    #[must_use]
    pub fn begin(cluster: ClusterId) -> Self {
        let (hash, order) = (Context::new(&SHA256), Order::default());
        Self { cluster, awaits: Awaits::Head, rest: Vec::new(), hash, order, entries: 0, bytes: 0 }
    }

    /// Number of objects that were read.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// Takes the next piece; what it makes whole goes behind `parts`.
    ///
    /// # Errors
    /// [`SnapshotError`]: the file is no use.
    pub fn take(&mut self, mut piece: &[u8], parts: &mut Vec<SnapshotPart>) -> Result<(), SnapshotError> {
        while !piece.is_empty() {
            let lacking = self.expects()? - self.rest.len();
            let (now, later) = piece.split_at(lacking.min(piece.len()));
            self.rest.extend_from_slice(now);
            piece = later;
            if now.len() == lacking {
                let whole = std::mem::take(&mut self.rest);
                self.read(&whole, parts)?;
            }
        }
        Ok(())
    }

    /// Says what the file holds, after its last piece.
    ///
    /// # Errors
    /// [`SnapshotError::Cut`].
    pub fn finish(self) -> Result<SnapshotSummary, SnapshotError> {
        match self.awaits {
            Awaits::Nothing(summary) => Ok(summary),
            Awaits::Head | Awaits::Lengths | Awaits::Entry { .. } | Awaits::Trailer => Err(SnapshotError::Cut),
        }
    }

    /// Bytes of the next part of the file, one or more.
    const fn expects(&self) -> Result<usize, SnapshotError> {
        match self.awaits {
            Awaits::Head => Ok(HEAD_BYTES),
            Awaits::Lengths => Ok(LENGTH_BYTES),
            Awaits::Entry { key, value } => Ok(key + value),
            Awaits::Trailer => Ok(COUNT_BYTES + HASH_BYTES),
            Awaits::Nothing(_) => Err(SnapshotError::Trailing),
        }
    }

    /// Reads the next part of the file, which is whole.
    fn read(&mut self, part: &[u8], parts: &mut Vec<SnapshotPart>) -> Result<(), SnapshotError> {
        self.bytes += u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.awaits = match self.awaits {
            Awaits::Head => {
                let head = head(part)?;
                if head.cluster != self.cluster {
                    return Err(SnapshotError::OtherCluster(head.cluster));
                }
                self.hash.update(part);
                parts.push(SnapshotPart::Head(head));
                Awaits::Lengths
            }
            Awaits::Lengths => {
                self.hash.update(part);
                match (size(&part[..4]), size(&part[4..])) {
                    (0, 0) => Awaits::Trailer,
                    (0, _) => return Err(EntryError::Outside(String::new()).into()),
                    (key, value) => {
                        length(key, value)?;
                        Awaits::Entry { key, value }
                    }
                }
            }
            Awaits::Entry { key, value } => {
                self.hash.update(part);
                let (key, bytes) = part.split_at(key);
                self.order.next(key, value)?;
                self.entries += 1;
                parts.push(SnapshotPart::Entry(RegistryEntry { key: key.to_vec(), value: bytes.to_vec() }));
                Awaits::Lengths
            }
            Awaits::Trailer => {
                let (count, hash) = part.split_at(COUNT_BYTES);
                self.hash.update(count);
                let (said, found) = (long(count), self.entries);
                if self.hash.clone().finish().as_ref() != hash {
                    return Err(SnapshotError::Hash);
                }
                if said != found {
                    return Err(SnapshotError::Count { said, found });
                }
                let hash = hash.try_into().expect("split behind the count");
                Awaits::Nothing(SnapshotSummary { entries: found, bytes: self.bytes, hash })
            }
            Awaits::Nothing(_) => return Err(SnapshotError::Trailing),
        };
        Ok(())
    }
}

fn head(part: &[u8]) -> Result<SnapshotHead, SnapshotError> {
    if &part[..8] != MAGIC {
        return Err(SnapshotError::Foreign);
    }
    match word(&part[8..12]) {
        VERSION => {}
        other => return Err(SnapshotError::Version(other)),
    }
    let cluster = ClusterId(part[12..28].try_into().expect("16 bytes"));
    let release = KubernetesRelease(word(&part[28..32]), word(&part[32..36]), word(&part[36..40]));
    Ok(SnapshotHead { cluster, release, revision: long(&part[40..HEAD_BYTES]) })
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn long(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// A length; one that this machine cannot count is too large in any case.
fn size(bytes: &[u8]) -> usize {
    usize::try_from(word(bytes)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
