//! `cluster create` and `cluster add`: keys, configs, disks, network, virtual machines, first contact, Ready; each step is
//! on the disk before the next.
//!
//! ```text
//!   begin (lock) ► for each machine: secret ► config ► files ► record ► network ► start ► addresses
//!                                     each machine by itself: contact ► pins ► wait
//! ```
//! What fails before the machines run takes away again what was made. From "start" on every other command works as well,
//! and what was made stays for a look; a machine that is lost while it is waited for, is noticed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::MachineStatus;
use aws_lc_rs::rand;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use model::{BootClass, MachineState, NodeName};
use qemu::{host, last_words};
use tokio::time::{sleep, timeout};

use super::{each, start, status};
use crate::clock::Deadline;
use crate::commands::{ASK_AGAIN, Context, OpenError, PATIENCE, condition};
use crate::complete;
use crate::enrolment::{self, Becomes, Choices};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::length;
use crate::machine::Session;
use crate::quantity;
use crate::screen::{self, Format, Progress};
use crate::store::{BootWay, ClusterName, ClusterRecord, Locked, MachineRecord, Store, VirtualMachine, VirtualNetwork};
use crate::{virtual_machine, virtual_network};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster create --wait
  cairnctl cluster create two --memory 4G --disk-size 20G --boot uefi
  cairnctl cluster create lab --machines 3 --no-kubernetes --memory 512M

Machines are called m1, m2 and so on; they are on one virtual network, which
leads nowhere else. Each is enrolled by itself here: it has an authority, an
etcd and a Kubernetes of its own. A config with a ticket makes a machine join.

The cluster key's share is in the machine's TPM: it protects a stolen disk, not
a stolen machine.")]
pub(crate) struct Arguments {
    /// The cluster's name on this host [default: that of --cluster, else local]
    #[arg(value_name = "NAME")]
    name: Option<ClusterName>,
    /// How many machines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    machines: u8,
    #[command(flatten)]
    build: Build,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl cluster add lab --no-kubernetes --memory 512M

As those that `cluster create` makes, it is enrolled by itself.")]
pub(crate) struct Add {
    /// The cluster, as by --cluster; not needed while there is only one
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::clusters))]
    name: Option<ClusterName>,
    #[command(flatten)]
    build: Build,
}

/// What a machine is made of, and how it is waited for.
#[derive(Debug, Args)]
struct Build {
    /// The files of a build [default: $CAIRN_IMAGE_DIR, else out/image]
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Memory of a machine: 2G at least, 512M with --no-kubernetes
    #[arg(long, value_name = "SIZE", default_value = "3G", value_parser = quantity::mebibytes)]
    memory: u32,
    /// Virtual processors of a machine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
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
    /// Wait until the node is Ready, not only until the machine runs
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = length::parse)]
    timeout: Duration,
    #[command(flatten)]
    choices: Choices,
}

impl Arguments {
    pub(super) fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }
}

impl Add {
    pub(super) fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }
}

/// One name is asked for several machines.
#[derive(Debug, thiserror::Error)]
#[error("one --node-name cannot be that of {0} machines")]
pub(crate) struct OneNodeName(u8);

impl Advice for OneNodeName {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("leave it out: each node's name is made from its machine's id".to_owned())
    }
}

/// The machine did not come up. `console` is the file with all that its console said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// It stopped where only a person can help.
    #[error("the machine is {state}: {reason}")]
    Stopped { state: MachineState, reason: String, console: PathBuf },
    /// Its kernel gave up.
    #[error("the machine's kernel panicked; its last lines:\n{lines}")]
    Panicked {
        /// The panic, as the console has it.
        lines: String,
        console: PathBuf,
    },
    /// It was started and is off.
    #[error("the machine is off: it powered itself off, or its QEMU ended{}", words(qemu))]
    Off {
        /// What QEMU said, if anything.
        qemu: String,
        console: PathBuf,
    },
    /// It did not answer, or not in time.
    #[error("the machine does not run after {} s", after.as_secs())]
    Late {
        after: Duration,
        /// What it was seen to do last.
        #[source]
        last: Option<Box<OpenError>>,
        console: PathBuf,
    },
}

