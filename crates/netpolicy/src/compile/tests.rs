//! Parts of small clusters, and of ones that do not fit.

use serde_json::{Value, json};

use super::*;
use crate::address::{AddressSet, Protocol};
use crate::part::Ports;

fn pod(name: &str, node: &str, address: &str) -> Value {
    let ports = json!([{ "name": "web", "containerPort": if name == "b" { 8080 } else { 80 } }]);
    json!({ "metadata": { "name": name, "namespace": "n", "labels": { "name": name } },
        "spec": { "nodeName": node, "containers": [{ "ports": ports }] },
        "status": { "phase": "Running", "podIP": address } })
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": name, "namespace": "n" }, "spec": spec })
}

fn cluster(pods: &[Value], policies: &[Value]) -> KubernetesInventory {
    let list = |items: &[Value]| json!({ "items": items }).to_string().into_bytes();
    let namespaces = [json!({ "metadata": { "name": "n", "labels": {} } })];
    KubernetesInventory::read(&list(pods), &list(&namespaces), &list(policies)).expect("lists")
}

/// Three pods on two machines.
fn three() -> [Value; 3] {
    [pod("a", "one", "10.244.1.2"), pod("b", "one", "10.244.1.3"), pod("c", "two", "10.244.2.2")]
}

fn nodes() -> NodePrefixes {
    [("one", 1), ("two", 2), ("three", 3)].map(|(node, n)| (node.to_owned(), model::pod_prefix(n))).into()
}

fn judged(compiled: &CompiledPolicies, node: &str) -> JudgedPods {
    PolicyPart::read(&compiled.part(node).bytes).expect("a part").judged.expect("there are policies")
}

fn compiled(pods: &[Value], policies: &[Value]) -> CompiledPolicies {
    compile(&PolicyInputs::from(&cluster(pods, policies)), &nodes())
}

fn notices(compiled: &CompiledPolicies) -> Vec<String> {
    compiled.notices.iter().map(ToString::to_string).collect()
}

/// Proves: W2
#[test]
fn without_policies_pods_are_not_told_of() {
    let open = compiled(&three(), &[]);
    assert_eq!(PolicyPart::read(&open.part("one").bytes).expect("a part"), PolicyPart::default());
    let closed = compiled(&three(), &[policy("p", &json!({ "podSelector": { "matchLabels": { "name": "z" } } }))]);
    assert_eq!(judged(&closed, "one").pods.len(), 2, "who is not selected is known");
    assert_eq!(judged(&closed, "three"), JudgedPods::default(), "a machine without pods knows that there are policies");
}

#[test]
fn pods_of_the_same_policies_share_a_chain() {
    let from = json!([{ "podSelector": { "matchLabels": { "name": "c" } } }]);
    let all = compiled(&three(), &[policy("p", &json!({ "podSelector": {}, "ingress": [{ "from": from }] }))]);
    let one = judged(&all, "one");
    let chain = PodChains { ingress: Some(0), egress: None };
    assert_eq!(one.pods.values().copied().collect::<Vec<_>>(), [chain, chain]);
    assert_eq!(one.chains, [vec![Allowed { peers: Peers::Set(0), ports: Ports::All }]]);
    let c = Ipv4Addr::new(10, 244, 2, 2).to_bits();
    assert_eq!(one.sets, [AddressSet::of(vec![(c, c)])]);
}

#[test]
fn a_named_port_is_that_of_each_pod() {
    let ports = json!([{ "port": "web" }]);
    let all = compiled(&three(), &[policy("p", &json!({ "podSelector": {}, "ingress": [{ "ports": ports }] }))]);
    let one = judged(&all, "one");
    let numbers = one.chains.iter().flatten().map(|allowed| match &allowed.ports {
        Ports::Of(ports) => ports.ranges().to_vec(),
        Ports::All => Vec::new(),
    });
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(numbers, [vec![(Protocol::Tcp, 80, 80)], vec![(Protocol::Tcp, 8080, 8080)]]);
}

