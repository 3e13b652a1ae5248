//! SHA-256 of files, and of lists of named things in a way that two different lists never look alike. It must never hash
//! anything whose meaning depends on the machine: no paths, no times.
//!
//! `sha256sum` computes it, which every Debian has: a crate for it would be compiled before this tool says its first word.

use std::{
    fmt, fs,
    io::{self, Write},
    path::Path,
    process::{ChildStdin, Command, Stdio},
};

/// A SHA-256 value; shown in lower-case hexadecimal, as `sha256sum` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

/// Collects named inputs for one digest.
#[derive(Debug)]
pub struct DigestInputs(Vec<u8>);

/// Digest of a file's content.
///
/// # Errors
/// The file cannot be read, or `sha256sum` fails.
pub fn of_file(path: &Path) -> io::Result<Digest> {
    digest(fs::File::open(path)?.into(), |_nothing_to_write| Ok(()))
}

impl DigestInputs {
    /// Starts a list. `kind` keeps lists of different meaning apart.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self(Vec::new()).text("kind", kind)
    }

    /// Adds a named text. Lengths go before contents, so that no two lists read the same.
    #[must_use]
    pub fn text(mut self, name: &str, content: &str) -> Self {
        for part in [name, content] {
            self.0.extend((part.len() as u64).to_le_bytes());
            self.0.extend(part.as_bytes());
        }
        self
    }

    /// Adds a named file by the digest of its content.
    ///
    /// # Errors
    /// The file cannot be read, or `sha256sum` fails.
    pub fn file(self, name: &str, path: &Path) -> io::Result<Self> {
        let digest = of_file(path)?;
        Ok(self.text(name, &digest.to_string()))
    }

    /// The digest of the whole list.
    ///
    /// # Errors
    /// `sha256sum` fails.
    pub fn finish(self) -> io::Result<Digest> {
        digest(Stdio::piped(), |input| input.map_or(Ok(()), |mut input| input.write_all(&self.0)))
    }
}

/// Digest by `sha256sum` of its input: a file, or what `write` writes.
fn digest(input: Stdio, write: impl FnOnce(Option<ChildStdin>) -> io::Result<()>) -> io::Result<Digest> {
    let mut child = Command::new("sha256sum").stdin(input).stdout(Stdio::piped()).spawn()?;
    let written = write(child.stdin.take());
    let output = child.wait_with_output()?;
    written?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split(' ').next() {
        Some(digest) if output.status.success() && digest.len() == 64 => Ok(Digest(digest.to_owned())),
        _ => Err(io::Error::other(format!("sha256sum ended with {}", output.status))),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn lists_that_run_together_differ() {
        let one = DigestInputs::new("k").text("ab", "c").finish().expect("hashed");
        let two = DigestInputs::new("k").text("a", "bc").finish().expect("hashed");
        assert_ne!(one, two);
    }

    /// A digest names entries that are in caches already: the form of a list is fixed.
    #[test]
    fn a_list_has_the_digest_of_its_lengths_and_contents() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let bytes = [&4_u64.to_le_bytes()[..], b"kind", &1_u64.to_le_bytes(), b"k"].concat();
        fs::write(file.path(), bytes).expect("written");
        let list = DigestInputs::new("k").finish().expect("hashed");
        assert_eq!(list, of_file(file.path()).expect("read"));
    }
}
