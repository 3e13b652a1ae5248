//! Persistent volumes on DATA: performs the steps of `volumes`, one operation at a time, and finishes what a cut has left before
//! each. Decides nothing. A volume's size is its project's limit, and is written nowhere else.
//!
//! ```text
//!   /data/volumes/        0700, root
//!     <uuid>/             0700, root: the project, which pods cannot reach and so not change
//!       data/             0777: what a pod mounts
//! ```

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{ListedVolume, VolumesOfMachine};
use model::{Chain, KubernetesRole};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use rustix::rand::{GetRandomFlags, getrandom};
use sys::quota::{self, Inheritance};
use tokio::sync::Mutex as AsyncMutex;
use volumes::node::{PodPath, PublishOrder, UnpublishOrder, VolumeAccess};
use volumes::{
    DeleteRefusal, EntryName, FoundVolume, Inventory, MountedFolder, NoRoom, NoSuchVolume, VolumeId, VolumeStep,
    is_mounted, mounted_at,
};

use super::DATA;
use crate::facts::{Facts, Now};
use crate::runtime::tasks;

/// Folder of all volumes, as seen from the root of DATA's file system.
const FOLDER: &str = "/volumes";
/// Folder inside a volume's that pods mount.
const INSIDE: &str = "data";
/// Pods run as whom they like, and often as nobody that could be asked for a group: as `emptyDir`, a volume is for all
/// that mount it. Nobody else reaches it.
const FOR_PODS: u32 = 0o777;
const FOR_ROOT: u32 = 0o700;

/// Why nothing is done about a volume, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// Pods run elsewhere.
    #[error("this machine is no worker")]
    NoWorker,
    /// The machine goes down.
    #[error("this machine is going down")]
    Ending,
    /// More than may be promised.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// No volume has this name.
    #[error(transparent)]
    NoSuchVolume(#[from] NoSuchVolume),
    /// A pod uses it.
    #[error(transparent)]
    Delete(#[from] DeleteRefusal),
    /// The disk does not say what is there.
    #[error("look at the volumes")]
    Look(#[source] io::Error),
    /// Something else is mounted where a pod's volume is wanted.
    #[error("something else is mounted at `{0}`")]
    Occupied(PodPath),
    /// The kernel does not mount or unmount.
    #[error("mount or unmount at `{0}`")]
    Mount(PodPath, #[source] io::Error),
    /// The disk does not do a step; what is left is finished before the next call.
    #[error("{0:?}")]
    Step(VolumeStep, #[source] io::Error),
}

/// The volumes of this machine; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Volumes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    facts: Facts,
    /// DATA, or what stands for it in a test.
    data: PathBuf,
    /// Held as long as an operation works, also when nobody waits for it any more.
    turn: Arc<AsyncMutex<()>>,
    ending: AtomicBool,
}

impl Volumes {
    /// Volumes on DATA, which is mounted.
    pub(crate) fn new(facts: &Facts) -> Self {
        Self::below(facts, Path::new(DATA))
    }

    fn below(facts: &Facts, data: &Path) -> Self {
        let (turn, ending) = (Arc::default(), AtomicBool::new(false));
        Self(Arc::new(Shared { facts: facts.clone(), data: data.to_owned(), turn, ending }))
    }

    /// Makes a volume with `bytes` at least, if it is not there. It is durable when this returns.
    ///
    /// # Errors
    /// [`VolumeError`]; where it is refused nothing was done.
    pub(crate) async fn create(&self, id: VolumeId, bytes: u64) -> Result<(), VolumeError> {
        let works = |now: &Now| {
            now.assignment.as_ref().is_some_and(|assignment| assignment.kubernetes().contains(&KubernetesRole::Worker))
        };
        if !self.0.facts.read(works) {
            return Err(VolumeError::NoWorker);
        }
        self.in_turn(move |disk, found| disk.perform(&found.create(id, bytes)?)).await
    }

    /// Gives a volume `bytes` at least. It is durable when this returns.
    ///
    /// # Errors
    /// [`VolumeError`]; where it is refused nothing was done.
    pub(crate) async fn expand(&self, id: VolumeId, bytes: u64) -> Result<(), VolumeError> {
        self.in_turn(move |disk, found| disk.perform(&found.grow(id, found.volume(id)?, bytes)?)).await
    }

    /// Deletes a volume with all that lies in it, if it is there. It is durable when this returns.
    ///
    /// # Errors
    /// [`VolumeError`]; where it is refused nothing was done.
    pub(crate) async fn delete(&self, id: VolumeId) -> Result<(), VolumeError> {
        self.in_turn(move |disk, found| disk.perform(&found.delete(id, is_mounted(&mounts()?, FOLDER, id))?)).await
    }

    /// Tells which volumes there are, and what may still be promised.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub(crate) async fn list(&self) -> Result<VolumesOfMachine, VolumeError> {
        self.in_turn(|_, found| {
            let volumes = found.volumes().map(|(volume, it)| ListedVolume { volume, bytes: it.bytes, used: it.used });
            Ok(VolumesOfMachine { free: found.room().free(), volumes: volumes.collect() })
        })
        .await
    }

    /// Does the first steps of what is planned, for a test that cuts the power then. Before the last one all that comes next is refused: it
    /// would finish what was begun.
    ///
    /// # Errors
    /// [`VolumeError`].
    #[cfg(feature = "faults")]
    pub(crate) async fn begin(
        &self,
        steps: usize,
        plan: impl FnOnce(&Inventory) -> Result<Vec<VolumeStep>, VolumeError> + Send + 'static,
    ) -> Result<(), VolumeError> {
        self.in_turn(move |disk, found| {
            let planned = plan(found)?;
            disk.perform(planned.get(..steps).unwrap_or(&planned))?;
            disk.ending.store(steps < planned.len(), Ordering::Relaxed);
            Ok(())
        })
        .await
    }

    /// A volume that is there.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub(crate) async fn look(&self, id: VolumeId) -> Result<FoundVolume, VolumeError> {
        self.in_turn(move |_, found| Ok(found.volume(id)?)).await
    }

    /// Mounts a volume for a pod, if it is not mounted there.
    ///
    /// # Errors
    /// [`VolumeError`]; then it is not mounted by this.
    pub(crate) async fn publish(&self, order: PublishOrder) -> Result<(), VolumeError> {
        self.in_turn(move |disk, found| {
            found.volume(order.volume)?;
            disk.publish(&order)
        })
        .await
    }

    /// Unmounts a volume from a pod, if it is mounted there.
    ///
    /// # Errors
    /// [`VolumeError`]; then it may be mounted still.
    pub(crate) async fn unpublish(&self, order: UnpublishOrder) -> Result<(), VolumeError> {
        self.in_turn(move |_, _| unpublish(&order)).await
    }

    /// Refuses what comes from now on, and waits for what is under way: DATA is to be closed.
    pub(super) async fn end(&self) {
        self.0.ending.store(true, Ordering::Relaxed);
        drop(self.0.turn.lock().await);
    }

    /// Works on the volumes that are there, when nobody else does. The work goes on when its caller has left.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk<'_>, &Inventory) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let (turn, shared) = (self.0.turn.clone().lock_owned().await, self.0.clone());
        tasks::blocking(move || {
            let _turn = turn;
            if shared.ending.load(Ordering::Relaxed) {
                return Err(VolumeError::Ending);
            }
            let disk = Disk { data: &shared.data, ending: &shared.ending };
            let mut found = disk.inventory()?;
            if disk.finish(&found) {
                found = disk.inventory()?;
            }
            work(&disk, &found)
        })
        .await
    }
}

