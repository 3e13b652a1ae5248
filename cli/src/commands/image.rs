//! `image inspect`: says what a file of a build is, and what is in it.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use image::inspect::{InspectError, inspect};

use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::screen::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what a file of a build is, and what is in it
    #[command(
        after_help = "Examples:\n  cairnctl image inspect out/image\n  cairnctl image inspect -o json out/image/cairn.efi"
    )]
    Inspect {
        /// A kernel, initramfs, unified kernel, root, disk, or a directory of them
        file: PathBuf,
    },
}

/// A file that cannot be explained.
#[derive(Debug, thiserror::Error)]
#[error("inspect `{file}`")]
pub(crate) struct NotInspected {
    file: PathBuf,
    source: InspectError,
}

impl Advice for NotInspected {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        if self.file.exists() { Code::Failed } else { Code::NotFound }
    }
}

pub(crate) fn run(command: &Command, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let Command::Inspect { file } = command;
    let report = inspect(file).map_err(|source| NotInspected { file: file.clone(), source })?;
    match format {
        Format::Json => screen::json(out, &report)?,
        Format::Table => writeln!(out, "{}", report.to_string().trim_end())?,
    }
    Ok(())
}
