//! Searching for what tests did not find, by hand: inputs that panic a parser, worlds that break a law, what a cluster does not come back from. It builds and starts
//! the programs that search (`fuzz/src/main.rs`, `campaign/src/main.rs`), which are not linked here: an input may abort one,
//! and this tool must not be rebuilt for each change of what is searched.

use std::process::Command;

use ::image::ImageProfile;
use anyhow::{Context, Result};
use xtask::{cache::BuildCache, process::shown, workspace::Workspace};

use crate::{ci, programs};

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

/// `cargo xtask campaign`: the same, with an image and the owner's tool for one of machines.
///
/// # Errors
/// It does not compile, or something was found.
pub(crate) fn campaign(workspace: &Workspace, cache: &BuildCache, arguments: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--locked", "--package", "campaign", "--"]).args(arguments);
    let only_tells = |argument: &String| ["--plan", "--help", "-h"].contains(&argument.as_str());
    let image = match arguments.first().map(String::as_str) {
        Some("cluster") => Some(("CAIRN_IMAGE_DIR", ImageProfile::Release)),
        // The machine itself says where its files lie.
        Some("disks") => Some(("CAIRN_DEBUG_IMAGE_DIR", ImageProfile::Debug)),
        Some(_) | None => None,
    };
    if let Some((variable, profile)) = image.filter(|_| !arguments.iter().any(only_tells)) {
        cargo.env(variable, ci::image_under_test(workspace, cache, profile)?);
        cargo.env("CAIRN_CAIRNCTL", programs::cairnctl(workspace)?);
    }
    shown(&mut cargo)
}
