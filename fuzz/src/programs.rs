//! Answers of upstream's programs to PID 1: of etcd, whose members are on other machines as well, and of the apiserver,
//! which holds what anybody with write access to it has written.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use etcd::wire::etcdserverpb::{MemberListResponse, RangeResponse, StatusResponse, TxnResponse, WatchResponse};
use etcd::{Progress, RecordsReader, members};
use kubeapi::{ApiWrite, Collection, Objects, Reflector, Resource};
use model::{Ipv4Prefix, KubernetesRole, MachineId, NodeName, Prefixes, UplinkPort, VPN_PREFIX};
use netpolicy::{KubernetesInventory, PolicyInputs, PolicyPart, compile};
use prost::Message;
use services::node_status::{ThisBoot, readiness};
use upkeep::drain::{Drain, DrainStep};
use upkeep::publishing::{ENDPOINT_SLICES, EndpointSlice, SERVICES, ServiceObject};
use upkeep::volumes::{
    CLAIMS, HeldClaims, PersistentVolume, UpkeepTime, VOLUMES, VolumeAnswer, VolumeClaim, VolumeEffect,
};
use upkeep::{NamespaceRule, NodeObject, PublishWorld, ServicePublisher, VolumeKeeper, VolumeWorld, Worker, nodes};

use crate::{ParseVerdict, outcome};

/// A page of all that etcd holds, and what the records in it say. The same page over and over comes to an end.
pub fn etcd_page(bytes: &[u8]) -> ParseVerdict {
    let Ok(page) = RangeResponse::decode(bytes) else { return ParseVerdict::Refused };
    let mut reading = RecordsReader::begin();
    let taken = reading.take(page.clone());
    let view = reading.clone().view();
    let again = [reading.take(page.clone()), reading.take(page)];
    assert!(again.iter().any(|taken| *taken != Ok(Progress::More)), "a reading never ends");
    if taken.is_ok() { outcome(&view) } else { ParseVerdict::Refused }
}

/// Events of a watch of etcd.
pub fn etcd_watch(bytes: &[u8]) -> ParseVerdict {
    let Ok(told) = WatchResponse::decode(bytes) else { return ParseVerdict::Refused };
    outcome(&etcd::watched(told))
}

/// Outcome of a transaction in etcd.
pub fn etcd_transaction(bytes: &[u8]) -> ParseVerdict {
    let Ok(answer) = TxnResponse::decode(bytes) else { return ParseVerdict::Refused };
    outcome(&etcd::outcome(&answer))
}

/// List of the members of etcd.
pub fn etcd_members(bytes: &[u8]) -> ParseVerdict {
    let Ok(list) = MemberListResponse::decode(bytes) else { return ParseVerdict::Refused };
    outcome(&members::listed(&list))
}

/// Status that a member of etcd reports.
pub fn etcd_health(bytes: &[u8]) -> ParseVerdict {
    let Ok(said) = StatusResponse::decode(bytes) else { return ParseVerdict::Refused };
    outcome(&members::status(&said))
}

