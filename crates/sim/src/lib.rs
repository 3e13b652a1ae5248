//! A cluster in one process and virtual time: many machines, an etcd that fails, one seed. Nothing here asks a clock or
//! draws a number but from the seed, so a seed that fails once fails always.
//!
//! * [`etcd`]: the store, as its clients see it.
//! * [`cast`]: owners, machines, tickets, by number.
//! * [`esp`]: what voters keep for the day when all are off.
//! * [`world`]: coordinators and machines that ask, events in their order; [`laws`]: what must hold after each.
//!
//! Simulated are the decisions of `cluster` over an etcd that loses leader, answers and members, lives of the crate `member` whose
//! effects take time, fail, lose their answers and are cut, and shares with their slots on ESPs. Machines are switched off, cables
//! cut, clocks are 0 to 2 s ahead, and owners have one coordinator go on alone. Not simulated: those left behind by a recovery going
//! on, groups that are apart, addresses of links, the mesh, signed directories, an owner who erases.
//!
//! # Invariants
//! - A ticket admits at most its uses; nobody shares a VPN address, pod prefix, name, VPN key or disk; no key goes to a
//!   removed machine: `crates/sim/src/laws.rs`
//! - After a recovery one machine coordinates, and others only by an owner's word; a refusal changes nothing in the
//!   records but the audit: `crates/sim/src/laws.rs`
//! - The cluster gives the key that a member's disk is locked with, whatever rotates when; so does a quorum of shares:
//!   `crates/sim/src/esp.rs`
//! - Nothing of a coordinator is erased while its units run, or by one voice; no unit runs without its role:
//!   `crates/sim/src/laws/life.rs`
//! - Each law is broken by a fault that is put in for it: `crates/sim/tests/laws.rs`, `crates/sim/tests/life.rs`

pub mod cast;
pub mod esp;
pub mod etcd;
pub mod laws;
pub mod world;
