//! A router of our own with an address on every segment that has one: it gives leases, knows machines by name, carries
//! connections into the network, and packets from one segment to another. Pure: frames, bytes and `now` in, frames and
//! bytes out. Nothing goes through it to the host's own network.
//!
//! ```text
//!   frame from a segment ─┬─ leases        DHCP
//!                         ├─ names         DNS
//!                         ├─ masquerade ─► frame to another segment
//!                         └─ TCP stack ◄─► bytes of connections, which the shell has the other ends of
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::{Duration, Instant};

use dhcp::Prefix;
use dhcp::server::Config as LeasesConfig;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpCidr, Ipv4Cidr,
};

use super::frame::{Frame, HEADER};
use super::leases::{LeaseState, Leases};
use super::names;
use super::wire::{Wire, instant};
use crate::machine::Mac;

mod masquerade;

use masquerade::{Masquerade, Packet};

/// Addresses of the gateway on a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySetup {
    /// Hardware address of the gateway.
    pub mac: Mac,
    /// Address of the gateway; machines are told that it is their router and resolver.
    pub address: Ipv4Addr,
    /// The segment's prefix length.
    pub prefix: Prefix,
    /// First and last address that it gives.
    pub pool: (Ipv4Addr, Ipv4Addr),
    /// How long a lease lasts, in seconds.
    pub lease_seconds: u32,
}

/// Setup that no gateway can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadGateway {
    /// The gateway has no such address, or no such addresses to give.
    #[error("a gateway with such leases")]
    Leases(#[from] dhcp::server::InvalidConfig),
    /// Where a packet goes must be clear from its address.
    #[error("{0} lies in the network of another segment's gateway")]
    Overlap(Ipv4Addr),
}

/// To whom a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayTarget {
    /// The machine with this network card, at the address that it holds by then.
    Card(Mac),
    /// This address of the segment.
    Address(Ipv4Addr),
}

/// A connection from outside into the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Connection(u64);

/// The gateway's place on one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LegId(usize);

/// Result of reading from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incoming {
    Bytes,
    /// No bytes are there yet.
    Later,
    /// The machine has sent all.
    Ended,
    /// The machine refused or broke it, or did not answer.
    Broken,
}

/// The gateway on all its segments.
#[derive(Default)]
pub(super) struct Gateway {
    legs: Vec<Leg>,
    names: BTreeMap<String, Mac>,
    masquerade: Masquerade,
    connections: BTreeMap<Connection, Held>,
    opened: u64,
}

struct Leg {
    setup: GatewaySetup,
    leases: Leases,
    /// Where the addresses of the segment are, as their owners said.
    neighbours: BTreeMap<Ipv4Addr, Mac>,
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    /// Frames that were made without the stack.
    made: VecDeque<Frame>,
    next: Next,
}

/// When the stack has something to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Now,
    At(Duration),
    WhenStirred,
}

struct Held {
    leg: LegId,
    socket: SocketHandle,
    ended: Ended,
    kept: Kept,
}

/// Whether the machine has sent all of a connection.
#[derive(PartialEq, Eq)]
enum Ended {
    No,
    Yes,
}

/// Whether somebody outside still has the other end.
#[derive(PartialEq, Eq)]
enum Kept {
    Yes,
    UntilItIsOver,
}

/// Bytes on their way in each direction of a connection: 20 Mbit/s over a path of 100 ms there and back.
pub(super) const BUFFER: usize = 256 * 1024;
/// A connection ends when the machine says nothing to what it was sent for so long; Linux gives up a first packet then.
const PATIENCE: Duration = Duration::from_secs(127);
/// Ports that connections have here; flows that are only passed on have others.
const PORTS: Range<u16> = 40_000..65_000;
/// Addresses of one segment whose places are known: more than its prefix ever holds in use.
const NEIGHBOURS: usize = 4096;
/// Frames that wait without the stack; more come only when nobody takes them.
const MADE: usize = 4096;

impl Gateway {
    /// Adds the gateway's place on one more segment. `epoch` is the instant that every `now` counts from.
    pub(super) fn add(&mut self, setup: &GatewaySetup, epoch: Instant) -> Result<LegId, BadGateway> {
        let overlaps = |leg: &&Leg| leg.is_near(setup.address) || setup.prefix.joins(leg.setup.address, setup.address);
        if self.legs.iter().find(overlaps).is_some() {
            return Err(BadGateway::Overlap(setup.address));
        }
        self.legs.push(Leg::new(setup.clone(), epoch)?);
        Ok(LegId(self.legs.len() - 1))
    }

