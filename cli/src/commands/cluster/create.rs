//! `cluster create` and `cluster add`: what is asked for, in which order it is done, and what is said at the end. A cluster of
//! several machines is its first one, which creates it, and others that join it.
//!
//! ```text
//!   create:  first machine: made ► contact ► pins ► runs ┐
//!   add:                                                 └► further machines: joining.rs
//! ```
//! With `--from` it is a saved one that comes back: restore.rs. What fails before machines run takes away again what was made. From their start on every other command works as well,
//! and what was made stays for a look; a machine that is lost while it is waited for, is noticed.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use api::{Condition, ConditionName, MachineStatus, Truth};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use image::{Manifest, VerityPlace};
use model::{BootClass, NodeName};
use qemu::host::{self, Host};

use super::coordinators;
use super::joining::Joining;
use super::making::{self, Making, Plan};
use super::reach::{self, Reach};
use super::restore::Restoring;
use super::status;
use super::waiting::{unless_lost, until_running};
use crate::clock::Deadline;
use crate::commands::condition;
use crate::complete;
use crate::context::Context;
use crate::enrolment::{self, Choices, Founding};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::length;
use crate::quantity;
use crate::saved_cluster::SavedName;
use crate::screen::{self, Format, Progress};
use crate::store::{BootWay, ClusterName, ClusterRecord, VirtualMachine};
use crate::{virtual_machine, virtual_network};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster create --wait
  cairnctl cluster create two --memory 4G --disk-size 20G --boot uefi
  cairnctl cluster create lab --machines 3 --coordinators 3    any may be off
  cairnctl cluster create lab --machines 5 --coordinators 3 --no-kubernetes
  cairnctl cluster create other --from lab     as `cluster save lab` saved it
  cairnctl cluster create web --outside --port 8080:80
                                               pods reach the world, and
                                               http://127.0.0.1:8080 leads to them

Machines are called m1, m2 and so on; they are on one virtual network, which
leads nowhere else, but for --outside and --port. The first creates the
cluster, the others join it, by a ticket that is used up by them.

With cold start automatic each coordinator's share of the cold-start key is in
its TPM. With one of them that protects a stolen disk, not a stolen machine;
with three it protects one stolen machine, too. With manual a machine that no
coordinator gives its key waits for the owner: cairnctl recover.")]
pub(crate) struct Arguments {
    /// The cluster's name on this host [default: that of --cluster, else local]
    #[arg(value_name = "NAME")]
    name: Option<ClusterName>,
    /// Have a saved cluster back, by its name or folder: the same machines with
    /// the same keys, on a network of their own
    #[arg(
        long,
        value_name = "SAVED",
        conflicts_with_all = ["machines", "coordinators", "memory", "node_name", "cpus", "disk_size", "boot", "no_tpm", "capture", "wait", "Choices", "Founding"],
        add = ArgValueCandidates::new(complete::saved)
    )]
    from: Option<SavedName>,
    /// How many machines; all of them run pods, unless --no-kubernetes says otherwise
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    machines: u8,
    /// How many of them hold the cluster's state and serve the Kubernetes API: 1,
    /// 3, 5 or 7; without Kubernetes one more may keep a copy without a vote
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=7))]
    coordinators: u8,
    /// Memory of a machine: 2G at least, 128M with --no-kubernetes [default: 3G, 512M with --no-kubernetes]
    #[arg(long, value_name = "SIZE", value_parser = quantity::mebibytes)]
    memory: Option<u32>,
    #[command(flatten)]
    build: Build,
    /// Wait until all nodes are Ready, not only until the machines run
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    founding: Founding,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster add lab
  cairnctl cluster add lab --worker    it runs pods

