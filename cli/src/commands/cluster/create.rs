//! `cluster create`: keys, config, disk, virtual machine, first contact, Ready; each step is on the disk before the next.
//!
//! ```text
//!   begin (lock, secret) ► config ► machine's files ► record ► start ► address ► contact ► pins ► wait
//! ```
//! What fails before the machine runs takes away again what was made. From "start" on every other command works as well,
//! and what was made stays for a look; a machine that is lost while it is waited for, is noticed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::MachineStatus;
use clap::Args;
use model::{BootClass, MachineState};
use qemu::{host, last_words};
use tokio::time::{sleep, timeout};

use super::status;
use crate::clock::Deadline;
use crate::commands::{ASK_AGAIN, Context, OpenError, PATIENCE, condition};
use crate::enrolment::{self, Choices};
use crate::failure::{Advice, Code, Failure};
use crate::length;
use crate::machine::Session;
use crate::quantity;
use crate::screen::{self, Format, Progress};
use crate::store::{BootWay, ClusterName, ClusterRecord, Locked, Store, VirtualMachine};
use crate::virtual_machine;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster create --wait
  cairnctl cluster create two --memory 4G --disk-size 20G --boot uefi
  cairnctl cluster create fast --no-kubernetes --level insecure

The cluster key's share is in the machine's TPM: it protects a stolen disk, not
a stolen machine.")]
pub(crate) struct Arguments {
    /// The cluster's name on this host [default: that of --cluster, else local]
    #[arg(value_name = "NAME")]
    name: Option<ClusterName>,
    /// The files of a build [default: $CAIRN_IMAGE_DIR, else out/image]
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Memory of the machine: 2G at least, 512M with --no-kubernetes
    #[arg(long, value_name = "SIZE", default_value = "3G", value_parser = quantity::mebibytes)]
    memory: u32,
    /// Virtual processors
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Size of the disk; it takes only what is written to it
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = quantity::bytes)]
    disk_size: u64,
    /// Board and way of loading the kernel
    #[arg(long, value_enum, default_value_t = BootWay::Direct, value_name = "WAY")]
    boot: BootWay,
    /// A machine without a TPM
    #[arg(long, requires = "unprotected")]
    no_tpm: bool,
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
    let name = &context.new_name("local")?;
    let deadline = Deadline::after(arguments.timeout);
    let mut progress = Progress::start();
    make(name, arguments, context, &mut progress)?;

    let context =
        Context { store: context.store.clone(), cluster: Some(name.clone()), address: None, format: context.format };
    let status = tokio::select! {
        status = until_ready(arguments, &context, name, &deadline, &mut progress) => status,
        lost = until_lost(&context, name) => Err(lost),
    };
    let stays = format!("what was made of cluster `{name}` stays for a look");
    let status = status.map_err(|failure| failure.leaving(stays))?;
    drop(progress);
    match context.format {
        Format::Json => screen::json(out, &status::describe(&context.cluster()?, &status))?,
        Format::Table => go_on(name, &status, arguments.choices.kubernetes(), out)?,
    }
    Ok(())
}

/// Everything up to a running virtual machine, or nothing. Only this holds the lock.
fn make(name: &ClusterName, arguments: &Arguments, context: &Context, progress: &mut Progress) -> Result<(), Failure> {
    let store = &context.store;
    let image = image_directory(arguments.image.clone());
    virtual_machine::fits_memory(arguments.memory, arguments.choices.kubernetes(), host::memory_mib())?;
    let lock = store.lock(name)?;
    let machine = VirtualMachine {
        boot: arguments.boot,
        cpus: arguments.cpus,
        memory_mib: arguments.memory,
        tpm: !arguments.no_tpm,
        cmdline: virtual_machine::cmdline(&image)?,
    };
    machine.fits_host()?;
    store.free(name, &lock)?;
    let begun = Begun { name, image: &image, machine: &machine, lock: &lock };
    begun.finish(arguments, store, progress).map_err(|failure| begun.take_back(store, failure))
}

/// A cluster of which files may be there from here on.
struct Begun<'a> {
    name: &'a ClusterName,
    image: &'a Path,
    machine: &'a VirtualMachine,
    lock: &'a Locked,
}

impl Begun<'_> {
    fn finish(&self, arguments: &Arguments, store: &Store, progress: &mut Progress) -> Result<(), Failure> {
        let Self { name, image, machine, lock } = self;
        let secret = store.begin(name, lock)?;
        let signed = enrolment::sign(&arguments.choices, None, secret, &store.owner_or_new()?)?;
        progress.show("make the machine's disk");
        let directory = store.machine_directory(name);
        virtual_machine::build(image, &directory, arguments.disk_size, &signed.bytes)?;
        let mut record = ClusterRecord::new((*name).clone(), signed.digest);
        record.machine_mut().virtual_machine = Some((*machine).clone());
        // Before the machine runs: whatever happens from here on, `cluster destroy` finds it.
        store.save(&record, lock)?;
        progress.show("start the machine");
        record.machine_mut().address = Some(machine.start(name, &directory)?.to_string());
        store.save(&record, lock)?;
        progress.done("the machine starts");
        Ok(())
    }

    /// Takes away what was made, so that the failure leaves what was there before.
    fn take_back(&self, store: &Store, failure: Failure) -> Failure {
        let ended = virtual_machine::end(&store.machine_directory(self.name)).map_err(Failure::from);
        match ended.and_then(|()| Ok(store.remove(self.name, self.lock)?)) {
            Ok(()) => failure.leaving("no cluster was made"),
            Err(why) => failure
                .leaving(format!("what was made of cluster `{}` is still there ({why})", self.name))
                .going_on(format!("cairnctl cluster destroy {}", self.name)),
        }
    }
}

