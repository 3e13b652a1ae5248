//! `cluster create`: keys, config, disk, virtual machine, first contact, Ready; each step is on the disk before the next.
//!
//! ```text
//!   begin (lock, secret) ► config ► machine's files ► record ► start ► address ► contact ► pins ► wait
//! ```
//! Whatever ends it, `cluster destroy` takes away what is there; from "start" on every other command works as well.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::MachineStatus;
use clap::Args;
use model::{BootClass, MachineState};
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
use crate::store::{BootWay, ClusterName, ClusterRecord, VirtualMachine};
use crate::virtual_machine;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster create --wait
  cairnctl cluster create --name two --memory 4G --disk-size 20G --boot uefi
  cairnctl cluster create --name fast --no-kubernetes --level insecure

The cluster key's share is in the machine's TPM: it protects a stolen disk, not
a stolen machine.")]
pub(crate) struct Arguments {
    /// The cluster's name on this host [default: that of --cluster, else local]
    #[arg(long, value_name = "NAME")]
    name: Option<ClusterName>,
    /// The files of a build [default: $CAIRN_IMAGE_DIR, else out/image]
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Memory of the machine
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

/// The machine did not come up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// It stopped where only a person can help.
    #[error("the machine is {state}: {reason}")]
    Stopped {
        /// Where it stopped.
        state: MachineState,
        /// Its own words.
        reason: String,
        /// The console's log.
        console: PathBuf,
    },
    /// It is off.
    #[error("the machine has powered itself off")]
    Off {
        /// The console's log.
        console: PathBuf,
    },
    /// It did not answer, or not in time.
    #[error("the machine does not run after {} s", after.as_secs())]
    Late {
        /// How long it had.
        after: Duration,
        /// What it was seen to do last.
        #[source]
        last: Option<Box<OpenError>>,
        /// The console's log.
        console: PathBuf,
    },
}

impl Advice for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Stopped { .. } | Self::Off { .. } => Code::Failed,
            Self::Late { .. } => Code::Timeout,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Off { .. } => "what was made stays for a look",
            Self::Stopped { .. } | Self::Late { .. } => {
                "the machine goes on running, and what was made stays for a look"
            }
        }
    }

    fn next(&self) -> Option<String> {
        let (Self::Stopped { console, .. } | Self::Off { console } | Self::Late { console, .. }) = self;
        Some(format!("read {}; cairnctl cluster destroy takes it all away", console.display()))
    }
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let name = &context.new_name(arguments.name.as_ref(), "local")?;
    let deadline = Deadline::after(arguments.timeout);
    let mut progress = Progress::start();
    make(name, arguments, context, &mut progress)?;

    let context =
        Context { store: context.store.clone(), cluster: Some(name.clone()), address: None, format: context.format };
    let mut status = until_running(&context, name, &deadline, &mut progress).await?;
    progress.done(&format!("{} runs, level {}", status.name, level(&status)));
    if arguments.wait && arguments.choices.kubernetes() {
        condition::until_true(&context, "NodeReady", &deadline, &mut progress).await?;
        progress.done("the node is Ready");
        status = context.open().await?.0.status().await?;
    }
    drop(progress);
    match context.format {
        Format::Json => screen::json(out, &status::describe(&context.cluster()?, &status))?,
        Format::Table => go_on(name, &status, arguments.choices.kubernetes(), out)?,
    }
    Ok(())
}

/// Everything up to a running virtual machine. Only this holds the lock.
fn make(name: &ClusterName, arguments: &Arguments, context: &Context, progress: &mut Progress) -> Result<(), Failure> {
    let store = &context.store;
    let image = image_directory(arguments.image.clone());
    let lock = store.lock(name)?;
    let machine = VirtualMachine {
        boot: arguments.boot,
        cpus: arguments.cpus,
        memory_mib: arguments.memory,
        tpm: !arguments.no_tpm,
        cmdline: virtual_machine::cmdline(&image)?,
    };
    machine.fits_host()?;
    let secret = store.begin(name, &lock)?;
    let signed = enrolment::sign(&arguments.choices, None, secret, &store.owner_or_new()?)?;
    progress.show("make the machine's disk");
    let directory = store.machine_directory(name);
    virtual_machine::build(&image, &directory, arguments.disk_size, &signed.bytes)?;
    let mut record = ClusterRecord::new(name.clone(), signed.digest);
    record.virtual_machine = Some(machine.clone());
    // Before the machine runs: whatever happens from here on, `cluster destroy` finds it.
    store.save(&record, &lock)?;
    progress.show("start the machine");
    record.address = Some(machine.start(name, &directory)?.to_string());
    store.save(&record, &lock)?;
    progress.done("the machine starts");
    Ok(())
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

/// Asks until the machine answers, is off, or the deadline passes.
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
            Ok(Err(error)) if error.may_pass() => {
                progress.show(&format!("wait for the machine: {error}"));
                Some(Box::new(error))
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                patience *= 2;
                None
            }
        };
        if !virtual_machine::runs(&context.store.machine_directory(name))? {
            return Err(CreateError::Off { console: console() }.into());
        }
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
