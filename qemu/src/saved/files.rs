//! The files of a saved machine: copied when it is saved, linked or copied when it is restored, looked at in between.
//!
//! A file that no machine writes any more is one file for all copies (a hard link), so that a saved fleet may be removed
//! while machines that came from it run. Holes of a disk stay holes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use image::DiskError;
use serde::{Deserialize, Serialize};

use super::not_there;
use crate::machine::{Boot, Content, Machine};

/// A file of a saved machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedFile {
    /// Below the machine's folder, and below the directory of each copy.
    pub(super) path: PathBuf,
    pub(super) restored: Carried,
    /// Length of the file.
    pub(super) bytes: u64,
    /// Digest of all its blocks that are not zero ([`digest`]), in hex; none in a fleet that lives as long as one run
    /// of the tests.
    pub(super) sha256: Option<String>,
}

/// How a copy of the machine comes to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Carried {
    /// QEMU reads it once.
    Read,
    /// No machine writes it: all copies have the same file.
    Shared,
    /// Each copy has its own.
    Copied,
}

/// A file or directory of a machine that is to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// The machine writes to it, and no copy will: copies lay overlays on it.
    Disk(PathBuf),
    /// A file that nobody writes to.
    Fixed(PathBuf),
    /// The machine writes to it, and each copy will.
    Living(PathBuf),
    /// A directory of such files.
    Folder(PathBuf),
}

/// Failure of an action on a file of a fleet.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The host's file system refused.
    #[error("use `{path}`")]
    File { path: PathBuf, source: io::Error },
    /// A disk could not be copied.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is not as it was saved.
    #[error("`{path}` {fault}")]
    Changed { path: PathBuf, fault: FileFault },
}

/// Fault of a saved file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The file is gone.
    #[error("is missing")]
    Missing,
    /// The file is shorter or longer.
    #[error("has {found} bytes, and had {saved} when it was saved")]
    Length { saved: u64, found: u64 },
    /// The file's content differs.
    #[error("is not what was saved: its hash differs")]
    Content,
}

impl FilesError {
    /// For `map_err` on something done to `path`.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Parts that are to be saved of a machine whose own files have relative paths; others belong to an image or to this
/// host.
pub(super) fn of_machine(machine: &Machine) -> Vec<Part> {
    let mut parts = vec![Part::Living("serial.log".into())];
    match &machine.boot {
        Boot::Direct(kernel) | Boot::Microvm(kernel) => {
            parts.extend([kernel.image.clone(), kernel.initrd.clone()].map(Part::Fixed));
        }
        Boot::Uefi(firmware) => parts.push(Part::Living(firmware.vars.clone())),
    }
    for disk in &machine.disks {
        let mut layers = disk.content.layers().into_iter().map(Path::to_owned);
        parts.extend(layers.next().map(Part::Disk));
        parts.extend(layers.map(Part::Fixed));
    }
    parts.extend(machine.tpm.iter().map(|tpm| Part::Folder(tpm.state.clone())));
    parts.extend(machine.fw_cfg.iter().map(|file| Part::Fixed(file.path.clone())));
    parts.retain(|part| part.path().is_relative());
    parts
}

impl Part {
    fn path(&self) -> &Path {
        match self {
            Self::Disk(path) | Self::Fixed(path) | Self::Living(path) | Self::Folder(path) => path,
        }
    }
}

/// Saves them: those of a machine in `from`, whose processors stand still, to `to`.
pub(super) fn carry(parts: &[Part], from: &Path, to: &Path) -> Result<Vec<SavedFile>, FilesError> {
    let mut files = Vec::new();
    for part in parts {
        let (from, to_part) = (from.join(part.path()), to.join(part.path()));
        make_parent(&to_part)?;
        match part {
            Part::Disk(path) => {
                image::disk::copy(&from, &to_part, None)?;
                files.push(whole(to, path, Carried::Shared)?);
            }
            Part::Fixed(path) => {
                link(&from, &to_part)?;
                files.push(whole(to, path, Carried::Shared)?);
            }
            Part::Living(path) => {
                fs::copy(&from, &to_part).map_err(FilesError::at(&from))?;
                files.push(whole(to, path, Carried::Copied)?);
            }
            Part::Folder(path) => {
                for name in plain_files(&from)? {
                    let target = to_part.join(&name);
                    make_parent(&target)?;
                    let source = from.join(&name);
                    fs::copy(&source, &target).map_err(FilesError::at(&source))?;
                    files.push(whole(to, path.join(&name), Carried::Copied)?);
                }
            }
        }
    }
    Ok(files)
}

/// Names of files that lie in a directory itself.
fn plain_files(directory: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let at = FilesError::at;
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let entry = entry.map_err(at(directory))?;
        if entry.file_type().map_err(at(directory))?.is_file() {
            names.push(entry.file_name().into());
        }
    }
    names.sort();
    Ok(names)
}

/// A file as it lies below `folder`, not hashed.
pub(super) fn whole(folder: &Path, path: impl Into<PathBuf>, restored: Carried) -> Result<SavedFile, FilesError> {
    let path = path.into();
    let there = folder.join(&path);
    let bytes = fs::metadata(&there).map_err(FilesError::at(&there))?.len();
    Ok(SavedFile { path, restored, bytes, sha256: None })
}

