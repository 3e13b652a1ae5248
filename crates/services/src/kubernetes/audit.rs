//! Audit policy of the apiserver: it writes down who asked for what and what came of it, never what was in it. Format:
//! `Policy` of audit.k8s.io/v1; the first rule that fits counts.

use serde_json::{Value, json};

/// Where the policy is.
pub(crate) const POLICY: &str = "/run/cairn/kube/audit.json";

/// The log that holds the record, beside the apiserver's own words.
pub const LOG: &str = "kube.audit";
/// How a line of the record begins in the apiserver's output.
pub const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/"#;

/// Everything at level Metadata but what the machine's own parts do all the time: their looks, leases and events would
/// push what people did out of the log within minutes. What touches Secrets and tokens is written down whoever it is.
pub(crate) fn policy() -> String {
    let none = |rule: Value| with_level("None", rule);
    let metadata = |rule: Value| with_level("Metadata", rule);
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // What was received is said again when it is answered.
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            metadata(json!({ "resources": [
                { "group": "", "resources": ["secrets", "serviceaccounts/token"] },
                { "group": "authentication.k8s.io", "resources": ["tokenreviews"] },
            ], "verbs": ["create", "update", "patch", "delete", "deletecollection", "get"] })),
            none(json!({ "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*", "/api*"] })),
            none(json!({ "resources": [
                { "group": "coordination.k8s.io", "resources": ["leases"] },
                { "group": "", "resources": ["events"] },
                { "group": "events.k8s.io", "resources": ["events"] },
            ] })),
            none(json!({ "users": COMPONENTS, "verbs": ["get", "list", "watch"] })),
            none(json!({ "userGroups": MACHINES, "verbs": ["get", "list", "watch"] })),
            none(json!({ "userGroups": ["system:nodes"], "verbs": ["patch", "update"], "resources": [
                { "group": "", "resources": ["nodes/status", "pods/status"] },
            ] })),
            metadata(json!({})),
        ],
    });
    format!("{policy:#}\n")
}

/// Parts of the control plane, by the names in their certificates.
const COMPONENTS: &[&str] = &["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"];
/// Nodes, and the controllers of the controller-manager, which go by accounts of their own.
const MACHINES: &[&str] = &["system:nodes", "system:serviceaccounts:kube-system"];

fn with_level(level: &str, mut rule: Value) -> Value {
    rule["level"] = json!(level);
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Value> {
        let read: Value = serde_json::from_str(&policy()).unwrap();
        read["rules"].as_array().unwrap().clone()
    }

    /// Levels Request and RequestResponse would write Secrets into the log.
    #[test]
    fn only_metadata_is_written_down_by_default_of_everything() {
        for rule in rules() {
            assert!(rule["level"] == "None" || rule["level"] == "Metadata", "{rule}");
        }
        assert_eq!(rules().last().unwrap(), &json!({ "level": "Metadata" }));
    }

    /// Only what names nobody, or parts of the machine, goes unwritten; and no rule before the first one does so.
    #[test]
    fn changes_and_looks_at_secrets_are_always_written_down() {
        let rules = rules();
        assert_eq!(rules[0]["level"], "Metadata");
        assert_eq!(rules[0]["resources"][0]["resources"][0], "secrets");
        for rule in rules.iter().filter(|rule| rule["level"] == "None") {
            let by_machines = rule["users"] == json!(COMPONENTS)
                || rule["userGroups"] == json!(MACHINES)
                || rule["userGroups"] == json!(["system:nodes"]);
            let resources: Vec<&str> = rule["resources"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|group| group["resources"].as_array().unwrap())
                .map(|resource| resource.as_str().unwrap())
                .collect();
            let noise = !resources.is_empty() && resources.iter().all(|one| *one == "leases" || *one == "events");
            assert!(by_machines || noise || rule["nonResourceURLs"].is_array(), "{rule}");
        }
    }
}
