//! The test peer: a small host of our own at the other end of a machine's network card.
//!
//! ```text
//!   guest ── virtio-net ── QEMU ──unix stream── Peer thread ── frames ── host (pure) ── scan (pure)
//! ```
//! This file has the only socket and thread; it decides nothing. The peer listens before the machine starts and takes
//! a new connection whenever QEMU makes one, so a machine may be started again.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

use crate::deadline::{Deadline, Stopwatch};
use crate::machine::{Link, Mac};

mod frames;
mod host;
mod leases;
mod scan;

pub use host::{BadSetup, NoNextHop, Setup, StaticRoute};
pub use scan::{Answer, Question, Report};

use frames::Decoder;
use host::Host;
use scan::Scan;

/// A running peer; ends when dropped.
#[derive(Debug)]
pub struct Peer {
    dir: TempDir,
    commands: Option<Sender<Command>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no peer.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot be such a host.
    #[error(transparent)]
    Setup(#[from] BadSetup),
    /// Its socket or thread.
    #[error("listen for the machine's network card")]
    Listen(#[from] io::Error),
}

/// Why a scan has no result.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Nothing could be sent.
    #[error(transparent)]
    NoNextHop(#[from] NoNextHop),
    /// It was not over in time, or the peer has ended.
    #[error("the scan did not end within {0:?}")]
    Late(Duration),
}

enum Command {
    Scan { scan: Scan, result: Sender<Result<Report, NoNextHop>> },
    Lease { mac: Mac, result: Sender<Option<Ipv4Addr>> },
}

/// After the first round of a scan. A few silent ports are so waited for 12.4 s: a machine under emulation, beside
/// others, has been seen to answer nothing for six.
const PAUSE: Duration = Duration::from_millis(400);

impl Peer {
    /// Starts a peer.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(setup: &Setup) -> Result<Self, StartError> {
        let clock = Stopwatch::start();
        let host = Host::new(setup, clock.began())?;
        let dir = tempfile::Builder::new().prefix("cairn-peer-").tempdir()?;
        let listener = UnixListener::bind(socket(&dir))?;
        listener.set_nonblocking(true)?;
        let (wake, woken) = UnixStream::pair()?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true)?;
        }
        let (commands, queue) = channel();
        let shell = Shell { host, listener, woken, commands: queue, asker: None, link: None, clock };
        let thread = thread::Builder::new().name("peer".into()).spawn(move || shell.run())?;
        Ok(Self { dir, commands: Some(commands), wake, thread: Some(thread) })
    }

    /// What a network card must be linked to, to have the peer at its other end.
    #[must_use]
    pub fn link(&self) -> Link {
        Link::Stream(socket(&self.dir))
    }

    /// Asks TCP ports of `target`, on the link or behind a route.
    ///
    /// # Errors
    /// [`ScanError`]
    pub fn scan_tcp(
        &self,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        deadline: Deadline,
    ) -> Result<Report, ScanError> {
        self.scan(Scan::new(Question::Tcp, target, ports, PAUSE), deadline)
    }

    /// Sends `payload` to UDP ports of `target` and waits for whatever comes back.
    ///
    /// # Errors
    /// [`ScanError`]
    pub fn probe_udp(
        &self,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<Report, ScanError> {
        self.scan(Scan::new(Question::Udp(payload.to_vec()), target, ports, PAUSE), deadline)
    }

    fn scan(&self, scan: Scan, deadline: Deadline) -> Result<Report, ScanError> {
        let late = || ScanError::Late(deadline.length());
        let (result, answer) = channel();
        self.send(Command::Scan { scan, result });
        let report = answer.recv_timeout(deadline.left().unwrap_or_default()).map_err(|_| late())??;
        Ok(report)
    }

    /// The address that the card `mac` holds of the peer's DHCP server, or has been offered.
    #[must_use]
    pub fn lease(&self, mac: Mac) -> Option<Ipv4Addr> {
        let (result, answer) = channel();
        self.send(Command::Lease { mac, result });
        // The peer always answers; if it has ended nobody holds anything of it.
        answer.recv().ok().flatten()
    }

    /// A command to a peer that has ended is dropped, and with it the other end of its result.
    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _sent = commands.send(command);
        }
        self.wake();
    }

    fn wake(&self) {
        // When its buffer is full the thread has been woken often enough.
        let _woken = (&self.wake).write(&[0]);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.commands = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the thread itself.
            let _ended = thread.join();
        }
    }
}

fn socket(dir: &TempDir) -> std::path::PathBuf {
    Path::new(dir.path()).join("link")
}