impl Advice for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Stopped { .. } | Self::Panicked { .. } | Self::Off { .. } => Code::Failed,
            Self::Late { .. } => Code::Timeout,
        }
    }

    fn unchanged(&self) -> &'static str {
        "what was made stays for a look"
    }

    fn next(&self) -> Option<String> {
        let (Self::Stopped { console, .. }
        | Self::Panicked { console, .. }
        | Self::Off { console, .. }
        | Self::Late { console, .. }) = self;
        Some(format!("read {}; cairnctl cluster destroy takes it all away", console.display()))
    }
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { machines, build, .. } = arguments;
    if build.choices.has_node_name() && *machines > 1 {
        return Err(OneNodeName(*machines).into());
    }
    let name = context.new_name("local")?;
    let deadline = Deadline::after(build.timeout);
    let mut progress = Progress::start();
    let lock = make(&name, arguments, context, &mut progress)?;
    drop(lock);
    let record = context.store.load(&name)?;
    let all: Vec<usize> = (0..record.machines().len()).collect();
    wait_for(&record, &all, build, context, (&deadline, progress)).await?.print(context, out)
}

pub(crate) async fn add(arguments: &Add, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let build = &arguments.build;
    let deadline = Deadline::after(build.timeout);
    let mut progress = Progress::start();
    let name = context.cluster()?.name;
    let lock = context.store.lock(&name)?;
    let mut record = context.store.load(&name)?;
    if record.network.is_none() {
        return Err(virtual_network::NetworkError::Hardware { name }.into());
    }
    let (image, machine) = build.check(1)?;
    let begun = Begun { name: &name, image: &image, machine: &machine, lock: &lock, store: &context.store };
    let added = record.machines().len();
    let called = record.next_name();
    let made = begun.add_machine(build, &called, &mut record, &mut progress);
    let started = made.and_then(|()| start::start(&mut record, &[added], &context.store, &lock, &mut progress));
    started.map_err(|failure| begun.take_machine_back(&called, failure))?;
    drop(lock);
    wait_for(&record, &[added], build, context, (&deadline, progress)).await?.print(context, out)
}

impl Build {
    /// The image, and what each machine is, if this host can run so many of them.
    fn check(&self, machines: usize) -> Result<(PathBuf, VirtualMachine), Failure> {
        let image = image_directory(self.image.clone());
        let kubernetes = self.choices.kubernetes();
        virtual_machine::fits_memory(self.memory, kubernetes, host::memory_mib())?;
        virtual_machine::fits_beside(machines, self.memory, kubernetes, host::free_mib())?;
        let machine = VirtualMachine {
            boot: self.boot,
            cpus: self.cpus,
            memory_mib: self.memory,
            tpm: !self.no_tpm,
            cmdline: virtual_machine::cmdline(&image)?,
        };
        machine.fits_host()?;
        Ok((image, machine))
    }
}

/// Everything up to running virtual machines, or nothing.
fn make(
    name: &ClusterName,
    arguments: &Arguments,
    context: &Context,
    progress: &mut Progress,
) -> Result<Locked, Failure> {
    let store = &context.store;
    let (image, machine) = arguments.build.check(arguments.machines.into())?;
    let lock = store.lock(name)?;
    store.free(name, &lock)?;
    let begun = Begun { name, image: &image, machine: &machine, lock: &lock, store };
    begun.finish(arguments, progress).map_err(|failure| begun.take_back(failure))?;
    Ok(lock)
}

/// A cluster of which files may be there from here on.
struct Begun<'a> {
    name: &'a ClusterName,
    image: &'a Path,
    machine: &'a VirtualMachine,
    lock: &'a Locked,
    store: &'a Store,
}

