//! Node objects as the cluster's records would have them: a worker's shows the roles of its machine, which machine it is and whether it
//! has gVisor, and none is left of a machine that is no worker. Roles are shown once, by the rule of [`node_roles`]; whoever deletes names the object that
//! was seen, so one that was made anew meanwhile stays. Nodes that no kubelet of ours registered are somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kubeapi::{ApiWrite, Collection, ObjectMeta, Objects, Resource};
use model::{KubernetesRole, MachineId, NodeName};
use serde::Deserialize;
use serde_json::json;
use services::node_status::{MACHINE_LABEL, node_path};
use services::sandbox;

use crate::node_roles;

/// All nodes.
pub const NODES: Collection = Collection { path: "/api/v1/nodes", metadata_only: false };

/// Label by which volumes and capacities select a node: kubelets may not set it (NodeRestriction of the apiserver).
pub const PLACE_LABEL: &str = "cairn.node-restriction.kubernetes.io/machine";

/// Machine that runs pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Which it is.
    pub machine: MachineId,
    /// Roles of the machine in Kubernetes.
    pub roles: BTreeSet<KubernetesRole>,
    /// Addresses of its uplinks, as it reports them.
    pub addresses: BTreeSet<Ipv4Addr>,
}

/// All machines that run pods, by their nodes' names.
pub type Workers = BTreeMap<NodeName, Worker>;

/// Node object, as far as it is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeObject {
    metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<NodeCondition>,
    #[serde(default, rename = "runtimeHandlers")]
    runtimes: Vec<NodeRuntime>,
}

/// Runtime that a node's kubelet knows of, by the name of its handler; the default one has none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct NodeRuntime {
    #[serde(default)]
    name: String,
}

/// Condition without its times: that a kubelet has said it again is no change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl NodeObject {
    /// Whether pods run there, as far as Kubernetes has heard.
    pub(crate) fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    /// Whether pods can run in gVisor there, by what its kubelet says.
    fn has_gvisor(&self) -> bool {
        self.status.runtimes.iter().any(|runtime| runtime.name == sandbox::HANDLER)
    }

    /// Labels that are to be changed, with what they are to be: none for one that goes.
    fn labels(&self, worker: &Worker) -> BTreeMap<&'static str, Option<String>> {
        let wanted = [
            (PLACE_LABEL, Some(worker.machine.to_string())),
            (sandbox::LABEL, self.has_gvisor().then(|| "true".to_owned())),
        ];
        wanted.into_iter().filter(|(label, value)| self.metadata.labels.get(*label) != value.as_ref()).collect()
    }
}

