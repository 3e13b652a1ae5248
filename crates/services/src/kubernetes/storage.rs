//! Storage as Kubernetes is told of it: the driver of volumes on the machines' own disks, and the class by which claims ask for one.

use serde_json::{Value, json};
use volumes::DRIVER;

/// Class of claims that the driver meets.
pub const CLASS: &str = "local";

/// Path of all drivers on the apiserver.
pub(super) const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
/// Path of all classes on the apiserver.
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

/// Driver: nothing is attached, room is told, and kubelet sets a pod's group on the files of a volume.
pub(super) fn driver() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": DRIVER },
        "spec": {
            "attachRequired": false,
            "podInfoOnMount": false,
            "storageCapacity": true,
            // Without it a database that is not root could not write.
            "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent"],
        },
    })
}

/// The default class: a volume is made where the scheduler puts the claim's first pod.
pub(super) fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": CLASS, "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": true,
    })
}
