//! Voters in memory that were all switched off: who is given what, and that a quorum opens in whatever order it meets.

use cluster::record::Generations;
use keys::cold_start::Epoch;
use keys::directory::{self, Coordinator, Notes};
use keys::identity::cluster_id;
use keys::pair::SLOT_BYTES;
use model::{ClusterId, ClusterKey, DiskUuid, LocalKey, MasterSecret, Uuid};
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;
use crate::fixture::{ca, sealed};

const CLUSTER: ClusterId = ClusterId([1; 16]);

fn machine(number: u8) -> MachineId {
    MachineId([number; 16])
}

fn endpoint(number: u8) -> Endpoint {
    Endpoint::read(&format!("192.0.2.{number}:7836")).expect("an endpoint")
}

fn half(number: u8) -> ClusterHalf {
    let key = ClusterKey(Secret::take(&mut [number; 32]));
    ClusterHalf { key, disk: DiskUuid(Uuid([number; 16])), generation: 1, next: None }
}

fn epoch(number: u32, holders: impl IntoIterator<Item = u8>) -> Epoch {
    Epoch::new(number, holders.into_iter().map(machine).collect()).expect("an epoch")
}

fn held(of: u8, epoch: &Epoch) -> Held {
    let master = MasterSecret(Secret::take(&mut [7; 32]));
    let (key, value) = epoch.derive(&master, CLUSTER, &machine(of)).expect("a holder");
    Held { epoch: epoch.clone(), wrapped: key.wrap(&half(of)), value }
}

/// Machine `of` with its shares, whose directory has these coordinators, each at the address of its number.
fn voter(of: u8, coordinators: impl IntoIterator<Item = u8>, epochs: &[Epoch]) -> Voter {
    let coordinator = |it| Coordinator { machine: machine(it), endpoints: vec![endpoint(it).as_str().to_owned()] };
    let coordinators = coordinators.into_iter().map(coordinator).collect();
    let directory = Directory { cluster: CLUSTER, version: 1, coordinators };
    Voter::new(machine(of), directory, epochs.iter().map(|epoch| held(of, epoch)).collect())
}

/// A gathering that has asked all coordinators: none of them has a leader.
fn gathering(voter: Voter) -> Option<Gathering> {
    let mut gathering = Gathering::begin(voter)?;
    (1..=9).for_each(|number| gathering.no_leader_at(&endpoint(number)));
    Some(gathering)
}

fn says(of: &Gathering, to: u8, epoch: u32, at: u8) -> Contribution {
    of.contribution(machine(to), epoch, vec![endpoint(at)]).expect("it is a voter")
}

