//! Calls and datagrams of machines to addresses that no segment has, for whoever has the host's sockets. Pure. A
//! call is answered only when somebody outside has answered it, and nothing leads to an address of the host's own or of its links.
//!
//! ```text
//!   machine ─ SYN ───► Departure::Call ──► socket of the host ─► answered: its SYN meets a listening end, and they talk
//!                                                             └► refused:  its SYN meets none, which is a reset
//!   machine ─ UDP ───► Departure::Datagram ─► socket of the host ─► arrived: a packet from there
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use dhcp::HardwareAddress;
use dhcp::frame::{self as datagram, Datagram};
use smoltcp::iface::{Config, SocketHandle};
use smoltcp::wire::HardwareAddress as StackAddress;

use super::super::frame::HEADER;
use super::super::wire::{IpPacket, Unit};
use super::masquerade::{Packet, Protocol};
use super::stack::Stack;

/// A machine and the place outside that it speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Flow {
    /// The machine.
    pub(in super::super) from: SocketAddrV4,
    /// The place outside.
    pub(in super::super) to: SocketAddrV4,
}

/// Message of a machine to somebody outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Departure {
    /// A connection is asked for.
    Call(Flow),
    /// A datagram.
    Datagram(Flow, Vec<u8>),
}

/// Calls at a time, of all machines; more are not heard. Each costs twice the gateway's buffer.
const CALLS: usize = 256;
/// Departures that wait for the host's sockets; more come only when nobody takes them.
const WAITING: usize = 4096;

/// Way out of the network.
pub(super) struct Outside {
    pub(super) stack: Stack<IpPacket>,
    calls: BTreeMap<Flow, Call>,
    departures: VecDeque<Departure>,
}

/// How far a call is.
enum Call {
    /// A call that nobody has answered, with its first packet.
    Rings(Vec<u8>),
    /// The machine and somebody outside talk.
    Talks,
}

impl Outside {
    pub(super) fn new() -> Self {
        // Whatever address somebody outside has.
        let stack = Stack::new(Config::new(StackAddress::Ip), |interface| interface.set_any_ip(true));
        Self { stack, calls: BTreeMap::new(), departures: VecDeque::new() }
    }

    /// Takes a packet of a machine.
    pub(super) fn receive(&mut self, packet: &Packet<'_>) {
        let flow = Flow { from: packet.source, to: packet.destination };
        match (packet.protocol, self.calls.get(&flow)) {
            (Protocol::Udp, _) => {
                let _fits = self.depart(Departure::Datagram(flow, packet.payload().to_vec()));
            }
            // It asks again, since nobody has answered.
            (Protocol::Tcp, Some(Call::Rings(_))) => {}
            (Protocol::Tcp, None) if packet.begins() => {
                if self.calls.len() < CALLS && self.depart(Departure::Call(flow)) {
                    self.calls.insert(flow, Call::Rings(packet.bytes().to_vec()));
                }
            }
            // What belongs to no connection is answered by a reset.
            (Protocol::Tcp, Some(Call::Talks) | None) => self.stack.hear(IpPacket::made(packet.bytes().to_vec())),
        }
    }

    /// Whether there is room for it.
    fn depart(&mut self, departure: Departure) -> bool {
        let fits = self.departures.len() < WAITING;
        if fits {
            self.departures.push_back(departure);
        }
        fits
    }

    pub(super) fn departures(&mut self) -> VecDeque<Departure> {
        std::mem::take(&mut self.departures)
    }

    #[cfg(test)]
    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Somebody outside has answered a call: the machine hears of it.
    pub(super) fn answered(&mut self, flow: Flow, now: Duration) -> Option<SocketHandle> {
        let Some(Call::Rings(first)) = self.calls.remove(&flow) else { return None };
        let socket = self.stack.accept(flow.to, IpPacket::made(first), now)?;
        self.calls.insert(flow, Call::Talks);
        Some(socket)
    }

    /// Ends a call that nobody outside answers: the machine hears that, too.
    pub(super) fn refused(&mut self, flow: Flow) {
        if let Some(Call::Rings(first)) = self.calls.remove(&flow) {
            self.stack.hear(IpPacket::made(first));
        }
    }

    /// A connection is over.
    pub(super) fn forget(&mut self, flow: Flow) {
        self.calls.remove(&flow);
    }
}

/// The packet of a datagram from outside; none for one that no cable carries.
pub(super) fn packet(flow: Flow, payload: &[u8]) -> Option<Vec<u8>> {
    let nobody = HardwareAddress([0; 6]);
    let (source_mac, destination_mac) = (nobody, nobody);
    let said = Datagram { source_mac, destination_mac, source: flow.to, destination: flow.from, payload };
    let packet = datagram::build(&said).ok()?.split_off(HEADER);
    (packet.len() <= IpPacket::LONGEST).then_some(packet)
}

/// Whether a machine may be led to this address. Addresses of the host's own are among them: only the host knows those.
pub(in super::super) fn is_outside(address: Ipv4Addr) -> bool {
    let is_reserved = address.octets()[0] >= 240 || address.octets()[0] == 0;
    !(address.is_loopback() || address.is_link_local() || address.is_multicast() || is_reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_hosts_alone_is_not_outside() {
        let near = ["127.0.0.1", "127.255.0.1", "169.254.169.254", "224.0.0.251", "255.255.255.255", "240.0.0.1"];
        for address in near.iter().chain(&["0.0.0.0", "0.1.2.3"]) {
            assert!(!is_outside(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "10.0.0.1", "192.168.1.1", "172.17.0.2", "100.64.0.1", "223.255.255.1"] {
            assert!(is_outside(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_datagram_that_fills_a_cable_fits_and_a_larger_one_does_not() {
        let [from, to] = [1, 2].map(|host| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), 53));
        let made = |length: usize| packet(Flow { from, to }, &vec![7; length]);
        assert_eq!(made(1472).map(|packet| packet.len()), Some(1500));
        assert_eq!(made(1473), None);
        assert_eq!(Packet::read(&made(5).unwrap()).map(|packet| (packet.source, packet.destination)), Some((to, from)));
    }
}
