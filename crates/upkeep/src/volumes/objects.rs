//! Objects of Kubernetes by which volumes are claimed, described and told of: fields that are read, and bodies that are written.

use std::collections::BTreeMap;
use std::time::Duration;

use ::volumes::{DRIVER, VolumeHolder, VolumeId};
use kubeapi::{ApiWrite, ObjectMeta, Objects, Resource, quantity};
use model::MachineId;
use serde::Deserialize;
use serde_json::{Value, json};
use services::storage::CLASS;

use crate::event::ObjectWarning;
use crate::nodes::PLACE_LABEL;

/// Annotations by which Kubernetes says who is to provision a claim (`pkg/controller/volume/persistentvolume`).
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Annotation by which the scheduler says where the claim's pod goes.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation by which Kubernetes knows who deletes a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Finalizer of a volume's object, which goes after the volume.
const FINALIZER: &str = "local.cairn.internal/volume";
/// Finalizer by which Kubernetes keeps the object of a volume while a claim is bound to it (`pkg/controller/volume/pvprotection`).
const PROTECTION: &str = "kubernetes.io/pv-protection";

/// Claim of a namespace to a volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeClaim {
    pub(super) metadata: ObjectMeta,
    spec: ClaimSpec,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    #[serde(default)]
    access_modes: Vec<String>,
    #[serde(default)]
    resources: Requests,
    storage_class_name: Option<String>,
    #[serde(default)]
    volume_name: String,
    volume_mode: Option<String>,
    #[serde(default)]
    data_source: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Requests {
    #[serde(default)]
    requests: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct ClaimStatus {
    #[serde(default)]
    capacity: BTreeMap<String, String>,
}

/// Volume and place that a claim without a volume wants.
pub(super) struct Wanted<'a> {
    pub(super) volume: VolumeId,
    pub(super) node: &'a str,
}

impl Resource for VolumeClaim {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl VolumeClaim {
    /// Volume that the claim wants of us, once its pod has a place.
    pub(super) fn wanted(&self) -> Option<Wanted<'_>> {
        let annotation = |name| self.metadata.annotations.get(name).map(String::as_str);
        let waits = self.spec.volume_name.is_empty() && !self.metadata.is_deleted();
        let ours = annotation(PROVISIONER) == Some(DRIVER);
        let node = annotation(SELECTED_NODE).filter(|_| waits && ours)?;
        Some(Wanted { volume: VolumeId::parse(&self.metadata.uid).ok()?, node })
    }

    /// Reason for which no volume of ours can be what the claim asks for.
    pub(super) fn unsupported(&self) -> Option<&'static str> {
        let one_machine = |mode: &String| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod");
        if self.spec.volume_mode.as_deref().is_some_and(|mode| mode != "Filesystem") {
            Some("volumes of this class are file systems, not block devices: set volumeMode to Filesystem")
        } else if self.spec.access_modes.is_empty() || !self.spec.access_modes.iter().all(one_machine) {
            Some("a volume of this class is on one machine: set accessModes to ReadWriteOnce or ReadWriteOncePod")
        } else if self.spec.data_source.is_some() {
            Some("volumes of this class begin empty: leave out dataSource")
        } else {
            None
        }
    }

    /// The volume that is, or would be, this claim's, with the claim as its holder.
    pub(super) fn holder(&self) -> Option<(VolumeId, VolumeHolder)> {
        let ObjectMeta { namespace, name, uid, .. } = &self.metadata;
        let holder = VolumeHolder::Claim { namespace: namespace.clone(), name: name.clone() };
        Some((VolumeId::parse(uid).ok()?, holder))
    }

    /// Bytes that the claim asks for.
    pub(super) fn requested(&self) -> Option<u64> {
        self.spec.resources.requests.get("storage").and_then(|text| quantity(text))
    }

    /// Bytes that the claim says it has.
    pub(super) fn capacity(&self) -> Option<u64> {
        self.status.capacity.get("storage").and_then(|text| quantity(text))
    }

    fn size(&self) -> &str {
        self.spec.resources.requests.get("storage").map_or("0", String::as_str)
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", self.metadata.namespace, self.metadata.name)
    }
}

/// Volume as Kubernetes knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PersistentVolume {
    pub(super) metadata: ObjectMeta,
    spec: VolumeSpec,
    #[serde(default)]
    status: VolumeStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    #[serde(default)]
    capacity: BTreeMap<String, String>,
    csi: Option<CsiSource>,
    #[serde(default)]
    persistent_volume_reclaim_policy: String,
    claim_ref: Option<ClaimReference>,
    #[serde(default)]
    node_affinity: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CsiSource {
    driver: String,
    volume_handle: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ClaimReference {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct VolumeStatus {
    #[serde(default)]
    phase: String,
}

/// Phase of a volume, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Claimed, and its claim is there.
    Bound,
    /// Claimed once, by a claim that is gone.
    Released,
    /// On its way to either.
    Other,
}

/// Fate of a volume whose claim is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// Deleted with its data.
    Delete,
    /// Kept, for people.
    Retain,
}

