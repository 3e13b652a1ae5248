//! The premises of a run: the image under test, the pace of the host, the directory of artefacts, and what cases share.
//!
//! Whoever has them owns the directory by a lock. Machines that an earlier run left behind there (it was killed) are
//! ended, and only those: each is proven by pid and start time.

use std::any::Any;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Context as _, bail};
use qemu::Vm;
use qemu::host::{self, Requirement};
use qemu::network::control::detached::NetworkProcess;

use crate::FleetKind;
use crate::image::Image;
use crate::pace::HostPace;

/// A value that the cases of a file share under one name.
pub(crate) type Slot = Arc<OnceLock<anyhow::Result<Arc<dyn Any + Send + Sync>>>>;

/// Image, pace and directory of a run, and values that its cases share.
#[derive(Debug)]
pub(crate) struct Premises {
    image: Image,
    pace: HostPace,
    dir: PathBuf,
    /// By file and name.
    shared: Mutex<HashMap<(&'static str, &'static str), Slot>>,
    _lock: File,
}

impl Premises {
    /// Opens the premises whose files lie below `out`.
    pub(crate) fn open(out: &Path) -> anyhow::Result<Self> {
        let image = Image::of_environment()?;
        require(&[host::QEMU, host::QEMU_IMG])?;
        fs::create_dir_all(out).with_context(|| format!("make `{}`", out.display()))?;
        let lock = File::create(out.join("lock")).context("make the lock of the artefacts' directory")?;
        lock.try_lock().with_context(|| format!("another run of the tests uses `{}`", out.display()))?;
        let dir = out.join("cases");
        end_leftovers(&dir)?;
        Ok(Self { image, pace: HostPace::here(), dir, shared: Mutex::default(), _lock: lock })
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn pace(&self) -> HostPace {
        self.pace
    }

    /// The value that the cases of this file share under this name.
    pub(crate) fn shared(&self, file: &'static str, name: &'static str) -> Slot {
        Arc::clone(lock(&self.shared).entry((file, name)).or_default())
    }

    /// Directory of the case, or of the shared thing, of this name.
    pub(crate) fn dir_of(&self, name: &str) -> PathBuf {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        self.dir.join(name.chars().map(plain).collect::<String>())
    }

    /// Folder of a fleet, below that of all cases.
    pub(crate) fn fleet(&self, kind: FleetKind) -> PathBuf {
        self.dir.join("fleets").join(kind.word())
    }

    /// Ends what the cases of a file shared.
    pub(crate) fn forget(&self, file: &str) {
        lock(&self.shared).retain(|(of, _), _| *of != file);
    }

    /// Ends all that was shared.
    pub(crate) fn forget_all(&self) {
        lock(&self.shared).clear();
    }

    /// Removes the files of all cases.
    pub(crate) fn remove(&self) {
        // What cannot be removed now is when the next session begins.
        let _removed = fs::remove_dir_all(&self.dir);
    }
}

/// Fails with the name of a package that brings what is missing.
pub(crate) fn require(wanted: &[Requirement]) -> anyhow::Result<()> {
    match host::missing(wanted).first() {
        None => Ok(()),
        Some(Requirement { file, package }) => bail!("`{file}` is not there: install the Debian package {package}"),
    }
}

/// Ends machines and networks below `dir` and removes it.
fn end_leftovers(dir: &Path) -> anyhow::Result<()> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    // Cases keep files of their own beside their machines' directories; an owner has machines in clusters.
    let clusters = |case: &PathBuf| entries(&case.join("owner/cairn/clusters"));
    let of_clusters = |case: &PathBuf| clusters(case).into_iter().flat_map(|of| entries(&of.join("machines")));
    let machines = |case: &PathBuf| entries(case).into_iter().chain(of_clusters(case));
    for machine in entries(dir).iter().flat_map(machines).filter(|path| path.is_dir()) {
        // Half-launched ones and those that stand still are ended, too.
        Vm::end_detached(&machine).context("end a machine that an earlier run left")?;
    }
    for cluster in entries(dir).iter().flat_map(clusters) {
        NetworkProcess::end(&cluster.join("network")).context("end a network that an earlier run left")?;
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("remove old artefacts"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A case that panicked has failed; what it shares is as good as before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
