//! Lives of one machine: promotions, demotions and recoveries with cuts anywhere, and coordinators that lie.

mod recovery;
mod unsure;
mod voices;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::Word;
use cluster::desired::{Desired, EtcdPart};
use cluster::peers::News;
use cluster::record::{ColdStartEpochs, Generations};
use cluster::state::StateVersion;
use keys::cold_start::Epoch;
use model::ClusterRole::{Coordinator, Node};
use model::Level;
use proptest::prelude::*;
use sim::cast;

use crate::fixture::{World, desired, id, ids, learner, look, member, version, view, works};
use crate::{
    Effect, EffectKind, EffectOutcome, EtcdStart, Event, Face, KeptFile, OwnRecords, OwnerReason, Part, RecoveryNote,
};

/// The same word by each of these coordinators.
fn all_say(who: &[u8], word: &Desired) -> BTreeMap<u8, Desired> {
    who.iter().map(|n| (*n, word.clone())).collect()
}

fn node(revision: u64) -> Desired {
    desired(revision, Node, &[2, 3])
}

/// Face, keys, shares, etcd and units of a machine in the end.
fn end(world: &World) -> (Option<Face>, bool, bool, bool, Option<EtcdStart>) {
    (world.face, world.keys, world.shares, world.begun, world.units.clone())
}

fn node_end() -> (Option<Face>, bool, bool, bool, Option<EtcdStart>) {
    (Some(Face::Node), false, false, false, None)
}

/// Proves: S14
#[test]
fn promotion_notes_takes_keys_starts_and_shows_in_order() {
    let mut world = World::node();
    world.start().settle().past();
    world.hears(&all_say(&[2, 3], &learner(11, &[2, 3])));
    assert_eq!(
        world.steps(),
        [EffectKind::Keep, EffectKind::NoteJoin, EffectKind::TakeKeys, EffectKind::Units, EffectKind::Face]
    );
    let others = vec![member(2), member(3)];
    assert_eq!(world.units, Some(EtcdStart::Existing { others }));
    assert_eq!(end(&world).0, Some(Face::Coordinator));
}

/// Proves: S14
#[test]
fn demotion_hides_stops_and_erases_in_order() {
    let mut world = World::coordinator();
    world.start().settle();
    assert_eq!(world.steps(), [EffectKind::Units, EffectKind::Face]);
    world.hears(&all_say(&[2, 3], &node(11)));
    let steps = world.steps();
    let first = [EffectKind::Face, EffectKind::Units, EffectKind::Keep];
    assert_eq!(steps[..3], first, "nothing is shown and nothing runs behind the first voice");
    let erases = [EffectKind::EraseShares, EffectKind::EraseKeys, EffectKind::EraseEtcd, EffectKind::Face];
    assert_eq!(steps[3..], erases, "a node is shown once nothing is left");
    assert_eq!(end(&world), node_end());
}

/// Pods outlive the coordinator role, and a panic starts nothing anew. Proves: W1 S14
#[test]
fn kubernetes_follows_the_roles_while_the_machine_runs() {
    let part = |world: &mut World| {
        let kubernetes = |effect| {
            let Effect::Kubernetes { assignment, signer } = effect else { return None };
            Some((assignment.kubernetes().len(), signer.is_some()))
        };
        world.past().into_iter().filter_map(kubernetes).collect::<Vec<_>>()
    };
    let mut world = World::coordinator();
    world.kept = works(world.kept);
    world.start().settle();
    assert_eq!(part(&mut world), [(2, false)], "it signs for itself");
    world.start().settle();
    assert_eq!(part(&mut world), [], "all runs still");
    world.hears(&all_say(&[2, 3], &works(node(11))));
    assert_eq!(part(&mut world).last(), Some(&(1, true)), "without the control plane");
    world.pass(60);
    world.hears(&all_say(&[2, 3], &node(12)));
    assert_eq!(part(&mut world), [(0, false)]);
    world.cut().start().settle();
    assert_eq!(part(&mut world), [], "nothing is to run");
}

