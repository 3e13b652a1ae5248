//! A host of our own on a segment: ARP, static routes, scans, leases, names. Pure: frames and `now` in, frames out.
//! Only the services that the host is given listen on it: whoever asks it for another TCP connection is refused, and so knows
//! that it was reached.
//!
//! Probes are packets of our own through smoltcp's raw sockets, so that a scan of all ports needs no socket per port
//! and sees ICMP errors too; addressing, neighbours and routes are smoltcp's. Behind the probes of each round goes a
//! barrier: a question to the machine that takes them, whose answer shows that it has worked through them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, Route, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::raw;
use smoltcp::wire::{
    EthernetAddress, Icmpv4Packet, Icmpv4Repr, IpCidr, IpProtocol, IpVersion, Ipv4Cidr, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};

use super::frame::Frame;
use super::leases::Leases;
use super::names;
use super::scan::{CAUGHT_UP, Next, PortAnswer, PortQuestion, Report, Scan};
use super::wire::{OUTGOING, Wire, instant};
use crate::machine::Mac;
use barrier::Part;
use service::Services;

mod barrier;
mod service;

pub use service::{Conversation, PortService};

/// Addresses and routes of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Hardware address of the host.
    pub mac: Mac,
    /// Addresses of the host with their prefix lengths (at most 4).
    pub addresses: Vec<(Ipv4Addr, u8)>,
    /// Where it sends what is not on its link (at most 8).
    pub routes: Vec<StaticRoute>,
    /// The leases it gives as a DHCP server, if it is one.
    pub dhcp: Option<dhcp::server::Config>,
}

/// A route of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticRoute {
    /// Destination prefix.
    pub to: Ipv4Addr,
    /// Length of that prefix in bits.
    pub prefix: u8,
    /// Next hop, on the host's segment.
    pub via: Ipv4Addr,
}

/// Setup that no host can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSetup {
    /// More addresses or routes than [`Setup`] allows.
    #[error("a host with too many addresses or routes")]
    TooMany,
    /// A prefix is at most 32 bits long.
    #[error("a host with a prefix of {0} bits")]
    Prefix(u8),
    /// The host's DHCP server cannot be.
    #[error("a host with such a DHCP server")]
    Dhcp(#[from] dhcp::server::InvalidConfig),
}

/// Why a scan has no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoReport {
    /// The next hop's address has no answer: no question of the scan has left the host.
    #[error("no way to {0}: no route, or the next hop does not answer ARP")]
    NextHop(Ipv4Addr),
    /// The machine at this address, the target or the next hop to it, did not answer what it was asked behind the questions
    /// of a round: what is silent may only be late.
    #[error("the machine at {0} has not worked through what it was asked within {CAUGHT_UP:?}")]
    Behind(Ipv4Addr),
}

/// The host without its cable.
pub(super) struct Station {
    mac: Mac,
    routes: Vec<StaticRoute>,
    interface: Interface,
    wire: Wire<Frame>,
    sockets: SocketSet<'static>,
    probes: [SocketHandle; 2],
    errors: SocketHandle,
    scan: Option<Running>,
    /// The number of the last scan; they repeat, long after answers to the first one have come.
    scans: u8,
    /// Barriers of others: who asks for which address.
    asked: Vec<(Mac, Ipv4Addr)>,
    leases: Option<Leases>,
    /// Names that it answers, if it has any, in small letters.
    names: BTreeMap<String, Ipv4Addr>,
    services: Services,
}

struct Running {
    scan: Scan,
    /// When the first question was put; it has to leave within [`ARP`].
    began: Option<Duration>,
    something_left: bool,
    /// The answer to the last barrier that was asked.
    barrier: Option<Part>,
}

/// Probes come from this port and are known by it.
const SOURCE_PORT: u16 = 40_000;
/// Sequence number of every SYN; answers acknowledge it.
const SEQUENCE: TcpSeqNumber = TcpSeqNumber(0x0ca1_0000);
/// Time for the next hop to answer ARP, which smoltcp asks once per second; a machine under emulation is slow.
const ARP: Duration = Duration::from_secs(10);
/// Bytes of probes that are made in advance; the sockets' buffers are four times as large.
const QUEUED: usize = 32 * 1024;

