//! The directory: where the coordinators are, signed by the cluster CA, so that a machine finds its cluster before
//! its data partition is open. A body that does not verify is never parsed.
//!
//! ```text
//! message Signed      { bytes body = 1; bytes signature = 2; }        // ECDSA P-256, SHA-256, DER, by the CA
//! message Directory   { bytes cluster_id = 1; uint64 version = 2; repeated Coordinator coordinators = 3; }
//! message Coordinator { bytes machine_id = 1; repeated string endpoints = 2; }
//! message Kept        { bytes body = 1; bytes signature = 2; optional uint64 vouched = 3; }   // in a slot; the first two are Signed's
//! ```

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use formats::strict::{self, Field, Kind, Malformed, Message, Rule};
use model::{ClusterId, MachineId};
use prost::Message as _;

use crate::identity::cluster_id;
use crate::pair::{self, File, TooLarge};
use crate::purpose::Purpose;

/// Who coordinates the cluster, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The cluster.
    pub cluster: ClusterId,
    /// Counts changes.
    pub version: u64,
    /// The coordinators.
    pub coordinators: Vec<Coordinator>,
}

/// One coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    /// Its identity.
    pub machine: MachineId,
    /// Where its public API may be reached, `host:port` or `address:port`, in order of preference.
    pub endpoints: Vec<String>,
}

/// Why a directory is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The cluster CA did not sign it.
    #[error("the directory is not signed by this cluster")]
    Signature,
    /// It is signed by the CA that is asked about, but names another cluster.
    #[error("the directory names another cluster")]
    OtherCluster,
    /// An id is not 16 bytes.
    #[error("the directory holds an id of the wrong size")]
    Size,
    /// Older than the seal accepts.
    #[error("the directory is older than the seal allows (version {found}, at least {minimum} expected)")]
    Older { found: u64, minimum: u64 },
}

/// A directory that is about to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned(Vec<u8>);

impl Unsigned {
    /// What the CA signs: the label and the body.
    #[must_use]
    pub fn to_sign(&self) -> Vec<u8> {
        [Purpose::Directory.bytes(), &self.0].concat()
    }

    /// The signed directory as it is passed on, given the CA's signature (DER) over [`Self::to_sign`].
    #[must_use]
    pub fn signed(&self, signature: Vec<u8>) -> Vec<u8> {
        SignedWire { body: self.0.clone(), signature }.encode_to_vec()
    }

    /// The bytes of a directory file, given the same.
    ///
    /// # Errors
    /// [`TooLarge`] when there are too many coordinators for the file.
    pub fn emit(&self, generation: u64, signature: Vec<u8>) -> Result<Vec<u8>, TooLarge> {
        emit(generation, &self.signed(signature), None)
    }
}

/// The bytes of a directory file, given the directory as it was signed; `vouched` is the machine's own note, see [`Kept`].
///
/// # Errors
/// [`TooLarge`] when there are too many coordinators for the file.
pub fn emit(generation: u64, signed: &[u8], vouched: Option<u64>) -> Result<Vec<u8>, TooLarge> {
    let clear = [signed, &VouchedWire { vouched }.encode_to_vec()].concat();
    pair::emit(File::Directory, generation, &clear, None)
}

/// A directory as it lies in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Signed by the cluster.
    pub directory: Directory,
    /// The highest version up to which the machine has heard from more than one side when it wrote the slot. Nobody signed that.
    pub vouched: Option<u64>,
}

impl Kept {
    /// Reads a slot's clear part; the rest as [`Directory::verify`].
    ///
    /// # Errors
    /// [`DirectoryError`] says why it is not believed.
    pub fn verify(clear: &[u8], ca_spki: &[u8], minimum: u64) -> Result<Self, DirectoryError> {
        strict::check(clear, &KEPT)?;
        let truncated = |_| Malformed::Truncated(KEPT.name);
        let signed = SignedWire::decode(clear).map_err(truncated)?;
        let VouchedWire { vouched } = VouchedWire::decode(clear).map_err(truncated)?;
        Ok(Self { directory: Directory::signed(&signed, ca_spki, minimum)?, vouched })
    }
}

