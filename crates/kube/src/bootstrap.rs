//! The first objects of a new cluster: who the groups in our certificates are to Kubernetes.
//!
//! PID 1 creates them once the apiserver is ready, with the bootstrap certificate (`system:masters`, one hour, never
//! written): only that group stands above RBAC, and somebody has to write the first bindings. An object that is there
//! already (409) is left alone: the owner may have changed it.

use pki::{APISERVERS, OWNERS};
use serde_json::json;

/// An object to create by POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The collection's path on the apiserver.
    pub path: &'static str,
    /// The object's name.
    pub name: &'static str,
    /// The body, JSON.
    pub body: String,
    /// What it is for.
    pub because: &'static str,
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// All of them, in the order of creation.
#[must_use]
pub fn objects() -> Vec<Object> {
    vec![
        binding(OWNERS, "cluster-admin", "the owner may do all, by a binding that can be deleted"),
        binding(APISERVERS, "system:kubelet-api-admin", "logs, exec and port-forward reach the kubelet"),
    ]
}

/// A binding of the same name as the group.
fn binding(group: &'static str, role: &str, because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": group },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
    });
    Object { path: BINDINGS, name: group, body: body.to_string(), because }
}
