//! Requests of owners about the cluster's owners: one is added, one is removed, all are listed.

use cluster::record::OwnerRecord;
use keys::recovery::RecoveryPubKey;
use model::OwnerPubKey;

use crate::field_error::fixed;
use crate::{FieldError, ListPage, Problem, UnixMillis, wire};

/// A person who owns the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedOwner {
    /// Keys of the owner.
    pub owner: OwnerRecord,
    /// Whether the owner's recovery key opens the recovery record of the machine that lists them.
    pub recovers: bool,
}

impl From<OwnerRecord> for wire::AddOwnerRequest {
    fn from(owner: OwnerRecord) -> Self {
        Self { public_key: owner.key.0.to_vec(), recovery_public_key: owner.recovery.bytes().to_vec() }
    }
}

impl TryFrom<wire::AddOwnerRequest> for OwnerRecord {
    type Error = FieldError;

    fn try_from(request: wire::AddOwnerRequest) -> Result<Self, FieldError> {
        owner(&request.public_key, &request.recovery_public_key)
    }
}

impl From<OwnerPubKey> for wire::RemoveOwnerRequest {
    fn from(key: OwnerPubKey) -> Self {
        Self { public_key: key.0.to_vec() }
    }
}

impl TryFrom<wire::RemoveOwnerRequest> for OwnerPubKey {
    type Error = FieldError;

    fn try_from(request: wire::RemoveOwnerRequest) -> Result<Self, FieldError> {
        fixed("public_key", &request.public_key).map(Self)
    }
}

impl From<ListPage<ListedOwner>> for wire::ListOwnersResponse {
    fn from(listed: ListPage<ListedOwner>) -> Self {
        let row = |ListedOwner { owner, recovers }: ListedOwner| wire::ClusterOwner {
            public_key: owner.key.0.to_vec(),
            recovery_public_key: owner.recovery.bytes().to_vec(),
            recovers,
        };
        let old_since_unix_ms = listed.old_since.map(|at| at.0);
        Self { old_since_unix_ms, owners: listed.rows.into_iter().map(row).collect() }
    }
}

impl TryFrom<wire::ListOwnersResponse> for ListPage<ListedOwner> {
    type Error = FieldError;

    fn try_from(listed: wire::ListOwnersResponse) -> Result<Self, FieldError> {
        let row = |row: wire::ClusterOwner| {
            let recovers = row.recovers;
            Ok(ListedOwner { owner: owner(&row.public_key, &row.recovery_public_key)?, recovers })
        };
        let rows = listed.owners.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self { old_since: listed.old_since_unix_ms.map(UnixMillis), rows })
    }
}

/// An owner, to whose recovery key something can be sealed.
fn owner(key: &[u8], recovery: &[u8]) -> Result<OwnerRecord, FieldError> {
    let recovery = RecoveryPubKey::new(fixed("recovery_public_key", recovery)?);
    Ok(OwnerRecord {
        key: OwnerPubKey(fixed("public_key", key)?),
        recovery: recovery.map_err(|_| FieldError::new("recovery_public_key", Problem::Unusable))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_cross_the_wire_as_they_are() {
        let owner = sim::cast::owner(1);
        assert_eq!(wire::AddOwnerRequest::from(owner.clone()).try_into(), Ok(owner.clone()));
        assert_eq!(wire::RemoveOwnerRequest::from(owner.key).try_into(), Ok(owner.key));
        let row = |recovers| ListedOwner { owner: owner.clone(), recovers };
        for old_since in [None, Some(UnixMillis(7))] {
            let listed = ListPage { old_since, rows: vec![row(true), row(false)] };
            assert_eq!(wire::ListOwnersResponse::from(listed.clone()).try_into(), Ok(listed));
        }
    }

    #[test]
    fn an_owner_with_a_key_that_is_none_is_refused() {
        let request = wire::AddOwnerRequest::from(sim::cast::owner(1));
        let refused = |edit: fn(&mut wire::AddOwnerRequest)| {
            let mut request = request.clone();
            edit(&mut request);
            OwnerRecord::try_from(request).map_err(|malformed| malformed.to_string())
        };
        for (edit, message) in [
            (
                (|it| it.public_key.push(0)) as fn(&mut wire::AddOwnerRequest),
                "field `public_key` has 33 bytes instead of 32",
            ),
            (|it| it.recovery_public_key.clear(), "field `recovery_public_key` has 0 bytes instead of 32"),
            (|it| it.recovery_public_key = vec![0; 32], "field `recovery_public_key` cannot be used"),
        ] {
            assert_eq!(refused(edit), Err(message.to_owned()));
        }
        let short = OwnerPubKey::try_from(wire::RemoveOwnerRequest { public_key: vec![1; 31] });
        assert_eq!(short.expect_err("short").to_string(), "field `public_key` has 31 bytes instead of 32");
    }
}