/// Until there is what was asked for: a machine that runs, or a node that is Ready.
async fn until_ready(
    arguments: &Arguments,
    context: &Context,
    name: &ClusterName,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<MachineStatus, Failure> {
    let status = until_running(context, name, deadline, progress).await?;
    progress.done(&format!("{} runs, level {}", status.name, level(&status)));
    if !(arguments.wait && arguments.choices.kubernetes()) {
        return Ok(status);
    }
    condition::until_true(context, "NodeReady", deadline, progress).await?;
    progress.done("the node is Ready");
    Ok(context.open().await?.0.status().await?)
}

/// Until the machine cannot come up any more: its kernel panicked, or it is off.
async fn until_lost(context: &Context, name: &ClusterName) -> Failure {
    let directory = context.store.machine_directory(name);
    let console = directory.join("serial.log");
    loop {
        sleep(ASK_AGAIN).await;
        // A console that cannot be read is no panic; whoever waits comes to an end without it.
        if let Ok(Some(lines)) = last_words::kernel_panic(&console) {
            return CreateError::Panicked { lines, console }.into();
        }
        match virtual_machine::runs(&directory) {
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
    name: &ClusterName,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<MachineStatus, Failure> {
    let mut session = until_open(context, name, deadline, progress).await?;
    progress.done("first contact: the machine proved itself and is pinned");
    let console = || console(context, name);
    loop {
        if deadline.left().is_none() {
            return Err(CreateError::Late { after: deadline.length(), last: None, console: console() }.into());
        }
        let status = match session.status().await {
            Ok(status) => status,
            // It may start anew on its way; who answers then proves itself again.
            Err(error) if error.may_pass() => {
                session = until_open(context, name, deadline, progress).await?;
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
async fn until_open(
    context: &Context,
    name: &ClusterName,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<Session, Failure> {
    let console = || console(context, name);
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

fn console(context: &Context, name: &ClusterName) -> PathBuf {
    context.store.machine_directory(name).join("serial.log")
}

fn level(status: &MachineStatus) -> String {
    status.level.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
}

fn image_directory(named: Option<PathBuf>) -> PathBuf {
    named
        .or_else(|| std::env::var_os("CAIRN_IMAGE_DIR").map(PathBuf::from))
        .unwrap_or_else(|| Path::new("out").join("image"))
}

fn go_on(name: &ClusterName, status: &MachineStatus, kubernetes: bool, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "cluster `{name}` runs on {} (protection {})", status.name, status.protection)?;
    if status.boot_class == BootClass::Direct {
        writeln!(out, "its kernel is loaded by QEMU and not measured: the disk is as safe as this host")?;
    }
    writeln!(out, "go on with:")?;
    writeln!(out, "  cairnctl -c {name} machine status")?;
    if kubernetes {
        writeln!(out, "  cairnctl -c {name} kubectl get pods -A")?;
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
        (Context { store, cluster: None, address: None, format: Format::Table }, NAME.parse().unwrap())
    }

    fn printed(failure: &Failure) -> String {
        let mut text = Vec::new();
        failure.print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// The files of a machine, with this on its console and in its QEMU's log.
    fn machine(context: &Context, name: &ClusterName, console: &str, qemu: &str) {
        let directory = context.store.machine_directory(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("serial.log"), console).unwrap();
        fs::write(directory.join("qemu.log"), qemu).unwrap();
    }

    #[tokio::test]
    async fn a_kernel_that_panics_and_a_qemu_that_ends_are_noticed_in_their_own_words() {
        let root = tempfile::tempdir().unwrap();
        let (context, name) = context(root.path());
        let panic = "[ 0.1] no init\n[ 0.2] Kernel panic - not syncing: No working init found.\n";
        machine(&context, &name, panic, "");
        let lost = printed(&until_lost(&context, &name).await);
        assert!(lost.contains("error: the machine's kernel panicked"), "{lost}");
        assert!(lost.contains("\n  [ 0.2] Kernel panic - not syncing: No working init found.\n"), "{lost}");
        assert!(lost.contains("serial.log"), "{lost}");

        machine(&context, &name, "Cairn", "qemu-system-x86_64: terminating on signal 15\n");
        let lost = printed(&until_lost(&context, &name).await);
        assert!(lost.contains("the machine is off") && lost.contains("terminating on signal 15"), "{lost}");
        machine(&context, &name, "Cairn", "");
        let lost = printed(&until_lost(&context, &name).await);
        assert!(lost.contains("the machine is off") && !lost.contains("it says"), "{lost}");
    }

    #[test]
    fn what_fails_before_the_machine_runs_leaves_nothing_or_says_what() {
        let root = tempfile::tempdir().unwrap();
        let (context, name) = context(root.path());
        let lock = context.store.lock(&name).unwrap();
        let machine = VirtualMachine { boot: BootWay::Direct, cpus: 1, memory_mib: 1, tpm: false, cmdline: "".into() };
        let begun = Begun { name: &name, image: Path::new("/"), machine: &machine, lock: &lock };
        let begin = || {
            context.store.begin(&name, &lock).unwrap();
            context.store.directory(&name)
        };
        let failed = || Failure::from(std::io::Error::other("no space"));
        let directory = begin();
        let left = printed(&begun.take_back(&context.store, failed()));
        assert!(left.contains("\n  no cluster was made\n") && !directory.exists(), "{left}");

        // A run's record that nobody can read: whether a machine runs there is unknown, so nothing is taken away.
        let directory = begin();
        fs::create_dir_all(directory.join("machine/run.json")).unwrap();
        let left = printed(&begun.take_back(&context.store, failed()));
        assert!(left.contains("is still there") && left.contains("next: cairnctl cluster destroy home"), "{left}");
        assert!(directory.exists());
    }
}