/// A coordinator whose etcd has begun hears its own records first, and whoever has none listens to others at once. Proves: S14
#[test]
fn only_a_coordinator_that_has_begun_waits_for_its_own_records() {
    let listens = |change: fn(&mut World)| {
        let mut world = World::coordinator();
        change(&mut world);
        world.start();
        world.queue.iter().any(|effect| matches!(effect, Effect::Attend { .. }))
    };
    assert!(!listens(|_| {}));
    assert!(listens(|world| world.kept = node(10)));
    assert!(listens(|world| world.keys = false));
    assert!(listens(|world| world.begun = false));
    assert!(listens(|world| world.note = Some(RecoveryNote::Ordered)), "others may lead");
}

/// Proves: S14, D11
#[test]
fn the_newer_of_desired_state_and_directory_says_who_is_asked() {
    for (at, asked) in [(9, &[2, 3][..]), (10, &[2, 3]), (11, &[4])] {
        let mut world = World::node();
        world.start().settle();
        let coordinators = vec![(id(4), member(4).1)];
        world.handle(Event::Directory { at: version(at).expect("a version"), coordinators });
        let mut seen = BTreeSet::new();
        for round in 0..3 {
            while let Some(by) = world.attended() {
                if round > 0 {
                    seen.insert(by);
                }
                world.handle(Event::Left { by, why: String::from("refuses"), may_lead: false }).settle();
            }
            world.pass(8);
        }
        assert_eq!(seen, ids(asked), "a directory of version {at} beside desired state of 10");
    }
}

/// Proves: S14
#[test]
fn desired_state_is_kept_before_it_is_obeyed() {
    let mut world = World::node();
    world.start().settle();
    world.pass(1);
    let by = world.attended().expect("somebody");
    world.past();
    world.handle(Event::Told { by, word: Word::Desired(learner(11, &[2, 3]).into()) });
    let asked = std::mem::take(&mut world.queue);
    assert!(matches!(&asked[..], [Effect::Keep(KeptFile::Desired(_))]), "{asked:?}");
    world.handle(Event::Done(EffectKind::Keep, Err(String::from("no space")))).settle().pass(1);
    assert_eq!(world.steps().first(), Some(&EffectKind::Keep), "it is written again, and obeyed then");
    assert_eq!(world.face, Some(Face::Coordinator));
}

/// An owner is added and removed at once: the second word is what is obeyed, and what the first one is about to write. Proves: S14, Q1
#[test]
fn a_word_that_takes_back_one_being_kept_is_kept() {
    for ends in [Ok(EffectOutcome::Whole), Err(String::from("its answer is lost"))] {
        let mut world = World::node();
        world.start().settle().pass(1);
        let by = world.attended().expect("somebody");
        let before = world.kept.clone();
        let another = Desired { at: version(11), owners: vec![cast::owner(1), cast::owner(2)], ..before.clone() };
        let as_before = Desired { at: version(12), ..before.clone() };
        world.handle(Event::Told { by, word: Word::Desired(another.clone().into()) });
        world.handle(Event::Told { by, word: Word::Desired(as_before.clone().into()) });
        let asked = std::mem::take(&mut world.queue);
        assert!(matches!(&asked[..], [Effect::Keep(KeptFile::Desired(_))]), "{asked:?}");
        world.kept = another;
        world.handle(Event::Done(EffectKind::Keep, ends)).settle().pass(2);
        assert!(world.kept.says_the_same(&before), "{:?}", world.kept);
    }
}

/// Proves: S14, Q1
#[test]
fn one_voice_erases_nothing() {
    for truth in [None, Some(desired(12, Coordinator, &[1, 2, 3]))] {
        let mut world = World::coordinator();
        world.start().settle();
        let mut says = all_say(&[2], &node(11));
        says.extend(truth.clone().map(|truth| (3, truth)));
        world.hears(&says).pass(300);
        assert!(world.keys && world.shares && world.begun, "nothing is erased");
        let is_running = world.units.is_some();
        assert_eq!(is_running, truth.is_some(), "who hears the truth goes on");
        world.cut().start().settle();
        assert!(world.units.is_some(), "the word of one is not kept");
    }
}

/// Proves: S14
#[test]
fn a_second_voice_is_sought_among_those_that_own_records_named() {
    let mut world = World::coordinator();
    world.start().settle();
    world.hears(&all_say(&[2], &node(11))).pass(1);
    for _ in 0..3 {
        assert!(world.keys);
        world.pass(31);
        world.hears(&all_say(&[2], &node(11)));
    }
    world.pass(31).hears(&all_say(&[2, 3], &node(11)));
    assert_eq!(end(&world), node_end());
}

