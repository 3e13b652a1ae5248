//! The restore that is under way: which machine has the snapshot, and which control planes have stopped for it.
//!
//! ```text
//! message Restore { uint32 version = 1; bytes machine_id = 2; bytes hash = 3; repeated bytes stopped = 4; }
//! ```

use std::collections::BTreeSet;

use model::MachineId;
use prost::Message as _;

use super::{BadRecord, VERSION, decode, ids, sized, to_wire};

/// Restore of Kubernetes' objects from a snapshot. As long as there is one no control plane runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreRecord {
    /// Coordinator that has the snapshot, and writes its objects into etcd.
    pub machine: MachineId,
    /// Hash of the snapshot, with which its file ends.
    pub hash: [u8; 32],
    /// Machines whose control plane has stopped.
    pub stopped: BTreeSet<MachineId>,
}

impl RestoreRecord {
    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (machine_id, hash) = (self.machine.0.to_vec(), self.hash.to_vec());
        RestoreWire { version: VERSION, machine_id, hash, stopped: to_wire(&self.stopped) }.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: RestoreWire = decode(bytes, &RESTORE)?;
        let machine = MachineId(sized("machine id", &wire.machine_id)?);
        Ok(Self { machine, hash: sized("hash", &wire.hash)?, stopped: ids(&wire.stopped)? })
    }
}

formats::strict_message! {
    struct RestoreWire, RESTORE = "Restore" {
        1 required u32 version;
        2 required bytes machine_id;
        3 required bytes hash;
        4 repeated bytes stopped;
    }
}
