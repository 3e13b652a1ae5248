//! Requests of owners about the users of Kubernetes: one is added, one is removed, all are listed.

use std::collections::BTreeSet;

use cluster::record::{MOST_USER_KEYS, UnixSeconds, UserRecord, UserTerms};
use model::{OwnerPubKey, UserName, UserPubKey};

use crate::field_error::fixed;
use crate::{FieldError, ListPage, Problem, UnixMillis, wire};

impl From<UserTerms> for wire::AddUserRequest {
    fn from(terms: UserTerms) -> Self {
        Self {
            name: terms.name.to_string(),
            public_keys: key_bytes(&terms.keys),
            not_after_unix_s: terms.expires.map(|end| end.0),
        }
    }
}

impl TryFrom<wire::AddUserRequest> for UserTerms {
    type Error = FieldError;

    fn try_from(request: wire::AddUserRequest) -> Result<Self, FieldError> {
        terms(&request.name, &request.public_keys, request.not_after_unix_s)
    }
}

impl From<UserName> for wire::RemoveUserRequest {
    fn from(name: UserName) -> Self {
        Self { name: name.to_string() }
    }
}

impl TryFrom<wire::RemoveUserRequest> for UserName {
    type Error = FieldError;

    fn try_from(request: wire::RemoveUserRequest) -> Result<Self, FieldError> {
        user_name(&request.name)
    }
}

impl From<ListPage<UserRecord>> for wire::ListUsersResponse {
    fn from(listed: ListPage<UserRecord>) -> Self {
        let row = |UserRecord { terms, added_by, added_at }: UserRecord| wire::ClusterUser {
            name: terms.name.to_string(),
            public_keys: key_bytes(&terms.keys),
            not_after_unix_s: terms.expires.map(|end| end.0),
            added_by: added_by.0.to_vec(),
            added_at_unix_s: added_at.0,
        };
        let old_since_unix_ms = listed.old_since.map(|at| at.0);
        Self { old_since_unix_ms, users: listed.rows.into_iter().map(row).collect() }
    }
}

impl TryFrom<wire::ListUsersResponse> for ListPage<UserRecord> {
    type Error = FieldError;

    fn try_from(listed: wire::ListUsersResponse) -> Result<Self, FieldError> {
        let row = |row: wire::ClusterUser| {
            Ok(UserRecord {
                terms: terms(&row.name, &row.public_keys, row.not_after_unix_s)?,
                added_by: OwnerPubKey(fixed("added_by", &row.added_by)?),
                added_at: UnixSeconds(row.added_at_unix_s),
            })
        };
        let rows = listed.users.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self { old_since: listed.old_since_unix_ms.map(UnixMillis), rows })
    }
}

fn key_bytes(keys: &BTreeSet<UserPubKey>) -> Vec<Vec<u8>> {
    keys.iter().map(|key| key.0.to_vec()).collect()
}

fn user_name(text: &str) -> Result<UserName, FieldError> {
    text.parse().map_err(|_| FieldError::new("name", Problem::Unusable))
}

fn terms(name: &str, keys: &[Vec<u8>], not_after: Option<u64>) -> Result<UserTerms, FieldError> {
    let unusable = || FieldError::new("public_keys", Problem::Unusable);
    let mut read = BTreeSet::new();
    for key in keys {
        let key = UserPubKey(fixed("public_keys", key)?);
        // Anybody can sign for a key of zeros.
        if key.0 == [0; 32] || !read.insert(key) {
            return Err(unusable());
        }
    }
    if !(1..=MOST_USER_KEYS).contains(&read.len()) {
        return Err(unusable());
    }
    Ok(UserTerms { name: user_name(name)?, keys: read, expires: not_after.map(UnixSeconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> UserTerms {
        let keys = [UserPubKey([1; 32]), UserPubKey([2; 32])].into();
        UserTerms { name: "alice".parse().expect("a name"), keys, expires: Some(UnixSeconds(9)) }
    }

    /// Proves: W9
    #[test]
    fn users_cross_the_wire_as_they_are() {
        for terms in [alice(), UserTerms { expires: None, ..alice() }] {
            assert_eq!(wire::AddUserRequest::from(terms.clone()).try_into(), Ok(terms.clone()));
            assert_eq!(wire::RemoveUserRequest::from(terms.name).try_into(), Ok(terms.name));
            let row = UserRecord { terms, added_by: OwnerPubKey([3; 32]), added_at: UnixSeconds(5) };
            let listed = ListPage { old_since: Some(UnixMillis(7)), rows: vec![row] };
            assert_eq!(wire::ListUsersResponse::from(listed.clone()).try_into(), Ok(listed));
        }
    }

    /// Proves: W9
    #[test]
    fn a_user_without_usable_keys_or_name_is_refused() {
        let refused = |edit: fn(&mut wire::AddUserRequest)| {
            let mut request = wire::AddUserRequest::from(alice());
            edit(&mut request);
            UserTerms::try_from(request).map_err(|malformed| malformed.to_string())
        };
        let unusable = "field `public_keys` cannot be used";
        for (edit, message) in [
            (
                (|it| it.public_keys[1].push(0)) as fn(&mut wire::AddUserRequest),
                "field `public_keys` has 33 bytes instead of 32",
            ),
            (|it| it.public_keys.clear(), unusable),
            (|it| it.public_keys[1] = it.public_keys[0].clone(), unusable),
            (|it| it.public_keys[1] = vec![0; 32], unusable),
            (|it| it.public_keys = (1..=9).map(|n| vec![n; 32]).collect(), unusable),
            (|it| it.name = "system:admin".to_owned(), "field `name` cannot be used"),
        ] {
            assert_eq!(refused(edit), Err(message.to_owned()));
        }
        let none = UserName::try_from(wire::RemoveUserRequest { name: String::new() });
        assert_eq!(none.expect_err("no name").to_string(), "field `name` cannot be used");
    }
}