impl Station {
    /// `epoch` is the instant that every `now` counts from.
    pub(super) fn new(setup: &Setup, epoch: std::time::Instant) -> Result<Self, BadSetup> {
        let mut wire = Wire::default();
        let config = Config::new(EthernetAddress(setup.mac.0).into());
        let mut interface = Interface::new(config, &mut wire, instant(Duration::ZERO));
        let cidr = |address, prefix: u8| match prefix {
            0..=32 => Ok(IpCidr::from(Ipv4Cidr::new(address, prefix))),
            _ => Err(BadSetup::Prefix(prefix)),
        };
        for (address, prefix) in &setup.addresses {
            let cidr = cidr(*address, *prefix)?;
            let mut fits = false;
            interface.update_ip_addrs(|all| fits = all.push(cidr).is_ok());
            fits.then_some(()).ok_or(BadSetup::TooMany)?;
        }
        for route in &setup.routes {
            let cidr = cidr(route.to, route.prefix)?;
            let route = Route { cidr, via_router: route.via.into(), preferred_until: None, expires_at: None };
            let mut fits = false;
            interface.routes_mut().update(|all| fits = all.push(route).is_ok());
            fits.then_some(()).ok_or(BadSetup::TooMany)?;
        }
        let mut sockets = SocketSet::new(vec![]);
        let mut add = |protocol| sockets.add(raw_socket(protocol));
        let probes = [add(IpProtocol::Tcp), add(IpProtocol::Udp)];
        let errors = add(IpProtocol::Icmp);
        let leases = setup.dhcp.clone().map(|config| Leases::new(config, setup.mac, epoch)).transpose()?;
        let (mac, routes) = (setup.mac, setup.routes.clone());
        Ok(Self {
            mac,
            routes,
            interface,
            wire,
            sockets,
            probes,
            errors,
            scan: None,
            scans: 0,
            asked: vec![],
            leases,
            names: BTreeMap::new(),
            services: Services::default(),
        })
    }

    /// The card has this address of an earlier network; without a DHCP server that is nothing.
    pub(super) fn remember(&mut self, card: Mac, address: Ipv4Addr, now: Duration) {
        if let Some(leases) = &mut self.leases {
            leases.remember(card, address, now);
        }
    }

    /// From now on it is a resolver, too, that answers this name.
    pub(super) fn name(&mut self, name: &str, address: Ipv4Addr) {
        self.names.insert(name.to_ascii_lowercase(), address);
    }

    /// From now on a program listens at this port of all its addresses.
    pub(super) fn serve(&mut self, port: u16, service: Box<dyn PortService>) {
        self.services.add(port, service, &mut self.sockets);
    }

    /// Takes a frame from its cable.
    pub(super) fn receive(&mut self, frame: Frame, now: Duration) {
        let find = |name: &str| self.names.get(name).copied();
        let is_resolver = |address| !self.names.is_empty() && self.has(address);
        if let Some(answer) = names::handle(&frame, is_resolver, find) {
            self.wire.outgoing.extend(answer);
            return;
        }
        if let Some(answer) = self.leases.as_mut().and_then(|leases| leases.handle(frame.bytes(), now)) {
            self.wire.outgoing.extend(answer);
            return;
        }
        match barrier::read(&frame) {
            Some(Part::Question { from, about }) => self.asked.push((from, about)),
            Some(answer @ Part::Answer { .. }) => self.note_barrier(answer, now),
            None => self.wire.incoming.push_back(frame),
        }
    }

    /// The address that the card `mac` holds of this host, or has been offered.
    pub(super) fn lease(&self, mac: Mac) -> Option<Ipv4Addr> {
        self.leases.as_ref()?.of(mac)
    }

    /// The next frame for its cable.
    pub(super) fn send(&mut self) -> Option<Frame> {
        self.wire.outgoing.pop_front()
    }

    /// Destination of the frame that is sent next.
    pub(super) fn next_destination(&self) -> Option<Mac> {
        self.wire.outgoing.front().map(Frame::destination)
    }

    /// Begins a scan; one that still runs is forgotten.
    pub(super) fn start(&mut self, scan: Scan) {
        self.scans = self.scans.wrapping_add(1);
        self.scan = Some(Running { scan, began: None, something_left: false, barrier: None });
    }

