//! The client by hand, against the server of this crate and against its lies, in virtual time.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use dhcp::client::{Client, Destination, Effect, Event, HeldLease, IgnoreReason, Lease, Report, Station, Term};
use dhcp::server::{Config, InvalidConfig, Server};
use dhcp::wire::{DhcpMessage, MessageType};
use dhcp::{HardwareAddress, Prefix};
use model::{Ipv4Prefix, POD_PREFIX, PrefixUse, Prefixes, SERVICE_PREFIX, UnfitLink};

mod asking;
mod servers;
mod world;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const LEASE: u32 = 60;

fn config() -> Config {
    Config {
        address: SERVER,
        prefix: Prefix::new(24).expect("up to 32"),
        first: Ipv4Addr::new(10, 0, 2, 10),
        last: Ipv4Addr::new(10, 0, 2, 19),
        routers: vec![SERVER],
        dns: vec![Ipv4Addr::new(10, 0, 2, 3)],
        lease_seconds: LEASE,
    }
}

fn server() -> Server {
    Server::new(config()).expect("a pool in its network")
}

fn mac(last: u8) -> HardwareAddress {
    HardwareAddress([2, 0, 0, 0, 0, last])
}

/// The VPN of this file's machines.
fn vpn() -> Ipv4Prefix {
    Ipv4Prefix::new(Ipv4Addr::new(10, 9, 0, 0), 16).expect("a prefix")
}

fn client(mac: HardwareAddress, seed: u64, now: Instant, out: &mut Vec<Effect>) -> Client {
    Client::start(Station { mac, seed }, now, out)
}

/// Client that a test drives by hand, in virtual time.
struct Desk {
    client: Client,
    now: Instant,
    begin: Instant,
}

impl Desk {
    fn open() -> (Self, Vec<Effect>) {
        let begin = testkit::origin();
        let mut out = Vec::new();
        let client = client(mac(1), 7, begin, &mut out);
        (Self { client, now: begin, begin }, out)
    }

    /// A client that has just been given its lease.
    fn bound() -> (Self, Server, Lease) {
        let (mut desk, out) = Self::open();
        let mut server = server();
        let request = desk.answer(&mut server, &out);
        let out = desk.answer(&mut server, &request);
        let [Effect::Configure(HeldLease { lease, .. })] = &out[..] else { panic!("configured, not {out:?}") };
        let lease = lease.clone();
        (desk, server, lease)
    }

    fn receive(&mut self, bytes: &[u8]) -> Vec<Effect> {
        self.receive_beside(Some(Prefixes::of(vpn())), bytes)
    }

    /// Hears an answer while the cluster keeps these prefixes.
    fn receive_beside(&mut self, kept: Option<Prefixes>, payload: &[u8]) -> Vec<Effect> {
        let mut out = Vec::new();
        self.client.handle(Event::Received { payload, kept }, self.now, &mut out);
        out
    }

    fn answer(&mut self, server: &mut Server, out: &[Effect]) -> Vec<Effect> {
        let reply = server.handle(&sent(out).1, self.now).expect("an answer");
        self.receive(&reply.bytes)
    }

    fn wait_for(&mut self, why: &str) -> Vec<Effect> {
        let (at, reason) = self.client.poll_timeout().expect("a deadline");
        assert_eq!(reason, why);
        assert!(at > self.now, "a deadline lies ahead");
        self.now = at;
        let mut out = Vec::new();
        self.client.handle(Event::Tick, self.now, &mut out);
        out
    }

    fn elapsed(&self) -> Duration {
        self.now - self.begin
    }
}

/// The one message among the effects.
fn sent(out: &[Effect]) -> (Destination, Vec<u8>) {
    let mut sent = out.iter().filter_map(|effect| match effect {
        Effect::Send { to, bytes } => Some((*to, bytes.clone())),
        Effect::Configure(_) | Effect::Deconfigure | Effect::Report(_) => None,
    });
    let first = sent.next().expect("a message");
    assert!(sent.next().is_none(), "one message at a time");
    first
}

fn configured(lease: &Lease, since: Instant) -> Effect {
    Effect::Configure(HeldLease { lease: lease.clone(), since })
}