/// The disk, for who has the turn.
#[derive(Debug)]
struct Disk<'a> {
    data: &'a Path,
    ending: &'a AtomicBool,
}

impl Disk<'_> {
    fn folder(&self) -> PathBuf {
        self.data.join(FOLDER.trim_start_matches('/'))
    }

    fn path(&self, entry: EntryName) -> PathBuf {
        self.folder().join(entry.to_string())
    }

    fn inventory(&self) -> Result<Inventory, VolumeError> {
        let look = || {
            let disk = rustix::fs::statvfs(self.data)?;
            let size = disk.f_blocks.saturating_mul(disk.f_frsize);
            let entries = match fs::read_dir(self.folder()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Inventory { size, found: Vec::new() });
                }
                entries => entries?,
            };
            let mut found = Vec::new();
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                match name.to_str().and_then(EntryName::parse) {
                    Some(entry) => found.push(self.found(entry)?),
                    None => tracing::warn!(name = %name.display(), "no volume, and left alone"),
                }
            }
            Ok(Inventory { size, found })
        };
        look().map_err(VolumeError::Look)
    }

    fn found(&self, entry: EntryName) -> io::Result<FoundVolume> {
        let folder = File::open(self.path(entry))?;
        let quota = match quota::project(&folder)? {
            0 => None,
            project => quota::quota(&folder, project)?,
        };
        let (bytes, used) = quota.map_or((0, 0), |quota| (quota.limit, quota.used));
        Ok(FoundVolume { entry, bytes, used })
    }

    /// Finishes what a cut has left; whether there was any. What cannot be finished takes room, and keeps nobody from the others.
    fn finish(&self, found: &Inventory) -> bool {
        let mut any = false;
        for (entry, steps) in found.leftovers() {
            any = true;
            match self.perform(&steps) {
                Ok(()) => tracing::info!(%entry, "what was left half done of a volume is gone"),
                Err(error) => tracing::error!(%entry, error = %Chain(&error), "what is left of a volume stays"),
            }
        }
        any
    }

    fn perform(&self, steps: &[VolumeStep]) -> Result<(), VolumeError> {
        steps.iter().try_for_each(|step| self.step(*step).map_err(|error| VolumeError::Step(*step, error)))
    }

    fn publish(&self, PublishOrder { volume, target, access }: &PublishOrder) -> Result<(), VolumeError> {
        let (mounts, root) = (mounts()?, root(*volume));
        match mounted_at(&mounts, target) {
            Some(there) if there == (MountedFolder { root: &root, access: *access }) => return Ok(()),
            Some(_) => return Err(VolumeError::Occupied(target.clone())),
            None => {}
        }
        let inside = self.path(EntryName::Whole(*volume)).join(INSIDE);
        let mount = || {
            match DirBuilder::new().mode(0o750).create(target.as_str()) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            mount_bind(&inside, target.as_str())?;
            let flags = MountFlags::BIND | MountFlags::NODEV | MountFlags::NOSUID;
            let flags = match access {
                VolumeAccess::ReadWrite => flags,
                VolumeAccess::ReadOnly => flags | MountFlags::RDONLY,
            };
            mount_remount(target.as_str(), flags, "").map_err(|error| {
                let _told_by_the_first_error = unmount(target.as_str(), UnmountFlags::NOFOLLOW);
                error.into()
            })
        };
        mount().map_err(|error| VolumeError::Mount(target.clone(), error))
    }

    fn step(&self, step: VolumeStep) -> io::Result<()> {
        match step {
            VolumeStep::Make(entry) => {
                let root_alone = || {
                    let mut made = DirBuilder::new();
                    made.mode(FOR_ROOT);
                    made
                };
                if !self.folder().try_exists()? {
                    root_alone().create(self.folder())?;
                    sync(self.data)?;
                }
                root_alone().create(self.path(entry))
            }
            VolumeStep::Charge(entry) => {
                let folder = File::open(self.path(entry))?;
                let project = unused(|project| quota::quota(&folder, project))?;
                quota::set_project(&folder, project, Inheritance::Inherited)
            }
            VolumeStep::Limit(entry, bytes) => {
                let folder = File::open(self.path(entry))?;
                match quota::project(&folder)? {
                    // What lies in no project of its own would be everything else.
                    0 => Err(io::Error::other("the volume is no project")),
                    project => quota::set_limit(&folder, project, bytes),
                }
            }
            VolumeStep::Fill(entry) => {
                let inside = self.path(entry).join(INSIDE);
                fs::create_dir(&inside)?;
                fs::set_permissions(&inside, Permissions::from_mode(FOR_PODS))?;
                File::open(&inside)?.sync_all()
            }
            VolumeStep::Rename(from, to) => fs::rename(self.path(from), self.path(to)),
            VolumeStep::Empty(entry) => {
                let path = self.path(entry);
                let folder = File::open(&path)?;
                let project = quota::project(&folder)?;
                // What a pod gave to another project could not be moved into the folder's.
                quota::set_project(&folder, project, Inheritance::Apart)?;
                empty(&path, self.ending)
            }
            VolumeStep::Unlimit(entry) => {
                let folder = File::open(self.path(entry))?;
                match quota::project(&folder)? {
                    0 => Ok(()),
                    project => quota::set_limit(&folder, project, 0),
                }
            }
            VolumeStep::Remove(entry) => fs::remove_dir(self.path(entry)),
            VolumeStep::Sync => sync(&self.folder()),
        }
    }
}

