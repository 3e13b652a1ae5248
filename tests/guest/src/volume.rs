//! A pod that keeps something on a volume: says what another one left there, then fills it to its end.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::say;

/// Where the pod has its volume.
const VOLUME: &str = "/volume";
/// File that a pod leaves for the next one.
const LEFT: &str = "left";
/// Content of that file.
const WORD: &str = "something worth keeping";
/// Bytes of one write.
const PIECE: usize = 64 << 10;
/// No volume of a test is as large.
const MOST_PIECES: usize = 4096;

/// Says what is on the volume, how much fits beside it until there is no space, and leaves a word.
pub(super) fn fills() -> io::Result<()> {
    let volume = Path::new(VOLUME);
    let left = fs::read_to_string(volume.join(LEFT));
    say(&format!("found: {}", left.as_deref().unwrap_or("nothing")));
    let mut file = File::create(volume.join(LEFT))?;
    file.write_all(WORD.as_bytes())?;
    file.sync_all()?;
    let filler = volume.join("filler");
    let mut file = File::create(&filler)?;
    let piece = vec![0x5a; PIECE];
    let full = (0..MOST_PIECES).find_map(|pieces| {
        let written = file.write_all(&piece).and_then(|()| file.sync_data());
        written.err().map(|error| (pieces, error))
    });
    let (pieces, error) = full.ok_or_else(|| io::Error::other("the volume has no end"))?;
    fs::remove_file(&filler)?;
    let kind = if error.kind() == ErrorKind::StorageFull { "no space" } else { "another error" };
    say(&format!("written: {} KiB, then {kind}: {error}", (pieces * PIECE) >> 10));
    Ok(())
}
