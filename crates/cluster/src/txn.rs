//! A change of etcd as a value: what is compared, what is put, what is deleted. Whoever commits it does so in one transaction.
//!
//! Of two changes over the same state one commits and the other is decided again: each compares the version, and writes it.

use model::{DiskUuid, MachineId, TicketId};

use crate::key::Key;
use crate::state::State;

/// How many comparisons etcd takes in one transaction (its `--max-txn-ops`).
pub const MOST_COMPARES: usize = 128;

/// A comparison that must hold for a transaction to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compare {
    /// The key that is compared.
    pub key: Key,
    /// The condition that must hold of the key.
    pub condition: KeyCondition,
}

/// Condition of a comparison on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCondition {
    /// The key does not exist: its create revision is 0.
    Absent,
    /// The key was last written in this revision.
    ModifiedIn(u64),
}

/// A change of etcd, or the proof that nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// All of these hold, or nothing is written.
    pub compares: Vec<Compare>,
    /// Written, each key once.
    pub puts: Vec<(Key, Vec<u8>)>,
    /// Deleted.
    pub deletes: Vec<Key>,
    /// The grant that may be told once the transaction is committed, and not before.
    pub granted: Grant,
}

/// Grant of a committed transaction to whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The change is made.
    Done,
    /// The state was so before: nothing was written.
    Already,
    /// The ticket is the cluster's.
    Ticket(TicketId),
    /// The machine is admitted: the answer is made of its record.
    Admitted(MachineId),
    /// The cluster key of this disk in this generation.
    ClusterKey {
        machine: MachineId,
        disk: DiskUuid,
        /// The one that was asked for.
        generation: u32,
        /// While it rotates: the one that is given along.
        next: Option<u32>,
    },
}

/// Outcome of a transaction in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything compared; it is written, or there was nothing to write.
    Committed,
    /// Something did not compare; nothing was written.
    Differs {
        /// The revision that wrote the version last; 0 when there is none.
        version: u64,
    },
}

impl Txn {
    /// Proves that the state is still this one, and writes nothing.
    #[must_use]
    pub fn unchanged(state: &State) -> Self {
        let condition =
            state.version().map_or(KeyCondition::Absent, |(_, revision)| KeyCondition::ModifiedIn(revision));
        let version = Compare { key: Key::Version, condition };
        Self { compares: vec![version], puts: vec![], deletes: vec![], granted: Grant::Already }
    }

    /// Whether it writes anything.
    #[must_use]
    pub fn writes(&self) -> bool {
        !self.puts.is_empty() || !self.deletes.is_empty()
    }
}
