//! The log: one ring per service, PID 1's own among them, and the consoles that show what wakes someone.
//!
//! The logger is the only global of this program. It never blocks on a reader or a console, never grows beyond its rings, and
//! never holds a secret: values come in as fields, keys have no `Display`.

mod queue;
mod ring;
mod subscriber;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::{LogEntry, LogQuery, UnixMillis};
use queue::Queue;
use ring::Ring;
use tokio::sync::watch;

use crate::runtime::clock;
use crate::runtime::console::{self, Console, Kind};
use crate::runtime::lock;

/// The name under which PID 1 itself logs.
pub(crate) const OWN: &str = "init";
/// The log of what strangers at the public port try; whoever asks for `audit` gets it, too.
pub(crate) const STRANGERS: &str = "audit.strangers";
/// Bytes kept per service: about 3 000 lines; with a dozen services the logs stay below 4 MiB.
const RING_BYTES: usize = 320 << 10;

/// The same for what strangers cause: a thousand lines.
const STRANGERS_RING_BYTES: usize = 128 << 10;

/// A console has so long before the machine restarts.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
struct Log {
    rings: Mutex<Rings>,
    /// Counts entries; followers wait on it.
    written: watch::Sender<u64>,
    /// Each with a way past its queue, for what is said last.
    consoles: Vec<(Queue, PathBuf)>,
}

#[derive(Debug, Default)]
struct Rings {
    by_service: BTreeMap<Arc<str>, Ring>,
    next: u64,
}

/// Installs the logger. Called once, before anything logs; a second call changes nothing.
pub(crate) fn install(consoles: Vec<Console>) {
    let queued = |console: Console| Some((Queue::start(console.kind, console.device).ok()?, console.path));
    let consoles = consoles.into_iter().filter_map(queued).collect();
    let log = Log { rings: Mutex::default(), written: watch::Sender::new(0), consoles };
    if LOG.set(log).is_ok() {
        subscriber::install();
    }
}

/// Keeps one line of `service`. Longer than the API carries, it is cut.
pub(crate) fn write(service: &str, line: &[u8]) {
    let Some(log) = LOG.get() else { return };
    let line = &line[..line.len().min(api::limits::LOG_LINE_BYTES)];
    let written = {
        let mut rings = lock::even_if_poisoned(&log.rings);
        let number = rings.next;
        rings.next += 1;
        if !rings.by_service.contains_key(service) {
            rings.by_service.insert(service.into(), Ring::new(ring_bytes(service)));
        }
        let ring = rings.by_service.get_mut(service).expect("made above");
        ring.push(number, clock::unix_millis(), line);
        rings.next
    };
    log.written.send_replace(written);
}

/// Strangers have a small ring of their own: whatever they cause pushes out nothing else.
fn ring_bytes(service: &str) -> usize {
    if service == STRANGERS { STRANGERS_RING_BYTES } else { RING_BYTES }
}

/// Shows `text` on every console, whatever state the rest is in and whatever waits to be shown.
pub(crate) fn urgent(text: &str) {
    let until = clock::now() + SHOWN_WITHIN;
    match LOG.get() {
        Some(log) => log.consoles.iter().for_each(|(_, path)| console::show_now(path, text, until)),
        None => console::show_now(Path::new(console::ANY), text, until),
    }
}

/// Shows on each console what is for its kind, behind what waits.
pub(crate) fn show<'a>(text: impl Fn(Kind) -> &'a str) {
    let Some(log) = LOG.get() else { return };
    log.consoles.iter().for_each(|(queue, _)| queue.put(text(queue.kind)));
}

/// Blocks until the consoles show what was written, or until they had time to.
pub(crate) fn shown() {
    let Some(log) = LOG.get() else { return };
    let until = clock::now() + SHOWN_WITHIN;
    log.consoles.iter().for_each(|(queue, _)| queue.emptied(until));
}

