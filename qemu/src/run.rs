//! A running machine: started, watched, steered, ended; or found again by its directory.
//!
//! ```text
//!   launch ──► Vm (tied to its launcher: dropped means killed)
//!          └─► Vm (detached) ──drop──► goes on ──attach──► Vm (detached)
//!   restore ─► Paused ─► the same
//! ```
//! The directory of a machine holds what a run leaves behind: `serial.log`, `qmp.log`, `qemu.log`, `swtpm.log`,
//! `argv`, `timeline`, `launching` while it is started, and `run.json` while it runs. Only processes are ever signalled that
//! were started here, or are proven to have been: by pid and start time, or by the name of the run's sockets.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::console::{Console, Line, Mark, Silent};
use crate::deadline::Deadline;
use crate::last_words;
use crate::machine::{Machine, Protocol};
use crate::process::{Process, ProcessError, ProcessIdentity, WaitFailure};
use crate::qmp::{Event, Qmp, QmpError};
use crate::swtpm::{Swtpm, SwtpmError};

mod launching;
mod paused;
mod prepare;
mod record;
mod timeline;

pub use paused::{Memory, Paused};
pub use prepare::MachineFilesError;
use record::Record;
pub use timeline::RunPoint;
use timeline::Timeline;

/// Machine that was started, with its processes, monitor and console.
#[derive(Debug)]
pub struct Vm {
    dir: PathBuf,
    record: Record,
    qmp: Qmp,
    console: Console,
    process: Process,
    timeline: Timeline,
    forwards: Vec<(Protocol, u16, SocketAddr)>,
    /// Children of this process; none where the machine was found again.
    children: Option<Children>,
    tie: Tie,
}

/// How long a machine lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// No longer than the [`Vm`] that holds it.
    Launcher,
    /// Until somebody ends it.
    Detached,
}

#[derive(Debug)]
struct Children {
    qemu: Child,
    swtpm: Option<Swtpm>,
}

