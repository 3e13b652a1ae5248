//! `cluster start`: the virtual machine again, with the disk and the TPM it has; one that runs is found.

use std::io::Write;

use crate::commands::Context;
use crate::failure::Failure;
use crate::screen;
use crate::store::{ClusterRecord, Locked, VirtualMachine};
use crate::virtual_machine::{self, VirtualMachineError};

pub(crate) fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let name = context.cluster()?.name;
    let lock = context.store.lock(&name)?;
    let mut record = context.store.load(&name)?;
    let machine = record.machine().virtual_machine.clone();
    let machine = machine.ok_or_else(|| VirtualMachineError::Hardware { name: name.clone() })?;
    let did = if start(&machine, &mut record, context, &lock)? { "starts" } else { "runs already" };
    let next = format!("the machine of `{name}` {did}; to wait for it: cairnctl -c {name} condition wait Running");
    Ok(screen::did(context.format, out, &next)?)
}

/// Whether it did not run before. Either way the record says where it answers: a start that was cut short leaves a machine
/// that nobody finds.
fn start(
    machine: &VirtualMachine,
    record: &mut ClusterRecord,
    context: &Context,
    lock: &Locked,
) -> Result<bool, Failure> {
    let name = record.name.clone();
    let directory = context.store.machine_directory(&name);
    let runs = virtual_machine::found(&directory)
        .map_err(|error| Failure::from(error).leaving("the machine that runs goes on as before"))?;
    let (address, starts) = match runs {
        Some(address) => (address, false),
        None => {
            machine.fits_host()?;
            (machine.start(&name, &directory)?, true)
        }
    };
    if record.machine().address.as_ref() != Some(&address.to_string()) {
        record.machine_mut().address = Some(address.to_string());
        context.store.save(record, lock).map_err(|error| {
            let left = format!("the machine runs, and answers at {address}, which could not be noted");
            Failure::from(error).leaving(left).going_on(format!("cairnctl cluster start {name}"))
        })?;
    }
    Ok(starts)
}
