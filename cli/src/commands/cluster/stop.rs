//! `cluster stop`: the power buttons of the virtual machines, or their plugs. Disks and TPMs stay: `cluster start` goes on.
//! The network ends with the last machine.

use std::io::Write;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{Named, start};
use crate::context::Context;
use crate::failure::Failure;
use crate::length;
use crate::screen::{self, Progress};
use crate::store::ClusterName;
use crate::{virtual_machine, virtual_network};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster stop home
  cairnctl cluster stop home --now     as a power cut would
  cairnctl cluster stop lab -m m2      only this one of its machines

A machine stops its pods and services in order, within 75 seconds on a host
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
    let (name, store) = (context.cluster()?.name, &context.store);
    let _lock = store.lock(&name)?;
    let record = store.load(&name)?;
    let meant = start::meant(&record, context.machine.as_ref())?;
    let mut running = Vec::new();
    for machine in &meant {
        let directory = store.machine_directory(&name, &record.machines()[*machine].name);
        if virtual_machine::runs(&directory)? {
            running.push((*machine, directory));
        }
    }
    let called = |machines: &[usize]| {
        let called: Vec<String> = machines.iter().map(|machine| record.called(*machine)).collect();
        format!("{} {}", called.join(", "), if called.len() == 1 { "is" } else { "are" })
    };
    let mut progress = Progress::start();
    // All at the same time: each takes as long as its pods do.
    let results: Vec<_> = thread::scope(|threads| {
        let stops: Vec<_> = running
            .iter()
            .map(|(machine, directory)| {
                progress.show(&format!("{} stops", record.called(*machine)));
                threads.spawn(|| match arguments.now {
                    true => virtual_machine::end(directory),
                    false => virtual_machine::stop(directory, arguments.timeout),
                })
            })
            .collect();
        stops.into_iter().map(|stop| stop.join().expect("what has panicked has said so")).collect()
    });
    drop(progress);
    for ((machine, _), result) in running.iter().zip(results) {
        result.map_err(|error| match running.len() {
            1 => Failure::from(error),
            _ => Failure::from(error).leaving(format!("{} not off; the others may be", called(&[*machine]))),
        })?;
    }
    virtual_network::end_if_unused(&store.network_directory(&name), &store.machine_directories(&name)?)
        .map_err(|error| Failure::from(error).leaving(format!("{} off", called(&meant))))?;
    let did = match running.is_empty() {
        true => format!("{} off already", called(&meant)),
        false => {
            let them = if meant.len() == 1 { "it" } else { "them" };
            format!("{} off; to start {them} again: cairnctl cluster start {name}", called(&meant))
        }
    };
    Ok(screen::did(context.format, out, &did)?)
}