/// The lists that a liar names count for nothing. Proves: Q1
#[test]
fn voices_are_counted_by_own_records_alone() {
    let mut world = World::coordinator();
    world.kept = desired(10, Coordinator, &[1, 2, 8, 9]);
    world.start().settle();
    let says = all_say(&[2, 8, 9], &node(11));
    for _ in 0..5 {
        world.hears(&says).pass(40);
    }
    assert!(world.keys && world.begun);
}

/// Proves: K6
#[test]
fn an_owner_erases_what_no_two_voices_can_end() {
    let mut world = World::coordinator();
    world.start().settle();
    world.handle(Event::Erase).settle();
    assert!(world.keys, "nobody said that it is a node");
    world.hears(&all_say(&[2], &node(11)));
    assert!(world.keys);
    world.past();
    world.handle(Event::Erase).settle();
    assert_eq!(end(&world), node_end());
    assert!(world.past().contains(&Effect::Report(Part::Doubt, None)), "there is nothing more to erase");
}

/// Proves: S14
#[test]
fn a_word_told_while_an_owner_erases_is_obeyed_too() {
    let mut world = World::coordinator();
    world.start().settle().hears(&all_say(&[2], &node(11)));
    let by = world.attended().expect("somebody");
    world.handle(Event::Erase);
    world.handle(Event::Told { by, word: Word::Desired(Desired { level: Level::Insecure, ..node(12) }.into()) });
    world.settle();
    assert_eq!((world.kept.at, world.kept.level), (version(12), Level::Insecure));
    assert_eq!(end(&world), node_end());
}

/// Proves: S14
#[test]
fn own_records_that_a_quorum_keeps_need_no_second_voice() {
    let mut world = World::coordinator();
    world.start().settle();
    let kept =
        |desired: Desired| Event::Records(OwnRecords::Kept { desired: Some(desired.into()), peers: version(11) });
    world.handle(kept(desired(11, Coordinator, &[1, 4]))).settle();
    assert_eq!(world.electorate, Some(ids(&[4])));
    world.handle(kept(node(12))).settle();
    assert_eq!(end(&world), node_end());
}

/// Proves: Q1
#[test]
fn a_lower_version_is_refused_and_its_teller_left() {
    let mut world = World::node();
    world.start().settle().pass(1);
    let by = world.attended().expect("somebody");
    for word in [
        Word::Desired(learner(9, &[2]).into()),
        Word::Desired(Desired { at: version(10 + (1 << 32)), ..learner(9, &[2]) }.into()),
        Word::Desired(Desired { at: Some(StateVersion { recoveries: 2, revision: 10 }), ..learner(9, &[2]) }.into()),
        Word::News(News::Behind),
        Word::News(News::Whole { version: version(9).expect("one"), peers: BTreeMap::new() }),
    ] {
        let mut world = world.clone();
        world.handle(Event::Told { by, word: word.clone() }).settle();
        assert_ne!(world.attended(), Some(by), "{word:?}");
        assert_eq!(world.kept, node(10));
        assert!(!world.past().iter().any(|effect| matches!(effect, Effect::Mesh(_))));
    }
    world.handle(Event::Told { by, word: Word::Desired(learner(10, &[2]).into()) }).settle();
    assert_eq!(world.kept, learner(10, &[2]), "an equal version is taken");
}

/// A learner that votes by now keeps what it has acknowledged. Proves: S14
#[test]
fn an_older_look_at_members_makes_no_learner_of_a_voter() {
    let mut world = World::coordinator();
    world.start().settle();
    let old = Desired { look: Some(look(9)), ..learner(11, &[2, 3]) };
    world.hears(&all_say(&[2], &old)).pass(20).hears(&all_say(&[2], &old));
    assert!(!world.past().contains(&Effect::PutEtcdAside));
    assert_eq!((world.begun, &world.kept.etcd), (true, &EtcdPart::Voter));
    world.hears(&all_say(&[2], &learner(11, &[2, 3])));
    assert!(world.past().contains(&Effect::PutEtcdAside), "by a younger one");
}

