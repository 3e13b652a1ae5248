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

use formats::strict::{Field, Kind, Message, Rule};
use model::{BadPrefix, Ipv4Prefix, LINK_BITS, NetworkConfig, Prefixes, UnfitLink};

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
    /// The VPN prefix is no prefix.
    #[error("the VPN prefix is not a prefix: {0}")]
    VpnPrefix(BadPrefix),
    /// The VPN prefix has no room, or too much.
    #[error("the VPN prefix has 8 to 24 bits, not {0}")]
    VpnBits(u8),
    /// The VPN prefix is not one for private unicast addresses.
    #[error("the VPN prefix {0} is not for ordinary unicast addresses")]
    VpnRange(Ipv4Prefix),
    /// The VPN prefix overlaps another one.
    #[error("the VPN prefix {vpn} overlaps {other}, which is kept for {what}")]
    VpnOverlaps {
        /// The VPN prefix.
        vpn: Ipv4Prefix,
        /// The one it overlaps.
        other: Ipv4Prefix,
        /// Use of the cluster's prefix.
        what: &'static str,
    },
    /// The static network takes what the cluster keeps for itself.
    #[error("the static network does not fit")]
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

/// The VPN prefix that is meant, if a cluster can use it beside `network`.
///
/// # Errors
/// [`BadNetwork`] when it is none, has no room, or collides with another prefix or the machine's static network.
pub fn vpn_prefix_from_wire(wire: &PrefixWire, network: &NetworkConfig) -> Result<Ipv4Prefix, BadNetwork> {
    let vpn = prefix_from_wire(wire).map_err(BadNetwork::VpnPrefix)?;
    judge_prefixes(&Prefixes::of(vpn))?;
    if let NetworkConfig::Static { address, prefix_bits, gateway: _, dns } = network {
        let kept = Prefixes::of(vpn);
        kept.judge_link(*address, *prefix_bits)?;
        dns.iter().try_for_each(|resolver| kept.judge_resolver(*resolver))?;
    }
    Ok(vpn)
}

/// Judges the prefixes that a cluster keeps for itself.
///
/// # Errors
/// [`BadNetwork`] when the VPN prefix has no room, or collides with another one.
pub fn judge_prefixes(prefixes: &Prefixes) -> Result<(), BadNetwork> {
    let Prefixes { vpn, pods, services } = *prefixes;
    if !(8..=24).contains(&vpn.bits()) {
        return Err(BadNetwork::VpnBits(vpn.bits()));
    }
    if !can_be_a_host(vpn.address()) {
        return Err(BadNetwork::VpnRange(vpn));
    }
    match [(pods, "pods"), (services, "services")].into_iter().find(|(other, _)| vpn.overlaps(*other)) {
        Some((other, what)) => Err(BadNetwork::VpnOverlaps { vpn, other, what }),
        None => Ok(()),
    }
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

    /// Proves: M8
    #[test]
    fn a_vpn_prefix_has_room_and_is_nobody_elses() {
        let read = |prefix: &str, network: &NetworkConfig| {
            let prefix: Ipv4Prefix = prefix.parse().expect("a prefix");
            vpn_prefix_from_wire(&prefix_to_wire(prefix), network).map(|read| assert_eq!(read, prefix))
        };
        let of = |prefix: &str| read(prefix, &NetworkConfig::Dhcp);
        for good in ["11.0.0.0/8", "10.118.0.0/16", "192.168.7.0/24"] {
            assert_eq!(of(good), Ok(()), "{good}");
        }
        assert_eq!(of("10.0.0.0/7"), Err(BadNetwork::VpnBits(7)));
        assert_eq!(of("192.168.7.0/25"), Err(BadNetwork::VpnBits(25)));
        for reserved in ["0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/24", "240.0.0.0/16"] {
            assert_eq!(of(reserved), Err(BadNetwork::VpnRange(reserved.parse().expect("a prefix"))));
        }
        for (taken, whose) in [("10.244.3.0/24", "pods"), ("10.96.0.0/12", "services")] {
            let refused = of(taken);
            assert!(matches!(refused, Err(BadNetwork::VpnOverlaps { what, .. }) if what == whose), "{refused:?}");
        }
        let beside = |address: [u8; 4], dns: [u8; 4]| {
            let dns = vec![dns.into()];
            NetworkConfig::Static { address: address.into(), prefix_bits: 24, gateway: None, dns }
        };
        let vpn = |network| read("10.118.0.0/16", &network);
        assert_eq!(vpn(beside([192, 0, 2, 5], [9, 9, 9, 9])), Ok(()));
        assert!(matches!(vpn(beside([10, 118, 9, 5], [9, 9, 9, 9])), Err(BadNetwork::Link(_))), "its own link");
        assert!(matches!(vpn(beside([192, 0, 2, 5], [10, 244, 0, 9])), Err(BadNetwork::Link(_))), "its resolver");
    }
}
