//! A host of ours against another smoltcp host, on a wire of vectors and in virtual time.

use smoltcp::socket::tcp as stream;

use super::*;

const ASKER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
const TARGET: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 2);
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 118, 0, 1);
const PAUSE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);

/// A host with some TCP ports open.
struct Target {
    interface: Interface,
    wire: Wire,
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
}

fn host(setup: &Setup) -> Result<Station, BadSetup> {
    Station::new(setup, crate::deadline::Stopwatch::start().began())
}

fn asker() -> Station {
    let routes = vec![StaticRoute { to: BEHIND, prefix: 16, via: TARGET }];
    host(&Setup { mac: Mac::numbered(1), addresses: vec![(ASKER, 24)], routes, dhcp: None }).unwrap()
}

/// Runs both until the scan ends.
fn run(host: &mut Station, target: &mut Target, scan: Scan) -> Result<Report, NoNextHop> {
    run_losing(host, target, scan, |_| false)
}

/// Runs both until the scan ends; of the frames both ways those are dropped that `lost` says, asked once for each.
fn run_losing(
    host: &mut Station,
    target: &mut Target,
    scan: Scan,
    mut lost: impl FnMut(Duration) -> bool,
) -> Result<Report, NoNextHop> {
    host.start(scan);
    let mut now = Duration::ZERO;
    loop {
        if let Some(result) = host.poll(now) {
            return result;
        }
        while let Some(frame) = host.send() {
            if !lost(now) {
                target.wire.incoming.push_back(frame);
            }
        }
        target.interface.poll(instant(now), &mut target.wire, &mut target.sockets);
        while let Some(frame) = target.wire.outgoing.pop_front() {
            if !lost(now) {
                host.receive(frame, now);
            }
        }
        now += host.poll_delay(now).unwrap_or(STEP).clamp(Duration::from_millis(1), STEP);
        assert!(now < Duration::from_secs(600), "the scan does not end");
    }
}

fn tcp_scan(target: Ipv4Addr, ports: std::ops::RangeInclusive<u16>) -> Scan {
    Scan::new(Question::Tcp, target, ports, PAUSE)
}

/// The answer to a TCP question, late: from the port of the target, to whom asks next.
#[test]
fn what_was_asked_by_another_protocol_and_is_answered_late_says_nothing() {
    for (control, what) in [(TcpControl::Rst, "a refusal"), (TcpControl::Syn, "a connection")] {
        let mut asker = asker();
        // Then it knows where the target is, and its questions leave.
        run(&mut asker, &mut Target::new(&[TARGET], &[]), Scan::new(Question::Tcp, TARGET, [1], PAUSE)).unwrap();
        let late = TcpRepr { src_port: 53, dst_port: SOURCE_PORT, ack_number: Some(SEQUENCE + 1), ..segment(control) };
        let packet = tcp(TARGET, ASKER, &late);
        let header = [&Mac::numbered(1).0[..], &Mac::numbered(2).0, &[0x08, 0x00]].concat();
        let late = Frame::parse(&[header, packet].concat()).expect("a frame");
        let mut now = Duration::from_secs(10);
        let mut report = |question: Question| {
            asker.start(Scan::new(question, TARGET, [53], PAUSE));
            loop {
                now += STEP;
                asker.receive(late.clone(), now);
                let result = asker.poll(now);
                while asker.send().is_some() {}
                if let Some(result) = result {
                    return result.unwrap().ports(Answer::Silent).is_empty();
                }
            }
        };
        assert!(!report(Question::Udp(b"?".to_vec())), "{what}");
        assert!(report(Question::Tcp), "{what}, where it was asked for");
    }
}

