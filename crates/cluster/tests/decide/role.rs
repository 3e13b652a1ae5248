//! Role of a coordinator: who is given what makes one, and whose certificates are worth nothing any more.

use std::collections::BTreeSet;

use cluster::denial::Denial;
use cluster::desired::DesiredError;
use cluster::members::{Learner, Look, Members, Voter};
use cluster::request::{Asks, Offer, Removal, Request};
use cluster::role::AnyRole;
use cluster::state::HandOverError;
use cluster::txn::Grant;
use model::{ClusterRole, KubernetesRole};
use sim::cast::{id, machine_key};

use super::{Scene, announce, offer, redeem};

/// Proves: S5
#[test]
fn etcd_refuses_a_former_coordinator_that_is_no_member_any_more() {
    let mut scene = Scene::new();
    let may_hold_keys = |scene: &Scene| {
        let state = scene.state();
        let may = state.machines().filter(|(_, machine)| machine.may_hold_keys()).map(|(id, _)| *id);
        may.collect::<Vec<_>>()
    };
    let none = BTreeSet::new();
    for n in 2..=4 {
        scene.join(n);
    }
    assert_eq!(scene.state().revoked(), Some(none.clone()), "nodes have no certificates of etcd's");
    for n in 2..=3 {
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
        assert_eq!(scene.state().revoked(), Some(none.clone()), "it is to be let in, though etcd has not added it yet");
        scene.members.voters.insert(id(n), Voter::Live);
    }
    scene.asks(Asks::RemoveRole(id(1), AnyRole::Coordinator));
    assert_eq!(scene.state().revoked(), Some(none.clone()), "it votes, and may be needed to let itself go");
    scene.members.voters.remove(&id(1));
    assert_eq!(scene.state().revoked(), Some([id(1)].into()));
    assert_eq!(may_hold_keys(&scene), [id(1)], "etcd's peers take its certificate until that ends");
    scene.asks(Asks::AddRole(id(1), AnyRole::Coordinator));
    assert_eq!(scene.state().revoked(), Some(none.clone()), "it comes back");
    assert_eq!(may_hold_keys(&scene), [], "as a coordinator");
    scene.members.voters.insert(id(1), Voter::Silent);
    scene.asks(Asks::Remove(id(1), Removal::Lost));
    scene.asks(Asks::Remove(id(4), Removal::Lost));
    assert_eq!(scene.state().revoked(), Some(none));
    scene.members.voters.remove(&id(1));
    assert_eq!(scene.state().revoked(), Some([id(1)].into()));
    assert_eq!(may_hold_keys(&scene), [id(1)], "the fourth was a node");
    // Whoever does not know etcd's members does not know who still leaves.
    scene.members = Members::default();
    assert_eq!(scene.state().revoked(), None);
    // A ticket makes coordinators, too; what they are given they are given as members.
    scene.issue(5, 1, |it| (it.role, it.machine) = (ClusterRole::Coordinator, Some(machine_key(5))));
    scene.yes(&redeem(5, 5));
    scene.members.voters.insert(id(2), Voter::Live);
    assert_eq!(scene.state().revoked(), Some([id(1)].into()), "it is on its way in");
    scene.asks(Asks::Remove(id(5), Removal::Lost));
    assert_eq!(may_hold_keys(&scene), [id(1)]);
    scene.issue(6, 1, |it| (it.role, it.machine) = (ClusterRole::Coordinator, Some(machine_key(6))));
    scene.yes(&redeem(6, 6));
    scene.yes(&announce(6));
    scene.asks(Asks::Remove(id(6), Removal::Lost));
    assert_eq!(may_hold_keys(&scene).len(), 2);
}

/// Master secret and authorities: with them a machine could give itself all the rest.
///
/// Proves: S5
#[test]
fn keys_go_only_to_coordinators_in_etcd() {
    let mut scene = Scene::new();
    scene.join(2);
    let given = |scene: &Scene, n| scene.state().hands_over_to(&id(n));
    let to_no_node = Err(HandOverError::NoCoordinator);
    assert_eq!((given(&scene, 2), given(&scene, 9)), (to_no_node, to_no_node));
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    assert_eq!(given(&scene, 2), Err(HandOverError::NotAdded), "it would begin an etcd of its own");
    scene.members.learners.insert(id(2), Learner::Behind);
    assert_eq!(given(&scene, 2), Ok(()));
    scene.members.learners.clear();
    scene.members.voters.insert(id(2), Voter::Live);
    assert_eq!(given(&scene, 2), Err(HandOverError::Votes), "it has begun, or lost what it acknowledged");
    scene.asks(Asks::RemoveRole(id(2), AnyRole::Coordinator));
    assert_eq!(given(&scene, 2), to_no_node, "it still votes, and steps down");
    scene.members.voters.remove(&id(2));
    scene.asks(Asks::Remove(id(2), Removal::Lost));
    assert_eq!(given(&scene, 2), to_no_node);
    // Let in as a coordinator, and never announced.
    scene.issue(3, 1, |it| (it.role, it.machine) = (ClusterRole::Coordinator, Some(machine_key(3))));
    scene.yes(&redeem(3, 3));
    scene.members.learners.insert(id(3), Learner::Ready);
    assert_eq!(given(&scene, 3), to_no_node);
}

