//! Requests of owners about the cluster's records: machines and tickets as they are listed, and a ticket that is
//! issued.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use cluster::members::{Members, Voter};
use cluster::record::{Generations, MachineRecord, Revocation, Standing, TicketRecord, UnixSeconds};
use cluster::request::{Asks, Offer, Removal};
use cluster::role::AnyRole;
use model::{ClusterRole, KubernetesRole, MachineId, MachinePubKey, NodeName, TicketId, TicketPubKey};

use crate::field_error::{fixed, known, present};
use crate::wire::change_machine_request::Change;
use crate::{FieldError, Problem, UnixMillis, wire};

/// A piece of a list, and since when it may be old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    /// None while the coordinator sees every change.
    pub old_since: Option<UnixMillis>,
    /// The piece.
    pub rows: Vec<T>,
}

impl<T> ListPage<T> {
    /// List before its first piece.
    #[must_use]
    pub const fn empty() -> Self {
        Self { old_since: None, rows: Vec::new() }
    }

    /// Puts the next piece behind this list, which is as old as the oldest of its pieces.
    pub fn append(&mut self, Self { old_since, rows }: Self) {
        self.old_since = self.old_since.into_iter().chain(old_since).min();
        self.rows.extend(rows);
    }
}

/// A machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMachine {
    /// Id of the machine.
    pub id: MachineId,
    /// Host name and Kubernetes node name.
    pub name: String,
    /// Role of the machine in its cluster.
    pub role: ClusterRole,
    /// Roles of the machine in Kubernetes.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// How far it belongs to the cluster.
    pub standing: Standing,
    /// Version that the machine runs, as it announced last.
    pub version: String,
    /// Address of the machine in the VPN.
    pub vpn_ip: Ipv4Addr,
    /// Where it is reached from outside, as it said last.
    pub addresses: Vec<String>,
    /// When it was heard of last; none where nobody knows.
    pub last_seen: Option<UnixMillis>,
    /// Kind of its member of etcd; none where etcd has no such member.
    pub etcd: Option<EtcdMember>,
    /// Whether that votes, and does not answer the coordinator that lists it.
    pub silent: bool,
    /// Whether it was a coordinator and is none: it may hold keys and a certificate that the cluster still takes.
    pub may_hold_keys: bool,
    /// Whether it has yet to acknowledge the newest epoch of the cold-start key: until all coordinators have, the one before opens disks.
    pub share_due: bool,
    /// Whether the machine is a node that waits for an owner to approve it as a coordinator.
    pub awaits_approval: bool,
    /// Which cluster key its disk is locked with, and whether it is to take the next one.
    pub generations: Generations,
}

impl ListedMachine {
    /// Whether the machine is of the cluster still, or is to be.
    #[must_use]
    pub fn belongs(&self) -> bool {
        self.standing != Standing::Removed
    }

    /// Whether a person means the machine by this name: that of one that was removed may be another's by now.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.belongs() && self.name == name
    }
}

/// Kind of a member of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdMember {
    /// Member that counts for a quorum.
    Voter,
    /// Member that keeps a copy and has no vote.
    Learner,
}

/// A change of what a machine is to the cluster: of a role, or a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineChange {
    /// The machine is to have a role, or to have it no more.
    Role(AnyRole, RoleDirection),
    /// The machine is to leave.
    Drain(LeavingData),
    /// The machine has left.
    Remove,
    /// The machine will not come back.
    RemoveLost,
    /// The machine's disk is to be locked with the next cluster key.
    RotateKey,
}

/// Data of claims on a machine that is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavingData {
    /// The machine stays where there is any.
    Kept,
    /// Data goes with the machine, and its owner said so.
    GivenUp,
}

/// Direction in which a role changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleDirection {
    /// The role is given.
    Add,
    /// The role is taken.
    Remove,
}

impl MachineChange {
    /// Changes that are of no role.
    const VERBS: [Self; 5] = [
        Self::Drain(LeavingData::Kept),
        Self::Drain(LeavingData::GivenUp),
        Self::Remove,
        Self::RemoveLost,
        Self::RotateKey,
    ];

