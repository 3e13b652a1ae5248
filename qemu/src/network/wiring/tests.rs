//! Machines that are vectors and hosts that are real, on segments in virtual time.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::super::fault::{Chance, Cut};
use super::super::scan::{PortAnswer, PortQuestion};
use super::*;

const MS: Duration = Duration::from_millis(1);
const HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 2);

/// A wiring with one segment and so many machines that are on.
fn machines(count: usize) -> (Wiring, Vec<Port>) {
    let mut wiring = Wiring::new(7);
    let segment = wiring.add_segment();
    let ports: Vec<_> = (0..count).map(|_| wiring.add_machine(segment)).collect();
    ports.iter().for_each(|port| wiring.connect(*port));
    (wiring, ports)
}

fn mac(port: Port) -> Mac {
    Mac::numbered(u32::try_from(port.0).unwrap())
}

/// A frame of 64 bytes that says which one it is.
fn frame(from: Port, to: Mac, number: u32) -> Vec<u8> {
    [&to.0[..], &mac(from).0, &[0x88, 0xb5], &number.to_be_bytes(), &[0; 46]].concat()
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(*frame.bytes()[14..].first_chunk().unwrap())
}

fn numbers(wiring: &mut Wiring, port: Port) -> Vec<u32> {
    std::iter::from_fn(|| wiring.receive(port)).map(|frame| number(&frame)).collect()
}

fn host(wiring: &mut Wiring, segment: SegmentId, number: u32, address: Ipv4Addr) -> Port {
    let setup = Setup { mac: Mac::numbered(number), addresses: vec![(address, 24)], routes: vec![], dhcp: None };
    wiring.add_host(segment, &setup, crate::deadline::Stopwatch::start().began()).unwrap()
}

fn assert_balance(wiring: &mut Wiring) {
    for port in (0..wiring.cables.len()).map(Port) {
        for direction in Direction::BOTH {
            let counters = wiring.counters(port, direction);
            assert!(counters.balance(), "{port:?} {direction:?}: {counters:?}");
        }
    }
}

#[test]
fn a_machine_is_heard_by_all_until_known_then_by_its_peer() {
    let (mut wiring, ports) = machines(3);
    let [one, two, three] = ports[..] else { panic!("three") };
    wiring.send(one, &frame(one, mac(two), 1), MS);
    wiring.poll(MS);
    assert_eq!([two, three].map(|port| numbers(&mut wiring, port)), [vec![1], vec![1]]);
    wiring.send(two, &frame(two, mac(one), 2), MS);
    wiring.poll(MS);
    wiring.send(one, &frame(one, mac(two), 3), MS);
    wiring.poll(MS);
    assert_eq!(ports.iter().map(|port| numbers(&mut wiring, *port)).collect::<Vec<_>>(), [vec![2], vec![3], vec![]]);
    assert_balance(&mut wiring);
}

#[test]
fn one_direction_can_be_cut_and_the_other_goes_on() {
    let (mut wiring, ports) = machines(2);
    let (one, two) = (ports[0], ports[1]);
    wiring.set_faults(one, Direction::Sent, Faults::cut());
    wiring.send(one, &frame(one, mac(two), 1), MS);
    wiring.send(two, &frame(two, mac(one), 2), MS);
    wiring.poll(MS);
    assert_eq!([one, two].map(|port| numbers(&mut wiring, port)), [vec![2], vec![]]);
    assert_eq!(wiring.counters(one, Direction::Sent).dropped, [(DropReason::Cut, 1)].into());
    assert_balance(&mut wiring);
}

#[test]
fn a_delay_is_waited_for_and_told() {
    let (mut wiring, ports) = machines(2);
    let (one, two) = (ports[0], ports[1]);
    for direction in Direction::BOTH {
        wiring.set_faults(one, direction, Faults { delay: 30 * MS, ..Faults::default() });
    }
    wiring.send(one, &frame(one, mac(two), 1), MS);
    wiring.send(two, &frame(two, mac(one), 2), 11 * MS);
    wiring.poll(11 * MS);
    assert_eq!(wiring.poll_delay(11 * MS), Some(20 * MS));
    wiring.poll(31 * MS);
    assert_eq!(numbers(&mut wiring, two), [1]);
    assert_eq!(wiring.poll_delay(31 * MS), Some(10 * MS));
    wiring.poll(41 * MS);
    assert_eq!(numbers(&mut wiring, one), [2]);
    assert_eq!(wiring.poll_delay(41 * MS), None);
}

