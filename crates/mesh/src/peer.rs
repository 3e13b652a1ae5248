//! Another machine, as the cluster names it to everybody.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use model::{Ipv4Prefix, Prefixes, VpnPubKey};

/// Peer of the VPN, as a machine has to know another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshPeer {
    /// Public key in the VPN.
    pub key: VpnPubKey,
    /// Address in the VPN.
    pub vpn_ip: Ipv4Addr,
    /// Where its pods are, if it is a Kubernetes worker.
    pub pods: Option<Ipv4Prefix>,
    /// Where its WireGuard may be reached, the likeliest first.
    pub endpoints: Vec<SocketAddrV4>,
}

impl MeshPeer {
    /// Prefixes whose packets are the peer's: its address and its pods.
    #[must_use]
    pub fn allowed(&self) -> BTreeSet<Ipv4Prefix> {
        let own = Ipv4Prefix::new(self.vpn_ip, 32).expect("32 bits leave no host bits");
        std::iter::once(own).chain(self.pods).collect()
    }
}

/// Whether a machine may be at `endpoint`, as seen from any other: packets to an address of the cluster's own would go round in
/// the VPN, those to loopback, a link or a group never reach another machine, and 240.0.0.0/4 is nobody's (RFC 1112, section
/// 4). What a single machine knows besides is in [`Surroundings`](crate::surroundings::Surroundings).
#[must_use]
pub fn may_be_tried(endpoint: SocketAddrV4, kept: Prefixes) -> bool {
    let address = *endpoint.ip();
    let nowhere = address.is_unspecified()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.octets()[0] >= 240
        || address.octets()[0] == 0;
    !nowhere && endpoint.port() != 0 && !kept.rows().iter().any(|(prefix, _)| prefix.contains(address))
}

#[cfg(test)]
mod tests {
    use model::VPN_PREFIX;

    use super::*;

    /// Proves: M6
    #[test]
    fn an_endpoint_of_the_clusters_own_or_of_nobody_is_not_tried() {
        let tried = |text: &str| may_be_tried(text.parse().expect("an endpoint"), Prefixes::of(VPN_PREFIX));
        for good in [
            "192.0.2.1:7838",
            "223.255.255.1:7838",
            "10.0.0.1:7838",
            "10.117.255.255:1",
            "10.245.0.1:7838",
            "100.64.0.1:65535",
        ] {
            assert!(tried(good), "{good}");
        }
        for bad in [
            "10.118.0.2:7838",
            "10.244.3.9:7838",
            "10.96.0.1:7838",
            "127.0.0.1:7838",
            "169.254.1.1:7838",
            "224.0.0.1:7838",
            "239.255.255.255:7838",
            "240.0.0.1:7838",
            "254.1.2.3:7838",
            "255.255.255.255:7838",
            "0.0.0.0:7838",
            "0.1.2.3:7838",
            "192.0.2.1:0",
        ] {
            assert!(!tried(bad), "{bad}");
        }
    }

    #[test]
    fn a_peer_speaks_for_its_address_and_its_pods() {
        let pods = model::pod_prefix(7);
        let peer =
            MeshPeer { key: VpnPubKey([1; 32]), vpn_ip: [10, 118, 0, 9].into(), pods: None, endpoints: Vec::new() };
        let own: Ipv4Prefix = "10.118.0.9/32".parse().expect("a prefix");
        assert_eq!(peer.allowed(), BTreeSet::from([own]));
        assert_eq!(MeshPeer { pods: Some(pods), ..peer }.allowed(), BTreeSet::from([own, pods]));
    }
}
