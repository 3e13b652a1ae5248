//! Masquerade of what leaves one segment for another: UDP and TCP under the address of the gateway on that segment,
//! each flow with a port of its own, as Linux masquerades. Pure. What comes back is let in from whom it went to only,
//! and nothing else is.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::time::Duration;

use smoltcp::wire::{IpProtocol, Ipv4Packet, TcpPacket, UdpPacket};

/// Ports of the gateway that flows get; connections of its own have others.
const PORTS: Range<u16> = 10_000..40_000;
/// A flow is forgotten after so long without a packet (RFC 4787, section 4.3; RFC 5382, section 5).
pub(in super::super) const UDP_KEPT: Duration = Duration::from_secs(2 * 60);
const TCP_KEPT: Duration = Duration::from_secs((2 * 60 + 4) * 60);
/// Flows at a time; of more, the one that was silent for longest is forgotten.
const FLOWS: usize = 1024;

/// IPv4 packet, as far as this looks: whole, and with both checksums right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) protocol: Protocol,
    pub(super) source: SocketAddrV4,
    pub(super) destination: SocketAddrV4,
    hops: u8,
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

const PROTOCOLS: [(IpProtocol, Protocol); 2] = [(IpProtocol::Tcp, Protocol::Tcp), (IpProtocol::Udp, Protocol::Udp)];

impl<'a> Packet<'a> {
    /// Takes what an Ethernet frame carries. Fragments are not passed on: they do not say to which flow they belong.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let ip = Ipv4Packet::new_checked(bytes).ok().filter(|ip| ip.version() == 4 && ip.verify_checksum())?;
        if ip.more_frags() || ip.frag_offset() != 0 {
            return None;
        }
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        let protocol = PROTOCOLS.iter().find(|known| known.0 == ip.next_header())?.1;
        let (from_ip, to_ip) = (from.into(), to.into());
        let (holds, source, destination) = match protocol {
            Protocol::Tcp => {
                let tcp = TcpPacket::new_checked(ip.payload()).ok()?;
                (tcp.verify_checksum(&from_ip, &to_ip), tcp.src_port(), tcp.dst_port())
            }
            Protocol::Udp => {
                let udp = UdpPacket::new_checked(ip.payload()).ok()?;
                (udp.verify_checksum(&from_ip, &to_ip), udp.src_port(), udp.dst_port())
            }
        };
        if !holds {
            return None;
        }
        let (source, destination) = (SocketAddrV4::new(from, source), SocketAddrV4::new(to, destination));
        Some(Self { protocol, source, destination, hops: ip.hop_limit(), bytes: &bytes[..usize::from(ip.total_len())] })
    }

    /// The packet's own bytes.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes that a datagram carries; of TCP, those of its segment.
    pub(super) fn payload(&self) -> &'a [u8] {
        let segment = Ipv4Packet::new_unchecked(self.bytes).payload();
        match self.protocol {
            Protocol::Tcp => segment,
            Protocol::Udp => UdpPacket::new_unchecked(segment).payload(),
        }
    }

    /// Whether it asks for a connection.
    pub(super) fn begins(&self) -> bool {
        let tcp = || TcpPacket::new_unchecked(Ipv4Packet::new_unchecked(self.bytes).payload());
        self.protocol == Protocol::Tcp && tcp().syn() && !tcp().ack()
    }

    /// The same packet one hop further, between others; none when that was its last hop.
    fn readdressed(self, source: SocketAddrV4, destination: SocketAddrV4) -> Option<Vec<u8>> {
        let hops = self.hops.checked_sub(1).filter(|hops| *hops > 0)?;
        let mut bytes = self.bytes.to_vec();
        let mut ip = Ipv4Packet::new_unchecked(bytes.as_mut_slice());
        ip.set_src_addr(*source.ip());
        ip.set_dst_addr(*destination.ip());
        ip.set_hop_limit(hops);
        ip.fill_checksum();
        let (from, to) = ((*source.ip()).into(), (*destination.ip()).into());
        match self.protocol {
            Protocol::Tcp => {
                let mut tcp = TcpPacket::new_unchecked(ip.payload_mut());
                tcp.set_src_port(source.port());
                tcp.set_dst_port(destination.port());
                tcp.fill_checksum(&from, &to);
            }
            Protocol::Udp => {
                let mut udp = UdpPacket::new_unchecked(ip.payload_mut());
                udp.set_src_port(source.port());
                udp.set_dst_port(destination.port());
                udp.fill_checksum(&from, &to);
            }
        }
        Some(bytes)
    }
}

