//! Introductions: what one owner hands to another, or a user to an owner, by whatever way. A person who is to use a cluster's Kubernetes
//! tells their public key. A person who is to own a cluster tells their two public keys, and is
//! told which cluster it is and where its coordinators are. All of it is public, and none of it proves anything: whoever takes one has to
//! know who gave it.
//!
//! ```text
//! message OwnerKeys        { uint32 version = 1; bytes public_key = 2 (32 B, Ed25519); bytes recovery_public_key = 3 (32 B, X25519); }
//! message UserKey          { uint32 version = 1; bytes public_key = 2; }
//! message ClusterPlace     { uint32 version = 1; bytes cluster_id = 2 (16 B); bytes ca_spki_sha256 = 3 (32 B);
//!                            repeated CoordinatorPlace coordinators = 4; }                         // 1 to 7, each id and name once
//! message CoordinatorPlace { bytes machine_id = 1 (16 B); string name = 2; repeated string public_endpoints = 3; }   // 1 to 8, host:port
//! text: as of `text`, with "cairn-owner-" and the label "cairn/v1/checksum/owner", and so with "user" and "place"
//! ```

use formats::strict::{self, FormatError};
use model::{BadNodeName, ClusterId, MachineId, NodeName, OwnerPubKey, UserPubKey};
use prost::Message as _;

use crate::endpoint::{self, BadEndpoint, Endpoint};
use crate::purpose::Purpose;
use crate::recovery::{BadRecoveryKey, RecoveryPubKey};
use crate::text::{BadText, TextForm};

/// How many coordinators a text names at most: more are in no cluster.
pub const MOST_PLACES: usize = 7;

const VERSION: u32 = 1;
const OWNER_TEXT: TextForm =
    TextForm { what: "owner", prefix: "cairn-owner-", checksum: Purpose::OwnerChecksum, most: 128 };
const USER_TEXT: TextForm = TextForm { what: "user", prefix: "cairn-user-", checksum: Purpose::UserChecksum, most: 96 };
const PLACE_TEXT: TextForm =
    TextForm { what: "cluster", prefix: "cairn-place-", checksum: Purpose::PlaceChecksum, most: 8192 };

/// Public keys of a person who owns a cluster, or is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerKeys {
    /// Key that signs and calls.
    pub key: OwnerPubKey,
    /// Key that recovers.
    pub recovery: RecoveryPubKey,
}

/// Identity of a cluster, and where its coordinators are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPlace {
    /// Id of the cluster.
    pub cluster: ClusterId,
    /// SHA-256 of the SubjectPublicKeyInfo (DER) of the cluster's CA: what its machines' chains must end in.
    pub ca_spki: [u8; 32],
    /// Coordinators; 1 to [`MOST_PLACES`], each of another id and name.
    pub coordinators: Vec<CoordinatorPlace>,
}

/// A coordinator, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorPlace {
    /// Id of the machine, which its key has to fit.
    pub machine: MachineId,
    /// Name in its cluster.
    pub name: NodeName,
    /// Places of its public API; one or more.
    pub endpoints: Vec<Endpoint>,
}

