//! Attacks on the door, in virtual time.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

/// So many sources may flood, and everybody else still gets in.
const FLOODING: u32 = 16;

fn source(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc000_0200 + number).into()
}

const OWNER: u32 = 1000;

fn count(door: &Door, stage: Stage) -> usize {
    door.places.values().filter(|held| held.stage == stage).count()
}

fn has(door: &Door, place: Place) -> bool {
    door.places.contains_key(&place)
}

/// Proves: A6 Q1
#[test]
fn strangers_have_few_places_and_who_holds_most_makes_room() {
    let (mut door, mut now) = (Door::default(), testkit::origin());
    let mut settle = |door: &mut Door, number| {
        now += Duration::from_secs(1);
        let entered = door.knock(source(number), now).expect("slow enough");
        (entered.place, door.settle(entered.place, Guest::Stranger).expect("it is there"))
    };
    let first: Vec<_> = (0..8).map(|_| settle(&mut door, 1)).collect();
    assert!(first.iter().all(|(_, instead)| instead.is_none()));
    assert_eq!(settle(&mut door, 1).1, Some(first[0].0), "one source has eight: its own oldest leaves");
    for number in 2..5 {
        (0..8).for_each(|_| assert_eq!(settle(&mut door, number).1, None));
    }
    assert_eq!(count(&door, Stage::Stranger), 32);
    let (place, instead) = settle(&mut door, 5);
    assert_eq!(instead, Some(first[1].0), "all hold eight: the oldest of all leaves");
    assert!(has(&door, place) && !has(&door, first[1].0));
    assert_eq!(settle(&mut door, 5).1.map(|place| place > first[7].0), Some(true), "now the second holds most");
    door.leave(place);
    assert_eq!(count(&door, Stage::Stranger), 31);
    assert_eq!(settle(&mut door, 6).1, None, "a place that was given back is free");
}

/// Proves: A6 Q1
#[test]
fn handshakes_are_few_a_second_from_one_source_and_from_all() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let after = |millis| now + Duration::from_millis(millis);
    let many = |door: &mut Door, number, now| (0..100).filter(|_| door.knock(source(number), now).is_ok()).count();
    assert_eq!(many(&mut door, 1, now), 16);
    assert_eq!(door.knock(source(1), after(249)), Err(KnockError::Source));
    assert_eq!(many(&mut door, 1, after(250)), 1);
    // Nine hundred more sources, ten seconds long, ten knocks a second each.
    let mut entered = 0;
    for tick in 0..100 {
        entered += (2..902).filter(|number| door.knock(source(*number), after(250 + tick * 100)).is_ok()).count();
    }
    assert!((79..=80 + 48).contains(&entered), "{entered}");
    assert_eq!(door.knock(source(903), after(250 + 9_900)), Err(KnockError::All));
    assert!(door.sources.len() <= 48 + 80, "{}", door.sources.len());
    assert!(door.knock(source(1), after(250 + 9_900 + 10_000)).is_ok());
    assert_eq!(door.sources.len(), 1, "the others are forgotten");
}

/// Proves: Q1
#[test]
fn an_owners_handshake_is_free_and_its_source_is_remembered() {
    let (mut door, now) = (Door::default(), testkit::origin());
    for _ in 0..1000 {
        let entered = door.knock(source(OWNER), now).expect("it was given back");
        assert_eq!(door.settle(entered.place, Guest::Owner), Ok(None));
        door.leave(entered.place);
    }
    // Another owner comes more often than sources are remembered; the first one's is still known.
    for _ in 0..2 * KNOWN {
        let entered = door.knock(source(OWNER + 1), now).expect("it was given back");
        assert_eq!(door.settle(entered.place, Guest::Owner), Ok(None));
        door.leave(entered.place);
    }
    // More sources than anything is kept for: nobody else gets in, and the owner does.
    let knocks = |door: &mut Door| (1..900).filter(|number| door.knock(source(*number), now).is_ok()).count();
    assert_eq!((knocks(&mut door), knocks(&mut door)), (40, 0));
    let entered = door.knock(source(OWNER), now).expect("known");
    assert_eq!(door.settle(entered.place, Guest::Owner), Ok(None));
    assert_eq!((0..16).filter(|_| door.knock(source(OWNER), now).is_ok()).count(), 8, "all that is kept for it");
}

/// Proves: Q1
#[test]
fn sources_of_owners_are_known_as_long_as_no_sixteen_came_later() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let comes = |door: &mut Door, number| {
        let entered = door.knock(source(number), now).expect("it was given back");
        assert_eq!(door.settle(entered.place, Guest::Owner), Ok(None));
        door.leave(entered.place);
    };
    // The first one comes again when the second one is the oldest.
    (0..16).chain([0, 16]).for_each(|number| comes(&mut door, OWNER + number));
    assert!((1..900).filter(|number| door.knock(source(*number), now).is_ok()).count() < 900, "others took all tokens");
    assert_eq!(door.knock(source(OWNER + 1), now), Err(KnockError::All));
    for known in [0, 2, 3, 15, 16] {
        assert!(door.knock(source(OWNER + known), now).is_ok(), "{known}");
    }
}

