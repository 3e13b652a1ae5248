//! The licences of what is in an image, as they are in its root. It must never show a file of the host: a root is verified
//! before it is unpacked, and a link in it is not followed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::{self, FileError};
use crate::inspect::{self, InspectError};
use crate::root::{LICENCES, below};

/// Why the licences cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum LicencesError {
    /// The file is not what it says, or damaged.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The file may be of an image, and has no root.
    #[error("`{0}` holds no root, which the licences are in")]
    NoRoot(PathBuf),
    /// The unpacked files cannot be written or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// fsck.erofs is not there.
    #[error("start fsck.erofs (Debian package erofs-utils)")]
    StartFsck(#[source] io::Error),
    /// fsck.erofs refused.
    #[error("unpack the root: {stderr}")]
    Fsck {
        /// Text that the program printed to its standard error.
        stderr: String,
    },
    /// The root is not laid out as ours are.
    #[error("`{0}` in the root is no directory of licences")]
    Elsewhere(String),
}

/// The text of each notice in the root that `path` holds, by its name: a root, a disk, or an image's directory. `stage` is an
/// absent directory; the root is unpacked there, and it is removed.
///
/// # Errors
/// [`LicencesError`]
pub fn licences(path: &Path, stage: &Path) -> Result<BTreeMap<String, String>, LicencesError> {
    let root = inspect::root_in(path)?.ok_or_else(|| LicencesError::NoRoot(path.to_owned()))?;
    fs::create_dir(stage).map_err(FileError::new("create directory", stage))?;
    let read = unpacked(&root, stage);
    fs::remove_dir_all(stage).map_err(FileError::new("remove", stage))?;
    read
}

fn unpacked(root: &[u8], stage: &Path) -> Result<BTreeMap<String, String>, LicencesError> {
    let (packed, tree) = (stage.join("root.erofs"), stage.join("root"));
    fs::write(&packed, root).map_err(FileError::new("write", &packed))?;
    let extract = format!("--extract={}", tree.display());
    let ran = Command::new("fsck.erofs").args([&extract, "--no-preserve"]).arg(&packed).output();
    let output = ran.map_err(LicencesError::StartFsck)?;
    if !output.status.success() {
        return Err(LicencesError::Fsck { stderr: String::from_utf8_lossy(&output.stderr).trim_end().to_owned() });
    }
    let mut place = PathBuf::new();
    for part in Path::new(LICENCES).iter().skip(1) {
        place.push(part);
        let found = fs::symlink_metadata(tree.join(&place));
        if !found.is_ok_and(|found| found.is_dir()) {
            return Err(LicencesError::Elsewhere(format!("/{}", place.display())));
        }
    }
    let directory = below(&tree, LICENCES);
    let mut licences = BTreeMap::new();
    for entry in fs::read_dir(&directory).map_err(FileError::new("read", &directory))? {
        let entry = entry.map_err(FileError::new("read", &directory))?;
        let path = entry.path();
        if entry.file_type().map_err(FileError::new("read", &path))?.is_file() {
            let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
            licences.insert(entry.file_name().to_string_lossy().into_owned(), text);
        }
    }
    Ok(licences)
}
