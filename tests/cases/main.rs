//! The tables of cases. How to add one: see `src/lib.rs`.

use std::path::Path;
use std::process::ExitCode;

mod workshop;

fn main() -> ExitCode {
    tests::run(&[workshop::CASES], &Path::new(env!("CARGO_TARGET_TMPDIR")).join("vm"))
}