/// Unmounts a volume and removes the folder that it was mounted on.
fn unpublish(UnpublishOrder { volume, target }: &UnpublishOrder) -> Result<(), VolumeError> {
    let failed = |error| VolumeError::Mount(target.clone(), error);
    while let Some(there) = mounted_at(&mounts()?, target) {
        if there.root != root(*volume) {
            return Err(VolumeError::Occupied(target.clone()));
        }
        unmount(target.as_str(), UnmountFlags::NOFOLLOW).map_err(|error| failed(error.into()))?;
    }
    match fs::remove_dir(target.as_str()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn mounts() -> Result<String, VolumeError> {
    fs::read_to_string("/proc/self/mountinfo").map_err(VolumeError::Look)
}

/// Folder of a volume that pods mount, as seen from the root of its file system.
fn root(volume: VolumeId) -> String {
    format!("{FOLDER}/{volume}/{INSIDE}")
}

/// Makes durable what was done before, limits among it: the log is written in order as far as the folder's own change.
fn sync(folder: &Path) -> io::Result<()> {
    let folder = File::open(folder)?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let as_it_is = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    futimens(&folder, &Timestamps { last_access: as_it_is, last_modification: now })?;
    folder.sync_all()
}

/// Draws a project that nobody uses: 32 random bits, so that who guesses one meets none.
fn unused<T>(uses: impl Fn(u32) -> io::Result<Option<T>>) -> io::Result<u32> {
    loop {
        let mut drawn = [0; 4];
        getrandom(&mut drawn, GetRandomFlags::empty())?;
        match u32::from_ne_bytes(drawn) {
            // Everything else's, and the kernel's word for none.
            0 | u32::MAX => {}
            project => {
                if uses(project)?.is_none() {
                    return Ok(project);
                }
            }
        }
    }
}

/// Removes all that lies in a folder. Folders in it are moved up before they are emptied: however deep pods have nested them,
/// it takes neither stack nor descriptors. Nobody else is in there.
fn empty(top: &Path, ending: &AtomicBool) -> io::Result<()> {
    let mut number = 0;
    while remove_entries(top, ending, |folder| {
        loop {
            let more = remove_entries(folder, ending, |inner| {
                move_up(inner, top, &mut number)?;
                Ok(())
            })?;
            if !more {
                return fs::remove_dir(folder);
            }
        }
    })? {}
    Ok(())
}

/// Removes files of a folder, and hands on folders in it. Whether there were any entries: there may be more.
fn remove_entries(
    folder: &Path,
    ending: &AtomicBool,
    mut of_folder: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<bool> {
    let mut any = false;
    for entry in fs::read_dir(folder)? {
        if ending.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        any = true;
        let entry = entry?;
        // Links are not followed.
        if entry.file_type()?.is_dir() { of_folder(&entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(any)
}

/// Moves a folder to a place in `top` that is free.
fn move_up(folder: &Path, top: &Path, number: &mut u64) -> io::Result<()> {
    loop {
        *number += 1;
        let place = top.join(number.to_string());
        if !place.try_exists()? {
            return fs::rename(folder, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::machine::kernel::Boot;

    #[test]
    fn a_project_that_is_used_is_not_drawn() {
        let asked = std::cell::RefCell::new(Vec::new());
        let drawn = unused(|project| {
            asked.borrow_mut().push(project);
            Ok((asked.borrow().len() < 3).then_some(()))
        });
        let asked = asked.into_inner();
        assert_eq!((drawn.expect("drawn"), asked.len()), (asked[2], 3));
        assert!(!asked.contains(&0));
        assert!(unused(|_| Err::<Option<()>, _>(io::ErrorKind::NotFound.into())).is_err());
    }

    /// However deep a pod has nested it, and wherever its links lead.
    #[test]
    fn a_folder_is_emptied_and_nothing_beside_it() {
        let place = tempfile::tempdir().expect("a place");
        let (top, kept) = (place.path().join("top"), place.path().join("kept"));
        fs::create_dir(&top).expect("made");
        fs::create_dir(&kept).expect("made");
        fs::write(kept.join("file"), "x").expect("written");
        // From the inside: no path to the deepest fits the kernel's length.
        let mut inner = place.path().join("0");
        fs::create_dir(&inner).expect("made");
        for depth in 1..5000 {
            let outer = place.path().join(depth.to_string());
            fs::create_dir(&outer).expect("made");
            fs::write(outer.join("file"), "x").expect("written");
            fs::rename(&inner, outer.join("1")).expect("moved");
            inner = outer;
        }
        fs::rename(&inner, top.join("1")).expect("moved");
        fs::create_dir(top.join("2")).expect("made");
        symlink(&kept, top.join("link")).expect("made");
        symlink(&kept, top.join("2/link")).expect("made");
        empty(&top, &AtomicBool::new(true)).expect_err("the machine goes down");
        assert!(top.join("1").try_exists().expect("it can be seen"));
        empty(&top, &AtomicBool::new(false)).expect("emptied");
        assert_eq!(fs::read_dir(&top).expect("there").count(), 0);
        assert!(kept.join("file").try_exists().expect("it can be seen"));
    }

    /// Where no projects are, as on the host of a test, a volume is refused, and nothing stays.
    #[tokio::test]
    async fn nothing_is_made_on_a_machine_without_the_role() {
        let (facts, _) = Facts::new(Boot::fixture());
        let place = tempfile::tempdir().expect("a place");
        let volumes = Volumes::below(&facts, place.path());
        let id = VolumeId::parse("01234567-89ab-cdef-0123-456789abcdef").expect("a name");
        assert!(matches!(volumes.create(id, 4096).await, Err(VolumeError::NoWorker)));
        assert!(matches!(volumes.expand(id, 4096).await, Err(VolumeError::NoSuchVolume(_))));
        volumes.delete(id).await.expect("it is not there");
        assert_eq!(volumes.list().await.expect("listed").volumes, []);
        assert_eq!(fs::read_dir(place.path()).expect("there").count(), 0);
        volumes.end().await;
        assert!(matches!(volumes.list().await, Err(VolumeError::Ending)));
    }
}
