//! The pause container: holds a pod's namespaces until it is told to end, and reaps what its pod leaves behind.
//!
//! It is process 1 of a pod's process namespace where pods share one. It must never do anything else.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

fn main() -> Result<(), Errno> {
    let mut awaited = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD] {
        awaited.add(signal);
    }
    // Blocked, they stay pending until the wait below takes them: none is lost before or between two waits.
    awaited.thread_block()?;
    while awaited.wait()? == Signal::SIGCHLD {
        // One SIGCHLD may stand for many children.
        while has_reaped() {}
    }
    Ok(())
}

/// Reaps one child that has ended, if there is one; the kernel says `ECHILD` when there are no children at all.
fn has_reaped() -> bool {
    match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
        Ok(status) => status != WaitStatus::StillAlive,
        Err(error) => error == Errno::EINTR,
    }
}
