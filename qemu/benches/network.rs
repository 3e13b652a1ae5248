//! Cost of the virtual network: TCP between two cables of a segment, beside TCP between the two ends of a bare socket
//! pair. Prints both, in turns, with their medians, and fails where a limit is broken. It must never measure one of the
//! two by other means than the other.
//!
//! ```text
//!   bare     end ══ socket pair ══ end            an end: a TCP stack (smoltcp) and frames as QEMU sends them,
//!   switch   end ══ cable ─ switch ─ cable ══ end         one write for each
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use qemu::deadline::Stopwatch;
use qemu::machine::{Link, Mac};
use qemu::network::{Decoder, Network, encode};
use qemu::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Cidr};

/// Each of the two is measured so often.
const TURNS: usize = 5;
/// Bytes that one end sends to the other.
const BULK: usize = 512 << 20;
/// Bytes that are sent to and fro alone before.
const PINGS: usize = 1000;
/// The switch may take so much of the throughput, and has to leave so many Mbit/s.
const LEAST_RATIO: f64 = 0.7;
const LEAST_RATE: f64 = 500.0;

/// A stack's buffer is a ring: what is in it comes in two pieces where it goes round.
const PIECES: [(); 2] = [(); 2];
const PORT: u16 = 7;
/// A Linux guest's grows beyond this; the queue before a machine holds twice as much, so that no frame is dropped.
const WINDOW: usize = 512 << 10;
/// As much as QEMU reads at a time (NET_BUFSIZE).
const READ: usize = 4096 + 65536;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout();
    let mut turns = BTreeMap::<Way, Vec<Turn>>::new();
    writeln!(out, "TCP, {} MiB and {PINGS} round trips of one byte\n", BULK >> 20)?;
    writeln!(out, "             Mbit/s   CPU s   round trip, µs")?;
    for number in 1..=TURNS {
        for way in [Way::Bare, Way::Switch] {
            let turn = measure(way)?;
            writeln!(out, "{number} {}", turn.line(way))?;
            turns.entry(way).or_default().push(turn);
        }
    }
    let [bare, switch] = [Way::Bare, Way::Switch].map(|way| Turn::median(&turns[&way]));
    writeln!(out, "\nmedians\n  {}\n  {}", bare.line(Way::Bare), switch.line(Way::Switch))?;
    let added = (switch.round_trip.as_secs_f64() - bare.round_trip.as_secs_f64()) * 1e6;
    writeln!(out, "\na round trip takes {added:.1} µs longer through the switch")?;
    let more = switch.cpu.as_secs_f64() / bare.cpu.as_secs_f64();
    writeln!(out, "and the bulk {more:.2} times the CPU seconds, which tell more where a host is busy")?;
    let limits = [
        ("throughput, switch / bare", switch.rate() / bare.rate(), LEAST_RATIO),
        ("Mbit/s through the switch", switch.rate(), LEAST_RATE),
    ];
    let mut holds = true;
    for (what, measured, at_least) in limits {
        let word = if measured >= at_least { "holds" } else { "BROKEN" };
        holds &= measured >= at_least;
        writeln!(out, "{word:<7} {what:<26} {measured:>9.2}   at least {at_least}")?;
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How the two ends are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Bare,
    Switch,
}

/// Times of a single turn, or the medians of many.
#[derive(Debug, Clone, Copy)]
struct Turn {
    bulk: Duration,
    /// CPU time of this whole process, while the bulk was on its way.
    cpu: Duration,
    round_trip: Duration,
}

impl Turn {
    fn median(turns: &[Self]) -> Self {
        let of = |number: fn(&Self) -> Duration| median(turns.iter().map(number).collect());
        Self { bulk: of(|turn| turn.bulk), cpu: of(|turn| turn.cpu), round_trip: of(|turn| turn.round_trip) }
    }

    #[expect(clippy::cast_precision_loss, reason = "far from 2^52 bits")]
    fn rate(&self) -> f64 {
        (BULK * 8) as f64 / self.bulk.as_secs_f64() / 1e6
    }

    fn line(&self, way: Way) -> String {
        let (cpu, micros) = (self.cpu.as_secs_f64(), self.round_trip.as_secs_f64() * 1e6);
        format!("{:<8}{:>9.0}{cpu:>8.2}{micros:>17.1}", format!("{way:?}").to_lowercase(), self.rate())
    }
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

fn measure(way: Way) -> Result<Turn, Box<dyn Error>> {
    match way {
        Way::Bare => {
            let (one, other) = UnixStream::pair()?;
            between(one, other)
        }
        Way::Switch => {
            let segment = Network::start(1)?.segment();
            let cables = [segment.cable()?, segment.cable()?];
            let [one, other] = cables.each_ref().map(|cable| match cable.link() {
                Link::Stream(socket) => UnixListener::bind(socket)?.accept().map(|(stream, _)| stream),
                Link::User(_) => Err(io::Error::other("a cable is a stream")),
            });
            between(one?, other?)
        }
    }
}

/// Measures a turn: an end asks and sends, the other one answers and receives.
fn between(one: UnixStream, other: UnixStream) -> Result<Turn, Box<dyn Error>> {
    let asker = End::new(one, 1)?;
    let answerer = End::new(other, 2)?;
    thread::scope(|threads| {
        let asks = threads.spawn(move || asker.ask());
        let turn = answerer.answer();
        let round_trip = asks.join().map_err(|_| "the asking end panicked")??;
        let (bulk, cpu) = turn?;
        Ok(Turn { bulk, cpu, round_trip })
    })
}

/// A TCP stack at the end of a stream of frames.
struct End {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    card: Card,
    clock: Stopwatch,
}

impl End {
    fn new(stream: UnixStream, number: u8) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let mut card = Card { stream, incoming: Decoder::default(), outgoing: vec![], buffer: vec![0; READ] };
        let config = Config::new(EthernetAddress(Mac::numbered(number.into()).0).into());
        let mut interface = Interface::new(config, &mut card, Instant::ZERO);
        interface.update_ip_addrs(|all| {
            let _first = all.push(IpCidr::from(Ipv4Cidr::new(address(number), 24)));
        });
        let mut sockets = SocketSet::new(vec![]);
        let buffer = || tcp::SocketBuffer::new(vec![0; WINDOW]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let socket = sockets.add(socket);
        Ok(Self { interface, sockets, socket, card, clock: Stopwatch::start() })
    }

