//! Queue of the text that waits for one console. A thread of its own writes it, so that a console that takes nothing
//! (XOFF, Scroll Lock, a slow line) stops nobody: what does not fit is left out and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use crate::runtime::clock;
use crate::runtime::console::Kind;
use crate::runtime::lock;

/// Texts that wait at most: at 115 200 baud a serial line needs some ten seconds for them.
const TEXTS: usize = 1000;

/// The queue of one console; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) kind: Kind,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    texts: VecDeque<Box<str>>,
    /// Texts that found the queue full since one was written.
    left_out: u64,
    /// The writer has taken a text that is not on the console yet.
    writing: bool,
}

impl Queue {
    /// An empty queue, and the thread that writes to `device` as long as the program runs.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn start(kind: Kind, device: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self { kind, shared: Arc::default() };
        let shared = queue.shared.clone();
        std::thread::Builder::new().name("console".to_owned()).spawn(move || write(&shared, device))?;
        Ok(queue)
    }

    /// Has `text` shown behind what waits, if there is room.
    pub(super) fn put(&self, text: &str) {
        let mut waiting = lock::even_if_poisoned(&self.shared.waiting);
        if waiting.texts.len() < TEXTS {
            waiting.texts.push_back(text.into());
            self.shared.changed.notify_all();
        } else {
            waiting.left_out += 1;
        }
    }

    /// Blocks until everything is shown, or `until`.
    pub(super) fn emptied(&self, until: Instant) {
        let left = until.saturating_duration_since(clock::now());
        let waiting = lock::even_if_poisoned(&self.shared.waiting);
        let waits = |waiting: &mut Waiting| waiting.writing || !waiting.texts.is_empty();
        let _emptied_or_late = self.shared.changed.wait_timeout_while(waiting, left, waits);
    }
}

fn write(shared: &Shared, mut device: impl Write) {
    loop {
        let (text, left_out) = shared.next();
        if left_out > 0 {
            let _nowhere_to_report_it = writeln!(device, "({left_out} lines are left out: this console is too slow)");
        }
        let _nowhere_to_report_it = device.write_all(text.as_bytes());
    }
}

impl Shared {
    /// Waits for the next text; with how many were left out.
    fn next(&self) -> (Box<str>, u64) {
        let mut waiting = lock::even_if_poisoned(&self.waiting);
        waiting.writing = false;
        self.changed.notify_all();
        loop {
            if let Some(text) = waiting.texts.pop_front() {
                waiting.writing = true;
                return (text, std::mem::take(&mut waiting.left_out));
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::time::Duration;

    use super::*;

    /// Proves: Q1
    #[test]
    fn a_console_that_takes_nothing_stops_nobody() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let queue = Queue::start(Kind::Line, writer).expect("a thread");
        // A pipe takes 64 KiB before it takes nothing more.
        let line = format!("{}\n", "x".repeat(1023));
        let put = 3 * TEXTS;
        (0..put).for_each(|_| queue.put(&line));
        queue.emptied(clock::now());
        let told = lock::even_if_poisoned(&queue.shared.waiting).left_out;
        assert!(told > 0, "the pipe has taken all of it");
        let mut lines = BufReader::new(reader).lines();
        let mut shown = 0;
        let mut left_out = 0;
        while shown + left_out < put {
            let line = lines.next().expect("the writer lives").expect("text");
            match line.strip_prefix('(').and_then(|rest| rest.split(' ').next()) {
                Some(count) => left_out += count.parse::<usize>().expect("a number"),
                None => shown += 1,
            }
        }
        assert_eq!((shown + left_out, left_out >= put - TEXTS - 128), (put, true));
        queue.put("last\n");
        queue.emptied(clock::now() + Duration::from_secs(60));
        assert_eq!(lines.next().expect("the writer lives").expect("text"), "last");
    }
}
