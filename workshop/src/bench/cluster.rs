//! `cargo xtask bench cluster`: clusters of virtual machines as `cairnctl` makes them, steered by it alone; what is measured
//! is what the machines themselves say on their consoles, by their own clocks where it is one machine's matter.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ::image::ImageProfile;
use ::tests::Stranger;
use anyhow::{Context, Result, bail};
use benches::cluster::{Span, Spans, Took, peers, resident_of_five, said};
use clap::Args;
use qemu::{Deadline, Vm, deadline::Stopwatch};
use serde_json::Value;
use xtask::{
    cache::BuildCache,
    process::answer,
    progress::{say, talking_step},
    workspace::Workspace,
};

use super::site;
use crate::{
    image::{self, Wanted},
    owner,
    programs::{self, Build},
};

/// The cluster, by its owner's name for it.
const CLUSTER: &str = "bench";
/// Options of `cairnctl` for every machine.
const MACHINE: [&str; 6] = ["--level", "encrypted", "--cpus", "1", "--memory", "512M"];
const COORDINATORS: [&str; 3] = ["m1", "m2", "m3"];
/// The machine that comes later, and stays.
const FURTHER: &str = "m4";
/// The one after it, which is removed again.
const REMOVED: &str = "m5";

const VOTER: &str = "etcd's members are changed step=Promote";
const MEMBER: &str = "announced to a coordinator";
const RECORDS: &str = "the cluster's records are read";

/// A machine says within this what it says at all.
const SAYS: Duration = Duration::from_secs(300);

/// How clusters are measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Clusters, one after the other
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How to compile the machine's own programs
    #[arg(long, value_enum, default_value = "release")]
    build: Build,
    /// Where the image and the artefacts of each cluster go
    #[arg(long, value_name = "DIR", default_value = "out/bench-cluster")]
    out: PathBuf,
}

