//! Desired state of one machine, as the cluster says it: derived from the records and from what is seen of etcd's members, and told
//! to that machine alone. Nothing in it is secret.
//!
//! ```text
//!   State ─ desired(machine) ─► Desired ─ bytes ─► the machine, unless it is behind what that knows ─ the same bytes ─► its DATA
//!
//! message Desired     { uint32 version = 1; optional StateVersion at = 2; uint32 standing = 3; bytes assignment = 4;
//!                       Prefix vpn_prefix = 5; Prefix pods_prefix = 6; Prefix services_prefix = 7;
//!                       repeated Coordinator coordinators = 8; uint32 etcd = 9; repeated Member members = 10;
//!                       optional Share stands = 11; optional Share next = 12; repeated Owner owners = 13; uint32 level = 14;
//!                       uint32 cold_start = 15; optional Look look = 16; }
//! message StateVersion { uint64 recoveries = 1; uint64 revision = 2; }
//! message Look        { uint64 revision = 1; uint64 applied = 2; }
//! message Coordinator { bytes machine_id = 1; string name = 2; fixed32 vpn_ip = 3; bool votes = 4; bool control_plane = 5; }
//! message Member      { string name = 1; fixed32 vpn_ip = 2; }
//! message Share       { Epoch epoch = 1; optional uint32 stands = 2; bytes disk_uuid = 3; uint32 key_generation = 4; bool rotating = 5; }
//! ```
//! `assignment` has the bytes of `keys::assignment`; `etcd` is 1 for none, 2 for a learner, which alone has `members`, 3 for a voter.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use keys::assignment;
use keys::network::{PREFIX, PrefixWire, PrefixesWire, prefix_to_wire};
use keys::numbers;
use model::{
    Assignment, ClusterRole, ColdStart, DiskUuid, Ipv4Prefix, KubernetesRole, Level, MachineId, NodeName, Prefixes,
    Uuid,
};
use prost::Message as _;

use crate::epochs::{self, Due, ShareOrder, is_needed};
use crate::members::{Look, MOST_COORDINATORS, MOST_LEARNERS};
use crate::record::{
    self, BadRecord, EPOCH, EpochWire, Generations, OWNER, OwnerRecord, OwnerWire, Standing, known, read_owners, sized,
};
use crate::state::{State, StateVersion};

/// More than the desired state of any machine has.
pub const MOST_DESIRED_BYTES: usize = 4 << 10;
/// How many members an etcd of ours may have: voters, and learners.
pub const MOST_MEMBERS: usize = MOST_COORDINATORS + MOST_LEARNERS;

const VERSION: u32 = 1;

/// Desired state of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// Version of the state that says so; none on a machine that created the cluster, and was told nothing yet.
    pub at: Option<StateVersion>,
    /// Look at etcd's members that says so; none on a machine that was told nothing but the answer which let it in.
    pub look: Option<Look>,
    /// How far the machine belongs to the cluster; never [`Standing::Removed`].
    pub standing: Standing,
    /// VPN address, pod prefix and roles; none of a control plane while Kubernetes' objects are restored. The cluster role is Coordinator
    /// until etcd has let go of the machine, and the others can open their disks without its share.
    pub assignment: Assignment,
    /// Address ranges that the cluster keeps for itself.
    pub prefixes: Prefixes,
    /// Machines that are to coordinate, at most [`MOST_COORDINATORS`].
    pub coordinators: BTreeMap<MachineId, KnownCoordinator>,
    /// Part of the machine's own etcd among the others.
    pub etcd: EtcdPart,
    /// Shares of the cold-start key that the machine is to hold.
    pub shares: DesiredShares,
    /// People who own the cluster; one or more, each once.
    pub owners: Vec<OwnerRecord>,
    /// Level below which no machine's may be.
    pub level: Level,
    /// Policy for the time after a total power-off.
    pub cold_start: ColdStart,
}

/// A coordinator, as every machine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCoordinator {
    /// Host name.
    pub name: NodeName,
    /// Address in the VPN.
    pub vpn_ip: Ipv4Addr,
    /// Whether its etcd votes.
    pub votes: bool,
    /// Whether it runs the Kubernetes control plane.
    pub control_plane: bool,
}

/// Part of a machine's etcd among the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdPart {
    /// No member.
    Out,
    /// A member that keeps a copy and does not vote.
    Learner {
        /// All members, name and VPN address, the machine among them; 1 to [`MOST_MEMBERS`].
        members: Vec<(NodeName, Ipv4Addr)>,
    },
    /// A member that votes.
    Voter,
}

