//! `cargo xtask campaign`: goes on with what tests do for a short while, until time is over or something is found: worlds of the
//! simulator, or what a seed brings to real machines. The seed is printed; the same seed does the same again. It must never
//! choose by anything but the seed what happens.

use std::{
    env, fmt,
    hash::{BuildHasher, RandomState},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ::image::ImageProfile;
use ::tests::campaign::{Events, KubeEvents, KubeMachines, Length, campaign, disks, kube_campaign};
use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use xtask::{cache::BuildCache, progress::say, workspace::Workspace};

use crate::{ci, components, programs};

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
    Cluster(Machines),
    /// Virtual machines that run Kubernetes, the same under somebody who makes objects and visits a StatefulSet's pods
    Kube {
        #[command(flatten)]
        options: Machines,
        /// So many: 3 control planes, or 2, of which one is a worker alone, as two processors without KVM can carry them
        #[arg(long, value_name = "NUMBER", default_value = "3", value_parser = kube_machines)]
        machines: KubeMachines,
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

/// Options of a campaign of machines.
#[derive(Debug, Args)]
pub(crate) struct Machines {
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
        Campaign::Cluster(machines) => {
            let live = |seed, length, out: &Path| campaign(seed, length, out, |line| say(line));
            machines.live(workspace, cache, ("cluster", &[HostTool::Cairnctl]), Events::of, live)
        }
        Campaign::Kube { options, machines } => {
            let live = |seed, length, out: &Path| kube_campaign(seed, machines, length, out, |line| say(line));
            let name = match machines {
                KubeMachines::Two => "kube --machines 2",
                KubeMachines::Three => "kube",
            };
            let tools = [HostTool::Cairnctl, HostTool::Kubectl];
            options.live(workspace, cache, (name, &tools), |seed| KubeEvents::of(seed, machines), live)
        }
        Campaign::Disks { flips, seed, out } => {
            let variables = ["CAIRN_IMAGE_DIR", "CAIRN_DEBUG_IMAGE_DIR"]; // its machine itself says where its files lie
            with_what_it_needs(workspace, cache, &variables, ImageProfile::Debug, &[HostTool::Cairnctl])?;
            let seed = seed.unwrap_or_else(drawn);
            say(format_args!("seed {seed}"));
            let lived = disks(seed, usize::try_from(flips).unwrap_or(usize::MAX), &out, |line| say(line));
            lived.map_err(|error| anyhow!("{error:#}\nagain: cargo xtask campaign disks --seed {seed} --flips {flips}"))
        }
    }
}

impl Machines {
    /// Lives through the events of a seed by `live`, or prints them.
    fn live<E: Iterator<Item: fmt::Display>>(
        self,
        workspace: &Workspace,
        cache: &BuildCache,
        (name, tools): (&str, &[HostTool]),
        events_of: impl FnOnce(u64) -> E,
        live: impl FnOnce(u64, Length, &Path) -> Result<()>,
    ) -> Result<()> {
        let Self { lasts, events, seed, plan, out } = self;
        if !plan {
            with_what_it_needs(workspace, cache, &["CAIRN_IMAGE_DIR"], ImageProfile::Release, tools)?;
        }
        let seed = seed.unwrap_or_else(drawn);
        say(format_args!("seed {seed}"));
        if plan {
            let events = events_of(seed).take(events.unwrap_or_default()).enumerate();
            events.for_each(|(number, event)| say(format_args!("{:>6}. {event}", number + 1)));
            return Ok(());
        }
        let lived = live(seed, events.map_or(Length::Time(lasts), Length::Events), &out);
        lived.map_err(|error| anyhow!("{error:#}\nagain: cargo xtask campaign {name} --seed {seed}"))
    }
}

/// A program of the host that machines are asked by.
#[derive(Debug, Clone, Copy)]
enum HostTool {
    Cairnctl,
    Kubectl,
}

impl HostTool {
    const fn variable(self) -> &'static str {
        match self {
            Self::Cairnctl => "CAIRN_CAIRNCTL",
            Self::Kubectl => "CAIRN_KUBECTL",
        }
    }

    fn built(self, workspace: &Workspace, cache: &BuildCache) -> Result<PathBuf> {
        match self {
            Self::Cairnctl => programs::cairnctl(workspace),
            Self::Kubectl => components::kubectl(workspace, cache),
        }
    }
}

/// Goes on where the environment names an image and these tools, as it does for cases. Otherwise they are built, and this program
/// starts anew in an environment that names them.
fn with_what_it_needs(
    workspace: &Workspace,
    cache: &BuildCache,
    image_variables: &[&str],
    profile: ImageProfile,
    tools: &[HostTool],
) -> Result<()> {
    let variables = image_variables.iter().copied().chain(tools.iter().map(|tool| tool.variable()));
    if variables.into_iter().all(|variable| env::var_os(variable).is_some()) {
        return Ok(());
    }
    let image = ci::image_under_test(workspace, cache, profile)?;
    let mut itself = Command::new(env::current_exe().context("find this program")?);
    itself.args(env::args_os().skip(1)).envs(image_variables.iter().map(|variable| (variable, &image)));
    for tool in tools {
        itself.env(tool.variable(), tool.built(workspace, cache)?);
    }
    Err(itself.exec()).context("start this program anew")
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

fn kube_machines(text: &str) -> Result<KubeMachines, &'static str> {
    match text {
        "2" => Ok(KubeMachines::Two),
        "3" => Ok(KubeMachines::Three),
        _ => Err("there are 2 or 3"),
    }
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
