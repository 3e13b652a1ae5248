//! Volumes of claims: a claim whose pod the scheduler has placed gets a volume on that pod's machine, a larger claim a larger one, and
//! a claim that ended loses it. What each machine has room for is told to the scheduler (`CSIStorageCapacity`).
//!
//! ```text
//!   claim, node selected ──► create on its machine ──► PersistentVolume, bound to the claim by Kubernetes
//!                              └ no room: an event, and the scheduler selects again
//!   claim larger ──────────► expand ──► size of PersistentVolume ──► size of claim
//!   claim gone, Released ──► delete on its machine ──► PersistentVolume without our finalizer ──► deleted
//!   machine removed ──► an event of the claim ──► PersistentVolume deleted, claim Lost
//! ```
//! A `PersistentVolume` counts as ours when it is named as we name it, after the claim that it was made for: a handle that somebody
//! wrote by hand leads to no call. Which claims are ours to provision is Kubernetes' word (`storage-provisioner`), as for every
//! provisioner (`external-provisioner`, `shouldProvision`).

mod leaving;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::volumes::{VolumeHolder, VolumeId};
use kubeapi::{ApiWrite, Collection, Objects};
use model::{MachineId, NodeName};

pub use self::leaving::{MachineHoldsVolumes, may_leave};
pub use self::objects::{PersistentVolume, StorageCapacity, VolumeClaim};
use self::objects::{Phase, Reclaim};
use crate::Workers;

/// All claims.
pub const CLAIMS: Collection = Collection { path: "/api/v1/persistentvolumeclaims", metadata_only: false };
/// All volumes.
pub const VOLUMES: Collection = Collection { path: "/api/v1/persistentvolumes", metadata_only: false };
/// Room that the scheduler knows of.
pub const CAPACITIES: Collection =
    Collection { path: "/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities", metadata_only: false };

/// Pause before a machine that did not answer is asked again.
const SILENT: Duration = Duration::from_secs(10);
/// Pause before a call that was refused, or a word to people, is repeated.
const AGAIN: Duration = Duration::from_secs(30);
/// Pause after a write for an object, until its watch has told of it.
const WRITTEN: Duration = Duration::from_secs(2);
/// Steps that a look leads to: after them others have their turn.
const MOST_STEPS: usize = 32;
/// Time between two looks at the room that a machine has: what is promised changes by our calls alone, so a look is a cross-check.
const LOOK: Duration = Duration::from_secs(120);

/// Claims, by namespace and name, whose volumes are on machines' own disks.
pub type HeldClaims = BTreeSet<(String, String)>;

/// Claims that these volumes are of, as far as they are on machines' own disks.
#[must_use]
pub fn held_claims(volumes: &Objects<PersistentVolume>) -> HeldClaims {
    volumes.values().filter_map(PersistentVolume::held_claim).collect()
}

/// Holder of each volume that claims, or objects of volumes, name; a volume that is not among them is nobody's.
#[must_use]
pub fn holders(claims: &Objects<VolumeClaim>, volumes: &Objects<PersistentVolume>) -> BTreeMap<VolumeId, VolumeHolder> {
    let objects = volumes.values().filter_map(PersistentVolume::named);
    let objects = objects.map(|(volume, name)| (volume, VolumeHolder::Object(name)));
    // A claim's word counts, whatever objects name its volume.
    objects.chain(claims.values().filter_map(VolumeClaim::holder)).collect()
}

/// Machines that the records say are removed, each with the name that it had.
pub type RemovedMachines = BTreeMap<MachineId, NodeName>;

/// Objects, and the machines of the records, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct VolumeWorld<'a> {
    /// Claims of all namespaces.
    pub claims: &'a Objects<VolumeClaim>,
    /// Volumes of all drivers.
    pub volumes: &'a Objects<PersistentVolume>,
    /// Room that has been told.
    pub capacities: &'a Objects<StorageCapacity>,
    /// Machines that run pods.
    pub workers: &'a Workers,
    /// Machines that were removed, by a record that says so: one without a record is silent, and keeps what it has.
    pub removed: &'a RemovedMachines,
}

/// UpkeepTime, by both clocks: pauses go by the one that never jumps.
#[derive(Debug, Clone, Copy)]
pub struct UpkeepTime {
    /// Time since the machine started.
    pub uptime: Duration,
    /// Time since 1970, for people.
    pub unix: Duration,
}

