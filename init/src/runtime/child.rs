//! Children: exec into a cgroup, output into the log, and the one reaper that waits for all of them.
//!
//! ```text
//!   spawn ──(one lock)──► registered by pid ──► SIGCHLD ──► reap ──► whoever waits for that pid
//!                                                             └────► orphans: reaped, counted, forgotten
//! ```
//! No second waiter exists: a child is registered under the same lock that spawns it, and the reaper takes that lock
//! before it reaps. Nothing can fail behind the spawn, so that an error means that there is no child; and a cgroup counts as
//! empty only when the kernel has said so.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use services::{Limits, OwnLog};
use sys::process::{Exit, Privileges, Program};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::runtime::durable;
use crate::runtime::lock;
use crate::runtime::log;
use crate::runtime::tasks::{self, Task};

/// Where the image has its programs.
pub(crate) const PROGRAMS: &str = "/bin";
/// Where services have their cgroups.
const SERVICES: &str = "/sys/fs/cgroup/services";

/// The registry of children; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Children(Arc<Mutex<HashMap<Pid, oneshot::Sender<Exit>>>>);

/// Command line, limits and privileges of a child.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// Path of the executable.
    pub(crate) path: String,
    /// All of argv, its own name first.
    pub(crate) argv: Vec<String>,
    /// All of the environment: nothing of PID 1's is passed on.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether exec may raise privileges.
    pub(crate) privileges: Privileges,
    /// Upper bounds of its cgroup: `memory.max` and `pids.max`.
    pub(crate) limits: Limits,
    /// Lines of its output that are kept apart from the rest.
    pub(crate) apart: Option<OwnLog>,
}

/// Where a line of `service` is kept.
fn log_of<'a>(service: &'a str, apart: Option<OwnLog>, line: &[u8]) -> &'a str {
    match apart {
        Some(OwnLog { start, log }) if line.starts_with(start.as_bytes()) => log,
        Some(_) | None => service,
    }
}

/// Why a program has not done what it was run for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompletionError {
    /// The program cannot be run.
    #[error("run `{0}`")]
    Run(String, #[source] io::Error),
    /// The program failed; its words are in the log.
    #[error("`{path}` ended with {exit:?}; its words are in the log of `{service}`")]
    Failed {
        /// Path of the executable.
        path: String,
        /// How it ended.
        exit: Exit,
        /// The name its lines have in the log.
        service: &'static str,
    },
}

/// A running child and its cgroup.
#[derive(Debug)]
pub(crate) struct Running {
    /// Id of the main process; nobody else has it until the reaper has told its exit.
    pub(crate) pid: Pid,
    cgroup: Cgroup,
    exit: oneshot::Receiver<Exit>,
    output: Task<()>,
}

impl Children {
    /// Reaps whatever ends, for good, and first what ended while nobody did. Not to be run twice at a time.
    ///
    /// # Errors
    /// When SIGCHLD cannot be watched.
    pub(crate) async fn reaped(self) -> io::Result<()> {
        let mut dead = signal(SignalKind::child())?;
        loop {
            self.reap();
            if dead.recv().await.is_none() {
                return Ok(());
            }
        }
    }

    /// Starts `command` in the cgroup of `service`; its output becomes log lines of `service`.
    ///
    /// # Errors
    /// When the cgroup cannot be made or the executable not be run; there is no child then.
    pub(crate) fn spawn(&self, service: &str, command: &Command) -> io::Result<Running> {
        self.spawn_in(Cgroup::create(service, command.limits)?, service, command)
    }

    /// Runs `command` to its end in the cgroup of `service`; nothing of it is left then.
    ///
    /// # Errors
    /// [`CompletionError`], also where the program says by its exit code that it failed.
    pub(crate) async fn complete(&self, service: &'static str, command: &Command) -> Result<(), CompletionError> {
        let failed = |why| CompletionError::Run(command.path.clone(), why);
        let mut running = self.spawn(service, command).map_err(failed)?;
        let exit = running.exited().await;
        running.gone().await;
        match exit {
            Exit::Code(0) => Ok(()),
            exit @ (Exit::Code(_) | Exit::Signal(_)) => {
                Err(CompletionError::Failed { path: command.path.clone(), exit, service })
            }
        }
    }

