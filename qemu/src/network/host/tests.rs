//! A host of ours against another smoltcp host, on a wire of vectors and in virtual time.

use std::net::SocketAddrV4;

use dhcp::HardwareAddress;
use dhcp::frame::{self, Datagram};
use smoltcp::socket::tcp as stream;

use super::super::fault::Random;
use super::super::peer::Peer;
use super::*;

const ASKER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
const TARGET: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 2);
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 118, 0, 1);
const PAUSE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);

/// A host with some TCP ports open.
struct Target {
    interface: Interface,
    wire: Wire<Frame>,
    sockets: SocketSet<'static>,
}

impl Target {
    fn new(addresses: &[Ipv4Addr], open: &[u16]) -> Self {
        let mut wire = Wire::default();
        let config = Config::new(EthernetAddress(Mac::numbered(2).0).into());
        let mut interface = Interface::new(config, &mut wire, instant(Duration::ZERO));
        interface.update_ip_addrs(|all| {
            for address in addresses {
                all.push(IpCidr::new((*address).into(), 24)).unwrap();
            }
        });
        let mut sockets = SocketSet::new(vec![]);
        for port in open {
            let buffer = || stream::SocketBuffer::new(vec![0; 1024]);
            let mut socket = stream::Socket::new(buffer(), buffer());
            socket.listen(*port).unwrap();
            sockets.add(socket);
        }
        Self { interface, wire, sockets }
    }

    /// Works frames through, in their order, and gives what it says to them. Barriers it answers as Linux does, and as
    /// smoltcp does not.
    fn exchange(&mut self, frames: impl IntoIterator<Item = Frame>, now: Duration) -> Vec<Frame> {
        for frame in frames {
            let barrier = match barrier::read(&frame) {
                Some(Part::Question { from, about }) => Some((from, about)),
                Some(Part::Answer { .. }) | None => None,
            };
            self.wire.incoming.push_back(frame);
            self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
            if let Some((from, about)) = barrier
                && self.interface.ip_addrs().iter().any(|own| own.address() == about.into())
            {
                self.wire.outgoing.push_back(barrier::answer(Mac::numbered(2), from, about));
            }
        }
        self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
        self.wire.outgoing.drain(..).collect()
    }
}

fn host(setup: &Setup) -> Result<Station, BadSetup> {
    Station::new(setup, crate::deadline::Stopwatch::start().began())
}

fn asker() -> Station {
    let routes = vec![StaticRoute { to: BEHIND, prefix: 16, via: TARGET }];
    host(&Setup { mac: Mac::numbered(1), addresses: vec![(ASKER, 24)], routes, dhcp: None }).unwrap()
}

/// Runs both until the scan ends.
fn run(host: &mut Station, target: &mut Target, scan: Scan) -> Result<Report, NoReport> {
    run_losing(host, target, scan, |_| false)
}

/// Runs both until the scan ends; of the frames both ways those are dropped that `lost` says, asked once for each.
fn run_losing(
    host: &mut Station,
    target: &mut Target,
    scan: Scan,
    mut lost: impl FnMut(Duration) -> bool,
) -> Result<Report, NoReport> {
    host.start(scan);
    let mut now = Duration::ZERO;
    loop {
        if let Some(result) = host.poll(now) {
            return result;
        }
        let asked: Vec<Frame> = std::iter::from_fn(|| host.send()).filter(|_| !lost(now)).collect();
        for frame in target.exchange(asked, now) {
            if !lost(now) {
                host.receive(frame, now);
            }
        }
        now += host.poll_delay(now).unwrap_or(STEP).clamp(Duration::from_millis(1), STEP);
        assert!(now < Duration::from_secs(600), "the scan does not end");
    }
}

fn tcp_scan(target: Ipv4Addr, ports: std::ops::RangeInclusive<u16>) -> Scan {
    Scan::new(PortQuestion::Tcp, target, ports, PAUSE)
}

