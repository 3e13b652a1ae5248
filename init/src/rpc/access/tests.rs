//! Calls to a running machine: who is let in by the owners of now, what a stranger's request may cost, what is written
//! down.

use std::future::ready;
use std::pin::Pin;
use std::task::{self, Poll};

use api::LogQuery;
use http_body_util::Full;
use pki::PrivateKey;
use tokio::sync::mpsc;

use super::super::world::{Machine, origin};
use super::*;
use crate::machine::power::PowerRequest;
use crate::runtime::log;
use crate::shown::board::Board;

/// gRPC: not compressed, no bytes.
const EMPTY: &[u8] = &[0; 5];

fn request<B>(method: &str, body: B) -> Request<B> {
    let request = Request::post(format!("/cairn.v1.Public/{method}")).header("content-type", "application/grpc");
    request.body(body).expect("a request")
}

/// Calls a method with an empty message; the answer's code.
async fn call(machine: &Machine, origin: Origin, method: &str) -> Code {
    outcome(&machine.gate(origin).answer(request(method, Full::from(EMPTY))).await)
}

/// Audit lines about calls from one port, each with the log it stands in.
async fn audited(peer: &str) -> Vec<(String, String)> {
    let query = LogQuery { subtree: String::from("audit"), ..LogQuery::default() };
    let mut reader = log::Reader::new(query).expect("installed");
    let mut found = Vec::new();
    loop {
        match reader.next().await {
            entries if entries.is_empty() => return found,
            entries => found.extend(entries.into_iter().map(|entry| (entry.service, entry.line))),
        }
        let from = format!(" from={peer} ");
        found.retain(|(_, line)| line.contains(&from));
    }
}

/// Proves: Q1
#[tokio::test]
async fn an_owners_change_is_audited_with_who_where_what_and_outcome() {
    let mut machine = Machine::running();
    let peer = "192.0.2.1:1001";
    let owner = origin(Some(&machine.owner), peer);
    assert_eq!(call(&machine, owner.clone(), "Reboot").await, Code::Ok);
    assert_eq!(machine.power.try_recv(), Ok(PowerRequest::Reboot));
    assert_eq!(call(&machine, owner.clone(), "Status").await, Code::Ok, "it only looks");
    assert_eq!(call(&machine, owner.clone(), "Kubeconfig").await, Code::FailedPrecondition);
    assert_eq!(call(&machine, owner, "RestartService").await, Code::NotFound);
    let who = format!("call who=owner:{} from={peer}", machine.owner.public().pin());
    let ended = [
        ("Reboot", "Ok"),
        (
            "Kubeconfig",
            "FailedPrecondition reason=\"this machine is no coordinator and has no records of the cluster; nothing was done; ask a coordinator\"",
        ),
        (
            "RestartService",
            "NotFound reason=\"no service ``; nothing was done; `cairnctl machine services` lists them\"",
        ),
    ];
    let expected = ended
        .map(|(method, end)| format!("{who} method=\"/cairn.v1.Public/{method}\" outcome={end}"))
        .map(|line| (String::from("audit"), line));
    assert_eq!(audited(peer).await, expected);
}

/// Proves: Q1 S8
#[tokio::test]
async fn what_no_profile_or_build_has_is_no_method_even_for_an_owner() {
    for profile in [api::Profile::Release, api::Profile::Debug] {
        let machine = Machine::of(profile);
        let owner = origin(Some(&machine.owner), "192.0.2.11:1011");
        for path in ["/cairn.v1.Debug/Inject", "/cairn.v1.Debug/Other", "/cairn.v1.Public/Shell"] {
            let mut request = request("Status", Full::from(EMPTY));
            *request.uri_mut() = path.parse().expect("a path");
            let code = outcome(&machine.gate(owner.clone()).answer(request).await);
            let has = path.ends_with("/Inject") && profile == api::Profile::Debug && cfg!(feature = "faults");
            // An empty message names no fault.
            let expected = if has { Code::InvalidArgument } else { Code::Unimplemented };
            assert_eq!(code, expected, "{path} of {profile}");
        }
    }
}

