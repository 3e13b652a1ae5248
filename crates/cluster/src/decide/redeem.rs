//! Whether a machine that holds a ticket is let in, and what it is given: a name, a VPN address, a pod prefix. Addresses and
//! prefixes go round, so that what was released comes last.

use std::net::Ipv4Addr;

use keys::endpoint::Endpoint;
use keys::identity::machine_id;
use keys::ticket::ticket_id;
use model::{ClusterRole, Ipv4Prefix, KubernetesRole, MachineId, NodeName, TicketId};

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::{
    Admission, Cluster, Endpoints, Generations, MachineRecord, Revocation, Standing, TicketRecord, Times, is_below,
};
use crate::redeem::{RedeemBody, RedeemRequest};
use crate::state::State;
use crate::txn::{Grant, Txn};

/// The length of a machine's pod prefix.
const POD_BITS: u8 = 24;

pub(super) fn redeem(ground: &Ground<'_>, request: &RedeemRequest) -> Result<Txn, Denial> {
    let (key, body) = (request.machine(), request.body());
    let (id, ticket_id) = (machine_id(&key.0), ticket_id(&body.ticket));
    let ticket = ground.state.ticket(&ticket_id).ok_or(Denial::UnknownTicket)?;
    Endpoint::judge_of_machine(&body.endpoints)?;
    if let Some(known) = ground.state.machine(&id) {
        return again(ground, known, (ticket_id, ticket), body);
    }
    admits(ground, ticket)?;
    if ticket.machine.is_some_and(|machine| machine != *key) {
        return Err(Denial::OtherMachine);
    }
    fits(ground, body)?;
    let name = name(ground.state, ticket, body, id)?;
    let (vpn_ip, next_address) = next_address(ground.state, ground.cluster)?;
    let (role, awaits_approval) = role(ticket);
    let coordinator = (role == ClusterRole::Coordinator).then_some(ground.now);
    let worker = ticket.kubernetes.contains(&KubernetesRole::Worker);
    let pods = if worker { Some(next_pods(ground.state, ground.cluster)?) } else { None };
    let machine = MachineRecord {
        key: *key,
        name,
        role,
        kubernetes: ticket.kubernetes.clone(),
        standing: Standing::Admitted,
        vpn_ip,
        pods: pods.map(|(prefix, _)| prefix),
        vpn_key: body.vpn_key,
        disk: body.disk,
        generations: Generations::One(1),
        level: body.level,
        boot_class: body.boot_class,
        release: body.release,
        root_hash: body.root_hash,
        storage_key_name: body.storage_key_name,
        endpoints: Endpoints { reported: body.endpoints.clone(), observed: vec![] },
        admission: Admission::Ticket(ticket_id),
        times: Times { admitted: ground.now, member: None, removed: None, coordinator },
        awaits_approval,
    };
    let next_pods = pods.map_or(ground.cluster.next_pods, |(_, next)| next);
    let mut draft = ground.change_by("admitted", id);
    draft.new_machine(&machine);
    draft.put(Key::Ticket(ticket_id), TicketRecord { used: ticket.used + 1, ..ticket.clone() }.encode());
    draft.put(Key::Cluster, Cluster { next_address, next_pods, ..ground.cluster.clone() }.encode());
    Ok(draft.grants(Grant::Admitted(id)))
}

/// Role that a ticket gives at once, and whether an owner has to approve another one. Whoever holds a coordinator has the whole
/// cluster, and a ticket may be stolen: so it makes coordinators of the one machine that it names, and of nobody else.
fn role(ticket: &TicketRecord) -> (ClusterRole, bool) {
    match (ticket.role, ticket.machine) {
        (ClusterRole::Coordinator, None) => (ClusterRole::Node, true),
        (role @ ClusterRole::Coordinator, Some(_)) | (role @ ClusterRole::Node, _) => (role, false),
    }
}

