//! Saved fleets, and copies of them for cases: machines and their owner's directory, saved in the run's folder and
//! copied from there. What the machines are to each other, the case's own library says (`Fleet`, `Victim`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use qemu::machine::{Clock, Link};
use qemu::run::{Paused, Tie};
use qemu::saved::{Care, CopyPlace, SaveRequest, SavedFleet, Then, save};
use qemu::{Deadline, Vm};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::owner::Owner;
use crate::plan::MachinePlan;
use crate::{Context, FleetKind, Image};

/// A copy of a fleet whose machines stand still: what else it needs comes to be, then they go on.
#[derive(Debug)]
pub struct FleetCopy<T> {
    /// Data that was saved beside the machines.
    pub more: T,
    /// The owner, who knows the machines.
    pub owner: Owner,
    /// Another clock on the boards of its machines, where a case wants one.
    pub clock: Option<Clock>,
    saved: SavedFleet<T>,
    image: Image,
    dir: PathBuf,
}

/// A machine of a copy.
#[derive(Debug)]
pub struct CopiedMachine {
    /// Plan of the machine, to start it again.
    pub plan: MachinePlan,
    /// The machine, which runs.
    pub vm: Vm,
}

impl Context {
    /// Saves machines as the fleet that this case makes; they stand still then. `image` is what they boot.
    ///
    /// # Errors
    /// When a file cannot be written, or a machine not be saved.
    pub fn save<T: Serialize>(
        &self,
        kind: FleetKind,
        image: &Image,
        owner: &Owner,
        machines: &mut [(&str, &mut Vm)],
        more: T,
    ) -> anyhow::Result<()> {
        save_in(&self.fleet(kind), image, owner, machines, more).with_context(|| format!("save the fleet `{kind}`"))
    }

    /// A copy of the fleet that this case starts from. `image` is what its machines boot.
    ///
    /// # Errors
    /// When it was saved of another image, or a file cannot be read.
    pub fn copy<T: DeserializeOwned + Clone>(&self, kind: FleetKind, image: &Image) -> anyhow::Result<FleetCopy<T>> {
        FleetCopy::of(&self.fleet(kind), image, self.dir()).with_context(|| format!("open the fleet `{kind}`"))
    }
}

/// Saves machines and their owner's directory in a folder that is not there yet; they stand still then.
///
/// # Errors
/// When a file cannot be written, or a machine not be saved.
pub fn save_in<T: Serialize>(
    folder: &Path,
    image: &Image,
    owner: &Owner,
    machines: &mut [(&str, &mut Vm)],
    more: T,
) -> anyhow::Result<()> {
    let parent = folder.parent().context("a fleet's folder has a parent")?;
    fs::create_dir_all(parent).context("make the folder of fleets")?;
    keep_owner(owner, folder)?;
    let care = Care::ThisRun;
    let saving = SaveRequest { image: image.root_hash(), made_by: "tests", care, then: Then::Stand, more };
    Ok(save(folder, machines, saving, &|_| {})?)
}

impl<T: DeserializeOwned + Clone> FleetCopy<T> {
    /// Opens a copy of what was saved in `folder`, with its files below `dir`.
    ///
    /// # Errors
    /// When it was saved of another image, or a file cannot be read.
    pub fn of(folder: &Path, image: &Image, dir: &Path) -> anyhow::Result<Self> {
        let saved = SavedFleet::open(folder)?;
        saved.is_of(image.root_hash())?;
        let (owner, more) = (owner_of(folder, dir)?, T::clone(saved.more()));
        let (image, dir) = (image.clone(), dir.to_owned());
        Ok(Self { more, owner, clock: None, saved, image, dir })
    }
}

impl<T> FleetCopy<T> {
    /// Lets all its machines go on at one moment, each with its cards linked to what `links` says for its name and for the links
    /// that it was saved with. They are waited with until the cables are `plugged_in`, since what is sent before is lost.
    ///
    /// # Errors
    /// When one does not come back.
    pub fn go_on(
        &self,
        links: impl Fn(&str, &[Link]) -> Vec<Link>,
        plugged_in: impl Fn() -> bool,
    ) -> anyhow::Result<BTreeMap<String, CopiedMachine>> {
        let place = |(name, machine): (&str, &qemu::Machine)| {
            let before: Vec<Link> = machine.nics.iter().map(|nic| nic.link.clone()).collect();
            let (title, dir) = (name.to_owned(), self.dir.join(name));
            CopyPlace { name: name.to_owned(), title, dir, links: links(name, &before), clock: self.clock }
        };
        let places: Vec<CopyPlace> = self.saved.machines().map(place).collect();
        let paused = self.saved.restore(&places, Tie::Launcher).context("restore a fleet")?;
        if let Some(first) = paused.first() {
            // A case that needs a cable sees that it is not there.
            let _plugged = first.until(Deadline::after(PLUGS), || plugged_in().then_some(()));
        }
        self.saved.lies_long_enough(&paused);
        let machines = places.into_iter().zip(paused).map(|(place, paused): (CopyPlace, Paused)| {
            let vm = paused.go_on().with_context(|| format!("`{}` does not go on", place.name))?;
            let machine = vm.machine().context("a machine that was just started is known")?.clone();
            let plan = MachinePlan::of(machine, &self.image, place.dir);
            Ok((place.name, CopiedMachine { plan, vm }))
        });
        machines.collect()
    }
}

/// A network finds machines at its cables within a moment; this only bounds a wait for what is broken.
const PLUGS: Duration = Duration::from_secs(5);

/// Keeps the directory of the machines' owner beside the fleet in `folder`.
pub(crate) fn keep_owner(owner: &Owner, folder: &Path) -> anyhow::Result<()> {
    copy_tree(owner.home(), &owners(folder)).context("save the owner's directory")
}

/// The owner of the fleet in `folder`, with a directory of its own in `dir`.
pub(crate) fn owner_of(folder: &Path, dir: &Path) -> anyhow::Result<Owner> {
    let home = dir.join("owner");
    copy_tree(&owners(folder), &home).context("copy the owner's directory")?;
    Owner::new(home)
}

/// Where the owner's directory lies beside a fleet.
fn owners(folder: &Path) -> PathBuf {
    folder.with_extension("owner")
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    ensure!(!to.exists(), "`{}` is there already", to.display());
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
