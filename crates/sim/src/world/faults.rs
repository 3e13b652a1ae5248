//! Laws that a world itself judges: each is set off by a fault in a world that keeps it without.

use std::collections::{BTreeMap, BTreeSet};

use cluster::decision::Proposal;
use cluster::denial::Denial;
use cluster::desired::{Desired, EtcdPart};
use cluster::key::Key;
use cluster::members::{Look, MemberStep};
use cluster::peers::{News, PeerBook};
use cluster::record::ChangeCount;
use cluster::request::Removal;
use cluster::role::AnyRole;
use cluster::state::{State, StateVersion};

use super::end::LAW as END;
use super::kubernetes::Certificates;
use super::machine::Note;
use super::parts::Hear;
use super::recovery::LAW as RECOVERY;
use super::waves::PLAN;
use super::*;
use crate::etcd::EtcdRefusal;
use crate::laws::life::{self as law, Voices};
use member::{Effect, EffectOutcome, Event as Hears, KeptFile, RoleFacts};
use model::{Assignment, ClusterRole, KubernetesRole, MachineId};

/// A cluster of four members that have heard of each other.
fn world() -> World {
    let plan = WorldPlan { machines: 3, members: 3, tickets: 1, ..WorldPlan::SMALL };
    let mut world = World::new(1, plan);
    world.founds(VPN_PREFIX).expect("the first machine");
    world.begin_with_members().expect("all laws are kept");
    world.reads(1).expect("its etcd leads");
    world.now = 100_000;
    world.converges().expect("they hear");
    world
}

fn two(world: &mut World) -> &mut Machine {
    world.machines.get_mut(&2).expect("the second one")
}

fn broken(result: Result<(), Breach>) -> &'static str {
    result.expect_err("the fault is noticed").law
}

/// Proves: M3
#[test]
fn whoever_does_not_hear_in_time_or_not_at_all_breaks_a_law() {
    let mut world = world();
    world.attends(2, cast::id(1), None);
    two(&mut world).living.as_mut().expect("it lives").stream.as_mut().expect("it listens").since = 0;
    world.is_up_to_date(2).expect("it has heard");
    let known = std::mem::take(&mut two(&mut world).known);
    let law = "every live machine converges to the store's peers within two intervals of reachability";
    assert_eq!(broken(world.is_up_to_date(2)), law);
    let now = world.now;
    two(&mut world).reached_since = now;
    world.is_up_to_date(2).expect("nobody reached it until now");
    // It takes what it knows for all that there is.
    let version = known.version().expect("it has heard");
    two(&mut world).known = PeerBook::of_answer(version, vec![]);
    assert_eq!(broken(world.converges()), "every live machine converges to the store's peers");
    two(&mut world).known = known;
    world.converges().expect("it knows all");
}

/// Proves: D13 K6
#[test]
fn a_key_of_a_disk_that_nobody_gives_breaks_a_law() {
    let mut world = world();
    let asks = |generation| Request::ReleaseKey {
        machine: cast::machine_key(2),
        disk: cast::disk(2),
        generation,
        level: Level::Encrypted,
    };
    let mut refused =
        |generation| world.refused(Who::Machine(2), &asks(generation), &Denial::UnknownGeneration(generation));
    refused(2).expect("its disk is locked with another one");
    assert_eq!(broken(refused(1)), "the cluster gives the key that a member's disk is locked with");
    world.comes_back().expect("all open");
    two(&mut world).locked_with = 7;
    assert_eq!(broken(world.comes_back()), "after a total power-off every member gets its key again");
    two(&mut world).locked_with = 1;
    world.comes_back().expect("all open");
    world.esps = Esps::new(cast::CLUSTER);
    assert_eq!(broken(world.comes_back()), crate::esp::LAW);
}

type Fault = fn(&mut Parts);

