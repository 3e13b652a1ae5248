//! Owners of the cluster: there is always one.

use model::OwnerPubKey;

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::{Cluster, MOST_OWNERS, OwnerRecord};
use crate::txn::{Grant, Txn};

pub(super) fn add(ground: &Ground<'_>, by: OwnerPubKey, owner: &OwnerRecord) -> Result<Txn, Denial> {
    let owners = &ground.cluster.owners;
    if let Some(known) = owners.iter().find(|known| known.key == owner.key) {
        return if known == owner { Ok(ground.unchanged(Grant::Already)) } else { Err(Denial::OtherRecoveryKey) };
    }
    if owners.len() >= MOST_OWNERS {
        return Err(Denial::OwnersExhausted);
    }
    let owners = owners.iter().chain([owner]).cloned().collect();
    let mut draft = ground.change("owner added", &owner.key, Some(by));
    draft.put(Key::Cluster, Cluster { owners, ..ground.cluster.clone() }.encode());
    Ok(draft.grants(Grant::Done))
}

pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, key: &OwnerPubKey) -> Result<Txn, Denial> {
    if !ground.cluster.is_owned_by(key) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let owners: Vec<OwnerRecord> = ground.cluster.owners.iter().filter(|owner| owner.key != *key).cloned().collect();
    if owners.is_empty() {
        return Err(Denial::LastOwner);
    }
    let mut draft = ground.change("owner removed", key, Some(by));
    draft.put(Key::Cluster, Cluster { owners, ..ground.cluster.clone() }.encode());
    Ok(draft.grants(Grant::Done))
}