#[test]
fn frames_for_a_machine_that_is_off_are_dropped_it_is_sought() {
    let (mut wiring, ports) = machines(3);
    let [one, two, three] = ports[..] else { panic!("three") };
    wiring.send(two, &frame(two, mac(one), 1), MS);
    wiring.poll(MS);
    wiring.send(one, &frame(one, mac(two), 2), MS);
    wiring.poll(MS);
    wiring.disconnect(two);
    wiring.send(one, &frame(one, mac(two), 3), MS);
    wiring.poll(MS);
    assert_eq!(wiring.counters(two, Direction::Received).dropped, [(DropReason::Unplugged, 2)].into());
    wiring.connect(two);
    assert!(wiring.receive(two).is_none(), "nothing from before");
    assert_eq!(numbers(&mut wiring, three), [1, 3], "its place was forgotten");
    assert_balance(&mut wiring);
}

#[test]
fn a_halted_machine_costs_a_bounded_memory_and_hinders_nobody() {
    let (mut wiring, ports) = machines(3);
    let [one, halted, three] = ports[..] else { panic!("three") };
    let mut seen = 0;
    for index in 0..100_000 {
        wiring.send(one, &frame(one, Mac([0xff; 6]), index), MS);
        wiring.poll(MS);
        seen += numbers(&mut wiring, three).len();
    }
    let counters = wiring.counters(halted, Direction::Received);
    assert_eq!(seen, 100_000);
    assert_eq!(counters.held, BACKLOG as u64 / 64);
    assert_eq!(counters.dropped, [(DropReason::Backlog, 100_000 - counters.held)].into());
}

#[test]
fn what_is_no_frame_is_counted() {
    let (mut wiring, ports) = machines(2);
    wiring.send(ports[0], &[0; 13], MS);
    assert_eq!(wiring.counters(ports[0], Direction::Sent).dropped, [(DropReason::Runt, 1)].into());
    assert_balance(&mut wiring);
}

/// A scan by one host of ours of another, by the clock of the wiring alone.
fn scan(faults: Faults) -> Report {
    let mut wiring = Wiring::new(7);
    let segment = wiring.add_segment();
    let asker = host(&mut wiring, segment, 1, HOST);
    host(&mut wiring, segment, 2, OTHER_HOST);
    for direction in Direction::BOTH {
        wiring.set_faults(asker, direction, faults);
    }
    wiring.scan(asker, Scan::new(PortQuestion::Tcp, OTHER_HOST, 1..=300, 1000 * MS));
    let mut now = Duration::ZERO;
    loop {
        wiring.poll(now);
        assert_balance(&mut wiring);
        if let Some((port, result)) = wiring.results().pop() {
            assert_eq!(port, asker);
            return result.unwrap();
        }
        now += wiring.poll_delay(now).expect("a scan waits for something").max(MS / 10);
        assert!(now < Duration::from_secs(600), "the scan does not end");
    }
}

#[test]
fn hosts_find_each_other_over_a_good_cable_and_over_a_bad_one() {
    assert_eq!(scan(Faults::default()).ports(PortAnswer::Closed).len(), 300);
    let percent = |parts: u32| Chance::per_million(parts * 10_000).unwrap();
    let bad = Faults {
        loss: percent(5),
        duplicate: percent(20),
        reorder: percent(20),
        delay: 20 * MS,
        jitter: 5 * MS,
        ..Faults::default()
    };
    assert_eq!(scan(bad).ports(PortAnswer::Closed).len(), 300);
}

/// A machine that takes nothing keeps the questions of a scan with the host, which does not count time for them yet.
#[test]
fn a_host_does_not_send_faster_than_a_machine_takes() {
    let (mut wiring, ports) = machines(1);
    let (machine, target) = (ports[0], OTHER_HOST);
    let asker = host(&mut wiring, SegmentId(0), 100, HOST);
    wiring.scan(asker, Scan::new(PortQuestion::Tcp, target, 1..=u16::MAX, 1000 * MS));
    wiring.poll(MS);
    let request = wiring.receive(machine).unwrap();
    // The machine's answer: an ARP reply has the same fields in another order (RFC 826).
    let (sender, sought) = (&request.bytes()[22..32], &request.bytes()[38..42]);
    let address = mac(machine).0;
    let reply = [&sender[..6], &address, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &address, sought, sender].concat();
    wiring.send(machine, &reply, MS);
    for later in 1..5000 {
        wiring.poll(MS * later);
    }
    let counters = wiring.counters(machine, Direction::Received);
    assert!(counters.dropped.is_empty(), "{counters:?}");
    let waiting = usize::try_from(counters.held).unwrap() * 58;
    // It sees what waits there before each burst of at most 256.
    assert!((ROOM..ROOM + 256 * 58).contains(&waiting), "{waiting}");
    assert!(wiring.results().is_empty(), "it is not over");
}