#[test]
fn open_and_closed_ports_are_told_apart_and_open_ones_freed() {
    let mut target = Target::new(&[TARGET], &[22, 7836]);
    let mut host = asker();
    for _ in 0..2 {
        let report = run(&mut host, &mut target, tcp_scan(TARGET, 1..=8000)).unwrap();
        assert_eq!(report.ports(Answer::Open), [22, 7836]);
        assert_eq!(report.ports(Answer::Closed).len(), 7998);
        // The reset of the granted ones freed the listeners for the second turn.
        let now = instant(Duration::from_secs(601));
        while let Some(frame) = host.send() {
            target.wire.incoming.push_back(frame);
        }
        target.interface.poll(now, &mut target.wire, &mut target.sockets);
    }
}

/// A link that loses each fifth frame, question or answer.
#[test]
fn lost_packets_do_not_make_a_port_silent() {
    let mut frames = 0;
    let each_fifth = |_| {
        frames += 1;
        frames % 5 == 0
    };
    let mut target = Target::new(&[TARGET], &[22]);
    let report = run_losing(&mut asker(), &mut target, tcp_scan(TARGET, 20..=59), each_fifth).unwrap();
    assert_eq!((report.ports(Answer::Open), report.answered().len()), (vec![22], 40));
}

/// A machine that is given no processor for a while, once it has told where it is.
#[test]
fn a_target_that_stands_still_is_waited_for_and_only_so_long() {
    let stands_still = |pauses: u32| {
        let mut target = Target::new(&[TARGET], &[22]);
        let mut host = asker();
        run(&mut host, &mut target, tcp_scan(TARGET, 1..=1)).unwrap();
        let report = run_losing(&mut host, &mut target, tcp_scan(TARGET, 21..=23), |now| now < PAUSE * pauses);
        report.unwrap().answered().len()
    };
    assert_eq!((stands_still(14), stands_still(32)), (3, 0));
}

/// What tests of A7 rely on: an address behind a machine is asked through it, and is heard when it answers.
#[test]
fn an_address_behind_the_target_is_reached_by_the_route() {
    let ports = 7834..=7836;
    let mut forwarding = Target::new(&[TARGET, BEHIND], &[7835]);
    // It answers from its other address by way of its default route, as Linux would.
    forwarding.interface.routes_mut().add_default_ipv4_route(ASKER).unwrap();
    let report = run(&mut asker(), &mut forwarding, tcp_scan(BEHIND, ports.clone())).unwrap();
    assert_eq!((report.ports(Answer::Open), report.answered().len()), (vec![7835], 3));

    let mut deaf = Target::new(&[TARGET], &[7835]);
    let report = run(&mut asker(), &mut deaf, tcp_scan(BEHIND, ports.clone())).unwrap();
    assert_eq!(report.ports(Answer::Silent), ports.collect::<Vec<_>>());
}

#[test]
fn udp_errors_are_heard() {
    let mut target = Target::new(&[TARGET], &[]);
    let question = Question::Udp(b"hello".to_vec());
    let report = run(&mut asker(), &mut target, Scan::new(question, TARGET, [7838], PAUSE)).unwrap();
    assert_eq!(report.ports(Answer::Unreachable), [7838]);
}

#[test]
fn nobody_there_is_an_error_and_not_silence() {
    let mut nobody = Target::new(&[Ipv4Addr::new(192, 168, 7, 99)], &[]);
    let mut host = asker();
    assert_eq!(run(&mut host, &mut nobody, tcp_scan(TARGET, 1..=10)), Err(NoNextHop(TARGET)));
    assert_eq!(run(&mut host, &mut nobody, tcp_scan(BEHIND, 1..=10)), Err(NoNextHop(BEHIND)));
    let unroutable = Ipv4Addr::new(203, 0, 113, 1);
    assert_eq!(run(&mut host, &mut nobody, tcp_scan(unroutable, 1..=10)), Err(NoNextHop(unroutable)));
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

/// What tests of transit rely on: who is reached says so, for its own addresses and no others.
#[test]
fn a_host_refuses_connections_to_itself() {
    let setup = Setup { mac: Mac::numbered(2), addresses: vec![(TARGET, 24)], routes: vec![], dhcp: None };
    for (target, answer) in [(TARGET, Answer::Closed), (BEHIND, Answer::Silent)] {
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
