//! The software TPM beside a machine: one process per run of QEMU, its state kept over runs.
//!
//! It ends by itself when QEMU's connection closes, so that it never outlives the machine, whoever watches.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::deadline::Deadline;
use crate::last_words;
use crate::process::{Process, ProcessError, ProcessIdentity, WaitFailure};

/// A running TPM that waits for QEMU, or serves it.
#[derive(Debug)]
pub struct Swtpm {
    child: Child,
    process: Process,
}

/// Where one run of it keeps its things.
#[derive(Debug)]
pub struct SwtpmFiles<'a> {
    /// Directory of the TPM's state; made where there is none.
    pub state: &'a Path,
    /// Control socket it listens on.
    pub control: &'a Path,
    /// File that it writes its messages to.
    pub log: &'a Path,
}

/// Why there is no TPM.
#[derive(Debug, thiserror::Error)]
pub enum SwtpmError {
    /// A file or directory of it.
    #[error("prepare `{path}`")]
    Prepare { path: PathBuf, source: io::Error },
    /// The program cannot be started.
    #[error("start swtpm (Debian package swtpm)")]
    Spawn(#[source] io::Error),
    /// The process cannot be watched.
    #[error("watch swtpm")]
    Watch(#[from] ProcessError),
    /// The process did not come up.
    #[error("swtpm does not listen ({why}); it says: {output}")]
    Start { output: String, why: WaitFailure },
}

impl Swtpm {
    /// Starts one and waits until it listens. `detached`: in a process group of its own.
    ///
    /// # Errors
    /// [`SwtpmError`]
    pub fn start(files: &SwtpmFiles<'_>, detached: bool, deadline: Deadline) -> Result<Self, SwtpmError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| SwtpmError::Prepare { path, source }
        };
        fs::create_dir_all(files.state).map_err(at(files.state))?;
        let log = File::options().create(true).append(true).open(files.log).map_err(at(files.log))?;
        let pid_file = files.control.with_extension("pid");
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--terminate"]);
        command.arg("--tpmstate").arg(format!("dir={}", files.state.display()));
        command.arg("--ctrl").arg(format!("type=unixio,path={}", files.control.display()));
        command.arg("--pid").arg(format!("file={}", pid_file.display()));
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(at(files.log))?).stderr(log);
        if detached {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        let mut child = command.spawn().map_err(SwtpmError::Spawn)?;
        let pid = child.id().to_string();
        let started = Process::of_child(child.id()).map_err(SwtpmError::from).and_then(|process| {
            // Its pid file is written when it already listens; connecting to look would be taken for the client.
            process
                .until(deadline, || (fs::read(&pid_file).ok()? == pid.as_bytes()).then_some(()))
                .map_err(|why| SwtpmError::Start { output: last_words::of_program(files.log), why })?;
            Ok(process)
        });
        match started {
            Ok(process) => Ok(Self { child, process }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    /// Which process it is.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.process.identity()
    }

    /// Lets go of it: it ends with QEMU.
    pub fn detach(self) {
        drop(self.child);
    }

    /// Ends the process now.
    pub fn kill(mut self) {
        end(&mut self.child);
    }

    /// Waits until it has written its state and ended, after QEMU did.
    pub fn finish(mut self, deadline: Deadline) {
        if !self.process.wait(deadline) {
            end(&mut self.child);
        }
        let _reaped = self.child.wait();
    }
}

/// A child that has ended already cannot be killed and need not be.
fn end(child: &mut Child) {
    let (_killed, _reaped) = (child.kill(), child.wait());
}