/// A machine that one coordinator has told of a far future, or that was off through two recoveries. Proves: K6
#[test]
fn two_voices_end_what_one_has_said() {
    let mut world = World::new(desired(1 << 31, Node, &[2, 3]));
    world.start().settle().pass(1);
    let older = all_say(&[2, 3], &learner(11, &[2, 3]));
    world.hears(&older).pass(5).hears(&older);
    assert_eq!(world.face, Some(Face::Coordinator));
    let mut world = World::node();
    world.start().settle();
    let at = Some(StateVersion { recoveries: 3, revision: 11 });
    let one = all_say(&[2], &Desired { at, ..learner(11, &[2]) });
    for _ in 0..5 {
        world.hears(&one).pass(20);
    }
    assert_eq!(world.face, Some(Face::Node), "one voice is not enough");
    let both = all_say(&[2, 3], &one[&2]);
    world.hears(&both).pass(20).hears(&both);
    assert_eq!(world.face, Some(Face::Coordinator));
}

/// Proves: D14
#[test]
fn a_lone_coordinator_without_keys_needs_its_owner() {
    let mut world = World::new(desired(10, Coordinator, &[1]));
    world.keys = true;
    world.start().settle().pass(60);
    let asked = world.past();
    let need = asked.iter().filter(|effect| **effect == Effect::NeedOwner(OwnerReason::Alone));
    assert_eq!((need.count(), world.keys, world.units.clone()), (1, true, None), "{asked:?}");
}

/// Proves: S14
#[test]
fn a_voter_without_etcds_data_starts_nothing() {
    let mut world = World::coordinator();
    world.begun = false;
    world.start().settle();
    assert!(!world.keys, "keys of a promotion that was cut go");
    world.hears(&all_say(&[2, 3], &desired(11, Coordinator, &[1, 2, 3]))).pass(60);
    assert_eq!((world.units.clone(), world.keys), (None, false));
    world.hears(&all_say(&[2, 3], &learner(12, &[2, 3])));
    assert!(world.units.is_some());
}

/// Proves: S14
#[test]
fn an_etcd_that_has_not_begun_is_replaced_for_other_members() {
    let mut world = World::node();
    world.etcd_begins = false;
    world.start().settle();
    world.hears(&all_say(&[2, 3], &learner(11, &[2, 3]))).past();
    world.pass(9).hears(&all_say(&[2, 3], &learner(12, &[2]))).pass(2);
    assert_eq!(world.units, Some(EtcdStart::Existing { others: vec![member(2)] }));
    let steps = world.steps();
    assert_eq!(
        steps,
        [
            EffectKind::Keep,
            EffectKind::LookAtEtcd,
            EffectKind::Units,
            EffectKind::LookAtEtcd,
            EffectKind::Units,
            EffectKind::Face
        ]
    );
    world.begun = true;
    world.hears(&all_say(&[2, 3], &learner(13, &[3]))).pass(20);
    assert_eq!(world.units, Some(EtcdStart::Existing { others: vec![member(2)] }), "it has begun");
    assert_eq!(world.steps(), [EffectKind::Keep, EffectKind::LookAtEtcd]);
}

/// A learner that has not begun is taken out, and added again. Proves: S14
#[test]
fn an_etcd_begins_beside_the_members_of_one_membership() {
    let mut world = World::node();
    (world.etcd_begins, world.votes) = (false, false);
    world.start().settle();
    world.hears(&all_say(&[2, 3], &learner(11, &[2, 3])));
    assert!(world.units.is_some());
    let out = Desired { etcd: EtcdPart::Out, ..learner(12, &[2, 3]) };
    world.hears(&all_say(&[2, 3], &out)).past();
    assert_eq!(world.units, None, "it would begin by itself as soon as it is added");
    world.etcd_begins = true;
    world.hears(&all_say(&[2, 3], &learner(13, &[2, 3])));
    assert!(world.units.is_some() && world.begun && !world.past().contains(&Effect::PutEtcdAside));
}

