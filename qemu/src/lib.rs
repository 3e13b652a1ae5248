//! Virtual machines on this host: what one is (data), how QEMU is told, how a running one is watched and steered.
//!
//! ```text
//!   Machine ──► argv ──► Vm ──┬─ qmp      monitor: events, reset, power button, counters
//!    (data)    (text)         ├─ console  serial.log, line by line
//!                             ├─ swtpm    the TPM beside it
//!                             ├─ process  pid and start time, CPU seconds, death
//!                             └─ last_words  why it does not come up
//!   saved: machines that run, in a folder, and back
//!   Network: switches, and hosts of our own, at the other end of virtual network cards
//! ```
//! The crate knows nothing of what runs inside a machine, and reaches out of the host only by a network that was told to: user networking
//! is restricted, all else are unix sockets. No step needs root.
//!
//! # Invariants
//! - A frame is delivered, dropped for a named reason or still held, and leaves its segment only through the gateway:
//!   `every_frame_is_accounted_for_and_stays_on_its_segment`
//! - Between segments goes what machines ask for, under the gateway's address, and back the answers alone:
//!   `what_was_asked_comes_back_and_nothing_else_comes_in`
//! - A connection into the network holds a bounded number of bytes; a reader that takes none stops the sender:
//!   `a_machine_that_reads_nothing_stops_who_sends_to_it`
//! - A machine reaches nothing outside of the host by QEMU: `user_networking_is_always_restricted`
//! - A network that was not told to lead outside leads nowhere: `nothing_leaves_a_network_that_was_not_told_to_lead_outside`
//! - A network that leads outside leads neither to the host's own addresses nor to those of its links:
//!   `what_is_the_hosts_alone_is_not_outside`, `the_hosts_own_addresses_are_its_own`

pub mod argv;
pub mod console;
pub mod deadline;
pub mod host;
pub mod last_words;
pub mod machine;
pub mod network;
pub mod process;
pub mod qmp;
pub mod run;
pub mod saved;
pub mod swtpm;

pub use deadline::Deadline;
pub use machine::Machine;
pub use run::Vm;