impl Begun<'_> {
    fn finish(&self, arguments: &Arguments, progress: &mut Progress) -> Result<(), Failure> {
        let Self { name, lock, store, .. } = self;
        store.begin(name, lock)?;
        let first = self.machine_record(&arguments.build, &ClusterRecord::first_name(), progress)?;
        let mut record = ClusterRecord::new((*name).clone(), first);
        record.network = Some(VirtualNetwork { seed: seed()? });
        // Before any machine runs: whatever happens from here on, `cluster destroy` finds it.
        store.save(&record, lock)?;
        for _ in 1..arguments.machines {
            self.add_machine(&arguments.build, &record.next_name(), &mut record, progress)?;
        }
        let all: Vec<usize> = (0..record.machines().len()).collect();
        start::start(&mut record, &all, store, lock, progress)?;
        Ok(())
    }

    /// One more machine, on the disk and in the record.
    fn add_machine(
        &self,
        build: &Build,
        machine: &NodeName,
        record: &mut ClusterRecord,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        record.add(self.machine_record(build, machine, progress)?);
        Ok(self.store.save(record, self.lock)?)
    }

    /// A machine's files. This is where it is decided how it is enrolled: by a config that makes it create a cluster of its
    /// own, whether or not there are others on its network.
    fn machine_record(
        &self,
        build: &Build,
        machine: &NodeName,
        progress: &mut Progress,
    ) -> Result<MachineRecord, Failure> {
        let Self { name, lock, store, .. } = self;
        progress.show(&format!("make the disk of {machine}"));
        let secret = store.begin_machine(name, machine, lock)?;
        let signed = enrolment::sign(&build.choices, None, secret, &store.owner_or_new()?, Becomes::First)?;
        let directory = store.machine_directory(name, machine);
        virtual_machine::build(self.image, &directory, build.disk_size, &signed.bytes)?;
        let mut made = MachineRecord::new(machine.clone(), signed.digest);
        made.virtual_machine = Some(self.machine.clone());
        made.capture = build.capture;
        Ok(made)
    }

    /// Takes away what was made, so that the failure leaves what was there before.
    fn take_back(&self, failure: Failure) -> Failure {
        let Self { name, store, lock, .. } = self;
        match start::end_all(store, name).and_then(|()| Ok(store.remove(name, lock)?)) {
            Ok(()) => failure.leaving("no cluster was made"),
            Err(why) => failure
                .leaving(format!("what was made of cluster `{name}` is still there ({why})"))
                .going_on(format!("cairnctl cluster destroy {name}")),
        }
    }

    /// The same of one machine of a cluster that goes on.
    fn take_machine_back(&self, machine: &NodeName, failure: Failure) -> Failure {
        let Self { name, store, lock, .. } = self;
        let taken = || -> Result<(), Failure> {
            virtual_machine::end(&store.machine_directory(name, machine))?;
            let mut record = store.load(name)?;
            record.remove(machine);
            store.save(&record, lock)?;
            Ok(store.remove_machine(name, machine, lock)?)
        };
        match taken() {
            Ok(()) => failure.leaving(format!("cluster `{name}` is as it was")),
            Err(why) => failure.leaving(format!("what was made of machine `{machine}` is still there ({why})")),
        }
    }
}

