//! Addresses and ports: what listens where, and prefixes that divide the cluster's networks.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// TCP, all addresses: the public API.
pub const PUBLIC_API_PORT: u16 = 7836;
/// UDP, all addresses: WireGuard.
pub const VPN_PORT: u16 = 7838;
/// TCP, VPN addresses only: etcd between coordinators.
pub const ETCD_PEER_PORT: u16 = 7834;
/// TCP, VPN addresses only: the members' API.
pub const VPN_API_PORT: u16 = 7835;
/// TCP, VPN address: kubelet, which asks who calls.
pub const KUBELET_PORT: u16 = 10_250;
/// TCP, loopback only: usage of nodes and pods, which the apiserver has answered in its place.
pub const METRICS_PORT: u16 = 7837;
/// TCP, VPN address and loopback: etcd's clients.
pub const ETCD_CLIENT_PORT: u16 = 2379;
/// TCP, VPN address and loopback: the Kubernetes API.
pub const KUBERNETES_API_PORT: u16 = 6443;

/// Where VPN addresses come from unless the config says otherwise.
pub const VPN_PREFIX: Ipv4Prefix = Ipv4Prefix { address: Ipv4Addr::new(10, 118, 0, 0), bits: 16 };
/// Where addresses of pods come from, a /24 for each worker, unless the config says otherwise. It is what a seal, a config or a record without
/// a prefix of pods means, so it never changes.
pub const POD_PREFIX: Ipv4Prefix = Ipv4Prefix { address: Ipv4Addr::new(10, 244, 0, 0), bits: 16 };
/// The same of Kubernetes' services.
pub const SERVICE_PREFIX: Ipv4Prefix = Ipv4Prefix { address: Ipv4Addr::new(10, 96, 0, 0), bits: 16 };

/// Address ranges that a cluster keeps for itself: nothing around a machine may give out any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefixes {
    /// Addresses of machines in the VPN.
    pub vpn: Ipv4Prefix,
    /// Addresses of pods, a /24 for each worker.
    pub pods: Ipv4Prefix,
    /// Addresses of Kubernetes' services.
    pub services: Ipv4Prefix,
}

/// Use that a cluster has for a prefix that it keeps for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixUse {
    /// Addresses of machines.
    Vpn,
    /// Addresses of pods.
    Pods,
    /// Addresses of Kubernetes' services.
    Services,
}

impl PrefixUse {
    /// Option of `cairnctl` by which a new cluster keeps another prefix for it.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Vpn => "--vpn-prefix",
            Self::Pods => "--pod-prefix",
            Self::Services => "--service-prefix",
        }
    }
}

impl fmt::Display for PrefixUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vpn => "the VPN",
            Self::Pods => "pods",
            Self::Services => "services",
        })
    }
}

impl Prefixes {
    /// Prefixes of a cluster in this VPN whose pods and services have the usual ones.
    #[must_use]
    pub const fn of(vpn: Ipv4Prefix) -> Self {
        Self { vpn, pods: POD_PREFIX, services: SERVICE_PREFIX }
    }

    /// Address of the service `kubernetes`: the first one, fixed by the apiserver.
    ///
    /// # Panics
    /// Where services have fewer than twelve addresses: none do.
    #[must_use]
    pub fn kubernetes_service(self) -> Ipv4Addr {
        self.services.nth(1).expect("services have more than one address")
    }

    /// Address of the service `kube-dns`: the tenth one, as charts expect it.
    ///
    /// # Panics
    /// As above.
    #[must_use]
    pub fn dns_service(self) -> Ipv4Addr {
        self.services.nth(10).expect("services have more than ten addresses")
    }

    /// Address of the service `cairn-metrics`: the eleventh one, behind those that charts expect.
    ///
    /// # Panics
    /// As above.
    #[must_use]
    pub fn metrics_service(self) -> Ipv4Addr {
        self.services.nth(11).expect("services have more than eleven addresses")
    }

    /// Each with what it is for.
    #[must_use]
    pub const fn rows(self) -> [(Ipv4Prefix, PrefixUse); 3] {
        [(self.vpn, PrefixUse::Vpn), (self.pods, PrefixUse::Pods), (self.services, PrefixUse::Services)]
    }

