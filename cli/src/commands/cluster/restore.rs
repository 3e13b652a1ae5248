//! `cluster create --from`: a saved cluster comes back under a name of its own, on a network of its own.
//!
//! ```text
//!   saved: whose, which image ► directories ► network, with all addresses given ► machines, paused ► record ► go on
//! ```
//! What fails before they go on takes away again what was made.

use std::path::Path;
use std::time::Duration;

use api::MachineStatus;
use qemu::machine::Link;
use qemu::run::{RunError, Tie};
use qemu::saved::CopyPlace;

use super::each;
use super::making;
use super::reach::Reach;
use super::waiting::{unless_lost, until_running};
use crate::clock::Deadline;
use crate::context::Context;
use crate::failure::Failure;
use crate::saved_cluster::{self, SavedCluster, SavedError, SavedName};
use crate::screen::Progress;
use crate::store::{ClusterName, Locked, Store};
use crate::virtual_machine::{self, VirtualMachineError};
use crate::virtual_network::{self, Leases, TakenPort};

/// A saved cluster that is to come back.
#[derive(Debug)]
pub(super) struct Restoring<'a> {
    /// Name of the new cluster on this host.
    pub name: &'a ClusterName,
    /// The saved one.
    pub from: &'a SavedName,
    /// An image that it has to be of, where one was named.
    pub image: Option<&'a Path>,
    /// Ways between its network and the host's: those of the saved one may be in use.
    pub reach: &'a Reach,
}

/// The network finds machines at its cables within a moment; this only bounds a wait for what is broken.
const PLUGS: Duration = Duration::from_secs(5);

impl Restoring<'_> {
    /// Brings the cluster back and waits until its machines say themselves that they run; each by its place in the
    /// record.
    pub(super) async fn run(
        &self,
        context: &Context,
        deadline: &Deadline,
        progress: &mut Progress,
    ) -> Result<Vec<(usize, MachineStatus)>, Failure> {
        let (store, name) = (&context.store, self.name);
        {
            let folder = self.from.folder(store);
            let lock = store.lock(name)?;
            let _saved_lock = store.share_saved(&folder)?;
            let saved = SavedCluster::open(&folder).map_err(SavedError::of(self.from))?;
            saved_cluster::is_owned(&saved, self.from, &store.owner()?)?;
            if let Some(image) = self.image {
                let root_hash = virtual_machine::manifest(image)?.verity.root_hash;
                saved.is_of(&root_hash).map_err(SavedError::of(self.from))?;
            }
            store.free(name, &lock)?;
            making::take_leftovers(name, store, &lock)?;
            let restored = self.restore(&saved, store, &lock, progress);
            restored.map_err(|failure| making::take_back(name, store, &lock, failure))?;
        }
        progress.done("the machines go on");
        let record = store.load(name)?;
        let waits = record.machines().iter().enumerate().map(|(number, machine)| {
            let context = context.about(name, &machine.name);
            let directory = store.machine_directory(name, &machine.name);
            let mut progress = progress.of(Some(machine.name.as_str()));
            async move {
                let up = until_running(&context, &directory, deadline, &mut progress);
                Ok((number, unless_lost(&directory, up).await?))
            }
        });
        each::all(waits).await.into_iter().collect()
    }

    fn restore(
        &self,
        saved: &SavedCluster,
        store: &Store,
        lock: &Locked,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        store.begin(self.name, lock)?;
        let mut record = saved.more().record.clone();
        record.name = self.name.clone();
        let saved_network =
            record.network.take().ok_or_else(|| VirtualMachineError::Hardware { name: record.name.clone() })?;
        let network = self.reach.network(saved_network.seed)?;
        record.network = Some(network.clone());
        for machine in record.machines() {
            store.begin_machine(self.name, &machine.name, lock)?;
        }
        progress.show("start the virtual network");
        let up = virtual_network::up(store, &mut record, &network, Leases::OfAll, TakenPort::Refused)?;
        let machines = record.machines().iter().zip(&up.sockets);
        let places: Vec<_> = machines
            .map(|(machine, socket)| CopyPlace {
                name: machine.name.to_string(),
                title: virtual_machine::title(self.name, &machine.name),
                dir: store.machine_directory(self.name, &machine.name),
                links: vec![Link::Stream(socket.clone())],
                clock: None,
            })
            .collect();
        progress.show("restore the machines");
        let paused = saved.restore(&places, Tie::Detached).map_err(SavedError::of(self.from))?;
        for machine in record.machines_mut() {
            if let Some(virtual_machine) = &mut machine.virtual_machine {
                virtual_machine.overlays += 1;
            }
        }
        virtual_network::capture(&up.network, store, &record)?;
        // Before any of them runs: whatever happens from here on, every other command works as well.
        store.save(&record, lock)?;
        // One that is not there in time is as one whose cable was pulled for a moment.
        let _plugged = up.network.all_plugged_in(qemu::Deadline::after(PLUGS));
        saved.lies_long_enough(&paused);
        for (machine, paused) in paused.into_iter().enumerate() {
            paused.go_on().map(drop).map_err(|error: RunError| {
                let failure = Failure::from(VirtualMachineError::from(error));
                failure.leaving(format!("{} does not go on", record.called(machine)))
            })?;
        }
        Ok(())
    }
}
