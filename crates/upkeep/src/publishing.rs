//! Services of type LoadBalancer, at ports of uplinks that owners have published for their namespaces: at which addresses each is
//! reached, and which events tell people why one is not.
//!
//! ```text
//!   rules, workers of the records ─┐
//!   services ──────────────────────┼─► ServicePublisher::due ─► statuses, events
//!   nodes, slices ─────────────────┘
//! ```
//! A service is reached on the machines of each rule that publishes all its ports for its namespace, while they are Ready, and where it
//! keeps its clients' addresses (`externalTrafficPolicy: Local`) while one of its endpoints there is. By a rule with a floating address it
//! is reached at that one, where the machine that holds it is one of these. A port that two services want on a machine, at one address, is
//! the older's, whether it is reached there just now or not. kube-proxy leads packets by the statuses; whether a packet comes
//! in is the machine's filter's to say, by the rules alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use kubeapi::{ApiWrite, Collection, ObjectMeta, Objects, Resource};
use model::{NamespaceName, NodeName, PortProtocol, Prefixes, UplinkPort};
use serde::Deserialize;
use serde_json::json;

use crate::event::ObjectWarning;
use crate::nodes::{NodeObject, Worker, Workers};

/// All services.
pub const SERVICES: Collection = Collection { path: "/api/v1/services", metadata_only: false };
/// All slices of services' endpoints.
pub const ENDPOINT_SLICES: Collection =
    Collection { path: "/apis/discovery.k8s.io/v1/endpointslices", metadata_only: false };

/// Class of the services that are published; so is a service that names none.
const CLASS: &str = "cairn.internal/uplink";
/// Label of a slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Most events of a look.
const MOST_EVENTS: usize = 32;

/// Service, as far as it is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServiceObject {
    #[serde(deserialize_with = "kubeapi::brief")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ServiceSpec,
    #[serde(default)]
    status: ServiceStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    load_balancer_class: Option<String>,
    external_traffic_policy: String,
    ports: Vec<ServicePort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ServicePort {
    port: u16,
    #[serde(default)]
    protocol: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceStatus {
    load_balancer: Balanced,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Balanced {
    ingress: Vec<Place>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Place {
    ip: String,
    hostname: String,
}

/// Slice of a service's endpoints, as far as it is looked at: which machines have one that is ready.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EndpointSlice {
    #[serde(deserialize_with = "kubeapi::brief")]
    metadata: ObjectMeta,
    #[serde(default)]
    endpoints: Vec<SliceEndpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceEndpoint {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    conditions: EndpointConditions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct EndpointConditions {
    /// Absent where nobody knows, which counts as ready.
    ready: Option<bool>,
}

impl Resource for ServiceObject {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Resource for EndpointSlice {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Ports that owners have published for the services of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRule {
    /// Which namespace.
    pub namespace: NamespaceName,
    /// Which ports.
    pub ports: BTreeSet<UplinkPort>,
    /// Workers on which they are.
    pub nodes: BTreeSet<NodeName>,
    /// Floating address at which services are reached; none where it is at the workers' own.
    pub floating: Option<FloatingAddress>,
}

/// Floating address of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloatingAddress {
    /// Which address.
    pub address: Ipv4Addr,
    /// Worker that holds it, or is to.
    pub holder: Option<NodeName>,
}

impl NamespaceRule {
    /// Whether it publishes all these ports for services of a namespace.
    fn allows(&self, namespace: &str, ports: &BTreeSet<UplinkPort>) -> bool {
        self.namespace.as_str() == namespace && ports.is_subset(&self.ports)
    }

    fn address(&self) -> Option<Ipv4Addr> {
        self.floating.as_ref().map(|floating| floating.address)
    }
}

/// Objects as they are known, and what the cluster's records say.
#[derive(Debug, Clone, Copy)]
pub struct PublishWorld<'a> {
    /// All services; none before they are listed.
    pub services: Option<&'a Objects<ServiceObject>>,
    /// All slices of endpoints; none before they are listed.
    pub slices: Option<&'a Objects<EndpointSlice>>,
    /// All nodes; none before they are listed.
    pub nodes: Option<&'a Objects<NodeObject>>,
    /// Workers, with the addresses that they report of their uplinks.
    pub workers: &'a Workers,
    /// Rules for services.
    pub rules: &'a [NamespaceRule],
    /// Addresses of the cluster's own, at which nothing is published, whatever a machine reports.
    pub inside: Prefixes,
}

/// Keeper of the addresses at which services are reached.
#[derive(Debug, Default)]
pub struct ServicePublisher {
    /// Notices that people were told, with the uids of their services.
    told: BTreeSet<String>,
}

/// Why a service is not reached where it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unpublished {
    /// A port of neither TCP nor UDP.
    #[error("port {0} is neither of TCP nor of UDP, and no uplink publishes it")]
    Protocol(String),
    /// No rule has all its ports.
    #[error(
        "no rule publishes {ports} for this namespace, so no LAN reaches the service; an owner makes one: \
         cairnctl publish add {ports} --namespace {namespace}"
    )]
    NoRule { ports: String, namespace: String },
    /// An older service has a port.
    #[error("{port} of {nodes} is of the older service {by}; this one is not reached there")]
    Taken { port: UplinkPort, nodes: String, by: String },
    /// A floating address is elsewhere than its endpoints.
    #[error("{address} is held by {holder}, where the service has no ready endpoint; it is not reached there")]
    Elsewhere { address: Ipv4Addr, holder: NodeName },
}

/// Workers on which a service may be reached, each with the rule that says so, and why not on more.
type Claimed<'a> = (Vec<Claim<'a>>, Option<Unpublished>);

