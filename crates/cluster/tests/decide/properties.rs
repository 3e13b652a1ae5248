//! Properties that hold of every request, in whatever order requests come: any number of owners, machines and tickets that ask
//! for anything, while etcd's members come and go. A refusal is no transaction, so it changes nothing by its type.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use cluster::State;
use cluster::denial::Denial;
use cluster::desired::{Desired, EtcdPart};
use cluster::epochs::is_needed;
use cluster::key::Key;
use cluster::members::{Learner, Members, Voter};
use cluster::record::{MachineRecord, Release, UnixSeconds};
use cluster::request::{Asks, Removal, Request};
use cluster::role::AnyRole;
use cluster::txn::Grant;
use model::{ClusterRole, KubernetesRole, Level, MachineId, PublishId, VPN_PREFIX};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sim::cast::{self, BEGIN, RELEASE, disk, id, machine_key, owner, registry, ticket, user, vpn_key};
use sim::etcd::Etcd;

use super::{Scene, announces_key, name, offer, redeem_as, release};

/// An event in the cluster's life.
#[derive(Debug, Clone)]
enum Event {
    /// Somebody asks.
    Asked(Request),
    /// A word of etcd on a machine, if the records let it be so; none: the machine is no member.
    Seen(u16, Option<Result<Voter, Learner>>),
    /// Time goes by.
    Later(u64),
}

/// Effect of a granted request that is asked for again at once.
enum Again {
    /// The request is granted, and nothing is written that was not there.
    Same,
    /// The request is refused for this.
    Refused(Denial),
    /// The request is done once more.
    Anew,
}

/// Every request, as [`kind`] calls it.
const KINDS: [&str; 28] = [
    "Create",
    "IssueTicket",
    "RevokeTicket",
    "AddRole",
    "RemoveRole",
    "Drain",
    "Recover",
    "Remove",
    "RotateKey",
    "AddOwner",
    "RemoveOwner",
    "SetRegistry",
    "RemoveRegistry",
    "AddUser",
    "RemoveUser",
    "Publish",
    "Unpublish",
    "Restore",
    "Redeem",
    "Announce",
    "Observe",
    "Hold",
    "ReleaseKey",
    "BeginEpoch",
    "AcknowledgeEpoch",
    "AcknowledgeEpoch by the last",
    "AcknowledgeRestore",
    "EndRestore",
];

/// Proves: M8 N6
#[test]
fn whatever_is_asked_is_done_once_and_leaves_a_cluster_in_order() {
    let granted = RefCell::new(BTreeSet::new());
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    let lived =
        runner.run(&(prop::collection::vec(event(), 0..3), prop::collection::vec(event(), 20..100)), |(a, b)| {
            let create = Event::Asked(Request::Create(Box::new(cast::creation(VPN_PREFIX))));
            live(a.into_iter().chain([create]).chain(b), &mut granted.borrow_mut())
        });
    lived.unwrap_or_else(|failure| panic!("{failure}"));
    // A request that is always refused keeps every rule, too.
    assert_eq!(granted.into_inner(), KINDS.into());
}

fn live(events: impl Iterator<Item = Event>, granted: &mut BTreeSet<&'static str>) -> TestCaseResult {
    let members = Members { voters: [(id(1), Voter::Live)].into(), ..Members::default() };
    let mut scene = Scene { etcd: Etcd::of(id(1)), kept: State::default(), members, now: BEGIN };
    for event in events {
        match event {
            Event::Asked(request) => {
                let before = scene.state();
                if asked(&mut scene, &request)? {
                    granted.insert(kind(&request, &before, &scene.state()));
                }
            }
            Event::Seen(n, how) => seen(&mut scene, n, how),
            Event::Later(seconds) => scene.now.0 += seconds,
        }
    }
    Ok(())
}

/// Whether it is granted. The same is asked twice.
fn asked(scene: &mut Scene, request: &Request) -> Result<bool, TestCaseError> {
    let Ok(first) = scene.decide(request) else { return Ok(false) };
    step(scene, &first)?;
    let recorded = records(scene);
    match (scene.decide(request), again(request)) {
        (Ok(second), Again::Same) => {
            let granted = if first.granted == Grant::Done { Grant::Already } else { first.granted };
            prop_assert_eq!(second.granted, granted, "{:?}", request);
            step(scene, &second)?;
            prop_assert_eq!(records(scene), recorded, "{:?}", request);
        }
        (Ok(second), Again::Anew) => step(scene, &second)?,
        (Err(denied), Again::Refused(reason)) => prop_assert_eq!(denied, reason),
        (Ok(_), Again::Refused(_)) | (Err(_), Again::Same | Again::Anew) => {
            prop_assert!(false, "another answer for the second time: {:?}", request);
        }
    }
    Ok(true)
}

