//! Sandboxed pods as Kubernetes is told of them: the class by which a pod asks for a kernel of its own, and the label of nodes that
//! give it one.

use serde_json::{Value, json};

/// Class of pods that run in gVisor.
pub const CLASS: &str = "gvisor";

/// Name by which kubelet asks containerd for the class's runtime, and by which its node tells that it is there.
pub const HANDLER: &str = "runsc";

/// Label of nodes that have the runtime: kubelets may not set it (NodeRestriction of the apiserver).
pub const LABEL: &str = "cairn.node-restriction.kubernetes.io/gvisor";

/// Path of all classes on the apiserver.
pub(super) const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

/// Memory of a sandbox beside what the pod's containers use: gVisor's kernel and file server. The scheduler counts it, and kubelet
/// adds it to the pod's bound.
const OVERHEAD: &str = "64Mi";

/// The class: pods of it run where the image has gVisor, and nowhere else.
pub(super) fn class() -> Value {
    json!({
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": { "name": CLASS },
        "handler": HANDLER,
        "overhead": { "podFixed": { "memory": OVERHEAD } },
        "scheduling": { "nodeSelector": { LABEL: "true" } },
    })
}
