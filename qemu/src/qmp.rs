//! QEMU's monitor: a client for the few commands we use, over a unix socket, with deadlines.
//!
//! One line of JSON each way (QEMU: docs/interop/qmp-spec.txt). Replies come in order; events may come between them and
//! are kept until somebody asks. Every line is written to the run's `qmp.log`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use crate::deadline::{Deadline, Stopwatch};

/// A connection to a monitor, past its greeting.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    lines: Lines,
    events: VecDeque<Event>,
    log: File,
    clock: Stopwatch,
}

/// Something that happened in the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The machine is going down for good; `guest` says who wanted it.
    Shutdown {
        /// Asked for by the guest (not by a command or a signal).
        guest: bool,
        /// QEMU's word for the cause (`guest-shutdown`, `host-qmp-quit`, …).
        reason: String,
    },
    /// The machine starts again.
    Reset {
        /// Asked for by the guest.
        guest: bool,
        /// QEMU's word for the cause (`guest-reset`, `host-qmp-system-reset`, …).
        reason: String,
    },
    /// The guest's kernel said that it panicked.
    GuestPanicked,
    /// The power button was pressed.
    Powerdown,
    /// The watchdog bit.
    Watchdog,
    /// Saving or restoring has come to this, by QEMU's name (`active`, `completed`, `failed`, …).
    Migration(String),
    /// Any other, by QEMU's name.
    Other(String),
}

