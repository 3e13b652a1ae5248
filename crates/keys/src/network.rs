//! Network settings as protobuf: one form for the seal's clear part and the enrolment config.
//!
//! ```text
//! message Network { oneof way { Dhcp dhcp = 1; Static static = 2; } }
//! message Static  { fixed32 address = 1; uint32 prefix_bits = 2; optional fixed32 gateway = 3; repeated Dns dns = 4; }  // at most 3
//! message Dns     { fixed32 address = 1; }
//! message Prefix  { fixed32 address = 1; uint32 bits = 2; }
//! ```
//! An address is its number (RFC 791: the first byte is the most significant), stored as protobuf stores a fixed32.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use formats::strict::{Field, Kind, Message, Rule};
use model::{
    BadPrefix, Ipv4Prefix, LINK_BITS, NetworkConfig, POD_PREFIX, PrefixUse, Prefixes, SERVICE_PREFIX, UnfitLink,
};

/// The table of `Network`.
pub const NETWORK: Message = Message {
    name: "Network",
    fields: &[
        Field { number: 1, name: "dhcp", kind: Kind::Message(&DHCP), rule: Rule::Arm("way") },
        Field { number: 2, name: "static", kind: Kind::Message(&STATIC), rule: Rule::Arm("way") },
    ],
};

/// The table of `Prefix`.
pub const PREFIX: Message = Message {
    name: "Prefix",
    fields: &[
        Field { number: 1, name: "address", kind: Kind::Fixed32, rule: Rule::Required },
        Field { number: 2, name: "bits", kind: Kind::U32, rule: Rule::Required },
    ],
};

const DHCP: Message = Message { name: "Dhcp", fields: &[] };
const STATIC: Message = Message {
    name: "Static",
    fields: &[
        Field { number: 1, name: "address", kind: Kind::Fixed32, rule: Rule::Required },
        Field { number: 2, name: "prefix_bits", kind: Kind::U32, rule: Rule::Required },
        Field { number: 3, name: "gateway", kind: Kind::Fixed32, rule: Rule::Optional },
        Field { number: 4, name: "dns", kind: Kind::Message(&DNS), rule: Rule::Repeated },
    ],
};
const DNS: Message =
    Message { name: "Dns", fields: &[Field { number: 1, name: "address", kind: Kind::Fixed32, rule: Rule::Required }] };

/// How many resolvers a static config may name.
pub const MOST_RESOLVERS: usize = 3;

