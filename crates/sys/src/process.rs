//! Children: start one in its cgroup with its output where the caller wants it, and reap whatever died.
//!
//! Starting and reaping are the two halves of one contract: whoever calls [`spawn`] registers the pid before the one
//! reaper can see it die. Nothing here waits for a particular child, and an error never means one that lives: what can
//! fail is done before it exists.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;
use rustix::process::{Gid, Pid, Uid, WaitOptions};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Time by which timers of a child may be late, in nanoseconds (`PR_SET_TIMERSLACK`, prctl(2)): it wakes with others then. The
/// monitor of each Go program asks for sleeps of 20 µs whenever it was busy (runtime/proc.go, `sysmon`). By the kernel's own 50 µs it gets
/// them, and half of all switches of an idle machine with Kubernetes are its turns.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(4_000_000).expect("not zero");

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

/// Whether a child may gain privileges through exec, for itself or for others. One that starts nothing for others has coarse timers
/// beside: whatever a child starts inherits its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// `no_new_privs` is set, and timers are coarse.
    Fixed,
    /// Left as the kernel's default.
    MayGrow,
    /// As fixed, and the child is this user and group, with one capability, as all that it starts.
    User(u32, Capability),
}

/// Capability of a child that is not root (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// CAP_NET_BIND_SERVICE: take ports below 1024.
    NetBindService,
    /// CAP_NET_ADMIN: change the network, nftables among it.
    NetAdmin,
}

/// Starts `program` in a session of its own, with /dev/null as its standard input. Its process id stays reserved until it
/// is reaped.
///
/// # Errors
/// When the executable cannot be run, or the cgroup cannot be joined; no child is left then.
pub fn spawn(program: &Program<'_>) -> io::Result<Pid> {
    let cgroup = program.cgroup.as_raw_fd();
    let privileges = program.privileges;
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
    unsafe { command.pre_exec(move || prepare(cgroup, privileges)) };
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("Linux counts processes in a positive i32");
    // Dropping std's handle neither kills nor waits: the reaper does the waiting.
    drop(child);
    Ok(pid)
}

/// Prepares the child before exec, from within: joins the cgroup, becomes a session leader, drops what it must not
/// have.
fn prepare(cgroup: libc::c_int, privileges: Privileges) -> io::Result<()> {
    // SAFETY: writes one byte of a static string to a descriptor; "0" means the writing process.
    let joined = unsafe { libc::write(cgroup, c"0".as_ptr().cast(), 1) };
    crate::check(joined as i64)?;
    // SAFETY: no arguments; the child is no process group leader, so it cannot fail but by the kernel's refusal.
    crate::check(unsafe { libc::setsid() }.into())?;
    if let Privileges::User(user, keeps) = privileges {
        become_user(user, keeps)?;
    }
    if privileges != Privileges::MayGrow {
        // SAFETY: integers only.
        crate::check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        thread::set_current_timer_slack(Some(TIMER_SLACK))?;
    }
    Ok(())
}

/// Becomes a user that has one capability, also behind exec (capabilities(7), ambient set): system calls alone, no memory is asked for.
fn become_user(user: u32, keeps: Capability) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    let keeps = match keeps {
        Capability::NetBindService => CapabilitySet::NET_BIND_SERVICE,
        Capability::NetAdmin => CapabilitySet::NET_ADMIN,
    };
    thread::set_keep_capabilities(true)?;
    thread::set_thread_groups(&[])?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    thread::set_capabilities(None, CapabilitySets { effective: keeps, permitted: keeps, inheritable: keeps })?;
    thread::configure_capability_in_ambient_set(keeps, true)?;
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
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A test that reaps would take the other's children.
    static REAPS: Mutex<()> = Mutex::new(());

    /// Proves: O1
    #[test]
    fn children_join_their_cgroup_first_and_are_reaped_once() {
        let _alone = REAPS.lock().unwrap_or_else(PoisonError::into_inner);
        let cgroup = tempfile::tempfile().expect("a file in place of cgroup.procs");
        let argv = |script: &str| vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
        let (mut output, child_output) = io::pipe().expect("a pipe");
        let start = |script: &str, privileges| {
            let argv = argv(script);
            let program = Program {
                path: "/bin/sh",
                argv: &argv,
                environment: &[("WORD".to_owned(), "kept".to_owned())],
                cgroup: &cgroup,
                output: child_output.as_fd(),
                privileges,
            };
            spawn(&program)
        };
        let as_it_is = |script| start(script, Privileges::Fixed).expect("sh runs");
        let talker = as_it_is("echo $WORD; grep NoNewPrivs /proc/self/status; exit 7");
        let killed = as_it_is("kill -9 $$");
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

    /// Text that a script says as such a child, which has ended and is reaped.
    fn said_by(script: &str, privileges: Privileges) -> io::Result<String> {
        let cgroup = tempfile::tempfile().expect("a file in place of cgroup.procs");
        let argv = ["sh", "-c", script].map(str::to_owned);
        let (mut output, child_output) = io::pipe().expect("a pipe");
        let pid = spawn(&Program {
            path: "/bin/sh",
            argv: &argv,
            environment: &[],
            cgroup: &cgroup,
            output: child_output.as_fd(),
            privileges,
        })?;
        drop(child_output);
        let mut said = String::new();
        output.read_to_string(&mut said).expect("readable until the child ends");
        while reap().expect("reaping works").is_none_or(|(reaped, _)| reaped != pid) {
            std::thread::yield_now();
        }
        Ok(said)
    }

    #[test]
    fn who_starts_programs_for_others_leaves_their_timers_exact() {
        let _alone = REAPS.lock().unwrap_or_else(PoisonError::into_inner);
        let slack = |privileges| {
            let said = said_by("cat /proc/self/timerslack_ns", privileges).expect("sh runs");
            said.trim().parse::<u64>().expect("nanoseconds")
        };
        assert_eq!(slack(Privileges::Fixed), TIMER_SLACK.get());
        assert!(slack(Privileges::MayGrow) < TIMER_SLACK.get());
    }

    /// Proves: O2. Only root may start a child as somebody else.
    #[test]
    fn a_child_that_is_a_user_has_one_capability() {
        let _alone = REAPS.lock().unwrap_or_else(PoisonError::into_inner);
        let look = "grep -E '^(Uid|Gid|Groups|Cap(Eff|Prm|Amb)|NoNewPrivs)' /proc/self/status";
        let said = said_by(look, Privileges::User(53, Capability::NetBindService));
        if !rustix::process::geteuid().is_root() {
            assert_eq!(said.map_err(|error| error.kind()), Err(io::ErrorKind::PermissionDenied));
            return;
        }
        let said = said.expect("sh runs");
        let said: Vec<String> =
            said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let [uid, gid] = ["Uid", "Gid"].map(|what| format!("{what}: 53 53 53 53"));
        let bit = format!("{:016x}", 1 << 10);
        let capabilities = ["CapPrm", "CapEff", "CapAmb"].map(|set| format!("{set}: {bit}"));
        assert_eq!(
            said,
            [&[uid, gid, "Groups:".to_owned()], &capabilities[..], &["NoNewPrivs: 1".to_owned()]].concat()
        );
    }
}
