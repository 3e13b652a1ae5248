//! The mesh against a kernel in memory, and machines that answer at some of their endpoints, by links that carry or do not.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use mesh::kernel::{Counters, FoundPeer, KernelState, PeerChange, Route, UplinkRoute, Way};
use mesh::peer::MeshPeer;
use mesh::surroundings::Surroundings;
use mesh::{Echo, Effect, Event, Mesh};
use model::{Ipv4Prefix, MachineId, Prefixes, VPN_PREFIX, VpnPubKey, pod_prefix};
use proptest::prelude::*;

mod astray;
mod copied;
mod crossed;
mod replayed;
mod tries;
mod uplinks;

const OWN: VpnPubKey = VpnPubKey([0xff; 32]);
/// Links of the machine.
const ONE: u32 = 2;
const TWO: u32 = 3;
const THREE: u32 = 4;
/// So often WireGuard shakes hands again with who does not answer (`REKEY_TIMEOUT`), and for so long (`REKEY_ATTEMPT_TIME`).
const AGAIN: Duration = Duration::from_secs(5);
const GIVEN_UP: Duration = Duration::from_secs(90);

/// A kernel, the clock, and where machines answer.
struct World {
    mesh: Mesh,
    kernel: KernelState,
    began: Instant,
    now: Instant,
    /// Which endpoint of which key has somebody who answers.
    answers: BTreeSet<(VpnPubKey, SocketAddrV4)>,
    /// Keys that somebody sends to all the time.
    wanted: BTreeSet<VpnPubKey>,
    /// Keys whose machines send all the time, and are answered by nothing but themselves.
    tell: BTreeSet<VpnPubKey>,
    /// Routes of the kernel by each link while that has a carrier.
    links: BTreeMap<u32, Vec<UplinkRoute>>,
    /// Links that have one.
    carriers: BTreeSet<u32>,
    /// Links from which nothing comes back, and nobody says so.
    dead: BTreeSet<u32>,
    /// Until when WireGuard shakes hands again and again with whoever does not answer, and when next.
    tries: BTreeMap<VpnPubKey, (Instant, Instant)>,
    /// How large packets may be to those where it is less than any.
    narrow: BTreeMap<VpnPubKey, u16>,
    echoes: Vec<Echo>,
    messages: Vec<Vec<PeerChange>>,
    routes: Vec<Route>,
    reports: usize,
    /// Machines that stay where nobody names them, as they were learnt.
    learnt: Vec<(MachineId, SocketAddrV4)>,
    /// Machines that were said to be there, by when.
    heard: Vec<BTreeMap<MachineId, Instant>>,
}

impl World {
    fn new() -> Self {
        Self::with_links(&[ONE])
    }

