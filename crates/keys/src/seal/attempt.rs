//! The seal of kind *attempt*: what a machine that joins a cluster made for itself, written before it asks for anything, so
//! that a cut from then on resumes as the same machine. It says nothing of the cluster, and makes nobody a member.
//!
//! ```text
//! message AttemptClear { oneof binding { Tpm tpm = 1; Unprotected unprotected = 2; } uint32 boot_class = 3; bytes salt = 4 (32 B);
//!                        uint32 kind = 9; }                                       // 2; a member's seal has no such field
//! message AttemptBody  { bytes local_key = 1 (32 B); bytes identity_seed = 2 (32 B, Ed25519);
//!                        bytes vpn_private_key = 3 (32 B, X25519); bytes disk = 4 (16 B); bytes config_digest = 5 (32 B); }
//! ```

use formats::strict::{self, Field, FormatError, Kind, Message, Rule};
use model::{BootClass, ConfigDigest, DiskUuid, LocalKey, SealRoot, Uuid, VpnPrivKey};
use prost::Message as _;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::binding::{Binding, BindingWire, TPM, UNPROTECTED};
use crate::derive::secret;
use crate::identity::SigningKey;
use crate::seal::{SealError, body_key, served_boot_class, sized};
use crate::two_slot::{self, File, Slot, TooLarge};
use crate::wiped;

/// The number that says so in the clear part, and where.
const KIND: u32 = 2;
const KIND_FIELD: u32 = 9;

/// Clear part: readable without unsealing.
#[derive(Debug)]
pub struct AttemptClear {
    /// Binding of the seal root.
    pub binding: Binding,
    /// How the machine was started when it sealed.
    pub boot_class: BootClass,
    /// 32 random bytes, fresh for every seal.
    pub salt: [u8; 32],
}

/// Secrets that a machine that joins made for itself; only the seal root opens them.
#[derive(Debug)]
pub struct Attempt {
    /// Key that the machine's id is made of.
    pub identity: SigningKey,
    /// Local half of what will open the data partition.
    pub local_key: LocalKey,
    /// Key of the machine in the VPN.
    pub vpn_key: VpnPrivKey,
    /// The data partition that it will format.
    pub disk: DiskUuid,
    /// The config by which it joins: another one begins another attempt.
    pub config: ConfigDigest,
}

/// An attempt whose checksum holds and whose clear part makes sense.
#[derive(Debug)]
pub struct AttemptSeal {
    /// The clear part.
    pub clear: AttemptClear,
    slot: Slot,
}

/// Whether the clear part of a seal says that it is an attempt's.
///
/// # Errors
/// [`SealError`] when it says that it is of a kind that this version does not know, or is no protobuf.
pub(crate) fn is_one(clear: &[u8]) -> Result<bool, SealError> {
    match strict::version(clear, &CLEAR, "kind", KIND_FIELD)? {
        None => Ok(false),
        Some(kind) if kind == u64::from(KIND) => Ok(true),
        Some(_) => Err(SealError::Kind),
    }
}

/// The bytes of a seal file. `nonce` is 12 random bytes.
///
/// # Errors
/// [`TooLarge`] when the TPM's blobs do not fit.
pub fn emit(
    generation: u64,
    clear: &AttemptClear,
    attempt: &Attempt,
    root: &SealRoot,
    nonce: [u8; 12],
) -> Result<Vec<u8>, TooLarge> {
    let key = body_key(root, &clear.salt);
    let plain = attempt.encode();
    let clear = Zeroizing::new(clear.to_wire().encode_to_vec());
    two_slot::emit(File::Seal, generation, &clear, Some(&two_slot::SlotBody { key: &key, nonce, plain: &plain }))
}

impl AttemptSeal {
    pub(crate) fn read(slot: Slot) -> Result<Self, SealError> {
        Ok(Self { clear: AttemptClear::decode(slot.clear())?, slot })
    }

    /// The attempt, for whoever has the root that the binding released.
    ///
    /// # Errors
    /// [`SealError::Root`] for another root or a changed file; others when the body makes no sense.
    pub fn open(&self, root: &SealRoot) -> Result<Attempt, SealError> {
        Attempt::decode(&self.slot.open(&body_key(root, &self.clear.salt))?)
    }
}

