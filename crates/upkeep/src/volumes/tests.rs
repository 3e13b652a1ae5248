//! Volumes of a cluster in virtual time: claims that come, grow and go, machines that fall silent, fill up and are removed, and a
//! Kubernetes that does what its controllers do with claims and volumes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Worker;

mod removal;

const MACHINES: u8 = 3;
const GIB: u64 = 1 << 30;
/// Room of each machine.
const ROOM: u64 = 10 * GIB;

const PROTECTION: &str = "kubernetes.io/pv-protection";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

fn machine(n: u8) -> MachineId {
    MachineId([n; 16])
}

fn name(n: u8) -> NodeName {
    NodeName::chosen(&format!("m{n}")).expect("a name")
}

fn uuid(n: u8) -> VolumeId {
    VolumeId::parse(&model::Uuid([n; 16]).to_string()).expect("a UUID")
}

/// Disk of a machine, as its half of the driver keeps it.
#[derive(Debug, Default)]
struct Disk {
    volumes: BTreeMap<VolumeId, u64>,
    silent: bool,
    /// Whether the next call is done and its answer lost.
    loses_answer: bool,
}

impl Disk {
    fn free(&self) -> u64 {
        ROOM - self.volumes.values().sum::<u64>()
    }

    fn call(&mut self, ask: VolumeAsk) -> VolumeAnswer {
        if self.silent {
            return VolumeAnswer::Silent;
        }
        let answer = match ask {
            VolumeAsk::Look => VolumeAnswer::Room(self.free()),
            VolumeAsk::Create(volume, bytes) | VolumeAsk::Expand(volume, bytes) => {
                let has = self.volumes.get(&volume).copied().unwrap_or_default();
                if bytes.saturating_sub(has) > self.free() {
                    VolumeAnswer::Full(String::from("the disk has no room for it"))
                } else {
                    self.volumes.insert(volume, has.max(bytes));
                    VolumeAnswer::Done
                }
            }
            VolumeAsk::Delete(volume) => {
                self.volumes.remove(&volume);
                VolumeAnswer::Done
            }
        };
        if std::mem::take(&mut self.loses_answer) { VolumeAnswer::Silent } else { answer }
    }
}

/// Kubernetes, and the machines of its cluster.
#[derive(Debug)]
struct World {
    now: Duration,
    /// Objects by path and name.
    objects: BTreeMap<(String, String), Value>,
    disks: BTreeMap<MachineId, Disk>,
    /// Machines that are listed as workers, by name.
    workers: BTreeMap<NodeName, MachineId>,
    /// Machines whose records say that they were removed.
    removed: RemovedMachines,
    keeper: VolumeKeeper,
    /// Calls to machines so far.
    calls: usize,
    /// When machines did not answer last.
    silent: BTreeMap<MachineId, Duration>,
    /// Claims that there have been.
    claimed: u8,
    /// How many writes to Kubernetes come before one that is lost.
    loses_write: Option<u8>,
    /// Deletions of volumes that were asked for while their claims were there.
    wronged: Vec<VolumeId>,
    /// Objects that went while their claims were there, and not as those of a removed machine whose claims were told.
    unnamed: Vec<String>,
    /// Volumes whose claims ended before anybody could write down that they are there: people delete them.
    orphans: BTreeSet<VolumeId>,
    /// The same where their machines took no pods any more: their claims may get others elsewhere.
    left: BTreeSet<(MachineId, VolumeId)>,
}

impl World {
    fn new() -> Self {
        Self {
            now: Duration::from_secs(1),
            objects: BTreeMap::new(),
            disks: (1..=MACHINES).map(|n| (machine(n), Disk::default())).collect(),
            workers: (1..=MACHINES).map(|n| (name(n), machine(n))).collect(),
            removed: RemovedMachines::new(),
            keeper: VolumeKeeper::default(),
            calls: 0,
            silent: BTreeMap::new(),
            claimed: 0,
            loses_write: None,
            wronged: Vec::new(),
            unnamed: Vec::new(),
            orphans: BTreeSet::new(),
            left: BTreeSet::new(),
        }
    }

    fn of<T: kubeapi::Resource>(&self, path: &str) -> Objects<T> {
        let there = self.objects.iter().filter(|((of, _), _)| of == path);
        there
            .map(|(_, object)| {
                let object: T = serde_json::from_value(object.clone()).expect("an object of the kind");
                ((object.meta().namespace.clone(), object.meta().name.clone()), object)
            })
            .collect()
    }

