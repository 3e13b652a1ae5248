//! A network by its sockets, with network cards that are plain streams.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use smoltcp::socket::tcp::State;

use super::*;
use crate::deadline::Stopwatch;
use peer::Peer;

const HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
const BROADCAST: [u8; 6] = [0xff; 6];
const ONE: [u8; 6] = Mac::numbered(8).0;
const OTHER: [u8; 6] = Mac::numbered(9).0;

fn setup() -> Setup {
    Setup { mac: Mac::numbered(1), addresses: vec![(HOST, 24)], routes: vec![], dhcp: None }
}

fn segment() -> Segment {
    Network::start(7).unwrap().segment()
}

/// A network card, plugged in.
struct Card(UnixStream);

impl Card {
    fn plug(cable: &Cable) -> Self {
        let Link::Stream(socket) = cable.link() else { panic!("a cable is a stream") };
        // As QEMU does: what another one has left there goes.
        let _gone = fs::remove_file(&socket);
        let (stream, _) = UnixListener::bind(socket).unwrap().accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    fn send(&mut self, frame: &[u8]) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        self.0.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.0.read_exact(&mut frame).unwrap();
        frame
    }

    /// Asks something that only the host answers, and returns the answer: then the card is known to be on.
    fn ask_host(&mut self, own: [u8; 6]) -> Vec<u8> {
        self.send(
            &[
                &BROADCAST[..],
                &own,
                &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
                &own,
                &[192, 168, 7, own[5]],
                &[0; 6],
                &HOST.octets(),
            ]
            .concat(),
        );
        self.receive()
    }
}

/// An ARP request for the host's address, and the frame that must come back (RFC 826).
#[test]
fn a_host_answers_a_machine_and_the_machine_that_comes_after_it() {
    let segment = segment();
    let _host = segment.host(&setup()).unwrap();
    let cable = segment.cable().unwrap();
    for _ in 0..2 {
        let answer = Card::plug(&cable).ask_host(ONE);
        assert_eq!(answer[..6], ONE);
        assert_eq!(answer[6..12], Mac::numbered(1).0);
        assert_eq!(answer[20..22], [0, 2], "an answer");
        assert_eq!(answer[28..32], HOST.octets());
    }
}

#[test]
fn machines_of_one_segment_reach_each_other_and_none_of_another() {
    let network = Network::start(7).unwrap();
    let segments = [network.segment(), network.segment()];
    let _hosts = segments.each_ref().map(|segment| segment.host(&setup()).unwrap());
    let mut cards = Vec::new();
    for (segment, own) in [(0, ONE), (0, OTHER), (1, OTHER)] {
        let mut card = Card::plug(&segments[segment].cable().unwrap());
        card.ask_host(own);
        cards.push(card);
    }
    let [one, other, apart] = &mut cards[..] else { panic!("three") };
    // The first has heard the others' questions.
    assert_eq!(one.receive()[6..12], OTHER);
    let message = [&OTHER[..], &ONE, &[0x88, 0xb5], b"hello"].concat();
    one.send(&message);
    assert_eq!(other.receive(), message);
    // Where it had gone to the other segment, too, it would come before the answer.
    assert_eq!(apart.ask_host(OTHER)[20..22], [0, 2]);
}

#[test]
fn a_cut_keeps_frames_from_a_machine_and_they_are_counted() {
    let segment = segment();
    let host = segment.host(&setup()).unwrap();
    let cable = segment.cable().unwrap();
    let mut card = Card::plug(&cable);
    card.ask_host(ONE);
    cable.set_faults(Direction::Received, Faults::cut());
    let scan = host.scan_tcp(Ipv4Addr::new(192, 168, 7, ONE[5]), [1], Deadline::after(Duration::from_millis(100)));
    assert!(matches!(scan, Err(ScanError::Late(_))));
    let counters = cable.counters(Direction::Received);
    assert!(counters.dropped[&DropReason::Cut] > 0 && counters.delivered == 1 && counters.balance(), "{counters:?}");
    cable.set_faults(Direction::Received, Faults::default());
    // What the host had sent was a question; what comes now is an answer.
    assert_eq!(card.ask_host(ONE)[20..22], [0, 2]);
}

