//! `image …`: files of a build of Cairn, and container images in the stores of machines.

mod import;
mod inspect;
mod store;

use std::io::Write;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;
use crate::screen::Format;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what a file of a build is, and what is in it
    Inspect(inspect::Inspect),
    /// The container images, by machine or by file
    #[command(flatten)]
    Containers(Containers),
}

/// Commands about the container images of machines.
#[derive(Debug, Subcommand)]
pub(crate) enum Containers {
    /// Take the container images of an archive into a machine's store
    Import(import::Import),
    /// The container images of a machine's store
    List,
    /// Take a container image from a machine's store
    Remove(store::Remove),
}

/// Runs what needs neither keys nor a machine.
pub(crate) fn inspect(arguments: &inspect::Inspect, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    inspect::run(arguments, format, out)
}

pub(crate) async fn run(command: &Containers, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Containers::Import(arguments) => import::run(arguments, context, out).await,
        Containers::List => store::list(context, out).await,
        Containers::Remove(arguments) => store::remove(arguments, context, out).await,
    }
}
