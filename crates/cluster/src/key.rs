//! The keys of etcd: every key that Cairn keeps there, each built and read by the same row. Says nothing of values.
//!
//! Whatever stands under [`PREFIX`] is ours; a key there that no row knows is refused, not skipped.

use std::fmt;
use std::net::Ipv4Addr;

use model::{DiskUuid, Ipv4Prefix, MachineId, PublishId, RegistryHost, TicketId, UserName, VpnPubKey};

/// Where Cairn's keys begin. Kubernetes' lie elsewhere, and its user may read nothing here.
pub const PREFIX: &str = "/cairn/v1/";

/// Where the lines of the audit begin.
pub const AUDIT: &str = "/cairn/v1/audit/";

/// Longer than any key: `registry/` and 128 bytes of a host behind the prefix.
const MOST_BYTES: usize = 160;

/// A key of Cairn in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Counts changes; every change compares and writes it, so changes come one after another.
    Version,
    /// Prefixes, policy, owners, recoveries.
    Cluster,
    /// A machine's record; stays when it was removed.
    Machine(MachineId),
    /// Holder of a disk; never freed.
    Disk(DiskUuid),
    /// Holder of a VPN key; never freed.
    VpnKey(VpnPubKey),
    /// Holder of a VPN address.
    Address(Ipv4Addr),
    /// Holder of a pod prefix.
    Pods(Ipv4Prefix),
    /// A ticket's record; stays when it is used up, expired or revoked.
    Ticket(TicketId),
    /// Registry of container images.
    Registry(RegistryHost),
    /// A user's record.
    User(UserName),
    /// Rule that publishes ports.
    Publish(PublishId),
    /// Holder of a floating address.
    Floating(Ipv4Addr),
    /// The cold-start key's epoch.
    ColdStart,
    /// Restore of Kubernetes' objects that is under way; absent otherwise.
    Restore,
    /// A line of the audit.
    Audit(AuditId),
}

/// A line of the audit, by what tells it from all others. The order of lines is that in which etcd took them, its own revision:
/// clocks of coordinators are off, and order nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AuditId {
    /// A change by an owner, or by the cluster itself.
    Changed {
        /// The change's number.
        change: u64,
    },
    /// A change that a machine caused.
    Asked {
        /// Which one.
        machine: MachineId,
        /// The change's number.
        change: u64,
    },
    /// A key that was given out, which is no change.
    Released {
        /// To whom.
        machine: MachineId,
        /// Second of Unix time: a second line of it would say the same.
        seconds: u64,
    },
    /// A refusal.
    Refused {
        /// The id of the machine or the ticket that was refused.
        whom: [u8; 16],
        /// Minute of Unix time: a second line of it is written over the first one.
        minute: u64,
    },
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
        let singles = [Self::Version, Self::Cluster, Self::ColdStart, Self::Restore];
        if let Some(single) = singles.into_iter().find(|key| key.kind() == text) {
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
            "registry" => RegistryHost::read(name).ok().map(Self::Registry),
            "user" => name.parse().ok().map(Self::User),
            "publish" => name.parse().ok().map(Self::Publish),
            "floating" => name.parse().ok().map(Self::Floating),
            "audit" => AuditId::read(name).map(Self::Audit),
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
            Self::Registry(_) => "registry",
            Self::User(_) => "user",
            Self::Publish(_) => "publish",
            Self::Floating(_) => "floating",
            Self::ColdStart => "cold-start",
            Self::Restore => "restore",
            Self::Audit(_) => "audit",
        }
    }
}

