//! The seeds of each target, and how inputs are made of them. Seeds are read from `corpus/`; the same [`Random`] makes the
//! same inputs on every machine. Must never run a target.

use std::path::PathBuf;
use std::{fs, io};

use testkit::Random;

use crate::FuzzTarget;

/// A file of the corpus.
#[derive(Debug, Clone)]
pub struct Seed {
    /// File name: `good-*` is accepted, `bad-*` is refused.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// The seeds of a target, by name.
///
/// # Errors
/// The folder or a seed cannot be read.
pub fn seeds(target: &FuzzTarget) -> io::Result<Vec<Seed>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Seed { name, bytes: fs::read(path)? })
    };
    let mut seeds = fs::read_dir(folder)?.map(read).collect::<io::Result<Vec<_>>>()?;
    seeds.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(seeds)
}

/// Copy of an input of the pool with one to four changes. Nothing is known of which code it will reach: this is no
/// coverage.
///
/// # Panics
/// When the pool is empty.
#[must_use]
pub fn mutation(pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = pool[random.below(pool.len())].clone();
    for _ in 0..=random.below(4) {
        mutate(&mut bytes, pool, random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Random) {
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
            let other = &pool[random.below(pool.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        // The last kind, and what a byte cannot be changed for at the very end.
        _ => {
            let end = (at + random.below(9)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
    }
}
