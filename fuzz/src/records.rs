//! Records of the cluster in etcd, which another version may have written.

use cluster::key::Key;
use cluster::record::{
    AuditLine, ChangeCount, Cluster, ColdStartEpochs, HolderRecord, MachineRecord, PublishRecord, RegistryRecord,
    RestoreRecord, TicketRecord, UserRecord,
};

use crate::{ParseVerdict, outcome};

/// A key of etcd: it has one spelling.
pub fn etcd_key(bytes: &[u8]) -> ParseVerdict {
    let read = Key::read(bytes);
    if let Ok(key) = &read {
        assert_eq!(key.bytes(), bytes, "a key has one spelling");
    }
    outcome(&read)
}

/// A value of etcd, under every kind of key.
pub fn etcd_record(bytes: &[u8]) -> ParseVerdict {
    let read = [
        outcome(&ChangeCount::decode(bytes)),
        outcome(&HolderRecord::decode(bytes)),
        outcome(&Cluster::decode(bytes)),
        outcome(&MachineRecord::decode(bytes)),
        outcome(&TicketRecord::decode(bytes)),
        outcome(&RegistryRecord::decode(bytes)),
        outcome(&UserRecord::decode(bytes)),
        outcome(&PublishRecord::decode(bytes)),
        outcome(&ColdStartEpochs::decode(bytes)),
        outcome(&RestoreRecord::decode(bytes)),
        outcome(&AuditLine::decode(bytes)),
    ];
    if read.contains(&ParseVerdict::Accepted) { ParseVerdict::Accepted } else { ParseVerdict::Refused }
}