    /// Each with a default route, the first with the lowest metric.
    fn with_links(links: &[u32]) -> Self {
        let now = testkit::origin();
        let everything = Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 0).expect("a prefix");
        let route = |link: u32| UplinkRoute { to: everything, metric: 100 + link, way: way(link) };
        let mut world = Self {
            mesh: Mesh::start(OWN, Prefixes::of(VPN_PREFIX), KernelState::default(), now),
            kernel: KernelState::default(),
            began: now,
            now,
            links: links.iter().map(|link| (*link, vec![route(*link)])).collect(),
            carriers: BTreeSet::new(),
            dead: BTreeSet::new(),
            answers: BTreeSet::new(),
            wanted: BTreeSet::new(),
            tell: BTreeSet::new(),
            tries: BTreeMap::new(),
            narrow: BTreeMap::new(),
            echoes: Vec::new(),
            messages: Vec::new(),
            routes: Vec::new(),
            reports: 0,
            learnt: Vec::new(),
            heard: Vec::new(),
        };
        links.iter().for_each(|link| world.carrier(*link, true));
        world
    }

    /// A link gets or loses its carrier: the kernel forgets nothing, but passes over what cannot be used.
    fn carrier(&mut self, link: u32, up: bool) {
        if up {
            self.carriers.insert(link)
        } else {
            self.carriers.remove(&link)
        };
        let used = self.links.iter().filter(|(link, _)| self.carriers.contains(link));
        self.kernel.uplinks = used.flat_map(|(_, routes)| routes.clone()).collect();
        self.handle(Event::LinksChanged);
    }

    /// By which link packets to an address leave.
    fn leaves_by(&self, address: Ipv4Addr) -> Option<u32> {
        let detour = self.kernel.detours.get(&address).map(|way| way.link);
        let mut best: Option<&UplinkRoute> = None;
        for route in self.kernel.uplinks.iter().filter(|route| route.to.contains(address)) {
            let is_better = |best: &UplinkRoute| {
                route.to.bits() > best.to.bits() || route.to.bits() == best.to.bits() && route.metric < best.metric
            };
            if best.is_none_or(is_better) {
                best = Some(route);
            }
        }
        detour.filter(|link| self.carriers.contains(link)).or(best.map(|route| route.way.link))
    }

    /// Whether what goes to this key at this endpoint is answered.
    fn is_answered(&self, key: VpnPubKey, endpoint: SocketAddrV4) -> bool {
        let carries = self.leaves_by(*endpoint.ip()).is_some_and(|link| !self.dead.contains(&link));
        carries && self.answers.contains(&(key, endpoint))
    }

    fn handle(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.mesh.handle(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Configure(message) => self.configure(message),
                Effect::Route(route) => {
                    match route {
                        Route::Set(to, limit) => {
                            assert_ne!(self.kernel.routes.insert(to, limit), Some(limit), "it was so");
                        }
                        Route::Remove(to) => assert!(self.kernel.routes.remove(&to).is_some(), "it was not there"),
                        Route::Detour(to, way) => {
                            assert_ne!(self.kernel.detours.insert(to, way), Some(way), "it was so");
                        }
                        Route::Return(to) => assert!(self.kernel.detours.remove(&to).is_some(), "it was not there"),
                    }
                    self.routes.push(route);
                }
                Effect::Look => {
                    let found = self.kernel.clone();
                    self.handle(Event::Looked(found));
                }
                Effect::Echo(echo) => self.ask(echo),
                Effect::Report(_) => self.reports += 1,
                Effect::Learnt(machine, at) => self.learnt.push((machine, at)),
                Effect::Heard(heard) => self.heard.push(heard),
            }
        }
    }

    /// A packet goes to whoever is allowed that address, and comes back if it is not too large and somebody answers.
    fn ask(&mut self, echo: Echo) {
        self.echoes.push(echo);
        let to = Ipv4Prefix::new(echo.vpn_ip, 32).expect("an address");
        let owner = self.kernel.peers.iter().find(|(_, peer)| peer.allowed.contains(&to));
        let Some((key, endpoint)) = owner.map(|(key, peer)| (*key, peer.endpoint)) else { return };
        let passes = self.narrow.get(&key).is_none_or(|widest| echo.size <= *widest);
        let answered = passes && endpoint.is_some_and(|endpoint| self.is_answered(key, endpoint));
        self.sends(key, echo.size.into(), answered.then_some(echo.size.into()));
        if answered {
            self.handle(Event::Echoed(echo));
        }
    }

    /// A packet goes to a peer where it is, and is answered if it is there.
    fn tells(&mut self, key: VpnPubKey) {
        let Some(endpoint) = self.kernel.peers.get(&key).and_then(|peer| peer.endpoint) else { return };
        let answer = self.is_answered(key, endpoint).then_some(92);
        self.sends(key, 148, answer);
    }

    fn sends(&mut self, key: VpnPubKey, bytes: u64, answer: Option<u64>) {
        self.kernel.peers.get_mut(&key).expect("it is there").counters.sent += bytes;
        self.hears(key, answer.unwrap_or_default());
        match answer {
            Some(_) => drop(self.tries.remove(&key)),
            None => drop(self.tries.insert(key, (self.now + GIVEN_UP, self.now + AGAIN))),
        }
    }

    /// Bytes come from a peer, by a session of two minutes at most (`REKEY_AFTER_TIME`).
    fn hears(&mut self, key: VpnPubKey, bytes: u64) {
        const REKEY_AFTER: u64 = 120_000_000_000;
        let counters = &mut self.kernel.peers.get_mut(&key).expect("it is there").counters;
        counters.received += bytes;
        let now = u64::try_from((self.now - self.began).as_nanos()).expect("some centuries") + 1;
        if bytes > 0 && counters.handshake.is_none_or(|at| at.get() + REKEY_AFTER <= now) {
            counters.handshake = NonZeroU64::new(now);
        }
    }

    /// Takes a message as `wg_set_device` does: an address that another peer is allowed moves to the one that is set; a
    /// peer that is not there is neither removed nor moved, without an error.
    fn configure(&mut self, message: Vec<PeerChange>) {
        assert!(!message.is_empty(), "a message that changes nothing");
        for change in &message {
            match change {
                PeerChange::Remove(key) => {
                    self.kernel.peers.remove(key);
                    self.tries.remove(key);
                }
                PeerChange::Set { key, endpoint, allowed } => {
                    for (other, peer) in &mut self.kernel.peers {
                        if other != key {
                            peer.allowed.retain(|prefix| !allowed.contains(prefix));
                        }
                    }
                    let new = || FoundPeer { endpoint: None, allowed: BTreeSet::new(), counters: Counters::default() };
                    let peer = self.kernel.peers.entry(*key).or_insert_with(new);
                    peer.allowed.clone_from(allowed);
                    peer.endpoint = endpoint.or(peer.endpoint);
                }
                PeerChange::Move { key, endpoint } => {
                    if let Some(peer) = self.kernel.peers.get_mut(key) {
                        assert_ne!(peer.endpoint.replace(*endpoint), Some(*endpoint), "it was there");
                    }
                }
            }
        }
        self.messages.push(message);
    }

    /// Seconds pass, one by one; whoever is sent to gets a packet each, and answers where it is.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            for key in self.wanted.clone() {
                self.tells(key);
            }
            for (key, (until, next)) in self.tries.clone() {
                if next <= self.now && self.now < until {
                    self.tells(key);
                    // That was its own try, which has no others behind it.
                    self.tries.entry(key).and_modify(|tries| *tries = (until, self.now + AGAIN));
                }
            }
            for key in self.tell.clone() {
                let endpoint = self.kernel.peers.get(&key).and_then(|peer| peer.endpoint);
                if endpoint.is_some_and(|endpoint| self.is_answered(key, endpoint)) {
                    self.hears(key, 1400);
                }
            }
            if self.mesh.poll_timeout().is_some_and(|(due, _)| due <= self.now) {
                self.handle(Event::Tick);
            }
        }
    }

    fn peers(&mut self, peers: &[(u8, MeshPeer)]) {
        self.handle(Event::Peers(peers.iter().map(|(id, peer)| (MachineId([*id; 16]), peer.clone())).collect()));
    }

    fn changed(&mut self, changed: &[(u8, Option<MeshPeer>)]) {
        let changed = changed.iter().map(|(id, peer)| (MachineId([*id; 16]), peer.clone())).collect();
        self.handle(Event::Changed(changed));
    }

    fn endpoint(&self, key: u8) -> Option<SocketAddrV4> {
        self.kernel.peers.get(&VpnPubKey([key; 32])).and_then(|peer| peer.endpoint)
    }

    fn answers(&mut self, key: u8, endpoint: &str) {
        self.answers.insert((VpnPubKey([key; 32]), at(endpoint)));
    }

    /// The messages since the last call.
    fn said(&mut self) -> Vec<Vec<PeerChange>> {
        std::mem::take(&mut self.messages)
    }
}

