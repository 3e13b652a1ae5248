//! The one thread of a network, with its sockets and files. It moves bytes between them and the [`Wiring`], and tells that
//! the time; it decides nothing. Its sockets on the host's loopback are in [`Forwards`].
//!
//! QEMU listens on a unix socket for each machine's cable; the thread looks for those that nobody is plugged in at, and
//! connects. So it does not matter which of both was there first, or comes back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tempfile::TempDir;

use super::forwards::{Forwards, Source};
use super::frame::{self, Decoder};
use super::host::NoReport;
use super::outlets::{Outlet, Outlets, WayOut};
use super::pcap;
use super::scan::{Report, Scan};
use super::switch::Port;
use super::wiring::Wiring;
use crate::deadline::{Stopwatch, since_1970};

/// The thread of a network, from outside; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    sockets: PathBuf,
    /// Where they are in a directory of this network's own; it goes when this is dropped, after the thread.
    _own: Option<TempDir>,
    orders: Option<Sender<Order>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Order that the thread carries out between two rounds.
type Order = Box<dyn FnOnce(&mut Shell) + Send>;
/// Result of a scan.
type Found = Result<Report, NoReport>;

/// Bytes that are read from a machine before the others get their turn, and that are made ready for one at a time: as
/// many as the kernel keeps of a unix stream.
const BATCH: usize = 208 * 1024;
/// How often it looks for work before it sleeps. Frames come in rows: to be woken for each costs everybody more time than
/// a few looks in vain, which let others run (`benches/network.rs`).
const LOOKS: usize = 3;
/// How often a machine is looked for that is not there: a person who starts one does not notice, and it costs nothing.
const SEEK: Duration = Duration::from_millis(100);
/// Bytes of a socket's path that every program takes (unix(7)).
pub(super) const LONGEST_PATH: usize = 107;

impl Running {
    /// With sockets in a directory of its own.
    pub(super) fn start(seed: u64) -> io::Result<Self> {
        let own = tempfile::Builder::new().prefix("cairn-network-").tempdir()?;
        Self::run(own.path().to_owned(), Some(own), seed)
    }

    /// With sockets in this directory.
    pub(super) fn start_in(sockets: PathBuf, seed: u64) -> io::Result<Self> {
        Self::run(sockets, None, seed)
    }

    fn run(sockets: PathBuf, own: Option<TempDir>, seed: u64) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true)?;
        }
        let (orders, queue) = channel();
        let (clock, started_at) = (Stopwatch::start(), since_1970());
        let wiring = Wiring::new(seed);
        let shell = Shell {
            wiring,
            clock,
            started_at,
            sought_at: Duration::ZERO,
            machines: BTreeMap::new(),
            forwards: Forwards::default(),
            outlets: None,
            scans: BTreeMap::new(),
            captures: BTreeMap::new(),
            woken,
            orders: queue,
        };
        let thread = thread::Builder::new().name("network".into()).spawn(move || shell.run())?;
        Ok(Self { sockets, _own: own, orders: Some(orders), wake, thread: Some(thread) })
    }

    /// Has the thread do something, and waits for what comes of it.
    pub(super) fn ask<T: Send + 'static>(&self, order: impl FnOnce(&mut Shell) -> T + Send + 'static) -> T {
        let (result, answer) = channel();
        let order = move |shell: &mut Shell| {
            // Who asked waits for it.
            let _told = result.send(order(shell));
        };
        if let Some(orders) = &self.orders {
            let _sent = orders.send(Box::new(order));
        }
        self.wake();
        answer.recv().expect("the thread ends when this is dropped, or has told of its panic")
    }

    /// Where QEMU is to listen at the cable of this name.
    pub(super) fn socket(&self, name: &str) -> io::Result<PathBuf> {
        let socket = self.sockets.join(format!("{name}.cable"));
        if socket.as_os_str().as_bytes().len() > LONGEST_PATH {
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, TooLongPath(socket)));
        }
        Ok(socket)
    }

    fn wake(&self) {
        // When its buffer is full the thread has been woken often enough.
        let _woken = (&self.wake).write(&[0]);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.orders = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the thread itself.
            let _ended = thread.join();
        }
    }
}

/// Where a socket would be that no program could use.
#[derive(Debug, thiserror::Error)]
#[error("the path of a socket has at most {LONGEST_PATH} bytes, and `{0}` has more")]
pub(super) struct TooLongPath(pub(super) PathBuf);