It joins by a ticket that it uses up, as a node.")]
pub(crate) struct Add {
    /// The cluster, as by --cluster; not needed while there is only one
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::clusters))]
    name: Option<ClusterName>,
    /// Have it run pods: a Kubernetes worker
    #[arg(long)]
    worker: bool,
    /// Memory of the machine: 128M at least, 2G with --worker [default: 512M, 3G with --worker]
    #[arg(long, value_name = "SIZE", value_parser = quantity::mebibytes)]
    memory: Option<u32>,
    #[command(flatten)]
    build: Build,
}

/// Parts that a machine is made of, and how long it is waited for.
#[derive(Debug, Args)]
struct Build {
    /// Name of the machine, here and in the cluster [default: m1, m2 and so on]
    #[arg(long, value_name = "NAME", value_parser = enrolment::node_name)]
    node_name: Option<NodeName>,
    /// The files of a build [default: $CAIRN_IMAGE_DIR, else out/image]
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Virtual processors of a machine [default: 2, or 1 where this host emulates
    /// more machines than it has processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// Size of its disk; it takes only what is written to it
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = quantity::bytes)]
    disk_size: u64,
    /// Board and way of loading the kernel
    #[arg(long, value_enum, default_value_t = BootWay::Direct, value_name = "WAY")]
    boot: BootWay,
    /// A machine without a TPM
    #[arg(long, requires = "unprotected")]
    no_tpm: bool,
    /// Keep all that a machine sends and receives, as network.pcapng in its
    /// directory
    #[arg(long)]
    capture: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = length::parse)]
    timeout: Duration,
    #[command(flatten)]
    choices: Choices,
}

/// Memory of a machine with Kubernetes, where none is asked for: room for pods beside its services.
const KUBERNETES_MIB: u32 = 3072;

/// The same without Kubernetes.
const BARE_MIB: u32 = 512;

/// Memory of a machine where none is asked for, in MiB.
const fn mebibytes(kubernetes: bool) -> u32 {
    if kubernetes { KUBERNETES_MIB } else { BARE_MIB }
}

/// Why no cluster can be made of the options.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// The same name is asked for several machines.
    #[error("one --node-name cannot be that of {0} machines")]
    OneNodeName(u8),
    /// More coordinators than machines.
    #[error("{coordinators} coordinators are asked for, and {machines} machines in all")]
    Coordinators { coordinators: u8, machines: u8 },
    /// A coordinator without a vote cannot serve the Kubernetes API.
    #[error("of {0} coordinators one has no vote, and a Kubernetes control plane needs one")]
    ControlPlaneWithoutVote(u8),
}

impl Advice for CreateError {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::OneNodeName(_) => "leave it out: they are called m1, m2 and so on".to_owned(),
            Self::Coordinators { .. } => "ask for as many machines at least: --machines".to_owned(),
            Self::ControlPlaneWithoutVote(even) => {
                format!(
                    "ask for one less or one more: --coordinators {}; or leave Kubernetes out: --no-kubernetes",
                    even + 1
                )
            }
        })
    }
}

impl Arguments {
    pub(super) fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }

    /// Refuses what no cluster can be made of.
    fn makes_sense(&self) -> Result<(), CreateError> {
        let Self { machines, coordinators, .. } = *self;
        match machines {
            machines if coordinators > machines => Err(CreateError::Coordinators { coordinators, machines }),
            1 => Ok(()),
            several if self.build.node_name.is_some() => Err(CreateError::OneNodeName(several)),
            _ if self.founding.kubernetes() && coordinators.is_multiple_of(2) => {
                Err(CreateError::ControlPlaneWithoutVote(coordinators))
            }
            _ => Ok(()),
        }
    }

    /// Memory that each of the machines gets, in MiB.
    fn memory_mib(&self) -> u32 {
        self.memory.unwrap_or_else(|| mebibytes(self.founding.kubernetes()))
    }
}

impl Add {
    pub(super) fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }
}

