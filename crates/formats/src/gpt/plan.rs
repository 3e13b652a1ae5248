//! How a table is written: made, grown, mended. Each is a list of writes with flushes between them, in an order in which a
//! cut at any sector leaves a copy that holds; whoever performs it keeps the order.

use model::Uuid;

use super::crc::crc32;
use super::{
    ARRAY_SECTORS, ENTRY_BYTES, Entry, HEADER_BYTES, Header, MOST_ENTRIES, PRIMARY, REVISION, SECTOR, SECTOR_BYTES,
    SIGNATURE, Table, TableCopy, entries,
};

/// A partition grows by whole units of this: dm and XFS want whole blocks, and every disk of a size has the same layout.
const UNIT: u64 = (1 << 20) / SECTOR;

/// Action on a disk; the actions of a plan are taken in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableStep {
    /// Write whole sectors.
    Write {
        /// Where, in bytes from the disk's start.
        at: u64,
        bytes: Vec<u8>,
    },
    /// Wait until all that was written cannot be lost.
    Flush,
}

/// Why a partition does not grow. Nothing is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotGrow {
    /// The table has no such partition.
    #[error("there is no partition {0}")]
    Missing(u32),
    /// Another partition lies behind it, and would be overwritten.
    #[error("partition {0} lies behind it")]
    NotLast(u32),
    /// The disk ends before a whole unit of it.
    #[error("the disk has no room for it")]
    Room,
}

/// Why a table cannot be made as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotMake {
    /// A number of no entry, or a name of more than 36 units.
    #[error("partition {0} has a number or a name that no table holds")]
    Entry(u32),
    /// The table would be refused by whatever reads it.
    #[error("the table would be refused: it {0}")]
    Refused(super::Bad),
}

impl Table {
    /// The plan of a new disk of `bytes`: protective MBR and both copies of a table of these partitions.
    ///
    /// # Errors
    /// [`CannotMake`] names the partition that does not fit.
    pub fn make(bytes: u64, guid: Uuid, partitions: &[Entry]) -> Result<Vec<TableStep>, CannotMake> {
        let sectors = bytes / SECTOR;
        let last_usable = sectors.checked_sub(ARRAY_SECTORS + 2).ok_or(CannotMake::Refused(super::Bad::Room))?;
        let header = Header { guid, first_usable: PRIMARY + 1 + ARRAY_SECTORS, last_usable, entries: MOST_ENTRIES };
        if header.first_usable > last_usable {
            return Err(CannotMake::Refused(super::Bad::Room));
        }
        let mut array = vec![0; header.array_bytes()];
        for entry in partitions {
            let wrong = CannotMake::Entry(entry.number);
            let at = entry.number.checked_sub(1).ok_or(wrong)? as usize * ENTRY_BYTES as usize;
            let slot = array.get_mut(at..at + ENTRY_BYTES as usize).ok_or(wrong)?;
            entry.put(slot).ok_or(wrong)?;
        }
        let entries = entries(&array, &header).map_err(CannotMake::Refused)?;
        let table = Self { sectors, copy: TableCopy::Primary, header, array, entries };
        let mut steps = vec![TableStep::Write { at: 0, bytes: protective_mbr(sectors) }];
        table.write(TableCopy::Primary, &mut steps);
        table.write(TableCopy::Backup, &mut steps);
        Ok(steps)
    }

    /// The plan that makes the primary copy as the backup says; empty where the primary was read. The backup itself is
    /// not touched: it is the only one that holds.
    #[must_use]
    pub fn mend(&self) -> Vec<TableStep> {
        let mut steps = Vec::new();
        match self.copy {
            TableCopy::Primary => {}
            TableCopy::Backup => self.write(TableCopy::Primary, &mut steps),
        }
        steps
    }

