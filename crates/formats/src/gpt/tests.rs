//! Tests of what is read, what is refused and why; and that another reader and writer of such tables agrees with ours.

use std::collections::BTreeMap;
use std::io::{self, Cursor};

use proptest::prelude::*;

use super::*;

/// A disk in memory: the sectors that are not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) sectors: u64,
    pub(super) written: BTreeMap<u64, Vec<u8>>,
}

impl Disk {
    pub(super) fn empty(sectors: u64) -> Self {
        Self { sectors, written: BTreeMap::new() }
    }

    /// As [`Table::make`] plans it.
    pub(super) fn made(sectors: u64, partitions: &[Entry]) -> Self {
        let mut disk = Self::empty(sectors);
        disk.perform(&Table::make(sectors * SECTOR, DISK, partitions).expect("a table"));
        disk
    }

    pub(super) fn perform(&mut self, steps: &[TableStep]) {
        for step in steps {
            if let TableStep::Write { at, bytes } = step {
                assert!(
                    at % SECTOR == 0 && (bytes.len() as u64).is_multiple_of(SECTOR) && !bytes.is_empty(),
                    "whole sectors"
                );
                for (sector, lba) in bytes.chunks(SECTOR_BYTES).zip(at / SECTOR..) {
                    assert!(lba < self.sectors, "inside the disk");
                    self.put(lba, sector.to_vec());
                }
            }
        }
    }

    pub(super) fn put(&mut self, lba: u64, sector: Vec<u8>) {
        if sector.iter().all(|byte| *byte == 0) {
            self.written.remove(&lba)
        } else {
            self.written.insert(lba, sector)
        };
    }

    pub(super) fn sector(&self, lba: u64) -> Vec<u8> {
        self.written.get(&lba).cloned().unwrap_or_else(|| vec![0; 512])
    }

    pub(super) fn read(&self) -> Result<Table, NoTable> {
        Table::read(self.sectors * SECTOR, |at, buffer| {
            assert!(buffer.len() <= 16 << 10, "reads stay within bounds");
            for (part, lba) in buffer.chunks_mut(512).zip(at / SECTOR..) {
                if lba >= self.sectors {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                part.copy_from_slice(&self.sector(lba)[..part.len()]);
            }
            Ok(())
        })
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.sectors).flat_map(|lba| self.sector(lba)).collect()
    }

    /// The header in sector `lba` with `edit` made and both checksums right again.
    fn edited(mut self, lba: u64, edit: impl FnOnce(&mut [u8])) -> Self {
        let mut header = self.sector(lba);
        edit(&mut header);
        let (array, count) = (u64_at(&header, 72), u32_at(&header, 80).min(128) as usize);
        let entries: Vec<u8> = (0..32).flat_map(|index| self.sector(array.wrapping_add(index))).collect();
        header[88..92].copy_from_slice(&crc32(&entries[..count * 128]).to_le_bytes());
        header[16..20].fill(0);
        let checksum = crc32(&header[..92]);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        self.put(lba, header);
        self
    }
}

pub(super) const DISK: Uuid = Uuid([0xd1; 16]);