/// Shares of the cold-start key that a machine is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredShares {
    /// Share of the epoch that stands: see [`epochs::stands`].
    pub stands: Option<ShareOrder>,
    /// Share of the next epoch, which the machine has not acknowledged yet: see [`epochs::due`].
    pub next: Option<ShareOrder>,
}

/// Why a machine is not told what it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DesiredError {
    /// The machine's record does not belong, or the cluster is not created.
    #[error("this machine is no member of the cluster")]
    NoMember,
    /// Until the next look at etcd's members: see [`State::look_at`].
    #[error("etcd's members were not looked at since this machine's record was written")]
    OldLook,
}

impl State {
    /// Desired state of a machine.
    ///
    /// # Errors
    /// [`DesiredError`].
    pub fn desired(&self, id: &MachineId) -> Result<Desired, DesiredError> {
        let desired = self.derived(id).ok_or(DesiredError::NoMember)?;
        let look = Some(self.look_at(id).ok_or(DesiredError::OldLook)?);
        Ok(Desired { look, ..desired })
    }

    /// Desired state of a machine that is being let in: of a node, whatever it is to be; none where its record does not belong.
    #[must_use]
    pub fn desired_of_newcomer(&self, id: &MachineId) -> Option<Desired> {
        self.derived(id).map(Desired::as_node)
    }

    /// Desired state by the last look at the members, however old.
    fn derived(&self, id: &MachineId) -> Option<Desired> {
        let cluster = self.cluster()?;
        let machine = self.machine(id).filter(|machine| machine.belongs())?;
        let members = self.members();
        let stays = members.has(id) || is_needed(self, id);
        let role = if machine.coordinates() || stays { ClusterRole::Coordinator } else { ClusterRole::Node };
        let mut kubernetes = machine.kubernetes.clone();
        // Half of a snapshot would set controllers cleaning.
        if role == ClusterRole::Node || self.restore().is_some() {
            kubernetes.remove(&KubernetesRole::ControlPlane);
        }
        let etcd = if members.voters.contains_key(id) {
            EtcdPart::Voter
        } else if members.learners.contains_key(id) {
            let all = members.voters.keys().chain(members.learners.keys());
            let member = |id| self.machine(id).map(|machine| (machine.name.clone(), machine.vpn_ip));
            EtcdPart::Learner { members: all.filter_map(member).collect() }
        } else {
            EtcdPart::Out
        };
        let next = match epochs::due(self, id) {
            Some(Due::Hold(holding)) => Some(holding),
            Some(Due::Begin) | None => None,
        };
        Some(Desired {
            at: Some(self.state_version()),
            look: None,
            standing: machine.standing,
            assignment: Assignment::new(machine.vpn_ip, role, kubernetes, machine.pods).ok()?,
            prefixes: cluster.prefixes,
            coordinators: self.coordinators().iter().filter_map(|id| self.coordinator(id)).collect(),
            etcd,
            shares: DesiredShares { stands: epochs::stands(self, id), next },
            owners: cluster.owners.clone(),
            level: cluster.policy.level,
            cold_start: cluster.policy.cold_start,
        })
    }

    fn coordinator(&self, id: &MachineId) -> Option<(MachineId, KnownCoordinator)> {
        let machine = self.machine(id)?;
        let coordinator = KnownCoordinator {
            name: machine.name.clone(),
            vpn_ip: machine.vpn_ip,
            votes: self.members().voters.contains_key(id),
            control_plane: machine.kubernetes.contains(&KubernetesRole::ControlPlane),
        };
        Some((*id, coordinator))
    }
}

