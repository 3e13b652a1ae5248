//! Answer to a machine that was let in: everything it needs to become a member. Whether its certificate, its CA and its
//! directory hold under the ticket's pin is for the machine to verify; here they are bytes.
//!
//! ```text
//! message RedeemResponse { uint32 version = 1; uint64 time = 2; bytes machine_certificate = 3; bytes ca_certificate = 4;
//!                          repeated Owner owners = 5; uint32 level = 6; uint32 cold_start = 7; Prefix vpn_prefix = 8;
//!                          Prefix pods_prefix = 9; string node_name = 10; bytes assignment = 11;
//!                          uint32 key_generation = 12; bytes cluster_key = 13; bytes directory = 14;
//!                          uint64 peers_recoveries = 15; uint64 peers_revision = 16; repeated Peer peers = 17; }
//! ```
//! `assignment` (roles, VPN address, pod prefix) and `directory` (as the CA signed it) are the bytes that the machine keeps.

use std::fmt;
use std::net::Ipv4Addr;

use keys::derive::secret;
use keys::network::{PREFIX, PrefixWire, prefix_to_wire, vpn_prefix_from_wire};
use keys::{assignment, numbers};
use model::{Assignment, ClusterKey, ColdStart, Ipv4Prefix, Level, NetworkConfig, NodeName};
use prost::Message as _;
use zeroize::{Zeroize, Zeroizing};

use crate::peer::{PEER, Peer, PeerWire};
use crate::record::{self, BadRecord, OWNER, Owner, OwnerWire, UnixSeconds, known, prefix};
use crate::state::StateVersion;

/// More than an answer with all owners, endpoints and peers has, and a directory that fills its file.
pub const MOST_ANSWER_BYTES: usize = 256 << 10;
/// How many peers an answer names: those that the machine begins with, coordinators before others. From them it hears of all.
pub const MOST_PEERS: usize = 64;

const VERSION: u32 = 1;
/// More than any certificate of ours has.
const MOST_CERTIFICATE_BYTES: usize = 4096;

/// Everything that a machine needs to become a member.
#[derive(Debug)]
pub struct Answer {
    /// The cluster's time.
    pub time: UnixSeconds,
    /// The certificate that the cluster issued to the machine's key, DER.
    pub certificate: Vec<u8>,
    /// The certificate of the cluster's CA, DER.
    pub ca_certificate: Vec<u8>,
    /// The cluster's owners; one or more, each once.
    pub owners: Vec<Owner>,
    /// No machine's level may be below.
    pub level: Level,
    /// The cold-start policy: how the coordinators get their keys when all were off.
    pub cold_start: ColdStart,
    /// Where VPN addresses come from.
    pub vpn_prefix: Ipv4Prefix,
    /// Where pod prefixes come from.
    pub pods_prefix: Ipv4Prefix,
    /// The machine's name.
    pub node_name: NodeName,
    /// The machine's roles, its VPN address, its pod prefix.
    pub assignment: Assignment,
    /// Which of its cluster keys this is; they count from 1.
    pub key_generation: u32,
    /// The cluster's half of what opens the disk that the request named.
    pub cluster_key: ClusterKey,
    /// Where the coordinators are, as the cluster signed it: see [`keys::directory::Directory::verify`].
    pub directory: Vec<u8>,
    /// As of when `peers` is so.
    pub peer_version: StateVersion,
    /// Peers that the machine exchanges packets with first; at most [`MOST_PEERS`].
    pub peers: Vec<Peer>,
}