/// `Network` on the wire.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NetworkWire {
    #[prost(oneof = "Way", tags = "1, 2")]
    way: Option<Way>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Way {
    #[prost(message, tag = "1")]
    Dhcp(Dhcp),
    #[prost(message, tag = "2")]
    Static(Static),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Dhcp {}

#[derive(Clone, PartialEq, prost::Message)]
struct Static {
    #[prost(fixed32, required, tag = "1")]
    address: u32,
    #[prost(uint32, required, tag = "2")]
    prefix_bits: u32,
    #[prost(fixed32, optional, tag = "3")]
    gateway: Option<u32>,
    #[prost(message, repeated, tag = "4")]
    dns: Vec<Dns>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Dns {
    #[prost(fixed32, required, tag = "1")]
    address: u32,
}

/// `Prefix` on the wire.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PrefixWire {
    #[prost(fixed32, required, tag = "1")]
    address: u32,
    #[prost(uint32, required, tag = "2")]
    bits: u32,
}

/// Why network settings cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// Neither DHCP nor static.
    #[error("the network is neither DHCP nor static")]
    NoWay,
    /// The machine's address is not one a machine can have.
    #[error("{0} is not an address a machine can have")]
    Address(Ipv4Addr),
    /// Not in [`LINK_BITS`].
    #[error("a static address has a prefix of {min} to {max} bits, not {0}", min = LINK_BITS.start(), max = LINK_BITS.end())]
    PrefixBits(u32),
    /// The gateway is not a neighbour.
    #[error("the gateway {0} is not a neighbour of the static address")]
    Gateway(Ipv4Addr),
    /// A resolver's address cannot be asked.
    #[error("{0} is not an address a resolver can have")]
    Resolver(Ipv4Addr),
    /// Too many resolvers.
    #[error("a static network names at most {MOST_RESOLVERS} resolvers")]
    Resolvers,
    /// A cluster's prefix is no prefix.
    #[error("the prefix of {what} is none")]
    Prefix {
        /// Use of the cluster's prefix.
        what: PrefixUse,
        /// Why it is none.
        source: BadPrefix,
    },
    /// A cluster's prefix has no room, or too much.
    #[error("the prefix of {what} has {min} to {max} bits, not {bits}", min = fit.start(), max = fit.end())]
    Bits {
        /// Use of the cluster's prefix.
        what: PrefixUse,
        /// The length that it has.
        bits: u8,
        /// Lengths that it may have.
        fit: &'static RangeInclusive<u8>,
    },
    /// A cluster's prefix is not one for ordinary unicast addresses.
    #[error("{prefix}, the prefix of {what}, is not for ordinary unicast addresses")]
    Range {
        /// The prefix.
        prefix: Ipv4Prefix,
        /// Use of the cluster's prefix.
        what: PrefixUse,
    },
    /// Two prefixes of a cluster overlap.
    #[error("{prefix}, the prefix of {what}, overlaps {other}, which is kept for {others}")]
    Overlap {
        /// The prefix.
        prefix: Ipv4Prefix,
        /// Use of the prefix.
        what: PrefixUse,
        /// The one it overlaps.
        other: Ipv4Prefix,
        /// Use of the other one.
        others: PrefixUse,
    },
    /// The machine's network has what the cluster keeps for itself.
    #[error("the machine's network does not fit")]
    Link(#[from] UnfitLink),
}

/// The wire form of network settings.
#[must_use]
pub fn network_to_wire(network: &NetworkConfig) -> NetworkWire {
    let way = match network {
        NetworkConfig::Dhcp => Way::Dhcp(Dhcp {}),
        NetworkConfig::Static { address, prefix_bits, gateway, dns } => Way::Static(Static {
            address: (*address).into(),
            prefix_bits: (*prefix_bits).into(),
            gateway: gateway.map(Into::into),
            dns: dns.iter().map(|address| Dns { address: (*address).into() }).collect(),
        }),
    };
    NetworkWire { way: Some(way) }
}

/// The meaning of network settings.
///
/// # Errors
/// [`BadNetwork`] when they cannot work.
pub fn network_from_wire(wire: &NetworkWire) -> Result<NetworkConfig, BadNetwork> {
    let given = match &wire.way {
        None => return Err(BadNetwork::NoWay),
        Some(Way::Dhcp(Dhcp {})) => return Ok(NetworkConfig::Dhcp),
        Some(Way::Static(given)) => given,
    };
    let address = Ipv4Addr::from(given.address);
    if !can_be_a_host(address) {
        return Err(BadNetwork::Address(address));
    }
    let prefix_bits = u8::try_from(given.prefix_bits)
        .ok()
        .filter(|bits| LINK_BITS.contains(bits))
        .ok_or(BadNetwork::PrefixBits(given.prefix_bits))?;
    let near = Ipv4Prefix::around(address, prefix_bits).map_err(|_| BadNetwork::PrefixBits(given.prefix_bits))?;
    let gateway = given.gateway.map(Ipv4Addr::from);
    if let Some(gateway) = gateway.filter(|gateway| !near.contains(*gateway) || *gateway == address) {
        return Err(BadNetwork::Gateway(gateway));
    }
    let dns: Vec<_> = given.dns.iter().map(|dns| Ipv4Addr::from(dns.address)).collect();
    if let Some(bad) = dns.iter().find(|address| !can_be_a_host(**address)) {
        return Err(BadNetwork::Resolver(*bad));
    }
    if dns.len() > MOST_RESOLVERS {
        return Err(BadNetwork::Resolvers);
    }
    Ok(NetworkConfig::Static { address, prefix_bits, gateway, dns })
}

/// The wire form of a prefix.
#[must_use]
pub fn prefix_to_wire(prefix: Ipv4Prefix) -> PrefixWire {
    PrefixWire { address: prefix.address().into(), bits: prefix.bits().into() }
}

/// The prefix that is meant.
///
/// # Errors
/// [`BadPrefix`] when it is none.
pub fn prefix_from_wire(wire: &PrefixWire) -> Result<Ipv4Prefix, BadPrefix> {
    let bits = u8::try_from(wire.bits).map_err(|_| BadPrefix::Bits)?;
    Ipv4Prefix::new(wire.address.into(), bits)
}

/// Prefixes of a cluster on the wire, each a field of its own in the messages that have them. Pods and services are named where theirs are
/// not the usual ones.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefixesWire {
    /// Addresses of machines in the VPN.
    pub vpn: PrefixWire,
    /// Addresses of pods.
    pub pods: Option<PrefixWire>,
    /// Addresses of services.
    pub services: Option<PrefixWire>,
}

