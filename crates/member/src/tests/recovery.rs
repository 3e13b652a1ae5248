//! Recoveries of the cluster with one machine alone, as notes on its disk tell of them: gone on with, given up, and never done beside
//! others that lead.

use std::time::Duration;

use model::ClusterRole::Coordinator;
use model::MachineId;

use super::all_say;
use crate::fixture::{World, desired, id};
use crate::{Effect, EffectKind, EtcdStart, Event, RecoveryNote};

/// Proves: K6
#[test]
fn a_recovery_stops_recovers_commits_and_goes_on() {
    let mut world = World::coordinator();
    world.start().settle().past();
    world.note = Some(RecoveryNote::Ordered);
    world.handle(Event::Recover).settle();
    let existing = Some(EtcdStart::Existing { others: vec![] });
    let steps = [
        EffectKind::Units,
        EffectKind::Units,
        EffectKind::Face,
        EffectKind::CommitRecovery,
        EffectKind::Units,
        EffectKind::Units,
        EffectKind::Face,
    ];
    assert_eq!((world.steps(), world.note, world.units.clone()), (steps.to_vec(), None, existing));
}

/// Proves: K6
#[test]
fn a_note_of_an_earlier_boot_is_dropped_where_others_lead() {
    let mut world = World::coordinator();
    world.note = Some(RecoveryNote::Ordered);
    world.start().settle();
    assert_eq!(world.units, None, "nothing runs before others were asked");
    world.hears(&all_say(&[3], &desired(11, Coordinator, &[1, 2, 3])));
    assert_eq!(world.note, None);
    assert!(!world.past().contains(&Effect::Units(Some(EtcdStart::Recovered))));
    assert!(world.units.is_some());
}

/// An etcd whose data has taken all others out would be a second cluster beside them. Proves: K6
#[test]
fn an_etcd_that_went_on_alone_is_put_aside_where_others_lead() {
    for note in [RecoveryNote::Ordered, RecoveryNote::Begun] {
        let mut world = World::coordinator();
        world.note = Some(note);
        world.start().settle().hears(&all_say(&[3], &desired(11, Coordinator, &[1, 2, 3])));
        let begun = note == RecoveryNote::Begun;
        assert_eq!((world.note, world.begun, world.units.is_none()), (None, !begun, begun), "{note:?}");
        assert_eq!(world.past().contains(&Effect::PutEtcdAside), begun);
    }
}

/// A cut between the end of the data and that of its note: an etcd that is told to go on alone without data begins a cluster. Proves: K6
#[test]
fn a_note_without_data_recovers_nothing() {
    let mut world = World::coordinator();
    (world.note, world.begun, world.keys) = (Some(RecoveryNote::Begun), false, false);
    world.start().settle().pass(120);
    assert!(!world.past().contains(&Effect::Units(Some(EtcdStart::Recovered))));
}

/// An announcement that fails, for whatever reason, would have the machine leave a coordinator before that says whether it leads.
/// Proves: K6
#[test]
fn whoever_asks_who_leads_announces_nothing() {
    let mut world = World::coordinator();
    world.note = Some(RecoveryNote::Ordered);
    world.start().settle();
    let announces = |world: &mut World| world.past().iter().any(|effect| matches!(effect, Effect::Announce(_)));
    assert!(world.attended().is_some() && !announces(&mut world));
    world.hears(&all_say(&[3], &desired(11, Coordinator, &[1, 2, 3])));
    assert!(world.note.is_none() && announces(&mut world));
}

/// Proves: K6
#[test]
fn a_note_of_an_earlier_boot_is_done_where_nobody_leads() {
    for coordinators in [&[1, 2, 3][..], &[1]] {
        let mut world = World::coordinator();
        world.kept = desired(10, Coordinator, coordinators);
        world.note = Some(RecoveryNote::Ordered);
        world.start().settle().pass(120);
        assert!(world.past().contains(&Effect::CommitRecovery));
        assert_eq!((world.note, world.units.clone()), (None, Some(EtcdStart::Existing { others: vec![] })));
    }
}

/// Passes so many seconds, in which every coordinator that is asked refuses; some of them may lead.
fn refused(world: &mut World, seconds: u32, may_lead: impl Fn(MachineId) -> bool) {
    let mut left = seconds;
    while left > 0 {
        if let Some(by) = world.attended() {
            let why = String::from("has not read the records yet");
            world.handle(Event::Left { by, why, may_lead: may_lead(by) }).settle();
        } else {
            world.pass(1);
            left -= 1;
        }
    }
}

/// Coordinators that have just begun cannot say yet whether they have a leader. Proves: K6
#[test]
fn a_note_waits_for_coordinators_that_cannot_say_yet() {
    let mut world = World::coordinator();
    world.note = Some(RecoveryNote::Ordered);
    world.start().settle();
    refused(&mut world, 60, |by| by == id(2));
    assert!(world.note.is_some() && world.units.is_none(), "{:?}", world.past());
    let mut answers = world.clone();
    refused(&mut answers, 60, |_| false);
    assert!(answers.past().contains(&Effect::CommitRecovery), "all of them say that they do not lead");
    world.pass(120);
    assert!(world.past().contains(&Effect::CommitRecovery), "none of them answers any more");
}

/// A coordinator that has just recovered ends its etcd, and starts it anew: in between it says nothing. Proves: K6
#[test]
fn one_round_in_which_nobody_leads_is_not_enough_for_a_note() {
    let mut world = World::coordinator();
    world.note = Some(RecoveryNote::Ordered);
    world.start().settle();
    let refuse = |world: &mut World| {
        while let Some(by) = world.attended() {
            let why = String::from("nothing listens there");
            world.handle(Event::Left { by, why, may_lead: false }).settle();
        }
    };
    refuse(&mut world);
    assert!(world.note.is_some() && world.units.is_none(), "{:?}", world.past());
    world.pass(3).hears(&all_say(&[3], &desired(11, Coordinator, &[1, 2, 3])));
    assert!(world.note.is_none() && !world.past().contains(&Effect::Units(Some(EtcdStart::Recovered))));
}

/// Proves: K6
#[test]
fn a_recovery_that_does_not_start_asks_again_who_leads() {
    let mut world = World::coordinator();
    world.note = Some(RecoveryNote::Ordered);
    world.start().settle();
    for _ in 0..500 {
        let next = (!world.queue.is_empty()).then(|| world.queue.remove(0));
        match (next, world.attended()) {
            (Some(Effect::Units(Some(EtcdStart::Recovered))), _) => break,
            (Some(effect), _) => {
                if let Some((kind, outcome)) = world.perform(effect) {
                    world.handle(Event::Done(kind, Ok(outcome)));
                }
            }
            (None, Some(by)) => {
                world.handle(Event::Left { by, why: String::from("nothing listens there"), may_lead: false });
            }
            (None, None) => {
                world.now += Duration::from_secs(1);
                world.handle(Event::Tick);
            }
        }
    }
    world.handle(Event::Done(EffectKind::Units, Err(String::from("fails")))).settle();
    world.hears(&all_say(&[3], &desired(11, Coordinator, &[1, 2, 3])));
    assert!(world.note.is_none() && !world.past().contains(&Effect::CommitRecovery));
}
