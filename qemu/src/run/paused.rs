//! A machine whose processors stand still: QEMU and TPM are there, memory and devices are as at power-on, or as they were saved.
//! It goes on when it is told to, or is gone again when it is dropped; several that belong together so go on at one moment.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::launching::{self, Launching};
use super::record::{self, Record};
use super::timeline::Timeline;
use super::{Children, HOST, MachineFilesError, OUTPUT, RunError, Tie, Vm, explain, forwards, prepare, running};
use crate::console::Console;
use crate::deadline::Deadline;
use crate::host::{self, Host};
use crate::last_words;
use crate::machine::{Clock, Machine};
use crate::process::{Process, WaitFailure};
use crate::qmp::{Qmp, QmpError};
use crate::swtpm::{Swtpm, SwtpmFiles};

/// Machine whose QEMU is up and whose processors stand still. Its parts are dropped in this order: nothing runs any
/// more when its sockets go.
#[derive(Debug)]
pub struct Paused {
    started: Started,
    launching: Launching,
    sockets: TempDir,
    dir: PathBuf,
    machine: Machine,
    qmp: Qmp,
    process: Process,
    console: Console,
    serial_from: u64,
    tie: Tie,
}

/// Memory of a machine when it was saved.
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    /// File that [`Qmp::save_memory`] wrote.
    pub file: &'a Path,
    /// Length of `serial.log` when its run began, in bytes; the rest of the file is the console that it had.
    pub serial_from: u64,
}

impl Paused {
    /// `machine` with its run's files in `dir`, before its first instruction.
    ///
    /// # Errors
    /// [`RunError`]; nothing is left running then.
    pub fn power_on(machine: &Machine, dir: &Path, tie: Tie) -> Result<Self, RunError> {
        Self::start(machine, dir, tie, None)
    }

    /// `machine` as it was saved; its files in `dir` must be those of the same moment.
    ///
    /// # Errors
    /// [`RunError`]; nothing is left running then.
    pub fn restore(machine: &Machine, dir: &Path, tie: Tie, memory: Memory<'_>) -> Result<Self, RunError> {
        Self::start(machine, dir, tie, Some(memory))
    }

    fn start(machine: &Machine, dir: &Path, tie: Tie, memory: Option<Memory<'_>>) -> Result<Self, RunError> {
        let at = MachineFilesError::at;
        fs::create_dir_all(dir).map_err(at(dir))?;
        // QEMU appends the console's log by this name wherever it runs.
        let dir = fs::canonicalize(dir).map_err(at(dir))?;
        if let Some(found) = running(&dir)? {
            return Err(RunError::Running(found.dir));
        }
        launching::end_abandoned(&dir)?;
        prepare::prepare(machine)?;
        let sockets = tempfile::Builder::new().prefix(launching::SOCKETS).tempdir();
        let sockets = sockets.map_err(at(Path::new("sockets")))?;
        let launching = Launching::begin(&dir, sockets.path()).map_err(at(&dir))?;
        let files = record::files(&dir, sockets.path());
        let serial =
            File::options().create(true).append(true).open(&files.serial_log).map_err(at(&files.serial_log))?;
        let serial_now = serial.metadata().map_err(at(&files.serial_log))?.len();

        let mut started = Started::default();
        if let Some(tpm) = &machine.tpm {
            let log = dir.join("swtpm.log");
            let files = SwtpmFiles { state: &tpm.state, control: &files.tpm, log: &log };
            started.swtpm = Some(Swtpm::start(&files, tie == Tie::Detached, Deadline::after(HOST))?);
        }
        let mut argv = machine.argv(&files, &Host::look());
        if memory.is_some() {
            argv.extend(["-incoming".to_owned(), "defer".to_owned()]);
        }
        let process = started.start_qemu(&argv, machine.clock, &dir, tie)?;
        let explained = |error: QmpError| explain(error, &process, &dir);
        let deadline = Deadline::after(HOST);
        let monitor = process.until(deadline, || {
            let log = File::options().create(true).append(true).open(dir.join("qmp.log")).ok()?;
            match Qmp::connect(&files.qmp, log, deadline) {
                Err(QmpError::Connect(_)) => None,
                other => Some(other),
            }
        });
        let output = || last_words::of_program(&dir.join(OUTPUT));
        let monitor = monitor.map_err(|why| RunError::Start { output: output(), why })?;
        let mut qmp = monitor.map_err(explained)?;
        if let Some(memory) = memory {
            let file = File::open(memory.file).map_err(at(memory.file))?;
            qmp.restore_memory(file.as_fd(), Deadline::after(HOST)).map_err(explained)?;
        }
        let serial_from = memory.map_or(serial_now, |memory| memory.serial_from);
        let end = process.end().map_err(at(&dir))?;
        let console = Console::follow(&files.serial_log, serial_from, serial_now, end);
        let console = console.map_err(at(&files.serial_log))?;
        let machine = machine.clone();
        Ok(Self { started, launching, sockets, dir, machine, qmp, process, console, serial_from, tie })
    }

