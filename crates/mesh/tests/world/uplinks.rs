//! A machine with several uplinks: which of them leads to a peer, and what happens when one is lost.

use super::*;

/// A machine with these links and a peer at home that talks all the time.
fn talking(links: &[u32]) -> World {
    let mut world = World::with_links(links);
    world.wanted.insert(VpnPubKey([1; 32]));
    world.answers(1, HOME);
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.pass(30);
    world
}

impl World {
    fn received(&self) -> u64 {
        self.kernel.peers[&VpnPubKey([1; 32])].counters.received
    }

    /// How many seconds pass until the peer is heard, these at most.
    fn until_heard(&mut self, most: usize) -> usize {
        let before = self.received();
        (0..most)
            .take_while(|_| {
                self.pass(1);
                self.received() == before
            })
            .count()
    }

    /// By which link packets to it leave now.
    fn home_by(&self) -> Option<u32> {
        self.leaves_by(*at(HOME).ip())
    }
}

/// Proves: M12
#[test]
fn a_link_without_a_carrier_is_left_at_once_and_the_peer_told() {
    let mut world = talking(&[ONE, TWO]);
    // Nobody else sends anything: the peer would not know where to answer.
    world.wanted.clear();
    world.pass(10);
    let (written, asked, heard) = (world.routes.len(), world.echoes.len(), world.received());
    world.carrier(ONE, false);
    assert!(world.echoes.len() > asked && world.received() > heard, "it is asked at once, and answers");
    assert_eq!(world.home_by(), Some(TWO));
    world.pass(60);
    world.carrier(ONE, true);
    assert_eq!(world.home_by(), Some(ONE));
    world.pass(60);
    assert_eq!((world.routes.len(), world.said().len()), (written, 1), "the kernel does it by itself");
    assert!(world.echoes.len() <= asked + 2 * (1 + mesh::path::MOST_ECHOES), "and then there is peace");
}

/// Proves: M12
#[test]
fn a_silent_link_is_left_soon_and_tried_again_with_a_short_gap() {
    let mut world = talking(&[ONE, TWO]);
    assert_eq!(world.routes, []);
    world.dead.insert(ONE);
    let gap = world.until_heard(60);
    assert!((4..=9).contains(&gap), "nothing was heard for {gap} s");
    assert_eq!(world.routes, [Route::Detour(*at(HOME).ip(), way(TWO))]);
    // Kept while it works: in half an hour the usual way is tried a few times, with a short gap each.
    let mut gaps = Vec::new();
    for _ in 0..1800 {
        gaps.push(world.until_heard(60));
    }
    assert_eq!(gaps.iter().max(), Some(&2));
    assert_eq!(gaps.iter().filter(|gap| **gap > 0).count(), 2);
    assert_eq!(world.routes.len(), 1 + 2 * 2);
    // It is mended: the next try finds that out, without a gap.
    world.dead.clear();
    assert!((0..700).all(|_| world.until_heard(60) == 0));
    assert_eq!((world.home_by(), world.kernel.detours.len()), (Some(ONE), 0));
    assert!(world.said().len() == 1, "the peer itself was never touched");
}

/// An endpoint says nothing of how it is reached, whoever names it; and all endpoints of a peer are tried.
///
/// Proves: M12
#[test]
fn by_another_way_only_who_was_heard_is_tried() {
    let mut world = World::with_links(&[ONE, TWO]);
    world.wanted.insert(VpnPubKey([1; 32]));
    world.answers(1, HOME);
    world.peers(&[(1, peer(1, 1, None, &[OTHER, HOME]))]);
    world.pass(30);
    assert_eq!((world.endpoint(1), world.routes.len()), (Some(at(HOME)), 0));
    // At its start by a link that carries nothing.
    let mut world = World::with_links(&[ONE, TWO]);
    world.wanted.insert(VpnPubKey([1; 32]));
    world.answers(1, HOME);
    world.dead.insert(ONE);
    world.peers(&[(1, peer(1, 1, None, &[OTHER, HOME]))]);
    world.pass(600);
    assert_eq!((world.home_by(), world.routes.len()), (Some(ONE), 0));
    // Somebody sees that, and pulls the plug.
    world.carrier(ONE, false);
    assert!(world.until_heard(15) < 15);
}