/// This machine's node, whose lease was just renewed.
pub fn kube_node(bytes: &[u8]) -> ParseVerdict {
    outcome(&readiness(bytes, br#"{"spec":{"renewTime":"2026-11-24T00:00:00Z"}}"#, BOOT))
}

/// Pods of a node that is drained.
pub fn kube_pods(bytes: &[u8]) -> ParseVerdict {
    let node = NodeName::chosen("one").expect("a name");
    let drain = Drain::begin(node, bytes, &HeldClaims::new(), true, Duration::from_secs(9));
    let looked = drain.and_then(|mut drain| drain.look(bytes, Duration::ZERO));
    if let Ok(DrainStep::Evict(evictions, left)) = &looked {
        assert!(evictions.len() <= left.len(), "a pod is evicted that is not there");
    }
    outcome(&looked)
}

/// All nodes, of a cluster with one worker: a list, or a list and a line of its watch. The worker's own node is never deleted.
pub fn kube_nodes(bytes: &[u8]) -> ParseVerdict {
    let worker = Worker { machine: MachineId([1; 16]), roles: [KubernetesRole::Worker].into(), addresses: [].into() };
    let workers = [(NodeName::chosen("one").expect("a name"), worker)].into();
    followed::<NodeObject>(nodes::NODES, bytes, |nodes| {
        let kept = |change: &ApiWrite| matches!(change, ApiWrite::Delete { path, .. } if path == "/api/v1/nodes/one");
        assert!(!nodes::changes(nodes, &workers).iter().any(kept), "the worker's node is deleted");
    })
}

/// Claims of a cluster with one worker, and one machine that was removed: that is not called.
pub fn kube_claims(bytes: &[u8]) -> ParseVerdict {
    followed::<VolumeClaim>(CLAIMS, bytes, |claims| looked(claims, &BTreeMap::new()))
}

/// Volumes of the same cluster: the removed machine is not called.
pub fn kube_volumes(bytes: &[u8]) -> ParseVerdict {
    followed::<PersistentVolume>(VOLUMES, bytes, |volumes| looked(&BTreeMap::new(), volumes))
}

/// Services of a cluster with one worker, whose address is published for one of them. No service is reached at another.
pub fn kube_services(bytes: &[u8]) -> ParseVerdict {
    followed::<ServiceObject>(SERVICES, bytes, |services| published(services, &BTreeMap::new()))
}

/// Slices of the endpoints of a service on that worker.
pub fn kube_slices(bytes: &[u8]) -> ParseVerdict {
    let service =
        br#"{"metadata":{},"items":[{"metadata":{"name":"site","namespace":"web"},"spec":{"type":"LoadBalancer",
        "externalTrafficPolicy":"Local","ports":[{"port":80,"protocol":"TCP"}]}}]}"#;
    let mut services = Reflector::<ServiceObject>::of(SERVICES);
    services.listed(200, service).expect("a list");
    let services = services.objects().expect("it is whole");
    followed::<EndpointSlice>(ENDPOINT_SLICES, bytes, |slices| published(services, slices))
}

fn published(services: &Objects<ServiceObject>, slices: &Objects<EndpointSlice>) {
    let node = br#"{"metadata":{},"items":[{"metadata":{"name":"one"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}"#;
    let mut nodes = Reflector::<NodeObject>::of(nodes::NODES);
    nodes.listed(200, node).expect("a list");
    let name = NodeName::chosen("one").expect("a name");
    let addresses = [Ipv4Addr::new(192, 0, 2, 1)].into();
    let worker = Worker { machine: MachineId([1; 16]), roles: [KubernetesRole::Worker].into(), addresses };
    let rule = NamespaceRule {
        namespace: "web".parse().expect("a namespace"),
        ports: UplinkPort::read_all("80,443/tcp").expect("ports").into_iter().collect(),
        nodes: [name.clone()].into(),
        floating: None,
    };
    let world = PublishWorld {
        services: Some(services),
        slices: Some(slices),
        nodes: nodes.objects(),
        workers: &[(name, worker)].into(),
        rules: &[rule],
        inside: Prefixes::of(VPN_PREFIX),
    };
    for write in ServicePublisher::default().due(world, Duration::ZERO) {
        let ApiWrite::Merge { path, patch } = write else { continue };
        let reached = patch.contains("192.0.2.1");
        assert!(!reached || path.starts_with("/api/v1/namespaces/web/services/"), "{path} is reached by no rule");
    }
}

