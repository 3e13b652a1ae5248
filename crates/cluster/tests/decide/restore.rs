//! Restores: who orders, acknowledges and ends one, and that a cut anywhere leaves none half done.

use std::collections::{BTreeMap, BTreeSet};

use cluster::denial::Denial;
use cluster::members::Voter;
use cluster::record::RestoreRecord;
use cluster::request::{Asks, Removal, Request};
use cluster::restores::{self, RestoreProgress, RestoreStep};
use cluster::role::AnyRole;
use cluster::txn::Grant;
use model::{KubernetesRole, MachineId};
use proptest::prelude::*;
use sim::cast::{id, machine_key};

use super::Scene;

const CONTROL_PLANE: AnyRole = AnyRole::Kubernetes(KubernetesRole::ControlPlane);

/// Machines 1 to 3 coordinate and run control planes, 4 is a node.
fn scene() -> Scene {
    let mut scene = Scene::new();
    for n in [2, 3, 4] {
        scene.join(n);
    }
    for n in [2, 3] {
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
        scene.members.voters.insert(id(n), Voter::Live);
        scene.asks(Asks::AddRole(id(n), CONTROL_PLANE));
    }
    scene.asks(Asks::AddRole(id(1), CONTROL_PLANE));
    scene
}

fn acknowledges(n: u16) -> Request {
    Request::AcknowledgeRestore { machine: machine_key(n) }
}

fn ends(n: u16, hash: u8) -> Request {
    Request::EndRestore { machine: machine_key(n), hash: [hash; 32] }
}

fn runs_control_plane(scene: &Scene, n: u16) -> bool {
    let desired = scene.state().desired(&id(n)).expect("it belongs");
    desired.assignment.kubernetes().contains(&KubernetesRole::ControlPlane)
}

fn waits_for(scene: &Scene) -> BTreeSet<MachineId> {
    restores::waits_for(&scene.state())
}

/// Proves: Q4
#[test]
fn no_control_plane_runs_while_a_restore_is_ordered() {
    let mut scene = scene();
    assert!((1..=3).all(|n| runs_control_plane(&scene, n)));
    assert_eq!(scene.refuses(Asks::Restore(id(4), [7; 32])), Denial::RestoreOnNode);
    assert_eq!(scene.refuses(Asks::Restore(id(9), [7; 32])), Denial::UnknownMachine);
    let before = scene.state();
    assert_eq!(scene.asks(Asks::Restore(id(2), [7; 32])), Grant::Done);
    assert_eq!(scene.asks(Asks::Restore(id(2), [7; 32])), Grant::Already);
    assert!((1..=3).all(|n| !runs_control_plane(&scene, n)), "on all machines, by the one word that they hear");
    assert!(scene.state().state_version() > before.state_version(), "and each of them hears it");
    let records = |state: &cluster::State| state.machines().map(|(_, machine)| machine.clone()).collect::<Vec<_>>();
    assert_eq!(records(&scene.state()), records(&before), "what was assigned stays");
    assert_eq!(scene.no(&ends(1, 7)), Denial::OtherRestore);
    assert_eq!(scene.no(&ends(2, 8)), Denial::OtherRestore);
    assert_eq!(scene.yes(&ends(2, 7)), Grant::Done);
    assert_eq!(scene.yes(&ends(2, 7)), Grant::Already);
    assert!((1..=3).all(|n| runs_control_plane(&scene, n)));
    assert!(scene.state().restore().is_none());
}

/// Proves: Q4
#[test]
fn a_restore_waits_for_control_planes_whose_etcd_answers() {
    let mut scene = scene();
    assert_eq!(scene.yes(&acknowledges(1)), Grant::Already, "there is no restore");
    scene.asks(Asks::Restore(id(2), [7; 32]));
    assert_eq!(waits_for(&scene), [1, 2, 3].map(id).into());
    assert!(restores::is_asked_to_stop(&scene.state(), &id(1)) && !restores::is_asked_to_stop(&scene.state(), &id(4)));
    assert_eq!(scene.yes(&acknowledges(4)), Grant::Already, "it runs none");
    assert_eq!((scene.yes(&acknowledges(1)), scene.yes(&acknowledges(1))), (Grant::Done, Grant::Already));
    assert!(!restores::is_asked_to_stop(&scene.state(), &id(1)));
    scene.members.voters.insert(id(3), Voter::Silent);
    assert_eq!(waits_for(&scene), [id(2)].into());
    let still = |scene: &Scene, n| restores::standstill(&scene.state(), &id(n));
    let waits = format!("once the control planes of {} have stopped", restores::waits_by_name(&scene.state())[0]);
    assert!(still(&scene, 1).is_some_and(|why| why.ends_with(&waits)), "{:?}", still(&scene, 1));
    assert_eq!(still(&scene, 4), None, "it runs none");
    let step = |scene: &Scene| restores::next(&scene.state(), &id(2), RestoreProgress::Revoked);
    assert_eq!(step(&scene), None);
    scene.yes(&acknowledges(2));
    assert!(still(&scene, 1).is_some_and(|why| why.ends_with("is being restored")), "{:?}", still(&scene, 1));
    let revision = scene.state().restore_revision().expect("it is under way");
    assert_eq!(step(&scene), Some(RestoreStep::Replace { revision }));
    scene.members.voters.clear();
    assert_eq!(step(&scene), None, "nobody is known to answer before the first look");
}