/// Why a machine did not start, or could not be found again.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The machine's files could not be made.
    #[error("prepare the machine's files")]
    Prepare(#[from] MachineFilesError),
    /// The machine runs already.
    #[error("a machine already runs in `{0}`")]
    Running(PathBuf),
    /// The machine's TPM did not start.
    #[error("start the machine's TPM")]
    Tpm(#[from] SwtpmError),
    /// QEMU cannot be started.
    #[error("start qemu-system-x86_64 (Debian package qemu-system-x86)")]
    Spawn(#[source] io::Error),
    /// A process cannot be watched.
    #[error("watch QEMU")]
    Watch(#[from] ProcessError),
    /// QEMU did not come up.
    #[error("QEMU does not run ({why}); it says: {output}")]
    Start {
        /// The end of `qemu.log`.
        output: String,
        why: WaitFailure,
    },
    /// The monitor failed.
    #[error("use the machine's monitor")]
    Monitor(#[from] QmpError),
    /// The machine was killed and is still there: the kernel does not let go of it.
    #[error("QEMU (process {0}) was killed and does not end")]
    Unkillable(i32),
    /// The machine was asked to power off and did not in time.
    #[error("the machine still runs {} s after its power button was pressed; its last lines:\n{tail}", after.as_secs())]
    StillUp { after: Duration, tail: String },
}

/// Why a machine did not end as it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The monitor failed.
    #[error("use the machine's monitor")]
    Monitor(#[from] QmpError),
    /// The machine still ran when the deadline passed.
    #[error("the machine still runs after {after:?}; its last lines:\n{tail}")]
    StillRuns { after: Duration, tail: String },
    /// The machine ended, but not by its own doing.
    #[error("the machine was ended by `{0}`, not by itself")]
    NotByItself(String),
}

/// Programs and sockets on the host come up within this, however busy it is; it only bounds a wait for what is broken.
const HOST: Duration = Duration::from_secs(60);

impl Vm {
    /// Starts `machine` with its run's files in `dir`.
    ///
    /// # Errors
    /// [`RunError`]; nothing is left running then.
    pub fn launch(machine: &Machine, dir: &Path, tie: Tie) -> Result<Self, RunError> {
        Paused::power_on(machine, dir, tie)?.go_on()
    }

    /// The machine that runs detached with its files in `dir`, if one does.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn attach(dir: &Path) -> Result<Option<Self>, RunError> {
        let Some(Running { dir, record, process }) = running(dir)? else { return Ok(None) };
        let at = MachineFilesError::at;
        let files = record::files(&dir, &record.sockets);
        let log = File::options().create(true).append(true).open(dir.join("qmp.log")).map_err(at(&dir))?;
        let deadline = Deadline::after(HOST);
        let monitor = Qmp::connect(&files.qmp, log, deadline).and_then(|mut qmp| {
            let usernet = qmp.human("info usernet", deadline)?;
            Ok((qmp, usernet))
        });
        let (qmp, usernet) = match monitor {
            Ok(monitor) => monitor,
            Err(error) => {
                let error = explain(error, &process, &dir);
                // It was on its way out.
                return if process.has_exited() { Ok(None) } else { Err(error) };
            }
        };
        let forwards = forwards(&usernet);
        let end = process.end().map_err(at(&dir))?;
        let from = record.serial_from;
        let console = Console::follow(&files.serial_log, from, from, end).map_err(at(&dir))?;
        let timeline = Timeline::open(&dir.join("timeline")).map_err(at(&dir))?;
        let tie = Tie::Detached;
        let mut vm = Self { dir, record, qmp, console, process, timeline, forwards, children: None, tie };
        vm.note("found again");
        Ok(Some(vm))
    }

    /// Whether a machine runs detached with its files in `dir`. Asks the host only, not the machine's monitor.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn runs(dir: &Path) -> Result<bool, RunError> {
        Ok(running(dir)?.is_some())
    }

    /// Ends the machine that runs detached with its files in `dir`, if one does, and one whose launcher was killed before it
    /// ran. Without its monitor, so that one that hangs or is on its way out is ended too. When this returns, nothing writes
    /// into `dir` any more.
    ///
    /// # Errors
    /// [`RunError`]; the record stays then, so that it can be tried again.
    pub fn end_detached(dir: &Path) -> Result<(), RunError> {
        if let Some(Running { dir, record, process }) = running(dir)? {
            // Found by identity: the only failure is that it has ended.
            let _killed = process.kill();
            if !process.wait(Deadline::after(HOST)) {
                return Err(RunError::Unkillable(process.identity().pid));
            }
            end_tpm(record.swtpm)?;
            record.remove(&dir);
        }
        launching::end_abandoned(dir)
    }

    /// Presses the power button of the machine that runs detached with its files in `dir`, if one does, and waits until
    /// it has powered itself off.
    ///
    /// # Errors
    /// [`RunError`]; the machine goes on then.
    pub fn stop_detached(dir: &Path, deadline: Deadline) -> Result<(), RunError> {
        let Some(mut vm) = Self::attach(dir)? else { return Ok(()) };
        match vm.qmp.press_power_button(deadline) {
            Ok(()) => drop(vm.note("power button")),
            Err(_) if vm.process.has_exited() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if !vm.process.wait(deadline) {
            return Err(RunError::StillUp { after: deadline.length(), tail: vm.console.tail() });
        }
        Ok(())
    }

    /// Has the machine that runs detached with its files in `dir` go on, if somebody stopped its processors: a launcher that
    /// was killed while it saved it. Whether it stood still.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn wake_detached(dir: &Path) -> Result<bool, RunError> {
        let Some(mut vm) = Self::attach(dir)? else { return Ok(false) };
        let stands = vm.stands_still()?;
        if stands {
            vm.go_on_after_save(Deadline::after(HOST))?;
        }
        Ok(stands)
    }

    /// Whether its processors are stopped.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn stands_still(&mut self) -> Result<bool, QmpError> {
        Ok(self.qmp.status(Deadline::after(HOST))? != "running")
    }

    /// Writes memory and devices of a machine whose processors are stopped to `file`. What is on the machine's disks belongs to it until the
    /// machine goes on ([`Self::go_on_after_save`]) or ends.
    ///
    /// # Errors
    /// [`QmpError`]; it may stand still then.
    pub fn save_memory(&mut self, file: &File, deadline: Deadline) -> Result<(), QmpError> {
        self.qmp.save_memory(file.as_fd(), deadline)?;
        self.note("saved");
        Ok(())
    }

    /// Lets it go on, however far saving it has come.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn go_on_after_save(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        // Whoever began a save may have ended within it; of one that is over nothing is left to be cancelled.
        self.qmp.execute("migrate_cancel", &Value::Null, deadline)?;
        let Self { qmp, process, .. } = self;
        // QEMU refuses to go on while it ends what was cancelled.
        let resumed = process.until(deadline, || match qmp.resume(deadline) {
            Err(QmpError::Refused { .. }) => None,
            result => Some(result),
        });
        resumed.unwrap_or_else(|_waited| self.qmp.resume(deadline))
    }

    /// Machine as it was started; none where an older version of this program did.
    #[must_use]
    pub fn machine(&self) -> Option<&Machine> {
        self.record.machine.as_ref()
    }

    /// Length of `serial.log` when this run began, in bytes.
    pub(crate) fn serial_from(&self) -> u64 {
        self.record.serial_from
    }

    /// Where the run's files are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The serial port's socket, for a person who wants to type.
    #[must_use]
    pub fn serial_socket(&self) -> PathBuf {
        record::files(&self.dir, &self.record.sockets).serial
    }

    /// Monitor of the machine.
    pub fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    /// Serial console of the machine.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Where its console ends now.
    ///
    /// # Errors
    /// Where the file's length cannot be read.
    pub fn mark(&self) -> io::Result<Mark> {
        self.console.mark()
    }

    /// Where its console was when it started, or came back as it was saved.
    #[must_use]
    pub fn started(&self) -> Mark {
        self.console.started()
    }

    /// All that its console has said so far, whether or not it was waited for.
    #[must_use]
    pub fn said(&self) -> Vec<Line> {
        self.console.lines()
    }

    /// Waits for a console line, from there on.
    ///
    /// # Errors
    /// [`Silent`]
    pub fn wait_for(&self, from: Mark, text: &str, deadline: Deadline) -> Result<Line, Silent> {
        self.console.wait_for(from, text, deadline)
    }

    /// Notes a point in the timeline, with the CPU time used so far.
    pub fn note(&mut self, what: &str) -> RunPoint {
        self.timeline.note(what, self.cpu_time())
    }

    /// The timeline so far.
    #[must_use]
    pub fn timeline(&self) -> &[RunPoint] {
        self.timeline.milestones()
    }

    /// CPU time that QEMU has used so far; zero once it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.process.cpu_time().unwrap_or_default()
    }

    /// Where the host's side of a forwarded TCP port is.
    #[must_use]
    pub fn forward(&self, guest: u16) -> Option<SocketAddr> {
        self.forward_of(Protocol::Tcp, guest)
    }

    /// The same by each card that forwards it, in the order of the cards. The guest sees whoever comes through one as
    /// 10.0.2.2, through the next as 10.0.3.2, and so on.
    #[must_use]
    pub fn forwards(&self, guest: u16) -> Vec<SocketAddr> {
        self.forwards.iter().filter(|row| (row.0, row.1) == (Protocol::Tcp, guest)).map(|row| row.2).collect()
    }

    /// Where the host's side of a forwarded port is.
    #[must_use]
    pub fn forward_of(&self, protocol: Protocol, guest: u16) -> Option<SocketAddr> {
        self.forwards.iter().find(|row| (row.0, row.1) == (protocol, guest)).map(|row| row.2)
    }

    /// Waits until `look` sees something outside of the machine's console: a port that answers, a file.
    ///
    /// # Errors
    /// [`WaitFailure`]; at once when the machine ends.
    pub fn until<T>(&self, deadline: Deadline, look: impl FnMut() -> Option<T>) -> Result<T, WaitFailure> {
        self.process.until(deadline, look)
    }

    /// Whether QEMU still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.process.has_exited()
    }

    /// Pulls the reset line.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn reset(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        self.qmp.reset(deadline)?;
        self.note("reset");
        Ok(())
    }

    /// Waits until the machine restarts, by whoever's doing; QEMU's word for the cause.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn wait_reset(&mut self, deadline: Deadline) -> Result<String, QmpError> {
        self.qmp.wait_event("a reset", deadline, |event| match event {
            Event::Reset { reason, .. } => Some(reason.clone()),
            Event::Shutdown { .. }
            | Event::GuestPanicked
            | Event::Powerdown
            | Event::Watchdog
            | Event::Migration(_)
            | Event::Other(_) => None,
        })
    }

    /// Presses the power button and waits until the guest has shut itself down.
    ///
    /// # Errors
    /// [`EndError`]; the machine is killed then, as it is when this succeeds.
    pub fn power_off(mut self, deadline: Deadline) -> Result<(), EndError> {
        if let Err(error) = self.qmp.press_power_button(deadline) {
            self.end();
            return Err(error.into());
        }
        self.note("power button");
        self.wait_shutdown(deadline)
    }

    /// Waits until the guest has shut itself down.
    ///
    /// # Errors
    /// [`EndError`]; the machine is killed then.
    pub fn wait_shutdown(mut self, deadline: Deadline) -> Result<(), EndError> {
        let shutdown = self.qmp.wait_event("a shutdown", deadline, |event| match event {
            Event::Shutdown { guest, reason } => Some((*guest, reason.clone())),
            Event::Reset { .. }
            | Event::GuestPanicked
            | Event::Powerdown
            | Event::Watchdog
            | Event::Migration(_)
            | Event::Other(_) => None,
        });
        let ended = match shutdown {
            Ok((true, _)) => Ok(()),
            Ok((false, reason)) => Err(EndError::NotByItself(reason)),
            Err(QmpError::Silent(_)) => {
                Err(EndError::StillRuns { after: deadline.length(), tail: self.console.tail() })
            }
            Err(other) => Err(EndError::Monitor(other)),
        };
        // On its way out by itself; its death is what frees its files.
        let _gone = ended.is_ok() && self.process.wait(Deadline::after(HOST));
        self.note("ended");
        self.end();
        ended
    }

    /// Ends it at once, as a crash of the host's QEMU would: what the guest flushed is on its disks.
    pub fn kill(mut self) {
        self.note("killed");
        self.end();
    }

    fn end(&mut self) {
        // It is a child or was found by identity: the only failure is that it has ended.
        let _killed = self.process.kill();
        if let Some(Children { mut qemu, swtpm }) = self.children.take() {
            if let Some(signal) = qemu.wait().ok().and_then(crash) {
                // Without this line the end of the machine stays unexplained, as it was.
                let _told = File::options()
                    .append(true)
                    .open(self.dir.join(OUTPUT))
                    .and_then(|mut output| writeln!(output, "{CRASHED} {signal}"));
            }
            if let Some(swtpm) = swtpm {
                swtpm.finish(Deadline::after(HOST));
            }
        } else {
            let _gone = self.process.wait(Deadline::after(HOST));
            // One that cannot be watched cannot be waited for either.
            let _ended = end_tpm(self.record.swtpm);
        }
        self.record.remove(&self.dir);
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        match (self.tie, self.process.has_exited()) {
            (Tie::Launcher, false) => {
                // Whoever let go of it may have waited in vain: the monitor's log then says what the processors were at.
                let _kept_in_the_log = self.qmp.human("info registers -a", Deadline::after(Duration::from_secs(1)));
                self.end();
            }
            (_, true) => self.end(),
            (Tie::Detached, false) => {
                if let Some(Children { swtpm: Some(swtpm), .. }) = self.children.take() {
                    swtpm.detach();
                }
            }
        }
    }
}

