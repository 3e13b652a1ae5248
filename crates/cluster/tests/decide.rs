//! Each request by itself: what it changes, what it is refused for, and what it changes when it is asked again.

use cluster::denial::Denial;
use cluster::key::Key;
use cluster::members::{Look, Members, Voter};
use cluster::peer::Peer;
use cluster::peers::News;
use cluster::record::{Generations, MachineRecord, Release, Standing, UnixSeconds};
use cluster::redeem::RedeemBody;
use cluster::request::{Asks, FirstRecords, Offer, Removal, Request};
use cluster::role::AnyRole;
use cluster::txn::{Grant, KeyCondition, MOST_COMPARES, Outcome, Txn};
use cluster::{State, decide};
use keys::endpoint::Endpoint;
use model::{ClusterRole, Ipv4Prefix, KubernetesRole, Level, NodeName, OwnerPubKey, VPN_PREFIX};
use proptest::prelude::*;
use sim::cast::{self, BEGIN, RELEASE, disk, id, machine_key, owner, ticket, vpn_key};
use sim::etcd::Etcd;

#[path = "decide/cold_start.rs"]
mod cold_start;
#[path = "decide/guards.rs"]
mod guards;
#[path = "decide/observed.rs"]
mod observed;
#[path = "decide/properties.rs"]
mod properties;
#[path = "decide/published.rs"]
mod published;
#[path = "decide/refused.rs"]
mod refused;
#[path = "decide/registries.rs"]
mod registries;
#[path = "decide/restore.rs"]
mod restore;
#[path = "decide/role.rs"]
mod role;
#[path = "decide/users.rs"]
mod users;

/// A cluster, its etcd, and the time.
struct Scene {
    etcd: Etcd,
    kept: State,
    members: Members,
    now: UnixSeconds,
}

impl Scene {
    fn new() -> Self {
        Self::in_prefix(VPN_PREFIX)
    }

    fn in_prefix(prefix: Ipv4Prefix) -> Self {
        Self::of(cast::creation(prefix))
    }

    fn of(creation: FirstRecords) -> Self {
        let members = Members { voters: [(id(1), Voter::Live)].into(), ..Members::default() };
        let mut scene = Self { etcd: Etcd::of(id(1)), kept: State::default(), members, now: BEGIN };
        scene.yes(&Request::Create(Box::new(creation)));
        scene
    }

    fn state(&self) -> State {
        let mut state = self.kept.clone();
        state.see(self.members.clone(), self.look());
        state
    }

    fn look(&self) -> Look {
        Look { revision: self.etcd.revision(), applied: 0 }
    }

    fn decide(&self, request: &Request) -> Result<Txn, Denial> {
        let decided = decide(&self.state(), request, self.now);
        if let Ok(txn) = &decided {
            assert!(txn.compares.len() <= MOST_COMPARES, "etcd takes it");
            assert_eq!(txn.compares[0].key, Key::Version, "every transaction compares the version");
            let changes = txn.puts.iter().any(|(key, _)| !matches!(key, Key::Audit(_))) || !txn.deletes.is_empty();
            assert_eq!(changes, txn.puts.iter().any(|(key, _)| *key == Key::Version), "every change writes it");
            let existing = self.etcd.pairs().map(|pair| Key::read(&pair.key).expect("ours")).collect::<Vec<_>>();
            for (key, _) in txn.puts.iter().filter(|(key, _)| !existing.contains(key) && !matches!(key, Key::Audit(_)))
            {
                let absent =
                    |compare: &cluster::txn::Compare| compare.key == *key && compare.condition == KeyCondition::Absent;
                assert!(txn.compares.iter().any(absent), "{key} is new and compared to be absent");
            }
        }
        decided
    }

    fn yes(&mut self, request: &Request) -> Grant {
        let txn = self.decide(request).unwrap_or_else(|denied| panic!("{request:?}: {denied}"));
        self.commits(&txn);
        txn.granted
    }

    fn commits(&mut self, txn: &Txn) {
        let before = self.etcd.revision();
        assert!(matches!(self.etcd.commit(txn), Ok(Outcome::Committed)), "{txn:?}");
        let changes = self.etcd.watch(before, self.etcd.revision()).expect("nothing is compacted");
        self.kept.apply(changes).expect("our own");
    }

    fn no(&self, request: &Request) -> Denial {
        self.decide(request).map(|txn| txn.granted).expect_err("it is refused")
    }