    /// Judges a link's address, given by DHCP or by the config. A gateway is a neighbour of that address, so it needs
    /// no judgement of its own.
    ///
    /// # Errors
    /// [`UnfitLink`] names what is in the way.
    pub fn judge_link(self, address: Ipv4Addr, bits: u8) -> Result<(), UnfitLink> {
        let link = Ipv4Prefix::of_link(address, bits)?;
        match self.rows().into_iter().find(|(kept, _)| link.overlaps(*kept)) {
            Some((kept, what)) => Err(UnfitLink::Overlaps { address, bits, kept, what }),
            None => Ok(()),
        }
    }

    /// Judges the addresses that links have, each with the bits of its prefix.
    ///
    /// # Errors
    /// As above.
    pub fn judge_links(self, links: &[(Ipv4Addr, u8)]) -> Result<(), UnfitLink> {
        links.iter().try_for_each(|(address, bits)| self.judge_link(*address, *bits))
    }

    /// Judges a resolver that the network or the config names.
    ///
    /// # Errors
    /// [`UnfitLink::Resolver`] when it is one of the cluster's addresses.
    pub fn judge_resolver(self, resolver: Ipv4Addr) -> Result<(), UnfitLink> {
        match self.rows().into_iter().find(|(kept, _)| kept.contains(resolver)) {
            Some((kept, what)) => Err(UnfitLink::Resolver { resolver, kept, what }),
            None => Ok(()),
        }
    }
}

/// How many members of etcd may hold a copy without a vote: two voters more are made of a pair of them.
pub const MOST_ETCD_LEARNERS: usize = 2;

/// How the etcd of the machine at `vpn_ip` is reached by the others; by it etcd knows its members.
#[must_use]
pub fn etcd_peer_url(vpn_ip: Ipv4Addr) -> String {
    format!("https://{vpn_ip}:{ETCD_PEER_PORT}")
}

/// An IPv4 prefix whose host bits are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ipv4Prefix {
    address: Ipv4Addr,
    bits: u8,
}

/// Why a text or pair is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPrefix {
    /// Not `a.b.c.d/n`.
    #[error("not an IPv4 prefix of the form a.b.c.d/n")]
    Form,
    /// More than 32 bits.
    #[error("an IPv4 prefix has at most 32 bits")]
    Bits,
    /// The address has bits set beyond the prefix.
    #[error("the address has bits set beyond the prefix")]
    HostBits,
}

impl Ipv4Prefix {
    /// A prefix from its parts.
    ///
    /// # Errors
    /// [`BadPrefix`] when there are too many bits or host bits are set.
    pub fn new(address: Ipv4Addr, bits: u8) -> Result<Self, BadPrefix> {
        if bits > 32 {
            return Err(BadPrefix::Bits);
        }
        let prefix = Self { address, bits };
        if u32::from(address) & !prefix.mask_bits() != 0 { Err(BadPrefix::HostBits) } else { Ok(prefix) }
    }

    /// The prefix of 65 536 addresses that begin with these two bytes.
    #[must_use]
    pub const fn of_16([first, second]: [u8; 2]) -> Self {
        Self { address: Ipv4Addr::new(first, second, 0, 0), bits: 16 }
    }

    /// The prefix that `address` lies in.
    ///
    /// # Errors
    /// [`BadPrefix::Bits`] when there are more than 32.
    pub fn around(address: Ipv4Addr, bits: u8) -> Result<Self, BadPrefix> {
        if bits > 32 {
            return Err(BadPrefix::Bits);
        }
        let mask = Self { address, bits }.mask_bits();
        Ok(Self { address: Ipv4Addr::from(u32::from(address) & mask), bits })
    }

    /// The prefix of a link that has this address.
    ///
    /// # Errors
    /// [`UnfitLink::Bits`] when it has not as many as [`LINK_BITS`] has.
    pub fn of_link(address: Ipv4Addr, bits: u8) -> Result<Self, UnfitLink> {
        let link = Self::around(address, bits).ok().filter(|link| LINK_BITS.contains(&link.bits));
        link.ok_or(UnfitLink::Bits { address, bits })
    }

    /// Network address: the first one of the prefix.
    #[must_use]
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The length, 0 to 32.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// Netmask of the prefix's length.
    #[must_use]
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from(self.mask_bits())
    }

    /// The `index`th address of the prefix (0 is the network address), if it has that many.
    #[must_use]
    pub fn nth(self, index: u32) -> Option<Ipv4Addr> {
        let size = 1u64 << (32 - u32::from(self.bits));
        (u64::from(index) < size).then(|| Ipv4Addr::from(u32::from(self.address) + index))
    }

    /// Whether `address` lies in the prefix.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask_bits() == u32::from(self.address)
    }

    /// Whether the two share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    fn mask_bits(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0)
    }
}

