//! Reference for the compiler: whether a connection is allowed, in the words of the API's documentation
//! (`k8s.io/api/networking/v1`, "Network Policies" of the concepts), policy by policy. Clusters are made by chance; each connection
//! is judged by the reference, by the part that a machine reads, and by the table that is written of it.

use std::net::Ipv4Addr;

use model::Ipv4Prefix;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::address::Protocol;
use crate::object::{
    Labels, NetworkPolicy, PolicyPeer, PolicyPod, PolicyPort, PortName, Requirement, Selector, SelectorOperator,
};
use crate::part::{Peers, PolicyPart, Ports};
use crate::{KubernetesInventory, PolicyInputs, compile, written};

/// Connection by its two ends, the protocol and the port at its destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// Whether the policies of a cluster allow a connection between two addresses of different machines, or of two pods.
fn allowed(cluster: &KubernetesInventory, at: Connection) -> bool {
    let (from, to) = (pod_at(cluster, at.from), pod_at(cluster, at.to));
    // A pod cannot block access to itself.
    if at.from == at.to {
        return true;
    }
    let selecting = |pod: &PolicyPod, kind: &str| -> Vec<&NetworkPolicy> {
        let is_of = |policy: &&NetworkPolicy| {
            let is_selected = selects(&policy.spec.pod_selector, &pod.metadata.labels);
            policy.metadata.namespace == pod.metadata.namespace && is_selected && has_type(policy, kind)
        };
        cluster.policies.iter().filter(is_of).collect()
    };
    // By default a pod is not isolated. If any policy selects it for a direction, what some policy of that direction allows is all.
    let egress = from.map_or_else(Vec::new, |pod| selecting(pod, "Egress"));
    let ingress = to.map_or_else(Vec::new, |pod| selecting(pod, "Ingress"));
    let peer = |of: &NetworkPolicy, peers: &[PolicyPeer], address, pod| {
        peers.is_empty() || peers.iter().any(|peer| is_peer(cluster, &of.metadata.namespace, peer, address, pod))
    };
    let port = |ports: &[PolicyPort]| ports.is_empty() || ports.iter().any(|port| is_port(port, at, to));
    let says = |of: &NetworkPolicy| of.spec.egress.iter().any(|it| peer(of, &it.peers, at.to, to) && port(&it.ports));
    let hears =
        |of: &NetworkPolicy| of.spec.ingress.iter().any(|it| peer(of, &it.peers, at.from, from) && port(&it.ports));
    (egress.is_empty() || egress.into_iter().any(says)) && (ingress.is_empty() || ingress.into_iter().any(hears))
}

/// "If no policyTypes are specified then by default Ingress will always be set and Egress will be set if there are egress rules."
fn has_type(policy: &NetworkPolicy, kind: &str) -> bool {
    let types = &policy.spec.policy_types;
    let by_default = kind == "Ingress" || !policy.spec.egress.is_empty();
    if types.is_empty() { by_default } else { types.iter().any(|it| it == kind) }
}

/// "The requirements are ANDed"; `NotIn` and `DoesNotExist` hold for an object without the label.
fn selects(selector: &Selector, labels: &Labels) -> bool {
    let label = |key: &str| labels.get(key).map(String::as_str);
    let holds = |Requirement { key, operator, values }: &Requirement| match operator {
        SelectorOperator::In => values.iter().any(|value| label(key) == Some(value)),
        SelectorOperator::NotIn => values.iter().all(|value| label(key) != Some(value)),
        SelectorOperator::Exists => label(key).is_some(),
        SelectorOperator::DoesNotExist => label(key).is_none(),
        SelectorOperator::Unknown => panic!("none is made here"),
    };
    selector.match_labels.iter().all(|(key, value)| label(key) == Some(value))
        && selector.match_expressions.iter().all(holds)
}

