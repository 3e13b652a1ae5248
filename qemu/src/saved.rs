//! Machines that run, saved to a folder, and back from it as often as one likes: a *saved fleet*.
//!
//! ```text
//!   save:     stop all ► memory, disks, TPMs of each ► go on ► hash and sync ► fleet.json ► rename
//!   restore:  look at format, host, files ► link disks, copy TPMs ► QEMU and TPM of each, paused ► all go on at one moment
//!                                           └ hashes, beside that ─────────────────────────┘
//!
//!   FOLDER/ 0700   fleet.json          format, host, image, each machine as data, what the caller adds
//!                  NAME/memory         what QEMU's migration writes
//!                  NAME/…              the machine's own files, under the names that they have in its directory
//! ```
//! A folder of this name is whole: it is written beside, and renamed. Disks in it are never written again; each copy lays an
//! overlay on them. It holds keys in clear memory, so a folder that others may enter is refused.
//!
//! It knows machines and this host. What a cluster is, and which network its machines are on, the caller says.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::deadline::{Deadline, since_1970};
use crate::host;
use crate::machine::{Clock, Content, Link, Machine};
use crate::process::{Process, ProcessError};
use crate::qmp::QmpError;
use crate::run::{Memory, Paused, RunError, Tie, Vm};

mod files;
mod manifest;
mod traits;

use files::Carried;
pub use files::{FileFault, FilesError};
pub use manifest::{FORMAT, MANIFEST, Maker, ManifestError};
use manifest::{Manifest, SavedMachine};
use traits::HostTraits;
pub use traits::{HostDifference, TraitsError};

/// A saved fleet whose `fleet.json` was read: its machines, and what was saved beside them.
#[derive(Debug)]
pub struct SavedFleet<T> {
    folder: PathBuf,
    manifest: Manifest<T>,
}

/// Properties of a fleet that is about to be saved.
#[derive(Debug)]
pub struct SaveRequest<'a, T> {
    /// Root hash of the image that they boot, in hex.
    pub image: &'a str,
    /// Which program saves them, in which version.
    pub made_by: &'a str,
    /// Care that its files are saved with.
    pub care: Care,
    /// State of the machines after they were saved.
    pub then: Then,
    /// Facts that the caller needs to know of them later.
    pub more: T,
}

/// Care that the files of a saved fleet are saved with, by what they have to withstand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// No care: they are used within one run of the tests. A restore looks at their sizes.
    ThisRun,
    /// A power cut of the host, and whatever befalls files that lie for long: they are hashed and synced.
    Lasting,
}

/// State of machines after they were saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The machines go on at one moment.
    GoOn,
    /// The machines stand still, to be ended by the caller.
    Stand,
}

/// How far a save has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveStep {
    /// No machine runs: memory and disks are copied.
    Stopped,
    /// All is copied. Where they are to go on, the machines do.
    Copied,
    /// Hashes are made, and files reach the host's disk.
    Syncing,
}

/// Where a copy of a saved machine comes to be.
#[derive(Debug, Clone)]
pub struct CopyPlace {
    /// The machine's name in the saved fleet.
    pub name: String,
    /// Name that QEMU shows for the copy.
    pub title: String,
    /// A directory for its files; made where there is none.
    pub dir: PathBuf,
    /// Links of its network cards, in their order.
    pub links: Vec<Link>,
    /// Another clock on its board than it was saved with.
    pub clock: Option<Clock>,
}

