//! Children: start one in its cgroup with its output where the caller wants it, and reap whatever died.
//!
//! Starting and reaping are the two halves of one contract: whoever calls [`spawn`] registers the pid before the one
//! reaper can see it die. Nothing here waits for a particular child, and an error never means one that lives: what can
//! fail is done before it exists.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;
use rustix::process::{Pid, WaitOptions};

/// Executable with its arguments and environment.
#[derive(Debug)]
pub struct Program<'a> {
    /// Path of the executable.
    pub path: &'a str,
    /// Whole argv, the program's name first.
    pub argv: &'a [String],
    /// Whole environment, as names and values.
    pub environment: &'a [(String, String)],
    /// An open `cgroup.procs`: the child joins before it executes.
    pub cgroup: &'a File,
    /// Where its standard output and error go; each gets a copy of its own.
    pub output: BorrowedFd<'a>,
    /// Whether exec may raise privileges (a container runtime needs it for its own children).
    pub privileges: Privileges,
}

/// Whether a child may gain privileges through exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// `no_new_privs` is set.
    Fixed,
    /// Left as the kernel's default.
    MayGrow,
}

/// Starts `program` in a session of its own, with /dev/null as its standard input. Its process id stays reserved until it
/// is reaped.
///
/// # Errors
/// When the executable cannot be run, or the cgroup cannot be joined; no child is left then.
pub fn spawn(program: &Program<'_>) -> io::Result<Pid> {
    let cgroup = program.cgroup.as_raw_fd();
    let fixed = program.privileges == Privileges::Fixed;
    let mut command = Command::new(program.path);
    if let Some((name, arguments)) = program.argv.split_first() {
        command.arg0(name).args(arguments);
    }
    command
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(program.output.try_clone_to_owned()?)
        .stderr(program.output.try_clone_to_owned()?)
        .current_dir("/");
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls only, on a descriptor
    // that is open in the parent while `spawn` runs.
    unsafe { command.pre_exec(move || prepare(cgroup, fixed)) };
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("Linux counts processes in a positive i32");
    // Dropping std's handle neither kills nor waits: the reaper does the waiting.
    drop(child);
    Ok(pid)
}

/// Prepares the child before exec, from within: joins the cgroup, becomes a session leader, drops what it must not
/// have.
fn prepare(cgroup: libc::c_int, fixed: bool) -> io::Result<()> {
    // SAFETY: writes one byte of a static string to a descriptor; "0" means the writing process.
    let joined = unsafe { libc::write(cgroup, c"0".as_ptr().cast(), 1) };
    crate::check(joined as i64)?;
    // SAFETY: no arguments; the child is no process group leader, so it cannot fail but by the kernel's refusal.
    crate::check(unsafe { libc::setsid() }.into())?;
    if fixed {
        // SAFETY: integers only.
        crate::check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    }
    Ok(())
}

/// Becomes another program: same pid, `environment` instead of the present one. Returns only on failure.
#[must_use]
pub fn execute(path: &str, argv: &[&str], environment: &[(&str, String)]) -> io::Error {
    let mut command = Command::new(path);
    if let Some((name, arguments)) = argv.split_first() {
        command.arg0(name).args(arguments);
    }
    command.env_clear().envs(environment.iter().map(|(name, value)| (name, value))).exec()
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The child returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Reaps one dead child, any of them; `None` when no child is dead now. Call until `None` after each SIGCHLD.
///
/// # Errors
/// None that a caller can mend; "no children" is `Ok(None)`.
pub fn reap() -> io::Result<Option<(Pid, Exit)>> {
    loop {
        let (pid, status) = match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(dead)) => dead,
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => return Ok(Some((pid, Exit::Code(code)))),
            (None, Some(signal)) => return Ok(Some((pid, Exit::Signal(signal)))),
            (None, None) => {} // stopped or continued: not asked for, and not an end
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    /// Proves: O1
    #[test]
    fn children_join_their_cgroup_first_and_are_reaped_once() {
        let cgroup = tempfile::tempfile().expect("a file in place of cgroup.procs");
        let argv = |script: &str| vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
        let (mut output, child_output) = io::pipe().expect("a pipe");
        let start = |script: &str| {
            let argv = argv(script);
            let program = Program {
                path: "/bin/sh",
                argv: &argv,
                environment: &[("WORD".to_owned(), "kept".to_owned())],
                cgroup: &cgroup,
                output: child_output.as_fd(),
                privileges: Privileges::Fixed,
            };
            spawn(&program).expect("sh runs")
        };
        let talker = start("echo $WORD; grep NoNewPrivs /proc/self/status; exit 7");
        let killed = start("kill -9 $$");
        drop(child_output);
        let mut said = String::new();
        output.read_to_string(&mut said).expect("readable until the children end");
        assert_eq!(said, "kept\nNoNewPrivs:\t1\n");

        let mut ends = Vec::new();
        while ends.len() < 2 {
            ends.extend(reap().expect("reaping works"));
            std::thread::yield_now();
        }
        ends.sort_by_key(|(pid, _)| *pid != talker);
        assert_eq!(ends, [(talker, Exit::Code(7)), (killed, Exit::Signal(9))]);
        assert_eq!(reap().expect("nothing left"), None);
        assert_eq!(cgroup.metadata().expect("open").len(), 2);
    }
}
