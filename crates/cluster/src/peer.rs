//! A machine as coordinators tell of it to all others: what these need to exchange packets with it, and nothing else of its
//! record. Must never say how it is reached best: that is decided by whoever reaches it.
//!
//! ```text
//! message Peer { bytes machine_id = 1; bytes vpn_public_key = 2; fixed32 vpn_ip = 3; optional Prefix pods = 4;
//!                repeated string endpoints = 5; }
//! ```

use std::net::Ipv4Addr;

use keys::endpoint::{self, Endpoint, MOST_ENDPOINTS};
use keys::network::{PREFIX, PrefixWire, prefix_to_wire};
use keys::recovery::is_usable_x25519;
use model::{Ipv4Prefix, MachineId, VpnPubKey};

use crate::record::{BadRecord, MachineRecord, prefix, sized};

/// Another machine of the cluster, as a machine hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The peer's machine id.
    pub machine: MachineId,
    /// The peer's key in the VPN.
    pub vpn_key: VpnPubKey,
    /// The peer's address in the VPN.
    pub vpn_ip: Ipv4Addr,
    /// Where its pods' addresses come from: a worker has one.
    pub pods: Option<Ipv4Prefix>,
    /// Where its WireGuard may be reached, in order of preference: addresses, [`MOST_ENDPOINTS`] at most.
    pub endpoints: Vec<Endpoint>,
}

impl Peer {
    /// Takes the part of a record that others need, and of its endpoints those that are addresses. What coordinators saw comes
    /// before what the machine says itself.
    #[must_use]
    pub fn of(machine: &MachineRecord) -> Self {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for endpoint in machine.endpoints.observed.iter().chain(&machine.endpoints.reported) {
            let is_new = endpoint.address().is_some() && !endpoints.contains(endpoint);
            if is_new && endpoints.len() < MOST_ENDPOINTS {
                endpoints.push(endpoint.clone());
            }
        }
        let (vpn_key, vpn_ip, pods) = (machine.vpn_key, machine.vpn_ip, machine.pods);
        Self { machine: machine.id(), vpn_key, vpn_ip, pods, endpoints }
    }

    pub(crate) fn to_wire(&self) -> PeerWire {
        PeerWire {
            machine_id: self.machine.0.to_vec(),
            vpn_public_key: self.vpn_key.0.to_vec(),
            vpn_ip: self.vpn_ip.into(),
            pods: self.pods.map(prefix_to_wire),
            endpoints: endpoint::texts(&self.endpoints),
        }
    }

    pub(crate) fn read(wire: &PeerWire) -> Result<Self, BadRecord> {
        let vpn_key = sized("peer's VPN key", &wire.vpn_public_key)?;
        if !is_usable_x25519(&vpn_key) {
            return Err(BadRecord::WeakKey("peer's VPN key"));
        }
        let endpoints = Endpoint::read_all(&wire.endpoints)?;
        Endpoint::judge_of_machine(&endpoints)?;
        Ok(Self {
            machine: MachineId(sized("peer's id", &wire.machine_id)?),
            vpn_key: VpnPubKey(vpn_key),
            vpn_ip: wire.vpn_ip.into(),
            pods: wire.pods.as_ref().map(|pods| prefix("peer's pod prefix", pods)).transpose()?,
            endpoints,
        })
    }
}

formats::strict_message! {
    struct PeerWire, PEER = "Peer" {
        1 required bytes machine_id;
        2 required bytes vpn_public_key;
        3 required fixed32 vpn_ip;
        4 optional message(PrefixWire, PREFIX) pods;
        5 repeated text endpoints;
    }
}

#[cfg(test)]
mod tests {
    use keys::endpoint::BadEndpoint;

    use super::*;
    use crate::fixture;

    /// Proves: M1
    #[test]
    fn what_coordinators_saw_comes_before_what_a_machine_says() {
        let mut machine = fixture::machine(3);
        let numbered = |numbers: std::ops::Range<u8>| {
            numbers.map(|n| Endpoint::read(&format!("192.0.2.{n}:7838")).expect("an endpoint")).collect::<Vec<_>>()
        };
        machine.endpoints.reported = numbered(1..8);
        machine.endpoints.observed = numbered(6..10);
        let peer = Peer::of(&machine);
        let expected = [numbered(6..10), numbered(1..5)].concat();
        assert_eq!(peer.endpoints, expected, "each once, and no more than are read");
        assert_eq!((peer.machine, peer.vpn_ip, peer.pods), (machine.id(), machine.vpn_ip, machine.pods));
        assert_eq!(Peer::read(&peer.to_wire()), Ok(peer));
    }

    /// Proves: A6
    #[test]
    fn a_records_name_is_told_to_nobody_and_a_peers_is_refused() {
        let endpoint = |text: &str| Endpoint::read(text).expect("an endpoint");
        let mut machine = fixture::machine(3);
        machine.endpoints.reported = vec![endpoint("m3.example:7838"), endpoint("192.0.2.3:7838")];
        let peer = Peer::of(&machine);
        assert_eq!(peer.endpoints, [endpoint("192.0.2.3:7838")]);
        let wire = PeerWire { endpoints: vec!["m3.example:7838".to_owned()], ..peer.to_wire() };
        assert_eq!(Peer::read(&wire), Err(BadRecord::Endpoints(BadEndpoint::Name)));
    }
}
