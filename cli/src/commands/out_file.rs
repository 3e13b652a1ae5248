//! `--out FILE`: a private file that a command writes where it is told to. It must never replace a file unasked.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::store::{FileError, NewFile};

#[derive(Debug, Args)]
pub(crate) struct OutFile {
    /// Where to write it (mode 0600)
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the file if there is one
    #[arg(long, requires = "out")]
    force: bool,
}

impl OutFile {
    pub(crate) fn path(&self) -> &Path {
        &self.out
    }

    /// Refuses a place that is taken, before anything else is done.
    ///
    /// # Errors
    /// [`FileError::Exists`].
    pub(crate) fn check_free(&self) -> Result<(), FileError> {
        // A link that leads nowhere takes the place as well.
        match self.out.symlink_metadata() {
            Ok(_) if !self.force => Err(FileError::Exists { path: self.out.clone() }),
            Ok(_) | Err(_) => Ok(()), // what keeps it from being looked at also keeps it from being written
        }
    }

    /// Makes the file beside its place, before something is made that has to be written.
    ///
    /// # Errors
    /// [`FileError`].
    pub(crate) fn begin(&self) -> Result<Begun<'_>, FileError> {
        self.check_free()?;
        Ok(Begun { wanted: self, file: NewFile::begin(&self.out)? })
    }

    /// Writes it, whole or not at all; a file that has come since [`Self::check_free`] is not replaced either.
    ///
    /// # Errors
    /// [`FileError`].
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), FileError> {
        self.begin()?.write(bytes)
    }
}

/// A file that is there but for its bytes and its name; gone again unless it is written.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    wanted: &'a OutFile,
    file: NewFile,
}

impl Begun<'_> {
    /// Writes bytes that others follow.
    ///
    /// # Errors
    /// [`FileError`].
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.append(bytes)
    }

    /// Writes it, whole or not at all; a file that has come since it was begun is not replaced either.
    ///
    /// # Errors
    /// [`FileError`].
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), FileError> {
        if self.wanted.force { self.file.replace(bytes) } else { self.file.add(bytes) }
    }
}