/// Builds, makes clusters, prints; fails when a limit is broken.
///
/// # Errors
/// Any step's; a broken limit.
pub(crate) fn cluster(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<()> {
    let out = workspace.root().join(&options.out);
    let image = |profile: ImageProfile, folder: &str| -> Result<PathBuf> {
        let (wanted, image) = (Wanted::plain(profile, options.build), out.join(folder));
        image::build(workspace, cache, &wanted, &image)?;
        Ok(image)
    };
    let (release, debug) = (image(ImageProfile::Release, "image")?, image(ImageProfile::Debug, "debug-image")?);
    let cairnctl = programs::cairnctl(workspace)?;
    let owner = |folder: &str, image: &Path| Owner {
        cairnctl: cairnctl.clone(),
        home: out.join(folder),
        image: image.to_string_lossy().into_owned(),
    };
    let mut spans = Spans::default();
    for run in 1..=options.runs {
        owner(&format!("run-{run}"), &release).in_a_cluster(|owner| owner.measure(run, &mut spans))?;
    }
    let resident = talking_step("memory of PID 1", "five machines of the debug profile", || {
        owner("memory", &debug).in_a_cluster(Owner::resident)
    })?;
    say("\nseconds [CPU seconds of all QEMU], medians; 1 processor and 512 MiB for each machine");
    for span in Span::ALL {
        let Some(Took { uptime, cpu }) = spans.median(span) else { continue };
        let cpu = cpu.map_or(String::new(), |cpu| format!(" [{:.1}]", cpu.as_secs_f64()));
        say(format_args!("  {:<34}{:>9.1}{cpu}", span.what(), uptime.as_secs_f64()));
    }
    let findings = [spans.findings(), vec![resident_of_five(resident)]].concat();
    for finding in &findings {
        say(finding.line());
    }
    if findings.iter().all(benches::verdict::Figure::holds) { Ok(()) } else { bail!("a limit is broken") }
}

/// Owner of a cluster, with a home of their own.
struct Owner {
    cairnctl: PathBuf,
    home: PathBuf,
    image: String,
}

impl Owner {
    /// Does something in a home of its own, and ends the cluster that it made there. What failed stays, switched off.
    fn in_a_cluster<T>(&self, measure: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        if self.home.exists() {
            // What a bench that was ended left running; mostly there is nothing.
            let _destroyed_or_not_there = self.ask(&["cluster", "destroy", CLUSTER, "--yes"]);
        }
        site::fresh(&self.home)?;
        let measured = measure(self);
        let end: &[&str] = if measured.is_ok() { &["destroy", CLUSTER, "--yes"] } else { &["stop", CLUSTER, "--now"] };
        let ended = self.ask(&[&["cluster"], end].concat());
        let measured = measured?;
        ended?;
        Ok(measured)
    }

    /// The command that makes a cluster of so many machines, three of which coordinate.
    fn create<'a>(&'a self, machines: &'a str) -> Vec<&'a str> {
        let create = ["cluster", "create", CLUSTER, "--machines", machines, "--coordinators", "3", "--no-kubernetes"];
        [&create[..], &["--image", &self.image], &MACHINE].concat()
    }

    /// Resident memory of PID 1 of one of three coordinators of five machines, in kilobytes.
    fn resident(&self) -> Result<u64> {
        self.ask(&self.create("5"))?;
        self.have_peers(4)?;
        let status: Value = serde_json::from_str(&self.ask(&["-o", "json", "cluster", "status", CLUSTER])?)?;
        let row = status["machines"].as_array().into_iter().flatten().find(|row| row["machine"] == COORDINATORS[0]);
        let address = row.and_then(|row| row["address"].as_str()?.parse().ok()).context("find the first machine")?;
        site::resident(Stranger::call_at(address, Some(&owner::key(&self.home)?))?)
    }

    /// Measures a cluster, from its first machine to its cold start.
    fn measure(&self, run: u32, spans: &mut Spans) -> Result<()> {
        let step = |span: Span, command: &[&str], took: &dyn Fn() -> Result<Duration>| {
            talking_step(&format!("{run}: {}", span.what()), "waiting", || {
                let before = self.cpu();
                self.ask(command)?;
                let took = Took { uptime: took()?, cpu: Some(self.cpu().saturating_sub(before)) };
                say(format_args!(
                    "    {:>9.3} [{:.1}]",
                    took.uptime.as_secs_f64(),
                    took.cpu.unwrap_or_default().as_secs_f64()
                ));
                Ok(took)
            })
        };
        spans.push(Span::ThreeVoters, step(Span::ThreeVoters, &self.create("3"), &|| self.said("m1", VOTER, 0))?);

        let add = [&["cluster", "add", CLUSTER, "--image", &self.image], &MACHINE[..]].concat();
        for machine in [FURTHER, REMOVED] {
            let took = step(Span::Member, &add, &|| self.said(machine, MEMBER, 0))?;
            spans.push(Span::Member, took);
            let behind = took.uptime.saturating_sub(self.public_api(machine)?);
            spans.push(Span::MemberBehindApi, Took { uptime: behind, cpu: None });
        }

        let reboot = ["-c", CLUSTER, "-m", FURTHER, "machine", "reboot", "--wait"];
        let took = step(Span::Rejoin, &reboot, &|| self.said(FURTHER, MEMBER, 0))?;
        spans.push(Span::Rejoin, took);

        self.have_peers(4)?;
        let begun = Stopwatch::start();
        let took = step(Span::PeerGone, &["-c", CLUSTER, "machine", "remove", REMOVED, "--lost"], &|| {
            self.have_peers(3)?;
            Ok(begun.elapsed())
        })?;
        spans.push(Span::PeerGone, took);

        self.ask(&["cluster", "stop", CLUSTER])?;
        // What is said from here on is of the next boot.
        let before = COORDINATORS.map(|name| self.console(name).len());
        let took = step(Span::ColdStart, &["cluster", "start", CLUSTER], &|| {
            let last = COORDINATORS.iter().zip(before).map(|(name, before)| self.said(name, RECORDS, before));
            last.collect::<Result<Vec<_>>>()?.into_iter().max().context("there are three")
        })?;
        spans.push(Span::ColdStart, took);
        Ok(())
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.cairnctl);
        answer(command.args(arguments).env("XDG_DATA_HOME", &self.home).env("HOME", &self.home))
    }

    /// Uptime at which the machine's public API answered, by the machine's own clock.
    fn public_api(&self, name: &str) -> Result<Duration> {
        let text = self.ask(&["-o", "json", "-c", CLUSTER, "-m", name, "machine", "timeline"])?;
        let timeline: Value = serde_json::from_str(&text).context("read a timeline")?;
        let row = timeline.as_array().into_iter().flatten().find(|row| row["name"] == "public api");
        let reached = row.and_then(|row| row["uptime_ms"].as_u64()).context("the timeline has the public API")?;
        Ok(Duration::from_millis(reached))
    }

    /// When the machine said so in its boot of now, behind so many bytes of its console; waits until it has.
    fn said(&self, name: &str, words: &str, behind: usize) -> Result<Duration> {
        let (folder, vm) = (self.folder(name), self.vm(name)?);
        let uptime = vm.until(Deadline::after(SAYS), || said(self.console(name).get(behind..)?, words));
        uptime.with_context(|| format!("{name} does not say `{words}`: see `{}`", folder.display()))
    }

    /// Waits until each machine that stays has so many peers.
    fn have_peers(&self, number: usize) -> Result<()> {
        for name in COORDINATORS.iter().chain([&FURTHER]) {
            let has = || (peers(&self.console(name)) == Some(number)).then_some(());
            let waited = self.vm(name)?.until(Deadline::after(SAYS), has);
            waited.with_context(|| format!("{name} has not {number} peers: see `{}`", self.folder(name).display()))?;
        }
        Ok(())
    }

    /// All that its console said; nothing where it has none.
    fn console(&self, name: &str) -> String {
        let bytes = std::fs::read(self.folder(name).join("serial.log")).unwrap_or_default();
        // Byte by byte, so that places stay what they are.
        bytes.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
    }

    /// CPU time of all that run; none runs before the first.
    fn cpu(&self) -> Duration {
        let names = COORDINATORS.iter().chain([&FURTHER, &REMOVED]);
        names.filter_map(|name| Some(self.vm(name).ok()?.cpu_time())).sum()
    }

    fn vm(&self, name: &str) -> Result<Vm> {
        let folder = self.folder(name);
        Vm::attach(&folder)?.with_context(|| format!("no machine runs in `{}`", folder.display()))
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.home.join("cairn/clusters").join(CLUSTER).join("machines").join(name)
    }
}