/// The flows of all segments.
#[derive(Debug, Default)]
pub(super) struct Masquerade {
    flows: BTreeMap<Outside, Flow>,
    /// The same, by who speaks to whom.
    known: BTreeMap<(Inside, SocketAddrV4), Outside>,
    /// Ports that were given so far, used in turn.
    given: u16,
}

/// A flow's own end, and what stands for it outside.
type Inside = (Protocol, SocketAddrV4);
type Outside = (Protocol, SocketAddrV4);

#[derive(Debug, Clone, Copy)]
struct Flow {
    inside: Inside,
    to: SocketAddrV4,
    seen: Duration,
}

impl Flow {
    fn is_kept(&self, now: Duration) -> bool {
        let kept = match self.inside.0 {
            Protocol::Tcp => TCP_KEPT,
            Protocol::Udp => UDP_KEPT,
        };
        now < self.seen + kept
    }
}

impl Masquerade {
    /// A packet on its way out, under `address`.
    pub(super) fn leave(&mut self, packet: &Packet<'_>, address: Ipv4Addr, now: Duration) -> Option<Vec<u8>> {
        let flow = Flow { inside: (packet.protocol, packet.source), to: packet.destination, seen: now };
        let outside = match self.known.get(&(flow.inside, flow.to)) {
            Some(outside) => *outside,
            None => self.outside(packet.protocol, address, now)?,
        };
        self.known.insert((flow.inside, flow.to), outside);
        self.flows.insert(outside, flow);
        packet.readdressed(outside.1, packet.destination)
    }

    /// A packet that came back, on its way to who asked.
    pub(super) fn come_back(&mut self, packet: &Packet<'_>, now: Duration) -> Option<Vec<u8>> {
        let flow = self.flows.get_mut(&(packet.protocol, packet.destination))?;
        if flow.to != packet.source || !flow.is_kept(now) {
            return None;
        }
        flow.seen = now;
        packet.readdressed(packet.source, flow.inside.1)
    }

    /// Forgets flows that have ended, or the one that was silent for longest if none has.
    fn forget(&mut self, now: Duration) {
        self.flows.retain(|_, flow| flow.is_kept(now));
        if self.flows.len() >= FLOWS
            && let Some((&oldest, _)) = self.flows.iter().min_by_key(|(_, flow)| flow.seen)
        {
            self.flows.remove(&oldest);
        }
        self.known.retain(|_, outside| self.flows.contains_key(outside));
    }

    /// A free place outside, and room for its flow.
    fn outside(&mut self, protocol: Protocol, address: Ipv4Addr, now: Duration) -> Option<Outside> {
        if self.flows.len() >= FLOWS {
            self.forget(now);
        }
        // There are more ports than flows: one is free.
        PORTS.clone().find_map(|_| {
            let port = PORTS.start + self.given;
            self.given = (self.given + 1) % (PORTS.end - PORTS.start);
            let outside = (protocol, SocketAddrV4::new(address, port));
            (!self.flows.contains_key(&outside)).then_some(outside)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcp::frame::{self, Datagram};

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 8, 1);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 168, 8, 20), 2000);
    const NOW: Duration = Duration::from_secs(1);