/// The answer to a TCP question, late: from the port of the target, to whom asks next.
#[test]
fn a_late_answer_by_another_protocol_says_nothing() {
    for (control, what) in [(TcpControl::Rst, "a refusal"), (TcpControl::Syn, "a connection")] {
        let mut asker = asker();
        // Then it knows where the target is, and its questions leave.
        run(&mut asker, &mut Target::new(&[TARGET], &[]), Scan::new(PortQuestion::Tcp, TARGET, [1], PAUSE)).unwrap();
        let late = TcpRepr { src_port: 53, dst_port: SOURCE_PORT, ack_number: Some(SEQUENCE + 1), ..segment(control) };
        let packet = tcp(TARGET, ASKER, &late);
        let header = [&Mac::numbered(1).0[..], &Mac::numbered(2).0, &[0x08, 0x00]].concat();
        let late = Frame::parse(&[header, packet].concat()).expect("a frame");
        let mut now = Duration::from_secs(10);
        let mut report = |question: PortQuestion| {
            asker.start(Scan::new(question, TARGET, [53], PAUSE));
            loop {
                now += STEP;
                asker.receive(late.clone(), now);
                let result = asker.poll(now);
                while asker.send().is_some() {}
                match result {
                    None => {}
                    Some(Ok(report)) => return report.answered() == [53],
                    // What is not there answers no barrier.
                    Some(Err(why)) => {
                        assert_eq!(why, NoReport::Behind(TARGET));
                        return false;
                    }
                }
            }
        };
        assert!(!report(PortQuestion::Udp(b"?".to_vec())), "{what}");
        assert!(report(PortQuestion::Tcp), "{what}, where it was asked for");
    }
}

#[test]
fn open_and_closed_ports_are_told_apart_and_open_ones_freed() {
    let mut target = Target::new(&[TARGET], &[22, 7836]);
    let mut host = asker();
    for _ in 0..2 {
        let report = run(&mut host, &mut target, tcp_scan(TARGET, 1..=8000)).unwrap();
        assert_eq!(report.ports(PortAnswer::Open), [22, 7836]);
        assert_eq!(report.ports(PortAnswer::Closed).len(), 7998);
        // The reset of the granted ones freed the listeners for the second turn.
        let now = instant(Duration::from_secs(601));
        while let Some(frame) = host.send() {
            target.wire.incoming.push_back(frame);
        }
        target.interface.poll(now, &mut target.wire, &mut target.sockets);
    }
}

/// A link that loses a tenth of the frames, questions and answers.
#[test]
fn lost_packets_do_not_make_a_port_silent() {
    let mut chance = Random(7);
    let some = |_| chance.draw().is_multiple_of(10);
    let mut target = Target::new(&[TARGET], &[22]);
    let report = run_losing(&mut asker(), &mut target, tcp_scan(TARGET, 20..=59), some).unwrap();
    assert_eq!((report.ports(PortAnswer::Open), report.answered().len()), (vec![22], 40));
}

/// A machine that is given no processor for a while, once it has told where it is.
#[test]
fn a_target_that_stands_still_is_waited_for_and_only_so_long() {
    let stands_still = |until: Duration| {
        let mut target = Target::new(&[TARGET], &[22]);
        let mut host = asker();
        run(&mut host, &mut target, tcp_scan(TARGET, 1..=1)).unwrap();
        let report = run_losing(&mut host, &mut target, tcp_scan(TARGET, 21..=23), |now| now < until);
        report.map(|report| report.answered().len())
    };
    assert_eq!(stands_still(CAUGHT_UP - 2 * PAUSE), Ok(3));
    assert_eq!(stands_still(CAUGHT_UP), Err(NoReport::Behind(TARGET)));
}