/// Step that a look leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeEffect {
    /// Write this to the Kubernetes API.
    Write(ApiWrite),
    /// Write this warning to the Kubernetes API.
    Warn(ApiWrite),
    /// Make this call to a machine, and give its answer to [`VolumeKeeper::answered`].
    Call(VolumeCall),
}

/// Call to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeCall {
    /// Machine that is called.
    pub machine: MachineId,
    /// Request to the machine.
    pub ask: VolumeAsk,
    /// Object that the call is made for; none for a look, or where a person asked.
    subject: Option<Subject>,
}

impl VolumeCall {
    /// Call that a person asked for: no object changes by its answer.
    #[must_use]
    pub const fn by_hand(machine: MachineId, ask: VolumeAsk) -> Self {
        Self { machine, ask, subject: None }
    }
}

/// Request to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeAsk {
    /// Have there be a volume of at least so many bytes.
    Create(VolumeId, u64),
    /// Make a volume as large as that, unless it is.
    Expand(VolumeId, u64),
    /// Delete a volume, if it is there.
    Delete(VolumeId),
    /// Tell how many bytes may still be promised.
    Look,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Claim(Box<VolumeClaim>),
    Volume(Box<PersistentVolume>, Option<Box<VolumeClaim>>),
}

/// Answer of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeAnswer {
    /// The call was done, or had been done before.
    Done,
    /// So many bytes may still be promised.
    Room(u64),
    /// There is no room for it.
    Full(String),
    /// The machine does not do that now, for this reason.
    Refused(String),
    /// The machine did not answer.
    Silent,
}

/// Keeper of all volumes of a cluster.
#[derive(Debug, Default)]
pub struct VolumeKeeper {
    /// When machines that did not answer are asked again, by uptime.
    silent: BTreeMap<MachineId, Duration>,
    /// When objects are looked at again, by their uid.
    later: BTreeMap<String, Duration>,
    /// Room of each machine, and when it was asked for.
    rooms: BTreeMap<MachineId, (u64, Duration)>,
    /// Uid of the object that had its turn last.
    last: String,
    /// Whether more is due than the last look led to.
    again: bool,
}

impl VolumeKeeper {
    /// Steps that are due: one call to each machine at most, and [`MOST_STEPS`] for objects in all. Those that are left out come first
    /// at the next look, so nobody's claims keep another's waiting.
    #[must_use]
    pub fn due(&mut self, world: VolumeWorld<'_>, now: UpkeepTime) -> Vec<VolumeEffect> {
        let waits = |at: &Duration| *at > now.uptime;
        self.silent.retain(|_, at| waits(at));
        self.later.retain(|_, at| waits(at));
        let machines: BTreeSet<MachineId> = world.workers.values().map(|worker| worker.machine).collect();
        self.rooms.retain(|machine, _| machines.contains(machine));
        self.again = false;
        let mut steps: Vec<_> = self.capacities(world).map(VolumeEffect::Write).collect();
        let mut called = BTreeSet::new();
        // First: the scheduler places claims by what it is told.
        for machine in machines.into_iter().filter(|machine| !self.silent.contains_key(machine)) {
            let known = self.rooms.get(&machine).is_some_and(|(_, asked)| now.uptime < *asked + LOOK);
            if !known && called.insert(machine) {
                steps.push(VolumeEffect::Call(VolumeCall { machine, ask: VolumeAsk::Look, subject: None }));
            }
        }
        let most = steps.len() + MOST_STEPS;
        for (uid, step) in self.objects(world, now) {
            if steps.len() >= most {
                self.again = true;
                break;
            }
            match &step {
                VolumeEffect::Call(call) if self.silent.contains_key(&call.machine) => continue,
                VolumeEffect::Call(call) if !called.insert(call.machine) => {
                    self.again = true;
                    continue;
                }
                VolumeEffect::Call(_) => {}
                VolumeEffect::Write(_) => drop(self.later.insert(uid.clone(), now.uptime + WRITTEN)),
                VolumeEffect::Warn(_) => drop(self.later.insert(uid.clone(), now.uptime + AGAIN)),
            }
            self.last = uid;
            steps.push(step);
        }
        steps
    }

