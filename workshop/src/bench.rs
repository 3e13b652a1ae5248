//! `cargo xtask bench boot`: boots the floor and Cairn in turns and prints what each milestone cost: uptime in the guest
//! and QEMU's CPU seconds. It must never measure one side by other means than the other, nor compare what does not run
//! the same components. `bench network`, `bench desired` and `bench policies` run programs of their own.

mod cairn;
mod cluster;
mod fleets;
mod floor;
mod follow;
mod kube;
mod nft;
mod person;
mod pod;
mod site;

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::Command,
};

use ::image::ImageProfile;
use anyhow::{Context, Result, bail};
use benches::{
    Arrival,
    boots::{BootKind, Boots},
    evidence::{self, Evidence},
    verdict::{self, Figure, Processor},
};
use clap::{Args, Subcommand};
use model::Level;
use qemu::host::{Acceleration, Host};
use serde_json::{Value, json};
use xtask::{
    cache::BuildCache,
    process::shown,
    progress::{say, talking_step},
    workspace::Workspace,
};

use self::site::{Boot, CPUS, MEMORY, Site};
pub(crate) use self::{cluster::cluster, fleets::fleets, kube::kube, nft::nft};
use crate::{
    components,
    image::{self, Wanted},
    programs::{self, Build},
};

/// Benches that `cargo xtask bench` has.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Bench {
    /// Boots, beside those of the least that starts the same components
    Boot(Options),
    /// Clusters of virtual machines: how long machines need to become one, and to be one again
    Cluster(cluster::Options),
    /// Clusters that are saved and come back, beside how long they take from nothing
    Fleets(fleets::Options),
    /// Three machines with Kubernetes and all roles, a worker beside them, and what the loss of one costs
    Kube(kube::Options),
    /// TCP through the virtual network's switch, beside TCP over a bare socket pair
    Network,
    /// Desired state of 1 000 machines, worked out by a coordinator when one of them changes
    Desired,
    /// 1 000 network policies over 5 000 pods, compiled by a coordinator when one of them changes
    Policies,
    /// Rules of 5 000 services, taken and listed by PID 1's `nft` and by Debian's
    Nft(nft::Options),
}

/// How boots are measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Boots of each kind; identical boots differ, so fewer than three prove nothing
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only at this level
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Only>,
    /// How to compile the machine's own programs and the floor
    #[arg(long, value_enum, default_value = "release")]
    build: Build,
    /// Where image, disks and the artefacts of each boot go
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
}

/// A level that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Encrypted,
    Authenticated,
}

/// Builds, boots in turns, prints; fails when a limit is broken or the two sides do not run the same.
///
/// # Errors
/// Any step's; a broken limit.
pub(crate) fn boot(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<()> {
    let out = workspace.root().join(&options.out);
    let wanted = Wanted::plain(ImageProfile::Release, options.build);
    let inputs = image::inputs(workspace, cache, &wanted)?;
    let image = out.join("image");
    let manifest = image::write(&inputs, &image)?;
    let debug = out.join("debug-image");
    let debug_manifest = image::build(workspace, cache, &Wanted { profile: ImageProfile::Debug, ..wanted }, &debug)?;
    let floor = programs::floor(workspace, options.build)?;
    let floor = floor::Floor::build(&inputs, floor, &out)?;
    let site = Site {
        manifest,
        kubectl: components::build(workspace, cache)?.kubectl_path(),
        cairnctl: programs::cairnctl(workspace)?,
        image,
        out,
    };
    let debug = Site { image: debug, manifest: debug_manifest, ..site.clone() };

    let mut boots = Boots::default();
    let mut sides = measure(&site, &floor, options, &mut boots)?;
    sides.cairn.resident = Some(resident(&debug)?);
    let processor = match Host::look().acceleration {
        Acceleration::Kvm => Processor::Accelerated,
        Acceleration::Tcg => Processor::Emulated,
    };
    report(&site, &boots, &sides, processor)
}

/// `cargo xtask bench network`, `bench desired`, `bench policies`: numbers, limits and whether they hold are the program's own
/// (`qemu/benches/network.rs`, `crates/cluster/benches/desired.rs`, `crates/netpolicy/benches/policies.rs`).
///
/// # Errors
/// It does not compile, or a limit is broken.
pub(crate) fn program(workspace: &Workspace, package: &str, bench: &str) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["bench", "--locked", "--package", package, "--bench", bench]).current_dir(workspace.root());
    shown(&mut cargo)
}

/// Prints the closing line of JSON: the limits and whether all hold, beside what else `line` tells.
///
/// # Errors
/// Nothing can be printed; a broken limit.
fn conclude(figures: &[Figure], mut line: Value) -> Result<()> {
    let holds = figures.iter().all(Figure::holds);
    line["limits"] = figures.iter().map(Figure::to_json).collect();
    line["holds"] = holds.into();
    writeln!(stdout(), "{line}").context("print the result")?;
    if holds { Ok(()) } else { bail!("a limit is broken") }
}