/// A machine that a recovery took out, or that was off while it was made a node and a coordinator again. Proves: S14, K6
#[test]
fn a_promotion_replaces_what_etcd_left_here() {
    let mut world = World::coordinator();
    world.start().settle();
    world.hears(&all_say(&[2], &node(11))).past();
    world.hears(&all_say(&[2], &learner(12, &[2])));
    let steps = world.steps();
    let joins = [EffectKind::PutEtcdAside, EffectKind::Keep, EffectKind::NoteJoin, EffectKind::TakeKeys];
    assert_eq!(steps[..4], joins, "{steps:?}");
    assert_eq!(world.units, Some(EtcdStart::Existing { others: vec![member(2)] }));
    // The same where it is to coordinate before etcd has added it.
    let mut world = World::coordinator();
    world.start().settle();
    world.hears(&all_say(&[2], &node(11)));
    let not_added = Desired { etcd: EtcdPart::Out, ..learner(12, &[2]) };
    world.past();
    world.hears(&all_say(&[2], &not_added));
    assert!(world.past().contains(&Effect::PutEtcdAside));
    world.hears(&all_say(&[2], &learner(13, &[2])));
    assert!(!world.past().contains(&Effect::PutEtcdAside), "what begins now is not of before");
    assert_eq!(world.units, Some(EtcdStart::Existing { others: vec![member(2)] }));
    // The same behind a cut at each step.
    for cut in 0..8 {
        let mut world = World::coordinator();
        world.start().settle();
        world.pass(10);
        world.is_told(&learner(12, &[2]));
        world.perform_some(cut);
        world.cut().start().settle();
        world.hears(&all_say(&[2], &learner(12, &[2]))).pass(5).hears(&all_say(&[2], &learner(12, &[2])));
        assert_eq!((world.face, world.units.is_some()), (Some(Face::Coordinator), true), "cut behind {cut}");
        assert!(world.kept.says_the_same(&learner(12, &[2])));
    }
}

/// Proves: S14
#[test]
fn what_is_right_causes_no_step() {
    for (mut world, word) in [(World::coordinator(), desired(11, Coordinator, &[1, 2, 3])), (World::node(), node(11))] {
        world.start().settle().past();
        world.hears(&all_say(&[2, 3], &word)).pass(100);
        assert_eq!(world.steps(), []);
        // A panic of the life, while its units run.
        world.start().settle();
        let faces = world.steps().into_iter().filter(|kind| *kind == EffectKind::Units);
        assert_eq!(faces.count(), 0, "no unit is touched");
    }
}

/// Each write is a sync of the machine's disk. Proves: Q1
#[test]
fn peers_are_written_only_when_they_are_others() {
    let mut world = World::coordinator();
    world.start().settle();
    let mut writes = |revision| {
        world.handle(Event::Records(OwnRecords::Kept { desired: None, peers: version(revision) })).settle().pass(20);
        world.past().iter().filter(|effect| **effect == Effect::Keep(KeptFile::Peers)).count()
    };
    assert_eq!([11, 11, 11, 12, 12].map(&mut writes), [1, 0, 0, 1, 0], "a change of the audit is none of the peers");
}

#[test]
fn words_of_a_coordinator_that_was_left_are_not_heard() {
    let mut world = World::node();
    world.start().settle().pass(1);
    let by = world.attended().expect("somebody");
    world.handle(Event::Left { by, why: String::from("gone"), may_lead: false }).settle();
    world.handle(Event::Told { by, word: Word::Desired(learner(11, &[2]).into()) }).settle();
    assert_eq!(world.kept, node(10));
}

/// Proves: D11
#[test]
fn a_directory_that_is_missing_is_asked_of_each_other_once() {
    let mut world = World::new(desired(10, Node, &[2, 3, 4]));
    world.start().settle().pass(1);
    let by = world.attended().expect("somebody");
    world.past();
    world.handle(Event::Missing(ids(&[1, 2, 3, 4, 9])));
    let asked = |effects: &[Effect]| {
        let place = |effect: &Effect| if let Effect::AskDirectory(place) = effect { Some(place.0) } else { None };
        effects.iter().filter_map(place).collect::<Vec<_>>()
    };
    assert_eq!(asked(&world.queue).len(), 1, "one at a time");
    let all: BTreeSet<_> = asked(&world.settle().past()).into_iter().collect();
    let others: BTreeSet<_> = ids(&[2, 3, 4]).into_iter().filter(|machine| *machine != by).collect();
    assert_eq!(all, others, "neither of itself, nor of a stranger, nor of the one that is listened to");
    assert_eq!(asked(&world.pass(60).past()), []);
}

