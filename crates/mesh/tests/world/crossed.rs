//! Two copies that begin new sessions at the same moment: their initiations cross, and each waits for an answer that the other one
//! has no use for. Both kernels are played as far as handshakes go.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

/// Event of the two machines' world, at so many milliseconds.
type Due = Reverse<(u64, usize, Happens)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// The machine is a copy from now on.
    Copied,
    /// A program of the machine sends the other one a packet.
    Sends,
    /// A deadline of its mesh may be due.
    Looks,
    /// The machine's kernel shakes hands again, unless this try is not the last one any more.
    Retries(u64),
    Arrives(Packet),
}

/// Packet from the other machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Packet {
    Initiation(u64),
    /// To the initiation with this number, which is the session's from then on.
    Response(u64),
    /// By this session; an echo that is asked for, or one that is back.
    Data(u64, Carried),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Carried {
    Nothing,
    Asked,
    Back,
}

/// Machine with its mesh, and the other one as its kernel has it (`drivers/net/wireguard/noise.c`, `timers.c`).
struct Side {
    mesh: Mesh,
    own: u8,
    peer: FoundPeer,
    /// Own initiation that is not answered yet; another one's takes its place.
    initiated: Option<u64>,
    /// When an initiation was sent last, and its number.
    last: Option<(u64, u64)>,
    /// Session that packets leave by.
    current: Option<u64>,
    /// Session that the other one began, and has not used yet.
    next: Option<u64>,
    queued: Vec<Carried>,
    /// Milliseconds that a retry is late by (`REKEY_TIMEOUT_JITTER_MAX_JIFFIES`).
    jitter: u64,
    /// When the other one's packets first came by a new session.
    in_touch: Option<u64>,
}

struct Pair {
    sides: [Side; 2],
    due: BinaryHeap<Due>,
    origin: Instant,
    now: u64,
    latency: u64,
    numbers: u64,
}

impl Side {
    /// In touch with the other one by now.
    fn new(own: u8, other: u8, origin: Instant, jitter: u64) -> Self {
        let named = peer(other, other, None, &[HOME]);
        let shaken = Counters { sent: 500, received: 500, handshake: NonZeroU64::new(1) };
        let peer = FoundPeer { endpoint: Some(at(HOME)), allowed: named.allowed(), counters: shaken };
        let found = |peer: &FoundPeer| KernelState {
            peers: BTreeMap::from([(named.key, peer.clone())]),
            ..KernelState::default()
        };
        let mut mesh = Mesh::start(VpnPubKey([own; 32]), Prefixes::of(VPN_PREFIX), found(&peer), origin);
        let mut effects = Vec::new();
        mesh.handle(Event::Peers(BTreeMap::from([(MachineId([other; 16]), named.clone())])), origin, &mut effects);
        mesh.handle(Event::Echoed(Echo { vpn_ip: named.vpn_ip, size: 28 }), origin, &mut effects);
        mesh.handle(Event::Looked(found(&peer)), origin, &mut effects);
        Self {
            mesh,
            own,
            peer,
            initiated: None,
            last: None,
            current: None,
            next: None,
            queued: vec![],
            jitter,
            in_touch: None,
        }
    }
}

impl Pair {
    fn later(&mut self, milliseconds: u64, side: usize, happens: Happens) {
        self.due.push(Reverse((self.now + milliseconds, side, happens)));
    }

    fn send(&mut self, from: usize, packet: Packet) {
        self.sides[from].peer.counters.sent += 92;
        self.later(self.latency, 1 - from, Happens::Arrives(packet));
    }

    /// A packet leaves by the current session, or waits for one.
    fn carry(&mut self, side: usize, carried: Carried) {
        match self.sides[side].current {
            Some(session) => self.send(side, Packet::Data(session, carried)),
            None => {
                self.sides[side].queued.push(carried);
                if self.sides[side].last.is_none_or(|(at, _)| at + 5_000 <= self.now) {
                    self.initiate(side);
                }
            }
        }
    }

    fn initiate(&mut self, side: usize) {
        self.numbers += 1;
        let number = self.numbers;
        (self.sides[side].initiated, self.sides[side].last) = (Some(number), Some((self.now, number)));
        self.send(side, Packet::Initiation(number));
        self.later(5_000 + self.sides[side].jitter, side, Happens::Retries(number));
    }

    fn begin(&mut self, side: usize, session: u64) {
        let it = &mut self.sides[side];
        (it.current, it.next, it.initiated) = (Some(session), None, None);
        it.peer.counters.handshake = NonZeroU64::new(self.now + 2);
        for carried in std::mem::take(&mut it.queued) {
            self.carry(side, carried);
        }
    }

