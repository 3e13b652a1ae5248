//! Redeeming a ticket: what a machine asks with and what it is answered, as bytes and as values. Decides nothing: whether
//! a machine is let in is [`crate::decide`]'s, over a request that [`RedeemRequest::verify`] took.
//!
//! ```text
//! message RedeemRequest { bytes body = 1; bytes signature = 2; }   // by the ticket's key, over exporter and body
//! message RedeemBody    { uint32 version = 1; bytes ticket_public_key = 2; bytes owner_public_key = 3;
//!                         bytes vpn_public_key = 4; bytes disk_uuid = 5; uint32 level = 6; uint32 boot_class = 7;
//!                         string release = 8; bytes root_hash = 9; optional bytes storage_key_name = 10;
//!                         repeated string public_endpoints = 11; optional string node_name = 12; }
//! ```
//! The answer to it: [`RedeemAnswer`].

mod answer;

use formats::strict::{self, FormatError};
use keys::endpoint::{self, Endpoint};
use keys::numbers;
use keys::recovery::is_usable_x25519;
use keys::ticket::{Ticket, verify};
use model::{
    BootClass, DiskUuid, Level, MachinePubKey, NodeName, OwnerPubKey, RootHash, TicketPubKey, Uuid, VpnPubKey,
};
use prost::Message as _;

use crate::record::{self, BadRecord, Release, known, sized, sized_if_there};

pub use answer::{MOST_ANSWER_BYTES, MOST_PEERS, RedeemAnswer};

/// More than a request with all its endpoints has; a stranger sends it.
pub const MOST_REQUEST_BYTES: usize = 8192;

const VERSION: u32 = 1;

/// A machine's account of itself when it redeems a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedeemBody {
    /// The ticket.
    pub ticket: TicketPubKey,
    /// The owner who signed its config.
    pub owner: OwnerPubKey,
    /// The machine's key in the VPN.
    pub vpn_key: VpnPubKey,
    /// The data partition that it is going to format.
    pub disk: DiskUuid,
    /// How the data partition is going to be protected.
    pub level: Level,
    /// How it was started.
    pub boot_class: BootClass,
    /// The release that the machine runs.
    pub release: Release,
    /// The image it runs.
    pub root_hash: RootHash,
    /// Name of its TPM's storage key; none without a TPM.
    pub storage_key_name: Option<[u8; 34]>,
    /// Where it may be reached.
    pub endpoints: Vec<Endpoint>,
    /// The name that its config gives it, if it does.
    pub node_name: Option<NodeName>,
}

/// A request whose signature holds on the connection that it came by.
///
/// Nobody else makes one:
/// ```compile_fail,E0451
/// fn forge(machine: model::MachinePubKey, body: cluster::redeem::RedeemBody) -> cluster::redeem::RedeemRequest {
///     cluster::redeem::RedeemRequest { machine, body }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedeemRequest {
    machine: MachinePubKey,
    body: RedeemBody,
}

