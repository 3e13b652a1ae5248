//! The ticket: what lets machines join. Whoever asks for one draws its key; the cluster keeps the public half with what the
//! ticket may do. Here are its bytes, its text, its id, and the signature by which a machine shows that it holds it.
//!
//! ```text
//! message Ticket { uint32 version = 1; bytes cluster_id = 2 (16 B); bytes ca_spki_sha256 = 3 (32 B);
//!                  repeated string coordinator_public_endpoints = 4; bytes seed = 5 (32 B); uint64 not_after = 6;
//!                  optional bytes machine_public_key = 7 (32 B, Ed25519); }
//! text:  as of `text`, with "cairn-ticket-" and the label "cairn/v1/checksum/ticket"
//! proof: Ed25519 by the ticket's key over "cairn/v1/redeem" ‖ TLS exporter (32 bytes) ‖ body of the request
//! ```

use formats::strict::{self, FormatError};
use model::{ClusterId, MachinePubKey, TicketId, TicketPubKey};
use prost::Message as _;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::derive::{secret, sha256};
use crate::endpoint::{self, BadEndpoint, Endpoint};
use crate::identity::{self, BadSignature, SigningKey};
use crate::purpose::Purpose;
use crate::text::{BadText, TextForm};
use crate::wiped;

/// Label of the TLS 1.3 exporter (RFC 8446, section 7.5) whose 32 bytes go into the proof; its context is absent.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-cairn-redeem";
/// Beginning of every ticket's text.
pub const TEXT_PREFIX: &str = "cairn-ticket-";
/// More than a ticket with all its endpoints has.
pub const MOST_TICKET_BYTES: usize = 4096;

const VERSION: u32 = 1;
const TEXT: TextForm =
    TextForm { what: "ticket", prefix: TEXT_PREFIX, checksum: Purpose::TicketChecksum, most: MOST_TICKET_BYTES };

/// Lets machines join the cluster that it names.
#[derive(Debug)]
pub struct Ticket {
    /// The cluster.
    pub cluster: ClusterId,
    /// SHA-256 of the SubjectPublicKeyInfo (DER) of the cluster's CA: what a coordinator's chain must end in.
    pub ca_spki: [u8; 32],
    /// Public APIs of coordinators; one or more.
    pub coordinator_public_endpoints: Vec<Endpoint>,
    /// The ticket's own key.
    pub key: SigningKey,
    /// Until when it holds, in seconds of Unix time; for the screen: the cluster's record decides.
    pub not_after: u64,
    /// The one machine that it is for, so that this one keeps its key when the ticket's config replaces another one; the cluster's
    /// record decides.
    pub machine: Option<MachinePubKey>,
}

