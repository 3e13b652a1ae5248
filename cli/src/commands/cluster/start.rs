//! `cluster start`: the virtual machines again, with the disks and the TPMs they have, and their network; what runs is found.
//! Also what `create` and `add` start by, and what takes all down again.

use std::io::Write;

use model::NodeName;
use qemu::host;
use qemu::network::control::PortForward;

use super::Named;
use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Progress};
use crate::store::{ClusterName, ClusterRecord, Locked, Store};
use crate::virtual_machine::{self, Place, VirtualMachineError};
use crate::virtual_network::{self, Leases, TakenPort, UpError};

/// Machines that were to run, and what became of them.
#[derive(Debug)]
pub(super) struct Started {
    /// For each, in the order they were asked for.
    pub machines: Vec<Did>,
    /// Whether the network had ended while machines ran on.
    pub was_lost: bool,
    /// Ports of the host's loopback that lead nowhere now.
    pub taken: Vec<PortForward>,
}

/// State in which a machine that was to run was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    /// The machine was off.
    Starts,
    /// The machine stood still: somebody was killed while saving it.
    GoesOn,
    /// The machine ran.
    RunsAlready,
}

impl Did {
    const fn word(self) -> &'static str {
        match self {
            Self::Starts => "starts",
            Self::GoesOn => "stood still, and goes on",
            Self::RunsAlready => "runs already",
        }
    }
}

pub(crate) fn run(_named: &Named, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let name = context.cluster()?.name;
    let lock = context.store.lock(&name)?;
    let mut record = context.store.load(&name)?;
    let meant = meant(&record, context.machine.as_ref())?;
    needs_no_more_than_there_is(&record, &meant, &context.store)?;
    let started = start(&mut record, &meant, &context.store, &lock, TakenPort::Told, &mut Progress::start())?;
    let all = meant.iter().zip(&started.machines);
    let all: Vec<String> = all.map(|(machine, did)| format!("{} {}", record.called(*machine), did.word())).collect();
    let taken = started.taken.iter().map(|PortForward { host, .. }| {
        format!("; somebody else listens on 127.0.0.1:{host}, which leads nowhere until it is free at a start")
    });
    let taken: String = taken.collect();
    let again = if started.was_lost { "; its virtual network had ended, and is back" } else { "" };
    let (it, one) = if record.machines().len() > 1 { ("each", " -m NAME") } else { ("it", "") };
    let next =
        format!("{}{again}{taken}; to wait for {it}: cairnctl -c {name}{one} condition wait Running", all.join(", "));
    Ok(screen::did(context.format, out, &next)?)
}

/// The virtual machines that a command is about: the one that is named, else all.
pub(super) fn meant(record: &ClusterRecord, machine: Option<&NodeName>) -> Result<Vec<usize>, Failure> {
    if record.network.is_none() {
        return Err(VirtualMachineError::Hardware { name: record.name.clone() }.into());
    }
    Ok(match machine {
        Some(_) => vec![record.meant(machine).map_err(crate::store::StoreError::from)?],
        None => (0..record.machines().len()).collect(),
    })
}

/// Refuses machines that the host has no memory left for.
fn needs_no_more_than_there_is(record: &ClusterRecord, machines: &[usize], store: &Store) -> Result<(), Failure> {
    let mut wanted = Vec::new();
    for machine in machines.iter().map(|machine| &record.machines()[*machine]) {
        if let Some(virtual_machine) = &machine.virtual_machine
            && !virtual_machine::runs(&store.machine_directory(&record.name, &machine.name))?
        {
            wanted.push(virtual_machine.memory_mib);
        }
    }
    let largest = wanted.iter().copied().max().unwrap_or_default();
    Ok(virtual_machine::fits_beside(wanted.len(), largest, false, host::free_mib())?)
}

/// Starts these machines and the network of all. The record says where each answers, also where it ran already: a start
/// that was cut short leaves machines that nobody finds.
pub(super) fn start(
    record: &mut ClusterRecord,
    machines: &[usize],
    store: &Store,
    lock: &Locked,
    port: TakenPort,
    progress: &mut Progress,
) -> Result<Started, Failure> {
    let name = record.name.clone();
    let network = record.network.clone().ok_or_else(|| VirtualMachineError::Hardware { name: name.clone() })?;
    for machine in machines {
        if let Some(virtual_machine) = &record.machines()[*machine].virtual_machine {
            virtual_machine.fits_host()?;
        }
    }
    progress.show("start the virtual network");
    let before = record.clone();
    let up = virtual_network::up(store, record, &network, Leases::OfThoseThatRun, port)?;
    virtual_network::capture(&up.network, store, record)?;
    if *record != before {
        store.save(record, lock).map_err(|error| {
            let left = "the virtual network runs, and where it leads to could not be noted";
            Failure::from(error).leaving(left).going_on(format!("cairnctl cluster start {name}"))
        })?;
    }
    let mut did = Vec::new();
    for machine in machines {
        let one = &record.machines()[*machine];
        let virtual_machine = one.virtual_machine.as_ref();
        let virtual_machine = virtual_machine.ok_or_else(|| VirtualMachineError::Hardware { name: name.clone() })?;
        let directory = &store.machine_directory(&name, &one.name);
        if virtual_machine::runs(directory)? {
            did.push(if virtual_machine::wake(directory)? { Did::GoesOn } else { Did::RunsAlready });
        } else {
            progress.show(&format!("start {}", one.name));
            let number = u8::try_from(machine + 1).unwrap_or(u8::MAX);
            let socket = &up.sockets[*machine];
            virtual_machine.start(&Place { cluster: &name, name: &one.name, number, directory, socket })?;
            did.push(Did::Starts);
        }
    }
    progress.done(if did.len() == 1 { "the machine starts" } else { "the machines start" });
    Ok(Started { machines: did, was_lost: up.was_lost, taken: up.taken })
}

/// Ends all that runs of a cluster, whatever its record says: machines first, then their network.
pub(super) fn end_all(store: &Store, name: &ClusterName) -> Result<(), Failure> {
    let machines = store.machine_directories(name)?;
    for machine in &machines {
        virtual_machine::end(machine)?;
    }
    virtual_network::end_if_unused(&store.network_directory(name), &machines)
        .map_err(|error: UpError| Failure::from(error).leaving("its machines have ended"))
}