/// Proves: Q4
#[test]
fn who_has_the_snapshot_stays_until_it_is_restored() {
    let mut scene = scene();
    scene.asks(Asks::RemoveRole(id(2), CONTROL_PLANE));
    scene.asks(Asks::Restore(id(2), [7; 32]));
    let steps_down = || Asks::RemoveRole(id(2), AnyRole::Coordinator);
    assert_eq!(scene.refuses(steps_down()), Denial::StillRestores);
    scene.asks(Asks::Restore(id(1), [8; 32]));
    assert_eq!(scene.asks(steps_down()), Grant::Done, "somebody else restores another one");
}

/// Proves: Q4 S7
#[test]
fn a_restore_of_a_lost_machine_is_ordered_again() {
    let mut scene = scene();
    scene.asks(Asks::Restore(id(2), [7; 32]));
    scene.asks(Asks::Recover(id(1)));
    let still = |scene: &Scene| restores::standstill(&scene.state(), &id(1)).expect("its control plane stands still");
    assert!(still(&scene).ends_with("restore the snapshot at another: cairnctl cluster restore"), "{}", still(&scene));
    scene.asks(Asks::Restore(id(1), [7; 32]));
    assert!(still(&scene).contains("is being restored"), "{}", still(&scene));
}

/// Where the machine that had the snapshot is gone, or had the wrong one. Proves: Q4
#[test]
fn a_later_order_takes_the_place_of_an_earlier_one() {
    let mut scene = scene();
    scene.asks(Asks::Restore(id(2), [7; 32]));
    scene.yes(&acknowledges(1));
    let before = scene.state().restore_revision();
    assert_eq!(scene.asks(Asks::Restore(id(3), [8; 32])), Grant::Done);
    let stopped = [id(1)].into();
    let expected = RestoreRecord { machine: id(3), hash: [8; 32], stopped };
    assert_eq!(scene.state().restore(), Some(&expected), "who has stopped stays so");
    assert!(scene.state().restore_revision() > before, "the earlier one writes nothing more");
    assert_eq!(scene.no(&ends(2, 7)), Denial::OtherRestore);
    for step in [RestoreProgress::Begun, RestoreProgress::Granted] {
        assert_eq!(restores::next(&scene.state(), &id(2), step), None);
    }
    scene.asks(Asks::Remove(id(3), Removal::Lost));
    assert!(!runs_control_plane(&scene, 1), "half of it may be there");
    scene.asks(Asks::Restore(id(1), [7; 32]));
    assert_eq!(restores::next(&scene.state(), &id(1), RestoreProgress::Begun), Some(RestoreStep::Revoke));
}

/// etcd as a restore finds and leaves it, beside the records.
#[derive(Debug, Clone)]
struct Kept {
    objects: BTreeMap<u8, u8>,
    may_write: bool,
}

/// Fate of the machine that restores at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Taken, and known to be.
    Done,
    /// Taken, so far, and the machine starts anew.
    CutBehind(u8),
    /// The machine starts anew before it.
    CutBefore,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![Just(Fate::Done), any::<u8>().prop_map(Fate::CutBehind), Just(Fate::CutBefore)]
}

proptest! {
    /// Proves: Q4
    #[test]
    fn a_restore_that_is_cut_anywhere_ends_whole(
        snapshot in proptest::collection::btree_map(0_u8..9, 0_u8..3, 0..9),
        objects in proptest::collection::btree_map(0_u8..9, 0_u8..3, 0..9),
        fates in proptest::collection::vec(fate(), 0..12),
        acknowledged in 0_usize..6,
    ) {
        let (mut scene, own) = (scene(), id(2));
        let mut etcd = Kept { objects, may_write: true };
        scene.asks(Asks::Restore(own, [7; 32]));
        let (mut progress, mut fates) = (RestoreProgress::default(), fates.into_iter());
        for round in 0..99 {
            if round == acknowledged {
                for n in 1..=3 {
                    scene.yes(&acknowledges(n));
                }
            }
            prop_assert!(scene.state().restore().is_some() || etcd.may_write, "nobody would know that it lacks its role");
            let Some(step) = restores::next(&scene.state(), &own, progress) else {
                if scene.state().restore().is_none() {
                    break;
                }
                continue;
            };
            let fate = fates.next().unwrap_or(Fate::Done);
            let before = etcd.objects.clone();
            let part = match fate {
                Fate::Done => usize::MAX,
                Fate::CutBehind(part) => usize::from(part),
                Fate::CutBefore => 0,
            };
            match step {
                _ if fate == Fate::CutBefore => {}
                RestoreStep::Revoke => etcd.may_write = false,
                RestoreStep::Replace { revision } => {
                    prop_assert!(!etcd.may_write && waits_for(&scene).is_empty(), "no apiserver sees half of it");
                    prop_assert_eq!(Some(revision), scene.state().restore_revision());
                    let differ = (0..9).filter(|key| etcd.objects.get(key) != snapshot.get(key)).take(part);
                    for key in differ.collect::<Vec<_>>() {
                        match snapshot.get(&key) {
                            Some(value) => drop(etcd.objects.insert(key, *value)),
                            None => drop(etcd.objects.remove(&key)),
                        }
                    }
                }
                RestoreStep::Grant => {
                    prop_assert_eq!(&etcd.objects, &snapshot, "an apiserver would write into half of it");
                    etcd.may_write = true;
                }
                RestoreStep::End => prop_assert_eq!(scene.yes(&ends(2, 7)), Grant::Done),
            }
            progress = match fate {
                Fate::Done => RestoreProgress::after(step, etcd.objects != before),
                Fate::CutBehind(_) | Fate::CutBefore => RestoreProgress::default(),
            };
        }
        prop_assert_eq!((etcd.objects, etcd.may_write), (snapshot, true));
        prop_assert!(scene.state().restore().is_none());
    }
}