/// Proves: M6
#[test]
fn an_announcement_that_a_coordinator_puts_off_is_made_again() {
    let announces = |world: &World| world.queue.iter().any(|effect| matches!(effect, Effect::Announce(_)));
    let mut world = World::node();
    world.start();
    assert!(announces(&world));
    world.queue.retain(|effect| !matches!(effect, Effect::Announce(_)));
    let by = world.attended();
    world.handle(Event::Done(EffectKind::Announce, Ok(EffectOutcome::PutOff)));
    assert_eq!((announces(&world), world.attended()), (false, by), "the coordinator is heard on");
    world.now += door::AGAIN - Duration::from_millis(1);
    assert!(!announces(world.handle(Event::Tick)));
    world.now += Duration::from_millis(1);
    assert!(announces(world.handle(Event::Tick)));
    world.handle(Event::Done(EffectKind::Announce, Err(String::from("refused"))));
    assert_ne!(world.attended(), by, "a refusal ends the listening");
}

/// Proves: O12
#[test]
fn what_holds_is_reported_once_and_its_end_too() {
    let mut world = World::coordinator();
    world.start().settle().past();
    world.hears(&all_say(&[2], &node(11)));
    world.pass(31).hears(&all_say(&[2], &node(12)));
    let doubts = |world: &mut World| {
        let said = |effect| if let Effect::Report(Part::Doubt, text) = effect { Some(text.is_some()) } else { None };
        world.past().into_iter().filter_map(said).collect::<Vec<_>>()
    };
    assert_eq!(doubts(&mut world), [true]);
    world.pass(31).hears(&all_say(&[2, 3], &desired(13, Coordinator, &[1, 2, 3])));
    assert_eq!(doubts(&mut world), [false]);
}

/// A share that comes to lie there behind the erasure would stay. Proves: S14 K6
#[test]
fn nothing_is_erased_while_a_share_is_being_written() {
    let mut world = World::coordinator();
    world.start().settle();
    let epochs = ColdStartEpochs { current: Epoch::new(1, ids(&[1, 2, 3])).ok(), next: None };
    world.sees(view(5, &[1, 2, 3], &epochs, Generations::One(1)));
    let share = world.queue.iter().position(|effect| matches!(effect, Effect::WriteShare(..))).expect("it is due");
    let share = world.queue.remove(share);
    world.settle().past();
    let kept = OwnRecords::Kept { desired: Some(node(11).into()), peers: version(11) };
    world.handle(Event::Records(kept)).settle();
    assert_eq!((world.steps(), world.keys), (vec![EffectKind::Keep], true), "it waits for the share");
    let (kind, outcome) = world.perform(share).expect("it ends");
    world.handle(Event::Done(kind, Ok(outcome))).settle();
    assert_eq!(end(&world), node_end());
    // A coordinator goes on meanwhile.
    let mut world = World::coordinator();
    world.start();
    world.queue.retain(|effect| !matches!(effect, Effect::WriteShare(..)));
    assert!(world.queue.iter().any(|effect| matches!(effect, Effect::Units(Some(_)))));
}

/// An end of an effect that was not asked for changes nothing. Proves: S14
#[test]
fn only_the_end_of_the_step_that_is_under_way_counts() {
    let mut world = World::node();
    world.start().settle();
    world.hears(&all_say(&[2, 3], &desired(11, Coordinator, &[1, 2, 3])));
    for kind in [EffectKind::TakeKeys, EffectKind::NoteJoin, EffectKind::Units, EffectKind::Face, EffectKind::EraseEtcd]
    {
        let before = world.life.clone().expect("it lives").poll_timeout();
        world.handle(Event::Done(kind, Ok(EffectOutcome::Whole))).settle();
        assert_eq!(world.life.as_ref().expect("it lives").poll_timeout(), before);
        assert_eq!((world.units.clone(), world.face), (None, Some(Face::Node)));
    }
}

/// Step of a random life.
#[derive(Debug, Clone)]
enum Chance {
    /// So many effects are performed, and then the machine is cut off its power.
    Cut(usize),
    /// The life panics behind so many effects; its units run on.
    Panic(usize),
    /// An effect fails.
    Fails(usize),
    Pass(u64),
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        (0_usize..8).prop_map(Chance::Cut),
        (0_usize..8).prop_map(Chance::Panic),
        (0_usize..8).prop_map(Chance::Fails),
        (1_u64..40).prop_map(Chance::Pass),
    ]
}

impl World {
    /// Performs the next effects, at most so many.
    fn perform_some(&mut self, most: usize) {
        for _ in 0..most {
            if self.queue.is_empty() {
                return;
            }
            let effect = self.queue.remove(0);
            if let Some((kind, outcome)) = self.perform(effect) {
                self.handle(Event::Done(kind, Ok(outcome)));
            }
        }
    }

