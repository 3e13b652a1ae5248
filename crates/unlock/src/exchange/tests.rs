//! Voters in memory that were all switched off: who is given what, and that a quorum opens in whatever order it meets.

use keys::cold_start::{Epoch, Sightings};
use keys::data_key::Holder;
use keys::directory::{self, Coordinator, Notes};
use keys::endpoint::MOST_ENDPOINTS;
use keys::identity::cluster_id;
use model::{ClusterId, ClusterKey, LocalKey, MasterSecret, Uuid};
use proptest::prelude::*;

use super::*;
use crate::fixture::{blank, ca, sealed, secret};

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

fn held(of: u8, epoch: &Epoch) -> OpenShare {
    let master = MasterSecret(Secret::take(&mut [7; 32]));
    let (key, value) = epoch.derive(&master, CLUSTER, &machine(of)).expect("a holder");
    OpenShare { epoch: epoch.clone(), wrapped: key.wrap(&half(of)), value }
}

/// Machine `of` with its shares, whose directory has these coordinators, each at the address of its number.
fn voter(of: u8, coordinators: impl IntoIterator<Item = u8>, epochs: &[Epoch]) -> ShareHolder {
    let coordinator = |it| Coordinator { machine: machine(it), endpoints: vec![endpoint(it).as_str().to_owned()] };
    let coordinators = coordinators.into_iter().map(coordinator).collect();
    let directory = Directory { cluster: CLUSTER, version: 1, coordinators };
    ShareHolder::new(machine(of), directory, epochs.iter().map(|epoch| held(of, epoch)).collect())
}

/// A collector that has asked all coordinators: none of them has a leader.
fn collector(voter: ShareHolder) -> Option<ShareCollector> {
    let mut collector = ShareCollector::begin(voter)?;
    (1..=9).for_each(|number| collector.no_leader_at(&endpoint(number)));
    Some(collector)
}

fn says(of: &ShareCollector, to: u8, epoch: u32, at: u8) -> Contribution {
    of.contribution(machine(to), epoch, vec![endpoint(at)]).expect("it is a voter")
}