impl Desired {
    /// Whether it says the same, of whichever version.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let Self {
            at: _,
            look: _,
            standing,
            assignment,
            prefixes,
            coordinators,
            etcd,
            shares,
            owners,
            level,
            cold_start,
        } = self;
        (standing, assignment, prefixes, etcd) == (&other.standing, &other.assignment, &other.prefixes, &other.etcd)
            && (coordinators, shares, owners) == (&other.coordinators, &other.shares, &other.owners)
            && (level, cold_start) == (&other.level, &other.cold_start)
    }

    /// The same for a machine that is no coordinator: so every machine begins that joins.
    #[must_use]
    pub fn as_node(self) -> Self {
        Self { assignment: self.assignment.as_node(), etcd: EtcdPart::Out, ..self }
    }

    /// Whether it is older than what a machine knows: then another coordinator is asked.
    #[must_use]
    pub fn is_behind(&self, known: Option<StateVersion>) -> bool {
        self.at < known
    }

    /// Whether it says something else of the machine's part in etcd than `known`, by an older look at the members: then another
    /// coordinator is asked. A recovery begins another log.
    #[must_use]
    pub fn looked_before(&self, known: &Self) -> bool {
        let recoveries = |desired: &Self| desired.at.map_or(0, |at| at.recoveries);
        let part = |desired: &Self| (desired.assignment.role(), desired.etcd.clone());
        recoveries(self) == recoveries(known) && self.look < known.look && part(self) != part(known)
    }

    /// The bytes that are told and kept.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (etcd, members) = match &self.etcd {
            EtcdPart::Out => (1, &[][..]),
            EtcdPart::Learner { members } => (2, members.as_slice()),
            EtcdPart::Voter => (3, &[][..]),
        };
        let member = |(name, vpn_ip): &(NodeName, Ipv4Addr)| MemberWire {
            name: name.as_str().to_owned(),
            vpn_ip: (*vpn_ip).into(),
        };
        let wire = DesiredWire {
            version: VERSION,
            at: self.at.map(|StateVersion { recoveries, revision }| StateVersionWire { recoveries, revision }),
            standing: self.standing.number(),
            assignment: assignment::encode(&self.assignment),
            vpn_prefix: prefix_to_wire(self.prefixes.vpn),
            pods_prefix: prefix_to_wire(self.prefixes.pods),
            services_prefix: prefix_to_wire(self.prefixes.services),
            coordinators: self.coordinators.iter().map(CoordinatorWire::of).collect(),
            etcd,
            members: members.iter().map(member).collect(),
            stands: self.shares.stands.as_ref().map(ShareWire::of),
            next: self.shares.next.as_ref().map(ShareWire::of),
            owners: self.owners.iter().map(OwnerRecord::to_wire).collect(),
            level: numbers::level::number(self.level),
            cold_start: numbers::cold_start::number(self.cold_start),
            look: self.look.map(|Look { revision, applied }| LookWire { revision, applied }),
        };
        wire.encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: DesiredWire = record::decode_within(MOST_DESIRED_BYTES, bytes, &DESIRED)?;
        let standing = known("standing", wire.standing, Standing::of)?;
        if standing == Standing::Removed {
            return Err(BadRecord::Contradiction("whoever is removed is to be nothing"));
        }
        let (vpn, pods, services) = (wire.vpn_prefix, Some(wire.pods_prefix), Some(wire.services_prefix));
        let desired = Self {
            at: wire.at.as_ref().map(|at| StateVersion { recoveries: at.recoveries, revision: at.revision }),
            look: wire.look.as_ref().map(|look| Look { revision: look.revision, applied: look.applied }),
            standing,
            assignment: assignment::decode(&wire.assignment)?,
            prefixes: PrefixesWire { vpn, pods, services }.read()?,
            coordinators: coordinators(&wire.coordinators)?,
            etcd: etcd(wire.etcd, &wire.members)?,
            shares: DesiredShares {
                stands: wire.stands.as_ref().map(ShareWire::read).transpose()?,
                next: wire.next.as_ref().map(ShareWire::read).transpose()?,
            },
            owners: read_owners(&wire.owners)?,
            level: known("level", wire.level, numbers::level::of)?,
            cold_start: known("cold start policy", wire.cold_start, numbers::cold_start::of)?,
        };
        desired.contradiction().map_or(Ok(desired), |what| Err(BadRecord::Contradiction(what)))
    }

    /// Finds what of it cannot be true together.
    fn contradiction(&self) -> Option<&'static str> {
        let Self { assignment, prefixes, .. } = self;
        [
            (self.etcd != EtcdPart::Out && assignment.role() == ClusterRole::Node, "a member of etcd is a coordinator"),
            (!is_host(prefixes.vpn, assignment.vpn_ip()), "the machine's address is one of the VPN prefix"),
            (
                assignment.pods().is_some_and(|pods| !prefixes.pods.contains(pods.address())),
                "the machine's pod prefix is one of the cluster's",
            ),
        ]
        .into_iter()
        .find_map(|(is_so, what)| is_so.then_some(what))
    }
}

/// Whether a machine may have `address`: the first and the last of a prefix are nobody's.
pub(crate) fn is_host(prefix: Ipv4Prefix, address: Ipv4Addr) -> bool {
    let last = !u32::from(prefix.mask());
    prefix.contains(address) && ![0, last].contains(&(u32::from(address) & last))
}