    fn asks(&mut self, asks: Asks) -> Grant {
        self.yes(&Request::Owner { by: owner(1).key, asks })
    }

    fn refuses(&self, asks: Asks) -> Denial {
        self.no(&Request::Owner { by: owner(1).key, asks })
    }

    /// Issues ticket `n` with `uses`, edited.
    fn issue(&mut self, n: u16, uses: u32, edit: impl FnOnce(&mut Offer)) {
        let mut offer = offer(n, uses);
        edit(&mut offer);
        assert_eq!(self.asks(Asks::IssueTicket(offer)), Grant::Ticket(ticket(n).id()));
    }

    /// Machine `n` joins as a node, by a ticket of its own.
    fn join(&mut self, n: u16) {
        self.issue(n, 1, |_| {});
        self.yes(&redeem(n, n));
        self.yes(&announce(n));
    }

    fn standing(&self, n: u16) -> Standing {
        self.state().machine(&id(n)).expect("known").standing
    }
}

fn offer(n: u16, uses: u32) -> Offer {
    Offer {
        key: ticket(n).public(),
        uses,
        not_after: UnixSeconds(BEGIN.0 + 100),
        role: ClusterRole::Node,
        kubernetes: cast::worker(),
        machine: None,
        node_name: None,
    }
}

fn redeem_as(n: u16, by: u16, edit: impl FnOnce(&mut RedeemBody)) -> Request {
    let ticket = ticket(by);
    let mut body = cast::body(n, &ticket);
    edit(&mut body);
    Request::Redeem(Box::new(cast::redeem(n, &ticket, &body)))
}

fn redeem(n: u16, by: u16) -> Request {
    redeem_as(n, by, |_| {})
}

fn announce(n: u16) -> Request {
    announces_key(n, 1)
}

fn announces_key(n: u16, generation: u32) -> Request {
    Request::Announce { machine: machine_key(n), release: RELEASE, endpoints: vec![], generation }
}

fn release(n: u16, of: u16, generation: u32, level: Level) -> Request {
    Request::ReleaseKey { machine: machine_key(n), disk: disk(of), generation, level }
}

fn name(text: &str) -> NodeName {
    NodeName::chosen(text).expect("a name")
}

#[test]
fn a_cluster_is_created_once() {
    let scene = Scene::new();
    assert_eq!(scene.no(&Request::Create(Box::new(cast::creation(VPN_PREFIX)))), Denial::ClusterExists);
    let empty = decide(&State::default(), &announce(1), BEGIN);
    assert_eq!(empty, Err(Denial::NoCluster));
    let mut creation = cast::creation(VPN_PREFIX);
    creation.machine.vpn_ip = [192, 0, 2, 1].into();
    let denied = decide(&State::default(), &Request::Create(Box::new(creation)), BEGIN);
    assert_eq!(denied, Err(Denial::BadCreation("its address is not of the VPN")));
}

/// Proves: S3 S4 M8
#[test]
fn a_ticket_admits_and_gives_a_name_an_address_and_pods() {
    let mut scene = Scene::new();
    scene.issue(7, 2, |_| {});
    assert_eq!(scene.yes(&redeem(2, 7)), Grant::Admitted(id(2)));
    let state = scene.state();
    let machine = state.machine(&id(2)).expect("admitted");
    assert_eq!((machine.standing, machine.vpn_ip), (Standing::Admitted, [10, 118, 0, 2].into()));
    assert_eq!(machine.pods.expect("a worker").to_string(), "10.244.1.0/24");
    assert_eq!(machine.name, NodeName::derived(id(2)));
    assert_eq!(state.ticket(&ticket(7).id()).expect("issued").used, 1);
    // With another image it is the same attempt, and its record says so.
    let updated = redeem_as(2, 7, |body| body.release = Release(1, 3, 0));
    assert_eq!(scene.yes(&updated), Grant::Admitted(id(2)));
    assert_eq!(scene.state().ticket(&ticket(7).id()).expect("issued").used, 1);
    // The same answer again, and no use more, though the ticket has expired by now.
    scene.now.0 += 1000;
    let again = scene.decide(&updated).expect("the same answer");
    assert!(!again.writes() && again.granted == Grant::Admitted(id(2)));
    assert_eq!(scene.yes(&announce(2)), Grant::Done);
    assert_eq!(scene.yes(&announce(2)), Grant::Already);
    assert_eq!(scene.standing(2), Standing::Member);
    assert_eq!(scene.no(&redeem(2, 7)), Denial::AlreadyMember);
}

