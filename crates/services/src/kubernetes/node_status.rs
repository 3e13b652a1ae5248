//! Whether the node is Ready in this boot, from what the apiserver says about it.
//!
//! etcd remembers the last boot: right after a reboot the node is Ready there although no kubelet runs yet. So Ready
//! counts only with this boot's id and a lease renewed since this boot began.

use model::NodeName;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Label with a machine's id that its kubelet registers its node with: other nodes are somebody else's.
pub const MACHINE_LABEL: &str = "cairn.internal/machine";

/// The path of a node on the apiserver.
#[must_use]
pub fn node_path(node: &NodeName) -> String {
    format!("/api/v1/nodes/{node}")
}

/// The path of a node's lease on the apiserver.
#[must_use]
pub fn lease_path(node: &NodeName) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
}

/// This boot, as the node's answers are compared with it.
#[derive(Debug, Clone, Copy)]
pub struct ThisBoot<'a> {
    /// /proc/sys/kernel/random/boot_id.
    pub id: &'a str,
    /// When it began, in seconds since 1970 by the machine's own clock.
    pub since: i64,
}

/// Readiness of the node in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReadiness {
    /// Ready, said by this boot's kubelet.
    Ready,
    /// The apiserver knows the status of an earlier boot only.
    EarlierBoot,
    /// This boot's kubelet has not renewed its lease yet.
    LeaseNotRenewed,
    /// This boot's kubelet says that it is not ready yet.
    NotReady,
}

/// Why an answer says nothing.
#[derive(Debug, thiserror::Error)]
pub enum NodeStatusError {
    /// The node cannot be read.
    #[error("read the node")]
    Node(#[source] serde_json::Error),
    /// The lease cannot be read.
    #[error("read the node's lease")]
    Lease(#[source] serde_json::Error),
    /// The lease's time cannot be read.
    #[error("read the time of the node's lease")]
    Time(#[source] time::error::Parse),
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
}

#[derive(Deserialize)]
struct Lease {
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<String>,
}

/// Reads the bodies of [`node_path`] and [`lease_path`].
///
/// # Errors
/// [`NodeStatusError`] when one of them is not what the API says it is.
pub fn readiness(node: &[u8], lease: &[u8], boot: ThisBoot<'_>) -> Result<NodeReadiness, NodeStatusError> {
    let node: Node = serde_json::from_slice(node).map_err(NodeStatusError::Node)?;
    let lease: Lease = serde_json::from_slice(lease).map_err(NodeStatusError::Lease)?;
    let renewed = lease
        .spec
        .renew_time
        .map(|text| OffsetDateTime::parse(&text, &Rfc3339).map_err(NodeStatusError::Time))
        .transpose()?
        .map(OffsetDateTime::unix_timestamp);
    let ready = node.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
    Ok(if node.status.node_info.boot_id != boot.id {
        NodeReadiness::EarlierBoot
    } else if renewed.is_none_or(|renewed| renewed < boot.since) {
        NodeReadiness::LeaseNotRenewed
    } else if ready {
        NodeReadiness::Ready
    } else {
        NodeReadiness::NotReady
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOOT: ThisBoot<'_> = ThisBoot { id: "f2b0", since: 1_795_000_000 };

    #[test]
    fn a_node_and_its_lease_have_the_nodes_name() {
        let node = NodeName::chosen("node-1").expect("a name");
        assert_eq!(node_path(&node), "/api/v1/nodes/node-1");
        assert_eq!(lease_path(&node), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1");
    }

    fn node(boot_id: &str, ready: &str) -> Vec<u8> {
        serde_json::json!({
            "kind": "Node",
            "metadata": { "name": "node-1" },
            "status": {
                "conditions": [
                    { "type": "MemoryPressure", "status": "False" },
                    { "type": "Ready", "status": ready, "reason": "KubeletReady" },
                ],
                "nodeInfo": { "bootID": boot_id, "machineID": "x" },
            },
        })
        .to_string()
        .into_bytes()
    }

    fn lease(renewed: &str) -> Vec<u8> {
        format!(r#"{{"kind":"Lease","spec":{{"holderIdentity":"node-1","renewTime":"{renewed}"}}}}"#).into_bytes()
    }

    /// Proves: W1
    #[test]
    fn only_this_boots_word_counts() {
        // 1 795 000 000 is 2026-11-18T11:06:40Z.
        let (before, after) = (lease("2026-11-18T11:06:39.999999Z"), lease("2026-11-18T11:06:40.000001Z"));
        let cases = [
            (node("f2b0", "True"), &after, NodeReadiness::Ready),
            (node("f2b0", "False"), &after, NodeReadiness::NotReady),
            (node("f2b0", "Unknown"), &after, NodeReadiness::NotReady),
            (node("0000", "True"), &after, NodeReadiness::EarlierBoot),
            (node("f2b0", "True"), &before, NodeReadiness::LeaseNotRenewed),
            (br#"{"kind":"Node"}"#.to_vec(), &after, NodeReadiness::EarlierBoot),
        ];
        for (node, lease, expected) in cases {
            assert_eq!(readiness(&node, lease, BOOT).unwrap(), expected);
        }
        assert_eq!(readiness(&node("f2b0", "True"), b"{}", BOOT).unwrap(), NodeReadiness::LeaseNotRenewed);
    }

    /// Every node of one machine has conditions that are true and not this one.
    #[test]
    fn no_other_condition_makes_a_node_ready() {
        let with = |conditions: serde_json::Value| {
            let node = serde_json::json!({ "status": { "conditions": conditions, "nodeInfo": { "bootID": "f2b0" } } });
            readiness(node.to_string().as_bytes(), &lease("2026-11-18T11:06:41Z"), BOOT).unwrap()
        };
        for other in ["DiskPressure", "NetworkUnavailable", "ready", "ContainersReady"] {
            let conditions = serde_json::json!([
                { "type": other, "status": "True" },
                { "type": "Ready", "status": "False" },
            ]);
            assert_eq!(with(conditions), NodeReadiness::NotReady, "{other}");
            assert_eq!(
                with(serde_json::json!([{ "type": other, "status": "True" }])),
                NodeReadiness::NotReady,
                "{other}"
            );
        }
        assert_eq!(with(serde_json::json!([])), NodeReadiness::NotReady);
        assert_eq!(with(serde_json::json!([{ "type": "Ready", "status": "True" }])), NodeReadiness::Ready);
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        let good = (node("f2b0", "True"), lease("2026-11-18T10:26:40Z"));
        assert!(matches!(readiness(b"404 page not found", &good.1, BOOT), Err(NodeStatusError::Node(_))));
        assert!(matches!(readiness(&good.0, b"", BOOT), Err(NodeStatusError::Lease(_))));
        assert!(matches!(readiness(&good.0, &lease("yesterday"), BOOT), Err(NodeStatusError::Time(_))));
    }

    proptest! {
        #[test]
        fn no_answer_panics_the_reader(node: Vec<u8>, lease: Vec<u8>) {
            let _ = readiness(&node, &lease, BOOT);
        }
    }
}
