//! Services, rules and machines of all kinds, and what one look at them leads to: what it writes is done, and looked at again.

use kubeapi::Objects;
use model::{KubernetesRole, MachineId, VPN_PREFIX};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Objects of a test, and the records beside them.
#[derive(Debug, Clone)]
struct Cluster {
    services: Objects<ServiceObject>,
    slices: Objects<EndpointSlice>,
    nodes: Objects<NodeObject>,
    workers: Workers,
    rules: Vec<NamespaceRule>,
}

pub(crate) fn read<T: Resource>(all: impl IntoIterator<Item = Value>) -> Objects<T> {
    let read = |value| serde_json::from_value::<T>(value).expect("an object");
    let key = |it: &T| (it.meta().namespace.clone(), it.meta().name.clone());
    all.into_iter().map(read).map(|it| (key(&it), it)).collect()
}

pub(crate) fn node(name: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "Unknown" };
    json!({ "metadata": { "name": name }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
}

/// Service of age `made`, the smaller the older, with these TCP ports.
fn service((namespace, name): (&str, &str), made: usize, ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|port| json!({ "port": port, "protocol": "TCP" })).collect();
    json!({
        "metadata": { "name": name, "namespace": namespace, "uid": format!("uid of {name}"),
            "creationTimestamp": format!("2026-11-28T10:00:{made:02}Z") },
        "spec": { "type": "LoadBalancer", "ports": ports },
    })
}

pub(crate) fn named(name: &str) -> NodeName {
    NodeName::chosen(name).expect("a name")
}

fn rule(namespace: &str, ports: &str, nodes: &[&str]) -> NamespaceRule {
    NamespaceRule {
        namespace: namespace.parse().expect("a namespace"),
        ports: UplinkPort::read_all(ports).expect("ports").into_iter().collect(),
        nodes: nodes.iter().map(|name| named(name)).collect(),
        floating: None,
    }
}

/// The same at a floating address, which this node holds.
fn at(rule: NamespaceRule, last: u8, holder: Option<&str>) -> NamespaceRule {
    let address = Ipv4Addr::new(192, 0, 2, last);
    NamespaceRule { floating: Some(FloatingAddress { address, holder: holder.map(named) }), ..rule }
}

impl Cluster {
    /// Workers m1, m2 and m3, all Ready, at 192.0.2.1, 2 and 3.
    fn of(services: Vec<Value>, rules: Vec<NamespaceRule>) -> Self {
        let worker = |n: u8| {
            let addresses = [Ipv4Addr::new(192, 0, 2, n)].into();
            let roles = [KubernetesRole::Worker].into();
            (named(&format!("m{n}")), Worker { machine: MachineId([n; 16]), roles, addresses })
        };
        Self {
            services: read(services),
            slices: Objects::new(),
            nodes: read(["m1", "m2", "m3"].map(|name| node(name, true))),
            workers: (1..=3).map(worker).collect(),
            rules,
        }
    }

    fn world(&self) -> PublishWorld<'_> {
        PublishWorld {
            services: Some(&self.services),
            slices: Some(&self.slices),
            nodes: Some(&self.nodes),
            workers: &self.workers,
            rules: &self.rules,
            inside: Prefixes::of(VPN_PREFIX),
        }
    }

    /// Looks, does what comes of it, and returns the messages of events.
    fn looks(&mut self, publisher: &mut ServicePublisher) -> Vec<String> {
        let mut events = Vec::new();
        for write in publisher.due(self.world(), Duration::from_secs(1_795_000_000)) {
            match write {
                ApiWrite::Merge { path, patch } => {
                    let parts: Vec<&str> = path.split('/').collect();
                    let ["", "api", "v1", "namespaces", namespace, "services", name, "status"] = parts[..] else {
                        panic!("{path}")
                    };
                    let patch: Value = serde_json::from_str(&patch).expect("JSON");
                    let key = (namespace.to_owned(), name.to_owned());
                    let status = serde_json::from_value(patch["status"].clone()).expect("a status");
                    self.services.get_mut(&key).expect("it is there").status = status;
                }
                ApiWrite::Create { body, .. } => {
                    let event: Value = serde_json::from_str(&body).expect("JSON");
                    assert_eq!(event["involvedObject"]["kind"], "Service");
                    events.push(event["message"].as_str().expect("a text").to_owned());
                }
                ApiWrite::Delete { path, .. } => panic!("{path} is deleted"),
            }
        }
        events
    }

    fn places(&self, namespace: &str, name: &str) -> Vec<&str> {
        let service = &self.services[&(namespace.to_owned(), name.to_owned())];
        service.status.load_balancer.ingress.iter().map(|place| place.ip.as_str()).collect()
    }
}

