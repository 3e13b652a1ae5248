//! The gateway on segments in virtual time, with machines that are TCP/IP stacks.

use std::net::SocketAddrV4;

use dhcp::frame::{self as datagram, Datagram};
use dhcp::wire::{DhcpMessage, MessageType};
use proptest::prelude::*;
use smoltcp::socket::tcp::State;
use smoltcp::wire::Ipv4Packet;

use super::super::fault::{Chance, Faults};
use super::super::pcap::Direction;
use super::super::peer::{self, Peer};
use super::super::switch::Port;
use super::super::wiring::Wiring;
use super::*;
use crate::deadline::Stopwatch;

mod outside;

const GATEWAY: Mac = Mac::numbered(1);
const ONE: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 20);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 168, 8, 20);
const SERVICE: u16 = 80;

fn setup(network: u8) -> GatewaySetup {
    let address = |host| Ipv4Addr::new(192, 168, network, host);
    GatewaySetup {
        mac: GATEWAY,
        address: address(1),
        prefix: Prefix::new(24).unwrap(),
        pool: (address(100), address(109)),
        lease_seconds: 60,
    }
}

/// Segments with a gateway each, and a machine on each of them.
struct World {
    wiring: Wiring,
    gateways: Vec<Port>,
    machines: Vec<(Port, Peer)>,
    now: Duration,
}

impl World {
    fn new(machines: &[Ipv4Addr]) -> Self {
        let mut world =
            Self { wiring: Wiring::new(7), gateways: vec![], machines: vec![], now: Duration::from_secs(1) };
        for address in machines {
            let [.., network, host] = address.octets();
            let (segment, setup) = (world.wiring.add_segment(), setup(network));
            world.gateways.push(world.wiring.add_gateway(segment, &setup, Stopwatch::start().began()).unwrap());
            let port = world.wiring.add_machine(segment);
            world.wiring.connect(port);
            let mac = Mac::numbered(u32::from(network) * 256 + u32::from(host));
            world.machines.push((port, Peer::new(mac, *address, setup.address)));
        }
        world
    }

    fn peer(&mut self, machine: usize) -> &mut Peer {
        &mut self.machines[machine].1
    }