    fn spawn_in(&self, cgroup: Cgroup, service: &str, command: &Command) -> io::Result<Running> {
        let procs = cgroup.procs()?;
        let (output, child_output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let output = pipe::Receiver::from_owned_fd(output)?;
        let program = Program {
            path: &command.path,
            argv: &command.argv,
            environment: &command.environment,
            cgroup: &procs,
            output: child_output.as_fd(),
            privileges: command.privileges,
        };
        let (sender, exit) = oneshot::channel();
        let pid = {
            let mut registry = lock::even_if_poisoned(&self.0);
            let pid = sys::process::spawn(&program)?;
            registry.insert(pid, sender);
            pid
        };
        Ok(Running { pid, cgroup, exit, output: tasks::spawn(capture(service.to_owned(), command.apart, output)) })
    }

    /// Sends `signal` to a child that has not been reaped yet; one that has been is left in peace.
    pub(crate) fn signal(&self, pid: Pid, signal: Signal) {
        let registry = lock::even_if_poisoned(&self.0);
        if registry.contains_key(&pid) {
            // It may be dead already: then the reaper says so.
            let _dead_or_told = rustix::process::kill_process(pid, signal);
        }
    }

    fn reap(&self) {
        let mut registry = lock::even_if_poisoned(&self.0);
        loop {
            match sys::process::reap() {
                Ok(Some((pid, exit))) => {
                    if let Some(waiting) = registry.remove(&pid) {
                        let _nobody_waits_any_more = waiting.send(exit);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "reaping failed");
                    return;
                }
            }
        }
    }
}

impl Running {
    /// Cgroup of the child, to kill or watch while the child is waited for.
    pub(crate) fn cgroup(&self) -> Cgroup {
        self.cgroup.clone()
    }

    /// Waits for the main process.
    pub(crate) async fn exited(&mut self) -> Exit {
        // The reaper drops no sender of a child it did not reap, so an error means the runtime ends.
        (&mut self.exit).await.unwrap_or(Exit::Signal(Signal::KILL.as_raw()))
    }

