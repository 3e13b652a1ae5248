//! `--out FILE`: a private file that a command writes where it is told to. It must never replace a file unasked.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::store::{FileError, write_new_private, write_private};

#[derive(Debug, Args)]
pub(crate) struct OutFile {
    /// Where to write it (mode 0600)
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the file if there is one
    #[arg(long)]
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

    /// Writes it, whole or not at all; a file that has come since [`Self::check_free`] is not replaced either.
    ///
    /// # Errors
    /// [`FileError`].
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), FileError> {
        if self.force { write_private(&self.out, bytes) } else { write_new_private(&self.out, bytes) }
    }
}
