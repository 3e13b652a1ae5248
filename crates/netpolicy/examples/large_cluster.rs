//! Compiles 1 000 policies over 5 000 pods on 50 machines, and prints how large the parts are:
//! `time cargo run --release -p netpolicy --example large_cluster`.
#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::net::Ipv4Addr;

use model::Ipv4Prefix;
use netpolicy::{KubernetesInventory, PolicyInputs, PolicyPart, compile};
use serde_json::{Value, json};

const PODS: usize = 5_000;
const POLICIES: usize = 1_000;
const NAMESPACES: usize = 100;
const NODES: usize = 50;

fn main() {
    let cluster = cluster();
    let nodes = (0..NODES).map(|node| (format!("node-{node}"), prefix(node))).collect();
    let compiled = compile(&PolicyInputs::from(&cluster), &nodes);
    let sizes: Vec<usize> = (0..NODES).map(|node| compiled.part(&format!("node-{node}")).bytes.len()).collect();
    let first = PolicyPart::read(&compiled.part("node-0").bytes);
    println!(
        "{} policies, {} pods, {NODES} machines: parts of {} to {} bytes, {} notices, the first reads: {}",
        cluster.policies.len(),
        cluster.pods.len(),
        sizes.iter().min().unwrap_or(&0),
        sizes.iter().max().unwrap_or(&0),
        compiled.notices.len(),
        first.is_ok(),
    );
}

fn prefix(node: usize) -> Ipv4Prefix {
    let third = u8::try_from(node + 1).expect("they are few");
    Ipv4Prefix::around(Ipv4Addr::new(10, 244, third, 0), 24).expect("a prefix")
}

fn cluster() -> KubernetesInventory {
    let pod = |number: usize| {
        let (node, place) = (number % NODES, number / NODES);
        json!({
            "metadata": { "name": format!("pod-{number}"), "namespace": format!("team-{}", number % NAMESPACES),
                "labels": { "app": format!("app-{}", number % 7), "tier": format!("tier-{}", number % 3) } },
            "spec": { "nodeName": format!("node-{node}"),
                "containers": [{ "ports": [{ "name": "web", "containerPort": 8000 + number % 3 }] }] },
            "status": { "phase": "Running", "podIP": format!("10.244.{}.{}", node + 1, place + 2) },
        })
    };
    let namespace = |number: usize| json!({ "metadata": { "name": format!("team-{number}"), "labels": { "group": format!("group-{}", number % 10) } } });
    let policy = |number: usize| {
        let selector = match number % 5 {
            0 => json!({}),
            1 => json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["tier-0"] }] }),
            _ => json!({ "matchLabels": { "app": format!("app-{}", number % 7) } }),
        };
        json!({
            "metadata": { "name": format!("policy-{number}"), "namespace": format!("team-{}", number % NAMESPACES) },
            "spec": {
                "podSelector": selector,
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    { "from": [{ "podSelector": { "matchLabels": { "tier": "tier-1" } } }], "ports": [{ "port": "web" }] },
                    { "from": [{ "namespaceSelector": { "matchLabels": { "group": format!("group-{}", number % 10) } } }],
                        "ports": [{ "port": 9000, "endPort": 9100 }] },
                ],
                "egress": [
                    { "to": [{ "ipBlock": { "cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", format!("192.168.{}.0/24", number % 250)] } }] },
                    { "to": [{ "podSelector": { "matchLabels": { "app": "app-1" } },
                        "namespaceSelector": { "matchExpressions": [{ "key": "group", "operator": "Exists" }] } }],
                        "ports": [{ "port": "web" }, { "port": 53, "protocol": "UDP" }] },
                ],
            },
        })
    };
    let list = |items: Vec<Value>| json!({ "items": items }).to_string().into_bytes();
    let (pods, namespaces) = (list((0..PODS).map(pod).collect()), list((0..NAMESPACES).map(namespace).collect()));
    let policies = list((0..POLICIES).map(policy).collect());
    KubernetesInventory::read(&pods, &namespaces, &policies).expect("they were just written")
}