fn way(link: u32) -> Way {
    Way { link, gateway: Some(Ipv4Addr::new(198, 18, 0, u8::try_from(link).expect("few links"))) }
}

fn at(endpoint: &str) -> SocketAddrV4 {
    endpoint.parse().expect("an endpoint")
}

fn peer(key: u8, address: u8, pods: Option<u8>, endpoints: &[&str]) -> MeshPeer {
    MeshPeer {
        key: VpnPubKey([key; 32]),
        vpn_ip: [10, 118, 0, address].into(),
        pods: pods.map(pod_prefix),
        endpoints: endpoints.iter().map(|endpoint| at(endpoint)).collect(),
    }
}

const HOME: &str = "192.0.2.1:7838";
const OTHER: &str = "198.51.100.1:7838";

/// Proves: M7
#[test]
fn peers_are_made_and_nothing_is_written_while_nothing_changes() {
    let mut world = World::new();
    let peers = [(1, peer(1, 1, Some(1), &[HOME])), (2, peer(2, 2, None, &[])), (3, peer(0xff, 3, None, &[HOME]))];
    world.peers(&peers);
    world.handle(Event::Tick);
    assert_eq!(world.kernel.peers.len(), 2, "two others, and not itself");
    assert_eq!(world.kernel.routes, BTreeMap::from([(pod_prefix(1), None)]));
    assert_eq!((world.endpoint(1), world.endpoint(2)), (Some(at(HOME)), None));
    assert_eq!(world.said().len(), 1, "one message for all");
    world.wanted.insert(VpnPubKey([1; 32]));
    world.answers(1, HOME);
    world.pass(24 * 3600);
    world.peers(&peers);
    world.changed(&[(1, Some(peers[0].1.clone())), (7, None)]);
    assert_eq!((world.said(), world.routes.len()), (vec![], 1), "not one write in a day");
}

