//! Secrets that only the owner can open: HPKE base mode (RFC 9180; KEM 0x0020, KDF 0x0001, AEAD 0x0002) to the owner's
//! X25519 key. The owner slot of a data header and the recovery record are both made here.
//!
//! The suite is that of rustls' aws-lc-rs provider, which is in every build anyway; aws-lc-rs itself has no HPKE.
//! It draws the ephemeral key itself, so sealing is the one operation of this crate that is not a function.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use model::{ClusterId, DiskUuid, MachineId, Secret};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};
use zeroize::Zeroizing;

use crate::derive::secret;
use crate::purpose::Purpose;

/// An owner's X25519 public key: what can be sealed to its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryPubKey([u8; 32]);

/// Whether these are a public key of X25519, and no point of small order: with one of those, everybody shares the same
/// secret.
#[must_use]
pub fn is_usable_x25519(bytes: &[u8; 32]) -> bool {
    // Any private key does: the shared secret of a point of small order is zero for all of them.
    let probe = PrivateKey::from_private_key(&X25519, &[0x40; 32]).expect("every 32 bytes are an X25519 key");
    agreement::agree(&probe, UnparsedPublicKey::new(&X25519, bytes), (), |_| Ok(())).is_ok()
}

/// The public key of an X25519 private key.
///
/// # Panics
/// Never: every 32 bytes are a private key, and have a public one.
#[must_use]
pub fn x25519_public(private: &Secret<32>) -> [u8; 32] {
    let private = PrivateKey::from_private_key(&X25519, private.expose()).expect("32 bytes are an X25519 key");
    let mut bytes = [0; 32];
    bytes.copy_from_slice(private.compute_public_key().expect("a private key has a public one").as_ref());
    bytes
}

/// A point that gives everybody the same shared secret (RFC 7748, section 6.1), so no key at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a usable X25519 public key")]
pub struct BadRecoveryKey;

impl RecoveryPubKey {
    /// Takes the 32 raw bytes, unless sealing to them would fail later, when the disk has already changed.
    ///
    /// # Errors
    /// [`BadRecoveryKey`] for a point of small order.
    pub fn new(bytes: [u8; 32]) -> Result<Self, BadRecoveryKey> {
        if is_usable_x25519(&bytes) { Ok(Self(bytes)) } else { Err(BadRecoveryKey) }
    }

    /// The public key of a private one.
    #[must_use]
    pub fn of(private: &Secret<32>) -> Self {
        Self(x25519_public(private))
    }

    /// Raw bytes of the key.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Which secret is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecretKind {
    /// The volume key of a data partition, in its header's owner slot.
    VolumeKey,
    /// The master secret of a cluster, in a coordinator's recovery record.
    MasterSecret,
    /// The cluster's half of what opens a data partition, in any other machine's recovery record.
    ClusterKey,
}

impl SecretKind {
    /// The number that stands for it in AAD and record.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::VolumeKey => 1,
            Self::MasterSecret => 2,
            Self::ClusterKey => 3,
        }
    }

    /// The inverse of [`Self::number`].
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::VolumeKey),
            2 => Some(Self::MasterSecret),
            3 => Some(Self::ClusterKey),
            _ => None, // whatever a later version knows
        }
    }
}

/// Context that a sealed secret is bound to: it opens for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretContext {
    /// Which secret it is.
    pub kind: SecretKind,
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// The machine that sealed it.
    pub machine: MachineId,
    /// Disk of that machine.
    pub disk: DiskUuid,
    /// The generation of the disk's cluster key.
    pub key_generation: u32,
}

impl SecretContext {
    fn aad(&self) -> Vec<u8> {
        [
            &self.kind.number().to_be_bytes()[..],
            &self.cluster.0,
            &self.machine.0,
            &self.disk.0.0,
            &self.key_generation.to_be_bytes(),
        ]
        .concat()
    }
}

