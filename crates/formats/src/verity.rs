//! The dm-verity tree of a system image, format version 1, and the one line that tells stage 0 where it lies.
//!
//! Owns the layout (Documentation/admin-guide/device-mapper/verity.rst, drivers/md/dm-verity-target.c): SHA-256, blocks
//! of 4096 bytes on both sides, no salt, no superblock. Must never read or write a file: bytes in, bytes out.
//!
//! ```text
//! image:  data blocks 0..n | top level (1 block, its hash is the root) | … | level 0 (hashes of the data blocks)
//! ```

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use model::{BadHex, RootHash};

/// Bytes of a block, of data as of hashes.
pub const BLOCK: usize = 4096;
/// Bytes of a digest in a hash block; a full block holds 128 of them.
const DIGEST: usize = 32;

/// Parameters that the kernel must be given to verify an image: it carries no superblock that could say them.
///
/// As text it is one line, `root-hash=<64 hex digits> hash-offset=<bytes> data-blocks=<count>`, which stage 0 reads from
/// the initramfs. The text is strict: these keys in this order, nothing else, at most one line feed at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verity {
    /// SHA-256 of the top block.
    pub root: RootHash,
    /// Where the tree begins, in bytes from the start of the partition; also the length of the data.
    pub hash_offset: u64,
    /// Count of data blocks.
    pub data_blocks: u64,
}

impl Verity {
    /// The parameters of the kernel's `verity` target for an image that lies on `device`.
    ///
    /// With `panic_on_corruption`: a block that does not verify stops the machine.
    #[must_use]
    pub fn table(&self, device: &str) -> String {
        let hash_start = self.hash_offset / BLOCK as u64;
        let (blocks, root) = (self.data_blocks, self.root);
        format!("1 {device} {device} {BLOCK} {BLOCK} {blocks} {hash_start} sha256 {root} - 1 panic_on_corruption")
    }

    /// Length of the mapped device in the device mapper's unit, sectors of 512 bytes.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.hash_offset / 512
    }
}

impl fmt::Display for Verity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "root-hash={} hash-offset={} data-blocks={}", self.root, self.hash_offset, self.data_blocks)
    }
}

/// Why a text does not describe a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadVerity {
    /// Not the three keys in their order.
    #[error("a verity line is root-hash=… hash-offset=… data-blocks=…, in this order")]
    Form,
    /// The root hash is not 64 lower-case hex digits.
    #[error("the root hash is 64 lower-case hex digits")]
    RootHash,
    /// A number is not a plain decimal.
    #[error("offset and count are plain decimal numbers")]
    Number,
    /// The data does not end where the tree begins, or there is none.
    #[error("the tree begins where the data ends, and there is at least one block of data")]
    Layout,
}

impl FromStr for Verity {
    type Err = BadVerity;

    fn from_str(text: &str) -> Result<Self, BadVerity> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let rest = line.strip_prefix("root-hash=").ok_or(BadVerity::Form)?;
        let (root, rest) = rest.split_once(" hash-offset=").ok_or(BadVerity::Form)?;
        let (hash_offset, data_blocks) = rest.split_once(" data-blocks=").ok_or(BadVerity::Form)?;
        let root = root.parse().map_err(|BadHex| BadVerity::RootHash)?;
        let hash_offset = decimal(hash_offset).ok_or(BadVerity::Number)?;
        let data_blocks = decimal(data_blocks).ok_or(BadVerity::Number)?;
        if data_blocks == 0 || data_blocks.checked_mul(BLOCK as u64) != Some(hash_offset) {
            return Err(BadVerity::Layout);
        }
        Ok(Self { root, hash_offset, data_blocks })
    }
}