#[test]
fn a_capture_is_whole_while_it_goes_on() {
    let segment = segment();
    let _host = segment.host(&setup()).unwrap();
    let cable = segment.cable().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    cable.capture("m1", file.path()).unwrap();
    let mut card = Card::plug(&cable);
    let answer = card.ask_host(ONE);
    // By the lengths of its blocks: a section, an interface, a question and an answer.
    let (bytes, mut at, mut blocks) = (fs::read(file.path()).unwrap(), 0, Vec::new());
    while at < bytes.len() {
        let [kind, length] = [at, at + 4].map(|at| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()));
        let length = usize::try_from(length).unwrap();
        blocks.push((kind, &bytes[at..at + length]));
        at += length;
    }
    assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [0x0a0d_0d0a, 1, 6, 6]);
    assert_eq!(blocks[3].1[28..28 + answer.len()], answer);
    assert!(cable.capture("m1", Path::new("/nowhere/m1.pcapng")).is_err());
}

#[test]
fn a_network_that_ended_is_followed_by_one_with_its_machines() {
    let sockets = tempfile::tempdir().unwrap();
    let network = || {
        let segment = Network::start_in(sockets.path(), 7).unwrap().segment();
        (segment.host(&setup()).unwrap(), segment.cable_of("m1").unwrap())
    };
    let (host, cable) = network();
    let Link::Stream(socket) = cable.link() else { panic!("a cable is a stream") };
    // As QEMU does, it goes on listening.
    let listener = UnixListener::bind(&socket).unwrap();
    let mut card = Card(listener.accept().unwrap().0);
    card.ask_host(ONE);
    assert!(cable.is_plugged_in());
    drop((host, cable));
    assert_eq!(card.0.read(&mut [0]).unwrap(), 0, "the end of the first");
    let (_host, cable) = network();
    assert!(matches!(cable.link(), Link::Stream(same) if same == socket));
    Card(listener.accept().unwrap().0).ask_host(ONE);
}

#[test]
fn a_socket_that_no_program_could_use_is_told_by_its_path() {
    let root = tempfile::tempdir().unwrap();
    let segment = Network::start_in(&root.path().join("d".repeat(100)), 7).unwrap().segment();
    let refused = segment.cable_of("m1").unwrap_err().to_string();
    assert!(refused.contains("at most 107 bytes") && refused.contains("ddd/m1.cable"), "{refused}");
}

#[test]
fn a_capture_goes_on_in_its_file_and_ends_when_it_is_told_to() {
    let segment = segment();
    let _host = segment.host(&setup()).unwrap();
    let (cable, file) = (segment.cable().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let mut card = Card::plug(&cable);
    let length = || fs::metadata(file.path()).unwrap().len();
    cable.capture("m1", file.path()).unwrap();
    card.ask_host(ONE);
    let first = length();
    cable.end_capture();
    card.ask_host(ONE);
    assert_eq!(length(), first);
    cable.capture("m1", file.path()).unwrap();
    card.ask_host(ONE);
    assert_eq!(length(), 2 * first);
}

#[test]
fn a_scan_without_a_machine_ends_at_its_deadline() {
    let host = segment().host(&setup()).unwrap();
    let result = host.scan_tcp(HOST, [1], Deadline::after(Duration::from_millis(10)));
    assert!(matches!(result, Err(ScanError::Late(_))));
}

const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 20);
/// Services of a machine: it sends back what it gets, or nothing but its end.
const ECHO: u16 = 7;
const SILENCE: u16 = 9;
/// Where it has none.
const NOTHING: u16 = 1;

/// Network card of the machine.
const CARD: Mac = Mac::numbered(20);

/// A machine with one service, until `over`.
fn serve(cable: &Cable, port: u16, over: &AtomicBool) {
    live(cable, |peer| {
        if !peer.tcp().is_open() {
            peer.listen(port);
        }
        match port {
            ECHO => peer.echo(),
            _ if peer.tcp().may_send() => peer.tcp().close(),
            _ => {}
        }
        !over.load(Ordering::Relaxed)
    });
}