/// A 32-byte secret that the owner can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedToOwner {
    /// The encapsulated key.
    pub encapsulated: [u8; 32],
    /// The secret and its tag.
    pub ciphertext: [u8; 48],
}

/// Sealing to the owner's recovery key failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("seal to the owner's recovery key")]
pub struct OwnerSealError;

/// Opening failed: another private key, another context, or changed bytes; it cannot tell which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the owner's key does not open this: sealed to another key, or for another disk, machine or cluster")]
pub struct RecoveryOpenError;

/// Seals `plain` to the owner. Draws an ephemeral key from the system's random source.
///
/// # Errors
/// [`OwnerSealError`] when the random source or the key fails.
pub fn seal(
    owner: &RecoveryPubKey,
    context: &SecretContext,
    plain: &Secret<32>,
) -> Result<SealedToOwner, OwnerSealError> {
    let public = HpkePublicKey(owner.0.to_vec());
    let (encapsulated, ciphertext) =
        SUITE.seal(Purpose::Recovery.bytes(), &context.aad(), plain.expose(), &public).map_err(|_| OwnerSealError)?;
    Ok(SealedToOwner {
        encapsulated: encapsulated.0.try_into().map_err(|_| OwnerSealError)?,
        ciphertext: ciphertext.try_into().map_err(|_| OwnerSealError)?,
    })
}

/// The inverse of [`seal`], for the owner's private key.
///
/// # Errors
/// [`RecoveryOpenError`] when it was not sealed to this key in this context.
pub fn open(
    private: &Secret<32>,
    context: &SecretContext,
    sealed: &SealedToOwner,
) -> Result<Secret<32>, RecoveryOpenError> {
    let encapsulated = EncapsulatedSecret(sealed.encapsulated.to_vec());
    let private = HpkePrivateKey::from(private.expose().to_vec());
    let plain = SUITE
        .open(&encapsulated, Purpose::Recovery.bytes(), &context.aad(), &sealed.ciphertext, &private)
        .map(Zeroizing::new)
        .map_err(|_| RecoveryOpenError)?;
    secret(&plain).ok_or(RecoveryOpenError)
}

#[cfg(test)]
mod tests {
    use model::Uuid;

    use super::*;

    /// Proves: D12
    #[test]
    fn only_the_owner_opens_it_and_only_for_its_disk() {
        let private = Secret::take(&mut [3; 32]);
        let public = RecoveryPubKey::of(&private);
        let context = SecretContext {
            kind: SecretKind::VolumeKey,
            cluster: ClusterId([1; 16]),
            machine: MachineId([2; 16]),
            disk: DiskUuid(Uuid([3; 16])),
            key_generation: 4,
        };
        let sealed = seal(&public, &context, &Secret::take(&mut [9; 32])).expect("seals");
        assert_eq!(open(&private, &context, &sealed).expect("opens").expose(), &[9; 32]);
        let stranger = Secret::take(&mut [4; 32]);
        assert_eq!(open(&stranger, &context, &sealed).err(), Some(RecoveryOpenError));
        for other in [
            SecretContext { kind: SecretKind::MasterSecret, ..context },
            SecretContext { cluster: ClusterId([7; 16]), ..context },
            SecretContext { machine: MachineId([7; 16]), ..context },
            SecretContext { disk: DiskUuid(Uuid([7; 16])), ..context },
            SecretContext { key_generation: 5, ..context },
        ] {
            assert_eq!(open(&private, &other, &sealed).err(), Some(RecoveryOpenError));
        }
    }

    #[test]
    fn points_of_small_order_are_no_keys() {
        let mut one = [0; 32];
        one[0] = 1;
        for bytes in [[0; 32], one] {
            assert_eq!(RecoveryPubKey::new(bytes), Err(BadRecoveryKey));
        }
        let good = RecoveryPubKey::of(&Secret::take(&mut [3; 32]));
        assert_eq!(RecoveryPubKey::new(*good.bytes()), Ok(good));
    }
}