/// Volume that this driver made: which, and where it is.
pub(super) struct Ours {
    pub(super) volume: VolumeId,
    pub(super) machine: MachineId,
}

impl Resource for PersistentVolume {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl PersistentVolume {
    /// Which volume of ours it is; none where it is another driver's, or was written by hand: name, handle and claim agree in ours.
    pub(super) fn ours(&self) -> Option<Ours> {
        let (machine, csi) = (self.machine()?, self.spec.csi.as_ref()?);
        let volume = VolumeId::parse(&csi.volume_handle).ok()?;
        let claimed = self.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == csi.volume_handle);
        let named = self.metadata.name == volume_name(volume);
        let provisioned = self.metadata.annotations.get(PROVISIONED_BY).is_some_and(|by| by == DRIVER);
        (claimed && named && provisioned).then_some(Ours { volume, machine })
    }

    /// Machine that has the volume, by the object's word, where it is on a machine's own disk.
    pub(super) fn machine(&self) -> Option<MachineId> {
        self.spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
        let place = &self.spec.node_affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        place["values"][0].as_str().filter(|_| place["key"] == PLACE_LABEL)?.parse().ok()
    }

    /// Holder of the volume, by the object's word; none where it ends with its claim, which has gone.
    pub(super) fn held_by(&self) -> Option<VolumeHolder> {
        match (self.phase(), &self.spec.claim_ref) {
            (Phase::Released, _) if self.reclaim() == Reclaim::Delete => None,
            (Phase::Released, _) | (Phase::Bound | Phase::Other, None) => {
                Some(VolumeHolder::Object(self.metadata.name.clone()))
            }
            (Phase::Bound | Phase::Other, Some(ClaimReference { namespace, name, .. })) => {
                Some(VolumeHolder::Claim { namespace: namespace.clone(), name: name.clone() })
            }
        }
    }

    /// The volume of this driver that the object names, and the object's name: also of one that was written by hand.
    pub(super) fn named(&self) -> Option<(VolumeId, String)> {
        let csi = self.spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
        Some((VolumeId::parse(&csi.volume_handle).ok()?, self.metadata.name.clone()))
    }

    /// Namespace and name of the claim that has the volume, where that is on a machine's own disk.
    pub(super) fn held_claim(&self) -> Option<(String, String)> {
        let on_machine = self.spec.csi.as_ref().is_some_and(|csi| csi.driver == DRIVER);
        self.spec.claim_ref.as_ref().filter(|_| on_machine).map(|claim| (claim.namespace.clone(), claim.name.clone()))
    }

    /// The claim that the volume was made for, while it is there: another one of its name is another claim.
    pub(super) fn claim_of<'a>(&self, claims: &'a Objects<VolumeClaim>) -> Option<&'a VolumeClaim> {
        let ClaimReference { namespace, name, uid } = self.spec.claim_ref.as_ref()?;
        claims.get(&(namespace.clone(), name.clone())).filter(|claim| claim.metadata.uid == *uid)
    }

    pub(super) fn phase(&self) -> Phase {
        match self.status.phase.as_str() {
            "Bound" => Phase::Bound,
            "Released" => Phase::Released,
            // Pending, Available, Failed: nothing is to be done.
            _ => Phase::Other,
        }
    }

    pub(super) fn reclaim(&self) -> Reclaim {
        if self.spec.persistent_volume_reclaim_policy == "Delete" { Reclaim::Delete } else { Reclaim::Retain }
    }

    /// Bytes that the volume says it has.
    pub(super) fn bytes(&self) -> Option<u64> {
        quantity(self.size())
    }

    /// Size that the volume says it has, as its claim spelt it.
    pub(super) fn size(&self) -> &str {
        self.spec.capacity.get("storage").map_or("", String::as_str)
    }

    fn path(&self) -> String {
        format!("/api/v1/persistentvolumes/{}", self.metadata.name)
    }
}

/// Room of a machine, as the scheduler knows it (`CSIStorageCapacity` of `storage.k8s.io/v1`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StorageCapacity {
    metadata: ObjectMeta,
    #[serde(default)]
    capacity: String,
}

impl Resource for StorageCapacity {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl StorageCapacity {
    /// Machine whose room it is; none of an object that we have not made.
    pub(super) fn machine(&self) -> Option<MachineId> {
        self.metadata.name.strip_prefix(CAPACITY_NAME)?.parse().ok()
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        quantity(&self.capacity)
    }

