//! The GPT disk: where partitions lie, reading and writing them inside an image file, copies for machines.
//!
//! ```text
//! 1 MiB | ESP 64 MiB | SYSTEM-A 256 MiB | SYSTEM-B 256 MiB | DATA 2 MiB | backup GPT in the last MiB
//! ```
//! DATA only marks where the data will be: the machine grows it to the end of its disk at create. Every GUID follows
//! from the root hash, so that the same root gives the same disk.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use formats::gpt::{CannotMake, Entry, NoTable, SECTOR, Table, TableStep};
use model::{ESP_BYTES, Partition, PartitionKind, RootHash, SYSTEM_BYTES, Uuid};

use crate::files::{FileError, sha256};
use crate::names;

/// Start and size of each partition are multiples of this: no real disk has larger physical blocks.
const ALIGNMENT: u64 = 1 << 20;
/// Room for both copies of the data header and the alignment behind them.
const DATA_BYTES: u64 = 2 << 20;

/// Why a disk image could not be made, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The image file itself.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no partition table that holds.
    #[error("read the partition table of the disk image: {0}")]
    Table(#[from] NoTable),
    /// The plan makes none.
    #[error("plan the partition table of the disk image")]
    Plan(#[from] CannotMake),
    /// A partition of the plan is not there.
    #[error("the disk image has no partition of kind {0:?}")]
    NoPartition(PartitionKind),
    /// The file system of the ESP.
    #[error("file system of the ESP")]
    Esp(#[source] io::Error),
    /// The content is larger than its partition.
    #[error("{kind:?} holds {room} bytes, {size} do not fit")]
    Full {
        kind: PartitionKind,
        /// Size of the partition in bytes.
        room: u64,
        size: u64,
    },
    /// A copy that is smaller than the image.
    #[error("a disk takes at least {least} bytes, {asked} were asked for")]
    TooSmall {
        /// Size of the image.
        least: u64,
        asked: u64,
    },
}

/// A partition found on a disk image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPartition {
    /// Use of the partition; none for a type that is not ours.
    pub kind: Option<PartitionKind>,
    /// Name in the table.
    pub name: String,
    /// GUID of the partition itself.
    pub guid: Uuid,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Length of the partition in bytes.
    pub length: u64,
}

/// A sparse disk of the least size at `path`: the ESP, and `root` with its tree in slot A.
pub(crate) fn make(path: &Path, esp: &[u8], root: &[u8], hash: RootHash) -> Result<(), DiskError> {
    let wrong = |action| FileError::new(action, path);
    let file = File::create(path).map_err(wrong("create"))?;
    let plan = plan(hash);
    let size = plan.iter().map(|part| part.start() + part.length()).max().unwrap_or(0) + ALIGNMENT;
    file.set_len(size).map_err(wrong("set length of"))?;
    for step in Table::make(size, derived(hash, "disk"), &plan)? {
        match step {
            TableStep::Write { at, bytes } => file.write_all_at(&bytes, at).map_err(wrong("write"))?,
            // A build that is cut is begun again.
            TableStep::Flush => {}
        }
    }
    for (kind, content) in [(PartitionKind::Esp, esp), (PartitionKind::SystemA, root)] {
        // Blocks of zeros stay holes.
        let blocks = content.chunks(4096).zip((0..).step_by(4096));
        let written = blocks.filter(|(block, _)| block.iter().any(|&byte| byte != 0)).map(|(block, at)| (at, block));
        check_room(path, kind, content.len() as u64)?;
        write_partition(path, kind, written)?;
    }
    Ok(())
}

/// A sparse copy of the image's disk for one machine, `size` bytes long.
///
/// The partition table still ends where the image ended: the machine moves its backup and grows DATA at create.
///
/// # Errors
/// [`DiskError`] when a file cannot be read or written or `size` is less than the image's.
pub fn instantiate(image_dir: &Path, target: &Path, size: u64) -> Result<(), DiskError> {
    copy(&image_dir.join(names::DISK), target, Some(size))
}

/// A sparse copy of any disk, `size` bytes long, or as long as it is.
///
/// # Errors
/// [`DiskError`] when a file cannot be read or written or `size` is less than what is copied.
pub fn copy(path: &Path, target: &Path, size: Option<u64>) -> Result<(), DiskError> {
    let source = File::open(path).map_err(FileError::new("open", path))?;
    let least = source.metadata().map_err(FileError::new("read", path))?.len();
    let size = size.unwrap_or(least);
    if size < least {
        return Err(DiskError::TooSmall { least, asked: size });
    }
    let copy = File::create(target).map_err(FileError::new("create", target))?;
    copy.set_len(size).map_err(FileError::new("set length of", target))?;
    copy_data(&source, &copy, least).map_err(FileError::new("copy the disk image to", target))?;
    Ok(())
}

/// The partitions of a disk image, in the order of their numbers, as a machine would find them.
///
/// # Errors
/// [`DiskError`] when there is no partition table.
pub fn partitions(disk: &Path) -> Result<Vec<DiskPartition>, DiskError> {
    Ok(table(disk)?.entries().iter().map(found).collect())
}

/// The partition table of a disk image.
///
/// # Errors
/// [`DiskError`] when neither copy of it holds.
pub fn table(disk: &Path) -> Result<Table, DiskError> {
    let file = File::open(disk).map_err(FileError::new("open", disk))?;
    let bytes = file.metadata().map_err(FileError::new("read", disk))?.len();
    Ok(Table::read(bytes, |at, buffer| file.read_exact_at(buffer, at))?)
}

/// The GUID of a disk image.
pub(crate) fn guid(disk: &Path) -> Result<Uuid, DiskError> {
    Ok(table(disk)?.guid())
}

/// All bytes of a partition.
pub(crate) fn read_partition(disk: &Path, kind: PartitionKind) -> Result<Vec<u8>, DiskError> {
    let place = find(disk, kind)?;
    let mut file = File::open(disk).map_err(FileError::new("open", disk))?;
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(place.start)).and_then(|_| file.take(place.length).read_to_end(&mut bytes));
    read.map_err(FileError::new("read", disk))?;
    Ok(bytes)
}