impl AuditId {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let kind = parts.next()?;
        let whom = if kind == "changed" { None } else { Some(parts.next()?.parse::<MachineId>().ok()?) };
        let number = u64::from_str_radix(parts.next()?, 16).ok()?;
        match (kind, whom, parts.next()) {
            ("changed", None, None) => Some(Self::Changed { change: number }),
            ("asked", Some(machine), None) => Some(Self::Asked { machine, change: number }),
            ("released", Some(machine), None) => Some(Self::Released { machine, seconds: number }),
            ("refused", Some(MachineId(whom)), None) => Some(Self::Refused { whom, minute: number }),
            _ => None, // no row, or more than a row has
        }
    }

    /// Whether both are lines of one kind, and of one machine or ticket: these are bounded together.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Changed { .. }, Self::Changed { .. }) => true,
            (Self::Asked { machine: one, .. }, Self::Asked { machine: two, .. })
            | (Self::Released { machine: one, .. }, Self::Released { machine: two, .. }) => one == two,
            (Self::Refused { whom: one, .. }, Self::Refused { whom: two, .. }) => one == two,
            (Self::Changed { .. } | Self::Asked { .. } | Self::Released { .. } | Self::Refused { .. }, _) => false,
        }
    }
}

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { change } => write!(f, "changed/{change:016x}"),
            Self::Asked { machine, change } => write!(f, "asked/{machine}/{change:016x}"),
            Self::Released { machine, seconds } => write!(f, "released/{machine}/{seconds:016x}"),
            Self::Refused { whom, minute } => write!(f, "refused/{}/{minute:016x}", MachineId(*whom)),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Version | Self::Cluster | Self::ColdStart | Self::Restore => write!(f, "{PREFIX}{kind}"),
            Self::Machine(id) => write!(f, "{PREFIX}{kind}/{id}"),
            Self::Disk(uuid) => write!(f, "{PREFIX}{kind}/{uuid}"),
            Self::VpnKey(key) => write!(f, "{PREFIX}{kind}/{key}"),
            Self::Address(address) => write!(f, "{PREFIX}{kind}/{address}"),
            Self::Pods(prefix) => write!(f, "{PREFIX}{kind}/{prefix}"),
            Self::Ticket(id) => write!(f, "{PREFIX}{kind}/{id}"),
            Self::Registry(host) => write!(f, "{PREFIX}{kind}/{host}"),
            Self::User(name) => write!(f, "{PREFIX}{kind}/{name}"),
            Self::Publish(id) => write!(f, "{PREFIX}{kind}/{id}"),
            Self::Floating(address) => write!(f, "{PREFIX}{kind}/{address}"),
            Self::Audit(id) => write!(f, "{PREFIX}{kind}/{id}"),
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
            Just(Key::Restore),
            any::<[u8; 16]>().prop_map(|id| Key::Machine(MachineId(id))),
            any::<[u8; 16]>().prop_map(|id| Key::Disk(DiskUuid(Uuid(id)))),
            any::<[u8; 32]>().prop_map(|key| Key::VpnKey(VpnPubKey(key))),
            any::<u32>().prop_map(|address| Key::Address(address.into())),
            (any::<u32>(), 0_u8..=32).prop_map(|(address, bits)| {
                Key::Pods(Ipv4Prefix::around(address.into(), bits).expect("at most 32 bits"))
            }),
            any::<[u8; 16]>().prop_map(|id| Key::Ticket(TicketId(id))),
            "[a-z0-9]{1,60}\\.[a-z]{1,60}(:[1-9][0-9]{1,3})?"
                .prop_map(|host| Key::Registry(RegistryHost::read(&host).expect("a host"))),
            "[a-z][a-z0-9-]{0,31}".prop_map(|name| Key::User(name.parse().expect("a name"))),
            any::<u64>().prop_map(|id| Key::Publish(PublishId(id))),
            any::<u32>().prop_map(|address| Key::Floating(address.into())),
            audit().prop_map(Key::Audit),
        ]
    }

    fn audit() -> impl Strategy<Value = AuditId> {
        (0..4, any::<[u8; 16]>(), any::<u64>()).prop_map(|(kind, whom, number)| match kind {
            0 => AuditId::Changed { change: number },
            1 => AuditId::Asked { machine: MachineId(whom), change: number },
            2 => AuditId::Released { machine: MachineId(whom), seconds: number },
            _ => AuditId::Refused { whom, minute: number },
        })
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
    }

    /// Proves: Q1
    #[test]
    fn lines_of_one_kind_and_of_one_whom_are_bounded_together() {
        let of = |n: u8, number| {
            let machine = MachineId([n; 16]);
            [
                AuditId::Changed { change: number },
                AuditId::Asked { machine, change: number },
                AuditId::Released { machine, seconds: number },
                AuditId::Refused { whom: [n; 16], minute: number },
            ]
        };
        let beside = |one: &[AuditId], two: &[AuditId]| {
            let of_one = |it: &AuditId| two.iter().map(|other| u8::from(it.is_beside(other))).collect::<Vec<_>>();
            one.iter().map(of_one).collect::<Vec<_>>()
        };
        let same = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]];
        assert_eq!(beside(&of(1, 3), &of(1, 4)), same);
        let another = [[1, 0, 0, 0], [0; 4], [0; 4], [0; 4]];
        assert_eq!(beside(&of(1, 3), &of(2, 3)), another, "what owners did is of nobody in particular");
    }

    #[test]
    fn keys_have_one_spelling_and_others_are_none() {
        assert_eq!(Key::Version.to_string(), "/cairn/v1/version");
        assert_eq!(Key::ColdStart.to_string(), "/cairn/v1/cold-start");
        assert_eq!(Key::Restore.to_string(), "/cairn/v1/restore");
        let changed = Key::Audit(AuditId::Changed { change: 31 });
        assert_eq!(changed.to_string(), format!("{AUDIT}changed/000000000000001f"));
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
            "/cairn/v1/registry/",
            "/cairn/v1/registry/Ghcr.io",
            "/cairn/v1/registry/ghcr.io/a",
            "/cairn/v1/user/",
            "/cairn/v1/user/system:admin",
            "/cairn/v1/user/a/b",
            "/cairn/v1/publish/",
            "/cairn/v1/publish/07",
            "/cairn/v1/publish/+7",
            "/cairn/v1/publish/18446744073709551616",
            "/cairn/v1/audit/changed/1",
            "/cairn/v1/audit/changed/+000000000000001",
            "/cairn/v1/audit/changed/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a/0000000000000001",
            "/cairn/v1/audit/asked/0000000000000001",
            "/cairn/v1/audit/refused/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a/0000000000000001/",
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
