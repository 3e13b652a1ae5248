//! The cluster's own record: its prefixes, its policy, who owns it, where its cursors stand.
//!
//! ```text
//! message Cluster { uint32 version = 1; bytes cluster_id = 2; Prefix vpn_prefix = 3; Prefix pods_prefix = 4;
//!                   uint32 level = 5; uint32 cold_start = 6; string oldest_release = 7; repeated Owner owners = 8;
//!                   uint64 recoveries = 9; uint32 next_address = 10; uint32 next_pods = 11;
//!                   optional Prefix services_prefix = 12; }                                        // none: 10.96.0.0/16
//! message Owner   { bytes public_key = 1; bytes recovery_public_key = 2; }
//! ```

use keys::network::{PREFIX, PrefixWire, PrefixesWire, prefix_to_wire};
use keys::numbers;
use keys::recovery::RecoveryPubKey;
use model::{ClusterId, ColdStart, Level, OwnerPubKey, Prefixes};
use prost::Message as _;

use super::{BadRecord, Release, VERSION, decode, known, sized};

/// How many owners a cluster may have: the directory names all of them.
pub const MOST_OWNERS: usize = 16;

/// Settings that all machines of a cluster have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The cluster's id.
    pub id: ClusterId,
    /// Address ranges that the cluster keeps for itself.
    pub prefixes: Prefixes,
    /// The cluster's policy: what it asks of its machines.
    pub policy: Policy,
    /// The cluster's owners; one or more, each once.
    pub owners: Vec<OwnerRecord>,
    /// How often it was brought back from one voter's data.
    pub recoveries: u64,
    /// The index in the VPN's prefix that is tried first for the next machine.
    pub next_address: u32,
    /// The index of the /24 in the prefix of pods that is tried first for the next worker.
    pub next_pods: u32,
}

/// Policy of a cluster: what it asks of its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// No machine's level may be below.
    pub level: Level,
    /// The cold-start policy: how the coordinators get their keys when all were off.
    pub cold_start: ColdStart,
    /// No machine that joins may run an older one.
    pub oldest_release: Release,
}

/// A person who owns the cluster, by two keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Signs and calls.
    pub key: OwnerPubKey,
    /// Recovers.
    pub recovery: RecoveryPubKey,
}

impl Cluster {
    /// Whether `key` is an owner's.
    #[must_use]
    pub fn is_owned_by(&self, key: &OwnerPubKey) -> bool {
        self.owners.iter().any(|owner| owner.key == *key)
    }

    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let PrefixesWire { vpn, pods: _, services } = self.prefixes.into();
        let wire = ClusterWire {
            version: VERSION,
            cluster_id: self.id.0.to_vec(),
            vpn_prefix: vpn,
            pods_prefix: prefix_to_wire(self.prefixes.pods),
            level: numbers::level::number(self.policy.level),
            cold_start: numbers::cold_start::number(self.policy.cold_start),
            oldest_release: self.policy.oldest_release.to_string(),
            owners: self.owners.iter().map(OwnerRecord::to_wire).collect(),
            recoveries: self.recoveries,
            next_address: self.next_address,
            next_pods: self.next_pods,
            services_prefix: services,
        };
        wire.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: ClusterWire = decode(bytes, &CLUSTER)?;
        let owners = read_owners(&wire.owners)?;
        let (vpn, pods, services) = (wire.vpn_prefix, Some(wire.pods_prefix), wire.services_prefix);
        Ok(Self {
            id: ClusterId(sized("cluster id", &wire.cluster_id)?),
            prefixes: PrefixesWire { vpn, pods, services }.read()?,
            policy: Policy {
                level: known("level", wire.level, numbers::level::of)?,
                cold_start: known("cold start policy", wire.cold_start, numbers::cold_start::of)?,
                oldest_release: Release::read(&wire.oldest_release)?,
            },
            owners,
            recoveries: wire.recoveries,
            next_address: wire.next_address,
            next_pods: wire.next_pods,
        })
    }
}

/// The owners that a message names: one or more, each once.
pub(crate) fn read_owners(wire: &[OwnerWire]) -> Result<Vec<OwnerRecord>, BadRecord> {
    let owners = wire.iter().map(OwnerRecord::read).collect::<Result<Vec<_>, _>>()?;
    if !(1..=MOST_OWNERS).contains(&owners.len()) {
        return Err(BadRecord::Contradiction("a cluster has 1 to 16 owners"));
    }
    if (1..owners.len()).any(|at| owners[..at].iter().any(|earlier| earlier.key == owners[at].key)) {
        return Err(BadRecord::Contradiction("an owner is named twice"));
    }
    Ok(owners)
}

impl OwnerRecord {
    pub(crate) fn to_wire(&self) -> OwnerWire {
        OwnerWire { public_key: self.key.0.to_vec(), recovery_public_key: self.recovery.bytes().to_vec() }
    }

    fn read(wire: &OwnerWire) -> Result<Self, BadRecord> {
        let recovery = RecoveryPubKey::new(sized("recovery key", &wire.recovery_public_key)?);
        Ok(Self {
            key: OwnerPubKey(sized("owner key", &wire.public_key)?),
            recovery: recovery.map_err(|_| BadRecord::WeakKey("recovery key"))?,
        })
    }
}

formats::strict_message! {
    struct OwnerWire, OWNER = "Owner" {
        1 required bytes public_key;
        2 required bytes recovery_public_key;
    }
}

formats::strict_message! {
    struct ClusterWire, CLUSTER = "Cluster" {
        1 required u32 version;
        2 required bytes cluster_id;
        3 required message(PrefixWire, PREFIX) vpn_prefix;
        4 required message(PrefixWire, PREFIX) pods_prefix;
        5 required u32 level;
        6 required u32 cold_start;
        7 required text oldest_release;
        8 repeated message(OwnerWire, OWNER) owners;
        9 required u64 recoveries;
        10 required u32 next_address;
        11 required u32 next_pods;
        12 optional message(PrefixWire, PREFIX) services_prefix;
    }
}