/// Proves: Q1
#[test]
fn a_key_that_anybody_can_draw_makes_no_source_known() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let entered = door.knock(source(OWNER), now).expect("a burst");
    assert_eq!(door.settle(entered.place, Guest::Stranger), Ok(None));
    door.leave(entered.place);
    assert!((1..900).filter(|number| door.knock(source(*number), now).is_ok()).count() < 900, "others took all tokens");
    assert!(door.knock(source(OWNER), now).is_err(), "it is as strange as they are");
}

/// Proves: Q1
#[test]
fn a_place_that_was_taken_away_does_not_settle() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let places: Vec<Place> = (0..9).map(|_| door.knock(source(1), now).expect("a burst").place).collect();
    assert_eq!(door.settle(places[0], Guest::Owner), Err(SettleError::Left), "the ninth of one source took it");
    assert_eq!(door.settle(places[1], Guest::Owner), Ok(None));
}

fn machine(number: u32) -> MachineId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    MachineId(id)
}

/// A worker has 257 addresses, its pods' among them: they are one machine. Proves: Q1
#[test]
fn a_machine_has_two_places_from_however_many_addresses() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let settles = |door: &mut Door, from, guest, seconds| {
        let entered = door.knock(source(from), now + Duration::from_secs(seconds)).expect("slow enough");
        (entered.place, door.settle(entered.place, guest))
    };
    let honest: Vec<_> = (0..300).map(|n| settles(&mut door, n, Guest::Member(machine(n)), u64::from(n)).0).collect();
    let mut own = vec![honest[0]];
    for n in 0..257 {
        let (place, instead) = settles(&mut door, 1000 + n, Guest::Member(machine(0)), 300 + u64::from(n));
        assert_eq!(instead, Ok(if own.len() < 2 { None } else { Some(own.remove(0)) }), "its own oldest");
        own.push(place);
    }
    assert!(honest[1..].iter().all(|place| has(&door, *place)), "nobody else makes room");
    assert_eq!(count(&door, Stage::Member), 301);
}

/// Proves: Q1
#[test]
fn machines_without_a_record_have_few_places_and_take_nobodys() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let settles = |door: &mut Door, n: u32, guest: fn(MachineId) -> Guest| {
        let entered = door.knock(source(n), now + Duration::from_secs(u64::from(n))).expect("slow enough");
        door.settle(entered.place, guest(machine(n)))
    };
    for n in 0..64 {
        assert_eq!(settles(&mut door, n, Guest::Newcomer), Ok(None));
    }
    assert_eq!(settles(&mut door, 64, Guest::Newcomer), Err(SettleError::Full));
    assert_eq!(count(&door, Stage::Handshake), 0, "its place is free");
    assert_eq!((settles(&mut door, 65, Guest::Member), count(&door, Stage::Newcomer)), (Ok(None), 64));
    let place = *door.places.keys().next().expect("the first of them");
    door.leave(place);
    assert_eq!(settles(&mut door, 66, Guest::Newcomer), Ok(None));
}

/// Proves: W9 Q1
#[test]
fn a_user_has_four_places_and_its_handshakes_are_not_free() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let settles = |door: &mut Door, n: u32, name: &str| {
        let entered = door.knock(source(n), now + Duration::from_secs(u64::from(n))).expect("slow enough");
        (entered.place, door.settle(entered.place, Guest::User(name.parse().expect("a name"))).expect("there is room"))
    };
    let alices: Vec<_> = (0..4).map(|n| settles(&mut door, n, "alice").0).collect();
    assert_eq!(settles(&mut door, 4, "alice").1, Some(alices[0]), "whatever the source");
    for n in 5..33 {
        assert_eq!(settles(&mut door, n, &format!("u{n}")).1, None);
    }
    assert_eq!((count(&door, Stage::User), count(&door, Stage::Owner)), (32, 0));
    assert_eq!(settles(&mut door, 33, "last").1, Some(alices[1]), "of who holds most");
    let (mut door, user) = (Door::default(), Guest::User("alice".parse().expect("a name")));
    let knocks = |door: &mut Door, guest| {
        let entered = (0..100).map_while(|_| door.knock(source(1), now).ok());
        entered.collect::<Vec<_>>().into_iter().filter(|entered| door.settle(entered.place, guest).is_ok()).count()
    };
    assert_eq!((knocks(&mut door, user), knocks(&mut door, user)), (8, 0), "its source's tokens are spent");
}

/// Proves: Q1
#[test]
fn a_machine_without_a_record_loses_its_own_oldest_place_only() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let mut came = 0;
    let mut settles = |n| {
        came += 1;
        let entered = door.knock(source(came), now + Duration::from_secs(u64::from(came))).expect("slow enough");
        (entered.place, door.settle(entered.place, Guest::Newcomer(machine(n))))
    };
    let (first, _) = settles(0);
    assert!((0..63).all(|n| settles(n).1 == Ok(None)));
    assert_eq!(settles(0).1, Ok(Some(first)), "all are taken, and it has two of them");
    assert_eq!(settles(1).1, Err(SettleError::Full), "it has one, and the others are not its own");
}

