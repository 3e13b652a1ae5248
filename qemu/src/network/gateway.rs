//! A router of our own with an address on every segment that has one: it gives leases, knows machines by name, carries
//! connections into the network, and packets from one segment to another. Pure: frames, bytes and `now` in, frames and
//! bytes out. Nothing goes through it to the host's own network, unless it is told to lead outside.
//!
//! ```text
//!   frame from a segment ─┬─ leases        DHCP
//!                         ├─ names         DNS
//!                         ├─ masquerade ─► frame to another segment
//!                         ├─ TCP stack ◄─► bytes of connections, which the shell has the other ends of
//!                         └─ outside    ─► calls and datagrams to what no segment has, for the shell
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::time::{Duration, Instant};

use dhcp::Prefix;
use dhcp::server::Config as LeasesConfig;
use smoltcp::iface::{Config, SocketHandle};
use smoltcp::socket::tcp;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpCidr, Ipv4Cidr,
};

use super::frame::{Frame, HEADER};
use super::leases::{LeaseState, Leases};
use super::names;
use super::wire::IpPacket;
use crate::machine::Mac;

mod masquerade;
mod outside;
mod stack;

pub(super) use masquerade::UDP_KEPT;
use masquerade::{Masquerade, Packet};
use outside::Outside;
pub(super) use outside::{Departure, Flow, is_outside};
use stack::{Ends, Stack};

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
    /// The way out of the network, if there is one.
    outside: Option<Outside>,
    connections: BTreeMap<Connection, Held>,
    opened: u64,
}

struct Leg {
    setup: GatewaySetup,
    leases: Leases,
    /// Where the addresses of the segment are, as their owners said.
    neighbours: BTreeMap<Ipv4Addr, Mac>,
    stack: Stack<Frame>,
    /// Frames that were made without the stack.
    made: VecDeque<Frame>,
}

/// Which stack a connection ends in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Leg(LegId),
    Outside(Flow),
}

struct Held {
    place: Place,
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