/// Writes `pieces`, each at its offset from the partition's start.
pub(crate) fn write_partition<'a>(
    disk: &Path,
    kind: PartitionKind,
    pieces: impl Iterator<Item = (u64, &'a [u8])>,
) -> Result<(), DiskError> {
    let place = find(disk, kind)?;
    let wrong = |action| FileError::new(action, disk);
    let mut file = File::options().write(true).open(disk).map_err(wrong("open"))?;
    for (at, piece) in pieces {
        let end = at + piece.len() as u64;
        if end > place.length {
            return Err(DiskError::Full { kind, room: place.length, size: end });
        }
        file.seek(SeekFrom::Start(place.start + at)).and_then(|_| file.write_all(piece)).map_err(wrong("write"))?;
    }
    Ok(())
}

fn find(disk: &Path, kind: PartitionKind) -> Result<DiskPartition, DiskError> {
    let found = partitions(disk)?.into_iter().find(|part| part.kind == Some(kind));
    found.ok_or(DiskError::NoPartition(kind))
}

fn check_room(disk: &Path, kind: PartitionKind, size: u64) -> Result<(), DiskError> {
    let room = find(disk, kind)?.length;
    if size <= room { Ok(()) } else { Err(DiskError::Full { kind, room, size }) }
}

fn found(entry: &Entry) -> DiskPartition {
    DiskPartition {
        kind: Partition::by_type(entry.type_guid).map(|row| row.kind),
        name: entry.name.clone(),
        guid: entry.guid,
        start: entry.start(),
        length: entry.length(),
    }
}

/// The entries of the table, one behind the other.
fn plan(hash: RootHash) -> Vec<Entry> {
    let mut start = ALIGNMENT;
    let mut entries = Vec::new();
    for (row, number) in Partition::ALL.into_iter().zip(1..) {
        let (length, guid) = match row.kind {
            PartitionKind::Esp => (ESP_BYTES, derived(hash, row.name)),
            PartitionKind::SystemA => (SYSTEM_BYTES, hash.partition_uuid()),
            PartitionKind::SystemB => (SYSTEM_BYTES, derived(hash, row.name)),
            PartitionKind::Data => (DATA_BYTES, derived(hash, row.name)),
        };
        let (first, last) = (start / SECTOR, (start + length) / SECTOR - 1);
        entries.push(Entry { number, type_guid: row.type_guid, guid, first, last, name: row.name.to_owned() });
        start += length;
    }
    entries
}

/// A GUID that names `what` of the disk with this root, in the form of RFC 9562, version 8.
fn derived(hash: RootHash, what: &str) -> Uuid {
    let digest = sha256(&[b"cairn/v1/gpt", what.as_bytes(), &hash.0].concat());
    let mut guid = *digest.first_chunk::<16>().expect("32 bytes");
    guid[6] = guid[6] & 0x0f | 0x80;
    guid[8] = guid[8] & 0x3f | 0x80;
    Uuid(guid)
}

