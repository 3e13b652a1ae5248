//! Holders of shares of the cold-start key, and when an epoch of it stands.

use cluster::State;
use cluster::denial::Denial;
use cluster::epochs::{self, Due};
use cluster::members::{Learner, MemberStep, Voter};
use cluster::record::{ColdStartEpochs, Generations};
use cluster::request::{Asks, Removal, Request};
use cluster::role::AnyRole;
use cluster::txn::Grant;
use keys::cold_start::Epoch;
use model::{ColdStart, Level, VPN_PREFIX};
use sim::cast::{self, id, machine_key};

use super::{Scene, announces_key};

fn due(scene: &Scene, n: u16) -> Option<Due> {
    epochs::due(&scene.state(), &id(n))
}

/// The number of the epoch that stands, where the machine holds a share of it.
fn stands(scene: &Scene, n: u16) -> Option<u32> {
    epochs::stands(&scene.state(), &id(n)).map(|it| it.epoch.number())
}

/// Machine 3 was stolen and is removed while machine 2 is off. Proves: K6
#[test]
fn voters_yet_to_acknowledge_the_epoch_are_known() {
    let mut scene = Scene::new();
    let late = |scene: &Scene| epochs::unacknowledged(&scene.state()).into_iter().collect::<Vec<_>>();
    let of = |numbers: &[u16]| {
        let mut ids: Vec<_> = numbers.iter().map(|n| id(*n)).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(late(&scene), []);
    for n in [2, 3, 4] {
        scene.join(n);
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
    }
    scene.members.voters = (1..=4).map(|n| (id(n), Voter::Live)).collect();
    assert_eq!(late(&scene), of(&[1, 2, 3, 4]), "none has begun yet");
    scene.yes(&Request::BeginEpoch);
    for n in 1..=4 {
        scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(n), number: 2 });
    }
    assert_eq!(late(&scene), []);
    scene.asks(Asks::Remove(id(3), Removal::Lost));
    assert_eq!(late(&scene), of(&[1, 2, 4]), "etcd has it as a member still");
    scene.members.voters.remove(&id(3));
    scene.members.voters.insert(id(2), Voter::Silent);
    assert_eq!(late(&scene), of(&[1, 2, 4]), "none has begun yet");
    scene.yes(&Request::BeginEpoch);
    for (n, left) in [(1, &[2, 4][..]), (4, &[2]), (2, &[])] {
        scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(n), number: 3 });
        assert_eq!(late(&scene), of(left));
    }
}

/// The next epoch has begun with a share for the machine that is removed then. Proves: K6
#[test]
fn an_epoch_with_a_share_for_a_removed_one_has_to_be_replaced() {
    let mut scene = Scene::new();
    for n in [2, 3] {
        scene.join(n);
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
    }
    scene.members.voters = (1..=3).map(|n| (id(n), Voter::Live)).collect();
    scene.yes(&Request::BeginEpoch);
    scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(1), number: 2 });
    assert_eq!(epochs::unacknowledged(&scene.state()), [id(2), id(3)].into());
    scene.asks(Asks::Remove(id(3), Removal::Lost));
    scene.members.voters.remove(&id(3));
    assert_eq!(epochs::unacknowledged(&scene.state()), [id(1), id(2)].into());
}

/// Proves: K6
#[test]
fn who_holds_a_share_of_both_epochs_may_vote() {
    let mut scene = Scene::new();
    for n in [2, 3] {
        scene.join(n);
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
        scene.members.learners.insert(id(n), Learner::Ready);
    }
    scene.yes(&Request::BeginEpoch);
    for n in 1..=3 {
        scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(n), number: 2 });
    }
    // Another one of the same holders, for the sake of one's newer key.
    scene.asks(Asks::RotateKey(id(1)));
    scene.yes(&announces_key(1, 2));
    assert_eq!(scene.state().cold_start().next.as_ref().map(|next| next.epoch.number()), Some(3));
    assert!(matches!(epochs::step(&scene.state()), Some(MemberStep::Promote(_))));
}

