//! Somebody replays what a machine sent that is off now: WireGuard answers an initiation that it has not seen before, and takes its
//! place for the machine's.

use super::*;

const OFF: VpnPubKey = VpnPubKey([1; 32]);

impl World {
    /// For so many seconds, each second an initiation of the machine comes from elsewhere (`wg_receive_handshake_packet`).
    fn replayed(&mut self, seconds: u64, from: &str) {
        for _ in 0..seconds {
            let peer = self.kernel.peers.get_mut(&OFF).expect("a peer");
            peer.endpoint = Some(at(from));
            peer.counters.received += 148;
            peer.counters.sent += 92;
            self.pass(1);
        }
    }

    /// When the machine was heard last, as whoever asks is told.
    fn last_heard(&mut self) -> Option<Instant> {
        self.heard.clear();
        self.handle(Event::Called);
        self.pass(1);
        self.heard.pop().expect("told").remove(&MachineId([1; 16]))
    }
}

/// Proves: M6
#[test]
fn whose_initiations_are_replayed_is_not_heard() {
    let mut world = World::with_links(&[ONE, TWO]);
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.pass(5);
    world.replayed(600, OTHER);
    assert_eq!((world.last_heard(), &world.learnt[..], &world.routes[..]), (None, &[][..], &[][..]));
    // It comes back where nobody names it, and is heard there.
    world.answers(1, OTHER);
    world.wanted.insert(OFF);
    world.pass(120);
    assert_eq!(world.learnt, [(MachineId([1; 16]), at(OTHER))]);
    assert!(world.last_heard().is_some_and(|heard| world.now - heard < Duration::from_secs(5)));
}

/// A machine of two uplinks whose one peer was heard at its place, and is not asked for any more.
fn heard_at_home() -> World {
    let mut world = World::with_links(&[ONE, TWO]);
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.answers(1, HOME);
    world.wanted.insert(OFF);
    world.pass(60);
    world.wanted.clear();
    world
}

/// Proves: M6
#[test]
fn a_replay_says_nothing_of_whoever_was_heard_before() {
    let mut world = heard_at_home();
    world.answers.clear();
    let off = world.now;
    world.pass(300);
    world.replayed(600, OTHER);
    assert!(world.last_heard().is_some_and(|heard| heard <= off));
    assert_eq!(world.learnt, []);
}

/// The peer works, as far as anybody knows, when its place is taken.
///
/// Proves: M6
#[test]
fn where_a_replay_came_from_has_no_detour() {
    let mut world = heard_at_home();
    // Its session carries nothing any more.
    world.pass(300);
    world.answers.clear();
    world.replayed(1, OTHER);
    world.pass(10);
    world.wanted.insert(OFF);
    world.pass(600);
    let there = |route: &Route| matches!(route, Route::Detour(address, _) if address == at(OTHER).ip());
    assert!(!world.routes.iter().any(there), "{:?}", world.routes);
}

/// Proves: M6
#[test]
fn a_mesh_that_begins_anew_has_heard_nobody() {
    let mut world = World::new();
    let peers = [(1, peer(1, 1, None, &[HOME]))];
    world.peers(&peers);
    world.answers(1, HOME);
    world.wanted.insert(OFF);
    world.pass(60);
    world.answers.clear();
    world.wanted.clear();
    world.mesh = Mesh::start(OWN, Prefixes::of(VPN_PREFIX), world.kernel.clone(), world.now);
    world.peers(&peers);
    world.pass(10);
    assert_eq!(world.last_heard(), None);
    // Its session goes on.
    world.answers(1, HOME);
    world.wanted.insert(OFF);
    world.pass(5);
    assert!(world.last_heard().is_some());
}