impl Resource for NodeObject {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Writes by which nodes become what the records say.
#[must_use]
pub fn changes(nodes: &Objects<NodeObject>, workers: &Workers) -> Vec<ApiWrite> {
    let mut changes = Vec::new();
    for node @ NodeObject { metadata, .. } in nodes.values() {
        // A name that no machine can have is none of ours.
        let Ok(name) = NodeName::stored(&metadata.name) else { continue };
        let path = node_path(&name);
        let ours = [MACHINE_LABEL, PLACE_LABEL].iter().any(|label| metadata.labels.contains_key(*label));
        match workers.get(&name) {
            Some(worker) => {
                let labels = node.labels(worker);
                if !labels.is_empty() {
                    let patch = json!({ "metadata": { "labels": labels } }).to_string();
                    changes.push(ApiWrite::Merge { path: path.clone(), patch });
                }
                changes.extend(node_roles::patch(metadata, &worker.roles).map(|patch| ApiWrite::Merge { path, patch }));
            }
            None if ours => {
                let options = json!({ "preconditions": { "uid": metadata.uid } }).to_string();
                changes.push(ApiWrite::Delete { path, options });
            }
            None => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node's name, labels and roles that were shown.
    type Shown<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

    fn nodes(of: &[Shown<'_>]) -> Objects<NodeObject> {
        let node = |(name, labels, roles): &Shown<'_>| {
            let metadata = ObjectMeta {
                name: (*name).to_owned(),
                uid: format!("uid of {name}"),
                labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
                annotations: [("cairn.internal/roles".to_owned(), (*roles).to_owned())].into(),
                ..ObjectMeta::default()
            };
            ((String::new(), (*name).to_owned()), NodeObject { metadata, status: NodeStatus::default() })
        };
        of.iter().map(node).collect()
    }

    fn workers(names: &[(&str, u8)]) -> Workers {
        let worker = |(name, n): &(&str, u8)| {
            let worker =
                Worker { machine: MachineId([*n; 16]), roles: [KubernetesRole::Worker].into(), addresses: [].into() };
            (NodeName::chosen(name).unwrap(), worker)
        };
        names.iter().map(worker).collect()
    }

    /// Proves: W1
    #[test]
    fn each_worker_shows_its_roles_and_no_other_node_is_left() {
        let (first, other) = (MachineId([1; 16]).to_string(), MachineId([9; 16]).to_string());
        let listed = nodes(&[
            ("m1", &[(PLACE_LABEL, &first)], "worker"),
            ("m2", &[(PLACE_LABEL, &other)], ""),
            ("gone", &[(MACHINE_LABEL, &other)], "worker"),
            ("moved", &[(PLACE_LABEL, &other)], "worker"),
            ("foreign", &[("kubernetes.io/hostname", "foreign")], ""),
        ]);
        let changed = changes(&listed, &workers(&[("m1", 1), ("m2", 2), ("m3", 3)]));
        let [gone, place, roles, moved] = &changed[..] else { panic!("{changed:?}") };
        let deleted = |path: &str, uid: &str| ApiWrite::Delete {
            path: path.to_owned(),
            options: format!(r#"{{"preconditions":{{"uid":"{uid}"}}}}"#),
        };
        assert_eq!(gone, &deleted("/api/v1/nodes/gone", "uid of gone"));
        assert_eq!(moved, &deleted("/api/v1/nodes/moved", "uid of moved"));
        let ApiWrite::Merge { path, patch } = place else { panic!("{place:?}") };
        assert_eq!(path, "/api/v1/nodes/m2");
        assert!(patch.contains(&MachineId([2; 16]).to_string()), "{patch}");
        assert!(matches!(roles, ApiWrite::Merge { patch, .. } if patch.contains(r#""cairn.internal/roles":"worker""#)));
    }

    /// Pods are placed by what kubelet says of its runtimes, whatever the node was labelled with before.
    ///
    /// Proves: W6
    #[test]
    fn a_node_is_labelled_where_its_kubelet_knows_gvisor() {
        let place = MachineId([1; 16]).to_string();
        let patches = |labels: &[(&str, &str)], runtimes: &[&str]| {
            let mut listed = nodes(&[("m1", labels, "worker")]);
            for node in listed.values_mut() {
                node.metadata.labels.insert(PLACE_LABEL.to_owned(), place.clone());
                node.metadata.labels.insert("node-role.kubernetes.io/worker".to_owned(), String::new());
                node.status.runtimes = runtimes.iter().map(|name| NodeRuntime { name: (*name).to_owned() }).collect();
            }
            changes(&listed, &workers(&[("m1", 1)]))
        };
        let patch = |value: &str| ApiWrite::Merge {
            path: "/api/v1/nodes/m1".to_owned(),
            patch: format!(r#"{{"metadata":{{"labels":{{"{}":{value}}}}}}}"#, sandbox::LABEL),
        };
        assert_eq!(patches(&[], &["", "runc", "runsc"]), [patch("\"true\"")]);
        assert_eq!(patches(&[(sandbox::LABEL, "true")], &["", "runc", "runsc"]), []);
        assert_eq!(patches(&[(sandbox::LABEL, "true")], &["", "runc"]), [patch("null")]);
        assert_eq!(patches(&[], &["", "runc"]), []);
    }

    /// Upstream's conformance makes a node of its own. Proves: W1
    #[test]
    fn a_node_that_nobody_of_ours_registered_stays() {
        assert_eq!(changes(&nodes(&[("e2e-fake-node", &[], "")]), &workers(&[("m1", 1)])), []);
    }
}
