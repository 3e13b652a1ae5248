//! Single lines that guard something: each of them was once changed, and no other test had noticed.

use cluster::denial::Denial;
use cluster::key::{AuditId, Key};
use cluster::members::{Learner, Members, Voter};
use cluster::record::{AuditLine, MachineRecord, OwnerRecord, Release, Standing};
use cluster::request::{Asks, Removal, Request};
use cluster::role::AnyRole;
use cluster::state::{BadState, Change, KeyValue};
use cluster::txn::Grant;
use cluster::{State, decide};
use keys::recovery::RecoveryPubKey;
use model::{ClusterRole, Ipv4Prefix, KubernetesRole, Level, Secret, VPN_PREFIX};
use sim::cast::{self, BEGIN, RELEASE, id, machine_key, owner, ticket};

use super::{Scene, announce, announces_key, name, offer, redeem, redeem_as};

const WORKER: AnyRole = AnyRole::Kubernetes(KubernetesRole::Worker);

fn remove_coordinator(n: u16) -> Asks {
    Asks::RemoveRole(id(n), AnyRole::Coordinator)
}

/// Three that coordinate, of which the first alone votes so far.
fn three() -> Scene {
    let mut scene = Scene::new();
    for n in [2, 3] {
        scene.join(n);
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
    }
    scene
}

/// Clocks order no lines: one of two coordinators is an hour off, the other decides twice in a second. Proves: K9
#[test]
fn each_change_has_its_line_whatever_the_clocks_say() {
    let mut scene = Scene::new();
    let lines =
        |scene: &Scene| scene.etcd.pairs().filter(|pair| matches!(Key::read(&pair.key), Ok(Key::Audit(_)))).count();
    let (before, right) = (lines(&scene), scene.now.0);
    assert_eq!(before, 1, "it was created");
    for (n, clock) in (2..).zip([right, right, right + 3600, right, right + 3600, right + 3600]) {
        scene.now.0 = clock;
        scene.asks(Asks::AddOwner(owner(n)));
    }
    assert_eq!(lines(&scene), before + 6);
}

/// Proves: Q1
#[test]
fn what_a_machine_has_changed_stands_apart_from_what_owners_did() {
    let mut scene = Scene::new();
    let line = |txn: &cluster::txn::Txn| {
        let keys = txn.puts.iter().filter_map(|(key, _)| if let Key::Audit(id) = key { Some(*id) } else { None });
        keys.collect::<Vec<_>>()
    };
    let change = |scene: &Scene| scene.state().version().expect("a cluster").0.0 + 1;
    scene.issue(7, 1, |_| {});
    let drained = Request::Owner { by: owner(1).key, asks: Asks::Drain(id(2)) };
    for (request, of_machine) in [(redeem(2, 7), true), (announce(2), true), (drained, false)] {
        let (txn, change) = (scene.decide(&request).expect("granted"), change(&scene));
        let expected = if of_machine { AuditId::Asked { machine: id(2), change } } else { AuditId::Changed { change } };
        assert_eq!(line(&txn), [expected], "{request:?}");
        scene.commits(&txn);
    }
}

/// Proves: K9
#[test]
fn what_a_machine_had_changed_is_named() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.asks(Asks::RotateKey(id(2)));
    let says = |scene: &Scene, request| {
        let txn = scene.decide(request).expect("granted");
        let line = txn.puts.iter().find(|(key, _)| matches!(key, Key::Audit(_))).expect("a line");
        AuditLine::decode(&line.1).expect("a line").what
    };
    let endpoints = vec![cast::endpoint(9)];
    let moved = Request::Announce { machine: machine_key(2), release: RELEASE, endpoints, generation: 1 };
    assert_eq!([says(&scene, &moved), says(&scene, &announces_key(2, 2))], ["announced", "key rotated"]);
}

#[test]
fn a_record_under_a_foreign_key_is_refused_a_deletion_obeyed() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.issue(3, 1, |_| {});
    let machines = [1, 2].map(|n| Key::Machine(id(n)));
    let tickets = [2, 3].map(|n| Key::Ticket(ticket(n).id()));
    let whole = scene.state();
    for [own, other] in [machines, tickets] {
        let pair = scene.etcd.pairs().find(|pair| pair.key == own.bytes()).expect("it is there");
        let misplaced = Change::Put(KeyValue { key: other.bytes(), ..pair.clone() });
        let mut state = whole.clone();
        assert_eq!(state.apply([misplaced]), Err(BadState::Misplaced(Box::new(other))));
        assert_eq!(state, whole, "nothing was taken");
        state.apply([Change::Delete { key: own.bytes(), mod_revision: pair.mod_revision + 1 }]).expect("it may go");
        assert_eq!(state.machines().count() + state.tickets().count(), 3);
    }
}