/// Proves: S4 M8
#[test]
fn who_is_not_let_in_is_told_why_and_nothing_is_recorded() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.issue(10, 1, |_| {});
    scene.issue(11, 1, |it| it.machine = Some(machine_key(9)));
    scene.issue(12, 1, |it| it.node_name = Some(name("one")));
    scene.issue(13, 1, |_| {});
    scene.asks(Asks::RevokeTicket(ticket(13).id()));
    scene.issue(14, 1, |_| {});
    scene.yes(&redeem(4, 14));
    scene.issue(15, 1, |it| it.node_name = Some(name("two")));
    scene.yes(&redeem_as(5, 15, |body| body.node_name = Some(name("two"))));
    let before: Vec<_> = scene.etcd.pairs().collect();
    let denied = |request| scene.no(&request);
    assert_eq!(denied(redeem(3, 99)), Denial::UnknownTicket);
    assert_eq!(denied(redeem(3, 13)), Denial::TicketRevoked);
    assert_eq!(denied(redeem(3, 14)), Denial::TicketUsedUp(1));
    assert_eq!(denied(redeem(3, 11)), Denial::OtherMachine);
    assert_eq!(denied(redeem_as(3, 10, |it| it.owner = OwnerPubKey([9; 32]))), Denial::UnknownOwner);
    let level = Denial::LevelTooLow { found: Level::Insecure, least: Level::Encrypted };
    assert_eq!(denied(redeem_as(3, 10, |it| it.level = Level::Insecure)), level);
    let old = Denial::ReleaseTooOld { found: Release(1, 1, 9), least: Release(1, 2, 0) };
    assert_eq!(denied(redeem_as(3, 10, |it| it.release = Release(1, 1, 9))), old);
    assert_eq!(denied(redeem_as(3, 10, |it| it.disk = disk(2))), Denial::DiskSeen);
    assert_eq!(denied(redeem_as(3, 10, |it| it.vpn_key = vpn_key(2))), Denial::VpnKeySeen);
    let other = Denial::OtherName { ticket: name("one"), config: name("three") };
    assert_eq!(denied(redeem_as(3, 12, |it| it.node_name = Some(name("three")))), other);
    assert_eq!(denied(redeem_as(3, 10, |it| it.node_name = Some(name("two")))), Denial::NameTaken(name("two")));
    assert_eq!(denied(redeem(4, 10)), Denial::OtherTicket);
    assert_eq!(denied(redeem_as(4, 14, |it| it.disk = disk(3))), Denial::OtherAttempt);
    assert_eq!(denied(redeem_as(4, 14, |it| it.vpn_key = vpn_key(3))), Denial::OtherAttempt);
    assert_eq!(denied(redeem(2, 10)), Denial::AlreadyMember);
    assert_eq!(scene.etcd.pairs().collect::<Vec<_>>(), before);
    scene.now.0 += 100;
    assert_eq!(scene.no(&redeem(3, 10)), Denial::TicketExpired);
}

/// Proves: S4
#[test]
fn tickets_are_issued_by_owners_and_say_what_they_may() {
    let mut scene = Scene::new();
    let stranger = Request::Owner { by: OwnerPubKey([9; 32]), asks: Asks::IssueTicket(offer(7, 1)) };
    assert_eq!(scene.no(&stranger), Denial::UnknownOwner);
    let refused = |edit: fn(&mut Offer)| {
        let mut offer = offer(7, 1);
        edit(&mut offer);
        scene.refuses(Asks::IssueTicket(offer))
    };
    assert_eq!(refused(|it| it.uses = 0), Denial::TicketUses(0));
    assert_eq!(refused(|it| it.uses = 10_001), Denial::TicketUses(10_001));
    assert_eq!(refused(|it| it.not_after = BEGIN), Denial::TicketNeverHolds);
    assert_eq!(refused(|it| (it.uses, it.machine) = (2, Some(machine_key(2)))), Denial::TicketForOne);
    assert_eq!(refused(|it| (it.uses, it.node_name) = (2, Some(name("one")))), Denial::TicketForOne);
    let control_plane = |it: &mut Offer| it.kubernetes = [KubernetesRole::ControlPlane].into();
    assert_eq!(refused(control_plane), Denial::ControlPlaneOnNode);
    scene.issue(7, 1, |_| {});
    scene.issue(7, 1, |_| {}); // asked twice, done once
    assert_eq!(scene.state().tickets().count(), 1);
    assert_eq!(scene.refuses(Asks::IssueTicket(offer(7, 2))), Denial::TicketDiffers);
    assert_eq!(scene.refuses(Asks::RevokeTicket(ticket(8).id())), Denial::UnknownTicket);
    assert_eq!(scene.asks(Asks::RevokeTicket(ticket(7).id())), Grant::Done);
    assert_eq!(scene.asks(Asks::RevokeTicket(ticket(7).id())), Grant::Already);
}