    /// Goes on until `done`, which is asked after each step; fails when nothing will happen any more, or after a day.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + Duration::from_secs(24 * 3600);
        loop {
            let moved = self.step();
            if done(self) {
                return;
            }
            if self.step() || moved {
                continue;
            }
            let peers = self.machines.iter_mut().filter_map(|(_, peer)| peer.poll_delay(self.now));
            let next = peers.chain(self.wiring.poll_delay(self.now)).min();
            // The stack counts microseconds.
            self.now += next.unwrap_or_else(|| panic!("nothing leads to: {what}")).max(Duration::from_micros(1));
            assert!(self.now < end, "{what}: not within a day");
        }
    }

    /// Whether a machine sent or received anything.
    fn step(&mut self) -> bool {
        let mut moved = false;
        self.wiring.poll(self.now);
        for (port, peer) in &mut self.machines {
            let (wiring, port) = (&mut self.wiring, *port);
            let received: Vec<Frame> = std::iter::from_fn(|| wiring.receive(port)).collect();
            moved |= !received.is_empty();
            for frame in peer.exchange(received.into_iter(), self.now) {
                wiring.send(port, frame.bytes(), self.now);
                moved = true;
            }
        }
        self.wiring.poll(self.now);
        moved
    }

    fn open(&mut self, port: u16) -> Connection {
        self.wiring.open(self.gateways[0], GatewayTarget::Address(ONE), port).unwrap()
    }

    /// Puts what is left of `bytes` into a connection, and its end behind that.
    fn put(&mut self, connection: Connection, bytes: &mut &[u8]) {
        let gateway = &mut self.wiring.gateway;
        while !bytes.is_empty() && gateway.takes(connection) {
            let count = gateway.put(connection, |room| {
                let count = room.len().min(bytes.len());
                room[..count].copy_from_slice(&bytes[..count]);
                (count, count)
            });
            *bytes = &bytes[count.unwrap()..];
            if bytes.is_empty() {
                gateway.finish(connection);
            }
        }
    }

    fn take(&mut self, connection: Connection, into: &mut Vec<u8>) {
        let gateway = &mut self.wiring.gateway;
        while gateway.incoming(connection) == Incoming::Bytes {
            gateway.take(connection, |bytes| (bytes.len(), into.extend_from_slice(bytes))).unwrap();
        }
    }

    /// Sends so many bytes to the first machine, and their end, and has them all back.
    fn echoes(&mut self, connection: Connection, length: usize) {
        let (all, mut back) = (bytes(length), Vec::new());
        let mut left = &all[..];
        self.until("all came back", |world| {
            world.peer(0).echo();
            world.put(connection, &mut left);
            world.take(connection, &mut back);
            world.wiring.gateway.incoming(connection) == Incoming::Ended
        });
        assert!(back == all, "{} of {} bytes came back as they were", back.len(), all.len());
    }

    /// Releases a connection, and goes on until there is none.
    fn lets_go(&mut self, connection: Connection) {
        self.wiring.gateway.release(connection);
        self.until("it is forgotten", |world| world.wiring.gateway.connections.is_empty());
    }

    /// Sends this as the first machine; all that each of the two gets of it within a tenth of a second.
    fn comes_of(&mut self, frame: &[u8]) -> [Vec<Frame>; 2] {
        let mut come = [vec![], vec![]];
        self.wiring.send(self.machines[0].0, frame, self.now);
        for _ in 0..10 {
            self.now += Duration::from_millis(10);
            self.wiring.poll(self.now);
            for ((port, peer), come) in self.machines.iter_mut().zip(&mut come) {
                let received: Vec<Frame> = std::iter::from_fn(|| self.wiring.receive(*port)).collect();
                come.extend(received.iter().cloned());
                for answer in peer.exchange(received.into_iter(), self.now) {
                    self.wiring.send(*port, answer.bytes(), self.now);
                }
            }
        }
        come
    }

    /// Answer of the gateway to a machine without a stack that sends this.
    fn answer(&mut self, frame: &[u8]) -> Frame {
        let port = self.machines[0].0;
        self.wiring.send(port, frame, self.now);
        self.wiring.poll(self.now);
        self.wiring.receive(port).unwrap()
    }
}

/// Bytes of which none stands for another.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from((index * 31 + index / 251) % 256).unwrap()).collect()
}

fn datagram(card: Mac, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let (source_mac, destination_mac) = (dhcp::HardwareAddress(card.0), dhcp::HardwareAddress(GATEWAY.0));
    datagram::build(&Datagram { source_mac, destination_mac, source: from, destination: to, payload }).unwrap()
}

#[test]
fn a_card_with_an_address_from_before_is_not_asked_where_it_is() {
    let first_frame = |held| {
        let mut world = World::new(&[ONE]);
        let (gateway, now) = (world.gateways[0], world.now);
        let card = Mac::numbered(7 * 256 + 20);
        world.wiring.reserve(gateway, card, ONE, held, now);
        world.wiring.open(gateway, GatewayTarget::Address(ONE), SERVICE).unwrap();
        world.wiring.poll(now);
        let frame = world.wiring.receive(world.machines[0].0).unwrap();
        EthernetFrame::new_unchecked(frame.bytes()).ethertype()
    };
    assert_eq!(first_frame(LeaseState::FromBefore), EthernetProtocol::Ipv4);
    assert_eq!(first_frame(LeaseState::NotYet), EthernetProtocol::Arp);
}