fn message(out: &[Effect]) -> DhcpMessage {
    DhcpMessage::parse(&sent(out).1).expect("our own message")
}

fn ignored(why: IgnoreReason) -> Vec<Effect> {
    vec![Effect::Report(Report::Ignored(why))]
}

#[test]
fn four_messages_make_a_lease() {
    let (mut desk, out) = Desk::open();
    let mut server = server();
    assert_eq!(out.len(), 1, "nobody was asked before: {out:?}");
    assert_eq!(sent(&out).0, Destination::Broadcast { from: Ipv4Addr::UNSPECIFIED });
    let request = desk.answer(&mut server, &out);
    let asked = message(&request);
    assert_eq!(asked.message_type, MessageType::Request);
    assert_eq!((asked.requested_ip, asked.server_id), (Some(config().first), Some(SERVER)));
    let expected = Lease {
        address: config().first,
        prefix: config().prefix,
        router: Some(SERVER),
        dns: config().dns,
        server_id: SERVER,
        term: Term::Limited {
            renew_after: Duration::from_secs(30),
            rebind_after: Duration::from_secs(52),
            lasts: Duration::from_secs(60),
        },
    };
    assert_eq!(desk.answer(&mut server, &request), [configured(&expected, desk.now)]);
    assert_eq!(desk.client.lease(), Some(&expected));
    assert_eq!(server.leases().collect::<Vec<_>>(), [(config().first, mac(1))]);
}

#[test]
fn a_lease_is_renewed_at_its_server_and_counts_from_asking() {
    let (mut desk, mut server, lease) = Desk::bound();
    let out = desk.wait_for("renewal time");
    assert_eq!(desk.elapsed(), Duration::from_secs(30));
    assert_eq!(sent(&out).0, Destination::Unicast { from: lease.address, to: SERVER });
    let asked = message(&out);
    assert_eq!((asked.ciaddr, asked.requested_ip, asked.server_id), (lease.address, None, None));
    let reply = server.handle(&sent(&out).1, desk.now).expect("an answer");
    assert_eq!((reply.destination, reply.mac), (lease.address, mac(1)));
    let asked_at = desk.now;
    desk.now += Duration::from_secs(5);
    assert_eq!(desk.receive(&reply.bytes), [configured(&lease, asked_at)]);
    desk.wait_for("renewal time");
    assert_eq!(desk.elapsed(), Duration::from_secs(60));
}

#[test]
fn a_lease_counts_from_the_request_and_not_from_the_search() {
    let (mut desk, out) = Desk::open();
    let mut server = server();
    desk.now += Duration::from_millis(700);
    let request = desk.answer(&mut server, &out);
    desk.now += Duration::from_millis(100);
    desk.answer(&mut server, &request);
    assert_eq!(desk.client.poll_timeout(), Some((desk.begin + Duration::from_millis(30_700), "renewal time")));
}

#[test]
fn a_silent_server_costs_the_lease_at_its_end_and_not_before() {
    let (mut desk, _, lease) = Desk::bound();
    let mut messages = 0;
    while desk.client.lease().is_some() {
        assert!(desk.elapsed() < Duration::from_secs(60), "the lease is over");
        let (at, _) = desk.client.poll_timeout().expect("a deadline");
        desk.now = at;
        let mut out = Vec::new();
        desk.client.handle(Event::Tick, desk.now, &mut out);
        if desk.client.lease().is_none() {
            assert_eq!(desk.elapsed(), Duration::from_secs(60));
            assert_eq!(out[..2], [Effect::Report(Report::Expired), Effect::Deconfigure]);
            let again = message(&out);
            assert_eq!((again.message_type, again.requested_ip), (MessageType::Discover, Some(lease.address)));
            continue;
        }
        let expected = if desk.elapsed() < Duration::from_secs(52) {
            Destination::Unicast { from: lease.address, to: SERVER }
        } else {
            Destination::Broadcast { from: lease.address }
        };
        if out.is_empty() {
            continue;
        }
        assert_eq!(sent(&out).0, expected);
        messages += 1;
    }
    assert!((2..=8).contains(&messages), "{messages} messages in half a minute");
}

