//! How long and how often a peer is tried before something else is, and what is written between two looks at the kernel.

use super::*;

const KEY: VpnPubKey = VpnPubKey([1; 32]);

impl World {
    /// World with one peer that is sent to all the time.
    fn sending(endpoints: &[&str]) -> Self {
        let mut world = Self::new();
        world.wanted.insert(KEY);
        world.peers(&[(1, peer(1, 1, None, endpoints))]);
        world
    }

    /// How many seconds pass until this is so, a minute at most.
    fn until(&mut self, is_so: impl Fn(&mut Self) -> bool) -> usize {
        let before = (0..60).take_while(|_| {
            self.pass(1);
            !is_so(self)
        });
        before.count() + 1
    }

    fn is_made_anew(&mut self) -> bool {
        self.said().concat().contains(&PeerChange::Remove(KEY))
    }
}

/// Proves: M6
#[test]
fn a_silent_peer_is_tried_three_times_before_it_is_made_anew() {
    let mut world = World::sending(&[HOME]);
    world.said();
    // A look each 3 s finds that something was sent, and 3 s later there is no answer.
    assert_eq!(world.until(World::is_made_anew), 3 * 6, "it never answered");
    world.answers(1, HOME);
    world.pass(30);
    world.said();
    world.answers.clear();
    assert_eq!(world.until(World::is_made_anew), 15 + 2 * 6, "it may take 11 s where it answered");
}

/// Proves: M6
#[test]
fn all_endpoints_are_tried_before_a_peer_is_made_anew() {
    let mut world = World::sending(&[HOME, OTHER, "203.0.113.3:7838", "203.0.113.4:7838"]);
    world.said();
    let tried = (0..24).map(|_| {
        world.pass(1);
        world.endpoint(1)
    });
    assert_eq!(tried.collect::<BTreeSet<_>>().len(), 4);
    let anew = |message: &Vec<PeerChange>| matches!(message[..], [PeerChange::Remove(KEY), PeerChange::Set { .. }]);
    assert_eq!(world.said().iter().map(anew).collect::<Vec<_>>(), [false, false, false, true]);
}

/// Proves: M6
#[test]
fn a_peer_that_somebody_took_away_is_tried_as_a_new_one() {
    let mut world = World::sending(&[HOME, OTHER]);
    world.answers(1, HOME);
    world.pass(30);
    world.answers.clear();
    world.kernel.peers.clear();
    world.wanted.clear();
    world.pass(3);
    assert_eq!(world.endpoint(1), Some(at(HOME)), "it is back");
    world.wanted.insert(KEY);
    let left = world.until(|world| world.endpoint(1) == Some(at(OTHER)));
    assert!(left <= 6, "{left} s: nothing is known of where it is");
}

/// Proves: M6
#[test]
fn what_is_said_of_a_peer_otherwise_begins_no_other_try() {
    let mut world = World::sending(&[HOME, OTHER]);
    world.until(|world| world.endpoint(1) == Some(at(OTHER)));
    world.changed(&[(1, Some(peer(1, 1, Some(1), &[HOME, OTHER])))]);
    assert_eq!(world.endpoint(1), Some(at(OTHER)), "it has pods now");
    // A mesh that begins anew does not know why it is there.
    world.mesh = Mesh::start(OWN, Prefixes::of(VPN_PREFIX), world.kernel.clone(), world.now);
    world.peers(&[(1, peer(1, 1, Some(1), &[HOME, OTHER]))]);
    assert_eq!(world.endpoint(1), Some(at(HOME)));
}

/// Proves: M7
#[test]
fn what_is_asked_for_between_two_looks_is_taken_for_done() {
    let mut world = World::new();
    world.peers(&[(1, peer(1, 1, Some(1), &[HOME]))]);
    world.handle(Event::Tick);
    world.changed(&[(1, Some(peer(1, 1, Some(2), &[HOME])))]);
    world.said();
    world.changed(&[(1, Some(peer(1, 1, Some(2), &[OTHER])))]);
    assert_eq!(world.said(), [[PeerChange::Move { key: KEY, endpoint: at(OTHER) }]]);
    world.changed(&[(1, None)]);
    world.changed(&[(1, Some(peer(1, 1, Some(2), &[OTHER])))]);
    assert_eq!(world.endpoint(1), Some(at(OTHER)), "it is made again at once");
}

/// Proves: M7
#[test]
fn the_kernel_is_looked_at_once_until_it_was_seen() {
    let now = testkit::origin();
    let mut mesh = Mesh::start(OWN, Prefixes::of(VPN_PREFIX), KernelState::default(), now);
    let mut told = |event| {
        let mut effects = Vec::new();
        mesh.handle(event, now, &mut effects);
        (effects, mesh.poll_timeout().is_some())
    };
    assert_eq!(told(Event::Tick), (vec![Effect::Look], false));
    assert_eq!((told(Event::Tick), told(Event::LinksChanged)), ((vec![], false), (vec![], false)));
    assert_eq!(told(Event::Looked(KernelState::default())), (vec![], true));
}

/// The kernel takes 64 KiB.
#[test]
fn no_message_is_larger_than_the_kernel_takes() {
    for (count, messages) in [(128, vec![128]), (129, vec![128, 1])] {
        let mut world = World::new();
        world.peers(&(1..=count).map(|n| (n, peer(n, n, None, &[HOME]))).collect::<Vec<_>>());
        assert_eq!(world.said().iter().map(Vec::len).collect::<Vec<_>>(), messages);
        assert_eq!(world.mesh.peers(), usize::from(count));
    }
}

/// Proves: M9
#[test]
fn a_paths_limit_goes_with_its_key_and_with_a_wider_echo() {
    let own = Ipv4Prefix::new(peer(1, 1, None, &[]).vpn_ip, 32).expect("an address");
    for pods in [None, Some(1)] {
        let mut world = World::sending(&[HOME]);
        world.answers(1, HOME);
        world.narrow.insert(KEY, 1340);
        world.changed(&[(1, Some(peer(1, 1, pods, &[HOME])))]);
        world.pass(10);
        assert_eq!(world.kernel.routes.get(&own), Some(&Some(1328)));
        world.changed(&[(1, Some(peer(2, 1, pods, &[HOME])))]);
        assert!(!world.kernel.routes.contains_key(&own), "nothing is known of the new one's path");
    }
    let mut world = World::sending(&[HOME]);
    world.answers(1, HOME);
    world.narrow.insert(KEY, 1340);
    world.pass(10);
    world.narrow.clear();
    world.echoes.clear();
    let measured = (0..700).any(|_| {
        world.pass(1);
        !world.echoes.is_empty()
    });
    assert!(measured && !world.kernel.routes.contains_key(&own), "at once, and not at the next look");
}