    /// Waits until nothing of its cgroup is left and its last words are in the log.
    pub(crate) async fn gone(mut self) {
        self.cgroup.empty().await;
        // Its output ends with the last process that holds it, and that may have left the cgroup.
        let _heard_to_the_end = tokio::time::timeout(LAST_WORDS, self.output.join()).await;
    }
}

/// A service's cgroup (cgroup-v2.rst of the kernel's documentation).
#[derive(Debug, Clone)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    fn create(service: &str, limits: Limits) -> io::Result<Self> {
        let path = PathBuf::from(SERVICES).join(service);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::write(path.join("memory.max"), limits.memory.to_string())?;
        fs::write(path.join("pids.max"), limits.pids.to_string())?;
        Ok(Self(path))
    }

    /// The cgroup at `path` below the root of the hierarchy, if there is one.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let path = PathBuf::from(format!("/sys/fs/cgroup{path}"));
        // One that cannot be seen may be there.
        durable::exists(&path).unwrap_or(true).then_some(Self(path))
    }

    /// Directory of the cgroup.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn procs(&self) -> io::Result<File> {
        File::options().write(true).open(self.0.join("cgroup.procs"))
    }

    /// Kills every process in it, also those that are just forking.
    pub(crate) fn kill(&self) -> io::Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1")
    }

    /// Takes the cgroup of a service away that is gone for good; its processes are.
    ///
    /// # Errors
    /// When there is something in it.
    pub(crate) fn remove(service: &str) -> io::Result<()> {
        match fs::remove_dir(PathBuf::from(SERVICES).join(service)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Bytes of memory charged to it.
    pub(crate) fn memory(service: &str) -> Option<u64> {
        fs::read_to_string(PathBuf::from(SERVICES).join(service).join("memory.current")).ok()?.trim().parse().ok()
    }

    /// Processor time that its processes have taken since the boot (`usage_usec`, Documentation/admin-guide/cgroup-v2.rst).
    pub(crate) fn cpu(service: &str) -> Option<Duration> {
        let stat = fs::read_to_string(PathBuf::from(SERVICES).join(service).join("cpu.stat")).ok()?;
        let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        usage.parse().ok().map(Duration::from_micros)
    }

    /// Waits until no process is left in it. While that cannot be seen it is not so: it is looked again.
    pub(crate) async fn empty(&self) {
        let mut told = false;
        loop {
            match self.seen_empty().await {
                Ok(()) => return,
                // The kernel removes no cgroup that has a process.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) if !told => {
                    tracing::error!(cgroup = %self.0.display(), %error, "cgroup cannot be watched, looking again");
                    told = true;
                }
                Err(_told_already) => {}
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn seen_empty(&self) -> io::Result<()> {
        // The kernel signals changes of cgroup.events as exceptional readiness (kernfs_notify).
        let events = File::open(self.0.join("cgroup.events"))?;
        let watched = sys::readiness::watch(events.into(), Interest::PRIORITY)?;
        loop {
            let text = fs::read_to_string(self.0.join("cgroup.events"))?;
            if text.lines().any(|line| line == "populated 0") {
                return Ok(());
            }
            watched.ready(Interest::PRIORITY).await?.clear_ready();
        }
    }
}

/// Between two looks at a cgroup that cannot be watched: what keeps it from being watched, want of memory above all, passes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bytes read at a time. A child that floods its log is read no faster than this task is scheduled: its pipe fills and
/// it waits, PID 1 does not.
const CHUNK: usize = 8 << 10;

/// How long the output of a child is listened to that is gone: what it has said is in the pipe by then.
const LAST_WORDS: Duration = Duration::from_secs(1);

async fn capture(service: String, apart: Option<OwnLog>, mut output: pipe::Receiver) {
    let mut held = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match output.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(read) => held.extend_from_slice(&chunk[..read]),
        }
        let mut rest = held.as_slice();
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            log::write(log_of(&service, apart, &rest[..end]), &rest[..end]);
            rest = &rest[end + 1..];
        }
        if rest.len() >= api::limits::LOG_LINE_BYTES {
            log::write(log_of(&service, apart, rest), rest);
            rest = &[];
        }
        let kept = rest.len();
        held.drain(..held.len() - kept);
        tokio::task::yield_now().await;
    }
    if !held.is_empty() {
        log::write(log_of(&service, apart, &held), &held);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A directory in place of a cgroup. Its `cgroup.events` is a plain file, which epoll refuses.
    fn unwatchable() -> (tempfile::TempDir, Cgroup) {
        let directory = tempfile::tempdir().expect("a directory");
        for file in ["cgroup.procs", "cgroup.events"] {
            fs::write(directory.path().join(file), "populated 1\n").expect("a file");
        }
        let cgroup = Cgroup(directory.path().to_owned());
        (directory, cgroup)
    }

    /// Proves: O2
    #[test]
    fn where_a_child_cannot_be_listened_to_there_is_none() {
        let (directory, cgroup) = unwatchable();
        let runtime = tasks::runtime().expect("a runtime");
        let handle = runtime.handle().clone();
        // It gives no event any more, so the pipe cannot be registered.
        drop(runtime);
        let _context = handle.enter();
        let command = Command {
            path: "/bin/sh".to_owned(),
            argv: vec!["sh".into(), "-c".into(), "exit".into()],
            environment: Vec::new(),
            privileges: Privileges::Fixed,
            limits: Limits { memory: 1 << 20, pids: 1 },
            apart: None,
        };
        let children = Children::default();
        children.spawn_in(cgroup, "test", &command).expect_err("nobody would hear it");
        assert!(lock::even_if_poisoned(&children.0).is_empty(), "it runs, and nobody knows of it");
        let joined = fs::read_to_string(directory.path().join("cgroup.procs")).expect("readable");
        assert_eq!(joined, "populated 1\n", "no process has joined");
    }

    /// Proves: O2 Q2
    #[tokio::test]
    async fn the_last_words_of_a_child_are_in_the_log_when_it_is_gone() {
        const SERVICE: &str = "test.last-words";
        log::install(Vec::new());
        let (output, mut child_output) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&output, true).expect("not waited for");
        let output = pipe::Receiver::from_owned_fd(output.into()).expect("registered");
        // It says all of this at its end: nothing of it has been read when its cgroup is gone.
        child_output.write_all(&b"line\n".repeat(8 * CHUNK / 5)).expect("the pipe holds it");
        drop(child_output);
        let (_reaper, exit) = oneshot::channel();
        let child = Running {
            pid: rustix::process::getpid(),
            cgroup: Cgroup(PathBuf::from("/nowhere")),
            exit,
            output: tasks::spawn(capture(SERVICE.to_owned(), None, output)),
        };
        child.gone().await;
        let query = api::LogQuery { subtree: SERVICE.to_owned(), tail: None, follow: false, since: None };
        let mut reader = log::Reader::new(query).expect("installed");
        let mut lines = 0;
        loop {
            match reader.next().await.len() {
                0 => break,
                more => lines += more,
            }
        }
        assert_eq!(lines, 8 * CHUNK / 5);
    }

    /// Proves: O2
    #[tokio::test(start_paused = true)]
    async fn a_cgroup_that_cannot_be_watched_is_empty_once_it_is_gone() {
        let (directory, cgroup) = unwatchable();
        let mut waiting = tasks::spawn(async move { cgroup.empty().await });
        tokio::time::timeout(Duration::from_secs(3600), waiting.join()).await.expect_err("it was told as empty");
        drop(directory);
        tokio::time::timeout(10 * LOOK_AGAIN, waiting.join()).await.expect("seen").expect("no panic");
    }

    #[test]
    fn lines_with_the_prefix_are_kept_apart_from_their_services() {
        let apart = Some(OwnLog { start: "{\"kind\":", log: "a.record" });
        assert_eq!(log_of("a", apart, b"{\"kind\":\"Event\"}"), "a.record");
        for (apart, line) in [(apart, &b" {\"kind\":"[..]), (apart, b""), (None, b"{\"kind\":")] {
            assert_eq!(log_of("a", apart, line), "a");
        }
    }
}