/// Output of QEMU, in a machine's directory.
const OUTPUT: &str = "qemu.log";
/// Line behind the output of a QEMU that crashed, up to the signal's number.
const CRASHED: &str = "QEMU crashed: signal";

/// Whether QEMU itself crashed when the machine with its files in `dir` ran last, as its launcher saw it: in QEMU's words, if so.
#[must_use]
pub fn crash_of(dir: &Path) -> Option<String> {
    let output = fs::read_to_string(dir.join(OUTPUT)).ok()?;
    output.lines().last().filter(|line| line.starts_with(CRASHED)).map(str::to_owned)
}

/// Signal by which a program crashed, if it did: one that the processor raised, or the program itself, and nobody sent.
fn crash(status: ExitStatus) -> Option<i32> {
    const CRASHES: [Signal; 5] = [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::ILL, Signal::FPE];
    status.signal().filter(|signal| CRASHES.iter().any(|crash| crash.as_raw() == *signal))
}

/// Explains a failure of the monitor: where it is that QEMU ended, QEMU's own words say why.
fn explain(error: QmpError, process: &Process, dir: &Path) -> RunError {
    // Its connection closes a moment before the process is gone.
    if matches!(error, QmpError::Closed | QmpError::Io(_)) && process.wait(Deadline::after(HOST)) {
        RunError::Start { output: last_words::of_program(&dir.join(OUTPUT)), why: WaitFailure::Exited }
    } else {
        RunError::Monitor(error)
    }
}