    fn workers(&self) -> Workers {
        let worker = |(name, machine): (&NodeName, &MachineId)| {
            let roles = [model::KubernetesRole::Worker].into();
            (name.clone(), Worker { machine: *machine, roles, addresses: [].into() })
        };
        self.workers.iter().map(worker).collect()
    }

    /// Takes a machine out of the records.
    fn remove(&mut self, gone: MachineId) {
        let name = name(gone.0[0]);
        self.workers.retain(|_, machine| *machine != gone);
        self.removed.insert(gone, name);
    }

    /// Claim whose uid no other one ever had: the first is 1.
    fn claim(&mut self, n: u8, bytes: u64) {
        self.claimed += 1;
        let (name, uid) = (format!("claim{n}"), uuid(self.claimed).to_string());
        let annotations = json!({ "volume.kubernetes.io/storage-provisioner": "local.cairn.internal" });
        let claim = json!({
            "metadata": { "name": name, "namespace": "shop", "uid": uid, "annotations": annotations },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "resources": { "requests": { "storage": bytes.to_string() } },
            },
        });
        self.objects.entry((CLAIMS.path.to_owned(), name)).or_insert(claim);
    }

    /// Does what the scheduler and Kubernetes' own controllers do.
    fn controllers(&mut self) {
        let rooms = self.of::<StorageCapacity>(CAPACITIES.path);
        let volumes: Vec<PersistentVolume> = self.of(VOLUMES.path).into_values().collect();
        let workers = self.workers.clone();
        let claims = self.objects.iter_mut().filter(|((path, _), _)| path == CLAIMS.path);
        let mut uids = BTreeSet::new();
        for (_, claim) in claims {
            uids.insert(claim["metadata"]["uid"].as_str().expect("a uid").to_owned());
            // Kubernetes binds a volume a while after it is there.
            let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
            let of = volumes.iter().find(|volume| volume.metadata.name == name && volume.phase() != Phase::Other);
            if let Some(volume) = of {
                claim["spec"]["volumeName"] = json!(volume.metadata.name);
                if claim["status"].is_null() {
                    claim["status"] = json!({ "capacity": { "storage": volume.bytes().expect("a size").to_string() } });
                }
                continue;
            }
            let asks = kubeapi::quantity(claim["spec"]["resources"]["requests"]["storage"].as_str().expect("a size"));
            let node = |told: &StorageCapacity| {
                let machine = told.machine().filter(|_| told.bytes() >= asks)?;
                workers.iter().find(|(_, worker)| **worker == machine).map(|(name, _)| name.clone())
            };
            let annotations = claim["metadata"]["annotations"].as_object_mut().expect("annotations");
            if !annotations.contains_key(SELECTED)
                && let Some(node) = rooms.values().find_map(node)
            {
                annotations.insert(SELECTED.to_owned(), json!(node.as_str()));
            }
        }
        for ((path, _), volume) in &mut self.objects {
            if path == VOLUMES.path {
                let claimed = uids.contains(volume["spec"]["claimRef"]["uid"].as_str().expect("a claim"));
                volume["status"] = json!({ "phase": if claimed { "Bound" } else { "Released" } });
                if !claimed && !volume["metadata"]["deletionTimestamp"].is_null() {
                    let finalizers = volume["metadata"]["finalizers"].as_array_mut().expect("finalizers");
                    finalizers.retain(|finalizer| finalizer != PROTECTION);
                }
            }
        }
        for name in self.names(VOLUMES.path) {
            self.collect(&(VOLUMES.path.to_owned(), name));
        }
    }

    /// Writes, unless that fails: then the keeper begins anew, as its shell does.
    fn write(&mut self, write: &ApiWrite) -> bool {
        self.loses_write = match self.loses_write {
            Some(0) => {
                self.loses_write = None;
                self.restart();
                return false;
            }
            before => before.map(|writes| writes - 1),
        };
        let (collection, name) = write.path().trim_end_matches("/status").rsplit_once('/').expect("a path");
        // Claims are listed over all namespaces, and written in theirs.
        let collection = if collection.contains("persistentvolumeclaims") { CLAIMS.path } else { collection };
        let key = (collection.to_owned(), name.to_owned());
        match write {
            ApiWrite::Create { path, body } => {
                let mut body: Value = serde_json::from_str(body).expect("an object");
                let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
                body["metadata"]["uid"] = json!(format!("uid of {name}"));
                if path == VOLUMES.path {
                    body["metadata"]["finalizers"].as_array_mut().expect("ours").push(json!(PROTECTION));
                }
                self.objects.entry((path.clone(), name)).or_insert(body);
            }
            ApiWrite::Merge { patch, .. } => {
                let mut patch: Value = serde_json::from_str(patch).expect("a patch");
                if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                }
                if let Some(object) = self.objects.get_mut(&key) {
                    merge(object, &patch);
                }
                self.collect(&key);
            }
            ApiWrite::Delete { .. } => {
                if let Some(object) = self.objects.get_mut(&key) {
                    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                self.collect(&key);
            }
        }
        true
    }

    /// Forgets what the keeper had in memory.
    fn restart(&mut self) {
        self.keeper = VolumeKeeper::default();
        self.silent.clear();
    }

    /// An object that is deleted goes with its last finalizer.
    fn collect(&mut self, key: &(String, String)) {
        let goes = self.objects.get(key).is_some_and(|object| {
            let waits = object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
            !object["metadata"]["deletionTimestamp"].is_null() && !waits
        });
        if !goes {
            return;
        }
        let object = self.objects.remove(key).expect("it is there");
        if key.0 != VOLUMES.path {
            return;
        }
        let uid = &object["spec"]["claimRef"]["uid"];
        let of = |path: &str, field: &str| {
            let mut all = self.objects.iter().filter(|((of, _), _)| of.ends_with(path));
            all.any(|(_, object)| object.pointer(field) == Some(uid))
        };
        let machine = serde_json::from_value::<PersistentVolume>(object.clone()).expect("a volume").machine();
        let removed = machine.is_some_and(|machine| self.removed.contains_key(&machine));
        if of(CLAIMS.path, "/metadata/uid") && !(removed && of("/events", "/involvedObject/uid")) {
            self.unnamed.push(key.1.clone());
        }
    }

    /// Looks once, with all that a look leads to.
    fn look(&mut self) {
        self.controllers();
        let (claims, volumes, capacities) = (self.of(CLAIMS.path), self.of(VOLUMES.path), self.of(CAPACITIES.path));
        let (workers, removed, now) = (self.workers(), self.removed.clone(), self.moment());
        let world = VolumeWorld {
            claims: &claims,
            volumes: &volumes,
            capacities: &capacities,
            workers: &workers,
            removed: &removed,
        };
        for step in self.keeper.due(world, now) {
            let call = match step {
                VolumeEffect::Write(write) | VolumeEffect::Warn(write) if self.write(&write) => continue,
                VolumeEffect::Write(_) | VolumeEffect::Warn(_) => return,
                VolumeEffect::Call(call) => call,
            };
            assert!(!self.removed.contains_key(&call.machine), "a machine outside of the cluster is called");
            if let VolumeAsk::Delete(volume) = call.ask
                && claims.values().any(|claim: &VolumeClaim| claim.metadata.uid == volume.to_string())
            {
                self.wronged.push(volume);
            }
            self.calls += 1;
            if let VolumeAsk::Create(volume, _) = call.ask {
                let name = (String::new(), format!("pvc-{volume}"));
                assert!(!volumes.contains_key(&name), "a volume that is there is made again");
            }
            let before = self.silent.get(&call.machine).copied().unwrap_or_default();
            assert!(
                before.is_zero() || self.now >= before + SILENT || before == self.now,
                "a silent machine is asked again and again"
            );
            let answer = self.disks.get_mut(&call.machine).expect("a machine").call(call.ask);
            if answer == VolumeAnswer::Silent {
                self.silent.insert(call.machine, self.now);
            }
            for write in self.keeper.answered(&call, answer, now) {
                if !self.write(&write) {
                    return;
                }
            }
        }
    }

    const fn moment(&self) -> UpkeepTime {
        UpkeepTime { uptime: self.now, unix: self.now }
    }

    /// Looks until nothing is due for a while.
    fn settle(&mut self) {
        for _ in 0..60 {
            self.look();
            self.now += Duration::from_secs(11);
        }
    }

    fn names(&self, path: &str) -> BTreeSet<String> {
        self.objects.keys().filter(|(of, _)| of == path).map(|(_, name)| name.clone()).collect()
    }

    fn events(&self) -> Vec<String> {
        let events = self.objects.iter().filter(|((path, _), _)| path.ends_with("/events"));
        events.map(|(_, event)| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn on_disks(&self) -> BTreeMap<VolumeId, u64> {
        self.disks.values().flat_map(|disk| disk.volumes.clone()).collect()
    }
}

/// Merges a patch into an object (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("made one").remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

#[derive(Debug, Clone)]
enum Deed {
    Claim(u8, u64),
    Grow(u8, u64),
    End(u8),
    Silent(u8, bool),
    LoseAnswer(u8),
    /// The write behind so many is lost.
    LoseWrite(u8),
    /// Another control plane takes over: what the keeper had in memory is gone.
    Restart,
    /// A machine is listed no more, though no record says that it was removed; or again.
    List(u8, bool),
    Remove(u8),
    Look(u64),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (1_u8..6, 1_u64..5).prop_map(|(n, gib)| Deed::Claim(n, gib * GIB)),
        2 => (1_u8..6, 1_u64..7).prop_map(|(n, gib)| Deed::Grow(n, gib * GIB)),
        2 => (1_u8..6).prop_map(Deed::End),
        1 => (1..=MACHINES, any::<bool>()).prop_map(|(n, silent)| Deed::Silent(n, silent)),
        1 => (1..=MACHINES).prop_map(Deed::LoseAnswer),
        1 => (0_u8..4).prop_map(Deed::LoseWrite),
        1 => Just(Deed::Restart),
        1 => (1..=MACHINES, any::<bool>()).prop_map(|(n, listed)| Deed::List(n, listed)),
        1 => (1..=MACHINES).prop_map(Deed::Remove),
        6 => (1_u64..40).prop_map(Deed::Look),
    ];
    proptest::collection::vec(deed, 0..60)
}

