//! GUID partition tables of disks with sectors of 512 bytes (UEFI 2.10, section 5.3).
//!
//! Owns the reading, strict and within fixed bounds whatever a disk says, and in [`plan`] every way in which a table is
//! written. Must never touch a disk: the caller reads, and performs the plans.
//!
//! ```text
//!   LBA 0 MBR │ 1 header, 2.. array of entries │ partitions … │ array, header in the last sector
//!               └ primary copy                                  └ backup copy: counts where the primary does not hold
//! ```
//! The kernel chooses between the copies by the same rule when its command line says `gpt` (`block/partitions/efi.c`).

mod crc;
#[cfg(test)]
mod cuts;
mod plan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

use model::Uuid;

pub use crc::crc32;
pub use plan::{CannotGrow, CannotMake, TableStep};

/// Bytes of a sector.
pub const SECTOR: u64 = SECTOR_BYTES as u64;
const SECTOR_BYTES: usize = 512;
/// The one size of an entry that is read. Tables with other sizes are legal, and nobody makes them.
const ENTRY_BYTES: u32 = 128;
/// Most entries that are read, and the least room that every table leaves for its array: what all tools write.
const MOST_ENTRIES: u32 = 128;
/// Sectors of an array of that many.
const ARRAY_SECTORS: u64 = 32;
/// Where the primary header lies.
const PRIMARY: u64 = 1;
/// Bytes of a header of the only revision there is; the rest of its sector is zero.
const HEADER_BYTES: u32 = 92;
const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;

/// Partition, as its entry in the table describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Place in the table, from 1 on; the kernel names the partition by that.
    pub number: u32,
    /// Type GUID: what it is for.
    pub type_guid: Uuid,
    /// The partition's own GUID; the kernel calls it PARTUUID.
    pub guid: Uuid,
    /// First sector, of 512 bytes from the start of the disk.
    pub first: u64,
    /// Last sector, which belongs to the partition.
    pub last: u64,
    /// Name of the partition; letters that are no UTF-16 are replaced.
    pub name: String,
}

impl Entry {
    /// Where it begins, in bytes.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.first * SECTOR
    }

    /// Length of the partition in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        (self.last - self.first + 1) * SECTOR
    }
}

/// Copy of a table: a disk has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableCopy {
    /// Behind the first sector.
    Primary,
    /// In the last sectors.
    Backup,
}

/// A table of which at least one copy holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Sectors of the disk.
    sectors: u64,
    /// Which copy this is.
    copy: TableCopy,
    header: Header,
    /// As it was read, unused entries and attributes included: whoever writes a table leaves them as they are.
    array: Vec<u8>,
    entries: Vec<Entry>,
}

/// Content of a header, without the place where it lies itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    guid: Uuid,
    first_usable: u64,
    last_usable: u64,
    entries: u32,
}

/// Why a copy of a table is not read. Says nothing that a disk could have put there but numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// The disk fails where it should lie.
    #[error("cannot be read ({0})")]
    Unreadable(io::ErrorKind),
    /// No table fits.
    #[error("has no room on so small a disk")]
    Room,
    /// Something else lies there.
    #[error("is not there")]
    Absent,
    /// The header has a revision or a size that did not exist when this was written.
    #[error("has a header of another revision or size")]
    Revision,
    /// Damaged, or torn.
    #[error("has a header whose checksum does not hold")]
    HeaderChecksum,
    /// Bytes that mean nothing yet are set.
    #[error("has a header with bytes that should be zero")]
    Reserved,
    /// A copy from elsewhere.
    #[error("says that it, or the other copy, lies where it cannot")]
    Place,
    /// Legal, but of a size that nobody uses.
    #[error("has entries of {0} bytes; only entries of 128 bytes are read")]
    EntrySize(u32),
    /// More than a bounded reader takes, or none.
    #[error("has {0} entries; 1 to 128 are read")]
    EntryCount(u32),
    /// Usable sectors, array and header overlap or leave the disk.
    #[error("has bounds that do not fit the disk")]
    Bounds,
    /// Damaged, or torn.
    #[error("has entries whose checksum does not hold")]
    ArrayChecksum,
    /// A partition outside the usable sectors, or over another one, or named as another one.
    #[error("has an impossible partition, number {0}")]
    Partition(u32),
}

/// Neither copy of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTable {
    /// Fault of the primary copy.
    pub primary: Bad,
    /// Fault of the backup copy.
    pub backup: Bad,
}

impl NoTable {
    /// Whether the disk has nothing that was meant as such a table.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        matches!((self.primary, self.backup), (Bad::Absent | Bad::Room, Bad::Absent | Bad::Room))
    }
}

impl fmt::Display for NoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its partition table {}, and the backup of it {}", self.primary, self.backup)
    }
}

impl std::error::Error for NoTable {}