    /// The attended coordinator says what holds.
    fn is_told(&mut self, word: &Desired) {
        if let Some(by) = self.attended() {
            self.handle(Event::Told { by, word: Word::Desired(word.clone().into()) });
        }
    }
}

proptest! {
    /// Wherever a promotion or a demotion is cut, panics or fails: the end is the same. The world checks after each effect that nothing
    /// is erased but on a kept word. Proves: S14, D14
    #[test]
    fn no_cut_changes_the_end(chances in prop::collection::vec(chance(), 0..12), promote in any::<bool>()) {
        let (mut world, word) = match promote {
            true => (World::node(), learner(11, &[2, 3])),
            false => (World::coordinator(), node(11)),
        };
        world.start();
        for chance in chances {
            world.is_told(&word);
            match chance {
                Chance::Cut(behind) => {
                    world.perform_some(behind);
                    world.cut().start();
                }
                Chance::Panic(behind) => {
                    world.perform_some(behind);
                    world.start();
                }
                Chance::Fails(behind) => {
                    world.perform_some(behind);
                    if let Some(kind) = world.queue.first().and_then(Effect::kind) {
                        world.queue.remove(0);
                        world.handle(Event::Done(kind, Err(String::from("fails"))));
                    }
                }
                Chance::Pass(seconds) => drop(world.settle().pass(seconds)),
            }
        }
        world.settle();
        let says = all_say(&[2, 3], &word);
        for _ in 0..4 {
            world.hears(&says).pass(40);
        }
        if promote {
            prop_assert_eq!(end(&world), (Some(Face::Coordinator), true, true, true, world.units.clone()));
            let is_member = matches!(world.units, Some(EtcdStart::Existing { .. }));
            prop_assert!(is_member);
        } else {
            prop_assert_eq!(end(&world), node_end());
        }
        prop_assert!(word.says_the_same(&world.kept));

    }
}

/// A demotion as it goes: own records say so first, then etcd lets go, and two others say it. Proves: S14
#[test]
fn a_demotion_ends_by_the_words_of_two_others() {
    let mut world = World::coordinator();
    world.start().settle();
    let kept =
        |desired: Desired| Event::Records(OwnRecords::Kept { desired: Some(desired.into()), peers: version(11) });
    world.handle(kept(desired(11, Coordinator, &[1, 2, 3]))).settle();
    world.handle(kept(desired(12, Coordinator, &[2, 3]))).settle();
    world.handle(Event::Records(OwnRecords::Lost)).settle().pass(6);
    world.hears(&all_say(&[2, 3], &node(13)));
    assert_eq!(end(&world), node_end());
}

/// Proves: S14
#[test]
fn units_that_failed_half_way_stop_before_anything_goes() {
    let mut world = World::node();
    world.start().settle();
    world.hears(&all_say(&[2, 3], &node(10)));
    let by = world.attended().expect("somebody");
    world.handle(Event::Told { by, word: Word::Desired(learner(11, &[2, 3]).into()) });
    while !matches!(world.queue.first(), Some(Effect::Units(Some(_)))) {
        let effect = world.queue.remove(0);
        if let Some((kind, outcome)) = world.perform(effect) {
            world.handle(Event::Done(kind, Ok(outcome)));
        }
    }
    // Some of them run, etcd among them.
    let effect = world.queue.remove(0);
    world.perform(effect);
    world.handle(Event::Done(EffectKind::Units, Err(String::from("one does not start")))).settle().past();
    world.handle(Event::Told { by, word: Word::Desired(node(12).into()) }).settle();
    world.pass(2);
    assert!(world.steps().contains(&EffectKind::Units), "they stop");
    assert_eq!(end(&world), node_end());
}

/// Proves: O11
#[test]
fn why_a_role_is_held_up_is_told_until_it_rests() {
    let mut world = World::coordinator();
    world.start().fails(EffectKind::Units).settle();
    let told = |world: &mut World| {
        let of_role = |effect| if let Effect::Report(Part::Role, text) = effect { Some(text) } else { None };
        world.past().into_iter().filter_map(of_role).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut world), [Some(String::from("fails"))]);
    world.pass(30);
    assert_eq!(told(&mut world), [None], "it was done again, and all is as it should be");
}
