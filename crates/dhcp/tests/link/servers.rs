//! The server by hand: what it gives, to whom, and where its answers go.

use super::*;

#[test]
fn the_server_keeps_its_pool_and_its_word() {
    let now = testkit::origin();
    let mut server = Server::new(Config { last: config().first, ..config() }).expect("a pool of one");
    let discover = |last| DhcpMessage::new(MessageType::Discover, 1, mac(last)).emit();
    assert!(server.handle(&discover(1), now).is_some());
    assert_eq!(server.handle(&discover(2), now), None, "the only address is offered");
    assert!(server.handle(&discover(2), now + Duration::from_secs(10)).is_some(), "the offer was not taken");
    let mut elsewhere = DhcpMessage::new(MessageType::Request, 1, mac(2));
    elsewhere.requested_ip = Some(config().first);
    elsewhere.server_id = Some(Ipv4Addr::new(10, 0, 2, 66));
    assert_eq!(server.handle(&elsewhere.emit(), now), None, "another server's offer was taken");
    assert_eq!(server.leases().count(), 0);
    let mut foreign = DhcpMessage::new(MessageType::Request, 1, mac(3));
    foreign.ciaddr = Ipv4Addr::new(192, 168, 0, 9);
    let nak = server.handle(&foreign.emit(), now).expect("a refusal");
    assert_eq!(nak.destination, Ipv4Addr::BROADCAST);
    assert_eq!(DhcpMessage::parse(&nak.bytes).expect("a refusal").message_type, MessageType::Nak);

    let [network, broadcast, outside] = [[10, 0, 2, 0], [10, 0, 2, 255], [10, 0, 3, 9]].map(Ipv4Addr::from);
    for (first, last) in [(network, config().last), (config().first, broadcast), (config().first, outside)] {
        assert_eq!(Server::new(Config { first, last, ..config() }).err(), Some(InvalidConfig::Pool { first, last }));
    }
    let nobody = Config { address: Ipv4Addr::new(10, 0, 2, 0), ..config() };
    assert_eq!(Server::new(nobody).err(), Some(InvalidConfig::Address(Ipv4Addr::new(10, 0, 2, 0))));
}

#[test]
fn a_released_address_is_free_and_a_declined_one_is_not_given() {
    let now = testkit::origin();
    let one = Config { last: config().first, ..config() };
    let mut server = Server::new(one.clone()).expect("a pool of one");
    let discover = |last| DhcpMessage::new(MessageType::Discover, 1, mac(last)).emit();
    let about = |kind, last, server_id| {
        let mut message = DhcpMessage::new(kind, 1, mac(last));
        (message.ciaddr, message.requested_ip, message.server_id) = (one.first, Some(one.first), Some(server_id));
        message.emit()
    };
    let holders = |server: &Server| server.leases().map(|(_, mac)| mac).collect::<Vec<_>>();
    assert!(server.handle(&about(MessageType::Request, 1, SERVER), now).is_some());
    for (what, of, at) in [(MessageType::Release, 2, SERVER), (MessageType::Release, 1, STRANGER)] {
        assert_eq!(server.handle(&about(what, of, at), now), None);
        assert_eq!(holders(&server), [mac(1)], "given back by somebody else, or to another server");
    }
    assert_eq!(server.handle(&about(MessageType::Release, 1, SERVER), now), None);
    assert_eq!(holders(&server), []);
    assert!(server.handle(&about(MessageType::Request, 2, SERVER), now).is_some(), "free for the next");
    for (of, at) in [(1, SERVER), (2, STRANGER)] {
        assert_eq!(server.handle(&about(MessageType::Decline, of, at), now), None);
        assert_eq!(holders(&server), [mac(2)], "declined by somebody else, or another server's");
    }
    assert_eq!(server.handle(&about(MessageType::Decline, 2, SERVER), now), None);
    assert_eq!(holders(&server), []);
    let lease = Duration::from_secs(LEASE.into());
    assert_eq!(server.handle(&discover(1), now + lease - Duration::from_secs(1)), None, "in use by a stranger");
    assert!(server.handle(&discover(1), now + lease).is_some(), "asked again after a lease's time");

    let mut own = Server::new(Config { first: SERVER, last: SERVER, ..config() }).expect("a pool in its network");
    assert_eq!(own.handle(&discover(1), now), None, "its own address is nobody's");
    let (first, last) = (config().last, config().first);
    assert_eq!(Server::new(Config { first, last, ..config() }).err(), Some(InvalidConfig::Pool { first, last }));
}

