//! Users: people who may use Kubernetes. Owners add and remove them; what is asked twice is done once.

use model::{OwnerPubKey, UserName};

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::{MOST_USER_KEYS, MOST_USERS, UserRecord, UserTerms};
use crate::txn::{Grant, Txn};

pub(super) fn add(ground: &Ground<'_>, by: OwnerPubKey, terms: &UserTerms) -> Result<Txn, Denial> {
    if let Some(known) = ground.state.user(&terms.name) {
        let same = known.terms == *terms;
        return if same { Ok(ground.unchanged(Grant::Already)) } else { Err(Denial::UserDiffers(terms.name)) };
    }
    if !(1..=MOST_USER_KEYS).contains(&terms.keys.len()) {
        return Err(Denial::UserKeys(terms.keys.len()));
    }
    if !terms.hold(ground.now) {
        return Err(Denial::UserNeverHolds);
    }
    if terms.keys.iter().any(|key| ground.cluster.is_owned_by(&OwnerPubKey(key.0))) {
        return Err(Denial::UserIsOwner);
    }
    if let Some(other) = ground.state.users().find(|user| !user.terms.keys.is_disjoint(&terms.keys)) {
        return Err(Denial::UserKeyTaken(other.terms.name));
    }
    if ground.state.users().count() >= MOST_USERS {
        return Err(Denial::UsersExhausted);
    }
    let record = UserRecord { terms: terms.clone(), added_by: by, added_at: ground.now };
    let mut draft = ground.change("user added", &terms.name, Some(by));
    draft.create(Key::User(terms.name), record.encode());
    Ok(draft.grants(Grant::Done))
}

pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, name: &UserName) -> Result<Txn, Denial> {
    if ground.state.user(name).is_none() {
        return Ok(ground.unchanged(Grant::Already));
    }
    let mut draft = ground.change("user removed", name, Some(by));
    draft.delete(Key::User(*name));
    Ok(draft.grants(Grant::Done))
}