/// State of the network's thread, which it alone touches.
pub(super) struct Shell {
    pub(super) wiring: Wiring,
    pub(super) clock: Stopwatch,
    /// Time from 1970 to when the clock began.
    started_at: Duration,
    /// When machines that are not there were looked for last.
    sought_at: Duration,
    machines: BTreeMap<Port, Socket>,
    pub(super) forwards: Forwards,
    /// Sockets that lead outside, if anything may.
    outlets: Option<Outlets>,
    scans: BTreeMap<Port, Sender<Found>>,
    captures: BTreeMap<Port, BufWriter<File>>,
    woken: UnixStream,
    orders: Receiver<Order>,
}

/// Where a machine's network card is plugged in.
struct Socket {
    path: PathBuf,
    card: Option<Card>,
}

/// A network card that is plugged in.
struct Card {
    stream: UnixStream,
    incoming: Decoder,
    outgoing: Vec<u8>,
    /// How many of those have been written.
    written: usize,
}

impl Shell {
    /// From now on the machine at this port is looked for at this socket.
    pub(super) fn look_for(&mut self, port: Port, path: PathBuf) {
        self.machines.insert(port, Socket { path, card: None });
    }

    /// Whether a machine is plugged in.
    pub(super) fn is_plugged_in(&self, port: Port) -> bool {
        self.machines.get(&port).is_some_and(|socket| socket.card.is_some())
    }

    /// From now on what no segment has is outside, where this says.
    pub(super) fn lead_outside(&mut self, way_out: WayOut) {
        self.wiring.gateway.lead_outside();
        self.outlets.get_or_insert_with(|| Outlets::new(way_out));
    }

    /// Begins a scan; what it finds comes over the channel.
    pub(super) fn scan(&mut self, host: Port, scan: Scan) -> Receiver<Found> {
        let (result, answer) = channel();
        self.wiring.scan(host, scan);
        self.scans.insert(host, result);
        answer
    }

    /// Begins a capture, behind what the file holds: to whoever reads it, a capture is one or more sections.
    pub(super) fn capture(&mut self, port: Port, name: &str, file: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::options().create(true).append(true).open(file)?);
        file.write_all(&pcap::header(name))?;
        file.flush()?;
        self.wiring.capture(port);
        self.captures.insert(port, file);
        Ok(())
    }

    /// Ends the capture of a port.
    pub(super) fn end_capture(&mut self, port: Port) {
        self.wiring.end_capture(port);
        self.captures.remove(&port);
    }

    /// Until the handle is dropped.
    fn run(mut self) {
        let mut buffer = vec![0; BATCH];
        while self.take_orders() {
            self.seek();
            self.wiring.poll(self.clock.elapsed());
            while self.forwards.carry(&mut self.wiring, self.clock.elapsed()) {
                self.wiring.poll(self.clock.elapsed());
            }
            if let Some(outlets) = &mut self.outlets {
                outlets.depart(&mut self.wiring.gateway, self.clock.elapsed());
            }
            self.tell_results();
            self.write_captures();
            for (port, socket) in &mut self.machines {
                socket.write(*port, &mut self.wiring);
            }
            let ready = self.wait();
            self.serve(&ready, &mut buffer);
        }
    }

    /// Whether there may be more.
    fn take_orders(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(order) => order(self),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Looks for machines that are not there.
    fn seek(&mut self) {
        if self.time_to_seek().is_some_and(|time| time.is_zero()) {
            self.sought_at = self.clock.elapsed();
            for (port, socket) in &mut self.machines {
                socket.seek(*port, &mut self.wiring);
            }
        }
    }

    /// Until when; none when all are there.
    fn time_to_seek(&self) -> Option<Duration> {
        let some = self.machines.values().any(|socket| socket.card.is_none());
        some.then(|| (self.sought_at + SEEK).saturating_sub(self.clock.elapsed()))
    }

    fn tell_results(&mut self) {
        for (host, result) in self.wiring.results() {
            if let Some(asker) = self.scans.remove(&host) {
                // It stopped waiting at its deadline.
                let _heard = asker.send(result);
            }
        }
    }

    /// Whole frames are in the files at the end of each round: whoever reads one meanwhile finds no half.
    fn write_captures(&mut self) {
        for captured in self.wiring.captured() {
            let time = self.started_at + captured.at;
            let record = pcap::record(&captured.frame, captured.direction, time);
            if self.captures.get_mut(&captured.port).is_some_and(|file| file.write_all(&record).is_err()) {
                self.captures.remove(&captured.port);
            }
        }
        self.captures.retain(|_, file| file.flush().is_ok());
    }

    /// Waits until there is something to do, and says at which sockets.
    fn wait(&mut self) -> Vec<Ready> {
        let now = self.clock.elapsed();
        let silent = self.forwards.next_end().map(|end| end.saturating_sub(now));
        let unanswered = self.outlets.as_ref().and_then(Outlets::next_end).map(|end| end.saturating_sub(now));
        let delay = [self.wiring.poll_delay(now), self.time_to_seek(), silent, unanswered].into_iter().flatten().min();
        let timeout = delay.and_then(|delay| Timespec::try_from(delay).ok());
        let mut sources = Vec::new();
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        for (port, socket) in &self.machines {
            if let Some(card) = &socket.card {
                sources.push(Ready::Card(*port));
                let writable = if card.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                fds.push(PollFd::new(&card.stream, PollFlags::IN | writable));
            }
        }
        let forwards = self.forwards.waits(&self.wiring.gateway);
        for (source, socket, flags) in &forwards {
            sources.push(Ready::Forward(*source));
            fds.push(PollFd::new(socket, *flags));
        }
        let outlets = self.outlets.as_ref().map(Outlets::waits).unwrap_or_default();
        for (outlet, socket, flags) in &outlets {
            sources.push(Ready::Outlet(*outlet));
            fds.push(PollFd::new(socket, *flags));
        }
        let looked = (0..LOOKS).any(|_| {
            let found = matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..));
            if !found {
                thread::yield_now();
            }
            found
        });
        if !looked {
            // Interrupted or not: what is ready says so, and the rest is polled again.
            let _polled = poll(&mut fds, timeout.as_ref());
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            let _woken = self.woken.read(&mut [0; 64]);
        }
        sources.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready).map(|(source, _)| source).collect()
    }

    fn serve(&mut self, ready: &[Ready], buffer: &mut [u8]) {
        let (wiring, mut leading) = (&mut self.wiring, Vec::new());
        for one in ready {
            match *one {
                Ready::Forward(source) => self.forwards.ready(source, wiring, self.clock.elapsed()),
                Ready::Outlet(outlet) => leading.push(outlet),
                Ready::Card(port) => {
                    if let Some(socket) = self.machines.get_mut(&port) {
                        socket.read(port, wiring, self.clock.elapsed(), buffer);
                    }
                }
            }
        }
        if let Some(outlets) = &mut self.outlets {
            outlets.ready(&leading, &mut wiring.gateway, &mut self.forwards, self.clock.elapsed());
        }
    }
}