/// Proves: M12
#[test]
fn who_has_nothing_to_say_is_not_asked_and_not_given_up() {
    let mut world = talking(&[ONE, TWO]);
    world.wanted.clear();
    world.pass(10);
    let asked = world.echoes.len();
    world.dead.insert(ONE);
    world.pass(500);
    assert_eq!((world.echoes.len(), world.routes.len()), (asked, 0));
    // With one way there is nobody else to ask: silence takes as long as the peer may.
    let mut world = talking(&[ONE]);
    let asked = world.echoes.len();
    world.dead.insert(ONE);
    world.pass(300);
    assert_eq!((world.echoes.len(), world.routes.len()), (asked, 0));
}

/// Proves: M12
#[test]
fn a_link_that_came_back_is_left_as_soon_as_any_when_silent() {
    let mut world = talking(&[ONE, TWO]);
    for _ in 0..3 {
        world.carrier(ONE, false);
        assert!(world.until_heard(60) <= 5);
        world.carrier(ONE, true);
        assert!(world.until_heard(60) <= 5);
        world.dead.insert(ONE);
        let gap = world.until_heard(60);
        assert!((1..=9).contains(&gap), "{gap} s");
        // By its carrier while there is a detour: that says nothing of the other link any more.
        world.carrier(ONE, false);
        assert_eq!((world.home_by(), world.kernel.detours.len()), (Some(TWO), 0));
        world.dead.clear();
        world.carrier(ONE, true);
        assert_eq!((world.home_by(), world.until_heard(60)), (Some(ONE), 0));
    }
}

/// Proves: M12
#[test]
fn without_links_each_is_tried_and_the_first_one_back_is_used() {
    for back in [ONE, TWO, THREE] {
        let mut world = talking(&[ONE, TWO, THREE]);
        world.dead.extend([ONE, TWO, THREE]);
        let mut tried = BTreeSet::new();
        for _ in 0..120 {
            world.pass(1);
            tried.extend(world.home_by());
        }
        assert_eq!(tried, BTreeSet::from([ONE, TWO, THREE]));
        world.dead.remove(&back);
        let gap = world.until_heard(60);
        assert!(gap <= 15, "{back} is found after {gap} s");
        // No carrier anywhere is no way at all.
        [ONE, TWO, THREE].iter().for_each(|link| world.carrier(*link, false));
        world.pass(30);
        assert_eq!((world.home_by(), world.kernel.detours.len()), (None, 0));
        world.carrier(back, true);
        assert!(world.until_heard(60) <= 5);
    }
}

/// Proves: M12
#[test]
fn who_never_answered_is_asked_for_nothing_when_a_link_is_lost() {
    let mut world = World::with_links(&[ONE, TWO]);
    world.peers(&[(1, peer(1, 1, None, &[HOME]))]);
    world.pass(10);
    world.carrier(ONE, false);
    world.pass(10);
    assert_eq!(world.echoes, [], "nobody knows whether it is there");
}

/// Proves: M12
#[test]
fn a_detour_outlives_what_the_cluster_says_of_its_peer() {
    let mut world = talking(&[ONE, TWO]);
    world.dead.insert(ONE);
    world.pass(30);
    let (detours, routes) = (world.kernel.detours.clone(), world.routes.len());
    assert_eq!(detours.len(), 1);
    world.changed(&[(1, Some(peer(1, 1, None, &[HOME, OTHER])))]);
    world.pass(5);
    assert_eq!((&world.kernel.detours, world.routes.len()), (&detours, routes), "it works, so nothing is written");
}