/// RFC 2131 §4.4.5: half of what is left until T2, then until the end; a tenth of so short a lease at least.
#[test]
fn questions_to_a_silent_server_come_closer_not_too_close() {
    let (mut desk, _, _) = Desk::bound();
    let mut asked = Vec::new();
    while desk.client.lease().is_some() {
        let (at, _) = desk.client.poll_timeout().expect("a deadline");
        desk.now = at;
        let mut out = Vec::new();
        desk.client.handle(Event::Tick, desk.now, &mut out);
        if desk.client.lease().is_some() && !out.is_empty() {
            asked.push(desk.elapsed().as_secs());
        }
        assert!(asked.len() < 100, "no tight loop");
    }
    assert_eq!(asked, [30, 41, 47, 52, 58]);
}

#[test]
fn of_two_deadlines_at_once_the_ending_state_gives_the_reason() {
    let (mut desk, out) = Desk::open();
    let bytes = server().handle(&sent(&out).1, desk.now).expect("an offer").bytes;
    let mut offer = DhcpMessage::parse(&bytes).expect("an offer");
    // At T1 a tenth of the lease is left until T2.
    (offer.lease_time, offer.renewal_time, offer.rebinding_time) = (Some(60), Some(46), Some(52));
    desk.receive(&offer.emit());
    offer.message_type = MessageType::Ack;
    desk.receive(&offer.emit());
    desk.wait_for("renewal time");
    let out = desk.wait_for("rebinding time");
    assert_eq!(desk.elapsed(), Duration::from_secs(52));
    assert!(matches!(sent(&out).0, Destination::Broadcast { .. }));
}

#[test]
fn the_shortest_lease_is_taken_and_usual_times_where_none_are() {
    let given = |seconds| {
        let (mut desk, out) = Desk::open();
        let bytes = server().handle(&sent(&out).1, desk.now).expect("an offer").bytes;
        let mut offer = DhcpMessage::parse(&bytes).expect("an offer");
        (offer.lease_time, offer.renewal_time, offer.rebinding_time) = (Some(seconds), None, None);
        desk.receive(&offer.emit());
        offer.message_type = MessageType::Ack;
        desk.receive(&offer.emit());
        desk.client.lease().map(|lease| lease.term)
    };
    let [half, most, lasts] = [2000, 3500, 4000].map(Duration::from_millis);
    assert_eq!(given(4), Some(Term::Limited { renew_after: half, rebind_after: most, lasts }));
    assert_eq!(given(3), None);
}

#[test]
fn any_server_may_answer_when_rebinding() {
    let (mut desk, _, lease) = Desk::bound();
    let mut out = Vec::new();
    desk.now += Duration::from_secs(53);
    desk.client.handle(Event::Tick, desk.now, &mut out);
    let mut other =
        Server::new(Config { address: Ipv4Addr::new(10, 0, 2, 5), ..config() }).expect("a pool in its network");
    let out = desk.answer(&mut other, &out);
    assert_eq!(out, [configured(&Lease { server_id: Ipv4Addr::new(10, 0, 2, 5), ..lease }, desk.now)]);
}

#[test]
fn a_machine_that_slept_through_its_lease_gives_it_up_first() {
    let (mut desk, mut server, _) = Desk::bound();
    let renewal = desk.wait_for("renewal time");
    let late = server.handle(&sent(&renewal).1, desk.now).expect("an answer");
    desk.now += Duration::from_secs(1000);
    let out = desk.receive(&late.bytes);
    assert_eq!(out[..2], [Effect::Report(Report::Expired), Effect::Deconfigure]);
    assert_eq!(out.last(), Some(&Effect::Report(Report::Ignored(IgnoreReason::NotOurs))));
}

