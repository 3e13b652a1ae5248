//! Where XFS keeps what lies on the data partition, so that a test can spoil it from outside while the machine is off. It reads the
//! file system's own structures ("XFS Algorithms & Data Structures", *Superblocks*, *Inode Core*, *Extent List*), which are on
//! the disk once the boot that wrote them has unmounted it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::say;

/// Where PID 1 mounts the data partition.
const DATA: &str = "/data";
/// A content that lies in extents, listed in the inode itself (`di_format`).
const EXTENTS: u8 = 2;
/// Where the list of extents begins in an inode of version 3.
const CORE_BYTES: usize = 176;

/// Fields of XFS's superblock by which blocks and inodes are found.
struct Layout {
    block_bytes: u64,
    group_blocks: u64,
    inode_bytes: u64,
    log2_inodes_a_block: u8,
    log2_group_blocks: u8,
}

/// Writes a line for everything on the data partition, down to etcd's own files: where its inode lies, and the first block of its content,
/// in bytes from the start of the file system.
pub(super) fn all() -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let device = mounts.lines().find_map(|line| line.split_once(' ').filter(|(_, rest)| rest.starts_with("/data ")));
    let (device, _) = device.ok_or_else(|| io::Error::other("no data partition is mounted"))?;
    let device = File::open(device)?;
    let layout = Layout::of(&bytes::<512>(&device, 0)?);
    let mut found = Vec::new();
    layout.below(Path::new(DATA), &device, &mut found)?;
    // All at once: whoever reads a line finds the others, too.
    found.iter().for_each(|line| say(line));
    Ok(())
}

fn bytes<const N: usize>(device: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    device.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Reads a big-endian integer, as XFS stores it.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Layout {
    fn of(superblock: &[u8; 512]) -> Self {
        Self {
            block_bytes: number(&superblock[4..8]),
            group_blocks: number(&superblock[84..88]),
            inode_bytes: number(&superblock[104..106]),
            log2_inodes_a_block: superblock[123],
            log2_group_blocks: superblock[124],
        }
    }

    fn below(&self, place: &Path, device: &File, found: &mut Vec<String>) -> io::Result<()> {
        for entry in fs::read_dir(place)? {
            let entry = entry?;
            let (path, metadata) = (entry.path(), entry.metadata()?);
            let inode = self.inode(metadata.ino());
            let content = self.content(&bytes::<256>(device, inode)?);
            let content = content.map_or_else(|| "-".to_owned(), |at| at.to_string());
            found.push(format!("inode {inode} content {content} {}", path.display()));
            // What containers have would be a list of its own.
            if metadata.is_dir() && ["/data/cairn", "/data/etcd"].iter().any(|kept| path.starts_with(kept)) {
                self.below(&path, device, found)?;
            }
        }
        Ok(())
    }

    fn block(&self, group: u64, block: u64) -> u64 {
        (group * self.group_blocks + block) * self.block_bytes
    }

    /// An inode's number says where it lies.
    fn inode(&self, number: u64) -> u64 {
        let group_bits = self.log2_inodes_a_block + self.log2_group_blocks;
        let in_group = number & ((1 << group_bits) - 1);
        let block = self.block(number >> group_bits, in_group >> self.log2_inodes_a_block);
        block + (in_group & ((1 << self.log2_inodes_a_block) - 1)) * self.inode_bytes
    }

    /// The first block of the first extent; nothing where there is none. An extent is a flag, 54 bits of the place in the file, 52 of
    /// the block, 21 of the length.
    fn content(&self, inode: &[u8; 256]) -> Option<u64> {
        let (format, blocks) = (inode[5], number(&inode[64..72]));
        let (high, low) = (number(&inode[CORE_BYTES..CORE_BYTES + 8]), number(&inode[CORE_BYTES + 8..CORE_BYTES + 16]));
        let block = (high & 0x1ff) << 43 | low >> 21;
        let place = self.block(block >> self.log2_group_blocks, block & ((1 << self.log2_group_blocks) - 1));
        (format == EXTENTS && blocks > 0).then_some(place)
    }
}
