//! A cluster in one process and virtual time: many machines, an etcd that fails, one seed. Nothing here asks a clock or
//! draws a number but from the seed, so a seed that fails once fails always.
//!
//! * [`etcd`]: the store, as its clients see it.
//! * [`cast`]: owners, machines, tickets, by number.
//! * [`esp`]: what voters keep for the day when all are off.
//! * [`world`]: coordinators and machines that ask, events in their order; [`laws`]: what must hold after each.

pub mod cast;
pub mod esp;
pub mod etcd;
pub mod laws;
pub mod world;