/// Proves: M7
#[test]
fn foreign_peers_and_routes_go_and_missing_ones_come_back() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, Some(1), &[HOME]))]);
    world.handle(Event::Tick);
    world.said();
    let foreign = FoundPeer { endpoint: None, allowed: peer(1, 1, None, &[]).allowed(), counters: Counters::default() };
    world.kernel.peers = BTreeMap::from([(VpnPubKey([9; 32]), foreign)]);
    world.kernel.routes = BTreeMap::from([(pod_prefix(200), None)]);
    world.pass(3);
    assert_eq!(world.kernel.peers.keys().collect::<Vec<_>>(), [&VpnPubKey([1; 32])]);
    assert_eq!(world.mesh.peers(), 1);
    assert_eq!(world.kernel.routes, BTreeMap::from([(pod_prefix(1), None)]));
    assert_eq!(world.said().len(), 1);
    world.kernel.peers.get_mut(&VpnPubKey([1; 32])).expect("it is back").allowed.clear();
    world.pass(3);
    assert_eq!(world.kernel.peers[&VpnPubKey([1; 32])].allowed, peer(1, 1, Some(1), &[]).allowed());
}

/// Proves: M4 M5
#[test]
fn a_new_key_takes_over_at_once_and_pods_move_without_a_gap() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, Some(1), &[HOME])), (2, peer(2, 2, None, &[HOME]))]);
    world.handle(Event::Tick);
    world.said();
    world.changed(&[(1, Some(peer(3, 1, Some(1), &[HOME])))]);
    let key = VpnPubKey([3; 32]);
    let set = PeerChange::Set { key, endpoint: Some(at(HOME)), allowed: peer(3, 1, Some(1), &[]).allowed() };
    assert_eq!(world.said(), [vec![PeerChange::Remove(VpnPubKey([1; 32])), set]]);
    // From the earlier id to the later and back: what is given up is free before it is taken.
    for (from, to) in [((1, 3), (2, 2)), ((2, 2), (1, 3))] {
        world.changed(&[
            (from.0, Some(peer(from.1, from.0, None, &[HOME]))),
            (to.0, Some(peer(to.1, to.0, Some(1), &[HOME]))),
        ]);
        let allowed = &world.kernel.peers[&VpnPubKey([to.1; 32])].allowed;
        assert!(allowed.contains(&pod_prefix(1)) && world.reports == 0);
        assert_eq!(world.said().len(), 1);
    }
    assert_eq!(world.routes, [Route::Set(pod_prefix(1), None)], "it was there all the time");
    world.changed(&[(1, None)]);
    assert_eq!(world.routes[1..], [Route::Remove(pod_prefix(1))]);
    assert_eq!(world.said(), [vec![PeerChange::Remove(key)]]);
}