    /// Table of all changes: how each crosses the wire, and what it asks of the records.
    fn row(self, machine: MachineId) -> (Change, Asks) {
        let verb = |verb: wire::MachineVerb| Change::Verb(verb.into());
        match self {
            Self::Role(role, direction) => (Change::Role((role, direction).into()), direction.asks(machine, role)),
            Self::Drain(LeavingData::Kept) => (verb(wire::MachineVerb::Drain), Asks::Drain(machine)),
            Self::Drain(LeavingData::GivenUp) => (verb(wire::MachineVerb::DrainDeletingVolumes), Asks::Drain(machine)),
            Self::Remove => (verb(wire::MachineVerb::Remove), Asks::Remove(machine, Removal::Drained)),
            Self::RemoveLost => (verb(wire::MachineVerb::RemoveLost), Asks::Remove(machine, Removal::Lost)),
            Self::RotateKey => (verb(wire::MachineVerb::RotateKey), Asks::RotateKey(machine)),
        }
    }

    /// Request for this change, as the records take it.
    #[must_use]
    pub fn asks(self, machine: MachineId) -> Asks {
        self.row(machine).1
    }
}

impl RoleDirection {
    const fn asks(self, machine: MachineId, role: AnyRole) -> Asks {
        match self {
            Self::Add => Asks::AddRole(machine, role),
            Self::Remove => Asks::RemoveRole(machine, role),
        }
    }
}

impl From<(AnyRole, RoleDirection)> for wire::RoleChange {
    fn from((role, direction): (AnyRole, RoleDirection)) -> Self {
        let role = match role {
            AnyRole::Coordinator => wire::Role::Coordinator,
            AnyRole::Kubernetes(KubernetesRole::ControlPlane) => wire::Role::ControlPlane,
            AnyRole::Kubernetes(KubernetesRole::Worker) => wire::Role::Worker,
        };
        let direction = match direction {
            RoleDirection::Add => wire::RoleDirection::Add,
            RoleDirection::Remove => wire::RoleDirection::Remove,
        };
        Self { role: role.into(), direction: direction.into() }
    }
}

impl TryFrom<wire::RoleChange> for MachineChange {
    type Error = FieldError;

    fn try_from(change: wire::RoleChange) -> Result<Self, FieldError> {
        let role = match change.role() {
            wire::Role::Unspecified => None,
            wire::Role::Coordinator => Some(AnyRole::Coordinator),
            wire::Role::ControlPlane => Some(AnyRole::Kubernetes(KubernetesRole::ControlPlane)),
            wire::Role::Worker => Some(AnyRole::Kubernetes(KubernetesRole::Worker)),
        };
        let direction = match change.direction() {
            wire::RoleDirection::Unspecified => None,
            wire::RoleDirection::Add => Some(RoleDirection::Add),
            wire::RoleDirection::Remove => Some(RoleDirection::Remove),
        };
        Ok(Self::Role(known("role", role)?, known("direction", direction)?))
    }
}

impl From<(MachineId, MachineChange)> for wire::ChangeMachineRequest {
    fn from((machine, change): (MachineId, MachineChange)) -> Self {
        Self { machine_id: machine.0.to_vec(), change: Some(change.row(machine).0) }
    }
}

impl From<MachineId> for wire::CheckRemovalRequest {
    fn from(machine: MachineId) -> Self {
        Self { machine_id: machine.0.to_vec() }
    }
}

impl TryFrom<wire::CheckRemovalRequest> for MachineId {
    type Error = FieldError;

    fn try_from(request: wire::CheckRemovalRequest) -> Result<Self, FieldError> {
        Ok(Self(fixed("machine_id", &request.machine_id)?))
    }
}

impl TryFrom<wire::ChangeMachineRequest> for (MachineId, MachineChange) {
    type Error = FieldError;

    fn try_from(request: wire::ChangeMachineRequest) -> Result<Self, FieldError> {
        let machine = MachineId(fixed("machine_id", &request.machine_id)?);
        let change = match present("change", request.change)? {
            Change::Role(change) => change.try_into()?,
            verb @ Change::Verb(_) => {
                let has_it = |change: &MachineChange| change.row(machine).0 == verb;
                known("verb", MachineChange::VERBS.into_iter().find(has_it))?
            }
        };
        Ok((machine, change))
    }
}

/// Consequences of a recovery: a cluster goes on with one coordinator's copy of its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryPlan {
    /// For how long its etcd has had no leader.
    pub silent: Duration,
    /// The coordinators that are taken out.
    pub others: Vec<OtherMember>,
}

