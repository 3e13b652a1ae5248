//! Waiting on a descriptor with tokio (epoll(7)).

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `descriptor` with the running runtime.
///
/// # Errors
/// When epoll refuses it, or the runtime has no I/O driver.
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open descriptor from here until AsyncFd drops it.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(Into::into)
}
