//! `enrol config`: a signed config for hardware, and a cluster that awaits its machine.

use std::io::Write;

use clap::{Args, Subcommand};

use super::Context;
use super::out_file::OutFile;
use crate::enrolment::{self, Choices, StaticNetwork};
use crate::failure::Failure;
use crate::screen;
use crate::store::{ClusterName, ClusterRecord};

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

pub(crate) fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Command::Config(config) = command;
    let store = &context.store;
    config.file.check_free()?;
    let name = context.new_name(config.name.as_ref(), "hardware")?;
    let lock = store.lock(&name)?;
    let secret = store.begin(&name, &lock)?;
    let signed = enrolment::sign(&config.choices, Some(&config.network), secret, &store.owner_or_new()?)?;
    // The file first: a record whose config was never written would await nobody.
    config.file.write(&signed.bytes)?;
    let mut record = ClusterRecord::new(name.clone(), signed.digest);
    record.address = context.address.as_ref().map(ToString::to_string);
    store.save(&record, &lock)?;
    let (file, place) = (config.file.path().display(), enrol::config::CONFIG_PATH);
    let did = format!(
        "wrote {file}: put it on the machine's ESP as {place}, boot, then\n  \
         cairnctl -c {name} --address HOST machine status"
    );
    Ok(screen::did(context.format, out, &did)?)
}