/// Another member of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherMember {
    /// VPN address of the member's machine.
    pub vpn_ip: Ipv4Addr,
    /// Whether it answers the one that was asked.
    pub answers: bool,
}

impl From<RecoveryPlan> for wire::RecoverClusterResponse {
    fn from(RecoveryPlan { silent, others }: RecoveryPlan) -> Self {
        let other = |OtherMember { vpn_ip, answers }| wire::OtherMember { vpn_ip: u32::from(vpn_ip), answers };
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        Self { silent_ms, others: others.into_iter().map(other).collect() }
    }
}

impl From<wire::RecoverClusterResponse> for RecoveryPlan {
    fn from(wire::RecoverClusterResponse { silent_ms, others }: wire::RecoverClusterResponse) -> Self {
        let other = |wire::OtherMember { vpn_ip, answers }| OtherMember { vpn_ip: vpn_ip.into(), answers };
        Self { silent: Duration::from_millis(silent_ms), others: others.into_iter().map(other).collect() }
    }
}

/// A ticket of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTicket {
    /// Which.
    pub id: TicketId,
    /// How many machines it may admit.
    pub uses: u32,
    /// How many it has admitted.
    pub used: u32,
    /// From when on it admits nobody.
    pub not_after: UnixSeconds,
    /// Role that the machines get in the cluster.
    pub role: ClusterRole,
    /// Roles that the machines get in Kubernetes.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// Key of the one machine that the ticket admits.
    pub machine: Option<MachinePubKey>,
    /// Name of the ticket's one machine.
    pub node_name: Option<String>,
    /// When it was issued.
    pub issued_at: UnixSeconds,
    /// Whether it was taken back.
    pub revoked: Revocation,
}

/// A ticket that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTicket {
    /// Which.
    pub id: TicketId,
    /// Where coordinators are: who holds the ticket goes there.
    pub coordinators: Vec<String>,
}

impl ListedMachine {
    /// As a record has it; `late` are those that have not acknowledged the newest epoch.
    #[must_use]
    pub fn of(
        machine: &MachineRecord,
        (members, late): (&Members, &BTreeSet<MachineId>),
        last_seen: Option<UnixMillis>,
    ) -> Self {
        let id = machine.id();
        let voter = members.voters.contains_key(&id).then_some(EtcdMember::Voter);
        let learner = || members.learners.contains_key(&id).then_some(EtcdMember::Learner);
        Self {
            id,
            etcd: voter.or_else(learner),
            silent: members.voters.get(&id) == Some(&Voter::Silent),
            may_hold_keys: machine.may_hold_keys(),
            share_due: late.contains(&id),
            awaits_approval: machine.awaits_approval,
            name: machine.name.as_str().to_owned(),
            role: machine.role,
            kubernetes: machine.kubernetes.clone(),
            standing: machine.standing,
            version: machine.release.to_string(),
            vpn_ip: machine.vpn_ip,
            addresses: machine.endpoints.reported.iter().map(|it| it.host().to_owned()).collect(),
            last_seen,
            generations: machine.generations,
        }
    }
}

impl ListedTicket {
    /// As a record has it.
    #[must_use]
    pub fn of(ticket: &TicketRecord) -> Self {
        Self {
            id: ticket.id(),
            uses: ticket.uses,
            used: ticket.used,
            not_after: ticket.not_after,
            role: ticket.role,
            kubernetes: ticket.kubernetes.clone(),
            machine: ticket.machine,
            node_name: ticket.node_name.as_ref().map(|name| name.as_str().to_owned()),
            issued_at: ticket.issued_at,
            revoked: ticket.revoked,
        }
    }
}

impl From<ListedMachine> for wire::ClusterMachine {
    fn from(machine: ListedMachine) -> Self {
        Self {
            machine_id: machine.id.0.to_vec(),
            name: machine.name,
            role: wire::ClusterRole::from(machine.role).into(),
            kubernetes_roles: role_numbers(&machine.kubernetes),
            standing: wire::Standing::from(machine.standing).into(),
            version: machine.version,
            vpn_ip: machine.vpn_ip.into(),
            addresses: machine.addresses,
            last_seen_unix_ms: machine.last_seen.map(|at| at.0),
            etcd_votes: machine.etcd.map(|member| member == EtcdMember::Voter),
            key_generation: machine.generations.oldest(),
            key_rotates: matches!(machine.generations, Generations::Rotating(_)),
            etcd_silent: machine.silent,
            may_hold_keys: machine.may_hold_keys,
            share_due: machine.share_due,
            awaits_approval: machine.awaits_approval,
        }
    }
}