    /// Steps of objects, each with its object's uid, from behind the last one that had its turn.
    fn objects(&self, world: VolumeWorld<'_>, now: UpkeepTime) -> Vec<(String, VolumeEffect)> {
        let waits = |uid: &String| self.later.contains_key(uid);
        let mut steps = Vec::new();
        for claim in world.claims.values().filter(|claim| !waits(&claim.metadata.uid)) {
            steps.extend(provision(claim, world, now).map(|step| (claim.metadata.uid.clone(), step)));
        }
        for volume in world.volumes.values().filter(|volume| !waits(&volume.metadata.uid)) {
            steps.extend(keep(volume, world, now).into_iter().map(|step| (volume.metadata.uid.clone(), step)));
        }
        steps.sort_by(|(one, _), (other, _)| one.cmp(other));
        let had = steps.partition_point(|(uid, _)| *uid <= self.last);
        steps.rotate_left(had);
        steps
    }

    /// Time of the next look without news, by uptime.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let at_once = self.again.then_some(Duration::ZERO);
        let looks = self.rooms.values().map(|(_, asked)| *asked + LOOK);
        self.silent.values().chain(self.later.values()).copied().chain(looks).chain(at_once).min()
    }

    /// Takes the answer to a call; what is to be written then.
    pub fn answered(&mut self, call: &VolumeCall, answer: VolumeAnswer, now: UpkeepTime) -> Vec<ApiWrite> {
        let VolumeCall { machine, ask, subject } = call;
        match (answer, ask, subject) {
            (VolumeAnswer::Room(bytes), ..) => {
                // The scheduler is to hear of it.
                self.again = true;
                self.rooms.insert(*machine, (bytes, now.uptime));
                Vec::new()
            }
            (VolumeAnswer::Silent, ..) => {
                self.silent.insert(*machine, now.uptime + SILENT);
                Vec::new()
            }
            (VolumeAnswer::Done, VolumeAsk::Create(..), Some(Subject::Claim(claim))) => {
                self.rooms.remove(machine);
                vec![objects::volume_of(claim, *machine)]
            }
            (VolumeAnswer::Done, VolumeAsk::Expand(..), Some(Subject::Volume(volume, Some(claim)))) => {
                self.rooms.remove(machine);
                vec![objects::larger(volume, claim)]
            }
            (VolumeAnswer::Done, VolumeAsk::Delete(_), Some(Subject::Volume(volume, _))) => {
                self.rooms.remove(machine);
                gone(volume)
            }
            (
                VolumeAnswer::Full(why) | VolumeAnswer::Refused(why),
                VolumeAsk::Create(..),
                Some(Subject::Claim(claim)),
            ) => {
                // The scheduler selects again, by the room of now.
                self.rooms.remove(machine);
                self.later.insert(claim.metadata.uid.clone(), now.uptime + SILENT);
                let text = format!("the selected machine takes no volume: {why}");
                vec![objects::event(claim, "ProvisioningFailed", &text, now.unix), objects::unselected(claim)]
            }
            (
                VolumeAnswer::Full(why) | VolumeAnswer::Refused(why),
                VolumeAsk::Expand(..),
                Some(Subject::Volume(volume, Some(claim))),
            ) => {
                self.later.insert(volume.metadata.uid.clone(), now.uptime + AGAIN);
                vec![objects::event(claim, "VolumeResizeFailed", &why, now.unix)]
            }
            (VolumeAnswer::Full(_) | VolumeAnswer::Refused(_), _, Some(Subject::Volume(volume, _))) => {
                self.later.insert(volume.metadata.uid.clone(), now.uptime + SILENT);
                Vec::new()
            }
            // An answer to another question says nothing; the machine is asked again.
            (VolumeAnswer::Done | VolumeAnswer::Full(_) | VolumeAnswer::Refused(_), ..) => {
                self.silent.insert(*machine, now.uptime + SILENT);
                Vec::new()
            }
        }
    }

    /// Writes by which the scheduler knows the room of each machine, and of no other.
    fn capacities<'a>(&'a self, world: VolumeWorld<'a>) -> impl Iterator<Item = ApiWrite> + 'a {
        let told = |machine: &MachineId| world.capacities.values().find(|told| told.machine() == Some(*machine));
        let news = self.rooms.iter().filter_map(move |(machine, (bytes, _))| match told(machine) {
            Some(told) if told.bytes() == Some(*bytes) => None,
            Some(told) => Some(objects::capacity_changed(told, *bytes)),
            None => Some(objects::capacity(*machine, *bytes)),
        });
        let works = |machine: MachineId| world.workers.values().any(|worker| worker.machine == machine);
        let gone = world.capacities.values().filter(move |told| told.machine().is_some_and(|machine| !works(machine)));
        news.chain(gone.map(objects::capacity_deleted))
    }
}