#[test]
fn a_client_that_starts_again_goes_on_with_what_the_link_holds() {
    let (desk, _, lease) = Desk::bound();
    let held = HeldLease { lease: lease.clone(), since: desk.now };
    let resume = |after: u64| {
        let now = desk.now + Duration::from_secs(after);
        let mut out = Vec::new();
        let station = Station { mac: mac(1), seed: 8 };
        (Client::resume(station, held.clone(), now, &mut out), out)
    };
    let (client, out) = resume(10);
    assert_eq!(out, [Effect::Configure(held.clone())]);
    assert_eq!(
        client.poll_timeout(),
        Some((desk.now + Duration::from_secs(30), "renewal time")),
        "as if it had lived on"
    );
    // Asked from the address, so the link has it first.
    let (client, out) = resume(40);
    assert_eq!(out[0], Effect::Configure(held.clone()));
    assert_eq!(sent(&out).0, Destination::Unicast { from: lease.address, to: SERVER });
    assert_eq!(client.lease(), Some(&lease));
    let (client, out) = resume(60);
    assert_eq!(out[..2], [Effect::Report(Report::Expired), Effect::Deconfigure]);
    assert_eq!(message(&out).message_type, MessageType::Discover);
    assert_eq!(client.lease(), None);
}

#[test]
fn a_refused_renewal_takes_the_address_away_and_begins_again() {
    let (mut desk, _, _) = Desk::bound();
    let renewal = desk.wait_for("renewal time");
    let mut nak = DhcpMessage::new(MessageType::Nak, message(&renewal).xid, mac(1));
    nak.server_id = Some(Ipv4Addr::new(10, 0, 2, 66));
    assert_eq!(desk.receive(&nak.emit()), ignored(IgnoreReason::ForeignServer));
    assert!(desk.client.lease().is_some());
    nak.server_id = Some(SERVER);
    let out = desk.receive(&nak.emit());
    assert_eq!(out[..2], [Effect::Report(Report::Refused), Effect::Deconfigure]);
    let again = message(&out);
    assert_eq!((again.message_type, again.requested_ip), (MessageType::Discover, None));
}

impl Desk {
    fn carrier(&mut self) -> Vec<Effect> {
        let mut out = Vec::new();
        self.client.handle(Event::Carrier, self.now, &mut out);
        out
    }
}

/// Proves: M12
#[test]
fn a_carrier_that_is_back_has_the_lease_asked_for_at_once() {
    let (mut desk, mut server, lease) = Desk::bound();
    desk.now += Duration::from_secs(10);
    let out = desk.carrier();
    assert_eq!(sent(&out).0, Destination::Broadcast { from: Ipv4Addr::UNSPECIFIED });
    let asked = message(&out);
    assert_eq!((asked.message_type, asked.requested_ip), (MessageType::Request, Some(lease.address)));
    assert_eq!((asked.ciaddr, asked.server_id), (Ipv4Addr::UNSPECIFIED, None));
    assert_eq!(desk.client.lease(), Some(&lease), "it is used meanwhile");
    let since = desk.now;
    assert_eq!(desk.answer(&mut server, &out), [configured(&lease, since)]);
    desk.wait_for("renewal time");
    assert_eq!(desk.elapsed(), Duration::from_secs(40));
    // The other way of being told: it is another network.
    let out = desk.carrier();
    let refusal = nak(&out, STRANGER);
    let out = desk.receive(&refusal);
    assert_eq!(out[..2], [Effect::Report(Report::Refused), Effect::Deconfigure]);
    let again = message(&out);
    assert_eq!((again.message_type, again.requested_ip), (MessageType::Discover, None));
}

/// Proves: M12
#[test]
fn a_lease_that_nobody_confirms_is_kept_and_ends_when_it_ends() {
    let (mut desk, _, lease) = Desk::bound();
    desk.now += Duration::from_secs(1);
    let mut asked = desk.carrier().len();
    while desk.client.poll_timeout().expect("a deadline").1 == "confirm" {
        desk.now = desk.client.poll_timeout().expect("a deadline").0;
        let mut out = Vec::new();
        desk.client.handle(Event::Tick, desk.now, &mut out);
        asked += out.len();
    }
    assert_eq!(asked, 4);
    assert!((10..25).contains(&desk.elapsed().as_secs()), "{:?}", desk.elapsed());
    assert_eq!(desk.client.lease(), Some(&lease));
    desk.wait_for("renewal time");
    assert_eq!(desk.elapsed(), Duration::from_secs(30));
    // At T2 and at the end the clock counts, however often the carrier comes.
    desk.now = desk.begin + Duration::from_millis(51_900);
    desk.carrier();
    let out = desk.wait_for("rebinding time");
    assert!(desk.elapsed() < Duration::from_secs(53), "{:?}", desk.elapsed());
    assert_eq!(sent(&out).0, Destination::Broadcast { from: lease.address }, "rebinding");
    desk.now = desk.begin + Duration::from_secs(60);
    let out = desk.carrier();
    assert_eq!(out[..2], [Effect::Report(Report::Expired), Effect::Deconfigure]);
}

