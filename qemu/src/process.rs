//! Other processes of this host, held by identity: pid and start time, and a pidfd that can never mean another one.
//!
//! A pid alone is never signalled or believed.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::deadline::{Deadline, Stopwatch};

/// Which process: stays true when the pid is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since the host's boot (proc_pid_stat(5), field 22).
    pub started: u64,
}

/// A process that was there when it was opened.
#[derive(Debug)]
pub struct Process {
    identity: ProcessIdentity,
    pidfd: OwnedFd,
}

/// Why a process could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such process.
    #[error("process {0} is gone")]
    Gone(i32),
    /// The kernel refused.
    #[error("open process {pid}")]
    Open { pid: i32, source: io::Error },
    /// The stat file is not of the form proc_pid_stat(5) gives.
    #[error("parse the stat file of process {0}")]
    Stat(i32),
}

/// Why waiting for a state ended without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitFailure {
    /// The process ended first.
    #[error("the process ended before")]
    Exited,
    /// The deadline passed.
    #[error("not within {0:?}")]
    TimedOut(Duration),
}

/// Between two looks at a state without an event of its own: the least and the most.
const LOOKS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// How long to wait before the next look, when one took that long, so long after the first began. What asks an emulated machine
/// takes a good part of its processor: it has a quarter of the time, and no wait becomes longer by more than an eighth.
fn pause(took: Duration, elapsed: Duration) -> Duration {
    let [least, most] = LOOKS;
    (took * 3).min(elapsed / 8).clamp(least, most)
}

impl Process {
    /// The process that has this pid now; only for a child that has not been waited for, whose pid cannot be reused.
    ///
    /// # Errors
    /// [`ProcessError`]
    pub fn of_child(pid: u32) -> Result<Self, ProcessError> {
        Self::open(i32::try_from(pid).map_err(|_| ProcessError::Stat(i32::MAX))?)
    }

    /// This process.
    ///
    /// # Errors
    /// [`ProcessError`]
    pub fn own() -> Result<Self, ProcessError> {
        // It cannot end while it is looked at, as a child that has not been waited for.
        Self::of_child(std::process::id())
    }

    /// The process of this identity, if it still runs.
    ///
    /// # Errors
    /// [`ProcessError`], but never [`ProcessError::Gone`].
    pub fn find(identity: ProcessIdentity) -> Result<Option<Self>, ProcessError> {
        match Self::open(identity.pid) {
            Ok(process) if process.identity == identity && !process.has_exited() => Ok(Some(process)),
            Ok(_) | Err(ProcessError::Gone(_)) => Ok(None),
            Err(other @ (ProcessError::Open { .. } | ProcessError::Stat(_))) => Err(other),
        }
    }

    /// All processes that were told of something in `directory` when they were started; not those that this user may not look at.
    ///
    /// # Errors
    /// [`ProcessError`], of this process.
    pub fn told_of(directory: &Path) -> Result<Vec<Self>, ProcessError> {
        Self::told(&directory.join(""))
    }

    /// The same of this path, as it is or as the beginning of another one.
    ///
    /// # Errors
    /// [`ProcessError`], of this process.
    pub fn told(inside: &Path) -> Result<Vec<Self>, ProcessError> {
        let own = Self::own()?.identity;
        let mut told = Vec::new();
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        for pid in names.filter_map(|name| name.to_str()?.parse().ok()) {
            let Ok(process) = Self::open(pid) else { continue };
            // As in `open`, what is read now is of the process that is held. One that ends has none.
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let is_told = line.windows(inside.as_os_str().len()).any(|part| part == inside.as_os_str().as_bytes());
            if is_told && process.identity != own {
                told.push(process);
            }
        }
        Ok(told)
    }