/// Why a text introduces nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIntroduction {
    /// The text is not whole.
    #[error(transparent)]
    Text(#[from] BadText),
    /// Not the protobuf that it should be.
    #[error("the text is whole, and malformed")]
    Malformed(#[from] FormatError),
    /// A later version.
    #[error("the text was written by a newer Cairn (version {0})")]
    Newer(u64),
    /// A version that never was.
    #[error("the text has the unknown version 0")]
    Version,
    /// A field of fixed size has another one.
    #[error("the text's {field} has {found} bytes instead of {expected}")]
    Size {
        /// Name of the field.
        field: &'static str,
        /// Bytes that it has.
        found: usize,
        /// Bytes that it has to have.
        expected: usize,
    },
    /// A key that everybody knows the private half of.
    #[error("the text's public key is all zeros")]
    ZeroKey,
    /// No secret can be sealed to the recovery key.
    #[error("the text's recovery key cannot be used")]
    Recovery(#[from] BadRecoveryKey),
    /// The coordinators are too few, too many, or named twice.
    #[error("the text names 1 to {MOST_PLACES} coordinators, each once")]
    Coordinators,
    /// A name that no machine has.
    #[error("a coordinator's name in the text is none")]
    Name(#[from] BadNodeName),
    /// A place that is none.
    #[error("a coordinator's place in the text is none")]
    Endpoint(#[from] BadEndpoint),
    /// A coordinator without a place.
    #[error("the text does not say where coordinator {0} is")]
    Nowhere(NodeName),
}

impl OwnerKeys {
    /// Reads the text of an owner's keys.
    ///
    /// # Errors
    /// [`BadIntroduction`] names the first thing that is wrong with it.
    pub fn from_text(text: &str) -> Result<Self, BadIntroduction> {
        let bytes = OWNER_TEXT.read(text)?;
        versioned(&bytes, &OWNER_KEYS)?;
        let wire = OwnerKeysWire::decode(bytes.as_slice()).map_err(|_| FormatError::Truncated(OWNER_KEYS.name))?;
        let key: [u8; 32] = sized("public key", &wire.public_key)?;
        if key == [0; 32] {
            return Err(BadIntroduction::ZeroKey);
        }
        let recovery = RecoveryPubKey::new(sized("recovery key", &wire.recovery_public_key)?)?;
        Ok(Self { key: OwnerPubKey(key), recovery })
    }

    /// The inverse of [`Self::from_text`].
    #[must_use]
    pub fn to_text(&self) -> String {
        let wire = OwnerKeysWire {
            version: VERSION,
            public_key: self.key.0.to_vec(),
            recovery_public_key: self.recovery.bytes().to_vec(),
        };
        OWNER_TEXT.write(&wire.encode_to_vec()).to_string()
    }
}

/// Reads the text of a user's key.
///
/// # Errors
/// [`BadIntroduction`] names the first thing that is wrong with it.
pub fn user_key(text: &str) -> Result<UserPubKey, BadIntroduction> {
    let bytes = USER_TEXT.read(text)?;
    versioned(&bytes, &USER_KEY)?;
    let wire = UserKeyWire::decode(bytes.as_slice()).map_err(|_| FormatError::Truncated(USER_KEY.name))?;
    let key: [u8; 32] = sized("public key", &wire.public_key)?;
    if key == [0; 32] { Err(BadIntroduction::ZeroKey) } else { Ok(UserPubKey(key)) }
}

/// Writes what [`user_key`] reads.
#[must_use]
pub fn user_text(key: UserPubKey) -> String {
    USER_TEXT.write(&UserKeyWire { version: VERSION, public_key: key.0.to_vec() }.encode_to_vec()).to_string()
}

impl ClusterPlace {
    /// Reads the text of a cluster's place.
    ///
    /// # Errors
    /// [`BadIntroduction`] names the first thing that is wrong with it.
    pub fn from_text(text: &str) -> Result<Self, BadIntroduction> {
        let bytes = PLACE_TEXT.read(text)?;
        versioned(&bytes, &CLUSTER_PLACE)?;
        let wire =
            ClusterPlaceWire::decode(bytes.as_slice()).map_err(|_| FormatError::Truncated(CLUSTER_PLACE.name))?;
        let coordinators = wire.coordinators.iter().map(CoordinatorPlace::read).collect::<Result<Vec<_>, _>>()?;
        let again = |at: usize| {
            let (earlier, later) = (&coordinators[..at], &coordinators[at]);
            earlier.iter().any(|one| one.machine == later.machine || one.name == later.name)
        };
        if !(1..=MOST_PLACES).contains(&coordinators.len()) || (1..coordinators.len()).any(again) {
            return Err(BadIntroduction::Coordinators);
        }
        Ok(Self {
            cluster: ClusterId(sized("cluster id", &wire.cluster_id)?),
            ca_spki: sized("CA pin", &wire.ca_spki_sha256)?,
            coordinators,
        })
    }

    /// The inverse of [`Self::from_text`].
    #[must_use]
    pub fn to_text(&self) -> String {
        let wire = ClusterPlaceWire {
            version: VERSION,
            cluster_id: self.cluster.0.to_vec(),
            ca_spki_sha256: self.ca_spki.to_vec(),
            coordinators: self.coordinators.iter().map(CoordinatorPlace::to_wire).collect(),
        };
        PLACE_TEXT.write(&wire.encode_to_vec()).to_string()
    }
}

impl CoordinatorPlace {
    fn read(wire: &CoordinatorPlaceWire) -> Result<Self, BadIntroduction> {
        let (machine, name) = (MachineId(sized("machine id", &wire.machine_id)?), NodeName::stored(&wire.name)?);
        let endpoints = Endpoint::read_all(&wire.public_endpoints)?;
        if endpoints.is_empty() { Err(BadIntroduction::Nowhere(name)) } else { Ok(Self { machine, name, endpoints }) }
    }

    fn to_wire(&self) -> CoordinatorPlaceWire {
        CoordinatorPlaceWire {
            machine_id: self.machine.0.to_vec(),
            name: self.name.as_str().to_owned(),
            public_endpoints: endpoint::texts(&self.endpoints),
        }
    }
}

/// Checks the version first: a later one may well look malformed.
fn versioned(bytes: &[u8], message: &'static strict::Message) -> Result<(), BadIntroduction> {
    match strict::version(bytes, message, "version", 1)? {
        Some(0) => Err(BadIntroduction::Version),
        Some(newer) if newer > u64::from(VERSION) => Err(BadIntroduction::Newer(newer)),
        Some(_) | None => Ok(strict::check(bytes, message)?),
    }
}

fn sized<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], BadIntroduction> {
    bytes.try_into().map_err(|_| BadIntroduction::Size { field, found: bytes.len(), expected: N })
}

formats::strict_message! {
    struct OwnerKeysWire, OWNER_KEYS = "OwnerKeys" {
        1 required u32 version;
        2 required bytes public_key;
        3 required bytes recovery_public_key;
    }
}

formats::strict_message! {
    struct UserKeyWire, USER_KEY = "UserKey" {
        1 required u32 version;
        2 required bytes public_key;
    }
}

formats::strict_message! {
    struct CoordinatorPlaceWire, COORDINATOR_PLACE = "CoordinatorPlace" {
        1 required bytes machine_id;
        2 required text name;
        3 repeated text public_endpoints;
    }
}

formats::strict_message! {
    struct ClusterPlaceWire, CLUSTER_PLACE = "ClusterPlace" {
        1 required u32 version;
        2 required bytes cluster_id;
        3 required bytes ca_spki_sha256;
        4 repeated message(CoordinatorPlaceWire, COORDINATOR_PLACE) coordinators;
    }
}

#[cfg(test)]
mod tests;
