//! Desired state whose write has not ended well: the file may hold it, and the machine goes by what it knows to be kept. Nothing starts
//! then that only one of the two says.

use cluster::Word;
use cluster::desired::Desired;
use sim::cast;

use super::node;
use crate::fixture::{World, learner, works};
use crate::{AGAIN, Effect, EffectKind, Event};

/// Has a step fail, then the write of a word that comes behind it; whether the step is made again while the word is not kept.
fn is_made_again(world: &mut World, (step, again): (EffectKind, EffectKind), word: &Desired) -> bool {
    let half = AGAIN / 2;
    world.fails(step).settle();
    world.now += half;
    let by = world.attended().expect("somebody");
    world.handle(Event::Told { by, word: Word::Desired(word.clone().into()) }).fails(EffectKind::Keep).settle();
    world.kept = word.clone(); // its answer is lost
    world.now += AGAIN - half;
    world.handle(Event::Tick);
    let is_asked = |effect: &Effect| effect.kind() == Some(again);
    let is_made = world.queue.iter().any(is_asked);
    assert!(world.life.as_ref().and_then(|life| life.poll_timeout()).is_some_and(|(due, _)| due > world.now));
    world.settle().pass(30);
    assert_eq!(world.life.as_ref().map(|life| life.desired()), Some(word), "it is obeyed once it is kept");
    is_made
}

fn owners(desired: Desired) -> Desired {
    Desired { owners: vec![cast::owner(1), cast::owner(2)], ..desired }
}

/// Proves: W1 S14
#[test]
fn no_role_of_kubernetes_starts_that_a_file_may_not_name() {
    for (word, starts) in [(node(11), false), (owners(works(node(11))), true)] {
        let mut world = World::new(works(node(10)));
        world.start();
        let kubernetes = EffectKind::Kubernetes;
        assert_eq!(is_made_again(&mut world, (kubernetes, kubernetes), &word), starts);
        let runs = world.kubernetes.as_ref().map_or(0, |assignment| assignment.kubernetes().len());
        assert_eq!(runs, word.assignment.kubernetes().len());
    }
}

/// Proves: S14
#[test]
fn no_unit_starts_where_a_file_may_say_node() {
    for (word, starts) in [(node(12), false), (owners(learner(12, &[2, 3])), true)] {
        let mut world = World::node();
        world.start().settle().pass(1);
        let by = world.attended().expect("somebody");
        world.handle(Event::Told { by, word: Word::Desired(learner(11, &[2, 3]).into()) });
        while !world.queue.iter().any(|effect| effect.kind() == Some(EffectKind::Units)) {
            let effect = world.queue.remove(0);
            if let Some((kind, outcome)) = world.perform(effect) {
                world.handle(Event::Done(kind, Ok(outcome)));
            }
        }
        assert_eq!(is_made_again(&mut world, (EffectKind::Units, EffectKind::LookAtEtcd), &word), starts);
        assert_eq!(world.units.is_some(), starts);
    }
}