/// Pod of an address: one that lives and does not use its machine's.
fn pod_at(cluster: &KubernetesInventory, address: Ipv4Addr) -> Option<&PolicyPod> {
    let lives = |pod: &&PolicyPod| !pod.spec.host_network && !["Succeeded", "Failed"].contains(&&*pod.status.phase);
    cluster.pods.iter().filter(lives).find(|pod| pod.status.pod_ip == address.to_string())
}

fn is_peer(
    cluster: &KubernetesInventory,
    own: &str,
    peer: &PolicyPeer,
    address: Ipv4Addr,
    pod: Option<&PolicyPod>,
) -> bool {
    if let Some(block) = &peer.ip_block {
        return is_in(address, &block.cidr) && !block.except.iter().any(|except| is_in(address, except));
    }
    let Some(pod) = pod else { return false };
    let is_selected = peer.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pod.metadata.labels));
    let Some(selector) = &peer.namespace_selector else { return is_selected && pod.metadata.namespace == own };
    let namespace = cluster.namespaces.iter().find(|it| it.metadata.name == pod.metadata.namespace);
    is_selected && namespace.is_some_and(|it| selects(selector, &it.metadata.labels))
}

fn is_in(address: Ipv4Addr, cidr: &str) -> bool {
    let Some((first, bits)) = cidr.split_once('/') else { return false };
    let (Ok(first), Ok(bits)) = (first.parse::<Ipv4Addr>(), bits.parse::<u32>()) else { return false };
    (u64::from(address.to_bits()) >> (32 - bits)) == (u64::from(first.to_bits()) >> (32 - bits))
}

fn is_port(port: &PolicyPort, at: Connection, to: Option<&PolicyPod>) -> bool {
    let is_it = |number: u16| number == at.port;
    Protocol::named(&port.protocol) == Some(at.protocol)
        && match &port.port {
            None => true,
            Some(PortName::Number(first)) => (*first..=port.end_port.unwrap_or(*first)).contains(&at.port),
            Some(PortName::Name(name)) => to.is_some_and(|pod| {
                let named = pod.spec.containers.iter().flat_map(|container| &container.ports);
                let mut named = named.filter(|it| it.name == *name && it.protocol == port.protocol);
                named.next().is_some_and(|it| is_it(it.container_port))
            }),
        }
}

/// Whether a part's sets let a machine pass a connection on.
fn passes(part: &PolicyPart, own: Ipv4Prefix, at: Connection) -> bool {
    let Some(judged) = &part.judged else { return true };
    if at.from == at.to {
        return judged.pods.contains_key(&at.from);
    }
    let side = |pod: Ipv4Addr, peer: Ipv4Addr, is_ingress: bool| {
        if !own.contains(pod) {
            return true;
        }
        let Some(chains) = judged.pods.get(&pod) else { return false };
        let Some(chain) = (if is_ingress { chains.ingress } else { chains.egress }) else { return true };
        judged.chains[chain as usize].iter().any(|allowed| {
            let peers = match allowed.peers {
                Peers::All => true,
                Peers::Set(set) => judged.sets[set as usize].contains(peer.to_bits()),
            };
            let has = |ports: &[(Protocol, u16, u16)]| {
                ports
                    .iter()
                    .any(|(protocol, first, last)| *protocol == at.protocol && (*first..=*last).contains(&at.port))
            };
            peers
                && match &allowed.ports {
                    Ports::All => true,
                    Ports::Of(ports) => has(ports.ranges()),
                }
        })
    };
    side(at.from, at.to, false) && side(at.to, at.from, true)
}

/// Whether the written table lets a machine pass the first packet of a connection on.
pub(crate) fn is_let_through(text: &str, at: Connection) -> bool {
    ["egress", "ingress"].iter().all(|base| walk(text, base, at).unwrap_or(true))
}

/// Verdict of a chain, read rule by rule as the kernel does.
fn walk(text: &str, chain: &str, at: Connection) -> Option<bool> {
    let beginning = format!("add rule inet cairn-policy {chain} ");
    text.lines().filter_map(|line| line.strip_prefix(&beginning)).find_map(|rule| obey(text, rule, at))
}

