//! A machine's record: by it a machine is authorised, not by what its certificate's name says, which outlives a demotion.
//!
//! ```text
//! message Machine { uint32 version = 1; bytes public_key = 2; string name = 3; uint32 role = 4;
//!                   repeated uint32 kubernetes_roles = 5; uint32 standing = 6; fixed32 vpn_ip = 7;
//!                   optional Prefix pods = 8; bytes vpn_public_key = 9; bytes disk_uuid = 10; uint32 key_generation = 11;
//!                   bool rotating = 12; uint32 level = 13; uint32 boot_class = 14; string release = 15;
//!                   bytes root_hash = 16; repeated string reported_endpoints = 17;
//!                   repeated string observed_endpoints = 18; optional bytes admitted_by_ticket = 19;
//!                   optional bytes admitted_by_owner = 20; uint64 admitted_at = 21; optional uint64 member_at = 22;
//!                   optional uint64 removed_at = 23; optional bytes storage_key_name = 24;
//!                   optional uint64 coordinator_at = 25; optional bool awaits_approval = 26; }
//! ```

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use keys::endpoint::{self, Endpoint};
use keys::identity::machine_id;
use keys::network::{PREFIX, PrefixWire, prefix_to_wire};
use keys::numbers;
use model::{
    BootClass, ClusterRole, DiskUuid, Ipv4Prefix, KubernetesRole, Level, MachineId, MachinePubKey, NodeName,
    OwnerPubKey, RootHash, TicketId, Uuid, VpnPubKey,
};
use prost::Message as _;

use super::{BadRecord, Release, UnixSeconds, VERSION, decode, known, prefix, sized, sized_if_there};
use crate::role;

/// Record of a machine. Where the machine was removed, the record says what was known last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRecord {
    /// The machine's public key, which its id is made of.
    pub key: MachinePubKey,
    /// Host name and Kubernetes node name; nobody else's who is not removed.
    pub name: NodeName,
    /// The machine's role in the cluster.
    pub role: ClusterRole,
    /// The machine's roles in Kubernetes.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// How far it belongs to the cluster.
    pub standing: Standing,
    /// The machine's address in the VPN.
    pub vpn_ip: Ipv4Addr,
    /// Where its pods' addresses come from: a worker has one.
    pub pods: Option<Ipv4Prefix>,
    /// The machine's key in the VPN.
    pub vpn_key: VpnPubKey,
    /// The machine's data partition.
    pub disk: DiskUuid,
    /// Which of the machine's cluster keys open the data partition.
    pub generations: Generations,
    /// How the data partition is protected.
    pub level: Level,
    /// How it was started.
    pub boot_class: BootClass,
    /// The release that the machine runs.
    pub release: Release,
    /// The image it runs.
    pub root_hash: RootHash,
    /// Name of its TPM's storage key; none without a TPM.
    pub storage_key_name: Option<[u8; 34]>,
    /// Where it may be reached.
    pub endpoints: Endpoints,
    /// The ticket or the owner that let the machine in.
    pub admission: Admission,
    /// Since when it is what.
    pub times: Times,
    /// Whether its ticket would have made a coordinator of whoever holds it: the machine is a node until an owner approves it.
    pub awaits_approval: bool,
}

/// How far a machine belongs to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The machine was given all it needs, and has not announced itself yet.
    Admitted,
    /// The machine belongs to the cluster.
    Member,
    /// The machine is leaving: nothing new is placed on it.
    Draining,
    /// The machine was removed, for good.
    Removed,
}

/// The generations of a disk's cluster key that are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generations {
    /// This one.
    One(u32),
    /// This one and the one behind it, until the machine tells that its disk is locked with that.
    Rotating(u32),
}

impl Generations {
    /// The generations that a record's two fields mean.
    ///
    /// # Errors
    /// [`BadRecord::Contradiction`] where these are none.
    pub(crate) fn read(key_generation: u32, rotating: bool) -> Result<Self, BadRecord> {
        let generations = if rotating { Self::Rotating(key_generation) } else { Self::One(key_generation) };
        match generations {
            Self::One(0) | Self::Rotating(0 | u32::MAX) => {
                Err(BadRecord::Contradiction("key generations count from 1"))
            }
            Self::One(_) | Self::Rotating(_) => Ok(generations),
        }
    }

    /// Whether a key of `generation` is given out.
    #[must_use]
    pub fn include(self, generation: u32) -> bool {
        match self {
            Self::One(one) => generation == one,
            Self::Rotating(one) => generation == one || generation.checked_sub(1) == Some(one),
        }
    }

    /// The oldest generation that is given out.
    #[must_use]
    pub const fn oldest(self) -> u32 {
        match self {
            Self::One(one) | Self::Rotating(one) => one,
        }
    }

