//! Voices that say Node to a coordinator: which of them count, and what a later word makes of them.

use std::collections::BTreeMap;

use cluster::Word;
use cluster::desired::{Desired, EtcdPart};
use cluster::peers::News;
use model::ClusterRole::Coordinator;

use super::{end, node, node_end};
use crate::fixture::{World, desired, id, version};
use crate::{AGAIN, Effect, EffectKind, Event, KeptFile};

/// Has coordinator `n` say this, once the machine listens to it.
fn says(world: &mut World, n: u8, word: Word) {
    for _ in 0..100 {
        match world.attended() {
            Some(by) if by == id(n) => {
                world.handle(Event::Told { by, word });
                return;
            }
            Some(by) => drop(world.handle(Event::Left { by, why: String::from("refuses"), may_lead: false }).settle()),
            None => drop(world.pass(1)),
        }
    }
    panic!("{n} is never asked");
}

fn of(desired: Desired) -> Word {
    Word::Desired(desired.into())
}

/// Words that are refused are not believed, and their teller is no voice either. Proves: S14
#[test]
fn a_voice_that_is_taken_back_counts_no_more() {
    for takes_back in [false, true] {
        let mut world = World::coordinator();
        world.start().settle();
        says(&mut world, 2, of(node(11)));
        says(&mut world, 3, Word::News(News::Whole { version: version(20).expect("one"), peers: BTreeMap::new() }));
        if takes_back {
            says(&mut world, 2, of(desired(15, Coordinator, &[1, 2, 3])));
        }
        says(&mut world, 3, of(node(21)));
        world.settle();
        assert_eq!(end(&world) == node_end(), !takes_back);
        assert_eq!(world.begun, takes_back, "the second one alone erases nothing");
        says(&mut world, 2, of(node(22)));
        assert_eq!(end(world.settle()), node_end(), "both say so");
    }
}

/// The machine as it is told by one that etcd has let go of it, and that it is to be a coordinator anew.
fn anew(revision: u64) -> Word {
    of(Desired { etcd: EtcdPart::Out, ..desired(revision, Coordinator, &[1, 2, 3]) })
}

fn writes(world: &World, revision: u64) -> bool {
    let is_it = |effect: &Effect| matches!(effect, Effect::Keep(KeptFile::Desired(it)) if it.at == version(revision));
    world.queue.iter().any(is_it)
}

/// The write of a demotion fails, and the machine is promoted again before the next one. Proves: S14
#[test]
fn a_promotion_ends_a_demotion_that_is_not_kept() {
    for is_promoted in [false, true] {
        let mut world = World::coordinator();
        world.start().settle();
        says(&mut world, 2, of(node(11)));
        says(world.settle(), 3, of(node(11)));
        world.fails(EffectKind::Keep);
        if is_promoted {
            says(&mut world, 3, anew(12));
        }
        world.now += AGAIN;
        world.handle(Event::Tick);
        assert_eq!(writes(&world, 11), !is_promoted);
        world.settle();
        assert_eq!(world.kept.at, version(if is_promoted { 12 } else { 11 }));
    }
}

/// Two say that the machine is a node while it puts etcd's data aside to begin anew, or one and an owner. Proves: S14
#[test]
fn a_demotion_ends_a_promotion_that_is_not_kept() {
    for is_by_owner in [false, true] {
        let mut world = World::coordinator();
        world.start().settle();
        says(&mut world, 2, anew(11));
        while let Some(at) = world.queue.iter().position(|effect| *effect != Effect::PutEtcdAside) {
            let effect = world.queue.remove(at);
            if let Some((kind, outcome)) = world.perform(effect) {
                world.handle(Event::Done(kind, Ok(outcome)));
            }
        }
        let aside = std::mem::take(&mut world.queue);
        assert_eq!(aside, [Effect::PutEtcdAside]);
        says(&mut world, 2, of(node(12)));
        if is_by_owner {
            world.settle().handle(Event::Erase);
        } else {
            says(world.settle(), 3, of(node(12)));
        }
        world.settle().queue = aside;
        world.settle().pass(30);
        assert_eq!((end(&world), world.kept.at), (node_end(), version(12)));
    }
}
