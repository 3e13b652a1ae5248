//! Replays the corpus, then seeded mutations of it: the same ones on every run. `CAIRN_FUZZ_ROUNDS=1000000` searches
//! longer by hand; a panic names its target, and the bytes that brought it about go into the corpus as `bad-*`.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use fuzz::{Outcome, TARGETS, Target};

/// Mutations per target: a few seconds for all of them.
const ROUNDS: u64 = 3_000;

struct Seed {
    name: String,
    bytes: Vec<u8>,
}

fn corpus(target: &Target) -> Vec<Seed> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("the corpus can be listed");
            let name = entry.file_name().into_string().expect("seeds have plain names");
            Seed { name, bytes: fs::read(entry.path()).expect("seeds can be read") }
        })
        .collect();
    seeds.sort_by(|left, right| left.name.cmp(&right.name));
    seeds
}

/// Proves: A6
#[test]
fn every_seed_of_the_corpus_means_what_its_name_says() {
    for target in TARGETS {
        let seeds = corpus(target);
        assert!(seeds.iter().any(|seed| seed.name.starts_with("good-")), "{} has a seed that is accepted", target.name);
        for seed in seeds {
            let expected = match seed.name.split_once('-') {
                Some(("good", _)) => Outcome::Accepted,
                Some(("bad", _)) => Outcome::Refused,
                Some(_) | None => panic!("{}/{}: seeds are called good-* or bad-*", target.name, seed.name),
            };
            assert_eq!((target.run)(&seed.bytes), expected, "{}/{}", target.name, seed.name);
        }
    }
}

/// Proves: A6
#[test]
fn no_mutation_of_the_corpus_panics_a_parser() {
    let rounds = std::env::var("CAIRN_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    for target in TARGETS {
        let seeds = corpus(target);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for round in 0..rounds {
            let mut bytes = seeds[random.below(seeds.len())].bytes.clone();
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, &seeds, &mut random);
            }
            let input = bytes.clone();
            let ran = catch_unwind(|| (target.run)(&input));
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

fn mutate(bytes: &mut Vec<u8>, seeds: &[Seed], random: &mut Random) {
    const TELLING: [u8; 8] = [0x00, 0x01, 0x7f, 0x80, 0xff, 0x08, 0x0a, 0x12];
    let at = random.below(bytes.len() + 1);
    match random.below(7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = TELLING[random.below(TELLING.len())],
        2 => bytes.insert(at, TELLING[random.below(TELLING.len())]),
        3 if at < bytes.len() => {
            bytes.remove(at);
        }
        4 => bytes.truncate(at),
        5 => {
            let other = &seeds[random.below(seeds.len())].bytes;
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        _ => {
            let end = (at + random.below(9)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
    }
}

/// xorshift64* (Vigna 2016): enough to spread mutations, and the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).expect("31 bits") % bound.max(1)
    }
}
