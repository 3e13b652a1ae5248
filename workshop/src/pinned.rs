//! Files of Debian's that go into the image, or that what is in it is built from: used only with the content that was
//! looked at. It must never take another one and only say so.

use std::{
    io,
    path::{Path, PathBuf},
};

use xtask::digest::{self, Digest};

/// A file of Debian's whose content was looked at when this was written, and must be the same at every build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pinned {
    /// Where its package puts it, or its name in the folder it is fetched to.
    pub(crate) path: &'static str,
    /// The package and the version that was looked at.
    pub(crate) package: &'static str,
    /// Digest of its content, as `sha256sum` shows it.
    pub(crate) sha256: &'static str,
}

/// Why a pinned file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PinError {
    /// The file cannot be read.
    #[error("read `{path}` of {package}; `cargo xtask packages` installs what is missing")]
    Read { path: PathBuf, package: &'static str, source: io::Error },
    /// The file is another one.
    #[error(
        "`{path}` is not the file that this checkout was made for: its SHA-256 is {found}, pinned is {pinned}, of \
         {package}; nothing was built from it. If Debian has replaced it by a newer one, look at what changed and pin that"
    )]
    Other { path: PathBuf, package: &'static str, found: Digest, pinned: &'static str },
}

impl Pinned {
    /// Path of the file, once its content was found to be the pinned one.
    ///
    /// # Errors
    /// [`PinError`]
    pub(crate) fn check(&self) -> Result<PathBuf, PinError> {
        self.check_at(Path::new(self.path))
    }

    /// The same for a copy elsewhere.
    ///
    /// # Errors
    /// [`PinError`]
    pub(crate) fn check_at(&self, path: &Path) -> Result<PathBuf, PinError> {
        let (path, package, pinned) = (path.to_owned(), self.package, self.sha256);
        match digest::of_file(&path) {
            Ok(found) if found.to_string() == pinned => Ok(path),
            Ok(found) => Err(PinError::Other { path, package, found, pinned }),
            Err(source) => Err(PinError::Read { path, package, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_pinned_file_is_used_only_with_its_content() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let pinned = Pinned {
            path: "/nowhere/at/all",
            package: "abc 1.0",
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        };
        fs::write(file.path(), "abc").expect("written");
        assert_eq!(pinned.check_at(file.path()).expect("the pinned content"), file.path());
        fs::write(file.path(), "abd").expect("written");
        let refused = pinned.check_at(file.path()).expect_err("other content").to_string();
        assert!(refused.contains(pinned.sha256) && refused.contains("nothing was built"), "{refused}");
        let missing = pinned.check().expect_err("no such file").to_string();
        assert!(missing.contains("/nowhere/at/all") && missing.contains("cargo xtask packages"), "{missing}");
    }
}