    /// Cards of all machines that have a name.
    pub(super) fn cards(&self) -> impl Iterator<Item = Mac> {
        self.names.values().copied()
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

    /// From now on what no segment has is led outside.
    pub(super) fn lead_outside(&mut self) {
        self.outside.get_or_insert_with(Outside::new);
    }

    /// Calls and datagrams of machines to somebody outside, since the last time.
    pub(super) fn departures(&mut self) -> VecDeque<Departure> {
        self.outside.as_mut().map(Outside::departures).unwrap_or_default()
    }

    /// Somebody outside has answered a call: a connection with the machine, unless it no longer calls.
    pub(super) fn answered(&mut self, flow: Flow, now: Duration) -> Option<Connection> {
        let socket = self.outside.as_mut()?.answered(flow, now)?;
        Some(self.hold(Place::Outside(flow), socket))
    }

    /// Ends a call that nobody outside answers: the machine is told.
    pub(super) fn refused(&mut self, flow: Flow) {
        if let Some(outside) = &mut self.outside {
            outside.refused(flow);
        }
    }

    /// A datagram from outside for the machine that spoke there.
    pub(super) fn arrived(&mut self, flow: Flow, payload: &[u8]) {
        if let Some(packet) = outside::packet(flow, payload) {
            self.pass_on(&packet);
        }
    }

    /// Takes a frame from a segment.
    pub(super) fn receive(&mut self, id: LegId, frame: Frame, now: Duration) {
        let leg = &mut self.legs[id.0];
        if let Some(answer) = leg.leases.handle(frame.bytes(), now) {
            return leg.made.extend(answer);
        }
        let find =
            |name: &str| self.names.get(name).and_then(|card| self.legs.iter().find_map(|leg| leg.leases.of(*card)));
        if let Some(answer) = names::handle(&frame, |address| address == self.legs[id.0].setup.address, find) {
            // A name that nobody here has is somebody's outside.
            if self.outside.is_none() || !answer.as_ref().is_some_and(names::is_unknown) {
                return self.legs[id.0].made.extend(answer);
            }
        }
        let leg = &mut self.legs[id.0];
        leg.learn(&frame);
        match leg.packet(&frame) {
            None => leg.stack.hear(frame),
            Some(packet) if *packet.destination.ip() == leg.setup.address => {
                match (self.masquerade.come_back(&packet, now), &mut self.outside) {
                    (Some(packet), _) => self.pass_on(&packet),
                    (None, Some(outside)) if packet.destination.port() == names::PORT => outside.receive(&packet),
                    (None, _) => leg.stack.hear(frame),
                }
            }
            Some(packet) => {
                let to = *packet.destination.ip();
                let near = self.legs.iter().position(|leg| leg.is_near(to));
                match (near.map(|other| (other, self.legs[other].setup.address)), &mut self.outside) {
                    (Some((other, address)), _) if other != id.0 && address != to => {
                        if let Some(packet) = self.masquerade.leave(&packet, address, now) {
                            self.pass_on(&packet);
                        }
                    }
                    (None, Some(outside)) => outside.receive(&packet),
                    (Some(_), _) | (None, None) => {}
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

    /// Lets the stack of a segment work, and that of the way out, where there is something to do.
    pub(super) fn poll(&mut self, id: LegId, now: Duration) {
        if self.outside.as_mut().is_some_and(|outside| outside.stack.poll(now)) {
            self.let_go(|place| matches!(place, Place::Outside(_)));
        }
        while let Some(IpPacket(packet)) = self.outside.as_mut().and_then(|outside| outside.stack.say()) {
            self.pass_on(&packet);
        }
        if self.legs[id.0].stack.poll(now) {
            self.let_go(|place| place == Place::Leg(id));
        }
    }

    /// Lets go of connections there that are over.
    fn let_go(&mut self, is_there: impl Fn(Place) -> bool) {
        let held = self.connections.iter().filter(|(_, held)| is_there(held.place) && held.kept == Kept::UntilItIsOver);
        let held: Vec<_> = held.map(|(connection, held)| (*connection, held.place, held.socket)).collect();
        for (connection, place, socket) in held {
            let Some(ends) = self.ends(place).filter(|ends| ends.is_over(socket)) else { continue };
            ends.remove(socket);
            self.connections.remove(&connection);
            if let (Place::Outside(flow), Some(outside)) = (place, &mut self.outside) {
                outside.forget(flow);
            }
        }
    }

    /// Time until [`Self::poll`] has to be called even if no frame comes.
    pub(super) fn poll_delay(&self, id: LegId, now: Duration) -> Option<Duration> {
        let outside = self.outside.as_ref().and_then(|outside| outside.stack.poll_delay(now));
        self.legs[id.0].stack.poll_delay(now).into_iter().chain(outside).min()
    }

    /// The next frame for a segment.
    pub(super) fn send(&mut self, id: LegId) -> Option<Frame> {
        let leg = &mut self.legs[id.0];
        leg.made.pop_front().or_else(|| leg.stack.say())
    }

    /// Begins a connection to a port of a machine of that segment; none when it is not known where the machine is.
    pub(super) fn open(&mut self, id: LegId, target: GatewayTarget, port: u16) -> Option<Connection> {
        let leg = &mut self.legs[id.0];
        let address = match target {
            GatewayTarget::Card(card) => {
                let address = leg.leases.of(card)?;
                // While one machine is silent the stack would ask for no other.
                leg.is_at(address, card);
                address
            }
            GatewayTarget::Address(address) => Some(address).filter(|address| leg.is_near(*address))?,
        };
        let own = PORTS.start + u16::try_from(self.opened % (PORTS.len() as u64)).expect("there are fewer ports");
        let (to, from) = (SocketAddrV4::new(address, port), SocketAddrV4::new(leg.setup.address, own));
        let socket = leg.stack.connect(to, from)?;
        Some(self.hold(Place::Leg(id), socket))
    }

    /// Keeps a connection that was just made.
    fn hold(&mut self, place: Place, socket: SocketHandle) -> Connection {
        let connection = Connection(self.opened);
        self.opened += 1;
        self.connections.insert(connection, Held { place, socket, ended: Ended::No, kept: Kept::Yes });
        connection
    }

    /// Whether a connection takes bytes now.
    pub(super) fn takes(&self, connection: Connection) -> bool {
        self.looked_at(connection).is_some_and(|socket| socket.can_send())
    }

    /// Has `fill` put bytes into a connection, and say how many.
    pub(super) fn put<T>(&mut self, connection: Connection, fill: impl FnOnce(&mut [u8]) -> (usize, T)) -> Option<T> {
        self.socket(connection)?.send(fill).ok()
    }

    /// There will be no more.
    pub(super) fn finish(&mut self, connection: Connection) {
        if let Some(socket) = self.socket(connection) {
            socket.close();
        }
    }

    /// Looks whether the connection has bytes to read.
    pub(super) fn incoming(&mut self, connection: Connection) -> Incoming {
        let Some(socket) = self.looked_at(connection) else { return Incoming::Broken };
        if socket.can_recv() {
            return Incoming::Bytes;
        }
        let state = socket.state();
        let Some(held) = self.connections.get_mut(&connection) else { return Incoming::Broken };
        use tcp::State::{
            CloseWait, Closed, Closing, Established, FinWait1, FinWait2, LastAck, Listen, SynReceived, SynSent,
            TimeWait,
        };
        match state {
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
        self.socket(connection)?.recv(drain).ok()
    }

    /// Releases a connection that nobody outside has any more. What was put into a connection that was finished still
    /// arrives.
    pub(super) fn release(&mut self, connection: Connection) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.kept = Kept::UntilItIsOver;
            let place = held.place;
            if let Some(ends) = self.ends(place) {
                ends.stir();
            }
        }
    }

    /// Aborts a connection that broke outside: the machine is told.
    pub(super) fn abort(&mut self, connection: Connection) {
        if let Some(socket) = self.socket(connection) {
            socket.abort();
        }
        self.release(connection);
    }

    /// The end of a connection, to be looked at.
    fn looked_at(&self, connection: Connection) -> Option<&tcp::Socket<'static>> {
        let Held { place, socket, .. } = self.connections.get(&connection)?;
        let ends = match place {
            Place::Leg(leg) => &self.legs[leg.0].stack.ends,
            Place::Outside(_) => &self.outside.as_ref()?.stack.ends,
        };
        Some(ends.socket(*socket))
    }

    fn socket(&mut self, connection: Connection) -> Option<&mut tcp::Socket<'static>> {
        let Held { place, socket, .. } = *self.connections.get(&connection)?;
        Some(self.ends(place)?.socket_mut(socket))
    }

    fn ends(&mut self, place: Place) -> Option<&mut Ends> {
        match place {
            Place::Leg(leg) => Some(&mut self.legs[leg.0].stack.ends),
            Place::Outside(_) => Some(&mut self.outside.as_mut()?.stack.ends),
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
        let own = IpCidr::from(Ipv4Cidr::new(address, prefix.bits()));
        let stack = Stack::new(Config::new(EthernetAddress(mac.0).into()), |interface| {
            interface.update_ip_addrs(|all| all.push(own).expect("there is room for the first address"));
        });
        Ok(Self { setup, leases, neighbours: BTreeMap::new(), stack, made: VecDeque::new() })
    }

    /// Whether an address belongs to the segment.
    fn is_near(&self, address: Ipv4Addr) -> bool {
        self.setup.prefix.joins(self.setup.address, address)
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
        self.stack.hear(frame);
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