impl TryFrom<wire::ClusterMachine> for ListedMachine {
    type Error = FieldError;

    fn try_from(machine: wire::ClusterMachine) -> Result<Self, FieldError> {
        Ok(Self {
            id: MachineId(fixed("machine_id", &machine.machine_id)?),
            role: known("role", machine.role().known())?,
            kubernetes: kubernetes_roles(&machine.kubernetes_roles)?,
            standing: known("standing", machine.standing().known())?,
            name: machine.name,
            version: machine.version,
            vpn_ip: machine.vpn_ip.into(),
            addresses: machine.addresses,
            last_seen: machine.last_seen_unix_ms.map(UnixMillis),
            silent: machine.etcd_silent,
            may_hold_keys: machine.may_hold_keys,
            share_due: machine.share_due,
            awaits_approval: machine.awaits_approval,
            etcd: machine.etcd_votes.map(|votes| if votes { EtcdMember::Voter } else { EtcdMember::Learner }),
            generations: match (machine.key_generation, machine.key_rotates) {
                (one, false) => Generations::One(one),
                (one, true) => Generations::Rotating(one),
            },
        })
    }
}

impl From<ListedTicket> for wire::ClusterTicket {
    fn from(ticket: ListedTicket) -> Self {
        Self {
            ticket_id: ticket.id.0.to_vec(),
            uses: ticket.uses,
            used: ticket.used,
            not_after_unix_s: ticket.not_after.0,
            role: wire::ClusterRole::from(ticket.role).into(),
            kubernetes_roles: role_numbers(&ticket.kubernetes),
            node_name: ticket.node_name,
            issued_at_unix_s: ticket.issued_at.0,
            revoked_at_unix_s: match ticket.revoked {
                Revocation::No => None,
                Revocation::At(at) => Some(at.0),
            },
            machine_public_key: ticket.machine.map(|key| key.0.to_vec()),
        }
    }
}

impl TryFrom<wire::ClusterTicket> for ListedTicket {
    type Error = FieldError;

    fn try_from(ticket: wire::ClusterTicket) -> Result<Self, FieldError> {
        Ok(Self {
            id: TicketId(fixed("ticket_id", &ticket.ticket_id)?),
            uses: ticket.uses,
            used: ticket.used,
            not_after: UnixSeconds(ticket.not_after_unix_s),
            role: known("role", ticket.role().known())?,
            kubernetes: kubernetes_roles(&ticket.kubernetes_roles)?,
            machine: machine_key(ticket.machine_public_key.as_deref())?,
            node_name: ticket.node_name,
            issued_at: UnixSeconds(ticket.issued_at_unix_s),
            revoked: ticket.revoked_at_unix_s.map_or(Revocation::No, |at| Revocation::At(UnixSeconds(at))),
        })
    }
}