impl fmt::Display for Ipv4Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Ipv4Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (address, bits) = text.split_once('/').ok_or(BadPrefix::Form)?;
        Self::new(address.parse().map_err(|_| BadPrefix::Form)?, bits.parse().map_err(|_| BadPrefix::Form)?)
    }
}

/// How long a link's prefix may be. A shorter one than 8 bits is no network that anybody has, but a way to draw all
/// traffic to one link.
pub const LINK_BITS: std::ops::RangeInclusive<u8> = 8..=32;

/// Why a link cannot have an address, or a resolver not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnfitLink {
    /// Not in [`LINK_BITS`].
    #[error("a link's prefix has {min} to {max} bits, and {address}/{bits} has not", min = LINK_BITS.start(), max = LINK_BITS.end())]
    Bits {
        address: Ipv4Addr,
        /// The length of its prefix.
        bits: u8,
    },
    /// The link would take addresses away from the cluster.
    #[error("{address}/{bits} overlaps {kept}, which is kept for {what}")]
    Overlaps {
        address: Ipv4Addr,
        /// The length of its prefix.
        bits: u8,
        /// The cluster's prefix.
        kept: Ipv4Prefix,
        /// Use of the cluster's prefix.
        what: PrefixUse,
    },
    /// The resolver lies in a prefix of the cluster: somebody else would be asked.
    #[error("the resolver {resolver} lies in {kept}, which is kept for {what}")]
    Resolver {
        resolver: Ipv4Addr,
        /// The cluster's prefix.
        kept: Ipv4Prefix,
        /// Use of the cluster's prefix.
        what: PrefixUse,
    },
}

