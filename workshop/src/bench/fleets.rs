//! `cargo xtask bench fleets`: clusters from nothing, saved, and back, all by `cairnctl`, as a person has them. What is measured
//! is from the command to its end, by the host's clock; beside it stands what the host takes for the bytes alone.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use ::tests::web_pod;
use anyhow::{Context, Result};
use benches::{
    cluster::Took,
    fleets::{FleetStage, Floor, StageTimes, Stages, all_seen_now, pod_runs},
};
use clap::Args;
use qemu::{Deadline, deadline::Stopwatch, saved::SavedFleet};
use serde_json::{Value, json};
use xtask::{
    cache::BuildCache,
    progress::{say, talking_step},
    workspace::Workspace,
};

use super::{conclude, person::Person, site};
use crate::{image, programs::Build};

/// Three coordinators, 512 MiB and one processor each.
const THREE: &str = "--machines 3 --coordinators 3 --no-kubernetes --level encrypted --cpus 1 --memory 512M";
/// Options for a machine with Kubernetes, 3 GiB and two processors.
const KUBERNETES: &str = "--wait --level encrypted --cpus 2 --memory 3G";
/// How often each saved cluster comes back: that takes seconds, where making one takes minutes.
const COPIES: u32 = 3;
/// Bound of a wait for what is broken.
const LONGEST: Duration = Duration::from_secs(60);

/// How saved fleets are measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Clusters of each kind; each is saved once, and comes back three times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The files of a build of the release profile, instead of building one
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// How to compile the machine's own programs
    #[arg(long, value_enum, default_value = "release", conflicts_with = "image")]
    build: Build,
    /// Where the image and the artefacts of each cluster go
    #[arg(long, value_name = "DIR", default_value = "out/bench-fleets")]
    out: PathBuf,
}

/// Builds, makes clusters, saves them, has them back, prints; fails when a limit is broken.
///
/// # Errors
/// Any step's; a broken limit.
pub(crate) fn fleets(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<()> {
    let out = workspace.root().join(&options.out);
    let someone = Person::with_image(workspace, cache, (options.image.as_deref(), options.build), &out)?;
    let root_hash = image::manifest(&someone.image)?.verity.root_hash;
    let mut stages = Stages::default();
    for run in 1..=options.runs {
        for kind in [THREE_COORDINATORS, KUBERNETES_AND_POD] {
            someone.at(out.join(format!("{run}-{}", kind.name))).measure(&kind, run, &mut stages)?;
        }
    }
    say(format_args!("\nmedians, by the host's clock [CPU seconds of all QEMU]\n\n{}", stages.table()));
    let findings = stages.findings();
    for finding in &findings {
        say(finding.line());
    }
    conclude(&findings, json!({ "stages": stages.iter().map(told).collect::<Vec<_>>(), "root_hash": root_hash }))
}

fn told((stage, StageTimes { took, floor }): (FleetStage, StageTimes)) -> Value {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    json!({
        "stage": stage.what(),
        "seconds": took.uptime.as_secs_f64(),
        "cpu": seconds(took.cpu),
        "floor": seconds(floor),
    })
}

/// A kind of cluster.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    create: &'static str,
    machines: &'static [&'static str],
    /// Made, saved, back.
    stages: [FleetStage; 3],
    /// Done to a new one, as part of making it.
    then: fn(&Person) -> Result<()>,
    /// Whether the cluster of this name is back.
    is_back: fn(&Person, &str) -> Result<bool>,
}

const THREE_COORDINATORS: Kind = Kind {
    name: "three",
    create: THREE,
    machines: &["m1", "m2", "m3"],
    stages: [FleetStage::ThreeMade, FleetStage::ThreeSaved, FleetStage::ThreeBack],
    then: |_nothing_more| Ok(()),
    is_back: |person, name| Ok(all_seen_now(&person.ask(&["-c", name, "machine", "list"])?, 3)),
};

const KUBERNETES_AND_POD: Kind = Kind {
    name: "pod",
    create: KUBERNETES,
    machines: &["m1"],
    stages: [FleetStage::PodMade, FleetStage::PodSaved, FleetStage::PodBack],
    then: Person::start_pod,
    is_back: |person, name| Ok(pod_runs(&person.kubectl(name, &["get", "pods"])?, "web")),
};

/// The cluster that is made and saved.
const MADE: &str = "made";
/// The one that comes back; `cairnctl` has the two under names of their own.
const BACK: &str = "back";