fn obey(text: &str, rule: &str, at: Connection) -> Option<bool> {
    let words: Vec<&str> = rule.split(' ').collect();
    let field = |name: &str| if name == "saddr" { at.from } else { at.to };
    let mut rest = &words[..];
    loop {
        let (holds, length) = match rest {
            ["accept"] => return Some(true),
            ["drop"] => return Some(false),
            ["jump", chain] => return walk(text, chain, at),
            ["ct", "state", ..] => (false, 3),
            ["ip", "saddr", ".", "ip", "daddr", set, ..] => {
                (element(text, set, &format!("{} . {}", at.from, at.to)).is_some(), 6)
            }
            ["ip", side, "vmap", map] => {
                let verdict = element(text, map, &field(side).to_string())?;
                return walk(text, verdict.strip_prefix(": goto ").expect("maps lead to chains"), at);
            }
            ["ip", side, "!=", set, ..] => (element(text, set, &field(side).to_string()).is_none(), 4),
            ["ip", side, "{", ..] => {
                let end = rest.iter().position(|word| *word == "}").expect("a set ends");
                let among = rest[3..end].iter().map(|word| word.trim_end_matches(','));
                let whole = |word: &str| if word.contains('/') { word.to_owned() } else { format!("{word}/32") };
                (among.map(whole).any(|prefix| is_in(field(side), &prefix)), end + 1)
            }
            ["ip", side, prefix, ..] => (is_in(field(side), prefix), 3),
            ["meta", "l4proto", name, ..] => (at.protocol.name() == *name, 3),
            [name, "dport", "{", ..] => {
                let end = rest.iter().position(|word| *word == "}").expect("a set ends");
                let holds = |word: &&str| {
                    let (first, last) = word.split_once('-').unwrap_or((word, word));
                    let number = |text: &str| text.parse::<u16>().expect("a port");
                    (number(first)..=number(last)).contains(&at.port)
                };
                let among = rest[3..end].iter().map(|word| word.trim_end_matches(','));
                (at.protocol.name() == *name && among.clone().any(|word| holds(&word)), end + 1)
            }
            other => panic!("{other:?} is no rule"),
        };
        if !holds {
            return None;
        }
        rest = &rest[length..];
    }
}

/// Rest of the element of a set that has this key.
fn element<'t>(text: &'t str, set: &str, key: &str) -> Option<&'t str> {
    let beginning = format!("add element inet cairn-policy {} {{ ", set.trim_start_matches('@'));
    let elements = text.lines().filter_map(|line| line.strip_prefix(&beginning)?.strip_suffix(" }"));
    let rest = |element: &'t str| element.strip_prefix(key).filter(|rest| rest.is_empty() || rest.starts_with(" :"));
    elements.flat_map(|elements| elements.split(", ")).find_map(rest).map(str::trim_start)
}

const NODES: [&str; 2] = ["one", "two"];
const OUTSIDE: [Ipv4Addr; 3] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 200), Ipv4Addr::new(198, 51, 100, 7)];

fn machine(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 118, 0, u8::try_from(node + 1).expect("there are two"))
}

fn own(node: usize) -> Ipv4Prefix {
    Ipv4Prefix::around(Ipv4Addr::new(10, 244, u8::try_from(node + 1).expect("there are two"), 0), 24).expect("a prefix")
}

fn labels() -> impl Strategy<Value = Labels> {
    let label = |key: &'static str| {
        prop::option::of(prop::sample::select(vec!["x", "y"]))
            .prop_map(move |it| it.map(|value| (key.to_owned(), value.to_owned())))
    };
    (label("a"), label("b")).prop_map(|(one, other)| one.into_iter().chain(other).collect())
}