fn perform(world: &mut World, deed: &Deed) {
    let claim = |n: u8| (CLAIMS.path.to_owned(), format!("claim{n}"));
    match *deed {
        Deed::Claim(n, bytes) if !world.objects.contains_key(&claim(n)) => world.claim(n, bytes),
        Deed::Claim(..) => {}
        Deed::Grow(n, bytes) => {
            // The apiserver lets no other claim grow.
            if let Some(claim) =
                world.objects.get_mut(&claim(n)).filter(|claim| claim["spec"].get("volumeName").is_some())
            {
                let size = &mut claim["spec"]["resources"]["requests"]["storage"];
                let has = kubeapi::quantity(size.as_str().expect("a size")).expect("a size");
                *size = json!(has.max(bytes).to_string());
            }
        }
        Deed::End(n) => {
            let Some(claim) = world.objects.remove(&claim(n)) else { return };
            let volume = VolumeId::parse(claim["metadata"]["uid"].as_str().expect("a uid")).expect("a UUID");
            let described = world.names(VOLUMES.path).contains(&format!("pvc-{volume}"));
            if !described && world.on_disks().contains_key(&volume) {
                world.orphans.insert(volume);
            }
        }
        Deed::Silent(n, silent) => world.disks.get_mut(&machine(n)).expect("a machine").silent = silent,
        Deed::LoseAnswer(n) => world.disks.get_mut(&machine(n)).expect("a machine").loses_answer = true,
        Deed::LoseWrite(behind) => world.loses_write = Some(behind),
        Deed::Restart => world.restart(),
        Deed::List(n, true) if !world.removed.contains_key(&machine(n)) => {
            world.workers.insert(name(n), machine(n));
        }
        Deed::List(n, _) => {
            world.workers.remove(&name(n));
            let described = world.names(VOLUMES.path);
            let volumes = world.disks[&machine(n)].volumes.keys().copied();
            let unwritten = volumes.filter(|volume| !described.contains(&format!("pvc-{volume}")));
            world.left.extend(unwritten.map(|volume| (machine(n), volume)));
        }
        Deed::Remove(n) => world.remove(machine(n)),
        Deed::Look(seconds) => {
            world.look();
            world.now += Duration::from_secs(seconds);
        }
    }
}