/// A decimal without sign or leading zeros, so that a value has one spelling.
fn decimal(text: &str) -> Option<u64> {
    let value: u64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

/// The tree over `data`: what to append to it, and what to tell the kernel.
///
/// # Errors
/// [`BlockLengthError`] when `data` is empty or no whole number of blocks.
pub fn tree(data: &[u8]) -> Result<(Vec<u8>, Verity), BlockLengthError> {
    if data.is_empty() || !data.len().is_multiple_of(BLOCK) {
        return Err(BlockLengthError { length: data.len() });
    }
    let mut levels: Vec<Vec<u8>> = Vec::new();
    while levels.last().map_or(data.len(), Vec::len) > BLOCK {
        levels.push(level_above(levels.last().map_or(data, Vec::as_slice)));
    }
    let top = levels.last().map_or(data, Vec::as_slice);
    let length = data.len() as u64;
    let verity = Verity { root: RootHash(sha256(top)), hash_offset: length, data_blocks: length / BLOCK as u64 };
    Ok((levels.into_iter().rev().flatten().collect(), verity))
}

/// Data that cannot be hashed block by block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes are not a whole, positive number of 4096-byte blocks")]
pub struct BlockLengthError {
    /// Length of what was given.
    pub length: usize,
}

/// Checks every block of `image` (data followed by tree; what follows the tree is ignored) as the kernel would, top down.
///
/// # Errors
/// [`Corrupt`] with the place of the first block that does not verify.
pub fn check(image: &[u8], verity: &Verity) -> Result<(), Corrupt> {
    let short = |_| Corrupt { offset: image.len() as u64 };
    let data_length = usize::try_from(verity.hash_offset).map_err(short)?;
    let mut lengths = Vec::new();
    let mut below = data_length;
    while below > BLOCK {
        below = below.div_ceil(BLOCK).div_ceil(BLOCK / DIGEST) * BLOCK;
        lengths.push(below);
    }
    let mut expected = verity.root.0.to_vec();
    let mut offset = data_length;
    for length in lengths.into_iter().rev() {
        expected = check_blocks(image, offset, length, &expected)?.to_vec();
        offset += length;
    }
    check_blocks(image, 0, data_length, &expected).map(|_| ())
}

/// A block does not have the hash that the level above gives it, or is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the block at byte {offset} does not verify")]
pub struct Corrupt {
    /// Where the block lies, in bytes from the start of the image.
    pub offset: u64,
}

fn check_blocks<'a>(image: &'a [u8], offset: usize, length: usize, expected: &[u8]) -> Result<&'a [u8], Corrupt> {
    let blocks = image.get(offset..offset + length).ok_or(Corrupt { offset: image.len() as u64 })?;
    for (index, (block, digest)) in blocks.chunks(BLOCK).zip(expected.chunks(DIGEST)).enumerate() {
        if sha256(block) != digest {
            return Err(Corrupt { offset: (offset + index * BLOCK) as u64 });
        }
    }
    Ok(blocks)
}

/// The digests of all blocks of `below`, filled up with zeros to a whole number of blocks.
fn level_above(below: &[u8]) -> Vec<u8> {
    let mut level: Vec<u8> = below.chunks(BLOCK).flat_map(sha256).collect();
    level.resize(level.len().next_multiple_of(BLOCK), 0);
    level
}

