//! Summary of a kubelet: what its node and its pods use (`Summary` of `k8s.io/kubelet/pkg/apis/stats/v1alpha1`).

use std::collections::BTreeMap;

use model::NodeName;
use serde::Deserialize;

/// Path of the summary on a kubelet, with processor time and memory alone.
pub const SUMMARY_PATH: &str = "/stats/summary?only_cpu_and_memory=true";

/// Resources that a node or a container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsedResources {
    /// Processor time: billionths of a processor, over the last ten seconds or so.
    pub nanocores: u64,
    /// Memory that cannot be had back by dropping caches that are not in use: bytes.
    pub working_set: u64,
}

/// Summary of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSummary {
    node: Option<UsedResources>,
    /// Usage of pods, by uid, then by the names of their containers.
    pods: BTreeMap<String, BTreeMap<String, UsedResources>>,
}

/// Summaries of the nodes that answer, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summaries(BTreeMap<String, NodeSummary>);

#[derive(Deserialize)]
struct Summary {
    node: Stats,
    #[serde(default)]
    pods: Vec<PodStats>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodReference,
    #[serde(default)]
    containers: Vec<ContainerStats>,
}

#[derive(Deserialize)]
struct PodReference {
    uid: String,
}

#[derive(Deserialize)]
struct ContainerStats {
    name: String,
    #[serde(flatten)]
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    cpu: Option<CpuStats>,
    memory: Option<MemoryStats>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuStats {
    usage_nano_cores: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemoryStats {
    working_set_bytes: Option<u64>,
}

impl Stats {
    /// Usage, where all of it is known: what began just now has used nothing yet that can be counted.
    fn used(&self) -> Option<UsedResources> {
        let nanocores = self.cpu.as_ref()?.usage_nano_cores?;
        let working_set = self.memory.as_ref()?.working_set_bytes?;
        Some(UsedResources { nanocores, working_set })
    }
}

impl NodeSummary {
    /// Reads a kubelet's answer to [`SUMMARY_PATH`].
    ///
    /// # Errors
    /// The answer is no summary.
    pub fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let Summary { node, pods } = serde_json::from_slice(body)?;
        let pods = pods.into_iter().filter_map(|PodStats { pod_ref, containers }| {
            let used = containers.into_iter().map(|container| Some((container.name, container.stats.used()?)));
            // A pod of which one container is not known uses more than the others say: none of it is told.
            let used = used.collect::<Option<BTreeMap<_, _>>>()?;
            (!used.is_empty()).then_some((pod_ref.uid, used))
        });
        Ok(Self { node: node.used(), pods: pods.collect() })
    }
}

impl Summaries {
    /// Summaries, by the nodes whose kubelets were asked for them.
    #[must_use]
    pub fn of(nodes: impl IntoIterator<Item = (NodeName, NodeSummary)>) -> Self {
        Self(nodes.into_iter().map(|(name, summary)| (name.to_string(), summary)).collect())
    }

    /// Usage of the node of that name, as its own kubelet says.
    pub(crate) fn node(&self, name: &str) -> Option<UsedResources> {
        self.0.get(name)?.node
    }

    /// Usage of the containers of the pod of that uid. A uid is told to nobody but the API's clients that may list the pod and the kubelet
    /// that runs it, so no other node speaks for it.
    pub(crate) fn pod(&self, uid: &str) -> Option<&BTreeMap<String, UsedResources>> {
        self.0.values().find_map(|summary| summary.pods.get(uid))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn stats(nanocores: u64, working_set: u64) -> Value {
        json!({
            "startTime": "2026-11-29T12:00:00Z",
            "cpu": { "time": "2026-11-29T12:00:09Z", "usageNanoCores": nanocores, "usageCoreNanoSeconds": 5 },
            "memory": { "time": "2026-11-29T12:00:09Z", "workingSetBytes": working_set, "rssBytes": 1 },
        })
    }

    pub(crate) fn container(name: &str, mut stats: Value) -> Value {
        stats["name"] = name.into();
        stats
    }

    pub(crate) fn summary(node: &Value, pods: &[(&str, Vec<Value>)]) -> Vec<u8> {
        let pod = |(uid, containers): &(&str, Vec<Value>)| json!({ "podRef": { "name": "web", "namespace": "shop", "uid": uid }, "containers": containers });
        json!({ "node": node, "pods": pods.iter().map(pod).collect::<Vec<_>>() }).to_string().into_bytes()
    }

    fn used(nanocores: u64, working_set: u64) -> UsedResources {
        UsedResources { nanocores, working_set }
    }

    /// Proves: Q3
    #[test]
    fn a_summary_says_what_a_node_and_its_whole_pods_use() {
        let unknown = json!({ "memory": { "workingSetBytes": 9 } });
        let bytes = summary(
            &stats(7, 8),
            &[
                ("u1", vec![container("a", stats(1, 2)), container("b", stats(3, 4))]),
                ("u2", vec![container("a", stats(1, 2)), container("b", unknown)]),
                ("u3", vec![]),
            ],
        );
        let read = NodeSummary::read(&bytes).expect("a summary");
        assert_eq!(read.node, Some(used(7, 8)));
        let whole = BTreeMap::from([("a".to_owned(), used(1, 2)), ("b".to_owned(), used(3, 4))]);
        assert_eq!(read.pods, BTreeMap::from([("u1".to_owned(), whole)]), "no part of a pod, and no empty one");
        let began = NodeSummary::read(br#"{"node":{"nodeName":"m1"}}"#).expect("a kubelet that began just now");
        assert_eq!(began, NodeSummary::default());
        for no_summary in [&b""[..], b"{}", b"[]", br#"{"node":{"cpu":{"usageNanoCores":-1}}}"#] {
            assert!(NodeSummary::read(no_summary).is_err());
        }
    }

    /// Proves: Q3
    #[test]
    fn a_kubelet_speaks_for_its_own_node_alone() {
        let [m1, m2] = ["m1", "m2"].map(|name| NodeName::stored(name).expect("a name"));
        let read = |nanocores, uid| {
            let bytes = summary(&stats(nanocores, 1), &[(uid, vec![container("a", stats(nanocores, 1))])]);
            NodeSummary::read(&bytes).expect("a summary")
        };
        let all = Summaries::of([(m1, read(1, "u1")), (m2, read(2, "u2"))]);
        assert_eq!([all.node("m1"), all.node("m2"), all.node("m3")], [Some(used(1, 1)), Some(used(2, 1)), None]);
        let of_pod = |uid| all.pod(uid).map(|containers| containers["a"].nanocores);
        assert_eq!([of_pod("u1"), of_pod("u2"), of_pod("u3")], [Some(1), Some(2), None]);
    }
}