#[test]
fn parts_do_not_depend_on_order_or_on_other_machines() {
    let rule = |name: &str| {
        let peers = json!([{ "podSelector": { "matchLabels": { "name": name } } }]);
        json!({ "podSelector": {}, "ingress": [{ "from": peers }] })
    };
    let mut policies = [policy("p", &rule("a")), policy("q", &rule("b"))];
    let before = compiled(&three(), &policies);
    policies.reverse();
    let mut pods = three();
    pods.reverse();
    assert_eq!(compiled(&pods, &policies), before);
    // A policy for pods of the other machine alone.
    let other = policy("r", &json!({ "podSelector": { "matchLabels": { "name": "c" } }, "egress": [{}] }));
    let after = compiled(&pods, &[&policies[..], &[other]].concat());
    assert_eq!(after.part("one"), before.part("one"));
    assert_ne!(after.part("two").hash, before.part("two").hash);
}

/// Proves: W2
#[test]
fn what_is_not_understood_allows_nothing_and_is_named() {
    let selector = json!({ "matchExpressions": [{ "key": "name", "operator": "Near" }] });
    for (rule, told) in [
        (json!({ "from": [{ "ipBlock": { "cidr": "fd00::/8" } }] }), "`fd00::/8` is a prefix of IPv6"),
        (json!({ "from": [{ "ipBlock": { "cidr": "10.0.0/8" } }] }), "`10.0.0/8` is no prefix"),
        (json!({ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["x"] } }] }), "`x` is no prefix"),
        (json!({ "from": [{}] }), "a peer is neither selectors nor an ipBlock"),
        (json!({ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8" }, "podSelector": {} }] }), "a peer is neither"),
        (json!({ "from": [{ "podSelector": selector }] }), "a selector has an operator"),
        (json!({ "from": [{ "namespaceSelector": selector }] }), "a selector has an operator"),
        (json!({ "ports": [{ "protocol": "QUIC", "port": 80 }] }), "a port of QUIC"),
        (json!({ "ports": [{ "port": 80, "endPort": 79 }] }), "a port of TCP"),
        (json!({ "ports": [{ "port": "web", "endPort": 79 }] }), "a port of TCP"),
        (json!({ "ports": [{ "endPort": 79 }] }), "a port of TCP"),
    ] {
        let all = compiled(&three(), &[policy("p", &json!({ "podSelector": {}, "ingress": [rule] }))]);
        let beginning = format!("network policy n/p: {told}");
        assert!(matches!(&notices(&all)[..], [one] if one.starts_with(&beginning)), "{rule}: {:?}", notices(&all));
        assert_eq!(judged(&all, "one").chains, [vec![]], "{rule}");
    }
    let good = json!({ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["fd00::/8"] } }] });
    let all = compiled(&three(), &[policy("p", &json!({ "podSelector": {}, "ingress": [good] }))]);
    assert_eq!((judged(&all, "one").chains[0].len(), all.notices.len()), (1, 1), "IPv6 takes nothing away");
}

/// Proves: W2
#[test]
fn a_policy_of_an_unknown_kind_isolates_more_not_less() {
    let selector = json!({ "matchExpressions": [{ "key": "name", "operator": "Near" }] });
    let all = compiled(&three(), &[policy("p", &json!({ "podSelector": selector, "policyTypes": ["Transit"] }))]);
    let chains = PodChains { ingress: Some(0), egress: Some(0) };
    assert!(judged(&all, "one").pods.values().all(|pod| *pod == chains));
    assert_eq!(all.notices.len(), 2, "{:?}", notices(&all));
}

/// Proves: W2
#[test]
fn two_pods_of_one_address_are_closed_and_named() {
    let mut pods = three();
    pods[1]["status"]["podIP"] = json!("10.244.1.2");
    let all = compiled(&pods, &[policy("p", &json!({ "podSelector": {} }))]);
    assert_eq!(judged(&all, "one"), JudgedPods::default());
    let named: Vec<_> = all.notices.iter().map(|notice| (notice.name.as_str(), notice.reason.clone())).collect();
    let reason = NoticeReason::SharedAddress(Ipv4Addr::new(10, 244, 1, 2));
    assert_eq!(named, [("a", reason.clone()), ("b", reason)]);
}