/// Proves: M9 M12
#[test]
fn the_path_by_another_way_is_measured_at_once() {
    let mut world = talking(&[ONE, TWO]);
    let key = VpnPubKey([1; 32]);
    assert!(world.routes.is_empty(), "nothing is narrow by the first");
    world.narrow.insert(key, 1328);
    world.carrier(ONE, false);
    world.pass(30);
    let own = Ipv4Prefix::new(peer(1, 1, None, &[]).vpn_ip, 32).expect("an address");
    assert_eq!(world.kernel.routes.get(&own), Some(&Some(1328)));
}

/// The machine says nothing itself, so nothing of its own is left without an answer.
///
/// Proves: M12
#[test]
fn a_machine_that_only_listens_notices_a_silent_uplink() {
    let mut world = talking(&[ONE, TWO]);
    let key = world.wanted.pop_first().expect("the peer");
    world.tell.insert(key);
    world.pass(30);
    world.dead.insert(ONE);
    let gap = world.until_heard(60);
    assert!(gap <= 5, "it carries after {gap} s");
    assert_eq!(world.home_by(), Some(TWO));
    // Once nobody says anything any more, nobody is asked for anything.
    world.tell.clear();
    world.pass(30);
    let asked = world.echoes.len();
    world.pass(300);
    assert_eq!(world.echoes.len(), asked);
}

/// The way in the middle leads nowhere either, as an uplink without the peer's network behind it.
///
/// Proves: M12
#[test]
fn the_last_of_three_ways_comes_in_time() {
    let mut world = talking(&[ONE, TWO, THREE]);
    world.dead.extend([ONE, TWO]);
    let gap = world.until_heard(60);
    assert!(gap <= 9, "it carries after {gap} s");
    assert_eq!(world.home_by(), Some(THREE));
}

/// Proves: M12
#[test]
fn peers_go_by_their_own_ways_and_a_detour_goes_with_its_peer() {
    let mut world = talking(&[ONE, TWO]);
    let (key, near) = (VpnPubKey([2; 32]), Ipv4Prefix::around(*at(OTHER).ip(), 24).expect("a prefix"));
    // The second peer is on the second link itself.
    let route = UplinkRoute { to: near, metric: 0, way: Way { link: TWO, gateway: None } };
    world.links.get_mut(&TWO).expect("it is there").push(route);
    world.carrier(TWO, true);
    world.wanted.insert(key);
    world.answers(2, OTHER);
    let both = [(1, peer(1, 1, None, &[HOME])), (2, peer(2, 2, None, &[OTHER]))];
    world.peers(&both);
    world.pass(30);
    world.dead.insert(TWO);
    world.pass(30);
    assert_eq!(world.kernel.detours, BTreeMap::from([(*at(OTHER).ip(), way(ONE))]));
    // What the cluster says of it otherwise leaves the detour, another key or none does not.
    world.changed(&[(2, Some(peer(2, 2, Some(7), &[OTHER])))]);
    world.pass(10);
    assert_eq!(world.kernel.detours.len(), 1);
    world.changed(&[(2, None)]);
    world.pass(3);
    assert!(world.kernel.detours.is_empty());
    // What somebody else has put there goes.
    world.kernel.detours.insert(*at(HOME).ip(), way(TWO));
    world.pass(3);
    assert!(world.kernel.detours.is_empty());
}

