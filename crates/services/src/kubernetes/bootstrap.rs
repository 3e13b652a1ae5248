//! The first objects of a new cluster: who the groups in our certificates are to Kubernetes.
//!
//! PID 1 creates them once per cluster, when the apiserver is ready, with the bootstrap certificate (`system:masters`, one
//! hour, never written): only that group stands above RBAC, and somebody has to write the first bindings. The last of them
//! is a mark that all are there: with it nothing is created again, so what the owner has deleted stays deleted. Before it,
//! an object that is there already (409) is left alone.

use pki::{APISERVERS, OWNERS};
use serde_json::json;

/// An object to create by POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The collection's path on the apiserver.
    pub path: &'static str,
    /// `metadata.name` of the body.
    pub name: &'static str,
    /// The whole object, JSON.
    pub body: String,
    /// Right that it gives, or thing that it stands for.
    pub because: &'static str,
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// A role that allows nothing: an object of the cluster itself, which needs no namespace to be there before it.
const MARK: &str = "cairn:bootstrapped";

/// Where the mark is read: answered 200 once the cluster has had its first objects, 404 before.
#[must_use]
pub fn mark_path() -> String {
    format!("{ROLES}/{MARK}")
}

/// All of them, in the order of creation: the mark is the last.
#[must_use]
pub fn objects() -> Vec<Object> {
    vec![
        binding(OWNERS, "cluster-admin", "the owner may do all, by a binding that can be deleted"),
        binding(APISERVERS, "system:kubelet-api-admin", "logs, exec and port-forward reach the kubelet"),
        mark("the cluster has had its first objects; what is deleted of them stays deleted"),
    ]
}

fn mark(because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": MARK, "annotations": { "cairn.internal/because": because } },
        "rules": [],
    });
    Object { path: ROLES, name: MARK, body: body.to_string(), because }
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
