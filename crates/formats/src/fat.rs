//! Where a file lies on a FAT32 volume.
//!
//! Owns the reading of directories and cluster chains as far as it takes to name the bytes of one file (Microsoft,
//! "FAT32 File System Specification" 1.03). It proves that files which are overwritten in place keep their place; it
//! must never write, and it reads volumes of 512-byte sectors only, such as ours.

use std::ops::Range;

/// Bytes of a sector.
const SECTOR: usize = 512;
/// Bytes of a directory entry.
const ENTRY: usize = 32;
/// A cluster number at or above this one ends a chain.
const END_OF_CHAIN: u32 = 0x0fff_fff8;

/// Where a file lies: ranges of bytes from the start of the volume, adjoining ones joined, whole clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FatPlace {
    /// The ranges in the order of the file's content.
    pub extents: Vec<Range<usize>>,
    /// The file's length in bytes.
    pub length: u32,
    /// Where its directory entry lies, from the start of the volume.
    pub entry: Range<usize>,
}

/// Why a file's place cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// Not a FAT32 volume with sectors of 512 bytes.
    #[error("not a FAT32 volume of 512-byte sectors")]
    NotFat32,
    /// A part of the path is not there.
    #[error("no `{0}` on the volume")]
    Missing(String),
    /// A chain of clusters leaves the volume or runs in a circle.
    #[error("a chain of clusters leaves the volume or runs in a circle")]
    Chain,
}

/// Finds the file `path` (parts separated by `/`, letter case ignored in ASCII) on `volume`.
///
/// # Errors
/// [`NoPlace`] says what is missing or damaged.
pub fn place(volume: &[u8], path: &str) -> Result<FatPlace, NoPlace> {
    let fat = Fat::parse(volume)?;
    let mut cluster = fat.root;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let found = fat.find(cluster, part)?.ok_or_else(|| NoPlace::Missing(path.to_owned()))?;
        if parts.peek().is_none() {
            let extents = if found.cluster == 0 { Vec::new() } else { fat.extents(found.cluster)? };
            return Ok(FatPlace { extents, length: found.length, entry: found.at..found.at + ENTRY });
        }
        cluster = found.cluster;
    }
    Err(NoPlace::Missing(path.to_owned()))
}

struct Fat<'a> {
    volume: &'a [u8],
    /// Offset of the first table.
    table: usize,
    /// Offset of cluster 2.
    data: usize,
    cluster_bytes: usize,
    root: u32,
}

struct Found {
    cluster: u32,
    length: u32,
    at: usize,
}

impl<'a> Fat<'a> {
    fn parse(volume: &'a [u8]) -> Result<Self, NoPlace> {
        let boot: &[u8; SECTOR] = volume.first_chunk().ok_or(NoPlace::NotFat32)?;
        let reserved = usize::from(u16_at(boot, 14));
        let tables = usize::from(boot[16]);
        let table_sectors = usize_at(boot, 36);
        let fat32 = boot[82..90] == *b"FAT32   " && boot[510..] == [0x55, 0xaa] && u16_at(boot, 22) == 0;
        let plausible = usize::from(u16_at(boot, 11)) == SECTOR && reserved > 0 && tables > 0 && boot[13] > 0;
        if !fat32 || !plausible {
            return Err(NoPlace::NotFat32);
        }
        let table = reserved * SECTOR;
        let data = table_sectors.checked_mul(tables * SECTOR).and_then(|tables| tables.checked_add(table));
        Ok(Self {
            volume,
            table,
            data: data.ok_or(NoPlace::NotFat32)?,
            cluster_bytes: usize::from(boot[13]) * SECTOR,
            root: u32_at(boot, 44),
        })
    }

