//! Files only their owner may read: written whole or not at all, and on the disk before anybody relies on them.
//!
//! A file or directory that others can read is refused, not mended: who knows who has read it by then.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use crate::failure::{Advice, Code, NOTHING};

/// No file of ours is larger; what is, is none of ours.
const LARGEST: u64 = 1 << 20;
/// Permission bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Why a private file or directory could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The operation (`doing`, as a verb) on the file or directory failed.
    #[error("{doing} `{path}`")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// The file or directory was changed, and may be as before after a power cut.
    #[error("make the change of `{path}` last")]
    NotDurable { path: PathBuf, source: io::Error },
    /// Others may read or write it, as its permission bits say.
    #[error("`{path}` is open to others (mode {mode:03o})")]
    Open { path: PathBuf, mode: u32 },
    /// The file or directory is there and was not to be replaced.
    #[error("`{path}` exists")]
    Exists { path: PathBuf },
    /// Larger than anything of ours.
    #[error("`{path}` is larger than any file of cairnctl")]
    TooLarge { path: PathBuf },
}

impl Advice for FileError {
    fn code(&self) -> Code {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
            Self::Exists { .. } => Code::Usage,
            Self::Io { .. } | Self::NotDurable { .. } | Self::Open { .. } | Self::TooLarge { .. } => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::NotDurable { .. } => "the file was changed, but a power cut may undo that",
            Self::Io { .. } | Self::Open { .. } | Self::Exists { .. } | Self::TooLarge { .. } => NOTHING,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Open { path, .. } => Some(format!("if nobody else can have used it: chmod go= {}", path.display())),
            Self::Exists { .. } => Some("name another file, or replace this one with --force".to_owned()),
            Self::Io { .. } | Self::NotDurable { .. } | Self::TooLarge { .. } => None,
        }
    }
}

impl FileError {
    /// For `map_err` on something done to `path`.
    pub(crate) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

/// Makes a directory with mode 0700, or checks that the one there is closed to others.
pub(crate) fn directory(path: &Path) -> Result<(), FileError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => closed(path, &fs::metadata(path).map_err(FileError::at("look at", path))?),
        Err(error) => Err(FileError::at("make the directory", path)(error)),
    }
}

/// Writes a file with mode 0600: after this returns, the file has these bytes for good; before, it is as it was.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    NewFile::begin(path)?.replace(bytes)
}

/// A file with mode 0600 beside the place that it will have; gone again unless it is given its name.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl NewFile {
    /// Makes it, empty: where it cannot be made nothing else needs to be begun.
    pub(crate) fn begin(path: &Path) -> Result<Self, FileError> {
        let directory = directory_of(path);
        let file = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(directory)
            .map_err(FileError::at("write in", directory))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes bytes that others follow.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).map_err(FileError::at("write", &self.path))
    }

    /// Writes it, and puts it in the place of one that may be there.
    pub(crate) fn replace(mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.fill(bytes)?;
        self.file.persist(&self.path).map_err(|error| FileError::at("replace", &self.path)(error.error))?;
        sync_directory(&self.path)
    }

    /// The same where none is there: one that is there stays as it is.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.fill(bytes)?;
        let path = self.path;
        let taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        match self.file.persist_noclobber(&path).map_err(|error| error.error) {
            Ok(_) => sync_directory(&path),
            Err(error) if taken(&error) => Err(FileError::Exists { path }),
            Err(error) => Err(FileError::at("write", &path)(error)),
        }
    }

    fn fill(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.append(bytes)?;
        self.file.as_file().sync_all().map_err(FileError::at("write", &self.path))
    }
}

/// Makes it last that `path` has come or gone.
fn sync_directory(path: &Path) -> Result<(), FileError> {
    let directory = directory_of(path);
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| FileError::NotDurable { path: path.to_owned(), source })
}

/// The directory a file is in; a bare name is in the current one.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Reads a file of ours; none where there is none. The bytes are wiped when dropped.
pub(crate) fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
    let file = match OpenOptions::new().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::at("open", path)(error)),
    };
    let metadata = file.metadata().map_err(FileError::at("look at", path))?;
    closed(path, &metadata)?;
    if metadata.len() > LARGEST {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    // The whole length at once: a vector that grows would leave pieces behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default()));
    file.take(LARGEST).read_to_end(&mut bytes).map_err(FileError::at("read", path))?;
    Ok(Some(bytes))
}

/// Removes a file and makes that last; one that is gone already is not missed.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FileError::at("remove", path)(error)),
    }
}

/// Removes a file, or a directory with all that is in it. What is gone already, or goes while this removes it, is not
/// missed.
pub(crate) fn remove_all(path: &Path) -> Result<(), FileError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn closed(path: &Path, metadata: &fs::Metadata) -> Result<(), FileError> {
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS == 0 { Ok(()) } else { Err(FileError::Open { path: path.to_owned(), mode }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_private_and_read_back() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        super::directory(&directory).unwrap();
        let file = directory.join("key");
        assert_eq!(read(&file).unwrap(), None);
        write(&file, b"one").unwrap();
        write(&file, b"two").unwrap();
        assert_eq!(read(&file).unwrap().unwrap().as_slice(), b"two");
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "no temporary file is left");
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert_eq!(read(&file).unwrap(), None);
    }

    #[test]
    fn a_missing_file_is_no_failure_and_one_that_stays_is_named() {
        let root = tempfile::tempdir().unwrap();
        let (tree, file) = (root.path().join("tree"), root.path().join("file"));
        fs::create_dir_all(tree.join("inner")).unwrap();
        fs::write(tree.join("inner/leaf"), "").unwrap();
        fs::write(&file, "").unwrap();
        for path in [&tree, &file, &tree.join("inner"), &root.path().join("never")] {
            remove_all(path).unwrap();
            assert!(!path.exists());
        }
        // Not even root removes what the kernel keeps.
        let kept = remove_all(Path::new("/proc/self/status")).unwrap_err();
        assert!(kept.to_string().contains("/proc/self/status"), "{kept}");
    }

    #[test]
    fn a_new_file_replaces_none() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("key");
        NewFile::begin(&file).unwrap().add(b"one").unwrap();
        assert_eq!(mode(&file), 0o600);
        let refused = NewFile::begin(&file).unwrap().add(b"two").unwrap_err();
        assert!(matches!(refused, FileError::Exists { .. }), "{refused}");
        assert_eq!(read(&file).unwrap().unwrap().as_slice(), b"one");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn what_others_can_read_is_refused_with_the_way_out() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("key");
        write(&file, b"secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = read(&file).unwrap_err();
        assert!(matches!(refused, FileError::Open { mode: 0o644, .. }));
        assert!(refused.next().unwrap().starts_with("if nobody else can have used it: chmod go= "));
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(directory(root.path()), Err(FileError::Open { mode: 0o755, .. })));
    }
}