impl Table {
    /// Reads the table of a disk of `bytes`: the primary copy, or the backup where that does not hold. `read` fills a
    /// buffer from a place in bytes; it is asked for 17 KiB per copy at most.
    ///
    /// # Errors
    /// [`NoTable`] says what is wrong with each copy.
    pub fn read(bytes: u64, mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> Result<Self, NoTable> {
        let sectors = bytes / SECTOR;
        let primary = match Self::read_copy(TableCopy::Primary, sectors, &mut read) {
            Ok(table) => return Ok(table),
            Err(bad) => bad,
        };
        Self::read_copy(TableCopy::Backup, sectors, &mut read).map_err(|backup| NoTable { primary, backup })
    }

    fn read_copy(
        copy: TableCopy,
        sectors: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, Bad> {
        let last = sectors.checked_sub(1).filter(|last| *last > PRIMARY).ok_or(Bad::Room)?;
        let lba = match copy {
            TableCopy::Primary => PRIMARY,
            TableCopy::Backup => last,
        };
        let mut sector = [0; SECTOR_BYTES];
        read(lba * SECTOR, &mut sector).map_err(|error| Bad::Unreadable(error.kind()))?;
        let (header, place) = Header::parse(&sector)?;
        header.fits(copy, lba, &place, last)?;
        let mut array = vec![0; header.array_bytes()];
        read(place.array * SECTOR, &mut array).map_err(|error| Bad::Unreadable(error.kind()))?;
        if crc32(&array) != place.array_crc {
            return Err(Bad::ArrayChecksum);
        }
        let entries = entries(&array, &header)?;
        Ok(Self { sectors, copy, header, array, entries })
    }

    /// The partitions, in the order of their numbers.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The GUID of the disk.
    #[must_use]
    pub const fn guid(&self) -> Uuid {
        self.header.guid
    }

    /// The copy that was read. [`TableCopy::Backup`] says that the primary does not hold.
    #[must_use]
    pub const fn copy(&self) -> TableCopy {
        self.copy
    }
}

/// Where a header says that it, its array and the other header lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places {
    own: u64,
    other: u64,
    array: u64,
    array_crc: u32,
}

impl Header {
    fn parse(sector: &[u8; SECTOR_BYTES]) -> Result<(Self, Places), Bad> {
        if !sector.starts_with(SIGNATURE) {
            return Err(Bad::Absent);
        }
        if u32_at(sector, 8) != REVISION || u32_at(sector, 12) != HEADER_BYTES {
            return Err(Bad::Revision);
        }
        let mut summed = *sector;
        summed[16..20].fill(0);
        if crc32(&summed[..HEADER_BYTES as usize]) != u32_at(sector, 16) {
            return Err(Bad::HeaderChecksum);
        }
        if u32_at(sector, 20) != 0 || sector[HEADER_BYTES as usize..].iter().any(|byte| *byte != 0) {
            return Err(Bad::Reserved);
        }
        let (entries, size) = (u32_at(sector, 80), u32_at(sector, 84));
        if size != ENTRY_BYTES {
            return Err(Bad::EntrySize(size));
        }
        if !(1..=MOST_ENTRIES).contains(&entries) {
            return Err(Bad::EntryCount(entries));
        }
        let header = Self {
            guid: guid_at(sector, 56),
            first_usable: u64_at(sector, 40),
            last_usable: u64_at(sector, 48),
            entries,
        };
        let places = Places {
            own: u64_at(sector, 24),
            other: u64_at(sector, 32),
            array: u64_at(sector, 72),
            array_crc: u32_at(sector, 88),
        };
        Ok((header, places))
    }

    /// Whether all lies on a disk with this last sector, in the only order there is. The backup that a primary names may
    /// lie before the disk's end: that is where a disk ended which was copied to a larger one.
    fn fits(&self, copy: TableCopy, lba: u64, places: &Places, last: u64) -> Result<(), Bad> {
        let Self { first_usable, last_usable, .. } = *self;
        let behind_array = places.array.checked_add(self.array_sectors()).ok_or(Bad::Bounds)?;
        let (other_fits, array_fits) = match copy {
            TableCopy::Primary => (
                (last_usable.saturating_add(1)..=last).contains(&places.other),
                places.array > PRIMARY && behind_array <= first_usable,
            ),
            TableCopy::Backup => (places.other == PRIMARY, places.array > last_usable && behind_array <= last),
        };
        if places.own != lba || !other_fits {
            return Err(Bad::Place);
        }
        // The primary array of the room that every table leaves must fit, too: the backup is what it is mended from.
        let room = PRIMARY + 1 + self.array_sectors() <= first_usable;
        if array_fits && room && first_usable <= last_usable && last_usable < last { Ok(()) } else { Err(Bad::Bounds) }
    }

    const fn array_bytes(&self) -> usize {
        self.entries as usize * ENTRY_BYTES as usize
    }

    const fn array_sectors(&self) -> u64 {
        (self.array_bytes() as u64).div_ceil(SECTOR)
    }
}

/// The used entries of an array, checked against the header and each other.
fn entries(array: &[u8], header: &Header) -> Result<Vec<Entry>, Bad> {
    let mut entries: Vec<Entry> = Vec::new();
    for (bytes, number) in array.chunks_exact(ENTRY_BYTES as usize).zip(1..) {
        if bytes[..16] == [0; 16] {
            continue;
        }
        let entry = Entry {
            number,
            type_guid: guid_at(bytes, 0),
            guid: guid_at(bytes, 16),
            first: u64_at(bytes, 32),
            last: u64_at(bytes, 40),
            name: name(&bytes[56..]),
        };
        let usable =
            header.first_usable <= entry.first && entry.first <= entry.last && entry.last <= header.last_usable;
        let clash =
            |other: &Entry| other.guid == entry.guid || (other.first <= entry.last && entry.first <= other.last);
        if !usable || entries.iter().any(clash) {
            return Err(Bad::Partition(number));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Up to 36 units of UTF-16, up to the first zero.
fn name(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    char::decode_utf16(units.take_while(|unit| *unit != 0))
        .map(|decoded| decoded.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside a header or an entry"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside a header or an entry"))
}

fn guid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_gpt(*bytes[at..].first_chunk().expect("inside a header or an entry"))
}