/// Puts a machine's files into the directory of a copy.
pub(super) fn place(files: &[SavedFile], folder: &Path, dir: &Path) -> Result<(), FilesError> {
    fs::create_dir_all(dir).map_err(FilesError::at(dir))?;
    for file in files {
        let (from, to) = (folder.join(&file.path), dir.join(&file.path));
        make_parent(&to)?;
        match file.restored {
            Carried::Read => {}
            Carried::Shared => link(&from, &to)?,
            Carried::Copied => drop(fs::copy(&from, &to).map_err(FilesError::at(&from))?),
        }
    }
    Ok(())
}

/// From now on each disk of the machine is a new overlay in `dir`, over what it was.
pub(super) fn lay_over(machine: &mut Machine, dir: &Path) -> Result<(), FilesError> {
    for (number, disk) in machine.disks.iter_mut().enumerate() {
        let bytes = match &disk.content {
            Content::Overlay { bytes, .. } => *bytes,
            Content::Raw(file) => fs::metadata(file).map_err(FilesError::at(file))?.len(),
            // Refused when it was to be saved.
            Content::Logged { .. } => continue,
        };
        disk.content = disk.content.clone().overlaid(number, dir, bytes);
    }
    Ok(())
}

/// Looks whether all are there in their length; costs no reading.
pub(super) fn are_there(folder: &Path, files: &[SavedFile]) -> Result<(), FilesError> {
    for file in files {
        let path = folder.join(&file.path);
        let fault = match fs::metadata(&path) {
            Ok(there) if there.len() == file.bytes => continue,
            Ok(there) => FileFault::Length { saved: file.bytes, found: there.len() },
            Err(error) if not_there(&error) => FileFault::Missing,
            Err(error) => return Err(FilesError::at(&path)(error)),
        };
        return Err(FilesError::Changed { path, fault });
    }
    Ok(())
}

/// Looks whether the content of those that were hashed is what it was.
pub(super) fn check(folder: &Path, files: &[SavedFile]) -> Result<(), FilesError> {
    for file in files {
        let path = folder.join(&file.path);
        if let Some(saved) = &file.sha256
            && digest(&path)? != *saved
        {
            return Err(FilesError::Changed { path, fault: FileFault::Content });
        }
    }
    Ok(())
}

/// Hashes all, and has them reach the host's disk.
pub(super) fn hash_and_sync(folder: &Path, files: &mut [SavedFile]) -> Result<(), FilesError> {
    for file in files {
        let path = folder.join(&file.path);
        file.sha256 = Some(digest(&path)?);
        sync(&path)?;
        sync(path.parent().unwrap_or(folder))?;
    }
    Ok(())
}

/// SHA-256 over the place (eight bytes, little-endian) and the bytes of each block that is not zero, in order; a hole and
/// written zeros are the same. In hex.
fn digest(path: &Path) -> Result<String, FilesError> {
    use rustix::fs::SeekFrom as Place;
    const BLOCK: u64 = 1 << 16;
    let at = FilesError::at;
    let file = File::open(path).map_err(at(path))?;
    let length = file.metadata().map_err(at(path))?.len();
    let (mut hash, mut block) = (Context::new(&SHA256), vec![0; 1 << 16]);
    let mut place = 0;
    while place < length {
        match rustix::fs::seek(&file, Place::Data(place)) {
            Ok(data) => place = place.max(data / BLOCK * BLOCK),
            // Only a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(at(path)(error.into())),
        }
        let here = usize::try_from(BLOCK.min(length - place)).unwrap_or(block.len());
        file.read_exact_at(&mut block[..here], place).map_err(at(path))?;
        if block[..here].iter().any(|byte| *byte != 0) {
            hash.update(&place.to_le_bytes());
            hash.update(&block[..here]);
        }
        place += BLOCK;
    }
    Ok(hex(hash.finish().as_ref()))
}

/// Bytes as lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A new file that only its owner reads.
pub(super) fn private(path: &Path) -> Result<File, FilesError> {
    File::options().write(true).create_new(true).mode(0o600).open(path).map_err(FilesError::at(path))
}

/// The same with this content.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), FilesError> {
    let mut file = private(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(FilesError::at(path))
}

/// Has a file or directory reach the host's disk.
pub(super) fn sync(path: &Path) -> Result<(), FilesError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(FilesError::at(path))
}

/// The same file under another name; a copy where names cannot be shared.
fn link(from: &Path, to: &Path) -> Result<(), FilesError> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    Ok(image::disk::copy(from, to, None)?)
}

fn make_parent(path: &Path) -> Result<(), FilesError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(FilesError::at(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_of_what_lies_where_and_not_of_holes() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |length: u64, at: u64, written: &[u8]| {
            let path = dir.path().join("disk");
            let file = File::create(&path).unwrap();
            file.set_len(length).unwrap();
            file.write_all_at(written, at).unwrap();
            digest(&path).unwrap()
        };
        const MIB: u64 = 1 << 20;
        let whole = hash(4 * MIB, MIB, b"data");
        assert_eq!(hash(4 * MIB, MIB, &[b"data".as_slice(), &[0; 100_000]].concat()), whole, "zeros are a hole");
        assert_ne!(hash(4 * MIB, 2 * MIB, b"data"), whole, "elsewhere");
        assert_ne!(hash(4 * MIB, MIB, b"dato"), whole);
        assert_ne!(hash(4 * MIB, 4 * MIB - 4, b"data"), whole, "up to the last byte");
        assert_eq!(hash(MIB + 4, MIB, b"data"), hash(MIB + 4, MIB, b"data"));
    }
}