    /// The pidfd comes first: what is read after it belongs to the process it holds, or fails.
    fn open(pid: i32) -> Result<Self, ProcessError> {
        let number = Pid::from_raw(pid).ok_or(ProcessError::Gone(pid))?;
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Err(ProcessError::Gone(pid)),
            Err(source) => return Err(ProcessError::Open { pid, source: source.into() }),
        };
        let stat = Stat::read(pid)?;
        Ok(Self { identity: ProcessIdentity { pid, started: stat.started }, pidfd })
    }

    /// Pid and start time.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    /// A descriptor that becomes readable when it ends (pidfd_open(2)).
    ///
    /// # Errors
    /// What the kernel said.
    pub fn end(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Whether it has ended (it may still have to be reaped).
    #[must_use]
    pub fn has_exited(&self) -> bool {
        self.exits_within(Duration::ZERO)
    }

    /// Waits for its end; whether it came in time.
    #[must_use]
    pub fn wait(&self, deadline: Deadline) -> bool {
        self.exits_within(deadline.left().unwrap_or_default())
    }

    /// Waits until `look` sees something.
    ///
    /// # Errors
    /// [`WaitFailure`]
    pub fn until<T>(&self, deadline: Deadline, mut look: impl FnMut() -> Option<T>) -> Result<T, WaitFailure> {
        let begun = Stopwatch::start();
        loop {
            let before = begun.elapsed();
            if let Some(seen) = look() {
                return Ok(seen);
            }
            let elapsed = begun.elapsed();
            let left = deadline.left().ok_or(WaitFailure::TimedOut(deadline.length()))?;
            if self.exits_within(left.min(pause(elapsed - before, elapsed))) {
                return Err(WaitFailure::Exited);
            }
        }
    }

    /// Ends it at once; nothing to do where it has ended already.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// CPU time it has used so far, all threads, user and system (resolution: a clock tick, 10 ms).
    ///
    /// # Errors
    /// [`ProcessError`]
    pub fn cpu_time(&self) -> Result<Duration, ProcessError> {
        let stat = Stat::read(self.identity.pid)?;
        if stat.started != self.identity.started {
            return Err(ProcessError::Gone(self.identity.pid));
        }
        let millis = stat.cpu_ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1);
        Ok(Duration::from_millis(millis))
    }

    fn exits_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // An interrupted poll is a short one: every caller looks again.
        matches!(poll(&mut fds, Some(&timeout)), Ok(ready) if ready > 0)
    }
}

/// Fields that are read of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Result<Self, ProcessError> {
        Self::read_from(pid, File::open(format!("/proc/{pid}/stat")))
    }

    /// A process that is reaped between the opening of its file and the reading has the file and says ESRCH (fs/proc/base.c,
    /// `proc_single_show`).
    fn read_from(pid: i32, file: io::Result<File>) -> Result<Self, ProcessError> {
        let text = file.and_then(io::read_to_string).map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::SRCH) => ProcessError::Gone(pid),
            _ => ProcessError::Open { pid, source },
        })?;
        Self::parse(&text).ok_or(ProcessError::Stat(pid))
    }

    /// proc_pid_stat(5); the second field may hold anything, so the fields are counted behind its last parenthesis.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: number(14)?.checked_add(number(15)?)?, started: number(22)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_costs_a_look_more_is_looked_at_less_often() {
        let pause = |took, elapsed| pause(Duration::from_millis(took), Duration::from_millis(elapsed)).as_millis();
        assert_eq!(pause(0, 60_000), 5, "a file");
        assert_eq!(pause(100, 60_000), 300, "a call");
        assert_eq!(pause(100, 800), 100, "a call, and a short wait so far");
        assert_eq!(pause(10_000, 60_000), 500, "a call that was given up");
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) 1 (b c) S 1 42 42 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 1 0 123456 9 9 9\n";
        assert_eq!(Stat::parse(text), Some(Stat { cpu_ticks: 100, started: 123_456 }));
        assert_eq!(Stat::parse("42 (cut) S 1 2"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn a_process_is_found_by_identity_until_it_ends() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Process::of_child(child.id()).unwrap();
        let identity = process.identity();
        assert!(Process::find(identity).unwrap().is_some());
        assert!(Process::find(ProcessIdentity { started: identity.started + 1, ..identity }).unwrap().is_none());
        let long = Deadline::after(Duration::from_secs(60));
        assert_eq!(
            process.until(Deadline::after(Duration::ZERO), || None::<()>),
            Err(WaitFailure::TimedOut(Duration::ZERO))
        );
        process.kill().unwrap();
        assert_eq!(process.until(long, || None::<()>), Err(WaitFailure::Exited));
        assert!(process.wait(long) && process.has_exited());
        assert!(Process::find(identity).unwrap().is_none(), "a zombie does not run");
        let stat = File::open(format!("/proc/{}/stat", identity.pid));
        child.wait().unwrap();
        assert!(Process::find(identity).unwrap().is_none());
        let cut_off = Stat::read_from(identity.pid, stat);
        assert!(matches!(cut_off, Err(ProcessError::Gone(_))), "reaped between opening and reading: {cut_off:?}");
        process.kill().unwrap();
    }
}
