//! `cargo xtask campaign`: lives through worlds of the simulator, seed after seed, or through what a seed brings to a cluster of
//! real machines, until time is over or something is found. The seed is printed with the events before it; the same seed does
//! the same again. It must never choose by anything but the seed what happens.

use std::hash::{BuildHasher, RandomState};
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::tests::campaign::{Events, Length};
use clap::{Args, Parser, Subcommand};
use sim::world::{Plan, Report, run};

/// Goes on with what tests do for a short while, until time is over or something is found.
#[derive(Debug, Parser)]
#[command(name = "campaign", bin_name = "cargo xtask campaign", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    campaign: Campaign,
}

#[derive(Debug, Subcommand)]
enum Campaign {
    /// Worlds of the simulator: machines, coordinators and an etcd that fails, in virtual time
    Sim(Sim),
    /// Five virtual machines of one cluster: cuts, kills, changes of roles, power cuts, under somebody who writes
    Cluster(Cluster),
    /// A lone coordinator, a byte of whose disk is flipped while it is off: it runs or says why not, and never restarts by itself
    Disks(Disks),
}

#[derive(Debug, Args)]
struct Sim {
    /// For how long, such as 30s, 10m or 1h
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = time)]
    lasts: Duration,
    /// The first world's seed; the next ones follow it. Without it, elsewhere in each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// So many worlds, of the kind that the tests live through in a tenth of a second each
    #[arg(long, value_name = "N", conflicts_with = "lasts", value_parser = clap::value_parser!(u64).range(1..))]
    worlds: Option<u64>,
    /// Only this one world, of --seed
    #[arg(long, requires = "seed", conflicts_with = "lasts")]
    once: bool,
}

/// When it is over, once a world is.
#[derive(Debug, Clone, Copy)]
enum Over {
    /// After this time.
    Time(Duration),
    /// After so many.
    Worlds(u64),
}

#[derive(Debug, Args)]
struct Cluster {
    /// For how long, such as 10m or 1h; the event that is under way then is ended
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = time, conflicts_with = "events")]
    lasts: Duration,
    /// So many events
    #[arg(long, value_name = "NUMBER")]
    events: Option<usize>,
    /// Number that all events follow from. Without it, another one in each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only print what would happen
    #[arg(long, requires = "events")]
    plan: bool,
    /// Where all files of the machines lie
    #[arg(long, value_name = "DIR", default_value = "target/campaign")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct Disks {
    /// So many bytes, one at a time
    #[arg(long, value_name = "NUMBER", default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    flips: u32,
    /// Which bytes follows from it. Without it, others in each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where all files of the machine lie
    #[arg(long, value_name = "DIR", default_value = "target/campaign")]
    out: PathBuf,
}

/// Between two lines about how it goes.
const PROGRESS: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    // Few digits: whoever reads the seed may have to type it.
    let drawn = || RandomState::new().hash_one("cairn") % 1_000_000_000;
    match Arguments::parse().campaign {
        Campaign::Sim(Sim { lasts, seed, worlds, once }) => {
            let over = match (worlds, once) {
                (Some(worlds), _) => Over::Worlds(worlds),
                (None, true) => Over::Worlds(1),
                (None, false) => Over::Time(lasts),
            };
            let small: fn(u64) -> Plan = |_| Plan::SMALL;
            let worlds = worlds.map_or((plan as fn(u64) -> Plan, "--once"), |_| (small, "--worlds 1"));
            search(seed.unwrap_or_else(drawn), worlds, over)
        }
        Campaign::Cluster(cluster) => machines(&cluster, cluster.seed.unwrap_or_else(drawn)),
        Campaign::Disks(Disks { flips, seed, out }) => {
            let seed = seed.unwrap_or_else(drawn);
            say(format_args!("seed {seed}"));
            let flips = usize::try_from(flips).unwrap_or(usize::MAX);
            let flipped = ::tests::campaign::disks(seed, flips, &out, |line| say(format_args!("{line}")));
            ended(flipped, format_args!("disks --seed {seed} --flips {flips}"))
        }
    }
}