    fn find(&self, directory: u32, name: &str) -> Result<Option<Found>, NoPlace> {
        let mut long = Vec::new();
        for extent in self.extents(directory)? {
            let bytes = self.volume.get(extent.clone()).ok_or(NoPlace::Chain)?;
            for (index, entry) in bytes.chunks_exact(ENTRY).enumerate() {
                match (entry[0], entry[11]) {
                    (0, _) => return Ok(None),
                    (0xe5, _) => long.clear(),
                    (_, 0x0f) => long.push(long_part(entry)),
                    (_, attributes) if attributes & 0x08 != 0 => long.clear(), // the volume's label
                    (_, _) => {
                        let long_name: Vec<u16> = long.drain(..).rev().flatten().collect();
                        if is_named(entry, &long_name, name) {
                            let high = u32::from(u16_at(entry, 20)) << 16;
                            let cluster = high | u32::from(u16_at(entry, 26));
                            let at = extent.start + index * ENTRY;
                            return Ok(Some(Found { cluster, length: u32_at(entry, 28), at }));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    fn extents(&self, first: u32) -> Result<Vec<Range<usize>>, NoPlace> {
        let mut extents: Vec<Range<usize>> = Vec::new();
        // Each cluster takes at least a sector, so a chain longer than the volume has sectors runs in a circle.
        let mut steps_left = self.volume.len() / SECTOR;
        let mut cluster = first;
        while cluster < END_OF_CHAIN {
            let number = usize::try_from(cluster).map_err(|_| NoPlace::Chain)?;
            let index = number.checked_sub(2).ok_or(NoPlace::Chain)?;
            let start = index.checked_mul(self.cluster_bytes).map(|bytes| bytes + self.data).ok_or(NoPlace::Chain)?;
            let end = start + self.cluster_bytes;
            if end > self.volume.len() || steps_left == 0 {
                return Err(NoPlace::Chain);
            }
            match extents.last_mut() {
                Some(last) if last.end == start => last.end = end,
                Some(_) | None => extents.push(start..end),
            }
            let link = self.volume.get(self.table + number * 4..).and_then(|rest| rest.first_chunk());
            cluster = u32::from_le_bytes(*link.ok_or(NoPlace::Chain)?) & 0x0fff_ffff;
            steps_left -= 1;
        }
        Ok(extents)
    }
}

/// The up to 13 characters of a long name that one entry carries.
fn long_part(entry: &[u8]) -> Vec<u16> {
    [1..11, 14..26, 28..32]
        .into_iter()
        .flat_map(|range| entry[range].chunks_exact(2))
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|&unit| unit != 0 && unit != 0xffff)
        .collect()
}

fn is_named(entry: &[u8], long: &[u16], name: &str) -> bool {
    let part = |range: Range<usize>| String::from_utf8_lossy(&entry[range]).trim_end().to_owned();
    let (base, extension) = (part(0..8), part(8..11));
    let short = if extension.is_empty() { base } else { format!("{base}.{extension}") };
    short.eq_ignore_ascii_case(name) || String::from_utf16_lossy(long).eq_ignore_ascii_case(name)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("inside a sector or an entry"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside a sector or an entry"))
}

fn usize_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u32_at(bytes, at)).expect("addresses have at least 32 bits on every host")
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use proptest::prelude::*;

    use super::*;

    /// A volume in which `a/long-directory/file.long` lies in two pieces, around `b`.
    fn volume() -> Vec<u8> {
        let mut bytes = vec![0; 34 << 20];
        let options = fatfs::FormatVolumeOptions::new().fat_type(fatfs::FatType::Fat32).bytes_per_cluster(512);
        fatfs::format_volume(Cursor::new(&mut bytes), options).expect("format in memory");
        {
            let fs = fatfs::FileSystem::new(Cursor::new(&mut bytes), fatfs::FsOptions::new()).expect("just formatted");
            let directory = fs.root_dir().create_dir("a").expect("room").create_dir("../long-directory").expect("room");
            let mut file = directory.create_file("file.long").expect("room");
            file.write_all(&[1; 1024]).expect("room");
            fs.root_dir().create_file("B").expect("room").write_all(&[2; 512]).expect("room");
            file.write_all(&[3; 100]).expect("room");
        }
        bytes
    }

    #[test]
    fn a_file_in_two_pieces_is_found_by_its_long_name() {
        let volume = volume();
        let place = place(&volume, "long-directory/file.long").expect("there");
        assert_eq!((place.length, place.extents.len()), (1124, 2));
        assert!(volume[place.extents[0].clone()].iter().all(|&byte| byte == 1));
        assert_eq!(place.extents[0].len(), 1024);
        assert_eq!(volume[place.extents[1].clone()][..100], [3; 100]);
        assert_eq!(place.extents[1].start, place.extents[0].end + 512);
        assert_eq!(volume[place.entry][..11], *b"FILE~1  LON");
        let other = super::place(&volume, "b").expect("there");
        assert_eq!((other.length, other.extents.len()), (512, 1));
        assert_eq!(other.extents[0], place.extents[0].end..place.extents[1].start);
    }

    /// Numbers of 16 bits would end at 32 MiB of clusters this small; an ESP of ours has twice as many.
    #[test]
    fn a_file_behind_the_first_65536_clusters_is_found_there() {
        let mut volume = volume();
        let near = place(&volume, "b").expect("there");
        let table = Fat::parse(&volume).expect("FAT32").table;
        let (first, second) = (0x1_0005_usize, 0x1_0007_usize);
        let entry = near.entry.start;
        volume[entry + 20..entry + 22].copy_from_slice(&1_u16.to_le_bytes());
        volume[entry + 26..entry + 28].copy_from_slice(&5_u16.to_le_bytes());
        // The highest four bits of a link mean nothing (FAT32 File System Specification, section 4.1).
        for (cluster, link) in [(first, 0xf001_0007_u32), (second, 0xffff_ffff)] {
            volume[table + cluster * 4..][..4].copy_from_slice(&link.to_le_bytes());
        }
        let at = |cluster: usize| fat_data(&volume) + (cluster - 2) * SECTOR;
        let expected = [first, second].map(|cluster| at(cluster)..at(cluster) + SECTOR);
        let found = place(&volume, "b").expect("there");
        assert_eq!(found.extents, expected);
        assert_eq!((found.length, found.entry), (512, near.entry));
    }

    /// Where clusters begin: behind the reserved sectors and both tables.
    fn fat_data(volume: &[u8]) -> usize {
        (usize::from(u16_at(volume, 14)) + 2 * usize_at(volume, 36)) * SECTOR
    }

    #[test]
    fn what_is_not_there_is_said() {
        let volume = volume();
        for missing in ["c", "a/b", "long-directory/file", ""] {
            assert_eq!(place(&volume, missing), Err(NoPlace::Missing(missing.to_owned())));
        }
        assert_eq!(place(&[0; 1024], "b"), Err(NoPlace::NotFat32));
        assert_eq!(place(b"", "b"), Err(NoPlace::NotFat32));
    }

    #[test]
    fn a_volume_of_another_kind_is_not_read() {
        let good = volume()[..SECTOR].to_vec();
        assert!(Fat::parse(&good).is_ok());
        for (what, at, bytes) in [
            ("sectors of 4096 bytes", 11, &[0x00, 0x10][..]),
            ("clusters of no sectors", 13, &[0]),
            ("no reserved sectors", 14, &[0, 0]),
            ("no tables", 16, &[0]),
            ("tables with their size where FAT16 has it", 22, &[1, 0]),
            ("another name", 82, b"FAT16   "),
            ("no mark at the end", 510, &[0, 0]),
        ] {
            let mut boot = good.clone();
            boot[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(Fat::parse(&boot).err(), Some(NoPlace::NotFat32), "{what}");
        }
    }

    #[test]
    fn a_chain_in_a_circle_ends() {
        let mut volume = volume();
        let fat = Fat::parse(&volume).expect("FAT32");
        let root = fat.table + 4 * usize::try_from(fat.root).expect("small");
        let number = fat.root.to_le_bytes();
        volume[root..root + 4].copy_from_slice(&number);
        assert_eq!(place(&volume, "nowhere"), Err(NoPlace::Chain));
    }

    proptest! {
        #[test]
        fn no_damaged_boot_sector_panics(at in 0usize..512, byte: u8) {
            let mut sectors = vec![0; 64 * SECTOR];
            sectors[..3].copy_from_slice(&[0xeb, 0x58, 0x90]);
            sectors[11..14].copy_from_slice(&[0, 2, 1]);
            sectors[14..17].copy_from_slice(&[4, 0, 2]);
            sectors[36] = 8;
            sectors[44] = 2;
            sectors[82..90].copy_from_slice(b"FAT32   ");
            sectors[510..512].copy_from_slice(&[0x55, 0xaa]);
            sectors[at] = byte;
            let _ = place(&sectors, "a/b");
        }
    }
}