proptest! {
    /// Proves: K6
    #[test]
    fn a_quorum_that_comes_back_in_any_order_opens_each_of_its_members(
        holders in 2_u8..=7,
        order in Just((0_usize..7).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let epochs = [epoch(4, 1..=holders)];
        let needed = epochs[0].threshold();
        let back: Vec<u8> = order.iter().map(|it| u8::try_from(it + 1).expect("small")).filter(|it| *it <= holders).take(needed).collect();
        let mut waiting: Vec<(u8, Gathering)> = back.iter().map(|it| {
            (*it, gathering(voter(*it, 1..=holders, &epochs)).expect("it needs others"))
        }).collect();
        let mut opened = BTreeSet::new();
        for caller in 0..waiting.len() {
            for called in 0..waiting.len() {
                if caller == called { continue }
                let (to, from) = (waiting[called].0, waiting[caller].0);
                let (asks, answers) = (says(&waiting[caller].1, to, 4, from), says(&waiting[called].1, from, 4, to));
                for (taker, giver, given) in [(called, from, asks), (caller, to, answers)] {
                    let half = waiting[taker].1.take(machine(giver), None, given).expect("a voter");
                    if let Some(Answer::ClusterHalf(opens)) = half {
                        let right = self::half(waiting[taker].0);
                        prop_assert_eq!((opens.disk, opens.key.expose()), (right.disk, right.key.expose()));
                        opened.insert(waiting[taker].0);
                    }
                }
            }
        }
        prop_assert_eq!(opened.len(), back.len());
    }
}

/// Proves: K6
#[test]
fn fewer_than_a_quorum_open_nothing_whatever_they_say() {
    let epochs = [epoch(4, 1..=5)];
    let mut one = gathering(voter(1, 1..=5, &epochs)).expect("it needs others");
    let other = gathering(voter(2, 1..=5, &epochs)).expect("it needs others");
    for _ in 0..3 {
        assert!(one.take(machine(2), None, says(&other, 1, 4, 2)).expect("a voter").is_none());
    }
    assert_eq!(one.progress().collect::<Vec<_>>(), [(4, 2, 3)]);
    // A third that lies: no key comes of it, and the right one is taken later.
    let lie = Contribution { epoch: 4, share: Secret::take(&mut [9; 32]), seen: Seen::new() };
    assert!(one.take(machine(3), None, lie).expect("a voter").is_none());
    let third = gathering(voter(3, 1..=5, &epochs)).expect("it needs others");
    assert!(one.take(machine(3), None, says(&third, 1, 4, 3)).expect("a voter").is_some());
}

/// Proves: K6 K7
#[test]
fn a_share_is_given_to_a_coordinator_of_the_directory_that_holds_one_of_that_epoch_and_to_nobody_else() {
    let epochs = [epoch(5, [1, 2, 3]), epoch(4, [1, 2, 4])];
    // Machine 4 was removed: it is a holder of the older epoch, and no coordinator any more. Machine 6 holds nothing yet.
    let waiting = voter(1, [1, 2, 3, 6], &epochs);
    let given = |to, epoch| waiting.share_for(machine(to), epoch).map(|share| *share.expose());
    assert_eq!(given(2, 5), Ok(*waiting.held[0].value.expose()));
    assert_eq!(given(2, 4), Ok(*waiting.held[1].value.expose()));
    assert_eq!(given(3, 4), Err(NotShared::NoHolder { machine: machine(3), epoch: 4 }));
    assert_eq!(given(6, 5), Err(NotShared::NoHolder { machine: machine(6), epoch: 5 }));
    assert_eq!(given(4, 4), Err(NotShared::NoCoordinator(machine(4))));
    assert_eq!(given(9, 5), Err(NotShared::NoCoordinator(machine(9))));
    assert_eq!(given(1, 5), Err(NotShared::NoCoordinator(machine(1))), "nobody else is this machine");
    assert_eq!(given(2, 3), Err(NotShared::NoSuchEpoch(3)));
    assert_eq!(waiting.partners(), [(machine(2), vec![5, 4]), (machine(3), vec![5])]);

    let mut gathering = gathering(waiting).expect("it needs others");
    for from in [1, 4, 6, 9] {
        let given = Contribution { epoch: 5, share: Secret::take(&mut [9; 32]), seen: Seen::new() };
        assert!(gathering.take(machine(from), Some(endpoint(from)), given).is_err());
        assert_eq!(gathering.heard, Seen::new(), "nothing is learnt from who is no voter");
    }
}

/// Machine 4 was removed while machine 1 was off, which comes back, and whom machine 4 asks at once.
///
/// Proves: K6 K7
#[test]
fn who_waits_gives_no_share_before_it_knows_that_nobody_has_a_leader() {
    let epochs = [epoch(4, 1..=5)];
    let mut waits = Gathering::begin(voter(1, 1..=5, &epochs)).expect("it needs others");
    let says = |waits: &Gathering, to| waits.contribution(machine(to), 4, vec![]).map(|_| ());
    for number in 2..=5 {
        assert_eq!(says(&waits, 4), Err(NotShared::MayHaveLeader), "{number} was not asked yet");
        waits.no_leader_at(&endpoint(number));
    }
    assert_eq!((waits.may_contribute(), says(&waits, 4)), (true, Ok(())), "by what it knows it is a voter");
    // Now one of the others answers that has a leader: all are asked again, and its directory holds.
    let coordinators = [1, 2, 3, 5].map(|it| Coordinator { machine: machine(it), endpoints: vec![] });
    let newer = |version, coordinators: &[Coordinator]| {
        let directory = Directory { cluster: cluster_id(&ca().spki), version, coordinators: coordinators.to_vec() };
        ca().sign(&directory.unsigned())
    };
    waits.leader_answered(&newer(7, &coordinators), &ca().spki);
    for number in 2..=5 {
        assert_eq!(says(&waits, 2), Err(NotShared::MayHaveLeader), "{number} was not asked again");
        waits.no_leader_at(&endpoint(number));
    }
    let removed = Err(NotShared::NoCoordinator(machine(4)));
    assert_eq!((says(&waits, 2), says(&waits, 4)), (Ok(()), removed));
    // An older one, one of nobody, and none at all say that there is a leader, and nothing of who coordinates.
    let all = [1, 2, 3, 4, 5].map(|it| Coordinator { machine: machine(it), endpoints: vec![] });
    for told in [newer(6, &all), vec![0]] {
        waits.leader_answered(&told, &ca().spki);
        assert!(!waits.may_contribute());
        (2..=5).for_each(|number| waits.no_leader_at(&endpoint(number)));
        assert_eq!((says(&waits, 2), says(&waits, 4)), (Ok(()), removed));
    }
}

/// A machine that was away holds a share of the epoch before as well: that one opens while the new one is not whole.
///
/// Proves: K6
#[test]
fn while_an_epoch_is_not_whole_the_one_before_it_opens() {
    let (old, new) = (epoch(4, [1, 2, 3]), epoch(5, [1, 2, 3, 4, 5]));
    let mut one = gathering(voter(1, 1..=5, &[new, old.clone()])).expect("it needs others");
    let away = gathering(voter(3, 1..=3, &[old])).expect("it needs others");
    assert_eq!(one.voter().partners()[1], (machine(3), vec![5, 4]));
    let refused = away.voter().share_for(machine(1), 5).err();
    assert_eq!(refused, Some(NotShared::NoSuchEpoch(5)));
    assert!(one.take(machine(3), None, says(&away, 1, 4, 3)).expect("a voter").is_some());
}

#[test]
fn whoever_needs_nobody_gathers_nothing() {
    assert!(gathering(voter(1, 1..=3, &[])).is_none());
    assert!(gathering(voter(1, 1..=3, &[epoch(1, [1])])).is_none(), "it opens alone");
}

/// All addresses but one have changed: who is reached learns who reached it, and tells the next one.
///
/// Proves: M6
#[test]
fn where_the_others_are_is_learnt_from_whoever_is_reached() {
    let epochs = [epoch(4, 1..=5)];
    let waits = |of| gathering(voter(of, 1..=5, &epochs)).expect("it needs others");
    let [mut one, mut two, mut three] = [1, 2, 3].map(waits);
    assert_eq!(one.endpoints(machine(2)), [endpoint(2)]);
    // 2 moved to .102 and reaches 1, which came from .202 as 1 sees it.
    one.take(machine(2), Some(endpoint(202)), says(&two, 1, 4, 102)).expect("a voter");
    assert_eq!(one.endpoints(machine(2)), [endpoint(202), endpoint(102), endpoint(2)]);
    // 3 moved to .103 and reaches 1, too, and hears where 2 is.
    one.take(machine(3), None, says(&three, 1, 4, 103)).expect("a voter");
    three.take(machine(1), None, says(&one, 3, 4, 1)).expect("a voter");
    assert_eq!(three.endpoints(machine(2)), [endpoint(202), endpoint(102), endpoint(2)]);
    // What a machine says of itself goes before what others say of it.
    let hearsay = Contribution { seen: [(machine(1), vec![endpoint(66)])].into(), ..says(&three, 2, 4, 103) };
    two.take(machine(1), None, says(&one, 2, 4, 101)).expect("a voter");
    two.take(machine(3), None, hearsay).expect("a voter");
    assert_eq!(two.endpoints(machine(1)), [endpoint(101), endpoint(66), endpoint(1)]);
}

#[test]
fn what_is_learnt_stays_small() {
    let epochs = [epoch(4, 1..=3)];
    let mut one = gathering(voter(1, 1..=3, &epochs)).expect("it needs others");
    let two = gathering(voter(2, 1..=3, &epochs)).expect("it needs others");
    let many: Vec<Endpoint> = (1..=200).map(endpoint).collect();
    let seen = (0..=255).map(|it| (machine(it), many.clone())).collect();
    for source in 1..=20 {
        let given = Contribution { seen: Seen::clone(&seen), ..says(&two, 1, 4, 2) };
        one.take(machine(2), Some(endpoint(source)), given).expect("a voter");
    }
    let kept = |seen: &Seen| seen.iter().map(|(of, at)| (of.0[0], at.len())).collect::<Vec<_>>();
    assert_eq!((kept(&one.heard), kept(&one.hearsay)), (vec![(2, MOST_ENDPOINTS)], vec![(3, MOST_ENDPOINTS)]));
}

/// A holder writes each share once, never over the one that stands, and what lies there then opens with the others'.
///
/// Proves: K6
#[test]
fn a_share_is_written_once_and_not_over_the_one_that_stands() {
    let holder = Holder { cluster: CLUSTER, machine: machine(1) };
    let (master, key) = (MasterSecret(Secret::take(&mut [7; 32])), share_key());
    let disk = DiskUuid(Uuid([1; 16]));
    let mut slots = Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
    let mut holds = |epoch: &Epoch, stands| {
        let holding = Holding { epoch: epoch.clone(), stands, disk, generations: Generations::One(1) };
        let write = hold(&holding, &holder, &master, &key, &slots).expect("it is a holder");
        let written = write.is_some();
        if let Some(write) = write {
            slots.0[write.slot] = Zeroizing::new(write.bytes);
        }
        let (held, _) = super::held(&slots, disk, &key);
        (written, held.iter().map(|held| held.epoch.number()).collect::<Vec<_>>())
    };
    let (first, second) = (epoch(1, [1]), epoch(2, [1, 2, 3]));
    assert_eq!(holds(&first, None), (true, vec![1]));
    assert_eq!(holds(&second, Some(1)), (true, vec![2, 1]));
    assert_eq!(holds(&second, Some(1)), (false, vec![2, 1]), "it lies there");
    assert_eq!(holds(&epoch(3, [1, 2]), Some(1)), (true, vec![3, 1]), "epoch 2 was never whole");
    assert_eq!(holds(&epoch(4, [1, 2]), Some(3)), (true, vec![4, 3]));
    for (stands, left) in [(3, vec![4, 3]), (4, vec![4])] {
        for write in superseded(&slots, stands).collect::<Vec<_>>() {
            slots.0[write.slot] = Zeroizing::new(write.bytes);
        }
        let (held, _) = super::held(&slots, disk, &key);
        let numbers: Vec<_> = held.iter().map(|held| held.epoch.number()).collect();
        assert_eq!(numbers, left, "what a thief would need fewer for is gone once {stands} stands");
    }

    let others = Holding { epoch: epoch(5, [2, 3]), stands: None, disk, generations: Generations::One(1) };
    let refused = hold(&others, &holder, &master, &key, &slots).map(|_| ());
    assert_eq!(refused, Err(NotHeld::NoHolder(5)));
    let (held, _) = super::held(&slots, disk, &key);
    let opened = held[0].alone(machine(1)).expect("a holder");
    assert!(opened.is_none(), "two hold it, and both are needed");
}

/// While its key rotates, the share of the same epoch is written anew with both; and at the end with the newer one alone.
///
/// Proves: D13 K6
#[test]
fn a_share_follows_the_keys_that_the_cluster_gives_and_a_cut_leaves_one_that_opens() {
    let holder = Holder { cluster: CLUSTER, machine: machine(1) };
    let (master, key) = (MasterSecret(Secret::take(&mut [7; 32])), share_key());
    let disk = DiskUuid(Uuid([1; 16]));
    let mut slots = Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
    let (alone, next) = (epoch(3, [1]), epoch(4, [1]));
    let hold = |slots: &mut Slots, epoch: &Epoch, generations| {
        let holding = Holding { epoch: epoch.clone(), stands: Some(3), disk, generations };
        let write = hold(&holding, &holder, &master, &key, slots).expect("it is a holder");
        write.is_some_and(|write| {
            slots.0[write.slot] = Zeroizing::new(write.bytes);
            true
        })
    };
    let gives = |slots: &Slots| {
        let (held, senseless) = super::held(slots, disk, &key);
        assert!(senseless.is_empty());
        let half = |held: &Held| held.alone(machine(1)).expect("it holds it").expect("it is alone");
        let of = |half: &ClusterHalf| [1, 2, 3].map(|it| half.of(it).map(|key| *key.expose()));
        held.iter().map(|held| (held.epoch.number(), of(&half(held)))).collect::<Vec<_>>()
    };
    let [one, two] = [1, 2].map(|it| Some(*cluster_key(&master, CLUSTER, disk, it).expose()));
    let erase = |slots: &mut Slots, stands| {
        for over in superseded(&slots.clone(), stands) {
            slots.0[over.slot] = Zeroizing::new(over.bytes);
        }
    };
    assert!(hold(&mut slots, &alone, Generations::One(1)));
    assert!(hold(&mut slots, &alone, Generations::Rotating(1)));
    assert_eq!(gives(&slots), [(3, [one, two, None]), (3, [one, None, None])], "cut here, the newer one counts");
    erase(&mut slots, 3);
    assert_eq!(gives(&slots), [(3, [one, two, None])]);
    assert!(!hold(&mut slots, &alone, Generations::Rotating(1)), "it lies there");
    assert!(hold(&mut slots, &alone, Generations::One(2)));
    erase(&mut slots, 3);
    let before = slots.clone();
    assert!(hold(&mut slots, &next, Generations::One(2)));
    assert_eq!(gives(&slots), [(4, [None, two, None]), (3, [None, two, None])]);
    // The cluster may have been told that this one lies there: it is not written over, though the one that stands is another by now.
    assert!(!hold(&mut slots, &alone, Generations::Rotating(2)), "what lies there opens");
    assert_eq!(gives(&slots), [(4, [None, two, None]), (3, [None, two, None])]);
    let mut lost = slots.clone();
    lost.0[(0..2).find(|slot| slots.0[*slot] == before.0[*slot]).expect("that of epoch 3")] =
        vec![0; SLOT_BYTES].into();
    assert!(hold(&mut lost, &alone, Generations::One(2)));
    assert_eq!(gives(&lost), [(3, [None, two, None]), (4, [None, two, None])]);
    erase(&mut slots, 5);
    assert_eq!(gives(&slots).len(), 2, "where the one that stands does not lie, nothing goes");
    erase(&mut slots, 4);
    assert_eq!(gives(&slots), [(4, [None, two, None])]);
    // What cannot be read may be a newer Cairn's.
    let other = (0..2).find(|slot| slots.0[*slot].iter().all(|byte| *byte == 0)).expect("one was erased");
    slots.0[other] = Zeroizing::new(vec![0xff; SLOT_BYTES]);
    assert_eq!(superseded(&slots, 4).count(), 0);
}

fn share_key() -> ShareKey {
    let holder = Holder { cluster: CLUSTER, machine: machine(1) };
    ShareKey::of(&LocalKey(Secret::take(&mut [8; 32])), &holder)
}

/// Proves: D11 K7
#[test]
fn a_coordinator_that_is_open_believes_no_directory_below_what_its_seal_takes() {
    let coordinators = vec![Coordinator { machine: machine(2), endpoints: vec![] }];
    let directory = Directory { cluster: cluster_id(&ca().spki), version: 6, coordinators };
    let nothing = || -> Zeroizing<Vec<u8>> { vec![0; SLOT_BYTES].into() };
    let takes_7 = sealed(7);
    let slots = |lowers| {
        let notes = Notes { vouched: None, lowers };
        Slots([directory::emit(1, &ca().sign(&directory.unsigned()), notes).expect("it fits").into(), nothing()])
    };
    let (key, share) = (share_key(), Slots([nothing(), nothing()]));
    let believes_of = |directory: &Slots, version, heard: &[Vec<u8>]| {
        let (itself, disk, ca_spki) = (machine(1), half(1).disk, &ca().spki);
        let minimum = &sealed(version);
        let on_esp = OnEsp { itself, disk, key: &key, ca_spki, minimum, share: &share, directory, heard };
        Voter::on_esp(on_esp).map(|voter| voter.map(|voter| voter.coordinators().collect::<Vec<_>>()))
    };
    let believes = |version, heard: &[_]| believes_of(&slots(None), version, heard);
    assert_eq!(believes(6, &[]), Ok(Some(vec![machine(2)])));
    assert_eq!(believes(7, &[]), Err(DirectoryError::Older { found: 6, minimum: 7 }));
    assert_eq!(believes_of(&slots(Some(&takes_7)), 7, &[]), Ok(Some(vec![machine(2)])), "but by its owner's word");
    // One that it heard of with its key, and that is not written yet.
    let heard = |version| {
        let coordinators = vec![Coordinator { machine: machine(3), endpoints: vec![] }];
        ca().sign(&Directory { cluster: cluster_id(&ca().spki), version, coordinators }.unsigned())
    };
    assert_eq!(believes(6, &[heard(7)]), Ok(Some(vec![machine(3)])));
    assert_eq!(believes(7, &[heard(7)]), Ok(Some(vec![machine(3)])));
    assert_eq!(believes(5, &[heard(5)]), Ok(Some(vec![machine(2)])), "an older one");
    assert_eq!(believes(6, &[vec![0]]), Ok(Some(vec![machine(2)])), "one of nobody");
    assert_eq!(believes(6, &[heard(u64::MAX)]), Ok(Some(vec![machine(2)])), "its cluster cannot have come so far");
    assert_eq!(believes(6, &[heard(u64::MAX), heard(7)]), Ok(Some(vec![machine(3)])), "another is not shadowed");
}