    /// The one that is given along with `generation`: the one behind it, while the machine is to take that.
    #[must_use]
    pub fn behind(self, generation: u32) -> Option<u32> {
        Some(self.newest()).filter(|newest| generation.checked_add(1) == Some(*newest) && self.include(generation))
    }

    /// After the machine has told which one its disk is locked with: that one, unless it is the oldest or an older one. The one behind
    /// the newest is believed, too: where a cluster goes on with an old copy of its records, a machine may have gone on before. None
    /// further on is: a machine that tells the last one that there can be would have no key to rotate any more.
    #[must_use]
    pub const fn told(self, generation: u32) -> Self {
        let last = self.newest().saturating_add(1);
        if self.oldest() < generation && generation <= last { Self::One(generation) } else { self }
    }

    /// The newest generation that is given out.
    #[must_use]
    pub const fn newest(self) -> u32 {
        match self {
            Self::One(one) => one,
            Self::Rotating(one) => one.saturating_add(1),
        }
    }
}

/// Where a machine may be reached, each list in order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoints {
    /// As it says itself.
    pub reported: Vec<Endpoint>,
    /// As coordinators see it in their kernel's peer table.
    pub observed: Vec<Endpoint>,
}

/// The ticket or the owner that let a machine in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// A ticket.
    Ticket(TicketId),
    /// An owner: the first machine, whose config they signed.
    Owner(OwnerPubKey),
}

/// Since when a machine is what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Admitted.
    pub admitted: UnixSeconds,
    /// A member, if it has been one.
    pub member: Option<UnixSeconds>,
    /// Removed, if it is.
    pub removed: Option<UnixSeconds>,
    /// A coordinator; of one that is none any more: when it last became one.
    pub coordinator: Option<UnixSeconds>,
}

impl Standing {
    /// All of them, in the order in which they are stored.
    pub const ALL: [Self; 4] = [Self::Admitted, Self::Member, Self::Draining, Self::Removed];

    /// The word for the standing.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::Member => "Member",
            Self::Draining => "Draining",
            Self::Removed => "Removed",
        }
    }

    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Admitted => 1,
            Self::Member => 2,
            Self::Draining => 3,
            Self::Removed => 4,
        }
    }

    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.number() == number)
    }
}

impl MachineRecord {
    /// The machine's id, by its key.
    #[must_use]
    pub fn id(&self) -> MachineId {
        machine_id(&self.key.0)
    }

    /// Whether it is of the cluster, in whatever standing.
    #[must_use]
    pub fn belongs(&self) -> bool {
        self.standing != Standing::Removed
    }

    /// Whether it is to run etcd.
    #[must_use]
    pub fn coordinates(&self) -> bool {
        self.role == ClusterRole::Coordinator && matches!(self.standing, Standing::Member | Standing::Draining)
    }

    /// Whether it was ever given what coordinators hold: not before it was a member.
    #[must_use]
    pub const fn has_coordinated(&self) -> bool {
        self.times.coordinator.is_some() && self.times.member.is_some()
    }

    /// Whether it may hold what the cluster still takes from a coordinator, though it is none any more: keys that it kept, and a
    /// certificate as a peer of etcd, which ends a year after the start that made it.
    #[must_use]
    pub fn may_hold_keys(&self) -> bool {
        self.has_coordinated() && !self.coordinates()
    }

