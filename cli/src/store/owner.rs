//! The owner's keys: Ed25519 to authenticate, X25519 to recover. They are all that makes a person the owner.
//!
//! ```text
//!   offset  size
//!        0     8  magic `CAIRNOWN`
//!        8     4  version 1, little-endian
//!       12    32  Ed25519 seed
//!       44    32  X25519 private key
//!       76    32  SHA-256 of all before: finds damage, proves nothing
//! ```

use aws_lc_rs::digest;
use aws_lc_rs::rand;
use keys::data_key::ClusterHalf;
use keys::identity::SigningKey;
use keys::record::{HalfError, HalfRequest, Record};
use keys::recovery::RecoveryPubKey;
use model::Secret;
use pki::{CertificateDer, IssueError, KeyError, PrivateKey, client_auth};
use zeroize::Zeroizing;

use crate::failure::{Advice, NOTHING};

const MAGIC: &[u8; 8] = b"CAIRNOWN";
const VERSION: u32 = 1;
const LENGTH: usize = 108;

/// The owner's two private keys.
#[derive(Debug)]
pub(crate) struct Owner {
    authenticate: Secret<32>,
    recover: Secret<32>,
    calls: CallsAs,
}

/// Relation of a person to a cluster, which their certificate says there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallsAs {
    /// Owns it.
    #[default]
    Owner,
    /// Uses its Kubernetes.
    User,
}

/// Why the owner's keys cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OwnerError {
    /// Not a file of owner's keys, or damaged.
    #[error("the owner's keys are damaged")]
    Damaged,
    /// A later format.
    #[error("the owner's keys were written by a newer cairnctl (format {0})")]
    Newer(u32),
    /// No random bytes.
    #[error("draw the owner's keys")]
    Random,
}

impl Advice for OwnerError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Damaged => {
                Some("put the file `owner.keys` back from your copy of it; nothing can make it anew".to_owned())
            }
            Self::Newer(_) => Some("use the cairnctl that wrote them".to_owned()),
            Self::Random => None,
        }
    }
}

impl Owner {
    /// Draws fresh keys at random.
    pub(crate) fn generate() -> Result<Self, OwnerError> {
        let random = || Secret::fill(|bytes| rand::fill(bytes).map_err(|_| OwnerError::Random));
        Ok(Self { authenticate: random()?, recover: random()?, calls: CallsAs::Owner })
    }

    /// Reads what [`Self::write`] gave.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, OwnerError> {
        let version = bytes.get(8..12).and_then(|version| version.try_into().ok()).map(u32::from_le_bytes);
        match (bytes.starts_with(MAGIC), version) {
            (true, Some(VERSION)) => {}
            (true, Some(newer)) if newer > VERSION => return Err(OwnerError::Newer(newer)),
            (true, Some(_) | None) | (false, _) => return Err(OwnerError::Damaged),
        }
        let Some((body, checksum)) = bytes.split_at_checked(LENGTH - 32) else { return Err(OwnerError::Damaged) };
        if digest::digest(&digest::SHA256, body).as_ref() != checksum {
            return Err(OwnerError::Damaged);
        }
        let secret = |range: std::ops::Range<usize>| {
            Secret::fill(|out| match body.get(range) {
                Some(bytes) if bytes.len() == out.len() => {
                    out.copy_from_slice(bytes);
                    Ok(())
                }
                Some(_) | None => Err(OwnerError::Damaged),
            })
        };
        Ok(Self { authenticate: secret(12..44)?, recover: secret(44..76)?, calls: CallsAs::Owner })
    }

    /// The bytes of the file; wiped when dropped.
    pub(crate) fn write(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(LENGTH));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(self.authenticate.expose());
        bytes.extend_from_slice(self.recover.expose());
        let checksum = digest::digest(&digest::SHA256, &bytes);
        bytes.extend_from_slice(checksum.as_ref());
        bytes
    }

    /// The key that signs configs.
    pub(crate) fn signing_key(&self) -> SigningKey {
        SigningKey::from_seed(self.authenticate.duplicate())
    }

    /// The same key for TLS.
    pub(crate) fn tls_key(&self) -> Result<PrivateKey, KeyError> {
        PrivateKey::ed25519(&self.authenticate)
    }

    /// The same person as a cluster knows them.
    pub(crate) fn calling_as(self, calls: CallsAs) -> Self {
        Self { calls, ..self }
    }

    /// Certificate that is shown to a machine, of [`Self::tls_key`].
    pub(crate) fn certificate(&self, key: &PrivateKey) -> Result<CertificateDer<'static>, IssueError> {
        match self.calls {
            CallsAs::Owner => client_auth::owner_certificate(key),
            CallsAs::User => client_auth::user_certificate(key),
        }
    }

    /// The half of a machine's key that its recovery record leads to.
    pub(crate) fn cluster_half(&self, record: &Record, asked: &HalfRequest) -> Result<ClusterHalf, HalfError> {
        record.cluster_half(&self.recover, asked)
    }

    /// Key that machines seal the owner slot to.
    pub(crate) fn recovery_pub_key(&self) -> RecoveryPubKey {
        RecoveryPubKey::of(&self.recover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_file_and_no_damage_goes_unseen() {
        let owner = Owner::generate().unwrap();
        let bytes = owner.write();
        assert_eq!(bytes.len(), LENGTH);
        let again = Owner::read(&bytes).unwrap();
        assert_eq!(again.signing_key().public(), owner.signing_key().public());
        assert_eq!(again.recovery_pub_key(), owner.recovery_pub_key());
        for position in (0..8).chain(12..LENGTH) {
            let mut damaged = bytes.to_vec();
            damaged[position] ^= 1;
            assert_eq!(Owner::read(&damaged).err(), Some(OwnerError::Damaged), "byte {position}");
        }
        for length in 0..LENGTH {
            assert_eq!(Owner::read(&bytes[..length]).err(), Some(OwnerError::Damaged), "{length} bytes");
        }
        assert_eq!(Owner::read(&[&bytes[..], &[0]].concat()).err(), Some(OwnerError::Damaged));
        let mut newer = bytes.to_vec();
        newer[8] = 2;
        assert_eq!(Owner::read(&newer).err(), Some(OwnerError::Newer(2)));
    }

    /// The checksum computed with Python: `sha256(b"CAIRNOWN" + bytes([1, 0, 0, 0]) + b"\x01" * 32 + b"\x02" * 32)`.
    #[test]
    fn the_file_has_its_known_bytes() {
        let owner = Owner {
            authenticate: Secret::take(&mut [1; 32]),
            recover: Secret::take(&mut [2; 32]),
            calls: CallsAs::Owner,
        };
        let bytes = owner.write();
        let expected = [&b"CAIRNOWN\x01\0\0\0"[..], &[1; 32], &[2; 32]].concat();
        assert_eq!(bytes[..76], expected);
        let checksum = "bdc320d9b1ae1f22fab481b7115adb98e7c1260fb0a8cb284cbc5ab3b4a11685";
        assert_eq!(data_encoding::HEXLOWER.encode(&bytes[76..]), checksum);
    }

    #[test]
    fn two_owners_differ_and_print_nothing() {
        let [one, other] = [Owner::generate().unwrap(), Owner::generate().unwrap()];
        assert_ne!(one.signing_key().public(), other.signing_key().public());
        assert_eq!(
            format!("{one:?}"),
            "Owner { authenticate: Secret(32 bytes), recover: Secret(32 bytes), calls: Owner }"
        );
    }
}