/// Step of a claim that has no volume.
fn provision(claim: &VolumeClaim, world: VolumeWorld<'_>, now: UpkeepTime) -> Option<VolumeEffect> {
    let wanted = claim.wanted()?;
    let name = (String::new(), objects::volume_name(wanted.volume));
    if world.volumes.contains_key(&name) {
        // Kubernetes binds it.
        return None;
    }
    let refused =
        |reason: &str| Some(VolumeEffect::Warn(objects::event(claim, "ProvisioningFailed", reason, now.unix)));
    if let Some(reason) = claim.unsupported() {
        return refused(reason);
    }
    let Some(bytes) = claim.requested() else { return refused("the size that is requested cannot be read") };
    let worker = NodeName::stored(wanted.node).ok().and_then(|node| world.workers.get(&node));
    match worker {
        Some(worker) => Some(VolumeEffect::Call(VolumeCall {
            machine: worker.machine,
            ask: VolumeAsk::Create(wanted.volume, bytes),
            subject: Some(Subject::Claim(Box::new(claim.clone()))),
        })),
        // The machine has gone since.
        None => Some(VolumeEffect::Write(objects::unselected(claim))),
    }
}

/// Step of a volume that is there.
fn keep(volume: &PersistentVolume, world: VolumeWorld<'_>, now: UpkeepTime) -> Vec<VolumeEffect> {
    let Some(ours) = volume.ours() else { return Vec::new() };
    let writes = |writes: Vec<ApiWrite>| writes.into_iter().map(VolumeEffect::Write).collect();
    let call = |ask, claim: Option<&VolumeClaim>| {
        let subject = Subject::Volume(Box::new(volume.clone()), claim.map(|claim| Box::new(claim.clone())));
        vec![VolumeEffect::Call(VolumeCall { machine: ours.machine, ask, subject: Some(subject) })]
    };
    let claim = volume.claim_of(world.claims);
    let removed = world.removed.get(&ours.machine);
    match (volume.phase(), claim) {
        // Its claim is there whatever the phase says: the phase is written later than the claim.
        (Phase::Bound, Some(claim)) if let Some(name) = removed => lost(volume, claim, (ours.machine, name), now),
        (Phase::Bound, Some(claim)) => match (claim.requested(), volume.bytes(), claim.capacity()) {
            (Some(wanted), Some(has), _) if wanted > has => call(VolumeAsk::Expand(ours.volume, wanted), Some(claim)),
            (_, Some(has), Some(told)) if has > told => writes(vec![objects::claim_capacity(claim, volume)]),
            _ => Vec::new(),
        },
        (Phase::Released, None) if volume.reclaim() == Reclaim::Delete => {
            if removed.is_some() {
                writes(gone(volume))
            } else {
                call(VolumeAsk::Delete(ours.volume), None)
            }
        }
        // Its owner keeps the data, and deletes the object.
        (Phase::Released, None) if volume.metadata.is_deleted() => {
            writes(objects::unfinalized(volume).into_iter().collect())
        }
        (Phase::Bound | Phase::Released | Phase::Other, _) => Vec::new(),
    }
}

/// Steps by which the object of a volume goes whose machine was removed. Its claim is told before, and stays: people end it.
fn lost(
    volume: &PersistentVolume,
    claim: &VolumeClaim,
    (machine, name): (MachineId, &NodeName),
    now: UpkeepTime,
) -> Vec<VolumeEffect> {
    let text = format!(
        "the data of this claim was on machine `{name}` ({machine}), which was removed from the cluster: it is gone; delete the claim \
         to begin with an empty volume"
    );
    let told = VolumeEffect::Warn(objects::event(claim, "VolumeLost", &text, now.unix));
    let goes = if volume.metadata.is_deleted() { objects::abandoned(volume) } else { Some(objects::deleted(volume)) };
    [told].into_iter().chain(goes.map(VolumeEffect::Write)).collect()
}

/// Writes by which a volume's object goes, once nothing is left of its data.
fn gone(volume: &PersistentVolume) -> Vec<ApiWrite> {
    objects::unfinalized(volume).into_iter().chain([objects::deleted(volume)]).collect()
}

#[cfg(test)]
mod tests;
