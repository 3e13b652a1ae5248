//! Members that lie about where they are: nobody else's packets go another way for that, and nothing near the machine is taken
//! for a peer.

use super::*;

/// A coordinator's key, and that of a member which lies.
const HONEST: u8 = 1;
const LIAR: u8 = 2;
/// An address that is nobody's.
const NOBODYS: &str = "203.0.113.77:7838";

/// A machine with two uplinks of which the second leads nowhere; the honest peer is at home and answers by the first.
fn beside_a_liar(endpoints: &[&str]) -> World {
    let mut world = World::with_links(&[ONE, TWO]);
    world.dead.insert(TWO);
    world.wanted.extend([HONEST, LIAR].map(|key| VpnPubKey([key; 32])));
    world.answers(HONEST, HOME);
    world.peers(&named(endpoints));
    world
}

fn named(endpoints: &[&str]) -> [(u8, MeshPeer); 2] {
    [(HONEST, peer(HONEST, 1, None, &[HOME])), (LIAR, peer(LIAR, 2, None, endpoints))]
}

/// Whether packets to the honest peer's address were ever sent another way.
fn astray(world: &World) -> bool {
    world.routes.iter().any(|route| matches!(route, Route::Detour(address, _) if address == at(HOME).ip()))
}

impl World {
    fn received_from(&self, key: u8) -> u64 {
        self.kernel.peers.get(&VpnPubKey([key; 32])).map_or(0, |peer| peer.counters.received)
    }

    /// In how many of so many seconds the honest peer was not heard.
    fn missed(&mut self, seconds: usize) -> usize {
        let misses = |_: &usize| {
            let before = self.received_from(HONEST);
            self.pass(1);
            self.received_from(HONEST) == before
        };
        (0..seconds).filter(misses).count()
    }

    fn echoes_to(&self, address: u8) -> usize {
        self.echoes.iter().filter(|echo| echo.vpn_ip == Ipv4Addr::new(10, 118, 0, address)).count()
    }

    /// The peer is where the kernel heard it last, whatever it names.
    fn roams(&mut self, key: u8, endpoint: &str) {
        self.kernel.peers.get_mut(&VpnPubKey([key; 32])).expect("a peer").endpoint = Some(at(endpoint));
        self.answers(key, endpoint);
    }
}

/// Proves: M6
#[test]
fn a_peer_named_at_anothers_address_takes_nothing_astray() {
    let mut world = beside_a_liar(&[HOME]);
    assert_eq!((world.missed(600), astray(&world)), (0, false));
    assert!(world.kernel.peers[&VpnPubKey([LIAR; 32])].counters.sent > 0, "it was tried there");
    // It was heard at its own address before, and is not there any more.
    let mut world = beside_a_liar(&[OTHER]);
    world.answers(LIAR, OTHER);
    world.pass(60);
    assert!(world.received_from(LIAR) > 0);
    world.answers.remove(&(VpnPubKey([LIAR; 32]), at(OTHER)));
    world.peers(&named(&[HOME]));
    assert_eq!((world.missed(600), astray(&world)), (0, false));
    // The control: when the uplink does fall silent, the other one is taken for that address.
    world.dead = BTreeSet::from([ONE]);
    world.pass(15);
    assert_eq!(world.missed(60), 0);
    assert_eq!(world.leaves_by(*at(HOME).ip()), Some(TWO));
}

/// A liar that sends with another machine's address is heard there.
///
/// Proves: M6
#[test]
fn an_address_where_another_peer_rests_has_no_detour() {
    for dead in [TWO, ONE] {
        let mut world = beside_a_liar(&[OTHER]);
        world.answers(LIAR, OTHER);
        world.pass(60);
        world.roams(LIAR, HOME);
        world.pass(60);
        world.wanted.remove(&VpnPubKey([HONEST; 32]));
        world.pass(60);
        world.answers.retain(|(key, _)| *key == VpnPubKey([HONEST; 32]));
        world.dead = BTreeSet::from([dead]);
        let echoed =
            |world: &World| world.echoes.iter().filter(|echo| echo.vpn_ip == Ipv4Addr::new(10, 118, 0, 1)).count();
        let before = echoed(&world);
        let seconds = (0..15).take_while(|_| {
            world.pass(1);
            !astray(&world)
        });
        let seconds = seconds.count();
        assert!(echoed(&world) > before, "it is asked whether it is there");
        // Silent since it was asked, and not since the look behind that.
        assert_eq!(seconds, if dead == ONE { 8 } else { 15 }, "it answered, or the way is silent for both");
        world.wanted.insert(VpnPubKey([HONEST; 32]));
        world.pass(5);
        assert_eq!(world.missed(60), 0);
    }
}

