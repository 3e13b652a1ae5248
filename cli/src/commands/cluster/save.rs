//! `cluster save`: a cluster of virtual machines that runs, written to files from which it comes back in seconds.

use std::cell::RefCell;
use std::io::Write;

use clap::Args;
use qemu::Vm;
use qemu::saved::{Care, SaveError, SaveRequest, SaveStep, Then, save};

use super::{Named, start};
use crate::context::Context;
use crate::failure::Failure;
use crate::saved_cluster::{Beside, SavedError, SavedName, owner_key};
use crate::screen::{self, Progress};
use crate::store::{ClusterRecord, Store};
use crate::virtual_machine::VirtualMachineError;

/// Program and version that a saved cluster is made by.
const MADE_BY: &str = concat!("cairnctl ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster save lab
  cairnctl cluster save lab --as three --stop
  cairnctl cluster create other --from three

Memory, disks and TPMs of all its machines are written to one folder, which
holds their keys in clear: only you may enter it. The machines stand still for
a second or two, then go on. Whatever is made of it later, is the same machines
with the same keys.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    named: Named,
    /// Name of the saved cluster, or a folder (a path with a slash) [default: the cluster's name]
    #[arg(long = "as", value_name = "SAVED")]
    saved: Option<SavedName>,
    /// Leave the cluster off, as it was saved, instead of letting it go on
    #[arg(long)]
    stop: bool,
}

impl Arguments {
    pub(super) fn name(&self) -> Option<&crate::store::ClusterName> {
        self.named.name.as_ref()
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (cluster, store) = (context.cluster()?.name, &context.store);
    let saved = arguments.saved.clone().unwrap_or_else(|| SavedName::Name(cluster.clone()));
    let folder = saved.folder(store);
    let _lock = store.lock(&cluster)?;
    let _saved_lock = store.lock_saved(&folder)?;
    let record = store.load(&cluster)?;
    let failed = |source| SavedError::Save { cluster: cluster.clone(), source };
    if folder.exists() {
        return Err(failed(SaveError::Exists(folder)).into());
    }
    let mut machines = attached(&record, store)?;
    let image = image_of(&record);
    let owner = owner_key(&store.owner()?);
    let progress = RefCell::new(Progress::start());
    let tell = |step: SaveStep| {
        let mut progress = progress.borrow_mut();
        match step {
            SaveStep::Stopped => progress.show("all machines stand still: memory, disks and TPMs are copied"),
            SaveStep::Copied if arguments.stop => progress.done("copied"),
            SaveStep::Copied => progress.done("copied, and the machines go on"),
            SaveStep::Syncing => progress.show("hash the files, and wait for the host's disk"),
        }
    };
    let then = if arguments.stop { Then::Stand } else { Then::GoOn };
    let saving =
        SaveRequest { image: &image, made_by: MADE_BY, care: Care::Lasting, then, more: Beside { record, owner } };
    let mut named: Vec<_> = machines.iter_mut().map(|(name, vm)| (name.as_str(), vm)).collect();
    save(&folder, &mut named, saving, &tell).map_err(failed)?;
    drop(progress);
    if arguments.stop {
        machines.into_iter().for_each(|(_, vm)| vm.kill());
        start::end_all(store, &cluster)
            .map_err(|failure| failure.leaving(format!("cluster `{cluster}` is saved as `{saved}`")))?;
    }
    let did = if arguments.stop { " and is off" } else { "" };
    let next = format!("another one like it: cairnctl cluster create NAME --from {saved}");
    Ok(screen::did(context.format, out, &format!("cluster `{cluster}` is saved as `{saved}`{did}; {next}"))?)
}

/// All machines of the cluster; each runs, and its owner has met it.
fn attached(record: &ClusterRecord, store: &Store) -> Result<Vec<(String, Vm)>, Failure> {
    let mut machines = Vec::new();
    for meant in start::meant(record, None)? {
        let machine = &record.machines()[meant];
        let (cluster, name) = (record.name.clone(), machine.name.clone());
        let vm = Vm::attach(&store.machine_directory(&cluster, &name)).map_err(VirtualMachineError::from)?;
        let Some(vm) = vm else { return Err(SavedError::Off { cluster, machine: name }.into()) };
        if record.pins(meant).is_none() {
            return Err(SavedError::NotMet { cluster, machine: name }.into());
        }
        machines.push((name.as_str().to_owned(), vm));
    }
    Ok(machines)
}

/// The image of its first machine; a machine that was added later may have another.
fn image_of(record: &ClusterRecord) -> String {
    record.machines()[0].virtual_machine.as_ref().map_or_else(String::new, |machine| machine.image.clone())
}