/// Why machines were not saved. They go on, and nothing is left of what was written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The name is taken.
    #[error("`{0}` is there already")]
    Exists(PathBuf),
    /// No machine would come back.
    #[error("there is no machine to save")]
    NoMachine,
    /// The machine was started by a version that did not note what it started.
    #[error("machine `{0}` was started by an older version, which did not note how it is built")]
    Unknown(String),
    /// Every write to its disk is logged: a copy would lack what the log has.
    #[error("every write to a disk of machine `{0}` is logged, and a copy would not have that log")]
    Logged(String),
    /// The traits of the host cannot be found out.
    #[error(transparent)]
    Traits(#[from] TraitsError),
    /// QEMU did not save it.
    #[error("save the memory of machine `{name}`")]
    Memory { name: String, source: QmpError },
    /// A file could not be written.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Why a saved fleet is not restored. No machine of it runs, and nothing is left of what was made for it.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Others may read it: the keys in it are no longer only its owner's.
    #[error("others may enter `{folder}` (mode {mode:03o}), which holds keys in clear")]
    Open { folder: PathBuf, mode: u32 },
    /// `fleet.json` is not one.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The fleet was saved of another image.
    #[error("it was saved of the image {saved}, and this is {here}")]
    Image { saved: String, here: String },
    /// The traits of the host cannot be found out.
    #[error(transparent)]
    Traits(#[from] TraitsError),
    /// The fleet was saved on a host that differs in what a restored machine depends on.
    #[error(transparent)]
    Host(#[from] HostDifference),
    /// This version builds the machine in another way than the one that saved it.
    #[error("machine `{name}` was saved with `{saved}`, where this version has `{here}`")]
    Board {
        name: String,
        /// The first of QEMU's arguments that differs.
        saved: String,
        here: String,
    },
    /// Where a copy is to be, something is.
    #[error("`{0}` is not empty")]
    Occupied(PathBuf),
    /// A file is not as it was saved, or a copy cannot be made.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The host has not enough memory left.
    #[error("its machines need {needed_mib} MiB of memory, and this host has {free_mib} MiB left")]
    Memory { needed_mib: u64, free_mib: u64 },
    /// Not the machines that were saved.
    #[error("places are given for {given:?}, and {saved:?} were saved")]
    Places { given: Vec<String>, saved: Vec<String> },
    /// Not as many cards as it has.
    #[error("machine `{name}` has {cards} network cards, and {links} links are given")]
    Links { name: String, cards: usize, links: usize },
    /// A machine is at the other end of its cable: two copies never share a network.
    #[error("another machine is at the cable `{0}`, and two copies never share a network")]
    Taken(PathBuf),
    /// The processes on this host cannot be found out.
    #[error("look for machines at the same cables")]
    Processes(#[from] ProcessError),
    /// QEMU or the TPM.
    #[error("restore machine `{name}`")]
    Run { name: String, source: RunError },
}

/// Memory of a machine is written and read within this; it only bounds a wait for what is broken.
const LONGEST: Duration = Duration::from_secs(300);
/// The file of a machine's memory.
const MEMORY: &str = "memory";
/// Seconds of which a machine that stood still for so long knows for certain: boards have whole seconds, and saving has two ends.
const NOTICED: u64 = 5;

/// Saves machines that run, each under its name, in the folder `to`, whose parent is there. Whoever calls keeps others from
/// saving there at the same time; what a save that was killed has left there is removed.
///
/// # Errors
/// [`SaveError`]
pub fn save<T: Serialize>(
    to: &Path,
    machines: &mut [(&str, &mut Vm)],
    saving: SaveRequest<'_, T>,
    tell: &dyn Fn(SaveStep),
) -> Result<(), SaveError> {
    if to.exists() {
        return Err(SaveError::Exists(to.to_owned()));
    }
    let parts = machines.iter().map(|(name, vm)| part(name, vm)).collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        return Err(SaveError::NoMachine);
    }
    let host = HostTraits::look(parts.iter().map(|part| &part.machine))?;
    let fresh = fresh_name(to);
    let saved = write_folder(&fresh, machines, parts, host, saving, tell).and_then(|lasting| {
        fs::rename(&fresh, to).map_err(FilesError::at(to))?;
        if lasting { Ok(files::sync(to.parent().unwrap_or(Path::new(".")))?) } else { Ok(()) }
    });
    if saved.is_err() {
        // What cannot be removed now is when somebody saves there next.
        let _removed = fs::remove_dir_all(&fresh);
        for (_, vm) in machines {
            // Its monitor may be what failed. Whoever looks at it next finds it standing still.
            let _goes_on = vm.go_on_after_save(Deadline::after(LONGEST));
        }
    }
    saved
}

/// The name that a folder has until it is whole: what is there under it, a save that was killed has left.
#[must_use]
pub fn fresh_name(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    to.with_file_name(name)
}

/// A machine of the fleet to be, with none of its files yet.
fn part(name: &str, vm: &Vm) -> Result<SavedMachine, SaveError> {
    let machine = vm.machine().ok_or_else(|| SaveError::Unknown(name.to_owned()))?;
    if machine.disks.iter().any(|disk| matches!(disk.content, Content::Logged { .. })) {
        return Err(SaveError::Logged(name.to_owned()));
    }
    let machine = machine.clone().moved(vm.dir(), Path::new(""));
    Ok(SavedMachine { name: name.to_owned(), machine, board: vec![], serial_from: vm.serial_from(), files: vec![] })
}

/// Writes all of it into `fresh`; whether it is to last.
fn write_folder<T: Serialize>(
    fresh: &Path,
    machines: &mut [(&str, &mut Vm)],
    mut parts: Vec<SavedMachine>,
    host: HostTraits,
    saving: SaveRequest<'_, T>,
    tell: &dyn Fn(SaveStep),
) -> Result<bool, SaveError> {
    let SaveRequest { image, made_by, care, then, more } = saving;
    if fresh.exists() {
        fs::remove_dir_all(fresh).map_err(FilesError::at(fresh))?;
    }
    private(fresh)?;
    let deadline = Deadline::after(LONGEST);
    let memory = |name: &str| {
        let name = name.to_owned();
        move |source| SaveError::Memory { name, source }
    };
    for (name, vm) in &mut *machines {
        vm.qmp().pause(deadline).map_err(memory(name))?;
    }
    tell(SaveStep::Stopped);
    for_each(machines.iter_mut().zip(&mut parts), |((name, vm), part)| -> Result<(), SaveError> {
        let folder = fresh.join(&**name);
        private(&folder)?;
        let path = folder.join(MEMORY);
        let file = files::private(&path)?;
        vm.save_memory(&file, deadline).map_err(memory(name))?;
        part.board = part.machine.argv(&manifest::board_files(), &host.as_host());
        part.files = files::carry(&files::of_machine(&part.machine), vm.dir(), &folder)?;
        part.files.push(files::whole(&folder, MEMORY, Carried::Read)?);
        Ok(())
    })?;
    if then == Then::GoOn {
        for (name, vm) in &mut *machines {
            vm.go_on_after_save(deadline).map_err(memory(name))?;
        }
    }
    tell(SaveStep::Copied);
    let lasting = care == Care::Lasting;
    if lasting {
        tell(SaveStep::Syncing);
        for_each(parts.iter_mut(), |part| files::hash_and_sync(&fresh.join(&part.name), &mut part.files))?;
    }
    let made = Maker { by: made_by.to_owned(), unix_seconds: since_1970().as_secs() };
    let manifest = Manifest { format: FORMAT, made, image: image.to_owned(), host, machines: parts, more };
    manifest.write(fresh)?;
    if lasting {
        files::sync(fresh)?;
    }
    Ok(lasting)
}

/// Does the work for all at the same time; the first error, in their order.
fn for_each<I: Send, E: Send>(all: impl Iterator<Item = I>, work: impl Fn(I) -> Result<(), E> + Sync) -> Result<(), E> {
    let work = &work;
    thread::scope(|threads| {
        let works: Vec<_> = all.map(|one| threads.spawn(move || work(one))).collect();
        let ended: Vec<_> = works.into_iter().map(|work| work.join().expect("a panic has been told")).collect();
        ended.into_iter().collect()
    })
}

/// A directory that only its owner enters.
fn private(directory: &Path) -> Result<(), FilesError> {
    DirBuilder::new().mode(0o700).create(directory).map_err(FilesError::at(directory))
}

impl<T: DeserializeOwned> SavedFleet<T> {
    /// Reads what a folder holds. Its files are looked at when it is restored.
    ///
    /// # Errors
    /// [`RestoreError::Open`], [`RestoreError::Manifest`]
    pub fn open(folder: &Path) -> Result<Self, RestoreError> {
        let manifest = Manifest::read(folder)?;
        let mode = fs::metadata(folder).map_err(FilesError::at(folder))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(RestoreError::Open { folder: folder.to_owned(), mode });
        }
        Ok(Self { folder: folder.to_owned(), manifest })
    }
}

impl<T> SavedFleet<T> {
    /// Program that saved the fleet, and when.
    pub fn made(&self) -> &Maker {
        &self.manifest.made
    }

    /// The root hash of the image that its machines boot, in hex.
    pub fn image(&self) -> &str {
        &self.manifest.image
    }

    /// Facts that were saved beside its machines.
    pub fn more(&self) -> &T {
        &self.manifest.more
    }

    /// Machines of the fleet, by name; files of their own have relative paths.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &Machine)> {
        self.manifest.machines.iter().map(|part| (part.name.as_str(), &part.machine))
    }

    /// Bytes that it takes on the host's disk.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn bytes_on_disk(&self) -> Result<u64, FilesError> {
        let all = self.manifest.machines.iter();
        let all = all.flat_map(|part| part.files.iter().map(|file| self.folder.join(&part.name).join(&file.path)));
        all.map(|path| Ok(fs::metadata(&path).map_err(FilesError::at(&path))?.blocks() * 512)).sum()
    }

    /// Refuses one whose files are not as they were saved. Reads all that were hashed; of others it looks at the length.
    ///
    /// # Errors
    /// [`RestoreError::Files`]
    pub fn is_whole(&self) -> Result<(), RestoreError> {
        for part in &self.manifest.machines {
            let folder = self.folder.join(&part.name);
            files::are_there(&folder, &part.files)?;
            files::check(&folder, &part.files)?;
        }
        Ok(())
    }

    /// Refuses another image than the one that its machines boot.
    ///
    /// # Errors
    /// [`RestoreError::Image`]
    pub fn is_of(&self, image: &str) -> Result<(), RestoreError> {
        let saved = &self.manifest.image;
        if saved == image { Ok(()) } else { Err(RestoreError::Image { saved: saved.clone(), here: image.to_owned() }) }
    }

    /// All machines as they were saved, one for each place, paused.
    ///
    /// # Errors
    /// [`RestoreError`]
    pub fn restore(&self, places: &[CopyPlace], tie: Tie) -> Result<Vec<Paused>, RestoreError> {
        let parts = self.parts_for(places)?;
        self.fits(&parts)?;
        for CopyPlace { dir, links, .. } in places {
            // Files that copies share must not be written over.
            if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
                return Err(RestoreError::Occupied(dir.clone()));
            }
            // QEMU would take the socket's name away from the one that listens there.
            for link in links {
                if let Link::Stream(cable) = link
                    && !Process::told(cable)?.is_empty()
                {
                    return Err(RestoreError::Taken(cable.clone()));
                }
            }
        }
        let folder = &self.folder;
        let restored: Result<Vec<Paused>, RestoreError> = thread::scope(|threads| {
            // Beside QEMU's start, which takes as long.
            let checks: Vec<_> = parts
                .iter()
                .map(|part| threads.spawn(|| files::check(&folder.join(&part.name), &part.files)))
                .collect();
            let starts: Vec<_> = parts
                .iter()
                .zip(places)
                .map(|(part, place)| threads.spawn(|| part.restore(folder, place, tie)))
                .collect();
            let checks: Vec<_> = checks.into_iter().map(|one| one.join().expect("a panic has been told")).collect();
            let starts: Vec<_> = starts.into_iter().map(|one| one.join().expect("a panic has been told")).collect();
            // A changed file is why QEMU does not start, and not the other way round.
            checks.into_iter().collect::<Result<Vec<()>, _>>()?;
            starts.into_iter().collect()
        });
        if restored.is_err() {
            for place in places {
                // What cannot be removed is its caller's to remove, as is the directory that it is in.
                let _removed = fs::remove_dir_all(&place.dir);
            }
        }
        restored
    }

    /// Waits until its machines, which were `restored`, have stood still for so long that each of them notices. One that was saved a
    /// moment ago could, or could not.
    pub fn lies_long_enough(&self, restored: &[Paused]) {
        if let Some(first) = restored.first() {
            let lay = || (since_1970().as_secs() >= self.manifest.made.unix_seconds + NOTICED).then_some(());
            // A clock of the host that was set back is no reason to wait for it.
            let _lay = first.until(Deadline::after(Duration::from_secs(NOTICED)), lay);
        }
    }

    /// The machine of each place.
    fn parts_for(&self, places: &[CopyPlace]) -> Result<Vec<&SavedMachine>, RestoreError> {
        let saved = &self.manifest.machines;
        let given: BTreeSet<&str> = places.iter().map(|place| place.name.as_str()).collect();
        let parts: Vec<_> =
            places.iter().filter_map(|place| saved.iter().find(|part| part.name == place.name)).collect();
        if given.len() != places.len() || parts.len() != places.len() || parts.len() != saved.len() {
            return Err(RestoreError::Places {
                given: places.iter().map(|place| place.name.clone()).collect(),
                saved: saved.iter().map(|part| part.name.clone()).collect(),
            });
        }
        for (part, place) in parts.iter().zip(places) {
            let (cards, links) = (part.machine.nics.len(), place.links.len());
            if cards != links {
                return Err(RestoreError::Links { name: part.name.clone(), cards, links });
            }
        }
        Ok(parts)
    }

    /// Whether this host and this version restore it.
    fn fits(&self, parts: &[&SavedMachine]) -> Result<(), RestoreError> {
        let saved = &self.manifest.host;
        let here = HostTraits::look(parts.iter().map(|part| &part.machine))?;
        saved.differs_from(&here).map_or(Ok(()), Err)?;
        for part in parts {
            let argv = part.machine.argv(&manifest::board_files(), &saved.as_host());
            if let Some((saved, here)) = first_difference(&part.board, &argv) {
                return Err(RestoreError::Board { name: part.name.clone(), saved, here });
            }
            files::are_there(&self.folder.join(&part.name), &part.files)?;
        }
        let needed_mib = parts.iter().map(|part| u64::from(part.machine.memory_mib)).sum();
        match host::free_mib() {
            Some(free_mib) if needed_mib > free_mib => Err(RestoreError::Memory { needed_mib, free_mib }),
            Some(_) | None => Ok(()),
        }
    }
}