impl From<Prefixes> for PrefixesWire {
    fn from(Prefixes { vpn, pods, services }: Prefixes) -> Self {
        let named = |prefix: Ipv4Prefix, usual| (prefix != usual).then(|| prefix_to_wire(prefix));
        Self { vpn: prefix_to_wire(vpn), pods: named(pods, POD_PREFIX), services: named(services, SERVICE_PREFIX) }
    }
}

impl PrefixesWire {
    /// The prefixes that are meant.
    ///
    /// # Errors
    /// [`BadNetwork`] when one is none, or no cluster can have them.
    pub fn read(&self) -> Result<Prefixes, BadNetwork> {
        let read =
            |what, wire: &PrefixWire| prefix_from_wire(wire).map_err(|source| BadNetwork::Prefix { what, source });
        let named = |what, wire: &Option<PrefixWire>, usual| wire.as_ref().map_or(Ok(usual), |wire| read(what, wire));
        let prefixes = Prefixes {
            vpn: read(PrefixUse::Vpn, &self.vpn)?,
            pods: named(PrefixUse::Pods, &self.pods, POD_PREFIX)?,
            services: named(PrefixUse::Services, &self.services, SERVICE_PREFIX)?,
        };
        judge_prefixes(prefixes)?;
        Ok(prefixes)
    }

    /// The same, if a machine with these settings can be in such a cluster.
    ///
    /// # Errors
    /// As above, and when they collide with the machine's static network.
    pub fn read_beside(&self, network: &NetworkConfig) -> Result<Prefixes, BadNetwork> {
        let prefixes = self.read()?;
        if let NetworkConfig::Static { address, prefix_bits, gateway: _, dns } = network {
            prefixes.judge_link(*address, *prefix_bits)?;
            dns.iter().try_for_each(|resolver| prefixes.judge_resolver(*resolver))?;
        }
        Ok(prefixes)
    }
}

/// Lengths of the prefixes of a cluster's VPN and pods. A worker has a /24 of its own.
const FIT: RangeInclusive<u8> = 8..=24;
/// Lengths of the prefix of services: the apiserver takes no more than 2^20 of them (kubernetes `cmd/kube-apiserver/app/options/validation.go`).
const SERVICES_FIT: RangeInclusive<u8> = 12..=24;

