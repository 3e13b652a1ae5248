//! `cluster …`: clusters this host knows, and virtual ones it runs.

mod connect;
mod coordinators;
mod create;
mod destroy;
mod each;
mod init;
pub(crate) mod joining;
mod kubernetes;
mod link;
mod list;
mod making;
mod proxy;
mod reach;
mod recover;

mod restore;
mod save;
mod saved;
mod start;
mod status;
mod stop;
mod waiting;

use std::io::Write;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use model::NodeName;

use crate::complete;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::store::ClusterName;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a cluster of virtual machines on this host
    Create(create::Arguments),
    /// Have a blank machine create a cluster, by the code on its screen
    Init(init::Init),
    /// Know a cluster whose owner has added you, by the text that they give you
    Connect(connect::Arguments),
    /// Add a virtual machine to a cluster of such
    Add(create::Add),
    /// List the clusters this host knows
    List,
    /// Show a cluster and its machines in short
    Status(Named),
    /// Start a cluster's virtual machines that are off, and their network
    Start(Named),
    /// Have a cluster's virtual machines power themselves off
    Stop(stop::Arguments),
    /// Save a cluster of virtual machines that runs, to have it back in seconds
    Save(save::Arguments),
    /// List saved clusters
    Saved,
    /// Remove a saved cluster
    Forget(saved::Forget),
    /// Pull, mend or spoil the cable of a virtual machine
    Link(link::Arguments),
    /// Lead programs of this host into a cluster's virtual network
    Proxy(Named),
    /// Go on with what one coordinator has, when too many others are lost
    Recover(recover::Arguments),
    /// Have Kubernetes be as a snapshot has it
    Restore(kubernetes::Restore),
    /// End a cluster's virtual machines and forget all about the cluster
    Destroy(destroy::Arguments),
}

/// A cluster named behind the command; before it, `--cluster` says the same.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The cluster, as by --cluster; not needed while there is only one
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::clusters))]
    name: Option<ClusterName>,
}

/// A machine is named for what is done to a whole cluster.
#[derive(Debug, thiserror::Error)]
#[error("machine `{0}` is named, and this is about a cluster as a whole")]
pub(crate) struct SurplusMachine(NodeName);

impl Advice for SurplusMachine {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("leave out --machine".to_owned())
    }
}

impl Command {
    fn name(&self) -> Option<&ClusterName> {
        match self {
            Self::Create(arguments) => arguments.name(),
            Self::Init(arguments) => arguments.name(),
            Self::Connect(arguments) => arguments.name(),
            Self::Status(named) | Self::Start(named) | Self::Proxy(named) => named.name.as_ref(),
            Self::Stop(arguments) => arguments.name(),
            Self::Save(arguments) => arguments.name(),
            Self::Destroy(arguments) => arguments.name(),
            Self::Add(arguments) => arguments.name(),
            Self::List | Self::Saved | Self::Forget(_) | Self::Link(_) | Self::Recover(_) | Self::Restore(_) => None,
        }
    }
}

pub(crate) async fn run(command: &Command, context: Context, out: &mut dyn Write) -> Result<(), Failure> {
    let context = &context.meaning(command.name())?;
    if let (
        Command::Create(_)
        | Command::Connect(_)
        | Command::Add(_)
        | Command::List
        | Command::Save(_)
        | Command::Saved
        | Command::Forget(_)
        | Command::Recover(_)
        | Command::Restore(_)
        | Command::Destroy(_),
        Some(machine),
    ) = (command, &context.machine)
    {
        return Err(SurplusMachine(machine.clone()).into());
    }
    match command {
        Command::Create(arguments) => create::run(arguments, context, out).await,
        Command::Init(arguments) => init::run(arguments, context, out).await,
        Command::Connect(arguments) => connect::run(arguments, context, out).await,
        Command::Add(arguments) => create::add(arguments, context, out).await,
        Command::Link(arguments) => link::run(arguments, context, out),
        Command::List => list::run(context, out).await,
        Command::Proxy(_) => proxy::run(context, out),
        Command::Recover(arguments) => recover::run(arguments, context, out).await,
        Command::Restore(arguments) => arguments.run(context, out).await,
        Command::Status(_) => status::run(context, out).await,
        Command::Save(arguments) => save::run(arguments, context, out),
        Command::Saved => saved::list(context, out),
        Command::Forget(arguments) => saved::forget(arguments, context, out),
        Command::Start(named) => start::run(named, context, out),
        Command::Stop(arguments) => stop::run(arguments, context, out),
        Command::Destroy(arguments) => destroy::run(arguments, context, out),
    }
}
