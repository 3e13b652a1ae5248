//! The initramfs: a tree of files in, one newc archive out, the same bytes every time.
//!
//! Owns the tree ([`FileTree`]), its archive (Documentation/driver-api/early-userspace/buffer-format.rst) and the reading of
//! one. Must never look at a clock or the file system: what a file's bytes are is the caller's business. Every entry
//! belongs to root, has time 0 and a number of its own, and stands where its path sorts, so parents come first.

use std::collections::BTreeMap;

/// Paths below `/` and what is there; a parent is always there before its children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileTree {
    nodes: BTreeMap<String, Node>,
}

/// Kind of file at a path of the tree, with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory, with its permission bits.
    Directory {
        /// Permission bits.
        mode: u16,
    },
    /// A file.
    File {
        /// Permission bits.
        mode: u16,
        /// Content.
        bytes: Vec<u8>,
    },
    /// A character device.
    CharacterDevice {
        /// Permission bits.
        mode: u16,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// Why a path cannot be put into a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Absolute, empty, with empty or dot parts or a zero byte, longer than the kernel takes, or the archive's end mark.
    #[error("`{0}` is no relative path of plain names")]
    Form(String),
    /// Something is there already.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// Path whose parent is no directory of the tree.
    #[error("the parent of `{0}` is no directory of the tree")]
    NoParent(String),
    /// Permission bits beyond 0777: no file of ours is setuid, setgid or sticky.
    #[error("`{0}` has mode bits beyond 0777")]
    Mode(String),
}

impl FileTree {
    /// Adds `node` at `path`, written without a leading slash.
    ///
    /// # Errors
    /// [`BadPath`] when the path is not one, is taken, or its parent is missing.
    pub fn add(&mut self, path: &str, node: Node) -> Result<(), BadPath> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if !path.split('/').all(plain) || path.len() >= PATH_MAX || path == END {
            return Err(BadPath::Form(path.to_owned()));
        }
        if let Some((parent, _)) = path.rsplit_once('/')
            && !matches!(self.nodes.get(parent), Some(Node::Directory { .. }))
        {
            return Err(BadPath::NoParent(path.to_owned()));
        }
        if node.mode() > 0o777 {
            return Err(BadPath::Mode(path.to_owned()));
        }
        match self.nodes.insert(path.to_owned(), node) {
            None => Ok(()),
            Some(_) => Err(BadPath::Twice(path.to_owned())),
        }
    }

    /// The content of the file at `path`.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        match self.nodes.get(path) {
            Some(Node::File { bytes, .. }) => Some(bytes),
            Some(Node::Directory { .. } | Node::CharacterDevice { .. }) | None => None,
        }
    }

    /// All paths and nodes in the archive's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The tree as a newc archive.
    ///
    /// # Errors
    /// [`FileTooLarge`] when a file passes 4 GiB.
    pub fn archive(&self) -> Result<Vec<u8>, FileTooLarge> {
        let mut archive = Vec::new();
        for ((path, node), inode) in self.nodes.iter().zip(1..) {
            let too_large = |_| FileTooLarge(path.clone());
            let empty: &[u8] = &[];
            let (kind, links, device, bytes) = match node {
                Node::Directory { .. } => (DIRECTORY, 2, (0, 0), empty),
                Node::File { bytes, .. } => (FILE, 1, (0, 0), bytes.as_slice()),
                Node::CharacterDevice { major, minor, .. } => (CHARACTER_DEVICE, 1, (*major, *minor), empty),
            };
            let size = u32::try_from(bytes.len()).map_err(too_large)?;
            let header = Header { inode, mode: kind | u32::from(node.mode()), links, size, device };
            put_entry(&mut archive, &header, path, bytes);
        }
        put_entry(&mut archive, &Header { inode: 0, mode: 0, links: 1, size: 0, device: (0, 0) }, END, &[]);
        Ok(archive)
    }

    /// Reads an archive that [`Self::archive`] made; it must be exactly such a one.
    ///
    /// # Errors
    /// [`BadArchive`] names the offset at which it is another kind of archive or damaged.
    pub fn read(archive: &[u8]) -> Result<Self, BadArchive> {
        let mut tree = Self::default();
        let mut at = 0;
        loop {
            let bad = BadArchive { offset: at };
            let (header, path, bytes, next) = entry(archive, at).ok_or(bad)?;
            let mode = u16::try_from(header.mode & 0o7777).expect("twelve bits");
            let node = match header.mode & !0o7777 {
                0 if path == END => break,
                DIRECTORY => Node::Directory { mode },
                FILE => Node::File { mode, bytes: bytes.to_vec() },
                CHARACTER_DEVICE => {
                    let (major, minor) = header.device;
                    Node::CharacterDevice { mode, major, minor }
                }
                _ => return Err(bad), // a kind of file that no archive of ours holds
            };
            tree.add(path, node).map_err(|_| bad)?;
            at = next;
        }
        // The same tree has one archive only: this catches every field that was skipped above.
        let same = tree.archive().is_ok_and(|ours| ours == archive);
        if same { Ok(tree) } else { Err(BadArchive { offset: at }) }
    }
}

