//! Runs the cases that the command line asks for.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Two runs at a time need two places for their files.
    let out = std::env::var_os("CAIRN_CASES_DIR").map(PathBuf::from);
    let out = out.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vm"));
    tests::run(tests::TABLES, &out)
}