impl SavedMachine {
    fn restore(&self, folder: &Path, place: &CopyPlace, tie: Tie) -> Result<Paused, RestoreError> {
        let folder = folder.join(&self.name);
        files::place(&self.files, &folder, &place.dir)?;
        let mut machine = self.machine.clone().moved(Path::new(""), &place.dir);
        machine.name.clone_from(&place.title);
        machine.clock = place.clock.unwrap_or(machine.clock);
        for (nic, link) in machine.nics.iter_mut().zip(&place.links) {
            nic.link = link.clone();
        }
        files::lay_over(&mut machine, &place.dir)?;
        let memory = Memory { file: &folder.join(MEMORY), serial_from: self.serial_from };
        let run = |source| RestoreError::Run { name: self.name.clone(), source };
        Paused::restore(&machine, &place.dir, tie, memory).map_err(run)
    }
}

/// The first place where two lists of arguments differ; of the shorter one its end.
fn first_difference(saved: &[String], here: &[String]) -> Option<(String, String)> {
    let at = (0..saved.len().max(here.len())).find(|at| saved.get(*at) != here.get(*at))?;
    let shown = |list: &[String]| list.get(at).cloned().unwrap_or_else(|| "nothing more".to_owned());
    Some((shown(saved), shown(here)))
}

/// Whether a path stays below the directory that it is looked up from.
fn stays_below(path: &Path) -> bool {
    path.components().count() > 0 && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a file is not there.
fn not_there(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_two_boards_is_named() {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let difference = |a: &str, b: &str| first_difference(&list(a), &list(b));
        assert_eq!(difference("-m 1", "-m 1"), None);
        assert_eq!(difference("-m 1 -s", "-m 2"), Some(("1".into(), "2".into())));
        assert_eq!(difference("-m 1", "-m 1 -s"), Some(("nothing more".into(), "-s".into())));
    }

    #[test]
    fn no_path_leads_out_of_a_folder() {
        for inside in ["disk.img", "tpm/state"] {
            assert!(stays_below(Path::new(inside)), "{inside}");
        }
        for outside in ["", "/disk", "../disk", "tpm/../../disk", "./disk"] {
            assert!(!stays_below(Path::new(outside)), "{outside}");
        }
    }
}
