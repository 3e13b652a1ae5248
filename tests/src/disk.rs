//! A machine's raw disk, seen and changed from outside while the machine is off.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use aws_lc_rs::digest::{self, SHA256};
use formats::gpt::{SECTOR, Table};
use model::PartitionKind;

/// The two places of the data header (FORMATS.md, *Data partition*), in bytes from the start of the data partition.
pub const HEADERS: [u64; 2] = [0, 512 << 10];
/// Bytes of a copy.
pub const HEADER_BYTES: usize = 4096;
/// Where a header keeps the SHA-256 of what is before it.
const CHECKSUM: usize = 480;

/// A raw disk image of one machine.
#[derive(Debug, Clone)]
pub struct RawDisk {
    path: PathBuf,
}

/// Both copies of a data header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers(pub [Vec<u8>; 2]);

impl Headers {
    /// Both with `bytes` at `at` and a checksum that holds again: what anybody can do who has the disk in their hands.
    #[must_use]
    pub fn edited(&self, at: usize, bytes: &[u8]) -> Self {
        Self(self.0.clone().map(|mut copy| {
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            let checksum = digest::digest(&SHA256, &copy[..CHECKSUM]);
            copy[CHECKSUM..CHECKSUM + 32].copy_from_slice(checksum.as_ref());
            copy
        }))
    }
}