proptest! {
    /// Proves: S10
    #[test]
    fn claims_have_one_volume_each_and_volumes_a_claim(deeds in deeds()) {
        let mut world = World::new();
        for deed in &deeds {
            perform(&mut world, deed);
        }
        for disk in world.disks.values_mut() {
            disk.silent = false;
        }
        for n in 1..=MACHINES {
            perform(&mut world, &Deed::List(n, true));
        }
        world.settle();
        prop_assert_eq!(&world.wronged, &[]);
        prop_assert!(world.unnamed.is_empty(), "vanished: {:?}", world.unnamed);
        let removed = world.removed.clone();
        world.disks.retain(|machine, _| !removed.contains_key(machine));
        let claimed: BTreeSet<String> = world.of::<VolumeClaim>(CLAIMS.path).into_values().map(|claim| claim.metadata.uid).collect();
        let volumes = world.of::<PersistentVolume>(VOLUMES.path);
        let mut described = BTreeSet::new();
        for volume in volumes.values() {
            let ours = volume.ours().expect("ours");
            prop_assert!(claimed.contains(&ours.volume.to_string()), "nobody claims {}", ours.volume);
            prop_assert!(!removed.contains_key(&ours.machine), "{} is on a machine that was removed", ours.volume);
            let bytes = world.disks[&ours.machine].volumes.get(&ours.volume).copied();
            prop_assert!(bytes >= volume.bytes(), "{:?} {:?}", bytes, volume.bytes());
            described.insert(ours.volume);
            world.left.remove(&(ours.machine, ours.volume));
        }
        let on = world.disks.iter().flat_map(|(machine, disk)| disk.volumes.keys().map(|volume| (*machine, *volume)));
        let held: Vec<VolumeId> = on.filter(|at| !world.left.contains(at)).map(|(_, volume)| volume).collect();
        let once: BTreeSet<VolumeId> = held.iter().copied().collect();
        prop_assert_eq!(held.len(), once.len(), "a claim has two volumes");
        prop_assert_eq!(once.difference(&world.orphans).copied().collect::<BTreeSet<_>>(), described);
    }
}