/// Commits, and sees what of it holds: one change more if anything but the audit was written, and a cluster in order.
fn step(scene: &mut Scene, txn: &cluster::txn::Txn) -> TestCaseResult {
    let changes = |scene: &Scene| scene.state().version().map_or(0, |(changes, _)| changes.0);
    let (before, of_before) = (changes(scene), besides_audit(scene));
    scene.commits(txn);
    let written = u64::from(besides_audit(scene) != of_before);
    prop_assert_eq!(changes(scene), before + written, "{:?}", txn);
    in_order(&scene.state())
}

fn in_order(state: &State) -> TestCaseResult {
    let belonging = || state.machines().map(|(_, machine)| machine).filter(|machine| machine.belongs());
    nobody_shares("address", belonging().map(|it| it.vpn_ip))?;
    nobody_shares("pods", belonging().filter_map(|it| it.pods).map(|pods| pods.to_string()))?;
    nobody_shares("name", belonging().map(|it| it.name.as_str()))?;
    nobody_shares("VPN key", belonging().map(|it| it.vpn_key.0))?;
    nobody_shares("disk", belonging().map(|it| it.disk.0.0))?;
    prop_assert!(belonging().any(MachineRecord::coordinates), "nobody coordinates");
    state.machines().try_for_each(|(id, machine)| is_desired(state, id, machine))
}

/// Judges what the cluster wants of a machine: nothing of one that does not belong; a node is none that etcd has, or whose
/// share is needed.
fn is_desired(state: &State, id: &MachineId, machine: &MachineRecord) -> TestCaseResult {
    let desired = match state.desired(id) {
        Ok(desired) => desired,
        Err(why) => {
            prop_assert!(!machine.belongs(), "nothing is said of {}: {}", id, why);
            return Ok(());
        }
    };
    prop_assert!(machine.belongs(), "{} was removed", id);
    prop_assert_eq!(Desired::decode(&desired.encode()), Ok(desired.clone()));
    prop_assert!(desired.coordinators.keys().eq(state.coordinators()) && desired.at == Some(state.state_version()));
    let (is_needed, of_etcd) = (is_needed(state, id), state.members().has(id));
    let coordinates = desired.assignment.role() == ClusterRole::Coordinator;
    prop_assert_eq!(coordinates, machine.coordinates() || is_needed || of_etcd);
    prop_assert_eq!(of_etcd, desired.etcd != EtcdPart::Out);
    let is_control_plane = desired.assignment.kubernetes().contains(&KubernetesRole::ControlPlane);
    prop_assert!(!is_control_plane || state.restore().is_none(), "{} runs one during a restore", id);
    if let EtcdPart::Learner { members } = &desired.etcd {
        prop_assert!(members.iter().any(|(_, vpn_ip)| *vpn_ip == machine.vpn_ip), "itself, too");
    }
    Ok(())
}

fn nobody_shares<T: Ord + Clone + Debug>(what: &str, values: impl Iterator<Item = T>) -> TestCaseResult {
    let mut known = BTreeSet::new();
    for value in values {
        prop_assert!(known.insert(value.clone()), "two have the {} {:?}", what, value);
    }
    Ok(())
}

/// All that etcd has.
fn records(scene: &Scene) -> BTreeMap<Vec<u8>, Vec<u8>> {
    scene.etcd.pairs().map(|pair| (pair.key, pair.value)).collect()
}

fn besides_audit(scene: &Scene) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = records(scene);
    records.retain(|key, _| !matches!(Key::read(key), Ok(Key::Audit(_))));
    records
}

fn again(request: &Request) -> Again {
    match request {
        Request::Create(_) => Again::Refused(Denial::ClusterExists),
        Request::Owner { asks: Asks::RemoveOwner(key), by } if key == by => Again::Refused(Denial::UnknownOwner),
        // Those that go on without the cluster are to see a higher number, each time.
        Request::Owner { asks: Asks::Recover(_), .. } => Again::Anew,
        Request::Owner {
            asks:
                Asks::IssueTicket(_)
                | Asks::RevokeTicket(_)
                | Asks::AddRole(..)
                | Asks::RemoveRole(..)
                | Asks::Drain(_)
                | Asks::Remove(..)
                | Asks::RotateKey(_)
                | Asks::AddOwner(_)
                | Asks::RemoveOwner(_)
                | Asks::SetRegistry(_)
                | Asks::RemoveRegistry(_)
                | Asks::AddUser(_)
                | Asks::RemoveUser(_)
                | Asks::Publish(_)
                | Asks::Unpublish(_)
                | Asks::Restore(..),
            ..
        }
        | Request::Redeem(_)
        | Request::Announce { .. }
        | Request::Observe { .. }
        | Request::Hold { .. }
        | Request::ReleaseKey { .. }
        | Request::BeginEpoch
        | Request::AcknowledgeEpoch { .. }
        | Request::AcknowledgeRestore { .. }
        | Request::EndRestore { .. } => Again::Same,
    }
}