#[test]
fn a_lease_names_the_gateway_as_router_and_resolver() {
    const CARD: Mac = Mac::numbered(99);
    let mut world = World::new(&[ONE]);
    let (gateway, pool) = (setup(7).address, setup(7).pool.0);
    world.wiring.gateway.name("M1", CARD);
    let mut ask = |kind, address, server| {
        let mut message = DhcpMessage::new(kind, 7, dhcp::HardwareAddress(CARD.0));
        (message.requested_ip, message.server_id) = (address, server);
        let to = SocketAddrV4::new(Ipv4Addr::BROADCAST, dhcp::SERVER_PORT);
        let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, dhcp::CLIENT_PORT);
        let answer = world.answer(&datagram(CARD, from, to, &message.emit()));
        DhcpMessage::parse(datagram::parse(answer.bytes()).unwrap().payload).unwrap()
    };
    let offer = ask(MessageType::Discover, None, None);
    assert_eq!((offer.message_type, offer.yiaddr), (MessageType::Offer, pool));
    let ack = ask(MessageType::Request, Some(pool), Some(gateway));
    assert_eq!((ack.message_type, &ack.routers[..], &ack.dns[..]), (MessageType::Ack, &[gateway][..], &[gateway][..]));

    let (from, to) = (SocketAddrV4::new(pool, 5353), SocketAddrV4::new(gateway, 53));
    for (name, code, address) in [(b"m1", 0, &pool.octets()[..]), (b"m2", 3, &[])] {
        let query = [b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x02", &name[..], b"\0\0\x01\0\x01"].concat();
        let answer = world.answer(&datagram(CARD, from, to, &query));
        let answer = datagram::parse(answer.bytes()).unwrap();
        assert_eq!((answer.source, answer.destination, answer.destination_mac.0), (to, from, CARD.0));
        assert_eq!((answer.payload[3], address.is_empty() || answer.payload.ends_with(address)), (code, true));
    }
}

#[test]
fn only_packets_for_the_gateway_and_other_segments_are_passed() {
    let card = Mac::numbered(7 * 256 + 20);
    let to = |address: Ipv4Addr| datagram(card, SocketAddrV4::new(ONE, 5), SocketAddrV4::new(address, 9), b"payload");
    let mut world = World::new(&[ONE, OTHER]);
    // The first one is lost, and has the gateway ask where that machine is.
    world.comes_of(&to(OTHER));
    let passed = world.comes_of(&to(OTHER));
    assert!(passed[1].iter().any(|frame| frame.bytes().ends_with(b"payload")), "{passed:?}");
    let mut come = |frame: &[u8]| world.comes_of(frame).map(|frames| frames.len());
    // For another card on the first segment, which hears all that is for nobody it knows.
    let mut elsewhere = to(OTHER);
    elsewhere[..6].copy_from_slice(&Mac::numbered(5).0);
    assert_eq!(come(&elsewhere), [0, 0]);
    // Its own segment's machines a machine reaches by itself, and the gateway's other address is no machine's.
    assert_eq!(come(&to(Ipv4Addr::new(192, 168, 7, 33))), [0, 0]);
    assert_eq!(come(&to(setup(8).address)), [0, 0]);
}

