//! Binding of a seal's 32-byte root: a TPM object, or nothing but the file itself.
//!
//! ```text
//! message Tpm         { uint32 pcrs = 1; bytes storage_key_name = 2 (34 B); bytes public = 3; bytes private = 4; }
//! message Unprotected { bytes secret = 1 (32 B); }
//! ```
//! Bit n of `pcrs` is PCR n, 0 to 23; `public` and `private` are at most 4096 bytes.

use formats::strict::{Field, Kind, Message, Rule};
use model::{PcrSelection, Secret};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::derive::secret;

/// Holder of the secret: a TPM, or the file itself.
#[derive(Debug)]
pub enum Binding {
    /// A TPM releases it while its PCRs have the values of the sealing boot.
    Tpm(TpmObject),
    /// The secret lies in clear in the file: no protection, where the config says so.
    Unprotected(Secret<32>),
}

/// A sealed object of a TPM 2.0, as its blobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TpmObject {
    /// Which PCRs of the SHA-256 bank the policy names.
    pub pcrs: PcrSelection,
    /// Name of the storage key it was made under: `000b` and a SHA-256. Another one: another or a cleared TPM.
    pub storage_key_name: [u8; 34],
    /// TPM2B_PUBLIC as the TPM returned it.
    pub public: Vec<u8>,
    /// TPM2B_PRIVATE as the TPM returned it.
    pub private: Vec<u8>,
}

/// Why a binding cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadBinding {
    /// No PCR, or one beyond 23.
    #[error("a PCR selection names one or more of PCR 0 to 23")]
    Pcrs,
    /// Not `000b` and 32 bytes.
    #[error("a storage key's name is 34 bytes of a SHA-256 name")]
    Name,
    /// A blob of no or too many bytes.
    #[error("a TPM object's blobs have 1 to 4096 bytes")]
    Blob,
    /// An unprotected secret is not 32 bytes.
    #[error("an unprotected secret has 32 bytes")]
    Secret,
}

pub(crate) const TPM: Message = Message {
    name: "Tpm",
    fields: &[
        Field { number: 1, name: "pcrs", kind: Kind::U32, rule: Rule::Required },
        Field { number: 2, name: "storage_key_name", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "public", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 4, name: "private", kind: Kind::Bytes, rule: Rule::Required },
    ],
};

pub(crate) const UNPROTECTED: Message = Message {
    name: "Unprotected",
    fields: &[Field { number: 1, name: "secret", kind: Kind::Bytes, rule: Rule::Required }],
};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TpmWire {
    #[prost(uint32, required, tag = "1")]
    pcrs: u32,
    #[prost(bytes = "vec", required, tag = "2")]
    storage_key_name: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "3")]
    public: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "4")]
    private: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Zeroize, ZeroizeOnDrop)]
#[prost(skip_debug)]
pub(crate) struct UnprotectedWire {
    #[prost(bytes = "vec", required, tag = "1")]
    secret: Vec<u8>,
}

impl std::fmt::Debug for UnprotectedWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnprotectedWire")
    }
}

/// The two arms, to be placed in a message's own oneof.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum BindingWire {
    #[prost(message, tag = "1")]
    Tpm(TpmWire),
    #[prost(message, tag = "2")]
    Unprotected(UnprotectedWire),
}

const SHA256_NAME: [u8; 2] = [0x00, 0x0b]; // TPM_ALG_SHA256, TPM 2.0 part 2, section 6.3
const MOST_BLOB_BYTES: usize = 4096;

impl Binding {
    /// Whether the secret lies in clear in the file.
    #[must_use]
    pub const fn in_clear(&self) -> bool {
        matches!(self, Self::Unprotected(_))
    }

    /// The name of the TPM's storage key, where a TPM holds the secret.
    #[must_use]
    pub const fn storage_key_name(&self) -> Option<[u8; 34]> {
        match self {
            Self::Tpm(object) => Some(object.storage_key_name),
            Self::Unprotected(_) => None,
        }
    }

    pub(crate) fn to_wire(&self) -> BindingWire {
        match self {
            Self::Tpm(object) => BindingWire::Tpm(TpmWire {
                pcrs: object.pcrs.bits(),
                storage_key_name: object.storage_key_name.to_vec(),
                public: object.public.clone(),
                private: object.private.clone(),
            }),
            Self::Unprotected(secret) => BindingWire::Unprotected(UnprotectedWire { secret: secret.expose().to_vec() }),
        }
    }

    pub(crate) fn from_wire(wire: &BindingWire) -> Result<Self, BadBinding> {
        match wire {
            BindingWire::Tpm(object) => {
                let pcrs = PcrSelection::from_bits(object.pcrs).ok_or(BadBinding::Pcrs)?;
                let storage_key_name: [u8; 34] =
                    object.storage_key_name.as_slice().try_into().map_err(|_| BadBinding::Name)?;
                if storage_key_name[..2] != SHA256_NAME {
                    return Err(BadBinding::Name);
                }
                let blob = |bytes: &Vec<u8>| match bytes.len() {
                    1..=MOST_BLOB_BYTES => Ok(bytes.clone()),
                    _ => Err(BadBinding::Blob), // any other length
                };
                Ok(Self::Tpm(TpmObject {
                    pcrs,
                    storage_key_name,
                    public: blob(&object.public)?,
                    private: blob(&object.private)?,
                }))
            }
            BindingWire::Unprotected(wire) => secret(&wire.secret).map(Self::Unprotected).ok_or(BadBinding::Secret),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> TpmWire {
        let storage_key_name = [&SHA256_NAME[..], &[0x22; 32]].concat();
        TpmWire { pcrs: 1 << 11, storage_key_name, public: vec![1], private: vec![2; MOST_BLOB_BYTES] }
    }

    fn read(object: TpmWire) -> Result<Binding, BadBinding> {
        Binding::from_wire(&BindingWire::Tpm(object))
    }

    /// Proves: D5
    #[test]
    fn an_impossible_tpm_object_is_refused_by_its_wrong_part() {
        let Ok(Binding::Tpm(good)) = read(object()) else { panic!("a good object is read") };
        assert_eq!((good.public, good.private), (vec![1], vec![2; MOST_BLOB_BYTES]));
        for pcrs in [0, 1 << 24, u32::MAX] {
            assert_eq!(read(TpmWire { pcrs, ..object() }).err(), Some(BadBinding::Pcrs), "{pcrs:#x}");
        }
        let sha384 = [&[0x00, 0x0c][..], &[0x22; 32]].concat();
        for storage_key_name in [vec![], object().storage_key_name[..33].to_vec(), [0; 35].to_vec(), sha384] {
            assert_eq!(read(TpmWire { storage_key_name, ..object() }).err(), Some(BadBinding::Name));
        }
        for blob in [vec![], vec![0; MOST_BLOB_BYTES + 1]] {
            assert_eq!(read(TpmWire { public: blob.clone(), ..object() }).err(), Some(BadBinding::Blob));
            assert_eq!(read(TpmWire { private: blob, ..object() }).err(), Some(BadBinding::Blob));
        }
    }

    #[test]
    fn an_unprotected_secret_has_its_size() {
        let read = |length| Binding::from_wire(&BindingWire::Unprotected(UnprotectedWire { secret: vec![7; length] }));
        assert!(matches!(read(32), Ok(Binding::Unprotected(secret)) if secret.expose() == &[7; 32]));
        for length in [0, 31, 33] {
            assert_eq!(read(length).err(), Some(BadBinding::Secret), "{length} bytes");
        }
    }
}
