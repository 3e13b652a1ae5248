//! Newest lines of one service in a fixed number of bytes. Knows nothing of other services or of readers.

use std::collections::VecDeque;

use api::UnixMillis;

/// Entry number, time and length, little-endian, before each line.
const HEADER: usize = 8 + 8 + 4;

/// A byte ring of lines; the oldest make room for the newest.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// How many entries were overwritten: the index of the oldest one that is kept.
    overwritten: u64,
}

/// A line as it is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Place among all entries of all services.
    pub(super) number: u64,
    /// Place among the entries of this service, overwritten ones included: a gap says how many a reader lost.
    pub(super) index: u64,
    pub(super) time: UnixMillis,
    pub(super) line: Vec<u8>,
}

struct Header {
    number: u64,
    time: UnixMillis,
    length: usize,
}

impl Ring {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { bytes: VecDeque::new(), capacity, overwritten: 0 }
    }

    /// Keeps `line` under `number`, which grows from call to call.
    pub(super) fn push(&mut self, number: u64, time: UnixMillis, line: &[u8]) {
        let line = &line[..line.len().min(self.capacity.saturating_sub(HEADER))];
        while self.bytes.len() + HEADER + line.len() > self.capacity {
            let Some(oldest) = self.header_at(0) else { break };
            self.bytes.drain(..HEADER + oldest.length);
            self.overwritten += 1;
        }
        self.make_room(HEADER + line.len());
        self.bytes.extend(number.to_le_bytes());
        self.bytes.extend(time.0.to_le_bytes());
        self.bytes.extend(u32::try_from(line.len()).expect("lines are cut to a few KiB").to_le_bytes());
        self.bytes.extend(line);
    }

    /// Grows by doubling, but never beyond what the ring may hold: left to itself a deque takes up to twice as much.
    fn make_room(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let wanted = needed.max(2 * self.bytes.capacity().min(self.capacity / 2));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    /// At most `most` entries from number `from` on that are not older than `since`, oldest first.
    pub(super) fn entries_since(&self, from: u64, since: UnixMillis, most: usize) -> impl Iterator<Item = Entry> {
        self.wanted(from, since).take(most).map(|(index, at, header)| Entry {
            number: header.number,
            index,
            time: header.time,
            line: self.bytes.range(at + HEADER..at + HEADER + header.length).copied().collect(),
        })
    }

    /// Numbers of the entries from `from` on that are not older than `since`.
    pub(super) fn numbers_since(&self, from: u64, since: UnixMillis) -> impl Iterator<Item = u64> {
        self.wanted(from, since).map(|(_, _, header)| header.number)
    }

    fn wanted(&self, from: u64, since: UnixMillis) -> impl Iterator<Item = (u64, usize, Header)> {
        let indexed = (self.overwritten..).zip(self.headers()).map(|(index, (at, header))| (index, at, header));
        indexed.filter(move |(_, _, header)| header.number >= from && header.time >= since)
    }

    fn headers(&self) -> impl Iterator<Item = (usize, Header)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let header = self.header_at(at)?;
            let here = at;
            at += HEADER + header.length;
            Some((here, header))
        })
    }

    fn header_at(&self, at: usize) -> Option<Header> {
        if at + HEADER > self.bytes.len() {
            return None;
        }
        let mut raw = [0; HEADER];
        raw.iter_mut().zip(self.bytes.range(at..at + HEADER)).for_each(|(to, from)| *to = *from);
        let length = u32::from_le_bytes(raw[16..].try_into().expect("4 bytes"));
        Some(Header {
            number: u64::from_le_bytes(raw[..8].try_into().expect("8 bytes")),
            time: UnixMillis(u64::from_le_bytes(raw[8..16].try_into().expect("8 bytes"))),
            length: usize::try_from(length).expect("32 bits fit in usize"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(ring: &Ring, from: u64) -> Vec<(u64, String)> {
        let text = |entry: Entry| (entry.number, String::from_utf8(entry.line).expect("text"));
        ring.entries_since(from, UnixMillis(0), 100).map(text).collect()
    }

    /// Proves: Q2
    #[test]
    fn the_newest_lines_are_kept_in_order_and_within_the_bytes() {
        let mut ring = Ring::new(100);
        for number in 0..1000u64 {
            ring.push(10 * number, UnixMillis(number), format!("line {number}").as_bytes());
            assert!(ring.bytes.len() <= 100 && ring.bytes.capacity() <= 100, "{}", ring.bytes.capacity());
        }
        assert_eq!(lines(&ring, 0), [(9970, "line 997".into()), (9980, "line 998".into()), (9990, "line 999".into())]);
        assert_eq!(lines(&ring, 9985), [(9990, "line 999".into())]);
        assert_eq!(ring.numbers_since(0, UnixMillis(998)).collect::<Vec<_>>(), [9980, 9990]);
        let indices: Vec<u64> = ring.entries_since(0, UnixMillis(998), 1).map(|entry| entry.index).collect();
        assert_eq!(indices, [998]);
    }

    /// Proves: Q2
    #[test]
    fn a_line_longer_than_the_ring_is_cut_and_an_empty_one_kept() {
        let mut ring = Ring::new(64);
        ring.push(0, UnixMillis(1), &[b'x'; 1000]);
        ring.push(1, UnixMillis(2), b"");
        assert_eq!(lines(&ring, 0), [(1, String::new())]);
    }
}