#[test]
fn a_capture_has_what_the_end_sent_and_what_reached_it() {
    let (mut wiring, ports) = machines(2);
    let (one, two) = (ports[0], ports[1]);
    wiring.send(one, &frame(one, mac(two), 0), MS);
    wiring.poll(MS);
    assert_eq!(wiring.captured(), [], "nobody asked for it yet");
    wiring.capture(two);
    wiring.set_faults(two, Direction::Sent, Faults::cut());
    wiring.set_faults(two, Direction::Received, Faults { delay: 5 * MS, ..Faults::default() });
    wiring.send(two, &frame(two, mac(one), 1), MS);
    wiring.send(one, &frame(one, mac(two), 2), MS);
    wiring.poll(MS);
    wiring.poll(6 * MS);
    let seen: Vec<_> = wiring.captured().iter().map(|row| (row.direction, row.at, number(&row.frame))).collect();
    assert_eq!(seen, [(Direction::Sent, MS, 1), (Direction::Received, 6 * MS, 2)]);
}

#[derive(Debug, Clone)]
enum Step {
    Send { from: usize, to: usize },
    Take { at: usize, frames: usize },
    Off(usize),
    On(usize),
    Fault { at: usize, direction: Direction, faults: Faults },
    Later(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let direction = prop_oneof![Just(Direction::Sent), Just(Direction::Received)];
    let faults = (any::<bool>(), 0..500_000_u32, 0..500_000_u32, 0..500_000_u32, 0..40_u32).prop_map(
        |(cut, loss, duplicate, reorder, delay)| Faults {
            cable: if cut { Cut::Cut } else { Cut::Whole },
            loss: Chance::per_million(loss).unwrap(),
            duplicate: Chance::per_million(duplicate).unwrap(),
            reorder: Chance::per_million(reorder).unwrap(),
            delay: MS * delay,
            ..Faults::default()
        },
    );
    prop_oneof![
        8 => (0..6_usize, 0..8_usize).prop_map(|(from, to)| Step::Send { from, to }),
        4 => (0..6_usize, 0..9_usize).prop_map(|(at, frames)| Step::Take { at, frames }),
        1 => (0..6_usize).prop_map(Step::Off),
        2 => (0..6_usize).prop_map(Step::On),
        1 => (0..6_usize, direction, faults).prop_map(|(at, direction, faults)| Step::Fault { at, direction, faults }),
        4 => (0..50_u32).prop_map(Step::Later),
    ]
}

proptest! {
    /// Two segments with three machines each, whatever is sent, taken, cut, plugged and waited for: all frames are
    /// accounted for in both directions of every cable; what a machine takes was sent to it on its own segment, by another
    /// one and without a change; and where no cable doubles frames nobody gets one twice.
    #[test]
    fn every_frame_is_accounted_for_and_stays_on_its_segment(steps in prop::collection::vec(step(), 1..150)) {
        let mut wiring = Wiring::new(7);
        let segments = [wiring.add_segment(), wiring.add_segment()];
        let ports: Vec<_> = (0..6).map(|index| wiring.add_machine(segments[index / 3])).collect();
        let (mut now, mut senders, mut doubles) = (Duration::ZERO, Vec::new(), false);
        let mut got = std::collections::BTreeSet::new();
        let mut on = [false; 6];
        for step in steps {
            match step {
                Step::Send { from, to } => {
                    // Six machines, one that is nowhere, and all.
                    let to = if to == 7 { Mac([0xff; 6]) } else { mac(Port(to)) };
                    wiring.send(ports[from], &frame(ports[from], to, u32::try_from(senders.len()).unwrap()), now);
                    senders.push((from, to));
                }
                Step::Take { at, frames } => for _ in 0..frames {
                    let Some(taken) = wiring.receive(ports[at]) else { break };
                    let index = number(&taken);
                    let (from, to) = senders[usize::try_from(index).unwrap()];
                    prop_assert!(on[at] && from != at && from / 3 == at / 3);
                    prop_assert_eq!(taken.bytes(), frame(ports[from], to, index));
                    prop_assert!(got.insert((at, index)) || doubles, "twice");
                },
                Step::Off(at) => {
                    wiring.disconnect(ports[at]);
                    on[at] = false;
                }
                Step::On(at) => {
                    wiring.connect(ports[at]);
                    on[at] = true;
                }
                Step::Fault { at, direction, faults } => {
                    doubles |= faults.duplicate > Chance::default();
                    wiring.set_faults(ports[at], direction, faults);
                }
                Step::Later(ms) => now += MS * ms,
            }
            wiring.poll(now);
            assert_balance(&mut wiring);
            prop_assert!(wiring.poll_delay(now).is_none_or(|delay| delay > Duration::ZERO), "nothing is left to do now");
        }
        // What reached the switch left it by one port or more: nothing vanishes between the two counts.
        let sum = |wiring: &mut Wiring, direction, count: fn(&FrameCounters) -> u64| -> u64 {
            ports.iter().map(|port| count(&wiring.counters(*port, direction))).sum()
        };
        let through = sum(&mut wiring, Direction::Sent, |counters| counters.delivered);
        let left = sum(&mut wiring, Direction::Received, |counters| counters.taken);
        prop_assert!(through <= left && left <= 2 * through, "{through} went in, {left} came out");
    }
}
