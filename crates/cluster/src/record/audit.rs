//! A line of the audit: what was decided, about whom, by whom. Nothing is decided by it.
//!
//! ```text
//! message Audit { uint32 version = 1; string what = 2; string whom = 3; optional bytes owner = 4; uint64 time = 5; }
//! ```

use model::OwnerPubKey;
use prost::Message as _;

use super::{BadRecord, UnixSeconds, VERSION, decode, sized_if_there};

/// How many lines are kept of what owners and the cluster changed: the newest.
pub const MOST_AUDIT_LINES: usize = 10_000;
/// How many are kept of each kind that one machine or ticket causes: a machine that lies pushes out its own.
pub const MOST_AUDIT_LINES_OF_ONE: usize = 64;

/// A line of the audit: what was decided, of whom, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// A constant: the kind of request.
    pub what: String,
    /// The machine, ticket or owner that it is about.
    pub whom: String,
    /// The owner who asked, if one did.
    pub owner: Option<OwnerPubKey>,
    /// By the clock of the coordinator that decided it.
    pub time: UnixSeconds,
}

impl AuditLine {
    /// The line's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let owner = self.owner.map(|owner| owner.0.to_vec());
        let (what, whom) = (self.what.clone(), self.whom.clone());
        AuditWire { version: VERSION, what, whom, owner, time: self.time.0 }.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] when it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: AuditWire = decode(bytes, &AUDIT)?;
        let owner = sized_if_there("owner key", wire.owner.as_deref())?;
        Ok(Self { what: wire.what, whom: wire.whom, owner: owner.map(OwnerPubKey), time: UnixSeconds(wire.time) })
    }
}

formats::strict_message! {
    struct AuditWire, AUDIT = "Audit" {
        1 required u32 version;
        2 required text what;
        3 required text whom;
        4 optional bytes owner;
        5 required u64 time;
    }
}