/// A worker that writes another's address into the state of its pod opens no other's way, and closes none.
///
/// Proves: W2
#[test]
fn an_address_of_another_machine_is_nobodys() {
    let from = json!([{ "podSelector": { "matchLabels": { "name": "a" } } }]);
    let policies = [policy("p", &json!({ "podSelector": {}, "ingress": [{ "from": from }] }))];
    let honest = compiled(&three(), &policies);
    assert_eq!(judged(&honest, "two").sets.len(), 1, "pod a may call");
    let mut pods = three();
    pods[0]["status"]["podIP"] = json!("10.244.2.2");
    let lies = compiled(&pods, &policies);
    assert_eq!(judged(&lies, "one").pods.into_keys().collect::<Vec<_>>(), [Ipv4Addr::new(10, 244, 1, 3)]);
    assert_eq!(
        judged(&lies, "two").pods.into_keys().collect::<Vec<_>>(),
        [Ipv4Addr::new(10, 244, 2, 2)],
        "it stays c's"
    );
    assert!(judged(&lies, "two").sets.is_empty(), "nobody is pod a");
    let reason = NoticeReason::ForeignAddress(Ipv4Addr::new(10, 244, 2, 2));
    assert_eq!(lies.notices, [PolicyNotice { namespace: "n".to_owned(), name: "a".to_owned(), reason }]);
    pods[0]["status"]["podIPs"] = json!([{ "ip": "10.244.1.2" }]);
    assert_eq!(judged(&compiled(&pods, &policies), "two").sets, judged(&honest, "two").sets, "beside its own");
    let gone = compile(&PolicyInputs::from(&cluster(&three(), &policies)), &NodePrefixes::new());
    assert_eq!(judged(&gone, "one"), JudgedPods::default(), "pods of nodes that the cluster does not have are nobody");
}

/// Proves: W2
#[test]
fn what_does_not_fit_is_closed_and_named() {
    let except: Vec<String> = (0..200).map(|number| format!("10.{number}.0.0/24")).collect();
    let large = json!([{ "ipBlock": { "cidr": "10.0.0.0/8", "except": except } }]);
    let one = json!({ "podSelector": { "matchLabels": { "name": "b" } }, "ingress": [{ "from": large }] });
    let cluster = cluster(&three(), &[policy("p", &one), policy("q", &json!({ "podSelector": {} }))]);
    let all = compile(&PolicyInputs::from(&cluster), &nodes());
    assert_eq!((judged(&all, "one").pods.len(), all.notices.len()), (2, 0), "all of it fits into 4 MiB");
    let small = within(&PolicyInputs::from(&cluster), &nodes(), 1_000);
    let left: Vec<_> = judged(&small, "one").pods.into_keys().collect();
    assert_eq!(left, [Ipv4Addr::new(10, 244, 1, 2)]);
    assert_eq!(judged(&small, "two").pods.len(), 1);
    let told = &small.notices[..];
    assert!(
        matches!(told, [PolicyNotice { name, reason: NoticeReason::Size { node }, .. }] if name == "b" && node == "one")
    );
    assert_eq!(small.part("one").hash, sha256(&[&small.part("one").bytes]));
}

/// Proves: W2
#[test]
fn no_part_is_larger_than_it_may_be() {
    let pods: Vec<_> = (2..52).map(|number| pod(&format!("p{number}"), "one", &format!("10.244.1.{number}"))).collect();
    let rule = |number: u32| {
        let spec = json!({ "podSelector": { "matchLabels": { "name": format!("p{number}") } },
            "ingress": [{ "from": [{ "ipBlock": { "cidr": format!("10.{number}.0.0/16") } }] }] });
        policy(&format!("p{number}"), &spec)
    };
    let cluster = cluster(&pods, &(2..52).map(rule).collect::<Vec<_>>());
    let mut before = 0;
    for most in [100, 1_000, 3_000, 5_000, 20_000] {
        let all = within(&PolicyInputs::from(&cluster), &nodes(), most);
        let known = judged(&all, "one").pods.len();
        assert!(all.part("one").bytes.len() <= most, "{most}");
        assert!(known >= before && known + all.notices.len() == 50, "{known} of 50 in {most}");
        before = known;
    }
    assert_eq!(before, 50);
}