/// Proves: W8
#[test]
fn a_service_is_reached_on_the_ready_machines_of_its_rule() {
    let rules = vec![rule("web", "80,443/tcp", &["m1", "m2"]), rule("other", "80/tcp", &["m3"])];
    let mut cluster = Cluster::of(vec![service(("web", "site"), 1, &[80, 443])], rules);
    let mut publisher = ServicePublisher::default();
    assert_eq!(cluster.looks(&mut publisher), [""; 0]);
    assert_eq!(cluster.places("web", "site"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(publisher.due(cluster.world(), Duration::ZERO), [], "it is as it should be");
    cluster.nodes = read([node("m1", false), node("m2", true), node("m3", true)]);
    cluster.looks(&mut publisher);
    assert_eq!(cluster.places("web", "site"), ["192.0.2.2"]);
    cluster.rules.clear();
    assert_eq!(cluster.looks(&mut publisher).len(), 1, "people are told");
    assert_eq!(cluster.places("web", "site"), [""; 0]);
}

/// Proves: W8
#[test]
fn a_service_that_no_rule_names_says_the_command() {
    let mut udp = service(("web", "names"), 1, &[]);
    udp["spec"]["ports"] = json!([{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }]);
    let mut sctp = service(("web", "old"), 2, &[]);
    sctp["spec"]["ports"] = json!([{ "port": 5000, "protocol": "SCTP" }]);
    let mut foreign = service(("web", "foreign"), 3, &[53]);
    foreign["spec"]["loadBalancerClass"] = "example.com/theirs".into();
    let mut inner = service(("web", "inner"), 4, &[80]);
    inner["spec"]["type"] = "ClusterIP".into();
    let rules = vec![rule("web", "80,53/tcp", &["m1"]), rule("other", "53/tcp,53/udp", &["m2"])];
    let mut cluster = Cluster::of(vec![udp, sctp, foreign, inner], rules);
    let mut publisher = ServicePublisher::default();
    let told = cluster.looks(&mut publisher);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].ends_with("cairnctl publish add 53/tcp,53/udp --namespace web"), "{told:#?}");
    assert!(told[1].starts_with("port 5000/SCTP is neither"), "{told:#?}");
    assert_eq!(cluster.looks(&mut publisher), [""; 0], "once");
    assert!(["names", "old", "foreign", "inner"].iter().all(|name| cluster.places("web", name).is_empty()));
}

