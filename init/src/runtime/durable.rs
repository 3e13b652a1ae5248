//! Files that outlive a cut and a damaged block: they are replaced whole, so whoever reads finds what was there before or what
//! is there now; and an error in reading is never absence.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use zeroize::Zeroizing;

/// Errors of disks and file systems for blocks that they cannot give: a failed read, dm-integrity's wrong tag, and
/// XFS's words for a structure that makes no sense and for one whose checksum does not hold (`fs/xfs/xfs_linux.h`).
const DAMAGE: [Errno; 4] = [Errno::IO, Errno::ILSEQ, Errno::UCLEAN, Errno::BADMSG];

/// A file that cannot be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("read `{0}`")]
pub(crate) struct Unreadable(PathBuf, #[source] io::Error);

/// Whether `error` comes from a disk that does not give what lies on it, or has lost what only its owner can bring back.
pub(crate) fn is_damage(error: &(dyn Error + 'static)) -> bool {
    let damage = |error: &io::Error| DAMAGE.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    let mut chain = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    chain.any(|error| error.downcast_ref::<io::Error>().is_some_and(damage) || error.is::<member::OwnerReason>())
}

/// Whether anything lies at `path`.
///
/// # Errors
/// What the file system says, where it cannot tell.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    #[cfg(test)]
    faults::strike(path)?;
    path.try_exists()
}

/// A file's first `most` bytes and one more if it has more, so that whoever reads it sees that it is too large. Nothing where there is
/// no such file.
///
/// # Errors
/// What the file system says of one that is there, or may be.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    #[cfg(test)]
    faults::strike(path)?;
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Room for all of it at once: a buffer that grew would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(most + 32));
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Reads every file below `directory`, to find one that the disk does not give. Nothing to do where there is no such directory.
///
/// # Errors
/// [`Unreadable`] names the first.
pub(crate) fn read_all(directory: &Path) -> Result<(), Unreadable> {
    let failed = |error| Unreadable(directory.to_owned(), error);
    #[cfg(test)]
    faults::strike(directory).map_err(failed)?;
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            read_all(&path)?;
            continue;
        }
        #[cfg(test)]
        faults::strike(&path).map_err(|error| Unreadable(path.clone(), error))?;
        let read = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
        read.map_err(|error| Unreadable(path, error))?;
    }
    Ok(())
}

/// Puts `bytes` in the place of the file `name` in `directory`, readable by root only, durably.
///
/// # Errors
/// What the file system says; what was there is there still.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    faults::strike(directory)?;
    let new = directory.join(format!("{name}.new"));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// Removes a file or a directory with all that is in it, durably. Nothing to do where there is none.
///
/// # Errors
/// What the file system says; some of it may be gone.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::strike(path)?;
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())),
    }
}

/// Renames what lies in `directory`, durably; nothing may lie under the new name.
///
/// # Errors
/// What the file system says.
pub(crate) fn rename(directory: &Path, from: &str, to: &str) -> io::Result<()> {
    #[cfg(test)]
    faults::strike(&directory.join(from))?;
    fs::rename(directory.join(from), directory.join(to))?;
    File::open(directory)?.sync_all()
}

/// Overwrites a secret's file, or every file below a directory of them, and removes it, durably. Nothing to do where there is none.
///
/// # Errors
/// What the file system says; some of it may be gone.
pub(crate) fn erase(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            for entry in fs::read_dir(path)? {
                erase(&entry?.path())?;
            }
        }
        Ok(found) if found.is_file() => {
            let mut file = File::options().write(true).open(path)?;
            io::copy(&mut io::repeat(0).take(found.len()), &mut file)?;
            file.sync_all()?;
        }
        Ok(_) => {} // a link or a device holds no secret
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    remove(path)
}

/// A disk of a test's thread that does not give one path, and what lies below it.
#[cfg(test)]
pub(crate) mod faults {
    use super::{Errno, Path, PathBuf, io};

    std::thread_local! {
        static FAULT: std::cell::RefCell<Option<(PathBuf, Errno)>> = const { std::cell::RefCell::new(None) };
    }

    /// Has `path` answer `errno` while `work` goes on.
    pub(crate) fn with<T>(path: &Path, errno: Errno, work: impl FnOnce() -> T) -> T {
        FAULT.set(Some((path.to_owned(), errno)));
        let done = work();
        FAULT.set(None);
        done
    }

    pub(super) fn strike(path: &Path) -> io::Result<()> {
        FAULT.with_borrow(|fault| match fault {
            Some((broken, errno)) if path.starts_with(broken) => Err((*errno).into()),
            Some(_) | None => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_removed_once() {
        let place = tempfile::tempdir().expect("a place for files");
        for bytes in [&b"first"[..], b"second"] {
            replace(place.path(), "file", bytes).expect("writes");
            assert_eq!(fs::read(place.path().join("file")).expect("there"), bytes);
        }
        let path = place.path().join("file");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(!exists(&place.path().join("file.new")).expect("seen"));
        fs::create_dir_all(place.path().join("directory/in/it")).expect("made");
        for path in [path, place.path().join("directory")] {
            remove(&path).expect("removed");
            assert!(!exists(&path).expect("seen"));
            remove(&path).expect("nothing left to do");
        }
    }
    #[test]
    fn a_file_is_read_whole_up_to_its_bound_and_no_further() {
        let directory = tempfile::tempdir().expect("a place for files");
        let path = directory.path().join("file");
        assert!(read(&path, 8).expect("absent is no error").is_none());
        for (written, length) in [(0, 0), (8, 8), (9, 9), (4096, 9)] {
            fs::write(&path, vec![7; written]).expect("writable");
            assert_eq!(read(&path, 8).expect("readable").expect("there").len(), length, "{written} bytes");
        }
        assert!(read(directory.path(), 8).is_err(), "unreadable is not absent");
    }

    /// Proves: D14
    #[test]
    fn damage_is_known_however_deep_it_lies_and_nothing_else_is() {
        let place = tempfile::tempdir().expect("a place for files");
        let inner = place.path().join("member/wal");
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("0.wal"), [7; 9]).expect("written");
        read_all(place.path()).expect("nothing is wrong");
        read_all(&place.path().join("none")).expect("nothing is there");
        for errno in DAMAGE {
            let error = faults::with(&inner.join("0.wal"), errno, || read_all(place.path())).expect_err("it is broken");
            assert!(is_damage(&error) && error.to_string().contains("member/wal/0.wal"), "{error}");
        }
        let full = faults::with(&inner, Errno::NOSPC, || read_all(place.path())).expect_err("for a reason of its own");
        assert!(!is_damage(&full), "a full disk is not a damaged one");
    }
}
