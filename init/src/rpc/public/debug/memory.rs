//! Whether a secret still lies in PID 1's memory. The secret comes masked, and what is read is masked before it is compared,
//! so that the search leaves no copy behind and does not find itself.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use zeroize::Zeroizing;

/// Flips every bit: what is masked is not found by who looks for what it stands for.
const MASK: u8 = 0xff;
/// Read at once.
const CHUNK: usize = 64 << 10;

/// How often the secret that `masked` stands for, in hex digits, lies in this process' own writable memory.
pub(super) fn times_held(masked: &str) -> io::Result<usize> {
    let digits = masked.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
    let masked: Option<Vec<u8>> = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    let masked = masked.filter(|masked| masked.len() >= 16).ok_or(io::ErrorKind::InvalidInput)?;
    let memory = File::open("/proc/self/mem")?;
    let mut found = 0;
    // What is read passes through here unmasked: not to be counted again, and wiped for the next search.
    let mut chunk = Zeroizing::new(vec![0; CHUNK + masked.len() - 1]);
    let own = u64::try_from(chunk.as_ptr().addr()).map_err(io::Error::other)?;
    let behind = own + u64::try_from(chunk.len()).map_err(io::Error::other)?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mappings = maps.lines().filter_map(writable);
    for (start, end) in mappings.flat_map(|(start, end)| [(start, end.min(own)), (start.max(behind), end)]) {
        let mut at = start;
        while at < end {
            let room = usize::try_from(end - at).map_or(chunk.len(), |left| left.min(chunk.len()));
            // What has been given back meanwhile is no memory of this process any more.
            let Ok(read) = memory.read_at(&mut chunk[..room], at) else { break };
            chunk[..read].iter_mut().for_each(|byte| *byte ^= MASK);
            found += chunk[..read].windows(masked.len()).filter(|window| *window == masked).count();
            at += u64::try_from(CHUNK).expect("a chunk is small");
        }
    }
    Ok(found)
}

/// Start and end of a mapping that can be written (proc_pid_maps(5)).
fn writable(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    words.next()?.starts_with("rw").then_some(())?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    #[test]
    fn a_secret_is_found_as_often_as_it_is_held() {
        // Made so that only the masked form is in the program's own constants.
        let masked: String = (0..32).map(|at| format!("{:02x}", 0x91_u8.wrapping_mul(at + 3))).collect();
        let make = || {
            Secret::<32>::fill(|bytes| {
                bytes.iter_mut().zip(0..).for_each(|(byte, at)| *byte = 0x91_u8.wrapping_mul(at + 3) ^ MASK);
                Ok::<(), ()>(())
            })
        };
        assert_eq!(times_held(&masked).expect("readable"), 0);
        let held = [make().expect("made"), make().expect("made")];
        assert_eq!(times_held(&masked).expect("readable"), 2);
        drop(held);
        assert_eq!(times_held(&masked).expect("readable"), 0);
        for bad in ["", "00", "zz", &masked[1..]] {
            assert!(times_held(bad).is_err(), "{bad}");
        }
    }
}