    /// From now on the machine with this card has this name.
    pub(super) fn name(&mut self, name: &str, card: Mac) {
        self.names.insert(name.to_ascii_lowercase(), card);
    }

    /// The card of the machine that has this name, in small letters.
    pub(super) fn named(&self, name: &str) -> Option<Mac> {
        self.names.get(name).copied()
    }

    /// The address that the card holds of this segment, or has been offered.
    pub(super) fn lease(&self, leg: LegId, card: Mac) -> Option<Ipv4Addr> {
        self.legs[leg.0].leases.of(card)
    }

    /// From now on this address of the segment is for that card alone.
    pub(super) fn reserve(&mut self, leg: LegId, card: Mac, address: Ipv4Addr, held: LeaseState, now: Duration) {
        let leg = &mut self.legs[leg.0];
        leg.leases.reserve(card, address, held, now);
        match held {
            LeaseState::NotYet => {}
            // Of several at once the stack would ask for one a second (smoltcp's `SILENT_TIME`).
            LeaseState::FromBefore => leg.is_at(address, card),
        }
    }

    /// Takes a frame from a segment.
    pub(super) fn receive(&mut self, id: LegId, frame: Frame, now: Duration) {
        let leg = &mut self.legs[id.0];
        leg.next = Next::Now;
        if let Some(answer) = leg.leases.handle(frame.bytes(), now) {
            return leg.made.extend(answer);
        }
        let find =
            |name: &str| self.names.get(name).and_then(|card| self.legs.iter().find_map(|leg| leg.leases.of(*card)));
        if let Some(answer) = names::handle(&frame, |address| address == self.legs[id.0].setup.address, find) {
            return self.legs[id.0].made.extend(answer);
        }
        let leg = &mut self.legs[id.0];
        leg.learn(&frame);
        match leg.packet(&frame) {
            None => leg.wire.incoming.push_back(frame),
            Some(packet) if *packet.destination.ip() == leg.setup.address => {
                match self.masquerade.come_back(&packet, now) {
                    None => leg.wire.incoming.push_back(frame),
                    Some(packet) => self.pass_on(&packet),
                }
            }
            Some(packet) => {
                let to = *packet.destination.ip();
                let other = self.legs.iter().enumerate().find(|(other, leg)| *other != id.0 && leg.is_near(to));
                if let Some(address) = other.map(|(_, leg)| leg.setup.address).filter(|address| *address != to)
                    && let Some(packet) = self.masquerade.leave(&packet, address, now)
                {
                    self.pass_on(&packet);
                }
            }
        }
    }

    /// Sends a packet on by the segment that its destination is on.
    fn pass_on(&mut self, packet: &[u8]) {
        let to = packet.get(16..20).and_then(|bytes| bytes.first_chunk::<4>()).map(|bytes| Ipv4Addr::from(*bytes));
        if let Some(to) = to
            && let Some(leg) = self.legs.iter_mut().find(|leg| leg.is_near(to))
        {
            leg.carry(packet, to);
        }
    }

    /// Lets the stack of a segment work, where there is something to do.
    pub(super) fn poll(&mut self, id: LegId, now: Duration) {
        let leg = &mut self.legs[id.0];
        if leg.next == Next::WhenStirred || matches!(leg.next, Next::At(at) if now < at) {
            return;
        }
        let _changed = leg.interface.poll(instant(now), &mut leg.wire, &mut leg.sockets);
        self.connections.retain(|_, held| {
            let over = held.leg == id && held.kept == Kept::UntilItIsOver && leg.is_over(held.socket);
            if over {
                leg.sockets.remove(held.socket);
            }
            !over
        });
        let at = leg.interface.poll_delay(instant(now), &leg.sockets).map(|delay| now + Duration::from(delay));
        leg.next = at.map_or(Next::WhenStirred, Next::At);
    }

    /// Time until [`Self::poll`] has to be called even if no frame comes.
    pub(super) fn poll_delay(&self, id: LegId, now: Duration) -> Option<Duration> {
        match self.legs[id.0].next {
            Next::Now => Some(Duration::ZERO),
            Next::At(at) => Some(at.saturating_sub(now)),
            Next::WhenStirred => None,
        }
    }

    /// The next frame for a segment.
    pub(super) fn send(&mut self, id: LegId) -> Option<Frame> {
        let leg = &mut self.legs[id.0];
        leg.made.pop_front().or_else(|| leg.wire.outgoing.pop_front())
    }