/// Chance, for a network whose every loss follows from it.
fn seed() -> Result<u64, std::io::Error> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_| std::io::Error::other("the host gives no random bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Machines that came up.
struct Made {
    name: ClusterName,
    machines: Vec<(usize, MachineStatus)>,
    kubernetes: bool,
}

/// Waits for each of these machines, all at the same time.
async fn wait_for(
    record: &ClusterRecord,
    machines: &[usize],
    build: &Build,
    context: &Context,
    (deadline, progress): (&Deadline, Progress),
) -> Result<Made, Failure> {
    let name = &record.name;
    let several = record.machines().len() > 1;
    let waits = machines.iter().map(|machine| {
        let called = &record.machines()[*machine].name;
        let context = context.about(name, called);
        let mut progress = progress.of(several.then(|| called.as_str()));
        let directory = context.store.machine_directory(name, called);
        async move {
            let status = tokio::select! {
                status = until_ready(build, &context, deadline, &mut progress) => status,
                lost = until_lost(&directory) => Err(lost),
            };
            Ok::<_, Failure>((*machine, status?))
        }
    });
    let stays = format!("what was made of cluster `{name}` stays for a look");
    let machines = each::all(waits).await.map_err(|failure| failure.leaving(stays))?;
    drop(progress);
    Ok(Made { name: name.clone(), machines, kubernetes: build.choices.kubernetes() })
}

impl Made {
    fn print(self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let record = context.store.load(&self.name)?;
        match context.format {
            Format::Json => {
                let seen = self.machines.iter().map(|(machine, status)| (*machine, status::Seen::Answers(status)));
                screen::json(out, &status::describe(&record, seen, None))?;
            }
            Format::Table => go_on(&record, &self.machines, self.kubernetes, out)?,
        }
        Ok(())
    }
}

/// Until there is what was asked for: a machine that runs, or a node that is Ready.
async fn until_ready(
    build: &Build,
    context: &Context,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<MachineStatus, Failure> {
    let status = until_running(context, deadline, progress).await?;
    progress.done(&format!("{} runs, level {}", status.name, level(&status)));
    if !(build.wait && build.choices.kubernetes()) {
        return Ok(status);
    }
    condition::until_true(context, "NodeReady", deadline, progress).await?;
    progress.done("the node is Ready");
    Ok(context.open().await?.0.status().await?)
}

/// Until the machine with its files there cannot come up any more: its kernel panicked, or it is off.
async fn until_lost(directory: &Path) -> Failure {
    let console = directory.join(CONSOLE);
    loop {
        sleep(ASK_AGAIN).await;
        // A console that cannot be read is no panic; whoever waits comes to an end without it.
        if let Ok(Some(lines)) = last_words::kernel_panic(&console) {
            return CreateError::Panicked { lines, console }.into();
        }
        match virtual_machine::runs(directory) {
            Ok(true) => {}
            Ok(false) => {
                let qemu = last_words::of_program(&directory.join("qemu.log"));
                return CreateError::Off { qemu, console }.into();
            }
            Err(error) => return error.into(),
        }
    }
}

/// What a program said, as the end of a sentence.
fn words(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; it says: {said}") }
}

/// First contact, then status by status until the machine is a running member.
async fn until_running(
    context: &Context,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<MachineStatus, Failure> {
    let mut session = until_open(context, deadline, progress).await?;
    progress.done("first contact: the machine proved itself and is pinned");
    let console = || console(context);
    loop {
        if deadline.left().is_none() {
            return Err(CreateError::Late { after: deadline.length(), last: None, console: console() }.into());
        }
        let status = match session.status().await {
            Ok(status) => status,
            // It may start anew on its way; who answers then proves itself again.
            Err(error) if error.may_pass() => {
                session = until_open(context, deadline, progress).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match status.state {
            MachineState::Running => return Ok(status),
            MachineState::NeedsOwner | MachineState::Failed => {
                let reason = if status.reason.is_empty() { status.last_error } else { status.reason };
                return Err(CreateError::Stopped { state: status.state, reason, console: console() }.into());
            }
            MachineState::Blank | MachineState::Enrolling | MachineState::AwaitingKeys => {
                progress.show(&format!("{}: {}", status.state, status.step));
            }
        }
        sleep(ASK_AGAIN).await;
    }
}

/// Asks until the machine answers or the deadline passes.
async fn until_open(context: &Context, deadline: &Deadline, progress: &mut Progress) -> Result<Session, Failure> {
    let console = || console(context);
    let mut patience = PATIENCE;
    loop {
        let last = match timeout(patience, context.open()).await {
            Ok(Ok((session, _))) => return Ok(session),
            // One that is off is noticed in its own words, by whoever looks for that.
            Ok(Err(error)) if error.may_pass() || matches!(error, OpenError::Off { .. }) => {
                progress.show(&format!("wait for the machine: {error}"));
                Some(Box::new(error))
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                patience *= 2;
                None
            }
        };
        if deadline.left().is_none() {
            return Err(CreateError::Late { after: deadline.length(), last, console: console() }.into());
        }
        sleep(ASK_AGAIN).await;
    }
}

/// All that a machine's console said, in its directory.
const CONSOLE: &str = "serial.log";

fn console(context: &Context) -> PathBuf {
    let found = context.meant().map(|meant| context.store.machine_directory(&meant.record.name, meant.name()));
    found.unwrap_or_default().join(CONSOLE)
}

fn level(status: &MachineStatus) -> String {
    status.level.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
}

fn image_directory(named: Option<PathBuf>) -> PathBuf {
    named
        .or_else(|| std::env::var_os("CAIRN_IMAGE_DIR").map(PathBuf::from))
        .unwrap_or_else(|| Path::new("out").join("image"))
}

fn go_on(
    record: &ClusterRecord,
    machines: &[(usize, MachineStatus)],
    kubernetes: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (name, several) = (&record.name, record.machines().len() > 1);
    for (machine, status) in machines {
        let on = format!("{} (protection {})", status.name, status.protection);
        match several {
            false => writeln!(out, "cluster `{name}` runs on {on}")?,
            true => writeln!(out, "{} of cluster `{name}` runs: {on}", record.machines()[*machine].name)?,
        }
    }
    if machines.iter().any(|(_, status)| status.boot_class == BootClass::Direct) {
        writeln!(out, "its kernel is loaded by QEMU and not measured: the disk is as safe as this host")?;
    }
    let mut one = format!("-c {name}");
    if several {
        writeln!(out, "its machines share a network, and nothing else: each is enrolled by itself")?;
        if let Some((last, _)) = machines.last() {
            one = format!("-c {name} -m {}", record.machines()[*last].name);
        }
    }
    writeln!(out, "go on with:")?;
    if several {
        writeln!(out, "  cairnctl cluster status {name}")?;
    }
    writeln!(out, "  cairnctl {one} machine status")?;
    if kubernetes {
        writeln!(out, "  cairnctl {one} kubectl get pods -A")?;
    }
    writeln!(out, "  cairnctl cluster destroy {name}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NAME: &str = "home";

    fn context(root: &Path) -> (Context, ClusterName) {
        let store = Store::at(root.join("cairn")).unwrap();
        (
            Context { store, cluster: None, machine: None, through: None, address: None, format: Format::Table },
            NAME.parse().unwrap(),
        )
    }

    fn printed(failure: &Failure) -> String {
        let mut text = Vec::new();
        failure.print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// The files of a machine, with this on its console and in its QEMU's log.
    fn machine(context: &Context, name: &ClusterName, console: &str, qemu: &str) -> PathBuf {
        let directory = context.store.machine_directory(name, &ClusterRecord::first_name());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("serial.log"), console).unwrap();
        fs::write(directory.join("qemu.log"), qemu).unwrap();
        directory
    }

    #[tokio::test]
    async fn a_kernel_that_panics_and_a_qemu_that_ends_are_noticed_in_their_own_words() {
        let root = tempfile::tempdir().unwrap();
        let (context, name) = context(root.path());
        let panic = "[ 0.1] no init\n[ 0.2] Kernel panic - not syncing: No working init found.\n";
        let lost = printed(&until_lost(&machine(&context, &name, panic, "")).await);
        assert!(lost.contains("error: the machine's kernel panicked"), "{lost}");
        assert!(lost.contains("\n  [ 0.2] Kernel panic - not syncing: No working init found.\n"), "{lost}");
        assert!(lost.contains("serial.log"), "{lost}");

        let off = machine(&context, &name, "Cairn", "qemu-system-x86_64: terminating on signal 15\n");
        let lost = printed(&until_lost(&off).await);
        assert!(lost.contains("the machine is off") && lost.contains("terminating on signal 15"), "{lost}");
        let lost = printed(&until_lost(&machine(&context, &name, "Cairn", "")).await);
        assert!(lost.contains("the machine is off") && !lost.contains("it says"), "{lost}");
    }

    #[test]
    fn what_fails_before_the_machine_runs_leaves_nothing_or_says_what() {
        let root = tempfile::tempdir().unwrap();
        let (context, name) = context(root.path());
        let lock = context.store.lock(&name).unwrap();
        let machine = VirtualMachine { boot: BootWay::Direct, cpus: 1, memory_mib: 1, tpm: false, cmdline: "".into() };
        let (image, store) = (Path::new("/"), &context.store);
        let begun = Begun { name: &name, image, machine: &machine, lock: &lock, store };
        let begin = || {
            context.store.begin(&name, &lock).unwrap();
            context.store.directory(&name)
        };
        let failed = || Failure::from(std::io::Error::other("no space"));
        let directory = begin();
        let left = printed(&begun.take_back(failed()));
        assert!(left.contains("\n  no cluster was made\n") && !directory.exists(), "{left}");

        // A run's record that nobody can read: whether a machine runs there is unknown, so nothing is taken away.
        let directory = begin();
        fs::create_dir_all(directory.join("machines/m1/run.json")).unwrap();
        let left = printed(&begun.take_back(failed()));
        assert!(left.contains("is still there") && left.contains("next: cairnctl cluster destroy home"), "{left}");
        assert!(directory.exists());
    }
}