/// Proves: S4
#[test]
fn a_ticket_for_one_machine_lets_that_one_in() {
    let mut scene = Scene::new();
    scene.issue(7, 1, |it| it.machine = Some(machine_key(2)));
    assert_eq!(scene.no(&redeem(3, 7)), Denial::OtherMachine);
    assert_eq!(scene.yes(&redeem(2, 7)), Grant::Admitted(id(2)));
}

#[test]
fn a_cluster_whose_first_machine_does_not_fit_it_is_not_created() {
    type Edit = fn(&mut MachineRecord);
    let edits: [(Edit, _); 5] = [
        (|it| it.standing = Standing::Draining, "it is no member"),
        (|it| it.role = ClusterRole::Node, "it is no coordinator"),
        (|it| it.vpn_ip = [192, 0, 2, 1].into(), "its address is not of the VPN"),
        (|it| it.pods = Ipv4Prefix::new([10, 0, 3, 0].into(), 24).ok(), "its pods are not of the cluster"),
        (|it| it.level = Level::Insecure, "its level is below the cluster's"),
    ];
    for (edit, why) in edits {
        let mut creation = cast::creation(VPN_PREFIX);
        edit(&mut creation.machine);
        let denied = decide(&State::default(), &Request::Create(Box::new(creation)), BEGIN);
        assert_eq!(denied, Err(Denial::BadCreation(why)));
    }
    let mut no_worker = cast::creation(VPN_PREFIX);
    (no_worker.machine.pods, no_worker.machine.kubernetes) = (None, [].into());
    assert!(decide(&State::default(), &Request::Create(Box::new(no_worker)), BEGIN).is_ok());
}

/// Proves: S4
#[test]
fn the_oldest_release_that_is_let_in_is_let_in() {
    let mut scene = Scene::new();
    scene.issue(7, 1, |_| {});
    let oldest = scene.state().cluster().expect("a cluster").policy.oldest_release;
    assert_eq!(scene.yes(&redeem_as(2, 7, |body| body.release = oldest)), Grant::Admitted(id(2)));
}

#[test]
fn a_cluster_is_not_created_over_what_is_left_of_one() {
    let scene = Scene::new();
    for key in [Key::Version, Key::Cluster] {
        let mut state = scene.state();
        state.apply([Change::Delete { key: key.bytes(), mod_revision: 99 }]).expect("our own");
        let denied = decide(&state, &Request::Create(Box::new(cast::creation(VPN_PREFIX))), BEGIN);
        assert_eq!(denied, Err(Denial::ClusterExists));
    }
}

#[test]
fn a_machine_that_announces_itself_is_drained_as_before() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.asks(Asks::Drain(id(2)));
    let Release(major, minor, patch) = RELEASE;
    let release = Release(major, minor, patch + 1);
    let updated = Request::Announce { machine: machine_key(2), release, endpoints: vec![], generation: 1 };
    assert_eq!(scene.yes(&updated), Grant::Done);
    assert_eq!(scene.standing(2), Standing::Draining);
}

#[test]
fn an_owner_is_not_added_again_with_another_recovery_key() {
    let mut scene = Scene::new();
    assert_eq!(scene.asks(Asks::AddOwner(owner(1))), Grant::Already);
    let other = OwnerRecord { recovery: RecoveryPubKey::of(&Secret::take(&mut [9; 32])), ..owner(1) };
    assert_eq!(scene.refuses(Asks::AddOwner(other)), Denial::OtherRecoveryKey);
}

/// Proves: S4
#[test]
fn asking_again_takes_the_same_level_and_an_owner_that_exists() {
    let mut scene = Scene::new();
    scene.asks(Asks::AddOwner(owner(2)));
    scene.issue(7, 2, |_| {});
    let of_the_second = |level| {
        redeem_as(2, 7, |body| {
            body.owner = owner(2).key;
            body.level = level;
        })
    };
    scene.yes(&of_the_second(Level::Authenticated));
    assert_eq!(scene.no(&of_the_second(Level::Encrypted)), Denial::OtherAttempt);
    assert_eq!(scene.yes(&of_the_second(Level::Authenticated)), Grant::Admitted(id(2)));
    scene.asks(Asks::RemoveOwner(owner(2).key));
    assert_eq!(scene.no(&of_the_second(Level::Authenticated)), Denial::UnknownOwner);
}

