//! `machine …`: the machines of a cluster, and one of them, by its public API.

pub(crate) mod activate;
mod change;
mod drain;
mod erase;
pub(super) mod list;
mod logs;
mod metrics;
mod reboot;
mod services;
mod status;
mod timeline;

use std::io::Write;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;
use crate::screen;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The machines of the cluster: role, state, version, addresses, last seen
    ///
    /// Where no coordinator answers, what this host keeps of them is listed, and
    /// the command ends with the code of that.
    List,
    /// Have a blank machine join the cluster, by the code on its screen
    Activate(activate::Activate),
    /// Give a machine a role, take it, or erase what is left of it
    #[command(subcommand)]
    Role(change::Role),
    /// Make a coordinator of a machine that joined by a ticket of that role
    Approve(change::Approve),
    /// Take a machine out of the cluster
    Remove(change::Remove),
    /// Have the pods of a machine run elsewhere, and new ones too
    Drain(drain::Drain),
    /// Have a machine's disk locked with another cluster key, from its next start on
    RotateKey(change::RotateKey),
    /// All that is known about the machine
    Status,
    /// Log entries of services, oldest first
    Logs(logs::Arguments),
    /// The supervised services; restart one
    Services(services::Arguments),
    /// Numbers of the machine, or of one of its services, in OpenMetrics
    Metrics(metrics::Arguments),
    /// When this boot reached what
    Timeline,
    /// Stop pods and services in order, then boot again
    Reboot(reboot::Arguments),
    /// Stop pods and services in order, then power off
    Poweroff,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::List => list::run(context, out).await,
        Command::Activate(arguments) => activate::run(arguments, context, out).await,
        Command::Role(role) => change::role(role, context, out).await,
        Command::Approve(arguments) => change::approve(arguments, context, out).await,
        Command::Remove(arguments) => change::remove(arguments, context, out).await,
        Command::Drain(arguments) => change::drain(arguments, context, out).await,
        Command::RotateKey(arguments) => change::rotate_key(arguments, context, out).await,
        Command::Status => status::run(context, out).await,
        Command::Logs(arguments) => logs::run(arguments, context, out).await,
        Command::Services(arguments) => services::run(arguments, context, out).await,
        Command::Metrics(arguments) => metrics::run(arguments, context, out).await,
        Command::Timeline => timeline::run(context, out).await,
        Command::Reboot(arguments) => reboot::run(arguments, context, out).await,
        Command::Poweroff => {
            let (mut session, meant) = context.open().await?;
            session.power_off().await?;
            Ok(screen::did(context.format, out, &format!("{} powers off", meant.called()))?)
        }
    }
}
