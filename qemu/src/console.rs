//! A machine's serial console: follows `serial.log`, which QEMU writes, and waits for lines in it.
//!
//! ```text
//!   QEMU ──append──► serial.log ──inotify──► follower thread ──► lines ──► wait_for
//! ```
//! The file is the console, so that a machine found again later has all its history, and nothing is lost while nobody
//! listens. Nothing here writes to the machine.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify;

use crate::deadline::{Deadline, Stopwatch};

/// The lines of a console. Each wait for one says from where on, so that no line of before meets it.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Shared>,
    /// To see how long the file is; the follower reads by another descriptor.
    log: File,
    started: Mark,
    stop: Arc<OwnedFd>,
    follower: Option<JoinHandle<()>>,
}

/// A place in a console, in bytes of `serial.log`. A line that is half written there belongs to what was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Line of the console, without its end and without terminal control sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When it was read, since the console was opened.
    pub at: Duration,
    /// Text of the line.
    pub text: String,
    /// Where it begins.
    begin: Mark,
    /// Where it ends: from there on is what was said after it.
    pub end: Mark,
}

/// The line that was waited for did not come.
#[derive(Debug, thiserror::Error)]
#[error("no console line with `{wanted}` ({why}); the last lines:\n{tail}")]
pub struct Silent {
    /// Text that was waited for.
    pub wanted: String,
    /// Reason for which the wait ended.
    pub why: Why,
    /// The last lines the console has.
    pub tail: String,
}

/// Reason for which a wait for a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The deadline passed.
    #[error("waited {0:?}")]
    Late(Duration),
    /// The console ended: nothing writes it any more.
    #[error("the machine has ended")]
    Ended,
}

/// How many lines a failed wait shows.
const TAIL: usize = 40;

impl Console {
    /// Follows the file at `log` from its byte `from`, until `end` becomes readable (a pidfd of the writer); the file
    /// must exist. What is before the byte `started` the machine has said before it started, or in the life that was saved.
    ///
    /// # Errors
    /// Where the file cannot be opened, read or watched.
    pub fn follow(log: &Path, from: u64, started: u64, end: OwnedFd) -> io::Result<Self> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(from))?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, log, inotify::WatchFlags::MODIFY)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let state = State { lines: Vec::new(), unfinished: Vec::new(), begin: Mark(from), ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let follower = Follower { file, watch, end, stop: Arc::clone(&stop), shared: Arc::clone(&shared) };
        let follower = thread::Builder::new().name("console".into()).spawn(move || follower.run())?;
        let (log, started) = (File::open(log)?, Mark(started));
        Ok(Self { shared, log, started, stop, follower: Some(follower) })
    }

    /// Where the machine has started, or has come back as it was saved.
    #[must_use]
    pub fn started(&self) -> Mark {
        self.started
    }

    /// Where the console ends now.
    ///
    /// # Errors
    /// Where the file's length cannot be read.
    pub fn mark(&self) -> io::Result<Mark> {
        Ok(Mark(self.log.metadata()?.len()))
    }

    /// Waits for a line that contains `text`, from there on.
    ///
    /// # Errors
    /// [`Silent`]
    pub fn wait_for(&self, from: Mark, text: &str, deadline: Deadline) -> Result<Line, Silent> {
        self.wait_until(from, text, deadline, |line| line.text.contains(text).then(|| line.clone()))
    }

    /// Waits for a line that `look` takes something from, from there on; `wanted` is for the message. It sees each line once.
    ///
    /// # Errors
    /// [`Silent`]
    pub fn wait_until<T>(
        &self,
        from: Mark,
        wanted: &str,
        deadline: Deadline,
        mut look: impl FnMut(&Line) -> Option<T>,
    ) -> Result<T, Silent> {
        let mut state = self.shared.lock();
        let mut next = state.lines.partition_point(|line| line.begin < from);
        loop {
            while let Some(line) = state.lines.get(next) {
                next += 1;
                if let Some(found) = Some(line).filter(|line| line.begin >= from).and_then(&mut look) {
                    return Ok(found);
                }
            }
            let (why, left) = match deadline.left() {
                None => (Why::Late(deadline.length()), None),
                Some(left) => (Why::Ended, Some(left).filter(|_| !state.ended)),
            };
            let Some(left) = left else {
                return Err(Silent { wanted: wanted.into(), why, tail: state.tail() });
            };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.shared.lock().lines.clone()
    }

    /// The last lines as text, for messages.
    #[must_use]
    pub fn tail(&self) -> String {
        self.shared.lock().tail()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let Some(follower) = self.follower.take() else { return };
        // Writing eight bytes to a fresh eventfd cannot fail or block (eventfd(2)).
        let written = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        debug_assert!(written.is_ok());
        // Its panic has been reported by the thread itself; the lines read so far stay.
        let _ended = follower.join();
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    lines: Vec<Line>,
    unfinished: Vec<u8>,
    /// Where the line begins that is not finished.
    begin: Mark,
    ended: bool,
}

impl State {
    fn push(&mut self, bytes: &[u8], at: Duration) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let unfinished = std::mem::take(&mut self.unfinished);
                    let (begin, end) = (self.begin, Mark(self.begin.0 + unfinished.len() as u64 + 1));
                    self.lines.push(Line { at, text: plain(&unfinished), begin, end });
                    self.begin = end;
                }
                other => self.unfinished.push(*other),
            }
        }
    }

    fn tail(&self) -> String {
        let first = self.lines.len().saturating_sub(TAIL);
        let mut text = String::new();
        for line in &self.lines[first..] {
            text += &format!("{:8.2}  {}\n", line.at.as_secs_f64(), line.text);
        }
        if !self.unfinished.is_empty() {
            text += &format!("          {}…\n", plain(&self.unfinished));
        }
        text
    }
}