/// Worker on which a service may be reached by a rule.
#[derive(Debug, Clone, Copy)]
struct Claim<'a> {
    rule: &'a NamespaceRule,
    node: &'a NodeName,
    worker: &'a Worker,
}

impl Claim<'_> {
    /// Addresses at which the worker is reached by the rule, while it is fit for that.
    fn addresses(&self) -> Vec<Ipv4Addr> {
        match &self.rule.floating {
            None => self.worker.addresses.iter().copied().collect(),
            Some(floating) => {
                (floating.holder.as_ref() == Some(self.node)).then_some(floating.address).into_iter().collect()
            }
        }
    }

    /// Why the service is not reached at a floating address whose holder does not serve it.
    fn elsewhere(&self, serves: impl Fn(&NodeName) -> bool) -> Option<Unpublished> {
        let floating = self.rule.floating.as_ref().filter(|it| it.holder.as_ref() == Some(self.node))?;
        let elsewhere = Unpublished::Elsewhere { address: floating.address, holder: self.node.clone() };
        (!serves(self.node)).then_some(elsewhere)
    }
}

/// Services that are published, the oldest first.
pub(crate) fn in_order(services: &Objects<ServiceObject>) -> Vec<&ServiceObject> {
    let mut ours: Vec<&ServiceObject> = services.values().filter(|service| service.is_ours()).collect();
    ours.sort_by_key(|service| (&service.metadata.creation_timestamp, &service.metadata.uid));
    ours
}

/// Whether a node is Ready.
pub(crate) fn is_ready(nodes: &Objects<NodeObject>, node: &NodeName) -> bool {
    nodes.get(&(String::new(), node.to_string())).is_some_and(NodeObject::is_ready)
}

impl ServicePublisher {
    /// Writes by which services are reached where they should be, and events of those that are not, once each; nothing before all
    /// objects are known.
    pub fn due(&mut self, world: PublishWorld<'_>, unix: Duration) -> Vec<ApiWrite> {
        let (Some(services), Some(slices), Some(nodes)) = (world.services, world.slices, world.nodes) else {
            return Vec::new();
        };
        let (mut taken, mut writes, mut notices) = (BTreeMap::new(), Vec::new(), Vec::new());
        for service in in_order(services) {
            let (claimed, why) = service.claims(&world, &mut taken);
            let serves = |node: &NodeName| !service.is_local() || service.has_endpoint(slices, node);
            let reached = claimed.iter().filter(|claim| is_ready(nodes, claim.node) && serves(claim.node));
            let places = reached.flat_map(Claim::addresses).filter(|at| may_publish(*at, &world.inside));
            writes.extend(service.status(&places.collect()));
            let elsewhere = claimed.iter().find_map(|claim| claim.elsewhere(serves));
            notices.extend(why.or(elsewhere).map(|why| (service, why.to_string())));
        }
        let key = |(service, why): &(&ServiceObject, String)| format!("{}\0{why}", service.metadata.uid);
        let now: BTreeSet<String> = notices.iter().map(key).collect();
        let new = notices.iter().filter(|notice| !self.told.contains(&key(notice))).take(MOST_EVENTS);
        writes.extend(new.map(|(service, why)| service.warning(why, unix)));
        self.told = now;
        writes
    }
}

/// Whether an address that a machine reports can be one of its uplinks'.
fn may_publish(address: Ipv4Addr, inside: &Prefixes) -> bool {
    let is_ours = [inside.vpn, inside.pods, inside.services].iter().any(|prefix| prefix.contains(address));
    let is_special = address.is_loopback() || address.is_unspecified() || address.is_link_local();
    !(is_ours || is_special || address.is_multicast() || address.is_broadcast())
}

impl ServiceObject {
    /// Whether a rule publishes all its ports, and it keeps its clients' addresses, so that it is reached only where it has endpoints.
    pub(crate) fn is_tied_by(&self, rule: &NamespaceRule) -> bool {
        self.is_local() && self.ports().is_ok_and(|ports| rule.allows(&self.metadata.namespace, &ports))
    }

