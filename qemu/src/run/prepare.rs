//! Files that have to be there before QEMU starts: overlays of disk images, firmware variables.
//!
//! What is there is never made anew, it is the machine's memory over runs; but for logs of one run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{Boot, Content, Machine};

/// Why a machine's files could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MachineFilesError {
    /// A file or directory.
    #[error("prepare `{path}`")]
    File { path: PathBuf, source: io::Error },
    /// The overlay tool cannot be started.
    #[error("start qemu-img (Debian package qemu-utils)")]
    Tool(#[source] io::Error),
    /// A disk whose writes are logged is written, so that nothing can lie above it.
    #[error("nothing can lie above a disk whose writes are logged to `{log}`")]
    LoggedBase { log: PathBuf },
    /// The overlay tool refused.
    #[error("make overlay `{file}`: {output}")]
    Overlay { file: PathBuf, output: String },
}

impl MachineFilesError {
    /// For `map_err` on something done to `path`.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Makes what `machine` needs and does not have.
pub(super) fn prepare(machine: &Machine) -> Result<(), MachineFilesError> {
    for disk in &machine.disks {
        prepare_disk(&disk.content)?;
    }
    if let Boot::Uefi(firmware) = &machine.boot
        && !firmware.vars.exists()
    {
        make_parent(&firmware.vars)?;
        fs::copy(&firmware.template, &firmware.vars).map_err(MachineFilesError::at(&firmware.template))?;
    }
    Ok(())
}

fn prepare_disk(content: &Content) -> Result<(), MachineFilesError> {
    match content {
        Content::Overlay { base, file, bytes } if !file.exists() => overlay(base, file, *bytes),
        Content::Overlay { .. } | Content::Raw(_) => Ok(()),
        Content::Logged { content, log } => {
            make_parent(log)?;
            fs::write(log, b"").map_err(MachineFilesError::at(log))?;
            prepare_disk(content)
        }
    }
}

fn overlay(base: &Content, file: &Path, bytes: u64) -> Result<(), MachineFilesError> {
    make_parent(file)?;
    let (base, format) = match base {
        Content::Raw(base) => (base, "raw"),
        Content::Overlay { file, .. } => (file, "qcow2"),
        Content::Logged { log, .. } => return Err(MachineFilesError::LoggedBase { log: log.clone() }),
    };
    let whole = fs::canonicalize(base).map_err(MachineFilesError::at(base))?;
    // QEMU looks a relative name up from the overlay's directory: both may be moved together.
    let beside = base.file_name().filter(|_| base.parent() == file.parent());
    let base = beside.map_or(whole.as_path(), Path::new);
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2", "-F", format, "-b"]).arg(base).arg(file).arg(bytes.to_string());
    let output = command.output().map_err(MachineFilesError::Tool)?;
    if output.status.success() {
        return Ok(());
    }
    Err(MachineFilesError::Overlay {
        file: file.to_owned(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn make_parent(file: &Path) -> Result<(), MachineFilesError> {
    let parent = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(MachineFilesError::at(parent))
}