/// Proves: M8
#[test]
fn addresses_go_round_and_their_end_is_said() {
    for (prefix, first) in [("10.118.0.0/16", "10.118.0.1"), ("10.0.0.0/24", "10.0.0.1")] {
        let scene = Scene::in_prefix(prefix.parse().expect("a prefix"));
        assert_eq!(scene.state().machine(&id(1)).expect("the first").vpn_ip.to_string(), first);
    }
    let mut scene = Scene::in_prefix("10.0.0.0/24".parse().expect("a prefix"));
    scene.issue(7, 300, |it| it.kubernetes = [].into());
    for n in 2..=254 {
        scene.yes(&redeem(n, 7));
    }
    assert_eq!(scene.state().machine(&id(254)).expect("the last").vpn_ip.to_string(), "10.0.0.254");
    assert_eq!(scene.no(&redeem(300, 7)), Denial::AddressesExhausted);
    scene.asks(Asks::Remove(id(9), Removal::Lost));
    scene.asks(Asks::Remove(id(5), Removal::Lost));
    for (n, address) in [(300, "10.0.0.5"), (301, "10.0.0.9")] {
        scene.yes(&redeem(n, 7));
        assert_eq!(scene.state().machine(&id(n)).expect("admitted").vpn_ip.to_string(), address);
    }
    scene.asks(Asks::Remove(id(300), Removal::Lost));
    scene.asks(Asks::Remove(id(20), Removal::Lost));
    scene.yes(&redeem(302, 7));
    let behind = scene.state().machine(&id(302)).expect("admitted").vpn_ip.to_string();
    assert_eq!(behind, "10.0.0.20", "what was released last comes last");
}

#[test]
fn there_are_pods_for_256_workers() {
    let mut scene = Scene::new();
    scene.issue(7, 300, |_| {});
    for n in 2..=256 {
        scene.yes(&redeem(n, 7));
    }
    assert_eq!(scene.no(&redeem(300, 7)), Denial::PodsExhausted);
    let worker = AnyRole::Kubernetes(KubernetesRole::Worker);
    scene.asks(Asks::RemoveRole(id(1), worker));
    scene.yes(&redeem(300, 7));
    let first = scene.state().machine(&id(300)).expect("admitted").pods.map(|pods| pods.to_string());
    assert_eq!(first.as_deref(), Some("10.244.0.0/24"), "the first come behind the last");
    scene.asks(Asks::Remove(id(300), Removal::Lost));
    scene.yes(&redeem(301, 7));
    assert_eq!(scene.state().machine(&id(301)).expect("admitted").pods.map(|pods| pods.to_string()), first);
    assert_eq!(scene.refuses(Asks::AddRole(id(1), worker)), Denial::PodsExhausted);
}

/// Proves: K7 K8 K9
#[test]
fn a_key_is_released_to_its_machine_for_its_disk_only() {
    let mut scene = Scene::new();
    scene.issue(2, 1, |_| {});
    scene.yes(&redeem(2, 2));
    let key = |generation| Grant::ClusterKey { machine: id(2), disk: disk(2), generation, next: None };
    let changes = scene.state().version();
    assert_eq!(scene.yes(&release(2, 2, 1, Level::Encrypted)), key(1), "Admitted");
    assert_eq!(scene.state().version(), changes, "a release changes nothing");
    scene.yes(&announce(2));
    assert_eq!(scene.no(&release(9, 9, 1, Level::Encrypted)), Denial::UnknownMachine);
    assert_eq!(scene.no(&release(2, 1, 1, Level::Encrypted)), Denial::OtherDisk);
    assert_eq!(scene.no(&release(2, 2, 2, Level::Encrypted)), Denial::UnknownGeneration(2));
    let low = Denial::LevelTooLow { found: Level::Insecure, least: Level::Encrypted };
    assert_eq!(scene.no(&release(2, 2, 1, Level::Insecure)), low);
    scene.asks(Asks::Drain(id(2)));
    assert_eq!(scene.yes(&release(2, 2, 1, Level::Authenticated)), key(1), "Draining");
    // Decided before it is removed, committed after: nothing is given.
    let late = scene.decide(&release(2, 2, 1, Level::Encrypted)).expect("not removed yet");
    scene.asks(Asks::Remove(id(2), Removal::Drained));
    assert_eq!(scene.etcd.commit(&late), Ok(Outcome::Differs { version: scene.etcd.revision() }));
    assert_eq!(scene.no(&release(2, 2, 1, Level::Encrypted)), Denial::MachineRemoved);
    assert_eq!(scene.no(&announce(2)), Denial::MachineRemoved);
    assert_eq!(scene.no(&redeem(2, 2)), Denial::MachineRemoved);
}

