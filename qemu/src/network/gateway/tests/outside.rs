//! The way out of the network in virtual time: who is called, and what a machine hears of it.

use smoltcp::wire::{TcpControl, TcpRepr};

use super::super::super::host::{segment, tcp};
use super::*;

const PLACE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);
const CARD: Mac = Mac::numbered(7 * 256 + 20);

fn to(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(PLACE, port)
}

/// World of one machine, in a network that leads outside.
fn world() -> World {
    let mut world = World::new(&[ONE]);
    world.wiring.gateway.lead_outside();
    world
}

impl World {
    /// Has the machine call a place outside, until the shell would hear of it.
    fn call(&mut self) -> Flow {
        self.peer(0).connect((PLACE, SERVICE));
        let mut departed = VecDeque::new();
        self.until("somebody is called", |world| {
            departed.extend(world.wiring.gateway.departures());
            !departed.is_empty()
        });
        let flow = Flow { from: SocketAddrV4::new(ONE, 50_000), to: to(SERVICE) };
        assert_eq!(departed, [Departure::Call(flow)]);
        flow
    }

    fn says(&mut self, from: u16, to: SocketAddrV4, payload: &[u8]) -> VecDeque<Departure> {
        self.comes_of(&datagram(CARD, SocketAddrV4::new(ONE, from), to, payload));
        self.wiring.gateway.departures()
    }
}

#[test]
fn a_call_outside_is_answered_when_somebody_answers() {
    let mut world = world();
    let flow = world.call();
    // The machine asks again and again meanwhile, and it is still one call.
    let end = world.now + Duration::from_secs(5);
    world.until("it has rung for a while", |world| world.now >= end);
    assert_eq!((world.peer(0).tcp().state(), world.wiring.gateway.departures()), (State::SynSent, VecDeque::new()));
    let now = world.now;
    let connection = world.wiring.gateway.answered(flow, now).expect("the machine still calls");
    assert_eq!(world.wiring.gateway.answered(flow, now), None, "once");
    world.echoes(connection, 300_000);
    world.lets_go(connection);
    let outside = world.wiring.gateway.outside.as_ref().unwrap();
    assert_eq!((outside.stack.ends.count(), outside.calls()), (0, 0));
}

#[test]
fn a_call_that_nobody_answers_is_refused_at_once() {
    let mut world = world();
    let flow = world.call();
    world.wiring.gateway.refused(flow);
    world.until("the machine hears of it", |world| world.peer(0).tcp().state() == State::Closed);
    assert_eq!(world.wiring.gateway.answered(flow, world.now), None);
    world.call();
}

/// A network's process that ended leaves nothing of its machines' connections, which must end, not hang.
#[test]
fn a_connection_of_an_earlier_network_is_reset() {
    let mut before = world();
    let flow = before.call();
    before.wiring.gateway.answered(flow, before.now).unwrap();
    before.until("it stands", |world| world.peer(0).tcp().state() == State::Established);
    let mut after = World { machines: before.machines, now: before.now, ..world() };
    after.peer(0).tcp().send_slice(b"still there?").unwrap();
    after.until("the machine hears of it", |world| world.peer(0).tcp().state() == State::Closed);
}

#[test]
fn more_calls_than_there_is_room_for_are_not_heard() {
    let mut world = world();
    let outside = world.wiring.gateway.outside.as_mut().unwrap();
    for port in 1..=300 {
        outside.receive(&Packet::read(&first(port)).unwrap());
    }
    assert_eq!((outside.calls(), outside.departures().len()), (256, 256));
    let flow = Flow { from: SocketAddrV4::new(ONE, 7), to: to(SERVICE) };
    outside.refused(flow);
    outside.receive(&Packet::read(&first(300)).unwrap());
    assert_eq!(outside.departures().len(), 1, "there is room for one again");
}

/// First packet of a connection from this port of the machine.
fn first(port: u16) -> Vec<u8> {
    tcp(ONE, PLACE, &TcpRepr { src_port: port, dst_port: SERVICE, ..segment(TcpControl::Syn) })
}

#[test]
fn datagrams_go_out_and_come_back_from_where_they_went() {
    let mut world = world();
    let flow = Flow { from: SocketAddrV4::new(ONE, 5000), to: to(123) };
    assert_eq!(world.says(5000, to(123), b"when?"), [Departure::Datagram(flow, b"when?".to_vec())]);
    // The first one is lost, and has the gateway ask where that machine is.
    let mut answer = || {
        world.wiring.gateway.arrived(flow, b"now");
        let come = world.comes_of(&datagram(CARD, flow.from, to(124), b"")).into_iter().flatten();
        come.filter(|frame| frame.bytes().ends_with(b"now")).collect::<Vec<_>>()
    };
    let heard = [answer(), answer()].concat();
    let [frame] = &heard[..] else { panic!("{heard:?}") };
    let heard = datagram::parse(frame.bytes()).unwrap();
    assert_eq!((heard.source, heard.destination, heard.payload), (flow.to, flow.from, &b"now"[..]));
}

#[test]
fn a_name_that_nobody_here_has_is_asked_for_outside() {
    let mut world = world();
    world.wiring.gateway.name("m1", CARD);
    let (gateway, now, resolver) = (world.gateways[0], world.now, SocketAddrV4::new(setup(7).address, 53));
    world.wiring.reserve(gateway, CARD, ONE, LeaseState::FromBefore, now);
    let query = |name: &[u8]| [b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x02", name, b"\0\0\x01\0\x01"].concat();
    assert_eq!(world.says(5353, resolver, &query(b"m1")), VecDeque::new(), "it is answered here");
    let flow = Flow { from: SocketAddrV4::new(ONE, 5353), to: resolver };
    assert_eq!(world.says(5353, resolver, &query(b"m2")), [Departure::Datagram(flow, query(b"m2"))]);
}

#[test]
fn nothing_leaves_a_network_that_was_not_told_to_lead_outside() {
    let mut world = World::new(&[ONE]);
    world.peer(0).connect((PLACE, SERVICE));
    let end = world.now + Duration::from_secs(20);
    world.until("it has called for a while", |world| world.now >= end);
    assert_eq!(world.says(5000, to(123), b"when?"), VecDeque::new());
    assert_eq!(world.peer(0).tcp().state(), State::SynSent);
}