/// Each law that a world asks for while it lives, and the fault of a part that breaks it.
const FAULTS: &[(&str, Fault)] = &[
    ("decide never panics", |parts| parts.decide = |_, _, _| panic!("the fault")),
    ("the cluster gives the key that a member's disk is locked with", |parts| {
        parts.decide = |decision, state, now| {
            let Request::ReleaseKey { machine, disk, level, .. } = *decision.request() else {
                return decision.propose(state, now);
            };
            let generation = u32::MAX; // nobody's
            Decision::new(Request::ReleaseKey { machine, disk, generation, level }).propose(state, now)
        };
    }),
    ("a refusal changes nothing but the audit", |parts| {
        parts.commit = |etcd, txn| {
            let mut more = txn.clone();
            if !txn.puts.iter().any(|(key, _)| *key == Key::Version) {
                let ChangeCount(before) = seen(etcd).state().version().map_or(ChangeCount(0), |(changes, _)| changes);
                more.puts.push((Key::Version, ChangeCount(before + 1).encode()));
            }
            etcd.commit(&more)
        };
    }),
    ("every change writes the version", |parts| {
        parts.commit = |etcd, txn| {
            let mut less = txn.clone();
            less.puts.retain(|(key, _)| *key != Key::Version);
            etcd.commit(&less)
        };
    }),
    ("a watch tells what a transaction was refused for", |parts| {
        parts.watch = |etcd, after, until| etcd.watch(after, until.saturating_sub(1));
    }),
    ("no change of members begins that etcd refuses", |parts| parts.change = |_, _| Err(EtcdRefusal::Unhealthy)),
    ("membership change never loses quorum", |parts| {
        parts.change = |etcd, step| {
            etcd.change(step)?;
            etcd.members().voters.into_keys().for_each(|voter| etcd.set_up(voter, false));
            Ok(())
        };
    }),
    ("whoever votes holds a share of the epoch that stands", |parts| {
        parts.change = |etcd, step| {
            etcd.change(step)?;
            let MemberStep::Add(id) = step else { return Ok(()) };
            etcd.set_up(id, true);
            etcd.catch_up();
            etcd.change(MemberStep::Promote(id))
        };
    }),
    ("nobody forgets who the others are", |parts| {
        parts.hear = |known, news| {
            if known.version().is_none() {
                return known.take(news);
            }
            *known = PeerBook::default();
            BTreeMap::new()
        };
    }),
    ("every live machine converges to the store's peers within two intervals of reachability", |parts| {
        parts.hear = |_, _| BTreeMap::new();
    }),
    ("every live machine converges to the store's peers", |parts| parts.hear = HEARS_THE_VERSION),
    (crate::esp::LAW, |parts| {
        parts.hold =
            |esps, id, holding| esps.write(id, &ShareOrder { generations: Generations::One(9), ..holding.clone() });
    }),
    (law::SHARE, |parts| parts.hold = |_, _, _| ()),
    (law::NEEDED, |parts| {
        parts.find = |facts, unread| Some(RoleFacts { begun: facts.begun && !unread, ..facts });
    }),
];

/// Takes the version, and nobody.
const HEARS_THE_VERSION: Hear = |known, news| {
    if let Some(version) = news.version().filter(|version| known.version() < Some(*version)) {
        *known = PeerBook::of_answer(version, vec![]);
    }
    BTreeMap::new()
};

/// Proves: M3
#[test]
fn each_part_that_is_at_fault_breaks_its_law() {
    World::new(1, WorldPlan::SMALL).live().expect("all parts are sound");
    for (law, breaks) in FAULTS {
        // A fault may break another law first, where its world ends before its own is asked for.
        let mut laws = (1..30).map(|seed| {
            let mut world = World::new(seed, WorldPlan::SMALL);
            breaks(&mut world.parts);
            world.live().err().map(|broken| broken.law)
        });
        assert!(laws.any(|broken| broken == Some(law)), "no world breaks it: {law}");
    }
}

#[test]
fn a_key_that_is_given_over_what_was_seen_before_breaks_a_law() {
    let (mut world, first) = (world(), cast::id(1));
    let (machine, disk, level) = (cast::machine_key(2), cast::disk(2), Level::Encrypted);
    let decision = Decision::new(Request::ReleaseKey { machine, disk, generation: 1, level });
    let proposal = decision.propose(world.coordinators[&first].view.state(), cast::BEGIN);
    let asks = Asks::Remove(cast::id(2), Removal::Lost);
    world.at_once(Request::Owner { by: cast::owner(1).key, asks }).expect("it is removed");
    let commits = |world: &mut World| {
        // Some transactions do not reach etcd.
        (0..9).try_for_each(|_| world.commit(Who::Machine(2), decision.clone(), first, proposal.clone()))
    };
    commits(&mut world).expect("etcd tells that it is old");
    world.parts.commit = |_, _| Ok(Outcome::Committed);
    assert_eq!(broken(commits(&mut world)), "no key release to who is removed, none for another's disk");
}

/// A coordinator has looked before etcd added the second machine, whose etcd has begun since, and sees that it is to be a node.
///
/// Proves: S14
#[test]
fn a_node_by_an_old_look_at_members_breaks_a_law() {
    let mut world = world();
    let (first, second) = (cast::id(1), cast::id(2));
    let of_role = |asks| Request::Owner { by: cast::owner(1).key, asks };
    world.at_once(of_role(Asks::AddRole(second, AnyRole::Coordinator))).expect("it is promoted");
    let (members, look) = (world.etcd.members(), world.etcd.look());
    world.etcd.change(MemberStep::Add(second)).expect("etcd adds it");
    two(&mut world).disk.etcd = world.etcd.added(&second);
    world.at_once(of_role(Asks::RemoveRole(second, AnyRole::Coordinator))).expect("it is demoted");
    world.reads(1).expect("its etcd leads");
    world.coordinators.get_mut(&first).expect("it was read").view.see(members.clone(), look);
    let tells = |world: &mut World| {
        world.attends(2, first, None);
        let number = two(world).living.as_ref().and_then(|living| living.stream.as_ref()).expect("it listens").number;
        world.tells(2, number, Tells::Alive)
    };
    tells(&mut world).expect("nothing is told of what became of it");
    let later = Look { revision: world.etcd.revision(), ..look };
    world.coordinators.get_mut(&first).expect("it was read").view.see(members, later);
    assert_eq!(broken(tells(&mut world)), law::LOOK);
}