fn kind(request: &Request, before: &State, after: &State) -> &'static str {
    let current = |state: &State| state.cold_start().current.clone();
    match request {
        Request::Create(_) => "Create",
        Request::Owner { asks, .. } => match asks {
            Asks::IssueTicket(_) => "IssueTicket",
            Asks::RevokeTicket(_) => "RevokeTicket",
            Asks::AddRole(..) => "AddRole",
            Asks::RemoveRole(..) => "RemoveRole",
            Asks::Drain(_) => "Drain",
            Asks::Recover(_) => "Recover",
            Asks::Remove(..) => "Remove",
            Asks::RotateKey(_) => "RotateKey",
            Asks::AddOwner(_) => "AddOwner",
            Asks::RemoveOwner(_) => "RemoveOwner",
            Asks::SetRegistry(_) => "SetRegistry",
            Asks::RemoveRegistry(_) => "RemoveRegistry",
            Asks::AddUser(_) => "AddUser",
            Asks::RemoveUser(_) => "RemoveUser",
            Asks::Publish(_) => "Publish",
            Asks::Unpublish(_) => "Unpublish",
            Asks::Restore(..) => "Restore",
        },
        Request::Redeem(_) => "Redeem",
        Request::Announce { .. } => "Announce",
        Request::Observe { .. } => "Observe",
        Request::Hold { .. } => "Hold",
        Request::ReleaseKey { .. } => "ReleaseKey",
        Request::BeginEpoch => "BeginEpoch",
        Request::AcknowledgeEpoch { .. } if current(before) != current(after) => "AcknowledgeEpoch by the last",
        Request::AcknowledgeEpoch { .. } => "AcknowledgeEpoch",
        Request::AcknowledgeRestore { .. } => "AcknowledgeRestore",
        Request::EndRestore { .. } => "EndRestore",
    }
}

/// Etcd takes in only who coordinates, and lets go only of who does not.
fn seen(scene: &mut Scene, n: u16, how: Option<Result<Voter, Learner>>) {
    if scene.state().machine(&id(n)).is_some_and(MachineRecord::coordinates) != how.is_some() {
        return;
    }
    scene.members.voters.remove(&id(n));
    scene.members.learners.remove(&id(n));
    match how {
        Some(Ok(voter)) => _ = scene.members.voters.insert(id(n), voter),
        Some(Err(learner)) => _ = scene.members.learners.insert(id(n), learner),
        None => {}
    }
}

