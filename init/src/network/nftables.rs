//! The kernel's nf_tables, by the program `nft` of this image: all that a text in nftables' language says is done, or nothing. A
//! child does it, so that the language, which is needed for a moment, takes no memory of PID 1's.

use std::fs;
use std::io;

use services::Limits;
use sys::process::Privileges;

use crate::runtime::child::{Children, Command, CompletionError};

/// The program, as the image has it.
const PROGRAM: &str = "/bin/nft";
/// The name its lines have in the log.
const SERVICE: &str = "nft";
/// Bounds of the program, which needs 2 MiB for a table of PID 1's; the rest is room.
const LIMITS: Limits = Limits { memory: 64 << 20, pids: 8 };

/// Where the text lies that was performed last, or was refused: one a table, each of which somebody else changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextFile {
    /// Text of the filter by links.
    Filter,
    /// Text of what policies say of pods.
    Policies,
}

/// Why a text is not in force; nothing of it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The text cannot be written down for the program.
    #[error("write `{0}`")]
    Write(&'static str, #[source] io::Error),
    /// The program failed.
    #[error("set what `{0}` says")]
    Program(&'static str, #[source] CompletionError),
}

impl TextFile {
    const fn path(self) -> &'static str {
        match self {
            Self::Filter => "/run/cairn/filter.nft",
            Self::Policies => "/run/cairn/policies.nft",
        }
    }
}

/// Has the kernel do what `text` says.
///
/// # Errors
/// [`Error`]; then nothing of the text was done.
pub(super) async fn perform(children: &Children, file: TextFile, text: &str) -> Result<(), Error> {
    let path = file.path();
    fs::write(path, text).map_err(|error| Error::Write(path, error))?;
    let command = Command {
        path: PROGRAM.to_owned(),
        argv: ["nft", "--file", path].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        privileges: Privileges::Fixed,
        limits: LIMITS,
        apart: None,
    };
    children.complete(SERVICE, &command).await.map_err(|error| Error::Program(path, error))
}