/// Copies what is not a hole.
fn copy_data(source: &File, target: &File, length: u64) -> io::Result<()> {
    use rustix::fs::SeekFrom as Place;
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(source, Place::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(()), // only a hole is left
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(source, Place::Hole(start))?;
        (&*source).seek(SeekFrom::Start(start))?;
        (&*target).seek(SeekFrom::Start(start))?;
        io::copy(&mut source.take(end - start), &mut &*target)?;
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const HASH: RootHash = RootHash([
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
        30, 31,
    ]);

    fn disk() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("room for temporary files");
        let esp = crate::esp::make(b"loader", b"kernel").expect("room");
        make(&dir.path().join(names::DISK), &esp, &[7; 8192], HASH).expect("room");
        dir
    }

    #[test]
    fn the_slot_is_named_by_its_root_hash_in_both_tables() {
        let dir = disk();
        let bytes = std::fs::read(dir.path().join(names::DISK)).expect("just made");
        let guid = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        // Second entry of the primary array at LBA 2 and of the backup array 33 sectors before the end.
        for array in [1024, bytes.len() - 33 * 512] {
            assert_eq!(bytes[array + 128 + 16..][..16], guid);
        }
        assert_eq!(bytes.len() % (1 << 20), 0);
    }

    #[test]
    fn partitions_follow_the_plan() {
        let dir = disk();
        let found = partitions(&dir.path().join(names::DISK)).expect("just made");
        let places: Vec<_> = found.iter().map(|part| (part.kind, part.start >> 20, part.length >> 20)).collect();
        let kinds = [PartitionKind::Esp, PartitionKind::SystemA, PartitionKind::SystemB, PartitionKind::Data].map(Some);
        let [esp, system_a, system_b, data] = kinds;
        assert_eq!(places, [(esp, 1, 64), (system_a, 65, 256), (system_b, 321, 256), (data, 577, 2)]);
        assert!(found.iter().all(|part| part.start % ALIGNMENT == 0 && part.length % ALIGNMENT == 0));
        assert_eq!(found[1].guid, HASH.partition_uuid());
    }

    /// GUIDs computed with Python: `sha256(b"cairn/v1/gpt" + name + bytes(range(32)))`, version and variant set.
    #[test]
    fn the_table_has_its_known_names_and_guids() {
        let dir = disk();
        let table = table(&dir.path().join(names::DISK)).expect("just made");
        assert_eq!(table.guid().to_string(), "ebdf31fa-011d-84fe-8d88-ae3b86475aa0");
        let rows = table.entries().iter().map(|entry| {
            let Entry { number, name, type_guid, guid, .. } = entry;
            format!("{number} {name} {type_guid} {guid}")
        });
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [
                "1 cairn-esp c12a7328-f81f-11d2-ba4b-00a0c93ec93b 5fabbdbe-ec04-8fd4-ac9d-40422eef0d11",
                "2 cairn-system-a 7b0d44c6-9a0f-4c5e-8d5b-63a1f6ce0a01 00010203-0405-0607-0809-0a0b0c0d0e0f",
                "3 cairn-system-b 7b0d44c6-9a0f-4c5e-8d5b-63a1f6ce0a02 586c5e97-0ed6-8496-bc5a-8d1166890889",
                "4 cairn-data 7b0d44c6-9a0f-4c5e-8d5b-63a1f6ce0a03 8de3ac33-541e-821f-b7de-a7083031a1e5",
            ]
        );
    }

    #[test]
    fn a_machines_disk_is_a_sparse_copy_of_its_own_size() {
        let dir = disk();
        let copy = dir.path().join("machine.img");
        instantiate(dir.path(), &copy, 8 << 30).expect("sparse");
        let metadata = std::fs::metadata(&copy).expect("just made");
        assert_eq!(metadata.len(), 8 << 30);
        assert!(metadata.blocks() * 512 < 16 << 20, "{} blocks", metadata.blocks());
        let original = read_partition(&dir.path().join(names::DISK), PartitionKind::SystemA).expect("there");
        assert_eq!(original[..8192], [7; 8192]);
        assert!(read_partition(&copy, PartitionKind::SystemA).expect("there") == original);
        assert!(read_partition(&copy, PartitionKind::Esp).expect("there") == crate::esp::read(&copy).expect("there"));
        let refused = instantiate(dir.path(), &copy, 1 << 20);
        assert!(matches!(refused, Err(DiskError::TooSmall { asked: 0x10_0000, .. })));
    }

    /// Proves: S11
    #[test]
    fn an_enrolment_config_is_put_replaced_and_changes_nothing_else() {
        let dir = disk();
        let path = dir.path().join(names::DISK);
        let pairs = || {
            crate::esp::PAIRS
                .map(|name| formats::fat::place(&crate::esp::read(&path).expect("there"), &format!("{name}.1")))
        };
        let (files, places) = (crate::esp::list(&path).expect("sound"), pairs());
        for config in [&[1; 3000][..], &[2; 10]] {
            crate::esp::put_enrolment(&path, config).expect("room");
            assert_eq!(crate::esp::read_file(&path, crate::esp::ENROLMENT).expect("there"), config);
        }
        let mut after = crate::esp::list(&path).expect("sound");
        after.retain(|(name, _)| name != crate::esp::ENROLMENT);
        assert_eq!((after, pairs()), (files, places));
    }
}
