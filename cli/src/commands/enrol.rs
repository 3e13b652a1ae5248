//! `enrol config`: a signed config for hardware, and a cluster that awaits its machine.

use std::io::Write;

use clap::{Args, Subcommand};
use model::ConfigDigest;

use super::Context;
use super::out_file::OutFile;
use crate::enrolment::{self, Choices, StaticNetwork};
use crate::failure::Failure;
use crate::screen;
use crate::store::{ClusterName, ClusterRecord, Locked, Store};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a signed config that makes a machine create a cluster
    Config(Config),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl enrol config --name office --out enrolment.pb
  put the file on the machine's ESP as cairn/enrolment.pb, boot the machine
  cairnctl --cluster office --address 192.0.2.10 machine status

The file holds a secret that proves the machine at first contact: whoever has
read it can play the machine until then. It is good for one machine.")]
pub(crate) struct Config {
    #[command(flatten)]
    file: OutFile,
    /// The cluster's name on this host [default: that of --cluster, else hardware]
    #[arg(long, value_name = "NAME")]
    name: Option<ClusterName>,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    network: StaticNetwork,
}

pub(crate) fn run(command: &Command, context: Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Command::Config(config) = command;
    let context = &context.meaning(config.name.as_ref())?;
    let store = &context.store;
    config.file.check_free()?;
    let name = context.new_name("hardware")?;
    let lock = store.lock(&name)?;
    store.free(&name, &lock)?;
    let digest = begin(config, store, &name, &lock).map_err(|failure| {
        match store.remove(&name, &lock) {
            Ok(()) => failure.leaving("no config was written"),
            // A directory without a record is no cluster, and the next attempt takes it over.
            Err(_) => failure.leaving(format!("no config was written; {} is left", store.directory(&name).display())),
        }
    })?;
    let mut record = ClusterRecord::of_config(name.clone(), digest);
    record.machines_mut()[0].address = context.address.as_ref().map(ToString::to_string);
    let (file, place) = (config.file.path().display(), enrol::config::CONFIG_PATH);
    store.save(&record, &lock).map_err(|error| {
        let left = format!("wrote {file}, but nothing awaits its machine: do not use it");
        Failure::from(error).leaving(left).going_on("write another one, over it: --force")
    })?;
    let did = format!(
        "wrote {file}: put it on the machine's ESP as {place}, boot, then\n  \
         cairnctl -c {name} --address HOST machine status"
    );
    Ok(screen::did(context.format, out, &did)?)
}

/// Writes the config. The file before the record: a record whose config was never written would await nobody.
fn begin(config: &Config, store: &Store, name: &ClusterName, lock: &Locked) -> Result<ConfigDigest, Failure> {
    store.begin(name, lock)?;
    // As the record will call it.
    let secret = store.begin_machine(name, &ClusterRecord::first_name(), lock)?;
    let signed = enrolment::sign(&config.choices, Some(&config.network), secret, &store.owner_or_new()?)?;
    config.file.write(&signed.bytes)?;
    Ok(signed.digest)
}
