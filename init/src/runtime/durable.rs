//! Files that are replaced whole: whoever reads finds what was there before or what is there now, also after a cut.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `bytes` in the place of the file `name` in `directory`, readable by root only, durably.
///
/// # Errors
/// What the file system says; what was there is there still.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
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
        assert!(!place.path().join("file.new").exists());
        fs::create_dir_all(place.path().join("directory/in/it")).expect("made");
        for path in [path, place.path().join("directory")] {
            remove(&path).expect("removed");
            assert!(!path.exists());
            remove(&path).expect("nothing left to do");
        }
    }
}
