//! The directory: where the coordinators are, signed by the cluster CA, so that a machine finds its cluster before
//! its data partition is open. A body is never parsed that neither its signature nor the machine's own word proves.
//!
//! ```text
//! message Signed      { bytes body = 1; bytes signature = 2; }        // ECDSA P-256, SHA-256, DER, by the CA
//! message Directory   { bytes cluster_id = 1 (16 B); uint64 version = 2; repeated Coordinator coordinators = 3; }
//! message Coordinator { bytes machine_id = 1 (16 B); repeated string endpoints = 2; }     // host:port
//! message KeptDirectory { bytes body = 1; bytes signature = 2; optional uint64 vouched = 3; optional bytes word = 4 (32 B); } // in a slot
//! ```

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use formats::strict::{self, Field, FormatError, Kind, Message, Rule};
use model::{ClusterId, MachineId};
use prost::Message as _;

use crate::derive::equal;
use crate::identity::cluster_id;
use crate::purpose::Purpose;
use crate::share::ShareKey;
use crate::two_slot::{self, File, TooLarge, TwoSlotFile};

/// Directory of the cluster's coordinators, with their endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The cluster.
    pub cluster: ClusterId,
    /// Counts changes.
    pub version: u64,
    /// The coordinators.
    pub coordinators: Vec<Coordinator>,
}

/// Coordinator in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    /// Id of the machine.
    pub machine: MachineId,
    /// Where its public API may be reached, `host:port` or `address:port`, in order of preference.
    pub endpoints: Vec<String>,
}

/// Why a directory is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// Not the protobuf that it should be.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// The cluster CA did not sign it.
    #[error("the directory is not signed by this cluster")]
    Signature,
    /// The directory is signed by the CA that is asked about, but names another cluster.
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
pub struct UnsignedDirectory(Vec<u8>);

impl UnsignedDirectory {
    /// Bytes that the CA signs: the label and the body.
    #[must_use]
    pub fn to_sign(&self) -> Vec<u8> {
        [Purpose::Directory.bytes(), &self.0].concat()
    }

    /// The signed directory as it is passed on, given the CA's signature (DER) over [`Self::to_sign`].
    #[must_use]
    pub fn signed(&self, signature: Vec<u8>) -> Vec<u8> {
        SignedWire { body: self.0.clone(), signature }.encode_to_vec()
    }
}

/// Notes of the machine beside a directory in a slot. Nobody signed them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Notes<'a> {
    /// See [`KeptDirectory::vouched`].
    pub vouched: Option<u64>,
    /// The minimum above a directory that counts by the owner's word all the same.
    pub lowers: Option<&'a DirectoryMinimum>,
}

/// The bytes of a directory file, given the directory as it was signed, and was verified.
///
/// # Errors
/// [`TooLarge`] when there are too many coordinators for the file.
pub fn emit(generation: u64, signed: &[u8], notes: Notes<'_>) -> Result<Vec<u8>, TooLarge> {
    let Notes { vouched, lowers } = notes;
    // What is no directory is believed by nobody, with a word as without.
    let word = lowers.and_then(|minimum| Some(minimum.word(&SignedWire::decode(signed).ok()?.body)));
    let clear = [signed, &NotesWire { vouched, word }.encode_to_vec()].concat();
    two_slot::emit(File::Directory, generation, &clear, None)
}

/// The least version of a directory that a machine's seal takes, and what proves that its owner has lowered that since: the
/// seal itself is written only at a start.
#[derive(Debug)]
pub struct DirectoryMinimum {
    /// The key that the machine's shares follow from.
    pub key: ShareKey,
    /// The seal's generation.
    pub seal: u64,
    /// The version that the seal says.
    pub version: u64,
}

