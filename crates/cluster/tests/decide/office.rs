//! What makes a coordinator: who is given it, and whose certificates are worth nothing any more.

use std::collections::BTreeSet;

use cluster::members::{Learner, Members, Voter};
use cluster::request::{Asks, Leaving};
use cluster::role::AnyRole;
use cluster::state::NotHandedOver;
use model::ClusterRole;
use sim::cast::id;

use super::{Scene, announce, redeem};

/// Proves: S5
#[test]
fn etcd_refuses_who_was_a_coordinator_once_it_is_no_member_of_it_any_more() {
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
    scene.asks(Asks::Remove(id(1), Leaving::Lost));
    scene.asks(Asks::Remove(id(4), Leaving::Lost));
    assert_eq!(scene.state().revoked(), Some(none));
    scene.members.voters.remove(&id(1));
    assert_eq!(scene.state().revoked(), Some([id(1)].into()));
    assert_eq!(may_hold_keys(&scene), [id(1)], "the fourth was a node");
    // Whoever does not know etcd's members does not know who still leaves.
    scene.members = Members::default();
    assert_eq!(scene.state().revoked(), None);
    // A ticket makes coordinators, too; what they are given they are given as members.
    scene.issue(5, 1, |it| it.role = ClusterRole::Coordinator);
    scene.yes(&redeem(5, 5));
    scene.members.voters.insert(id(2), Voter::Live);
    assert_eq!(scene.state().revoked(), Some([id(1)].into()), "it is on its way in");
    scene.asks(Asks::Remove(id(5), Leaving::Lost));
    assert_eq!(may_hold_keys(&scene), [id(1)]);
    scene.issue(6, 1, |it| it.role = ClusterRole::Coordinator);
    scene.yes(&redeem(6, 6));
    scene.yes(&announce(6));
    scene.asks(Asks::Remove(id(6), Leaving::Lost));
    assert_eq!(may_hold_keys(&scene).len(), 2);
}

/// Master secret and authorities: with them a machine could give itself all the rest.
///
/// Proves: S5
#[test]
fn what_makes_a_coordinator_is_handed_to_who_is_to_be_one_and_is_a_member_of_etcd_and_to_nobody_else() {
    let mut scene = Scene::new();
    scene.join(2);
    let given = |scene: &Scene, n| scene.state().members_for(&id(n)).map(|members| members.len());
    let to_no_node = Err(NotHandedOver::NoCoordinator);
    assert_eq!((given(&scene, 2), given(&scene, 9)), (to_no_node, to_no_node));
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    assert_eq!(given(&scene, 2), Err(NotHandedOver::NotAdded), "it would begin an etcd of its own");
    scene.members.learners.insert(id(2), Learner::Behind);
    assert_eq!(given(&scene, 2), Ok(2));
    let state = scene.state();
    let told = state.members_for(&id(2)).expect("it is to be one");
    assert!(told.iter().any(|(_, vpn_ip)| *vpn_ip == state.machine(&id(2)).expect("known").vpn_ip), "itself, too");
    scene.members.learners.clear();
    scene.members.voters.insert(id(2), Voter::Live);
    assert_eq!(given(&scene, 2), Err(NotHandedOver::Votes), "it has begun, or lost what it acknowledged");
    scene.asks(Asks::RemoveRole(id(2), AnyRole::Coordinator));
    assert_eq!(given(&scene, 2), to_no_node, "it still votes, and steps down");
    scene.members.voters.remove(&id(2));
    scene.asks(Asks::Remove(id(2), Leaving::Lost));
    assert_eq!(given(&scene, 2), to_no_node);
    // Let in as a coordinator, and never announced.
    scene.issue(3, 1, |it| it.role = ClusterRole::Coordinator);
    scene.yes(&redeem(3, 3));
    scene.members.learners.insert(id(3), Learner::Ready);
    assert_eq!(given(&scene, 3), to_no_node);
}