/// The peer's thread.
struct Shell {
    host: Host,
    listener: UnixListener,
    woken: UnixStream,
    commands: Receiver<Command>,
    asker: Option<Sender<Result<Report, NoNextHop>>>,
    link: Option<LinkUp>,
    clock: Stopwatch,
}

/// A network card that is plugged in.
struct LinkUp {
    stream: UnixStream,
    incoming: Decoder,
    outgoing: Vec<u8>,
}

impl Shell {
    /// Until the handle is dropped.
    fn run(mut self) {
        while self.take_commands() {
            let now = self.clock.elapsed();
            if let Some(result) = self.host.poll(now)
                && let Some(asker) = self.asker.take()
            {
                // It stopped waiting at its deadline.
                let _heard = asker.send(result);
            }
            if let Some(link) = &mut self.link {
                while link.outgoing.is_empty()
                    && let Some(frame) = self.host.send()
                {
                    link.outgoing = frames::encode(&frame);
                    if link.write().is_err() {
                        break;
                    }
                }
            }
            self.wait();
            self.accept();
            self.read();
        }
    }

    fn take_commands(&mut self) -> bool {
        use std::sync::mpsc::TryRecvError;
        loop {
            match self.commands.try_recv() {
                Ok(Command::Scan { scan, result }) => {
                    self.host.start(scan);
                    self.asker = Some(result);
                }
                Ok(Command::Lease { mac, result }) => {
                    // Who asked waits for it.
                    let _told = result.send(self.host.lease(mac));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn wait(&mut self) {
        let delay = self.host.poll_delay(self.clock.elapsed());
        let timeout = delay.and_then(|delay| Timespec::try_from(delay).ok());
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        if let Some(link) = &self.link {
            let writable = if link.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&link.stream, PollFlags::IN | writable));
        }
        // Interrupted or not: everything is looked at without blocking afterwards.
        let _polled = poll(&mut fds, timeout.as_ref());
        let _woken = self.woken.read(&mut [0; 64]);
    }

    fn accept(&mut self) {
        if let Ok((stream, _)) = self.listener.accept()
            && stream.set_nonblocking(true).is_ok()
        {
            self.host.link_changed();
            self.link = Some(LinkUp { stream, incoming: Decoder::default(), outgoing: Vec::new() });
        }
    }

    /// Takes what is there, at most 64 KiB before the host gets its turn.
    fn read(&mut self) {
        let Some(link) = &mut self.link else { return };
        let alive = link.read(&mut self.host, self.clock.elapsed()).and_then(|()| link.write());
        if alive.is_err() {
            // QEMU has ended, or is out of step; it may come back.
            self.link = None;
        }
    }
}

impl LinkUp {
    fn read(&mut self, host: &mut Host, now: Duration) -> io::Result<()> {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.incoming.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        while let Some(frame) = self.incoming.next().map_err(io::Error::other)? {
            host.receive(frame, now);
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);

    fn peer() -> Peer {
        let addresses = vec![(PEER, 24)];
        Peer::start(&Setup { mac: Mac::numbered(1), addresses, routes: vec![], dhcp: None }).unwrap()
    }

    /// An ARP request for the peer's address, and the frame that must come back (RFC 826).
    #[test]
    fn it_answers_on_its_socket_and_takes_a_second_connection() {
        let peer = peer();
        let Link::Stream(socket) = peer.link() else { panic!("a peer is a stream") };
        let asker = [0x52, 0x54, 0, 0, 0, 9];
        let mut request = vec![0xff; 6];
        request.extend(asker);
        request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        request.extend(asker);
        request.extend([192, 168, 7, 9, 0, 0, 0, 0, 0, 0]);
        request.extend(PEER.octets());
        for _ in 0..2 {
            let mut card = UnixStream::connect(&socket).unwrap();
            card.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            card.write_all(&frames::encode(&request)).unwrap();
            let mut answer = [0; 4 + 42];
            card.read_exact(&mut answer).unwrap();
            assert_eq!(answer[4..10], asker);
            assert_eq!(answer[10..16], Mac::numbered(1).0);
            assert_eq!(answer[4 + 20..4 + 22], [0, 2], "an answer");
            assert_eq!(answer[4 + 28..4 + 32], PEER.octets());
        }
    }

    #[test]
    fn a_scan_without_a_machine_ends_at_its_deadline() {
        let result = peer().scan_tcp(PEER, [1], Deadline::after(Duration::from_millis(10)));
        assert!(matches!(result, Err(ScanError::Late(_))));
    }
}
