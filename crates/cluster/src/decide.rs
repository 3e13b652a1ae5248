//! The one place that decides: a state, a request and the time in, a transaction or a reason out. Same in, same out.
//!
//! Every change compares and writes the version, so it holds for exactly the state that it was decided over; each key that it
//! makes is compared to be absent, too. What only proves something compares the version and leaves it alone.

mod cold_start;
mod machines;
mod owners;
mod publish;
mod redeem;
mod registries;
mod restore;
mod roles;
mod tickets;
mod users;

use std::fmt;

use model::{MachineId, OwnerPubKey};

use crate::denial::Denial;
use crate::key::{AuditId, Key};
use crate::members::Members;
use crate::record::{AuditLine, ChangeCount, Cluster, HolderRecord, MachineRecord, Standing, UnixSeconds, is_below};
use crate::request::{Asks, FirstRecords, Request};
use crate::state::State;
use crate::txn::{Compare, Grant, KeyCondition, Txn};

/// Decides a request.
///
/// # Errors
/// [`Denial`] names the reason; nothing is to be changed then.
pub fn decide(state: &State, request: &Request, now: UnixSeconds) -> Result<Txn, Denial> {
    if let Request::Create(creation) = request {
        return create(state, creation, now);
    }
    let ground = Ground::of(state, now)?;
    match request {
        Request::Create(_) => Err(Denial::ClusterExists), // decided above
        Request::Owner { by, asks } => {
            if !ground.cluster.is_owned_by(by) {
                return Err(Denial::UnknownOwner);
            }
            asked(&ground, *by, asks)
        }
        Request::Redeem(redeem) => redeem::redeem(&ground, redeem),
        Request::Announce { machine, release, endpoints, generation } => {
            machines::announce(&ground, machine, (*release, endpoints), *generation)
        }
        Request::Observe { machine, endpoint } => machines::observe(&ground, machine, endpoint),
        Request::ReleaseKey { machine, disk, generation, level } => {
            machines::release_key(&ground, machine, *disk, *generation, *level)
        }
        Request::Hold { address, machine } => publish::hold(&ground, *address, *machine),
        Request::BeginEpoch => cold_start::begin(&ground),
        Request::AcknowledgeEpoch { machine, number } => cold_start::acknowledge(&ground, machine, *number),
        Request::AcknowledgeRestore { machine } => restore::acknowledge(&ground, machine),
        Request::EndRestore { machine, hash } => restore::end(&ground, machine, *hash),
    }
}

fn asked(ground: &Ground<'_>, by: OwnerPubKey, asks: &Asks) -> Result<Txn, Denial> {
    match asks {
        Asks::IssueTicket(offer) => tickets::issue(ground, by, offer),
        Asks::RevokeTicket(id) => tickets::revoke(ground, by, id),
        Asks::AddRole(id, role) => roles::add(ground, by, id, *role),
        Asks::RemoveRole(id, role) => roles::remove(ground, by, id, *role),
        Asks::Recover(id) => roles::recover(ground, by, id),
        Asks::Drain(id) => machines::drain(ground, by, id),
        Asks::Remove(id, leaving) => machines::remove(ground, by, id, *leaving),
        Asks::RotateKey(id) => machines::rotate_key(ground, by, id),
        Asks::AddOwner(owner) => owners::add(ground, by, owner),
        Asks::RemoveOwner(key) => owners::remove(ground, by, key),
        Asks::SetRegistry(registry) => registries::set(ground, by, registry),
        Asks::RemoveRegistry(host) => registries::remove(ground, by, *host),
        Asks::AddUser(terms) => users::add(ground, by, terms),
        Asks::RemoveUser(name) => users::remove(ground, by, name),
        Asks::Publish(terms) => publish::add(ground, by, terms),
        Asks::Unpublish(id) => publish::remove(ground, by, *id),
        Asks::Restore(id, hash) => restore::order(ground, by, *id, *hash),
    }
}

/// The ground of every decision but the first: a cluster that exists, and the time.
struct Ground<'a> {
    state: &'a State,
    cluster: &'a Cluster,
    changes: ChangeCount,
    now: UnixSeconds,
}

impl<'a> Ground<'a> {
    fn of(state: &'a State, now: UnixSeconds) -> Result<Self, Denial> {
        let cluster = state.cluster().ok_or(Denial::NoCluster)?;
        let (changes, _) = state.version().ok_or(Denial::NoCluster)?;
        Ok(Self { state, cluster, changes, now })
    }