/// Proves: M12
#[test]
fn a_carrier_that_is_back_has_an_address_asked_for_at_once() {
    let (mut desk, _) = Desk::open();
    assert_eq!(desk.carrier(), [], "it has just asked");
    desk.wait_for("discover");
    assert_eq!(message(&desk.carrier()).message_type, MessageType::Discover, "it has asked twice");
    for _ in 0..6 {
        desk.wait_for("discover");
    }
    desk.now += Duration::from_secs(2);
    assert_eq!(message(&desk.carrier()).message_type, MessageType::Discover);
    let (at, _) = desk.client.poll_timeout().expect("a deadline");
    assert!(at <= desk.now + Duration::from_secs(2), "as at first");
}

/// A server of the same link that nobody asked.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 66);

fn nak(question: &[Effect], server: Ipv4Addr) -> Vec<u8> {
    let mut nak = DhcpMessage::new(MessageType::Nak, message(question).xid, mac(1));
    nak.server_id = Some(server);
    nak.emit()
}

#[test]
fn only_the_server_of_the_offer_refuses_a_request() {
    let (mut desk, out) = Desk::open();
    let mut server = server();
    let request = desk.answer(&mut server, &out);
    assert_eq!(desk.receive(&nak(&request, STRANGER)), ignored(IgnoreReason::ForeignServer));
    // The offer still stands.
    assert_eq!(desk.client.poll_timeout().map(|(_, why)| why), Some("request"));
    assert!(matches!(desk.answer(&mut server, &request)[..], [Effect::Configure(_)]));
}

#[test]
fn a_renewal_is_answered_by_its_server_for_the_held_address() {
    let (mut desk, mut server, lease) = Desk::bound();
    let renewal = desk.wait_for("renewal time");
    let right =
        DhcpMessage::parse(&server.handle(&sent(&renewal).1, desk.now).expect("an answer").bytes).expect("an ack");
    let elsewhere = Ipv4Addr::new(10, 0, 2, 77);
    let stranger = DhcpMessage { server_id: Some(STRANGER), ..right.clone() };
    let other = DhcpMessage { yiaddr: elsewhere, ..right.clone() };
    let before = desk.client.poll_timeout();
    assert_eq!(desk.receive(&stranger.emit()), ignored(IgnoreReason::ForeignServer));
    assert_eq!(desk.receive(&other.emit()), ignored(IgnoreReason::OtherAddress(elsewhere)));
    assert_eq!((desk.client.lease(), desk.client.poll_timeout()), (Some(&lease), before), "as if nothing had come");
    assert_eq!(desk.receive(&right.emit()), [configured(&lease, desk.now)]);
}

#[test]
fn any_server_answers_a_rebinding_for_the_held_address_alone() {
    let (mut desk, _, lease) = Desk::bound();
    let mut out = Vec::new();
    desk.now += Duration::from_secs(53);
    desk.client.handle(Event::Tick, desk.now, &mut out);
    let mut other = Server::new(Config { address: STRANGER, ..config() }).expect("a pool in its network");
    let right = DhcpMessage::parse(&other.handle(&sent(&out).1, desk.now).expect("an answer").bytes).expect("an ack");
    let elsewhere = Ipv4Addr::new(10, 0, 2, 77);
    let wrong = DhcpMessage { yiaddr: elsewhere, ..right };
    assert_eq!(desk.receive(&wrong.emit()), ignored(IgnoreReason::OtherAddress(elsewhere)));
    assert_eq!(desk.client.lease(), Some(&lease));
    assert_eq!(desk.receive(&nak(&out, STRANGER))[..2], [Effect::Report(Report::Refused), Effect::Deconfigure]);
}