    /// Monitor of the machine.
    pub fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    /// Waits until `look` sees something outside of the machine.
    ///
    /// # Errors
    /// [`WaitFailure`]; at once when the machine ends.
    pub fn until<T>(&self, deadline: Deadline, look: impl FnMut() -> Option<T>) -> Result<T, WaitFailure> {
        self.process.until(deadline, look)
    }

    /// Lets it go on, from where it was.
    ///
    /// # Errors
    /// [`RunError`]; nothing is left running then.
    pub fn go_on(self) -> Result<Vm, RunError> {
        // Dropped from the last to the first where this fails.
        let Self { sockets, launching, mut started, dir, machine, mut qmp, process, console, serial_from, tie } = self;
        let at = MachineFilesError::at;
        let explained = |error: QmpError| explain(error, &process, &dir);
        let deadline = Deadline::after(HOST);
        let forwards = forwards(&qmp.human("info usernet", deadline).map_err(explained)?);
        let timeline = Timeline::open(&dir.join("timeline")).map_err(at(&dir))?;
        let swtpm = started.swtpm.as_ref().map(Swtpm::identity);
        let (qemu, machine) = (process.identity(), Some(machine));
        let record = Record { qemu, swtpm, sockets: sockets.path().to_owned(), serial_from, machine };
        qmp.resume(deadline).map_err(explained)?;
        record.write(&dir).map_err(at(&dir))?;
        drop(launching);

        // From here on the record removes the sockets.
        let _kept = sockets.keep();
        let children = started.children();
        let mut vm = Vm { dir, record, qmp, console, process, timeline, forwards, children, tie };
        vm.note("started");
        Ok(vm)
    }
}

/// QEMU and its TPM between their start and the moment a [`Vm`] owns them: killed if that moment does not come.
#[derive(Debug, Default)]
struct Started {
    qemu: Option<Child>,
    swtpm: Option<Swtpm>,
}

impl Started {
    fn start_qemu(&mut self, argv: &[String], clock: Clock, dir: &Path, tie: Tie) -> Result<Process, RunError> {
        let at = MachineFilesError::at;
        fs::write(dir.join("argv"), argv.join("\n") + "\n").map_err(at(dir))?;
        let log = File::create(dir.join(OUTPUT)).map_err(at(dir))?;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(argv).stdin(Stdio::null()).stdout(log.try_clone().map_err(at(dir))?).stderr(log);
        match clock {
            Clock::OfHost | Clock::Begins(_) => {}
            Clock::Ahead(ahead) => host::see_ahead(&mut command, ahead),
        }
        if tie == Tie::Detached {
            // Ctrl-C at the launcher's terminal is not meant for it.
            command.process_group(0);
        }
        let qemu = self.qemu.insert(command.spawn().map_err(RunError::Spawn)?);
        Ok(Process::of_child(qemu.id())?)
    }

    fn children(&mut self) -> Option<Children> {
        Some(Children { qemu: self.qemu.take()?, swtpm: self.swtpm.take() })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut qemu) = self.qemu.take() {
            // Fails only if it has ended.
            let (_killed, _reaped) = (qemu.kill(), qemu.wait());
        }
        if let Some(swtpm) = self.swtpm.take() {
            swtpm.kill();
        }
    }
}