impl Attempt {
    /// Reads the decrypted body, strictly.
    ///
    /// # Errors
    /// [`SealError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, SealError> {
        strict::check(bytes, &BODY)?;
        let wire: BodyWire = wiped::decode(bytes).map_err(|_| FormatError::Truncated(BODY.name))?;
        let key = |field, bytes: &[u8]| secret(bytes).ok_or(SealError::Size(field));
        Ok(Self {
            identity: SigningKey::from_seed(key("identity_seed", &wire.identity_seed)?),
            local_key: LocalKey(key("local_key", &wire.local_key)?),
            vpn_key: VpnPrivKey(key("vpn_private_key", &wire.vpn_private_key)?),
            disk: DiskUuid(Uuid(sized("disk", &wire.disk)?)),
            config: ConfigDigest(sized("config_digest", &wire.config_digest)?),
        })
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let wire = BodyWire {
            local_key: self.local_key.expose().to_vec(),
            identity_seed: self.identity.seed().expose().to_vec(),
            vpn_private_key: self.vpn_key.expose().to_vec(),
            disk: self.disk.0.0.to_vec(),
            config_digest: self.config.0.to_vec(),
        };
        Zeroizing::new(wire.encode_to_vec())
    }
}

impl AttemptClear {
    /// Reads a clear part, strictly.
    ///
    /// # Errors
    /// [`SealError`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, SealError> {
        strict::check(bytes, &CLEAR)?;
        let wire = ClearWire::decode(bytes).map_err(|_| FormatError::Truncated(CLEAR.name))?;
        let no_binding = FormatError::NoArm { message: CLEAR.name, oneof: "binding" };
        if wire.kind != KIND {
            return Err(SealError::Kind);
        }
        Ok(Self {
            binding: Binding::from_wire(wire.binding.as_ref().ok_or(no_binding)?)?,
            boot_class: served_boot_class(wire.boot_class)?,
            salt: sized("salt", &wire.salt)?,
        })
    }

    fn to_wire(&self) -> ClearWire {
        ClearWire {
            binding: Some(self.binding.to_wire()),
            boot_class: crate::numbers::boot_class::number(self.boot_class),
            salt: self.salt.to_vec(),
            kind: KIND,
        }
    }
}

const CLEAR: Message = Message {
    name: "AttemptClear",
    fields: &[
        Field { number: 1, name: "tpm", kind: Kind::Message(&TPM), rule: Rule::Arm("binding") },
        Field { number: 2, name: "unprotected", kind: Kind::Message(&UNPROTECTED), rule: Rule::Arm("binding") },
        Field { number: 3, name: "boot_class", kind: Kind::U32, rule: Rule::Required },
        Field { number: 4, name: "salt", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: KIND_FIELD, name: "kind", kind: Kind::U32, rule: Rule::Required },
    ],
};

#[derive(Clone, PartialEq, prost::Message)]
struct ClearWire {
    #[prost(oneof = "BindingWire", tags = "1, 2")]
    binding: Option<BindingWire>,
    #[prost(uint32, required, tag = "3")]
    boot_class: u32,
    #[prost(bytes = "vec", required, tag = "4")]
    salt: Vec<u8>,
    #[prost(uint32, required, tag = "9")]
    kind: u32,
}

formats::strict_message! {
    #[derive(Zeroize, ZeroizeOnDrop)]
    #[prost(skip_debug)]
    struct BodyWire, BODY = "AttemptBody" {
        1 required bytes local_key;
        2 required bytes identity_seed;
        3 required bytes vpn_private_key;
        4 required bytes disk;
        5 required bytes config_digest;
    }
}

