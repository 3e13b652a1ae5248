//! Site that both sides of a bench stand on: the same processors and memory, a place for their files; and the results
//! that both give back: what was seen of a boot and what PID 1 says of itself. It never boots.

use std::path::{Path, PathBuf};

use ::image::Manifest;
use ::tests::Stranger;
use anyhow::{Context, Result};
use api::wire::FaultKind;
use benches::{Arrival, evidence::Evidence};
use model::ClusterId;
use qemu::Vm;

/// Processors of either side's machine.
pub(super) const CPUS: u32 = 2;
/// As above, in MiB.
pub(super) const MEMORY: u32 = 3072;
/// Size of the disk that holds data, as `cairnctl cluster create` takes it: tagging then lasts longer than a boot.
pub(super) const DISK: u64 = 8 << 30;

/// Programs of the host, and what is booted.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) out: PathBuf,
    pub(super) image: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) cairnctl: PathBuf,
    pub(super) kubectl: PathBuf,
}

/// Results of a boot that was measured.
pub(super) struct Boot {
    pub(super) seen: Vec<Arrival>,
    pub(super) evidence: Evidence,
    pub(super) cluster: ClusterId,
}

/// The folder of one machine's artefacts, empty. A machine that a killed bench left running there is ended first.
pub(super) fn fresh(folder: &Path) -> Result<()> {
    let inner = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    for place in inner.filter(|path| path.is_dir()).chain([folder.to_owned()]) {
        Vm::end_detached(&place).with_context(|| format!("end what an earlier bench left in `{}`", place.display()))?;
    }
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("empty `{}`", folder.display()));
        }
        Ok(()) | Err(_) => {} // gone either way
    }
    std::fs::create_dir_all(folder).with_context(|| format!("make `{}`", folder.display()))
}

/// `VmRSS` of PID 1 in kilobytes, as it says itself in the debug profile.
pub(super) fn resident(mut owner: Stranger) -> Result<u64> {
    // No child is started; what PID 1 holds is told behind whatever was done.
    let told = owner.inject(FaultKind::Children, "0").context("ask PID 1 what it holds")?;
    let held = told.rsplit_once("holds ").and_then(|(_, held)| held.strip_suffix(" kB")?.parse().ok());
    held.with_context(|| format!("find the memory in `{told}`"))
}