    fn path(&self) -> String {
        format!("{}/{}", super::CAPACITIES.path, self.metadata.name)
    }
}

/// Beginning of the names of our capacities, before the machine's id.
const CAPACITY_NAME: &str = "cairn-local-";

/// Name of a volume's object.
pub(super) fn volume_name(volume: VolumeId) -> String {
    format!("pvc-{volume}")
}

/// Volume on `machine` for a claim, created.
pub(super) fn volume_of(claim: &VolumeClaim, machine: MachineId) -> ApiWrite {
    let ObjectMeta { namespace, name, uid, .. } = &claim.metadata;
    let place = json!({ "key": PLACE_LABEL, "operator": "In", "values": [machine.to_string()] });
    let body = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": format!("pvc-{uid}"),
            "annotations": { PROVISIONED_BY: DRIVER },
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": { "storage": claim.size() },
            "accessModes": claim.spec.access_modes,
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim.spec.storage_class_name.as_deref().unwrap_or(CLASS),
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid,
            },
            "csi": { "driver": DRIVER, "volumeHandle": uid },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [place] }] } },
        },
    });
    ApiWrite::Create { path: super::VOLUMES.path.to_owned(), body: body.to_string() }
}

/// Volume that says the size that its claim asked for.
pub(super) fn larger(volume: &PersistentVolume, claim: &VolumeClaim) -> ApiWrite {
    ApiWrite::Merge {
        path: volume.path(),
        patch: json!({ "spec": { "capacity": { "storage": claim.size() } } }).to_string(),
    }
}

/// Claim that says the size that its volume has.
pub(super) fn claim_capacity(claim: &VolumeClaim, volume: &PersistentVolume) -> ApiWrite {
    ApiWrite::Merge {
        path: format!("{}/status", claim.path()),
        patch: json!({ "status": { "capacity": { "storage": volume.size() } } }).to_string(),
    }
}

/// Claim for which the scheduler is to select a node again.
pub(super) fn unselected(claim: &VolumeClaim) -> ApiWrite {
    let metadata = json!({
        "annotations": { SELECTED_NODE: null },
        "resourceVersion": claim.metadata.resource_version,
    });
    ApiWrite::Merge { path: claim.path(), patch: json!({ "metadata": metadata }).to_string() }
}

/// Volume whose object waits for us no longer; none where it does not.
pub(super) fn unfinalized(volume: &PersistentVolume) -> Option<ApiWrite> {
    without(&[FINALIZER], volume)
}

/// Volume whose object waits neither for us nor for the claim that is bound to it; none where it does not.
pub(super) fn abandoned(volume: &PersistentVolume) -> Option<ApiWrite> {
    without(&[FINALIZER, PROTECTION], volume)
}

fn without(which: &[&str], volume: &PersistentVolume) -> Option<ApiWrite> {
    let ObjectMeta { finalizers, resource_version, .. } = &volume.metadata;
    let others: Vec<_> = finalizers.iter().filter(|finalizer| !which.contains(&finalizer.as_str())).collect();
    if others.len() == finalizers.len() {
        return None;
    }
    // By the version that was seen: a list is replaced as a whole, and somebody may have added to it since.
    let metadata = json!({ "finalizers": others, "resourceVersion": resource_version });
    Some(ApiWrite::Merge { path: volume.path(), patch: json!({ "metadata": metadata }).to_string() })
}

/// Volume whose object is deleted.
pub(super) fn deleted(volume: &PersistentVolume) -> ApiWrite {
    let options = json!({ "preconditions": { "uid": volume.metadata.uid } });
    ApiWrite::Delete { path: volume.path(), options: options.to_string() }
}

/// Room of a machine, told for the first time.
pub(super) fn capacity(machine: MachineId, bytes: u64) -> ApiWrite {
    let body = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": { "name": format!("{CAPACITY_NAME}{machine}") },
        "storageClassName": CLASS,
        "nodeTopology": { "matchLabels": { PLACE_LABEL: machine.to_string() } },
        "capacity": bytes.to_string(),
    });
    ApiWrite::Create { path: super::CAPACITIES.path.to_owned(), body: body.to_string() }
}

/// Room of a machine that has become another.
pub(super) fn capacity_changed(told: &StorageCapacity, bytes: u64) -> ApiWrite {
    ApiWrite::Merge { path: told.path(), patch: json!({ "capacity": bytes.to_string() }).to_string() }
}

/// Room of a machine that is no worker any more, taken back.
pub(super) fn capacity_deleted(told: &StorageCapacity) -> ApiWrite {
    ApiWrite::Delete { path: told.path(), options: String::from("{}") }
}

/// Warning that `kubectl describe` shows of a claim.
pub(super) fn event(claim: &VolumeClaim, reason: &str, message: &str, unix: Duration) -> ApiWrite {
    let ObjectMeta { namespace, name, uid, .. } = &claim.metadata;
    let warning = ObjectWarning {
        prefix: "cairn-volume",
        words: &format!("{uid}\0{reason}\0{message}"),
        reporter: "cairn.internal/upkeep",
        kind: ("v1", "PersistentVolumeClaim"),
        namespace,
        name,
        uid,
        reason,
        message,
    };
    warning.write(unix)
}