    /// The plan that moves the backup to the end of the disk and grows the last partition up to it, and that partition as
    /// it will be. Where only the backup holds, the primary is mended first: the backup may lie where the new one will.
    ///
    /// # Errors
    /// [`CannotGrow`]
    pub fn grow(&self, number: u32) -> Result<(Vec<TableStep>, Entry), CannotGrow> {
        let found = self.entries.iter().find(|entry| entry.number == number);
        let mut entry = found.cloned().ok_or(CannotGrow::Missing(number))?;
        if let Some(behind) = self.entries.iter().find(|other| other.first > entry.first) {
            return Err(CannotGrow::NotLast(behind.number));
        }
        let last_usable = self.sectors.checked_sub(ARRAY_SECTORS + 2).ok_or(CannotGrow::Room)?;
        let units = (last_usable + 1).checked_sub(entry.first).ok_or(CannotGrow::Room)? / UNIT;
        if units == 0 {
            return Err(CannotGrow::Room);
        }
        // It never shrinks.
        entry.last = entry.last.max(entry.first + units * UNIT - 1);
        if entry.last > last_usable {
            return Err(CannotGrow::Room);
        }
        let mut table = self.clone();
        table.header.last_usable = last_usable;
        let at = (entry.number as usize - 1) * ENTRY_BYTES as usize;
        table.array[at + 40..at + 48].copy_from_slice(&entry.last.to_le_bytes());
        let mut steps = self.mend();
        table.write(TableCopy::Backup, &mut steps);
        table.write(TableCopy::Primary, &mut steps);
        Ok((steps, entry))
    }

    /// Writes one copy: torn anywhere, one of its checksums does not hold, so neither part need be durable first.
    fn write(&self, copy: TableCopy, steps: &mut Vec<TableStep>) {
        let last = self.sectors - 1;
        let (own, other, array) = match copy {
            TableCopy::Primary => (PRIMARY, last, PRIMARY + 1),
            TableCopy::Backup => (last, PRIMARY, last - ARRAY_SECTORS),
        };
        let mut entries = self.array.clone();
        entries.resize(entries.len().next_multiple_of(SECTOR_BYTES), 0);
        steps.push(TableStep::Write { at: array * SECTOR, bytes: entries });
        steps.push(TableStep::Write { at: own * SECTOR, bytes: self.header_sector(own, other, array) });
        steps.push(TableStep::Flush);
    }

    fn header_sector(&self, own: u64, other: u64, array: u64) -> Vec<u8> {
        let Header { guid, first_usable, last_usable, entries } = self.header;
        let mut sector = Vec::with_capacity(SECTOR_BYTES);
        sector.extend(SIGNATURE);
        // Revision, size, its own checksum, reserved.
        sector.extend([REVISION, HEADER_BYTES, 0, 0].map(u32::to_le_bytes).concat());
        sector.extend([own, other, first_usable, last_usable].map(u64::to_le_bytes).concat());
        sector.extend(guid.to_gpt());
        sector.extend(array.to_le_bytes());
        sector.extend([entries, ENTRY_BYTES, crc32(&self.array)].map(u32::to_le_bytes).concat());
        let checksum = crc32(&sector);
        sector[16..20].copy_from_slice(&checksum.to_le_bytes());
        sector.resize(SECTOR_BYTES, 0);
        sector
    }
}

impl Entry {
    /// Puts it into its slot of an array; none where its name is too long.
    fn put(&self, slot: &mut [u8]) -> Option<()> {
        slot[..16].copy_from_slice(&self.type_guid.to_gpt());
        slot[16..32].copy_from_slice(&self.guid.to_gpt());
        slot[32..40].copy_from_slice(&self.first.to_le_bytes());
        slot[40..48].copy_from_slice(&self.last.to_le_bytes());
        let name: Vec<u8> = self.name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        slot[56..].get_mut(..name.len())?.copy_from_slice(&name);
        Some(())
    }
}

/// The first sector: says to those who know no such tables that the disk is full (UEFI 2.10, section 5.2.3).
fn protective_mbr(sectors: u64) -> Vec<u8> {
    let mut mbr = vec![0; SECTOR_BYTES];
    // Cylinder, head and sector of LBA 1, and of what they cannot express; type 0xee.
    mbr[446..454].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    mbr[454..458].copy_from_slice(&1_u32.to_le_bytes());
    mbr[458..462].copy_from_slice(&u32::try_from(sectors - 1).unwrap_or(u32::MAX).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    mbr
}
