//! Searching for what tests did not find, by hand: inputs that panic a parser, worlds that break a law. It builds and starts
//! the programs that search (`fuzz/src/main.rs`, `campaign/src/main.rs`), which are not linked here: an input may abort one,
//! and this tool must not be rebuilt for each change of what is searched.

use std::process::Command;

use anyhow::{Context, Result};
use xtask::{process::shown, workspace::Workspace};

/// `cargo xtask fuzz`: everything behind it is the program's own.
///
/// # Errors
/// It does not compile, or an input panicked or ended it.
pub(crate) fn fuzz(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let keep = workspace.target().join("fuzz");
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--locked", "--package", "fuzz", "--"]).arg("--keep").arg(&keep).args(arguments);
    let running = keep.join("TARGET.running");
    shown(&mut cargo).with_context(|| format!("the input of a search that was cut short is in `{}`", running.display()))
}

/// `cargo xtask campaign`: the same.
///
/// # Errors
/// It does not compile, or a law was broken.
pub(crate) fn campaign(arguments: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--locked", "--package", "campaign", "--"]).args(arguments);
    shown(&mut cargo)
}
