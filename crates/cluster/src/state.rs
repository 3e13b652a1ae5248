//! State of the cluster, as it is read from etcd: records by key, and who holds what. Built from pairs of one revision, then
//! kept up by changes as they come; a batch that cannot be understood changes nothing. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::Bound;

use model::{
    DiskUuid, Ipv4Prefix, KubernetesRole, MachineId, NodeName, PublishId, RegistryHost, TicketId, UserName, VpnPubKey,
};

use crate::key::{BadKey, Key};
use crate::members::{Look, Members};
use crate::part::OrderPart;
use crate::record::{
    BadRecord, ChangeCount, Cluster, ColdStartEpochs, HolderRecord, MachineRecord, PublishRecord, RegistryRecord,
    RestoreRecord, TicketRecord, UserRecord,
};

/// A key with its value, as etcd gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key, whole.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision that wrote it.
    pub mod_revision: u64,
}

/// Change of a key, as a watch gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Written.
    Put(KeyValue),
    /// Deleted in this revision.
    Delete {
        key: Vec<u8>,
        /// The revision that deleted it.
        mod_revision: u64,
    },
}

impl Change {
    /// The revision that made it.
    #[must_use]
    pub const fn mod_revision(&self) -> u64 {
        match self {
            Self::Put(pair) => pair.mod_revision,
            Self::Delete { mod_revision, .. } => *mod_revision,
        }
    }
}

/// Why what is in etcd cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadState {
    /// A key that this version does not know.
    #[error("read a key")]
    Key(#[from] BadKey),
    /// A value that this version does not understand.
    #[error("read {key}")]
    Record { key: Box<Key>, source: BadRecord },
    /// A record under another's key.
    #[error("the record under {0} is another's")]
    Misplaced(Box<Key>),
}

/// Why a machine is not given what makes a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// The machine's record makes no coordinator of it.
    #[error("the record of this machine makes no coordinator of it; nothing was handed over")]
    NoCoordinator,
    /// The machine would begin an etcd of its own.
    #[error(
        "etcd has not added this machine yet, and adds nobody while a voter is silent; nothing was handed over; ask again"
    )]
    NotAdded,
    /// With an empty log it would vote against what it has acknowledged.
    #[error(
        "this machine votes in etcd, and begins none beside what it had; nothing was handed over; if that is lost, make it a node first"
    )]
    Votes,
}

/// Version of what machines are told of the cluster, in order: a recovery counts more than any revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StateVersion {
    /// How often the cluster was recovered.
    pub recoveries: u64,
    /// The newest revision that wrote a machine, the cluster, the epochs or a restore.
    pub revision: u64,
}

impl StateVersion {
    /// Whether no cluster goes from `known` to this one while a machine is away: by several recoveries, or by more revisions than are
    /// written.
    #[must_use]
    pub const fn jumps_from(self, known: Self) -> bool {
        self.recoveries.saturating_sub(known.recoveries) > 1
            || self.revision.saturating_sub(known.revision) >= MOST_REVISIONS
    }
}

/// More revisions than a cluster writes while a machine is away.
const MOST_REVISIONS: u64 = 1 << 32;

/// Everything under Cairn's prefix, as of one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    version: Option<(ChangeCount, u64)>,
    cluster: Option<Cluster>,
    cold_start: ColdStartEpochs,
    /// Restore that is under way, and the revision that wrote it last.
    restore: Option<(RestoreRecord, u64)>,
    machines: BTreeMap<MachineId, MachineRecord>,
    /// Machines that are to coordinate.
    coordinators: BTreeSet<MachineId>,
    tickets: BTreeMap<TicketId, TicketRecord>,
    registries: BTreeMap<RegistryHost, RegistryRecord>,
    /// All registries, as workers are told of them.
    registries_part: Option<OrderPart>,
    users: BTreeMap<UserName, UserRecord>,
    published: BTreeMap<PublishId, PublishRecord>,
    /// Holders of floating addresses, each with the revision that made it one.
    floating: BTreeMap<Ipv4Addr, (MachineId, u64)>,
    disks: BTreeMap<DiskUuid, MachineId>,
    vpn_keys: BTreeMap<VpnPubKey, MachineId>,
    addresses: BTreeMap<Ipv4Addr, MachineId>,
    pods: BTreeMap<Ipv4Prefix, MachineId>,
    /// Names of machines that belong.
    names: BTreeMap<String, MachineId>,
    told_revision: u64,
    /// Machines by the revision that wrote their records last: each machine once.
    written: BTreeSet<(u64, MachineId)>,
    written_in: BTreeMap<MachineId, u64>,
    members: Members,
    look: Option<Look>,
}