/// Waits until the TPM of a machine that has ended has written its state and ended as well; one that does not is killed.
fn end_tpm(tpm: Option<ProcessIdentity>) -> Result<(), RunError> {
    let Some(process) = tpm.map(Process::find).transpose()?.flatten() else { return Ok(()) };
    if !process.wait(Deadline::after(HOST)) {
        // Found by identity: the only failure is that it has ended.
        let _killed = process.kill();
        if !process.wait(Deadline::after(HOST)) {
            return Err(RunError::Unkillable(process.identity().pid));
        }
    }
    Ok(())
}

struct Running {
    dir: PathBuf,
    record: Record,
    process: Process,
}

/// The process that the record in `dir` names, if it runs; a record of one that does not is removed, as soon as its TPM
/// has ended too: nothing else writes into `dir` then.
fn running(dir: &Path) -> Result<Option<Running>, RunError> {
    let record = Record::read(dir).map_err(MachineFilesError::at(dir))?;
    let Some(record) = record else { return Ok(None) };
    match Process::find(record.qemu)? {
        Some(process) => {
            let dir = fs::canonicalize(dir).map_err(MachineFilesError::at(dir))?;
            Ok(Some(Running { dir, record, process }))
        }
        None => {
            end_tpm(record.swtpm)?;
            record.remove(dir);
            Ok(None)
        }
    }
}