impl From<ListPage<ListedMachine>> for wire::ListMachinesResponse {
    fn from(listed: ListPage<ListedMachine>) -> Self {
        let old_since_unix_ms = listed.old_since.map(|at| at.0);
        Self { old_since_unix_ms, machines: listed.rows.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::ListMachinesResponse> for ListPage<ListedMachine> {
    type Error = FieldError;

    fn try_from(listed: wire::ListMachinesResponse) -> Result<Self, FieldError> {
        let rows = listed.machines.into_iter().map(ListedMachine::try_from).collect::<Result<_, _>>()?;
        Ok(Self { old_since: listed.old_since_unix_ms.map(UnixMillis), rows })
    }
}

impl From<ListPage<ListedTicket>> for wire::ListTicketsResponse {
    fn from(listed: ListPage<ListedTicket>) -> Self {
        let old_since_unix_ms = listed.old_since.map(|at| at.0);
        Self { old_since_unix_ms, tickets: listed.rows.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::ListTicketsResponse> for ListPage<ListedTicket> {
    type Error = FieldError;

    fn try_from(listed: wire::ListTicketsResponse) -> Result<Self, FieldError> {
        let rows = listed.tickets.into_iter().map(ListedTicket::try_from).collect::<Result<_, _>>()?;
        Ok(Self { old_since: listed.old_since_unix_ms.map(UnixMillis), rows })
    }
}

/// The machine that a ticket names, if it names one.
fn machine_key(bytes: Option<&[u8]>) -> Result<Option<MachinePubKey>, FieldError> {
    Ok(bytes.map(|key| fixed("machine_public_key", key)).transpose()?.map(MachinePubKey))
}

impl From<Offer> for wire::IssueTicketRequest {
    fn from(offer: Offer) -> Self {
        Self {
            public_key: offer.key.0.to_vec(),
            uses: offer.uses,
            not_after_unix_s: offer.not_after.0,
            role: wire::ClusterRole::from(offer.role).into(),
            kubernetes_roles: role_numbers(&offer.kubernetes),
            machine_public_key: offer.machine.map(|key| key.0.to_vec()),
            node_name: offer.node_name.map(|name| name.as_str().to_owned()),
        }
    }
}

impl TryFrom<wire::IssueTicketRequest> for Offer {
    type Error = FieldError;

    fn try_from(request: wire::IssueTicketRequest) -> Result<Self, FieldError> {
        let name = |text: &str| NodeName::chosen(text).map_err(|_| FieldError::new("node_name", Problem::Unusable));
        Ok(Self {
            key: TicketPubKey(fixed("public_key", &request.public_key)?),
            uses: request.uses,
            not_after: UnixSeconds(request.not_after_unix_s),
            role: known("role", request.role().known())?,
            kubernetes: kubernetes_roles(&request.kubernetes_roles)?,
            machine: machine_key(request.machine_public_key.as_deref())?,
            node_name: request.node_name.as_deref().map(name).transpose()?,
        })
    }
}

impl From<NewTicket> for wire::IssueTicketResponse {
    fn from(ticket: NewTicket) -> Self {
        Self { ticket_id: ticket.id.0.to_vec(), coordinator_endpoints: ticket.coordinators }
    }
}

impl TryFrom<wire::IssueTicketResponse> for NewTicket {
    type Error = FieldError;

    fn try_from(answer: wire::IssueTicketResponse) -> Result<Self, FieldError> {
        Ok(Self { id: TicketId(fixed("ticket_id", &answer.ticket_id)?), coordinators: answer.coordinator_endpoints })
    }
}

impl From<TicketId> for wire::RevokeTicketRequest {
    fn from(id: TicketId) -> Self {
        Self { ticket_id: id.0.to_vec() }
    }
}

impl TryFrom<wire::RevokeTicketRequest> for TicketId {
    type Error = FieldError;

    fn try_from(request: wire::RevokeTicketRequest) -> Result<Self, FieldError> {
        fixed("ticket_id", &request.ticket_id).map(Self)
    }
}

pub(crate) fn role_numbers(roles: &BTreeSet<KubernetesRole>) -> Vec<i32> {
    roles.iter().map(|role| wire::KubernetesRole::from(*role).into()).collect()
}

pub(crate) fn kubernetes_roles(numbers: &[i32]) -> Result<BTreeSet<KubernetesRole>, FieldError> {
    let role = |number: &i32| wire::KubernetesRole::try_from(*number).ok().and_then(wire::KubernetesRole::known);
    numbers.iter().map(|number| known("kubernetes_roles", role(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(standing: Standing, last_seen: Option<UnixMillis>) -> ListedMachine {
        ListedMachine {
            id: MachineId([1; 16]),
            name: "m1".to_owned(),
            role: ClusterRole::Coordinator,
            kubernetes: KubernetesRole::ALL.iter().copied().collect(),
            standing,
            version: "0.1.0".to_owned(),
            vpn_ip: Ipv4Addr::new(10, 118, 0, 1),
            addresses: vec!["192.0.2.1".to_owned()],
            last_seen,
            etcd: None,
            silent: false,
            may_hold_keys: false,
            share_due: last_seen.is_some(),
            awaits_approval: last_seen.is_none(),
            generations: Generations::One(1),
        }
    }

    #[test]
    fn a_list_is_as_old_as_the_oldest_of_its_pieces() {
        let piece = |old_since: Option<u64>, row| ListPage { old_since: old_since.map(UnixMillis), rows: vec![row] };
        let mut list = ListPage::empty();
        for (since, row) in [(None, 1), (Some(7), 2), (Some(5), 3), (None, 4), (Some(6), 5)] {
            list.append(piece(since, row));
        }
        assert_eq!(list, ListPage { old_since: Some(UnixMillis(5)), rows: vec![1, 2, 3, 4, 5] });
    }

    fn ticket(revoked: Revocation, node_name: Option<&str>) -> ListedTicket {
        ListedTicket {
            id: TicketId([2; 16]),
            uses: 3,
            used: 1,
            not_after: UnixSeconds(5),
            role: ClusterRole::Node,
            kubernetes: [KubernetesRole::Worker].into(),
            machine: node_name.map(|_| MachinePubKey([3; 32])),
            node_name: node_name.map(str::to_owned),
            issued_at: UnixSeconds(4),
            revoked,
        }
    }

    #[test]
    fn lists_cross_the_wire() {
        let seen = [None, Some(UnixMillis(7))];
        for (standing, last_seen) in Standing::ALL.into_iter().zip(seen.into_iter().cycle()) {
            let listed = ListPage { old_since: last_seen, rows: vec![machine(standing, last_seen)] };
            assert_eq!(wire::ListMachinesResponse::from(listed.clone()).try_into(), Ok(listed));
        }
        for (etcd, silent, generations) in [
            (None, false, Generations::One(2)),
            (Some(EtcdMember::Voter), false, Generations::Rotating(2)),
            (Some(EtcdMember::Voter), true, Generations::One(1)),
            (Some(EtcdMember::Learner), false, Generations::One(1)),
        ] {
            let rows = vec![ListedMachine { etcd, silent, generations, ..machine(Standing::Member, None) }];
            let listed = ListPage { old_since: None, rows };
            assert_eq!(wire::ListMachinesResponse::from(listed.clone()).try_into(), Ok(listed));
        }
        let rows = vec![ticket(Revocation::No, Some("one")), ticket(Revocation::At(UnixSeconds(9)), None)];
        let listed = ListPage { old_since: None, rows };
        assert_eq!(wire::ListTicketsResponse::from(listed.clone()).try_into(), Ok(listed));
    }

    #[test]
    fn a_change_of_a_machine_crosses_the_wire_as_itself() {
        let id = MachineId([1; 16]);
        let roles = AnyRole::ALL.into_iter();
        let of_roles = roles.flat_map(|role| {
            [(RoleDirection::Add, Asks::AddRole(id, role)), (RoleDirection::Remove, Asks::RemoveRole(id, role))]
                .map(|(direction, asks)| (MachineChange::Role(role, direction), asks))
        });
        let verbs = [
            (MachineChange::Drain(LeavingData::Kept), Asks::Drain(id)),
            (MachineChange::Drain(LeavingData::GivenUp), Asks::Drain(id)),
            (MachineChange::Remove, Asks::Remove(id, Removal::Drained)),
            (MachineChange::RemoveLost, Asks::Remove(id, Removal::Lost)),
            (MachineChange::RotateKey, Asks::RotateKey(id)),
        ];
        for (change, asks) in of_roles.chain(verbs) {
            assert_eq!(wire::ChangeMachineRequest::from((id, change)).try_into(), Ok((id, change)));
            assert_eq!(change.asks(id), asks, "{change:?}");
        }
        assert_eq!(wire::CheckRemovalRequest::from(id).try_into(), Ok(id));
        let short = wire::CheckRemovalRequest { machine_id: vec![1; 15] };
        assert_eq!(MachineId::try_from(short).map_err(|wrong| wrong.field), Err("machine_id"));
        // Each number that the protocol has is a change.
        let verb =
            |number: i32| wire::ChangeMachineRequest { machine_id: vec![1; 16], change: Some(Change::Verb(number)) };
        for number in -1..=9 {
            let has_it = wire::MachineVerb::try_from(number).is_ok_and(|verb| verb != wire::MachineVerb::Unspecified);
            let read = <(MachineId, MachineChange)>::try_from(verb(number));
            assert_eq!(read.map_err(|error| error.field).is_ok(), has_it, "{number}");
        }
    }

    #[test]
    fn a_change_without_role_direction_or_verb_is_refused() {
        let role = |role, direction| Some(Change::Role(wire::RoleChange { role, direction }));
        let (first, add) = (wire::Role::Coordinator.into(), wire::RoleDirection::Add.into());
        for (change, field) in [
            (None, "change"),
            (Some(Change::Verb(0)), "verb"),
            // What once was a coordinator's and a node's own verb.
            (Some(Change::Verb(1)), "verb"),
            (Some(Change::Verb(2)), "verb"),
            (role(0, add), "role"),
            (role(9, add), "role"),
            (role(first, 0), "direction"),
            (role(first, 9), "direction"),
        ] {
            let request = wire::ChangeMachineRequest { machine_id: vec![1; 16], change };
            assert_eq!(<(MachineId, MachineChange)>::try_from(request).expect_err("none").field, field, "{change:?}");
        }
    }

    #[test]
    fn a_machine_is_listed_with_what_etcd_has_of_it() {
        use cluster::members::Learner;
        let machine = sim::cast::creation(model::VPN_PREFIX).machine;
        let id = machine.id();
        let member = |voters: &[Voter], learners: &[Learner]| {
            let members = Members {
                voters: voters.iter().map(|voter| (id, *voter)).collect(),
                learners: learners.iter().map(|learner| (id, *learner)).collect(),
            };
            let listed = ListedMachine::of(&machine, (&members, &BTreeSet::new()), None);
            assert!(!listed.share_due);
            (listed.etcd, listed.silent)
        };
        assert!(ListedMachine::of(&machine, (&Members::default(), &[id].into()), None).share_due);
        assert_eq!(member(&[], &[]), (None, false));
        assert_eq!(member(&[Voter::Live], &[]), (Some(EtcdMember::Voter), false));
        assert_eq!(member(&[Voter::Silent], &[]), (Some(EtcdMember::Voter), true));
        assert_eq!(member(&[], &[Learner::Behind]), (Some(EtcdMember::Learner), false));
    }

    #[test]
    fn what_a_recovery_would_mean_crosses_the_wire() {
        let other = |n, answers| OtherMember { vpn_ip: Ipv4Addr::new(10, 118, 0, n), answers };
        let plan =
            RecoveryPlan { silent: Duration::from_millis(34_567), others: vec![other(2, false), other(3, true)] };
        assert_eq!(RecoveryPlan::from(wire::RecoverClusterResponse::from(plan.clone())), plan);
    }

    #[test]
    fn what_is_issued_and_revoked_crosses_the_wire() {
        let offer = Offer {
            key: TicketPubKey([1; 32]),
            uses: 1,
            not_after: UnixSeconds(9),
            role: ClusterRole::Coordinator,
            kubernetes: [].into(),
            machine: Some(MachinePubKey([3; 32])),
            node_name: NodeName::chosen("one").ok(),
        };
        assert_eq!(wire::IssueTicketRequest::from(offer.clone()).try_into(), Ok(offer.clone()));
        let new = NewTicket { id: TicketId([4; 16]), coordinators: vec!["192.0.2.1:7836".to_owned()] };
        assert_eq!(wire::IssueTicketResponse::from(new.clone()).try_into(), Ok(new));
        assert_eq!(wire::RevokeTicketRequest::from(TicketId([4; 16])).try_into(), Ok(TicketId([4; 16])));
        let edited = |edit: fn(&mut wire::IssueTicketRequest)| {
            let mut request = wire::IssueTicketRequest::from(offer.clone());
            edit(&mut request);
            Offer::try_from(request).map_err(|malformed| malformed.to_string())
        };
        for (edit, message) in [
            (
                |it: &mut wire::IssueTicketRequest| it.public_key.push(0),
                "field `public_key` has 33 bytes instead of 32",
            ),
            (|it| it.role = 0, "field `role` has a value this version does not know"),
            (|it| it.kubernetes_roles = vec![3], "field `kubernetes_roles` has a value this version does not know"),
            (|it| it.machine_public_key = Some(vec![]), "field `machine_public_key` has 0 bytes instead of 32"),
            (|it| it.node_name = Some("A".to_owned()), "field `node_name` cannot be used"),
        ] as [(fn(&mut wire::IssueTicketRequest), &str); 5]
        {
            assert_eq!(edited(edit), Err(message.to_owned()));
        }
    }
}
