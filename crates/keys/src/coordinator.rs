//! Keys of a coordinator: the master secret, and the keys of the cluster's authorities. One coordinator gives them to
//! another, over the VPN, once a record says that it is to be one.
//!
//! ```text
//! message CoordinatorKeys { uint32 version = 1; bytes master_secret = 2; Authority cairn = 3; Authority etcd = 4;
//!                           Authority kubernetes = 5; bytes service_account_key = 6; Authority front = 7; }
//! message Authority       { bytes certificate = 1; bytes key = 2; }
//! ```
//! Certificates are DER, keys PKCS#8 DER. Whether a key is its certificate's is for whoever loads it to say.

use std::fmt;

use formats::strict::{self, FormatError};
use model::MasterSecret;
use prost::Message as _;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::derive::secret;
use crate::wiped;

/// More than all keys with their certificates have.
pub const MOST_BYTES: usize = 32 << 10;

const VERSION: u32 = 2;

/// Keys that a coordinator holds and a node does not.
#[derive(Debug)]
pub struct CoordinatorKeys {
    /// Secret that every cluster key derives from.
    pub master_secret: MasterSecret,
    /// Signs for machines and people.
    pub cairn: AuthorityKeys,
    /// Signs for etcd.
    pub etcd: AuthorityKeys,
    /// Signs for Kubernetes.
    pub kubernetes: AuthorityKeys,
    /// Signs for apiservers towards servers that answer in their place.
    pub front: AuthorityKeys,
    /// Signs service accounts' tokens: PKCS#8 DER.
    pub service_accounts: Zeroizing<Vec<u8>>,
}

/// An authority as it lies on a data partition.
pub struct AuthorityKeys {
    /// Certificate of the authority, DER.
    pub certificate: Vec<u8>,
    /// Key of the authority, PKCS#8 DER.
    pub key: Zeroizing<Vec<u8>>,
}

/// Why bytes are no coordinator's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKeys {
    /// More than [`MOST_BYTES`].
    #[error("a coordinator's keys have at most {MOST_BYTES} bytes, not {0}")]
    TooLarge(usize),
    /// Not the protobuf that they should be.
    #[error("a coordinator's keys are malformed")]
    Malformed(#[from] FormatError),
    /// Another version.
    #[error("a coordinator's keys are of version {0}, which this one does not know")]
    Version(u32),
    /// A master secret of another size.
    #[error("the master secret has {0} bytes instead of 32")]
    MasterSecret(usize),
}

impl CoordinatorKeys {
    /// Reads them, strictly.
    ///
    /// # Errors
    /// [`BadKeys`] names the first thing that makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadKeys> {
        if bytes.len() > MOST_BYTES {
            return Err(BadKeys::TooLarge(bytes.len()));
        }
        strict::check(bytes, &KEYS)?;
        let mut wire: KeysWire = wiped::decode(bytes).map_err(|_| FormatError::Truncated(KEYS.name))?;
        if wire.version != VERSION {
            return Err(BadKeys::Version(wire.version));
        }
        let master = secret(&wire.master_secret).ok_or(BadKeys::MasterSecret(wire.master_secret.len()))?;
        let take = |authority: &mut AuthorityWire| AuthorityKeys {
            certificate: std::mem::take(&mut authority.certificate),
            key: Zeroizing::new(std::mem::take(&mut authority.key)),
        };
        Ok(Self {
            master_secret: MasterSecret(master),
            cairn: take(&mut wire.cairn),
            etcd: take(&mut wire.etcd),
            kubernetes: take(&mut wire.kubernetes),
            front: take(&mut wire.front),
            service_accounts: Zeroizing::new(std::mem::take(&mut wire.service_account_key)),
        })
    }

    /// The inverse of [`Self::decode`].
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let authority =
            |keys: &AuthorityKeys| AuthorityWire { certificate: keys.certificate.clone(), key: keys.key.to_vec() };
        let wire = KeysWire {
            version: VERSION,
            master_secret: self.master_secret.expose().to_vec(),
            cairn: authority(&self.cairn),
            etcd: authority(&self.etcd),
            kubernetes: authority(&self.kubernetes),
            service_account_key: self.service_accounts.to_vec(),
            front: authority(&self.front),
        };
        Zeroizing::new(wire.encode_to_vec())
    }
}

impl fmt::Debug for AuthorityKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityKeys").finish_non_exhaustive()
    }
}

formats::strict_message! {
    #[derive(Zeroize, ZeroizeOnDrop)]
    #[prost(skip_debug)]
    struct KeysWire, KEYS = "CoordinatorKeys" {
        1 required u32 version;
        2 required bytes master_secret;
        3 required message(AuthorityWire, AUTHORITY) cairn;
        4 required message(AuthorityWire, AUTHORITY) etcd;
        5 required message(AuthorityWire, AUTHORITY) kubernetes;
        6 required bytes service_account_key;
        7 required message(AuthorityWire, AUTHORITY) front;
    }
}

formats::strict_message! {
    #[derive(Zeroize, ZeroizeOnDrop)]
    #[prost(skip_debug)]
    struct AuthorityWire, AUTHORITY = "Authority" {
        1 required bytes certificate;
        2 required bytes key;
    }
}

impl fmt::Debug for KeysWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeysWire")
    }
}

impl fmt::Debug for AuthorityWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorityWire")
    }
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    fn keys() -> CoordinatorKeys {
        let authority = |n: u8| AuthorityKeys { certificate: vec![n; 9], key: vec![n + 1; 9].into() };
        CoordinatorKeys {
            master_secret: MasterSecret(Secret::take(&mut [1; 32])),
            cairn: authority(2),
            etcd: authority(4),
            kubernetes: authority(6),
            service_accounts: vec![8; 9].into(),
            front: authority(9),
        }
    }

    #[test]
    fn what_is_given_is_what_is_taken() {
        let taken = CoordinatorKeys::decode(&keys().encode()).expect("reads");
        assert_eq!(*taken.encode(), *keys().encode());
        assert_eq!((taken.etcd.certificate, taken.etcd.key.to_vec()), (vec![4; 9], vec![5; 9]));
        assert_eq!(taken.master_secret.expose(), &[1; 32]);
    }

    #[test]
    fn nothing_else_is_taken() {
        let bytes = keys().encode();
        assert!(matches!(CoordinatorKeys::decode(&bytes[..bytes.len() - 1]), Err(BadKeys::Malformed(_))));
        for more in [[8 << 3, 1], [8, 1]] {
            let refused = CoordinatorKeys::decode(&[&bytes[..], &more].concat()).map(|_| ());
            assert!(matches!(refused, Err(BadKeys::Malformed(_))), "{refused:?}");
        }
        let newer = [&[8, 3], &bytes[2..]].concat();
        assert_eq!(CoordinatorKeys::decode(&newer).map(|_| ()), Err(BadKeys::Version(3)));
        let short = [&bytes[..2], &[18, 31], &[1; 31][..], &bytes[36..]].concat();
        assert_eq!(CoordinatorKeys::decode(&short).map(|_| ()), Err(BadKeys::MasterSecret(31)));
        let long = vec![0; MOST_BYTES + 1];
        assert_eq!(CoordinatorKeys::decode(&long).map(|_| ()), Err(BadKeys::TooLarge(MOST_BYTES + 1)));
        let largest = CoordinatorKeys::decode(&long[1..]).map(|_| ());
        assert!(matches!(largest, Err(BadKeys::Malformed(_))), "it is looked at: {largest:?}");
        assert!(!format!("{:?}", keys()).contains('5'), "no key is printed");
    }
}
