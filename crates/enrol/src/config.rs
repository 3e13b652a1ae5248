//! The enrolment config: what the owner signed for one machine. Read strictly, refused by name, never half believed.
//!
//! ```text
//! message Signed { bytes body = 1; bytes signature = 2; }     // Ed25519 of the owner that the intent names, purpose enrol
//! message EnrolmentConfig {
//!   optional bytes golden_ticket = 1; optional string node_id = 2; uint32 version = 3 (1);
//!   bytes first_contact = 4 (32 B, not all zero); Network network = 5;
//!   oneof intent { Create create = 6; Redeem redeem = 7; Register register = 8; }
//! }
//! message Create {
//!   bytes owner_pub_key = 1 (32 B, Ed25519); bytes owner_recovery_pub_key = 2 (32 B, X25519); uint32 level = 3;
//!   uint32 cold_start = 4;
//!   bool unprotected = 5; Prefix vpn_prefix = 6; repeated uint32 kubernetes_roles = 7 [packed = false];
//!   optional Prefix pods_prefix = 8; optional Prefix services_prefix = 9;                        // none: 10.244.0.0/16, 10.96.0.0/16
//! }
//! message Redeem { bytes owner_pub_key = 1 (32 B, Ed25519); uint32 level = 2; bool unprotected = 3; }    // golden_ticket: the ticket
//! ```
//! The version is looked at first, so that a newer config is called newer and not malformed. The signature is verified
//! before anything is believed but the key that must have made it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use formats::strict::{self, Field, FormatError, Kind, Message, Rule};
use keys::derive::{secret, sha256};
use keys::identity::{SigningKey, verify};
use keys::network::{self, BadNetwork, NETWORK, NetworkWire, PREFIX, PrefixWire, PrefixesWire};
use keys::numbers::{self, BadKubernetesRoles};
use keys::purpose::Purpose;
use keys::recovery::RecoveryPubKey;
use keys::ticket::{BadTicket, Ticket};
use keys::wiped;
use model::{
    BadNodeName, ColdStart, ConfigDigest, FirstContact, KubernetesRole, Level, NetworkConfig, NodeName, OwnerPubKey,
    Prefixes,
};
use prost::Message as _;
use zeroize::{Zeroize, Zeroizing};

/// Where the config lies on the ESP.
pub const CONFIG_PATH: &str = "cairn/enrolment.pb";
/// Name of the config among QEMU's fw_cfg items; wins over the file.
pub const CONFIG_FW_CFG: &str = "opt/org.cairn/enrolment";
/// A config is small; a larger file is something else.
pub const MOST_CONFIG_BYTES: usize = 64 << 10;

const VERSION: u32 = 1;

/// All that the owner wants of a machine.
#[derive(Debug)]
pub struct EnrolmentConfig {
    /// The machine's name, unless it is to be derived from its identity.
    pub node: Option<NodeName>,
    /// The secret that proves the machine to the CLI that made the config.
    pub first_contact: FirstContact,
    /// How the machine gets its public addresses.
    pub network: NetworkConfig,
    /// The owner's intent for the machine.
    pub intent: Intent,
}

/// Intent of the owner: a new cluster for the machine, or one that there is.
#[derive(Debug)]
pub enum Intent {
    /// The first machine of a cluster.
    Create(Create),
    /// A machine of a cluster that there is, which lets it in by a ticket.
    Redeem(Redeem),
}

/// A cluster to create, with this machine as its first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// The owner's Ed25519 public key: who may talk to the machine, and who signed the config.
    pub owner_pub_key: [u8; 32],
    /// The owner's X25519 public key: who can recover the disk.
    pub owner_recovery: RecoveryPubKey,
    /// How data is protected on the disk; fixed at create.
    pub level: Level,
    /// The cold-start policy: how coordinators get the cluster key then.
    pub cold_start: ColdStart,
    /// Whether a machine without a TPM may keep its seal root in clear.
    pub without_tpm: WithoutTpm,
    /// Address ranges that the cluster keeps for itself.
    pub prefixes: Prefixes,
    /// The machine's roles in Kubernetes.
    pub kubernetes_roles: BTreeSet<KubernetesRole>,
}

/// A ticket to redeem.
#[derive(Debug)]
pub struct Redeem {
    /// The owner who signed the config. A cluster that is not theirs does not let the machine in.
    pub owner_pub_key: OwnerPubKey,
    /// The ticket that lets the machine in.
    pub ticket: Ticket,
    /// How data is protected on the disk; fixed when the machine joins. The cluster may refuse it as too low.
    pub level: Level,
    /// Whether a machine without a TPM may keep its seal root in clear.
    pub without_tpm: WithoutTpm,
}