    /// The same machine, made a coordinator at this time; nothing more is to be approved.
    #[must_use]
    pub fn made_coordinator(&self, at: UnixSeconds) -> Self {
        let times = Times { coordinator: Some(at), ..self.times };
        Self { role: ClusterRole::Coordinator, times, awaits_approval: false, ..self.clone() }
    }

    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (key_generation, rotating) = match self.generations {
            Generations::One(one) => (one, false),
            Generations::Rotating(one) => (one, true),
        };
        let (ticket, owner) = match self.admission {
            Admission::Ticket(id) => (Some(id.0.to_vec()), None),
            Admission::Owner(key) => (None, Some(key.0.to_vec())),
        };
        let wire = MachineWire {
            version: VERSION,
            public_key: self.key.0.to_vec(),
            name: self.name.as_str().to_owned(),
            role: numbers::cluster_role::number(self.role),
            kubernetes_roles: numbers::of_kubernetes_roles(&self.kubernetes),
            standing: self.standing.number(),
            vpn_ip: self.vpn_ip.into(),
            pods: self.pods.map(prefix_to_wire),
            vpn_public_key: self.vpn_key.0.to_vec(),
            disk_uuid: self.disk.0.0.to_vec(),
            key_generation,
            rotating,
            level: numbers::level::number(self.level),
            boot_class: numbers::boot_class::number(self.boot_class),
            release: self.release.to_string(),
            root_hash: self.root_hash.0.to_vec(),
            reported_endpoints: endpoint::texts(&self.endpoints.reported),
            observed_endpoints: endpoint::texts(&self.endpoints.observed),
            admitted_by_ticket: ticket,
            admitted_by_owner: owner,
            admitted_at: self.times.admitted.0,
            member_at: self.times.member.map(|at| at.0),
            removed_at: self.times.removed.map(|at| at.0),
            storage_key_name: self.storage_key_name.map(|name| name.to_vec()),
            coordinator_at: self.times.coordinator.map(|at| at.0),
            awaits_approval: self.awaits_approval.then_some(true),
        };
        wire.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: MachineWire = decode(bytes, &MACHINE)?;
        let (role, kubernetes) = role::read(wire.role, &wire.kubernetes_roles)?;
        let admission = match (&wire.admitted_by_ticket, &wire.admitted_by_owner) {
            (Some(ticket), None) => Admission::Ticket(TicketId(sized("ticket id", ticket)?)),
            (None, Some(owner)) => Admission::Owner(OwnerPubKey(sized("owner key", owner)?)),
            (Some(_), Some(_)) | (None, None) => {
                return Err(BadRecord::Contradiction("it was admitted by one, a ticket or an owner"));
            }
        };
        let machine = Self {
            key: MachinePubKey(sized("machine key", &wire.public_key)?),
            name: NodeName::stored(&wire.name)?,
            role,
            kubernetes,
            standing: known("standing", wire.standing, Standing::of)?,
            vpn_ip: wire.vpn_ip.into(),
            pods: wire.pods.as_ref().map(|pods| prefix("pod prefix", pods)).transpose()?,
            vpn_key: VpnPubKey(sized("VPN key", &wire.vpn_public_key)?),
            disk: DiskUuid(Uuid(sized("disk UUID", &wire.disk_uuid)?)),
            generations: Generations::read(wire.key_generation, wire.rotating)?,
            level: known("level", wire.level, numbers::level::of)?,
            boot_class: known("boot class", wire.boot_class, numbers::boot_class::of)?,
            release: Release::read(&wire.release)?,
            root_hash: RootHash(sized("root hash", &wire.root_hash)?),
            storage_key_name: sized_if_there("storage key's name", wire.storage_key_name.as_deref())?,
            endpoints: Endpoints {
                reported: Endpoint::read_all(&wire.reported_endpoints)?,
                observed: Endpoint::read_all(&wire.observed_endpoints)?,
            },
            admission,
            times: Times {
                admitted: UnixSeconds(wire.admitted_at),
                member: wire.member_at.map(UnixSeconds),
                removed: wire.removed_at.map(UnixSeconds),
                coordinator: wire.coordinator_at.map(UnixSeconds),
            },
            awaits_approval: wire.awaits_approval == Some(true),
        };
        machine.contradiction().map_or(Ok(machine), |what| Err(BadRecord::Contradiction(what)))
    }

    /// Finds what of the record cannot be true together.
    fn contradiction(&self) -> Option<&'static str> {
        let worker = self.kubernetes.contains(&KubernetesRole::Worker);
        let removed = self.standing == Standing::Removed;
        [
            (worker && self.pods.is_none(), "a worker has a pod prefix"),
            (!worker && self.pods.is_some(), "who is no worker has no pod prefix"),
            (removed != self.times.removed.is_some(), "who is removed has a time of it, and nobody else"),
            (
                matches!(self.standing, Standing::Member | Standing::Draining) && self.times.member.is_none(),
                "a member has been one since a time",
            ),
            (self.standing == Standing::Admitted && self.times.member.is_some(), "who is Admitted was no member yet"),
            (
                self.role == ClusterRole::Coordinator && self.times.coordinator.is_none(),
                "a coordinator has been one since a time",
            ),
            (
                self.awaits_approval && (self.role == ClusterRole::Coordinator || removed),
                "who waits to be a coordinator is a node, and not removed",
            ),
        ]
        .into_iter()
        .find_map(|(is_so, what)| is_so.then_some(what))
    }
}

formats::strict_message! {
    struct MachineWire, MACHINE = "Machine" {
        1 required u32 version;
        2 required bytes public_key;
        3 required text name;
        4 required u32 role;
        5 repeated u32 kubernetes_roles;
        6 required u32 standing;
        7 required fixed32 vpn_ip;
        8 optional message(PrefixWire, PREFIX) pods;
        9 required bytes vpn_public_key;
        10 required bytes disk_uuid;
        11 required u32 key_generation;
        12 required bool rotating;
        13 required u32 level;
        14 required u32 boot_class;
        15 required text release;
        16 required bytes root_hash;
        17 repeated text reported_endpoints;
        18 repeated text observed_endpoints;
        19 optional bytes admitted_by_ticket;
        20 optional bytes admitted_by_owner;
        21 required u64 admitted_at;
        22 optional u64 member_at;
        23 optional u64 removed_at;
        24 optional bytes storage_key_name;
        25 optional u64 coordinator_at;
        26 optional bool awaits_approval;
    }
}
