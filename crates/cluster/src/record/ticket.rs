//! A ticket's record: what the ticket may do, and how much of it is used. The cluster never knows the ticket's private key.
//!
//! ```text
//! message Ticket { uint32 version = 1; bytes public_key = 2; uint32 uses = 3; uint32 used = 4; uint64 not_after = 5;
//!                  uint32 role = 6; repeated uint32 kubernetes_roles = 7; optional bytes machine_public_key = 8;
//!                  optional string node_name = 9; bytes issued_by = 10; uint64 issued_at = 11;
//!                  optional uint64 revoked_at = 12; }
//! ```

use std::collections::BTreeSet;

use keys::numbers;
use keys::ticket::ticket_id;
use model::{ClusterRole, KubernetesRole, MachinePubKey, NodeName, OwnerPubKey, TicketId, TicketPubKey};
use prost::Message as _;

use super::{BadRecord, UnixSeconds, VERSION, decode, sized, sized_if_there};
use crate::role;

/// A ticket's record: what the ticket may do, and how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketRecord {
    /// The ticket's public key.
    pub key: TicketPubKey,
    /// How many machines it may admit, 1 or more.
    pub uses: u32,
    /// How many it has admitted.
    pub used: u32,
    /// From when on it admits nobody.
    pub not_after: UnixSeconds,
    /// The role that the machines get; coordinator only where `machine` names one: others are nodes that an owner has to
    /// approve.
    pub role: ClusterRole,
    /// The roles that the machines get in Kubernetes.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// The one machine that it admits; then there is one use.
    pub machine: Option<MachinePubKey>,
    /// The name that the one machine gets; then there is one use.
    pub node_name: Option<NodeName>,
    /// The owner who asked for it.
    pub issued_by: OwnerPubKey,
    /// When.
    pub issued_at: UnixSeconds,
    /// Whether it was taken back.
    pub revoked: Revocation,
}

/// Whether a ticket was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// The ticket holds.
    No,
    /// Since then it admits nobody.
    At(UnixSeconds),
}

impl TicketRecord {
    /// The ticket's id, by its key.
    #[must_use]
    pub fn id(&self) -> TicketId {
        ticket_id(&self.key)
    }

    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = TicketWire {
            version: VERSION,
            public_key: self.key.0.to_vec(),
            uses: self.uses,
            used: self.used,
            not_after: self.not_after.0,
            role: numbers::cluster_role::number(self.role),
            kubernetes_roles: numbers::of_kubernetes_roles(&self.kubernetes),
            machine_public_key: self.machine.map(|key| key.0.to_vec()),
            node_name: self.node_name.as_ref().map(|name| name.as_str().to_owned()),
            issued_by: self.issued_by.0.to_vec(),
            issued_at: self.issued_at.0,
            revoked_at: match self.revoked {
                Revocation::No => None,
                Revocation::At(UnixSeconds(at)) => Some(at),
            },
        };
        wire.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: TicketWire = decode(bytes, &TICKET)?;
        let (role, kubernetes) = role::read(wire.role, &wire.kubernetes_roles)?;
        let machine = sized_if_there("machine key", wire.machine_public_key.as_deref())?;
        let record = Self {
            key: TicketPubKey(sized("ticket key", &wire.public_key)?),
            uses: wire.uses,
            used: wire.used,
            not_after: UnixSeconds(wire.not_after),
            role,
            kubernetes,
            machine: machine.map(MachinePubKey),
            node_name: wire.node_name.as_deref().map(NodeName::chosen).transpose()?,
            issued_by: OwnerPubKey(sized("owner key", &wire.issued_by)?),
            issued_at: UnixSeconds(wire.issued_at),
            revoked: wire.revoked_at.map_or(Revocation::No, |at| Revocation::At(UnixSeconds(at))),
        };
        if record.uses == 0 || record.used > record.uses {
            return Err(BadRecord::Contradiction("it has no use, or is used more often than it may be"));
        }
        if record.uses > 1 && (record.machine.is_some() || record.node_name.is_some()) {
            return Err(BadRecord::Contradiction("it has several uses, and is for one machine"));
        }
        Ok(record)
    }
}

formats::strict_message! {
    struct TicketWire, TICKET = "Ticket" {
        1 required u32 version;
        2 required bytes public_key;
        3 required u32 uses;
        4 required u32 used;
        5 required u64 not_after;
        6 required u32 role;
        7 repeated u32 kubernetes_roles;
        8 optional bytes machine_public_key;
        9 optional text node_name;
        10 required bytes issued_by;
        11 required u64 issued_at;
        12 optional u64 revoked_at;
    }
}