/// A reader of the log: what is kept and fits the query, then, if it follows, what comes.
#[derive(Debug)]
pub(crate) struct Reader {
    query: LogQuery,
    /// The first entry number not read yet.
    next: u64,
    /// How many of the first batch are wanted.
    tail: Option<usize>,
    /// For each service that was read, the index behind its last entry.
    read: BTreeMap<Arc<str>, u64>,
    written: watch::Receiver<u64>,
}

/// Entries handed out at a time, so that one slow reader holds little.
const BATCH: usize = 256;

impl Reader {
    /// A reader for `query`; `None` before the logger is installed.
    pub(crate) fn new(query: LogQuery) -> Option<Self> {
        let tail = query.tail.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
        Some(Self { next: 0, tail, read: BTreeMap::new(), written: LOG.get()?.written.subscribe(), query })
    }

    /// The next entries, oldest first. Empty: there are no more, and the reader does not follow.
    pub(crate) async fn next(&mut self) -> Vec<LogEntry> {
        loop {
            self.written.mark_unchanged();
            let batch = self.batch();
            if !batch.is_empty() || !self.query.follow {
                return batch;
            }
            if self.written.changed().await.is_err() {
                return Vec::new();
            }
        }
    }

    fn batch(&mut self) -> Vec<LogEntry> {
        let Some(log) = LOG.get() else { return Vec::new() };
        let rings = lock::even_if_poisoned(&log.rings);
        let since = self.query.since.unwrap_or(UnixMillis(0));
        let taken = || rings.by_service.iter().filter(|(service, _)| self.query.takes(service));
        if let Some(tail) = self.tail.take() {
            let mut numbers: Vec<u64> = taken().flat_map(|(_, ring)| ring.numbers_since(self.next, since)).collect();
            numbers.sort_unstable();
            let skip = numbers.len().saturating_sub(tail);
            self.next = numbers.get(skip).copied().unwrap_or(rings.next);
        }
        let mut entries: Vec<(Arc<str>, ring::Entry)> = taken()
            .flat_map(|(service, ring)| {
                ring.entries_since(self.next, since, BATCH).map(|entry| (service.clone(), entry))
            })
            .collect();
        entries.sort_by_key(|(_, entry)| entry.number);
        entries.truncate(BATCH);
        self.next = entries.last().map_or(rings.next, |(_, entry)| entry.number + 1);
        drop(rings);
        entries.into_iter().map(|(service, entry)| self.hand_out(service, &entry)).collect()
    }

    fn hand_out(&mut self, service: Arc<str>, entry: &ring::Entry) -> LogEntry {
        let name = service.to_string();
        let expected = self.read.insert(service, entry.index + 1).unwrap_or(entry.index);
        LogEntry {
            time: entry.time,
            service: name,
            line: String::from_utf8_lossy(&entry.line).into_owned(),
            lost: entry.index.saturating_sub(expected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q2
    #[tokio::test]
    async fn a_reader_is_told_of_missed_lines_and_a_long_line_is_cut() {
        const SERVICE: &str = "test.lost";
        install(Vec::new());
        let query = LogQuery { subtree: SERVICE.to_owned(), tail: None, follow: false, since: None };
        let mut reader = Reader::new(query).expect("installed");
        write(SERVICE, b"first");
        let seen = reader.next().await;
        assert_eq!(seen.iter().map(|entry| (entry.line.as_str(), entry.lost)).collect::<Vec<_>>(), [("first", 0)]);

        let long = vec![b'x'; 1 << 20];
        let written = 2 * RING_BYTES / api::limits::LOG_LINE_BYTES;
        (0..written).for_each(|_| write(SERVICE, &long));
        let mut kept = Vec::new();
        loop {
            match reader.next().await {
                batch if batch.is_empty() => break,
                batch => kept.extend(batch),
            }
        }
        assert!(kept.iter().all(|entry| entry.line.len() == api::limits::LOG_LINE_BYTES));
        assert_eq!(kept[0].lost, (written - kept.len()) as u64);
        assert!(kept.len() > 1 && kept[1..].iter().all(|entry| entry.lost == 0));
    }
}
