//! Rules that publish ports: each made once and removed by its number. No two open one port of one machine. Which machine holds a rule's
//! floating address is a change of its own.

use std::net::{IpAddr, Ipv4Addr};

use keys::endpoint::Endpoint;
use model::{MachineId, OwnerPubKey, PublishId};

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::{HolderRecord, MOST_PUBLISHED, PublishRecord, PublishTerms};
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
    if let Some(address) = terms.address() {
        is_free(ground, address)?;
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
    let Some(rule) = ground.state.published().get(&id) else {
        return Ok(ground.unchanged(Grant::Already));
    };
    let mut draft = ground.change("published no more", &id, Some(by));
    draft.delete(Key::Publish(id));
    if let Some(address) = rule.terms.address().filter(|address| ground.state.floating().contains_key(address)) {
        draft.delete(Key::Floating(address));
    }
    Ok(draft.grants(Grant::Done))
}

/// Whether no rule has a floating address yet, nor the cluster, nor a machine of its own.
fn is_free(ground: &Ground<'_>, address: Ipv4Addr) -> Result<(), Denial> {
    if let Some(rule) = ground.state.published().values().find(|rule| rule.terms.address() == Some(address)) {
        return Err(Denial::AddressPublished { address, rule: rule.id });
    }
    if ground.cluster.prefixes.rows().iter().any(|(kept, _)| kept.contains(address)) {
        return Err(Denial::AddressInside(address));
    }
    let has = |endpoint: &Endpoint| endpoint.address().is_some_and(|at| at.ip() == IpAddr::V4(address));
    let holder =
        ground.state.machines().find(|(_, machine)| machine.belongs() && machine.endpoints.reported.iter().any(has));
    holder.map_or(Ok(()), |(_, machine)| Err(Denial::AddressOfMachine { address, machine: machine.name.clone() }))
}

/// A coordinator gives a rule's floating address to one of the rule's workers.
pub(super) fn hold(ground: &Ground<'_>, address: Ipv4Addr, machine: MachineId) -> Result<Txn, Denial> {
    let may = |terms: &PublishTerms| terms.address() == Some(address) && terms.users().are_on(&machine);
    let is_published = ground.state.published().values().any(|rule| may(&rule.terms));
    if !is_published || ground.state.worker(&machine).is_none() {
        return Err(Denial::AddressNotPublished { address, machine });
    }
    let before = ground.state.floating().get(&address).map(|(holder, _)| *holder);
    if before == Some(machine) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let mut draft = ground.change_by(&format!("holds {address}"), machine);
    let (key, holder) = (Key::Floating(address), HolderRecord(machine).encode());
    if before.is_some() {
        draft.put(key, holder);
    } else {
        draft.create(key, holder);
    }
    Ok(draft.grants(Grant::Done))
}
