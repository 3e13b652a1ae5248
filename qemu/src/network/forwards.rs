//! TCP of the host's loopback into the network: listens there, and moves bytes between its sockets and the gateway's
//! connections. It keeps none itself: a side that takes no more stops the other. It listens on 127.0.0.1 only, and calls
//! nobody.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::sockopt::set_socket_linger;

use super::gateway::{Connection, Gateway, GatewayTarget, Incoming};
use super::proxy::{Caller, Progress};
use super::proxy_word::ProxyWord;
use super::switch::Port;
use super::wiring::Wiring;
use crate::machine::Mac;

mod race;

use race::{Lap, Race};

/// Connections at a time; more wait in the host's own queues. Each costs twice the gateway's buffer.
const CONNECTIONS: usize = 256;

/// Forwards of the host's loopback, and the callers of the proxy.
#[derive(Default)]
pub(super) struct Forwards {
    doors: Vec<Door>,
    /// Callers of the proxy that are not connected yet.
    callers: Vec<Caller>,
    /// Callers whom no machine has answered yet.
    races: Vec<Race>,
    streams: Vec<Stream>,
}

/// Where somebody may come in, and where to.
struct Door {
    listener: TcpListener,
    gateway: Port,
    leads: Leads,
}

#[derive(Debug)]
enum Leads {
    /// To this port.
    To(GatewayTarget, u16),
    /// To this port of whichever machine answers; of the one that did last, if it does again.
    ToAny(u16, Option<Mac>),
    /// To where somebody says who knows this.
    Anywhere(ProxyWord),
}

struct Stream {
    socket: TcpStream,
    connection: Connection,
    /// From the host into the network.
    inwards: Half,
    outwards: Half,
}

/// Half of a stream, which is one direction, by the host's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    /// The socket may have or take bytes.
    Ready,
    /// The socket had none, or took none: its word is waited for.
    Waits,
    /// All has been passed on.
    Ended,
}

/// A socket that is waited for; good until the next [`Forwards::carry`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Door(usize),
    Caller(usize),
    Stream(usize),
}

/// Result of carrying a stream's bytes.
enum Carried {
    /// Whether anything moved.
    Some(bool),
    /// All has been passed on, both ways.
    Over,
    /// The host's socket broke.
    BrokenOutside,
    /// The machine refused it, broke it, or did not answer.
    BrokenInside,
}

impl Forwards {
    /// Listens on the loopback. Port 0 is any that is free.
    pub(super) fn add(
        &mut self,
        host: u16,
        gateway: Port,
        target: GatewayTarget,
        port: u16,
    ) -> io::Result<SocketAddrV4> {
        self.listen(host, gateway, Leads::To(target, port))
    }

    /// Listens on this port of the loopback for whoever wants a port of any machine.
    pub(super) fn add_any(&mut self, host: u16, gateway: Port, port: u16) -> io::Result<SocketAddrV4> {
        self.listen(host, gateway, Leads::ToAny(port, None))
    }

    /// Listens for programs that say in SOCKS where they want to go.
    pub(super) fn add_proxy(&mut self, gateway: Port, word: ProxyWord) -> io::Result<SocketAddrV4> {
        self.listen(0, gateway, Leads::Anywhere(word))
    }

    /// Carries bytes between a connection that a machine called for and the socket outside that answered.
    pub(super) fn adopt(&mut self, socket: TcpStream, connection: Connection) {
        self.streams.push(Stream::new(socket, connection));
    }