impl Node {
    fn mode(&self) -> u16 {
        match self {
            Self::Directory { mode } | Self::File { mode, .. } | Self::CharacterDevice { mode, .. } => *mode,
        }
    }
}

/// A file is too large for the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` passes 4 GiB, more than an initramfs holds")]
pub struct FileTooLarge(pub String);

/// Bytes are no archive of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no newc archive of ours at byte {offset}")]
pub struct BadArchive {
    /// Where it stops being one.
    pub offset: usize,
}

/// Compresses an archive as the kernel takes it (`CONFIG_RD_ZSTD`); one thread, so always the same bytes.
///
/// # Errors
/// When the compressor runs out of memory.
pub fn compress(archive: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::bulk::compress(archive, LEVEL)
}

/// The inverse of [`compress`]; refuses what would grow beyond `limit` bytes.
///
/// # Errors
/// When the bytes are damaged or the limit is passed.
pub fn decompress(compressed: &[u8], limit: usize) -> std::io::Result<Vec<u8>> {
    zstd::bulk::decompress(compressed, limit)
}

/// The strongest level whose window (8 MiB) any kernel unpacks without more memory; decompression is as fast as at level 3.
const LEVEL: i32 = 19;
/// `PATH_MAX` of the kernel; init/initramfs.c skips longer names silently.
const PATH_MAX: usize = 4096;
/// Name of the entry that ends an archive.
const END: &str = "TRAILER!!!";
/// File types of `st_mode`.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// Magic of the format without checksums.
const MAGIC: &[u8] = b"070701";
/// Bytes of a header: the magic and 13 fields of eight hex digits.
const HEADER: usize = 6 + 13 * 8;

struct Header {
    inode: u32,
    mode: u32,
    links: u32,
    size: u32,
    device: (u32, u32),
}