/// Drops carriage returns, control characters and escape sequences (ECMA-48, section 5.4).
pub(crate) fn plain(bytes: &[u8]) -> String {
    enum In {
        Text,
        Escape,
        Sequence,
    }
    let mut place = In::Text;
    let mut text = String::new();
    for character in String::from_utf8_lossy(bytes).chars() {
        place = match (place, character) {
            (In::Text, '\u{1b}') => In::Escape,
            (In::Text, character) => {
                if !character.is_control() || character == '\t' {
                    text.push(character);
                }
                In::Text
            }
            (In::Escape, '[') => In::Sequence,
            (In::Escape, _) | (In::Sequence, '@'..='~') => In::Text,
            (In::Sequence, _) => In::Sequence,
        };
    }
    text
}

/// The thread that turns the growing file into lines.
struct Follower {
    file: File,
    watch: OwnedFd,
    end: OwnedFd,
    stop: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

impl Follower {
    /// The watch was set before the first read, so nothing slips through.
    fn run(mut self) {
        let clock = Stopwatch::start();
        loop {
            self.read(&clock);
            if self.wait_for_end() {
                self.read(&clock);
                break;
            }
        }
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }

    /// Reads to the end of what is there. A file that cannot be read any more ends like one that is not written.
    fn read(&mut self, clock: &Stopwatch) {
        let mut bytes = Vec::new();
        if self.file.read_to_end(&mut bytes).is_ok() && !bytes.is_empty() {
            self.shared.lock().push(&bytes, clock.elapsed());
            self.shared.changed.notify_all();
        }
    }

    /// Waits for news; whether it is the end.
    fn wait_for_end(&self) -> bool {
        let mut fds = [&self.watch, &self.end, &*self.stop].map(|fd| PollFd::new(fd, PollFlags::IN));
        // An interrupted poll is an early one: what is there is read, then polled again.
        let polled = poll(&mut fds, None);
        let [_, end, stop] = fds.map(|fd| !fd.revents().is_empty());
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        while events.next().is_ok() {}
        polled.is_ok() && (end || stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn long() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    fn never() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    /// Proves: S13
    #[test]
    fn a_line_is_found_from_a_mark_on_and_none_of_before() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        writeln!(log, "before the machine").unwrap();
        let from = log.as_file().metadata().unwrap().len();
        write!(log, "boot\r\none\r\nbo").unwrap();
        let console = Console::follow(log.path(), from, from, never()).unwrap();
        let first = console.wait_for(console.started(), "boot", long()).unwrap();
        assert_eq!(first.text, "boot");
        assert_eq!(console.wait_for(console.started(), "boot", long()).unwrap(), first, "as often as it is asked for");
        let amid = console.mark().unwrap();
        write!(log, "ot\nstate \u{1b}[1;32mrunning\u{1b}[0m\r\nboot").unwrap();
        assert_eq!(console.wait_for(first.end, "boot", long()).unwrap().text, "boot", "the second one");
        let state =
            console.wait_until(amid, "state", long(), |line| line.text.strip_prefix("state ").map(str::to_owned));
        assert_eq!(state.unwrap(), "running");
        let soon = Deadline::after(Duration::from_millis(1));
        console.wait_for(amid, "boot", soon).expect_err("begun before the mark, or not finished");
        let all: Vec<String> = console.lines().into_iter().map(|line| line.text).collect();
        assert_eq!(all, ["boot", "one", "boot", "state running"]);
    }

    /// Proves: S13
    #[test]
    fn what_was_said_before_the_start_is_there_and_meets_no_wait() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        write!(log, "boot\nready\nsta").unwrap();
        let started = log.as_file().metadata().unwrap().len();
        let console = Console::follow(log.path(), 0, started, never()).unwrap();
        write!(log, "te saved\nstate running\nready\n").unwrap();
        assert_eq!(console.wait_for(console.started(), "state", long()).unwrap().text, "state running");
        console.wait_for(console.started(), "ready", long()).unwrap();
        let all: Vec<String> = console.lines().into_iter().map(|line| line.text).collect();
        assert_eq!(all, ["boot", "ready", "state saved", "state running", "ready"]);
    }

    #[test]
    fn a_failed_wait_shows_the_last_lines_and_the_unfinished_one() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        for number in 0..100 {
            writeln!(log, "line {number}").unwrap();
        }
        write!(log, "login: ").unwrap();
        let console = Console::follow(log.path(), 0, 0, never()).unwrap();
        console.wait_for(console.started(), "line 99", long()).unwrap();
        let silent =
            console.wait_for(console.started(), "nothing", Deadline::after(Duration::from_millis(1))).unwrap_err();
        assert_eq!(silent.why, Why::Late(Duration::from_millis(1)));
        let text = silent.to_string();
        assert!(text.contains("line 60") && !text.contains("line 59") && text.contains("login: …"), "{text}");
    }

    #[test]
    fn an_ended_console_says_so_at_once_and_has_the_last_words() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let end = never();
        let console = Console::follow(log.path(), 0, 0, end.try_clone().unwrap()).unwrap();
        writeln!(log, "last words").unwrap();
        rustix::io::write(&end, &1_u64.to_ne_bytes()).unwrap();
        console.wait_for(console.started(), "last words", long()).unwrap();
        assert_eq!(console.wait_for(console.started(), "more", long()).unwrap_err().why, Why::Ended);
    }

    #[test]
    fn control_sequences_are_dropped_and_broken_ones_do_no_harm() {
        assert_eq!(plain(b"\x1b[2J\x1b[01;01Ha\tb\x07\r"), "a\tb");
        assert_eq!(plain(b"cut \x1b[12"), "cut ");
        assert_eq!(plain(b"\x1b=x\xff"), "x\u{fffd}");
    }
}
