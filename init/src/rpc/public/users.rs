//! Users of Kubernetes in front of the public API: follows the cluster's records, and the clock where a user's time ends. Who is one
//! is decided by `cluster::users`; connections end by what stands here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use cluster::record::UnixSeconds;
use cluster::users::UsersOfNow;
use tokio::sync::watch;
use tokio::time::sleep;

use super::context::Reach;
use crate::records::Records;
use crate::rpc::{Front, Roster};
use crate::runtime::clock;

/// Longest sleep while somebody's time will end: the clock may be set meanwhile.
const LOOKS_AT_THE_CLOCK: Duration = Duration::from_secs(1);

/// Has the front know the users of now, as long as it is polled.
pub(super) async fn follow(reach: &Reach, front: &watch::Sender<Front>) -> Infallible {
    let mut records = reach.follow_records();
    loop {
        let present = records.borrow_and_update().clone();
        match present {
            None => {
                know(front, Roster::Elsewhere);
                let _reach_holds_the_sender = records.changed().await;
            }
            Some(present) => {
                tokio::select! {
                    never = read(&present, front) => match never {},
                    _reach_holds_the_sender = records.changed() => {}
                }
            }
        }
    }
}

/// Follows the users of these records.
async fn read(records: &Records, front: &watch::Sender<Front>) -> Infallible {
    let mut changes = records.changes();
    loop {
        let now = UnixSeconds(clock::unix().as_secs());
        let users = records.read(|view, _| UsersOfNow::of(view.state(), now)).ok();
        let until = users.as_ref().and_then(UsersOfNow::until);
        know(front, users.map_or(Roster::Unread, |users| Roster::Known(Arc::new(users))));
        tokio::select! {
            () = changes.next() => {}
            () = ends(until, now) => {}
        }
    }
}

/// Waits for the end of somebody's time, or until it is time to look again.
async fn ends(until: Option<UnixSeconds>, now: UnixSeconds) {
    match until {
        Some(end) => sleep(Duration::from_secs(end.0.saturating_sub(now.0)).min(LOOKS_AT_THE_CLOCK)).await,
        None => std::future::pending().await,
    }
}

/// Tells connections of other users only.
fn know(front: &watch::Sender<Front>, users: Roster) {
    front.send_if_modified(|front| {
        let changes = front.callers.users() != users;
        if changes {
            front.callers.know(users);
        }
        changes
    });
}

#[cfg(test)]
mod tests {
    use api::access::TABLE;
    use cluster::record::{UserRecord, UserTerms};
    use http_body_util::Full;
    use model::{MachineState, OwnerPubKey, UserPubKey};
    use pki::PrivateKey;
    use tokio::time::timeout;
    use tonic::codegen::http::Request;
    use tonic::{Code, Status};

    use super::*;
    use crate::records::fixture;
    use crate::rpc::session::Origin;
    use crate::rpc::world::{Machine, origin, roster, user_origin};
    use crate::runtime::log;

    fn key(n: u8) -> PrivateKey {
        PrivateKey::ed25519(&model::Secret::take(&mut [n; 32])).expect("a key")
    }

    /// Calls a method with an empty message; what it is refused with.
    async fn call(machine: &Machine, origin: &Origin, path: &str) -> (Code, String) {
        let request = Request::post(path).header("content-type", "application/grpc");
        let request = request.body(Full::from(&[0; 5][..])).expect("a request");
        let answer = machine.gate(origin.clone()).answer(request).await;
        let status = Status::from_header_map(answer.headers());
        status.map_or((Code::Ok, String::new()), |status| (status.code(), status.message().to_owned()))
    }

    async fn audited(peer: &str) -> Vec<(String, String)> {
        let query = api::LogQuery { subtree: String::from("audit"), ..api::LogQuery::default() };
        let mut reader = log::Reader::new(query).expect("installed");
        let mut found = Vec::new();
        loop {
            match reader.next().await {
                entries if entries.is_empty() => return found,
                entries => found.extend(entries.into_iter().map(|entry| (entry.service, entry.line))),
            }
            found.retain(|(_, line)| line.contains(&format!(" from={peer} ")));
        }
    }