fn put_entry(archive: &mut Vec<u8>, header: &Header, path: &str, bytes: &[u8]) {
    let Header { inode, mode, links, size, device: (major, minor) } = *header;
    let name_size = u32::try_from(path.len() + 1).expect("shorter than PATH_MAX");
    let (owner, group, time, home, checksum) = (0, 0, 0, (0, 0), 0);
    archive.extend_from_slice(MAGIC);
    for field in [inode, mode, owner, group, links, time, size, home.0, home.1, major, minor, name_size, checksum] {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(path.as_bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(bytes);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// The entry at `at` and where the next one begins.
fn entry(archive: &[u8], at: usize) -> Option<(Header, &str, &[u8], usize)> {
    let header = archive.get(at..at.checked_add(HEADER)?)?.strip_prefix(MAGIC)?;
    let mut fields = [0; 13];
    for (field, digits) in fields.iter_mut().zip(header.chunks_exact(8)) {
        *field = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    let [inode, mode, _, _, links, _, size, _, _, major, minor, name_size, _] = fields;
    let name_at = at + HEADER;
    let name_end = name_at.checked_add(usize::try_from(name_size).ok()?)?;
    let name = archive.get(name_at..name_end)?.strip_suffix(b"\0")?;
    let data_at = name_end.checked_next_multiple_of(4)?;
    let data_end = data_at.checked_add(usize::try_from(size).ok()?)?;
    let bytes = archive.get(data_at..data_end)?;
    let header = Header { inode, mode, links, size, device: (major, minor) };
    Some((header, std::str::from_utf8(name).ok()?, bytes, data_end.checked_next_multiple_of(4)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tiny() -> FileTree {
        let mut tree = FileTree::default();
        tree.add("init", Node::File { mode: 0o555, bytes: b"#!".to_vec() }).expect("free");
        tree.add("dev", Node::Directory { mode: 0o755 }).expect("free");
        tree.add("dev/console", Node::CharacterDevice { mode: 0o600, major: 5, minor: 1 }).expect("free");
        tree
    }

    #[test]
    fn a_tiny_archive_has_exactly_these_bytes() {
        // GNU cpio 2.13 lists it as three entries; field by field from buffer-format.rst.
        let entry = |inode: u32, mode: &str, links: u32, size: u32, device: &str, name_size: u32| {
            let (zero, owner) = ("00000000", "0000000000000000");
            format!("070701{inode:08x}{mode}{owner}{links:08x}{zero}{size:08x}{owner}{device}{name_size:08x}{zero}")
        };
        let none = "0000000000000000";
        let expected = [
            entry(1, "000041ed", 2, 0, none, 4),
            "dev\0\0\0".to_owned(),
            entry(2, "00002180", 1, 0, "0000000500000001", 12),
            "dev/console\0\0\0".to_owned(),
            entry(3, "0000816d", 1, 2, none, 5),
            "init\0\0#!\0\0".to_owned(),
            entry(0, "00000000", 1, 0, none, 11),
            "TRAILER!!!\0\0\0\0".to_owned(),
        ]
        .concat();
        let archive = tiny().archive().expect("small");
        assert_eq!(String::from_utf8(archive).expect("text"), expected);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let mut tree = tiny();
        let file = |mode| Node::File { mode, bytes: Vec::new() };
        for path in ["", "/init", "a/", "a//b", ".", "dev/../x", "a\0b", END, &"x".repeat(4096)] {
            assert_eq!(tree.add(path, file(0o644)), Err(BadPath::Form(path.to_owned())));
        }
        assert_eq!(tree.add("sys/x", file(0o644)), Err(BadPath::NoParent("sys/x".to_owned())));
        assert_eq!(tree.add("init/x", file(0o644)), Err(BadPath::NoParent("init/x".to_owned())));
        assert_eq!(tree.add("setuid", file(0o4755)), Err(BadPath::Mode("setuid".to_owned())));
        assert_eq!(tree.add("init", file(0o644)), Err(BadPath::Twice("init".to_owned())));
    }

    #[test]
    fn another_archive_is_refused() {
        let good = tiny().archive().expect("small");
        assert_eq!(FileTree::read(&good), Ok(tiny()));
        assert!(FileTree::read(&good[..good.len() - 1]).is_err(), "cut");
        assert!(FileTree::read(&[&good[..], &good[..]].concat()).is_err(), "two archives");
        let owner = 6 + 2 * 8 + 7;
        let mut owned = good;
        owned[owner] = b'1';
        assert!(FileTree::read(&owned).is_err(), "not root's");
    }

    #[test]
    fn compression_is_undone_and_bounded() {
        let archive = tiny().archive().expect("small");
        let compressed = compress(&archive).expect("memory");
        assert_eq!(compressed[..4], [0x28, 0xb5, 0x2f, 0xfd]);
        assert_eq!(decompress(&compressed, archive.len()).expect("ours"), archive);
        assert!(decompress(&compressed, archive.len() - 1).is_err());
    }

    fn any_tree() -> impl Strategy<Value = Vec<(String, Node)>> {
        let node = prop_oneof![
            (0u16..0o1000).prop_map(|mode| Node::Directory { mode }),
            (0u16..0o1000, proptest::collection::vec(any::<u8>(), 0..40))
                .prop_map(|(mode, bytes)| Node::File { mode, bytes }),
            (0u16..0o1000, any::<u32>(), any::<u32>()).prop_map(|(mode, major, minor)| Node::CharacterDevice {
                mode,
                major,
                minor
            }),
        ];
        proptest::collection::vec(("[a-c-]{1,3}(/[a-c-]{1,3}){0,2}", node), 0..12)
    }

    proptest! {
        #[test]
        fn order_of_adding_does_not_matter_and_all_reads_back(entries in any_tree()) {
            let mut tree = FileTree::default();
            for (path, node) in entries {
                let mut attempt = tree.clone();
                if attempt.add(&path, node).is_ok() {
                    tree = attempt;
                }
            }
            // Any order in which parents come first: here by depth, then backwards.
            let mut backwards: Vec<_> = tree.iter().collect();
            backwards.reverse();
            backwards.sort_by_key(|(path, _)| path.matches('/').count());
            let mut again = FileTree::default();
            for (path, node) in backwards {
                again.add(path, node.clone()).expect("parents first");
            }
            let archive = tree.archive().expect("small");
            prop_assert_eq!(&again.archive().expect("small"), &archive);
            prop_assert_eq!(FileTree::read(&archive), Ok(tree));
        }

        #[test]
        fn no_damage_panics_the_reader(at in 0usize..480, byte: u8, length in 0usize..480) {
            let mut archive = tiny().archive().expect("small");
            let length = length.min(archive.len());
            if let Some(target) = archive.get_mut(at) {
                *target = byte;
            }
            let _ = FileTree::read(&archive[..length]);
        }
    }
}
