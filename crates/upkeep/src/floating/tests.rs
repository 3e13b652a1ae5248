//! Floating addresses among three workers that come and go.

use model::{KubernetesRole, Prefixes, UplinkPort, VPN_PREFIX};
use serde_json::{Value, json};

use super::*;
use crate::nodes::{NodeObject, Worker, Workers};
use crate::publishing::EndpointSlice;
use crate::publishing::tests::{self as publishing, node, read};

/// Objects and records of a test.
struct Cluster {
    services: Objects<ServiceObject>,
    slices: Objects<EndpointSlice>,
    nodes: Objects<NodeObject>,
    workers: Workers,
    rules: Vec<NamespaceRule>,
    there: BTreeSet<NodeName>,
    mover: AddressMover,
    now: Duration,
}

fn named(n: u8) -> NodeName {
    publishing::named(&format!("m{n}"))
}

fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 50 + n)
}

fn ready(all: &[u8]) -> Objects<NodeObject> {
    read((1..=3).map(|n| node(&format!("m{n}"), all.contains(&n))))
}

/// Service that keeps its clients' addresses, of age `made`.
fn tied(name: &str, made: u8) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "web", "uid": name, "creationTimestamp": format!("2026-11-28T10:00:{made:02}Z") },
        "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{ "port": 443, "protocol": "TCP" }] },
    })
}

fn slice(service: &str, nodes: &[u8]) -> Value {
    let endpoints: Vec<_> =
        nodes.iter().map(|n| json!({ "nodeName": format!("m{n}"), "conditions": { "ready": true } })).collect();
    json!({
        "metadata": { "name": service, "namespace": "web", "labels": { "kubernetes.io/service-name": service } },
        "endpoints": endpoints,
    })
}

impl Cluster {
    /// Workers m1, m2 and m3, all Ready and there, and as many rules with addresses.
    fn of(addresses: u8) -> Self {
        let worker = |n: u8| {
            let roles = [KubernetesRole::Worker].into();
            (named(n), Worker { machine: MachineId([n; 16]), roles, addresses: BTreeSet::new() })
        };
        let rule = |n: u8| NamespaceRule {
            namespace: "web".parse().expect("a namespace"),
            ports: UplinkPort::read_all("443/tcp").expect("a port").into_iter().collect(),
            nodes: (1..=3).map(named).collect(),
            floating: Some(FloatingAddress { address: address(n), holder: None }),
        };
        Self {
            services: Objects::new(),
            slices: Objects::new(),
            nodes: ready(&[1, 2, 3]),
            workers: (1..=3).map(worker).collect(),
            rules: (0..addresses).map(rule).collect(),
            there: (1..=3).map(named).collect(),
            mover: AddressMover::default(),
            now: Duration::from_secs(100),
        }
    }

    /// Looks so much later, has the records say what comes of it, and returns who holds which address.
    fn holders(&mut self, later: u64) -> Vec<Option<u8>> {
        self.now += Duration::from_secs(later);
        let world = PublishWorld {
            services: Some(&self.services),
            slices: Some(&self.slices),
            nodes: Some(&self.nodes),
            workers: &self.workers,
            rules: &self.rules,
            inside: Prefixes::of(VPN_PREFIX),
        };
        for AddressMove { address, machine } in self.mover.due(world, &self.there, self.now) {
            let of = |rule: &&mut NamespaceRule| rule.floating.as_ref().is_some_and(|it| it.address == address);
            let rule = self.rules.iter_mut().find(of).expect("a rule's");
            rule.floating = Some(FloatingAddress { address, holder: Some(named(machine.0[0])) });
        }
        let holder = |rule: &NamespaceRule| {
            let holder = rule.floating.as_ref()?.holder.as_ref()?;
            (1..=3).find(|n| named(*n) == *holder)
        };
        self.rules.iter().map(holder).collect()
    }
}

/// Proves: W8
#[test]
fn addresses_spread_over_the_workers_and_stay() {
    let mut cluster = Cluster::of(4);
    assert_eq!(cluster.holders(0), [Some(1), Some(2), Some(3), Some(1)]);
    for _ in 0..9 {
        assert_eq!(cluster.holders(60), [Some(1), Some(2), Some(3), Some(1)], "nobody is better than who is there");
    }
    let none = Cluster::of(0);
    assert!(!AddressMover::default().is_to_look(&none.rules, none.now), "nobody is called for nothing");
}

/// Proves: W8
#[test]
fn an_address_leaves_who_is_silent_or_not_ready() {
    let mut cluster = Cluster::of(2);
    assert_eq!(cluster.holders(0), [Some(1), Some(2)]);
    assert_eq!(cluster.holders(60), [Some(1), Some(2)]);
    cluster.there.remove(&named(1));
    assert_eq!(cluster.holders(1), [Some(3), Some(2)], "who holds fewest");
    cluster.nodes = ready(&[1, 3]);
    assert_eq!(cluster.holders(1), [Some(3), Some(3)]);
    cluster.there = BTreeSet::new();
    assert_eq!(cluster.holders(60), [Some(3), Some(3)], "nobody else is there either");
    cluster.there = [named(1)].into();
    assert_eq!(cluster.holders(1), [Some(1), Some(1)]);
    cluster.there = [named(3)].into();
    assert_eq!(cluster.holders(5), [Some(1), Some(1)], "it has not had the time to take it");
    assert_eq!(cluster.holders(20), [Some(3), Some(3)]);
}

/// Proves: W8
#[test]
fn an_address_goes_where_a_tied_service_has_an_endpoint() {
    let mut cluster = Cluster::of(1);
    cluster.services = read([tied("old", 1), tied("young", 2)]);
    cluster.slices = read([slice("old", &[2, 3]), slice("young", &[3])]);
    assert_eq!(cluster.holders(0), [Some(3)], "both are there");
    cluster.slices = read([slice("old", &[2]), slice("young", &[1])]);
    assert_eq!(cluster.holders(60), [Some(2)], "the younger one waits");
    cluster.slices = read([slice("young", &[1])]);
    assert_eq!(cluster.holders(60), [Some(1)]);
    cluster.slices = Objects::new();
    assert_eq!(cluster.holders(60), [Some(1)], "with no endpoint anywhere it stays");
}
