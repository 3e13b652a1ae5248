//! SHA-256 of files, and of lists of named things in a way that two different lists never look alike. It must never hash
//! anything whose meaning depends on the machine: no paths, no times.

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context as Hasher, SHA256};

/// A SHA-256 value; shown in lower-case hexadecimal, as `sha256sum` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

/// Collects named inputs into one digest.
pub(crate) struct Inputs(Hasher);

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
    /// It cannot be read.
    #[error("read `{path}` of {package}; `cargo xtask packages` installs what is missing")]
    Read { path: PathBuf, package: &'static str, source: io::Error },
    /// It is another one.
    #[error(
        "`{path}` is not the file that this checkout was made for: its SHA-256 is {found}, pinned is {pinned}, of \
         {package}; nothing was built from it. If Debian has replaced it by a newer one, look at what changed and pin that"
    )]
    Other { path: PathBuf, package: &'static str, found: Digest, pinned: &'static str },
}

impl Pinned {
    /// Its path, once its content was found to be the pinned one.
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
        match of_file(&path) {
            Ok(found) if found.to_string() == pinned => Ok(path),
            Ok(found) => Err(PinError::Other { path, package, found, pinned }),
            Err(source) => Err(PinError::Read { path, package, source }),
        }
    }
}

/// Digest of a file's content.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn of_file(path: &Path) -> io::Result<Digest> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Hasher::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest::finish(hasher)),
            length => hasher.update(&buffer[..length]),
        }
    }
}

impl Inputs {
    /// Starts a list. `kind` keeps lists of different meaning apart.
    pub(crate) fn new(kind: &str) -> Self {
        Self(Hasher::new(&SHA256)).text("kind", kind)
    }

    /// Adds a named text. Lengths go before contents, so that no two lists read the same.
    #[must_use]
    pub(crate) fn text(mut self, name: &str, content: &str) -> Self {
        for part in [name, content] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part.as_bytes());
        }
        self
    }

    /// Adds a named file by the digest of its content.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn file(self, name: &str, path: &Path) -> io::Result<Self> {
        let digest = of_file(path)?;
        Ok(self.text(name, &digest.to_string()))
    }

    /// The digest of the whole list.
    pub(crate) fn finish(self) -> Digest {
        Digest::finish(self.0)
    }
}

impl Digest {
    fn finish(hasher: Hasher) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hasher.finish().as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of FIPS 180-4 for "abc".
    #[test]
    fn a_file_has_the_digest_of_the_standard() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "abc").expect("written");
        let digest = of_file(file.path()).expect("read").to_string();
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

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

    #[test]
    fn lists_that_run_together_differ() {
        let one = Inputs::new("k").text("ab", "c").finish();
        let two = Inputs::new("k").text("a", "bc").finish();
        assert_ne!(one, two);
    }
}