/// How a campaign of machines ended, and how the same is had again.
fn ended(lived: Result<(), impl std::fmt::Display>, again: std::fmt::Arguments<'_>) -> ExitCode {
    match lived {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}\nagain: cargo xtask campaign {again}"));
            ExitCode::FAILURE
        }
    }
}

/// Lives a campaign of five machines, or prints the events of one.
fn machines(cluster: &Cluster, seed: u64) -> ExitCode {
    let Cluster { lasts, events, plan, out, .. } = cluster;
    say(format_args!("seed {seed}"));
    if *plan {
        let events = Events::of(seed).take(events.unwrap_or_default()).enumerate();
        events.for_each(|(number, event)| say(format_args!("{:>6}. {event}", number + 1)));
        return ExitCode::SUCCESS;
    }
    let length = events.map_or(Length::Time(*lasts), Length::Events);
    let lived = ::tests::campaign::campaign(seed, length, out, |line| say(format_args!("{line}")));
    ended(lived, format_args!("cluster --seed {seed}"))
}

/// Lives through one world at least, then through more until it is over.
fn search(first: u64, (plan, again): (fn(u64) -> Plan, &str), over: Over) -> ExitCode {
    let begun = now();
    let (mut told, mut events, mut epochs, mut seed) = (Duration::ZERO, 0, 0, first);
    loop {
        match run(seed, plan(seed)) {
            Ok(Report { events: happened, epochs: stood, .. }) => {
                (events, epochs) = (events + happened, epochs + stood)
            }
            Err(failure) => {
                say(format_args!("{failure}\nagain: cargo xtask campaign sim --seed {seed} {again}"));
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
        let (passed, worlds) = (begun.elapsed(), seed - first);
        let over = match over {
            Over::Time(time) => passed >= time,
            Over::Worlds(all) => worlds >= all,
        };
        if over || passed - told >= PROGRESS {
            told = passed;
            let seconds = passed.as_secs();
            say(format_args!(
                "{seconds:>6} s  {worlds:>7} worlds  {events:>11} events  {epochs:>8} epochs  next seed {seed}"
            ));
        }
        if over {
            say(format_args!("no law was broken"));
            return ExitCode::SUCCESS;
        }
    }
}

/// Size and length of a seed's world: most are small and live long, some are large.
const fn plan(seed: u64) -> Plan {
    match seed % 20 {
        0 => Plan { machines: 400, members: 350, tickets: 10, lasts: 20_000, events: 100_000 },
        1..5 => Plan { machines: 60, members: 0, tickets: 20, lasts: 40_000, events: u64::MAX },
        5..10 => Plan { machines: 7, members: 0, tickets: 6, lasts: 120_000, events: u64::MAX },
        _ => Plan { machines: 29, members: 0, tickets: 12, lasts: 60_000, events: u64::MAX },
    }
}

/// Reads a time: a number and `s`, `m` or `h`.
fn time(text: &str) -> Result<Duration, &'static str> {
    let bad = "a time is a number with s, m or h behind it, such as 10m";
    let (number, seconds) = match text.split_at_checked(text.len().saturating_sub(1)).ok_or(bad)? {
        (number, "s") => (number, 1),
        (number, "m") => (number, 60),
        (number, "h") => (number, 3600),
        _ => return Err(bad),
    };
    let number: u64 = number.parse().map_err(|_| bad)?;
    number.checked_mul(seconds).filter(|all| *all > 0).map(Duration::from_secs).ok_or(bad)
}

#[expect(clippy::disallowed_methods, reason = "a campaign lasts as long as it is told to")]
fn now() -> Instant {
    Instant::now()
}

fn say(line: std::fmt::Arguments<'_>) {
    let _nobody_listens = writeln!(stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        let seconds = |text| time(text).map(|it| it.as_secs());
        assert_eq!((seconds("30s"), seconds("10m"), seconds("2h")), (Ok(30), Ok(600), Ok(7200)));
        for bad in ["", "10", "m", "0s", "-1m", "1d", "1.5h", "99999999999999999999s", "9999999999999999999h", "1µ"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