/// The owner's word on a machine without a TPM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WithoutTpm {
    /// The machine must not enrol.
    Refuse,
    /// `unprotected: true`: the machine's seal root lies in clear on the ESP.
    Unprotected,
}

/// A config that reads, verifies and can be served.
#[derive(Debug)]
pub struct VerifiedConfig {
    /// The config that the owner signed.
    pub config: EnrolmentConfig,
    /// SHA-256 of the config's bytes.
    pub digest: ConfigDigest,
}

/// Why a config is refused. The disk is untouched in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The ESP holds one, and does not give it.
    #[error("the ESP's file with the enrolment config cannot be read")]
    Unreadable,
    /// More than [`MOST_CONFIG_BYTES`].
    #[error("the enrolment config has {0} bytes, at most {MOST_CONFIG_BYTES} are read")]
    TooLarge(usize),
    /// Not the protobuf that it should be.
    #[error("the enrolment config is malformed")]
    Malformed(#[from] FormatError),
    /// A later version.
    #[error("the enrolment config was written by a newer Cairn (version {0})")]
    Newer(u64),
    /// A version that never was.
    #[error("the enrolment config has the unknown version 0")]
    Version,
    /// A signature of another size.
    #[error("the enrolment config's signature has {0} bytes instead of 64")]
    SignatureSize(usize),
    /// An owner key of another size.
    #[error("the enrolment config's owner key has {0} bytes instead of 32")]
    OwnerKeySize(usize),
    /// Not signed by the owner it names.
    #[error("the enrolment config is not signed by the owner it names, or was changed since")]
    Signature,
    /// A recovery key of another size.
    #[error("the enrolment config's recovery key has {0} bytes instead of 32")]
    RecoveryKeySize(usize),
    /// A recovery key that everybody could open.
    #[error("the enrolment config's recovery key is not a usable X25519 public key")]
    RecoveryKey,
    /// A first contact secret of another size.
    #[error("the enrolment config's first contact secret has {0} bytes instead of 32")]
    FirstContactSize(usize),
    /// A first contact secret that everybody knows.
    #[error("the enrolment config's first contact secret is all zeros")]
    FirstContactZero,
    /// A name that is none.
    #[error("the enrolment config's node_id cannot be used")]
    NodeName(#[from] BadNodeName),
    /// Network settings that cannot work.
    #[error("the enrolment config's network cannot be used")]
    Network(#[from] BadNetwork),
    /// A level this version does not know.
    #[error("the enrolment config asks for the unknown level {0}")]
    Level(u32),
    /// A cold start policy this version does not know.
    #[error("the enrolment config asks for the unknown cold start policy {0}")]
    ColdStart(u32),
    /// Kubernetes roles that are no set that this version knows.
    #[error("the enrolment config names {0}")]
    KubernetesRoles(BadKubernetesRoles),
    /// A ticket that is none.
    #[error("the enrolment config's ticket cannot be used")]
    Ticket(#[from] BadTicket),
    /// No ticket to redeem.
    #[error("the enrolment config asks to redeem a ticket, and holds none")]
    NoTicket,
    /// A ticket where a cluster is to be created: its first machine joins none.
    #[error("the enrolment config holds a ticket, and does not ask to redeem it")]
    TicketUnasked,
    /// Well formed, but beyond this version.
    #[error("this version of Cairn cannot serve the enrolment config")]
    Unserved(#[from] PolicyError),
}

/// Reason why this version cannot serve a config yet, or this machine cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// To ask for approval.
    #[error("it asks to register, and machines cannot join by approval yet")]
    Register,
    /// No TPM: only the machine's own disk would keep its key.
    #[error("this machine has no TPM to keep its key; add one, or sign a config with unprotected")]
    NoTpm,
    /// A TPM that a broken firmware does not use.
    #[error("this machine's firmware measures nothing into PCR {0}: it is broken, and sealing to it protects nothing")]
    ZeroPcr(u8),
}

/// State of the machine's TPM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TpmPresence {
    /// The TPM answers.
    Present,
    /// There is none.
    Absent,
    /// The TPM answers, but under UEFI this PCR, 4 or 7, is zero.
    ZeroPcr(u8),
}

/// The digest by which a seal remembers the config that made it.
#[must_use]
pub fn digest(bytes: &[u8]) -> ConfigDigest {
    ConfigDigest(sha256(&[bytes]))
}

/// Reads a config, strictly.
///
/// # Errors
/// [`ConfigError`] names the first thing that is wrong with it.
pub fn read(bytes: &[u8]) -> Result<VerifiedConfig, ConfigError> {
    if bytes.len() > MOST_CONFIG_BYTES {
        return Err(ConfigError::TooLarge(bytes.len()));
    }
    strict::check(bytes, &SIGNED)?;
    let signed: SignedWire = wiped::decode(bytes).map_err(|_| FormatError::Truncated(SIGNED.name))?;
    let signature: [u8; 64] =
        signed.signature.as_slice().try_into().map_err(|_| ConfigError::SignatureSize(signed.signature.len()))?;
    match strict::version(&signed.body, &CONFIG, "version", 3)? {
        Some(0) => return Err(ConfigError::Version),
        Some(newer) if newer > u64::from(VERSION) => return Err(ConfigError::Newer(newer)),
        Some(_) | None => strict::check(&signed.body, &CONFIG)?,
    }
    let wire: ConfigWire = wiped::decode(&signed.body).map_err(|_| FormatError::Truncated(CONFIG.name))?;
    let intent = wire.intent.as_ref().ok_or(FormatError::NoArm { message: CONFIG.name, oneof: "intent" })?;
    let owner = match intent {
        IntentWire::Create(create) => &create.owner_pub_key,
        IntentWire::Redeem(redeem) => &redeem.owner_pub_key,
        IntentWire::Register(_) => return Err(PolicyError::Register.into()),
    };
    let owner: [u8; 32] = owner.as_slice().try_into().map_err(|_| ConfigError::OwnerKeySize(owner.len()))?;
    verify(&owner, Purpose::Enrol, &signed.body, &signature).map_err(|_| ConfigError::Signature)?;
    Ok(VerifiedConfig { config: EnrolmentConfig::believe(&wire, intent, owner)?, digest: digest(bytes) })
}

impl EnrolmentConfig {
    /// The bytes of a config, signed by the owner. What comes out was read back, so a machine will take it, given
    /// a TPM or `unprotected`.
    ///
    /// # Errors
    /// [`ConfigError`] for whatever a machine would refuse; [`ConfigError::Signature`] for another owner's key.
    pub fn sign(&self, owner: &SigningKey) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        let bytes = self.to_wire().sign(owner);
        read(&bytes).map(|_| bytes)
    }

    /// Whether a machine with this TPM can serve the config.
    ///
    /// # Errors
    /// [`PolicyError::NoTpm`] when a TPM is needed and not there, [`PolicyError::ZeroPcr`] when there is a useless one.
    pub fn fits(&self, tpm: TpmPresence) -> Result<(), PolicyError> {
        let without_tpm = match &self.intent {
            Intent::Create(create) => create.without_tpm,
            Intent::Redeem(redeem) => redeem.without_tpm,
        };
        match (tpm, without_tpm) {
            (TpmPresence::Absent, WithoutTpm::Refuse) => Err(PolicyError::NoTpm),
            (TpmPresence::ZeroPcr(pcr), _) => Err(PolicyError::ZeroPcr(pcr)),
            (TpmPresence::Present, _) | (TpmPresence::Absent, WithoutTpm::Unprotected) => Ok(()),
        }
    }

    /// Whether the cluster that it creates leaves these addresses of the machine's links, each with the bits of its prefix, to others.
    ///
    /// # Errors
    /// [`BadNetwork::Link`]
    pub fn fits_links(&self, links: &[(Ipv4Addr, u8)]) -> Result<(), BadNetwork> {
        match &self.intent {
            Intent::Create(create) => Ok(create.prefixes.judge_links(links)?),
            // The cluster says which it keeps.
            Intent::Redeem(_) => Ok(()),
        }
    }

    /// The meaning of a body whose signature was verified.
    fn believe(wire: &ConfigWire, intent: &IntentWire, owner: [u8; 32]) -> Result<Self, ConfigError> {
        let first_contact = secret(&wire.first_contact)
            .map(FirstContact)
            .ok_or(ConfigError::FirstContactSize(wire.first_contact.len()))?;
        if *first_contact.expose() == [0; 32] {
            return Err(ConfigError::FirstContactZero);
        }
        let network = network::network_from_wire(&wire.network)?;
        Ok(Self {
            node: wire.node_id.as_deref().map(NodeName::chosen).transpose()?,
            first_contact,
            intent: match (intent, wire.golden_ticket.as_deref()) {
                (IntentWire::Create(create), None) => Intent::Create(Create::believe(create, owner, &network)?),
                (IntentWire::Redeem(redeem), Some(ticket)) => Intent::Redeem(Redeem::believe(redeem, owner, ticket)?),
                (IntentWire::Redeem(_), None) => return Err(ConfigError::NoTicket),
                (IntentWire::Create(_), Some(_)) => return Err(ConfigError::TicketUnasked),
                (IntentWire::Register(_), _) => return Err(PolicyError::Register.into()),
            },
            network,
        })
    }

    pub(crate) fn to_wire(&self) -> ConfigWire {
        let (golden_ticket, intent) = match &self.intent {
            Intent::Create(create) => (None, IntentWire::Create(create.to_wire())),
            Intent::Redeem(redeem) => (Some(redeem.ticket.encode().to_vec()), IntentWire::Redeem(redeem.to_wire())),
        };
        ConfigWire {
            golden_ticket,
            node_id: self.node.as_ref().map(|node| node.as_str().to_owned()),
            version: VERSION,
            first_contact: self.first_contact.expose().to_vec(),
            network: network::network_to_wire(&self.network),
            intent: Some(intent),
        }
    }
}

impl WithoutTpm {
    const fn of(unprotected: bool) -> Self {
        if unprotected { Self::Unprotected } else { Self::Refuse }
    }
}

impl Redeem {
    fn believe(wire: &RedeemWire, owner: [u8; 32], ticket: &[u8]) -> Result<Self, ConfigError> {
        Ok(Self {
            owner_pub_key: OwnerPubKey(owner),
            ticket: Ticket::decode(ticket)?,
            level: numbers::level::of(wire.level).ok_or(ConfigError::Level(wire.level))?,
            without_tpm: WithoutTpm::of(wire.unprotected),
        })
    }

    fn to_wire(&self) -> RedeemWire {
        RedeemWire {
            owner_pub_key: self.owner_pub_key.0.to_vec(),
            level: numbers::level::number(self.level),
            unprotected: self.without_tpm == WithoutTpm::Unprotected,
        }
    }
}

impl Create {
    fn believe(wire: &CreateWire, owner_pub_key: [u8; 32], network: &NetworkConfig) -> Result<Self, ConfigError> {
        let recovery = &wire.owner_recovery_pub_key;
        let recovery = recovery.as_slice().try_into().map_err(|_| ConfigError::RecoveryKeySize(recovery.len()))?;
        let kubernetes_roles =
            numbers::kubernetes_roles(&wire.kubernetes_roles).map_err(ConfigError::KubernetesRoles)?;
        let CreateWire { vpn_prefix: vpn, pods_prefix: pods, services_prefix: services, .. } = wire.clone();
        Ok(Self {
            owner_pub_key,
            owner_recovery: RecoveryPubKey::new(recovery).map_err(|_| ConfigError::RecoveryKey)?,
            level: numbers::level::of(wire.level).ok_or(ConfigError::Level(wire.level))?,
            cold_start: numbers::cold_start::of(wire.cold_start).ok_or(ConfigError::ColdStart(wire.cold_start))?,
            without_tpm: WithoutTpm::of(wire.unprotected),
            prefixes: PrefixesWire { vpn, pods, services }.read_beside(network)?,
            kubernetes_roles,
        })
    }

    fn to_wire(&self) -> CreateWire {
        let PrefixesWire { vpn, pods, services } = self.prefixes.into();
        CreateWire {
            owner_pub_key: self.owner_pub_key.to_vec(),
            owner_recovery_pub_key: self.owner_recovery.bytes().to_vec(),
            level: numbers::level::number(self.level),
            cold_start: numbers::cold_start::number(self.cold_start),
            unprotected: self.without_tpm == WithoutTpm::Unprotected,
            vpn_prefix: vpn,
            kubernetes_roles: numbers::of_kubernetes_roles(&self.kubernetes_roles),
            pods_prefix: pods,
            services_prefix: services,
        }
    }
}

const SIGNED: Message = Message {
    name: "Signed",
    fields: &[
        Field { number: 1, name: "body", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "signature", kind: Kind::Bytes, rule: Rule::Required },
    ],
};

const CONFIG: Message = Message {
    name: "EnrolmentConfig",
    fields: &[
        Field { number: 1, name: "golden_ticket", kind: Kind::Bytes, rule: Rule::Optional },
        Field { number: 2, name: "node_id", kind: Kind::Text, rule: Rule::Optional },
        Field { number: 3, name: "version", kind: Kind::U32, rule: Rule::Required },
        Field { number: 4, name: "first_contact", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 5, name: "network", kind: Kind::Message(&NETWORK), rule: Rule::Required },
        Field { number: 6, name: "create", kind: Kind::Message(&CREATE), rule: Rule::Arm("intent") },
        Field { number: 7, name: "redeem", kind: Kind::Message(&REDEEM), rule: Rule::Arm("intent") },
        // What it holds is not fixed yet; it is refused as a whole.
        Field { number: 8, name: "register", kind: Kind::Bytes, rule: Rule::Arm("intent") },
    ],
};

const CREATE: Message = Message {
    name: "Create",
    fields: &[
        Field { number: 1, name: "owner_pub_key", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "owner_recovery_pub_key", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "level", kind: Kind::U32, rule: Rule::Required },
        Field { number: 4, name: "cold_start", kind: Kind::U32, rule: Rule::Required },
        Field { number: 5, name: "unprotected", kind: Kind::Bool, rule: Rule::Required },
        Field { number: 6, name: "vpn_prefix", kind: Kind::Message(&PREFIX), rule: Rule::Required },
        Field { number: 7, name: "kubernetes_roles", kind: Kind::U32, rule: Rule::Repeated },
        Field { number: 8, name: "pods_prefix", kind: Kind::Message(&PREFIX), rule: Rule::Optional },
        Field { number: 9, name: "services_prefix", kind: Kind::Message(&PREFIX), rule: Rule::Optional },
    ],
};

/// Wire form of a signed config; its body holds the first contact secret and the ticket in clear.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct SignedWire {
    #[prost(bytes = "vec", required, tag = "1")]
    pub(crate) body: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) signature: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct ConfigWire {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) golden_ticket: Option<Vec<u8>>,
    #[prost(string, optional, tag = "2")]
    pub(crate) node_id: Option<String>,
    #[prost(uint32, required, tag = "3")]
    pub(crate) version: u32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub(crate) first_contact: Vec<u8>,
    #[prost(message, required, tag = "5")]
    pub(crate) network: NetworkWire,
    #[prost(oneof = "IntentWire", tags = "6, 7, 8")]
    pub(crate) intent: Option<IntentWire>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum IntentWire {
    #[prost(message, tag = "6")]
    Create(CreateWire),
    #[prost(message, tag = "7")]
    Redeem(RedeemWire),
    #[prost(bytes = "vec", tag = "8")]
    Register(Vec<u8>),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateWire {
    #[prost(bytes = "vec", required, tag = "1")]
    pub(crate) owner_pub_key: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) owner_recovery_pub_key: Vec<u8>,
    #[prost(uint32, required, tag = "3")]
    pub(crate) level: u32,
    #[prost(uint32, required, tag = "4")]
    pub(crate) cold_start: u32,
    #[prost(bool, required, tag = "5")]
    pub(crate) unprotected: bool,
    #[prost(message, required, tag = "6")]
    pub(crate) vpn_prefix: PrefixWire,
    #[prost(uint32, repeated, packed = "false", tag = "7")]
    pub(crate) kubernetes_roles: Vec<u32>,
    #[prost(message, optional, tag = "8")]
    pub(crate) pods_prefix: Option<PrefixWire>,
    #[prost(message, optional, tag = "9")]
    pub(crate) services_prefix: Option<PrefixWire>,
}

formats::strict_message! {
    struct RedeemWire, REDEEM = "Redeem" {
        1 required bytes owner_pub_key;
        2 required u32 level;
        3 required bool unprotected;
    }
}

impl ConfigWire {
    pub(crate) fn sign(&self, owner: &SigningKey) -> Zeroizing<Vec<u8>> {
        sign_body(self.encode_to_vec(), owner)
    }
}

pub(crate) fn sign_body(body: Vec<u8>, owner: &SigningKey) -> Zeroizing<Vec<u8>> {
    let signature = owner.sign(Purpose::Enrol, &body).to_vec();
    Zeroizing::new(SignedWire { body, signature }.encode_to_vec())
}

impl std::fmt::Debug for SignedWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignedWire")
    }
}

impl Drop for SignedWire {
    fn drop(&mut self) {
        self.body.zeroize();
    }
}

impl std::fmt::Debug for ConfigWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConfigWire")
    }
}

impl Drop for ConfigWire {
    fn drop(&mut self) {
        self.first_contact.zeroize();
        self.golden_ticket.zeroize();
    }
}