impl Directory {
    /// Ready to be signed.
    #[must_use]
    pub fn unsigned(&self) -> Unsigned {
        let coordinators = self.coordinators.iter().map(|coordinator| CoordinatorWire {
            machine_id: coordinator.machine.0.to_vec(),
            endpoints: coordinator.endpoints.clone(),
        });
        let wire = DirectoryWire {
            cluster_id: self.cluster.0.to_vec(),
            version: self.version,
            coordinators: coordinators.collect(),
        };
        Unsigned(wire.encode_to_vec())
    }

    /// The directory that was passed on, if the CA with this SubjectPublicKeyInfo (DER) signed it and it is not
    /// below `minimum`.
    ///
    /// # Errors
    /// [`DirectoryError`] says why it is not believed.
    pub fn verify(clear: &[u8], ca_spki: &[u8], minimum: u64) -> Result<Self, DirectoryError> {
        strict::check(clear, &SIGNED)?;
        let signed = SignedWire::decode(clear).map_err(|_| Malformed::Truncated(SIGNED.name))?;
        Self::signed(&signed, ca_spki, minimum)
    }

    fn signed(signed: &SignedWire, ca_spki: &[u8], minimum: u64) -> Result<Self, DirectoryError> {
        let labelled = [Purpose::Directory.bytes(), &signed.body].concat();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, ca_spki)
            .verify(&labelled, &signed.signature)
            .map_err(|_| DirectoryError::Signature)?;
        let directory = Self::decode(&signed.body)?;
        if directory.cluster != cluster_id(ca_spki) {
            return Err(DirectoryError::OtherCluster);
        }
        if directory.version < minimum {
            return Err(DirectoryError::Older { found: directory.version, minimum });
        }
        Ok(directory)
    }

    /// Reads a body, strictly. It is worth nothing until its signature was verified: see [`Self::verify`].
    ///
    /// # Errors
    /// [`DirectoryError`] names what makes no sense.
    pub fn decode(body: &[u8]) -> Result<Self, DirectoryError> {
        strict::check(body, &DIRECTORY)?;
        let wire = DirectoryWire::decode(body).map_err(|_| Malformed::Truncated(DIRECTORY.name))?;
        let id = |bytes: &[u8]| bytes.try_into().map_err(|_| DirectoryError::Size);
        let coordinators = wire.coordinators.iter().map(|coordinator| {
            let endpoints = coordinator.endpoints.clone();
            Ok(Coordinator { machine: MachineId(id(&coordinator.machine_id)?), endpoints })
        });
        Ok(Self {
            cluster: ClusterId(id(&wire.cluster_id)?),
            version: wire.version,
            coordinators: coordinators.collect::<Result<_, DirectoryError>>()?,
        })
    }
}

const SIGNED: Message = Message {
    name: "Signed",
    fields: &[
        Field { number: 1, name: "body", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "signature", kind: Kind::Bytes, rule: Rule::Required },
    ],
};

const KEPT: Message = Message {
    name: "Kept",
    fields: &[
        Field { number: 1, name: "body", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "signature", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "vouched", kind: Kind::U64, rule: Rule::Optional },
    ],
};

const DIRECTORY: Message = Message {
    name: "Directory",
    fields: &[
        Field { number: 1, name: "cluster_id", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "version", kind: Kind::U64, rule: Rule::Required },
        Field { number: 3, name: "coordinators", kind: Kind::Message(&COORDINATOR), rule: Rule::Repeated },
    ],
};

const COORDINATOR: Message = Message {
    name: "Coordinator",
    fields: &[
        Field { number: 1, name: "machine_id", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "endpoints", kind: Kind::Text, rule: Rule::Repeated },
    ],
};