    fn is_ours(&self) -> bool {
        let ServiceSpec { kind, load_balancer_class: class, .. } = &self.spec;
        kind == "LoadBalancer" && class.as_ref().is_none_or(|class| class == CLASS)
    }

    fn is_local(&self) -> bool {
        self.spec.external_traffic_policy == "Local"
    }

    fn ports(&self) -> Result<BTreeSet<UplinkPort>, Unpublished> {
        let port = |ServicePort { port, protocol }: &ServicePort| {
            let named = PortProtocol::of_word(&protocol.to_ascii_lowercase());
            let port_of = |protocol| UplinkPort::new(protocol, *port);
            named.and_then(port_of).ok_or_else(|| Unpublished::Protocol(format!("{port}/{protocol}")))
        };
        self.spec.ports.iter().map(port).collect()
    }

    /// Takes the ports on all machines of its rules on which no older service has one of them.
    fn claims<'a>(
        &'a self,
        world: &PublishWorld<'a>,
        taken: &mut BTreeMap<(&'a NodeName, Option<Ipv4Addr>, UplinkPort), &'a Self>,
    ) -> Claimed<'a> {
        let ObjectMeta { namespace, .. } = &self.metadata;
        let ports = match self.ports() {
            Ok(ports) => ports,
            Err(why) => return (Vec::new(), Some(why)),
        };
        let rules: Vec<&NamespaceRule> = world.rules.iter().filter(|rule| rule.allows(namespace, &ports)).collect();
        if rules.is_empty() {
            let ports = ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            return (Vec::new(), Some(Unpublished::NoRule { ports, namespace: namespace.clone() }));
        }
        let of_rule = |rule: &'a NamespaceRule| {
            let workers = world.workers.iter().filter(|(node, _)| rule.nodes.contains(node));
            workers.map(move |(node, worker)| Claim { rule, node, worker })
        };
        let older = |claim: &Claim<'a>| {
            let at = |port: &UplinkPort| (claim.node, claim.rule.address(), *port);
            ports.iter().find_map(|port| Some((*port, *taken.get(&at(port))?)))
        };
        let mut lost = Vec::new();
        let mut free = Vec::new();
        for claim in rules.into_iter().flat_map(of_rule) {
            match older(&claim) {
                Some(holder) => lost.push((claim.node, holder)),
                None => free.push(claim),
            }
        }
        let takes =
            |claim: &Claim<'a>| ports.iter().map(|port| (claim.node, claim.rule.address(), *port)).collect::<Vec<_>>();
        taken.extend(free.iter().flat_map(takes).map(|at| (at, self)));
        let why = lost.first().map(|(_, (port, by))| {
            let of_it = lost.iter().filter(|(_, (_, holder))| std::ptr::eq(*holder, *by));
            Unpublished::Taken {
                port: *port,
                nodes: of_it.map(|(node, _)| node.to_string()).collect::<Vec<_>>().join(", "),
                by: format!("{}/{}", by.metadata.namespace, by.metadata.name),
            }
        });
        (free, why)
    }

    pub(crate) fn has_endpoint(&self, slices: &Objects<EndpointSlice>, node: &NodeName) -> bool {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        let of_namespace = slices.range((namespace.clone(), String::new())..).map(|(_, slice)| slice);
        let of_namespace = of_namespace.take_while(|slice| slice.metadata.namespace == *namespace);
        let mut endpoints = of_namespace
            .filter(|slice| slice.metadata.labels.get(SERVICE_NAME) == Some(name))
            .flat_map(|slice| &slice.endpoints);
        endpoints.any(|endpoint| endpoint.node_name == node.as_str() && endpoint.conditions.ready != Some(false))
    }

    /// Write of the status with these addresses, where it has others.
    fn status(&self, places: &BTreeSet<Ipv4Addr>) -> Option<ApiWrite> {
        let shown = &self.status.load_balancer.ingress;
        let wanted: Vec<String> = places.iter().map(ToString::to_string).collect();
        let is_shown =
            shown.iter().map(|place| (&place.ip, place.hostname.as_str())).eq(wanted.iter().map(|ip| (ip, "")));
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        let ingress: Vec<_> = wanted.iter().map(|ip| json!({ "ip": ip })).collect();
        (!is_shown).then(|| ApiWrite::Merge {
            path: format!("/api/v1/namespaces/{namespace}/services/{name}/status"),
            patch: json!({ "status": { "loadBalancer": { "ingress": ingress } } }).to_string(),
        })
    }

    fn warning(&self, message: &str, unix: Duration) -> ApiWrite {
        let ObjectMeta { namespace, name, uid, .. } = &self.metadata;
        let warning = ObjectWarning {
            prefix: "cairn-publish",
            words: &format!("{uid}\0{message}"),
            reporter: "cairn.internal/publish",
            kind: ("v1", "Service"),
            namespace,
            name,
            uid,
            reason: "NotPublished",
            message,
        };
        warning.write(unix)
    }
}

#[cfg(test)]
pub(crate) mod tests;