    /// Begins a connection to a port of a machine of that segment; none when it is not known where the machine is.
    pub(super) fn open(&mut self, id: LegId, target: GatewayTarget, port: u16) -> Option<Connection> {
        let leg = &mut self.legs[id.0];
        let address = match target {
            GatewayTarget::Card(card) => leg.leases.of(card)?,
            GatewayTarget::Address(address) => Some(address).filter(|address| leg.is_near(*address))?,
        };
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        // What is asked in small pieces is not held up; whoever is outside collects what he wants to.
        socket.set_nagle_enabled(false);
        socket.set_timeout(Some(PATIENCE.into()));
        let own = PORTS.start + u16::try_from(self.opened % (PORTS.len() as u64)).expect("there are fewer ports");
        socket.connect(leg.interface.context(), (address, port), (leg.setup.address, own)).ok()?;
        let connection = Connection(self.opened);
        self.opened += 1;
        leg.next = Next::Now;
        let socket = leg.sockets.add(socket);
        self.connections.insert(connection, Held { leg: id, socket, ended: Ended::No, kept: Kept::Yes });
        Some(connection)
    }

    /// Whether a connection takes bytes now.
    pub(super) fn takes(&self, connection: Connection) -> bool {
        self.connections.get(&connection).is_some_and(|held| {
            let socket: &tcp::Socket<'_> = self.legs[held.leg.0].sockets.get(held.socket);
            socket.can_send()
        })
    }

    /// Has `fill` put bytes into a connection, and say how many.
    pub(super) fn put<T>(&mut self, connection: Connection, fill: impl FnOnce(&mut [u8]) -> (usize, T)) -> Option<T> {
        self.stir(connection);
        self.socket(connection)?.send(fill).ok()
    }

    /// There will be no more.
    pub(super) fn finish(&mut self, connection: Connection) {
        self.stir(connection);
        if let Some(socket) = self.socket(connection) {
            socket.close();
        }
    }

    /// Looks whether the connection has bytes to read.
    pub(super) fn incoming(&mut self, connection: Connection) -> Incoming {
        let Some(held) = self.connections.get_mut(&connection) else { return Incoming::Broken };
        let socket: &tcp::Socket<'_> = self.legs[held.leg.0].sockets.get(held.socket);
        if socket.can_recv() {
            return Incoming::Bytes;
        }
        use tcp::State::{
            CloseWait, Closed, Closing, Established, FinWait1, FinWait2, LastAck, Listen, SynReceived, SynSent,
            TimeWait,
        };
        match socket.state() {
            Listen | SynSent | SynReceived | Established | FinWait1 | FinWait2 => Incoming::Later,
            CloseWait | Closing | LastAck | TimeWait => {
                held.ended = Ended::Yes;
                Incoming::Ended
            }
            Closed if held.ended == Ended::Yes => Incoming::Ended,
            Closed => Incoming::Broken,
        }
    }

    /// Has `drain` take bytes of a connection, and say how many.
    pub(super) fn take<T>(&mut self, connection: Connection, drain: impl FnOnce(&mut [u8]) -> (usize, T)) -> Option<T> {
        self.stir(connection);
        self.socket(connection)?.recv(drain).ok()
    }

    /// Releases a connection that nobody outside has any more. What was put into a connection that was finished still
    /// arrives.
    pub(super) fn release(&mut self, connection: Connection) {
        self.stir(connection);
        if let Some(held) = self.connections.get_mut(&connection) {
            held.kept = Kept::UntilItIsOver;
        }
    }

    /// Aborts a connection that broke outside: the machine is told.
    pub(super) fn abort(&mut self, connection: Connection) {
        if let Some(socket) = self.socket(connection) {
            socket.abort();
        }
        self.release(connection);
    }

    fn socket(&mut self, connection: Connection) -> Option<&mut tcp::Socket<'static>> {
        let held = self.connections.get(&connection)?;
        Some(self.legs[held.leg.0].sockets.get_mut(held.socket))
    }

    fn stir(&mut self, connection: Connection) {
        if let Some(held) = self.connections.get(&connection) {
            self.legs[held.leg.0].next = Next::Now;
        }
    }
}