impl Answer {
    /// The answer's bytes, as a coordinator sends them.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.to_wire().encode_to_vec())
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: ResponseWire = record::decode_within(MOST_ANSWER_BYTES, bytes, &RESPONSE)?;
        let length = wire.cluster_key.len();
        let wrong_size = BadRecord::Size { field: "cluster key", found: length, expected: 32 };
        let answer = Self {
            time: UnixSeconds(wire.time),
            certificate: certificate("machine certificate", &wire.machine_certificate)?,
            ca_certificate: certificate("CA certificate", &wire.ca_certificate)?,
            owners: record::read_owners(&wire.owners)?,
            level: known("level", wire.level, numbers::level::of)?,
            cold_start: known("cold start policy", wire.cold_start, numbers::cold_start::of)?,
            vpn_prefix: vpn_prefix_from_wire(&wire.vpn_prefix, &NetworkConfig::Dhcp)?,
            pods_prefix: prefix("pod prefix", &wire.pods_prefix)?,
            node_name: NodeName::stored(&wire.node_name)?,
            assignment: assignment::decode(&wire.assignment)?,
            key_generation: wire.key_generation,
            cluster_key: ClusterKey(secret(&wire.cluster_key).ok_or(wrong_size)?),
            directory: wire.directory.clone(),
            peer_version: StateVersion { recoveries: wire.peers_recoveries, revision: wire.peers_revision },
            peers: wire.peers.iter().map(Peer::read).collect::<Result<_, _>>()?,
        };
        answer.contradiction().map_or(Ok(answer), |what| Err(BadRecord::Contradiction(what)))
    }

    /// Finds what of the answer cannot be true together.
    fn contradiction(&self) -> Option<&'static str> {
        let own_ip = self.assignment.vpn_ip();
        let is_no_host = |address| !is_host(self.vpn_prefix, address);
        let pods = self.assignment.pods();
        let twice = |at: usize| {
            let (peer, earlier) = (&self.peers[at], &self.peers[..at]);
            earlier
                .iter()
                .any(|it| it.machine == peer.machine || it.vpn_key == peer.vpn_key || it.vpn_ip == peer.vpn_ip)
        };
        [
            (self.key_generation == 0, "key generations count from 1"),
            (self.directory.is_empty(), "there is no cluster without a directory"),
            (is_no_host(own_ip), "the machine's address is one of the VPN prefix"),
            (
                pods.is_some_and(|pods| !self.pods_prefix.contains(pods.address())),
                "the machine's pod prefix is one of the cluster's",
            ),
            (self.peers.len() > MOST_PEERS, "it names at most 64 peers"),
            (self.peers.iter().any(|peer| is_no_host(peer.vpn_ip)), "a peer's address is one of the VPN prefix"),
            (self.peers.iter().any(|peer| peer.vpn_ip == own_ip), "no peer has the machine's own address"),
            ((0..self.peers.len()).any(twice), "no two peers are one machine, or share a key or an address"),
        ]
        .into_iter()
        .find_map(|(is_so, what)| is_so.then_some(what))
    }

    pub(super) fn to_wire(&self) -> ResponseWire {
        ResponseWire {
            version: VERSION,
            time: self.time.0,
            machine_certificate: self.certificate.clone(),
            ca_certificate: self.ca_certificate.clone(),
            owners: self.owners.iter().map(Owner::to_wire).collect(),
            level: numbers::level::number(self.level),
            cold_start: numbers::cold_start::number(self.cold_start),
            vpn_prefix: prefix_to_wire(self.vpn_prefix),
            pods_prefix: prefix_to_wire(self.pods_prefix),
            node_name: self.node_name.as_str().to_owned(),
            assignment: assignment::encode(&self.assignment),
            key_generation: self.key_generation,
            cluster_key: self.cluster_key.expose().to_vec(),
            directory: self.directory.clone(),
            peers_recoveries: self.peer_version.recoveries,
            peers_revision: self.peer_version.revision,
            peers: self.peers.iter().map(Peer::to_wire).collect(),
        }
    }
}

/// Whether a machine may have `address`: the first and the last of a prefix are nobody's.
fn is_host(prefix: Ipv4Prefix, address: Ipv4Addr) -> bool {
    let last = !u32::from(prefix.mask());
    prefix.contains(address) && ![0, last].contains(&(u32::from(address) & last))
}

fn certificate(field: &'static str, der: &[u8]) -> Result<Vec<u8>, BadRecord> {
    match der.len() {
        1..=MOST_CERTIFICATE_BYTES => Ok(der.to_vec()),
        _ => Err(BadRecord::Certificate(field)), // any other length
    }
}

formats::strict_message! {
    #[prost(skip_debug)]
    struct ResponseWire, RESPONSE = "RedeemResponse" {
        1 required u32 version;
        2 required u64 time;
        3 required bytes machine_certificate;
        4 required bytes ca_certificate;
        5 repeated message(OwnerWire, OWNER) owners;
        6 required u32 level;
        7 required u32 cold_start;
        8 required message(PrefixWire, PREFIX) vpn_prefix;
        9 required message(PrefixWire, PREFIX) pods_prefix;
        10 required text node_name;
        11 required bytes assignment;
        12 required u32 key_generation;
        13 required bytes cluster_key;
        14 required bytes directory;
        15 required u64 peers_recoveries;
        16 required u64 peers_revision;
        17 repeated message(PeerWire, PEER) peers;
    }
}

impl fmt::Debug for ResponseWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseWire")
    }
}

impl Drop for ResponseWire {
    fn drop(&mut self) {
        self.cluster_key.zeroize();
    }
}

#[cfg(test)]
mod tests;