#[test]
fn a_claim_gets_a_volume_where_its_pod_goes() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    assert_eq!(world.names(VOLUMES.path), [format!("pvc-{}", uuid(1))].into());
    assert_eq!(world.on_disks(), [(uuid(1), GIB)].into());
    let room: Vec<_> = world.of::<StorageCapacity>(CAPACITIES.path).values().map(StorageCapacity::bytes).collect();
    assert_eq!(room, [Some(9 * GIB), Some(10 * GIB), Some(10 * GIB)], "the scheduler knows the room of now");
    let claim = ("shop".to_owned(), "claim1".to_owned());
    assert_eq!(held_claims(&world.of(VOLUMES.path)), [claim].into(), "a drain knows");
    perform(&mut world, &Deed::Grow(1, 2 * GIB));
    world.settle();
    assert_eq!(world.on_disks(), [(uuid(1), 2 * GIB)].into());
    let claims = world.of::<VolumeClaim>(CLAIMS.path);
    assert_eq!(claims.values().next().and_then(VolumeClaim::capacity), Some(2 * GIB), "its user sees it");
    perform(&mut world, &Deed::End(1));
    world.settle();
    assert_eq!((world.names(VOLUMES.path), world.on_disks()), (BTreeSet::new(), BTreeMap::new()));
}

/// Claims that no machine has room for are nobody's, and wait. Proves: S10
#[test]
fn what_does_not_fit_is_promised_nowhere() {
    let mut world = World::new();
    for n in 1..=4 {
        world.claim(n, 6 * GIB);
    }
    world.settle();
    assert_eq!(world.on_disks().len(), 3);
    perform(&mut world, &Deed::Grow(1, 20 * GIB));
    world.settle();
    assert!(world.disks.values().all(|disk| disk.volumes.values().sum::<u64>() <= ROOM));
    assert!(world.events().iter().any(|event| event == "the disk has no room for it"), "of the one that grew");
    perform(&mut world, &Deed::End(2));
    world.settle();
    assert_eq!(world.on_disks().len(), 3, "the fourth has its room now");
}

#[test]
fn a_claim_for_what_the_class_does_not_have_is_told_why() {
    for (field, value, word) in [
        ("accessModes", json!(["ReadWriteMany"]), "ReadWriteOnce"),
        ("volumeMode", json!("Block"), "Filesystem"),
        ("dataSource", json!({ "kind": "VolumeSnapshot" }), "dataSource"),
    ] {
        let mut world = World::new();
        world.claim(1, GIB);
        world.objects.get_mut(&(CLAIMS.path.to_owned(), "claim1".to_owned())).expect("a claim")["spec"][field] = value;
        world.settle();
        assert!(world.on_disks().is_empty());
        let events = world.events();
        assert!(events.len() == 1 && events[0].contains(word), "{events:?}");
    }
}

