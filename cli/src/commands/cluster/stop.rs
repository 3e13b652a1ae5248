//! `cluster stop`: the power button of the virtual machine, or its plug. Disk and TPM stay: `cluster start` goes on.

use std::io::Write;
use std::time::Duration;

use clap::Args;

use super::Named;
use crate::commands::Context;
use crate::failure::Failure;
use crate::length;
use crate::screen::{self, Progress};
use crate::store::ClusterName;
use crate::virtual_machine::{self, VirtualMachineError};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster stop home
  cairnctl cluster stop home --now     as a power cut would

The machine stops its pods and services in order, within 75 seconds on a host
that has time for it. Its data stays; `cluster start` starts it again.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    named: Named,
    /// How long to wait until it is off
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse)]
    timeout: Duration,
    /// Cut its power instead: what it has not written yet is lost
    #[arg(long, conflicts_with = "timeout")]
    now: bool,
}

impl Arguments {
    pub(super) fn name(&self) -> Option<&ClusterName> {
        self.named.name.as_ref()
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let name = context.cluster()?.name;
    let _lock = context.store.lock(&name)?;
    if context.store.load(&name)?.machine().virtual_machine.is_none() {
        return Err(VirtualMachineError::Hardware { name }.into());
    }
    let directory = context.store.machine_directory(&name);
    if !virtual_machine::runs(&directory)? {
        return Ok(screen::did(context.format, out, &format!("the machine of `{name}` is off already"))?);
    }
    if arguments.now {
        virtual_machine::end(&directory)?;
    } else {
        let mut progress = Progress::start();
        progress.show(&format!("the machine of `{name}` stops"));
        virtual_machine::stop(&directory, arguments.timeout)?;
    }
    let did = format!("the machine of `{name}` is off; to start it again: cairnctl cluster start {name}");
    Ok(screen::did(context.format, out, &did)?)
}
