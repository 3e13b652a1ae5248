//! Children: exec into a cgroup, output into the log, and the one reaper that waits for all of them.
//!
//! ```text
//!   spawn ──(one lock)──► registered by pid ──► SIGCHLD ──► reap ──► whoever waits for that pid
//!                                                             └────► orphans: reaped, counted, forgotten
//! ```
//! No second waiter exists: a child is registered under the same lock that spawns it, and the reaper takes that lock
//! before it reaps.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal};
use sys::process::{Exit, Privileges, Program};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::runtime::lock;
use crate::runtime::log;
use crate::runtime::tasks::{self, Task};

/// Where services have their cgroups.
const SERVICES: &str = "/sys/fs/cgroup/services";

/// The registry of children; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Children(Arc<Mutex<HashMap<Pid, oneshot::Sender<Exit>>>>);

/// What to run as a child.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// Path of the executable.
    pub(crate) path: &'static str,
    /// All of argv, its own name first.
    pub(crate) argv: Vec<String>,
    /// All of the environment: nothing of PID 1's is passed on.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether exec may raise privileges.
    pub(crate) privileges: Privileges,
    /// Upper bounds of its cgroup.
    pub(crate) limits: Limits,
    /// Lines of its output that are kept apart from the rest.
    pub(crate) apart: Option<Apart>,
}

/// Lines that go to a log of their own: there they are not lost among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Apart {
    /// What such a line begins with.
    pub(crate) start: &'static str,
    /// The log that takes them: `kube.audit`.
    pub(crate) log: &'static str,
}

/// Where a line of `service` is kept.
fn log_of(service: &'static str, apart: Option<Apart>, line: &[u8]) -> &'static str {
    match apart {
        Some(Apart { start, log }) if line.starts_with(start.as_bytes()) => log,
        Some(_) | None => service,
    }
}

/// Bounds of a service's cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// `memory.max` in bytes.
    pub(crate) memory: u64,
    /// `pids.max`.
    pub(crate) pids: u32,
}

/// A running child and its cgroup.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its process id.
    pub(crate) pid: Pid,
    cgroup: Cgroup,
    exit: oneshot::Receiver<Exit>,
    _output: Task<()>,
}

impl Children {
    /// The registry, and the reaper to be run as a task for good.
    ///
    /// # Errors
    /// When SIGCHLD cannot be watched.
    pub(crate) fn new() -> io::Result<(Self, Task<()>)> {
        let children = Self::default();
        let mut dead = signal(SignalKind::child())?;
        let registry = children.clone();
        let reaper = tasks::spawn(async move {
            while dead.recv().await.is_some() {
                registry.reap();
            }
        });
        Ok((children, reaper))
    }

    /// Starts `command` in the cgroup of `service`; its output becomes log lines of `service`.
    ///
    /// # Errors
    /// When the cgroup cannot be made or the executable not be run.
    pub(crate) fn spawn(&self, service: &'static str, command: &Command) -> io::Result<Running> {
        let cgroup = Cgroup::create(service, command.limits)?;
        let procs = cgroup.procs()?;
        let program = Program {
            path: command.path,
            argv: &command.argv,
            environment: &command.environment,
            cgroup: &procs,
            privileges: command.privileges,
        };
        let (sender, exit) = oneshot::channel();
        let child = {
            let mut registry = lock::even_if_poisoned(&self.0);
            let child = sys::process::spawn(&program)?;
            registry.insert(child.pid, sender);
            child
        };
        let output = pipe::Receiver::from_owned_fd(child.output)?;
        Ok(Running { pid: child.pid, cgroup, exit, _output: tasks::spawn(capture(service, command.apart, output)) })
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
    /// Its cgroup, to kill or watch while the child is waited for.
    pub(crate) fn cgroup(&self) -> Cgroup {
        self.cgroup.clone()
    }

    /// Waits for the main process.
    pub(crate) async fn exited(&mut self) -> Exit {
        // The reaper drops no sender of a child it did not reap, so an error means the runtime ends.
        (&mut self.exit).await.unwrap_or(Exit::Signal(Signal::KILL.as_raw()))
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
        path.is_dir().then_some(Self(path))
    }

    /// Its directory.
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

    /// Bytes of memory charged to it.
    pub(crate) fn memory(service: &str) -> Option<u64> {
        fs::read_to_string(PathBuf::from(SERVICES).join(service).join("memory.current")).ok()?.trim().parse().ok()
    }

    /// Waits until no process is left in it.
    ///
    /// # Errors
    /// When the cgroup cannot be watched.
    pub(crate) async fn empty(&self) -> io::Result<()> {
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

/// Bytes read at a time. A child that floods its log is read no faster than this task is scheduled: its pipe fills and
/// it waits, PID 1 does not.
const CHUNK: usize = 8 << 10;

async fn capture(service: &'static str, apart: Option<Apart>, mut output: pipe::Receiver) {
    let mut held = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match output.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(read) => held.extend_from_slice(&chunk[..read]),
        }
        let mut rest = held.as_slice();
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            log::write(log_of(service, apart, &rest[..end]), &rest[..end]);
            rest = &rest[end + 1..];
        }
        if rest.len() >= api::limits::LOG_LINE_BYTES {
            log::write(log_of(service, apart, rest), rest);
            rest = &[];
        }
        let kept = rest.len();
        held.drain(..held.len() - kept);
        tokio::task::yield_now().await;
    }
    if !held.is_empty() {
        log::write(log_of(service, apart, &held), &held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_begin_so_are_kept_apart_and_all_others_with_their_service() {
        let apart = Some(Apart { start: "{\"kind\":", log: "a.record" });
        assert_eq!(log_of("a", apart, b"{\"kind\":\"Event\"}"), "a.record");
        for (apart, line) in [(apart, &b" {\"kind\":"[..]), (apart, b""), (None, b"{\"kind\":")] {
            assert_eq!(log_of("a", apart, line), "a");
        }
    }
}