impl DirectoryMinimum {
    /// The same once more, for whoever keeps it.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { key: self.key.duplicate(), seal: self.seal, version: self.version }
    }

    /// The version that counts where the directory's file is this: the lowest that lies there by the owner's word, else the seal's.
    /// A word of before the seal was written says nothing.
    #[must_use]
    pub fn beside(&self, slots: [&[u8]; 2]) -> u64 {
        let given = TwoSlotFile::read(File::Directory, slots)
            .newest_first
            .into_iter()
            .filter_map(|slot| self.given(slot.clear()));
        given.chain([self.version]).min().unwrap_or(self.version)
    }

    /// The version of what lies there by the owner's word.
    fn given(&self, clear: &[u8]) -> Option<u64> {
        strict::check(clear, &KEPT).ok()?;
        let (wire, body) = (NotesWire::decode(clear).ok()?, SignedWire::decode(clear).ok()?.body);
        let is_word = equal(&wire.word?, &self.word(&body));
        is_word.then(|| Directory::decode(&body).ok())?.map(|directory| directory.version)
    }

    fn word(&self, body: &[u8]) -> Vec<u8> {
        self.key.owners_word(self.seal, body).to_vec()
    }
}

/// A directory as it lies in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDirectory {
    /// Signed by the cluster.
    pub directory: Directory,
    /// The highest version up to which the machine has heard from more than one side when it wrote the slot. Nobody signed that.
    pub vouched: Option<u64>,
}

impl KeptDirectory {
    /// Reads a slot's clear part; the rest as [`Directory::verify`].
    ///
    /// # Errors
    /// [`DirectoryError`] says why it is not believed.
    pub fn verify(clear: &[u8], ca_spki: &[u8], minimum: u64) -> Result<Self, DirectoryError> {
        strict::check(clear, &KEPT)?;
        let truncated = |_| FormatError::Truncated(KEPT.name);
        let signed = SignedWire::decode(clear).map_err(truncated)?;
        let NotesWire { vouched, .. } = NotesWire::decode(clear).map_err(truncated)?;
        Ok(Self { directory: Directory::signed(&signed, ca_spki, minimum)?, vouched })
    }
}

impl Directory {
    /// Ready to be signed.
    #[must_use]
    pub fn unsigned(&self) -> UnsignedDirectory {
        let coordinators = self.coordinators.iter().map(|coordinator| CoordinatorWire {
            machine_id: coordinator.machine.0.to_vec(),
            endpoints: coordinator.endpoints.clone(),
        });
        let wire = DirectoryWire {
            cluster_id: self.cluster.0.to_vec(),
            version: self.version,
            coordinators: coordinators.collect(),
        };
        UnsignedDirectory(wire.encode_to_vec())
    }

