//! Fixtures of this crate's tests: a cluster's CA, and what it signs.

use std::sync::OnceLock;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use keys::data_key::Holder;
use keys::directory::{Directory, DirectoryMinimum};
use keys::identity::cluster_id;
use keys::share::ShareKey;
use keys::two_slot::{SLOT_BYTES, Slots};
use model::{LocalKey, MachineId, Secret};
use zeroize::Zeroizing;

pub(crate) fn secret(byte: u8) -> Secret<32> {
    Secret::take(&mut [byte; 32])
}

/// A cluster's CA: one for all tests of a run.
#[derive(Debug)]
pub(crate) struct Ca {
    pair: EcdsaKeyPair,
    pub(crate) spki: Vec<u8>,
}

pub(crate) fn ca() -> &'static Ca {
    static CA: OnceLock<Ca> = OnceLock::new();
    CA.get_or_init(|| {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let spki = pair.public_key().as_der().expect("encodes").as_ref().to_vec();
        Ca { pair, spki }
    })
}

impl Ca {
    pub(crate) fn sign(&self, directory: &Directory) -> Vec<u8> {
        let directory = directory.unsigned();
        let signature = self.pair.sign(&SystemRandom::new(), &directory.to_sign()).expect("signs");
        directory.signed(signature.as_ref().to_vec())
    }
}

/// A seal, its first, that takes no directory below this version.
pub(crate) fn sealed(version: u64) -> DirectoryMinimum {
    let holder = Holder { cluster: cluster_id(&ca().spki), machine: MachineId([9; 16]) };
    DirectoryMinimum { key: ShareKey::of(&LocalKey(secret(4)), &holder), seal: 1, version }
}

/// Two slots that nothing was written into.
pub(crate) fn blank() -> Slots {
    Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new))
}