    fn listen(&mut self, host: u16, gateway: Port, leads: Leads) -> io::Result<SocketAddrV4> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, host))?;
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(address) = listener.local_addr()? else { return Err(ErrorKind::AddrNotAvailable.into()) };
        self.doors.push(Door { listener, gateway, leads });
        Ok(address)
    }

    /// The sockets to wait for, and what for. One that has nothing to say is not among them: poll(2) would tell of its end
    /// again and again.
    pub(super) fn waits(&self, gateway: &Gateway) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let is_full = self.streams.len() + self.callers.len() + self.races.len() >= CONNECTIONS;
        let doors = self.doors.iter().enumerate().filter(|_| !is_full);
        let doors = doors.map(|(index, door)| (Source::Door(index), door.listener.as_fd(), PollFlags::IN));
        let streams = self.streams.iter().enumerate().filter_map(|(index, stream)| {
            let flags = stream.waits(gateway);
            (!flags.is_empty()).then_some((Source::Stream(index), stream.socket.as_fd(), flags))
        });
        let callers = self.callers.iter().enumerate().filter(|(_, caller)| caller.speaks());
        let callers = callers.map(|(index, caller)| (Source::Caller(index), caller.socket.as_fd(), PollFlags::IN));
        doors.chain(callers).chain(streams).collect()
    }

    /// When the next caller has been silent for too long, or waits for the next machine.
    pub(super) fn next_end(&self) -> Option<Duration> {
        self.callers.iter().filter_map(Caller::until).chain(self.races.iter().map(Race::next)).min()
    }

    /// Takes note that one of them is ready.
    pub(super) fn ready(&mut self, source: Source, wiring: &mut Wiring, now: Duration) {
        match source {
            Source::Stream(index) => self.streams[index].ready(),
            Source::Caller(index) => {
                if let Progress::Over = self.callers[index].ready(wiring) {
                    self.callers[index].end();
                }
            }
            Source::Door(index) => {
                let door = &self.doors[index];
                if let Ok((socket, _)) = door.listener.accept()
                    && socket.set_nonblocking(true).is_ok()
                {
                    match &door.leads {
                        Leads::Anywhere(word) => {
                            self.callers.push(Caller::new(socket, door.gateway, word.clone(), now));
                        }
                        Leads::ToAny(port, last) => {
                            let (one, others) =
                                wiring.gateway.cards().partition::<Vec<_>, _>(|card| Some(*card) == *last);
                            let cards = one.into_iter().chain(others).collect();
                            self.races.push(Race::new(socket, (index, door.gateway), *port, cards, now));
                        }
                        Leads::To(target, port) => match wiring.open(door.gateway, *target, *port) {
                            None => refuse(&socket),
                            Some(connection) => self.streams.push(Stream::new(socket, connection)),
                        },
                    }
                }
            }
        }
    }

    /// Moves every byte that can move; whether one did, or a stream ended.
    pub(super) fn carry(&mut self, wiring: &mut Wiring, now: Duration) -> bool {
        let mut some = self.connect(&mut wiring.gateway, now) | self.run_races(wiring, now);
        let gateway = &mut wiring.gateway;
        self.streams.retain_mut(|stream| {
            let carried = stream.carry(gateway);
            some |= !matches!(carried, Carried::Some(false));
            match carried {
                Carried::Some(_) => return true,
                Carried::Over => gateway.release(stream.connection),
                Carried::BrokenOutside => gateway.abort(stream.connection),
                Carried::BrokenInside => {
                    gateway.release(stream.connection);
                    refuse(&stream.socket);
                }
            }
            false
        });
        some
    }

    /// Has callers that are connected be streams, and leaves those that get nowhere; whether there were any.
    fn connect(&mut self, gateway: &mut Gateway, now: Duration) -> bool {
        let before = self.callers.len();
        for mut caller in std::mem::take(&mut self.callers) {
            match caller.look(gateway) {
                Progress::Waits if caller.until().is_none_or(|until| now < until) => self.callers.push(caller),
                Progress::Waits | Progress::Over => {}
                Progress::Connected(connection) => self.streams.push(Stream::new(caller.socket, connection)),
            }
        }
        self.callers.len() < before
    }

    /// The same for those whom any machine may answer.
    fn run_races(&mut self, wiring: &mut Wiring, now: Duration) -> bool {
        let before = self.races.len();
        for mut race in std::mem::take(&mut self.races) {
            match race.look(wiring, now) {
                Lap::Goes => self.races.push(race),
                Lap::Lost => refuse(&race.socket),
                Lap::Won(card, connection) => {
                    if let Leads::ToAny(_, last) = &mut self.doors[race.door].leads {
                        *last = Some(card);
                    }
                    self.streams.push(Stream::new(race.socket, connection));
                }
            }
        }
        self.races.len() < before
    }
}

impl Stream {
    fn new(socket: TcpStream, connection: Connection) -> Self {
        Self { socket, connection, inwards: Half::Ready, outwards: Half::Ready }
    }