impl RawDisk {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Path of the disk's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SHA-256 of the whole disk.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn digest(&self) -> anyhow::Result<Vec<u8>> {
        let mut disk = File::open(&self.path)?;
        let (mut hash, mut buffer) = (digest::Context::new(&SHA256), vec![0; 1 << 20]);
        loop {
            match disk.read(&mut buffer).context("read the machine's disk")? {
                0 => return Ok(hash.finish().as_ref().to_vec()),
                length => hash.update(&buffer[..length]),
            }
        }
    }

    /// Puts another disk's ESP in the place of this one's.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn put_esp_of(&self, other: &Self) -> anyhow::Result<()> {
        self.write(PartitionKind::Esp, 0, &other.whole(PartitionKind::Esp)?)
    }

    /// All bytes of a partition.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn whole(&self, kind: PartitionKind) -> anyhow::Result<Vec<u8>> {
        self.read(kind, 0, usize::try_from(self.partition(kind)?.length)?)
    }

    /// `length` bytes of a partition, `at` bytes from its start.
    ///
    /// # Errors
    /// When there is no such partition, or it ends before.
    pub fn read(&self, kind: PartitionKind, at: u64, length: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let start = self.place(kind, at, length)?;
        File::open(&self.path)?.read_exact_at(&mut bytes, start).context("read the machine's disk")?;
        Ok(bytes)
    }

    /// Writes `bytes` into a partition, `at` bytes from its start.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, kind: PartitionKind, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let start = self.place(kind, at, bytes.len())?;
        let disk = File::options().write(true).open(&self.path)?;
        disk.write_all_at(bytes, start).context("write the machine's disk")
    }

    /// Flips all bits of one byte of a partition. Twice is as before.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn flip(&self, kind: PartitionKind, at: u64) -> anyhow::Result<()> {
        let byte = self.read(kind, at, 1)?[0];
        self.write(kind, at, &[!byte])
    }

    /// Where `pattern` is in a partition, in bytes from its start.
    ///
    /// # Errors
    /// When it is not there exactly once; as [`Self::read`].
    pub fn find(&self, kind: PartitionKind, pattern: &[u8]) -> anyhow::Result<u64> {
        let bytes = self.whole(kind)?;
        let mut found = bytes.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern);
        let place = found.next().map(|(at, _)| at as u64);
        ensure!(found.next().is_none(), "`{}` is in {kind:?} more than once", pattern.escape_ascii());
        place.with_context(|| format!("`{}` is not in {kind:?}", pattern.escape_ascii()))
    }

    /// The first place of `pattern` in a partition, in bytes from its start. Blocks of zeros, of which a sparse disk has
    /// many, are passed over.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn first(&self, kind: PartitionKind, pattern: &[u8]) -> anyhow::Result<Option<u64>> {
        const PIECE: usize = 1 << 20;
        let (length, zeros) = (usize::try_from(self.partition(kind)?.length)?, vec![0; PIECE + pattern.len()]);
        for at in (0..length).step_by(PIECE) {
            // Into the next piece as far as the pattern may reach.
            let piece = self.read(kind, at as u64, (PIECE + pattern.len() - 1).min(length - at))?;
            if piece != zeros[..piece.len()]
                && let Some(found) = piece.windows(pattern.len()).position(|part| part == pattern)
            {
                return Ok(Some((at + found) as u64));
            }
        }
        Ok(None)
    }

    /// The partition table, as a machine would find it.
    ///
    /// # Errors
    /// When no copy holds.
    pub fn table(&self) -> anyhow::Result<Table> {
        Ok(image::disk::table(&self.path)?)
    }

    /// Sectors from the disk's start on, partition table included.
    ///
    /// # Errors
    /// When the disk ends before.
    pub fn sectors(&self, from: u64, count: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; count * 512];
        File::open(&self.path)?.read_exact_at(&mut bytes, from * SECTOR).context("read the machine's disk")?;
        Ok(bytes)
    }

    /// Writes nonsense into one sector of the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn damage_sector(&self, number: u64) -> anyhow::Result<()> {
        let disk = File::options().write(true).open(&self.path)?;
        disk.write_all_at(&[0xee; 512], number * SECTOR).context("write the machine's disk")
    }

    /// Where a partition lies, in bytes from the disk's start.
    ///
    /// # Errors
    /// When there is none of this kind.
    pub fn range(&self, kind: PartitionKind) -> anyhow::Result<Range<u64>> {
        let found = self.partition(kind)?;
        Ok(found.start..found.start + found.length)
    }

    /// Where a file of the ESP lies, in bytes from the disk's start.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn file_ranges(&self, path: &str) -> anyhow::Result<Vec<Range<u64>>> {
        let esp = self.range(PartitionKind::Esp)?.start;
        let extents = formats::fat::place(&image::esp::read(&self.path)?, path)?.extents;
        Ok(extents.into_iter().map(|extent| esp + extent.start as u64..esp + extent.end as u64).collect())
    }

    /// Both copies of the data header.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn headers(&self) -> anyhow::Result<Headers> {
        let [first, second] = HEADERS.map(|at| self.read(PartitionKind::Data, at, HEADER_BYTES));
        Ok(Headers([first?, second?]))
    }

    /// Puts both copies of a data header.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn put_headers(&self, Headers(copies): &Headers) -> anyhow::Result<()> {
        for (copy, at) in copies.iter().zip(HEADERS) {
            self.write(PartitionKind::Data, at, copy)?;
        }
        Ok(())
    }

    /// The files of the ESP with their content, by path.
    ///
    /// # Errors
    /// When the ESP is damaged.
    pub fn esp(&self) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        Ok(image::esp::list(&self.path)?)
    }

    /// Content of the ESP's file of this path.
    ///
    /// # Errors
    /// As above; when there is none of that path.
    pub fn file(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let found = self.esp()?.into_iter().find_map(|(its, bytes)| (its == path).then_some(bytes));
        found.with_context(|| format!("the ESP has no `{path}`"))
    }

    /// Puts an enrolment config on the ESP.
    ///
    /// # Errors
    /// When the ESP has no room.
    pub fn put_config(&self, config: &[u8]) -> anyhow::Result<()> {
        Ok(image::put_enrolment(&self.path, config)?)
    }

    /// Puts any file on the ESP.
    ///
    /// # Errors
    /// When the ESP has no room.
    pub fn put_file(&self, path: &str, content: &[u8]) -> anyhow::Result<()> {
        Ok(image::esp::put_file(&self.path, path, content)?)
    }

    /// Fills a file of the ESP with zeros where it lies.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn wipe_file(&self, path: &str) -> anyhow::Result<()> {
        let volume = image::esp::read(&self.path)?;
        for extent in formats::fat::place(&volume, path)?.extents {
            self.write(PartitionKind::Esp, extent.start as u64, &vec![0; extent.len()])?;
        }
        Ok(())
    }

    fn place(&self, kind: PartitionKind, at: u64, length: usize) -> anyhow::Result<u64> {
        let partition = self.partition(kind)?;
        ensure!(at + length as u64 <= partition.length, "{kind:?} ends before byte {at} + {length}");
        Ok(partition.start + at)
    }

    fn partition(&self, kind: PartitionKind) -> anyhow::Result<image::disk::DiskPartition> {
        let all = image::disk::partitions(&self.path)?;
        all.into_iter().find(|part| part.kind == Some(kind)).with_context(|| format!("the disk has no {kind:?}"))
    }
}