fn looked(claims: &Objects<VolumeClaim>, volumes: &Objects<PersistentVolume>) {
    let [machine, gone] = [1, 2].map(|n| MachineId([n; 16]));
    let worker = Worker { machine, roles: [KubernetesRole::Worker].into(), addresses: [].into() };
    let [one, two] = ["one", "two"].map(|name| NodeName::chosen(name).expect("a name"));
    let (workers, removed) = ([(one, worker)].into(), [(gone, two)].into());
    let capacities = BTreeMap::new();
    let world = VolumeWorld { claims, volumes, capacities: &capacities, workers: &workers, removed: &removed };
    let mut keeper = VolumeKeeper::default();
    let now = UpkeepTime { uptime: Duration::ZERO, unix: Duration::ZERO };
    for effect in keeper.due(world, now) {
        let VolumeEffect::Call(call) = effect else { continue };
        assert_ne!(call.machine, gone);
        keeper.answered(&call, VolumeAnswer::Done, now);
    }
}

/// Follows a collection by a list in the first line, and a line of its watch in each other.
fn followed<T: Resource>(collection: Collection, bytes: &[u8], look: impl Fn(&Objects<T>)) -> ParseVerdict {
    let mut reflector = Reflector::of(collection);
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let listed = reflector.listed(200, lines.next().unwrap_or_default());
    let watched: Result<Vec<_>, _> = lines.filter(|line| !line.is_empty()).map(|line| reflector.line(line)).collect();
    if let Some(objects) = reflector.objects() {
        look(objects);
    }
    outcome(&listed.and(watched))
}

/// Summary of what a kubelet says that its node and its pods use.
pub fn kubelet_summary(bytes: &[u8]) -> ParseVerdict {
    outcome(&usage::NodeSummary::read(bytes))
}

/// Page of a service's numbers, which names of pods, devices and zones are in; what becomes of it is a page.
pub fn metrics_page(bytes: &[u8]) -> ParseVerdict {
    let Ok(text) = std::str::from_utf8(bytes) else { return ParseVerdict::Refused };
    let translated = openmetrics::translate(text);
    if let Ok(page) = &translated {
        assert!(page.ends_with("# EOF\n"), "a page that does not end");
    }
    outcome(&translated)
}

/// Pods, namespaces and network policies, one list a line. Whatever they are, machines read their parts, and `nft` their tables.
pub fn netpolicy_objects(bytes: &[u8]) -> ParseVerdict {
    let mut lists = bytes.split(|byte| *byte == b'\n');
    let mut list = || lists.next().unwrap_or_default();
    let read = KubernetesInventory::read(list(), list(), list());
    if let Ok(cluster) = &read {
        let own = |third| Ipv4Prefix::around(Ipv4Addr::new(10, 244, third, 0), 24).expect("a prefix");
        let nodes = [("one", 1), ("two", 2)].map(|(node, third)| (node.to_owned(), own(third))).into();
        let compiled = compile(&PolicyInputs::from(cluster), &nodes);
        for node in ["one", "two", ""] {
            let part = &compiled.part(node).bytes;
            assert_eq!(netpolicy_part(part), ParseVerdict::Accepted, "a machine does not read its part");
        }
    }
    outcome(&read)
}

/// Part of a machine, and the table that it becomes.
pub fn netpolicy_part(bytes: &[u8]) -> ParseVerdict {
    let read = PolicyPart::read(bytes);
    if let Ok(part) = &read {
        let own = Ipv4Prefix::around(Ipv4Addr::new(10, 244, 1, 0), 24).expect("a prefix");
        let table = nft::Transaction::parse(&netpolicy::written(part, own)).expect("the table is nftables' language");
        let batch = table.batch(&nft::KernelSets::new()).expect("the table has its sets");
        assert!(!batch.is_empty(), "a table says nothing");
    }
    outcome(&read)
}

/// The lease of this machine's node, which is Ready.
pub fn kube_lease(bytes: &[u8]) -> ParseVerdict {
    const READY: &[u8] =
        br#"{"status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"bootID":"f2b0"}}}"#;
    outcome(&readiness(READY, bytes, BOOT))
}

/// The boot that they are compared with.
const BOOT: ThisBoot<'_> = ThisBoot { id: "f2b0", since: 1_795_000_000 };
