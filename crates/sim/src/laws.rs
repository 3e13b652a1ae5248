//! Laws that must hold after every event, read from etcd's bytes and from nothing that decided. Each law has a name.

use std::collections::{BTreeMap, BTreeSet};

use cluster::key::Key;
use cluster::members::{Members, quorum};
use cluster::record::{
    Admission, ChangeCount, Cluster, ColdStartEpochs, MachineRecord, PublishRecord, RestoreRecord, TicketRecord,
    UserRecord,
};
use cluster::state::Change;
use cluster::txn::Grant;
use keys::cold_start::Epoch;
use model::{DiskUuid, Ipv4Prefix, MachineId, TicketId};

pub mod life;

/// A law that was broken, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{law}: {how}")]
pub struct Breach {
    /// Name of the law.
    pub law: &'static str,
    /// Facts that break it.
    pub how: String,
}

/// Records of the cluster as they were seen so far.
#[derive(Debug, Clone, Default)]
pub struct Laws {
    changes: u64,
    vpn_prefix: Option<Ipv4Prefix>,
    recoveries: u64,
    machines: BTreeMap<MachineId, MachineRecord>,
    /// Goods that only one machine may have at a time, by their text, and who has each.
    held: BTreeMap<String, MachineId>,
    /// Goods that only one machine may ever have.
    ever: BTreeMap<String, MachineId>,
    epochs: ColdStartEpochs,
    /// Epoch that has come to stand since it was asked for.
    stands: Option<Epoch>,
    uses: BTreeMap<TicketId, u32>,
    admitted: BTreeMap<TicketId, BTreeSet<MachineId>>,
}

const ALONE: &str = "never two machines with one VPN address, pod prefix, name, VPN key or disk";

fn holds(law: &'static str, holds: bool, how: impl FnOnce() -> String) -> Result<(), Breach> {
    if holds { Ok(()) } else { Err(Breach { law, how: how() }) }
}

impl Laws {
    /// Checks what one revision changed.
    ///
    /// # Errors
    /// [`Breach`] names the law.
    pub fn changed(&mut self, changes: &[Change]) -> Result<(), Breach> {
        let (mut versions, mut made, recoveries) = (0, Vec::new(), self.recoveries);
        for change in changes {
            let (bytes, value) = match change {
                Change::Put(pair) => (&pair.key, Some(pair.value.as_slice())),
                Change::Delete { key, .. } => (key, None),
            };
            let law = "every key and record is one that Cairn reads";
            let unread = |how: &dyn std::fmt::Display| Breach { law, how: how.to_string() };
            let key = Key::read(bytes).map_err(|error| unread(&error))?;
            let Some(value) = value else {
                let may_go = matches!(
                    key,
                    Key::Address(_)
                        | Key::Pods(_)
                        | Key::Registry(_)
                        | Key::User(_)
                        | Key::Publish(_)
                        | Key::Floating(_)
                );
                holds("records stay", may_go, || format!("{key} is gone"))?;
                continue;
            };
            match key {
                Key::Version => {
                    versions += 1;
                    let ChangeCount(now) = ChangeCount::decode(value).map_err(|error| unread(&error))?;
                    let before = std::mem::replace(&mut self.changes, now);
                    holds("changes come one after another", now == before + 1, || format!("{before}, then {now}"))?;
                }
                Key::Cluster => {
                    let cluster = Cluster::decode(value).map_err(|error| unread(&error))?;
                    self.vpn_prefix = Some(cluster.prefixes.vpn);
                    let (before, now) = (self.recoveries, cluster.recoveries);
                    holds("no recovery is forgotten", before <= now, || format!("{before}, then {now}"))?;
                    self.recoveries = now;
                }
                Key::Machine(id) => self.machine(id, MachineRecord::decode(value).map_err(|error| unread(&error))?)?,
                Key::Ticket(id) => {
                    let ticket = TicketRecord::decode(value).map_err(|error| unread(&error))?;
                    let uses = *self.uses.entry(id).or_insert(ticket.uses);
                    holds("a ticket does not grow", uses == ticket.uses, || format!("{id}"))?;
                }
                Key::User(_) => drop(UserRecord::decode(value).map_err(|error| unread(&error))?),
                Key::Restore => drop(RestoreRecord::decode(value).map_err(|error| unread(&error))?),
                Key::ColdStart => {
                    self.epochs(ColdStartEpochs::decode(value).map_err(|error| unread(&error))?)?;
                }
                Key::Publish(id) => {
                    let rule = PublishRecord::decode(value).map_err(|error| unread(&error))?;
                    holds("a rule has its own number", rule.id == id, || format!("{rule:?} under {id}"))?;
                    made.push(id);
                }
                Key::Disk(_)
                | Key::VpnKey(_)
                | Key::Address(_)
                | Key::Pods(_)
                | Key::Registry(_)
                | Key::Floating(_)
                | Key::Audit(_) => {}
            }
        }
        let anew = made.iter().all(|id| id.0 == self.changes);
        holds("no rule is another under its number", anew, || format!("{made:?} in change {}", self.changes))?;
        let audit_only = changes.iter().all(|change| match change {
            Change::Put(pair) => matches!(Key::read(&pair.key), Ok(Key::Audit(_))),
            Change::Delete { .. } => false,
        });
        holds("every change writes the version", versions == 1 || audit_only, || format!("{changes:?}"))?;
        let coordinators = self.machines.values().filter(|machine| machine.coordinates()).count();
        let alone = self.recoveries == recoveries || coordinators == 1;
        holds("after a recovery one coordinates, and nobody else until an owner says so", alone, || {
            format!("{coordinators} after recovery {}", self.recoveries)
        })?;
        let coordinates = coordinators > 0;
        holds("there is always a coordinator", self.machines.is_empty() || coordinates, || "none is left".to_owned())
    }

