//! The program `cairnctl`. It must never do anything beside the library's [`cairnctl::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    cairnctl::run()
}