/// Proves: D13
#[test]
fn while_a_key_rotates_both_are_released_and_then_the_newer() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.join(3);
    let generations = |scene: &Scene, n| scene.state().machine(&id(n)).expect("known").generations;
    assert_eq!(scene.yes(&announces_key(2, 1)), Grant::Already);
    scene.asks(Asks::RotateKey(id(2)));
    let begun = scene.etcd.revision();
    scene.asks(Asks::RotateKey(id(2)));
    assert_eq!(scene.etcd.revision(), begun, "asked twice, it is begun once");
    for (generation, along) in [(1, Some(2)), (2, None)] {
        let granted = scene.yes(&release(2, 2, generation, Level::Encrypted));
        assert_eq!(granted, Grant::ClusterKey { machine: id(2), disk: disk(2), generation, next: along });
    }
    assert_eq!(scene.no(&release(2, 2, 3, Level::Encrypted)), Denial::UnknownGeneration(3));
    assert_eq!(scene.yes(&announces_key(2, 1)), Grant::Already, "it has not taken the next one yet");
    assert_eq!(generations(&scene, 2), Generations::Rotating(1));
    assert_eq!(scene.yes(&announces_key(3, 1)), Grant::Already);
    assert_eq!(generations(&scene, 2), Generations::Rotating(1), "nobody tells it of another machine");
    assert_eq!(scene.yes(&announces_key(2, 2)), Grant::Done);
    assert_eq!((generations(&scene, 2), generations(&scene, 3)), (Generations::One(2), Generations::One(1)));
    assert_eq!(scene.no(&release(2, 2, 1, Level::Encrypted)), Denial::UnknownGeneration(1), "the older one is dead");
    assert_eq!(scene.yes(&announces_key(2, 1)), Grant::Already, "and does not come back");
    scene.asks(Asks::RotateKey(id(2)));
    assert_eq!(generations(&scene, 2), Generations::Rotating(2));

    // The cluster went on with records of before the rotation; the machine had gone on.
    assert_eq!(scene.yes(&announces_key(3, 2)), Grant::Done);
    assert_eq!(generations(&scene, 3), Generations::One(2));
    // It cannot have gone on by more than one, and not to where no key is left.
    for generation in [4, u32::MAX] {
        assert_eq!(scene.yes(&announces_key(3, generation)), Grant::Already);
        assert_eq!(generations(&scene, 3), Generations::One(2), "it says {generation}");
    }
    assert_eq!(scene.refuses(Asks::RotateKey(id(9))), Denial::UnknownMachine);
}

/// Proves: D13
#[test]
fn a_disk_in_clear_has_no_key_to_rotate() {
    let mut creation = cast::creation(VPN_PREFIX);
    creation.cluster.policy.level = Level::Insecure;
    creation.machine.level = Level::Insecure;
    let scene = Scene::of(creation);
    assert_eq!(scene.refuses(Asks::RotateKey(id(1))), Denial::NothingLocked);
}

