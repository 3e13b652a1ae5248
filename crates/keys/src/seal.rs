//! The seal: what makes a machine a member at its next boot. The clear part says how to unseal and what is needed
//! before or without that; the body holds the machine's secrets under a root that only the binding releases. Its two files
//! hold seals of a second kind, too: [`attempt`](crate::attempt).
//!
//! ```text
//! message SealClear {
//!   oneof binding { Tpm tpm = 1; Unprotected unprotected = 2; }
//!   uint32 boot_class = 3; bytes salt = 4 (32 B); Network network = 5; Prefix vpn_prefix = 6; string node_name = 7;
//!   uint64 sealed_at = 8;                                                      // seconds of Unix time
//!   optional Prefix pods_prefix = 9; optional Prefix services_prefix = 10;     // none: 10.244.0.0/16, 10.96.0.0/16
//! }
//! message SealBody {
//!   bytes local_key = 1 (32 B); bytes identity_seed = 2 (32 B, Ed25519); bytes machine_certificate = 3 (DER);
//!   bytes ca_certificate = 4 (DER); bytes owner_pub_key = 5 (32 B, Ed25519); bytes owner_recovery_pub_key = 6 (32 B, X25519);
//!   uint32 level = 7; uint32 cold_start = 8; uint64 minimum_header = 9; uint64 minimum_directory = 10;
//!   bytes config_digest = 11 (32 B, SHA-256 of the config's file); bytes disk = 12 (16 B); uint32 key_generation = 13;
//!   bytes cluster_id = 14 (16 B);
//! }
//! ```

pub mod attempt;

use std::sync::Arc;

use formats::strict::{self, Field, FormatError, Kind, Message, Rule};
use model::{
    BootClass, ClusterId, ColdStart, ConfigDigest, DiskUuid, Level, LocalKey, NetworkConfig, NodeName, Prefixes,
    SealRoot, Secret, Uuid,
};
use prost::Message as _;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::binding::{BadBinding, Binding, BindingWire, TPM, UNPROTECTED};
use crate::data_key::{HeaderExpectation, Holder};
use crate::derive::{Unauthentic, hkdf, secret};
use crate::directory::DirectoryMinimum;
use crate::identity::{Identity, SigningKey, machine_id};
use crate::network::{self, BadNetwork, NETWORK, NetworkWire, PREFIX, PrefixWire, PrefixesWire};
use crate::numbers;
use crate::purpose::Purpose;
use crate::recovery::{BadRecoveryKey, RecoveryPubKey};
use crate::share::ShareKey;
use crate::two_slot::{self, File, NextSlot, Slot, TooLarge, TwoSlotFile};
use crate::wiped;

/// Clear part: readable without unsealing.
#[derive(Debug)]
pub struct Clear {
    /// Binding of the seal root.
    pub binding: Binding,
    /// How the machine was started when it sealed.
    pub boot_class: BootClass,
    /// 32 random bytes, fresh for every seal.
    pub salt: [u8; 32],
    /// How the machine gets its public addresses.
    pub network: NetworkConfig,
    /// Address ranges that the cluster keeps for itself.
    pub prefixes: Prefixes,
    /// Host and node name.
    pub node_name: NodeName,
    /// When it was written, in seconds of Unix time: the clock is never before this.
    pub sealed_at: u64,
}

/// Secrets that only the seal root opens.
#[derive(Debug)]
pub struct Body {
    /// The machine's half of the data key.
    pub local_key: LocalKey,
    /// Identity of the machine. The cluster follows from the CA's public key; it is stored so that no certificate is
    /// parsed to open a disk. The name is the clear part's.
    pub identity: Arc<Identity>,
    /// The owner's Ed25519 public key, raw.
    pub owner_pub_key: [u8; 32],
    /// The owner's X25519 public key.
    pub owner_recovery: RecoveryPubKey,
    /// The level in force.
    pub level: Level,
    /// Source of the cluster key at a cold start.
    pub cold_start: ColdStart,
    /// The lowest header generation that is not a rollback.
    pub minimum_header: u64,
    /// The lowest directory version that is not a rollback.
    pub minimum_directory: u64,
    /// The config that enrolled the machine.
    pub config: ConfigDigest,
    /// The disk that the seal is for.
    pub disk: DiskUuid,
    /// The generation of that disk's cluster key when it was sealed.
    pub key_generation: u32,
}

