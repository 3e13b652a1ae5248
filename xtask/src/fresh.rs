//! `cargo xtask fresh`: carries a command out in a fresh Debian root, where nothing is installed but what the README's first
//! command and the table of packages name. So a package that a developer's machine happens to have is not missed here.
//!
//! ```text
//! cargo xtask fresh          the person's process; who waits. Its end, however it comes, closes a pipe
//!   └─ keeper                lock, root from the cache, clone, files; removes the root whatever happens
//!        └─ unshare          private namespaces of mounts and processes
//!             └─ stage       first process there: binds, mounts, enters the root; ends with the pipe, and all with it
//!                  └─ …      README's first command, then `cargo xtask …` in the clone
//! ```
//! It must never mount anything where others see it, install anything but what was named, nor run beside itself.

mod asked;
mod environment;
mod keeper;
mod readme;
mod stage;

use std::{
    env, fs,
    io::PipeWriter,
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail};

use self::asked::{INSIDE, RELEASE};
pub use self::{
    asked::{FreshOptions, KEEPER, STAGE},
    keeper::keep,
    stage::perform,
};
use crate::{packages::BecomeRoot, packages::root, workspace::Workspace};

/// How `cargo xtask fresh` is used.
pub const USAGE: &str = "\
Carry a command out in a fresh Debian root; without one, the README's test command

Usage: cargo xtask fresh [--cold] [-- COMMAND [OPTION]…]

  --cold   also without Cairn's cache and cargo's target folder, so that everything is built there

For example: cargo xtask fresh -- up --exit
What is not committed is left out. What still runs there ends with the command, and the root is removed.
";

/// Whether this is one.
#[must_use]
pub fn is_here() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Why a fresh root cannot be made here, if it cannot.
///
/// # Errors
/// `id` cannot be started.
pub fn obstacle() -> Result<Option<&'static str>> {
    let inside = is_here();
    let root = root()? == Some(BecomeRoot::Already);
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "true"]).stdin(Stdio::null()).stderr(Stdio::null());
    let namespaces = || unshare.status().is_ok_and(|status| status.success());
    Ok(decide(inside, root, &release, namespaces))
}

/// The same, from what was seen.
fn decide(inside: bool, root: bool, release: &str, namespaces: impl FnOnce() -> bool) -> Option<&'static str> {
    let debian = release.lines().any(|line| line == format!("VERSION_CODENAME={RELEASE}"));
    if inside {
        Some("this is a fresh root already")
    } else if !root {
        Some("this user is not root")
    } else if !debian {
        Some("this is not Debian 12, whose package lists it would take")
    } else if !namespaces() {
        Some("this machine lets nobody have a private mount namespace (`unshare --mount --pid` fails)")
    } else {
        None
    }
}

/// Starts the keeper and waits for it.
///
/// # Errors
/// There cannot be a fresh root here; the keeper cannot be started.
pub fn run(workspace: &Workspace, asked: &FreshOptions) -> Result<ExitCode> {
    if let Some(obstacle) = obstacle()? {
        bail!("a fresh root cannot be made here: {obstacle}");
    }
    let (end, alive): (_, PipeWriter) = std::io::pipe().context("make a pipe")?;
    let mut keeper = Command::new(env::current_exe().context("find this program")?);
    keeper.arg(KEEPER).args(asked.words()).current_dir(workspace.root()).stdin(end);
    // A group of its own: Ctrl-C ends this process, and the keeper goes on to clean up.
    let status = keeper.process_group(0).status().context("start the keeper of the fresh root")?;
    drop(alive); // was open as long as anybody waited
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_root_is_made_where_it_can_or_the_reason_is_said() {
        let bookworm = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(decide(false, true, bookworm, || true), None);
        let reasons = [
            decide(true, true, bookworm, || true),
            decide(false, false, bookworm, || true),
            decide(false, true, "VERSION_CODENAME=trixie\n", || true),
            decide(false, true, bookworm, || false),
        ];
        for (reason, word) in reasons.into_iter().zip(["already", "not root", "Debian 12", "unshare"]) {
            assert!(reason.is_some_and(|reason| reason.contains(word)), "{reason:?}");
        }
    }
}
