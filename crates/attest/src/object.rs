//! The two objects a machine has in its TPM, as public areas (part 2, section 12.2.4): the storage key and the sealed
//! secret. Builds them, recognises them byte by byte, names them. Holds no secret and no handle.

use std::fmt;

use crate::code::algorithm;
use crate::kdf::{Point, sha256};
use crate::pcr::PolicyDigest;
use crate::wire::{MalformedAnswer, Reader, Writer};

/// A 32-byte secret that only one TPM opens, and only under its policy. Nothing in it is secret in clear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedObject {
    /// `TPMT_PUBLIC`, without a size before it.
    pub public: Vec<u8>,
    /// Sensitive area that the TPM encrypted under its storage key, without a size before it.
    pub private: Vec<u8>,
    /// Name of that storage key: says which TPM.
    pub storage_key: ObjectName,
}

impl SealedObject {
    /// Checks what must hold before the parts may go to a TPM: an object of ours, with a private part of a size that a
    /// 32-byte secret can have.
    pub(crate) fn check(&self) -> Result<SealedPublic, MalformedAnswer> {
        if self.private.is_empty() || self.private.len() > MAX_PRIVATE {
            return Err(MalformedAnswer::Size);
        }
        SealedPublic::parse(&self.public)
    }
}

/// TPMs answer with about 160 bytes; the rest is room for other makes.
const MAX_PRIVATE: usize = 512;

/// Name of an object: hash algorithm and SHA-256 of its public area (part 1, section 16).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ObjectName([u8; 34]);

/// The bytes are no name: not 34 of them, or not by SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a TPM object")]
pub struct BadName;

impl ObjectName {
    pub(crate) fn of(public: &[u8]) -> Self {
        let mut name = [0; 34];
        let (hash, digest) = name.split_at_mut(2);
        hash.copy_from_slice(&algorithm::SHA256.to_be_bytes());
        digest.copy_from_slice(&sha256(&[public]));
        Self(name)
    }

    /// The bytes, as they are stored in a seal.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 34] {
        &self.0
    }
}

impl TryFrom<&[u8]> for ObjectName {
    type Error = BadName;

    fn try_from(bytes: &[u8]) -> Result<Self, BadName> {
        let name: [u8; 34] = bytes.try_into().map_err(|_| BadName)?;
        if name.starts_with(&algorithm::SHA256.to_be_bytes()) { Ok(Self(name)) } else { Err(BadName) }
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectName(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Attributes of an object (part 2, section 8.3).
mod attribute {
    pub(super) const FIXED_TPM: u32 = 1 << 1;
    pub(super) const FIXED_PARENT: u32 = 1 << 4;
    pub(super) const SENSITIVE_DATA_ORIGIN: u32 = 1 << 5;
    pub(super) const USER_WITH_AUTH: u32 = 1 << 6;
    /// Not subject to the lockout: without it, power cuts count as attacks.
    pub(super) const NO_DA: u32 = 1 << 10;
    pub(super) const RESTRICTED: u32 = 1 << 16;
    pub(super) const DECRYPT: u32 = 1 << 17;
}

/// The storage key, made anew from the owner hierarchy's seed whenever it is needed: the same until the TPM is
/// cleared. TCG TPM v2.0 Provisioning Guidance 1.0, section 7.5.1: template L-2 of the EK Credential Profile with
/// `userWithAuth` and `noDA` set and no policy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StorageKeyPublic {
    pub(crate) point: Point,
    pub(crate) name: ObjectName,
}

impl StorageKeyPublic {
    /// Template that TPM2_CreatePrimary is given.
    pub(crate) fn template() -> Writer {
        Self::area().sized(&[0; 32]).sized(&[0; 32])
    }

    /// Everything before the coordinates.
    fn area() -> Writer {
        use attribute::{DECRYPT, FIXED_PARENT, FIXED_TPM, NO_DA, RESTRICTED, SENSITIVE_DATA_ORIGIN, USER_WITH_AUTH};
        let attributes =
            FIXED_TPM | FIXED_PARENT | SENSITIVE_DATA_ORIGIN | USER_WITH_AUTH | NO_DA | RESTRICTED | DECRYPT;
        Writer::new()
            .u16(algorithm::ECC)
            .u16(algorithm::SHA256)
            .u32(attributes)
            .sized(&[]) // no policy
            .u16(algorithm::AES)
            .u16(128)
            .u16(algorithm::CFB)
            .u16(algorithm::NULL) // scheme
            .u16(algorithm::P256)
            .u16(algorithm::NULL) // key derivation
    }

    /// Accepts the template with coordinates filled in, and nothing else.
    pub(crate) fn parse(public: &[u8]) -> Result<Self, MalformedAnswer> {
        let filled =
            public.strip_prefix(Self::area().as_slice()).ok_or(MalformedAnswer::Field("storage key's template"))?;
        let mut reader = Reader::new(filled);
        let point = Point { x: reader.sized_array("storage key")?, y: reader.sized_array("storage key")? };
        reader.finish()?;
        Ok(Self { point, name: ObjectName::of(public) })
    }
}

/// The sealed secret: a data object that only its policy opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealedPublic {
    pub(crate) policy: PolicyDigest,
    pub(crate) name: ObjectName,
}

impl SealedPublic {
    /// Template that TPM2_Create is given.
    pub(crate) fn template(policy: PolicyDigest) -> Writer {
        // `userWithAuth` stays clear: with it an empty password would do instead of the policy. The secret comes from
        // outside, so `sensitiveDataOrigin` stays clear too.
        Self::header().sized(&policy.0).u16(algorithm::NULL).sized(&[])
    }