/// A router lets both of them through at its own address.
///
/// Proves: M12
#[test]
fn two_peers_behind_one_address_go_another_way_together() {
    for last in [TWO, THREE] {
        let mut world = talking(&[ONE, TWO, THREE]);
        let beside = "192.0.2.1:7839";
        world.wanted.insert(VpnPubKey([2; 32]));
        world.answers(2, beside);
        world.peers(&[(1, peer(1, 1, None, &[HOME])), (2, peer(2, 2, None, &[beside]))]);
        world.pass(30);
        world.dead.extend([ONE, TWO, THREE].into_iter().filter(|link| *link != last));
        let mut alone = talking(&[ONE, TWO, THREE]);
        alone.pass(30);
        alone.dead.clone_from(&world.dead);
        assert_eq!(world.until_heard(60), alone.until_heard(60), "as soon as one of them alone");
        world.pass(60);
        assert_eq!((world.home_by(), world.until_heard(5)), (Some(last), 0));
        // One of them is switched off, which says nothing of the way.
        world.answers.remove(&(VpnPubKey([1; 32]), at(HOME)));
        let heard = |world: &World| world.kernel.peers[&VpnPubKey([2; 32])].counters.received;
        for second in 0..300 {
            let before = heard(&world);
            world.pass(1);
            assert!(heard(&world) > before, "{second}");
        }
    }
}

/// The echo that tells a peer of the other way is waited for from then on, and not from the next look.
///
/// Proves: M12
#[test]
fn another_way_that_is_silent_from_the_start_is_left_in_time() {
    let mut world = talking(&[ONE, TWO, THREE]);
    // What it said last is an answer, and nothing is on its way.
    world.wanted.clear();
    world.pass(10);
    world.dead.insert(TWO);
    let since = world.now;
    world.carrier(ONE, false);
    assert_eq!(world.home_by(), Some(TWO));
    while world.home_by() == Some(TWO) {
        world.pass(1);
    }
    assert_eq!((world.home_by(), world.now - since), (Some(THREE), mesh::answering::DEAF_AFTER));
}

/// Proves: M12
#[test]
fn each_way_and_each_endpoint_is_given_its_time() {
    let mut world = talking(&[ONE, TWO, THREE]);
    world.dead.extend([ONE, TWO]);
    let by = |world: &mut World, link: u32| {
        (0..60)
            .take_while(|_| {
                world.pass(1);
                world.home_by() == Some(link)
            })
            .count()
    };
    assert_eq!((by(&mut world, ONE), by(&mut world, TWO)), (4, 1), "4 s for what worked, 2 s for another way");
    let mut world = World::with_links(&[ONE, TWO]);
    world.wanted.insert(VpnPubKey([1; 32]));
    world.peers(&[(1, peer(1, 1, None, &[HOME, OTHER]))]);
    let at_first = (0..60).take_while(|_| {
        world.pass(1);
        world.endpoint(1) == Some(at(HOME))
    });
    assert_eq!(at_first.count(), 5, "3 s for an endpoint, behind the look that finds something sent");
}

/// Proves: M12
#[test]
fn a_way_that_comes_while_a_peer_is_silent_is_taken_at_once() {
    let mut world = talking(&[ONE, TWO]);
    world.carrier(TWO, false);
    world.pass(10);
    world.dead.insert(ONE);
    world.pass(9);
    assert_eq!(world.routes, [], "there is one way, and the peer may take its time");
    world.carrier(TWO, true);
    assert_eq!(world.routes, [Route::Detour(*at(HOME).ip(), way(TWO))]);
}

/// Proves: M12
#[test]
fn who_rested_for_long_is_tried_by_another_way_once() {
    let mut world = talking(&[ONE, TWO]);
    let key = world.wanted.pop_first().expect("the peer");
    world.pass(3600);
    world.dead.insert(ONE);
    world.wanted.insert(key);
    let gap = world.until_heard(60);
    assert!(gap <= 9, "nothing was heard for {gap} s");
}

/// Proves: M12
#[test]
fn a_detour_ends_where_its_peer_is_nowhere() {
    let mut world = talking(&[ONE, TWO]);
    world.dead.insert(ONE);
    world.pass(30);
    assert_eq!(world.kernel.detours.len(), 1);
    world.kernel.peers.get_mut(&VpnPubKey([1; 32])).expect("a peer").endpoint = None;
    world.handle(Event::LinksChanged);
    assert!(world.kernel.detours.is_empty());
}