/// Proof of a key says nothing yet of who holds it.
///
/// Proves: Q1
#[tokio::test]
async fn a_machines_key_may_ask_to_be_let_in_and_nothing_else() {
    let machine = Machine::running();
    let peer = "192.0.2.9:1009";
    let key = PrivateKey::ed25519(&model::Secret::take(&mut [7; 32])).expect("a key");
    let shown = [pki::client_auth::nameless_certificate(&key).expect("a certificate")];
    let joiner = Origin { shown: shown.into(), ..origin(None, peer) };
    // This machine is no coordinator.
    assert_eq!(call(&machine, joiner.clone(), "Redeem").await, Code::FailedPrecondition);
    for method in ["ListMachines", "IssueTicket", "ListTickets", "RevokeTicket", "Status", "Reboot"] {
        assert_eq!(call(&machine, joiner.clone(), method).await, Code::Unauthenticated, "{method}");
    }
    assert_eq!(call(&machine, joiner, "GetState").await, Code::Ok);
    let id = keys::identity::machine_id(&key.public().as_ed25519().expect("it is one"));
    let (log, line) = audited(peer).await.remove(0);
    let redeemed = format!(
        "call who=machine:{id} from={peer} method=\"/cairn.v1.Public/Redeem\" outcome=FailedPrecondition reason="
    );
    assert!(log == "audit.strangers" && line.starts_with(&redeemed), "{log}: {line}");
    assert!(line.ends_with("ask a coordinator\""), "with what it was told: {line}");
    for who in [None, Some(&machine.owner)] {
        assert_eq!(call(&machine, origin(who, peer), "Redeem").await, Code::Unauthenticated, "no machine");
    }
    let owner = || origin(Some(&machine.owner), "192.0.2.10:1010");
    for method in ["ListMachines", "ListTickets"] {
        assert_eq!(call(&machine, owner(), method).await, Code::FailedPrecondition, "{method}");
    }
    // What is asked for is read first.
    for method in ["IssueTicket", "RevokeTicket"] {
        assert_eq!(call(&machine, owner(), method).await, Code::InvalidArgument, "{method}");
    }
}

/// Methods of a machine that tell who called early.
#[derive(Debug)]
struct Early(Facts, mpsc::UnboundedSender<(MachineId, IpAddr)>);

impl Methods for Early {
    fn facts(&self) -> &Facts {
        &self.0
    }

    fn knows(&self, _: &MachineId) -> bool {
        false
    }

    fn owner_called(&self) {}

    fn called_early(&self, machine: MachineId, source: IpAddr) {
        self.1.send((machine, source)).expect("the test listens");
    }

    fn call(&self, _: Request<Body>) -> BoxFuture<Response<Body>, Infallible> {
        Box::pin(ready(Ok(Response::new(Body::empty()))))
    }
}

/// Voters find one another by it. Proves: K6 M6
#[tokio::test]
async fn a_machine_that_asks_a_waiting_one_is_refused_and_noticed() {
    let mut machine = Machine::running();
    let (facts, power_on) = Facts::new(machine.facts.boot().clone());
    let (early, mut noticed) = mpsc::unbounded_channel();
    let board = Board::new(facts.clone()).0;
    let opens = power_on.opens();
    board.underway(&opens, "");
    machine.guarded = Guarded::new(Box::new(Early(facts, early)));
    let key = PrivateKey::ed25519(&model::Secret::take(&mut [7; 32])).expect("a key");
    let peer = "192.0.2.12:1012";
    let shown = [pki::client_auth::nameless_certificate(&key).expect("a certificate")];
    let asker = Origin { shown: shown.into(), ..origin(None, peer) };
    for caller in [origin(None, peer), origin(Some(&machine.owner), peer)] {
        assert_eq!(call(&machine, caller, "ReleaseKey").await, api::NOT_YET);
    }
    assert!(noticed.try_recv().is_err(), "neither is a machine");
    assert_eq!(call(&machine, asker.clone(), "ReleaseKey").await, api::NOT_YET);
    let id = keys::identity::machine_id(&key.public().as_ed25519().expect("it is one"));
    assert_eq!(noticed.try_recv(), Ok((id, IpAddr::from([192, 0, 2, 12]))));
    board.settled(&opens.runs(), "");
    assert_eq!(call(&machine, asker, "ReleaseKey").await, Code::Ok);
    assert!(noticed.try_recv().is_err(), "it is answered");
}

/// Proves: Q1
#[tokio::test]
async fn a_stranger_is_refused_and_fills_neither_machine_nor_record() {
    let mut machine = Machine::running();
    let peer = "192.0.2.2:1002";
    for method in ["PowerOff", "Reboot", "Kubeconfig", "Tunnel"] {
        assert_eq!(call(&machine, origin(None, peer), method).await, Code::Unauthenticated, "{method}");
    }
    for _ in 0..20 {
        assert_eq!(call(&machine, origin(None, peer), "Claim").await, Code::FailedPrecondition);
    }
    assert!(machine.power.try_recv().is_err(), "nothing was asked of the machine");
    let expected = format!(
        "call who=stranger from={peer} method=\"/cairn.v1.Public/PowerOff\" outcome=refused reason=\"only for the \
         owner; nothing was done; call with the owner's certificate\""
    );
    assert_eq!(audited(peer).await, [(String::from("audit.strangers"), expected)]);
}

/// Five thousand sources cannot push out what the owner did, and write a bounded number of lines. Proves: Q1
#[tokio::test]
async fn strangers_from_everywhere_leave_the_owners_lines_alone() {
    let machine = Machine::running();
    let peer = "192.0.2.6:1006";
    assert_eq!(call(&machine, origin(Some(&machine.owner), peer), "RestartService").await, Code::NotFound);
    let mut lines = 0;
    for number in 0..5000_u32 {
        let stranger = format!("198.18.{}.{}:9", number >> 8, number & 255);
        assert_eq!(call(&machine, origin(None, &stranger), "Reboot").await, Code::Unauthenticated);
        lines += usize::from(number < 200 && !audited(&stranger).await.is_empty());
    }
    assert_eq!(audited(peer).await.len(), 1, "the owner's line is there");
    assert!((1..200).contains(&lines), "{lines} of the first 200 strangers");
}

