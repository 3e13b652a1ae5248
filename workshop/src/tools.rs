//! Tools from the crate registry that checks need, built once into the cache. It must never use one that happens to be
//! installed: its version would not be the pinned one.

use std::{path::PathBuf, process::Command};

use anyhow::Result;
use xtask::{
    cache::{BuildCache, CacheKey},
    digest::DigestInputs,
    process::{answer, logged},
    progress::step,
};

/// Checks bans, licences and sources of dependencies.
const CARGO_DENY: &str = "0.20.2";

/// The path of cargo-deny, built if it is not in the cache.
///
/// # Errors
/// It cannot be fetched or built.
pub(crate) fn cargo_deny(cache: &BuildCache) -> Result<PathBuf> {
    let rustc = answer(Command::new("rustc").arg("--version"))?;
    let inputs = DigestInputs::new("cargo-deny").text("version", CARGO_DENY).text("rustc", &rustc).finish()?;
    let key = CacheKey { kind: "cargo-deny", inputs };
    let entry = cache.entry(&key, |room| {
        step("cargo-deny", "building (3 to 5 minutes on two cores)", || {
            let mut install = Command::new("cargo");
            install.args(["install", "--locked", "--version", CARGO_DENY, "cargo-deny", "--no-track", "--root"]);
            install.arg(room.out).arg("--target-dir").arg(room.work);
            logged(&mut install, room.log)
        })
    })?;
    Ok(entry.join("bin/cargo-deny"))
}
