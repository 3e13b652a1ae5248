//! Reports about finished files, from their bytes alone: kernel, initramfs, unified kernel, root, disk, image
//! directory.
//!
//! It believes nothing that it can check: hash trees are computed anew, a slot must have the root hash its partition is
//! named by, a directory's files must be those of its manifest. It must never write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use formats::pe::Pe;
use formats::uki::{Uki, UkiError};
use formats::verity::{self, Verity};
use initramfs::FileTree;
use model::{Partition, PartitionKind, RootHash};
use serde::Serialize;

use crate::disk::{self, DiskError};
use crate::files::{self, FileError, hex, sha256};
use crate::manifest::{Manifest, ManifestEntry, VerityPlace};
use crate::{esp, initrd, names};

/// Report of a file; its `Display` is for people, its serialisation for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Report {
    /// A bzImage.
    Kernel(KernelReport),
    /// A compressed initramfs of ours.
    Initramfs(InitramfsReport),
    /// A unified kernel image of ours.
    Uki(Box<UkiReport>),
    /// A root with its verity tree.
    Root(RootReport),
    /// A GPT disk image.
    Disk(DiskReport),
    /// A directory with a manifest, all of whose artefacts are as it says.
    Image(Box<Manifest>),
}

/// Report of a bzImage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelReport {
    /// Version that the kernel will print.
    pub version: String,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hex.
    pub sha256: String,
}

/// Report of an initramfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitramfsReport {
    /// Length in bytes, compressed.
    pub size: u64,
    /// SHA-256 in hex.
    pub sha256: String,
    /// The root it boots into.
    pub verity: VerityPlace,
    /// The command line it accepts under UEFI.
    pub cmdline: String,
    /// Files of the archive by path.
    pub files: BTreeMap<String, ManifestEntry>,
}

/// A unified kernel image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UkiReport {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hex.
    pub sha256: String,
    /// Name, address and length of each section.
    pub sections: Vec<(String, u32, u64)>,
    /// The os-release it shows.
    pub os_release: String,
    /// The command line it passes.
    pub cmdline: String,
    /// Report of its kernel.
    pub kernel: KernelReport,
    /// Report of its initramfs.
    pub initramfs: InitramfsReport,
    /// SHA-256 PCR 11 after the stub measured it, in hex.
    pub pcr11: String,
}

/// A root, verified block by block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootReport {
    /// How it verifies.
    pub verity: VerityPlace,
    /// The PARTUUID of the slot that may hold it.
    pub partition_uuid: String,
    /// Length of root and tree in bytes.
    pub size: u64,
    /// SHA-256 of root and tree, in hex.
    pub sha256: String,
}

/// Report of a disk image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskReport {
    /// GUID of the disk.
    pub guid: String,
    /// Partitions in their order on the disk.
    pub partitions: Vec<PartitionReport>,
    /// The files of its ESP.
    pub esp: BTreeMap<String, ManifestEntry>,
    /// The unified kernels on its ESP, by path.
    pub kernels: BTreeMap<String, UkiReport>,
    /// The system slots that are not empty, by name.
    pub slots: BTreeMap<String, RootReport>,
}

/// Report of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionReport {
    /// Name in the table.
    pub name: String,
    /// GUID of the partition itself.
    pub guid: String,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Length of the partition in bytes.
    pub length: u64,
}

