//! Owners of the cluster: there is always one.

use model::OwnerPubKey;

use super::Ground;
use crate::denied::Denied;
use crate::key::Key;
use crate::record::{Cluster, MOST_OWNERS, Owner};
use crate::txn::{Granted, Txn};

pub(super) fn add(ground: &Ground<'_>, by: OwnerPubKey, owner: &Owner) -> Result<Txn, Denied> {
    let owners = &ground.cluster.owners;
    if let Some(known) = owners.iter().find(|known| known.key == owner.key) {
        return if known == owner { Ok(ground.unchanged(Granted::Already)) } else { Err(Denied::OtherRecoveryKey) };
    }
    if owners.len() >= MOST_OWNERS {
        return Err(Denied::OwnersExhausted);
    }
    let owners = owners.iter().chain([owner]).cloned().collect();
    let mut draft = ground.change("owner added", &owner.key, Some(by));
    draft.put(Key::Cluster, Cluster { owners, ..ground.cluster.clone() }.encode());
    Ok(draft.grants(Granted::Done))
}

pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, key: &OwnerPubKey) -> Result<Txn, Denied> {
    if !ground.cluster.is_owned_by(key) {
        return Ok(ground.unchanged(Granted::Already));
    }
    let owners: Vec<Owner> = ground.cluster.owners.iter().filter(|owner| owner.key != *key).cloned().collect();
    if owners.is_empty() {
        return Err(Denied::LastOwner);
    }
    let mut draft = ground.change("owner removed", key, Some(by));
    draft.put(Key::Cluster, Cluster { owners, ..ground.cluster.clone() }.encode());
    Ok(draft.grants(Granted::Done))
}