/// Proves: D13 K6
#[test]
fn an_epoch_stands_once_each_voter_has_its_share() {
    let mut scene = Scene::new();
    let epochs = |scene: &Scene| scene.state().cold_start().clone();
    let acknowledge = |n, number| Request::AcknowledgeEpoch { machine: machine_key(n), number };
    let first = Some(Epoch::first(id(1)));
    assert_eq!(epochs(&scene), ColdStartEpochs { current: first.clone(), next: None }, "the first machine has it all");
    assert_eq!(scene.yes(&Request::BeginEpoch), Grant::Already);
    assert_eq!(scene.yes(&acknowledge(1, 1)), Grant::Already);
    for n in 2..=4 {
        scene.join(n);
    }

    scene.members.voters = (1..=3).map(|n| (id(n), Voter::Live)).collect();
    assert_eq!(scene.yes(&Request::BeginEpoch), Grant::Done);
    assert_eq!(scene.yes(&Request::BeginEpoch), Grant::Already);
    let second = Epoch::new(2, (1..=3).map(id).collect()).expect("an epoch");
    for (n, number) in [(4, 2), (1, 3), (2, 1)] {
        assert_eq!(scene.no(&acknowledge(n, number)), Denial::UnknownEpoch(number), "machine {n}");
    }
    assert_eq!(scene.no(&acknowledge(9, 2)), Denial::UnknownMachine);
    for n in [3, 1] {
        assert_eq!(scene.yes(&acknowledge(n, 2)), Grant::Done);
        assert_eq!(scene.yes(&acknowledge(n, 2)), Grant::Already);
        assert_eq!(epochs(&scene).current, first, "until all have it, the older one stands");
    }
    assert_eq!(scene.yes(&acknowledge(2, 2)), Grant::Done);
    assert_eq!(epochs(&scene), ColdStartEpochs { current: Some(second.clone()), next: None });

    // Voters change while an epoch is made: another one takes its place, and what stood stands.
    scene.members.voters.remove(&id(3));
    scene.yes(&Request::BeginEpoch);
    scene.members.voters.insert(id(4), Voter::Live);
    scene.yes(&Request::BeginEpoch);
    assert_eq!(scene.no(&acknowledge(1, 3)), Denial::UnknownEpoch(3));
    assert_eq!(epochs(&scene).current, Some(second));
    assert_eq!(epochs(&scene).newest().map(Epoch::number), Some(4));

    // A voter's newer cluster key is in no share yet.
    for n in [1, 2, 4] {
        scene.yes(&acknowledge(n, 4));
    }
    scene.asks(Asks::RotateKey(id(2)));
    scene.yes(&announces_key(2, 2));
    let next = epochs(&scene).next.expect("it was begun");
    assert_eq!((next.epoch.number(), next.acknowledged.len()), (5, 0));
    scene.asks(Asks::RotateKey(id(3)));
    scene.yes(&announces_key(3, 2));
    assert_eq!(epochs(&scene).newest().map(Epoch::number), Some(5), "a node's is in none");
}

/// A start before the share carries the next key takes none: the machine says so, and is waited for.
///
/// Proves: D13
#[test]
fn a_start_takes_the_next_key_once_the_share_carries_it() {
    let mut scene = Scene::new();
    let holding = |scene: &Scene| epochs::stands(&scene.state(), &id(1));
    let takes = |scene: &Scene, n, carried: &Option<epochs::ShareOrder>| {
        epochs::takes(&scene.state(), &id(n), carried.as_ref())
    };
    let before = holding(&scene);
    assert_eq!((takes(&scene, 1, &None), takes(&scene, 1, &before)), (None, Some(1)));
    scene.asks(Asks::RotateKey(id(1)));
    assert_eq!(takes(&scene, 1, &before), None, "its share has the key of before alone");
    let carried = holding(&scene);
    assert_eq!(takes(&scene, 1, &carried), Some(2));
    // Whoever holds no share has none to wait for.
    scene.join(2);
    scene.asks(Asks::RotateKey(id(2)));
    assert_eq!((takes(&scene, 2, &None), takes(&scene, 9, &None)), (Some(2), None));
    // Between two epochs the share of the older one may not be written again: not where the one of the next lies there already.
    scene.members.voters.insert(id(2), Voter::Live);
    scene.yes(&Request::BeginEpoch);
    assert_eq!((takes(&scene, 1, &carried), takes(&scene, 2, &None)), (None, None));
    scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(1), number: 2 });
    assert_eq!(takes(&scene, 1, &carried), None);
}