    /// The directory that was passed on, if the CA with this SubjectPublicKeyInfo (DER) signed it and it is not
    /// below `minimum`.
    ///
    /// # Errors
    /// [`DirectoryError`] says why it is not believed.
    pub fn verify(clear: &[u8], ca_spki: &[u8], minimum: u64) -> Result<Self, DirectoryError> {
        strict::check(clear, &SIGNED)?;
        let signed = SignedWire::decode(clear).map_err(|_| FormatError::Truncated(SIGNED.name))?;
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
        let wire = DirectoryWire::decode(body).map_err(|_| FormatError::Truncated(DIRECTORY.name))?;
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
    name: "KeptDirectory",
    fields: &[
        Field { number: 1, name: "body", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 2, name: "signature", kind: Kind::Bytes, rule: Rule::Required },
        Field { number: 3, name: "vouched", kind: Kind::U64, rule: Rule::Optional },
        Field { number: 4, name: "word", kind: Kind::Bytes, rule: Rule::Optional },
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
struct NotesWire {
    #[prost(uint64, optional, tag = "3")]
    vouched: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    word: Option<Vec<u8>>,
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

    use model::{LocalKey, Secret};

    use super::*;
    use crate::data_key::Holder;
    use crate::two_slot::Slot;

    #[test]
    fn only_the_clusters_own_and_not_an_older_one_is_believed() {
        let ca = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let spki = ca.public_key().as_der().expect("encodes");
        let coordinators = vec![Coordinator { machine: MachineId([1; 16]), endpoints: vec!["192.0.2.1:7836".into()] }];
        let directory = Directory { cluster: cluster_id(spki.as_ref()), version: 3, coordinators };
        let slot = |directory: &Directory| {
            let unsigned = directory.unsigned();
            let signature = ca.sign(&SystemRandom::new(), &unsigned.to_sign()).expect("signs");
            let bytes = emit(1, &unsigned.signed(signature.as_ref().to_vec()), Notes::default()).expect("fits");
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
            let bytes = emit(1, &signed, Notes { vouched, lowers: None }).expect("fits");
            let clear = Slot::read(File::Directory, &bytes).expect("reads").clear().to_vec();
            let read = KeptDirectory::verify(&clear, spki.as_ref(), 3).expect("signed");
            assert_eq!(read, KeptDirectory { directory: directory.clone(), vouched });
            let passed_on = Directory::verify(&clear, spki.as_ref(), 3);
            assert_eq!(passed_on.is_ok(), vouched.is_none(), "{passed_on:?}");
        }
    }

    /// An owner's word lowers what its own seal says, for this very directory, and says nothing under another seal or key.
    ///
    /// Proves: D11
    #[test]
    fn the_owners_word_counts_beside_its_own_seal_and_nowhere_else() {
        let ca = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let spki = ca.public_key().as_der().expect("encodes");
        let signed = |version| {
            let unsigned = Directory { cluster: cluster_id(spki.as_ref()), version, coordinators: vec![] }.unsigned();
            unsigned.signed(ca.sign(&SystemRandom::new(), &unsigned.to_sign()).expect("signs").as_ref().to_vec())
        };
        let minimum = |key: u8, seal| {
            let holder = Holder { cluster: ClusterId([1; 16]), machine: MachineId([2; 16]) };
            let key = ShareKey::of(&LocalKey(Secret::take(&mut [key; 32])), &holder);
            DirectoryMinimum { key, seal, version: 90 }
        };
        let its_own = minimum(1, 4);
        let slot = |generation, version, lowers| {
            emit(generation, &signed(version), Notes { vouched: Some(version), lowers }).expect("fits")
        };
        let (before, given) = (slot(8, 99, None), slot(9, 7, Some(&its_own)));
        let clear = |slot: &[u8]| Slot::read(File::Directory, slot).expect("reads").clear().to_vec();
        assert_eq!(KeptDirectory::verify(&clear(&given), spki.as_ref(), 7).map(|kept| kept.directory.version), Ok(7));
        assert!(Directory::verify(&clear(&given), spki.as_ref(), 7).is_err(), "the word is passed on to nobody");
        assert_eq!(its_own.beside([&before, &given]), 7);
        assert_eq!(its_own.duplicate().beside([&given, &slot(10, 8, Some(&its_own))]), 7, "the older of two");
        assert_eq!(its_own.beside([&before, &slot(9, 95, Some(&its_own))]), 90, "a word raises nothing");
        assert_eq!(its_own.beside([&before, &slot(9, 7, None)]), 90, "without a word");
        assert_eq!(minimum(1, 5).beside([&before, &given]), 90, "the seal was written since");
        assert_eq!(minimum(2, 4).beside([&before, &given]), 90, "another machine's");
        // The word of one directory beside another one.
        let word = NotesWire::decode(clear(&given).as_slice()).expect("reads").word;
        let swapped = [signed(6), NotesWire { vouched: None, word }.encode_to_vec()].concat();
        let swapped = two_slot::emit(File::Directory, 9, &swapped, None).expect("fits");
        assert_eq!(its_own.beside([&before, &swapped]), 90, "of another directory");
        let short = [signed(6), NotesWire { vouched: None, word: Some(vec![]) }.encode_to_vec()].concat();
        assert_eq!(its_own.beside([&before, &two_slot::emit(File::Directory, 9, &short, None).expect("fits")]), 90);
    }
}