/// Why bytes are no ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTicket {
    /// More than [`MOST_TICKET_BYTES`].
    #[error("the ticket has {0} bytes, at most {MOST_TICKET_BYTES} are read")]
    TooLarge(usize),
    /// Not the protobuf that it should be.
    #[error("the ticket is malformed")]
    Malformed(#[from] FormatError),
    /// A later version.
    #[error("the ticket was written by a newer Cairn (version {0})")]
    Newer(u64),
    /// A version that never was.
    #[error("the ticket has the unknown version 0")]
    Version,
    /// A cluster id of another size.
    #[error("the ticket's cluster id has {0} bytes instead of 16")]
    ClusterSize(usize),
    /// A pin of another size.
    #[error("the ticket's CA pin has {0} bytes instead of 32")]
    PinSize(usize),
    /// The ticket names no coordinator to go to.
    #[error("the ticket names no coordinator")]
    NoEndpoint,
    /// An endpoint that is none.
    #[error("the ticket's coordinators cannot be reached")]
    Endpoint(#[from] BadEndpoint),
    /// A seed of another size.
    #[error("the ticket's seed has {0} bytes instead of 32")]
    SeedSize(usize),
    /// A machine's key of another size.
    #[error("the ticket's machine has a key of {0} bytes instead of 32")]
    MachineSize(usize),
    /// A seed that everybody knows.
    #[error("the ticket's seed is all zeros")]
    SeedZero,
}

/// Why a text is no ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTicketText {
    /// The text is not whole.
    #[error(transparent)]
    Text(#[from] BadText),
    /// The text holds, what is in it does not.
    #[error("the ticket's text is whole")]
    Ticket(#[from] BadTicket),
}

/// The ticket with this public key.
#[must_use]
pub fn ticket_id(key: &TicketPubKey) -> TicketId {
    let mut id = [0; 16];
    id.copy_from_slice(&sha256(&[Purpose::Ticket.bytes(), &key.0])[..16]);
    TicketId(id)
}

impl Ticket {
    /// Reads a ticket, strictly.
    ///
    /// # Errors
    /// [`BadTicket`] names the first thing that is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadTicket> {
        if bytes.len() > MOST_TICKET_BYTES {
            return Err(BadTicket::TooLarge(bytes.len()));
        }
        match strict::version(bytes, &TICKET, "version", 1)? {
            Some(0) => return Err(BadTicket::Version),
            Some(newer) if newer > u64::from(VERSION) => return Err(BadTicket::Newer(newer)),
            Some(_) | None => strict::check(bytes, &TICKET)?,
        }
        let wire: TicketWire = wiped::decode(bytes).map_err(|_| FormatError::Truncated(TICKET.name))?;
        let cluster =
            wire.cluster_id.as_slice().try_into().map_err(|_| BadTicket::ClusterSize(wire.cluster_id.len()))?;
        let ca_spki =
            wire.ca_spki_sha256.as_slice().try_into().map_err(|_| BadTicket::PinSize(wire.ca_spki_sha256.len()))?;
        let coordinator_public_endpoints = Endpoint::read_all(&wire.coordinator_public_endpoints)?;
        if coordinator_public_endpoints.is_empty() {
            return Err(BadTicket::NoEndpoint);
        }
        let seed = secret(&wire.seed).ok_or(BadTicket::SeedSize(wire.seed.len()))?;
        if *seed.expose() == [0; 32] {
            return Err(BadTicket::SeedZero);
        }
        let machine = wire
            .machine_public_key
            .as_deref()
            .map(|key| key.try_into().map(MachinePubKey).map_err(|_| BadTicket::MachineSize(key.len())));
        Ok(Self {
            cluster: ClusterId(cluster),
            ca_spki,
            coordinator_public_endpoints,
            key: SigningKey::from_seed(seed),
            not_after: wire.not_after,
            machine: machine.transpose()?,
        })
    }

    /// The inverse of [`Self::decode`].
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let wire = TicketWire {
            version: VERSION,
            cluster_id: self.cluster.0.to_vec(),
            ca_spki_sha256: self.ca_spki.to_vec(),
            coordinator_public_endpoints: endpoint::texts(&self.coordinator_public_endpoints),
            seed: self.key.seed().expose().to_vec(),
            not_after: self.not_after,
            machine_public_key: self.machine.map(|key| key.0.to_vec()),
        };
        Zeroizing::new(wire.encode_to_vec())
    }

    /// Reads a ticket's text. Space around it is not part of it.
    ///
    /// # Errors
    /// [`BadTicketText`] says whether the text or the ticket in it is wrong.
    pub fn from_text(text: &str) -> Result<Self, BadTicketText> {
        Ok(Self::decode(&TEXT.read(text)?)?)
    }

    /// The ticket as text, for a terminal, a file or a chat.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        TEXT.write(&self.encode())
    }

    /// Public key of the ticket: what the cluster keeps.
    #[must_use]
    pub fn public(&self) -> TicketPubKey {
        TicketPubKey(self.key.public())
    }

    /// Id of the ticket, from its public key.
    #[must_use]
    pub fn id(&self) -> TicketId {
        ticket_id(&self.public())
    }

    /// Shows on one TLS connection that its holder asks with `body`.
    #[must_use]
    pub fn prove(&self, exporter: &[u8; 32], body: &[u8]) -> [u8; 64] {
        self.key.sign(Purpose::Redeem, &[exporter, body].concat())
    }
}

/// Verifies what [`Ticket::prove`] made.
///
/// # Errors
/// [`BadSignature`] when the key, the connection or the body is another.
pub fn verify(key: &TicketPubKey, exporter: &[u8; 32], body: &[u8], signature: &[u8]) -> Result<(), BadSignature> {
    identity::verify(&key.0, Purpose::Redeem, &[exporter, body].concat(), signature)
}

formats::strict_message! {
    #[derive(Zeroize, ZeroizeOnDrop)]
    #[prost(skip_debug)]
    struct TicketWire, TICKET = "Ticket" {
        1 required u32 version;
        2 required bytes cluster_id;
        3 required bytes ca_spki_sha256;
        4 repeated text coordinator_public_endpoints;
        5 required bytes seed;
        6 required u64 not_after;
        7 optional bytes machine_public_key;
    }
}

impl std::fmt::Debug for TicketWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketWire")
    }
}

#[cfg(test)]
mod tests;