proptest! {
    /// Proves: K6
    #[test]
    fn a_quorum_that_comes_back_in_any_order_opens_each_member(
        holders in 2_u8..=7,
        order in Just((0_usize..7).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let epochs = [epoch(4, 1..=holders)];
        let needed = epochs[0].threshold();
        let back: Vec<u8> = order.iter().map(|it| u8::try_from(it + 1).expect("small")).filter(|it| *it <= holders).take(needed).collect();
        let mut waiting: Vec<(u8, ShareCollector)> = back.iter().map(|it| {
            (*it, collector(voter(*it, 1..=holders, &epochs)).expect("it needs others"))
        }).collect();
        let mut opened = BTreeSet::new();
        for caller in 0..waiting.len() {
            for called in 0..waiting.len() {
                if caller == called { continue }
                let (to, from) = (waiting[called].0, waiting[caller].0);
                let (asks, answers) = (says(&waiting[caller].1, to, 4, from), says(&waiting[called].1, from, 4, to));
                for (taker, giver, given) in [(called, from, asks), (caller, to, answers)] {
                    let half = waiting[taker].1.take(machine(giver), None, given).expect("a voter");
                    if let Some(opens) = half {
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
    let mut one = collector(voter(1, 1..=5, &epochs)).expect("it needs others");
    let other = collector(voter(2, 1..=5, &epochs)).expect("it needs others");
    for _ in 0..3 {
        assert!(one.take(machine(2), None, says(&other, 1, 4, 2)).expect("a voter").is_none());
    }
    assert_eq!(one.progress().collect::<Vec<_>>(), [(4, 2, 3)]);
    // A third that lies: no key comes of it, and the right one is taken later.
    let lie = Contribution { epoch: 4, share: Secret::take(&mut [9; 32]), seen: Sightings::new() };
    assert!(one.take(machine(3), None, lie).expect("a voter").is_none());
    let third = collector(voter(3, 1..=5, &epochs)).expect("it needs others");
    assert!(one.take(machine(3), None, says(&third, 1, 4, 3)).expect("a voter").is_some());
}

/// Proves: K6 K7
#[test]
fn a_share_is_given_to_coordinators_that_hold_one_too() {
    let epochs = [epoch(5, [1, 2, 3]), epoch(4, [1, 2, 4])];
    // Machine 4 was removed: it is a holder of the older epoch, and no coordinator any more. Machine 6 holds nothing yet.
    let waiting = voter(1, [1, 2, 3, 6], &epochs);
    let given = |to, epoch| waiting.share_for(machine(to), epoch).map(|share| *share.expose());
    assert_eq!(given(2, 5), Ok(*waiting.held[0].value.expose()));
    assert_eq!(given(2, 4), Ok(*waiting.held[1].value.expose()));
    assert_eq!(given(3, 4), Err(ExchangeError::NoHolder { machine: machine(3), epoch: 4 }));
    assert_eq!(given(6, 5), Err(ExchangeError::NoHolder { machine: machine(6), epoch: 5 }));
    assert_eq!(given(4, 4), Err(ExchangeError::NoCoordinator(machine(4))));
    assert_eq!(given(9, 5), Err(ExchangeError::NoCoordinator(machine(9))));
    assert_eq!(given(1, 5), Err(ExchangeError::NoCoordinator(machine(1))), "nobody else is this machine");
    assert_eq!(given(2, 3), Err(ExchangeError::NoSuchEpoch(3)));
    assert_eq!(waiting.partners(), [(machine(2), vec![5, 4]), (machine(3), vec![5])]);

    let mut collector = collector(waiting).expect("it needs others");
    for from in [1, 4, 6, 9] {
        let given = Contribution { epoch: 5, share: Secret::take(&mut [9; 32]), seen: Sightings::new() };
        assert!(collector.take(machine(from), Some(endpoint(from)), given).is_err());
        assert_eq!(collector.whereabouts, Whereabouts::default(), "nothing is learnt from who is no voter");
    }
}

/// Machine 4 was removed while machine 1 was off, which comes back, and whom machine 4 asks at once.
///
/// Proves: K6 K7
#[test]
fn no_share_is_given_before_nobody_is_known_to_have_a_leader() {
    let epochs = [epoch(4, 1..=5)];
    let mut waits = ShareCollector::begin(voter(1, 1..=5, &epochs)).expect("it needs others");
    let says = |waits: &ShareCollector, to| waits.contribution(machine(to), 4, vec![]).map(|_| ());
    for number in 2..=5 {
        assert_eq!(says(&waits, 4), Err(ExchangeError::MayHaveLeader), "{number} was not asked yet");
        waits.no_leader_at(&endpoint(number));
    }
    assert_eq!((waits.may_contribute(), says(&waits, 4)), (true, Ok(())), "by what it knows it is a voter");
    // Now one of the others answers that has a leader: all are asked again, and its directory holds.
    let coordinators = [1, 2, 3, 5].map(|it| Coordinator { machine: machine(it), endpoints: vec![] });
    let newer = |version, coordinators: &[Coordinator]| {
        let directory = Directory { cluster: cluster_id(&ca().spki), version, coordinators: coordinators.to_vec() };
        ca().sign(&directory)
    };
    waits.leader_answered(&endpoint(2), &newer(7, &coordinators), &ca().spki);
    for number in 2..=5 {
        assert_eq!(says(&waits, 2), Err(ExchangeError::MayHaveLeader), "{number} was not asked again");
        waits.no_leader_at(&endpoint(number));
    }
    let removed = Err(ExchangeError::NoCoordinator(machine(4)));
    assert_eq!((says(&waits, 2), says(&waits, 4)), (Ok(()), removed));
    // An older one, one of nobody, and none at all say that there is a leader, and nothing of who coordinates.
    let all = [1, 2, 3, 4, 5].map(|it| Coordinator { machine: machine(it), endpoints: vec![] });
    for told in [newer(6, &all), vec![0]] {
        waits.leader_answered(&endpoint(5), &told, &ca().spki);
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
    let mut one = collector(voter(1, 1..=5, &[new, old.clone()])).expect("it needs others");
    let away = collector(voter(3, 1..=3, &[old])).expect("it needs others");
    assert_eq!(one.voter().partners()[1], (machine(3), vec![5, 4]));
    let refused = away.voter().share_for(machine(1), 5).err();
    assert_eq!(refused, Some(ExchangeError::NoSuchEpoch(5)));
    assert!(one.take(machine(3), None, says(&away, 1, 4, 3)).expect("a voter").is_some());
}

#[test]
fn whoever_needs_nobody_gathers_nothing() {
    assert!(collector(voter(1, 1..=3, &[])).is_none());
    assert!(collector(voter(1, 1..=3, &[epoch(1, [1])])).is_none(), "it opens alone");
}

/// All addresses but one have changed: who is reached learns who reached it, and tells the next one.
///
/// Proves: M6
#[test]
fn where_the_others_are_is_learnt_from_whoever_is_reached() {
    let epochs = [epoch(4, 1..=5)];
    let waits = |of| collector(voter(of, 1..=5, &epochs)).expect("it needs others");
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

/// Voter of several that come back, at another address or at the one that the directory lists.
struct Back {
    number: u8,
    at: u8,
    part: Part,
}

enum Part {
    Waits(Box<ShareCollector>),
    Open(ShareHolder, Whereabouts),
}

impl Back {
    /// Places where it looks for another one.
    fn looks_for(&self, other: u8) -> Vec<Endpoint> {
        match &self.part {
            Part::Waits(collector) => collector.endpoints(machine(other)),
            Part::Open(voter, whereabouts) => {
                each_once(whereabouts.of(machine(other)).into_iter().chain(voter.listed(machine(other))))
            }
        }
    }

    /// Opens its disk by a half that it has come to; from then on it calls nobody.
    fn opens(&mut self, half: Option<ClusterHalf>, voter: ShareHolder) {
        if let (Some(_), Part::Waits(collector)) = (half, &self.part) {
            self.part = Part::Open(voter, collector.whereabouts().clone());
        }
    }
}

/// Has one that waits call another one, at one of the places where it looks for it.
fn call(back: &mut [Back], (caller, called): (usize, usize), anew: impl Fn(u8) -> ShareHolder) {
    let (one, other, place) = (back[caller].number, back[called].number, endpoint(back[called].at));
    let is_found = back[caller].looks_for(other).contains(&place);
    let (from, at) = (endpoint(back[caller].at), back[caller].at);
    let Part::Waits(collector) = &back[caller].part else { return };
    if !is_found {
        return;
    }
    let given = says(collector, other, 4, at);
    let answer = match &mut back[called].part {
        Part::Waits(collector) => {
            let answer = says(collector, one, 4, back[called].at);
            let half = collector.take(machine(one), Some(from), given).expect("a voter");
            back[called].opens(half, anew(other));
            answer
        }
        Part::Open(voter, whereabouts) => voter.answer(machine(one), Some(from), given, whereabouts).expect("a voter"),
    };
    let Part::Waits(collector) = &mut back[caller].part else { unreachable!("it has just called") };
    let half = collector.take(machine(other), Some(place), answer).expect("a voter");
    back[caller].opens(half, anew(one));
}

proptest! {
    /// All but one have moved at most, and a quorum or more come back, one after the other. Proves: K6 M6
    #[test]
    fn whoever_reaches_one_open_voter_reaches_them_all(
        holders in 3_u8..=7,
        order in Just((1_u8..=7).collect::<Vec<_>>()).prop_shuffle(),
        more in 0_usize..4,
        moved in prop::collection::vec(any::<bool>(), 7),
        stays in any::<prop::sample::Index>(),
        rounds in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let epochs = [epoch(4, 1..=holders)];
        let anew = |number| voter(number, 1..=holders, &epochs);
        let order: Vec<u8> = order.into_iter().filter(|number| *number <= holders).collect();
        let count = (epochs[0].threshold() + more).min(order.len());
        let stays = order[stays.index(count)];
        let mut back: Vec<Back> = Vec::new();
        let mut rounds = rounds.into_iter();
        for number in order.into_iter().take(count) {
            let has_moved = moved[usize::from(number) - 1] && number != stays;
            let part = Part::Waits(Box::new(collector(anew(number)).expect("it needs others")));
            back.push(Back { number, at: if has_moved { 100 + number } else { number }, part });
            // Some calls before the next one comes back.
            for pair in rounds.by_ref().take(8) {
                let pair = pair.index(back.len() * back.len());
                let (caller, called) = (pair / back.len(), pair % back.len());
                if caller != called {
                    call(&mut back, (caller, called), anew);
                }
            }
        }
        for _ in 0..2 * count {
            for caller in 0..count {
                (0..count).filter(|called| *called != caller).for_each(|called| call(&mut back, (caller, called), anew));
            }
        }
        for one in &back {
            prop_assert!(matches!(one.part, Part::Open(..)), "{} does not open", one.number);
            for other in back.iter().filter(|other| other.number != one.number) {
                let finds = |one: &Back, other: &Back| one.looks_for(other.number).contains(&endpoint(other.at));
                prop_assert!(finds(one, other) || finds(other, one), "{} and {}", one.number, other.number);
            }
        }
    }
}

/// Voter of several in a world where one that is open leads as soon as a quorum is: then it gives keys, and no share.
struct Asking {
    number: u8,
    at: u8,
    /// None as soon as it is open.
    waits: Option<ShareCollector>,
    /// Voters that asked it for a key while it waited.
    asked_by: BTreeSet<u8>,
}

/// Has one that waits ask at all its places for the key; whether somebody that leads gave it.
fn asks_for_its_key(all: &mut [Asking], asker: usize, leads: bool) -> bool {
    let (number, from) = (all[asker].number, endpoint(all[asker].at));
    let places = all[asker].waits.as_ref().expect("it waits").asks();
    for place in places {
        let there = all.iter_mut().find(|it| endpoint(it.at) == place);
        match there.map(|it| (it.waits.as_mut(), &mut it.asked_by)) {
            Some((Some(collector), asked_by)) => {
                collector.is_called_by(machine(number), Some(from.clone()));
                asked_by.insert(number);
            }
            Some((None, _)) if leads => return true,
            Some((None, _)) | None => {}
        }
        all[asker].waits.as_mut().expect("it waits").no_leader_at(&place);
    }
    false
}

/// Has one that waits call another one that does for its share, where both may give theirs. Which of the two have a quorum then.
fn exchange(all: &mut [Asking], caller: usize, called: usize) -> Vec<usize> {
    let (one, other) = (all[caller].number, all[called].number);
    let (from, place) = (endpoint(all[caller].at), endpoint(all[called].at));
    let (Some(asks), Some(answers)) = (&all[caller].waits, &all[called].waits) else { return Vec::new() };
    let gives = |of: &ShareCollector, to, at: &Endpoint| of.contribution(machine(to), 4, vec![at.clone()]);
    let given = gives(asks, other, &from).and_then(|given| Ok((given, gives(answers, one, &place)?)));
    let Ok((given, answer)) = given else { return Vec::new() };
    if !asks.endpoints(machine(other)).contains(&place) {
        return Vec::new();
    }
    let mut take = |taker: usize, giver, source, given| {
        let collector = all[taker].waits.as_mut().expect("it waits");
        collector.take(machine(giver), Some(source), given).expect("a voter").map(|_half| taker)
    };
    [take(called, one, from, given), take(caller, other, place, answer)].into_iter().flatten().collect()
}

proptest! {
    /// Each voter knows the places of some others, and not of all; two may open each other before a third asked anybody. That
    /// one is not left behind if those that lead have ever asked it. Proves: K6 M6
    #[test]
    fn whoever_was_asked_by_one_that_leads_opens(
        holders in 3_u8..=7,
        moved in prop::collection::vec(any::<bool>(), 7),
        knows in prop::collection::vec(any::<[bool; 8]>(), 8),
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..60),
    ) {
        let epochs = [epoch(4, 1..=holders)];
        let at = |it: u8| if moved[usize::from(it) - 1] { 100 + it } else { it };
        let mut all: Vec<Asking> = (1..=holders).map(|number| {
            let listed = |it: u8| if knows[usize::from(number)][usize::from(it)] { at(it) } else { it };
            let coordinator = |it| Coordinator { machine: machine(it), endpoints: vec![endpoint(listed(it)).as_str().to_owned()] };
            let directory = Directory { cluster: CLUSTER, version: 1, coordinators: (1..=holders).map(coordinator).collect() };
            let holder = ShareHolder::new(machine(number), directory, epochs.iter().map(|epoch| held(number, epoch)).collect());
            Asking { number, at: at(number), waits: ShareCollector::begin(holder), asked_by: BTreeSet::new() }
        }).collect();
        let count = all.len();
        let ends = (0..2 * count).flat_map(|_| (0..count).map(|asker| (true, asker * count)));
        let steps = steps.into_iter().map(|(asks, pair)| (asks, pair.index(count * count)));
        for (asks, pair) in steps.chain(ends) {
            let (one, other) = (pair / count, pair % count);
            let leads = all.iter().filter(|it| it.waits.is_none()).count() >= epochs[0].threshold();
            let opened = match asks {
                true if all[one].waits.is_some() && asks_for_its_key(&mut all, one, leads) => vec![one],
                true => Vec::new(),
                false if one == other => Vec::new(),
                false => exchange(&mut all, one, other),
            };
            opened.into_iter().for_each(|it| all[it].waits = None);
        }
        let leads: BTreeSet<u8> = all.iter().filter(|it| it.waits.is_none()).map(|it| it.number).collect();
        if leads.len() >= epochs[0].threshold() {
            for left in all.iter().filter(|it| it.waits.is_some()) {
                prop_assert!(left.asked_by.is_disjoint(&leads), "{} waits, whom {:?} have asked", left.number, left.asked_by);
            }
        }
    }
}

#[test]
fn what_is_learnt_stays_small() {
    let epochs = [epoch(4, 1..=3)];
    let mut one = collector(voter(1, 1..=3, &epochs)).expect("it needs others");
    let two = collector(voter(2, 1..=3, &epochs)).expect("it needs others");
    let many: Vec<Endpoint> = (1..=200).map(endpoint).collect();
    let seen = (0..=255).map(|it| (machine(it), many.clone())).collect();
    for source in 1..=20 {
        let given = Contribution { seen: Sightings::clone(&seen), ..says(&two, 1, 4, 2) };
        one.take(machine(2), Some(endpoint(source)), given).expect("a voter");
    }
    let kept = |seen: &Sightings| seen.iter().map(|(of, at)| (of.0[0], at.len())).collect::<Vec<_>>();
    let Whereabouts { heard, hearsay } = &one.whereabouts;
    assert_eq!((kept(heard), kept(hearsay)), (vec![(2, MOST_ENDPOINTS)], vec![(3, MOST_ENDPOINTS)]));
}

/// Proves: D11 K7
#[test]
fn a_voter_believes_no_directory_below_its_seals_minimum() {
    let coordinators = vec![Coordinator { machine: machine(2), endpoints: vec![] }];
    let directory = Directory { cluster: cluster_id(&ca().spki), version: 6, coordinators };
    let takes_7 = sealed(7);
    let slots = |lowers| {
        let notes = Notes { vouched: None, lowers };
        let mut slots = blank();
        slots.0[0] = directory::emit(1, &ca().sign(&directory), notes).expect("it fits").into();
        slots
    };
    let key = ShareKey::of(&LocalKey(secret(8)), &Holder { cluster: CLUSTER, machine: machine(1) });
    let share = blank();
    let believes_of = |directory: &Slots, version, heard: &[Vec<u8>]| {
        let (itself, disk, ca_spki) = (machine(1), half(1).disk, &ca().spki);
        let minimum = &sealed(version);
        let on_esp = OnEsp { itself, disk, key: &key, ca_spki, minimum, share: &share, directory, heard };
        ShareHolder::on_esp(on_esp).map(|voter| voter.map(|voter| voter.coordinators().collect::<Vec<_>>()))
    };
    let believes = |version, heard: &[_]| believes_of(&slots(None), version, heard);
    assert_eq!(believes(6, &[]), Ok(Some(vec![machine(2)])));
    assert_eq!(believes(7, &[]), Err(DirectoryError::Older { found: 6, minimum: 7 }));
    assert_eq!(believes_of(&slots(Some(&takes_7)), 7, &[]), Ok(Some(vec![machine(2)])), "but by its owner's word");
    // One that it heard of with its key, and that is not written yet.
    let heard = |version| {
        let coordinators = vec![Coordinator { machine: machine(3), endpoints: vec![] }];
        ca().sign(&Directory { cluster: cluster_id(&ca().spki), version, coordinators })
    };
    assert_eq!(believes(6, &[heard(7)]), Ok(Some(vec![machine(3)])));
    assert_eq!(believes(7, &[heard(7)]), Ok(Some(vec![machine(3)])));
    assert_eq!(believes(5, &[heard(5)]), Ok(Some(vec![machine(2)])), "an older one");
    assert_eq!(believes(6, &[vec![0]]), Ok(Some(vec![machine(2)])), "one of nobody");
    assert_eq!(believes(6, &[heard(u64::MAX)]), Ok(Some(vec![machine(2)])), "its cluster cannot have come so far");
    assert_eq!(believes(6, &[heard(u64::MAX), heard(7)]), Ok(Some(vec![machine(3)])), "another is not shadowed");
}