/// Proves: S14
#[test]
fn keys_that_a_coordinator_without_a_leader_gives_break_a_law() {
    let mut world = world();
    let (first, second) = (cast::id(1), cast::id(2));
    let asks = Asks::AddRole(second, AnyRole::Coordinator);
    world.at_once(Request::Owner { by: cast::owner(1).key, asks }).expect("it is promoted");
    world.etcd.change(MemberStep::Add(second)).expect("etcd adds it");
    world.reads(1).expect("its etcd leads");
    let (members, look) = (world.etcd.members(), world.etcd.look());
    world.coordinators.get_mut(&first).expect("it was read").view.see(members, look);
    assert_eq!(world.takes_keys(2, first), Ok(Ok(EffectOutcome::Whole)));
    world.machines.get_mut(&1).and_then(|it| it.running.as_mut()).expect("it runs").led = false;
    assert_eq!(world.takes_keys(2, first), Ok(Err(String::from("etcd has no leader"))));
    world.parts.hand_over = |_, state, id| state.hands_over_to(id).map_err(|why| why.to_string());
    assert_eq!(broken(world.takes_keys(2, first).map(drop)), law::GIVEN);
}

/// Proves: W3 W7
#[test]
fn certificates_of_who_is_no_worker_break_a_law() {
    let mut world = world();
    let (first, second) = (cast::id(1), cast::id(2));
    world.reads(1).expect("its etcd leads");
    assert_eq!(world.certifies(2, first), Ok(Err(String::from("it is no worker"))));
    let asks = Asks::AddRole(second, AnyRole::Kubernetes(KubernetesRole::Worker));
    world.at_once(Request::Owner { by: cast::owner(1).key, asks }).expect("it is one");
    assert_eq!(world.certifies(2, first), Ok(Ok(())), "the coordinator catches up");
    world.parts.certify = |_, _, _| Ok(());
    let asks = Asks::RemoveRole(second, AnyRole::Kubernetes(KubernetesRole::Worker));
    world.at_once(Request::Owner { by: cast::owner(1).key, asks }).expect("it is none");
    assert_eq!(broken(world.certifies(2, first).map(drop)), law::CERTIFIED);
    world.machines.get_mut(&1).and_then(|it| it.running.as_mut()).expect("it runs").led = false;
    assert_eq!(broken(world.certifies(2, first).map(drop)), law::GIVEN);
}

/// Proves: K6
#[test]
fn a_recovery_that_is_not_written_or_of_another_breaks_a_law() {
    let recovers = |decide: fn(&Decision, &State, UnixSeconds) -> Proposal| {
        let mut world = world();
        world.machines.get_mut(&1).expect("the first one").disk.note =
            Some(Note { boot: 0, recoveries: 0, begun: true });
        world.parts.decide = decide;
        world.commits_recovery(1).map(|_| world.laws.recoveries())
    };
    assert_eq!(recovers(Decision::propose), Ok(1));
    let unwritten = |_: &Decision, state: &State, now| owner_asks(Asks::Drain(cast::id(3)), state, now);
    let of_another = |_: &Decision, state: &State, now| owner_asks(Asks::Recover(cast::id(2)), state, now);
    for fault in [unwritten, of_another] {
        assert_eq!(broken(recovers(fault).map(drop)), RECOVERY);
    }
}

/// Proves: S14 Q1 Q9
#[test]
fn a_machine_that_ends_as_no_record_says_breaks_a_law() {
    let plan = WorldPlan { machines: 3, members: 3, tickets: 0, lasts: 5000, events: u64::MAX };
    World::new(1, plan).live().expect("all come to be so");
    let mut world = World::new(1, plan);
    world.parts.desire = |state, id| state.desired(id).map(|desired| Desired { owners: vec![], ..desired });
    assert_eq!(broken(world.live()), END);
    let mut world = World::new(1, plan);
    world.live().expect("all come to be so");
    let first = world.machines.get_mut(&1).expect("the first one");
    assert_eq!(std::mem::replace(&mut first.kubernetes.certificates, Certificates::Due), Certificates::Fresh);
    assert_eq!(broken(world.is_settled()), END);
    world.machines.get_mut(&1).expect("the first one").kubernetes.certificates = Certificates::Fresh;
    world.is_settled().expect("they are renewed");
    world.esps.erase(cast::id(1));
    assert_eq!(broken(world.is_settled()), END);
}

