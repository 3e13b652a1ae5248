//! Several clients and a server on a link that loses, repeats, delays and damages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Fate of a message on the link.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Arrives(u64),
    Lost,
    Twice(u64, u64),
    Damaged(usize),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => (0_u64..3000).prop_map(Fate::Arrives),
        3 => Just(Fate::Lost),
        2 => (0_u64..3000, 0_u64..9000).prop_map(|(one, other)| Fate::Twice(one, other)),
        1 => (0_usize..300).prop_map(Fate::Damaged),
    ]
}

#[derive(Debug, Clone)]
enum Packet {
    ToServer(Vec<u8>),
    ToClient(usize, Vec<u8>),
}

struct Link {
    now: Instant,
    server: Server,
    /// The server does not answer from here to there, and has forgotten all leases when it comes back.
    away: (Instant, Instant),
    clients: Vec<Client>,
    configured: Vec<Option<HeldLease>>,
    agenda: BTreeMap<(Instant, u64), Packet>,
    sequence: u64,
    fates: Vec<Fate>,
    calm_from: Instant,
}

impl Link {
    fn carry(&mut self, packet: Packet) {
        self.sequence += 1;
        let index = usize::try_from(self.sequence).expect("few packets");
        let fate = if self.now >= self.calm_from { Fate::Arrives(1) } else { self.fates[index % self.fates.len()] };
        let mut put = |after: u64, packet: Packet| {
            self.sequence += 1;
            self.agenda.insert((self.now + Duration::from_millis(after), self.sequence), packet);
        };
        match fate {
            Fate::Lost => {}
            Fate::Arrives(after) => put(after, packet),
            Fate::Twice(one, other) => {
                put(one, packet.clone());
                put(other, packet);
            }
            Fate::Damaged(at) => put(
                1,
                match packet {
                    Packet::ToServer(bytes) => Packet::ToServer(damage(bytes, at)),
                    Packet::ToClient(index, bytes) => Packet::ToClient(index, damage(bytes, at)),
                },
            ),
        }
    }

    fn run(&mut self, until: Instant) {
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 100_000, "no tight loop");
            let due =
                self.clients.iter().enumerate().filter_map(|(index, client)| Some((client.poll_timeout()?.0, index)));
            let due = due.min();
            let packet = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            match (packet, due) {
                (Some(at), due) if due.is_none_or(|(due, _)| at < due) => {
                    if at > until {
                        return;
                    }
                    self.now = at;
                    let (_, packet) = self.agenda.pop_first().expect("looked at above");
                    self.arrive(packet);
                }
                (_, Some((at, index))) => {
                    if at > until {
                        return;
                    }
                    self.now = at;
                    self.tell(index, Event::Tick);
                }
                (_, None) => return,
            }
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::ToServer(bytes) => {
                if self.now >= self.away.0 && self.now < self.away.1 {
                    self.server = server();
                    return;
                }
                if let Some(reply) = self.server.handle(&bytes, self.now) {
                    let receivers = (0..self.clients.len())
                        .filter(|&index| reply.mac == HardwareAddress::BROADCAST || reply.mac == station(index));
                    for index in receivers {
                        self.carry(Packet::ToClient(index, reply.bytes.clone()));
                    }
                }
            }
            Packet::ToClient(index, bytes) => {
                self.tell(index, Event::Received { payload: &bytes, kept: Some(Prefixes::of(vpn())) })
            }
        }
    }

    fn tell(&mut self, index: usize, event: Event<'_>) {
        let mut out = Vec::new();
        self.clients[index].handle(event, self.now, &mut out);
        self.perform(index, out);
    }

    /// The client's shell failed and starts again: of the lease there is what was configured, of the client nothing.
    fn restart(&mut self, index: usize, seed: u64) {
        let mut out = Vec::new();
        let station = Station { mac: station(index), seed };
        self.clients[index] = match self.configured[index].clone() {
            Some(held) => Client::resume(station, held, self.now, &mut out),
            None => Client::start(station, self.now, &mut out),
        };
        self.perform(index, out);
    }

    fn perform(&mut self, index: usize, out: Vec<Effect>) {
        for effect in out {
            match effect {
                Effect::Send { to, bytes } => {
                    let from = match to {
                        Destination::Broadcast { from } | Destination::Unicast { from, .. } => from,
                    };
                    let own = self.configured[index].as_ref().map_or(Ipv4Addr::UNSPECIFIED, |held| held.lease.address);
                    // But for the question whether that one is good here.
                    let asked = DhcpMessage::parse(&bytes).expect("our own message");
                    let confirms = asked.requested_ip == Some(own) && asked.ciaddr.is_unspecified();
                    let expected = if confirms { Ipv4Addr::UNSPECIFIED } else { own };
                    assert_eq!(from, expected, "sent from the address it has");
                    self.carry(Packet::ToServer(bytes));
                }
                Effect::Configure(held) => self.configured[index] = Some(held),
                Effect::Deconfigure => {
                    assert!(self.configured[index].take().is_some(), "only what was given is taken away");
                }
                Effect::Report(_) => {}
            }
        }
        let present = self.configured[index].as_ref().map(|held| &held.lease);
        assert_eq!(present, self.clients[index].lease(), "the link has what the client says");
        if let Some(HeldLease { lease: Lease { term: Term::Limited { lasts, .. }, .. }, since }) =
            &self.configured[index]
        {
            assert!(self.now < *since + *lasts, "a lease is never used after its end");
        }
    }
}