    /// Proves: W9 Q1
    #[tokio::test]
    async fn a_user_is_answered_three_methods_and_named_in_the_audit() {
        let (mut machine, alice, peer) = (Machine::running(), key(7), "192.0.2.71:1071");
        machine.used_by(roster(&[("alice", &alice)]));
        let user = user_origin(&alice, peer);
        for row in TABLE.iter().filter(|row| row.states.contains(&MachineState::Running)) {
            let Some(method) = row.path.strip_prefix("/cairn.v1.Public/") else { continue };
            let expected = match method {
                "GetState" => Code::Ok,
                // The machine is no coordinator.
                "Kubeconfig" => Code::FailedPrecondition,
                // The first message names no target.
                "Tunnel" => Code::InvalidArgument,
                _ => Code::PermissionDenied,
            };
            assert_eq!(call(&machine, &user, row.path).await.0, expected, "{method}");
        }
        assert!(machine.power.try_recv().is_err(), "nothing was asked of the machine");
        // The control: an owner may.
        let owner = origin(Some(&machine.owner), "192.0.2.72:1072");
        assert_eq!(call(&machine, &owner, "/cairn.v1.Public/Status").await.0, Code::Ok);
        let lines = audited(peer).await;
        let who =
            format!("call who=user:alice key={} from={peer} ", UserPubKey(alice.public().as_ed25519().expect("one")));
        assert!(lines.iter().all(|(log, line)| log == "audit.users" && line.starts_with(&who)), "{lines:?}");
        let of = |method: &str| lines.iter().find(|(_, line)| line.contains(&format!("/{method}\"")));
        assert!(of("Reboot").is_some_and(|(_, line)| line.contains("not for a user")), "{lines:?}");
        assert!(of("Tunnel").is_some() && of("Kubeconfig").is_some() && of("GetState").is_none(), "{lines:?}");
    }

    /// Proves: W9
    #[tokio::test]
    async fn whoever_is_no_user_is_told_where_to_ask() {
        let (machine, alice, peer) = (Machine::running(), key(7), "192.0.2.73:1073");
        for (users, code, says) in [
            (Roster::Elsewhere, Code::FailedPrecondition, "ask a coordinator"),
            (Roster::Unread, api::NOT_YET, "ask another coordinator, or try again"),
            (roster(&[("bob", &key(8))]), Code::PermissionDenied, "ask an owner of the cluster"),
        ] {
            machine.used_by(users);
            for method in ["Kubeconfig", "Tunnel", "Status"] {
                let (is, said) =
                    call(&machine, &user_origin(&alice, peer), &format!("/cairn.v1.Public/{method}")).await;
                assert!(is == code && said.ends_with(says), "{method}: {is:?} {said}");
            }
            assert_eq!(call(&machine, &user_origin(&alice, peer), "/cairn.v1.Public/GetState").await.0, Code::Ok);
        }
        assert!(audited(peer).await.iter().all(|(log, _)| log == "audit.strangers"), "anybody can draw a key");
        machine.used_by(roster(&[("alice", &alice)]));
        let known = call(&machine, &user_origin(&alice, peer), "/cairn.v1.Public/Tunnel").await;
        assert_eq!(known.0, Code::InvalidArgument, "the control");
    }

    /// Proves: W9
    #[tokio::test]
    async fn the_front_knows_the_users_of_the_records_and_of_the_clock() {
        let (machine, alice) = (Machine::running(), key(7));
        let records = fixture::records(&machine.facts, &[], None);
        let (reach, front) = (&machine.context.reach, &machine.front);
        let record = |expires| UserRecord {
            terms: UserTerms {
                name: "alice".parse().expect("a name"),
                keys: [UserPubKey(alice.public().as_ed25519().expect("one"))].into(),
                expires,
            },
            added_by: OwnerPubKey([1; 32]),
            added_at: UnixSeconds(1),
        };
        let mut seen = front.subscribe();
        let name = |front: &Front| match front.callers.users() {
            Roster::Known(users) => users.name(&UserPubKey(alice.public().as_ed25519().expect("one"))).is_some(),
            Roster::Elsewhere | Roster::Unread => false,
        };
        let told = async {
            let mut becomes = async |known: bool| {
                let within = Duration::from_secs(20);
                timeout(within, seen.wait_for(|front| name(front) == known)).await.expect("in time").expect("it lives");
            };
            reach.coordinate(Some(records.clone()), None);
            fixture::use_by(&records, &[record(None)]);
            becomes(true).await;
            fixture::use_by(&records, &[]);
            becomes(false).await;
            let end = clock::unix().as_secs() + 2;
            fixture::use_by(&records, &[record(Some(UnixSeconds(end)))]);
            becomes(true).await;
            becomes(false).await;
            assert!((end..=end + 2).contains(&clock::unix().as_secs()), "at the end of the time");
            fixture::use_by(&records, &[record(None)]);
            becomes(true).await;
            reach.coordinate(None, None);
            becomes(false).await;
        };
        tokio::select! {
            never = follow(reach, front) => match never {},
            () = told => {}
        }
        assert_eq!(front.borrow().callers.users(), Roster::Elsewhere, "it coordinates no more");
    }
}
