//! A machine that may be a copy of another one: nothing is left of its sessions, and nobody waits for new ones.

use super::*;

/// Session keys go with the peer that has them; the copy that goes on with the same ones is another machine by then.
#[test]
fn a_copy_makes_peers_anew_and_asks_those_it_was_in_touch_with() {
    let mut world = World::new();
    let peers: Vec<_> = (1..=3).map(|n| (n, peer(n, n, Some(n), &[HOME]))).collect();
    world.peers(&peers);
    world.wanted.insert(VpnPubKey([1; 32]));
    // The first is heard all the time, the second was heard once, the third never.
    world.answers(1, HOME);
    world.answers(2, HOME);
    world.handle(Event::Called);
    world.pass(200);
    // Where its packets come from, and no list says so.
    world.kernel.peers.get_mut(&VpnPubKey([1; 32])).expect("a peer").endpoint = Some(at(OTHER));
    world.answers(1, OTHER);
    world.pass(3);
    let (before, written) = (world.kernel.clone(), world.routes.len());
    world.said();
    world.echoes.clear();
    world.handle(Event::Copied { kernel_is_told: false });
    let anew = |n: u8, endpoint: &str| {
        let key = VpnPubKey([n; 32]);
        [
            PeerChange::Remove(key),
            PeerChange::Set { key, endpoint: Some(at(endpoint)), allowed: peer(n, n, Some(n), &[]).allowed() },
        ]
    };
    assert_eq!(world.said(), [[anew(1, OTHER), anew(2, HOME), anew(3, HOME)].concat()], "one message");
    assert_eq!(world.echoes, [Echo { vpn_ip: peer(1, 1, None, &[]).vpn_ip, size: 28 }]);
    let Counters { sent, received, .. } = world.kernel.peers[&VpnPubKey([1; 32])].counters;
    assert_eq!((sent, received), (28, 28), "it answers");
    world.pass(60);
    assert_eq!((world.said(), world.routes.len()), (vec![], written), "then all is as it was");
    assert_eq!((&world.kernel.routes, world.endpoint(1)), (&before.routes, Some(at(OTHER))));
}