/// Why a request is refused before anybody looks for its ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRedeem {
    /// More than [`MOST_REQUEST_BYTES`].
    #[error("the request has {0} bytes, at most {MOST_REQUEST_BYTES} are read")]
    TooLarge(usize),
    /// The envelope is not the protobuf that it should be.
    #[error("the request is malformed")]
    Malformed(#[from] FormatError),
    /// A signature of another size.
    #[error("the request's signature has {0} bytes instead of 64")]
    SignatureSize(usize),
    /// The body makes no sense.
    #[error("the request's body cannot be used")]
    Body(#[from] BadRecord),
    /// Not signed by the ticket it names, or on another connection.
    #[error("the request is not signed by the ticket it names on this connection")]
    Signature,
}

impl RedeemRequest {
    /// Takes a request: `machine` is the key of the certificate that the connection's client showed, `exporter` what the
    /// connection exports under [`keys::ticket::EXPORTER_LABEL`].
    ///
    /// # Errors
    /// [`BadRedeem`] names the first thing that is wrong with it.
    pub fn verify(bytes: &[u8], machine: MachinePubKey, exporter: &[u8; 32]) -> Result<Self, BadRedeem> {
        let (wire, signature, signed) = read_shape(bytes)?;
        let ticket = TicketPubKey(sized("ticket key", &wire.ticket_public_key)?);
        verify(&ticket, exporter, &signed, &signature).map_err(|_| BadRedeem::Signature)?;
        Ok(Self { machine, body: RedeemBody::believe(&wire, ticket)? })
    }

    /// The machine that asks, by its key.
    #[must_use]
    pub const fn machine(&self) -> &MachinePubKey {
        &self.machine
    }

    /// The machine's account of itself.
    #[must_use]
    pub const fn body(&self) -> &RedeemBody {
        &self.body
    }
}

/// The body as a message, the signature, and the body as bytes: nothing of it is believed yet.
fn read_shape(bytes: &[u8]) -> Result<(BodyWire, [u8; 64], Vec<u8>), BadRedeem> {
    if bytes.len() > MOST_REQUEST_BYTES {
        return Err(BadRedeem::TooLarge(bytes.len()));
    }
    strict::check(bytes, &REQUEST)?;
    let request = RequestWire::decode(bytes).map_err(|_| FormatError::Truncated(REQUEST.name))?;
    let length = request.signature.len();
    let signature = request.signature.try_into().map_err(|_| BadRedeem::SignatureSize(length))?;
    Ok((record::decode(&request.body, &BODY)?, signature, request.body))
}

impl RedeemBody {
    /// The request's bytes, signed by `ticket` for the connection that exports `exporter`.
    #[must_use]
    pub fn sign(&self, ticket: &Ticket, exporter: &[u8; 32]) -> Vec<u8> {
        sign(self.to_wire().encode_to_vec(), ticket, exporter)
    }

    /// Reads a body, strictly. It is worth nothing until its signature was verified: see [`RedeemRequest::verify`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: BodyWire = record::decode(bytes, &BODY)?;
        Self::believe(&wire, TicketPubKey(sized("ticket key", &wire.ticket_public_key)?))
    }

    fn believe(wire: &BodyWire, ticket: TicketPubKey) -> Result<Self, BadRecord> {
        let vpn_key: [u8; 32] = sized("VPN key", &wire.vpn_public_key)?;
        if !is_usable_x25519(&vpn_key) {
            return Err(BadRecord::WeakKey("VPN key"));
        }
        Ok(Self {
            ticket,
            owner: OwnerPubKey(sized("owner key", &wire.owner_public_key)?),
            vpn_key: VpnPubKey(vpn_key),
            disk: DiskUuid(Uuid(sized("disk UUID", &wire.disk_uuid)?)),
            level: known("level", wire.level, numbers::level::of)?,
            boot_class: known("boot class", wire.boot_class, numbers::boot_class::of)?,
            release: Release::read(&wire.release)?,
            root_hash: RootHash(sized("root hash", &wire.root_hash)?),
            storage_key_name: sized_if_there("storage key's name", wire.storage_key_name.as_deref())?,
            endpoints: Endpoint::read_all(&wire.public_endpoints)?,
            node_name: wire.node_name.as_deref().map(NodeName::chosen).transpose()?,
        })
    }

    fn to_wire(&self) -> BodyWire {
        BodyWire {
            version: VERSION,
            ticket_public_key: self.ticket.0.to_vec(),
            owner_public_key: self.owner.0.to_vec(),
            vpn_public_key: self.vpn_key.0.to_vec(),
            disk_uuid: self.disk.0.0.to_vec(),
            level: numbers::level::number(self.level),
            boot_class: numbers::boot_class::number(self.boot_class),
            release: self.release.to_string(),
            root_hash: self.root_hash.0.to_vec(),
            storage_key_name: self.storage_key_name.map(|name| name.to_vec()),
            public_endpoints: endpoint::texts(&self.endpoints),
            node_name: self.node_name.as_ref().map(|name| name.as_str().to_owned()),
        }
    }
}

fn sign(body: Vec<u8>, ticket: &Ticket, exporter: &[u8; 32]) -> Vec<u8> {
    let signature = ticket.prove(exporter, &body).to_vec();
    RequestWire { body, signature }.encode_to_vec()
}

formats::strict_message! {
    struct RequestWire, REQUEST = "RedeemRequest" {
        1 required bytes body;
        2 required bytes signature;
    }
}

formats::strict_message! {
    struct BodyWire, BODY = "RedeemBody" {
        1 required u32 version;
        2 required bytes ticket_public_key;
        3 required bytes owner_public_key;
        4 required bytes vpn_public_key;
        5 required bytes disk_uuid;
        6 required u32 level;
        7 required u32 boot_class;
        8 required text release;
        9 required bytes root_hash;
        10 optional bytes storage_key_name;
        11 repeated text public_endpoints;
        12 optional text node_name;
    }
}

#[cfg(test)]
mod tests;