/// A world whose second machine is a coordinator that votes, beside the first, the third and the fourth, and its desired state.
fn coordinator() -> (World, Desired) {
    let mut world = world();
    world.calm = true;
    let electorate: BTreeSet<_> = [1, 3, 4].map(cast::id).into();
    let machine = two(&mut world);
    let node = machine.disk.desired.clone().expect("it is a member");
    let known = node.coordinators.values().next().expect("the first one").clone();
    let assignment = &node.assignment;
    let desired = Desired {
        assignment: Assignment::new(assignment.vpn_ip(), ClusterRole::Coordinator, [].into(), None).expect("they fit"),
        coordinators: electorate.iter().map(|id| (*id, known.clone())).collect(),
        etcd: EtcdPart::Voter,
        look: Some(Look { revision: 1, applied: 1 }),
        ..node
    };
    let boot = machine.boot;
    machine.living = None;
    machine.disk.desired = Some(desired.clone());
    (machine.disk.keys, machine.disk.etcd, machine.disk.electorate) = (true, Some(7), Some(electorate));
    world.begins(2, boot).expect("it lives");
    (world, desired)
}

/// Has the coordinator that the second machine listens to, or does next, tell it this.
fn is_told(world: &mut World, desired: &Desired) -> Result<(), Breach> {
    let number = loop {
        world.now += 1000;
        world.lives(2, Hears::Tick).expect("time passes");
        let stream = two(world).living.as_ref().and_then(|living| living.stream.as_ref());
        if let Some(stream) = stream {
            break stream.number;
        }
    };
    world.told(2, number, Word::Desired(Box::new(desired.clone())))
}

fn said(world: &World) -> Voices {
    world.machines[&2].voices()
}

fn later(by: u64, desired: &Desired) -> Desired {
    let at = desired.at.map(|at| StateVersion { revision: at.revision + by, ..at });
    Desired { at, ..desired.clone() }
}

/// Words that are written count from when they were said. Proves: S14
#[test]
fn a_voice_counts_until_a_later_word_is_taken() {
    let (mut world, desired) = coordinator();
    let node = Desired { etcd: EtcdPart::Out, ..later(10, &desired).as_node() };
    is_told(&mut world, &later(5, &desired)).expect("it is one");
    is_told(&mut world, &node).expect("a voice");
    assert_eq!(said(&world), Voices::Others { said: 1, of: 3 });
    let earlier = Effect::Keep(KeptFile::Desired(Box::new(later(5, &desired))));
    let number = two(&mut world).living.as_ref().expect("it lives").number;
    world.performs(2, (number, 0), earlier).expect("it is written");
    assert_eq!(said(&world), Voices::Others { said: 1, of: 3 }, "it was said before");
    two(&mut world).heard.nodes.clear();
    assert_eq!(broken(is_told(&mut world, &node)), law::VOICE);

    let (mut world, desired) = coordinator();
    is_told(&mut world, &node).expect("a voice");
    let news = News::Whole { version: later(20, &desired).at.expect("one"), peers: BTreeMap::new() };
    world.lives(2, Hears::Told { by: attended(&world), word: Word::News(news) }).expect("it is taken");
    is_told(&mut world, &later(15, &desired)).expect("it is refused");
    assert_eq!(said(&world), Voices::Others { said: 1, of: 3 });
    is_told(&mut world, &later(20, &desired)).expect("it is taken");
    assert_eq!(said(&world), Voices::Others { said: 0, of: 3 });
    is_told(&mut world, &later(30, &node)).expect("a voice");
    is_told(&mut world, &later(30, &node)).expect("a voice");
    assert_eq!(said(&world), Voices::Others { said: 2, of: 3 });
    let boot = two(&mut world).boot;
    two(&mut world).living = None;
    world.begins(2, boot).expect("it lives");
    assert_eq!(said(&world), Voices::Others { said: 0, of: 3 }, "a life that begins has heard nothing");
}

fn attended(world: &World) -> MachineId {
    world.machines[&2].living.as_ref().and_then(|living| living.life.attended()).expect("it listens")
}

fn owner_asks(asks: Asks, state: &State, now: UnixSeconds) -> Proposal {
    Decision::new(Request::Owner { by: cast::owner(1).key, asks }).propose(state, now)
}

/// Proves: N4
#[test]
fn machines_that_take_the_version_and_not_the_peers_break_a_law() {
    World::new(1, PLAN).in_waves().expect("they know each other");
    let mut world = World::new(1, PLAN);
    world.parts.hear = HEARS_THE_VERSION;
    assert_eq!(broken(world.in_waves().map(drop)), "machines that come in waves know each other");
}