#[test]
fn of_addresses_elsewhere_a_segment_learns_nothing() {
    let mut world = World::new(&[ONE, OTHER]);
    let says = |address: Ipv4Addr| {
        let (card, nobody) = (Mac::numbered(5).0, [0; 6]);
        let header = [&[0xff; 6][..], &card, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
        [&header, &card[..], &address.octets(), &nobody, &address.octets()].concat()
    };
    let near = Ipv4Addr::new(192, 168, 7, 33);
    for address in [OTHER, near] {
        world.comes_of(&says(address));
    }
    let learnt = &world.wiring.gateway.legs[0].neighbours;
    assert_eq!((learnt.get(&near), learnt.get(&OTHER)), (Some(&Mac::numbered(5)), None));
}

/// Time of a megabyte there and back, through a connection that is half closed when it is there.
fn echoed(faults: Faults) -> Duration {
    let mut world = World::new(&[ONE]);
    let gateway = world.gateways[0];
    for direction in Direction::BOTH {
        world.wiring.set_faults(gateway, direction, faults);
    }
    world.peer(0).listen(SERVICE);
    let connection = world.open(SERVICE);
    let began = world.now;
    world.echoes(connection, 1_000_000);
    let took = world.now - began;
    world.lets_go(connection);
    assert_eq!(world.wiring.gateway.legs[0].stack.ends.count(), 0);
    took
}

#[test]
fn a_megabyte_comes_back_and_each_direction_ends_by_itself() {
    assert!(echoed(Faults::default()) < Duration::from_secs(1));
}

#[test]
fn a_megabyte_survives_a_bad_cable() {
    let loss = Chance::per_million(50_000).unwrap();
    let took = echoed(Faults { loss, delay: Duration::from_millis(50), ..Faults::default() });
    assert!(took > Duration::from_millis(200), "{took:?} are no two ways of 100 ms");
}

/// Bytes that both ends have room for; some that one of them has already taken may have to go through the other's
/// again.
const STOPPED: std::ops::RangeInclusive<usize> = stack::BUFFER..=stack::BUFFER + peer::BUFFER;

#[test]
fn a_machine_that_reads_nothing_stops_who_sends_to_it() {
    let mut world = World::new(&[ONE]);
    world.peer(0).listen(SERVICE);
    let connection = world.open(SERVICE);
    let all = bytes(1_000_000);
    let (mut left, end) = (&all[..], world.now + Duration::from_secs(60));
    world.until("a minute is over", |world| {
        world.put(connection, &mut left);
        world.now >= end
    });
    assert!(STOPPED.contains(&(all.len() - left.len())), "{} are left", left.len());
    assert_eq!(world.wiring.gateway.incoming(connection), Incoming::Later);
}

#[test]
fn a_sender_is_stopped_while_nobody_reads_and_goes_on_then() {
    let mut world = World::new(&[ONE]);
    world.peer(0).listen(SERVICE);
    let connection = world.open(SERVICE);
    let (mut sent, end) = (0, world.now + Duration::from_secs(60));
    world.until("a minute is over", |world| {
        let machine = world.peer(0).tcp();
        while machine.can_send() {
            sent += machine.send_slice(&[7; 1000]).unwrap();
        }
        world.now >= end
    });
    assert!(STOPPED.contains(&sent), "{sent}");
    let mut taken = Vec::new();
    world.until("all is taken", |world| {
        world.take(connection, &mut taken);
        taken.len() == sent
    });
}

#[test]
fn a_connection_breaks_when_refused_reset_or_without_a_peer() {
    let mut world = World::new(&[ONE]);
    let broken = |world: &mut World, connection| {
        let began = world.now;
        world.until("it breaks", |world| world.wiring.gateway.incoming(connection) == Incoming::Broken);
        assert!(!world.wiring.gateway.takes(connection));
        world.now - began
    };
    let refused = world.open(SERVICE);
    assert!(broken(&mut world, refused) < Duration::from_secs(1));
    world.peer(0).listen(SERVICE);
    let reset = world.open(SERVICE);
    world.until("it is there", |world| world.peer(0).tcp().state() == State::Established);
    world.peer(0).tcp().abort();
    assert!(broken(&mut world, reset) < Duration::from_secs(1));
    let gateway = world.gateways[0];
    let nobody = world.wiring.open(gateway, GatewayTarget::Address(Ipv4Addr::new(192, 168, 7, 99)), SERVICE).unwrap();
    assert!(broken(&mut world, nobody) >= stack::PATIENCE);
    assert_eq!(world.wiring.open(gateway, GatewayTarget::Address(OTHER), SERVICE), None, "of another network");
    assert_eq!(world.wiring.open(gateway, GatewayTarget::Card(Mac::numbered(99)), SERVICE), None, "without a lease");
}

#[test]
fn a_machine_is_told_when_the_other_end_broke() {
    let mut world = World::new(&[ONE]);
    world.peer(0).listen(SERVICE);
    let connection = world.open(SERVICE);
    world.until("it is there", |world| world.peer(0).tcp().state() == State::Established);
    world.wiring.gateway.abort(connection);
    world.until("it is told", |world| world.peer(0).tcp().state() == State::Closed);
    assert!(world.wiring.gateway.connections.is_empty());
}

#[test]
fn machines_of_two_segments_speak_under_the_gateways_address() {
    let mut world = World::new(&[ONE, OTHER]);
    world.peer(1).listen(SERVICE);
    world.peer(0).connect((OTHER, SERVICE));
    let (all, mut back) = (bytes(200_000), Vec::new());
    let mut left = &all[..];
    world.until("all came back", |world| {
        world.peer(1).echo();
        let asker = world.peer(0).tcp();
        if asker.may_send() && !left.is_empty() {
            left = &left[asker.send_slice(left).unwrap()..];
        }
        while asker.can_recv() {
            asker.recv(|bytes| (bytes.len(), back.extend_from_slice(bytes))).unwrap();
        }
        back.len() == all.len()
    });
    assert!(back == all, "in order and unchanged");
    let seen = world.peer(1).tcp().remote_endpoint().unwrap();
    assert_eq!(seen.addr, setup(8).address.into(), "not {ONE}, which the segment does not know");
}

/// The answer of `from`, outside, to what the machine sent to somebody else's port there; whether it came in.
fn comes_in(from: SocketAddrV4) -> bool {
    let mut world = World::new(&[ONE, OTHER]);
    let (inside, outside) = (world.machines[0].0, world.machines[1].0);
    let (own, to) = (SocketAddrV4::new(ONE, 1000), SocketAddrV4::new(OTHER, 2000));
    let cards = [Mac::numbered(70), Mac::numbered(80)];
    // Both make themselves known to the gateway first.
    for (port, card, address, network) in [(inside, cards[0], ONE, 7), (outside, cards[1], OTHER, 8)] {
        let question = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress(card.0),
            source_protocol_addr: address,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: setup(network).address,
        };
        let mut bytes = [&GATEWAY.0[..], &card.0, &[8, 6], &[0; 28]].concat();
        question.emit(&mut ArpPacket::new_unchecked(&mut bytes[HEADER..]));
        world.wiring.send(port, &bytes, world.now);
    }
    world.wiring.poll(world.now);
    let drain = |world: &mut World, port| -> Vec<Frame> { std::iter::from_fn(|| world.wiring.receive(port)).collect() };
    drain(&mut world, inside);
    drain(&mut world, outside);
    world.wiring.send(inside, &datagram(cards[0], own, to, b"question"), world.now);
    world.wiring.poll(world.now);
    let sent = drain(&mut world, outside);
    let sent = datagram::parse(sent[0].bytes()).unwrap();
    assert_eq!((sent.destination, sent.payload, sent.source.ip()), (to, &b"question"[..], &setup(8).address));
    world.wiring.send(outside, &datagram(cards[1], from, sent.source, b"answer"), world.now);
    world.wiring.poll(world.now);
    let came = drain(&mut world, inside);
    came.iter().any(|frame| {
        datagram::parse(frame.bytes()).is_ok_and(|answer| (answer.source, answer.destination) == (from, own))
    })
}