    fn header() -> Writer {
        use attribute::{FIXED_PARENT, FIXED_TPM, NO_DA};
        Writer::new().u16(algorithm::KEYED_HASH).u16(algorithm::SHA256).u32(FIXED_TPM | FIXED_PARENT | NO_DA)
    }

    /// Accepts the template with its unique value filled in, and nothing else.
    pub(crate) fn parse(public: &[u8]) -> Result<Self, MalformedAnswer> {
        let after =
            public.strip_prefix(Self::header().as_slice()).ok_or(MalformedAnswer::Field("sealed object's template"))?;
        let mut reader = Reader::new(after);
        let policy = PolicyDigest(reader.sized_array("policy")?);
        if reader.u16()? != algorithm::NULL {
            return Err(MalformedAnswer::Field("sealed object's scheme"));
        }
        reader.sized_array::<32>("sealed object's unique value")?;
        reader.finish()?;
        Ok(Self { policy, name: ObjectName::of(public) })
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use proptest::prelude::*;

    use super::*;

    const POLICY: PolicyDigest = PolicyDigest([0x11; 32]);

    fn sealed_public() -> Vec<u8> {
        let template = SealedPublic::template(POLICY);
        let area = template.as_slice().strip_suffix(&[0, 0]).expect("an empty unique value");
        Writer::new().bytes(area).sized(&[0x22; 32]).as_slice().to_vec()
    }

    /// Attributes 0x00030472 and zeroed coordinates: TCG Provisioning Guidance 7.5.1 over EK Credential Profile L-2.
    #[test]
    fn the_storage_key_is_asked_for_exactly_by_the_tcg_template() {
        let coordinate = format!("0020{}", "00".repeat(32));
        assert_eq!(
            HEXLOWER.encode(StorageKeyPublic::template().as_slice()),
            format!("0023000b000304720000000600800043001000030010{coordinate}{coordinate}")
        );
    }

    /// Proves: O16
    #[test]
    fn a_sealed_object_has_no_password_and_no_lockout() {
        assert_eq!(
            HEXLOWER.encode(&sealed_public()),
            format!("0008000b000004120020{}00100020{}", "11".repeat(32), "22".repeat(32))
        );
        assert_eq!(SealedPublic::parse(&sealed_public()).map(|public| public.policy), Ok(POLICY));
    }

    #[test]
    fn a_sealed_object_of_impossible_size_is_refused() {
        let storage_key = ObjectName::of(&[]);
        for size in [0, MAX_PRIVATE + 1, 70_000] {
            let sealed = SealedObject { public: sealed_public(), private: vec![0; size], storage_key };
            assert_eq!(sealed.check(), Err(MalformedAnswer::Size));
        }
    }

    #[test]
    fn a_name_is_34_bytes_by_sha256() {
        let name = ObjectName::of(b"anything");
        assert_eq!(ObjectName::try_from(&name.as_bytes()[..]), Ok(name));
        assert_eq!(ObjectName::try_from(&name.as_bytes()[1..]), Err(BadName));
        assert_eq!(ObjectName::try_from(&[0; 34][..]), Err(BadName));
    }

    proptest! {
        /// A public area that differs from the template (attributes, scheme, sizes) is no object of ours.
        #[test]
        fn a_public_area_of_another_kind_is_refused(position in 0usize..10, flip in 1u8..) {
            let mut public = sealed_public();
            public[position] ^= flip;
            prop_assert!(SealedPublic::parse(&public).is_err());
        }

        #[test]
        fn no_bytes_panic_the_parsers(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (SealedPublic::parse(&bytes), StorageKeyPublic::parse(&bytes), ObjectName::try_from(&bytes[..]));
        }
    }
}