/// Source that is ready: a machine's cable, one of the forwards, or a socket that leads outside.
#[derive(Clone, Copy)]
enum Ready {
    Card(Port),
    Forward(Source),
    Outlet(Outlet),
}

impl Socket {
    /// Connects to the machine, if it is there and is not connected.
    fn seek(&mut self, port: Port, wiring: &mut Wiring) {
        if self.card.is_none()
            && let Ok(stream) = dial(&self.path)
        {
            wiring.connect(port);
            self.card = Some(Card { stream, incoming: Decoder::default(), outgoing: Vec::new(), written: 0 });
        }
    }

    fn read(&mut self, port: Port, wiring: &mut Wiring, now: Duration, buffer: &mut [u8]) {
        let read = self.card.as_mut().map(|card| card.read(port, wiring, now, buffer));
        self.unplug_on_error(read, port, wiring);
    }

    fn write(&mut self, port: Port, wiring: &mut Wiring) {
        let written = self.card.as_mut().map(|card| card.write(port, wiring));
        self.unplug_on_error(written, port, wiring);
    }

    /// QEMU has ended, or is out of step; it may come back.
    fn unplug_on_error(&mut self, done: Option<io::Result<()>>, port: Port, wiring: &mut Wiring) {
        if done.is_some_and(|done| done.is_err()) {
            wiring.disconnect(port);
            self.card = None;
        }
    }
}

/// A connection to a socket, without waiting for one: whoever listens and takes none must not hold up the others.
fn dial(path: &Path) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl Card {
    fn read(&mut self, port: Port, wiring: &mut Wiring, now: Duration, buffer: &mut [u8]) -> io::Result<()> {
        match self.stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.incoming.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        while let Some(frame) = self.incoming.pop().map_err(io::Error::other)? {
            wiring.send(port, frame, now);
        }
        Ok(())
    }

    fn write(&mut self, port: Port, wiring: &mut Wiring) -> io::Result<()> {
        loop {
            while self.outgoing.len() < BATCH
                && let Some(frame) = wiring.receive(port)
            {
                frame::encode(frame.bytes(), &mut self.outgoing);
            }
            if self.outgoing.is_empty() {
                return Ok(());
            }
            match self.stream.write(&self.outgoing[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.written == self.outgoing.len() {
                self.outgoing.clear();
                self.written = 0;
            }
        }
    }
}