#[test]
fn who_claims_what_another_has_is_left_out_and_told_of() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, Some(1), &[HOME])), (2, peer(2, 2, Some(1), &[])), (3, peer(1, 3, None, &[]))]);
    assert_eq!((world.kernel.peers.len(), world.reports), (1, 2));
    assert!(world.kernel.peers[&VpnPubKey([1; 32])].allowed.contains(&pod_prefix(1)));
}

/// Proves: M6
#[test]
fn a_working_endpoint_stays_and_another_is_left_for_the_next() {
    let mut world = World::new();
    world.wanted.insert(VpnPubKey([1; 32]));
    world.answers(1, HOME);
    world.peers(&[(1, peer(1, 1, None, &["203.0.113.9:7838", "10.118.0.1:7838", HOME]))]);
    world.pass(10);
    assert_eq!(world.endpoint(1), Some(at(HOME)), "the first says nothing, the second is the VPN's own");
    world.said();
    world.changed(&[(1, Some(peer(1, 1, None, &[OTHER, HOME])))]);
    world.pass(60);
    assert_eq!((world.endpoint(1), world.said()), (Some(at(HOME)), vec![]), "it works");
    // The machine moves, and nobody says a word.
    world.answers.clear();
    world.answers(1, OTHER);
    let seconds = (0..60).take_while(|_| {
        world.pass(1);
        world.endpoint(1) != Some(at(OTHER))
    });
    let seconds = seconds.count();
    assert!((11..=15).contains(&seconds), "packets went elsewhere after {seconds} s");
    world.pass(60);
    assert_eq!(world.endpoint(1), Some(at(OTHER)));
}

/// Proves: M6
#[test]
fn a_named_endpoint_is_taken_at_once_where_the_old_one_fails() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.handle(Event::Tick);
    world.changed(&[(1, Some(peer(1, 1, None, &[OTHER, HOME])))]);
    assert_eq!(world.endpoint(1), Some(at(OTHER)));
}

/// Proves: M6
#[test]
fn a_new_key_has_answered_nothing_yet() {
    let mut world = World::new();
    world.wanted.insert(VpnPubKey([1; 32]));
    world.answers(1, HOME);
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.pass(10);
    world.changed(&[(1, Some(peer(2, 1, None, &[HOME])))]);
    world.changed(&[(1, Some(peer(2, 1, None, &[OTHER, HOME])))]);
    assert_eq!(world.endpoint(2), Some(at(OTHER)), "that the old one worked at home says nothing of the new one");
}

#[test]
fn a_peer_whose_endpoint_was_lost_gets_one_again() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.kernel.peers.get_mut(&VpnPubKey([1; 32])).expect("it was made").endpoint = None;
    world.pass(3);
    assert_eq!(world.endpoint(1), Some(at(HOME)));
}

#[test]
fn one_that_answered_again_is_not_made_anew_for_earlier_silence() {
    let mut world = World::new();
    world.wanted.insert(VpnPubKey([1; 32]));
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.answers(1, HOME);
    // Silent for a while, time and again, with an answer between: never three tries in a row.
    for _ in 0..5 {
        world.pass(10);
        world.answers.clear();
        world.pass(16);
        world.answers(1, HOME);
    }
    world.pass(10);
    let removed = world.said().concat().iter().any(|change| matches!(change, PeerChange::Remove(_)));
    assert!(!removed, "tries between answers do not add up");
}

