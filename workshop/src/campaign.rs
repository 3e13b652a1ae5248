//! `cargo xtask campaign`: goes on with what tests do for a short while, until time is over or something is found: worlds of the
//! simulator, or what a seed brings to real machines. The seed is printed; the same seed does the same again. It must never
//! choose by anything but the seed what happens.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use ::image::ImageProfile;
use ::tests::campaign::{Events, Length, campaign, disks};
use anyhow::{Context, Result, anyhow};
use clap::Subcommand;
use xtask::{cache::BuildCache, progress::say, workspace::Workspace};

use crate::{ci, programs};

/// Kind of campaign, with its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Campaign {
    /// Worlds of the simulator: machines, coordinators and an etcd that fails, in virtual time
    Sim {
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
    },
    /// Five virtual machines of one cluster: cuts, kills, changes of roles, power cuts, under somebody who writes
    Cluster {
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
    },
    /// A lone coordinator, a byte of whose disk is flipped while it is off: it runs or says why not, and never restarts by itself
    Disks {
        /// So many bytes, one at a time
        #[arg(long, value_name = "NUMBER", default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
        flips: u32,
        /// Which bytes follows from it. Without it, others in each run
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Where all files of the machine lie
        #[arg(long, value_name = "DIR", default_value = "target/campaign")]
        out: PathBuf,
    },
}

/// Lives through it.
///
/// # Errors
/// Something that it needs does not compile, or something was found: then with what does the same again.
pub(crate) fn live(workspace: &Workspace, cache: &BuildCache, asked: Campaign) -> Result<()> {
    match asked {
        Campaign::Sim { lasts, seed, worlds, once } => {
            let (unit, number) = match (worlds, once) {
                (Some(worlds), _) => ("worlds", worlds),
                (None, true) => ("once", 1),
                (None, false) => ("seconds", lasts.as_secs()),
            };
            let words = [seed.unwrap_or_else(drawn).to_string(), unit.to_owned(), number.to_string()];
            // Not linked here: it is built alone, without the machines that are.
            programs::run("sim", "campaign", words)
        }
        Campaign::Cluster { events: Some(events), seed, plan: true, .. } => {
            let seed = seed.unwrap_or_else(drawn);
            say(format_args!("seed {seed}"));
            let events = Events::of(seed).take(events).enumerate();
            events.for_each(|(number, event)| say(format_args!("{:>6}. {event}", number + 1)));
            Ok(())
        }
        Campaign::Cluster { lasts, events, seed, out, .. } => {
            with_what_it_needs(workspace, cache, &["CAIRN_IMAGE_DIR"], ImageProfile::Release)?;
            let seed = seed.unwrap_or_else(drawn);
            say(format_args!("seed {seed}"));
            let lived = campaign(seed, events.map_or(Length::Time(lasts), Length::Events), &out, |line| say(line));
            lived.map_err(|error| anyhow!("{error:#}\nagain: cargo xtask campaign cluster --seed {seed}"))
        }
        Campaign::Disks { flips, seed, out } => {
            let variables = ["CAIRN_IMAGE_DIR", "CAIRN_DEBUG_IMAGE_DIR"]; // its machine itself says where its files lie
            with_what_it_needs(workspace, cache, &variables, ImageProfile::Debug)?;
            let seed = seed.unwrap_or_else(drawn);
            say(format_args!("seed {seed}"));
            let lived = disks(seed, usize::try_from(flips).unwrap_or(usize::MAX), &out, |line| say(line));
            lived.map_err(|error| anyhow!("{error:#}\nagain: cargo xtask campaign disks --seed {seed} --flips {flips}"))
        }
    }
}

/// Goes on where the environment names an image and a `cairnctl`, as it does for cases. Otherwise both are built, and this program
/// starts anew in an environment that names them.
fn with_what_it_needs(
    workspace: &Workspace,
    cache: &BuildCache,
    image_variables: &[&str],
    profile: ImageProfile,
) -> Result<()> {
    const CAIRNCTL: &str = "CAIRN_CAIRNCTL";
    if image_variables.iter().chain([&CAIRNCTL]).all(|variable| env::var_os(variable).is_some()) {
        return Ok(());
    }
    let image = ci::image_under_test(workspace, cache, profile)?;
    let mut itself = Command::new(env::current_exe().context("find this program")?);
    itself.args(env::args_os().skip(1)).env(CAIRNCTL, programs::cairnctl(workspace)?);
    Err(itself.envs(image_variables.iter().map(|variable| (variable, &image))).exec())
        .context("start this program anew")
}

/// A seed of few digits: whoever reads it may have to type it.
fn drawn() -> u64 {
    RandomState::new().hash_one("cairn") % 1_000_000_000
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