/// Coordinators bring each epoch to its end by themselves, and then there is nothing to do.
///
/// Proves: K6
#[test]
fn an_epoch_begins_when_voters_changed_and_each_holds_its_share() {
    let mut scene = Scene::new();
    assert_eq!(due(&scene, 1), None, "a lone coordinator holds it all");
    assert_eq!((stands(&scene, 1), stands(&scene, 2)), (Some(1), None));
    scene.join(2);
    scene.join(3);
    for n in [2, 3] {
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
    }
    assert_eq!(due(&scene, 1), None, "etcd has not added them");
    scene.members.learners = [(id(2), Learner::Ready), (id(3), Learner::Behind)].into();
    assert_eq!(due(&scene, 1), None, "they are to vote together");
    scene.members.learners.insert(id(3), Learner::Ready);
    assert_eq!([1, 2, 3].map(|n| due(&scene, n)), [Some(Due::Begin), None, None], "before they vote");
    let step = |scene: &Scene| epochs::step(&scene.state());
    assert_eq!(step(&scene), None, "nobody votes who holds no share");
    scene.join(4);
    assert_eq!(due(&scene, 4), None, "a node begins nothing");
    scene.yes(&Request::BeginEpoch);
    for n in 1..=3 {
        let Some(Due::Hold(holding)) = due(&scene, n) else { panic!("it holds none: {:?}", due(&scene, n)) };
        assert_eq!((holding.epoch.number(), holding.stands, holding.generations), (2, Some(1), Generations::One(1)));
        assert_eq!(holding.disk, scene.state().machine(&id(n)).expect("a machine").disk);
        assert_eq!(stands(&scene, n), Some(1).filter(|_| n == 1), "until it has said so");
        scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(n), number: 2 });
        assert_eq!(due(&scene, n), None, "it has said so");
        assert_eq!(stands(&scene, n), Some(2).filter(|_| n == 3), "two have a place, and nothing else");
    }
    assert_eq!(due(&scene, 4), None);
    assert_eq!([1, 2, 3, 4].map(|n| stands(&scene, n)), [Some(2), Some(2), Some(2), None]);
    for _ in [2, 3] {
        let Some(MemberStep::Promote(learner)) = step(&scene) else { panic!("they vote now: {:?}", step(&scene)) };
        scene.members.learners.remove(&learner).expect("a learner");
        scene.members.voters.insert(learner, Voter::Live);
        assert_eq!([1, 2, 3].map(|n| due(&scene, n)), [const { None }; 3], "it is of them already");
    }
    scene.members.voters.remove(&id(3));
    assert_eq!(due(&scene, 3), None, "who votes no more begins nothing");
    assert_eq!(due(&scene, 1), Some(Due::Begin));
    // A coordinator that has not seen etcd's members knows nothing of voters.
    scene.members.voters.clear();
    assert_eq!(due(&scene, 1), None);
}

/// Proves: K6
#[test]
fn nobody_votes_without_a_share_of_the_epoch_to_stand_next() {
    let mut scene = Scene::new();
    let acknowledge = |n, number| Request::AcknowledgeEpoch { machine: machine_key(n), number };
    let step = |scene: &Scene| epochs::step(&scene.state());
    for n in [2, 3] {
        scene.join(n);
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
    }
    scene.members.voters = [(id(1), Voter::Live)].into();
    scene.members.learners = [2, 3].map(|n| (id(n), Learner::Ready)).into();
    scene.yes(&Request::BeginEpoch);
    for n in 1..=3 {
        scene.yes(&acknowledge(n, 2));
    }
    assert!(matches!(step(&scene), Some(MemberStep::Promote(_))), "they hold what stands");
    // One of the pair goes, so an epoch without them has begun, and another one comes in its place.
    scene.asks(Asks::RemoveRole(id(3), AnyRole::Coordinator));
    scene.yes(&Request::BeginEpoch);
    scene.members.learners.remove(&id(3));
    scene.join(4);
    scene.asks(Asks::AddRole(id(4), AnyRole::Coordinator));
    scene.members.learners.insert(id(4), Learner::Ready);
    assert_eq!(step(&scene), None, "epoch 3 is the first machine's alone");
    // A coordinator that had not seen that has one of them vote.
    scene.members.learners.remove(&id(2));
    scene.members.voters.insert(id(2), Voter::Live);
    assert_eq!(scene.no(&acknowledge(1, 3)), Denial::VoterWithoutShare { voter: id(2), number: 3 });
    assert!(matches!(due(&scene, 1), Some(Due::Hold(_))), "it says so again");
    scene.yes(&Request::BeginEpoch);
    for n in [1, 2, 4] {
        scene.yes(&acknowledge(n, 4));
    }
    assert_eq!((stands(&scene, 2), step(&scene)), (Some(4), Some(MemberStep::Promote(id(4)))));
}

