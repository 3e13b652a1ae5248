//! The only unsafe code of the project: device-mapper, partitions, children, keyring, packet sockets, scheduling, the heap,
//! the kernel's random pool, the board's clock, project quotas.
//!
//! What rustix offers safely (mounts, signals, reboot, limits) is used from there directly and does not pass
//! through here. Each module wraps one kernel interface, names the kernel file it follows, and hands out owned
//! descriptors only.
//!
//! # Invariants
//! - A child has one waiter and is reaped once: `children_join_their_cgroup_first_and_are_reaped_once`
//! - Heap that keys passed through is wiped before it is freed: `crates/sys/tests/wiped.rs`

#![expect(unsafe_code, reason = "the one crate that speaks to the kernel where no safe wrapper exists")]

pub mod block;
pub mod device_mapper;
pub mod entropy;
pub mod keyring;
pub mod memory;
pub mod packet;
pub mod process;
pub mod quota;
pub mod readiness;
pub mod rtc;
pub mod scheduler;

use std::io;

/// The result of a libc call that says -1 for "see errno".
fn check(result: i64) -> io::Result<i64> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
