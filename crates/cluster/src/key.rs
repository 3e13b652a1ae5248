//! The keys of etcd: every key that Cairn keeps there, each built and read by the same row. Says nothing of values.
//!
//! Whatever stands under [`PREFIX`] is ours; a key there that no row knows is refused, not skipped.

use std::fmt;
use std::net::Ipv4Addr;

use model::{DiskUuid, Ipv4Prefix, MachineId, TicketId, VpnPubKey};

/// Where Cairn's keys begin. Kubernetes' lie elsewhere, and its user may read nothing here.
pub const PREFIX: &str = "/cairn/v1/";

/// Where the lines of the audit begin.
pub const AUDIT: &str = "/cairn/v1/audit/";

/// Longer than any key: `vpn-key/` and 64 digits behind the prefix.
const MOST_BYTES: usize = 96;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Counts changes; every change compares and writes it, so changes come one after another.
    Version,
    /// Prefixes, policy, owners, recoveries.
    Cluster,
    /// A machine's record; stays when it was removed.
    Machine(MachineId),
    /// Whose disk this is; never freed.
    Disk(DiskUuid),
    /// Whose VPN key this is; never freed.
    VpnKey(VpnPubKey),
    /// Who has this VPN address.
    Address(Ipv4Addr),
    /// Who has this pod prefix.
    Pods(Ipv4Prefix),
    /// A ticket's record; stays when it is used up, expired or revoked.
    Ticket(TicketId),
    /// The cold-start key's epoch.
    ColdStart,
    /// A line of the audit.
    Audit(AuditId),
}

/// The place of a line in the audit: in order of time, and of what tells two lines of one second apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuditId {
    /// Seconds of Unix time.
    pub seconds: u64,
    /// The change's number; or, for what is no change, the first bytes of the id of whom it concerns.
    pub apart: u64,
}

/// A key under [`PREFIX`] that no row knows, or one beside it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no key of Cairn: {0:?}")]
pub struct BadKey(pub String);