fn selector() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let values = prop::sample::subsequence(vec!["x", "y"], 1..=2);
    let expression = (prop::sample::select(vec!["a", "b"]), operator, values).prop_map(|(key, operator, values)| {
        let values = if operator.ends_with("In") { values } else { vec![] };
        json!({ "key": key, "operator": operator, "values": values })
    });
    prop_oneof![
        1 => Just(json!({})),
        3 => labels().prop_map(|labels| json!({ "matchLabels": labels })),
        2 => (labels(), prop::collection::vec(expression, 1..3)).prop_map(|(labels, expressions)| {
            json!({ "matchLabels": labels, "matchExpressions": expressions })
        }),
    ]
}

fn peer() -> impl Strategy<Value = Value> {
    const BLOCKS: [&str; 8] = [
        "0.0.0.0/0",
        "192.0.2.0/24",
        "192.0.2.128/25",
        "10.244.0.0/16",
        "10.244.1.0/24",
        "10.118.0.1/32",
        "198.51.100.0/22",
        "fd00::/8",
    ];
    let block = (prop::sample::select(&BLOCKS[..]), prop::sample::subsequence(&BLOCKS[1..], 0..3));
    prop_oneof![
        2 => selector().prop_map(|pods| json!({ "podSelector": pods })),
        2 => selector().prop_map(|namespaces| json!({ "namespaceSelector": namespaces })),
        2 => (selector(), selector()).prop_map(|(pods, namespaces)| json!({ "podSelector": pods, "namespaceSelector": namespaces })),
        2 => block.prop_map(|(cidr, except)| json!({ "ipBlock": { "cidr": cidr, "except": except } })),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = || prop::sample::select(vec!["TCP", "TCP", "UDP", "SCTP"]);
    prop_oneof![
        1 => protocol().prop_map(|protocol| json!({ "protocol": protocol })),
        3 => (protocol(), prop::sample::select(vec![53, 80, 8080])).prop_map(|(protocol, port)| json!({ "protocol": protocol, "port": port })),
        2 => (50_u16..90, 0_u16..40).prop_map(|(port, more)| json!({ "port": port, "endPort": port + more })),
        3 => (protocol(), prop::sample::select(vec!["web", "dns"])).prop_map(|(protocol, name)| json!({ "protocol": protocol, "port": name })),
    ]
}

fn rules(peers: &'static str) -> impl Strategy<Value = Vec<Value>> {
    let rule = (prop::collection::vec(peer(), 0..3), prop::collection::vec(port(), 0..3));
    prop::collection::vec(rule.prop_map(move |(all, ports)| json!({ peers: all, "ports": ports })), 0..3)
}

fn policy() -> impl Strategy<Value = Value> {
    let types = prop::sample::subsequence(vec!["Ingress", "Egress"], 0..=2);
    (0..2_usize, selector(), types, rules("from"), rules("to")).prop_map(
        |(namespace, selector, types, ingress, egress)| {
            json!({ "metadata": { "name": "p", "namespace": format!("n{namespace}") }, "spec": {
            "podSelector": selector, "policyTypes": types, "ingress": ingress, "egress": egress } })
        },
    )
}

fn pod() -> impl Strategy<Value = Value> {
    let phase = prop::sample::select(vec!["Running", "Running", "Running", "Running", "Pending", "Succeeded"]);
    let ports = prop::sample::subsequence(
        vec![("web", 80, "TCP"), ("web", 8080, "TCP"), ("dns", 53, "UDP"), ("dns", 53, "TCP"), ("web", 60, "SCTP")],
        0..4,
    );
    (0..2_usize, labels(), 0..NODES.len(), phase, prop::bool::weighted(0.2), ports).prop_map(
        |(namespace, labels, node, phase, host, ports)| {
            let ports: Vec<Value> = ports
                .into_iter()
                .map(|(name, port, protocol)| json!({ "name": name, "containerPort": port, "protocol": protocol }))
                .collect();
            json!({ "metadata": { "namespace": format!("n{namespace}"), "labels": labels },
                "spec": { "nodeName": NODES[node], "hostNetwork": host, "containers": [{ "ports": ports }] },
                "status": { "phase": phase } })
        },
    )
}

prop_compose! {
    fn cluster()(
        mut pods in prop::collection::vec(pod(), 1..7),
        mut policies in prop::collection::vec(policy(), 0..5),
        namespaces in prop::collection::vec(labels(), 2),
    ) -> KubernetesInventory {
        for (number, pod) in pods.iter_mut().enumerate() {
            let node = NODES.iter().position(|node| pod["spec"]["nodeName"] == *node).expect("it has one");
            let address = if pod["spec"]["hostNetwork"] == true {
                machine(node)
            } else {
                Ipv4Addr::from_bits(own(node).address().to_bits() + 2 + u32::try_from(number).expect("they are few"))
            };
            pod["metadata"]["name"] = json!(format!("pod{number}"));
            pod["status"]["podIP"] = json!(address);
            pod["status"]["podIPs"] = json!([{ "ip": address }, { "ip": format!("fd00::{number}") }]);
        }
        for (number, policy) in policies.iter_mut().enumerate() {
            policy["metadata"]["name"] = json!(format!("policy{number}"));
        }
        let namespaces = namespaces.iter().enumerate();
        let namespaces: Vec<Value> =
            namespaces.map(|(number, labels)| json!({ "metadata": { "name": format!("n{number}"), "labels": labels } })).collect();
        let list = |items: &[Value]| json!({ "items": items }).to_string().into_bytes();
        KubernetesInventory::read(&list(&pods), &list(&namespaces), &list(&policies)).expect("they are lists")
    }
}

/// Addresses of a cluster that take part in connections, each with the machine that forwards for it.
fn ends(cluster: &KubernetesInventory) -> Vec<(Ipv4Addr, Option<usize>)> {
    let lives = |pod: &&PolicyPod| !["Succeeded", "Failed"].contains(&&*pod.status.phase) && !pod.spec.host_network;
    let pods = cluster.pods.iter().filter(lives).map(|pod| pod.status.pod_ip.parse().expect("an address"));
    let pods = pods.map(|pod| (pod, (0..NODES.len()).find(|node| own(*node).contains(pod))));
    let machines = (0..NODES.len()).map(|node| (machine(node), Some(node)));
    pods.chain(machines).chain(OUTSIDE.map(|address| (address, None))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Proves: W2
    #[test]
    fn parts_and_tables_judge_as_the_reference_does(cluster in cluster()) {
        let nodes = (0..NODES.len()).map(|node| (NODES[node].to_owned(), own(node))).collect();
        let compiled = compile(&PolicyInputs::from(&cluster), &nodes);
        let parts = NODES.map(|node| PolicyPart::read(&compiled.part(node).bytes).expect("a machine reads it"));
        let texts = [0, 1].map(|node| written(&parts[node], own(node)));
        for text in &texts {
            let read = nft::Transaction::parse(text).expect("nftables' language");
            prop_assert!(read.batch(&nft::KernelSets::new()).is_ok(), "{}", text);
        }
        let ends = ends(&cluster);
        for (from, one) in &ends {
            for (to, other) in &ends {
                // Between machines and outside nothing is forwarded; a machine and its own pod speak by input and output.
                let is_pod = |address: &Ipv4Addr| (0..NODES.len()).any(|node| own(node).contains(*address));
                let is_own = one == other && !(is_pod(from) && is_pod(to));
                if is_own || !(is_pod(from) || is_pod(to)) {
                    continue;
                }
                for protocol in Protocol::ALL {
                    for port in [53, 60, 80, 8080, 9] {
                        let at = Connection { from: *from, to: *to, protocol, port };
                        let expected = allowed(&cluster, at);
                        // Each of the two machines that forward it judges its own pods.
                        let nodes: Vec<usize> = [*one, *other].into_iter().flatten().collect();
                        let told = nodes.iter().all(|node| passes(&parts[*node], own(*node), at));
                        let through = nodes.iter().all(|node| is_let_through(&texts[*node], at));
                        prop_assert_eq!((told, through), (expected, expected), "{:?}: {}", at, texts.concat());
                    }
                }
            }
        }
    }
}