/// Proves: K6
#[test]
fn one_that_left_stays_while_others_need_its_share() {
    let mut scene = Scene::new();
    for n in 2..=5 {
        scene.join(n);
    }
    let vote = |scene: &mut Scene, voters: std::ops::RangeInclusive<u16>| {
        scene.members.voters = voters.map(|n| (id(n), Voter::Live)).collect();
    };
    let needed = |scene: &Scene| (1..=6).filter(|n| epochs::is_needed(&scene.state(), &id(*n))).collect::<Vec<u16>>();
    vote(&mut scene, 1..=5);
    assert_eq!(needed(&scene), [1], "the first machine has it all");
    scene.yes(&Request::BeginEpoch);
    for n in 1..=5 {
        scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(n), number: 2 });
    }
    // Three of five open.
    for (voters, wanted) in [(1..=5, vec![]), (1..=4, vec![]), (1..=3, vec![1, 2, 3]), (1..=2, vec![1, 2, 3, 4, 5])] {
        vote(&mut scene, voters.clone());
        assert_eq!(needed(&scene), wanted, "{voters:?} vote");
    }
    scene.yes(&Request::BeginEpoch);
    for n in 1..=2 {
        scene.yes(&Request::AcknowledgeEpoch { machine: machine_key(n), number: 3 });
    }
    assert_eq!(needed(&scene), [1, 2], "both of two");
}

#[test]
fn where_the_owner_opens_there_is_no_cold_start_key() {
    let mut creation = cast::creation(VPN_PREFIX);
    creation.cluster.policy.cold_start = ColdStart::Manual;
    let mut scene = Scene::of(creation);
    assert_eq!(scene.state().cold_start(), &ColdStartEpochs::default());
    assert_eq!(scene.no(&Request::BeginEpoch), Denial::ColdStartManual);
    let acknowledge = Request::AcknowledgeEpoch { machine: machine_key(1), number: 1 };
    assert_eq!(scene.no(&acknowledge), Denial::UnknownEpoch(1));
    assert_eq!(epochs::due(&scene.state(), &id(1)), None);
    scene.asks(Asks::RotateKey(id(1)));
    scene.yes(&announces_key(1, 2));
    assert_eq!(scene.state().cold_start(), &ColdStartEpochs::default());
    for n in [2, 3] {
        scene.join(n);
        scene.asks(Asks::AddRole(id(n), AnyRole::Coordinator));
        scene.members.learners.insert(id(n), Learner::Ready);
    }
    assert!(matches!(epochs::step(&scene.state()), Some(MemberStep::Promote(_))), "nobody needs a share to vote");
    assert!(epochs::unacknowledged(&scene.state()).is_empty(), "nor waits for one");
}

#[test]
fn where_nothing_is_locked_there_is_no_cold_start_key() {
    let mut creation = cast::creation(VPN_PREFIX);
    creation.cluster.policy.level = Level::Insecure;
    creation.machine.level = Level::Insecure;
    assert_eq!(due(&Scene::of(creation), 1), None);
    let mut nothing = State::default();
    let scene = Scene::new();
    nothing.see(scene.members.clone(), scene.look());
    assert_eq!(epochs::due(&nothing, &id(1)), None, "nor where there is no cluster");
}