/// A value that was read. `None` is a key that was deleted.
enum Read {
    Version(Option<(ChangeCount, u64)>),
    Cluster(Option<Box<Cluster>>),
    ColdStart(Option<ColdStartEpochs>),
    Restore(Option<RestoreRecord>),
    Machine(MachineId, Option<Box<MachineRecord>>),
    Ticket(TicketId, Option<Box<TicketRecord>>),
    Registry(RegistryHost, Option<Box<RegistryRecord>>),
    User(UserName, Option<Box<UserRecord>>),
    Publish(PublishId, Option<Box<PublishRecord>>),
    Floating(Ipv4Addr, Option<MachineId>),
    Disk(DiskUuid, Option<MachineId>),
    VpnKey(VpnPubKey, Option<MachineId>),
    Address(Ipv4Addr, Option<MachineId>),
    Pods(Ipv4Prefix, Option<MachineId>),
    /// A line of the audit, by which nothing is decided.
    Audit,
}

impl State {
    /// Reads all pairs of one revision.
    ///
    /// # Errors
    /// [`BadState`] names the key that cannot be understood.
    pub fn read(pairs: impl IntoIterator<Item = KeyValue>) -> Result<Self, BadState> {
        let mut state = Self::default();
        state.apply(pairs.into_iter().map(Change::Put))?;
        Ok(state)
    }