/// Counters of one disk since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockStats {
    /// Bytes read by the guest.
    pub read_bytes: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes written by the guest.
    pub written_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// Failure of the monitor.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The monitor's socket cannot be reached.
    #[error("connect to the monitor")]
    Connect(#[source] io::Error),
    /// The connection failed.
    #[error("speak with the monitor")]
    Io(#[from] io::Error),
    /// QEMU closed the connection: it has ended or is about to.
    #[error("the monitor closed the connection")]
    Closed,
    /// No answer in time.
    #[error("no answer to `{0}` in time")]
    Silent(String),
    /// A line that is not what the protocol allows.
    #[error("unexpected line from the monitor: {0}")]
    Protocol(String),
    /// QEMU refused a command.
    #[error("the monitor refused `{command}`: {reason}")]
    Refused { command: String, reason: String },
}

impl Qmp {
    /// Connects, reads the greeting and leaves negotiation mode; `log` gets every line.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn connect(socket: &Path, log: File, deadline: Deadline) -> Result<Self, QmpError> {
        Self::greet(UnixStream::connect(socket).map_err(QmpError::Connect)?, log, deadline)
    }

    fn greet(stream: UnixStream, log: File, deadline: Deadline) -> Result<Self, QmpError> {
        let (lines, events) = (Lines::default(), VecDeque::new());
        let mut qmp = Self { stream, lines, events, log, clock: Stopwatch::start() };
        match qmp.receive(deadline)? {
            Some(Message::Greeting) => {}
            Some(other) => return Err(QmpError::Protocol(format!("{other:?}"))),
            None => return Err(QmpError::Silent("greeting".into())),
        }
        qmp.execute("qmp_capabilities", &Value::Null, deadline)?;
        Ok(qmp)
    }

    /// Executes any command; null for no arguments.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn execute(&mut self, command: &str, arguments: &Value, deadline: Deadline) -> Result<Value, QmpError> {
        self.request(command, arguments, None, deadline)
    }

    fn request(
        &mut self,
        command: &str,
        arguments: &Value,
        file: Option<BorrowedFd<'_>>,
        deadline: Deadline,
    ) -> Result<Value, QmpError> {
        let request = if arguments.is_null() {
            json!({ "execute": command })
        } else {
            json!({ "execute": command, "arguments": arguments })
        };
        self.note('>', &request.to_string())?;
        self.send(format!("{request}\n").as_bytes(), file)?;
        loop {
            match self.receive(deadline)?.ok_or_else(|| QmpError::Silent(command.into()))? {
                Message::Return(value) => return Ok(value),
                Message::Error(reason) => return Err(QmpError::Refused { command: command.into(), reason }),
                Message::Event(event) => self.events.push_back(event),
                Message::Greeting => return Err(QmpError::Protocol("second greeting".into())),
            }
        }
    }

    /// The next event that `wanted` takes something from; events before it are dropped, as is the taken one.
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Closed`] only after every event that came before it was looked at.
    pub fn wait_event<T>(
        &mut self,
        what: &str,
        deadline: Deadline,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, QmpError> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if let Some(taken) = wanted(&event) {
                    return Ok(taken);
                }
            }
            match self.receive(deadline)?.ok_or_else(|| QmpError::Silent(what.into()))? {
                Message::Event(event) => self.events.push_back(event),
                other @ (Message::Return(_) | Message::Error(_) | Message::Greeting) => {
                    return Err(QmpError::Protocol(format!("{other:?}")));
                }
            }
        }
    }

    /// Starts a paused machine.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn resume(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        self.execute("cont", &Value::Null, deadline).map(drop)
    }

    /// Writes what is in memory and devices of a paused machine to `file`, from where it stands. Disks are flushed then, and
    /// nothing of QEMU's writes to them until the machine goes on.
    ///
    /// # Errors
    /// [`QmpError`]; the machine stays paused, and can go on.
    pub fn save_memory(&mut self, file: BorrowedFd<'_>, deadline: Deadline) -> Result<(), QmpError> {
        // Of a paused machine there is nothing to be gentle with.
        self.execute("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }), deadline)?;
        self.migrate("migrate", file, deadline)
    }

    /// Reads what such a `file` holds, from where it stands, into a machine that was started to wait for it (`-incoming
    /// defer`). It is paused then.
    ///
    /// # Errors
    /// [`QmpError`]; QEMU may have ended.
    pub fn restore_memory(&mut self, file: BorrowedFd<'_>, deadline: Deadline) -> Result<(), QmpError> {
        self.migrate("migrate-incoming", file, deadline)
    }

    fn migrate(&mut self, command: &str, file: BorrowedFd<'_>, deadline: Deadline) -> Result<(), QmpError> {
        let events = json!({ "capabilities": [{ "capability": "events", "state": true }] });
        self.execute("migrate-set-capabilities", &events, deadline)?;
        self.request("getfd", &json!({ "fdname": "memory" }), Some(file), deadline)?;
        self.execute(command, &json!({ "uri": "fd:memory" }), deadline)?;
        let ended = self.wait_event(command, deadline, |event| match event {
            Event::Migration(status) => {
                ["completed", "failed", "cancelled"].contains(&status.as_str()).then(|| status.clone())
            }
            Event::Shutdown { .. }
            | Event::Reset { .. }
            | Event::GuestPanicked
            | Event::Powerdown
            | Event::Watchdog
            | Event::Other(_) => None,
        })?;
        if ended == "completed" {
            return Ok(());
        }
        let why = self.execute("query-migrate", &Value::Null, deadline)?;
        let reason = why["error-desc"].as_str().unwrap_or(&ended).to_owned();
        Err(QmpError::Refused { command: command.to_owned(), reason })
    }

    /// Pauses the machine's processors.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn pause(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        self.execute("stop", &Value::Null, deadline).map(drop)
    }

    /// Presses the power button; what the guest makes of it is its business.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn press_power_button(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        self.execute("system_powerdown", &Value::Null, deadline).map(drop)
    }

    /// Presses keys of the keyboard together, by QEMU's names for them (`QKeyCode`).
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn press_keys(&mut self, keys: &[&str], deadline: Deadline) -> Result<(), QmpError> {
        let keys: Vec<Value> = keys.iter().map(|key| json!({ "type": "qcode", "data": key })).collect();
        self.execute("send-key", &json!({ "keys": keys }), deadline).map(drop)
    }

    /// Pulls the reset line.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn reset(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        self.execute("system_reset", &Value::Null, deadline).map(drop)
    }

    /// Ends QEMU. Its connection may close before its answer is read.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn quit(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        match self.execute("quit", &Value::Null, deadline) {
            Ok(_) | Err(QmpError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// QEMU's word for the machine's run state (`running`, `paused`, `prelaunch`, `shutdown`, …).
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn status(&mut self, deadline: Deadline) -> Result<String, QmpError> {
        let status = self.execute("query-status", &Value::Null, deadline)?;
        status["status"].as_str().map(str::to_owned).ok_or_else(|| QmpError::Protocol(status.to_string()))
    }

    /// Counters of the disk that QEMU calls `node` (`disk0`, …).
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Refused`] when there is no such disk.
    pub fn block_stats(&mut self, node: &str, deadline: Deadline) -> Result<BlockStats, QmpError> {
        let all = self.execute("query-blockstats", &Value::Null, deadline)?;
        let stats = all
            .as_array()
            .and_then(|disks| disks.iter().find(|disk| disk["node-name"] == node))
            .map(|disk| &disk["stats"])
            .ok_or_else(|| QmpError::Refused { command: "query-blockstats".into(), reason: format!("no {node}") })?;
        let count = |name: &str| stats[name].as_u64().ok_or_else(|| QmpError::Protocol(stats.to_string()));
        Ok(BlockStats {
            read_bytes: count("rd_bytes")?,
            reads: count("rd_operations")?,
            written_bytes: count("wr_bytes")?,
            writes: count("wr_operations")?,
            flushes: count("flush_operations")?,
        })
    }

    /// Writes what is on the screen to `file`, as a portable pixmap.
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Refused`] on a machine without a screen.
    pub fn screendump(&mut self, file: &Path, deadline: Deadline) -> Result<(), QmpError> {
        self.execute("screendump", &json!({ "filename": file }), deadline).map(drop)
    }

    /// Text that the human monitor prints for a command.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn human(&mut self, command: &str, deadline: Deadline) -> Result<String, QmpError> {
        let answer = self.execute("human-monitor-command", &json!({ "command-line": command }), deadline)?;
        answer.as_str().map(str::to_owned).ok_or_else(|| QmpError::Protocol(answer.to_string()))
    }

    /// The next message; none when the deadline passed.
    fn receive(&mut self, deadline: Deadline) -> Result<Option<Message>, QmpError> {
        loop {
            if let Some(line) = self.lines.next() {
                self.note('<', &line)?;
                return Message::parse(&line).map(Some).ok_or(QmpError::Protocol(line));
            }
            let Some(left) = deadline.left() else { return Ok(None) };
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(QmpError::Closed),
                Ok(count) => self.lines.push(&buffer[..count]),
                Err(error) if retry(error.kind()) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(QmpError::Closed),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// With a file that the next command is about.
    fn send(&mut self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let Some(file) = file else { return self.stream.write_all(bytes) };
        let (files, mut space) = ([file], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fits = beside.push(SendAncillaryMessage::ScmRights(&files));
        debug_assert!(fits, "the space is for one descriptor");
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::empty())?;
        self.stream.write_all(&bytes[sent..])
    }

    fn note(&mut self, direction: char, line: &str) -> io::Result<()> {
        writeln!(self.log, "{:9.3} {direction} {line}", self.clock.elapsed().as_secs_f64())
    }
}

fn retry(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Decoder of bytes into lines.
#[derive(Debug, Default)]
struct Lines(VecDeque<u8>);

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

/// A line from the monitor.
#[derive(Debug, PartialEq)]
enum Message {
    Greeting,
    Return(Value),
    Error(String),
    Event(Event),
}

impl Message {
    fn parse(line: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(line).ok()?;
        let message = value.as_object_mut()?;
        if message.contains_key("QMP") {
            Some(Self::Greeting)
        } else if let Some(answer) = message.remove("return") {
            Some(Self::Return(answer))
        } else if let Some(error) = message.get("error") {
            Some(Self::Error(error["desc"].as_str().unwrap_or("no description").to_owned()))
        } else {
            let name = message.get("event")?.as_str()?;
            Some(Self::Event(Event::new(name, message.get("data").unwrap_or(&Value::Null))))
        }
    }
}

impl Event {
    fn new(name: &str, data: &Value) -> Self {
        let guest = data["guest"].as_bool().unwrap_or(false);
        let reason = data["reason"].as_str().unwrap_or_default().to_owned();
        match name {
            "SHUTDOWN" => Self::Shutdown { guest, reason },
            "RESET" => Self::Reset { guest, reason },
            "GUEST_PANICKED" => Self::GuestPanicked,
            "POWERDOWN" => Self::Powerdown,
            "WATCHDOG" => Self::Watchdog,
            "MIGRATION" => Self::Migration(data["status"].as_str().unwrap_or_default().to_owned()),
            other => Self::Other(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::thread;
    use std::time::Duration;

    fn long() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    /// A monitor that answers each request with the next of `answers`, then closes.
    fn monitor(answers: &'static [&'static str]) -> Qmp {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut requests = BufReader::new(theirs.try_clone().unwrap());
            (&theirs).write_all(b"{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n").unwrap();
            for answer in ["{\"return\": {}}\r\n"].iter().chain(answers) {
                requests.read_line(&mut String::new()).unwrap();
                (&theirs).write_all(answer.as_bytes()).unwrap();
            }
        });
        Qmp::greet(ours, tempfile::tempfile().unwrap(), long()).unwrap()
    }

    const RESET: &str = r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "RESET", "data": {"guest": true, "reason": "guest-reset"}}"#;

    #[test]
    fn an_event_before_the_answer_is_kept() {
        let mut qmp = monitor(&[
            "{\"event\": \"RESET\", \"data\": {\"guest\": true, \"reason\": \"guest-reset\"}}\r\n{\"return\": {\"status\": \"running\"}}\r\n",
        ]);
        assert_eq!(qmp.status(long()).unwrap(), "running");
        let wanted = Event::Reset { guest: true, reason: "guest-reset".into() };
        qmp.wait_event("reset", long(), |event| (*event == wanted).then_some(())).unwrap();
        assert!(matches!(qmp.wait_event("more", long(), |_| Some(())), Err(QmpError::Closed)));
    }

    #[test]
    fn a_refusal_names_the_command_and_the_reason() {
        let mut qmp = monitor(&["{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}}\r\n"]);
        let error = qmp.reset(long()).unwrap_err().to_string();
        assert!(error.contains("system_reset") && error.contains("no such thing"), "{error}");
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = Qmp::greet(ours, tempfile::tempfile().unwrap(), Deadline::after(Duration::from_millis(20)));
        assert!(matches!(error, Err(QmpError::Silent(_))));
    }

    #[test]
    fn counters_are_found_by_node_name() {
        let mut qmp = monitor(&[
            r#"{"return": [{"device": "", "node-name": "other", "stats": {}}, {"device": "", "node-name": "disk0", "stats": {"rd_bytes": 1, "rd_operations": 2, "wr_bytes": 3, "wr_operations": 4, "flush_operations": 5}}]}
"#,
            "{\"return\": []}\n",
        ]);
        let stats = qmp.block_stats("disk0", long()).unwrap();
        assert_eq!(stats, BlockStats { read_bytes: 1, reads: 2, written_bytes: 3, writes: 4, flushes: 5 });
        assert!(matches!(qmp.block_stats("disk0", long()), Err(QmpError::Refused { .. })));
    }

    #[test]
    fn lines_and_messages() {
        let mut lines = Lines::default();
        lines.push(b"{\"a\"");
        assert_eq!(lines.next(), None);
        lines.push(b":1}\r\nrest");
        assert_eq!(lines.next().as_deref(), Some("{\"a\":1}"));
        assert_eq!(lines.next(), None);
        assert!(matches!(Message::parse(RESET), Some(Message::Event(Event::Reset { guest: true, .. }))));
        assert_eq!(Message::parse(r#"{"event": "NEW"}"#), Some(Message::Event(Event::Other("NEW".into()))));
        assert_eq!(Message::parse("[]"), None);
        assert_eq!(Message::parse("{}"), None);
        assert_eq!(Message::parse("garbage"), None);
    }
}
