//! Tickets: issued by owners, who drew their keys; revoked by them. What is asked twice is done once.

use keys::ticket::ticket_id;
use model::{KubernetesRole, OwnerPubKey, TicketId};

use super::Ground;
use crate::denied::{Denied, MOST_USES};
use crate::key::Key;
use crate::record::{Revoked, TicketRecord};
use crate::request::Offer;
use crate::role;
use crate::txn::{Granted, Txn};

pub(super) fn issue(ground: &Ground<'_>, by: OwnerPubKey, offer: &Offer) -> Result<Txn, Denied> {
    let id = ticket_id(&offer.key);
    if let Some(known) = ground.state.ticket(&id) {
        return if is_offered(known, offer) {
            Ok(ground.unchanged(Granted::Ticket(id)))
        } else {
            Err(Denied::TicketDiffers)
        };
    }
    if !(1..=MOST_USES).contains(&offer.uses) {
        return Err(Denied::TicketUses(offer.uses));
    }
    if offer.not_after <= ground.now {
        return Err(Denied::TicketNeverHolds);
    }
    if offer.uses > 1 && (offer.machine.is_some() || offer.node_name.is_some()) {
        return Err(Denied::TicketForOne);
    }
    if !role::fits(offer.role, &offer.kubernetes) {
        return Err(Denied::ControlPlaneOnNode);
    }
    if offer.machine.is_none() && offer.kubernetes.contains(&KubernetesRole::ControlPlane) {
        return Err(Denied::ControlPlaneUnnamed);
    }
    if let Some(name) = offer.node_name.as_ref().filter(|name| ground.state.named(name).is_some()) {
        return Err(Denied::NameTaken(name.clone()));
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
        revoked: Revoked::No,
    };
    let mut draft = ground.change("ticket issued", &id, Some(by));
    draft.create(Key::Ticket(id), record.encode());
    Ok(draft.grants(Granted::Ticket(id)))
}

fn is_offered(record: &TicketRecord, offer: &Offer) -> bool {
    let Offer { key, uses, not_after, role, kubernetes, machine, node_name } = offer;
    (&record.key, &record.uses, &record.not_after, &record.role) == (key, uses, not_after, role)
        && (&record.kubernetes, &record.machine, &record.node_name) == (kubernetes, machine, node_name)
}

pub(super) fn revoke(ground: &Ground<'_>, by: OwnerPubKey, id: &TicketId) -> Result<Txn, Denied> {
    let record = ground.state.ticket(id).ok_or(Denied::UnknownTicket)?;
    match record.revoked {
        Revoked::At(_) => Ok(ground.unchanged(Granted::Already)),
        Revoked::No => {
            let mut draft = ground.change("ticket revoked", id, Some(by));
            let record = TicketRecord { revoked: Revoked::At(ground.now), ..record.clone() };
            draft.put(Key::Ticket(*id), record.encode());
            Ok(draft.grants(Granted::Done))
        }
    }
}