/// Proves: Q1
#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_is_written_down() {
    let machine = Machine::running();
    let peer = "192.0.2.3:1003";
    let gate = machine.gate(origin(Some(&machine.owner), peer));
    drop(gate.answer(request("PowerOff", Body::empty())));
    let lines = audited(peer).await;
    assert!(matches!(&lines[..], [(_, line)] if line.ends_with("outcome=left")), "{lines:?}");
}

/// Proves: Q1
#[tokio::test]
async fn the_owner_is_decided_for_each_request_by_the_owners_of_now() {
    let machine = Machine::running();
    let peer = "192.0.2.4:1004";
    let connection = machine.gate(origin(Some(&machine.owner), peer));
    let ask = async |method| outcome(&connection.answer(request(method, Full::from(EMPTY))).await);
    let status = async || ask("Status").await;
    assert_eq!(status().await, Code::Ok);
    let other = PrivateKey::generate().expect("a key");
    machine.owned_by(&[other]);
    assert_eq!(status().await, Code::PermissionDenied, "on the same connection");
    assert_eq!(ask("GetState").await, Code::PermissionDenied, "nor what a stranger is told: the connection ends");
    let refused = "outcome=refused reason=\"only for the owner, whose key this is not; nothing was done\"";
    let line = format!("call who=stranger from={peer} method=\"/cairn.v1.Public/Status\" {refused}");
    assert_eq!(audited(peer).await, [(String::from("audit.strangers"), line)]);
    machine.owned_by(std::slice::from_ref(&machine.owner));
    assert_eq!(status().await, Code::Ok, "and again");
}

/// A body that has begun and does not go on.
struct Half(Option<Bytes>);

impl AnyBody for Half {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))))
    }
}

/// Proves: Q1
#[tokio::test(start_paused = true)]
async fn a_strangers_half_request_ends_in_5_s_and_frees_its_bytes() {
    let machine = Machine::running();
    let gate = machine.gate(origin(None, "192.0.2.5:1005"));
    let most = door::STRANGERS_BUDGET / bytes(Caller::Stranger, Permission::Anyone);
    let began = tokio::time::Instant::now();
    let half = || request("GetState", Half(Some(Bytes::from_static(&[0, 0, 0, 4, 0, 1, 2]))));
    let mut open: tokio::task::JoinSet<_> = (0..most).map(|_| gate.answer(half())).collect();
    tokio::task::yield_now().await;
    let full = outcome(&gate.answer(request("GetState", Full::from(EMPTY))).await);
    assert_eq!(full, Code::ResourceExhausted, "no byte is left for one more");
    assert_eq!(call(&machine, origin(Some(&machine.owner), "192.0.2.5:1"), "Status").await, Code::Ok, "but for owners");
    while let Some(ended) = open.join_next().await {
        assert_eq!(outcome(&ended.expect("no panic")), Code::DeadlineExceeded);
    }
    assert_eq!(began.elapsed().as_secs(), 5);
    assert_eq!(outcome(&gate.answer(request("GetState", Full::from(EMPTY))).await), Code::Ok, "all came back");
    let unbounded = gate.visit.borrow().ends().expect("a stranger's visit ends").0;
    assert!(unbounded <= clock::now() + Duration::from_secs(5), "and no request is under way");
}

/// Proves: Q1
#[tokio::test]
async fn a_stranger_may_send_a_kibibyte_and_an_owner_sixty_four() {
    let machine = Machine::running();
    // A field that nobody knows, so that the method does not mind: number 100, and its length.
    let message = |length: usize| {
        let field = length - 4;
        let length_in_two =
            [u8::try_from(field & 127).expect("seven bits") | 128, u8::try_from(field >> 7).expect("few")];
        let head = u32::try_from(length).expect("short").to_be_bytes();
        [&[0][..], &head, &[0xa2, 0x06], &length_in_two, &vec![0; field]].concat()
    };
    let ask = async |key: Option<&PrivateKey>, method: &str, length| {
        let gate = machine.gate(origin(key, "192.0.2.7:1007"));
        outcome(&gate.answer(request(method, Full::from(message(length)))).await)
    };
    assert_eq!(ask(None, "GetState", 1024).await, Code::Ok);
    assert_ne!(ask(None, "GetState", 1025).await, Code::Ok);
    assert_eq!(ask(Some(&machine.owner), "Status", 16_000).await, Code::Ok);
}

fn outcome(response: &Response<Body>) -> Code {
    refused(response).map_or(Code::Ok, |status| status.code())
}
