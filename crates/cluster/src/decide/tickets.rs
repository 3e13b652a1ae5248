//! Tickets: issued by owners, who drew their keys; revoked by them. What is asked twice is done once.

use keys::ticket::ticket_id;
use model::{KubernetesRole, OwnerPubKey, TicketId};

use super::Ground;
use crate::denial::{Denial, MOST_USES};
use crate::key::Key;
use crate::record::{Revocation, TicketRecord};
use crate::request::Offer;
use crate::role;
use crate::txn::{Grant, Txn};

pub(super) fn issue(ground: &Ground<'_>, by: OwnerPubKey, offer: &Offer) -> Result<Txn, Denial> {
    let id = ticket_id(&offer.key);
    if let Some(known) = ground.state.ticket(&id) {
        return if is_offered(known, offer) {
            Ok(ground.unchanged(Grant::Ticket(id)))
        } else {
            Err(Denial::TicketDiffers)
        };
    }
    if !(1..=MOST_USES).contains(&offer.uses) {
        return Err(Denial::TicketUses(offer.uses));
    }
    if offer.not_after <= ground.now {
        return Err(Denial::TicketNeverHolds);
    }
    if offer.uses > 1 && (offer.machine.is_some() || offer.node_name.is_some()) {
        return Err(Denial::TicketForOne);
    }
    if !role::fits(offer.role, &offer.kubernetes) {
        return Err(Denial::ControlPlaneOnNode);
    }
    if offer.machine.is_none() && offer.kubernetes.contains(&KubernetesRole::ControlPlane) {
        return Err(Denial::ControlPlaneUnnamed);
    }
    if let Some(name) = offer.node_name.as_ref().filter(|name| ground.state.named(name).is_some()) {
        return Err(Denial::NameTaken(name.clone()));
    }
    let record = TicketRecord {
        key: offer.key,
        uses: offer.uses,
        used: 0,
        not_after: offer.not_after,
        role: offer.role,
        kubernetes: offer.kubernetes.clone(),
        machine: offer.machine,
        node_name: offer.node_name.clone(),
        issued_by: by,
        issued_at: ground.now,
        revoked: Revocation::No,
    };
    let mut draft = ground.change("ticket issued", &id, Some(by));
    draft.create(Key::Ticket(id), record.encode());
    Ok(draft.grants(Grant::Ticket(id)))
}

fn is_offered(record: &TicketRecord, offer: &Offer) -> bool {
    let Offer { key, uses, not_after, role, kubernetes, machine, node_name } = offer;
    (&record.key, &record.uses, &record.not_after, &record.role) == (key, uses, not_after, role)
        && (&record.kubernetes, &record.machine, &record.node_name) == (kubernetes, machine, node_name)
}

pub(super) fn revoke(ground: &Ground<'_>, by: OwnerPubKey, id: &TicketId) -> Result<Txn, Denial> {
    let record = ground.state.ticket(id).ok_or(Denial::UnknownTicket)?;
    match record.revoked {
        Revocation::At(_) => Ok(ground.unchanged(Grant::Already)),
        Revocation::No => {
            let mut draft = ground.change("ticket revoked", id, Some(by));
            let record = TicketRecord { revoked: Revocation::At(ground.now), ..record.clone() };
            draft.put(Key::Ticket(*id), record.encode());
            Ok(draft.grants(Grant::Done))
        }
    }
}