/// Proves: W8
#[test]
fn a_port_of_two_services_is_the_older_ones() {
    let all = vec![service(("web", "young"), 2, &[80]), service(("web", "aged"), 1, &[80, 443])];
    let mut cluster = Cluster::of(all, vec![rule("web", "80,443/tcp", &["m1", "m2"]), rule("web", "80/tcp", &["m3"])]);
    let mut publisher = ServicePublisher::default();
    let told = cluster.looks(&mut publisher);
    assert_eq!(told, ["80/tcp of m1, m2 is of the older service web/aged; this one is not reached there"]);
    assert_eq!(cluster.places("web", "aged"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(cluster.places("web", "young"), ["192.0.2.3"]);
    cluster.nodes = read([node("m1", false), node("m2", true), node("m3", true)]);
    cluster.looks(&mut publisher);
    assert_eq!(cluster.places("web", "young"), ["192.0.2.3"], "it is the older one's, though m1 is away");
    cluster.services.remove(&("web".to_owned(), "aged".to_owned()));
    cluster.looks(&mut publisher);
    assert_eq!(cluster.places("web", "young"), ["192.0.2.2", "192.0.2.3"]);
}

/// Proves: W8
#[test]
fn a_service_that_keeps_addresses_is_reached_where_it_is() {
    let mut local = service(("web", "site"), 1, &[80]);
    local["spec"]["externalTrafficPolicy"] = "Local".into();
    let mut cluster = Cluster::of(vec![local], vec![rule("web", "80/tcp", &["m1", "m2", "m3"])]);
    let slice = |(namespace, name): (&str, &str), of: &str, endpoints: Value| {
        json!({ "metadata": { "name": name, "namespace": namespace, "labels": { SERVICE_NAME: of } },
            "endpoints": endpoints })
    };
    let at = |node: &str, ready: Value| json!({ "nodeName": node, "conditions": { "ready": ready } });
    cluster.slices = read([
        slice(("web", "a"), "site", json!([at("m1", json!(true)), at("m2", json!(false))])),
        slice(("web", "b"), "another", json!([at("m2", json!(true))])),
        slice(("wild", "a"), "site", json!([at("m2", json!(true))])),
        slice(("web", "c"), "site", json!([at("m3", Value::Null)])),
    ]);
    cluster.looks(&mut ServicePublisher::default());
    assert_eq!(cluster.places("web", "site"), ["192.0.2.1", "192.0.2.3"], "what nobody knows counts as ready");
}

/// Proves: W8 A7
#[test]
fn nothing_is_published_at_an_address_that_is_no_uplinks() {
    let mut cluster = Cluster::of(vec![service(("web", "site"), 1, &[80])], vec![rule("web", "80/tcp", &["m1"])]);
    let lies = ["10.118.0.1", "10.244.0.2", "10.96.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0"];
    let lies = lies.iter().chain(["198.51.100.7"].iter()).map(|text| text.parse().expect("an address"));
    cluster.workers.get_mut(&named("m1")).expect("it is there").addresses = lies.collect();
    cluster.looks(&mut ServicePublisher::default());
    assert_eq!(cluster.places("web", "site"), ["198.51.100.7"]);
}

/// A status that somebody else wrote is no way to a port.
///
/// Proves: W8
#[test]
fn a_status_that_another_wrote_is_put_right() {
    let mut claims = service(("evil", "site"), 1, &[80]);
    claims["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    let mut named = service(("web", "site"), 2, &[80]);
    named["status"] = json!({ "loadBalancer": { "ingress": [{ "hostname": "example.org" }] } });
    let mut cluster = Cluster::of(vec![claims, named], vec![rule("web", "80/tcp", &["m1"])]);
    cluster.looks(&mut ServicePublisher::default());
    assert_eq!((cluster.places("evil", "site"), cluster.places("web", "site")), (vec![], vec!["192.0.2.1"]));
}

/// Proves: W8
#[test]
fn nothing_is_written_before_all_is_known() {
    let cluster = Cluster::of(vec![service(("web", "site"), 1, &[80])], vec![rule("web", "80/tcp", &["m1"])]);
    let all = cluster.world();
    let mut publisher = ServicePublisher::default();
    for partial in [
        PublishWorld { services: None, ..all },
        PublishWorld { slices: None, ..all },
        PublishWorld { nodes: None, ..all },
    ] {
        assert_eq!(publisher.due(partial, Duration::ZERO), []);
    }
    assert_eq!(publisher.due(all, Duration::ZERO).len(), 1);
}

proptest! {
    /// Services and rules of any kind: one look settles all, no port of a machine is of two services, and a service is reached
    /// nowhere but on a Ready machine of a rule that has all its ports for its namespace.
    ///
    /// Proves: W8 A7
    #[test]
    fn no_port_is_of_two_services_or_without_a_rule(
        services in prop::collection::vec((0_usize..3, 0_usize..60, prop::collection::btree_set(1_u16..5, 1..4)), 0..12),
        rules in prop::collection::vec((0_usize..3, prop::collection::btree_set(1_u16..5, 1..5), 0_usize..8), 0..6),
        ready in prop::array::uniform3(any::<bool>()),
    ) {
        let namespaces = ["a", "b", "c"];
        let made = services.iter().enumerate().map(|(n, (namespace, made, ports))| {
            let ports: Vec<u16> = ports.iter().copied().collect();
            service((namespaces[*namespace], &format!("s{n}")), *made, &ports)
        });
        let rules = rules.iter().map(|(namespace, ports, nodes)| {
            let ports = ports.iter().map(|port| format!("{port}/tcp")).collect::<Vec<_>>().join(",");
            let nodes: Vec<&str> =
                ["m1", "m2", "m3"].into_iter().enumerate().filter(|(n, _)| nodes >> n & 1 == 1).map(|(_, name)| name).collect();
            rule(namespaces[*namespace], &ports, &nodes)
        });
        let mut cluster = Cluster::of(made.collect(), rules.collect());
        let names = ["m1", "m2", "m3"];
        cluster.nodes = read(names.into_iter().zip(ready).map(|(name, ready)| node(name, ready)));
        let mut publisher = ServicePublisher::default();
        cluster.looks(&mut publisher);
        prop_assert_eq!(publisher.due(cluster.world(), Duration::ZERO), []);
        let mut users = BTreeSet::new();
        for ((namespace, name), service) in &cluster.services {
            for place in cluster.places(namespace, name) {
                let n = usize::from(place.parse::<Ipv4Addr>().expect("an address").octets()[3]);
                prop_assert!(ready[n - 1], "{place} is not Ready");
                let ports = service.ports().expect("TCP");
                prop_assert!(cluster.rules.iter().any(|rule| rule.namespace.as_str() == namespace
                    && rule.nodes.contains(&named(names[n - 1]))
                    && ports.is_subset(&rule.ports)));
                prop_assert!(ports.iter().all(|port| users.insert((n, *port))), "a port of {place} is of two");
            }
        }
    }
}

/// Proves: W8
#[test]
fn a_floating_address_leads_where_its_holder_serves() {
    let all = ["m1", "m2", "m3"];
    let of_two =
        |one, two| vec![at(rule("web", "443/tcp", &all), 50, one), at(rule("other", "443/tcp", &all), 51, two)];
    let both = vec![service(("web", "site"), 1, &[443]), service(("other", "shop"), 2, &[443])];
    let mut cluster = Cluster::of(both, of_two(Some("m1"), Some("m1")));
    let mut publisher = ServicePublisher::default();
    assert_eq!(cluster.looks(&mut publisher), [""; 0]);
    assert_eq!([cluster.places("web", "site"), cluster.places("other", "shop")], [["192.0.2.50"], ["192.0.2.51"]]);
    cluster.rules = of_two(Some("m2"), None);
    cluster.looks(&mut publisher);
    assert_eq!(cluster.places("web", "site"), ["192.0.2.50"], "it is the same, wherever it is");
    assert_eq!(cluster.places("other", "shop"), [""; 0], "nobody holds it yet");
    cluster.nodes = read(["m1", "m3"].map(|name| node(name, true)).into_iter().chain([node("m2", false)]));
    cluster.looks(&mut publisher);
    assert_eq!(cluster.places("web", "site"), [""; 0], "its holder is not Ready");
    cluster.nodes = read(all.map(|name| node(name, true)));
    let mut local = service(("web", "site"), 1, &[443]);
    local["spec"]["externalTrafficPolicy"] = "Local".into();
    cluster.services = read([local]);
    let events = cluster.looks(&mut publisher);
    assert_eq!(events, ["192.0.2.50 is held by m2, where the service has no ready endpoint; it is not reached there"]);
    assert_eq!(cluster.places("web", "site"), [""; 0]);
}
