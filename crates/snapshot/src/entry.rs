//! Entries of a snapshot: which keys of etcd are Kubernetes' to keep, in which order they come, and how large one may be.

use std::cmp::Ordering;

/// Prefix of all keys that Kubernetes has in etcd.
pub const REGISTRY: &str = "/registry/";
/// Key and value together are no longer: etcd takes no larger request (`--max-request-bytes`, 1.5 MiB by default), and had to take
/// one with both.
pub const MOST_ENTRY_BYTES: usize = 3 << 19;

/// Keys that are left out, and left alone by a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exclusion {
    /// Prefix of the keys.
    pub prefix: &'static str,
    /// Reason why they are not kept.
    pub because: &'static str,
}

/// All that Kubernetes has etcd forget by a lease: an entry knows of no lease, so each of these would stay for ever.
pub const NOT_KEPT: [Exclusion; 3] = [
    Exclusion {
        prefix: "/registry/events/",
        because: "they tell of an hour that is over, and are most of what is written",
    },
    Exclusion { prefix: "/registry/masterleases/", because: "each says that an apiserver runs now" },
    Exclusion {
        prefix: "/registry/peerserverleases/",
        because: "each says where an apiserver is reached by others now",
    },
];

/// Whether a snapshot keeps this key.
#[must_use]
pub fn is_kept(key: &[u8]) -> bool {
    key.starts_with(REGISTRY.as_bytes()) && !NOT_KEPT.iter().any(|left| key.starts_with(left.prefix.as_bytes()))
}

/// Key and value of an object, as etcd has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryEntry {
    /// Key, below [`REGISTRY`].
    pub key: Vec<u8>,
    /// Value, perhaps encrypted by the apiserver.
    pub value: Vec<u8>,
}

/// Why a key and its value are no entry of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The key is none of Kubernetes'.
    #[error("the key `{0}` is not below {REGISTRY}")]
    Outside(String),
    /// The key is one of those that are left out.
    #[error("the key `{0}` is of a kind that no snapshot keeps")]
    NotKept(String),
    /// The key does not come behind the one before it.
    #[error("the key `{0}` is out of order, or comes twice")]
    OutOfOrder(String),
    /// No request to etcd has room for it.
    #[error("an object has {0} bytes, and etcd takes no more than {MOST_ENTRY_BYTES}")]
    Large(u64),
}

/// Keys that came so far: each has to be Kubernetes', and behind the one before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    last: Vec<u8>,
}

impl Order {
    /// Judges the next key and the length of its value.
    pub(crate) fn next(&mut self, key: &[u8], value: usize) -> Result<(), EntryError> {
        let shown = || String::from_utf8_lossy(key).chars().take(SHOWN).collect();
        length(key.len(), value)?;
        if !key.starts_with(REGISTRY.as_bytes()) {
            return Err(EntryError::Outside(shown()));
        }
        if !is_kept(key) {
            return Err(EntryError::NotKept(shown()));
        }
        if key.cmp(&self.last) != Ordering::Greater {
            return Err(EntryError::OutOfOrder(shown()));
        }
        key.clone_into(&mut self.last);
        Ok(())
    }
}

/// Letters of a key that an error shows.
const SHOWN: usize = 200;

/// Bytes of an entry with a key and a value of these lengths.
pub(crate) fn length(key: usize, value: usize) -> Result<usize, EntryError> {
    let bytes = key.saturating_add(value);
    let told = u64::try_from(bytes).unwrap_or(u64::MAX);
    if bytes > MOST_ENTRY_BYTES { Err(EntryError::Large(told)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q4
    #[test]
    fn what_etcd_does_not_keep_for_kubernetes_is_no_entry() {
        let judged = |key: &str| Order::default().next(key.as_bytes(), 1);
        let (outside, not_kept) = (
            |key: &str| Err(EntryError::Outside(key.to_owned())),
            |key: &str| Err(EntryError::NotKept(key.to_owned())),
        );
        for key in ["", "/", "/registr", "/registry", "/registry0", "/cairn/v1/cluster", "registry/pods/a"] {
            assert_eq!(judged(key), outside(key));
            assert!(!is_kept(key.as_bytes()));
        }
        for key in ["/registry/events/web/a", "/registry/masterleases/10.118.0.1", "/registry/peerserverleases/x"] {
            assert_eq!(judged(key), not_kept(key));
            assert!(!is_kept(key.as_bytes()));
        }
        // Of these names alone.
        for key in ["/registry/", "/registry/events", "/registry/eventsources/a", "/registry/pods/web/a"] {
            assert_eq!((judged(key), is_kept(key.as_bytes())), (Ok(()), true));
        }
    }

    /// Proves: Q4
    #[test]
    fn a_key_comes_once_and_in_its_place() {
        let mut order = Order::default();
        for key in ["/registry/a", "/registry/a/b", "/registry/b"] {
            assert_eq!(order.next(key.as_bytes(), 1), Ok(()));
        }
        for key in ["/registry/b", "/registry/a/c"] {
            assert_eq!(order.next(key.as_bytes(), 1), Err(EntryError::OutOfOrder(key.to_owned())));
        }
        assert_eq!(order.next(b"/registry/c", 1), Ok(()), "what was refused is not before it");
    }

    /// Proves: Q1
    #[test]
    fn an_entry_is_no_larger_than_a_request() {
        let key = b"/registry/a";
        assert_eq!(Order::default().next(key, MOST_ENTRY_BYTES - key.len()), Ok(()));
        let (large, most) = (MOST_ENTRY_BYTES - key.len() + 1, u64::try_from(MOST_ENTRY_BYTES).expect("it fits"));
        assert_eq!(Order::default().next(key, large), Err(EntryError::Large(most + 1)));
        assert_eq!(length(usize::MAX, usize::MAX), Err(EntryError::Large(u64::MAX)));
    }
}
