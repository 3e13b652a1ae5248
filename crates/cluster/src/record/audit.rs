//! A line of the audit: what was decided, about whom, by whom. Nothing is decided by it.
//!
//! ```text
//! message Audit { uint32 version = 1; string what = 2; string whom = 3; optional bytes owner = 4; }
//! ```

use model::OwnerPubKey;
use prost::Message as _;

use super::{BadRecord, VERSION, decode, sized_if_there};

/// How many lines are kept: the newest.
pub const MOST_AUDIT_LINES: u64 = 10_000;

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// A constant: the kind of request.
    pub what: String,
    /// The machine, ticket or owner that it is about.
    pub whom: String,
    /// The owner who asked, if one did.
    pub owner: Option<OwnerPubKey>,
}

impl AuditLine {
    /// The line's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let owner = self.owner.map(|owner| owner.0.to_vec());
        AuditWire { version: VERSION, what: self.what.clone(), whom: self.whom.clone(), owner }.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] when it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: AuditWire = decode(bytes, &AUDIT)?;
        let owner = sized_if_there("owner key", wire.owner.as_deref())?;
        Ok(Self { what: wire.what, whom: wire.whom, owner: owner.map(OwnerPubKey) })
    }
}

formats::strict_message! {
    struct AuditWire, AUDIT = "Audit" {
        1 required u32 version;
        2 required text what;
        3 required text whom;
        4 optional bytes owner;
    }
}