    fn waits(&self, gateway: &Gateway) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.inwards == Half::Waits && gateway.takes(self.connection));
        flags.set(PollFlags::OUT, self.outwards == Half::Waits);
        flags
    }

    fn ready(&mut self) {
        for half in [&mut self.inwards, &mut self.outwards] {
            if *half == Half::Waits {
                *half = Half::Ready;
            }
        }
    }

    fn carry(&mut self, gateway: &mut Gateway) -> Carried {
        let Ok(moved_in) = self.carry_in(gateway) else { return Carried::BrokenOutside };
        let mut moved = moved_in;
        loop {
            match gateway.incoming(self.connection) {
                Incoming::Broken => return Carried::BrokenInside,
                Incoming::Bytes if self.outwards == Half::Ready => match self.carry_out(gateway) {
                    Ok(moved_out) => moved |= moved_out,
                    Err(_) => return Carried::BrokenOutside,
                },
                Incoming::Ended if self.outwards != Half::Ended => {
                    if self.socket.shutdown(Shutdown::Write).is_err() {
                        return Carried::BrokenOutside;
                    }
                    self.outwards = Half::Ended;
                    moved = true;
                }
                Incoming::Ended if self.inwards == Half::Ended => return Carried::Over,
                Incoming::Bytes | Incoming::Ended | Incoming::Later => return Carried::Some(moved),
            }
        }
    }

    /// From the host's socket, as long as it has bytes and they are taken.
    fn carry_in(&mut self, gateway: &mut Gateway) -> io::Result<bool> {
        let (connection, mut socket, mut moved) = (self.connection, &self.socket, false);
        while self.inwards == Half::Ready && gateway.takes(connection) {
            let read = gateway.put(connection, |room| counted(socket.read(room)));
            match read.unwrap_or(Err(ErrorKind::BrokenPipe.into())) {
                Ok(0) => {
                    gateway.finish(connection);
                    self.inwards = Half::Ended;
                    moved = true;
                }
                Ok(_) => moved = true,
                Err(error) => self.inwards = waits(error)?,
            }
        }
        Ok(moved)
    }

    /// To the host's socket, one piece.
    fn carry_out(&mut self, gateway: &mut Gateway) -> io::Result<bool> {
        let mut socket = &self.socket;
        let written = gateway.take(self.connection, |bytes| counted(socket.write(bytes)));
        match written.unwrap_or(Err(ErrorKind::BrokenPipe.into())) {
            Ok(_) => Ok(true),
            Err(error) => {
                self.outwards = waits(error)?;
                Ok(false)
            }
        }
    }
}

fn counted(done: io::Result<usize>) -> (usize, io::Result<usize>) {
    (*done.as_ref().unwrap_or(&0), done)
}

/// Whether an error only says that it is too early.
fn waits(error: io::Error) -> io::Result<Half> {
    let kind = error.kind();
    if kind == ErrorKind::WouldBlock {
        Ok(Half::Waits)
    } else if kind == ErrorKind::Interrupted {
        Ok(Half::Ready)
    } else {
        Err(error)
    }
}

/// Has the host's end see a reset, not the end of a stream that was whole.
fn refuse(socket: &TcpStream) {
    // Without it, it sees an end.
    let _reset = set_socket_linger(socket, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Stopwatch;
    use crate::network::GatewaySetup;

    /// More callers and streams than there is room for wait in the host's own queues.
    #[test]
    fn whoever_comes_is_taken_as_long_as_there_is_a_place() {
        let (mut wiring, mut forwards) = (Wiring::new(7), Forwards::default());
        let door = forwards.add_proxy(Port(0), ProxyWord::draw().unwrap()).unwrap();
        let socket = TcpStream::connect(door).unwrap();
        let is_open = |forwards: &Forwards| {
            let waits = forwards.waits(&Gateway::default());
            waits.iter().any(|(source, ..)| matches!(source, Source::Door(0)))
        };
        let word = ProxyWord::draw().unwrap();
        let caller = || Caller::new(socket.try_clone().unwrap(), Port(0), word.clone(), Duration::ZERO);
        forwards.callers.extend((2..CONNECTIONS).map(|_| caller()));
        let machine = Ipv4Addr::new(10, 0, 2, 15);
        let setup = GatewaySetup {
            mac: Mac::numbered(0x00ff_fffe),
            address: Ipv4Addr::new(10, 0, 2, 2),
            prefix: dhcp::Prefix::new(24).expect("24 bits are a prefix"),
            pool: (machine, machine),
            lease_seconds: 60,
        };
        let leg = wiring.gateway.add(&setup, Stopwatch::start().began()).unwrap();
        let taken = wiring.gateway.open(leg, GatewayTarget::Address(machine), 7836).unwrap();
        forwards.streams.push(Stream::new(socket.try_clone().unwrap(), taken));
        assert!(is_open(&forwards), "one place is left");
        forwards.callers.push(caller());
        assert!(!is_open(&forwards));
        // Those that say nothing give theirs up.
        let end = forwards.next_end().unwrap();
        forwards.carry(&mut wiring, end);
        assert!(is_open(&forwards));
    }

    /// Places are few: who says nothing gives its own up.
    #[test]
    fn a_program_that_does_not_say_where_to_is_left() {
        let (listener, mut wiring, mut forwards) =
            (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), Wiring::new(7), Forwards::default());
        let mut silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, begun) = (listener.accept().unwrap().0, Duration::from_secs(5));
        forwards.callers.push(Caller::new(accepted, Port(0), ProxyWord::draw().unwrap(), begun));
        let end = forwards.next_end().expect("it is waited for, and not for ever");
        assert!(!forwards.carry(&mut wiring, end.saturating_sub(Duration::from_millis(1))));
        assert!(forwards.carry(&mut wiring, end) && forwards.next_end().is_none());
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    }
}
