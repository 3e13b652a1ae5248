//! `launching` in a machine's directory: where the sockets of a run are that begins. It is there from before the run's first
//! process until `run.json` names them, so it is left behind only by a launcher that was killed meanwhile. What that one had
//! started stands still, holds disk and TPM, and is found by these sockets: they have a name of their own, which nobody else
//! is told.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::{HOST, MachineFilesError, RunError};
use crate::deadline::Deadline;
use crate::process::Process;

/// How the directory of a run's sockets is called, and something drawn.
pub(super) const SOCKETS: &str = "cairn-";

/// A run that begins; one that fails is none.
#[derive(Debug)]
pub(super) struct Launching(PathBuf);

impl Launching {
    pub(super) fn begin(dir: &Path, sockets: &Path) -> io::Result<Self> {
        let file = file(dir);
        fs::write(&file, sockets.as_os_str().as_bytes())?;
        Ok(Self(file))
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        // What stays names sockets that nobody has any more.
        let _removed = fs::remove_file(&self.0);
    }
}

/// Ends what a launcher has started in `dir` and was killed over.
pub(super) fn end_abandoned(dir: &Path) -> Result<(), RunError> {
    let file = file(dir);
    let sockets = match fs::read(&file) {
        Ok(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(MachineFilesError::at(&file)(error).into()),
    };
    // Where the launcher was killed before it had written the name, it had started nothing.
    if sockets.file_name().is_some_and(|name| name.as_bytes().starts_with(SOCKETS.as_bytes())) {
        for process in Process::told_of(&sockets)? {
            // Held by its pidfd: the only failure is that it has ended.
            let _killed = process.kill();
            if !process.wait(Deadline::after(HOST)) {
                return Err(RunError::Unkillable(process.identity().pid));
            }
        }
        let _gone_already = fs::remove_dir_all(&sockets);
    }
    fs::remove_file(&file).map_err(|error| MachineFilesError::at(&file)(error).into())
}

fn file(dir: &Path) -> PathBuf {
    dir.join("launching")
}
