//! Reading and writing whole files with errors that name them, and hashing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256, digest};

/// Failure of an action on a file, with its path.
#[derive(Debug, thiserror::Error)]
#[error("{action} `{path}`")]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, path: path.to_owned(), source }
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(FileError::new("read", path))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    fs::write(path, bytes).map_err(FileError::new("write", path))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

/// Length and SHA-256 of a file that may be too large for memory.
pub(crate) fn measure(path: &Path) -> Result<(u64, Vec<u8>), FileError> {
    let mut file = File::open(path).map_err(FileError::new("open", path))?;
    let (mut length, mut hash, mut buffer) = (0, Context::new(&SHA256), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(FileError::new("read", path))? {
            0 => return Ok((length, hash.finish().as_ref().to_vec())),
            part => {
                hash.update(&buffer[..part]);
                length += part as u64;
            }
        }
    }
}

/// Lower-case hex, as `sha256sum` prints it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
