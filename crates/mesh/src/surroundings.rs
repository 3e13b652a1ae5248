//! Addresses near the machine that no other machine's WireGuard has: an endpoint that names one of them is not tried, and no
//! detour leads there. A member may name whatever it likes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use model::Ipv4Prefix;

/// Addresses that the machine's uplinks have at present.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// The machine's own addresses, each with its link's prefix.
    pub links: Vec<(Ipv4Addr, Ipv4Prefix)>,
    /// Through which packets leave for other networks, by whichever link.
    pub gateways: BTreeSet<Ipv4Addr>,
    /// Resolvers that the machine asks.
    pub resolvers: BTreeSet<Ipv4Addr>,
}

impl Surroundings {
    /// Whether the address is the machine's own, a gateway's, a resolver's, or that of a whole link.
    #[must_use]
    pub fn include(&self, address: Ipv4Addr) -> bool {
        let of_link = |(own, prefix): &(Ipv4Addr, Ipv4Prefix)| *own == address || is_broadcast(*prefix, address);
        self.gateways.contains(&address) || self.resolvers.contains(&address) || self.links.iter().any(of_link)
    }
}

/// The first and the last address of a prefix reach all machines on its link (RFC 1122, section 3.2.1.3), unless it has two at
/// most (RFC 3021).
fn is_broadcast(prefix: Ipv4Prefix, address: Ipv4Addr) -> bool {
    let last = prefix.nth(u32::MAX >> prefix.bits().min(31));
    prefix.bits() < 31 && (address == prefix.address() || Some(address) == last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: M6
    #[test]
    fn what_the_machine_itself_uses_is_no_place_of_a_peer() {
        let link = |address: [u8; 4], bits| {
            (address.into(), Ipv4Prefix::around(address.into(), bits).expect("a prefix of a link"))
        };
        let around = Surroundings {
            links: vec![
                link([192, 0, 2, 5], 24),
                link([198, 51, 100, 6], 31),
                link([203, 0, 113, 130], 25),
                link([203, 0, 113, 9], 32),
            ],
            gateways: BTreeSet::from([[192, 0, 2, 1].into()]),
            resolvers: BTreeSet::from([[9, 9, 9, 9].into()]),
        };
        for (address, why) in [
            ([192, 0, 2, 5], "its own"),
            ([203, 0, 113, 130], "its own on another link"),
            ([203, 0, 113, 9], "its own on a link without neighbours"),
            ([192, 0, 2, 1], "a gateway"),
            ([9, 9, 9, 9], "a resolver"),
            ([192, 0, 2, 255], "all on the link"),
            ([192, 0, 2, 0], "all on the link, as it was written once"),
            ([203, 0, 113, 255], "all on a part of a network"),
            ([203, 0, 113, 128], "the same"),
        ] {
            assert!(around.include(address.into()), "{why}");
        }
        for (address, why) in [
            ([192, 0, 2, 6], "a neighbour"),
            ([198, 51, 100, 7], "the other one of two"),
            ([203, 0, 113, 127], "of another network"),
            ([192, 0, 3, 255], "of another network"),
            ([9, 9, 9, 8], "far away"),
        ] {
            assert!(!around.include(address.into()), "{why}");
        }
        assert!(!Surroundings::default().include([192, 0, 2, 5].into()));
    }
}
