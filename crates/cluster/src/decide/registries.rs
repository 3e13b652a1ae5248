//! Registries of container images: what owners say of them, each whole and by its name. What is asked twice is done once.

use model::{OwnerPubKey, RegistryHost};

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::{MOST_REGISTRIES, MOST_REGISTRIES_BYTES, RegistryRecord};
use crate::txn::{Grant, Txn};

pub(super) fn set(ground: &Ground<'_>, by: OwnerPubKey, registry: &RegistryRecord) -> Result<Txn, Denial> {
    let (host, known) = (registry.host(), ground.state.registries());
    if known.get(&host) == Some(registry) {
        return Ok(ground.unchanged(Grant::Already));
    }
    if !known.contains_key(&host) && known.len() >= MOST_REGISTRIES {
        return Err(Denial::RegistriesExhausted);
    }
    let others = known.values().filter(|other| other.host() != host);
    let bytes: usize = others.chain([registry]).map(|registry| registry.encode().len()).sum();
    if bytes > MOST_REGISTRIES_BYTES {
        return Err(Denial::RegistriesTooLarge);
    }
    let mut draft = ground.change("registry set", &host, Some(by));
    if known.contains_key(&host) {
        draft.put(Key::Registry(host), registry.encode());
    } else {
        draft.create(Key::Registry(host), registry.encode());
    }
    Ok(draft.grants(Grant::Done))
}

pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, host: RegistryHost) -> Result<Txn, Denial> {
    if !ground.state.registries().contains_key(&host) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let mut draft = ground.change("registry removed", &host, Some(by));
    draft.delete(Key::Registry(host));
    Ok(draft.grants(Grant::Done))
}