/// Proves: M9
#[test]
fn a_narrow_path_limits_its_peers_routes_and_is_written_once() {
    let mut world = World::new();
    let key = VpnPubKey([1; 32]);
    world.wanted.insert(key);
    world.answers(1, HOME);
    world.narrow.insert(key, 1340);
    let (narrow, wide) = (peer(1, 1, Some(1), &[HOME]), peer(2, 2, Some(2), &[HOME]));
    world.peers(&[(1, narrow.clone()), (2, wide)]);
    world.pass(10);
    let own = Ipv4Prefix::new(narrow.vpn_ip, 32).expect("an address");
    let limited = BTreeMap::from([(own, Some(1328)), (pod_prefix(1), Some(1328)), (pod_prefix(2), None)]);
    assert_eq!(world.kernel.routes, limited);
    assert!(world.echoes.iter().all(|echo| echo.vpn_ip == narrow.vpn_ip), "nobody else says anything");
    let (written, asked) = (world.routes.len(), world.echoes.len());
    world.pass(24 * 3600);
    world.changed(&[(1, Some(MeshPeer { endpoints: vec![at(HOME), at("10.118.0.7:7838")], ..narrow }))]);
    assert_eq!(world.routes.len(), written, "not one write in a day");
    assert!((world.echoes.len() - asked) <= 24 * 6 * mesh::path::MOST_ECHOES, "nor many echoes");
    // Somebody takes the limit away; it comes back. The path becomes wide: the routes are as if it always had been.
    world.kernel.routes.remove(&own);
    world.kernel.routes.insert(pod_prefix(1), Some(1300));
    world.pass(3);
    assert_eq!(world.kernel.routes, limited);
    world.narrow.clear();
    world.pass(700);
    assert_eq!(world.kernel.routes, BTreeMap::from([(pod_prefix(1), None), (pod_prefix(2), None)]));
    // It becomes narrow between two measurements: whoever sends hears nothing, and the path is measured when he does.
    world.narrow.insert(key, 1300);
    world.answers.clear();
    world.pass(18);
    world.answers(1, HOME);
    world.pass(20);
    assert_eq!(world.kernel.routes[&own], Some(1296));
    world.changed(&[(1, None)]);
    assert_eq!(world.kernel.routes, BTreeMap::from([(pod_prefix(2), None)]));
}

/// Proves: M9
#[test]
fn only_some_paths_are_measured_at_a_time_and_in_the_end_all() {
    let mut world = World::new();
    let peers: Vec<_> = (1..=200).map(|n| (n, peer(n, n, None, &[HOME]))).collect();
    for (n, peer) in &peers {
        world.wanted.insert(peer.key);
        world.answers(*n, HOME);
        world.narrow.insert(peer.key, 1400);
    }
    world.peers(&peers);
    let mut most = 0;
    for _ in 0..60 {
        let before = world.echoes.len();
        world.pass(1);
        let asked: BTreeSet<_> = world.echoes[before..].iter().map(|echo| echo.vpn_ip).collect();
        most = most.max(asked.len());
    }
    assert!(most <= 64, "{most} at a time");
    assert_eq!(world.kernel.routes.len(), 200);
}

