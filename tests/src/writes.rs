//! Requests of a machine to its disk, in the order in which it made them: the log that QEMU keeps for
//! [`crate::MachinePlan::logged`].
//!
//! Form: Documentation/admin-guide/device-mapper/log-writes.rst and `block/blklogwrites.c` of QEMU: a sector that describes
//! the log, then per request a sector that describes it, and what was written. QEMU logs a flush of the guest even where it
//! does not pass it on, so a missing one is seen with any cache.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, ensure};

const SECTOR: u64 = 512;
/// The bytes `rhswfsj` and a zero.
const MAGIC: u64 = u64::from_le_bytes(*b"rhswfsj\0");
/// Flags of a request.
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// Something that happened to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// Bytes that were written.
    Write(Range<u64>),
    /// All that was written before is durable.
    Flush,
}

/// All that happened, first to last.
#[derive(Debug)]
pub struct WriteLog(Vec<DiskEvent>);

impl WriteLog {
    /// Reads a log. A machine that still runs should be paused.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let log = File::open(path).with_context(|| format!("open `{}`", path.display()))?;
        let length = log.metadata()?.len();
        let number = |at: u64| -> anyhow::Result<u64> {
            let mut bytes = [0; 8];
            log.read_exact_at(&mut bytes, at).context("read the log of writes")?;
            Ok(u64::from_le_bytes(bytes))
        };
        ensure!(number(0)? == MAGIC && number(8)? == 1, "`{}` is no log of writes", path.display());
        let (mut happened, mut at) = (Vec::new(), SECTOR);
        while at + SECTOR <= length {
            let (sector, count, flags) = (number(at)?, number(at + 8)?, number(at + 16)?);
            ensure!(flags & !(FLUSH | FUA | DISCARD) == 0, "a request with flags {flags:#x} at {at} of the log");
            at += SECTOR;
            if count > 0 && flags & DISCARD == 0 {
                happened.push(DiskEvent::Write(sector * SECTOR..(sector + count) * SECTOR));
                at += count * SECTOR;
            }
            if flags & (FLUSH | FUA) != 0 {
                happened.push(DiskEvent::Flush);
            }
        }
        Ok(Self(happened))
    }

    /// Everything, first to last.
    #[must_use]
    pub fn all(&self) -> &[DiskEvent] {
        &self.0
    }

    /// The first write into one of `places` behind the event `from`: its number.
    #[must_use]
    pub fn first_write(&self, from: usize, places: &[Range<u64>]) -> Option<usize> {
        let into =
            |written: &Range<u64>| places.iter().any(|place| written.start < place.end && place.start < written.end);
        let found = self.0[from..].iter().position(|event| matches!(event, DiskEvent::Write(written) if into(written)));
        found.map(|index| from + index)
    }

    /// Whether all that was written into `places` before event `at` is durable there.
    #[must_use]
    pub fn is_durable(&self, at: usize, places: &[Range<u64>]) -> bool {
        let flush = self.0[..at].iter().rposition(|event| *event == DiskEvent::Flush).unwrap_or(0);
        self.first_write(flush, places).is_none_or(|written| written >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of a log: where, how many sectors, flags, and its content.
    fn request(sector: u64, count: u64, flags: u64) -> Vec<u8> {
        let mut bytes = [sector, count, flags, 0].map(u64::to_le_bytes).concat();
        bytes.resize(512, 0);
        if flags & DISCARD == 0 {
            bytes.resize(512 + usize::try_from(count).expect("few") * 512, 0xaa);
        }
        bytes
    }

    fn log(requests: &[Vec<u8>]) -> anyhow::Result<WriteLog> {
        // As QEMU 7.2 writes it: magic, version 1, seven requests, sectors of 512 bytes.
        let mut bytes = b"rhswfsj\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\x02\0\0".to_vec();
        bytes.resize(512, 0);
        let file = std::env::temp_dir().join(format!("cairn-write-log-{}-{}", std::process::id(), requests.len()));
        std::fs::write(&file, [&bytes[..], &requests.concat()].concat())?;
        let read = WriteLog::read(&file);
        std::fs::remove_file(&file)?;
        read
    }

    #[test]
    fn writes_and_flushes_are_read_in_their_order() {
        let log = log(&[
            request(8, 2, 0),
            request(100, 4, DISCARD),
            request(1, 1, 0),
            request(0, 0, FLUSH),
            request(3, 1, FUA),
        ])
        .expect("a log");
        let flush = DiskEvent::Flush;
        let expected = [
            DiskEvent::Write(4096..5120),
            DiskEvent::Write(512..1024),
            flush.clone(),
            DiskEvent::Write(1536..2048),
            flush,
        ];
        assert_eq!(log.all(), expected);
        let first = |from, place: Range<u64>| log.first_write(from, &[place]);
        assert_eq!([first(0, 512..513), first(2, 512..513)], [Some(1), None]);
        assert_eq!([first(0, 5119..9999), first(0, 5120..9999)], [Some(0), None]);
        let durable = |at, place: Range<u64>| log.is_durable(at, &[place]);
        assert_eq!([1, 2, 3, 5].map(|at| durable(at, 4096..5120)), [false, false, true, true]);
        assert!(durable(0, 4096..5120), "nothing to lose yet");
        assert!(!durable(4, 1536..2048));
    }

    #[test]
    fn what_is_no_log_is_refused() {
        assert!(log(&[request(0, 1, 0x80)]).is_err());
        assert!(WriteLog::read(Path::new("/dev/null")).is_err());
    }
}