#[test]
fn what_was_asked_comes_back_and_nothing_else_comes_in() {
    assert!(comes_in(SocketAddrV4::new(OTHER, 2000)));
    assert!(!comes_in(SocketAddrV4::new(OTHER, 2001)), "another port");
    assert!(!comes_in(SocketAddrV4::new(Ipv4Addr::new(192, 168, 8, 21), 2000)), "another machine");
}

#[test]
fn overlapping_networks_have_no_common_gateway() {
    let mut gateway = Gateway::default();
    let epoch = Stopwatch::start().began();
    gateway.add(&setup(7), epoch).unwrap();
    let wide = GatewaySetup { prefix: Prefix::new(16).unwrap(), ..setup(8) };
    assert_eq!(gateway.add(&wide, epoch), Err(BadGateway::Overlap(wide.address)));
    gateway.add(&setup(8), epoch).unwrap();
}

proptest! {
    /// Frames with the right addresses, whatever is behind them; and what they bring about is carried on.
    #[test]
    fn no_frame_ends_the_gateway(
        kind in prop::sample::select(vec![0x0800_u16, 0x0806, 0x86dd]),
        mut payload in prop::collection::vec(any::<u8>(), 0..80),
        known in prop::option::of((0..20_usize, prop::sample::select(vec![0x45_u8, 0x4f, 6, 17, 1, 0]))),
        to in prop::sample::select(vec![[192, 168, 8, 20], [192, 168, 7, 1], [192, 168, 8, 1]]),
    ) {
        let mut world = World::new(&[ONE, OTHER]);
        if let Some((at, byte)) = known && payload.len() > 20 {
            payload[0] = 0x45;
            payload[at] = byte;
            let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
            payload[2..4].copy_from_slice(&length);
            payload[6..8].fill(0);
            payload[16..20].copy_from_slice(&to);
            if let Ok(mut packet) = Ipv4Packet::new_checked(payload.as_mut_slice()) {
                packet.fill_checksum();
            }
        }
        let frame = [&GATEWAY.0[..], &Mac::numbered(70).0, &kind.to_be_bytes(), &payload].concat();
        let port = world.machines[0].0;
        world.wiring.send(port, &frame, world.now);
        world.step();
    }
}