#[test]
fn a_call_ends_when_all_have_answered_or_after_a_second() {
    let mut world = World::new();
    world.handle(Event::Called);
    assert_eq!(world.heard, [BTreeMap::new()], "nobody is waited for");
    let peers: Vec<_> = (1..=3).map(|n| (n, peer(n, n, None, &[HOME]))).collect();
    world.peers(&peers);
    world.answers(1, HOME);
    world.answers(2, HOME);
    let begun = world.now;
    // A mesh at rest: nobody was heard.
    world.pass(60);
    world.heard.clear();
    world.handle(Event::Called);
    let id = |n: u8| MachineId([n; 16]);
    let asked = world.echoes.len();
    assert!(world.heard.is_empty(), "the third one may still answer");
    world.handle(Event::Called);
    assert_eq!(world.echoes.len(), asked, "it is under way");
    world.pass(1);
    let then = begun + Duration::from_secs(60);
    assert_eq!(world.heard, [BTreeMap::from([(id(1), then), (id(2), then)])]);

    // The second is off, the third on, and all that is asked for is asked once.
    world.answers.remove(&(VpnPubKey([2; 32]), at(HOME)));
    world.answers(3, HOME);
    world.pass(30);
    world.heard.clear();
    world.handle(Event::Called);
    world.pass(1);
    let told = world.heard.pop().expect("told");
    assert_eq!((told[&id(3)], world.heard.len()), (world.now - Duration::from_secs(1), 0));
    assert!(told[&id(2)] <= then + Duration::from_secs(3), "when it was heard last");
    world.answers(2, HOME);
    world.pass(30);
    world.handle(Event::Called);
    assert_eq!(world.heard.pop().expect("at once").into_values().min(), Some(world.now));

    // Who answered somebody else was heard by the next look.
    world.wanted.insert(VpnPubKey([3; 32]));
    world.pass(30);
    let off = world.now;
    world.answers.clear();
    world.pass(30);
    world.handle(Event::Called);
    world.pass(1);
    assert!(world.heard.pop().expect("told")[&id(3)] >= off - Duration::from_secs(3), "and not called then");

    // At another endpoint it is who it was, under another key it was never heard.
    world.changed(&[(1, Some(peer(1, 1, None, &[OTHER])))]);
    world.handle(Event::Called);
    world.pass(1);
    assert!(world.heard.pop().expect("told").contains_key(&id(1)));
    world.changed(&[(1, Some(peer(9, 1, None, &[HOME])))]);
    world.handle(Event::Called);
    world.pass(1);
    assert!(!world.heard.pop().expect("told").contains_key(&id(1)));
}

/// The peer's kernel refuses handshakes of a clock that went back, until the peer is made anew there.
#[test]
fn a_peer_that_never_answers_is_made_anew_while_it_is_sent_to() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.pass(600);
    assert_eq!(world.said().len(), 1, "nobody asked for it");
    world.wanted.insert(VpnPubKey([1; 32]));
    world.pass(30);
    let anew = |message: &Vec<PeerChange>| matches!(message[..], [PeerChange::Remove(_), PeerChange::Set { .. }]);
    let said = world.said();
    assert!(said.iter().any(anew), "{said:?}");
    assert_eq!(world.endpoint(1), Some(at(HOME)));
}

/// Peer as a cluster may name it, of few keys, addresses and prefixes, so that they meet.
fn any_peer() -> impl Strategy<Value = MeshPeer> {
    let endpoints = proptest::sample::subsequence(vec![HOME, OTHER, "10.118.0.7:7838", "127.0.0.1:7838"], 0..=4);
    (0..8_u8, 0..6_u8, proptest::option::of(0..4_u8), endpoints)
        .prop_map(|(key, address, pods, endpoints)| peer(key, address + 1, pods, &endpoints))
}