/// Boots in turns: floor, then Cairn, as often as asked.
fn measure(site: &Site, floor: &floor::Floor, options: &Options, boots: &mut Boots) -> Result<Sides> {
    let wants = |level| options.level.is_none_or(|only| only == level);
    let mut sides = None;
    let mut tagged = None;
    for run in 1..=options.runs {
        let disk = floor.disk(site, &format!("{run}-floor"))?;
        let reference = turn(boots, BootKind::FloorFirst, run, || floor.boot(site, &disk, "first"))?;
        turn(boots, BootKind::FloorSecond, run, || floor.boot(site, &disk, "second"))?;
        disk.remove()?;
        let mut cairns = Vec::new();
        if wants(Only::Encrypted) {
            let machine = cairn::Cairn::create(site, Level::Encrypted, &format!("{run}-encrypted"))?;
            cairns.push(turn(boots, BootKind::EncryptedFirst, run, || machine.boot("first"))?);
            cairns.push(turn(boots, BootKind::EncryptedSecond, run, || machine.boot("second"))?);
            machine.remove_disk()?;
        }
        if wants(Only::Authenticated) {
            // One disk, tagged once: what it takes to tag another has nothing to do with boots.
            let machine = match &tagged {
                Some(machine) => machine,
                None => {
                    let machine = cairn::Cairn::create(site, Level::Authenticated, "authenticated")?;
                    cairns.push(turn(boots, BootKind::Tagging, run, || machine.boot_and_tag("first"))?);
                    tagged.insert(machine)
                }
            };
            cairns.push(turn(boots, BootKind::Tagged, run, || machine.boot(&format!("tagged-{run}")))?);
        }
        for cairn in &cairns {
            refuse_differences(&reference, cairn)?;
        }
        sides = cairns.pop().map(|cairn| Sides { floor: reference.evidence, cairn: cairn.evidence });
    }
    sides.context("nothing was measured: no level was asked for")
}

/// Resident memory of PID 1 with everything up, in kilobytes: one more boot, of the debug profile, that is not
/// measured.
fn resident(debug: &Site) -> Result<u64> {
    let machine = cairn::Cairn::create(debug, Level::Encrypted, "memory")?;
    talking_step("memory of PID 1", "booting the debug profile", || machine.resident("boot"))
}

/// Evidence that both sides gave of themselves, the last time.
struct Sides {
    floor: Evidence,
    cairn: Evidence,
}

fn turn(boots: &mut Boots, kind: BootKind, run: u32, boot: impl FnOnce() -> Result<Boot>) -> Result<Boot> {
    let done = talking_step(&format!("{run}: {}", kind.name()), "booting", boot)?;
    for seen in &done.seen {
        let cpu = seen.cpu.map_or(String::new(), |cpu| format!(" [{:.2}]", cpu.as_secs_f64()));
        say(format_args!("    {:<18}{:>9.3}{cpu}", seen.milestone.name(), seen.uptime.as_secs_f64()));
    }
    boots.push(kind, done.seen.clone());
    Ok(done)
}

/// A boot that runs something else is no boot to compare with.
fn refuse_differences(floor: &Boot, cairn: &Boot) -> Result<()> {
    let found = evidence::differences(&floor.evidence, (&cairn.evidence, cairn.cluster));
    for difference in &found {
        say(format_args!("{}\n  floor: {}\n  cairn: {}", difference.what, difference.floor, difference.cairn));
    }
    if found.is_empty() { Ok(()) } else { bail!("the floor and Cairn do not run the same: nothing can be compared") }
}

/// Prints evidence, medians and limits for people, and one line of JSON.
fn report(site: &Site, boots: &Boots, sides: &Sides, processor: Processor) -> Result<()> {
    say("\narguments, equal on both sides but for the cluster's id:");
    for (service, words) in &sides.floor.argv {
        say(format_args!("  {service}: {}", words.join(" ")));
    }
    say("SHA-256 of executables, floor and Cairn:");
    for (path, cairn) in &sides.cairn.sha256 {
        let floor = sides.floor.sha256.get(path).map_or("-", String::as_str);
        say(format_args!("  {path}\n    {floor}\n    {cairn}"));
    }
    say(format_args!("\nseconds of uptime [QEMU's CPU seconds], {CPUS} processors, {MEMORY} MiB\n\n{}", boots.table()));
    let weight = ::image::weigh(&site.manifest, ::image::SizeLimits::Any)?;
    say(format_args!("{weight}"));
    say(format_args!("artefacts: {}\n", site.out.display()));
    let mut findings = verdict::findings(boots, processor);
    findings.extend(verdict::memory(&sides.cairn));
    for finding in &findings {
        say(finding.line());
    }
    let line = json!({
        "boots": boots.iter().map(told).collect::<Vec<_>>(),
        "bytes": { "boot": weight.boot, "userland": weight.userland },
        "resident_kilobytes": sides.cairn.resident,
        "root_hash": site.manifest.verity.root_hash,
    });
    conclude(&findings, line)
}

fn told((kind, seen): (BootKind, &[Arrival])) -> Value {
    let row = |one: &Arrival| {
        let numbers = json!({ "uptime": one.uptime.as_secs_f64(), "cpu": one.cpu.map(|cpu| cpu.as_secs_f64()) });
        (one.milestone.name().to_owned(), numbers)
    };
    let milestones: serde_json::Map<String, Value> = seen.iter().map(row).collect();
    json!({ "kind": kind.name(), "milestones": milestones })
}
