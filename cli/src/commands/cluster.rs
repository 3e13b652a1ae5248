//! `cluster …`: clusters this host knows, and virtual ones it runs.

mod create;
mod destroy;
mod list;
mod start;
mod status;
mod stop;

use std::io::Write;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use super::Context;
use crate::complete;
use crate::failure::Failure;
use crate::store::ClusterName;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a cluster of one virtual machine on this host
    Create(create::Arguments),
    /// List the clusters this host knows
    List,
    /// Show a cluster and its machine in short
    Status(Named),
    /// Start a cluster's virtual machine that is off
    Start(Named),
    /// Have a cluster's virtual machine power itself off
    Stop(stop::Arguments),
    /// End a cluster's virtual machine and forget all about the cluster
    Destroy(destroy::Arguments),
}

/// A cluster named behind the command; before it, `--cluster` says the same.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The cluster, as by --cluster; not needed while there is only one
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::clusters))]
    name: Option<ClusterName>,
}

impl Command {
    fn name(&self) -> Option<&ClusterName> {
        match self {
            Self::Create(arguments) => arguments.name(),
            Self::Status(named) | Self::Start(named) => named.name.as_ref(),
            Self::Stop(arguments) => arguments.name(),
            Self::Destroy(arguments) => arguments.name(),
            Self::List => None,
        }
    }
}

pub(crate) async fn run(command: &Command, context: Context, out: &mut dyn Write) -> Result<(), Failure> {
    let context = &context.meaning(command.name())?;
    match command {
        Command::Create(arguments) => create::run(arguments, context, out).await,
        Command::List => list::run(context, out).await,
        Command::Status(_) => status::run(context, out).await,
        Command::Start(_) => start::run(context, out),
        Command::Stop(arguments) => stop::run(arguments, context, out),
        Command::Destroy(arguments) => destroy::run(arguments, context, out),
    }
}
