//! Objects of the Kubernetes API, with the fields that policies look at (`core/v1`, `networking.k8s.io/v1`). What is not known of a
//! policy is kept as such: who compiles it lets it allow nothing.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeapi::{Collection, ObjectMeta, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::address::Protocol;

/// All pods.
pub const PODS: Collection = Collection { path: "/api/v1/pods", metadata_only: false };
/// All namespaces, of which only labels count.
pub const NAMESPACES: Collection = Collection { path: "/api/v1/namespaces", metadata_only: true };
/// All policies of the network.
pub const NETWORK_POLICIES: Collection =
    Collection { path: "/apis/networking.k8s.io/v1/networkpolicies", metadata_only: false };

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// Pod, as far as policies look at it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PolicyPod {
    #[serde(deserialize_with = "kubeapi::brief")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodAddresses,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    #[serde(default)]
    pub(crate) node_name: String,
    #[serde(default)]
    pub(crate) host_network: bool,
    #[serde(default)]
    pub(crate) containers: Vec<Container>,
    #[serde(default)]
    pub(crate) init_containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    #[serde(default)]
    pub(crate) ports: Vec<ContainerPort>,
    #[serde(default)]
    pub(crate) restart_policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerPort {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) container_port: u16,
    #[serde(default = "tcp")]
    pub(crate) protocol: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodAddresses {
    #[serde(default)]
    pub(crate) phase: String,
    #[serde(default, rename = "podIP")]
    pub(crate) pod_ip: String,
    #[serde(default, rename = "podIPs")]
    pub(crate) pod_ips: Vec<PodAddress>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct PodAddress {
    #[serde(default)]
    pub(crate) ip: String,
}

impl Resource for PolicyPod {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Namespace, as far as policies look at it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PolicyNamespace {
    #[serde(deserialize_with = "kubeapi::brief")]
    pub(crate) metadata: ObjectMeta,
}

impl Resource for PolicyNamespace {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Policy of the network, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NetworkPolicy {
    #[serde(deserialize_with = "kubeapi::brief")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: PolicySpec,
}

impl Resource for NetworkPolicy {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicySpec {
    #[serde(default)]
    pub(crate) pod_selector: Selector,
    #[serde(default)]
    pub(crate) policy_types: Vec<String>,
    #[serde(default)]
    pub(crate) ingress: Vec<IngressRule>,
    #[serde(default)]
    pub(crate) egress: Vec<EgressRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct IngressRule {
    #[serde(default, rename = "from")]
    pub(crate) peers: Vec<PolicyPeer>,
    #[serde(default)]
    pub(crate) ports: Vec<PolicyPort>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct EgressRule {
    #[serde(default, rename = "to")]
    pub(crate) peers: Vec<PolicyPeer>,
    #[serde(default)]
    pub(crate) ports: Vec<PolicyPort>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyPeer {
    pub(crate) pod_selector: Option<Selector>,
    pub(crate) namespace_selector: Option<Selector>,
    pub(crate) ip_block: Option<IpBlock>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct IpBlock {
    pub(crate) cidr: String,
    #[serde(default)]
    pub(crate) except: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyPort {
    #[serde(default = "tcp")]
    pub(crate) protocol: String,
    pub(crate) port: Option<PortName>,
    pub(crate) end_port: Option<u16>,
}

/// Port by its number, or by the name that pods give it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum PortName {
    Number(u16),
    Name(String),
}

/// Selector of objects by their labels: all that it requires holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Selector {
    #[serde(default)]
    pub(crate) match_labels: Labels,
    #[serde(default)]
    pub(crate) match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: SelectorOperator,
    #[serde(default)]
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub(crate) enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// Operator of another version of the API.
    #[serde(other)]
    Unknown,
}

/// Objects of a cluster, as lists of the Kubernetes API have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubernetesInventory {
    /// All pods.
    pub pods: Vec<PolicyPod>,
    /// All namespaces.
    pub namespaces: Vec<PolicyNamespace>,
    /// All policies.
    pub policies: Vec<NetworkPolicy>,
}

/// Lists that cannot be read, so that nothing is known of the cluster.
#[derive(Debug, thiserror::Error)]
#[error("read the list of {what}")]
pub struct InventoryError {
    /// Kind of the objects.
    pub what: &'static str,
    /// Error at what was read instead.
    #[source]
    pub error: serde_json::Error,
}

impl KubernetesInventory {
    /// Reads three lists of the API, JSON.
    ///
    /// # Errors
    /// [`InventoryError`] names the list that is none.
    pub fn read(pods: &[u8], namespaces: &[u8], policies: &[u8]) -> Result<Self, InventoryError> {
        Ok(Self {
            pods: listed("pods", pods)?,
            namespaces: listed("namespaces", namespaces)?,
            policies: listed("network policies", policies)?,
        })
    }
}

fn listed<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<Vec<T>, InventoryError> {
    kubeapi::listed(bytes).map_err(|error| InventoryError { what, error })
}

fn tcp() -> String {
    "TCP".to_owned()
}

impl PolicyPod {
    /// Addresses that are the pod's alone; none while it has none, once it has ended, and where it uses its machine's.
    pub(crate) fn addresses(&self) -> Vec<Ipv4Addr> {
        let has_ended = matches!(self.status.phase.as_str(), "Succeeded" | "Failed");
        if has_ended || self.spec.host_network || self.spec.node_name.is_empty() {
            return Vec::new();
        }
        let texts = self.status.pod_ips.iter().map(|address| &address.ip).chain([&self.status.pod_ip]);
        let mut addresses: Vec<Ipv4Addr> = texts.filter_map(|text| text.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Ports that have a name, those of sidecars last (`FindPort` of `pkg/api/v1/pod/util.go`).
    pub(crate) fn named_ports(&self) -> impl Iterator<Item = (&str, Protocol, u16)> {
        let sidecars = self.spec.init_containers.iter().filter(|container| container.restart_policy == "Always");
        let ports = self.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        ports
            .filter(|port| !port.name.is_empty())
            .filter_map(|port| Some((port.name.as_str(), Protocol::named(&port.protocol)?, port.container_port)))
    }
}

impl Selector {
    /// Selector that requires nothing.
    pub(crate) const fn every() -> Self {
        Self { match_labels: BTreeMap::new(), match_expressions: Vec::new() }
    }

    /// Whether the selector is understood.
    pub(crate) fn is_known(&self) -> bool {
        self.match_expressions.iter().all(|requirement| requirement.operator != SelectorOperator::Unknown)
    }

    /// Whether labels are as the selector requires; a requirement that is not known is met by none.
    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(has) && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        let is_among = label.is_some_and(|label| self.values.contains(label));
        match self.operator {
            SelectorOperator::In => is_among,
            SelectorOperator::NotIn => !is_among,
            SelectorOperator::Exists => label.is_some(),
            SelectorOperator::DoesNotExist => label.is_none(),
            SelectorOperator::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> PolicyPod {
        serde_json::from_str(text).expect("a pod")
    }

    #[test]
    fn a_pod_has_addresses_while_it_runs_by_itself() {
        let text = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"nodeName":"one","hostNetwork":false},
            "status":{"phase":"Running","podIP":"10.244.1.2","podIPs":[{"ip":"10.244.1.2"},{"ip":"fd00::1"}]}}"#;
        assert_eq!(pod(text).addresses(), [Ipv4Addr::new(10, 244, 1, 2)]);
        for (from, to) in [("Running", "Failed"), ("Running", "Succeeded"), ("false", "true"), ("\"one\"", "\"\"")] {
            assert_eq!(pod(&text.replace(from, to)).addresses(), [] as [Ipv4Addr; 0], "{to}");
        }
    }

    #[test]
    fn what_no_policy_looks_at_is_let_go() {
        let text =
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u","labels":{"k":"v"}},"spec":{"nodeName":"one"}}"#;
        let more = text.replace(r#""uid""#, r#""resourceVersion":"7","annotations":{"a":"b"},"uid""#);
        assert_eq!((pod(&more), pod(&more).metadata.annotations.len()), (pod(text), 0));
        assert_ne!(pod(&text.replace(r#""v""#, r#""w""#)), pod(text), "labels count");
    }

    #[test]
    fn sidecars_have_named_ports_and_other_beginners_none() {
        let text = r#"{"metadata":{"name":"a"},"spec":{
            "containers":[{"ports":[{"name":"web","containerPort":80},{"containerPort":81}]}],
            "initContainers":[{"ports":[{"name":"gone","containerPort":1}]},
                {"restartPolicy":"Always","ports":[{"name":"dns","containerPort":53,"protocol":"UDP"}]}]}}"#;
        let expected = [("web", Protocol::Tcp, 80), ("dns", Protocol::Udp, 53)];
        assert_eq!(pod(text).named_ports().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn operators_of_another_version_are_kept_and_met_by_none() {
        let text = r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#;
        let read = |text: &str| serde_json::from_str::<Selector>(text).expect("a selector");
        let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
        assert!(read(text).is_known() && read(text).selects(&labels));
        let other = read(&text.replace("Exists", "Near"));
        assert!(!other.is_known() && !other.selects(&labels));
    }
}