/// A message that gives this address, in a prefix of so many bits.
fn giving(message: &DhcpMessage, address: [u8; 4], bits: u8) -> DhcpMessage {
    DhcpMessage { yiaddr: address.into(), prefix: Prefix::new(bits), ..message.clone() }
}

fn unfit(why: UnfitLink) -> Vec<Effect> {
    ignored(IgnoreReason::Unfit { server: SERVER, why })
}

fn overlaps(address: [u8; 4], bits: u8, kept: Ipv4Prefix, what: PrefixUse) -> UnfitLink {
    UnfitLink::Overlaps { address: address.into(), bits, kept, what }
}

/// Proves: A7
#[test]
fn an_offer_of_the_clusters_addresses_is_left_for_another() {
    let (mut desk, out) = Desk::open();
    let offer =
        DhcpMessage::parse(&server().handle(&sent(&out).1, desk.now).expect("an offer").bytes).expect("an offer");
    let table = [
        ([10, 9, 0, 1], 17, overlaps([10, 9, 0, 1], 17, vpn(), PrefixUse::Vpn)),
        ([10, 244, 0, 9], 24, overlaps([10, 244, 0, 9], 24, POD_PREFIX, PrefixUse::Pods)),
        ([10, 96, 0, 1], 16, overlaps([10, 96, 0, 1], 16, SERVICE_PREFIX, PrefixUse::Services)),
        ([10, 8, 0, 1], 8, overlaps([10, 8, 0, 1], 8, vpn(), PrefixUse::Vpn)),
        ([192, 0, 2, 1], 0, UnfitLink::Bits { address: Ipv4Addr::new(192, 0, 2, 1), bits: 0 }),
        ([192, 0, 2, 1], 7, UnfitLink::Bits { address: Ipv4Addr::new(192, 0, 2, 1), bits: 7 }),
    ];
    let before = desk.client.poll_timeout();
    for (address, bits, why) in table {
        assert_eq!(desk.receive(&giving(&offer, address, bits).emit()), unfit(why), "{why}");
        assert_eq!(desk.client.poll_timeout(), before, "it goes on asking as it had planned");
    }
    let request = desk.receive(&offer.emit());
    assert_eq!(message(&request).requested_ip, Some(offer.yiaddr), "another server's offer is taken");
}

/// Proves: A7
#[test]
fn an_acknowledgement_that_widens_the_prefix_is_left() {
    let (mut desk, out) = Desk::open();
    let mut server = server();
    let request = desk.answer(&mut server, &out);
    let ack = DhcpMessage::parse(&server.handle(&sent(&request).1, desk.now).expect("an ack").bytes).expect("an ack");
    let given = ack.yiaddr.octets();
    let wide = giving(&ack, given, 8);
    assert_eq!(desk.receive(&wide.emit()), unfit(overlaps(given, 8, vpn(), PrefixUse::Vpn)));
    assert!(desk.client.lease().is_none());
    // As with one that never came: the request is repeated, then another offer is looked for.
    for _ in 1..4 {
        desk.wait_for("request");
        assert_eq!(desk.receive(&wide.emit()), unfit(overlaps(given, 8, vpn(), PrefixUse::Vpn)));
    }
    let out = desk.wait_for("request");
    assert_eq!(out[0], Effect::Report(Report::OfferLost(SERVER)));
    assert_eq!(message(&out).message_type, MessageType::Discover);
}

/// Proves: A7
#[test]
fn a_renewal_that_widens_the_prefix_changes_nothing() {
    let (mut desk, mut server, lease) = Desk::bound();
    let renewal = desk.wait_for("renewal time");
    let right =
        DhcpMessage::parse(&server.handle(&sent(&renewal).1, desk.now).expect("an answer").bytes).expect("an ack");
    let given = right.yiaddr.octets();
    let wide = giving(&right, given, 0);
    let why = UnfitLink::Bits { address: given.into(), bits: 0 };
    assert_eq!(desk.receive(&wide.emit()), unfit(why));
    assert_eq!(desk.client.lease(), Some(&lease));
    assert_eq!(desk.receive(&right.emit()), [configured(&lease, desk.now)]);
}

