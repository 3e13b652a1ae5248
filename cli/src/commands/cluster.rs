//! `cluster …`: clusters this host knows, and virtual ones it runs.

mod create;
mod destroy;
mod list;
mod status;

use std::io::Write;

use clap::Subcommand;

use super::Context;
use crate::failure::Failure;
use crate::screen;
use crate::virtual_machine::VirtualMachineError;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a cluster of one virtual machine on this host
    Create(create::Arguments),
    /// List the clusters this host knows
    List,
    /// Show a cluster and its machine in short
    Status,
    /// Start a cluster's virtual machine that was powered off
    Start,
    /// End a cluster's virtual machine and forget all about the cluster
    Destroy(destroy::Arguments),
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Create(arguments) => create::run(arguments, context, out).await,
        Command::List => list::run(context, out).await,
        Command::Status => status::run(context, out).await,
        Command::Start => start(context, out),
        Command::Destroy(arguments) => destroy::run(arguments, context, out),
    }
}

fn start(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let name = context.cluster()?.name;
    let lock = context.store.lock(&name)?;
    let mut record = context.store.load(&name)?;
    let machine = record.virtual_machine.as_ref().ok_or(VirtualMachineError::Hardware { name: name.clone() })?;
    machine.fits_host()?;
    let address = machine.start(&name, &context.store.machine_directory(&name))?;
    record.address = Some(address.to_string());
    context.store.save(&record, &lock)?;
    let next = format!("the machine of `{name}` starts; to wait for it: cairnctl -c {name} condition wait Running");
    Ok(screen::did(context.format, out, &next)?)
}