    /// Does what there is to do now; the result of a scan that has ended.
    pub(super) fn poll(&mut self, now: Duration) -> Option<Result<Report, NoReport>> {
        let mut left_before = self.exchange(now);
        while self.services.work(&mut self.sockets) {
            left_before |= self.exchange(now);
        }
        self.answer_barriers();
        let mut running = self.scan.take()?;
        let began = *running.began.get_or_insert(now);
        self.put_questions(&mut running.scan);
        self.scan = Some(running);
        let left = self.exchange(now) || left_before;
        let waiting = self.waiting();
        let mut running = self.scan.take()?;
        running.something_left |= left;
        let target = running.scan.target;
        let Some(next_hop) = self.next_hop(target).filter(|_| running.something_left || now < began + ARP) else {
            return Some(Err(NoReport::NextHop(target)));
        };
        match running.scan.poll(waiting == 0, now) {
            Next::Over(report) => return Some(Ok(report)),
            Next::Behind => return Some(Err(NoReport::Behind(next_hop))),
            Next::Wait => {}
            // The questions are before it in the same queue.
            Next::AskBarrier => {
                let asker = barrier::asker(self.mac, self.scans, running.scan.round());
                running.barrier = Some(Part::Answer { to: asker, about: next_hop });
                self.wire.outgoing.push_back(barrier::question(asker, next_hop));
            }
        }
        self.scan = Some(running);
        None
    }

    /// Time until [`Self::poll`] has to be called even if no frame comes.
    pub(super) fn poll_delay(&mut self, now: Duration) -> Option<Duration> {
        let stack = self.interface.poll_delay(instant(now), &self.sockets).map(Duration::from);
        let scan = self.scan.as_ref().map(|running| match running.scan.poll_timeout() {
            Some(end) => end.saturating_sub(now),
            // Questions wait for the stream or for ARP: look again soon.
            None => Duration::from_millis(10),
        });
        stack.into_iter().chain(scan).min()
    }

    /// Lets smoltcp work and takes the answers it has for us; whether any of our packets has left.
    fn exchange(&mut self, now: Duration) -> bool {
        let before = self.waiting();
        let _changed = self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
        let left = self.waiting() < before;
        if self.take_answers() == AnswersTaken::Some {
            // They may have been answered themselves.
            let _changed = self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
        }
        left
    }

    /// Answers the barriers of others, once what came before them has been worked through.
    fn answer_barriers(&mut self) {
        for (from, about) in std::mem::take(&mut self.asked) {
            if self.has(about) {
                self.wire.outgoing.push_back(barrier::answer(self.mac, from, about));
            }
        }
    }