    fn arrives(&mut self, side: usize, packet: Packet) {
        match packet {
            Packet::Initiation(number) => {
                self.sides[side].peer.counters.received += 148;
                // In place of its own.
                (self.sides[side].initiated, self.sides[side].next) = (None, Some(number));
                self.send(side, Packet::Response(number));
            }
            Packet::Response(number) if self.sides[side].initiated == Some(number) => {
                self.sides[side].peer.counters.received += 92;
                self.begin(side, number);
                self.carry(side, Carried::Nothing);
            }
            Packet::Response(_) => {}
            Packet::Data(session, carried) => {
                if self.sides[side].next == Some(session) {
                    self.begin(side, session);
                }
                if self.sides[side].current != Some(session) {
                    return;
                }
                self.sides[side].peer.counters.received += 32;
                self.sides[side].in_touch.get_or_insert(self.now);
                match carried {
                    Carried::Nothing => {}
                    Carried::Asked => self.carry(side, Carried::Back),
                    Carried::Back => {
                        let vpn_ip = [10, 118, 0, self.sides[1 - side].own].into();
                        self.tell(side, Event::Echoed(Echo { vpn_ip, size: 28 }));
                    }
                }
            }
        }
    }

    fn tell(&mut self, side: usize, event: Event) {
        let mut effects = Vec::new();
        let now = self.origin + Duration::from_millis(self.now);
        self.sides[side].mesh.handle(event, now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Configure(changes) => changes.iter().for_each(|change| self.configure(side, change)),
                Effect::Echo(_) => self.carry(side, Carried::Asked),
                Effect::Look => {
                    let key = VpnPubKey([self.sides[1 - side].own; 32]);
                    let peers = BTreeMap::from([(key, self.sides[side].peer.clone())]);
                    self.tell(side, Event::Looked(KernelState { peers, ..KernelState::default() }));
                }
                Effect::Route(_) | Effect::Report(_) | Effect::Learnt(..) | Effect::Heard(_) => {}
            }
        }
    }

    fn configure(&mut self, side: usize, change: &PeerChange) {
        let it = &mut self.sides[side];
        match change {
            PeerChange::Remove(_) => {
                it.peer.counters = Counters::default();
                (it.initiated, it.last, it.current, it.next) = (None, None, None, None);
                it.queued.clear();
            }
            PeerChange::Set { .. } => {}
            PeerChange::Move { endpoint, .. } => panic!("it goes to {endpoint}"),
        }
    }

    /// Both become copies, the second one so many milliseconds behind the first, and send something 3 ms later. When each has heard the other,
    /// of those that have within `until`.
    fn in_touch(latency: u64, behind: u64, jitters: [u64; 2], is_told: bool, until: u64) -> [Option<u64>; 2] {
        let origin = testkit::origin();
        let sides = [Side::new(1, 2, origin, jitters[0]), Side::new(2, 1, origin, jitters[1])];
        let mut pair = Self { sides, due: BinaryHeap::new(), origin, now: 0, latency, numbers: 0 };
        for (side, begins) in [(0, 0), (1, behind)] {
            if is_told {
                pair.later(begins, side, Happens::Copied);
            }
            pair.later(begins + 3, side, Happens::Sends);
            pair.later(begins + 10, side, Happens::Looks);
        }
        while let Some(Reverse((at, side, happens))) = pair.due.pop().filter(|Reverse((at, ..))| *at <= until) {
            pair.now = at;
            match happens {
                Happens::Copied => pair.tell(side, Event::Copied { kernel_is_told: true }),
                Happens::Sends => pair.carry(side, Carried::Nothing),
                Happens::Looks => {
                    pair.tell(side, Event::Tick);
                    pair.later(10, side, Happens::Looks);
                }
                Happens::Retries(number) => {
                    let it = &pair.sides[side];
                    if it.current.is_none() && it.last.is_some_and(|(_, last)| last == number) {
                        pair.initiate(side);
                    }
                }
                Happens::Arrives(packet) => pair.arrives(side, packet),
            }
        }
        pair.sides.map(|side| side.in_touch)
    }
}

/// By themselves two kernels are out of touch for five seconds, and again where the next tries cross.
#[test]
fn initiations_that_cross_cost_five_seconds_each_time() {
    let by_themselves = |jitters, until| Pair::in_touch(20, 5, jitters, false, until);
    assert_eq!(by_themselves([100, 300], 5_100), [None, None]);
    assert!(by_themselves([100, 300], 5_300).iter().all(Option::is_some));
    assert_eq!(by_themselves([100, 105], 10_100), [None, None]);
}

proptest! {
    /// Proves: S13
    #[test]
    fn two_copies_are_in_touch_soon_whatever_crosses(
        latency in 1..100_u64, behind in 0..1_000_u64, jitters in [0..333_u64, 0..333_u64],
    ) {
        let touched = Pair::in_touch(latency, behind, jitters, true, 2_500);
        prop_assert!(touched.iter().all(Option::is_some), "{:?}", touched);
    }
}
