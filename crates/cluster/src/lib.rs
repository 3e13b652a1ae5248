//! What coordinators keep in etcd under `/cairn/v1/`, and every decision over it. Pure.
//!
//! Key/value pairs in, a state to read, transactions out: no I/O, no clock, no random source. Any coordinator may decide:
//! every change compares and writes one key, so that of two decisions over the same state one is made again.
//!
//! * [`key`]: the keys; [`record`]: what stands behind them.
//! * [`role`]: what a machine does, for the cluster and for Kubernetes.

pub mod key;
pub mod record;
pub mod role;

#[cfg(test)]
mod fixture;