/// How a machine gets its public addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NetworkConfig {
    /// DHCPv4 on every Ethernet link.
    #[default]
    Dhcp,
    /// The same address on the first link that has carrier.
    Static {
        /// The machine's address.
        address: Ipv4Addr,
        /// Length of the prefix it lies in.
        prefix_bits: u8,
        /// Default route, where there is one.
        gateway: Option<Ipv4Addr>,
        /// Resolvers, in order.
        dns: Vec<Ipv4Addr>,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_read_strictly() {
        assert_eq!("10.118.0.0/16".parse(), Ok(VPN_PREFIX));
        assert_eq!("10.118.0.1/16".parse::<Ipv4Prefix>(), Err(BadPrefix::HostBits));
        assert_eq!("10.118.0.0/33".parse::<Ipv4Prefix>(), Err(BadPrefix::Bits));
        assert_eq!("10.118.0.0".parse::<Ipv4Prefix>(), Err(BadPrefix::Form));
        assert_eq!(VPN_PREFIX.nth(1), Some(Ipv4Addr::new(10, 118, 0, 1)));
        assert_eq!(VPN_PREFIX.nth(1 << 16), None);
    }

    #[test]
    fn prefixes_overlap_whichever_is_asked() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().expect("a prefix");
        for (one, other, overlap) in [
            ("10.244.128.0/17", "10.244.0.0/16", true),
            ("10.244.0.0/16", "10.244.0.0/16", true),
            ("10.0.0.0/8", "10.244.0.0/16", true),
            ("0.0.0.0/0", "255.255.255.255/32", true),
            ("10.118.0.0/16", "10.244.0.0/16", false),
            ("10.244.0.0/17", "10.244.128.0/17", false),
            ("10.244.0.0/16", "10.245.0.0/16", false),
        ] {
            assert_eq!(prefix(one).overlaps(prefix(other)), overlap, "{one} {other}");
            assert_eq!(prefix(other).overlaps(prefix(one)), overlap, "{other} {one}");
        }
    }

    /// A prefix is checked at both ends of its length and between.
    #[test]
    fn a_prefix_has_its_mask_and_its_addresses() {
        for (text, mask, first, last) in [
            ("0.0.0.0/0", [0; 4], [0; 4], [255; 4]),
            ("10.244.128.0/17", [255, 255, 128, 0], [10, 244, 128, 0], [10, 244, 255, 255]),
            ("192.0.2.4/31", [255, 255, 255, 254], [192, 0, 2, 4], [192, 0, 2, 5]),
            ("192.0.2.4/32", [255; 4], [192, 0, 2, 4], [192, 0, 2, 4]),
        ] {
            let prefix: Ipv4Prefix = text.parse().expect("a prefix");
            let (first, last) = (Ipv4Addr::from(first), Ipv4Addr::from(last));
            assert_eq!(prefix.mask(), Ipv4Addr::from(mask), "{text}");
            assert_eq!(prefix.nth(0), Some(first), "{text}");
            assert_eq!(prefix.nth(u32::from(last) - u32::from(first)), Some(last), "{text}");
            assert_eq!(
                (u32::from(last) - u32::from(first)).checked_add(1).and_then(|end| prefix.nth(end)),
                None,
                "{text}"
            );
            assert!(prefix.contains(first) && prefix.contains(last), "{text}");
            let beyond = [u32::from(first).checked_sub(1), u32::from(last).checked_add(1)];
            assert!(!beyond.into_iter().flatten().any(|beyond| prefix.contains(beyond.into())), "{text}");
            for inside in [first, last] {
                assert_eq!(Ipv4Prefix::around(inside, prefix.bits()), Ok(prefix), "{text}");
            }
        }
        assert_eq!(Ipv4Prefix::around(Ipv4Addr::LOCALHOST, 33), Err(BadPrefix::Bits));
        assert_eq!(Ipv4Prefix::new(Ipv4Addr::LOCALHOST, 33), Err(BadPrefix::Bits));
    }

    /// Proves: A7
    #[test]
    fn a_link_takes_nothing_that_the_cluster_keeps() {
        let kept = Prefixes::of("10.7.0.0/16".parse().expect("a prefix"));
        let judged = |text: &str| {
            let (address, bits) = text.split_once('/').expect("an address and bits");
            kept.judge_link(address.parse().expect("an address"), bits.parse().expect("bits"))
                .map_err(|unfit| unfit.to_string())
        };
        for fits in ["192.168.1.2/24", "172.16.3.4/12", "44.1.2.3/8", "10.6.255.1/16", "10.8.0.1/16", "192.0.2.1/32"] {
            assert_eq!(judged(fits), Ok(()), "{fits}");
        }
        for (unfit, why) in [
            ("10.7.0.1/17", "10.7.0.1/17 overlaps 10.7.0.0/16, which is kept for the VPN"),
            ("10.7.3.4/32", "10.7.3.4/32 overlaps 10.7.0.0/16, which is kept for the VPN"),
            ("10.244.0.9/24", "10.244.0.9/24 overlaps 10.244.0.0/16, which is kept for pods"),
            ("10.245.1.1/15", "10.245.1.1/15 overlaps 10.244.0.0/16, which is kept for pods"),
            ("10.96.0.1/16", "10.96.0.1/16 overlaps 10.96.0.0/16, which is kept for services"),
            ("10.200.0.1/8", "10.200.0.1/8 overlaps 10.7.0.0/16, which is kept for the VPN"),
            ("192.168.1.2/0", "a link's prefix has 8 to 32 bits, and 192.168.1.2/0 has not"),
            ("192.168.1.2/7", "a link's prefix has 8 to 32 bits, and 192.168.1.2/7 has not"),
            ("192.168.1.2/33", "a link's prefix has 8 to 32 bits, and 192.168.1.2/33 has not"),
        ] {
            assert_eq!(judged(unfit), Err(why.to_owned()), "{unfit}");
        }
        assert_eq!(kept.judge_resolver(Ipv4Addr::new(10, 118, 0, 1)), Ok(()));
        let why = |resolver| kept.judge_resolver(resolver).map_err(|unfit| unfit.to_string());
        for (resolver, reason) in [
            ([10, 7, 0, 1], "the resolver 10.7.0.1 lies in 10.7.0.0/16, which is kept for the VPN"),
            ([10, 244, 9, 9], "the resolver 10.244.9.9 lies in 10.244.0.0/16, which is kept for pods"),
            ([10, 96, 0, 10], "the resolver 10.96.0.10 lies in 10.96.0.0/16, which is kept for services"),
        ] {
            assert_eq!(why(resolver.into()), Err(reason.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn a_prefix_round_trips_and_holds_its_own(address: u32, bits in 0u8..=32) {
            let address = Ipv4Addr::from(address);
            let prefix = Ipv4Prefix::around(address, bits).expect("at most 32 bits");
            prop_assert!(prefix.contains(address) && prefix.overlaps(prefix));
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
    }
}