impl Key {
    /// The key as etcd has it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    /// The inverse of [`Self::bytes`].
    ///
    /// # Errors
    /// [`BadKey`] when it is not the one spelling of a key.
    pub fn read(bytes: &[u8]) -> Result<Self, BadKey> {
        let refused = || BadKey(String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_BYTES)]).into_owned());
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MOST_BYTES).ok_or_else(refused)?;
        let key = text.strip_prefix(PREFIX).and_then(Self::behind_prefix).ok_or_else(refused)?;
        // Some of these are read from more than one spelling; a key has one.
        if key.to_string() == text { Ok(key) } else { Err(refused()) }
    }

    fn behind_prefix(text: &str) -> Option<Self> {
        if let Some(single) = [Self::Version, Self::Cluster, Self::ColdStart].into_iter().find(|key| key.kind() == text)
        {
            return Some(single);
        }
        let (kind, name) = text.split_once('/')?;
        match kind {
            "machine" => name.parse().ok().map(Self::Machine),
            "disk" => name.parse().ok().map(|uuid| Self::Disk(DiskUuid(uuid))),
            "vpn-key" => name.parse().ok().map(Self::VpnKey),
            "address" => name.parse().ok().map(Self::Address),
            "pods" => name.parse().ok().map(Self::Pods),
            "ticket" => name.parse().ok().map(Self::Ticket),
            "audit" => {
                let (seconds, apart) = name.split_once('-')?;
                let hex = |text| u64::from_str_radix(text, 16).ok();
                Some(Self::Audit(AuditId { seconds: hex(seconds)?, apart: hex(apart)? }))
            }
            _ => None, // no row
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Cluster => "cluster",
            Self::Machine(_) => "machine",
            Self::Disk(_) => "disk",
            Self::VpnKey(_) => "vpn-key",
            Self::Address(_) => "address",
            Self::Pods(_) => "pods",
            Self::Ticket(_) => "ticket",
            Self::ColdStart => "cold-start",
            Self::Audit(_) => "audit",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Version | Self::Cluster | Self::ColdStart => write!(f, "{PREFIX}{kind}"),
            Self::Machine(id) => write!(f, "{PREFIX}{kind}/{id}"),
            Self::Disk(uuid) => write!(f, "{PREFIX}{kind}/{uuid}"),
            Self::VpnKey(key) => write!(f, "{PREFIX}{kind}/{key}"),
            Self::Address(address) => write!(f, "{PREFIX}{kind}/{address}"),
            Self::Pods(prefix) => write!(f, "{PREFIX}{kind}/{prefix}"),
            Self::Ticket(id) => write!(f, "{PREFIX}{kind}/{id}"),
            // Digits of one width, so that the order of keys is the order of time.
            Self::Audit(AuditId { seconds, apart }) => write!(f, "{PREFIX}{kind}/{seconds:016x}-{apart:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Uuid;
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Key> {
        prop_oneof![
            Just(Key::Version),
            Just(Key::Cluster),
            Just(Key::ColdStart),
            any::<[u8; 16]>().prop_map(|id| Key::Machine(MachineId(id))),
            any::<[u8; 16]>().prop_map(|id| Key::Disk(DiskUuid(Uuid(id)))),
            any::<[u8; 32]>().prop_map(|key| Key::VpnKey(VpnPubKey(key))),
            any::<u32>().prop_map(|address| Key::Address(address.into())),
            (any::<u32>(), 0_u8..=32).prop_map(|(address, bits)| {
                Key::Pods(Ipv4Prefix::around(address.into(), bits).expect("at most 32 bits"))
            }),
            any::<[u8; 16]>().prop_map(|id| Key::Ticket(TicketId(id))),
            any::<(u64, u64)>().prop_map(|(seconds, apart)| Key::Audit(AuditId { seconds, apart })),
        ]
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_is_built(key in key()) {
            let bytes = key.bytes();
            prop_assert!(bytes.len() <= MOST_BYTES);
            prop_assert_eq!(Key::read(&bytes), Ok(key));
        }

        #[test]
        fn no_bytes_panic_it_and_what_is_read_is_spelled_so(tail in "[a-z/0-9.+-]{0,40}") {
            let text = format!("{PREFIX}{tail}");
            if let Ok(key) = Key::read(text.as_bytes()) {
                prop_assert_eq!(key.to_string(), text);
            }
        }

        #[test]
        fn lines_of_the_audit_sort_by_time(one: (u64, u64), other: (u64, u64)) {
            let [one, other] = [one, other].map(|(seconds, apart)| AuditId { seconds, apart });
            prop_assert_eq!(one.cmp(&other), Key::Audit(one).bytes().cmp(&Key::Audit(other).bytes()));
        }
    }

    #[test]
    fn keys_have_one_spelling_and_others_are_none() {
        assert_eq!(Key::Version.to_string(), "/cairn/v1/version");
        assert_eq!(Key::ColdStart.to_string(), "/cairn/v1/cold-start");
        assert!(Key::Audit(AuditId { seconds: 1, apart: 2 }).to_string().starts_with(AUDIT));
        let pods = Key::Pods("10.244.3.0/24".parse().expect("a prefix"));
        assert_eq!(pods.to_string(), "/cairn/v1/pods/10.244.3.0/24");
        for bad in [
            "",
            "/registry/pods",
            "/cairn/v1/",
            "/cairn/v1/version/",
            "/cairn/v1/versions",
            "/cairn/v1/machine/",
            "/cairn/v1/machine/0A0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
            "/cairn/v1/disk/7B0D44C6-9A0F-4C5E-8D5B-63A1F6CE0A01",
            "/cairn/v1/address/10.118.0.01",
            "/cairn/v1/pods/10.244.3.1/24",
            "/cairn/v1/pods/10.244.3.0/+24",
            "/cairn/v1/audit/1-1",
            "/cairn/v1/audit/+000000000000001-0000000000000001",
            "/cairn/v2/version",
        ] {
            assert_eq!(Key::read(bad.as_bytes()), Err(BadKey(bad.to_owned())), "{bad}");
        }
        assert!(Key::read(&[0xff; 3]).is_err());
        assert!(
            Key::read(&[b'a'; 1 << 20]).is_err_and(|BadKey(text)| text.len() == MOST_BYTES),
            "errors are bounded, too"
        );
    }
}