    /// The median of the round trips.
    fn ask(mut self) -> io::Result<Duration> {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        socket.connect(self.interface.context(), (address(2), PORT), 50_000).map_err(io::Error::other)?;
        self.until(|socket| socket.may_send().then_some(()))?;
        let mut round_trips = Vec::new();
        for _ in 0..PINGS {
            let clock = Stopwatch::start();
            self.until(|socket| (socket.send_slice(&[1]) == Ok(1)).then_some(()))?;
            self.until(|socket| (socket.recv_slice(&mut [0]) == Ok(1)).then_some(()))?;
            round_trips.push(clock.elapsed());
        }
        let mut left = BULK;
        self.until(|socket| {
            for _ in PIECES {
                left -= socket.send(|room| (room.len().min(left), room.len().min(left))).unwrap_or(0);
            }
            (left == 0).then_some(())
        })?;
        self.until(|socket| (socket.recv_slice(&mut [0]) == Ok(1)).then_some(()))?;
        Ok(median(round_trips))
    }

    /// How long the bulk took, and how much of the processors' time.
    fn answer(mut self) -> Result<(Duration, Duration), Box<dyn Error>> {
        let this = Process::of_child(std::process::id())?;
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        socket.listen(PORT).map_err(io::Error::other)?;
        for _ in 0..PINGS {
            self.until(|socket| (socket.recv_slice(&mut [0]) == Ok(1)).then_some(()))?;
            self.until(|socket| (socket.send_slice(&[1]) == Ok(1)).then_some(()))?;
        }
        let (clock, cpu) = (Stopwatch::start(), this.cpu_time()?);
        let mut left = BULK;
        self.until(|socket| {
            for _ in PIECES {
                left -= socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0);
            }
            (left == 0).then_some(())
        })?;
        let took = (clock.elapsed(), this.cpu_time()? - cpu);
        self.until(|socket| (socket.send_slice(&[1]) == Ok(1)).then_some(()))?;
        Ok(took)
    }

    /// Lets the stack work until `look` has what it wants, and sends what came of that.
    fn until<T>(&mut self, mut look: impl FnMut(&mut tcp::Socket<'_>) -> Option<T>) -> io::Result<T> {
        loop {
            self.card.read()?;
            self.poll();
            let found = look(self.sockets.get_mut(self.socket));
            let changed = self.poll() == PollResult::SocketStateChanged;
            match found {
                Some(found) => return Ok(found),
                None if changed => {}
                None => self.wait()?,
            }
        }
    }

    fn poll(&mut self) -> PollResult {
        self.interface.poll(instant(self.clock.elapsed()), &mut self.card, &mut self.sockets)
    }

    fn wait(&mut self) -> io::Result<()> {
        let delay = self.interface.poll_delay(instant(self.clock.elapsed()), &self.sockets);
        let (more, delay) = match self.card.outgoing.is_empty() {
            true => (PollFlags::empty(), delay),
            false => (PollFlags::OUT, None),
        };
        let timeout = delay.and_then(|delay| Timespec::try_from(Duration::from(delay)).ok());
        poll(&mut [PollFd::new(&self.card.stream, PollFlags::IN | more)], timeout.as_ref())?;
        self.card.write()
    }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 7, number)
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// A network card as QEMU has one.
struct Card {
    stream: UnixStream,
    incoming: Decoder,
    /// Bytes that the stream has not taken yet.
    outgoing: Vec<u8>,
    buffer: Vec<u8>,
}

impl Card {
    fn read(&mut self) -> io::Result<()> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.incoming.push(&self.buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        write(&mut self.stream, &mut self.outgoing)
    }
}

fn write(mut stream: impl Write, outgoing: &mut Vec<u8>) -> io::Result<()> {
    while !outgoing.is_empty() {
        match stream.write(outgoing) {
            Ok(count) => drop(outgoing.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Device for Card {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Room<'_>)> {
        let frame = self.incoming.pop().expect("the other end is in step")?;
        Some((Received(frame), Room { stream: &self.stream, outgoing: &mut self.outgoing }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        self.outgoing.is_empty().then_some(Room { stream: &self.stream, outgoing: &mut self.outgoing })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Received<'a>(&'a [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(self.0)
    }
}

struct Room<'a> {
    stream: &'a UnixStream,
    outgoing: &'a mut Vec<u8>,
}

impl phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        encode(&frame, self.outgoing);
        // What is wrong with the stream is said when it is read.
        let _noticed_later = write(self.stream, self.outgoing);
        result
    }
}
