//! A user's record: by which keys a person uses the cluster's Kubernetes, and until when. What they may do there is said by
//! Kubernetes' own roles, under the user's name.
//!
//! ```text
//! message User { uint32 version = 1; string name = 2; repeated bytes public_keys = 3; optional uint64 not_after = 4;
//!                bytes added_by = 5; uint64 added_at = 6; }
//! public_keys: 1 to 8, ascending
//! ```

use std::collections::BTreeSet;

use model::{OwnerPubKey, UserName, UserPubKey};
use prost::Message as _;

use super::{BadRecord, UnixSeconds, VERSION, decode, sized};

/// How many users a cluster may have: all are told in one answer, and each connection is held against all their keys.
pub const MOST_USERS: usize = 256;
/// How many keys a user may have: one for each host of a person.
pub const MOST_USER_KEYS: usize = 8;

/// Terms under which a person uses Kubernetes, as an owner asks for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserTerms {
    /// Name in Kubernetes, and in the audit.
    pub name: UserName,
    /// Keys that the person made, at most [`MOST_USER_KEYS`].
    pub keys: BTreeSet<UserPubKey>,
    /// Moment from which on nobody is let in by them; none: until they are removed.
    pub expires: Option<UnixSeconds>,
}

/// Record of a user: the terms, and who set them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRecord {
    /// Terms of the user.
    pub terms: UserTerms,
    /// The owner who added the user.
    pub added_by: OwnerPubKey,
    /// Moment of that.
    pub added_at: UnixSeconds,
}

impl UserTerms {
    /// Whether the user is let in at `now`.
    #[must_use]
    pub fn hold(&self, now: UnixSeconds) -> bool {
        self.expires.is_none_or(|end| now < end)
    }
}

impl UserRecord {
    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = UserWire {
            version: VERSION,
            name: self.terms.name.to_string(),
            public_keys: self.terms.keys.iter().map(|key| key.0.to_vec()).collect(),
            not_after: self.terms.expires.map(|end| end.0),
            added_by: self.added_by.0.to_vec(),
            added_at: self.added_at.0,
        };
        wire.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: UserWire = decode(bytes, &USER)?;
        let keys = wire.public_keys.iter().map(|key| sized("user key", key).map(UserPubKey));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        if !(1..=MOST_USER_KEYS).contains(&keys.len()) || !keys.is_sorted_by(|one, other| one < other) {
            return Err(BadRecord::Contradiction("a user has 1 to 8 keys, each once, in their order"));
        }
        let terms = UserTerms {
            name: wire.name.parse()?,
            keys: keys.into_iter().collect(),
            expires: wire.not_after.map(UnixSeconds),
        };
        Ok(Self {
            terms,
            added_by: OwnerPubKey(sized("owner key", &wire.added_by)?),
            added_at: UnixSeconds(wire.added_at),
        })
    }
}

formats::strict_message! {
    struct UserWire, USER = "User" {
        1 required u32 version;
        2 required text name;
        3 repeated bytes public_keys;
        4 optional u64 not_after;
        5 required bytes added_by;
        6 required u64 added_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    /// Proves: W9
    #[test]
    fn a_users_keys_are_few_and_each_is_there_once() {
        let wire = |keys: &[u8], name: &str| {
            let record = UserWire {
                version: VERSION,
                name: name.to_owned(),
                public_keys: keys.iter().map(|key| vec![*key; 32]).collect(),
                not_after: None,
                added_by: vec![1; 32],
                added_at: 7,
            };
            UserRecord::decode(&record.encode_to_vec()).map(|record| record.terms.keys.len())
        };
        assert_eq!((wire(&[1], "a"), wire(&[1, 2, 3, 4, 5, 6, 7, 8], "a")), (Ok(1), Ok(8)));
        for keys in [&[][..], &[1, 1], &[2, 1], &[1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            assert!(matches!(wire(keys, "a"), Err(BadRecord::Contradiction(_))), "{keys:?}");
        }
        assert!(matches!(wire(&[1], "system:admin"), Err(BadRecord::UserName(_))));
    }

    /// Proves: W9
    #[test]
    fn a_users_time_is_over_at_the_second_of_its_end() {
        let terms = fixture::user("alice", 1).terms;
        let end = terms.expires.expect("it ends").0;
        assert_eq!([end - 1, end, end + 1].map(|now| terms.hold(UnixSeconds(now))), [true, false, false]);
        assert!(UserTerms { expires: None, ..terms }.hold(UnixSeconds(u64::MAX)));
    }
}