/// Proves: A7
#[test]
fn a_renewal_is_judged_by_what_the_cluster_keeps_by_then() {
    let (mut desk, mut server, lease) = Desk::bound();
    let renewal = desk.wait_for("renewal time");
    let ack = server.handle(&sent(&renewal).1, desk.now).expect("an answer").bytes;
    let pods = Ipv4Prefix::new(lease.address, 32).expect("a prefix");
    let told = Prefixes { pods, ..Prefixes::of(vpn()) };
    let why = overlaps(lease.address.octets(), lease.prefix.bits(), pods, PrefixUse::Pods);
    assert_eq!(desk.receive_beside(Some(told), &ack), unfit(why));
    assert_eq!(desk.client.lease(), Some(&lease), "until it ends");
    assert_eq!(desk.receive_beside(None, &ack), [configured(&lease, desk.now)], "where nobody keeps any it is fit");
}

/// Proves: A7
#[test]
fn a_resolver_among_the_clusters_addresses_is_left_out_by_name() {
    let (mut desk, out) = Desk::open();
    let [good, of_services, no_host] = [[10, 0, 2, 3], [10, 96, 0, 10], [127, 0, 0, 53]].map(Ipv4Addr::from);
    let mut server =
        Server::new(Config { dns: vec![of_services, no_host, good], ..config() }).expect("a pool in its network");
    let request = desk.answer(&mut server, &out);
    let out = desk.answer(&mut server, &request);
    let why = UnfitLink::Resolver { resolver: of_services, kept: SERVICE_PREFIX, what: PrefixUse::Services };
    assert_eq!(out[0], Effect::Report(Report::LeftOut { server: SERVER, why }));
    let [_, Effect::Configure(HeldLease { lease, .. })] = &out[..] else { panic!("configured, not {out:?}") };
    assert_eq!(lease.dns, [good]);
}

#[test]
fn a_router_that_is_no_neighbour_is_not_taken() {
    let taken = |routers: &[[u8; 4]]| {
        let (mut desk, out) = Desk::open();
        let routers = routers.iter().copied().map(Ipv4Addr::from).collect();
        let mut server = Server::new(Config { routers, ..config() }).expect("a pool in its network");
        let request = desk.answer(&mut server, &out);
        desk.answer(&mut server, &request);
        desk.client.lease().expect("a lease").router
    };
    // The network, its broadcast, the machine itself, the next network, the VPN.
    let none = [[10, 0, 2, 0], [10, 0, 2, 255], [10, 0, 2, 10], [10, 0, 3, 1], [10, 9, 0, 1]];
    assert_eq!(taken(&none), None);
    assert_eq!(taken(&[&none[..], &[[10, 0, 2, 9], [10, 0, 2, 8]]].concat()), Some(Ipv4Addr::new(10, 0, 2, 9)));
}

#[test]
fn a_server_that_refuses_its_own_offers_is_asked_slowly() {
    let (mut desk, mut out) = Desk::open();
    let mut server = server();
    for refusals in 0..5_u32 {
        let request = desk.answer(&mut server, &out);
        let mut nak = DhcpMessage::new(MessageType::Nak, message(&request).xid, mac(1));
        nak.server_id = Some(SERVER);
        assert_eq!(desk.receive(&nak.emit()), [Effect::Report(Report::Refused)]);
        let before = desk.now;
        out = desk.wait_for("discover");
        assert!(desk.now - before >= Duration::from_millis(750) * (1 << refusals));
    }
}

