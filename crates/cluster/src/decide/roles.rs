//! Roles, given and taken. The record says who is to coordinate; [`crate::members`] says in which steps etcd follows.

use model::{ClusterRole, KubernetesRole, MachineId, OwnerPubKey};

use super::redeem::next_pods;
use super::{Draft, Ground};
use crate::denial::Denial;
use crate::key::Key;
use crate::members::{Learner, MOST_COORDINATORS};
use crate::record::{Cluster, HolderRecord, MachineRecord, Standing};
use crate::restores;
use crate::role::AnyRole;
use crate::txn::{Grant, Txn};

pub(super) fn add(ground: &Ground<'_>, by: OwnerPubKey, id: &MachineId, role: AnyRole) -> Result<Txn, Denial> {
    let known = ground.member(id)?;
    if has(known, role) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let mut machine = known.clone();
    let mut draft = ground.change("role added", &format_args!("{id} {role}"), Some(by));
    match role {
        AnyRole::Coordinator => {
            // One that steps down comes back as a new member of etcd, so the old one has to be gone.
            if ground.members()?.has(id) {
                return Err(Denial::StillLeaving);
            }
            if coordinators(ground).count() >= MOST_COORDINATORS {
                return Err(Denial::CoordinatorsExhausted);
            }
            machine = machine.made_coordinator(ground.now);
        }
        AnyRole::Kubernetes(KubernetesRole::ControlPlane) => {
            if known.role != ClusterRole::Coordinator {
                return Err(Denial::ControlPlaneOnNode);
            }
            if !ground.members()?.voters.contains_key(id) {
                return Err(Denial::ControlPlaneWithoutVote);
            }
            machine.kubernetes.insert(KubernetesRole::ControlPlane);
        }
        AnyRole::Kubernetes(KubernetesRole::Worker) => {
            machine.kubernetes.insert(KubernetesRole::Worker);
            machine.pods = Some(give_pods(ground, &mut draft, id)?);
        }
    }
    draft.machine(&machine);
    Ok(draft.grants(Grant::Done))
}

fn give_pods(ground: &Ground<'_>, draft: &mut Draft, id: &MachineId) -> Result<model::Ipv4Prefix, Denial> {
    let (pods, next_pods) = next_pods(ground.state, ground.cluster)?;
    draft.create(Key::Pods(pods), HolderRecord(*id).encode());
    draft.put(Key::Cluster, Cluster { next_pods, ..ground.cluster.clone() }.encode());
    Ok(pods)
}

/// From a machine that is leaving, too: that is how it leaves.
pub(super) fn remove(ground: &Ground<'_>, by: OwnerPubKey, id: &MachineId, role: AnyRole) -> Result<Txn, Denial> {
    let known = ground.belonging(id)?;
    let is_declined = known.awaits_approval && role == AnyRole::Coordinator;
    if !has(known, role) && !is_declined {
        return Ok(ground.unchanged(Grant::Already));
    }
    let mut machine = MachineRecord { awaits_approval: known.awaits_approval && !is_declined, ..known.clone() };
    let mut draft = ground.change("role removed", &format_args!("{id} {role}"), Some(by));
    match role {
        AnyRole::Coordinator => {
            if known.kubernetes.contains(&KubernetesRole::ControlPlane) {
                return Err(Denial::StillControlPlane);
            }
            if restores::own(ground.state, id).is_some() {
                return Err(Denial::StillRestores);
            }
            may_go(ground, known)?;
            machine.role = ClusterRole::Node;
        }
        AnyRole::Kubernetes(role @ KubernetesRole::ControlPlane) => {
            let has = |other: &MachineRecord| other.id() != *id && other.kubernetes.contains(&role);
            if !coordinators(ground).any(has) {
                return Err(Denial::LastControlPlane);
            }
            machine.kubernetes.remove(&role);
        }
        AnyRole::Kubernetes(role @ KubernetesRole::Worker) => {
            machine.kubernetes.remove(&role);
            if let Some(pods) = machine.pods.take() {
                draft.delete(Key::Pods(pods));
            }
        }
    }
    draft.machine(&machine);
    Ok(draft.grants(Grant::Done))
}

/// The others are nodes from now on, however they are: an etcd that one of them still runs is none of the cluster's any more.
/// This one coordinates, also where that role was taken away before its etcd had left: nobody else has the records.
pub(super) fn recover(ground: &Ground<'_>, by: OwnerPubKey, id: &MachineId) -> Result<Txn, Denial> {
    let known = ground.belonging(id)?;
    if known.standing == Standing::Admitted {
        return Err(Denial::NotMember);
    }
    let mut draft = ground.change("cluster recovered", id, Some(by));
    if !known.coordinates() {
        draft.machine(&known.made_coordinator(ground.now));
    }
    for other in coordinators(ground).filter(|other| other.id() != *id) {
        let mut other = other.clone();
        other.role = ClusterRole::Node;
        other.kubernetes.remove(&KubernetesRole::ControlPlane);
        draft.machine(&other);
    }
    let recoveries = ground.cluster.recoveries + 1;
    draft.put(Key::Cluster, Cluster { recoveries, ..ground.cluster.clone() }.encode());
    Ok(draft.grants(Grant::Done))
}

/// Whether the cluster can do without this one as a coordinator.
pub(super) fn may_go(ground: &Ground<'_>, machine: &MachineRecord) -> Result<(), Denial> {
    let id = machine.id();
    if !coordinators(ground).any(|other| other.id() != id) {
        return Err(Denial::LastCoordinator);
    }
    let members = ground.members()?;
    let votes = members.voters.contains_key(&id);
    if !votes && !machine.coordinates() {
        return Ok(()); // a node
    }
    // Who is to leave as well does not stay.
    let stays = |other: &&MachineRecord| other.id() != id && members.voters.contains_key(&other.id());
    if !coordinators(ground).any(|other| stays(&other)) {
        // Those who vote go once another one does, which may be this one.
        let learner = |other: &MachineRecord| members.learners.get(&other.id());
        let ready = |other: &MachineRecord| other.id() != id && learner(other) == Some(&Learner::Ready);
        return if coordinators(ground).any(ready) { Ok(()) } else { Err(Denial::SuccessorBehind) };
    }
    // Where it does not vote, no vote is lost.
    if !votes || members.survives_without(&id) { Ok(()) } else { Err(Denial::WouldLoseQuorum) }
}

/// Machines that are to run etcd.
fn coordinators<'a>(ground: &Ground<'a>) -> impl Iterator<Item = &'a MachineRecord> {
    ground.state.machines().map(|(_, machine)| machine).filter(|machine| machine.coordinates())
}

fn has(machine: &MachineRecord, role: AnyRole) -> bool {
    match role {
        AnyRole::Coordinator => machine.role == ClusterRole::Coordinator,
        AnyRole::Kubernetes(role) => machine.kubernetes.contains(&role),
    }
}
