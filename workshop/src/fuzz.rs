//! Searching for inputs that panic a parser, by hand. It builds and starts the program that searches (`fuzz/src/main.rs`),
//! which is not linked here: an input may abort it, and this tool must not be rebuilt for each change of a parser.

use std::process::Command;

use anyhow::{Context, Result};
use xtask::{process::shown, workspace::Workspace};

/// `cargo xtask fuzz`: everything behind it is the program's own.
///
/// # Errors
/// It does not compile, or an input panicked or ended it.
pub(crate) fn search(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let keep = workspace.target().join("fuzz");
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--locked", "--package", "fuzz", "--"]).arg("--keep").arg(&keep).args(arguments);
    let running = keep.join("TARGET.running");
    shown(&mut cargo).with_context(|| format!("the input of a search that was cut short is in `{}`", running.display()))
}