impl Build {
    /// Plan of each machine, if this host can run so many of them.
    fn plan(&self, machines: u8, memory_mib: u32, kubernetes: bool) -> Result<Plan<'_>, Failure> {
        let image = making::image_directory(self.image.clone());
        virtual_machine::fits_memory(memory_mib, kubernetes, host::memory_mib())?;
        virtual_machine::fits_beside(machines.into(), memory_mib, kubernetes, host::free_mib())?;
        let Manifest { cmdline, verity: VerityPlace { root_hash, .. }, .. } = virtual_machine::manifest(&image)?;
        let cpus = || virtual_machine::cpus(machines.into(), Host::look().acceleration, host::processors());
        let (boot, cpus, tpm) = (self.boot, self.cpus.unwrap_or_else(cpus), !self.no_tpm);
        let machine = VirtualMachine { boot, cpus, memory_mib, tpm, cmdline, image: root_hash, overlays: 0 };
        machine.fits_host()?;
        Ok(Plan { image, machine, disk_bytes: self.disk_size, capture: self.capture, choices: &self.choices })
    }
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match &arguments.from {
        Some(from) => restored(from, arguments, context, out).await,
        None => created(arguments, context, out).await,
    }
}

async fn restored(
    from: &SavedName,
    arguments: &Arguments,
    context: &Context,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = &match from {
        SavedName::Name(saved) => context.cluster.clone().unwrap_or_else(|| saved.clone()),
        SavedName::Folder(_) => context.new_name("local")?,
    };
    let deadline = &Deadline::after(arguments.build.timeout);
    let mut progress = Progress::start();
    let restoring = Restoring { name, from, image: arguments.build.image.as_deref(), reach: &arguments.reach };
    let machines = restoring.run(context, deadline, &mut progress).await?;
    drop(progress);
    let serves = |status: &MachineStatus| {
        let ready = |condition: &Condition| {
            condition.name == ConditionName::KubernetesApiReady.word() && condition.truth == Truth::True
        };
        status.conditions.iter().any(ready)
    };
    let kubernetes = machines.iter().any(|(_, status)| serves(status));
    Up { name: name.clone(), machines, kubernetes }.print(context, out)
}

async fn created(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    arguments.makes_sense()?;
    let Arguments { machines, build, founding, reach, .. } = arguments;
    let name = &context.new_name("local")?;
    let deadline = &Deadline::after(build.timeout);
    let mut progress = Progress::start();
    let plan = &build.plan(*machines, arguments.memory_mib(), founding.kubernetes())?;
    let first = build.node_name.clone().unwrap_or_else(ClusterRecord::first_name);
    {
        let (store, lock) = (&context.store, &context.store.lock(name)?);
        Making { name, plan, store, lock }.first(first.clone(), (founding, reach), &mut progress)?;
    }
    let mut up = Up { name: name.clone(), machines: Vec::new(), kubernetes: founding.kubernetes() };
    let status = first_is_up(arguments, &context.about(name, &first), deadline, &progress).await;
    let stays = || format!("what was made of cluster `{name}` stays for a look");
    up.machines.push((0, status.map_err(|failure| failure.leaving(stays()))?));
    if *machines > 1 {
        let workers = founding.kubernetes();
        let others = Joining { name, machines: machines - 1, called: None, workers, plan };
        up.machines.extend(others.join(context, deadline, &mut progress).await?);
    }
    if arguments.coordinators > 1 {
        let record = context.store.load(name)?;
        let further = record.machines()[1..usize::from(arguments.coordinators)].iter();
        let further: Vec<_> = further.map(|machine| machine.name.clone()).collect();
        let context = &context.about_cluster(name);
        let control_plane = founding.kubernetes();
        let coordinated = coordinators::coordinate((&further, control_plane), context, deadline, &mut progress).await;
        coordinated.map_err(|failure| failure.leaving(stays()))?;
    }
    if arguments.wait && founding.kubernetes() {
        for machine in context.store.load(name)?.machines().iter().skip(1) {
            let its = context.about(name, &machine.name);
            let mut progress = progress.of(Some(machine.name.as_str()));
            condition::until_true(&its, "NodeReady", deadline, &mut progress).await?;
            progress.done("the node is Ready");
        }
    }
    drop(progress);
    up.print(context, out)
}