/// A machine that does this, as long as it says so.
fn live(cable: &Cable, mut does: impl FnMut(&mut Peer) -> bool) {
    let Card(mut stream) = Card::plug(cable);
    let mut peer = Peer::new(CARD, MACHINE, HOST);
    let (clock, mut decoder, mut buffer) = (Stopwatch::start(), Decoder::default(), vec![0; 65536]);
    while does(&mut peer) {
        let mut frames = Vec::new();
        while let Some(frame) = decoder.pop().unwrap() {
            frames.push(Frame::parse(frame).unwrap());
        }
        let mut bytes = Vec::new();
        for frame in peer.exchange(frames.into_iter(), clock.elapsed()) {
            encode(frame.bytes(), &mut bytes);
        }
        stream.write_all(&bytes).unwrap();
        let delay = peer.poll_delay(clock.elapsed()).unwrap_or(Duration::MAX);
        let delay = delay.clamp(Duration::from_millis(1), Duration::from_millis(10));
        stream.set_read_timeout(Some(if bytes.is_empty() { delay } else { Duration::from_micros(1) })).unwrap();
        match stream.read(&mut buffer) {
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// A gateway whose cable is like this, before such a machine, and what a client on the host's loopback sees of it.
fn forwarded<T>(faults: Faults, service: u16, port: u16, client: impl FnOnce(TcpStream) -> T) -> T {
    let straight = |gateway: &Gateway| gateway.forward(0, GatewayTarget::Address(MACHINE), port).unwrap();
    led(faults, service, straight, client)
}

fn gateway_setup() -> GatewaySetup {
    GatewaySetup {
        mac: Mac::numbered(1),
        address: HOST,
        prefix: dhcp::Prefix::new(24).unwrap(),
        pool: (Ipv4Addr::new(192, 168, 7, 100), Ipv4Addr::new(192, 168, 7, 109)),
        lease_seconds: 60,
    }
}

/// The same, by the way that the gateway is asked for.
fn led<T>(
    faults: Faults,
    service: u16,
    way: impl FnOnce(&Gateway) -> SocketAddrV4,
    client: impl FnOnce(TcpStream) -> T,
) -> T {
    let segment = segment();
    let gateway = segment.gateway(&gateway_setup()).unwrap();
    for direction in Direction::BOTH {
        gateway.cable().set_faults(direction, faults);
    }
    let (cable, over) = (segment.cable().unwrap(), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| serve(&cable, service, &over));
        let stream = TcpStream::connect(way(&gateway)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(stream)));
        over.store(true, Ordering::Relaxed);
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn echoed(faults: Faults) {
    let all: Vec<u8> = (0..1_000_000_u32).map(|index| (index * 31 + index / 251).to_le_bytes()[0]).collect();
    let back = forwarded(faults, ECHO, ECHO, |mut stream| {
        let (mut writer, sent) = (stream.try_clone().unwrap(), &all);
        thread::scope(|threads| {
            threads.spawn(move || {
                writer.write_all(sent).unwrap();
                writer.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut back = Vec::new();
            stream.read_to_end(&mut back).map(|_| back).unwrap()
        })
    });
    assert!(back == all, "{} of {} bytes came back as they were", back.len(), all.len());
}

#[test]
fn a_client_of_the_loopback_reaches_a_machine_and_sees_its_end() {
    echoed(Faults::default());
}

#[test]
fn a_client_of_the_loopback_gets_through_a_bad_cable() {
    let loss = Chance::per_million(50_000).unwrap();
    echoed(Faults { loss, delay: Duration::from_millis(50), ..Faults::default() });
}

#[test]
fn a_client_of_a_port_that_refuses_sees_a_reset_and_no_end() {
    let read = forwarded(Faults::default(), ECHO, NOTHING, |mut stream| stream.read(&mut [0]));
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// Address of a machine that is off.
const OFF: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 19);

/// Bytes that a client hears that says `hello` to a port of any of two machines, of which the first is off.
fn of_any(port: u16) -> io::Result<Vec<u8>> {
    let any = |gateway: &Gateway| {
        for (name, card, address) in [("m1", Mac::numbered(19), OFF), ("m2", CARD, MACHINE)] {
            gateway.name(name, card);
            gateway.reserve(card, address, LeaseState::FromBefore);
        }
        gateway.forward_to_any(0, port).unwrap()
    };
    led(Faults::default(), ECHO, any, |mut stream| {
        stream.write_all(b"hello")?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).map(|_| heard)
    })
}

/// Proves: S9
#[test]
fn a_client_of_any_machine_has_the_one_that_answers() {
    assert_eq!(of_any(ECHO).unwrap(), b"hello");
}

/// Bytes that a program hears that says so to the proxy, which asks for this word, and then sends nothing more.
fn by_proxy(word: &ProxyWord, said: &[u8]) -> Vec<u8> {
    let way = |gateway: &Gateway| {
        gateway.name("m2", CARD);
        gateway.reserve(CARD, MACHINE, LeaseState::FromBefore);
        gateway.proxy(word.clone()).unwrap()
    };
    led(Faults::default(), ECHO, way, |mut stream| {
        stream.write_all(said).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    })
}

/// Proves: S9
#[test]
fn a_socks_program_reaches_a_machine_by_address_and_by_name() {
    let word = ProxyWord::draw().unwrap();
    let proof = proof(&word);
    let by_proxy = |said: &[u8]| by_proxy(&word, said);
    let [high, low] = ECHO.to_be_bytes();
    let address = [&[5, 1, 0, 1][..], &MACHINE.octets(), &[high, low]].concat();
    let name = [&[5, 1, 0, 3, 2][..], b"M2", &[high, low]].concat();
    let connected = [5, 2, 1, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for to in [&address, &name] {
        let heard = by_proxy(&[&proof[..], to, b"and it comes back"].concat());
        assert_eq!(heard, [&connected[..], b"and it comes back"].concat());
    }
    let code = |to: &[u8]| by_proxy(&[&proof[..], to].concat())[5];
    let nothing = [&address[..8], &NOTHING.to_be_bytes()].concat();
    assert_eq!(code(&nothing), 5, "the machine refuses");
    assert_eq!(code(&[&name[..5], b"m9", &[high, low]].concat()), 4, "there is no such machine");
    assert_eq!(code(&[&address[..4], &[8, 8, 8, 8, high, low]].concat()), 4, "nothing leads out of the network");
    assert_eq!(by_proxy(b"GET / HTTP/1.1\r\n\r\n"), b"");
}

/// The other users of the host reach the proxy as well. Proves: S9
#[test]
fn a_program_that_does_not_know_the_word_gets_nowhere() {
    let [word, other] = [(); 2].map(|()| ProxyWord::draw().unwrap());
    let [high, low] = ECHO.to_be_bytes();
    let to = [&[5, 1, 0, 1][..], &MACHINE.octets(), &[high, low]].concat();
    let heard = |proof: &[u8]| by_proxy(&word, &[proof, &to].concat());
    assert_eq!(heard(&proof(&word))[..6], [5, 2, 1, 0, 5, 0]);
    assert_eq!(heard(&proof(&other)), [5, 2, 1, 1]);
    assert_eq!(heard(&[5, 1, 0]), [5, 0xff], "without one");
    assert_eq!(heard(&[5, 1, 2]), [5, 2], "passed over");
}

/// Says that one knows of passwords, and this one (RFC 1928, RFC 1929).
fn proof(word: &ProxyWord) -> Vec<u8> {
    [b"\x05\x01\x02\x01\x05cairn\x20", word.expose().as_bytes()].concat()
}

#[test]
fn a_client_sees_the_machines_end_while_its_own_is_open() {
    let read = forwarded(Faults::default(), SILENCE, SILENCE, |mut stream| {
        stream.write_all(b"still here").unwrap();
        stream.read(&mut [0])
    });
    assert_eq!(read.unwrap(), 0);
}

/// Place outside that machines may call.
const PLACE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);

/// Bytes that a machine hears that asks at this place outside. The one place where it may ask is this listener.
fn heard_outside(place: SocketAddrV4, listener: &TcpListener) -> Vec<u8> {
    let segment = segment();
    let gateway = segment.gateway(&gateway_setup()).unwrap();
    let outside = listener.local_addr().unwrap();
    gateway.0.network.ask(move |shell| {
        shell.lead_outside(Box::new(move |to| (to == SocketAddrV4::new(PLACE, ECHO)).then_some(outside)));
    });
    let (mut called, mut said, mut heard) = (false, false, Vec::new());
    live(&segment.cable().unwrap(), |peer| {
        if !called {
            peer.connect((*place.ip(), place.port()));
            called = true;
        }
        if peer.tcp().state() == State::Established && !said {
            peer.tcp().send_slice(b"who?").unwrap();
            said = true;
        }
        if peer.tcp().can_recv() {
            peer.tcp().recv(|bytes| (bytes.len(), heard.extend_from_slice(bytes))).unwrap();
            peer.tcp().close();
        }
        peer.tcp().is_open()
    });
    heard
}

/// Proves: S9
#[test]
fn a_machine_reaches_what_is_outside_where_it_may() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let answers = listener.try_clone().unwrap();
    let there = thread::spawn(move || {
        let (mut stream, _) = answers.accept().unwrap();
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"me").unwrap();
        asked
    });
    assert_eq!(heard_outside(SocketAddrV4::new(PLACE, ECHO), &listener), b"me");
    assert_eq!(&there.join().unwrap(), b"who?");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(heard_outside(SocketAddrV4::new(PLACE, NOTHING), &listener), b"", "it is refused");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