#[test]
fn an_answer_goes_where_the_client_hears_it() {
    let now = testkit::origin();
    let mut server = Server::new(Config { lease_seconds: u32::MAX, ..config() }).expect("a pool in its network");
    let mut discover = DhcpMessage::new(MessageType::Discover, 1, mac(1));
    let offer = server.handle(&discover.emit(), now).expect("an offer");
    assert_eq!((offer.mac, offer.destination), (mac(1), config().first));
    let said = DhcpMessage::parse(&offer.bytes).expect("an offer");
    assert_eq!((said.lease_time, said.renewal_time, said.rebinding_time), (Some(u32::MAX), None, None));
    discover.broadcast = true;
    let offer = server.handle(&discover.emit(), now).expect("an offer");
    assert_eq!((offer.mac, offer.destination), (HardwareAddress::BROADCAST, Ipv4Addr::BROADCAST));
    assert!(DhcpMessage::parse(&offer.bytes).expect("an offer").broadcast, "as it was asked");
    let mut with_address = discover.clone();
    with_address.ciaddr = config().last;
    let offer = server.handle(&with_address.emit(), now).expect("an offer");
    assert_eq!((offer.mac, offer.destination), (mac(1), config().last));
    let said = DhcpMessage::parse(&offer.bytes).expect("an offer");
    assert_eq!((said.ciaddr, said.yiaddr), (Ipv4Addr::UNSPECIFIED, config().first), "an offer is of no address in use");
    // Through a relay it is somebody else's network.
    discover.giaddr = Ipv4Addr::new(10, 0, 2, 1);
    assert_eq!(server.handle(&discover.emit(), now), None);
    let mut wish = DhcpMessage::new(MessageType::Discover, 1, mac(2));
    wish.requested_ip = Some(config().last);
    let offer = server.handle(&wish.emit(), now).expect("an offer");
    assert_eq!(DhcpMessage::parse(&offer.bytes).expect("an offer").yiaddr, config().last, "a free wish is granted");
    let mut request = DhcpMessage::new(MessageType::Request, 1, mac(2));
    (request.requested_ip, request.server_id) = (Some(config().last), Some(SERVER));
    assert!(server.handle(&request.emit(), now).is_some());
    let later = DhcpMessage::new(MessageType::Discover, 1, mac(3));
    assert!(server.handle(&later.emit(), now + Duration::from_secs(1 << 30)).is_some());
    let held: Vec<_> = server.leases().collect();
    assert_eq!(held, [(config().first, mac(3)), (config().last, mac(2))], "an offer ends, a lease for ever does not");
}

#[test]
fn a_client_that_takes_another_address_gives_up_the_one_it_had() {
    let now = testkit::origin();
    let mut server = server();
    server.remember(config().first, mac(1), now);
    let mut request = DhcpMessage::new(MessageType::Request, 1, mac(1));
    request.requested_ip = Some(config().last);
    let ack = server.handle(&request.emit(), now).expect("an answer");
    assert_eq!(DhcpMessage::parse(&ack.bytes).expect("an answer").message_type, MessageType::Ack);
    assert_eq!(server.leases().collect::<Vec<_>>(), [(config().last, mac(1))]);
}

#[test]
fn a_reserved_address_is_for_one_client_and_its_only_one() {
    let now = testkit::origin();
    let mut server = server();
    let [one, two] = [config().first, Ipv4Addr::new(10, 0, 2, 11)];
    server.reserve(one, mac(1));
    server.reserve(two, mac(2));
    let offered = |server: &mut Server, last, wish| {
        let mut discover = DhcpMessage::new(MessageType::Discover, 1, mac(last));
        discover.requested_ip = wish;
        DhcpMessage::parse(&server.handle(&discover.emit(), now).expect("an offer").bytes).expect("an offer").yiaddr
    };
    assert_eq!(offered(&mut server, 2, Some(one)), two, "another one's, though nobody holds it");
    assert_eq!(offered(&mut server, 3, None), Ipv4Addr::new(10, 0, 2, 12), "the first that is nobody's");
    assert_eq!(offered(&mut server, 1, Some(config().last)), one, "its own, whatever it would like");
    let mut request = DhcpMessage::new(MessageType::Request, 1, mac(4));
    request.requested_ip = Some(two);
    let refused = server.handle(&request.emit(), now).expect("a refusal");
    assert_eq!(DhcpMessage::parse(&refused.bytes).expect("a refusal").message_type, MessageType::Nak);
    assert_eq!((server.reservation(mac(1)), server.reservation(mac(3))), (Some(one), None));
}

#[test]
fn a_client_of_an_earlier_run_is_known_until_its_lease_ends() {
    let now = testkit::origin();
    let mut server = server();
    server.remember(config().first, mac(1), now);
    assert_eq!(server.leases().collect::<Vec<_>>(), [(config().first, mac(1))]);
    let late = now + Duration::from_secs(LEASE.into());
    let offer = server.handle(&DhcpMessage::new(MessageType::Discover, 1, mac(2)).emit(), late).expect("an offer");
    assert_eq!(DhcpMessage::parse(&offer.bytes).expect("an offer").yiaddr, config().first);
}