/// The result of a scan of a machine that takes every frame at once and works on each of them for so long, which cannot be
/// less than [`STEP`]; and when the scan ended.
fn scan_slow(target: &mut Target, each: Duration, scan: Scan) -> (Result<Report, NoReport>, Duration) {
    let (mut host, mut taken, mut now) = (asker(), std::collections::VecDeque::new(), Duration::ZERO);
    // It knows where the target is.
    run(&mut host, target, tcp_scan(TARGET, 1..=1)).unwrap();
    host.start(scan);
    let mut free_at = now;
    loop {
        if let Some(result) = host.poll(now) {
            return (result, now);
        }
        taken.extend(std::iter::from_fn(|| host.send()));
        if now >= free_at
            && let Some(frame) = taken.pop_front()
        {
            free_at = now + each;
            target.exchange([frame], now).into_iter().for_each(|frame| host.receive(frame, now));
        }
        now += STEP;
    }
}

/// Eighty questions take it 40 s, and the host's own clock would give all rounds up after 7 s.
#[test]
fn a_machine_that_works_slowly_is_not_taken_for_silent() {
    let each = Duration::from_millis(500);
    let mut slow = Target::new(&[TARGET], &[22]);
    let (report, ended) = scan_slow(&mut slow, each, tcp_scan(TARGET, 21..=100));
    let report = report.unwrap();
    assert_eq!((report.ports(PortAnswer::Open), report.answered().len()), (vec![22], 80));
    assert!(ended > 79 * each, "{ended:?}");

    // The way behind it is closed: it says so by its own address, when it has worked through each round.
    let mut deaf = Target::new(&[TARGET], &[22]);
    let (report, ended) = scan_slow(&mut deaf, each, tcp_scan(BEHIND, 21..=100));
    assert_eq!(report.unwrap().ports(PortAnswer::Silent).len(), 80);
    assert!(ended > 3 * 80 * each, "{ended:?}");
}

#[test]
fn a_machine_that_does_not_catch_up_is_an_error_and_not_silence() {
    for address in [TARGET, BEHIND] {
        let mut slow = Target::new(&[TARGET], &[22]);
        let each = CAUGHT_UP / 40;
        // Some have answered by then.
        let (report, ended) = scan_slow(&mut slow, each, tcp_scan(address, 21..=100));
        let why = report.unwrap_err();
        assert_eq!((why, ended), (NoReport::Behind(TARGET), CAUGHT_UP));
        let told = "the machine at 192.168.7.2 has not worked through what it was asked within 120s";
        assert_eq!(why.to_string(), told);
    }
}

/// The barrier's answer comes late, behind the questions of the round that followed, or of a scan that did.
#[test]
fn an_answer_to_an_earlier_barrier_says_nothing_of_this_round() {
    let mut host = asker();
    run(&mut host, &mut Target::new(&[TARGET], &[]), tcp_scan(TARGET, 1..=1)).unwrap();
    // The barrier that the host asks at that time.
    let barrier = |host: &mut Station, now: Duration| {
        assert!(host.poll(now).is_none());
        let sent: Vec<Frame> = std::iter::from_fn(|| host.send()).collect();
        let last = sent.last().and_then(barrier::read);
        let Some(Part::Question { from, about: TARGET }) = last else { panic!("{last:?}") };
        (barrier::answer(Mac::numbered(2), from, TARGET), sent.len())
    };
    let mut now = Duration::from_secs(1);
    let mut heard = Vec::new();
    for _ in 0..2 {
        host.start(tcp_scan(TARGET, 80..=80));
        for round in 0..2 {
            let (answer, sent) = barrier(&mut host, now);
            assert_eq!(sent, 2, "the question, and the barrier behind it");
            heard.iter().for_each(|earlier: &Frame| host.receive(earlier.clone(), now));
            let from_another = barrier::answer(Mac::numbered(3), answer.destination(), ASKER);
            host.receive(from_another, now);
            // Asked again: none of that was the answer.
            now += Duration::from_secs(1);
            assert_eq!(barrier(&mut host, now), (answer.clone(), 1));
            host.receive(answer.clone(), now);
            now += PAUSE * (1 << round);
            assert!(host.poll(now).is_none());
            heard.push(answer);
        }
    }
}