/// Judges the prefixes that a cluster keeps for itself.
///
/// # Errors
/// [`BadNetwork`] when one has no room, or collides with another.
pub fn judge_prefixes(prefixes: Prefixes) -> Result<(), BadNetwork> {
    let rows = prefixes.rows();
    for ((prefix, what), fit) in rows.into_iter().zip([&FIT, &FIT, &SERVICES_FIT]) {
        if !fit.contains(&prefix.bits()) {
            return Err(BadNetwork::Bits { what, bits: prefix.bits(), fit });
        }
        if !can_be_a_host(prefix.address()) {
            return Err(BadNetwork::Range { prefix, what });
        }
    }
    let [vpn, pods, services] = rows;
    for ((prefix, what), (other, others)) in [(vpn, pods), (vpn, services), (pods, services)] {
        if prefix.overlaps(other) {
            return Err(BadNetwork::Overlap { prefix, what, other, others });
        }
    }
    Ok(())
}

pub(crate) fn can_be_a_host(address: Ipv4Addr) -> bool {
    // 0/8 is "this network" (RFC 1122), 240/4 is reserved (RFC 1112) and holds the broadcast address.
    address.octets()[0] != 0 && address.octets()[0] < 240 && !address.is_loopback() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(address: [u8; 4], bits: u32, gateway: Option<[u8; 4]>, dns: &[[u8; 4]]) -> NetworkWire {
        let dns = dns.iter().map(|address| Dns { address: u32::from_be_bytes(*address) }).collect();
        let gateway = gateway.map(u32::from_be_bytes);
        let given = Static { address: u32::from_be_bytes(address), prefix_bits: bits, gateway, dns };
        NetworkWire { way: Some(Way::Static(given)) }
    }

    #[test]
    fn a_static_network_that_cannot_work_is_refused_by_name() {
        let (own, near) = ([192, 0, 2, 5], Some([192, 0, 2, 1]));
        let resolver = [9, 9, 9, 9];
        for good in [
            given(own, 24, near, &[resolver; 3]),
            given(own, 8, near, &[]),
            given(own, 32, None, &[[1, 0, 0, 1], [223, 0, 0, 1]]),
        ] {
            let read = network_from_wire(&good).expect("it works");
            assert_eq!(network_to_wire(&read), good);
        }
        let gateway = |address: [u8; 4]| Err(BadNetwork::Gateway(address.into()));
        for (bad, why) in [
            (NetworkWire { way: None }, Err(BadNetwork::NoWay)),
            (given([0, 0, 2, 5], 24, None, &[]), Err(BadNetwork::Address([0, 0, 2, 5].into()))),
            (given([127, 0, 0, 1], 8, None, &[]), Err(BadNetwork::Address([127, 0, 0, 1].into()))),
            (given([224, 0, 0, 1], 24, None, &[]), Err(BadNetwork::Address([224, 0, 0, 1].into()))),
            (given([240, 0, 0, 1], 24, None, &[]), Err(BadNetwork::Address([240, 0, 0, 1].into()))),
            (given(own, 7, None, &[]), Err(BadNetwork::PrefixBits(7))),
            (given(own, 33, None, &[]), Err(BadNetwork::PrefixBits(33))),
            (given(own, 256 + 24, None, &[]), Err(BadNetwork::PrefixBits(280))),
            (given(own, 24, Some([192, 0, 3, 1]), &[]), gateway([192, 0, 3, 1])),
            (given(own, 24, Some(own), &[]), gateway(own)),
            (given(own, 24, near, &[resolver, [0, 0, 0, 1]]), Err(BadNetwork::Resolver([0, 0, 0, 1].into()))),
            (given(own, 24, near, &[resolver; 4]), Err(BadNetwork::Resolvers)),
        ] {
            assert_eq!(network_from_wire(&bad), why, "{bad:?}");
        }
    }

    /// Proves: M8 H3
    #[test]
    fn prefixes_have_room_and_are_nobody_elses() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().expect("a prefix");
        let read = |prefixes: Prefixes, network: &NetworkConfig| {
            PrefixesWire::from(prefixes).read_beside(network).map(|read| assert_eq!(read, prefixes))
        };
        let of = |vpn: &str| read(Prefixes::of(prefix(vpn)), &NetworkConfig::Dhcp);
        for good in ["11.0.0.0/8", "10.118.0.0/16", "192.168.7.0/24"] {
            assert_eq!(of(good), Ok(()), "{good}");
        }
        let what = PrefixUse::Vpn;
        assert_eq!(of("10.0.0.0/7"), Err(BadNetwork::Bits { what, bits: 7, fit: &FIT }));
        assert_eq!(of("192.168.7.0/25"), Err(BadNetwork::Bits { what, bits: 25, fit: &FIT }));
        for reserved in ["0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/24", "240.0.0.0/16"] {
            assert_eq!(of(reserved), Err(BadNetwork::Range { prefix: prefix(reserved), what }));
        }
        for (taken, whose) in [("10.244.3.0/24", PrefixUse::Pods), ("10.96.0.0/12", PrefixUse::Services)] {
            let refused = of(taken);
            assert!(matches!(refused, Err(BadNetwork::Overlap { others, .. }) if others == whose), "{refused:?}");
        }
        let usual = Prefixes::of(prefix("10.118.0.0/16"));
        let chosen = |pods: &str, services: &str| {
            let prefixes = Prefixes { pods: prefix(pods), services: prefix(services), ..usual };
            read(prefixes, &NetworkConfig::Dhcp).map_err(|bad| bad.to_string())
        };
        for (pods, services) in
            [("172.29.0.0/16", "172.30.0.0/20"), ("11.0.0.0/8", "10.96.0.0/12"), ("10.244.0.0/24", "10.1.0.0/24")]
        {
            assert_eq!(chosen(pods, services), Ok(()), "{pods} {services}");
        }
        for (pods, services, why) in [
            ("10.0.0.0/7", "172.30.0.0/16", "the prefix of pods has 8 to 24 bits, not 7"),
            ("172.29.0.0/25", "172.30.0.0/16", "the prefix of pods has 8 to 24 bits, not 25"),
            ("172.29.0.0/16", "11.0.0.0/11", "the prefix of services has 12 to 24 bits, not 11"),
            ("172.29.0.0/16", "172.30.0.0/25", "the prefix of services has 12 to 24 bits, not 25"),
            (
                "172.29.0.0/16",
                "224.0.0.0/16",
                "224.0.0.0/16, the prefix of services, is not for ordinary unicast addresses",
            ),
            (
                "10.118.9.0/24",
                "172.30.0.0/16",
                "10.118.0.0/16, the prefix of the VPN, overlaps 10.118.9.0/24, which is kept for pods",
            ),
            (
                "172.16.0.0/12",
                "172.30.0.0/16",
                "172.16.0.0/12, the prefix of pods, overlaps 172.30.0.0/16, which is kept for services",
            ),
        ] {
            assert_eq!(chosen(pods, services), Err(why.to_owned()));
        }
        let beside = |address: [u8; 4], dns: [u8; 4]| {
            let dns = vec![dns.into()];
            NetworkConfig::Static { address: address.into(), prefix_bits: 24, gateway: None, dns }
        };
        let usually = |network| read(usual, &network);
        assert_eq!(usually(beside([192, 0, 2, 5], [9, 9, 9, 9])), Ok(()));
        assert!(matches!(usually(beside([10, 118, 9, 5], [9, 9, 9, 9])), Err(BadNetwork::Link(_))), "its own link");
        assert!(matches!(usually(beside([192, 0, 2, 5], [10, 244, 0, 9])), Err(BadNetwork::Link(_))), "its resolver");
        let elsewhere = Prefixes { pods: prefix("172.29.0.0/16"), ..usual };
        assert_eq!(read(elsewhere, &beside([10, 244, 0, 5], [10, 244, 0, 9])), Ok(()), "nobody keeps it");
        assert!(read(elsewhere, &beside([172, 29, 0, 5], [9, 9, 9, 9])).is_err());
    }
}
