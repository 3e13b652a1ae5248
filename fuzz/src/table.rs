//! Partition tables on a small disk: as they are, and with their checksums made right, so that mutations get past them.

use std::collections::BTreeMap;

use formats::gpt::{SECTOR, Table, TableStep, crc32};

use crate::{ParseVerdict, outcome, padded};

/// Sectors of the disk.
const SECTORS: u64 = 8192;
const HEADER_BYTES: usize = 92;

/// A header and, behind its 92 bytes, an array: as the primary copy, and as the backup. What is read can be mended and
/// grown, and is read again.
pub fn read(bytes: &[u8]) -> ParseVerdict {
    let (header, array) = bytes.split_at(bytes.len().min(HEADER_BYTES));
    let (mut header, array) = (padded(header, 512), padded(array, 16 << 10));
    let outcome = on_disk(&header, &array, 1);
    make_right(&mut header, &array);
    on_disk(&header, &array, 1);
    for (at, place) in [(24, SECTORS - 1), (32, 1), (72, SECTORS - 33)] {
        header[at..at + 8].copy_from_slice(&place.to_le_bytes());
    }
    make_right(&mut header, &array);
    on_disk(&header, &array, SECTORS - 1);
    outcome
}

/// Both checksums, for as many entries as the header speaks of.
fn make_right(header: &mut [u8], array: &[u8]) {
    let entries = usize::from(header[80]).min(128);
    header[88..92].copy_from_slice(&crc32(&array[..entries * 128]).to_le_bytes());
    header[16..20].fill(0);
    let checksum = crc32(&header[..HEADER_BYTES]);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
}

/// A disk with this header in sector `lba`, this array beside it, and nothing else.
fn on_disk(header: &[u8], array: &[u8], lba: u64) -> ParseVerdict {
    let mut disk = Sparse::default();
    disk.write(if lba == 1 { 2 } else { lba - 32 }, array);
    disk.write(lba, header);
    let read = disk.table();
    if let Ok(table) = &read {
        let grown = table.entries().iter().filter_map(|entry| table.grow(entry.number).ok()).map(|(steps, _)| steps);
        for plan in grown.chain([table.mend()]) {
            let mut disk = disk.clone();
            for step in plan {
                if let TableStep::Write { at, bytes } = step {
                    disk.write(at / SECTOR, &bytes);
                }
            }
            let again = disk.table().expect("what was written is read");
            assert_eq!(again.entries().len(), table.entries().len(), "no partition comes or goes");
        }
    }
    outcome(&read)
}

/// The sectors that were written.
#[derive(Debug, Clone, Default)]
struct Sparse(BTreeMap<u64, Vec<u8>>);

impl Sparse {
    fn write(&mut self, lba: u64, bytes: &[u8]) {
        for (sector, lba) in bytes.chunks(512).zip(lba..) {
            assert!(lba < SECTORS, "inside the disk");
            self.0.insert(lba, sector.to_vec());
        }
    }

    fn table(&self) -> Result<Table, formats::gpt::NoTable> {
        Table::read(SECTORS * SECTOR, |at, buffer| {
            assert!(buffer.len() <= 16 << 10, "reads stay within bounds");
            for (part, lba) in buffer.chunks_mut(512).zip(at / SECTOR..) {
                assert!(lba < SECTORS, "inside the disk");
                match self.0.get(&lba) {
                    Some(sector) => part.copy_from_slice(&sector[..part.len()]),
                    None => part.fill(0),
                }
            }
            Ok(())
        })
    }
}
