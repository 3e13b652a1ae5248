//! Key pairs and public keys: ECDSA P-256 for authorities and services, Ed25519 for machines and owners.
//!
//! Never prints or clones a private key; an exported one is wiped when dropped.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use model::Secret;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use zeroize::Zeroizing;

/// A private key as PKCS#8 version 1 DER (RFC 5208); wiped when dropped.
pub struct KeyDer(Zeroizing<Vec<u8>>);

impl KeyDer {
    /// The bytes. Every use of a secret's content greps as `expose`.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for KeyDer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDer(secret)")
    }
}

/// Why a key could not be made, read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The random generator or the key generation failed.
    #[error("generate a key")]
    Generate,
    /// Neither ECDSA P-256 nor Ed25519 in PKCS#8.
    #[error("the private key is neither ECDSA P-256 nor Ed25519 in PKCS#8")]
    Form,
    /// The key could not be written as PKCS#8.
    #[error("export a private key")]
    Export,
    /// Neither an ECDSA P-256 nor an Ed25519 public key.
    #[error("the public key is neither ECDSA P-256 nor Ed25519")]
    Public,
}

/// A private key with its public half.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl PrivateKey {
    /// A fresh ECDSA P-256 key.
    ///
    /// # Errors
    /// [`KeyError::Generate`].
    pub fn generate() -> Result<Self, KeyError> {
        EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map(Self::p256).map_err(|_| KeyError::Generate)
    }

    /// The Ed25519 key of a 32-byte seed (RFC 8032, section 5.1.5): a machine's identity, an owner.
    ///
    /// # Errors
    /// [`KeyError::Generate`] when the library refuses the seed, which it does for none.
    pub fn ed25519(seed: &Secret<32>) -> Result<Self, KeyError> {
        Ed25519KeyPair::from_seed_unchecked(seed.expose()).map(Self::edwards).map_err(|_| KeyError::Generate)
    }

    /// Reads what [`Self::to_pkcs8`] wrote.
    ///
    /// # Errors
    /// [`KeyError::Form`] when it is no PKCS#8 or holds another algorithm.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der) {
            return Ok(Self::p256(pair));
        }
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Self::edwards).map_err(|_| KeyError::Form)
    }

    /// The key as PKCS#8 DER, for the data partition or a service's key file.
    ///
    /// # Errors
    /// [`KeyError::Export`].
    pub fn to_pkcs8(&self) -> Result<KeyDer, KeyError> {
        let document = match &self.pair {
            Pair::P256(pair) => pair.to_pkcs8v1(),
            Pair::Ed25519(pair) => pair.to_pkcs8v1(),
        };
        document.map(|document| KeyDer(Zeroizing::new(document.as_ref().to_vec()))).map_err(|_| KeyError::Export)
    }

    /// Public half of the key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    fn p256(pair: EcdsaKeyPair) -> Self {
        let public = PublicKey { kind: KeyKind::P256, raw: pair.public_key().as_ref().to_vec() };
        Self { pair: Pair::P256(pair), public }
    }

    fn edwards(pair: Ed25519KeyPair) -> Self {
        let public = PublicKey { kind: KeyKind::Ed25519, raw: pair.public_key().as_ref().to_vec() };
        Self { pair: Pair::Ed25519(pair), public }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl PublicKeyData for PrivateKey {
    fn der_bytes(&self) -> &[u8] {
        self.public.der_bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.public.algorithm()
    }
}

impl rcgen::SigningKey for PrivateKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match &self.pair {
            Pair::P256(pair) => pair
                .sign(&SystemRandom::new(), message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| rcgen::Error::RingUnspecified),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// A public key of one of the two kinds in use.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    kind: KeyKind,
    raw: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum KeyKind {
    P256,
    Ed25519,
}

impl PublicKey {
    /// An Ed25519 public key (RFC 8032), as an enrolment config names its owner.
    #[must_use]
    pub fn from_ed25519(bytes: [u8; 32]) -> Self {
        Self { kind: KeyKind::Ed25519, raw: bytes.to_vec() }
    }

    /// The raw key, where it is an Ed25519 one.
    #[must_use]
    pub fn as_ed25519(&self) -> Option<[u8; 32]> {
        match self.kind {
            KeyKind::Ed25519 => self.raw.as_slice().try_into().ok(),
            KeyKind::P256 => None,
        }
    }

    /// Reads a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7) whose encoding is the one we would write.
    ///
    /// # Errors
    /// [`KeyError::Public`] for other algorithms, other encodings and trailing bytes.
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        [(KeyKind::P256, 65), (KeyKind::Ed25519, 32)]
            .into_iter()
            .filter_map(|(kind, length)| {
                let raw = der.get(der.len().checked_sub(length)?..)?.to_vec();
                Some(Self { kind, raw })
            })
            .find(|key| key.spki() == der)
            .ok_or(KeyError::Public)
    }

    /// The SubjectPublicKeyInfo in DER.
    #[must_use]
    pub fn spki(&self) -> Vec<u8> {
        self.subject_public_key_info()
    }

    /// SHA-256 of the key's [`Self::spki`].
    #[must_use]
    pub fn pin(&self) -> SpkiPin {
        let mut pin = [0; 32];
        pin.copy_from_slice(digest::digest(&digest::SHA256, &self.spki()).as_ref());
        SpkiPin(pin)
    }

    /// Whether `signature` (ASN.1 for P-256, 64 bytes for Ed25519) is this key's over `message`.
    pub(crate) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.kind {
            KeyKind::P256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.raw).verify(message, signature),
            KeyKind::Ed25519 => UnparsedPublicKey::new(&ED25519, &self.raw).verify(message, signature),
        }
        .is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?}, {})", self.kind, data_encoding::HEXLOWER.encode(&self.raw))
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.raw
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.kind {
            KeyKind::P256 => &PKCS_ECDSA_P256_SHA256,
            KeyKind::Ed25519 => &PKCS_ED25519,
        }
    }
}

/// SHA-256 of a SubjectPublicKeyInfo: what the command line keeps of a machine and of its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpkiPin(pub [u8; 32]);

impl fmt::Display for SpkiPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for SpkiPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpkiPin({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_private_key_survives_export_and_prints_nothing() {
        let seed = Secret::take(&mut [9; 32]);
        for key in [PrivateKey::generate().unwrap(), PrivateKey::ed25519(&seed).unwrap()] {
            let der = key.to_pkcs8().unwrap();
            let again = PrivateKey::from_pkcs8(der.expose()).unwrap();
            assert_eq!(again.public(), key.public());
            assert_eq!(format!("{der:?}"), "KeyDer(secret)");
            assert!(format!("{key:?}").starts_with("PrivateKey { public: PublicKey("));
            assert_eq!(PublicKey::from_spki(&key.public().spki()), Ok(key.public().clone()));
        }
    }

    /// RFC 8032, section 7.1, test 1; SubjectPublicKeyInfo by RFC 8410, section 4.
    #[test]
    fn the_seed_of_the_rfc_gives_the_public_key_of_the_rfc() {
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let mut seed: [u8; 32] =
            hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").try_into().unwrap();
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        let key = PrivateKey::ed25519(&Secret::take(&mut seed)).unwrap();
        assert_eq!(key.public().spki(), hex(&format!("302a300506032b6570032100{public}")));
        assert_eq!(key.public(), &PublicKey::from_ed25519(hex(public).try_into().unwrap()));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_key_readers(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(PrivateKey::from_pkcs8(&bytes).is_err());
            prop_assert!(PublicKey::from_spki(&bytes).is_err());
        }
    }
}
