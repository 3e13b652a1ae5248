//! `cairnctl`: what an operator has in hand. Reads like a table of contents; each command has its file in `commands/`.
//!
//! ```text
//!   run ─┬► args ─► complete   what the Tab key asks
//!        └► commands ─► context ─┬─ store    keys and pins in the user's data directory
//!                                ├─ machine  first contact, pinned sessions, tunnels
//!                                ├─ virtual_machine  a cluster's machine on this host
//!                                ├─ saved_cluster    a cluster of such machines in files
//!                                ├─ virtual_network  the process that such machines are on
//!                                └─ screen   tables, JSON, progress
//!   failure: exit codes and errors, printed here and nowhere else
//! ```
//! A library for the system tests alone: they reach machines by the dial of this program. All else of it is run as a person runs it.
//!
//! # Invariants
//! - A machine that carries an owner's bytes to another is believed nothing: `crates/pki/tests/handshakes.rs`
//! - An impostor is sent nothing of a config, and no ticket is issued for it: `cli/src/commands/machine/activate.rs`
//! - One process at a time is a cluster's network; a crashed one is told apart, and machines of two clusters do not hear
//!   each other: `cli/tests/network.rs`

mod args;
mod clock;
mod commands;
mod complete;
mod context;
mod enrolment;
mod failure;
mod length;
mod machine;
mod networks;
mod quantity;
mod run;
mod saved_cluster;
mod screen;
mod store;
mod virtual_machine;
mod virtual_network;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use failure::Code;
pub use machine::{Address, BadAddress, Carries, DialError, Stream, channel, handshake};

/// Does what the command line asks for; how the program ends.
#[must_use]
pub fn run() -> ExitCode {
    if let Some(code) = complete::answer(args::Cli::command) {
        return code;
    }
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to the standard output, errors to the other; if neither can be written nobody is there.
            let _written = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Code::Usage as u8));
        }
    };
    match run::run(cli) {
        Ok(code) => code,
        // `cairnctl … | head` has shown all that somebody wanted to see.
        Err(failure) if failure.is_closed_output() => ExitCode::from(Code::Done as u8),
        Err(failure) => {
            // As above.
            let _written = failure.print(&mut std::io::stderr()).and_then(|()| std::io::stderr().flush());
            ExitCode::from(failure.code() as u8)
        }
    }
}