/// Why a file cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file begins like nothing that is known here.
    #[error("`{0}` is no kernel, initramfs, unified kernel, root, disk or image directory")]
    Unknown(PathBuf),
    /// The initramfs does not unpack.
    #[error("unpack the initramfs")]
    Unpack(#[source] io::Error),
    /// The initramfs is not one of ours.
    #[error("read the initramfs")]
    Archive(#[from] initramfs::BadArchive),
    /// The initramfs lacks a text or holds one that is none.
    #[error("the initramfs has no `{0}`")]
    InInitramfs(&'static str),
    /// The initramfs describes its root wrongly.
    #[error("read the root's description in the initramfs")]
    Verity(#[from] verity::BadVerity),
    /// The file begins like a unified kernel and is none.
    #[error("read the unified kernel image")]
    Uki(#[from] UkiError),
    /// The image has no kernel where one should be.
    #[error("the unified kernel image holds no Linux kernel")]
    NoKernel,
    /// The erofs superblock is damaged or longer than the file.
    #[error("the root's superblock is damaged")]
    Superblock,
    /// A hash of the root's tree is wrong.
    #[error("the root or its verity tree is damaged")]
    Corrupt(#[from] verity::Corrupt),
    /// A slot holds another root than its name says.
    #[error("slot `{slot}` holds the root {root}, which is not the one it is named by")]
    WrongSlot {
        /// Name of the slot.
        slot: String,
        root: RootHash,
    },
    /// The disk image.
    #[error("read the disk image")]
    Disk(#[from] DiskError),
    /// The manifest is none.
    #[error("read the manifest")]
    Manifest(#[from] serde_json::Error),
    /// A file is not the one that the manifest lists.
    #[error("`{0}` is not the file that the manifest lists")]
    Changed(String),
}

/// Explains `path`: one of the files of [`names`], or a directory that holds them.
///
/// # Errors
/// [`InspectError`] says what it is not, or what is damaged.
pub fn inspect(path: &Path) -> Result<Report, InspectError> {
    Ok(match kind(path)? {
        Kind::Image(dir) => Report::Image(Box::new(image(dir)?)),
        Kind::Disk => Report::Disk(disk(path)?),
        Kind::Kernel => {
            Report::Kernel(kernel(&files::read(path)?).ok_or_else(|| InspectError::Unknown(path.to_owned()))?)
        }
        Kind::Uki => Report::Uki(Box::new(uki(&files::read(path)?)?)),
        Kind::Root => Report::Root(root(&files::read(path)?)?.0),
        Kind::Initramfs => Report::Initramfs(initramfs(&files::read(path)?)?),
    })
}

/// The root in `path`, verified: that of a root's file, of an image's directory, or of a disk's first slot that has one. None: there
/// is no place for one in it.
pub(crate) fn root_in(path: &Path) -> Result<Option<Vec<u8>>, InspectError> {
    Ok(match kind(path)? {
        Kind::Image(dir) => {
            image(dir)?;
            let bytes = files::read(&dir.join(names::ROOT))?;
            root(&bytes)?;
            Some(bytes)
        }
        Kind::Root => {
            let bytes = files::read(path)?;
            root(&bytes)?;
            Some(bytes)
        }
        Kind::Disk => {
            for found in disk::partitions(path)? {
                if let Some((bytes, ..)) = slot(path, &found)? {
                    return Ok(Some(bytes));
                }
            }
            None
        }
        Kind::Kernel | Kind::Uki | Kind::Initramfs => None,
    })
}

/// Kind of a file, by how it begins.
enum Kind<'a> {
    /// A directory, or the manifest in it.
    Image(&'a Path),
    Disk,
    Kernel,
    Uki,
    Root,
    Initramfs,
}

fn kind(path: &Path) -> Result<Kind<'_>, InspectError> {
    if path.is_dir() {
        return Ok(Kind::Image(path));
    }
    if path.file_name().is_some_and(|name| name == names::MANIFEST) {
        return Ok(Kind::Image(path.parent().unwrap_or(Path::new("."))));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(FileError::new("open", path))?;
    file.take(4096).read_to_end(&mut start).map_err(FileError::new("read", path))?;
    let at = |offset: usize, magic: &[u8]| start.get(offset..offset + magic.len()) == Some(magic);
    let kinds = [
        (512, &b"EFI PART"[..], Kind::Disk),
        (KERNEL_HEADER, b"HdrS", Kind::Kernel),
        (0, b"MZ", Kind::Uki),
        (EROFS_SUPERBLOCK, &EROFS_MAGIC, Kind::Root),
        (0, &ZSTD_MAGIC, Kind::Initramfs),
    ];
    let found = kinds.into_iter().find(|(offset, magic, _)| at(*offset, magic));
    found.map(|(.., kind)| kind).ok_or_else(|| InspectError::Unknown(path.to_owned()))
}

/// Where a bzImage has the mark of its setup header (Documentation/arch/x86/boot.rst).
const KERNEL_HEADER: usize = 0x202;
/// fs/erofs/erofs_fs.h.
const EROFS_SUPERBLOCK: usize = 1024;
const EROFS_MAGIC: [u8; 4] = [0xe2, 0xe1, 0xf5, 0xe0];
/// RFC 8878, section 3.1.1.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// An initramfs larger than this is not ours; bounds what a hostile file can make us unpack.
const LARGEST_INITRAMFS: usize = 256 << 20;

fn image(dir: &Path) -> Result<Manifest, InspectError> {
    let manifest: Manifest = serde_json::from_slice(&files::read(&dir.join(names::MANIFEST))?)?;
    for (name, entry) in &manifest.artefacts {
        if name.contains('/') || ManifestEntry::of_file(&dir.join(name))? != *entry {
            return Err(InspectError::Changed(name.clone()));
        }
    }
    Ok(manifest)
}

fn kernel(bytes: &[u8]) -> Option<KernelReport> {
    if bytes.get(KERNEL_HEADER..KERNEL_HEADER + 4)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes(*bytes.get(0x20e..)?.first_chunk()?);
    let text = bytes.get(usize::from(pointer) + 0x200..)?.split(|&byte| byte == 0).next()?;
    let version = std::str::from_utf8(text).ok()?.to_owned();
    Some(KernelReport { version, size: bytes.len() as u64, sha256: hex(&sha256(bytes)) })
}

fn initramfs(bytes: &[u8]) -> Result<InitramfsReport, InspectError> {
    let archive = initramfs::decompress(bytes, LARGEST_INITRAMFS).map_err(InspectError::Unpack)?;
    let tree = FileTree::read(&archive)?;
    let text = |path| {
        let text = tree.file(path).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.ok_or(InspectError::InInitramfs(path))
    };
    let verity: Verity = text(initrd::VERITY)?.parse()?;
    Ok(InitramfsReport {
        size: bytes.len() as u64,
        sha256: hex(&sha256(bytes)),
        verity: VerityPlace::from(&verity),
        cmdline: text(initrd::COMMAND_LINE)?.trim_end().to_owned(),
        files: initrd::list(&tree),
    })
}

fn uki(bytes: &[u8]) -> Result<UkiReport, InspectError> {
    let parts = Uki::read(bytes)?;
    let pe = Pe::parse(bytes).map_err(UkiError::from)?;
    let sections = pe.sections().iter();
    Ok(UkiReport {
        size: bytes.len() as u64,
        sha256: hex(&sha256(bytes)),
        sections: sections.map(|part| (part.name.to_owned(), part.address, part.data.len() as u64)).collect(),
        os_release: String::from_utf8_lossy(parts.os_release).into_owned(),
        cmdline: String::from_utf8_lossy(parts.command_line).into_owned(),
        kernel: kernel(parts.linux).ok_or(InspectError::NoKernel)?,
        initramfs: initramfs(parts.initrd)?,
        pcr11: hex(&parts.pcr11()),
    })
}

/// A root at the start of `bytes`; what lies behind its tree is not looked at.
fn root(bytes: &[u8]) -> Result<(RootReport, RootHash), InspectError> {
    let length = erofs_length(bytes).ok_or(InspectError::Superblock)?;
    let data = bytes.get(..length).ok_or(InspectError::Superblock)?;
    let (tree, verity) = verity::tree(data).map_err(|_| InspectError::Superblock)?;
    verity::check(bytes, &verity)?;
    let whole = &bytes[..length + tree.len()];
    let report = RootReport {
        verity: VerityPlace::from(&verity),
        partition_uuid: verity.root.partition_uuid().to_string(),
        size: whole.len() as u64,
        sha256: hex(&sha256(whole)),
    };
    Ok((report, verity.root))
}

/// The length of an erofs image by its superblock: block size as a power of two at +12, count of blocks at +36.
fn erofs_length(bytes: &[u8]) -> Option<usize> {
    let superblock: &[u8; 128] = bytes.get(EROFS_SUPERBLOCK..)?.first_chunk()?;
    let blocks = u32::from_le_bytes(*superblock[36..].first_chunk()?);
    let is_ours = superblock[..4] == EROFS_MAGIC && superblock[12] == 12;
    is_ours.then(|| usize::try_from(blocks).ok()?.checked_mul(verity::BLOCK)).flatten()
}

/// Content of a partition, with its name as a slot; none where it is no slot, or an empty one.
fn slot(path: &Path, found: &disk::DiskPartition) -> Result<Option<(Vec<u8>, String, RootReport)>, InspectError> {
    let Some(kind @ (PartitionKind::SystemA | PartitionKind::SystemB)) = found.kind else { return Ok(None) };
    let content = disk::read_partition(path, kind)?;
    if content.iter().take(verity::BLOCK).all(|&byte| byte == 0) {
        return Ok(None);
    }
    let (report, hash) = root(&content)?;
    let slot = Partition::of(kind).name.to_owned();
    if hash.partition_uuid() != found.guid {
        return Err(InspectError::WrongSlot { slot, root: hash });
    }
    Ok(Some((content, slot, report)))
}

fn disk(path: &Path) -> Result<DiskReport, InspectError> {
    let mut report = DiskReport {
        guid: disk::guid(path)?.to_string(),
        partitions: Vec::new(),
        esp: BTreeMap::new(),
        kernels: BTreeMap::new(),
        slots: BTreeMap::new(),
    };
    for found in disk::partitions(path)? {
        if let Some((_, name, root)) = slot(path, &found)? {
            report.slots.insert(name, root);
        }
        let (guid, start, length) = (found.guid.to_string(), found.start, found.length);
        report.partitions.push(PartitionReport { name: found.name, guid, start, length });
    }
    for (file, bytes) in esp::list(path)? {
        if file.starts_with("EFI/Linux/") {
            report.kernels.insert(format!("/{file}"), uki(&bytes)?);
        }
        report.esp.insert(format!("/{file}"), ManifestEntry::file(&bytes));
    }
    Ok(report)
}
