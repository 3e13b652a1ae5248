//! Roles that `kubectl get nodes` shows of a node: labels that a kubelet may not give itself (NodeRestriction), so PID
//! 1 puts them there.
//!
//! Once: an annotation keeps which roles have been put there. A label that the owner takes away stays away, until the
//! machine's roles change.

use std::collections::BTreeSet;

use kubeapi::ObjectMeta;
use model::KubernetesRole;
use serde_json::{Value, json};

/// Which roles the labels were put there for.
const ANNOTATION: &str = "cairn.internal/roles";

/// The label by which `kubectl` knows a role.
const fn label(role: KubernetesRole) -> &'static str {
    match role {
        KubernetesRole::ControlPlane => "node-role.kubernetes.io/control-plane",
        KubernetesRole::Worker => "node-role.kubernetes.io/worker",
    }
}

/// Patch to be merged into the object `node` (RFC 7396), so that it shows `roles`; nothing where it was done before.
pub(super) fn patch(node: &ObjectMeta, roles: &BTreeSet<KubernetesRole>) -> Option<String> {
    let words = roles.iter().map(KubernetesRole::to_string).collect::<Vec<_>>().join(",");
    if node.annotations.get(ANNOTATION) == Some(&words) {
        return None;
    }
    // A role that the machine no longer has loses its label: null takes away.
    let labels: serde_json::Map<String, Value> = KubernetesRole::ALL
        .iter()
        .map(|role| (label(*role).to_owned(), if roles.contains(role) { json!("") } else { Value::Null }))
        .collect();
    let patch = json!({ "metadata": { "annotations": { ANNOTATION: words }, "labels": labels } });
    Some(patch.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> BTreeSet<KubernetesRole> {
        KubernetesRole::ALL.iter().copied().collect()
    }

    #[test]
    fn a_new_node_gets_the_labels_that_kubectl_shows() {
        let read: Value = serde_json::from_str(&patch(&ObjectMeta::default(), &both()).expect("not done yet")).unwrap();
        let expected = json!({ "metadata": {
            "annotations": { "cairn.internal/roles": "control-plane,worker" },
            "labels": { "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/worker": "" },
        } });
        assert_eq!(read, expected);
    }

    #[test]
    fn a_label_taken_away_stays_away_until_the_roles_change() {
        let annotations = [("cairn.internal/roles".to_owned(), "control-plane,worker".to_owned())].into();
        let node = ObjectMeta { annotations, ..ObjectMeta::default() };
        assert_eq!(patch(&node, &both()), None);
        let other = patch(&node, &BTreeSet::from([KubernetesRole::Worker])).expect("the roles have changed");
        let labels = &serde_json::from_str::<Value>(&other).unwrap()["metadata"]["labels"];
        assert_eq!(
            *labels,
            json!({
                "node-role.kubernetes.io/control-plane": null,
                "node-role.kubernetes.io/worker": "",
            })
        );
    }
}