/// Proves: N6
#[test]
fn a_machine_keeps_all_that_is_its_own_whatever_its_role() {
    let mut scene = Scene::new();
    scene.join(2);
    let before = scene.state().machine(&id(2)).expect("known").clone();
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    let coordinates = scene.state().machine(&id(2)).expect("known").clone();
    assert_eq!(coordinates.role, ClusterRole::Coordinator);
    let was = |machine: MachineRecord| MachineRecord { role: before.role, times: before.times, ..machine };
    assert_eq!(was(coordinates), before, "disk, keys, address and name stay");
    scene.members.voters.insert(id(2), Voter::Live);
    scene.asks(Asks::RemoveRole(id(1), AnyRole::Coordinator));
    scene.members.voters.remove(&id(1));
    assert_eq!(scene.refuses(Asks::RemoveRole(id(2), AnyRole::Coordinator)), Denial::LastCoordinator);
    scene.asks(Asks::AddRole(id(1), AnyRole::Coordinator));
    scene.members.voters.insert(id(1), Voter::Live);
    scene.asks(Asks::RemoveRole(id(2), AnyRole::Coordinator));
    let again = scene.state().machine(&id(2)).expect("known").clone();
    assert_eq!((again.role, was(again)), (ClusterRole::Node, before.clone()), "a node again, and the same");
}

/// Peers see a machine change together with the version by which they ask, and the audit alone changes without.
///
/// Proves: M1
#[test]
fn what_peers_see_changes_with_the_version_in_one_transaction() {
    let mut scene = Scene::new();
    scene.issue(2, 1, |_| {});
    let of_2 = |scene: &Scene| scene.state().machine(&id(2)).map(Peer::of);
    let endpoints = vec![Endpoint::read("192.0.2.77:7838").expect("an endpoint")];
    let elsewhere = Request::Announce { machine: machine_key(2), release: RELEASE, endpoints, generation: 1 };
    let removed = Request::Owner { by: owner(1).key, asks: Asks::Remove(id(2), Removal::Lost) };
    for (request, changes) in [
        (redeem(2, 2), true),
        (announce(2), true),
        (release(2, 2, 1, Level::Encrypted), false),
        (elsewhere, true),
        (removed, true),
    ] {
        let (before, revision) = (of_2(&scene), scene.etcd.revision());
        scene.yes(&request);
        let (_, version) = scene.state().version().expect("there is a cluster");
        assert_eq!(version > revision, changes, "{request:?}");
        if !changes {
            assert_eq!(of_2(&scene), before, "{request:?}");
        }
    }
}

/// Proves: N6 S5
#[test]
fn coordinators_come_and_go_without_losing_quorum() {
    let mut scene = Scene::new();
    for n in 2..=8 {
        scene.join(n);
    }
    let control_plane = AnyRole::Kubernetes(KubernetesRole::ControlPlane);
    assert_eq!(scene.refuses(Asks::RemoveRole(id(1), AnyRole::Coordinator)), Denial::LastCoordinator);
    assert_eq!(scene.refuses(Asks::Remove(id(1), Removal::Lost)), Denial::LastCoordinator);
    assert_eq!(scene.refuses(Asks::AddRole(id(2), control_plane)), Denial::ControlPlaneOnNode);
    assert_eq!(scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator)), Grant::Done);
    assert_eq!(scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator)), Grant::Already);
    assert_eq!(scene.refuses(Asks::AddRole(id(2), control_plane)), Denial::ControlPlaneWithoutVote);
    assert_eq!(scene.refuses(Asks::RemoveRole(id(1), AnyRole::Coordinator)), Denial::SuccessorBehind);
    scene.asks(Asks::AddRole(id(3), AnyRole::Coordinator));
    scene.members.voters = (1..=3).map(|n| (id(n), if n == 3 { Voter::Silent } else { Voter::Live })).collect();
    assert_eq!(scene.refuses(Asks::RemoveRole(id(1), AnyRole::Coordinator)), Denial::WouldLoseQuorum);
    scene.asks(Asks::AddRole(id(2), control_plane));
    assert_eq!(scene.refuses(Asks::RemoveRole(id(2), AnyRole::Coordinator)), Denial::StillControlPlane);
    assert_eq!(scene.refuses(Asks::RemoveRole(id(2), control_plane)), Denial::LastControlPlane);
    scene.asks(Asks::AddRole(id(1), control_plane));
    assert_eq!(scene.asks(Asks::RemoveRole(id(1), control_plane)), Grant::Done, "the other has it still");
    scene.asks(Asks::Remove(id(3), Removal::Lost));
    assert_eq!(scene.standing(3), Standing::Removed);
    scene.members.voters.remove(&id(3));
    for n in 4..=8 {
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
    }
    scene.join(9);
    assert_eq!(scene.refuses(Asks::AddRole(id(9), AnyRole::Coordinator)), Denial::CoordinatorsExhausted);
    scene.asks(Asks::RemoveRole(id(1), AnyRole::Coordinator));
    assert_eq!(scene.refuses(Asks::AddRole(id(1), AnyRole::Coordinator)), Denial::StillLeaving);
}

