//! The disk: finds partitions by their GPT, and grows the data partition to the end of the disk.
//! It writes nothing but the partition table: to grow, and to mend the primary copy from the backup.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use formats::gpt::{CannotGrow, NoTable, Table, TableCopy, TableStep};
use model::{Partition, PartitionKind, Uuid};
use rustix::io::Errno;

use crate::runtime::durable;

/// Why there is no usable disk, or it cannot be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel does not list disks.
    #[error("list disks")]
    List(#[source] io::Error),
    /// The system partition's disk lacks one that every image has.
    #[error("the disk that holds the system has no partition `{0}`: was it written from a Cairn image?")]
    Missing(&'static str),
    /// A partition or disk cannot be opened.
    #[error("open `{0}`")]
    Open(PathBuf, #[source] io::Error),
    /// The table that was there when the boot began is no longer.
    #[error("read the partition table of `{0}`")]
    Read(PathBuf, #[source] Refused),
    /// The data partition cannot grow.
    #[error("grow the data partition of `{0}`")]
    Grow(PathBuf, #[source] CannotGrow),
    /// The table could not be rewritten.
    #[error("write the partition table of `{0}`")]
    Write(PathBuf, #[source] io::Error),
    /// The kernel refused the new size.
    #[error("tell the kernel that `{0}` has grown")]
    Resize(PathBuf, #[source] io::Error),
}

/// Why a disk is skipped. It is left alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The device does not open, or does not say how large it is.
    #[error("it cannot be opened ({0})")]
    Open(io::Error),
    /// No copy of its table holds.
    #[error(transparent)]
    Table(#[from] NoTable),
}

impl Refused {
    /// Whether there is simply nothing: no medium in the drive, or no table on the disk.
    fn is_absence(&self) -> bool {
        match self {
            Self::Open(error) => matches!(Errno::from_io_error(error), Some(Errno::NOMEDIUM | Errno::NXIO)),
            Self::Table(none) => none.is_absence(),
        }
    }
}

/// The disk that holds the running system, and its partitions.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    /// The device node of the whole disk.
    pub(crate) path: PathBuf,
    /// Device node of the ESP.
    pub(crate) esp: PathBuf,
    /// Device node of the data partition.
    pub(crate) data: PathBuf,
    data_number: u32,
}

/// The device node of the partition with this unique GUID, on whatever disk, once the kernel has it, too. `tell` hears of
/// disks with something that was meant as a table and is not taken for one.
pub(crate) fn partition_by_uuid(wanted: Uuid, mut tell: impl FnMut(&Path, &Refused)) -> Option<PathBuf> {
    let slot = disks().ok()?.into_iter().find_map(|disk| {
        let table = table_or_tell(&disk, &mut tell)?;
        let entry = table.entries().iter().find(|entry| entry.guid == wanted)?;
        Some(node(&disk, entry.number))
    });
    // One that cannot be seen may be there: it is tried.
    slot.filter(|node| durable::exists(node).unwrap_or(true))
}

impl Disk {
    /// The disk with the system slot of this image. `tell` as above.
    ///
    /// # Errors
    /// [`Error::Missing`] when it lacks a partition.
    pub(crate) fn find(slot: Uuid, mut tell: impl FnMut(&Path, &Refused)) -> Result<Self, Error> {
        let missing = |kind| Error::Missing(Partition::of(kind).name);
        for disk in disks().map_err(Error::List)? {
            let Some(table) = table_or_tell(&disk, &mut tell) else { continue };
            if !table.entries().iter().any(|entry| entry.guid == slot) {
                continue;
            }
            let number = |kind| {
                let wanted = Partition::of(kind).type_guid;
                let found = table.entries().iter().find(|entry| entry.type_guid == wanted);
                found.map(|entry| entry.number).ok_or_else(|| missing(kind))
            };
            let data_number = number(PartitionKind::Data)?;
            return Ok(Self {
                esp: node(&disk, number(PartitionKind::Esp)?),
                data: node(&disk, data_number),
                data_number,
                path: disk,
            });
        }
        Err(missing(PartitionKind::SystemA))
    }

    /// Grows the data partition to the end of the disk, then tells the kernel. A cut leaves a table that is valid, old or
    /// new; a damaged primary is mended on the way.
    ///
    /// # Errors
    /// [`Error`]; what was written so far is a valid table.
    pub(crate) fn grow_data(&self) -> Result<(), Error> {
        let (file, table) = self.open()?;
        let (steps, entry) = table.grow(self.data_number).map_err(|error| Error::Grow(self.path.clone(), error))?;
        self.perform(&file, &steps)?;
        let number = i32::try_from(self.data_number).expect("a table has at most 128 entries");
        sys::block::resize_partition(&file, number, entry.start(), entry.length())
            .map_err(|error| Error::Resize(self.data.clone(), error))
    }

    /// Writes the primary table anew from its backup, if this boot had to take that one. Says whether it did.
    ///
    /// # Errors
    /// [`Error`]; the backup is as it was, and the next boot takes it again.
    pub(crate) fn mend_table(&self) -> Result<bool, Error> {
        let (file, table) = self.open()?;
        self.perform(&file, &table.mend())?;
        Ok(table.copy() == TableCopy::Backup)
    }

    fn open(&self) -> Result<(File, Table), Error> {
        let file = File::options().read(true).write(true).open(&self.path);
        let file = file.map_err(|error| Error::Open(self.path.clone(), error))?;
        let table = read_table(&file).map_err(|error| Error::Read(self.path.clone(), error))?;
        Ok((file, table))
    }

    fn perform(&self, file: &File, steps: &[TableStep]) -> Result<(), Error> {
        let done = steps.iter().try_for_each(|step| match step {
            TableStep::Write { at, bytes } => file.write_all_at(bytes, *at),
            TableStep::Flush => file.sync_all(),
        });
        done.map_err(|error| Error::Write(self.path.clone(), error))
    }
}

/// Whole disks with a medium, in the order of their names.
fn disks() -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        let virtual_device = ["loop", "dm-", "ram", "zram", "md"].iter().any(|prefix| name.starts_with(prefix));
        if !virtual_device && !name.is_empty() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names.into_iter().map(|name| Path::new("/dev").join(name)).collect())
}

/// The table of a disk; `tell` hears why there is none where there should be one.
fn table_or_tell(disk: &Path, tell: &mut impl FnMut(&Path, &Refused)) -> Option<Table> {
    match File::open(disk).map_err(Refused::Open).and_then(|file| read_table(&file)) {
        Ok(table) => Some(table),
        Err(refused) => {
            if !refused.is_absence() {
                tell(disk, &refused);
            }
            None
        }
    }
}

fn read_table(mut disk: &File) -> Result<Table, Refused> {
    let bytes = disk.seek(SeekFrom::End(0)).map_err(Refused::Open)?;
    Ok(Table::read(bytes, |at, buffer| disk.read_exact_at(buffer, at))?)
}

/// The kernel's name of a partition: a `p` between a name that ends in a digit and the number.
fn node(disk: &Path, number: u32) -> PathBuf {
    let name = disk.to_string_lossy();
    let separator = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{name}{separator}{number}"))
}

#[cfg(test)]
mod tests {
    use formats::gpt::Entry;

    use super::*;

    #[test]
    fn partitions_are_named_as_the_kernel_names_them() {
        assert_eq!(node(Path::new("/dev/vda"), 2), Path::new("/dev/vda2"));
        assert_eq!(node(Path::new("/dev/nvme0n1"), 4), Path::new("/dev/nvme0n1p4"));
    }

    const MIB: u64 = 1 << 20;

    /// A disk of 4 MiB with one partition of 1 MiB, on a file that is now 64 MiB long.
    fn disk() -> (tempfile::NamedTempFile, Disk) {
        let file = tempfile::NamedTempFile::new().expect("a place for a disk");
        file.as_file().set_len(64 * MIB).expect("sparse");
        let path = file.path().to_owned();
        let disk = Disk { esp: path.clone(), data: path.clone(), data_number: 1, path };
        let (type_guid, guid) = (Partition::of(PartitionKind::Data).type_guid, Uuid([7; 16]));
        let data = Entry { number: 1, type_guid, guid, first: 2048, last: 4095, name: "data".to_owned() };
        let steps = Table::make(4 * MIB, Uuid([1; 16]), &[data]).expect("room for it");
        disk.perform(file.as_file(), &steps).expect("writes");
        (file, disk)
    }

    /// Proves: D4
    #[test]
    fn the_table_is_grown_and_mended_where_it_lies() {
        let (file, disk) = disk();
        assert!(!disk.mend_table().expect("whole"), "nothing to mend");
        // A file is no block device: all but telling the kernel is done.
        assert!(matches!(disk.grow_data(), Err(Error::Resize(..))));
        let grown = read_table(file.as_file()).expect("valid");
        assert_eq!((grown.entries()[0].start(), grown.entries()[0].length()), (MIB, 62 * MIB));
        let before = fs::read(file.path()).expect("there");
        file.as_file().write_all_at(&[0xee; 1024], 512).expect("writes");
        assert_eq!(read_table(file.as_file()).expect("the backup holds").copy(), TableCopy::Backup);
        assert!(disk.mend_table().expect("mends"));
        assert!(fs::read(file.path()).expect("there") == before, "as it was, byte for byte");
    }

    #[test]
    fn a_disk_is_skipped_by_reason_and_silently_without_a_table() {
        let mut told = Vec::new();
        let mut tell = |disk: &Path, refused: &Refused| told.push((disk.to_owned(), refused.to_string()));
        let (file, disk) = disk();
        assert!(table_or_tell(&disk.path, &mut tell).is_some());
        let blank = tempfile::NamedTempFile::new().expect("a place for a disk");
        assert!(table_or_tell(blank.path(), &mut tell).is_none());
        blank.as_file().set_len(MIB).expect("sparse");
        assert!(table_or_tell(blank.path(), &mut tell).is_none());
        file.as_file().write_all_at(&[0xee], 512 + 60).expect("writes");
        file.as_file().set_len(4 * MIB).expect("as it was made");
        assert!(table_or_tell(&disk.path, &mut tell).is_some(), "the backup holds");
        file.as_file().set_len(5 * MIB).expect("sparse");
        assert!(table_or_tell(&disk.path, &mut tell).is_none());
        let gone = Path::new("/nonexistent");
        assert!(table_or_tell(gone, &mut tell).is_none());
        let words = "its partition table has a header whose checksum does not hold, and the backup of it is not there";
        assert_eq!(told[0], (disk.path, words.to_owned()));
        assert_eq!((told.len(), &*told[1].0), (2, gone));
    }
}