    fn inside(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(192, 168, 7, 20), port)
    }

    /// An UDP packet without its frame.
    fn packet(source: SocketAddrV4, destination: SocketAddrV4) -> Vec<u8> {
        let mac = dhcp::HardwareAddress([2; 6]);
        let datagram = Datagram { source_mac: mac, destination_mac: mac, source, destination, payload: b"payload" };
        frame::build(&datagram).unwrap().split_off(14)
    }

    fn leave(masquerade: &mut Masquerade, port: u16, now: Duration) -> SocketAddrV4 {
        let out = masquerade.leave(&Packet::read(&packet(inside(port), TO)).unwrap(), GATEWAY, now).unwrap();
        Packet::read(&out).unwrap().source
    }

    /// To whom an answer to `outside` goes.
    fn come_back(masquerade: &mut Masquerade, outside: SocketAddrV4, now: Duration) -> Option<SocketAddrV4> {
        let back = masquerade.come_back(&Packet::read(&packet(TO, outside)).unwrap(), now)?;
        Some(Packet::read(&back).unwrap().destination)
    }

    #[test]
    fn a_flow_keeps_its_port_and_is_told_from_others() {
        let mut masquerade = Masquerade::default();
        let [one, other, again] = [1, 2, 1].map(|port| leave(&mut masquerade, port, NOW));
        assert_eq!((one, *one.ip()), (again, GATEWAY));
        assert_ne!(one, other);
        assert_eq!(come_back(&mut masquerade, one, NOW), Some(inside(1)));
        assert_eq!(come_back(&mut masquerade, other, NOW), Some(inside(2)));
    }

    #[test]
    fn a_flow_is_kept_by_each_packet_and_ends_without() {
        let mut masquerade = Masquerade::default();
        let outside = leave(&mut masquerade, 1, NOW);
        let almost = UDP_KEPT - Duration::from_nanos(1);
        assert_eq!(come_back(&mut masquerade, outside, NOW + almost), Some(inside(1)));
        leave(&mut masquerade, 1, NOW + 2 * almost);
        assert_eq!(come_back(&mut masquerade, outside, NOW + 3 * almost), Some(inside(1)));
        assert_eq!(come_back(&mut masquerade, outside, NOW + 3 * almost + UDP_KEPT), None);
    }

    #[test]
    fn of_too_many_flows_the_longest_silent_one_is_forgotten() {
        let mut masquerade = Masquerade::default();
        let at = |index: u16| NOW + Duration::from_micros(index.into());
        let outside: Vec<_> = (0..1200).map(|port| leave(&mut masquerade, port, at(port))).collect();
        assert_eq!((masquerade.flows.len(), masquerade.known.len()), (FLOWS, FLOWS));
        assert_eq!(come_back(&mut masquerade, outside[1200 - FLOWS], at(1200)), Some(inside(176)));
        assert_eq!(come_back(&mut masquerade, outside[1200 - FLOWS - 1], at(1200)), None);
    }

    #[test]
    fn only_whole_packets_are_read() {
        let whole = packet(inside(1), TO);
        let read = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            let mut ip = Ipv4Packet::new_unchecked(bytes.as_mut_slice());
            ip.fill_checksum();
            Packet::read(&bytes).is_some()
        };
        assert!(read(1, 0), "as it was");
        assert!(!read(6, 0x20), "a first fragment");
        assert!(!read(7, 1), "a later one");
        assert!(!read(9, 1), "ICMP");
        assert!(!read(30, b'x'), "a changed payload");
        let padded = [&whole[..], &[0; 9]].concat();
        assert_eq!(Packet::read(&padded).unwrap().bytes, whole);
        let mut changed = whole.clone();
        changed[8] ^= 1;
        assert_eq!(Packet::read(&changed), None, "a header that does not hold");
        assert_eq!(Packet::read(&whole[..27]), None);
    }

    #[test]
    fn a_packet_has_so_many_hops() {
        for (hops, left) in [(64, Some(63)), (2, Some(1)), (1, None), (0, None)] {
            let bytes = packet(inside(1), TO);
            let moved = Packet { hops, ..Packet::read(&bytes).unwrap() }.readdressed(inside(1), TO);
            assert_eq!(moved.map(|bytes| bytes[8]), left);
        }
    }
}
