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
/// Where the text lies that was performed last, or was refused.
const TEXT: &str = "/run/cairn/filter.nft";

/// Why a text is not in force; nothing of it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The text cannot be written down for the program.
    #[error("write `{TEXT}`")]
    Write(#[source] io::Error),
    /// The program failed.
    #[error("set what `{TEXT}` says")]
    Program(#[from] CompletionError),
}

/// Has the kernel do what `text` says.
///
/// # Errors
/// [`Error`]; then nothing of the text was done.
pub(crate) async fn perform(children: &Children, text: &str) -> Result<(), Error> {
    fs::write(TEXT, text).map_err(Error::Write)?;
    let command = Command {
        path: PROGRAM.to_owned(),
        argv: ["nft", "--file", TEXT].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        privileges: Privileges::Fixed,
        limits: LIMITS,
        apart: None,
    };
    Ok(children.complete(SERVICE, &command).await?)
}
