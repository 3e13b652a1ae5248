//! By which uplink packets to an address leave the machine, and by which others they could.
//!
//! The kernel takes the most special route to an address, of equal ones the one with the lowest metric, of those the first
//! (`fib_table_lookup`, `net/ipv4/fib_trie.c`). A route whose link has no carrier it passes over. A *detour* is a route to one
//! address alone, so it comes before all others. It is made only for a peer that was heard at that address, never where another
//! peer works, and has an end whatever comes.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::kernel::{UplinkRoute, Way};

/// A detour is kept for so long at most; then the usual way is tried again, which costs as long as a try where it is not
/// mended. For so long, too, a peer that has fallen silent is tried by one way after the other without a rest; behind that so seldom.
pub(crate) const KEPT: Duration = Duration::from_secs(600);

/// The best way of each uplink that leads to `address`, in the kernel's order: the first is the usual one.
#[must_use]
pub fn ways(routes: &[UplinkRoute], address: Ipv4Addr) -> Vec<Way> {
    let mut leading: Vec<&UplinkRoute> = routes.iter().filter(|route| route.to.contains(address)).collect();
    // A stable sort: of equal ones the first stays the first.
    leading.sort_by_key(|route| (std::cmp::Reverse(route.to.bits()), route.metric));
    let mut ways: Vec<Way> = Vec::new();
    for route in leading {
        if ways.iter().all(|way| way.link != route.way.link) {
            ways.push(route.way);
        }
    }
    ways
}

/// A way to one address that is not the usual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detour {
    /// The address.
    pub address: Ipv4Addr,
    /// How it is reached.
    pub way: Way,
    /// Usual way at that time: when it is another one now, nothing is known against it.
    usual: Way,
    /// When the usual way is tried again.
    again_at: Instant,
}

impl Detour {
    /// The way behind the present one, if there is any left.
    #[must_use]
    pub fn next(present: Option<&Self>, address: Ipv4Addr, ways: &[Way], now: Instant) -> Option<Self> {
        let usual = *ways.first()?;
        let present = present.map_or(usual, |detour| detour.way);
        let place = ways.iter().position(|way| *way == present)?;
        let way = *ways.get(place + 1)?;
        Some(Self { address, way, usual, again_at: now + KEPT })
    }

    /// Whether it is still a detour: the same address is wanted, the same way is the usual one, and this one is there.
    #[must_use]
    pub fn holds(&self, address: Ipv4Addr, ways: &[Way]) -> bool {
        self.address == address && ways.first() == Some(&self.usual) && ways.contains(&self.way)
    }

    /// Whether the usual way is to be tried again.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.again_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    fn route(to: &str, metric: u32, link: u32, gateway: Option<[u8; 4]>) -> UplinkRoute {
        let to = to.parse().expect("a prefix");
        UplinkRoute { to, metric, way: Way { link, gateway: gateway.map(Ipv4Addr::from) } }
    }

    /// Proves: M12
    #[test]
    fn the_usual_way_is_the_kernels_and_each_uplink_has_one() {
        let (gateway_2, gateway_3) = (Some([198, 51, 100, 1]), Some([192, 0, 2, 1]));
        let routes = [
            route("0.0.0.0/0", 102, 2, gateway_2),
            route("0.0.0.0/0", 103, 3, gateway_3),
            route("198.51.100.0/24", 0, 2, None),
            route("192.0.2.0/24", 0, 3, None),
            route("192.0.2.0/24", 0, 4, None),
        ];
        let way = |link, gateway: Option<[u8; 4]>| Way { link, gateway: gateway.map(Ipv4Addr::from) };
        assert_eq!(ways(&routes, PEER), [way(3, None), way(4, None), way(2, gateway_2)]);
        assert_eq!(ways(&routes, [203, 0, 113, 1].into()), [way(2, gateway_2), way(3, gateway_3)]);
        assert_eq!(ways(&routes[2..], [203, 0, 113, 1].into()), []);
        // Length of the prefix first, then the metric, and only then the order in which they are told.
        let told =
            [route("0.0.0.0/0", 0, 2, gateway_2), route("192.0.2.0/24", 9, 3, None), route("192.0.2.0/24", 5, 4, None)];
        assert_eq!(ways(&told, PEER), [way(4, None), way(3, None), way(2, gateway_2)]);
    }

    /// Proves: M12
    #[test]
    fn a_detour_tries_all_ways_until_the_usual_one_is_another() {
        let way = |link| Way { link, gateway: None };
        let (ways, now) = ([way(2), way(3), way(4)], testkit::origin());
        let first = Detour::next(None, PEER, &ways, now).expect("another way");
        let second = Detour::next(Some(&first), PEER, &ways, now).expect("one more");
        assert_eq!((first.way, second.way), (way(3), way(4)));
        assert_eq!(Detour::next(Some(&second), PEER, &ways, now), None, "there is none left");
        assert_eq!(Detour::next(None, PEER, &ways[..1], now), None);
        assert!(first.holds(PEER, &ways) && first.holds(PEER, &ways[..2]));
        assert!(!first.holds([192, 0, 2, 8].into(), &ways), "another address");
        assert!(!first.holds(PEER, &ways[1..]), "the usual way is gone");
        assert!(!first.holds(PEER, &[way(2), way(4)]), "its own link is gone");
        assert!(!first.is_over(now + KEPT / 2) && first.is_over(now + KEPT));
    }
}