/// Proves: S5 K6
#[test]
fn the_role_lasts_while_etcd_or_the_others_need_the_machine() {
    let mut scene = Scene::new();
    scene.join(2);
    let role = |scene: &Scene| scene.state().desired(&id(2)).expect("it belongs").assignment.role();
    assert_eq!(role(&scene), ClusterRole::Node);
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    assert_eq!(role(&scene), ClusterRole::Coordinator, "before etcd has added it");
    scene.members.voters.insert(id(2), Voter::Live);
    let hold = |scene: &mut Scene, holders: &[u16]| {
        scene.yes(&Request::BeginEpoch);
        let number = scene.state().cold_start().newest().expect("it began").number();
        for n in holders {
            scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(*n), number });
        }
    };
    hold(&mut scene, &[1, 2]);
    scene.asks(Asks::RemoveRole(id(2), AnyRole::Coordinator));
    assert_eq!(role(&scene), ClusterRole::Coordinator, "it is not to leave before etcd has removed it");
    let mut state = scene.state();
    let before = Look { revision: scene.look().revision - 1, applied: 99 };
    state.see(Members { voters: [(id(1), Voter::Live)].into(), ..Members::default() }, before);
    assert_eq!(state.desired(&id(2)), Err(DesiredError::OldLook), "a look from before etcd had added it");
    assert!(state.desired(&id(1)).is_ok(), "whose record is older");
    scene.members.voters.remove(&id(2));
    assert_eq!(role(&scene), ClusterRole::Coordinator, "the other cannot open without its share");
    hold(&mut scene, &[1]);
    assert_eq!(role(&scene), ClusterRole::Node);
    scene.asks(Asks::Remove(id(2), Removal::Lost));
    assert_eq!(scene.state().desired(&id(2)), Err(DesiredError::NoMember));
}

/// A stolen ticket of role coordinator would be the whole cluster: its holder would be given all keys.
///
/// Proves: S4 S5
#[test]
fn who_coordinates_by_a_ticket_is_named_by_it_or_approved() {
    let mut scene = Scene::new();
    let coordinators = |it: &mut Offer| it.role = ClusterRole::Coordinator;
    scene.issue(2, 4, coordinators);
    scene.issue(6, 1, |it| (it.role, it.machine) = (ClusterRole::Coordinator, Some(machine_key(6))));
    scene.issue(7, 1, |_| {});
    for (n, ticket) in [(2, 2), (3, 2), (4, 2), (5, 2), (6, 6), (7, 7)] {
        scene.yes(&redeem(n, ticket));
    }
    let waits = |scene: &Scene, n| {
        let state = scene.state();
        let machine = state.machine(&id(n)).expect("known");
        (machine.role, machine.awaits_approval)
    };
    assert_eq!(scene.refuses(Asks::AddRole(id(2), AnyRole::Coordinator)), Denial::NotMember);
    for n in 2..=7 {
        scene.yes(&announce(n));
    }
    let (node, coordinator) = (ClusterRole::Node, ClusterRole::Coordinator);
    assert_eq!([2, 6, 7].map(|n| waits(&scene, n)), [(node, true), (coordinator, false), (node, false)]);
    assert!(!scene.state().machine(&id(2)).expect("known").has_coordinated(), "it was given nothing");
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    assert_eq!(waits(&scene, 2), (coordinator, false), "approved");
    assert_eq!(scene.asks(Asks::RemoveRole(id(3), AnyRole::Coordinator)), Grant::Done);
    assert_eq!(scene.asks(Asks::RemoveRole(id(3), AnyRole::Coordinator)), Grant::Already);
    assert_eq!(waits(&scene, 3), (node, false), "declined");
    scene.asks(Asks::Drain(id(4)));
    assert_eq!(waits(&scene, 4), (node, true));
    scene.asks(Asks::Remove(id(4), Removal::Drained));
    assert_eq!(waits(&scene, 4), (node, false), "gone");
    scene.asks(Asks::RemoveRole(id(5), AnyRole::Kubernetes(KubernetesRole::Worker)));
    assert_eq!(waits(&scene, 5), (node, true), "another role");
}

/// Proves: S4
#[test]
fn a_control_plane_is_given_by_a_ticket_that_names_its_machine() {
    let scene = Scene::new();
    let both = [KubernetesRole::ControlPlane, KubernetesRole::Worker].into();
    let offer = Offer { role: ClusterRole::Coordinator, kubernetes: both, ..offer(2, 1) };
    assert_eq!(scene.refuses(Asks::IssueTicket(offer.clone())), Denial::ControlPlaneUnnamed);
    let mut scene = scene;
    scene.asks(Asks::IssueTicket(Offer { machine: Some(machine_key(2)), ..offer }));
    scene.yes(&redeem(2, 2));
    assert_eq!(scene.state().machine(&id(2)).expect("known").kubernetes.len(), 2);
}