/// Proves: K6
#[test]
fn a_recovered_cluster_has_one_coordinator_and_a_higher_number() {
    let mut scene = Scene::new();
    for n in 2..=4 {
        scene.join(n);
    }
    for n in 2..=3 {
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
        scene.members.voters.insert(id(n), Voter::Silent);
    }
    scene.asks(Asks::AddRole(id(2), AnyRole::Kubernetes(KubernetesRole::ControlPlane)));
    scene.issue(5, 1, |_| {});
    scene.yes(&redeem(5, 5));
    assert_eq!(scene.refuses(Asks::Recover(id(5))), Denial::NotMember);
    scene.asks(Asks::Remove(id(5), Removal::Lost));
    assert_eq!(scene.refuses(Asks::Recover(id(5))), Denial::MachineRemoved);
    assert_eq!(scene.refuses(Asks::Recover(id(9))), Denial::UnknownMachine);
    let stranger = Request::Owner { by: owner(2).key, asks: Asks::Recover(id(3)) };
    assert_eq!(scene.no(&stranger), Denial::UnknownOwner);
    let before = scene.state().state_version();
    let third = scene.state().machine(&id(3)).cloned();
    scene.now.0 += 60;
    assert_eq!(scene.asks(Asks::Recover(id(3))), Grant::Done);
    let state = scene.state();
    assert_eq!(state.machine(&id(3)), third.as_ref(), "it coordinates as before");
    assert_eq!(*state.coordinators(), [id(3)].into());
    let nobody_else = |(_, it): (_, &MachineRecord)| it.id() == id(5) || it.standing == Standing::Member;
    assert!(state.machines().all(nobody_else), "nobody is removed");
    assert!(state.machine(&id(2)).is_some_and(|second| !second.kubernetes.contains(&KubernetesRole::ControlPlane)));
    assert_eq!(state.state_version().recoveries, before.recoveries + 1);
    // Whoever knows the cluster as of before is told all anew; an etcd of before knows less than they do.
    assert!(matches!(state.news(Some(before)), News::Whole { .. }));
}

/// A coordinator that steps down keeps its vote until etcd has let go of it, and may be all that is left until then.
///
/// Proves: K6
#[test]
fn a_coordinator_to_step_down_that_votes_can_recover_a_cluster() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    scene.members.voters.insert(id(2), Voter::Live);
    scene.asks(Asks::Drain(id(2)));
    scene.asks(Asks::RemoveRole(id(2), AnyRole::Coordinator));
    scene.members.voters.insert(id(1), Voter::Silent);
    assert_eq!(scene.asks(Asks::Recover(id(2))), Grant::Done);
    assert_eq!((scene.state().coordinators().clone(), scene.standing(2)), ([id(2)].into(), Standing::Draining));
}

#[test]
fn who_leaves_is_drained_first_or_lost() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.issue(3, 1, |_| {});
    scene.yes(&redeem(3, 3));
    assert_eq!(scene.refuses(Asks::Remove(id(9), Removal::Lost)), Denial::UnknownMachine);
    assert_eq!(scene.refuses(Asks::Drain(id(3))), Denial::NotMember);
    assert_eq!(scene.asks(Asks::Remove(id(3), Removal::Drained)), Grant::Done, "Admitted, and never came");
    assert_eq!(scene.refuses(Asks::Remove(id(2), Removal::Drained)), Denial::NotDrained);
    scene.asks(Asks::AddRole(id(2), AnyRole::Coordinator));
    scene.members.voters.insert(id(2), Voter::Live);
    scene.asks(Asks::Drain(id(2)));
    assert_eq!(scene.asks(Asks::Drain(id(2))), Grant::Already);
    assert_eq!(scene.refuses(Asks::Remove(id(2), Removal::Drained)), Denial::StillCoordinator);
    assert_eq!(scene.refuses(Asks::AddRole(id(2), AnyRole::Coordinator)), Denial::MachineDraining);
    scene.asks(Asks::RemoveRole(id(2), AnyRole::Coordinator));
    assert_eq!(scene.refuses(Asks::Remove(id(2), Removal::Drained)), Denial::StillLeaving);
    scene.members.voters.remove(&id(2));
    assert_eq!(scene.asks(Asks::Remove(id(2), Removal::Drained)), Grant::Done);
    assert_eq!(scene.asks(Asks::Remove(id(2), Removal::Lost)), Grant::Already);
    let state = scene.state();
    let removed = state.machine(&id(2)).expect("it stays known");
    assert!(!state.has_address(removed.vpn_ip) && state.disk(&disk(2)) == Some(&id(2)));
    assert!(!state.has_pods(removed.pods.expect("a worker's")), "they are free, too");
}

