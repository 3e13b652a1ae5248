//! The guest: programs that tests start inside a machine, each of which does one thing that no service should. Only the debug
//! image has it. It knows the machine as whoever took a service over would know it, and so must never name `init`.

mod dns;
mod etcd;
mod meshed;
mod misbehave;
mod netlink;
mod nft;
mod places;
mod secrets;
mod tpm;
mod volume;

use std::io::{self, Write};
use std::process::ExitCode;

/// Exit code for a word that stands for no program.
const UNKNOWN: u8 = 2;

fn main() -> ExitCode {
    run(std::env::args().nth(1).as_deref())
}

/// Runs the program that this word stands for.
fn run(program: Option<&str>) -> ExitCode {
    let result = match program {
        Some("exit") => return ExitCode::FAILURE,
        Some("connections") => misbehave::connections(),
        Some("deaf") => misbehave::deaf(),
        Some("flood") => misbehave::flood(),
        Some("greedy") => misbehave::greedy(),
        Some("bomb") => misbehave::bomb(),
        Some("hog") => misbehave::hog(),
        Some("bounds") => misbehave::bounds(),
        Some("calls") => misbehave::calls(),
        Some("reaches") => misbehave::reaches(),
        Some("watches") => misbehave::watches(),
        Some("clings") => misbehave::clings(),
        Some("asks") => dns::asks(),
        Some("fills") => volume::fills(),
        Some("trace") => misbehave::trace(),
        Some("idle") => misbehave::idle(),
        Some("latency") => misbehave::latency(),
        Some("processes") => misbehave::processes(),
        Some("orphans") => misbehave::orphans(),
        Some("unreaped") => misbehave::unreaped(),
        Some("unseal") => tpm::unseal(),
        Some("tpm") => tpm::attack(),
        Some("etcd") => etcd::ask(),
        Some("full") => etcd::full(),
        Some("secrets") => secrets::all(),
        Some("places") => places::all(),
        Some("nft") => nft::tried(),
        Some("router") => netlink::router(),
        Some("foreign") => netlink::foreign(),
        Some("returns") => meshed::returns(),
        Some("carries") => meshed::carries(),
        Some(_) | None => return ExitCode::from(UNKNOWN),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line that tests read.
fn say(line: &str) {
    let _nobody_may_read_it = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_no_program_is_refused() {
        for word in [None, Some(""), Some("test-tpm"), Some("tpm "), Some("other")] {
            assert_eq!(format!("{:?}", run(word)), format!("{:?}", ExitCode::from(UNKNOWN)), "{word:?}");
        }
    }
}
