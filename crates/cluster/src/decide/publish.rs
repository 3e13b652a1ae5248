//! Rules that publish ports: each made once and removed by its number. No two open one port of one machine.

use model::{OwnerPubKey, PublishId};

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::{MOST_PUBLISHED, PublishRecord, PublishTerms};
use crate::txn::{Grant, Txn};

pub(super) fn add(ground: &Ground<'_>, by: OwnerPubKey, terms: &PublishTerms) -> Result<Txn, Denial> {
    let known = ground.state.published();
    if known.values().any(|rule| rule.terms == *terms) {
        return Ok(ground.unchanged(Grant::Already));
    }
    for machine in terms.users().machines() {
        ground.belonging(machine)?;
    }
    let overlap = known.values().find_map(|rule| Some((rule.terms.overlap(terms)?, rule.id)));
    if let Some((port, rule)) = overlap {
        return Err(Denial::PortPublished { port, rule });
    }
    if known.len() >= MOST_PUBLISHED {
        return Err(Denial::PublishedExhausted);
    }
    let id = PublishId(ground.changes.0 + 1);
    let mut draft = ground.change("published", &id, Some(by));
    draft.create(Key::Publish(id), PublishRecord { id, terms: terms.clone() }.encode());
    Ok(draft.grants(Grant::Done))
}

pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, id: PublishId) -> Result<Txn, Denial> {
    if !ground.state.published().contains_key(&id) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let mut draft = ground.change("published no more", &id, Some(by));
    draft.delete(Key::Publish(id));
    Ok(draft.grants(Grant::Done))
}
