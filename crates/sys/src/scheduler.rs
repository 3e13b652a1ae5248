//! Order in which the scheduler lets threads run (sched(7); `kernel/sched/syscalls.c`).

use std::io;

use nix::libc;
use rustix::process::Pid;

/// A thread's policy, as far as Cairn sets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// A share among all other threads (`SCHED_OTHER`).
    Share,
    /// Only what nobody else wants; it makes way at once for whoever wakes (`SCHED_IDLE`).
    Idle,
}

/// The policy of a thread, by its number; none for those that Cairn never sets.
///
/// # Errors
/// When there is no such thread.
pub fn policy(thread: Pid) -> io::Result<Option<ThreadPolicy>> {
    // SAFETY: sched_getscheduler takes a plain number and writes to no memory of ours.
    let policy = crate::check(unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) }.into())?;
    Ok([ThreadPolicy::Share, ThreadPolicy::Idle].into_iter().find(|known| i64::from(number(*known)) == policy))
}

/// Sets it.
///
/// # Errors
/// When there is no such thread, or the caller may not.
pub fn set_policy(thread: Pid, policy: ThreadPolicy) -> io::Result<()> {
    // Neither policy has a real-time priority; a nice value stays as it is.
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call, which only reads them.
    let set = unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), number(policy), &raw const parameters) };
    crate::check(set.into()).map(drop)
}

const fn number(policy: ThreadPolicy) -> libc::c_int {
    match policy {
        ThreadPolicy::Share => libc::SCHED_OTHER,
        ThreadPolicy::Idle => libc::SCHED_IDLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_policy_it_was_given_last() {
        let thread = rustix::thread::gettid();
        assert_eq!(policy(thread).expect("ours"), Some(ThreadPolicy::Share));
        set_policy(thread, ThreadPolicy::Idle).expect("anybody may step back");
        assert_eq!(policy(thread).expect("ours"), Some(ThreadPolicy::Idle));
        set_policy(thread, ThreadPolicy::Share).expect("with the nice value it had, it may come back");
        assert_eq!(policy(thread).expect("ours"), Some(ThreadPolicy::Share));
        let nobody = Pid::from_raw(i32::MAX).expect("a number");
        assert!(policy(nobody).is_err() && set_policy(nobody, ThreadPolicy::Idle).is_err());
    }
}