impl std::fmt::Debug for BodyWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BodyWire")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{attempt, attempt_clear, bytes, clear, root, sealed, sealed_attempt};
    use crate::seal::{Candidate, SealFiles, attempt_slot, read};
    use crate::two_slot::SLOT_BYTES;

    fn blank() -> Vec<u8> {
        vec![0; SLOT_BYTES]
    }

    /// Proves: S4 D5
    #[test]
    fn an_attempt_opens_with_its_root_only_and_says_the_same_again() {
        let (files, next) = read([&sealed_attempt(), &blank()]);
        let SealFiles::Candidates(candidates) = files else { panic!("a seal: {files:?}") };
        let [Candidate::Attempt(found)] = &candidates[..] else { panic!("one attempt: {candidates:?}") };
        assert_eq!((next.slot, next.generation), (1, 2), "the final seal goes to the other slot");
        let opened = found.open(&root(0x0f)).expect("opens");
        let again = emit(1, &found.clear, &opened, &root(0x0f), bytes(0xf0)).expect("fits");
        assert!(again == sealed_attempt(), "a round trip keeps every byte");
        assert_eq!(opened.identity.public(), attempt().identity.public());
        assert!(matches!(found.open(&root(0x0e)), Err(SealError::Root(_))));
    }

    /// A machine with a member's seal was admitted: what it asked with before that counts for nothing.
    ///
    /// Proves: S11
    #[test]
    fn beside_a_members_seal_an_attempt_is_only_to_be_erased() {
        let newer = emit(9, &attempt_clear(), &attempt(), &root(0x0f), bytes(0xf0)).expect("fits");
        for (slots, slot) in [([sealed(), newer.clone()], 1), ([newer, sealed()], 0)] {
            let slots = [&slots[0][..], &slots[1]];
            let (files, next) = read(slots);
            let SealFiles::Candidates(candidates) = files else { panic!("a seal: {files:?}") };
            assert!(matches!(&candidates[..], [Candidate::Member(_)]), "{candidates:?}");
            assert_eq!((attempt_slot(slots), next.generation), (Some(slot), 10));
        }
        assert_eq!(attempt_slot([&sealed(), &blank()]), None);
        let newest = emit(2, &attempt_clear(), &attempt(), &root(0x0f), bytes(0xf0)).expect("fits");
        assert_eq!(attempt_slot([&sealed_attempt(), &newest]), Some(1), "the next write takes the other's place");
        assert_eq!(attempt_slot([&newest, &sealed_attempt()]), Some(0));
    }

    #[test]
    fn a_clear_part_of_another_kind_or_shape_is_refused_by_name() {
        let read = |edit: fn(&mut ClearWire)| {
            let mut wire = attempt_clear().to_wire();
            edit(&mut wire);
            let bytes = wire.encode_to_vec();
            (is_one(&bytes), AttemptClear::decode(&bytes).err())
        };
        assert_eq!(read(|_| ()), (Ok(true), None));
        assert_eq!(read(|wire| wire.kind = 1), (Err(SealError::Kind), Some(SealError::Kind)));
        assert_eq!(read(|wire| wire.salt.truncate(31)).1, Some(SealError::Size("salt")));
        assert_eq!(read(|wire| wire.boot_class = 1).1, Some(SealError::BootClass));
        assert!(matches!(read(|wire| wire.binding = None).1, Some(SealError::Malformed(_))));
        let member = crate::golden::clear_bytes(&clear());
        assert_eq!(is_one(&member), Ok(false));
        assert!(matches!(AttemptClear::decode(&member), Err(SealError::Malformed(_))));
        let both = [member, vec![0x48, 2]].concat();
        assert!(
            is_one(&both) == Ok(true) && AttemptClear::decode(&both).is_err(),
            "a member's that calls itself an attempt"
        );
    }

    #[test]
    fn a_body_with_a_field_of_another_size_is_refused_by_name() {
        type Edit = fn(&mut BodyWire);
        let sizes: [(&str, Edit); 5] = [
            ("local_key", |wire| wire.local_key.truncate(31)),
            ("identity_seed", |wire| wire.identity_seed.push(0)),
            ("vpn_private_key", |wire| wire.vpn_private_key.truncate(31)),
            ("disk", |wire| wire.disk.push(0)),
            ("config_digest", |wire| wire.config_digest.truncate(31)),
        ];
        let good = attempt().encode();
        let read = |edit: Edit| {
            let mut wire = BodyWire::decode(good.as_slice()).expect("a good body");
            edit(&mut wire);
            Attempt::decode(&wire.encode_to_vec()).err()
        };
        assert_eq!(read(|_| ()), None, "unchanged it is read");
        for (field, edit) in sizes {
            assert_eq!(read(edit), Some(SealError::Size(field)));
        }
        let trailing = [good.as_slice(), &[0x30, 1]].concat();
        assert!(matches!(Attempt::decode(&trailing), Err(SealError::Malformed(_))), "an unknown field 6");
        let shown = format!("{:?} {:?}", attempt(), BodyWire::decode(good.as_slice()).expect("a good body"));
        assert!(shown.contains("Secret(32 bytes)") && !shown.contains("16, 17, 18"), "{shown}");
    }
}
