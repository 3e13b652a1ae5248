//! Answer to a machine that was let in: everything it needs to become a member. Whether its certificate, its CA and its
//! directory hold under the ticket's pin is for the machine to verify; here they are bytes.
//!
//! ```text
//! message RedeemResponse { uint32 version = 1; uint64 time = 2; bytes machine_certificate = 3; bytes ca_certificate = 4;
//!                          bytes desired = 5; string node_name = 6; uint32 key_generation = 7; bytes cluster_key = 8;
//!                          bytes directory = 9; repeated Peer peers = 10; }
//! ```
//! `desired` (see [`crate::desired`]) and `directory` (as the CA signed it) are the bytes that the machine keeps.

use std::fmt;

use keys::derive::secret;
use model::{ClusterKey, NodeName};
use prost::Message as _;
use zeroize::{Zeroize, Zeroizing};

use crate::desired::{Desired, is_host};
use crate::peer::{PEER, Peer, PeerWire};
use crate::record::{self, BadRecord, UnixSeconds};
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
pub struct RedeemAnswer {
    /// The cluster's time.
    pub time: UnixSeconds,
    /// The certificate that the cluster issued to the machine's key, DER.
    pub certificate: Vec<u8>,
    /// The certificate of the cluster's CA, DER.
    pub ca_certificate: Vec<u8>,
    /// Desired state of the machine, which begins as a node; never without a version.
    pub desired: Desired,
    /// The machine's name.
    pub node_name: NodeName,
    /// Which of its cluster keys this is; they count from 1.
    pub key_generation: u32,
    /// The cluster's half of what opens the disk that the request named.
    pub cluster_key: ClusterKey,
    /// Where the coordinators are, as the cluster signed it: see [`keys::directory::Directory::verify`].
    pub directory: Vec<u8>,
    /// Peers, as of [`Self::version`], that the machine exchanges packets with first; at most [`MOST_PEERS`].
    pub peers: Vec<Peer>,
}

impl RedeemAnswer {
    /// Version of the state that the answer was made from.
    #[must_use]
    pub fn version(&self) -> StateVersion {
        self.desired.at.unwrap_or_default()
    }

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
            desired: Desired::decode(&wire.desired)?,
            node_name: NodeName::stored(&wire.node_name)?,
            key_generation: wire.key_generation,
            cluster_key: ClusterKey(secret(&wire.cluster_key).ok_or(wrong_size)?),
            directory: wire.directory.clone(),
            peers: wire.peers.iter().map(Peer::read).collect::<Result<_, _>>()?,
        };
        answer.contradiction().map_or(Ok(answer), |what| Err(BadRecord::Contradiction(what)))
    }

    /// Finds what of the answer cannot be true together.
    fn contradiction(&self) -> Option<&'static str> {
        let own_ip = self.desired.assignment.vpn_ip();
        let is_no_host = |address| !is_host(self.desired.prefixes.vpn, address);
        let twice = |at: usize| {
            let (peer, earlier) = (&self.peers[at], &self.peers[..at]);
            earlier
                .iter()
                .any(|it| it.machine == peer.machine || it.vpn_key == peer.vpn_key || it.vpn_ip == peer.vpn_ip)
        };
        [
            (self.key_generation == 0, "key generations count from 1"),
            (self.directory.is_empty(), "there is no cluster without a directory"),
            (self.desired.at.is_none(), "it is made from some version of the records"),
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
            desired: self.desired.encode(),
            node_name: self.node_name.as_str().to_owned(),
            key_generation: self.key_generation,
            cluster_key: self.cluster_key.expose().to_vec(),
            directory: self.directory.clone(),
            peers: self.peers.iter().map(Peer::to_wire).collect(),
        }
    }
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
        5 required bytes desired;
        6 required text node_name;
        7 required u32 key_generation;
        8 required bytes cluster_key;
        9 required bytes directory;
        10 repeated message(PeerWire, PEER) peers;
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