    /// Takes changes, all or none. Those of one transaction come in one batch.
    ///
    /// # Errors
    /// [`BadState`] names the key that cannot be understood; nothing was taken then.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<(), BadState> {
        let read = changes.into_iter().map(|change| read(&change)).collect::<Result<Vec<_>, _>>()?;
        let of_registries = read.iter().any(|(value, _)| matches!(value, Read::Registry(..)));
        for (value, revision) in read {
            self.take(value, revision);
        }
        if of_registries {
            self.registries_part = OrderPart::of_registries(&self.registries);
        }
        Ok(())
    }

    /// Takes what a look at etcd's members shows; they are not in its keys.
    pub fn see(&mut self, members: Members, look: Look) {
        (self.members, self.look) = (members, Some(look));
    }

    fn take(&mut self, value: Read, revision: u64) {
        match value {
            Read::Version(version) => self.version = version,
            Read::Cluster(cluster) => {
                self.cluster = cluster.map(|cluster| *cluster);
                self.told_revision = self.told_revision.max(revision);
            }
            Read::ColdStart(epochs) => {
                self.cold_start = epochs.unwrap_or_default();
                self.told_revision = self.told_revision.max(revision);
            }
            Read::Restore(restore) => {
                self.restore = restore.map(|restore| (restore, revision));
                self.told_revision = self.told_revision.max(revision);
            }
            Read::Machine(id, machine) => {
                self.name(id, machine.as_deref());
                if let Some(before) = self.written_in.insert(id, revision) {
                    self.written.remove(&(before, id));
                }
                self.written.insert((revision, id));
                if machine.as_ref().is_some_and(|machine| machine.coordinates()) {
                    self.coordinators.insert(id);
                } else {
                    self.coordinators.remove(&id);
                }
                set(&mut self.machines, id, machine.map(|machine| *machine));
                self.told_revision = self.told_revision.max(revision);
            }
            Read::Ticket(id, ticket) => set(&mut self.tickets, id, ticket.map(|ticket| *ticket)),
            Read::Registry(host, registry) => set(&mut self.registries, host, registry.map(|registry| *registry)),
            Read::User(name, user) => set(&mut self.users, name, user.map(|user| *user)),
            Read::Publish(id, rule) => set(&mut self.published, id, rule.map(|rule| *rule)),
            Read::Floating(address, holder) => {
                set(&mut self.floating, address, holder.map(|holder| (holder, revision)));
            }
            Read::Disk(disk, holder) => set(&mut self.disks, disk, holder),
            Read::VpnKey(key, holder) => set(&mut self.vpn_keys, key, holder),
            Read::Address(address, holder) => set(&mut self.addresses, address, holder),
            Read::Pods(prefix, holder) => set(&mut self.pods, prefix, holder),
            Read::Audit => {}
        }
    }

    /// Frees the name that a machine had, and takes the one that it has.
    fn name(&mut self, id: MachineId, machine: Option<&MachineRecord>) {
        if let Some(before) = self.machines.get(&id) {
            let name = before.name.as_str();
            if self.names.get(name) == Some(&id) {
                self.names.remove(name);
            }
        }
        if let Some(machine) = machine.filter(|machine| machine.belongs()) {
            self.names.insert(machine.name.as_str().to_owned(), id);
        }
    }

    /// How many changes there were, and the revision of the last; none before the cluster was created.
    #[must_use]
    pub const fn version(&self) -> Option<(ChangeCount, u64)> {
        self.version
    }

    /// The cluster; none before it was created.
    #[must_use]
    pub const fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The epochs of the cold-start key.
    #[must_use]
    pub const fn cold_start(&self) -> &ColdStartEpochs {
        &self.cold_start
    }

    /// Restore of Kubernetes' objects that is under way.
    #[must_use]
    pub fn restore(&self) -> Option<&RestoreRecord> {
        self.restore.as_ref().map(|(restore, _)| restore)
    }

    /// Revision that wrote the record of that restore last.
    #[must_use]
    pub fn restore_revision(&self) -> Option<u64> {
        self.restore.as_ref().map(|(_, revision)| *revision)
    }

    /// etcd's members as they were seen last.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Moment of the last look at etcd's members; none before the first.
    #[must_use]
    pub const fn look(&self) -> Option<Look> {
        self.look
    }

    /// Moment of the last look at etcd's members, if that shows what became of a machine: of one that ever coordinated, the look is
    /// younger than the record. An older one may show a member that has left since, or none where there is one by now.
    #[must_use]
    pub fn look_at(&self, id: &MachineId) -> Option<Look> {
        let changes = self.machine(id).is_some_and(MachineRecord::has_coordinated);
        let written = self.written_in.get(id).copied().filter(|_| changes);
        self.look.filter(|look| Some(look.revision) >= written)
    }

    /// Machines that are to coordinate: etcd's members follow.
    #[must_use]
    pub const fn coordinators(&self) -> &BTreeSet<MachineId> {
        &self.coordinators
    }

    /// Whether a machine is given what makes a coordinator, and runs an etcd beside the others.
    ///
    /// # Errors
    /// [`HandOverError`].
    pub fn hands_over_to(&self, machine: &MachineId) -> Result<(), HandOverError> {
        if !self.coordinators().contains(machine) {
            return Err(HandOverError::NoCoordinator);
        }
        if !self.members.has(machine) {
            return Err(HandOverError::NotAdded);
        }
        if self.members.voters.contains_key(machine) {
            return Err(HandOverError::Votes);
        }
        Ok(())
    }

    /// Machines that hold floating addresses, each with the revision that made it the holder.
    #[must_use]
    pub const fn floating(&self) -> &BTreeMap<Ipv4Addr, (MachineId, u64)> {
        &self.floating
    }

    /// Record of a Kubernetes worker, from which its certificates there are made; none of any other machine.
    #[must_use]
    pub fn worker(&self, machine: &MachineId) -> Option<&MachineRecord> {
        let works =
            |machine: &&MachineRecord| machine.belongs() && machine.kubernetes.contains(&KubernetesRole::Worker);
        self.machine(machine).filter(works)
    }

    /// Machines whose certificates etcd is to refuse: those that were coordinators, are to be none, and are members of etcd no
    /// longer, since one that still leaves is needed until then. None while etcd's members are not known.
    #[must_use]
    pub fn revoked(&self) -> Option<BTreeSet<MachineId>> {
        let was = |machine: &MachineRecord| machine.has_coordinated() && !machine.coordinates();
        let gone = self.machines.iter().filter(|(id, machine)| was(machine) && !self.members.has(id));
        (!self.members.voters.is_empty()).then(|| gone.map(|(id, _)| *id).collect())
    }

    /// Machines by VPN address, to tell etcd's members apart: each the one that belongs, or else the one that had the address
    /// last.
    #[must_use]
    pub fn at_addresses(&self) -> BTreeMap<Ipv4Addr, MachineId> {
        let (belonging, gone): (Vec<_>, Vec<_>) = self.machines.iter().partition(|(_, machine)| machine.belongs());
        gone.into_iter().chain(belonging).map(|(id, machine)| (machine.vpn_ip, *id)).collect()
    }

    /// All machines that ever were, by id.
    pub fn machines(&self) -> impl Iterator<Item = (&MachineId, &MachineRecord)> {
        self.machines.iter()
    }

    /// Machines that run pods, by id.
    pub fn workers(&self) -> impl Iterator<Item = (&MachineId, &MachineRecord)> {
        self.machines.keys().filter_map(|id| Some((id, self.worker(id)?)))
    }

    /// The record of a machine.
    #[must_use]
    pub fn machine(&self, id: &MachineId) -> Option<&MachineRecord> {
        self.machines.get(id)
    }

    /// The machines that were written behind this revision, in the order in which they were.
    pub fn machines_since(&self, revision: u64) -> impl Iterator<Item = (&MachineId, &MachineRecord)> {
        let behind = self.written.range((Bound::Excluded((revision, MachineId([0xff; 16]))), Bound::Unbounded));
        behind.filter_map(|(_, id)| self.machines.get_key_value(id))
    }

    /// All tickets that ever were, by id.
    pub fn tickets(&self) -> impl Iterator<Item = (&TicketId, &TicketRecord)> {
        self.tickets.iter()
    }

    /// The record of a ticket.
    #[must_use]
    pub fn ticket(&self, id: &TicketId) -> Option<&TicketRecord> {
        self.tickets.get(id)
    }

    /// Registries that owners said something of, by host.
    #[must_use]
    pub const fn registries(&self) -> &BTreeMap<RegistryHost, RegistryRecord> {
        &self.registries
    }

    /// All of them as one part of orders; none where there is none.
    pub(crate) const fn registries_part(&self) -> Option<&OrderPart> {
        self.registries_part.as_ref()
    }

    /// All users, by name; those whose time is over, too.
    pub fn users(&self) -> impl Iterator<Item = &UserRecord> {
        self.users.values()
    }

    /// The record of a user.
    #[must_use]
    pub fn user(&self, name: &UserName) -> Option<&UserRecord> {
        self.users.get(name)
    }

    /// Rules that publish ports, by number.
    #[must_use]
    pub const fn published(&self) -> &BTreeMap<PublishId, PublishRecord> {
        &self.published
    }

    /// Machine whose disk this is or was.
    #[must_use]
    pub fn disk(&self, disk: &DiskUuid) -> Option<&MachineId> {
        self.disks.get(disk)
    }

    /// Machine whose VPN key this is or was.
    #[must_use]
    pub fn vpn_key(&self, key: &VpnPubKey) -> Option<&MachineId> {
        self.vpn_keys.get(key)
    }

    /// Whether somebody has this VPN address.
    #[must_use]
    pub fn has_address(&self, address: Ipv4Addr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// Whether somebody has this pod prefix.
    #[must_use]
    pub fn has_pods(&self, prefix: Ipv4Prefix) -> bool {
        self.pods.contains_key(&prefix)
    }

    /// Machine with this name, among those that belong.
    #[must_use]
    pub fn named(&self, name: &NodeName) -> Option<&MachineId> {
        self.names.get(name.as_str())
    }

    /// Version of what machines are told.
    #[must_use]
    pub fn state_version(&self) -> StateVersion {
        let recoveries = self.cluster.as_ref().map_or(0, |cluster| cluster.recoveries);
        StateVersion { recoveries, revision: self.told_revision }
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

fn read(change: &Change) -> Result<(Read, u64), BadState> {
    let (bytes, value, revision) = match change {
        Change::Put(pair) => (&pair.key, Some(pair.value.as_slice()), pair.mod_revision),
        Change::Delete { key, mod_revision } => (key, None, *mod_revision),
    };
    let key = Key::read(bytes)?;
    let refused = |source| BadState::Record { key: Box::new(key), source };
    let holder =
        || value.map(HolderRecord::decode).transpose().map(|it| it.map(|HolderRecord(id)| id)).map_err(refused);
    let read = match key {
        Key::Version => {
            Read::Version(value.map(ChangeCount::decode).transpose().map_err(refused)?.map(|it| (it, revision)))
        }
        Key::Cluster => Read::Cluster(value.map(Cluster::decode).transpose().map_err(refused)?.map(Box::new)),
        Key::Restore => Read::Restore(value.map(RestoreRecord::decode).transpose().map_err(refused)?),
        Key::ColdStart => Read::ColdStart(value.map(ColdStartEpochs::decode).transpose().map_err(refused)?),
        Key::Machine(id) => {
            let machine = value.map(MachineRecord::decode).transpose().map_err(refused)?;
            if machine.as_ref().is_some_and(|machine| machine.id() != id) {
                return Err(BadState::Misplaced(Box::new(key)));
            }
            Read::Machine(id, machine.map(Box::new))
        }
        Key::Ticket(id) => {
            let ticket = value.map(TicketRecord::decode).transpose().map_err(refused)?;
            if ticket.as_ref().is_some_and(|ticket| ticket.id() != id) {
                return Err(BadState::Misplaced(Box::new(key)));
            }
            Read::Ticket(id, ticket.map(Box::new))
        }
        Key::Registry(host) => {
            let registry = value.map(RegistryRecord::decode).transpose().map_err(refused)?;
            if registry.as_ref().is_some_and(|registry| registry.host() != host) {
                return Err(BadState::Misplaced(Box::new(key)));
            }
            Read::Registry(host, registry.map(Box::new))
        }
        Key::User(name) => {
            let user = value.map(UserRecord::decode).transpose().map_err(refused)?;
            if user.as_ref().is_some_and(|user| user.terms.name != name) {
                return Err(BadState::Misplaced(Box::new(key)));
            }
            Read::User(name, user.map(Box::new))
        }
        Key::Publish(id) => {
            let rule = value.map(PublishRecord::decode).transpose().map_err(refused)?;
            if rule.as_ref().is_some_and(|rule| rule.id != id) {
                return Err(BadState::Misplaced(Box::new(key)));
            }
            Read::Publish(id, rule.map(Box::new))
        }
        Key::Floating(address) => Read::Floating(address, holder()?),
        Key::Disk(disk) => Read::Disk(disk, holder()?),
        Key::VpnKey(vpn_key) => Read::VpnKey(vpn_key, holder()?),
        Key::Address(address) => Read::Address(address, holder()?),
        Key::Pods(prefix) => Read::Pods(prefix, holder()?),
        Key::Audit(_) => Read::Audit,
    };
    Ok((read, revision))
}
