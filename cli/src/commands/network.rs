//! The process of a cluster's virtual network. Other commands start it; a person has no use for it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use qemu::network::control::server::{self, ServeError};

use crate::failure::{Advice, Failure, NOTHING};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where its record and its log are
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Seed that decides what chance does to frames
    #[arg(long, value_name = "N")]
    seed: u64,
}

impl Advice for ServeError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match server::serve(&arguments.directory, arguments.seed)? {}
}