#[derive(Debug, Clone)]
enum Step {
    Peers(BTreeMap<u8, MeshPeer>),
    Changed(BTreeMap<u8, Option<MeshPeer>>),
    Foreign(u8, u8),
    Lost(u8),
    Copied(bool),
    Pass(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let changed = proptest::collection::btree_map(0..5_u8, proptest::option::of(any_peer()), 1..4);
    prop_oneof![
        proptest::collection::btree_map(0..5_u8, any_peer(), 0..5).prop_map(Step::Peers),
        changed.prop_map(Step::Changed),
        (0..12_u8, 0..4_u8).prop_map(|(key, pods)| Step::Foreign(key, pods)),
        (0..8_u8).prop_map(Step::Lost),
        any::<bool>().prop_map(Step::Copied),
        (1..20_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// The kernel has what the list says a look later, with any list and any other writer; each address has one owner,
    /// and then nothing is written any more.
    ///
    /// Proves: M5 M7
    #[test]
    fn the_kernel_comes_to_what_the_cluster_says(steps in proptest::collection::vec(any_step(), 1..30)) {
        let mut world = World::new();
        let mut list: BTreeMap<u8, MeshPeer> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Peers(peers) => {
                    list = peers;
                    world.peers(&list.clone().into_iter().collect::<Vec<_>>());
                }
                Step::Changed(changed) => {
                    for (id, peer) in &changed {
                        match peer {
                            Some(peer) => drop(list.insert(*id, peer.clone())),
                            None => drop(list.remove(id)),
                        }
                    }
                    world.changed(&changed.into_iter().collect::<Vec<_>>());
                }
                Step::Foreign(key, pods) => {
                    let allowed = BTreeSet::from([pod_prefix(pods)]);
                    world.configure(vec![PeerChange::Set { key: VpnPubKey([key; 32]), endpoint: None, allowed }]);
                    world.kernel.routes.insert(pod_prefix(pods + 100), Some(1280));
                }
                Step::Lost(key) => drop(world.kernel.peers.remove(&VpnPubKey([key; 32]))),
                Step::Copied(kernel_is_told) => world.handle(Event::Copied { kernel_is_told }),
                Step::Pass(seconds) => world.pass(seconds),
            }
        }
        // Those that claim what another has depend on who came first: the whole list is the cluster's, without any.
        let mut taken = BTreeSet::new();
        let mut keys = BTreeSet::new();
        list.retain(|_, peer| keys.insert(peer.key) && peer.allowed().into_iter().all(|prefix| taken.insert(prefix)));
        world.peers(&list.clone().into_iter().collect::<Vec<_>>());
        world.pass(4);
        let expected: BTreeMap<VpnPubKey, BTreeSet<Ipv4Prefix>> =
            list.values().map(|peer| (peer.key, peer.allowed())).collect();
        let found: BTreeMap<_, _> =
            world.kernel.peers.iter().map(|(key, peer)| (*key, peer.allowed.clone())).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(&world.kernel.routes, &list.values().filter_map(|peer| Some((peer.pods?, None))).collect());
        world.messages.clear();
        world.pass(60);
        prop_assert!(world.messages.is_empty(), "{:?}", world.messages);
    }
}

/// Behind a router a machine names addresses that lead nowhere. Whoever else hears it says where that is.
///
/// Proves: M6
#[test]
fn an_unnamed_endpoint_is_learnt_and_a_working_one_left_alone() {
    let mut world = World::new();
    let (key, id) = (VpnPubKey([1; 32]), MachineId([1; 16]));
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.handle(Event::Tick);
    world.wanted.insert(key);
    world.answers(1, HOME);
    world.pass(60);
    assert_eq!(world.learnt, [], "it is where it says");
    // Its packets come from elsewhere, and the kernel answers there.
    world.kernel.peers.get_mut(&key).expect("a peer").endpoint = Some(at(OTHER));
    world.answers(1, OTHER);
    world.said();
    world.pass(10);
    assert_eq!(world.learnt, [], "it may be about to say so");
    world.pass(50);
    assert_eq!(world.learnt, [(id, at(OTHER))], "once");
    world.changed(&[(1, Some(peer(1, 1, None, &[OTHER, HOME])))]);
    world.pass(3600);
    assert_eq!((world.learnt.len(), world.said()), (1, vec![]), "the cluster names it, and nothing had to be changed");
    // One of the cluster's own addresses is nobody's place.
    let inside = "10.118.0.9:7838";
    world.kernel.peers.get_mut(&key).expect("a peer").endpoint = Some(at(inside));
    world.answers(1, inside);
    world.pass(3600);
    assert_eq!((world.learnt.len(), world.endpoint(1)), (1, Some(at(inside))));
}

/// Proves: M6
#[test]
fn whoever_says_nothing_is_learnt_nowhere() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.handle(Event::Tick);
    world.kernel.peers.get_mut(&VpnPubKey([1; 32])).expect("a peer").endpoint = Some(at(OTHER));
    world.pass(3600);
    assert_eq!(world.learnt, []);
}
