//! Power cuts during create: after any effect, in the middle of any write, any number of times.

use model::Level;
use proptest::prelude::*;

use crate::config::Tpm;
use crate::create::{Event, State, Step};
use crate::world::{Cut, Ended, World, finished};

/// More effects than any plan has.
const MOST_EFFECTS: usize = 24;
/// Sectors of a header copy, and of a slot: none, the first few, all but one, all.
const TEARS: [usize; 9] = [0, 1, 2, 3, 7, 8, 64, 127, 128];

/// Boots until the machine runs, and watches that committed data never changes its cluster.
fn outlive(mut world: World, cuts: &[Cut]) -> World {
    let mut committed = None;
    for cut in cuts.iter().copied().map(Some).chain([None]) {
        let ended = world.boot(cut);
        assert!(!matches!(ended, Ended::Waiting(_)), "{ended:?} after {cuts:?}");
        if world.committed() {
            let cluster = world.filesystem.as_ref().and_then(|it| it.cluster).expect("committed data holds a CA");
            assert_eq!(*committed.get_or_insert(cluster), cluster, "a second CA after {cuts:?}");
        }
        if let Ended::Running(cluster) = ended {
            assert_eq!(Some(cluster), committed, "the machine runs on committed data");
        }
    }
    assert!(world.config.is_none(), "the config is gone after {cuts:?}");
    assert_eq!(world.boot(None), Ended::Running(committed.expect("it ran")), "and it comes back");
    world
}

/// Proves: D4 D14
#[test]
fn a_cut_after_any_effect_and_at_any_sector_ends_in_a_finished_machine() {
    for level in Level::ALL {
        for tpm in [Tpm::Present, Tpm::Absent] {
            for after in 0..MOST_EFFECTS {
                for sectors in TEARS {
                    outlive(World::flashed(*level, tpm), &[Cut { after, sectors }]);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Proves: D4 D14
    #[test]
    fn any_row_of_cuts_ends_in_a_finished_machine(
        level in prop::sample::select(Level::ALL),
        tpm in prop::sample::select(vec![Tpm::Present, Tpm::Absent]),
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..6),
    ) {
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        outlive(World::flashed(level, tpm), &cuts);
    }

    /// Proves: S11
    #[test]
    fn cuts_of_a_finished_machine_change_nothing(
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..4),
    ) {
        let (world, _) = finished(Level::Authenticated, Tpm::Present);
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        let after = outlive(world.clone(), &cuts);
        prop_assert!(after.headers == world.headers && after.esp == world.esp && after.filesystem == world.filesystem);
    }
}

#[test]
fn an_event_that_does_not_fit_is_reported_and_changes_nothing() {
    let mut out = Vec::new();
    let state = State::Performing { step: Step::Mount, rest: crate::create::Plan::default() };
    let state = state.handle(Event::Done(Step::GrowData), &mut out);
    let [crate::create::Effect::Report(unexpected)] = &out[..] else { panic!("one report: {out:?}") };
    assert_eq!(unexpected.to_string(), "unexpected Done(GrowData): waiting to mount the data partition");
    out.clear();
    let state = state.handle(Event::Failed(Step::GrowData), &mut out);
    assert!(matches!(&out[..], [crate::create::Effect::Report(_)]), "it is not this step that failed: {out:?}");
    assert!(matches!(state, State::Performing { step: Step::Mount, .. }));
    out.clear();
    let State::Failed { step } = state.handle(Event::Failed(Step::Mount), &mut out) else { panic!("it failed") };
    assert_eq!((step, out.len()), (Step::Mount, 0));
    let finished = State::start(crate::create::Plan::default(), &mut out);
    let finished = finished.handle(Event::Done(Step::Mount), &mut out);
    assert!(matches!(finished, State::Finished) && out.len() == 1);
}
