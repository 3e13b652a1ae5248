//! `run.json` in a machine's directory: what it takes to find a running machine again.
//!
//! It is written once the machine runs and removed when it has been ended; one that is left behind is harmless, since
//! a process counts only by pid and start time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::argv::RunFiles;
use crate::machine::Machine;
use crate::process::ProcessIdentity;

/// Record of one run of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// QEMU.
    pub(super) qemu: ProcessIdentity,
    /// Process of its TPM, if it has one: it writes its state on for a moment after QEMU has ended.
    #[serde(default)]
    pub(super) swtpm: Option<ProcessIdentity>,
    /// Directory of the run's sockets; its path is short because a socket's must be.
    pub(super) sockets: PathBuf,
    /// Length of `serial.log` when the run began.
    pub(super) serial_from: u64,
    /// Machine as it was started; none where an older version did.
    #[serde(default)]
    pub(super) machine: Option<Machine>,
}

impl Record {
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let fresh = dir.join("run.json.new");
        fs::write(&fresh, text)?;
        fs::rename(fresh, file(dir))
    }

    /// None where there is none.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(file(dir)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the record and the sockets it names; what is gone already is not missed.
    pub(super) fn remove(&self, dir: &Path) {
        let (_record, _sockets) = (fs::remove_file(file(dir)), fs::remove_dir_all(&self.sockets));
    }
}

/// Files of a run with its sockets in `sockets` and the rest in `dir`.
pub(super) fn files(dir: &Path, sockets: &Path) -> RunFiles {
    RunFiles {
        qmp: sockets.join("qmp"),
        serial: sockets.join("serial"),
        serial_log: dir.join("serial.log"),
        tpm: sockets.join("tpm"),
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("run.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_strange_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), None);
        let qemu = ProcessIdentity { pid: 7, started: 99 };
        let swtpm = Some(ProcessIdentity { pid: 8, started: 98 });
        let record = Record { qemu, swtpm, sockets: dir.path().join("sockets"), serial_from: 3, machine: None };
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(record.clone()));
        // As written by a version that did not know the TPM.
        fs::write(file(dir.path()), r#"{"qemu":{"pid":7,"started":99},"sockets":"/s","serial_from":3}"#).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap().map(|old| (old.qemu, old.swtpm)), Some((qemu, None)));
        fs::write(file(dir.path()), "{\"qemu\": 1}").unwrap();
        assert!(Record::read(dir.path()).is_err());
        record.remove(dir.path());
        assert_eq!(Record::read(dir.path()).unwrap(), None);
    }
}