/// Why a seal cannot be read or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// The boot class is unknown, or reserved (`uefi-sb` until Secure Boot is built).
    #[error("the seal names a boot class this version does not serve")]
    BootClass,
    /// Neither a member's nor an attempt.
    #[error("the seal is of a kind this version does not know")]
    Kind,
    /// A field of fixed size has another one.
    #[error("field {0} of the seal has the wrong size")]
    Size(&'static str),
    /// A policy word this version does not know.
    #[error("the seal names an unknown {0}")]
    Policy(&'static str),
    /// The binding.
    #[error(transparent)]
    Binding(#[from] BadBinding),
    /// The network settings.
    #[error(transparent)]
    Network(#[from] BadNetwork),
    /// The node name.
    #[error(transparent)]
    NodeName(#[from] model::BadNodeName),
    /// The owner's recovery key.
    #[error(transparent)]
    OwnerRecovery(#[from] BadRecoveryKey),
    /// The root does not open the body.
    #[error("the seal's body does not open")]
    Root(#[from] Unauthentic),
}

/// A member's seal whose checksum holds and whose clear part makes sense.
#[derive(Debug)]
pub struct MemberSeal {
    /// The clear part.
    pub clear: Clear,
    slot: Slot,
}

/// A seal of either kind.
#[derive(Debug)]
pub enum Candidate {
    /// A member's.
    Member(MemberSeal),
    /// Seal of a machine that asks to become a member.
    Attempt(attempt::AttemptSeal),
}

/// Content of the two seal files.
#[derive(Debug)]
pub enum SealFiles {
    /// No slot whose checksum holds.
    None,
    /// A newer Cairn wrote one of them.
    Newer(u32),
    /// A checksum holds, but the clear part makes no sense.
    Malformed(SealError),
    /// Seals to try in this order: those that a TPM holds first, since anybody could write one in clear. Attempts are among
    /// them where there is no member's.
    Candidates(Vec<Candidate>),
}

/// Reads the two files.
#[must_use]
pub fn read(slots: [&[u8]; 2]) -> (SealFiles, NextSlot) {
    let file = TwoSlotFile::read(File::Seal, slots);
    if let Some(version) = file.newer {
        return (SealFiles::Newer(version), file.next);
    }
    let mut malformed = None;
    let mut candidates = Vec::new();
    for slot in file.newest_first {
        match Candidate::read(slot) {
            Ok(candidate) => candidates.push(candidate),
            Err(error) => {
                malformed.get_or_insert(error);
            }
        }
    }
    candidates.sort_by_key(|candidate| candidate.binding().in_clear());
    let is_member = |candidate: &Candidate| matches!(candidate, Candidate::Member(_));
    if candidates.iter().any(is_member) {
        candidates.retain(is_member);
    }
    let files = match (candidates.is_empty(), malformed) {
        (false, _) => SealFiles::Candidates(candidates),
        (true, Some(error)) => SealFiles::Malformed(error),
        (true, None) => SealFiles::None,
    };
    (files, file.next)
}

/// The slot that holds an attempt, the newest of two, of whatever worth: it is to be erased once there is a member's seal.
#[must_use]
pub fn attempt_slot(slots: [&[u8]; 2]) -> Option<usize> {
    let attempt = |slot: usize| {
        let read = Slot::read(File::Seal, slots[slot]).ok()?;
        attempt::is_one(read.clear()).is_ok_and(|is_one| is_one).then_some((read.generation, slot))
    };
    attempt(0).max(attempt(1)).map(|(_, slot)| slot)
}

impl Candidate {
    fn read(slot: Slot) -> Result<Self, SealError> {
        if attempt::is_one(slot.clear())? {
            attempt::AttemptSeal::read(slot).map(Self::Attempt)
        } else {
            Ok(Self::Member(MemberSeal { clear: Clear::decode(slot.clear())?, slot }))
        }
    }

    /// Binding of the seal root.
    #[must_use]
    pub const fn binding(&self) -> &Binding {
        match self {
            Self::Member(sealed) => &sealed.clear.binding,
            Self::Attempt(sealed) => &sealed.clear.binding,
        }
    }

    /// How the machine was started when it sealed.
    #[must_use]
    pub const fn boot_class(&self) -> BootClass {
        match self {
            Self::Member(sealed) => sealed.clear.boot_class,
            Self::Attempt(sealed) => sealed.clear.boot_class,
        }
    }
}

impl MemberSeal {
    /// The body, for whoever has the root that the binding released.
    ///
    /// # Errors
    /// [`SealError::Root`] for another root or a changed file; others when the body makes no sense.
    pub fn open(&self, root: &SealRoot) -> Result<Body, SealError> {
        Body::decode(&self.slot.open(&body_key(root, &self.clear.salt))?, &self.clear.node_name)
    }

    /// Counts seals of this machine.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.slot.generation
    }
}

/// The bytes of a seal file. `nonce` is 12 random bytes.
///
/// # Errors
/// [`TooLarge`] when the certificates do not fit.
pub fn emit(
    generation: u64,
    clear: &Clear,
    body: &Body,
    root: &SealRoot,
    nonce: [u8; 12],
) -> Result<Vec<u8>, TooLarge> {
    let key = body_key(root, &clear.salt);
    let plain = body.encode();
    let clear = Zeroizing::new(clear.to_wire().encode_to_vec());
    two_slot::emit(File::Seal, generation, &clear, Some(&two_slot::SlotBody { key: &key, nonce, plain: &plain }))
}

pub(crate) fn body_key(root: &SealRoot, salt: &[u8; 32]) -> Secret<32> {
    hkdf(salt, root.expose(), Purpose::Seal, &[])
}

impl Body {
    /// Holder of the seal's disk.
    #[must_use]
    pub fn holder(&self) -> Holder {
        self.identity.holder
    }

    /// Key that closes the machine's shares.
    #[must_use]
    pub fn share_key(&self) -> ShareKey {
        ShareKey::of(&self.local_key, &self.holder())
    }

    /// Which directories the seal of this generation takes.
    #[must_use]
    pub fn directory_minimum(&self, generation: u64) -> DirectoryMinimum {
        DirectoryMinimum { key: self.share_key(), seal: generation, version: self.minimum_directory }
    }

    /// Properties that the header of the seal's disk must have.
    #[must_use]
    pub fn expected(&self) -> HeaderExpectation {
        HeaderExpectation { holder: self.holder(), disk: self.disk, level: self.level, minimum: self.minimum_header }
    }

    /// Reads the decrypted body of the machine of this name, strictly.
    ///
    /// # Errors
    /// [`SealError`] names what makes no sense.
    pub fn decode(bytes: &[u8], name: &NodeName) -> Result<Self, SealError> {
        strict::check(bytes, &BODY)?;
        let wire: BodyWire = wiped::decode(bytes).map_err(|_| FormatError::Truncated(BODY.name))?;
        let key = SigningKey::from_seed(secret(&wire.identity_seed).ok_or(SealError::Size("identity_seed"))?);
        let cluster = ClusterId(sized("cluster_id", &wire.cluster_id)?);
        let identity = Identity {
            holder: Holder { cluster, machine: machine_id(&key.public()) },
            key: key.into(),
            name: name.clone(),
            certificate: wire.machine_certificate.clone(),
            ca_certificate: wire.ca_certificate.clone(),
        };
        Ok(Self {
            local_key: LocalKey(secret(&wire.local_key).ok_or(SealError::Size("local_key"))?),
            identity: Arc::new(identity),
            owner_pub_key: sized("owner_pub_key", &wire.owner_pub_key)?,
            owner_recovery: RecoveryPubKey::new(sized("owner_recovery_pub_key", &wire.owner_recovery_pub_key)?)?,
            level: numbers::level::of(wire.level).ok_or(SealError::Policy("level"))?,
            cold_start: numbers::cold_start::of(wire.cold_start).ok_or(SealError::Policy("cold start"))?,
            minimum_header: wire.minimum_header,
            minimum_directory: wire.minimum_directory,
            config: ConfigDigest(sized("config_digest", &wire.config_digest)?),
            disk: DiskUuid(Uuid(sized("disk", &wire.disk)?)),
            key_generation: wire.key_generation,
        })
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let wire = BodyWire {
            local_key: self.local_key.expose().to_vec(),
            identity_seed: self.identity.key.seed().expose().to_vec(),
            machine_certificate: self.identity.certificate.clone(),
            ca_certificate: self.identity.ca_certificate.clone(),
            owner_pub_key: self.owner_pub_key.to_vec(),
            owner_recovery_pub_key: self.owner_recovery.bytes().to_vec(),
            level: numbers::level::number(self.level),
            cold_start: numbers::cold_start::number(self.cold_start),
            minimum_header: self.minimum_header,
            minimum_directory: self.minimum_directory,
            config_digest: self.config.0.to_vec(),
            disk: self.disk.0.0.to_vec(),
            key_generation: self.key_generation,
            cluster_id: self.identity.holder.cluster.0.to_vec(),
        };
        Zeroizing::new(wire.encode_to_vec())
    }
}

impl Clear {
    /// Reads a clear part, strictly.
    ///
    /// # Errors
    /// [`SealError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, SealError> {
        strict::check(bytes, &CLEAR)?;
        let wire = ClearWire::decode(bytes).map_err(|_| FormatError::Truncated(CLEAR.name))?;
        let no_binding = FormatError::NoArm { message: CLEAR.name, oneof: "binding" };
        let network = network::network_from_wire(&wire.network)?;
        let (vpn, pods, services) = (wire.vpn_prefix, wire.pods_prefix, wire.services_prefix);
        Ok(Self {
            binding: Binding::from_wire(wire.binding.as_ref().ok_or(no_binding)?)?,
            boot_class: served_boot_class(wire.boot_class)?,
            salt: sized("salt", &wire.salt)?,
            prefixes: PrefixesWire { vpn, pods, services }.read_beside(&network)?,
            network,
            node_name: NodeName::stored(&wire.node_name)?,
            sealed_at: wire.sealed_at,
        })
    }

    pub(crate) fn to_wire(&self) -> ClearWire {
        let PrefixesWire { vpn, pods, services } = self.prefixes.into();
        ClearWire {
            binding: Some(self.binding.to_wire()),
            boot_class: numbers::boot_class::number(self.boot_class),
            salt: self.salt.to_vec(),
            network: network::network_to_wire(&self.network),
            vpn_prefix: vpn,
            node_name: self.node_name.as_str().to_owned(),
            sealed_at: self.sealed_at,
            pods_prefix: pods,
            services_prefix: services,
        }
    }
}

/// The boot class that a clear part names.
pub(crate) fn served_boot_class(number: u32) -> Result<BootClass, SealError> {
    match numbers::boot_class::of(number) {
        Some(class @ (BootClass::Uefi | BootClass::Direct)) => Ok(class),
        Some(BootClass::UefiSecureBoot) | None => Err(SealError::BootClass),
    }
}

pub(crate) fn sized<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], SealError> {
    bytes.try_into().map_err(|_| SealError::Size(field))
}

const CLEAR: Message = Message {
    name: "SealClear",
    fields: &[
        Field { number: 1, name: "tpm", kind: Kind::Message(&TPM), rule: Rule::Arm("binding") },
        Field { number: 2, name: "unprotected", kind: Kind::Message(&UNPROTECTED), rule: Rule::Arm("binding") },
        Field { number: 3, name: "boot_class", kind: Kind::U32, rule: Rule::Required },
        Field { number: 4, name: "salt", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 5, name: "network", kind: Kind::Message(&NETWORK), rule: Rule::Required },
        Field { number: 6, name: "vpn_prefix", kind: Kind::Message(&PREFIX), rule: Rule::Required },
        Field { number: 7, name: "node_name", kind: Kind::Text, rule: Rule::Required },
        Field { number: 8, name: "sealed_at", kind: Kind::U64, rule: Rule::Required },
        Field { number: 9, name: "pods_prefix", kind: Kind::Message(&PREFIX), rule: Rule::Optional },
        Field { number: 10, name: "services_prefix", kind: Kind::Message(&PREFIX), rule: Rule::Optional },
    ],
};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClearWire {
    #[prost(oneof = "BindingWire", tags = "1, 2")]
    binding: Option<BindingWire>,
    #[prost(uint32, required, tag = "3")]
    boot_class: u32,
    #[prost(bytes = "vec", required, tag = "4")]
    salt: Vec<u8>,
    #[prost(message, required, tag = "5")]
    network: NetworkWire,
    #[prost(message, required, tag = "6")]
    vpn_prefix: PrefixWire,
    #[prost(string, required, tag = "7")]
    node_name: String,
    #[prost(uint64, required, tag = "8")]
    sealed_at: u64,
    #[prost(message, optional, tag = "9")]
    pods_prefix: Option<PrefixWire>,
    #[prost(message, optional, tag = "10")]
    services_prefix: Option<PrefixWire>,
}

const BODY: Message = Message {
    name: "SealBody",
    fields: &[
        Field { number: 1, name: "local_key", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "identity_seed", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "machine_certificate", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 4, name: "ca_certificate", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 5, name: "owner_pub_key", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 6, name: "owner_recovery_pub_key", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 7, name: "level", kind: Kind::U32, rule: Rule::Required },
        Field { number: 8, name: "cold_start", kind: Kind::U32, rule: Rule::Required },
        Field { number: 9, name: "minimum_header", kind: Kind::U64, rule: Rule::Required },
        Field { number: 10, name: "minimum_directory", kind: Kind::U64, rule: Rule::Required },
        Field { number: 11, name: "config_digest", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 12, name: "disk", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 13, name: "key_generation", kind: Kind::U32, rule: Rule::Required },
        Field { number: 14, name: "cluster_id", kind: Kind::Bytes, rule: Rule::Required },
    ],
};

#[derive(Clone, PartialEq, prost::Message, Zeroize, ZeroizeOnDrop)]
#[prost(skip_debug)]
pub(crate) struct BodyWire {
    #[prost(bytes = "vec", required, tag = "1")]
    local_key: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    identity_seed: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "3")]
    machine_certificate: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "4")]
    ca_certificate: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "5")]
    owner_pub_key: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "6")]
    owner_recovery_pub_key: Vec<u8>,
    #[prost(uint32, required, tag = "7")]
    level: u32,
    #[prost(uint32, required, tag = "8")]
    cold_start: u32,
    #[prost(uint64, required, tag = "9")]
    minimum_header: u64,
    #[prost(uint64, required, tag = "10")]
    minimum_directory: u64,
    #[prost(bytes = "vec", required, tag = "11")]
    config_digest: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "12")]
    disk: Vec<u8>,
    #[prost(uint32, required, tag = "13")]
    key_generation: u32,
    #[prost(bytes = "vec", required, tag = "14")]
    cluster_id: Vec<u8>,
}