/// A machine that the cluster knows asks again: because it was cut, or because it should not.
fn again(
    ground: &Ground<'_>,
    known: &MachineRecord,
    (id, ticket): (TicketId, &TicketRecord),
    body: &RedeemBody,
) -> Result<Txn, Denial> {
    match known.standing {
        Standing::Admitted => {}
        Standing::Member | Standing::Draining => return Err(Denial::AlreadyMember),
        Standing::Removed => return Err(Denial::MachineRemoved),
    }
    if known.admission != Admission::Ticket(id) {
        return Err(Denial::OtherTicket);
    }
    // What it is answered hangs on these; the rest may have changed with another image or another network.
    if (known.disk, known.vpn_key, known.level) != (body.disk, body.vpn_key, body.level) {
        return Err(Denial::OtherAttempt);
    }
    if !ground.cluster.is_owned_by(&body.owner) {
        return Err(Denial::UnknownOwner);
    }
    let told = MachineRecord {
        boot_class: body.boot_class,
        release: body.release,
        root_hash: body.root_hash,
        storage_key_name: body.storage_key_name,
        endpoints: Endpoints { reported: body.endpoints.clone(), ..known.endpoints.clone() },
        ..known.clone()
    };
    let granted = Grant::Admitted(known.id());
    // A ticket that is over changes nothing any more: the machine is given what it was given.
    if told == *known || over(ground, ticket).is_err() {
        return Ok(ground.unchanged(granted));
    }
    let mut draft = ground.change_by("admitted again", known.id());
    draft.machine(&told);
    Ok(draft.grants(granted))
}

/// Whether the ticket lets anybody in.
fn admits(ground: &Ground<'_>, ticket: &TicketRecord) -> Result<(), Denial> {
    over(ground, ticket)?;
    if ticket.used >= ticket.uses { Err(Denial::TicketUsedUp(ticket.uses)) } else { Ok(()) }
}

/// Whether somebody, or time, has ended the ticket.
fn over(ground: &Ground<'_>, ticket: &TicketRecord) -> Result<(), Denial> {
    match ticket.revoked {
        Revocation::At(_) => Err(Denial::TicketRevoked),
        Revocation::No if ticket.not_after <= ground.now => Err(Denial::TicketExpired),
        Revocation::No => Ok(()),
    }
}

/// Whether the machine is one that the cluster takes.
fn fits(ground: &Ground<'_>, body: &RedeemBody) -> Result<(), Denial> {
    let policy = ground.cluster.policy;
    if !ground.cluster.is_owned_by(&body.owner) {
        return Err(Denial::UnknownOwner);
    }
    if is_below(body.level, policy.level) {
        return Err(Denial::LevelTooLow { found: body.level, least: policy.level });
    }
    if body.release < policy.oldest_release {
        return Err(Denial::ReleaseTooOld { found: body.release, least: policy.oldest_release });
    }
    if ground.state.disk(&body.disk).is_some() {
        return Err(Denial::DiskSeen);
    }
    if ground.state.vpn_key(&body.vpn_key).is_some() {
        return Err(Denial::VpnKeySeen);
    }
    Ok(())
}

/// Name of the machine: as its ticket says, else as its config says, else by its id.
fn name(state: &State, ticket: &TicketRecord, body: &RedeemBody, id: MachineId) -> Result<NodeName, Denial> {
    let name = match (&ticket.node_name, &body.node_name) {
        (Some(ticket), Some(config)) if ticket != config => {
            return Err(Denial::OtherName { ticket: ticket.clone(), config: config.clone() });
        }
        (Some(name), _) | (None, Some(name)) => name.clone(),
        (None, None) => NodeName::derived(id),
    };
    if state.named(&name).is_some() { Err(Denial::NameTaken(name)) } else { Ok(name) }
}

/// The next free VPN address, and where the cursor stands behind it. The first and the last address are no machine's.
fn next_address(state: &State, cluster: &Cluster) -> Result<(Ipv4Addr, u32), Denial> {
    let prefix = cluster.prefixes.vpn;
    let hosts = (1_u32 << (32 - prefix.bits())) - 2;
    let address = |index: u32| prefix.nth(index + 1).expect("below the number of addresses");
    let first = cluster.next_address.saturating_sub(1) % hosts;
    let index = round(first, hosts).find(|index| !state.has_address(address(*index)));
    let index = index.ok_or(Denial::AddressesExhausted)?;
    Ok((address(index), (index + 1) % hosts + 1))
}

/// The next free pod prefix, and where the cursor stands behind it.
pub(super) fn next_pods(state: &State, cluster: &Cluster) -> Result<(Ipv4Prefix, u32), Denial> {
    let pods = cluster.prefixes.pods;
    let count = 1_u32 << (POD_BITS - pods.bits());
    let prefix = |index: u32| {
        let address = pods.nth(index << (32 - POD_BITS)).expect("below the number of prefixes");
        Ipv4Prefix::new(address, POD_BITS).expect("a multiple of its size")
    };
    let index = round(cluster.next_pods % count, count).find(|index| !state.has_pods(prefix(*index)));
    let index = index.ok_or(Denial::PodsExhausted)?;
    Ok((prefix(index), (index + 1) % count))
}

/// All numbers below `count`, beginning with `first`.
fn round(first: u32, count: u32) -> impl Iterator<Item = u32> {
    (first..count).chain(0..first)
}