/// Proves: M6
#[test]
fn an_address_that_is_nobodys_has_no_detour() {
    let mut world = beside_a_liar(&[NOBODYS, "203.0.113.78:7838"]);
    let mut tried = BTreeSet::new();
    for _ in 0..24 * 3600 {
        world.pass(1);
        tried.extend(world.endpoint(LIAR));
    }
    assert_eq!((tried.len(), &world.routes[..]), (2, &[][..]));
}

/// Proves: M6
#[test]
fn a_detour_to_whoever_is_switched_off_has_an_end() {
    let mut world = beside_a_liar(&[OTHER]);
    world.answers(LIAR, OTHER);
    world.pass(60);
    world.answers.remove(&(VpnPubKey([LIAR; 32]), at(OTHER)));
    let mut detoured = |seconds: usize| {
        let before = world.routes.len();
        world.pass(u64::try_from(seconds).expect("few"));
        let detours = world.routes[before..].iter().filter(|route| matches!(route, Route::Detour(..))).count();
        let now = world.kernel.detours.len();
        (detours, now)
    };
    assert!(detoured(600).0 > 20, "it is looked for by all ways");
    let (tries, _) = detoured(3600);
    assert!((1..=7).contains(&tries), "{tries} times within an hour while somebody sends to it");
    world.wanted.remove(&VpnPubKey([LIAR; 32]));
    world.pass(700);
    let asked = |world: &World| world.echoes_to(LIAR);
    let before = (world.routes.len(), asked(&world));
    world.pass(24 * 3600);
    assert_eq!((world.routes.len(), asked(&world)), before, "nobody is woken by this machine alone");
    assert!(world.kernel.detours.is_empty());
}

/// A detour that was set and then found nothing to do is not there for good: its peer neither answers nor is sent anything.
///
/// Proves: M6
#[test]
fn a_detour_ends_though_nobody_says_anything_any_more() {
    let mut world = beside_a_liar(&[OTHER]);
    world.answers(LIAR, OTHER);
    world.pass(30);
    world.dead = BTreeSet::from([ONE]);
    world.pass(30);
    assert_eq!(world.kernel.detours.len(), 2);
    world.wanted.clear();
    world.dead.clear();
    world.pass(700);
    assert!(world.kernel.detours.is_empty(), "the usual way is tried again");
}

fn surroundings() -> Surroundings {
    Surroundings {
        links: vec![([192, 0, 2, 5].into(), "192.0.2.0/24".parse().expect("a prefix"))],
        gateways: BTreeSet::from([[192, 0, 2, 254].into()]),
        resolvers: BTreeSet::from([[192, 0, 2, 53].into()]),
    }
}

/// Proves: M6
#[test]
fn nothing_near_the_machine_is_tried() {
    let near = ["192.0.2.5:7838", "192.0.2.254:7838", "192.0.2.53:7838", "192.0.2.255:7838"];
    let mut world = beside_a_liar(&near);
    world.kernel.surroundings = surroundings();
    world.pass(60);
    assert_eq!(world.endpoint(LIAR), None, "it was there when the machine got its addresses");
    world.peers(&named(&[&near[..], &[NOBODYS], &near[..1]].concat()));
    for _ in 0..600 {
        world.pass(1);
        assert_eq!(world.endpoint(LIAR), Some(at(NOBODYS)));
    }
    // An address that the machine gets while somebody is tried there: the next endpoint has all its time.
    let mut gets = World::new();
    gets.wanted.insert(VpnPubKey([LIAR; 32]));
    gets.peers(&[(LIAR, peer(LIAR, 2, None, &[near[1], NOBODYS, OTHER]))]);
    gets.pass(4);
    gets.kernel.surroundings = surroundings();
    for _ in 0..3 {
        gets.pass(1);
        assert_eq!(gets.endpoint(LIAR), Some(at(NOBODYS)));
    }
    // From the start.
    let mut kernel = KernelState { surroundings: surroundings(), ..KernelState::default() };
    kernel.uplinks.clone_from(&world.kernel.uplinks);
    world.mesh = Mesh::start(OWN, Prefixes::of(VPN_PREFIX), kernel.clone(), world.now);
    world.kernel = kernel;
    world.said();
    world.peers(&named(&near));
    let set: Vec<_> = world.said().concat();
    let tried = |change: &PeerChange| match change {
        PeerChange::Set { endpoint, .. } => *endpoint,
        PeerChange::Move { endpoint, .. } => Some(*endpoint),
        PeerChange::Remove(_) => None,
    };
    assert_eq!(set.iter().filter_map(tried).collect::<Vec<_>>(), [at(HOME)]);
}