#[test]
fn discovery_backs_off_and_a_lone_offer_is_dropped() {
    let (mut desk, first) = Desk::open();
    let mut before = desk.now;
    for tries in 1..10_u32 {
        let out = desk.wait_for("discover");
        assert_eq!(out[0], Effect::Report(Report::NoAnswer { tries }));
        assert_eq!(message(&out).xid, message(&first).xid);
        let wait = Duration::from_secs(1 << (tries - 1)).min(Duration::from_secs(64));
        assert!((wait * 3 / 4..=wait * 5 / 4).contains(&(desk.now - before)), "try {tries}");
        before = desk.now;
    }
    desk.answer(&mut server(), &first);
    for _ in 1..4 {
        assert_eq!(message(&desk.wait_for("request")).message_type, MessageType::Request);
    }
    let out = desk.wait_for("request");
    assert_eq!(out[0], Effect::Report(Report::OfferLost(SERVER)));
    assert_eq!(message(&out).message_type, MessageType::Discover);
    assert_ne!(message(&out).xid, message(&first).xid);
}

#[test]
fn answers_that_do_not_belong_are_ignored_by_name() {
    type Edit = fn(&mut DhcpMessage);
    let (mut desk, out) = Desk::open();
    let offer =
        DhcpMessage::parse(&server().handle(&sent(&out).1, desk.now).expect("an offer").bytes).expect("an offer");
    let table: [(Edit, IgnoreReason); 10] = [
        (|offer| offer.xid ^= 1, IgnoreReason::NotOurs),
        (|offer| offer.chaddr = mac(9), IgnoreReason::NotOurs),
        (|offer| offer.server_id = None, IgnoreReason::NoServer),
        (|offer| offer.server_id = Some(Ipv4Addr::BROADCAST), IgnoreReason::NoServer),
        (|offer| offer.message_type = MessageType::Ack, IgnoreReason::Unexpected(MessageType::Ack)),
        (|offer| offer.message_type = MessageType::Nak, IgnoreReason::Unexpected(MessageType::Nak)),
        (|offer| offer.prefix = None, IgnoreReason::Unusable),
        (|offer| offer.lease_time = Some(0), IgnoreReason::Unusable),
        (|offer| offer.yiaddr = Ipv4Addr::new(10, 0, 2, 255), IgnoreReason::Unusable),
        (|offer| offer.yiaddr = Ipv4Addr::LOCALHOST, IgnoreReason::Unusable),
    ];
    for (index, (edit, why)) in table.into_iter().enumerate() {
        let mut wrong = offer.clone();
        edit(&mut wrong);
        assert_eq!(desk.receive(&wrong.emit()), ignored(why), "row {index}");
    }
    let request = desk.receive(&offer.emit());
    let mut ack = DhcpMessage { message_type: MessageType::Ack, ..offer };
    ack.server_id = Some(Ipv4Addr::new(10, 0, 2, 66));
    assert_eq!(desk.receive(&ack.emit()), ignored(IgnoreReason::ForeignServer));
    ack.server_id = message(&request).server_id;
    ack.yiaddr = Ipv4Addr::new(10, 0, 2, 77);
    assert_eq!(desk.receive(&ack.emit()), ignored(IgnoreReason::OtherAddress(ack.yiaddr)));
    assert!(desk.client.lease().is_none());
}

#[test]
fn odd_times_give_way_and_a_lease_for_ever_has_no_deadline() {
    for (lease, t1, t2, renew_after) in [
        (80, 70, 60, Some(40)),
        (80, 60, 60, Some(40)),
        (80, 0, 60, Some(40)),
        (80, 10, 80, Some(40)),
        (80, 10, 20, Some(10)),
    ]
    .into_iter()
    .chain([(u32::MAX, 10, 20, None)])
    {
        let (mut desk, out) = Desk::open();
        let bytes = server().handle(&sent(&out).1, desk.now).expect("an offer").bytes;
        let mut offer = DhcpMessage::parse(&bytes).expect("an offer");
        (offer.lease_time, offer.renewal_time, offer.rebinding_time) = (Some(lease), Some(t1), Some(t2));
        desk.receive(&offer.emit());
        offer.message_type = MessageType::Ack;
        desk.receive(&offer.emit());
        let due = desk.client.poll_timeout().map(|(at, _)| (at - desk.now).as_secs());
        assert_eq!(due, renew_after, "{lease} {t1} {t2}");
    }
}