    fn machine(&self, id: &MachineId) -> Result<&'a MachineRecord, Denial> {
        self.state.machine(id).ok_or(Denial::UnknownMachine)
    }

    /// A machine that belongs.
    fn belonging(&self, id: &MachineId) -> Result<&'a MachineRecord, Denial> {
        let machine = self.machine(id)?;
        if machine.belongs() { Ok(machine) } else { Err(Denial::MachineRemoved) }
    }

    /// A machine that is a member, and is to stay one.
    fn member(&self, id: &MachineId) -> Result<&'a MachineRecord, Denial> {
        let machine = self.machine(id)?;
        match machine.standing {
            Standing::Admitted => Err(Denial::NotMember),
            Standing::Member => Ok(machine),
            Standing::Draining => Err(Denial::MachineDraining),
            Standing::Removed => Err(Denial::MachineRemoved),
        }
    }

    /// Members of etcd by the last look. Records that were just read show none.
    fn members(&self) -> Result<&'a Members, Denial> {
        let members = self.state.members();
        if members.voters.is_empty() { Err(Denial::NoVoters) } else { Ok(members) }
    }

    /// Proves that the state is still this one, and writes nothing.
    fn unchanged(&self, granted: Grant) -> Txn {
        Txn { granted, ..Txn::unchanged(self.state) }
    }

    /// A change that an owner asks for, or the cluster needs, with its line in the audit.
    fn change(&self, what: &str, whom: &dyn fmt::Display, owner: Option<OwnerPubKey>) -> Draft {
        let change = self.changes.0 + 1;
        self.draft(AuditId::Changed { change }, what, whom, owner)
    }

    /// A change that a machine asks for or is the cause of, with its line in the audit.
    fn change_by(&self, what: &str, machine: MachineId) -> Draft {
        let change = self.changes.0 + 1;
        self.draft(AuditId::Asked { machine, change }, what, &machine, None)
    }

    fn draft(&self, id: AuditId, what: &str, whom: &dyn fmt::Display, owner: Option<OwnerPubKey>) -> Draft {
        let mut draft = Draft(self.unchanged(Grant::Done));
        draft.put(Key::Version, ChangeCount(self.changes.0 + 1).encode());
        let line = AuditLine { what: what.to_owned(), whom: whom.to_string(), owner, time: self.now };
        draft.put(Key::Audit(id), line.encode());
        draft
    }
}

/// A transaction that is being put together.
struct Draft(Txn);

impl Draft {
    /// Makes a key that must not exist.
    fn create(&mut self, key: Key, value: Vec<u8>) {
        self.0.compares.push(Compare { key, condition: KeyCondition::Absent });
        self.put(key, value);
    }

    /// Writes a key, whether or not it exists.
    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.0.puts.push((key, value));
    }

    fn delete(&mut self, key: Key) {
        self.0.deletes.push(key);
    }

    /// Writes a machine's record.
    fn machine(&mut self, machine: &MachineRecord) {
        self.put(Key::Machine(machine.id()), machine.encode());
    }

    /// All that is a new machine's alone.
    fn new_machine(&mut self, machine: &MachineRecord) {
        let id = machine.id();
        let holder = HolderRecord(id).encode();
        self.create(Key::Machine(id), machine.encode());
        self.create(Key::Disk(machine.disk), holder.clone());
        self.create(Key::VpnKey(machine.vpn_key), holder.clone());
        self.create(Key::Address(machine.vpn_ip), holder.clone());
        if let Some(pods) = machine.pods {
            self.create(Key::Pods(pods), holder);
        }
    }

    fn grants(mut self, granted: Grant) -> Txn {
        self.0.granted = granted;
        self.0
    }
}

fn create(state: &State, creation: &FirstRecords, now: UnixSeconds) -> Result<Txn, Denial> {
    if state.version().is_some() || state.cluster().is_some() {
        return Err(Denial::ClusterExists);
    }
    let FirstRecords { cluster, machine } = creation;
    let fits = [
        (machine.standing == Standing::Member, "it is no member"),
        (machine.coordinates(), "it is no coordinator"),
        (cluster.prefixes.vpn.contains(machine.vpn_ip), "its address is not of the VPN"),
        (
            machine.pods.is_none_or(|pods| cluster.prefixes.pods.contains(pods.address())),
            "its pods are not of the cluster",
        ),
        (!is_below(machine.level, cluster.policy.level), "its level is below the cluster's"),
    ];
    if let Some((_, what)) = fits.into_iter().find(|(fits, _)| !fits) {
        return Err(Denial::BadCreation(what));
    }
    let mut draft = Draft(Txn::unchanged(state));
    draft.put(Key::Version, ChangeCount(1).encode());
    draft.create(Key::Cluster, cluster.encode());
    draft.new_machine(machine);
    draft.create(Key::ColdStart, cold_start::first(cluster, machine).encode());
    let line = AuditLine { what: "create".to_owned(), whom: machine.id().to_string(), owner: None, time: now };
    draft.put(Key::Audit(AuditId::Changed { change: 1 }), line.encode());
    Ok(draft.grants(Grant::Done))
}