impl Person {
    /// Measures a cluster: made, saved, and back several times. After a failure it stays, switched off.
    fn measure(&self, kind: &Kind, run: u32, stages: &mut Stages) -> Result<()> {
        // What a bench that was ended left running; mostly there is nothing.
        self.end_all(&["destroy", "--yes"])?;
        site::fresh(&self.home)?;
        let measured = self.stages(kind, run, stages);
        if measured.is_err() {
            // Why it was not measured is what the person has to know.
            let _ended_or_not = self.end_all(&["stop", "--now"]);
        }
        measured
    }

    /// Ends what there is of its clusters, by this command of `cairnctl cluster`.
    fn end_all(&self, command: &[&str]) -> Result<()> {
        for name in [MADE, BACK].into_iter().filter(|name| self.clusters().join(name).exists()) {
            self.ask(&[&["cluster"], command, &[name]].concat())?;
        }
        Ok(())
    }

    fn stages(&self, kind: &Kind, run: u32, stages: &mut Stages) -> Result<()> {
        let saved = self.home.join("saved");
        let folder = saved.to_string_lossy();
        let [made, kept, back] = kind.stages;
        let cpu = |cluster: &str| self.cpu(cluster, kind.machines);
        let mut step = |stage: FleetStage, cluster: &str, work: &dyn Fn() -> Result<()>| {
            talking_step(&format!("{run}: {}", stage.what()), "measuring", || {
                let (before, begun) = (cpu(cluster), Stopwatch::start());
                work()?;
                let took = Took { uptime: begun.elapsed(), cpu: Some(cpu(cluster).saturating_sub(before)) };
                let floor = stage.floor().map(|floor| self.floor(floor, &saved)).transpose()?;
                say(format_args!(
                    "    {:>9.3} [{:.1}]",
                    took.uptime.as_secs_f64(),
                    took.cpu.unwrap_or_default().as_secs_f64()
                ));
                stages.push(stage, StageTimes { took, floor });
                Ok(())
            })
        };
        step(made, MADE, &|| {
            let image = self.image.to_string_lossy();
            let create = ["cluster", "create", MADE, "--image", &image].into_iter();
            self.ask(&create.chain(kind.create.split_whitespace()).collect::<Vec<_>>())?;
            (kind.then)(self)
        })?;
        step(kept, MADE, &|| self.ask(&["cluster", "save", MADE, "--as", &folder]).map(drop))?;
        self.ask(&["cluster", "destroy", MADE, "--yes"])?;
        for _copy in 0..COPIES {
            step(back, BACK, &|| {
                self.ask(&["cluster", "create", BACK, "--from", &folder])?;
                let deadline = Deadline::after(LONGEST);
                while !(kind.is_back)(self, BACK)? {
                    deadline.left().context("it does not come back whole")?;
                }
                Ok(())
            })?;
            self.ask(&["cluster", "destroy", BACK, "--yes"])?;
        }
        std::fs::remove_dir_all(&saved).context("remove the saved cluster")
    }

    /// A pod, until it is Ready.
    fn start_pod(&self) -> Result<()> {
        let pod = self.home.join("web.json");
        std::fs::write(&pod, web_pod("web", false).to_string()).context("write the pod")?;
        // Pods are refused until the controller-manager has made their namespace's account.
        self.kubectl(MADE, &["wait", "--for=create", "serviceaccount/default", "--timeout=120s"])?;
        self.kubectl(MADE, &["apply", "--filename", &pod.to_string_lossy()])?;
        self.kubectl(MADE, &["wait", "--for=condition=Ready", "pod/web", "--timeout=300s"]).map(drop)
    }

    /// Time that the host takes for as many bytes as a saved cluster has on its disk.
    fn floor(&self, floor: Floor, saved: &Path) -> Result<Duration> {
        let bytes = SavedFleet::<Value>::open(saved)?.bytes_on_disk()?;
        let path = self.home.join("floor");
        let took = match floor {
            Floor::Write => written(&path, bytes),
            // Written first, so that what is read lies in memory, as what was just saved does.
            Floor::Read => written(&path, bytes).and_then(|_not_measured| read(&path)),
        };
        std::fs::remove_file(&path).and(took).with_context(|| format!("use `{}`", path.display()))
    }
}

/// A megabyte that no file system leaves out.
static BLOCK: [u8; 1 << 20] = [0xa5; 1 << 20];

fn written(path: &Path, bytes: u64) -> io::Result<Duration> {
    let begun = Stopwatch::start();
    let mut file = File::create(path)?;
    for _block in 0..bytes.div_ceil(1 << 20) {
        file.write_all(&BLOCK)?;
    }
    file.sync_all()?;
    Ok(begun.elapsed())
}

fn read(path: &Path) -> io::Result<Duration> {
    let begun = Stopwatch::start();
    let (mut file, mut block) = (File::open(path)?, vec![0; BLOCK.len()]);
    while file.read(&mut block)? > 0 {}
    Ok(begun.elapsed())
}
