//! Answers of upstream's programs to PID 1: of etcd, whose members are on other machines as well, and of the apiserver,
//! which holds what anybody with write access to it has written.

use std::collections::BTreeSet;

use etcd::wire::etcdserverpb::{MemberListResponse, RangeResponse, StatusResponse, TxnResponse, WatchResponse};
use etcd::{Progress, RecordsReader, members};
use prost::Message;
use services::node_roles;
use services::node_status::{ThisBoot, readiness};

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

/// This machine's node, whose lease was just renewed. Roles that were shown once are not shown again.
pub fn kube_node(bytes: &[u8]) -> ParseVerdict {
    let patched = node_roles::patch(bytes, &BTreeSet::new());
    if let Ok(Some(patch)) = &patched {
        assert_eq!(node_roles::patch(patch.as_bytes(), &BTreeSet::new()).ok(), Some(None), "roles are shown twice");
    }
    let ready = readiness(bytes, br#"{"spec":{"renewTime":"2026-11-24T00:00:00Z"}}"#, BOOT);
    if patched.is_ok() { outcome(&ready) } else { ParseVerdict::Refused }
}

/// The lease of this machine's node, which is Ready.
pub fn kube_lease(bytes: &[u8]) -> ParseVerdict {
    const READY: &[u8] =
        br#"{"status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"bootID":"f2b0"}}}"#;
    outcome(&readiness(READY, bytes, BOOT))
}

/// The boot that they are compared with.
const BOOT: ThisBoot<'_> = ThisBoot { id: "f2b0", since: 1_795_000_000 };