/// A router that puts its own address in the place of a peer's is this machine's gateway, too.
///
/// Proves: M6
#[test]
fn a_peer_heard_at_the_gateway_stays_there_without_a_detour() {
    let mut world = beside_a_liar(&[OTHER]);
    world.kernel.surroundings = surroundings();
    world.answers(LIAR, OTHER);
    world.pass(60);
    let gateway = "192.0.2.254:10001";
    world.roams(LIAR, gateway);
    world.said();
    world.pass(200);
    assert_eq!((world.endpoint(LIAR), world.said()), (Some(at(gateway)), vec![]));
    assert_eq!(world.learnt, [(MachineId([LIAR; 16]), at(gateway))], "others may reach it there");
    world.answers.retain(|(key, _)| *key == VpnPubKey([HONEST; 32]));
    world.pass(600);
    assert_eq!(&world.routes[..], &[]);
}

/// Lie that the liar tells next.
#[derive(Debug, Clone)]
enum Lie {
    Names(Vec<&'static str>),
    /// The liar is heard at this place from now on, and nowhere else.
    Is(&'static str),
    IsOff,
    /// Something is sent to the honest peer, or not.
    Talks(bool),
    Passes(u64),
}

fn any_lie() -> impl Strategy<Value = Lie> {
    let places = vec![HOME, OTHER, NOBODYS, "192.0.2.254:7838", "192.0.2.1:9"];
    prop_oneof![
        proptest::sample::subsequence(places.clone(), 0..=5).prop_shuffle().prop_map(Lie::Names),
        proptest::sample::select(places).prop_map(Lie::Is),
        Just(Lie::IsOff),
        any::<bool>().prop_map(Lie::Talks),
        (1..300_u64).prop_map(Lie::Passes),
    ]
}

proptest! {
    /// A member may name any endpoint, be heard anywhere and be off at any time: packets to an honest one go by the way
    /// that works, and no endpoint is set that is near the machine.
    ///
    /// Proves: M6
    #[test]
    fn whatever_a_liar_does_an_honest_peer_is_reached(lies in proptest::collection::vec(any_lie(), 1..40)) {
        let mut world = beside_a_liar(&[OTHER]);
        world.kernel.surroundings = surroundings();
        world.pass(5);
        for lie in lies {
            match lie {
                Lie::Names(endpoints) => world.peers(&named(&endpoints)),
                Lie::Is(place) => {
                    world.answers.retain(|(key, _)| *key == VpnPubKey([HONEST; 32]));
                    world.roams(LIAR, place);
                    world.pass(3);
                }
                Lie::IsOff => world.answers.retain(|(key, _)| *key == VpnPubKey([HONEST; 32])),
                Lie::Talks(true) => drop(world.wanted.insert(VpnPubKey([HONEST; 32]))),
                Lie::Talks(false) => drop(world.wanted.remove(&VpnPubKey([HONEST; 32]))),
                Lie::Passes(seconds) => {
                    for _ in 0..seconds {
                        world.pass(1);
                        prop_assert_eq!(world.leaves_by(*at(HOME).ip()), Some(ONE));
                        prop_assert_eq!(world.leaves_by([192, 0, 2, 254].into()), Some(ONE));
                    }
                }
            }
        }
        let near = |endpoint: &SocketAddrV4| surroundings().include(*endpoint.ip());
        let tried = world.messages.iter().flatten().filter_map(|change| match change {
            PeerChange::Move { endpoint, .. } => Some(*endpoint),
            PeerChange::Set { .. } | PeerChange::Remove(_) => None,
        });
        prop_assert!(!tried.into_iter().any(|endpoint| near(&endpoint)));
        world.wanted.insert(VpnPubKey([HONEST; 32]));
        prop_assert_eq!(world.missed(60), 0);
    }
}
