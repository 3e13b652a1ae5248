//! Programs in this binary besides PID 1, each picked by the name that it is called by. A word that one of them does not know is
//! refused, never guessed at.

mod mount;
mod nft;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Failed call of a program.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    /// Line for whoever called.
    text: String,
    code: u8,
}

impl Failure {
    /// Wrong usage, as mount(8) and nft(8) count it.
    const USAGE: u8 = 1;

    fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: Self::USAGE }
    }
}

/// Runs the applet that `arguments` names.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let name = arguments.first().map(|name| Path::new(name).file_name().unwrap_or_default().to_owned());
    let rest = arguments.get(1..).unwrap_or_default();
    let result = match name.as_deref().and_then(OsStr::to_str) {
        Some("mount") => mount::mount(rest),
        Some("umount") => mount::unmount(rest),
        Some("nft") => nft::nft(rest),
        Some(_) | None => Err(Failure::usage("cairn init is PID 1; it is also `mount`, `umount` and `nft`")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { text, code }) => {
            let _stderr_may_be_closed = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(code)
        }
    }
}
