//! Replays the corpus, then seeded mutations of it: the same ones on every run. `cargo xtask fuzz` searches longer, by
//! hand; a panic names its target, and the bytes that brought it about go into the corpus as `bad-*`.

use std::fs;
use std::panic::catch_unwind;

use fuzz::corpus::{Seed, mutation, seeds};
use fuzz::{FuzzTarget, ParseVerdict, TARGETS};
use testkit::Random;

/// Mutations per target: a few seconds for all of them.
const ROUNDS: u64 = 3_000;

fn corpus(target: &FuzzTarget) -> Vec<Seed> {
    seeds(target).unwrap_or_else(|error| panic!("read the corpus of {}: {error}", target.name))
}

/// Proves: A6
#[test]
fn every_seed_of_the_corpus_means_what_its_name_says() {
    for target in TARGETS {
        let seeds = corpus(target);
        assert!(seeds.iter().any(|seed| seed.name.starts_with("good-")), "{} has a seed that is accepted", target.name);
        for seed in seeds {
            let expected = match seed.name.split_once('-') {
                Some(("good", _)) => ParseVerdict::Accepted,
                Some(("bad", _)) => ParseVerdict::Refused,
                Some(_) | None => panic!("{}/{}: seeds are called good-* or bad-*", target.name, seed.name),
            };
            assert_eq!((target.run)(&seed.bytes), expected, "{}/{}", target.name, seed.name);
        }
    }
}

/// Proves: A6
#[test]
fn no_mutation_of_the_corpus_panics_a_parser() {
    for target in TARGETS {
        let pool: Vec<Vec<u8>> = corpus(target).into_iter().map(|seed| seed.bytes).collect();
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        for round in 0..ROUNDS {
            let bytes = mutation(&pool, &mut random);
            let ran = catch_unwind(|| (target.run)(&bytes));
            assert!(ran.is_ok(), "{} panicked in round {round} on {bytes:02x?}", target.name);
        }
    }
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    let folders = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).expect("there is a corpus");
    for folder in folders {
        let name = folder.expect("the corpus can be listed").file_name();
        assert!(TARGETS.iter().any(|target| name == target.name), "{} has no target", name.display());
    }
}
