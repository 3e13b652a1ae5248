//! `enrol config`: a signed config for hardware; of a cluster's first machine, which the cluster then awaits, or of one that
//! joins by ticket.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use keys::ticket::{BadTicketText, Ticket};
use model::{ConfigDigest, NodeName};

use super::out_file::OutFile;
use super::secret_input;
use crate::context::Context;
use crate::enrolment::{self, Becomes, Choices, EnrolmentError, Founding, SignedConfig, StaticNetwork, Wanted};
use crate::failure::{Advice, Code, Failure};
use crate::screen;
use crate::store::{ClusterName, ClusterRecord, Locked, Owner, Store};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a signed config that makes a machine create a cluster, or join one by ticket
    Config(Config),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl enrol config --name office --out enrolment.pb
  put the file on the machine's ESP as cairn/enrolment.pb, boot the machine
  cairnctl --cluster office --address 192.0.2.10 machine status

A machine that joins:
  cairnctl --cluster office ticket issue --out ticket
  cairnctl enrol config --ticket ticket --out enrolment.pb

The file holds a secret that proves the machine at first contact: whoever has
read it can play the machine until then. It is good for one machine.")]
pub(crate) struct Config {
    #[command(flatten)]
    file: OutFile,
    /// The cluster's name on this host [default: that of --cluster, else hardware]
    #[arg(long, value_name = "NAME")]
    name: Option<ClusterName>,
    /// The ticket by which the machine joins a cluster there is, instead of creating one: a file, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "Founding"])]
    ticket: Option<PathBuf>,
    /// The machine's host and node name; made from its id without it
    #[arg(long, value_name = "NAME", value_parser = enrolment::node_name)]
    node_name: Option<NodeName>,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    founding: Founding,
    #[command(flatten)]
    network: StaticNetwork,
}

impl Config {
    fn sign(&self, becomes: Becomes<'_>, owner: &Owner) -> Result<SignedConfig, EnrolmentError> {
        let Self { choices, network, node_name, .. } = self;
        enrolment::sign(Wanted { choices, node: node_name.as_ref(), network: Some(network), at: None, becomes }, owner)
    }
}

pub(crate) fn run(command: &Command, context: Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Command::Config(config) = command;
    if let Some(ticket) = &config.ticket {
        return join(config, ticket, &context, out);
    }
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
    let secret = store.begin_first_machine(name, &ClusterRecord::first_name(), lock)?;
    let signed = config.sign(Becomes::First(&config.founding, secret), &store.owner_or_new()?)?;
    config.file.write(&signed.bytes)?;
    Ok(signed.digest)
}

/// Why there is no config for a machine that joins.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// No ticket's text.
    #[error("read the ticket in {0}")]
    Read(String, #[source] io::Error),
    /// A text that is no ticket.
    #[error("understand the ticket in {0}")]
    Ticket(String, #[source] BadTicketText),
}

impl Advice for JoinError {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        "no config was written"
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Ticket(..) => Some("issue one: cairnctl ticket issue".to_owned()),
            Self::Read(..) => None,
        }
    }
}

/// A config for a machine that joins. Nothing here awaits it: the cluster knows of it once it has joined.
fn join(config: &Config, ticket: &Path, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    config.file.check_free()?;
    let ticket = read_ticket(ticket)?;
    let owner = context.store.owner()?;
    let signed = config.sign(Becomes::Joins(&ticket), &owner)?;
    config.file.write(&signed.bytes)?;
    let (file, place) = (config.file.path().display(), enrol::config::CONFIG_PATH);
    let did = format!("wrote {file}: put it on the machine's ESP as {place}, boot, then\n  cairnctl machine list");
    Ok(screen::did(context.format, out, &did)?)
}

/// A ticket as it was pasted.
pub(crate) fn ticket_of_text(text: &str) -> Result<Ticket, JoinError> {
    Ticket::from_text(text).map_err(|bad| JoinError::Ticket("the command line".to_owned(), bad))
}

/// A ticket in a file; `-` is a line of standard input.
pub(crate) fn read_ticket(path: &Path) -> Result<Ticket, JoinError> {
    let place = path.display().to_string();
    let text = secret_input::read(path, "ticket").map_err(|error| JoinError::Read(place.clone(), error))?;
    Ticket::from_text(&text).map_err(|bad| JoinError::Ticket(place, bad))
}