pub(crate) async fn add(arguments: &Add, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let build = &arguments.build;
    let deadline = &Deadline::after(build.timeout);
    let mut progress = Progress::start();
    let name = &context.cluster()?.name;
    if context.cluster()?.network.is_none() {
        return Err(virtual_network::NetworkError::Hardware { name: name.clone() }.into());
    }
    let workers = arguments.worker;
    let plan = &build.plan(1, arguments.memory.unwrap_or_else(|| mebibytes(workers)), workers)?;
    let machines = Joining { name, machines: 1, called: build.node_name.as_ref(), workers, plan }
        .join(context, deadline, &mut progress)
        .await?;
    drop(progress);
    Up { name: name.clone(), machines, kubernetes: false }.print(context, out)
}

/// Until there is what was asked for of the first machine: that it runs, or that its node is Ready.
async fn first_is_up(
    arguments: &Arguments,
    context: &Context,
    deadline: &Deadline,
    progress: &Progress,
) -> Result<MachineStatus, Failure> {
    let meant = context.meant()?;
    let (record, machine) = (&meant.record, meant.name());
    let mut progress = progress.of(Some(machine.as_str()));
    let directory = context.store.machine_directory(&record.name, machine);
    let up = async {
        let status = until_running(context, &directory, deadline, &mut progress).await?;
        if !(arguments.wait && arguments.founding.kubernetes()) {
            return Ok(status);
        }
        condition::until_true(context, "NodeReady", deadline, &mut progress).await?;
        progress.done("the node is Ready");
        Ok(context.open().await?.0.status().await?)
    };
    unless_lost(&directory, up).await
}

/// Machines that came up.
struct Up {
    name: ClusterName,
    machines: Vec<(usize, MachineStatus)>,
    kubernetes: bool,
}

impl Up {
    fn print(self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let record = context.store.load(&self.name)?;
        match context.format {
            Format::Json => {
                let seen = self.machines.iter().map(|(machine, status)| (*machine, status::Seen::Answers(status)));
                screen::json(out, &status::describe(&record, seen, None))?;
            }
            Format::Table => self.go_on(&record, out)?,
        }
        Ok(())
    }

    fn go_on(&self, record: &ClusterRecord, out: &mut dyn Write) -> std::io::Result<()> {
        let (name, several) = (&self.name, record.machines().len() > 1);
        let named = |machine: usize| &record.machines()[machine].name;
        for (machine, status) in &self.machines {
            writeln!(out, "cluster `{name}` runs on {} (protection {})", named(*machine), status.protection)?;
        }
        for way in record.network.iter().flat_map(|network| reach::in_words(network.outside, &network.ports)) {
            writeln!(out, "{way}")?;
        }
        if self.machines.iter().any(|(_, status)| status.boot_class == BootClass::Direct) {
            let (kernel, disk) = match self.machines.len() {
                1 => ("its kernel is", "the disk is"),
                _ => ("their kernels are", "their disks are"),
            };
            writeln!(out, "{kernel} loaded by QEMU and not measured: {disk} as safe as this host")?;
        }
        let last = self.machines.last().filter(|_| several).map(|(machine, _)| format!(" -m {}", named(*machine)));
        let one = format!("-c {name}{}", last.unwrap_or_default());
        writeln!(out, "go on with:")?;
        if several {
            writeln!(out, "  cairnctl -c {name} machine list")?;
        }
        writeln!(out, "  cairnctl {one} machine status")?;
        if self.kubernetes {
            writeln!(out, "  cairnctl -c {name} kubectl get pods -A")?;
        }
        writeln!(out, "  cairnctl cluster destroy {name}")
    }
}