impl std::fmt::Debug for BodyWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BodyWire")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{body, bytes, clear, expected, root, sealed};
    use crate::two_slot::SLOT_BYTES;

    /// Proves: D5
    #[test]
    fn only_the_boot_classes_that_are_served_are_read() {
        let read = |boot_class: u32| {
            let wire = ClearWire { boot_class, ..clear().to_wire() };
            Clear::decode(&wire.encode_to_vec()).map(|clear| clear.boot_class)
        };
        let number = numbers::boot_class::number;
        assert_eq!(read(number(BootClass::Uefi)), Ok(BootClass::Uefi));
        assert_eq!(read(number(BootClass::Direct)), Ok(BootClass::Direct));
        assert_eq!(read(number(BootClass::UefiSecureBoot)), Err(SealError::BootClass), "reserved");
        for unknown in [0, 4, u32::MAX] {
            assert_eq!(read(unknown), Err(SealError::BootClass), "{unknown}");
        }
    }

    /// Proves: H3
    #[test]
    fn prefixes_are_named_where_they_are_not_the_usual_ones() {
        assert_eq!((clear().to_wire().pods_prefix, clear().to_wire().services_prefix), (None, None));
        for (pods, services) in [("172.29.0.0/16", "172.30.0.0/20"), ("10.244.0.0/16", "172.30.0.0/20")] {
            let [pods, services] = [pods, services].map(|prefix| prefix.parse().expect("a prefix"));
            let prefixes = Prefixes { pods, services, ..clear().prefixes };
            let bytes = Clear { prefixes, ..clear() }.to_wire().encode_to_vec();
            assert_eq!(Clear::decode(&bytes).expect("it reads").prefixes, prefixes);
        }
    }

    /// A slot that nobody understands is no empty one.
    #[test]
    fn a_seal_without_sense_is_told_and_yields_to_one_with_sense() {
        let senseless = two_slot::emit(File::Seal, 9, &[0xff], None).expect("fits");
        let blank = vec![0; SLOT_BYTES];
        let (files, _) = read([&senseless, &blank]);
        assert!(matches!(files, SealFiles::Malformed(_)), "{files:?}");
        let (files, _) = read([&senseless, &sealed()]);
        let SealFiles::Candidates(candidates) = files else { panic!("{files:?}") };
        assert_eq!(candidates[0].binding().storage_key_name(), clear().binding.storage_key_name());
        assert!(candidates[0].binding().storage_key_name().is_some_and(|name| name[..3] == [0x00, 0x0b, 0x22]));
    }

    #[test]
    fn a_clear_part_with_a_field_of_another_size_is_refused_by_name() {
        for length in [0, 31, 33] {
            let wire = ClearWire { salt: vec![1; length], ..clear().to_wire() };
            assert_eq!(Clear::decode(&wire.encode_to_vec()).err(), Some(SealError::Size("salt")), "{length}");
        }
        let no_binding = ClearWire { binding: None, ..clear().to_wire() };
        assert!(matches!(Clear::decode(&no_binding.encode_to_vec()), Err(SealError::Malformed(_))));
        let trailing = [clear().to_wire().encode_to_vec(), vec![0x48, 1]].concat();
        assert!(matches!(Clear::decode(&trailing), Err(SealError::Malformed(_))), "an unknown field 9");
    }

    #[test]
    fn a_body_with_a_wrong_size_or_word_is_refused_by_name() {
        type Edit = fn(&mut BodyWire);
        let sizes: [(&str, Edit); 7] = [
            ("local_key", |wire| wire.local_key.truncate(31)),
            ("identity_seed", |wire| wire.identity_seed.push(0)),
            ("cluster_id", |wire| wire.cluster_id.truncate(15)),
            ("owner_pub_key", |wire| wire.owner_pub_key.push(0)),
            ("owner_recovery_pub_key", |wire| wire.owner_recovery_pub_key.truncate(31)),
            ("config_digest", |wire| wire.config_digest.truncate(31)),
            ("disk", |wire| wire.disk.push(0)),
        ];
        let good = body().encode();
        let read = |edit: Edit| {
            let mut wire = BodyWire::decode(good.as_slice()).expect("a good body");
            edit(&mut wire);
            Body::decode(&wire.encode_to_vec(), &clear().node_name).err()
        };
        assert_eq!(read(|_| ()), None, "unchanged it is read");
        for (field, edit) in sizes {
            assert_eq!(read(edit), Some(SealError::Size(field)));
        }
        assert_eq!(read(|wire| wire.level = 9), Some(SealError::Policy("level")));
        assert_eq!(read(|wire| wire.cold_start = 9), Some(SealError::Policy("cold start")));
        let small_order = Some(SealError::OwnerRecovery(BadRecoveryKey));
        assert_eq!(read(|wire| wire.owner_recovery_pub_key.fill(0)), small_order);
        let trailing = [good.as_slice(), &[0x78, 1]].concat();
        assert!(
            matches!(Body::decode(&trailing, &clear().node_name), Err(SealError::Malformed(_))),
            "an unknown field 15"
        );
    }

    /// Proves: D5
    #[test]
    fn a_seal_opens_with_its_root_only_and_says_the_same_again() {
        let blank = vec![0; SLOT_BYTES];
        let (files, next) = read([&sealed(), &blank]);
        let SealFiles::Candidates(candidates) = files else { panic!("a seal: {files:?}") };
        assert_eq!(next, NextSlot { slot: 1, generation: 2 });
        let [Candidate::Member(candidate)] = &candidates[..] else { panic!("one seal") };
        let opened = candidate.open(&root(0x0f)).expect("opens");
        let again = emit(1, &candidate.clear, &opened, &root(0x0f), bytes(0xf0)).expect("fits");
        assert!(again == sealed(), "a round trip keeps every byte");
        assert_eq!(opened.expected(), expected());
        assert!(matches!(candidate.open(&root(0x0e)), Err(SealError::Root(_))));
        assert!(matches!(read([&blank, &blank]).0, SealFiles::None));
        let mut newer = sealed();
        newer[8] = 2;
        assert!(matches!(read([&newer, &sealed()]).0, SealFiles::Newer(2)));
    }

    /// Anybody who can write the ESP can write a seal in clear, of any generation and in either slot.
    ///
    /// Proves: D5
    #[test]
    fn a_seal_that_a_tpm_holds_comes_before_one_in_clear() {
        let unprotected = Clear { binding: Binding::Unprotected(Secret::take(&mut [0x0f; 32])), ..clear() };
        let newer = emit(9, &unprotected, &body(), &root(0x0f), bytes(0xf0)).expect("fits");
        for slots in [[sealed(), newer.clone()], [newer, sealed()]] {
            let (files, next) = read([&slots[0], &slots[1]]);
            let SealFiles::Candidates(candidates) = files else { panic!("two seals: {files:?}") };
            let [Candidate::Member(first), Candidate::Member(second)] = &candidates[..] else { panic!("two seals") };
            assert_eq!((first.generation(), second.generation()), (1, 9));
            assert_eq!(next.generation, 10);
        }
    }
}
