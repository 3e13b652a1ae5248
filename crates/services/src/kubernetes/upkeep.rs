//! Node objects as the cluster's records would have them: a worker's shows the roles of its machine, and none is left of a machine
//! that is no worker. Roles are shown once, by the rule of [`node_roles`]; whoever deletes names the object that was seen, so one that
//! was made anew meanwhile stays.

use std::collections::{BTreeMap, BTreeSet};

use model::{KubernetesRole, NodeName};
use serde::Deserialize;
use serde_json::{Value, json};

use super::node_roles;
use super::node_status::node_path;

/// The path of all nodes on the apiserver.
pub const NODES: &str = "/api/v1/nodes";
/// Form in which nodes are listed: without their state (`PartialObjectMetadata` of `meta.k8s.io/v1`).
pub const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Roles in Kubernetes of each machine that runs pods, by its node's name.
pub type Workers = BTreeMap<NodeName, BTreeSet<KubernetesRole>>;

/// Change of a node object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// Merge this patch into what is at the path.
    Merge(String, String),
    /// Delete what is at the path, with these options.
    Delete(String, String),
}

/// The list of nodes says nothing.
#[derive(Debug, thiserror::Error)]
#[error("read the list of nodes")]
pub struct BadNodes(#[from] serde_json::Error);

/// Nodes as they are listed.
#[derive(Deserialize)]
struct NodeList {
    items: Vec<Value>,
}

/// Changes by which the nodes of a list become what the records say, and whether each worker has registered its own.
///
/// # Errors
/// [`BadNodes`] when the list is none.
pub fn changes(list: &[u8], workers: &Workers) -> Result<(Vec<NodeChange>, bool), BadNodes> {
    let NodeList { items } = serde_json::from_slice(list)?;
    let (mut changes, mut registered) = (Vec::new(), 0);
    for node in &items {
        let named = node["metadata"]["name"].as_str().and_then(|name| NodeName::stored(name).ok());
        // A name that no machine can have is none of ours.
        let Some(name) = named else { continue };
        let path = node_path(&name);
        match workers.get(&name) {
            Some(roles) => {
                registered += 1;
                changes.extend(node_roles::patch(node, roles).map(|patch| NodeChange::Merge(path, patch)));
            }
            None => {
                let options = json!({ "preconditions": { "uid": node["metadata"]["uid"] } });
                changes.push(NodeChange::Delete(path, options.to_string()));
            }
        }
    }
    Ok((changes, registered == workers.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(nodes: &[(&str, &str)]) -> String {
        let item = |(name, roles): &(&str, &str)| {
            let annotations = json!({ "cairn.internal/roles": roles });
            json!({ "metadata": { "name": name, "uid": format!("uid of {name}"), "annotations": annotations } })
        };
        json!({ "items": nodes.iter().map(item).collect::<Vec<_>>() }).to_string()
    }

    fn workers(names: &[&str]) -> Workers {
        let name = |name: &&str| (NodeName::chosen(name).unwrap(), [KubernetesRole::Worker].into());
        names.iter().map(name).collect()
    }

    /// Proves: W1
    #[test]
    fn each_worker_shows_its_roles_and_no_other_node_is_left() {
        let (all, is_whole) = changes(
            list(&[("m1", "worker"), ("m2", ""), ("gone", "worker")]).as_bytes(),
            &workers(&["m1", "m2", "m3"]),
        )
        .unwrap();
        let [NodeChange::Merge(path, patch), NodeChange::Delete(gone, options)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((path.as_str(), gone.as_str()), ("/api/v1/nodes/m2", "/api/v1/nodes/gone"));
        assert!(patch.contains(r#""cairn.internal/roles":"worker""#), "{patch}");
        assert_eq!(options, r#"{"preconditions":{"uid":"uid of gone"}}"#);
        assert!(!is_whole, "m3 has not registered yet");
        let rests = changes(list(&[("m1", "worker")]).as_bytes(), &workers(&["m1"])).unwrap();
        assert_eq!(rests, (vec![], true));
    }

    #[test]
    fn what_is_no_list_changes_nothing() {
        assert!(changes(b"404 page not found", &workers(&["m1"])).is_err());
        assert!(changes(b"{}", &workers(&["m1"])).is_err());
    }
}
