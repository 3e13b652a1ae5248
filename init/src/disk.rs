//! The disk: finds partitions by their GPT, and grows the data partition to the end of the disk.
//! It writes nothing but the partition table, and that only to grow.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::partition::Partition as Entry;
use model::{Partition, PartitionKind, Uuid};

/// Why there is no usable disk, or it cannot be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel does not list disks.
    #[error("list disks")]
    List(#[source] io::Error),
    /// The system partition's disk lacks one that every image has.
    #[error(
        "the disk that holds the system has no partition `{0}`: was it written by `image flash` or an image build?"
    )]
    Missing(&'static str),
    /// A partition or disk cannot be opened.
    #[error("open `{0}`")]
    Open(PathBuf, #[source] io::Error),
    /// The table could not be rewritten.
    #[error("write the partition table of `{0}`")]
    Table(PathBuf, #[source] gpt::GptError),
    /// The kernel refused the new size.
    #[error("tell the kernel that `{0}` has grown")]
    Resize(PathBuf, #[source] io::Error),
}

/// The disk that holds the running system, and its partitions.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    /// The whole disk.
    pub(crate) path: PathBuf,
    /// Where the ESP is.
    pub(crate) esp: PathBuf,
    /// Where the data partition is.
    pub(crate) data: PathBuf,
    data_number: u32,
}

/// The device node of the partition with this unique GUID, on whatever disk.
pub(crate) fn partition_by_uuid(wanted: Uuid) -> Option<PathBuf> {
    disks().ok()?.into_iter().find_map(|disk| {
        let number = entries(&disk)?.into_iter().find(|(_, entry)| unique(entry) == wanted)?.0;
        Some(node(&disk, number))
    })
}

impl Disk {
    /// The disk with the system slot of this image.
    ///
    /// # Errors
    /// [`Error::Missing`] when it lacks a partition.
    pub(crate) fn find(slot: Uuid) -> Result<Self, Error> {
        let missing = |kind| Error::Missing(Partition::of(kind).name);
        for disk in disks().map_err(Error::List)? {
            let Some(entries) = entries(&disk) else { continue };
            if !entries.iter().any(|(_, entry)| unique(entry) == slot) {
                continue;
            }
            let number = |kind| {
                let wanted = Partition::of(kind).type_guid;
                let found = entries.iter().find(|(_, entry)| Uuid(*entry.part_type_guid.guid.as_bytes()) == wanted);
                found.map(|(number, _)| *number).ok_or_else(|| missing(kind))
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

    /// Grows the data partition to the end of the disk: backup table first, then the primary, then the kernel's view.
    /// A cut in between leaves a table that is valid, old or new.
    ///
    /// # Errors
    /// [`Error::Table`] or [`Error::Resize`]; what was written so far is a valid table.
    pub(crate) fn grow_data(&self) -> Result<(), Error> {
        let open = || File::options().read(true).write(true).open(&self.path);
        let failed = |error| Error::Table(self.path.clone(), error);
        let device = open().map_err(|error| Error::Open(self.path.clone(), error))?;
        let resize_file = device.try_clone().map_err(|error| Error::Open(self.path.clone(), error))?;
        let block = LogicalBlockSize::Lb512;
        let table =
            GptConfig::new().writable(true).logical_block_size(block).open_from_device(device).map_err(failed)?;
        let (start, length) = grow(table, self.data_number, &resize_file).map_err(failed)?;
        let number = i32::try_from(self.data_number).expect("a GPT has 128 entries");
        sys::block::resize_partition(&resize_file, number, start, length)
            .map_err(|error| Error::Resize(self.data.clone(), error))
    }
}

/// Writes the grown table; returns the partition's start and length in bytes.
fn grow(mut table: gpt::GptDisk<File>, number: u32, file: &File) -> Result<(u64, u64), gpt::GptError> {
    // Rebuilding the headers from the entries moves the backup to the end of the device as it is now.
    let mut entries = table.take_partitions();
    table.update_partitions(entries.clone())?;
    let last_usable = table.header().last_usable;
    let entry = entries.get_mut(&number).ok_or(gpt::GptError::NotEnoughSpace)?;
    // Whole MiB: dm and XFS want whole blocks, and every disk of a size has the same layout.
    let room = (last_usable + 1).checked_sub(entry.first_lba).ok_or(gpt::GptError::NotEnoughSpace)?;
    let sectors = room / 2048 * 2048;
    if sectors == 0 {
        return Err(gpt::GptError::NotEnoughSpace);
    }
    entry.last_lba = entry.first_lba + sectors - 1;
    let range = (entry.first_lba * 512, sectors * 512);
    table.update_partitions(entries)?;
    table.write()?;
    file.sync_all()?;
    Ok(range)
}

fn unique(entry: &Entry) -> Uuid {
    Uuid(*entry.part_guid.as_bytes())
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

/// The used entries of a disk's GPT; `None` when it has none that is valid.
fn entries(disk: &Path) -> Option<Vec<(u32, Entry)>> {
    let table = GptConfig::new().logical_block_size(LogicalBlockSize::Lb512).open(disk).ok()?;
    Some(
        table
            .partitions()
            .iter()
            .filter(|(_, entry)| entry.is_used())
            .map(|(number, entry)| (*number, entry.clone()))
            .collect(),
    )
}

/// The kernel's name of a partition: a `p` between a name that ends in a digit and the number.
fn node(disk: &Path, number: u32) -> PathBuf {
    let name = disk.to_string_lossy();
    let separator = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{name}{separator}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_as_the_kernel_names_them() {
        assert_eq!(node(Path::new("/dev/vda"), 2), Path::new("/dev/vda2"));
        assert_eq!(node(Path::new("/dev/nvme0n1"), 4), Path::new("/dev/nvme0n1p4"));
    }
    const MIB: u64 = 1 << 20;

    /// A disk with one partition at 1 MiB, made when the disk was `small`, on a file that is now `large`.
    fn disk(small: u64, large: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a place for a disk");
        file.as_file().set_len(small).expect("sparse");
        gpt::mbr::ProtectiveMBR::with_lb_size(u32::try_from(small / 512 - 1).expect("small"))
            .overwrite_lba0(&mut file.reopen().expect("opens"))
            .expect("writes");
        let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
        let mut table = config.create_from_device(file.reopen().expect("opens"), None).expect("a table");
        table.add_partition("data", MIB, gpt::partition_types::LINUX_FS, 0, Some(2048)).expect("room for it");
        table.write().expect("writes");
        file.as_file().set_len(large).expect("sparse");
        file
    }

    fn grown(file: &tempfile::NamedTempFile, number: u32) -> Result<(u64, u64), gpt::GptError> {
        let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
        let table = config.open_from_device(file.reopen().expect("opens"))?;
        grow(table, number, file.as_file())
    }

    /// Proves: D4
    #[test]
    fn the_partition_grows_to_the_end_of_the_disk_in_whole_mebibytes_and_again_to_the_same() {
        let file = disk(4 * MIB, 64 * MIB + 512);
        for _again in 0..2 {
            assert_eq!(grown(&file, 1).expect("grows"), (MIB, 62 * MIB), "the backup table has the last sectors");
        }
        let table = GptConfig::new().logical_block_size(LogicalBlockSize::Lb512).open(file.path()).expect("valid");
        let entry = &table.partitions()[&1];
        assert_eq!((entry.first_lba * 512, (entry.last_lba + 1) * 512), (MIB, 63 * MIB));
        assert_eq!(table.primary_header().expect("there").backup_lba, (64 * MIB + 512) / 512 - 1);
        assert!(table.backup_header().is_ok(), "both copies hold");
    }

    #[test]
    fn a_table_without_the_partition_or_without_room_is_refused() {
        assert!(matches!(grown(&disk(4 * MIB, 8 * MIB), 2), Err(gpt::GptError::NotEnoughSpace)), "no such partition");
        let file = disk(4 * MIB, 4 * MIB);
        let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
        let mut table = config.open_from_device(file.reopen().expect("opens")).expect("valid");
        let mut entries = table.take_partitions();
        entries.values_mut().for_each(|entry| (entry.first_lba, entry.last_lba) = (1 << 40, 1 << 41));
        table.update_partitions(entries).and_then(|()| table.write()).expect("nobody looks at it");
        assert!(matches!(grown(&file, 1), Err(gpt::GptError::NotEnoughSpace)), "it begins behind the disk's end");
    }
}