/// A machine that was let in asks by a ticket that is over: it gets its answer, and its record stays as it is. Proves: S3
#[test]
fn a_ticket_that_is_over_changes_no_record() {
    let moved = |n| redeem_as(n, n, |body| body.endpoints = vec![cast::endpoint(9)]);
    let mut scene = Scene::new();
    for n in [2, 3, 4] {
        scene.issue(n, 1, |_| {});
        scene.yes(&redeem(n, n));
    }
    assert!(scene.decide(&moved(2)).expect("its ticket lives").writes());
    scene.asks(Asks::RevokeTicket(ticket(3).id()));
    let given = |scene: &Scene, n| scene.decide(&moved(n)).map(|txn| (txn.writes(), txn.granted));
    assert_eq!(given(&scene, 3), Ok((false, Grant::Admitted(id(3)))), "revoked");
    assert_eq!(given(&scene, 4), Ok((true, Grant::Admitted(id(4)))), "used up by this machine, and not over");
    scene.now.0 += 1000;
    assert_eq!(given(&scene, 4), Ok((false, Grant::Admitted(id(4)))), "expired");
}

/// Proves: M8
#[test]
fn pods_and_addresses_go_round_whoever_is_given_them() {
    let mut scene = Scene::new();
    let pods = |scene: &Scene, n| scene.state().machine(&id(n)).expect("known").pods.map(|pods| pods.to_string());
    for (n, expected) in [(2, "10.244.1.0/24"), (3, "10.244.2.0/24")] {
        scene.join(n);
        assert_eq!(pods(&scene, n).as_deref(), Some(expected));
    }
    // What is given back first is not what is given next: by a role, and by a ticket.
    for expected in ["10.244.3.0/24", "10.244.4.0/24"] {
        scene.asks(Asks::RemoveRole(id(2), WORKER));
        assert_eq!(pods(&scene, 2), None);
        scene.asks(Asks::AddRole(id(2), WORKER));
        assert_eq!(pods(&scene, 2).as_deref(), Some(expected));
        assert!(scene.state().has_pods(expected.parse().expect("a prefix")), "nobody else is given them");
    }
    scene.asks(Asks::Remove(id(3), Removal::Lost));
    scene.join(4);
    assert_eq!(pods(&scene, 4).as_deref(), Some("10.244.5.0/24"));
    // Nor the address of whoever was let in last.
    scene.join(5);
    scene.asks(Asks::Remove(id(5), Removal::Lost));
    scene.join(6);
    let address = |n| scene.state().machine(&id(n)).expect("known").vpn_ip.to_string();
    assert_eq!([4, 5, 6].map(address), ["10.118.0.4", "10.118.0.5", "10.118.0.6"]);
}

#[test]
fn the_name_of_a_machine_that_was_removed_is_free() {
    let mut scene = Scene::new();
    let called = |n, by| redeem_as(n, by, |body| body.node_name = Some(name("web")));
    scene.issue(7, 9, |_| {});
    scene.yes(&called(2, 7));
    assert_eq!(scene.no(&called(3, 7)), Denial::NameTaken(name("web")));
    scene.asks(Asks::Remove(id(2), Removal::Lost));
    assert_eq!(scene.yes(&called(3, 7)), Grant::Admitted(id(3)));
    assert_eq!(scene.no(&called(4, 7)), Denial::NameTaken(name("web")));
    let mut offer = offer(8, 1);
    offer.node_name = Some(name("web"));
    assert_eq!(scene.refuses(Asks::IssueTicket(offer)), Denial::NameTaken(name("web")), "for nobody");
    // The record of the one before is written once more: the name is not its own any more.
    let before = scene.etcd.pairs().find(|pair| pair.key == Key::Machine(id(2)).bytes()).expect("it stays known");
    scene.kept.apply([Change::Put(before)]).expect("our own");
    assert_eq!(scene.no(&called(4, 7)), Denial::NameTaken(name("web")));
}