impl Leg {
    fn new(setup: GatewaySetup, epoch: Instant) -> Result<Self, dhcp::server::InvalidConfig> {
        let GatewaySetup { mac, address, prefix, pool, lease_seconds } = setup;
        let config = LeasesConfig {
            address,
            prefix,
            first: pool.0,
            last: pool.1,
            routers: vec![address],
            dns: vec![address],
            lease_seconds,
        };
        let leases = Leases::new(config, mac, epoch)?;
        let mut wire = Wire::default();
        let config = Config::new(EthernetAddress(mac.0).into());
        let mut interface = Interface::new(config, &mut wire, instant(Duration::ZERO));
        interface.update_ip_addrs(|all| {
            let own = IpCidr::from(Ipv4Cidr::new(address, prefix.bits()));
            all.push(own).expect("there is room for the first address");
        });
        let (sockets, neighbours, made) = (SocketSet::new(vec![]), BTreeMap::new(), VecDeque::new());
        Ok(Self { setup, leases, neighbours, interface, wire, sockets, made, next: Next::WhenStirred })
    }

    /// Whether an address belongs to the segment.
    fn is_near(&self, address: Ipv4Addr) -> bool {
        self.setup.prefix.joins(self.setup.address, address)
    }

    fn is_over(&self, socket: SocketHandle) -> bool {
        let socket: &tcp::Socket<'_> = self.sockets.get(socket);
        socket.state() == tcp::State::Closed
    }

    /// The packet that a frame for this station carries.
    fn packet<'a>(&self, frame: &'a Frame) -> Option<Packet<'a>> {
        if frame.destination() != self.setup.mac {
            return None;
        }
        let ethernet = EthernetFrame::new_unchecked(frame.bytes());
        (ethernet.ethertype() == EthernetProtocol::Ipv4).then(|| Packet::read(&frame.bytes()[HEADER..]))?
    }

    /// Where an address is, from what its owner says of himself.
    fn learn(&mut self, frame: &Frame) {
        let said = ArpPacket::new_checked(&frame.bytes()[HEADER..]).and_then(|packet| ArpRepr::parse(&packet));
        let ethernet = EthernetFrame::new_unchecked(frame.bytes());
        if let (EthernetProtocol::Arp, Ok(ArpRepr::EthernetIpv4 { source_hardware_addr, source_protocol_addr, .. })) =
            (ethernet.ethertype(), said)
            && self.is_near(source_protocol_addr)
            && (self.neighbours.len() < NEIGHBOURS || self.neighbours.contains_key(&source_protocol_addr))
        {
            self.neighbours.insert(source_protocol_addr, Mac(source_hardware_addr.0));
        }
    }

    /// Hears from the card itself, as it were, that it has this address.
    fn is_at(&mut self, address: Ipv4Addr, card: Mac) {
        let answer = arp(&ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: EthernetAddress(card.0),
            source_protocol_addr: address,
            target_hardware_addr: EthernetAddress(self.setup.mac.0),
            target_protocol_addr: self.setup.address,
        });
        let frame = frame(card, self.setup.mac, EthernetProtocol::Arp, &answer);
        self.learn(&frame);
        self.wire.incoming.push_back(frame);
        self.next = Next::Now;
    }

    /// Sends a packet of another segment to a machine of this one. The first one asks where that is, and is lost: whoever
    /// sent it says it again.
    fn carry(&mut self, packet: &[u8], to: Ipv4Addr) {
        if self.made.len() >= MADE {
            return;
        }
        let frame = match self.neighbours.get(&to) {
            Some(mac) => frame(self.setup.mac, *mac, EthernetProtocol::Ipv4, packet),
            None => {
                let question = arp(&ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Request,
                    source_hardware_addr: EthernetAddress(self.setup.mac.0),
                    source_protocol_addr: self.setup.address,
                    target_hardware_addr: EthernetAddress([0; 6]),
                    target_protocol_addr: to,
                });
                frame(self.setup.mac, Mac(EthernetAddress::BROADCAST.0), EthernetProtocol::Arp, &question)
            }
        };
        self.made.push_back(frame);
    }
}

fn arp(said: &ArpRepr) -> Vec<u8> {
    let mut bytes = vec![0; said.buffer_len()];
    said.emit(&mut ArpPacket::new_unchecked(bytes.as_mut_slice()));
    bytes
}

fn frame(from: Mac, to: Mac, ethertype: EthernetProtocol, payload: &[u8]) -> Frame {
    let (src_addr, dst_addr) = (EthernetAddress(from.0), EthernetAddress(to.0));
    let mut bytes = vec![0; HEADER];
    EthernetRepr { src_addr, dst_addr, ethertype }.emit(&mut EthernetFrame::new_unchecked(bytes.as_mut_slice()));
    bytes.extend_from_slice(payload);
    Frame::parse(&bytes).expect("it has its header")
}

#[cfg(test)]
mod tests;