pub(super) fn partition(number: u32, first: u64, last: u64) -> Entry {
    let own = u8::try_from(number).expect("a small number");
    Entry {
        number,
        type_guid: Uuid([0x70 | own; 16]),
        guid: Uuid([own, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        first,
        last,
        name: format!("part-{number}"),
    }
}

/// Two partitions of 1 MiB each, and room for one more.
fn disk() -> Disk {
    Disk::made(4 * 2048, &[partition(1, 2048, 4095), partition(2, 4096, 6143)])
}

/// Fault of the primary, on a disk that has no other copy.
fn refused(mut disk: Disk) -> Bad {
    disk.put(disk.sectors - 1, vec![0; 512]);
    disk.read().expect_err("refused").primary
}

#[test]
fn what_is_made_is_read_from_either_copy() {
    let mut disk = disk();
    let table = disk.read().expect("made");
    assert_eq!(table.entries(), [partition(1, 2048, 4095), partition(2, 4096, 6143)]);
    assert_eq!((table.guid(), table.copy()), (DISK, TableCopy::Primary));
    assert_eq!((table.entries()[0].start(), table.entries()[0].length()), (1 << 20, 1 << 20));
    assert!(table.mend().is_empty(), "nothing to mend");
    for damaged in [1, 2] {
        let mut disk = disk.clone();
        disk.put(damaged, vec![0xee; 512]);
        let table = disk.read().expect("the backup holds");
        assert_eq!((table.entries().len(), table.copy()), (2, TableCopy::Backup));
    }
    disk.put(1, vec![0xee; 512]);
    disk.put(disk.sectors - 1, vec![0; 512]);
    assert_eq!(disk.read(), Err(NoTable { primary: Bad::Absent, backup: Bad::Absent }));
}

#[test]
fn a_disk_without_a_table_is_no_damaged_one() {
    for sectors in [0, 1, 2, 3, 2048] {
        let none = Disk::empty(sectors).read().expect_err("nothing there");
        assert!(none.is_absence(), "{sectors}: {none}");
    }
    let mut torn = disk();
    torn.put(2, vec![1; 512]);
    torn.put(torn.sectors - 1, vec![0; 512]);
    let none = torn.read().expect_err("torn");
    assert!(!none.is_absence());
    assert_eq!(
        none.to_string(),
        "its partition table has entries whose checksum does not hold, and the backup of it is not there"
    );
    let mut torn = disk();
    torn.put(1, vec![0; 512]);
    torn.put(torn.sectors - 33, vec![1; 512]);
    assert!(!torn.read().expect_err("torn").is_absence(), "the backup counts, too");
}

/// A header that says something else, with its checksums right: legal tables of others among them.
#[test]
fn every_header_that_is_not_ours_is_refused_for_its_reason() {
    type Edit = fn(&mut [u8]);
    let number =
        |at: usize, value: u64| move |header: &mut [u8]| header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let edits: [(Edit, Bad); 9] = [
        (|header| header[8] = 1, Bad::Revision),
        (|header| header[12] = 96, Bad::Revision),
        (|header| header[20] = 1, Bad::Reserved),
        (|header| header[511] = 1, Bad::Reserved),
        (|header| header[92] = 1, Bad::Reserved),
        (|header| header[84..88].copy_from_slice(&256_u32.to_le_bytes()), Bad::EntrySize(256)),
        (|header| header[80..84].copy_from_slice(&129_u32.to_le_bytes()), Bad::EntryCount(129)),
        (|header| header[80..84].copy_from_slice(&u32::MAX.to_le_bytes()), Bad::EntryCount(u32::MAX)),
        (|header| header[80..84].fill(0), Bad::EntryCount(0)),
    ];
    for (edit, bad) in edits {
        assert_eq!(refused(disk().edited(1, edit)), bad);
    }
    let last = 4 * 2048 - 1;
    let bounds = [
        (24, 2, Bad::Place),          // it lies elsewhere
        (32, last + 1, Bad::Place),   // the backup behind the disk
        (32, last - 33, Bad::Place),  // or on a partition's room
        (40, 33, Bad::Bounds),        // partitions over the array
        (40, last - 32, Bad::Bounds), // no room at all
        (48, last, Bad::Place),       // partitions over the backup
        (48, u64::MAX, Bad::Place),
        (72, 1, Bad::Bounds), // the array over the header
        (72, 3, Bad::Bounds), // or over partitions
        (72, u64::MAX, Bad::Bounds),
    ];
    for (at, value, bad) in bounds {
        assert_eq!(refused(disk().edited(1, number(at, value))), bad, "{value} at {at}");
    }
    let backup_bounds = [
        (24, 1, Bad::Place),
        (32, 2, Bad::Place),
        (72, last - 31, Bad::Bounds), // the array over the header
        (72, last - 34, Bad::Bounds), // or over partitions
        (72, u64::MAX, Bad::Bounds),
        (40, 33, Bad::Bounds), // no room for the primary that is to be mended
        (40, 0, Bad::Bounds),
        (48, last, Bad::Bounds),
    ];
    for (at, value, bad) in backup_bounds {
        let mut disk = disk().edited(last, number(at, value));
        disk.put(1, vec![0; 512]);
        assert_eq!(disk.read().expect_err("refused").backup, bad, "{value} at {at}");
    }
    // The least there is: no bound is off by one.
    let tight = Disk::made(34 + 33 + 1, &[partition(1, 34, 34)]);
    assert_eq!(tight.read().expect("fits").entries(), [partition(1, 34, 34)]);
    assert_eq!(tight.read().map(|table| table.copy()), Ok(TableCopy::Primary));
    let mut from_backup = tight;
    from_backup.put(1, vec![0; 512]);
    assert_eq!(from_backup.read().map(|table| table.copy()), Ok(TableCopy::Backup));
}

#[test]
fn a_flipped_bit_anywhere_in_a_copy_is_found() {
    for lba in [1, 2] {
        for at in [0, 8, 16, 20, 56, 70, 91, 127] {
            let mut disk = disk();
            let mut sector = disk.sector(lba);
            sector[at] ^= 0x10;
            disk.put(lba, sector);
            assert_eq!(disk.read().expect("the backup holds").copy(), TableCopy::Backup, "byte {at} of sector {lba}");
        }
    }
}

#[test]
fn impossible_partitions_are_refused() {
    let good = partition(1, 2048, 4095);
    let cases = [
        ("over another", vec![good.clone(), partition(2, 4095, 5000)], 2),
        ("around another", vec![good.clone(), partition(2, 40, 5000)], 2),
        ("inside another", vec![good.clone(), partition(2, 3000, 3000)], 2),
        ("named as another", vec![good.clone(), Entry { guid: good.guid, ..partition(2, 5000, 5000) }], 2),
        ("over the array", vec![partition(1, 33, 5000)], 1),
        ("over the backup", vec![partition(3, 2048, 4 * 2048 - 33)], 3),
        ("ends before it begins", vec![partition(1, 2048, 2047)], 1),
    ];
    for (what, partitions, number) in cases {
        let planned = Table::make(4 << 20, DISK, &partitions);
        assert_eq!(planned, Err(CannotMake::Refused(Bad::Partition(number))), "{what}");
    }
    // The same where a disk says so.
    let mut disk = disk();
    let mut array = disk.sector(2);
    array[128 + 32..128 + 40].copy_from_slice(&4095_u64.to_le_bytes());
    disk.put(2, array);
    assert_eq!(refused(disk.edited(1, |_| {})), Bad::Partition(2));
}

#[test]
fn what_no_table_holds_is_not_planned() {
    let long = Entry { name: "x".repeat(37), ..partition(1, 2048, 4095) };
    for (entry, number) in [(partition(0, 2048, 4095), 0), (partition(129, 2048, 4095), 129), (long, 1)] {
        assert_eq!(Table::make(4 << 20, DISK, &[entry]), Err(CannotMake::Entry(number)));
    }
    let full = Entry { name: "x".repeat(36), ..partition(128, 2048, 4095) };
    assert_eq!(Disk::made(8192, std::slice::from_ref(&full)).read().expect("made").entries(), [full]);
    for sectors in [0, 33, 66, 67] {
        assert_eq!(Table::make(sectors * 512, DISK, &[]), Err(CannotMake::Refused(Bad::Room)), "{sectors}");
    }
}

#[test]
fn a_disk_that_fails_is_read_from_its_backup() {
    let disk = disk();
    for broken in [1, 2] {
        let table = Table::read(disk.sectors * SECTOR, |at, buffer| {
            if at == broken * SECTOR {
                return Err(io::ErrorKind::InvalidData.into());
            }
            buffer.copy_from_slice(&disk.bytes()[usize::try_from(at).expect("small")..][..buffer.len()]);
            Ok(())
        });
        assert_eq!(table.expect("the backup holds").copy(), TableCopy::Backup);
    }
    let none = Table::read(disk.sectors * SECTOR, |_, _| Err(io::ErrorKind::InvalidData.into())).expect_err("broken");
    assert_eq!(none.primary, Bad::Unreadable(io::ErrorKind::InvalidData));
    assert!(!none.is_absence(), "nobody knows what is there");
}

#[test]
fn a_name_ends_at_its_first_zero_and_may_be_nonsense() {
    let mut disk = disk();
    let mut array = disk.sector(2);
    array[56..66].copy_from_slice(&[b'a', 0, 0x00, 0xd8, b'b', 0, 0, 0, b'c', 0]);
    disk.put(2, array);
    assert_eq!(disk.edited(1, |_| {}).read().expect("whole").entries()[0].name, "a\u{fffd}b");
}

#[test]
fn the_protective_mbr_covers_the_disk_or_two_tebibytes() {
    let mbr = |sectors: u64| {
        let TableStep::Write { at: 0, bytes } = Table::make(sectors * SECTOR, DISK, &[]).expect("room").remove(0)
        else {
            panic!("the MBR comes first")
        };
        bytes
    };
    let expected = [0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0x1f, 0, 0];
    assert_eq!((&mbr(8192)[446..462], &mbr(8192)[510..]), (&expected[..], &[0x55, 0xaa][..]));
    assert_eq!(mbr(1 << 32)[458..462], [0xff; 4]);
    assert_eq!(mbr(1 << 33)[458..462], [0xff; 4]);
}

/// The crate `gpt` as a second opinion on both directions.
#[test]
fn another_implementation_reads_and_writes_the_same() {
    let ours = disk();
    let config = || gpt::GptConfig::new().logical_block_size(gpt::disk::LogicalBlockSize::Lb512);
    let theirs = config().open_from_device(Cursor::new(ours.bytes())).expect("they read it");
    assert!(theirs.primary_header().is_ok() && theirs.backup_header().is_ok(), "both copies");
    assert_eq!(*theirs.guid().as_bytes(), DISK.0);
    let read: Vec<_> = theirs.partitions().iter().filter(|(_, entry)| entry.is_used()).collect();
    assert_eq!(read.len(), 2);
    for ((number, entry), ours) in read.into_iter().zip(disk().read().expect("made").entries()) {
        let theirs = Entry {
            number: *number,
            type_guid: Uuid(*entry.part_type_guid.guid.as_bytes()),
            guid: Uuid(*entry.part_guid.as_bytes()),
            first: entry.first_lba,
            last: entry.last_lba,
            name: entry.name.clone(),
        };
        assert_eq!(theirs, *ours);
    }
    let mut blank = Cursor::new(vec![0; 4 << 20]);
    gpt::mbr::ProtectiveMBR::with_lb_size(8191).overwrite_lba0(&mut blank).expect("in memory");
    let guid = Some(uuid::Uuid::from_bytes(DISK.0));
    let mut written = config().writable(true).create_from_device(blank, guid).expect("in memory");
    written.update_partitions(theirs.partitions().clone()).expect("fits");
    let bytes = written.write().expect("in memory").into_inner();
    assert!(bytes == ours.bytes(), "the same disk, byte for byte");
}

proptest! {
    #[test]
    fn any_two_sectors_are_refused_or_make_sense(
        header in prop::collection::vec(any::<u8>(), 512),
        at in 0usize..92,
        byte: u8,
    ) {
        let mut noise = disk();
        noise.put(1, header);
        let _ = noise.read();
        let table = disk().edited(1, |header| header[at] = byte).read().expect("at least the backup holds");
        for entry in table.entries() {
            prop_assert!(entry.first <= entry.last && entry.last < table.sectors);
        }
    }
}