    /// Bytes of probes that wait for ARP or for the stream.
    fn waiting(&mut self) -> usize {
        self.probes.iter().map(|probe| self.sockets.get_mut::<raw::Socket<'_>>(*probe).send_queue()).sum()
    }

    fn put_questions(&mut self, scan: &mut Scan) {
        let Some(source) = self.interface.get_source_address_ipv4(&scan.target) else { return };
        let handle = match scan.question {
            PortQuestion::Tcp => self.probes[0],
            PortQuestion::Udp(_) => self.probes[1],
        };
        while self.raw(handle).can_send()
            && self.raw(handle).send_queue() < QUEUED
            && self.wire.outgoing.len() < OUTGOING
        {
            let Some(port) = scan.ask() else { return };
            let packet = match &scan.question {
                PortQuestion::Tcp => tcp(source, scan.target, &probe(port, TcpControl::Syn, SEQUENCE)),
                PortQuestion::Udp(payload) => udp(source, scan.target, port, payload),
            };
            // There was room, and the packet is shorter than the buffer.
            let sent = self.raw(handle).send_slice(&packet);
            debug_assert_eq!(sent, Ok(()));
        }
    }

    /// Reads what the raw sockets have.
    fn take_answers(&mut self) -> AnswersTaken {
        let mut taken = AnswersTaken::None;
        for handle in [self.probes[0], self.probes[1], self.errors] {
            while let Ok(packet) = self.raw(handle).recv().map(<[u8]>::to_vec) {
                taken = AnswersTaken::Some;
                if let Some(heard) = hear(&packet) {
                    self.note(heard);
                } else if let Some(refusal) = asked(&packet).and_then(|asked| self.refuse(asked)) {
                    // Without room it is asked again.
                    let _sent = self.raw(self.probes[0]).send_slice(&refusal);
                }
            }
        }
        taken
    }

    /// Notes an answer to a barrier, if it is to that of this round, and by the machine that was asked.
    fn note_barrier(&mut self, answer: Part, now: Duration) {
        if let Some(running) = self.scan.as_mut().filter(|running| running.barrier == Some(answer)) {
            running.scan.caught_up(now);
        }
    }

    fn note(&mut self, heard: Heard) {
        let Some(running) = &mut self.scan else { return };
        let Heard { from, protocol, port, answer, half_open } = heard;
        let asked = match running.scan.question {
            PortQuestion::Tcp => IpProtocol::Tcp,
            PortQuestion::Udp(_) => IpProtocol::Udp,
        };
        // What an earlier scan asked by the other protocol may be answered late.
        if from != running.scan.target || protocol != asked {
            return;
        }
        running.something_left = true;
        let asked_for = running.scan.answered(port, answer);
        if let Some(to) = half_open.filter(|_| asked_for) {
            // A half-open connection would stay with the machine for a minute.
            let reset = tcp(to, from, &probe(port, TcpControl::Rst, SEQUENCE + 1));
            // Without room it stays with the machine; the answer counts all the same.
            let _sent = self.raw(self.probes[0]).send_slice(&reset);
        }
    }

    /// The reset for a connection that somebody asks of this host, and not of another one (RFC 9293, section 3.5.2).
    fn refuse(&self, asked: Asked) -> Option<Vec<u8>> {
        let (this, that) = asked.ports;
        let refusal = TcpRepr {
            src_port: this,
            dst_port: that,
            seq_number: TcpSeqNumber(0),
            ack_number: Some(asked.sequence + 1),
            ..segment(TcpControl::Rst)
        };
        (self.has(asked.to) && !self.services.has(this)).then(|| tcp(asked.to, asked.from, &refusal))
    }

    /// Whether this is an address of its own.
    fn has(&self, address: Ipv4Addr) -> bool {
        self.interface.ip_addrs().iter().any(|own| own.address() == address.into())
    }

    /// Next hop for this address: its station, when that is on the link, and otherwise the router that the route names.
    fn next_hop(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.interface.ip_addrs().iter().any(|own| own.contains_addr(&to.into())) {
            return Some(to);
        }
        let routes = self.routes.iter().filter(|route| Ipv4Cidr::new(route.to, route.prefix).contains_addr(&to));
        routes.max_by_key(|route| route.prefix).map(|route| route.via)
    }

    fn raw(&mut self, handle: SocketHandle) -> &mut raw::Socket<'static> {
        self.sockets.get_mut(handle)
    }
}

#[derive(PartialEq, Eq)]
enum AnswersTaken {
    None,
    Some,
}

/// A packet that answers a probe: who, and which port of which protocol.
#[derive(Clone, Copy)]
struct Heard {
    from: Ipv4Addr,
    protocol: IpProtocol,
    port: u16,
    answer: PortAnswer,
    /// Own address of the probe whose TCP connection is half open now.
    half_open: Option<Ipv4Addr>,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the raw sockets take these three protocols only")]
fn hear(packet: &[u8]) -> Option<Heard> {
    let checks = ChecksumCapabilities::default();
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    match ip.next_header() {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(ip.payload()).ok()?;
            let ours = tcp.dst_port() == SOURCE_PORT && tcp.ack() && tcp.ack_number() == SEQUENCE + 1;
            let port = tcp.src_port();
            let heard = |answer, half_open| Heard { from, protocol: IpProtocol::Tcp, port, answer, half_open };
            match (ours && tcp.verify_checksum(&from.into(), &to.into()), tcp.syn(), tcp.rst()) {
                (true, true, false) => Some(heard(PortAnswer::Open, Some(to))),
                (true, _, true) => Some(heard(PortAnswer::Closed, None)),
                (true, false, false) | (false, _, _) => None,
            }
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(ip.payload()).ok()?;
            let ours = udp.dst_port() == SOURCE_PORT;
            let (protocol, port) = (IpProtocol::Udp, udp.src_port());
            ours.then_some(Heard { from, protocol, port, answer: PortAnswer::Open, half_open: None })
        }
        IpProtocol::Icmp => {
            let icmp = Icmpv4Packet::new_checked(ip.payload()).ok()?;
            let Ok(Icmpv4Repr::DstUnreachable { header, data, .. } | Icmpv4Repr::TimeExceeded { header, data, .. }) =
                Icmpv4Repr::parse(&icmp, &checks)
            else {
                return None;
            };
            // The quoted packet begins with source and destination port, TCP and UDP alike. Who reports counts less
            // than what it is about.
            let (source, rest) = data.split_first_chunk::<2>()?;
            let (port, _) = rest.split_first_chunk::<2>()?;
            let ours = u16::from_be_bytes(*source) == SOURCE_PORT;
            let (from, protocol, port) = (header.dst_addr, header.next_header, u16::from_be_bytes(*port));
            ours.then_some(Heard { from, protocol, port, answer: PortAnswer::Unreachable, half_open: None })
        }
        _ => None,
    }
}

