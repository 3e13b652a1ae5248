//! Waiting for machines that were started: until they run, or are lost. What was made stays for a look.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::MachineStatus;
use model::MachineState;
use qemu::last_words;
use tokio::time::sleep;

use crate::clock::{ASK_AGAIN, Deadline};
use crate::context::{Context, OpenError};
use crate::failure::{Advice, Code, Failure};
use crate::machine::{CallError, ContactError, Session};
use crate::screen::Progress;
use crate::virtual_machine;

/// All that a machine's console said, in its directory.
const CONSOLE: &str = "serial.log";

/// The machine did not come up. `console` is the file with all that its console said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    /// The machine stopped where only a person can help.
    #[error("the machine is {state}: {reason}")]
    Stopped { state: MachineState, reason: String, console: PathBuf },
    /// The machine's kernel gave up.
    #[error("the machine's kernel panicked; its last lines:\n{lines}")]
    Panicked {
        /// The panic, as the console has it.
        lines: String,
        console: PathBuf,
    },
    /// The machine was started and is off.
    #[error("the machine is off: it powered itself off, or its QEMU ended{}", words(qemu))]
    Off {
        /// Words of QEMU, if it said any.
        qemu: String,
        console: PathBuf,
    },
    /// The machine did not answer, or not in time.
    #[error("the machine does not run after {} s", after.as_secs())]
    Late {
        after: Duration,
        /// Last failure to open a session with it; none where one stood.
        #[source]
        last: Option<Box<OpenError>>,
        console: PathBuf,
    },
    /// The machine runs, for all that is known, and is no member of its cluster.
    #[error("the machine is no Member of its cluster after {} s: {last}", after.as_secs())]
    NoMember {
        after: Duration,
        /// Last sight of the machine.
        last: String,
        console: PathBuf,
    },
}

impl Advice for WaitError {
    fn code(&self) -> Code {
        match self {
            Self::Stopped { .. } | Self::Panicked { .. } | Self::Off { .. } => Code::Failed,
            Self::Late { .. } | Self::NoMember { .. } => Code::Timeout,
        }
    }

    fn unchanged(&self) -> &'static str {
        "what was made stays for a look"
    }

    fn next(&self) -> Option<String> {
        let (Self::Stopped { console, .. }
        | Self::Panicked { console, .. }
        | Self::Off { console, .. }
        | Self::Late { console, .. }
        | Self::NoMember { console, .. }) = self;
        Some(format!("read {}; cairnctl cluster destroy takes it all away", console.display()))
    }
}

/// Waits for what concerns the machine with its files in this directory; ends when that cannot come up any more: its kernel
/// panicked, or it is off.
pub(super) async fn unless_lost<T>(
    directory: &Path,
    wait: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = wait => done,
        lost = until_lost(directory) => Err(lost),
    }
}

async fn until_lost(directory: &Path) -> Failure {
    let console = console(directory);
    loop {
        sleep(ASK_AGAIN).await;
        // A console that cannot be read is no panic; whoever waits comes to an end without it.
        if let Ok(Some(lines)) = last_words::kernel_panic(&console) {
            return WaitError::Panicked { lines, console }.into();
        }
        match virtual_machine::runs(directory) {
            Ok(true) => {}
            Ok(false) => {
                let qemu = last_words::of_program(&directory.join("qemu.log"));
                return WaitError::Off { qemu, console }.into();
            }
            Err(error) => return error.into(),
        }
    }
}

/// Words of a program, as the end of a sentence.
fn words(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; it says: {said}") }
}

/// Opens the machine's first session, then asks for status by status until the machine is a running member.
pub(super) async fn until_running(
    context: &Context,
    directory: &Path,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<MachineStatus, Failure> {
    let mut session = until_open(context, directory, deadline, progress).await?;
    loop {
        if deadline.left().is_none() {
            let console = console(directory);
            return Err(WaitError::Late { after: deadline.length(), last: None, console }.into());
        }
        let status = match session.status().await {
            Ok(status) => status,
            // It may start anew on its way; who answers then proves itself again.
            Err(error) if error.may_pass() => {
                session = until_open(context, directory, deadline, progress).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match status.state {
            MachineState::Running => {
                let level = status.level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
                progress.done(&format!("runs, level {level}"));
                return Ok(status);
            }
            MachineState::NeedsOwner | MachineState::Failed => {
                let reason = if status.reason.is_empty() { status.last_error } else { status.reason };
                let console = console(directory);
                return Err(WaitError::Stopped { state: status.state, reason, console }.into());
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
    directory: &Path,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<Session, Failure> {
    let console = || console(directory);
    // Its QEMU runs, or whoever looks for that says so: until it answers it boots.
    let wait = |error: &OpenError| {
        if error.code() == Code::Unreachable {
            progress.show("boots");
        } else if matches!(error, OpenError::Contact(ContactError::Call(CallError::NotNow { .. }))) {
            progress.show("enrols");
        } else {
            progress.show(&format!("wait for the machine: {error}"));
        }
    };
    match context.open_until(deadline, wait).await {
        Ok((session, _)) => Ok(session),
        // One that is off is noticed in its own words, by whoever looks for that.
        Err(OpenError::Off { .. }) => pending().await,
        Err(error) if error.may_pass() => {
            Err(WaitError::Late { after: deadline.length(), last: Some(Box::new(error)), console: console() }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The file with all that a machine's console said.
pub(super) fn console(directory: &Path) -> PathBuf {
    directory.join(CONSOLE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn printed(failure: &Failure) -> String {
        let mut text = Vec::new();
        failure.print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_panicked_kernel_and_an_ended_qemu_tell_their_own_words() {
        let directory = tempfile::tempdir().unwrap();
        let lost = async |console: &str, qemu: &str| {
            fs::write(directory.path().join("serial.log"), console).unwrap();
            fs::write(directory.path().join("qemu.log"), qemu).unwrap();
            printed(&unless_lost(directory.path(), pending::<Result<(), _>>()).await.unwrap_err())
        };
        let panic = "[ 0.1] no init\n[ 0.2] Kernel panic - not syncing: No working init found.\n";
        let panicked = lost(panic, "").await;
        assert!(panicked.contains("error: the machine's kernel panicked"), "{panicked}");
        assert!(panicked.contains("\n  [ 0.2] Kernel panic - not syncing: No working init found.\n"), "{panicked}");
        assert!(panicked.contains("serial.log"), "{panicked}");

        let off = lost("Cairn", "qemu-system-x86_64: terminating on signal 15\n").await;
        assert!(off.contains("the machine is off") && off.contains("terminating on signal 15"), "{off}");
        let off = lost("Cairn", "").await;
        assert!(off.contains("the machine is off") && !off.contains("it says"), "{off}");
    }
}