fn event() -> impl Strategy<Value = Event> {
    let how = prop::option::weighted(
        0.7,
        prop::sample::select(vec![
            Ok(Voter::Live),
            Ok(Voter::Live),
            Ok(Voter::Silent),
            Err(Learner::Ready),
            Err(Learner::Behind),
        ]),
    );
    prop_oneof![
        20 => request().prop_map(Event::Asked),
        4 => (machine(), how).prop_map(|(n, how)| Event::Seen(n, how)),
        1 => (1..40_u64).prop_map(Event::Later),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let by = prop_oneof![8 => Just(1), 1 => Just(2), 1 => Just(3)];
    let reported = prop::collection::vec((1..4_usize).prop_map(cast::endpoint), 0..2);
    let level = prop_oneof![4 => Just(Level::Encrypted), 1 => Just(Level::Insecure)];
    prop_oneof![
        1 => Just(Request::Create(Box::new(cast::creation(VPN_PREFIX)))),
        20 => (by, asks()).prop_map(|(by, asks)| Request::Owner { by: owner(by).key, asks }),
        10 => redeem(),
        8 => (machine(), reported, 1..4_u32).prop_map(|(n, endpoints, generation)| {
            Request::Announce { machine: machine_key(n), release: RELEASE, endpoints, generation }
        }),
        3 => (machine(), (1..9_usize).prop_map(cast::endpoint)).prop_map(|(n, endpoint)| {
            Request::Observe { machine: id(n), endpoint }
        }),
        3 => (machine(), 1..3_u8).prop_map(|(n, last)| Request::Hold { address: cast::floating(last), machine: id(n) }),
        1 => (machine(), 1..4_u32).prop_map(|(n, generation)| announces_key(n, generation)),
        4 => (machine(), other(), 1..4_u32, level).prop_map(|(n, of, generation, level)| {
            release(n, of.unwrap_or(n), generation, level)
        }),
        3 => Just(Request::BeginEpoch),
        6 => (machine(), 1..6_u32).prop_map(|(n, number)| Request::AcknowledgeEpoch { machine: machine_key(n), number }),
        2 => machine().prop_map(|n| Request::AcknowledgeRestore { machine: machine_key(n) }),
        2 => machine().prop_map(|n| Request::EndRestore { machine: machine_key(n), hash: [7; 32] }),
    ]
}

fn asks() -> impl Strategy<Value = Asks> {
    let role = || {
        prop::sample::select(vec![
            AnyRole::Coordinator,
            AnyRole::Kubernetes(KubernetesRole::ControlPlane),
            AnyRole::Kubernetes(KubernetesRole::Worker),
        ])
    };
    let leaving = prop::sample::select(vec![Removal::Drained, Removal::Lost]);
    prop_oneof![
        10 => issue(),
        1 => tickets().prop_map(|n| Asks::RevokeTicket(ticket(n).id())),
        6 => (machine(), role()).prop_map(|(n, role)| Asks::AddRole(id(n), role)),
        4 => (machine(), role()).prop_map(|(n, role)| Asks::RemoveRole(id(n), role)),
        2 => machine().prop_map(|n| Asks::Drain(id(n))),
        1 => machine().prop_map(|n| Asks::Recover(id(n))),
        3 => (machine(), leaving).prop_map(|(n, leaving)| Asks::Remove(id(n), leaving)),
        2 => machine().prop_map(|n| Asks::RotateKey(id(n))),
        2 => (1..4_u8).prop_map(|n| Asks::AddOwner(owner(n))),
        1 => (1..4_u8).prop_map(|n| Asks::RemoveOwner(owner(n).key)),
        2 => (1..4_u8, 1..4_u8).prop_map(|(n, mirrors)| Asks::SetRegistry(registry(n, mirrors).into())),
        1 => (1..4_u8).prop_map(|n| Asks::RemoveRegistry(registry(n, 1).host())),
        2 => (1..4_u8, 1..4_u8).prop_map(|(n, key)| Asks::AddUser(user(n, key))),
        1 => (1..4_u8).prop_map(|n| Asks::RemoveUser(user(n, 1).name)),
        2 => (1..4_u16, machine()).prop_map(|(n, on)| Asks::Publish(cast::published(n, on).into())),
        2 => (1..4_u16, 1..3_u8).prop_map(|(n, last)| {
            Asks::Publish(cast::published_at(n, cast::floating(last)).into())
        }),
        1 => (1..20_u64).prop_map(|id| Asks::Unpublish(PublishId(id))),
        2 => machine().prop_map(|n| Asks::Restore(id(n), [7; 32])),
    ]
}

fn issue() -> impl Strategy<Value = Asks> {
    let role = prop_oneof![4 => Just(ClusterRole::Node), 1 => Just(ClusterRole::Coordinator)];
    let pinned = prop::option::weighted(0.1, machine());
    (tickets(), 1..4_u32, 1..200_u64, role, pinned, named()).prop_map(|(n, uses, lasts, role, machine, node_name)| {
        let mut offer = offer(n, uses);
        offer.not_after = UnixSeconds(BEGIN.0 + lasts);
        (offer.role, offer.node_name, offer.machine) = (role, node_name, machine.map(machine_key));
        Asks::IssueTicket(offer)
    })
}

fn redeem() -> impl Strategy<Value = Request> {
    let release = prop_oneof![4 => Just(RELEASE), 1 => Just(Release(1, 3, 0))];
    (machine(), tickets(), other(), other(), named(), release).prop_map(
        |(n, by, of_disk, of_key, node_name, release)| {
            redeem_as(n, by, |body| {
                body.disk = disk(of_disk.unwrap_or(n));
                body.vpn_key = vpn_key(of_key.unwrap_or(n));
                (body.node_name, body.release) = (node_name, release);
            })
        },
    )
}

fn machine() -> impl Strategy<Value = u16> {
    1..6_u16
}

/// Now and then what is another's.
fn other() -> impl Strategy<Value = Option<u16>> {
    prop::option::weighted(0.05, machine())
}

fn tickets() -> impl Strategy<Value = u16> {
    1..5_u16
}

fn named() -> impl Strategy<Value = Option<model::NodeName>> {
    prop::option::weighted(0.2, prop::sample::select(vec!["one", "two"]).prop_map(name))
}