/// A connection that somebody asks for.
#[derive(Clone, Copy)]
struct Asked {
    from: Ipv4Addr,
    to: Ipv4Addr,
    /// The asked one, and the asker's.
    ports: (u16, u16),
    sequence: TcpSeqNumber,
}

fn asked(packet: &[u8]) -> Option<Asked> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    let tcp = TcpPacket::new_checked(ip.payload()).ok().filter(|_| ip.next_header() == IpProtocol::Tcp)?;
    let whole = tcp.verify_checksum(&from.into(), &to.into());
    let ports = (tcp.dst_port(), tcp.src_port());
    (whole && tcp.syn() && !tcp.ack()).then(|| Asked { from, to, ports, sequence: tcp.seq_number() })
}

/// A segment of a scan.
fn probe(port: u16, control: TcpControl, seq_number: TcpSeqNumber) -> TcpRepr<'static> {
    let max_seg_size = (control == TcpControl::Syn).then_some(1460);
    TcpRepr { src_port: SOURCE_PORT, dst_port: port, seq_number, max_seg_size, ..segment(control) }
}

/// A segment with nothing in it.
pub(super) fn segment(control: TcpControl) -> TcpRepr<'static> {
    TcpRepr {
        src_port: 0,
        dst_port: 0,
        control,
        seq_number: TcpSeqNumber(0),
        ack_number: None,
        window_len: 1024,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

/// Packet with this segment.
pub(super) fn tcp(source: Ipv4Addr, target: Ipv4Addr, tcp: &TcpRepr<'_>) -> Vec<u8> {
    ip(source, target, IpProtocol::Tcp, tcp.buffer_len(), |bytes, checks| {
        tcp.emit(&mut TcpPacket::new_unchecked(bytes), &source.into(), &target.into(), checks);
    })
}

fn udp(source: Ipv4Addr, target: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    let udp = UdpRepr { src_port: SOURCE_PORT, dst_port: port };
    ip(source, target, IpProtocol::Udp, udp.header_len() + payload.len(), |bytes, checks| {
        let mut packet = UdpPacket::new_unchecked(bytes);
        let (source, target) = (source.into(), target.into());
        udp.emit(&mut packet, &source, &target, payload.len(), |into| into.copy_from_slice(payload), checks);
    })
}

fn ip(
    src_addr: Ipv4Addr,
    dst_addr: Ipv4Addr,
    next_header: IpProtocol,
    payload_len: usize,
    fill: impl FnOnce(&mut [u8], &ChecksumCapabilities),
) -> Vec<u8> {
    let checks = ChecksumCapabilities::default();
    let ip = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: 64 };
    let mut bytes = vec![0; ip.buffer_len() + payload_len];
    let mut packet = Ipv4Packet::new_unchecked(bytes.as_mut_slice());
    ip.emit(&mut packet, &checks);
    fill(packet.payload_mut(), &checks);
    bytes
}

fn raw_socket(protocol: IpProtocol) -> raw::Socket<'static> {
    // Packets wait here for ARP or for the stream; answers only until the next look.
    let buffer = || raw::PacketBuffer::new(vec![raw::PacketMetadata::EMPTY; 1024], vec![0; 128 * 1024]);
    raw::Socket::new(Some(IpVersion::Ipv4), Some(protocol), buffer(), buffer())
}

#[cfg(test)]
mod tests;