fn sha256(bytes: &[u8]) -> [u8; DIGEST] {
    digest(&SHA256, bytes).as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `blocks` blocks whose bytes are the low byte of (block × 7 + position).
    fn pattern(blocks: usize) -> Vec<u8> {
        (0..blocks * BLOCK).map(|at| u8::try_from((at / BLOCK * 7 + at % BLOCK) % 256).expect("below 256")).collect()
    }

    fn image(blocks: usize) -> (Vec<u8>, Verity) {
        let mut image = pattern(blocks);
        let (tree, verity) = tree(&image).expect("whole blocks");
        image.extend(tree);
        (image, verity)
    }

    #[test]
    fn root_hashes_are_those_of_veritysetup() {
        // veritysetup format --no-superblock --salt=- --hash=sha256 over the same pattern, version 2.6.1.
        for (blocks, root) in [
            (1, "c8f5d0341d54d951a71b136e6e2afcb14d11ed8489a7ae126a8fee0df6ecf193"),
            (2, "20239df39ccc1f7cb3e61efa41d0176ddb482a66f34909c44cc6d61dc5711494"),
            (129, "1d9c50aff93f915d5f1fe7df7d145787e53e97747a348969c9fb5d1cd2740d86"),
            (16385, "7c23cecf3794cf04f88f4ed5428e64b05395e8ac7e10622661e7403b62faad2c"),
        ] {
            assert_eq!(image(blocks).1.root.to_string(), root, "{blocks} blocks");
        }
    }

    #[test]
    fn the_tree_lies_top_level_first() {
        let (image, verity) = image(129);
        assert_eq!((verity.data_blocks, verity.hash_offset), (129, 129 * 4096));
        assert_eq!(image.len(), (129 + 1 + 2) * BLOCK);
        assert_eq!(verity.root.0, sha256(&image[129 * BLOCK..130 * BLOCK]));
        assert_eq!(image[129 * BLOCK..][..DIGEST], sha256(&image[130 * BLOCK..131 * BLOCK]));
        assert_eq!(image[131 * BLOCK..][..DIGEST], sha256(&image[128 * BLOCK..129 * BLOCK]));
    }

    /// Proves: O3
    #[test]
    fn any_flipped_byte_is_found_where_it_lies() {
        let (good, verity) = image(129);
        assert_eq!(check(&good, &verity), Ok(()));
        for at in [0, 4095, 128 * BLOCK, 129 * BLOCK, 130 * BLOCK + 5, 131 * BLOCK, 131 * BLOCK + 4000] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(check(&bad, &verity), Err(Corrupt { offset: (at / BLOCK * BLOCK) as u64 }));
        }
        assert!(check(&good[..good.len() - 1], &verity).is_err());
    }

    #[test]
    fn only_whole_blocks_have_a_tree() {
        for length in [0, 1, 4095, 4097] {
            assert_eq!(tree(&vec![0; length]).expect_err("no whole blocks"), BlockLengthError { length });
        }
    }

    #[test]
    fn the_table_is_what_the_kernel_documents() {
        let verity = Verity { root: RootHash([0xab; 32]), hash_offset: 8 * 4096, data_blocks: 8 };
        let root = "ab".repeat(32);
        assert_eq!(verity.table("8:2"), format!("1 8:2 8:2 4096 4096 8 8 sha256 {root} - 1 panic_on_corruption"));
        assert_eq!(verity.sectors(), 64);
    }

    #[test]
    fn a_line_that_is_not_exactly_right_is_refused() {
        let root = "0f".repeat(32);
        let good = format!("root-hash={root} hash-offset=8192 data-blocks=2");
        assert_eq!(good.parse::<Verity>().map(|verity| verity.to_string()), Ok(good.clone()));
        assert!(format!("{good}\n").parse::<Verity>().is_ok());
        for (bad, why) in [
            (String::new(), BadVerity::Form),
            (format!("{good}\n\n"), BadVerity::Number),
            (format!("{good} salt=00"), BadVerity::Number),
            (good.replace("hash-offset", "offset"), BadVerity::Form),
            (good.replace("0f0f", "0F0F"), BadVerity::RootHash),
            (good.replace("=0f", "="), BadVerity::RootHash),
            (good.replace("=8192", "=+8192"), BadVerity::Number),
            (good.replace("=8192", "=08192"), BadVerity::Number),
            (good.replace("=8192", "=8191"), BadVerity::Layout),
            (good.replace("=8192", "=0").replace("=2", "=0"), BadVerity::Layout),
            (good.replace("=2", "=4503599627370498"), BadVerity::Layout),
        ] {
            assert_eq!(bad.parse::<Verity>(), Err(why), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_description_survives_its_text(root: [u8; 32], data_blocks in 1..u64::MAX / 4096) {
            let verity = Verity { root: RootHash(root), hash_offset: data_blocks * 4096, data_blocks };
            prop_assert_eq!(verity.to_string().parse(), Ok(verity));
        }

        #[test]
        fn no_text_panics_the_parser(text in ".{0,200}") {
            let _ = text.parse::<Verity>();
        }
    }
}
