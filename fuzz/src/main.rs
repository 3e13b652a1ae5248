//! `cargo xtask fuzz`: feeds mutations of the corpus to parsers until time is over, and keeps an input that panics one.
//!
//! Not guided by coverage: that takes libFuzzer and an instrumented build. An input that is accepted joins the pool for
//! this run, so that mutations of mutations get deeper; that is all it learns. It never writes the corpus.

use std::{
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, Write, stderr},
    os::unix::fs::FileExt,
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, value_parser};
use fuzz::corpus::{mutation, seeds};
use fuzz::{FuzzTarget, ParseVerdict, TARGETS};
use testkit::Random;

/// Feeds mutations of the corpus to the parsers of foreign bytes, and keeps what panics one.
/// Blind mutations: they are not guided by coverage.
#[derive(Debug, Parser)]
#[command(name = "fuzz", bin_name = "cargo xtask fuzz", max_term_width = 100)]
struct Arguments {
    /// Which parser; without it, each in turn
    #[arg(value_parser = target)]
    target: Option<&'static FuzzTarget>,
    /// For how long, per parser
    #[arg(long, value_name = "N", default_value = "60", value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// Where the sequence of mutations begins; without it, elsewhere in each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Give this file to the parser, once, and do nothing else
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// Where inputs that panic a parser are kept
    #[arg(long, value_name = "DIR", default_value = "target/fuzz")]
    keep: PathBuf,
}

/// More seeds than this do not make a pool better, and longer ones only slow it down.
const POOL: usize = 4_096;
const LONGEST: usize = 16 << 10;
/// Between two lines about how it goes.
const PROGRESS: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(panicked) => {
            say(format_args!("parsers that panicked: {panicked}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            say(format_args!("error: read the corpus or keep an input: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// How many parsers panicked.
fn run(arguments: &Arguments) -> io::Result<usize> {
    if let (Some(target), Some(file)) = (arguments.target, &arguments.replay) {
        let outcome = (target.run)(&fs::read(file)?);
        say(format_args!("{}: {outcome:?}", target.name));
        return Ok(0);
    }
    fs::create_dir_all(&arguments.keep)?;
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().hash_one("cairn"));
    let targets = arguments.target.map_or(TARGETS, std::slice::from_ref);
    let mut panicked = 0;
    for target in targets {
        panicked += usize::from(search(target, seed, Duration::from_secs(arguments.seconds), &arguments.keep)?);
    }
    Ok(panicked)
}

/// Whether an input panicked this parser; the first one ends the search.
fn search(target: &FuzzTarget, seed: u64, lasts: Duration, keep: &Path) -> io::Result<bool> {
    let mut pool: Vec<Vec<u8>> = seeds(target)?.into_iter().map(|seed| seed.bytes).collect();
    let mut random = Random::new(seed);
    // Every input is written before it runs: one that aborts the process or never ends is in this file.
    let running = keep.join(format!("{}.running", target.name));
    let file = File::create(&running)?;
    let begun = now();
    let (mut executions, mut accepted, mut told) = (0_u64, 0_u64, Duration::ZERO);
    let tell = |passed: Duration, executions: u64, accepted: u64| {
        let rate = u128::from(executions) * 1_000 / passed.as_millis().max(1);
        let seconds = passed.as_secs();
        say(format_args!(
            "{:<16} {seconds:>4} s  {executions:>9} executions  {rate:>7}/s  {accepted:>8} accepted",
            target.name
        ));
    };
    loop {
        let passed = begun.elapsed();
        if passed >= lasts {
            tell(passed, executions, accepted);
            fs::remove_file(running)?;
            return Ok(false);
        }
        if passed - told >= PROGRESS {
            tell(passed, executions, accepted);
            told = passed;
        }
        let mut bytes = mutation(&pool, &mut random);
        bytes.truncate(LONGEST);
        file.set_len(0)?;
        file.write_all_at(&bytes, 0)?;
        executions += 1;
        match catch_unwind(|| (target.run)(&bytes)) {
            Ok(ParseVerdict::Accepted) => {
                accepted += 1;
                if pool.len() < POOL {
                    pool.push(bytes);
                }
            }
            Ok(ParseVerdict::Refused) => {}
            Err(_) => {
                let kept = keep.join(format!("{}-{seed}-{executions}", target.name));
                fs::rename(running, &kept)?;
                say(format_args!("{} panicked on `{}`; run that one again with", target.name, kept.display()));
                say(format_args!("  cargo xtask fuzz {} --replay {}", target.name, kept.display()));
                return Ok(true);
            }
        }
    }
}

fn target(name: &str) -> Result<&'static FuzzTarget, String> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("there are {}", names()))
}

#[expect(clippy::disallowed_methods, reason = "the one place that asks the clock: how long to search, by hand")]
fn now() -> Instant {
    Instant::now()
}

fn say(line: impl std::fmt::Display) {
    // A terminal that is gone is no reason to lose an input.
    let _gone = writeln!(stderr(), "{line}");
}