/// Tests of A7 rely on this: an address behind a machine is asked through it, and is heard when it answers.
#[test]
fn an_address_behind_the_target_is_reached_by_the_route() {
    let ports = 7834..=7836;
    let mut forwarding = Target::new(&[TARGET, BEHIND], &[7835]);
    // It answers from its other address by way of its default route, as Linux would.
    forwarding.interface.routes_mut().add_default_ipv4_route(ASKER).unwrap();
    let report = run(&mut asker(), &mut forwarding, tcp_scan(BEHIND, ports.clone())).unwrap();
    assert_eq!((report.ports(PortAnswer::Open), report.answered().len()), (vec![7835], 3));

    let mut deaf = Target::new(&[TARGET], &[7835]);
    let report = run(&mut asker(), &mut deaf, tcp_scan(BEHIND, ports.clone())).unwrap();
    assert_eq!(report.ports(PortAnswer::Silent), ports.collect::<Vec<_>>());
}

#[test]
fn udp_errors_are_heard() {
    let mut target = Target::new(&[TARGET], &[]);
    let question = PortQuestion::Udp(b"hello".to_vec());
    let report = run(&mut asker(), &mut target, Scan::new(question, TARGET, [7838], PAUSE)).unwrap();
    assert_eq!(report.ports(PortAnswer::Unreachable), [7838]);
}

#[test]
fn nobody_there_is_an_error_and_not_silence() {
    let mut nobody = Target::new(&[Ipv4Addr::new(192, 168, 7, 99)], &[]);
    let mut host = asker();
    assert_eq!(run(&mut host, &mut nobody, tcp_scan(TARGET, 1..=10)), Err(NoReport::NextHop(TARGET)));
    assert_eq!(run(&mut host, &mut nobody, tcp_scan(BEHIND, 1..=10)), Err(NoReport::NextHop(BEHIND)));
    let unroutable = Ipv4Addr::new(203, 0, 113, 1);
    assert_eq!(run(&mut host, &mut nobody, tcp_scan(unroutable, 1..=10)), Err(NoReport::NextHop(unroutable)));
}

#[test]
fn a_setup_that_does_not_fit_is_refused() {
    let setup = |addresses| Setup { mac: Mac::numbered(1), addresses, routes: vec![], dhcp: None };
    assert_eq!(host(&setup(vec![(ASKER, 33)])).err(), Some(BadSetup::Prefix(33)));
    assert_eq!(host(&setup(vec![(ASKER, 24); 5])).err(), Some(BadSetup::TooMany));
}

#[test]
fn foreign_packets_are_no_answers() {
    assert!(hear(&[]).is_none() && hear(&[0x45; 20]).is_none());
    let to_another_port = udp(TARGET, ASKER, 9, b"x");
    assert!(hear(&to_another_port).is_none());
    let mut syn = tcp(TARGET, ASKER, &probe(SOURCE_PORT, TcpControl::Syn, SEQUENCE));
    assert!(hear(&syn).is_none(), "acknowledges nothing");
    assert!(asked(&syn).is_some(), "a question");
    syn.truncate(30);
    assert!(hear(&syn).is_none() && asked(&syn).is_none());
    assert!(asked(&tcp(TARGET, ASKER, &probe(22, TcpControl::Rst, SEQUENCE))).is_none());
}

/// Tests of transit rely on this: a host that is reached says so, for its own addresses and no others.
#[test]
fn a_host_refuses_connections_to_itself() {
    let setup = Setup { mac: Mac::numbered(2), addresses: vec![(TARGET, 24)], routes: vec![], dhcp: None };
    for (target, answer) in [(TARGET, PortAnswer::Closed), (BEHIND, PortAnswer::Silent)] {
        let (mut asking, mut asked) = (asker(), host(&setup).unwrap());
        asking.start(tcp_scan(target, 79..=81));
        let mut now = Duration::ZERO;
        let report = loop {
            if let Some(result) = asking.poll(now) {
                break result.unwrap();
            }
            while let Some(frame) = asking.send() {
                asked.receive(frame, now);
            }
            assert!(asked.poll(now).is_none(), "it scans nobody");
            while let Some(frame) = asked.send() {
                asking.receive(frame, now);
            }
            now += STEP;
            assert!(now < Duration::from_secs(600), "the scan does not end");
        };
        assert_eq!(report.ports(answer), [79, 80, 81]);
    }
}