/// Proves: M8
#[test]
fn who_has_an_address_now_comes_before_who_had_it() {
    let mut scene = Scene::in_prefix("10.0.0.0/24".parse().expect("a prefix"));
    scene.issue(7, 999, |it| it.kubernetes = [].into());
    for n in 2..=254 {
        scene.yes(&redeem(n, 7));
    }
    // Ids are hashes: of eight, some come behind those that had the address.
    for n in 5..=12 {
        scene.asks(Asks::Remove(id(n), Removal::Lost));
        scene.yes(&redeem(300 + n, 7));
        let state = scene.state();
        let address = state.machine(&id(n)).expect("known").vpn_ip;
        assert_eq!(state.at_addresses().get(&address), Some(&id(300 + n)), "{address}");
    }
}

/// Proves: N6
#[test]
fn a_coordinator_goes_only_where_those_that_stay_decide() {
    let mut scene = three();
    scene.members.learners = [(id(2), Learner::Behind)].into();
    assert_eq!(scene.refuses(remove_coordinator(1)), Denial::SuccessorBehind, "nobody else votes");
    scene.members.learners.insert(id(2), Learner::Ready);
    assert!(scene.decide(&Request::Owner { by: owner(1).key, asks: remove_coordinator(1) }).is_ok(), "one is ready");

    scene.members.learners.clear();
    scene.members.voters =
        [(1, Voter::Live), (2, Voter::Live), (3, Voter::Silent)].map(|(n, voter)| (id(n), voter)).into();
    assert_eq!(scene.refuses(remove_coordinator(2)), Denial::WouldLoseQuorum, "one of two would be left");
    scene.asks(remove_coordinator(3));
}

/// Records that were just read show no member, so that a sole voter would seem to have no vote. Proves: N6 S5
#[test]
fn nobody_comes_or_goes_before_etcds_members_are_known() {
    let mut scene = three();
    scene.join(4);
    let members = std::mem::take(&mut scene.members);
    let asked =
        || [remove_coordinator(1), Asks::Remove(id(2), Removal::Lost), Asks::AddRole(id(4), AnyRole::Coordinator)];
    for asks in asked() {
        assert_eq!(scene.refuses(asks), Denial::NoVoters);
    }
    scene.members = Members { voters: (1..=3).map(|n| (id(n), Voter::Live)).collect(), ..members };
    for asks in asked() {
        assert!(scene.decide(&Request::Owner { by: owner(1).key, asks }).is_ok(), "they are known");
    }
}

/// The only voter is to leave, and one that is ready to succeed it, while a third has not caught up. Proves: N6
#[test]
fn a_successor_goes_only_where_another_one_is_ready() {
    let mut scene = three();
    scene.members.voters = [(id(1), Voter::Live)].into();
    scene.members.learners = [(id(2), Learner::Ready), (id(3), Learner::Behind)].into();
    let may =
        |scene: &Scene, n| scene.decide(&Request::Owner { by: owner(1).key, asks: remove_coordinator(n) }).is_ok();
    assert!(may(&scene, 2), "one votes");
    scene.asks(remove_coordinator(1));
    assert_eq!(scene.refuses(remove_coordinator(2)), Denial::SuccessorBehind);
    assert_eq!(scene.refuses(Asks::Remove(id(2), Removal::Lost)), Denial::SuccessorBehind);
    assert!(may(&scene, 3), "one is ready");
    scene.members.learners.insert(id(3), Learner::Ready);
    scene.asks(remove_coordinator(2));
}

/// Proves: N6
#[test]
fn a_learner_may_go_and_a_leaving_voter_succeeds_nobody() {
    let mut scene = three();
    scene.members.voters = [(1, Voter::Live), (2, Voter::Silent)].map(|(n, voter)| (id(n), voter)).into();
    scene.members.learners = [(id(3), Learner::Behind)].into();
    assert!(scene.decide(&Request::Owner { by: owner(1).key, asks: remove_coordinator(3) }).is_ok(), "no vote is lost");
    scene.members.voters.insert(id(2), Voter::Live);
    scene.asks(remove_coordinator(2));
    assert_eq!(scene.refuses(remove_coordinator(1)), Denial::SuccessorBehind, "the second is to leave as well");
    // Until etcd has let go of it its vote counts, whatever its record says.
    scene.members.learners.clear();
    scene.members.voters.insert(id(3), Voter::Silent);
    assert_eq!(scene.refuses(Asks::Remove(id(2), Removal::Lost)), Denial::WouldLoseQuorum);
}