fn coordinators(wire: &[CoordinatorWire]) -> Result<BTreeMap<MachineId, KnownCoordinator>, BadRecord> {
    if wire.len() > MOST_COORDINATORS || !wire.is_sorted_by(|one, next| one.machine_id < next.machine_id) {
        return Err(BadRecord::Contradiction("coordinators are at most seven, each once and in order"));
    }
    wire.iter().map(CoordinatorWire::read).collect()
}

fn etcd(part: u32, members: &[MemberWire]) -> Result<EtcdPart, BadRecord> {
    let member = |wire: &MemberWire| Ok::<_, BadRecord>((NodeName::stored(&wire.name)?, wire.vpn_ip.into()));
    match (part, members.len()) {
        (1, 0) => Ok(EtcdPart::Out),
        (2, 1..=MOST_MEMBERS) => {
            Ok(EtcdPart::Learner { members: members.iter().map(member).collect::<Result<_, _>>()? })
        }
        (3, 0) => Ok(EtcdPart::Voter),
        (1..=3, _) => Err(BadRecord::Contradiction("a learner, and nobody else, is told of all members of etcd")),
        (number, _) => Err(BadRecord::Number { field: "part in etcd", number }),
    }
}

impl CoordinatorWire {
    fn of((id, coordinator): (&MachineId, &KnownCoordinator)) -> Self {
        let KnownCoordinator { name, vpn_ip, votes, control_plane } = coordinator;
        Self {
            machine_id: id.0.to_vec(),
            name: name.as_str().to_owned(),
            vpn_ip: (*vpn_ip).into(),
            votes: *votes,
            control_plane: *control_plane,
        }
    }

    fn read(&self) -> Result<(MachineId, KnownCoordinator), BadRecord> {
        let coordinator = KnownCoordinator {
            name: NodeName::stored(&self.name)?,
            vpn_ip: self.vpn_ip.into(),
            votes: self.votes,
            control_plane: self.control_plane,
        };
        Ok((MachineId(sized("machine id", &self.machine_id)?), coordinator))
    }
}

impl ShareWire {
    fn of(holding: &ShareOrder) -> Self {
        let ShareOrder { epoch, stands, disk, generations } = holding;
        Self {
            epoch: EpochWire::of(epoch),
            stands: *stands,
            disk_uuid: disk.0.0.to_vec(),
            key_generation: generations.oldest(),
            rotating: matches!(generations, Generations::Rotating(_)),
        }
    }

    fn read(&self) -> Result<ShareOrder, BadRecord> {
        Ok(ShareOrder {
            epoch: self.epoch.read()?,
            stands: self.stands,
            disk: DiskUuid(Uuid(sized("disk UUID", &self.disk_uuid)?)),
            generations: Generations::read(self.key_generation, self.rotating)?,
        })
    }
}

formats::strict_message! {
    struct StateVersionWire, STATE_VERSION = "StateVersion" {
        1 required u64 recoveries;
        2 required u64 revision;
    }
}

formats::strict_message! {
    struct LookWire, LOOK = "Look" {
        1 required u64 revision;
        2 required u64 applied;
    }
}

formats::strict_message! {
    struct CoordinatorWire, COORDINATOR = "Coordinator" {
        1 required bytes machine_id;
        2 required text name;
        3 required fixed32 vpn_ip;
        4 required bool votes;
        5 required bool control_plane;
    }
}

formats::strict_message! {
    struct MemberWire, MEMBER = "Member" {
        1 required text name;
        2 required fixed32 vpn_ip;
    }
}

formats::strict_message! {
    struct ShareWire, SHARE = "Share" {
        1 required message(EpochWire, EPOCH) epoch;
        2 optional u32 stands;
        3 required bytes disk_uuid;
        4 required u32 key_generation;
        5 required bool rotating;
    }
}

formats::strict_message! {
    struct DesiredWire, DESIRED = "Desired" {
        1 required u32 version;
        2 optional message(StateVersionWire, STATE_VERSION) at;
        3 required u32 standing;
        4 required bytes assignment;
        5 required message(PrefixWire, PREFIX) vpn_prefix;
        6 required message(PrefixWire, PREFIX) pods_prefix;
        7 required message(PrefixWire, PREFIX) services_prefix;
        8 repeated message(CoordinatorWire, COORDINATOR) coordinators;
        9 required u32 etcd;
        10 repeated message(MemberWire, MEMBER) members;
        11 optional message(ShareWire, SHARE) stands;
        12 optional message(ShareWire, SHARE) next;
        13 repeated message(OwnerWire, OWNER) owners;
        14 required u32 level;
        15 required u32 cold_start;
        16 optional message(LookWire, LOOK) look;
    }
}

#[cfg(test)]
mod tests;