#[test]
fn there_is_always_an_owner() {
    let mut scene = Scene::new();
    assert_eq!(scene.refuses(Asks::RemoveOwner(owner(1).key)), Denial::LastOwner);
    assert_eq!(scene.asks(Asks::AddOwner(owner(2))), Grant::Done);
    assert_eq!(scene.asks(Asks::AddOwner(owner(2))), Grant::Already);
    for n in 3..=16 {
        scene.asks(Asks::AddOwner(owner(n)));
    }
    assert_eq!(scene.refuses(Asks::AddOwner(owner(17))), Denial::OwnersExhausted);
    assert_eq!(scene.asks(Asks::RemoveOwner(owner(2).key)), Grant::Done);
    assert_eq!(scene.asks(Asks::RemoveOwner(owner(2).key)), Grant::Already);
    let by = owner(2).key;
    assert_eq!(scene.no(&Request::Owner { by, asks: Asks::AddOwner(owner(2)) }), Denial::UnknownOwner);
}

proptest! {
    /// Any two requests over the same state: when one is committed, the other is not, but if it writes nothing.
    /// Proves: S4
    #[test]
    fn of_two_decisions_over_one_state_one_is_committed(
        one in 0_usize..8, other in 0_usize..8,
    ) {
        let mut scene = Scene::new();
        scene.join(2);
        scene.issue(7, 1, |_| {});
        let owners = |asks| Request::Owner { by: owner(1).key, asks };
        let requests = [
            redeem(3, 7),
            redeem(4, 7),
            owners(Asks::RevokeTicket(ticket(7).id())),
            owners(Asks::Remove(id(2), Removal::Lost)),
            owners(Asks::AddRole(id(2), AnyRole::Coordinator)),
            owners(Asks::AddOwner(owner(2))),
            release(2, 2, 1, Level::Encrypted),
            announce(2),
        ];
        let decided = [one, other].map(|at| scene.decide(&requests[at]).expect("each is granted by itself"));
        let changes = decided.each_ref().map(|txn| txn.puts.iter().any(|(key, _)| *key == Key::Version));
        prop_assert!(matches!(scene.etcd.commit(&decided[0]), Ok(Outcome::Committed)));
        let second = scene.etcd.commit(&decided[1]).expect("there is a leader");
        prop_assert_eq!(matches!(second, Outcome::Committed), !changes[0]);
    }

    /// Changes that a watch tells, in whatever batches, make the state that a reader finds.
    #[test]
    fn a_state_kept_up_by_changes_is_the_state_read_anew(asks in prop::collection::vec(0_usize..9, 1..24)) {
        let mut scene = Scene::new();
        let mut kept = scene.state();
        let mut seen = scene.etcd.revision();
        for (ask, n) in asks.into_iter().zip(2_u16..) {
            let owners = |asks| Request::Owner { by: owner(1).key, asks };
            let request = match ask {
                0..=2 => owners(Asks::IssueTicket(offer(n, 2))),
                3 | 4 => redeem(n, n - 1),
                5 => announce(n - 1),
                6 => owners(Asks::Remove(id(n - 2), Removal::Lost)),
                7 => owners(Asks::AddRole(id(n - 2), AnyRole::Coordinator)),
                _ => owners(Asks::RemoveRole(id(n - 2), AnyRole::Kubernetes(KubernetesRole::Worker))),
            };
            if let Ok(txn) = scene.decide(&request) {
                scene.commits(&txn);
            }
            if ask % 2 == 0 {
                kept.apply(scene.etcd.watch(seen, scene.etcd.revision()).expect("nothing is compacted")).expect("ours");
                seen = scene.etcd.revision();
            }
        }
        kept.apply(scene.etcd.watch(seen, scene.etcd.revision()).expect("nothing is compacted")).expect("ours");
        let mut anew = State::read(scene.etcd.pairs()).expect("our own");
        for state in [&mut kept, &mut anew] {
            state.see(scene.members.clone(), scene.look());
        }
        prop_assert_eq!(kept.state_version(), anew.state_version());
        prop_assert_eq!(kept, anew);
    }
}