/// Forwards in what `info usernet` prints: protocol, guest's port, host's address.
fn forwards(usernet: &str) -> Vec<(Protocol, u16, SocketAddr)> {
    let row = |line: &str| {
        let mut fields = line.split_whitespace();
        let protocol = match fields.next()? {
            "TCP[HOST_FORWARD]" => Protocol::Tcp,
            "UDP[HOST_FORWARD]" => Protocol::Udp,
            // Headings and connections.
            _ => return None,
        };
        let host: Ipv4Addr = fields.nth(1)?.parse().ok()?;
        let port: u16 = fields.next()?.parse().ok()?;
        let guest: u16 = fields.nth(1)?.parse().ok()?;
        Some((protocol, guest, SocketAddr::from((host, port))))
    };
    usernet.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_from_what_qemu_prints() {
        let text = "Hub -1 (nic0):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  \
                    TCP[ESTABLISHED]   11       127.0.0.1 40000       10.0.2.15  7836     0     0\r\n  \
                    TCP[HOST_FORWARD]   9       127.0.0.1 35099       10.0.2.15  7836     0     0\r\n  \
                    UDP[HOST_FORWARD]   8       127.0.0.1 43923       10.0.2.15  7838     0     0\r\n";
        let host = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(forwards(text), [(Protocol::Tcp, 7836, host(35099)), (Protocol::Udp, 7838, host(43923))]);
        assert_eq!(forwards("Hub -1 (nic0):\r\nTCP[HOST_FORWARD] 9 127.0.0.1"), []);
    }

    #[test]
    fn a_record_of_a_process_that_is_gone_is_no_machine() {
        let dir = tempfile::tempdir().unwrap();
        let qemu = ProcessIdentity { pid: i32::MAX, started: 1 };
        let sockets = dir.path().join("sockets");
        fs::create_dir(&sockets).unwrap();
        Record { qemu, swtpm: Some(qemu), sockets: sockets.clone(), serial_from: 0, machine: None }
            .write(dir.path())
            .unwrap();
        assert!(!Vm::runs(dir.path()).unwrap());
        Vm::end_detached(dir.path()).unwrap();
        assert!(Vm::attach(dir.path()).unwrap().is_none());
        assert!(!sockets.exists() && Record::read(dir.path()).unwrap().is_none());
    }
}
