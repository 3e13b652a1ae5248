//! Identity of machines and clusters: ids from public keys, Ed25519 signatures, cluster keys.

use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use model::{ClusterId, ClusterKey, DiskUuid, MachineId, MasterSecret, NodeName, Secret};
use zeroize::Zeroizing;

use crate::data_key::Holder;
use crate::derive::{hkdf, sha256};
use crate::purpose::Purpose;

/// The machine whose Ed25519 public key (32 raw bytes) this is.
#[must_use]
pub fn machine_id(ed25519_pub_key: &[u8; 32]) -> MachineId {
    MachineId(first_half(sha256(&[Purpose::Machine.bytes(), ed25519_pub_key])))
}

/// The cluster whose CA has this SubjectPublicKeyInfo (DER).
#[must_use]
pub fn cluster_id(ca_spki: &[u8]) -> ClusterId {
    ClusterId(first_half(sha256(&[Purpose::Cluster.bytes(), ca_spki])))
}

/// The cluster's half of what opens `disk`, in its `generation`.
#[must_use]
pub fn cluster_key(master: &MasterSecret, cluster: ClusterId, disk: DiskUuid, generation: u32) -> ClusterKey {
    let disk = disk.0.0;
    let length = u32::try_from(disk.len()).expect("16 fits").to_be_bytes();
    let context: &[&[u8]] = &[&length, &disk, &generation.to_be_bytes()];
    ClusterKey(hkdf(&cluster.0, master.expose(), Purpose::ClusterKey, context))
}

/// The key under which the apiservers of `cluster` encrypt Secrets in etcd: the same on each of its coordinators.
#[must_use]
pub fn kubernetes_secrets_key(master: &MasterSecret, cluster: ClusterId) -> Secret<32> {
    hkdf(&cluster.0, master.expose(), Purpose::KubernetesSecrets, &[])
}

/// A machine's or owner's Ed25519 private key (the 32-byte seed of RFC 8032).
#[derive(Debug)]
pub struct SigningKey {
    seed: Secret<32>,
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// The key of a seed; every 32 bytes are one.
    #[must_use]
    pub fn from_seed(seed: Secret<32>) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.expose()).expect("every 32 bytes are an Ed25519 seed");
        Self { seed, pair }
    }

    /// The seed, to be sealed.
    #[must_use]
    pub fn seed(&self) -> &Secret<32> {
        &self.seed
    }

    /// The public key, raw.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        let mut public = [0; 32];
        public.copy_from_slice(self.pair.public_key().as_ref());
        public
    }

    /// Signs the purpose's label followed by `message`.
    #[must_use]
    pub fn sign(&self, purpose: Purpose, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(&labelled(purpose, message)).as_ref());
        signature
    }
}

/// Identity of a machine: its key, its name, its cluster, and what the cluster issued to prove that. It is shared where
/// it is needed; nobody copies it.
#[derive(Debug)]
pub struct Identity {
    /// Key of the machine, of which there is one.
    pub key: Arc<SigningKey>,
    /// Machine and cluster.
    pub holder: Holder,
    /// Host and node name.
    pub name: NodeName,
    /// Certificate of the machine, DER.
    pub certificate: Vec<u8>,
    /// The certificate of the cluster's CA, DER.
    pub ca_certificate: Vec<u8>,
}

impl Identity {
    /// The same machine, with another certificate.
    #[must_use]
    pub fn with_certificate(&self, certificate: Vec<u8>) -> Self {
        Self {
            key: self.key.clone(),
            holder: self.holder,
            name: self.name.clone(),
            certificate,
            ca_certificate: self.ca_certificate.clone(),
        }
    }
}

/// A signature that is not the key's over these bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not verify")]
pub struct BadSignature;

/// Verifies what [`SigningKey::sign`] made.
///
/// # Errors
/// [`BadSignature`] when the key, the purpose, the message or the signature is another.
pub fn verify(
    ed25519_pub_key: &[u8; 32],
    purpose: Purpose,
    message: &[u8],
    signature: &[u8],
) -> Result<(), BadSignature> {
    UnparsedPublicKey::new(&ED25519, ed25519_pub_key)
        .verify(&labelled(purpose, message), signature)
        .map_err(|_| BadSignature)
}

/// Bytes that are signed. A message may hold a secret: the config's does.
fn labelled(purpose: Purpose, message: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new([purpose.bytes(), message].concat())
}

fn first_half(hash: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_key_purpose_and_message_only() {
        let key = SigningKey::from_seed(Secret::take(&mut [5; 32]));
        let signature = key.sign(Purpose::Enrol, b"body");
        assert_eq!(verify(&key.public(), Purpose::Enrol, b"body", &signature), Ok(()));
        assert_eq!(verify(&key.public(), Purpose::Directory, b"body", &signature), Err(BadSignature));
        assert_eq!(verify(&key.public(), Purpose::Enrol, b"bodY", &signature), Err(BadSignature));
        assert_eq!(verify(&key.public(), Purpose::Enrol, b"body", &signature[..63]), Err(BadSignature));
        let other = SigningKey::from_seed(Secret::take(&mut [6; 32])).public();
        assert_eq!(verify(&other, Purpose::Enrol, b"body", &signature), Err(BadSignature));
    }
}
