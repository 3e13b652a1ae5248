//! Power cuts during create and join: after any effect, in the middle of any write, any number of times.

use model::Level;
use proptest::prelude::*;

use keys::seal::attempt_slot;

use crate::found::{Files, Slots};
use crate::world::{Chip, Cut, Ended, World, finished};

/// More effects than any plan has.
const MOST_EFFECTS: usize = 26;
/// The same of a member that opens its disk.
const MOST_EFFECTS_OF_OPENING: usize = 8;
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
    assert!(world.files.config.is_none(), "the config is gone after {cuts:?}");
    let seals = &world.files.seal.0;
    assert_eq!(attempt_slot([&seals[0], &seals[1]]), None, "an attempt is left after {cuts:?}");
    assert_eq!(world.boot(None), Ended::Running(committed.expect("it ran")), "and it comes back");
    world
}

/// Proves: D4 D14
#[test]
fn a_cut_after_any_effect_and_at_any_sector_ends_in_a_finished_machine() {
    for level in Level::ALL {
        for tpm in [Some(Chip::default()), None] {
            for after in 0..MOST_EFFECTS {
                for sectors in TEARS {
                    outlive(World::flashed(*level, tpm.clone()), &[Cut { after, sectors }]);
                }
            }
        }
    }
}

/// A one-use ticket admits the machine that was cut, however often: the store would refuse any other.
///
/// Proves: D4 S3 S4
#[test]
fn a_cut_in_a_join_resumes_as_the_same_machine() {
    for level in Level::ALL {
        for tpm in [Some(Chip::default()), None] {
            for after in 0..MOST_EFFECTS {
                for sectors in TEARS {
                    let world = outlive(World::invited(*level, tpm.clone()), &[Cut { after, sectors }]);
                    assert_eq!(world.store.admitted.len(), 1);
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
        tpm in prop::sample::select(vec![Some(Chip::default()), None]),
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..6),
    ) {
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        outlive(World::flashed(level, tpm), &cuts);
    }

    /// Proves: D4 S4
    #[test]
    fn any_row_of_cuts_of_a_join_ends_in_one_member(
        level in prop::sample::select(Level::ALL),
        tpm in prop::sample::select(vec![Some(Chip::default()), None]),
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..6),
    ) {
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        prop_assert_eq!(outlive(World::invited(level, tpm), &cuts).store.admitted.len(), 1);
    }

    /// Proves: S11
    #[test]
    fn cuts_of_a_finished_machine_change_nothing(
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..4),
    ) {
        let (world, _) = finished(Level::Authenticated, Some(Chip::default()));
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        let after = outlive(world.clone(), &cuts);
        let esp = |world: &World| {
            let Files { seal, share, directory, record, .. } = &world.files;
            [seal, share, directory, record].map(Slots::clone)
        };
        prop_assert!(esp(&after) == esp(&world));
        prop_assert!(after.headers == world.headers && after.filesystem == world.filesystem);
    }
}

/// Where the minimum rises, a cut leaves a seal that opens; and in the end it is that of the older of both directories, which
/// is written only once.
///
/// Proves: D7 D11
#[test]
fn a_cut_while_the_seals_minimum_rises_leaves_one_that_opens() {
    for tpm in [Some(Chip::default()), None] {
        let mut member = outlive(World::invited(Level::Encrypted, tpm), &[]);
        assert_eq!(member.minimum(), 5, "the one that it joined with");
        member.directories([6, 9]);
        for after in 0..MOST_EFFECTS_OF_OPENING {
            for sectors in [0, 1, 127] {
                let mut world = outlive(member.clone(), &[Cut { after, sectors }]);
                assert_eq!(world.minimum(), 6);
                let seals = world.files.seal.clone();
                assert!(matches!(world.boot(None), Ended::Running(_)));
                assert_eq!(world.files.seal, seals, "nothing rises, nothing is written");
                // Both older ones put back are none, one of them leaves the other.
                world.directories([5, 9]);
                assert!(matches!(world.boot(None), Ended::Running(_)));
                assert_eq!(world.minimum(), 6, "one slot is none that counts");
            }
        }
    }
}

/// Proves: D4
#[test]
fn an_effect_that_fails_closes_the_data_and_the_next_boot_goes_on_or_starts_over() {
    for (level, made) in Level::ALL.iter().flat_map(|level| [(level, World::flashed as Made), (level, World::invited)])
    {
        let mut failed = 0;
        for effect in 0..MOST_EFFECTS {
            let mut world = made(*level, Some(Chip::default()));
            match world.boot_failing_at(effect) {
                Ended::Waiting(why) => {
                    failed += 1;
                    assert!(why.starts_with("could not ") && why.contains(": the disk fails. "), "{why}");
                }
                Ended::Running(_) => assert!(effect >= failed, "effects are counted without a gap"),
                Ended::Cut => panic!("nobody cut"),
            }
            outlive(world, &[]);
        }
        // Of the plan at level insecure, which has no share, up to the cap.
        assert!(failed >= 15, "{failed} effects failed at {level}");
    }
}

/// Makes a disk to begin with.
type Made = fn(Level, Option<Chip>) -> World;