fn damage(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    // Only where a wrong byte is seen: the fixed fields up to the client's address, or the magic number.
    let at = [0, 1, 2, 5, 28, 33, 236, 238][at % 8];
    bytes[at] ^= 0x55;
    bytes
}

fn station(index: usize) -> HardwareAddress {
    mac(u8::try_from(index + 1).expect("few clients"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A lease is not used after its end and no two clients have one address while the server remembers, on any link
    /// and with any server; when they behave again, every client has a lease soon and keeps it. Clients that start
    /// again, as often as they like, and links that lose and find their carrier, change nothing of that.
    #[test]
    fn clients_keep_to_their_leases_on_a_bad_link(
        seed: u64,
        count in 1_usize..5,
        fates in proptest::collection::vec(fate(), 1..60),
        away in (0_u64..200, 0_u64..200),
        forgets: bool,
        restarts in proptest::collection::vec((0_usize..80, 0_usize..5), 0..12),
        carriers in proptest::collection::vec((0_usize..80, 0_usize..5), 0..12),
    ) {
        let begin = testkit::origin();
        let seconds = Duration::from_secs;
        let away = if forgets { (begin + seconds(away.0), begin + seconds(away.0 + away.1)) } else { (begin, begin) };
        let mut link = Link {
            now: begin,
            server: server(),
            away,
            clients: Vec::new(),
            configured: vec![None; count],
            agenda: BTreeMap::new(),
            sequence: 0,
            fates,
            calm_from: begin + seconds(400),
        };
        for index in 0..count {
            let mut out = Vec::new();
            link.clients.push(client(station(index), seed.wrapping_add(index as u64), begin, &mut out));
            link.perform(index, out);
        }
        let distinct = |link: &Link| {
            let mut addresses: Vec<Ipv4Addr> =
                link.configured.iter().flatten().map(|held| held.lease.address).collect();
            addresses.sort_unstable();
            addresses.windows(2).all(|pair| pair[0] != pair[1])
        };
        for (step, second) in (0..400).step_by(5).enumerate() {
            link.run(begin + seconds(second));
            link.now = begin + seconds(second);
            for &(_, index) in restarts.iter().filter(|(at, index)| *at == step && *index < count) {
                link.restart(index, seed ^ second);
            }
            for &(_, index) in carriers.iter().filter(|(at, index)| *at == step && *index < count) {
                link.tell(index, Event::Carrier);
            }
            prop_assert!(forgets || distinct(&link), "two clients with one address");
        }
        // The longest wait of a client that has been alone for long, and a lease's length for what was forgotten.
        link.run(begin + seconds(400 + 80 + u64::from(LEASE) + 20));
        let after: Vec<_> = link.configured.iter().map(|given| given.as_ref().map(|held| held.lease.clone())).collect();
        prop_assert!(after.iter().all(Option::is_some), "every client has a lease: {after:?}");
        prop_assert!(distinct(&link));
        link.run(begin + seconds(2000));
        let later: Vec<_> = link.configured.iter().map(|given| given.as_ref().map(|held| held.lease.clone())).collect();
        prop_assert_eq!(after, later, "kept by renewing");
    }

    /// Garbage changes nothing: the client's next step is the one it had planned.
    #[test]
    fn garbage_moves_no_client(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (mut desk, _) = Desk::open();
        let before = desk.client.poll_timeout();
        let out = desk.receive(&bytes);
        prop_assert!(matches!(out[..], [Effect::Report(Report::Ignored(_))]));
        prop_assert_eq!(desk.client.poll_timeout(), before);
        prop_assert_eq!(server().handle(&bytes, desk.now), None);
    }
}
