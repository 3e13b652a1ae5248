//! A cluster in one process and virtual time. Nothing here asks a clock or draws a number of its own.
//!
//! * [`etcd`]: the store, as its clients see it.
//! * [`cast`]: owners, machines, tickets, by number.

pub mod cast;
pub mod etcd;
