//! Cost of a changed policy for a coordinator of a large cluster: 1 000 policies over 5 000 pods of 50 machines are compiled anew.
//! Prints the median CPU time, and fails where it is over its limit, or where a machine is told less than what was asked.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use netpolicy::{KubernetesInventory, MOST_BYTES, NodePrefixes, PolicyInputs, PolicyPart, compile, written};
use serde_json::{Value, json};
use testkit::rounds::Rounds;

const MACHINES: u8 = 50;
const PODS_OF_MACHINE: u8 = 100;
const NAMESPACES: usize = 50;
const POLICIES_OF_NAMESPACE: usize = 20;
/// Applications of a namespace; each has as many pods.
const APPS: usize = 20;
const ROUNDS: usize = 7;
const LIMIT: Duration = Duration::from_secs(1);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let pods: Vec<Value> = (0..MACHINES).flat_map(|node| (0..PODS_OF_MACHINE).map(move |n| pod(node, n))).collect();
    let namespaces: Vec<Value> = (0..NAMESPACES).map(namespace).collect();
    let policies: Vec<Value> =
        (0..NAMESPACES).flat_map(|space| (0..POLICIES_OF_NAMESPACE).map(move |n| policy(space, n))).collect();
    let list = |items: &[Value]| json!({ "items": items }).to_string().into_bytes();
    let inventory = KubernetesInventory::read(&list(&pods), &list(&namespaces), &list(&policies))?;
    let nodes: NodePrefixes = (0..MACHINES).map(|node| (node_name(node), model::pod_prefix(node + 1))).collect();
    let (mut rounds, mut largest) = (Rounds::default(), 0);
    for _ in 0..ROUNDS {
        let inputs = PolicyInputs::from(&inventory);
        let compiled = rounds.work(|| compile(&inputs, &nodes));
        if let Some(notice) = compiled.notices.first() {
            return Err(format!("something is left out: {notice}").into());
        }
        for (node, prefix) in &nodes {
            let bytes = &compiled.part(node).bytes;
            let table = written(&PolicyPart::read(bytes)?, *prefix);
            let is_judged = |n: u8| prefix.nth(u32::from(n) + 2).is_some_and(|ip| table.contains(&format!("{ip} ")));
            if let Some(n) = (0..PODS_OF_MACHINE).find(|n| !is_judged(*n)) {
                return Err(format!("{node} judges all of its pods but {n}").into());
            }
            largest = largest.max(bytes.len());
        }
    }
    let what = format!(
        "{} policies over {} pods of {MACHINES} machines (largest part: {largest} of {MOST_BYTES} bytes)",
        policies.len(),
        pods.len(),
    );
    Ok(rounds.conclude(&what, LIMIT)?)
}

fn node_name(node: u8) -> String {
    format!("m{node}")
}

fn namespace_name(space: usize) -> String {
    format!("space-{space}")
}

fn namespace(space: usize) -> Value {
    json!({ "metadata": { "name": namespace_name(space), "labels": { "team": format!("t{}", space % 10) } } })
}

/// Pods of an application are on all machines, and those of a machine of all namespaces.
fn pod(node: u8, n: u8) -> Value {
    let number = usize::from(node) * usize::from(PODS_OF_MACHINE) + usize::from(n);
    let (space, app) = (number % NAMESPACES, number / NAMESPACES % APPS);
    let tier = if app.is_multiple_of(2) { "front" } else { "back" };
    let ports = json!([{ "name": "web", "containerPort": 8000 + app, "protocol": "TCP" }]);
    json!({
        "metadata": {
            "name": format!("pod-{number}"),
            "namespace": namespace_name(space),
            "labels": { "app": format!("a{app}"), "tier": tier },
        },
        "spec": { "nodeName": node_name(node), "containers": [{ "ports": ports }] },
        "status": { "phase": "Running", "podIP": format!("10.244.{}.{}", node + 1, n + 2) },
    })
}

/// Policies as charts bring them: an application hears another one, or those of a team; speaks to a network and asks for names; and
/// who is named in no other is closed.
fn policy(space: usize, n: usize) -> Value {
    let app = |n: usize| json!({ "matchLabels": { "app": format!("a{}", n % APPS) } });
    let spec = match n % 4 {
        0 => json!({
            "podSelector": app(n),
            "ingress": [{ "from": [{ "podSelector": app(n + 1) }], "ports": [{ "port": "web" }] }],
        }),
        1 => json!({
            "podSelector": app(n),
            "ingress": [{
                "from": [{
                    "namespaceSelector": { "matchLabels": { "team": format!("t{}", n % 10) } },
                    "podSelector": { "matchLabels": { "tier": "front" } },
                }],
                "ports": [{ "port": 8000, "endPort": 8099 }],
            }],
        }),
        2 => json!({
            "podSelector": app(n),
            "policyTypes": ["Egress"],
            "egress": [
                { "to": [{ "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"] } }], "ports": [{ "port": 443 }] },
                { "ports": [{ "port": 53, "protocol": "UDP" }] },
            ],
        }),
        _ => json!({ "podSelector": {}, "policyTypes": ["Ingress"] }),
    };
    json!({ "metadata": { "name": format!("policy-{n}"), "namespace": namespace_name(space) }, "spec": spec })
}
