//! Answers of upstream's programs to PID 1: of etcd, whose members are on other machines as well, and of the apiserver,
//! which holds what anybody with write access to it has written.

use std::time::Duration;

use etcd::wire::etcdserverpb::{MemberListResponse, RangeResponse, StatusResponse, TxnResponse, WatchResponse};
use etcd::{Progress, RecordsReader, members};
use model::{KubernetesRole, NodeName};
use prost::Message;
use services::drain::{Drain, DrainStep};
use services::node_status::{ThisBoot, readiness};
use services::upkeep::{self, NodeChange};

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

/// Health that a member of etcd reports.
pub fn etcd_health(bytes: &[u8]) -> ParseVerdict {
    let Ok(said) = StatusResponse::decode(bytes) else { return ParseVerdict::Refused };
    outcome(&members::health(&said))
}

/// This machine's node, whose lease was just renewed.
pub fn kube_node(bytes: &[u8]) -> ParseVerdict {
    outcome(&readiness(bytes, br#"{"spec":{"renewTime":"2026-11-24T00:00:00Z"}}"#, BOOT))
}

/// Pods of a node that is drained.
pub fn kube_pods(bytes: &[u8]) -> ParseVerdict {
    let drain = Drain::begin(NodeName::chosen("one").expect("a name"), bytes, true, Duration::from_secs(9));
    let looked = drain.and_then(|mut drain| drain.look(bytes, Duration::ZERO));
    if let Ok(DrainStep::Evict(evictions, left)) = &looked {
        assert!(evictions.len() <= left.len(), "a pod is evicted that is not there");
    }
    outcome(&looked)
}

/// All nodes, of a cluster with one worker. Of any other that may be a machine's nothing is left.
pub fn kube_nodes(bytes: &[u8]) -> ParseVerdict {
    let worker = NodeName::chosen("one").expect("a name");
    let workers = [(worker, [KubernetesRole::Worker].into())].into();
    let changed = upkeep::changes(bytes, &workers);
    if let Ok((changes, _)) = &changed {
        let kept = |change: &NodeChange| matches!(change, NodeChange::Delete(path, _) if path == "/api/v1/nodes/one");
        assert!(!changes.iter().any(kept), "the worker's node is deleted");
        for change in changes {
            let NodeChange::Merge(_, patch) = change else { continue };
            let node = patch.replacen(r#"{"metadata":{"#, r#"{"metadata":{"name":"one","#, 1);
            let list = format!(r#"{{"items":[{node}]}}"#);
            assert_eq!(upkeep::changes(list.as_bytes(), &workers).ok(), Some((vec![], true)), "roles are shown twice");
        }
    }
    outcome(&changed)
}

/// The lease of this machine's node, which is Ready.
pub fn kube_lease(bytes: &[u8]) -> ParseVerdict {
    const READY: &[u8] =
        br#"{"status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"bootID":"f2b0"}}}"#;
    outcome(&readiness(READY, bytes, BOOT))
}

/// The boot that they are compared with.
const BOOT: ThisBoot<'_> = ThisBoot { id: "f2b0", since: 1_795_000_000 };