/// A person who may write volumes by hand may not have another's deleted by them. Proves: S10
#[test]
fn a_volume_written_by_hand_leads_to_no_call() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    let mut volume = world.objects[&(VOLUMES.path.to_owned(), format!("pvc-{}", uuid(1)))].clone();
    let letters = uuid(0xab).to_string();
    volume["metadata"]["name"] = json!(format!("pvc-{letters}"));
    volume["spec"]["csi"]["volumeHandle"] = json!(letters);
    volume["spec"]["claimRef"]["uid"] = json!(letters);
    let ours =
        |volume: &Value| serde_json::from_value::<PersistentVolume>(volume.clone()).expect("a volume").ours().is_some();
    assert!(ours(&volume));
    let set = |places: &[&str], value: &str| {
        let mut volume = volume.clone();
        for place in places {
            *volume.pointer_mut(place).expect("it is there") = json!(value);
        }
        volume
    };
    let (handle, claim) = ("/spec/csi/volumeHandle", "/spec/claimRef/uid");
    for by_hand in [
        set(&["/metadata/name"], "by-hand"),
        set(&[claim], &uuid(1).to_string()),
        set(&[handle, claim], "../../cairn"),
        set(&[handle, claim], &letters.to_uppercase()),
        set(&["/spec/csi/driver"], "other"),
        set(&["/metadata/annotations/pv.kubernetes.io~1provisioned-by"], "other"),
        set(&["/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key"], "other"),
        set(&["/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0"], "m1"),
    ] {
        assert!(!ours(&by_hand), "{by_hand:#}");
    }
}

/// A thousand claims that nobody can meet keep no other's waiting, and a look makes one call to a machine. Proves: O2
#[test]
fn claims_without_number_keep_no_other_waiting() {
    let mut world = World::new();
    for n in 1..=200 {
        world.claim(n, 20 * GIB);
    }
    world.claim(201, GIB);
    let mut looks = 0;
    while world.on_disks().is_empty() {
        // Whoever may write claims may do the scheduler's part, too.
        for ((path, _), claim) in &mut world.objects {
            if path == CLAIMS.path {
                claim["metadata"]["annotations"][SELECTED] = json!("m1");
            }
        }
        let before = world.calls;
        world.look();
        assert!(world.calls - before <= usize::from(MACHINES), "one call to a machine");
        world.now += Duration::from_millis(100);
        looks += 1;
        assert!(looks < 1000, "its turn never comes");
    }
    assert_eq!(world.on_disks().len(), 1);
}

/// The same words again and again would be one write each second. Proves: O2
#[test]
fn a_warning_is_written_once_in_a_while() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.objects.get_mut(&(CLAIMS.path.to_owned(), "claim1".to_owned())).expect("a claim")["spec"]["volumeMode"] =
        json!("Block");
    world.settle();
    let warnings = |world: &mut World| {
        let (claims, volumes, capacities) = (world.of(CLAIMS.path), world.of(VOLUMES.path), world.of(CAPACITIES.path));
        let (workers, removed, now) = (world.workers(), world.removed.clone(), world.moment());
        let view = VolumeWorld {
            claims: &claims,
            volumes: &volumes,
            capacities: &capacities,
            workers: &workers,
            removed: &removed,
        };
        world.keeper.due(view, now).iter().filter(|effect| matches!(effect, VolumeEffect::Warn(_))).count()
    };
    world.now += AGAIN;
    assert_eq!([warnings(&mut world), warnings(&mut world)], [1, 0]);
    world.now += AGAIN;
    assert_eq!(warnings(&mut world), 1);
}

/// Proves: S10
#[test]
fn a_volume_that_is_to_be_kept_is_not_deleted() {
    let mut world = World::new();
    world.claim(1, GIB);
    world.settle();
    let key = (VOLUMES.path.to_owned(), format!("pvc-{}", uuid(1)));
    let holder = |world: &World| holders(&world.of(CLAIMS.path), &world.of(VOLUMES.path)).remove(&uuid(1));
    let claim = VolumeHolder::Claim { namespace: String::from("shop"), name: String::from("claim1") };
    assert_eq!(holder(&world), Some(claim), "the claim's word counts before the object's");
    let volume = world.objects.get_mut(&key).expect("a volume");
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    perform(&mut world, &Deed::End(1));
    world.settle();
    assert_eq!((world.names(VOLUMES.path).len(), world.on_disks().len()), (1, 1));
    assert_eq!(holder(&world), Some(VolumeHolder::Object(key.1.clone())));
    world.write(&ApiWrite::Delete { path: format!("{}/{}", key.0, key.1), options: String::new() });
    world.settle();
    assert_eq!((world.names(VOLUMES.path).len(), world.on_disks().len()), (0, 1), "the data stays for people");
    assert_eq!(holder(&world), None, "who may have it deleted now");
}