/// Proves: Q1
#[test]
fn a_member_that_shakes_hands_without_end_keeps_itself_out() {
    let (mut door, now) = (Door::default(), testkit::origin());
    let shakes = |door: &mut Door, n, now| {
        let entered = door.knock(source(n), now)?;
        door.settle(entered.place, Guest::Member(machine(n))).expect("it has its place");
        door.leave(entered.place);
        Ok::<_, KnockError>(())
    };
    assert_eq!((0..100_000).filter(|_| shakes(&mut door, 1, now).is_ok()).count(), 16);
    assert_eq!(shakes(&mut door, 1, now), Err(KnockError::Source));
    // After a coordinator's start all others come at once.
    assert!((2..1000).all(|n| shakes(&mut door, n, now).is_ok()));
    assert_eq!(shakes(&mut door, 1, now + Duration::from_millis(250)), Ok(()));
}

#[derive(Debug, Clone)]
enum Step {
    Knock(u32),
    Settle(prop::sample::Index, Guest),
    Leave(prop::sample::Index),
}

fn step(sources: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..sources).prop_map(Step::Knock),
        2 => any::<prop::sample::Index>().prop_map(|index| Step::Settle(index, Guest::Stranger)),
        1 => any::<prop::sample::Index>().prop_map(|index| Step::Settle(index, Guest::Owner)),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Proves: Q1
    #[test]
    fn places_are_bounded_and_no_stranger_takes_an_owners(
        steps in prop::collection::vec((step(40), 0u64..500), 1..200),
    ) {
        let (mut door, mut now) = (Door::default(), testkit::origin());
        for (step, millis) in steps {
            now += Duration::from_millis(millis);
            let owners: Vec<Place> = door.places.iter()
                .filter(|(_, held)| held.stage == Stage::Owner).map(|(place, _)| *place).collect();
            let handshakes: Vec<Place> = door.places.iter()
                .filter(|(_, held)| held.stage == Stage::Handshake).map(|(place, _)| *place).collect();
            match step {
                Step::Knock(number) => {
                    let _refused_or_not = door.knock(source(number), now);
                    prop_assert!(owners.iter().all(|place| has(&door, *place)));
                }
                Step::Settle(index, guest) if !handshakes.is_empty() => {
                    let taken = door.settle(*index.get(&handshakes), guest);
                    prop_assert!(taken.is_ok());
                    if guest != Guest::Owner {
                        prop_assert!(owners.iter().all(|place| has(&door, *place)));
                    }
                }
                Step::Leave(index) if !door.places.is_empty() => {
                    let all: Vec<Place> = door.places.keys().copied().collect();
                    door.leave(*index.get(&all));
                }
                Step::Settle(..) | Step::Leave(_) => {}
            }
            for stage in [Stage::Handshake, Stage::Stranger, Stage::Owner] {
                prop_assert!(count(&door, stage) <= stage.room().all);
                for number in 0..40 {
                    let own = door.places.values().filter(|held| held.stage == stage && held.whose == Whose::Source(source(number)));
                    prop_assert!(own.count() <= stage.room().each);
                }
            }
            prop_assert!(door.sources.len() <= 48 + 80 && door.known.len() <= KNOWN);
        }
    }

    /// Sixteen sources do their worst: they knock as often as they like, finish handshakes or not, and never leave. An
    /// owner from an address that nobody has seen gets in at every try, and keeps its place while it shakes hands.
    /// Proves: Q1
    #[test]
    fn whoever_comes_gets_in_while_sixteen_others_flood(
        attack in prop::collection::vec((0..FLOODING, 0u64..300, any::<bool>()), 200..700),
        every in 20usize..60,
    ) {
        let (mut door, mut now) = (Door::default(), testkit::origin());
        let mut owner: Option<(Place, usize)> = None;
        for (step, (number, millis, settles)) in attack.into_iter().enumerate() {
            // Bursts: every second knock is at the same instant as the one before.
            now += Duration::from_millis(if step % 2 == 0 { 0 } else { millis });
            if let Ok(entered) = door.knock(source(number), now)
                && settles
            {
                let _taken_or_not = door.settle(entered.place, Guest::Stranger);
            }
            if let Some((place, until)) = owner
                && step >= until
            {
                prop_assert!(door.settle(place, Guest::Owner).is_ok(), "its place was taken away");
                door.leave(place);
                owner = None;
            }
            if step % every == 0 && owner.is_none() {
                // Another address each time: nothing is known of it.
                let entered = door.knock(source(OWNER + u32::try_from(step).expect("few")), now);
                prop_assert!(entered.is_ok(), "{entered:?} at step {step}");
                owner = entered.ok().map(|entered| (entered.place, step + 15));
            }
        }
    }
}