    fn epochs(&mut self, epochs: ColdStartEpochs) -> Result<(), Breach> {
        let number = |epochs: &ColdStartEpochs| epochs.current.as_ref().map_or(0, Epoch::number);
        let (before, now) = (number(&self.epochs), number(&epochs));
        holds("an epoch that stands gives way to a later one only", before <= now, || format!("{before}, then {now}"))?;
        if before < now {
            self.stands.clone_from(&epochs.current);
        }
        self.epochs = epochs;
        Ok(())
    }

    /// How often the cluster was recovered.
    #[must_use]
    pub const fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// The epoch that has come to stand since this was asked.
    pub fn stands(&mut self) -> Option<Epoch> {
        self.stands.take()
    }

    /// The epoch that stands.
    #[must_use]
    pub const fn standing(&self) -> Option<&Epoch> {
        self.epochs.current.as_ref()
    }

    /// The disk of each machine.
    #[must_use]
    pub fn disks(&self) -> BTreeMap<MachineId, DiskUuid> {
        self.machines.iter().map(|(id, machine)| (*id, machine.disk)).collect()
    }

    fn machine(&mut self, id: MachineId, machine: MachineRecord) -> Result<(), Breach> {
        self.held.retain(|_, holder| *holder != id);
        if let Some(before) = self.machines.get(&id) {
            let returned = !before.belongs() && machine.belongs();
            holds("who was removed does not come back", !returned, || format!("{id}"))?;
        }
        for text in [format!("disk {}", machine.disk), format!("VPN key {}", machine.vpn_key)] {
            let holder = *self.ever.entry(text.clone()).or_insert(id);
            holds(ALONE, holder == id, || format!("{text}: {holder} and {id}"))?;
        }
        if machine.belongs() {
            let pods = machine.pods.map(|pods| format!("pods {pods}"));
            let held = [format!("address {}", machine.vpn_ip), format!("name {}", machine.name)];
            for text in held.into_iter().chain(pods) {
                let holder = self.held.insert(text.clone(), id);
                holds(ALONE, holder.is_none(), || format!("{text}: {holder:?} and {id}"))?;
            }
            if let Some(prefix) = self.vpn_prefix {
                let last = Ipv4Prefix::nth(prefix, (1 << (32 - prefix.bits())) - 1);
                let fits = prefix.contains(machine.vpn_ip)
                    && machine.vpn_ip != prefix.address()
                    && Some(machine.vpn_ip) != last;
                holds("an address is a host's in the VPN", fits, || format!("{}", machine.vpn_ip))?;
            }
        }
        if let Admission::Ticket(ticket) = machine.admission {
            let admitted = self.admitted.entry(ticket).or_default();
            admitted.insert(id);
            let (found, uses) = (admitted.len(), self.uses.get(&ticket).copied().unwrap_or(0));
            let within = u32::try_from(found).is_ok_and(|found| found <= uses);
            holds("a ticket admits at most its uses", within, || format!("{ticket}: {found} of {uses}"))?;
        }
        self.machines.insert(id, machine);
        Ok(())
    }

    /// Checks what was granted, at the moment when it was committed.
    ///
    /// # Errors
    /// [`Breach`] names the law.
    pub fn granted(&self, granted: Grant) -> Result<(), Breach> {
        let Grant::ClusterKey { machine, disk, generation, next } = granted else { return Ok(()) };
        let known = self.machines.get(&machine);
        let law = "no key release to who is removed, none for another's disk";
        let fits = known.is_some_and(|known| {
            known.belongs()
                && known.disk == disk
                && [Some(generation), next].into_iter().flatten().all(|it| known.generations.include(it))
        });
        holds(law, fits, || format!("{machine}, {disk}, generation {generation}"))
    }

    /// Checks etcd's members after they changed.
    ///
    /// # Errors
    /// [`Breach`] names the law.
    pub fn members(&self, members: &Members) -> Result<(), Breach> {
        let (voters, live) = (members.voters.len(), members.live());
        holds("membership change never loses quorum", live >= quorum(voters), || format!("{live} of {voters} live"))?;
        self.voters(members)
    }

    /// Checks who votes, after that has changed or another epoch has come to stand.
    ///
    /// # Errors
    /// [`Breach`] names the law.
    pub fn voters(&self, members: &Members) -> Result<(), Breach> {
        let Some(epoch) = self.standing() else { return Ok(()) };
        let stranger = members.voters.keys().find(|voter| !epoch.holders().contains(*voter));
        holds("whoever votes holds a share of the epoch that stands", stranger.is_none(), || {
            format!("{:?} votes, and epoch {} is of {:?}", stranger, epoch.number(), epoch.holders())
        })
    }
}
