//! Writer of a snapshot: its bytes in pieces, as entries come. Must hold no entry.

use aws_lc_rs::digest::{Context, SHA256};

use crate::entry::Order;
use crate::{EntryError, HASH_BYTES, LENGTH_BYTES, MAGIC, SnapshotHead, SnapshotSummary, VERSION};

/// Writer of a snapshot whose entries come in order.
#[derive(Clone)]
pub struct SnapshotWriter {
    hash: Context,
    order: Order,
    entries: u64,
    bytes: u64,
}

impl std::fmt::Debug for SnapshotWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotWriter")
            .field("entries", &self.entries)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl SnapshotWriter {
    /// Begins a file, whose first bytes go behind `out`.
    #[must_use]
    pub fn begin(head: &SnapshotHead, out: &mut Vec<u8>) -> Self {
        let mut writer = Self { hash: Context::new(&SHA256), order: Order::default(), entries: 0, bytes: 0 };
        let from = out.len();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(head.cluster.0);
        let release = head.release;
        out.extend([release.0, release.1, release.2].into_iter().flat_map(u32::to_le_bytes));
        out.extend(head.revision.to_le_bytes());
        writer.wrote(&out[from..]);
        writer
    }

    /// Adds an entry, whose bytes go behind `out`.
    ///
    /// # Errors
    /// [`EntryError`]; nothing is added.
    pub fn add(&mut self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), EntryError> {
        self.order.next(key, value.len())?;
        let length =
            |bytes: &[u8]| u32::try_from(bytes.len()).expect("an entry is no larger than a request").to_le_bytes();
        let from = out.len();
        out.reserve(LENGTH_BYTES + key.len() + value.len());
        out.extend(length(key));
        out.extend(length(value));
        out.extend(key);
        out.extend(value);
        self.wrote(&out[from..]);
        self.entries += 1;
        Ok(())
    }

    /// Ends the file, whose last bytes go behind `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) -> SnapshotSummary {
        let from = out.len();
        out.extend([0; LENGTH_BYTES]);
        out.extend(self.entries.to_le_bytes());
        self.wrote(&out[from..]);
        let hash: [u8; HASH_BYTES] = self.hash.finish().as_ref().try_into().expect("a SHA-256 has 32 bytes");
        out.extend(&hash);
        SnapshotSummary { entries: self.entries, bytes: self.bytes + HASH_BYTES as u64, hash }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
}