#[derive(Clone, PartialEq, prost::Message)]
struct SignedWire {
    #[prost(bytes = "vec", required, tag = "1")]
    body: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    signature: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct VouchedWire {
    #[prost(uint64, optional, tag = "3")]
    vouched: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DirectoryWire {
    #[prost(bytes = "vec", required, tag = "1")]
    cluster_id: Vec<u8>,
    #[prost(uint64, required, tag = "2")]
    version: u64,
    #[prost(message, repeated, tag = "3")]
    coordinators: Vec<CoordinatorWire>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CoordinatorWire {
    #[prost(bytes = "vec", required, tag = "1")]
    machine_id: Vec<u8>,
    #[prost(string, repeated, tag = "2")]
    endpoints: Vec<String>,
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

    use super::*;
    use crate::pair::Slot;

    #[test]
    fn only_the_clusters_own_and_not_an_older_one_is_believed() {
        let ca = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let spki = ca.public_key().as_der().expect("encodes");
        let coordinators = vec![Coordinator { machine: MachineId([1; 16]), endpoints: vec!["192.0.2.1:7836".into()] }];
        let directory = Directory { cluster: cluster_id(spki.as_ref()), version: 3, coordinators };
        let slot = |directory: &Directory| {
            let unsigned = directory.unsigned();
            let signature = ca.sign(&SystemRandom::new(), &unsigned.to_sign()).expect("signs");
            let bytes = unsigned.emit(1, signature.as_ref().to_vec()).expect("fits");
            Slot::read(File::Directory, &bytes).expect("reads").clear().to_vec()
        };
        let clear = slot(&directory);
        assert_eq!(Directory::verify(&clear, spki.as_ref(), 3), Ok(directory.clone()));
        let older = DirectoryError::Older { found: 3, minimum: 4 };
        assert_eq!(Directory::verify(&clear, spki.as_ref(), 4), Err(older));
        let mut changed = clear;
        changed[4] ^= 1;
        assert_eq!(Directory::verify(&changed, spki.as_ref(), 3), Err(DirectoryError::Signature));
        for (number, what) in [(1, "a part twice"), (3, "one that nobody knows")] {
            let more = [&slot(&directory)[..], &[number << 3 | 2, 0]].concat();
            let refused = Directory::verify(&more, spki.as_ref(), 3);
            assert!(matches!(refused, Err(DirectoryError::Malformed(_))), "{what}: {refused:?}");
        }
        let later = [&directory.unsigned().0[..], &[4 << 3, 1]].concat();
        assert!(matches!(Directory::decode(&later), Err(DirectoryError::Malformed(_))), "signed, and not understood");
        let foreign = slot(&Directory { cluster: ClusterId([7; 16]), ..directory });
        assert_eq!(Directory::verify(&foreign, spki.as_ref(), 3), Err(DirectoryError::OtherCluster));
    }

    /// Proves: D11
    #[test]
    fn what_vouches_for_a_directory_is_the_slots_and_nobody_elses() {
        let ca = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let spki = ca.public_key().as_der().expect("encodes");
        let directory = Directory { cluster: cluster_id(spki.as_ref()), version: 3, coordinators: vec![] };
        let unsigned = directory.unsigned();
        let signature = ca.sign(&SystemRandom::new(), &unsigned.to_sign()).expect("signs");
        let signed = unsigned.signed(signature.as_ref().to_vec());
        for vouched in [None, Some(0), Some(3), Some(u64::MAX)] {
            let bytes = emit(1, &signed, vouched).expect("fits");
            let clear = Slot::read(File::Directory, &bytes).expect("reads").clear().to_vec();
            let read = Kept::verify(&clear, spki.as_ref(), 3).expect("signed");
            assert_eq!(read, Kept { directory: directory.clone(), vouched });
            let passed_on = Directory::verify(&clear, spki.as_ref(), 3);
            assert_eq!(passed_on.is_ok(), vouched.is_none(), "{passed_on:?}");
        }
    }
}