#[test]
fn a_host_answers_names_once_it_has_one() {
    let datagram = |to: Ipv4Addr| {
        frame::build(&Datagram {
            source_mac: HardwareAddress(Mac::numbered(2).0),
            destination_mac: HardwareAddress(Mac::numbered(1).0),
            source: SocketAddrV4::new(TARGET, 5353),
            destination: SocketAddrV4::new(to, 53),
            payload: b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x02m1\0\0\x01\0\x01",
        })
        .unwrap()
    };
    let mut station = asker();
    let answers = |station: &mut Station, to| {
        station.receive(Frame::parse(&datagram(to)).unwrap(), Duration::ZERO);
        station.send().map(|frame| frame.bytes().ends_with(&BEHIND.octets()))
    };
    assert_eq!(answers(&mut station, ASKER), None);
    station.name("M1", BEHIND);
    assert_eq!(answers(&mut station, ASKER), Some(true));
    assert_eq!(answers(&mut station, TARGET), None, "another's address");
}

/// Program that says what it hears, and ends at a line's end.
struct Echo;

struct EchoCaller(bool);

impl PortService for Echo {
    fn accept(&mut self) -> Box<dyn Conversation> {
        Box::new(EchoCaller(false))
    }
}

impl Conversation for EchoCaller {
    fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0 |= bytes.ends_with(b"\n");
        bytes.to_vec()
    }

    fn is_over(&self) -> bool {
        self.0
    }
}

/// Bytes that the `n`-th caller, of the host's port, hears until the end, and whether there was one in time.
fn call(host: &mut Station, n: u8, port: u16, says: &[u8]) -> (Vec<u8>, bool) {
    let address = Ipv4Addr::new(192, 168, 7, 10 + n);
    let mut caller = Peer::new(Mac::numbered(10 + u32::from(n)), address, ASKER);
    caller.connect((ASKER, port));
    let (mut heard, mut said) = (Vec::new(), 0);
    for step in 0..2000_u32 {
        let now = STEP * (step + 2000 * u32::from(n));
        let socket = caller.tcp();
        if socket.can_send() && said < says.len() {
            said += socket.send_slice(&says[said..]).unwrap();
        }
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), heard.extend_from_slice(bytes))).unwrap();
        }
        if step > 0 && matches!(socket.state(), stream::State::Closed | stream::State::TimeWait) {
            return (heard, said > 0);
        }
        if said > 0 && !socket.may_recv() {
            socket.close();
        }
        let _no_scan_runs = host.poll(now);
        let asked: Vec<Frame> = std::iter::from_fn(|| host.send()).collect();
        for frame in caller.exchange(asked.into_iter(), now) {
            host.receive(frame, now);
        }
    }
    (heard, false)
}

#[test]
fn a_service_is_called_at_its_port_and_nothing_at_others() {
    let mut host = asker();
    host.serve(80, Box::new(Echo));
    // More than a window, and more callers than there are places.
    let long = [vec![7; 200_000], b"\n".to_vec()].concat();
    for (n, says) in [(0, &long), (1, &b"a\n".to_vec())] {
        let (heard, whole) = call(&mut host, n, 80, says);
        assert!(heard == *says && whole, "{} of {}, {whole}", heard.len(), says.len());
    }
    for n in 2..20 {
        assert_eq!(call(&mut host, n, 80, b"b\n"), (b"b\n".to_vec(), true));
    }
    assert_eq!(call(&mut host, 20, 81, b"a\n"), (vec![], false), "refused");
}
