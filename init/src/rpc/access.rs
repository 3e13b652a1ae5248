//! The access table in front of every call: decided before the body is read, refusals answered here, and what is to be
//! known of a call afterwards written down, both in this one place.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready as pending_or};

use api::access::{self, Permission, decide};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};

use super::audit::{Audit, Call};
use super::context::Context;
use super::session::Origin;

/// Puts [`Gate`] in front of a service.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    context: Arc<Context>,
    audit: Audit,
}

impl Layer {
    /// In front of the methods that read `context`.
    pub(super) const fn new(context: Arc<Context>, audit: Audit) -> Self {
        Self { context, audit }
    }
}

impl<S> tower::Layer<S> for Layer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { inner, context: self.context.clone(), audit: self.audit.clone() }
    }
}

/// Answers what the table refuses and passes on the rest.
#[derive(Debug, Clone)]
pub(super) struct Gate<S> {
    inner: S,
    context: Arc<Context>,
    audit: Audit,
}

impl<S> Gate<S> {
    /// Whether the call may go on; and how it is written down, where it is.
    fn judge(&self, request: &Request<Body>) -> Result<Option<Call>, Status> {
        let origin = request.extensions().get::<Origin>().ok_or_else(|| Status::internal("no session"))?;
        let path = request.uri().path();
        let state = self.context.state()?;
        match decide(path, self.context.board.boot().profile, state, origin.caller()) {
            Ok(row) => {
                if row.permission == Permission::Owner {
                    self.context.owner_called();
                    tracing::debug!(call = path, peer = %origin.peer, because = row.because, "call");
                }
                Ok((row.audit == access::Audit::Recorded).then(|| self.audit.begin(origin, path)))
            }
            Err(refused) => {
                self.audit.refused(origin, path, refused);
                Err(refused.into())
            }
        }
    }
}

impl<S> tower::Service<Request<Body>> for Gate<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.judge(&request) {
            Ok(call) => Answer::Passed(Box::pin(self.inner.call(request)), call),
            Err(refused) => Answer::Refused(ready(Ok(refused.into_http()))),
        }
    }
}

/// The inner service's answer, or a refusal.
pub(super) enum Answer<F, E> {
    Passed(Pin<Box<F>>, Option<Call>),
    Refused(Ready<Result<Response<Body>, E>>),
}

impl<F: Future<Output = Result<Response<Body>, E>>, E> Future for Answer<F, E> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        match self.get_mut() {
            Self::Passed(answer, call) => {
                let answered = pending_or!(answer.as_mut().poll(cx));
                if let Some(call) = call.take() {
                    call.end(answered.as_ref().map_or(Code::Internal, outcome));
                }
                Poll::Ready(answered)
            }
            Self::Refused(answer) => Pin::new(answer).poll(cx),
        }
    }
}

impl<F, E> Unpin for Answer<F, E> {}

/// What the answer's head says; a stream that has begun is a call that was answered.
fn outcome(response: &Response<Body>) -> Code {
    Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use api::LogQuery;
    use api::public_server::PublicServer;
    use model::{BootClass, RootHash};
    use pki::PrivateKey;
    use pki::client_auth::Caller as Who;
    use tower::{Layer as _, Service as _};

    use super::super::context::PowerRequest;
    use super::super::public::Public;
    use super::super::sources::Sources;
    use super::*;
    use crate::board::{Board, Boot};
    use crate::child::Children;
    use crate::log;

    /// The API of a running machine, without its port.
    struct Machine {
        gate: Gate<PublicServer<Public>>,
        power: tokio::sync::mpsc::Receiver<PowerRequest>,
        owner: PrivateKey,
    }

    impl Machine {
        fn running() -> Self {
            log::install(Vec::new());
            let (board, power_on) = Board::new(Boot {
                profile: api::Profile::Release,
                root_hash: RootHash([1; 32]),
                boot_id: String::from("b"),
                class: BootClass::Direct,
            });
            board.settled(&power_on.opens().runs(), "");
            let (context, power) = Context::new(&board, &Children::default());
            let methods = PublicServer::new(Public(context.clone()));
            let gate = Layer::new(context, Audit::new(Sources::default())).layer(methods);
            Self { gate, power, owner: PrivateKey::generate().expect("a key") }
        }

        fn origin(&self, who: Who, peer: &str) -> Origin {
            let peer: SocketAddr = peer.parse().expect("an address");
            Origin { who, peer, exporter: [0; 32] }
        }

        fn owner(&self, peer: &str) -> Origin {
            self.origin(Who::Owner(self.owner.public().clone()), peer)
        }

        /// Calls a method with an empty message; the answer's code.
        async fn call(&mut self, origin: Origin, method: &str) -> Code {
            let message = http_body_util::Full::from(&[0_u8; 5][..]); // gRPC: not compressed, no bytes
            let request = Request::post(format!("/cairn.v1.Public/{method}"))
                .header("content-type", "application/grpc")
                .extension(origin)
                .body(Body::new(message))
                .expect("a request");
            outcome(&self.gate.call(request).await.expect("infallible"))
        }
    }

    /// What was written down about calls from one port.
    async fn audited(peer: &str) -> Vec<String> {
        let query = LogQuery { subtree: String::from("audit"), ..LogQuery::default() };
        let entries = log::Reader::new(query).expect("installed").next().await;
        let from = format!(" from={peer} ");
        entries.into_iter().map(|entry| entry.line).filter(|line| line.contains(&from)).collect()
    }

    /// Proves: Q1
    #[tokio::test]
    async fn what_the_owner_changes_is_written_down_with_who_where_what_and_outcome() {
        let mut machine = Machine::running();
        let peer = "192.0.2.1:1001";
        assert_eq!(machine.call(machine.owner(peer), "Reboot").await, Code::Ok);
        assert_eq!(machine.power.try_recv(), Ok(PowerRequest::Reboot));
        assert_eq!(machine.call(machine.owner(peer), "Status").await, Code::Ok, "it only looks");
        assert_eq!(machine.call(machine.owner(peer), "Kubeconfig").await, Code::FailedPrecondition);
        assert_eq!(machine.call(machine.owner(peer), "RestartService").await, Code::NotFound);
        let who = format!("call who=owner:{} from={peer}", machine.owner.public().pin());
        let expected = [("Reboot", "Ok"), ("Kubeconfig", "FailedPrecondition"), ("RestartService", "NotFound")]
            .map(|(method, outcome)| format!("{who} method=\"/cairn.v1.Public/{method}\" outcome={outcome}"));
        assert_eq!(audited(peer).await, expected);
    }

    /// Proves: Q1
    #[tokio::test]
    async fn a_stranger_is_refused_and_fills_neither_machine_nor_record() {
        let mut machine = Machine::running();
        let peer = "192.0.2.2:1002";
        for method in ["PowerOff", "Reboot", "Kubeconfig", "Tunnel"] {
            let origin = machine.origin(Who::Anonymous, peer);
            assert_eq!(machine.call(origin, method).await, Code::Unauthenticated, "{method}");
        }
        for _ in 0..20 {
            let origin = machine.origin(Who::Anonymous, peer);
            assert_eq!(machine.call(origin, "Claim").await, Code::FailedPrecondition);
        }
        assert!(machine.power.try_recv().is_err(), "nothing was asked of the machine");
        let expected = format!(
            "call who=anonymous from={peer} method=\"/cairn.v1.Public/PowerOff\" outcome=refused reason=\"only for the \
             owner; nothing was done; call with the owner's certificate\""
        );
        assert_eq!(audited(peer).await, [expected]);
    }

    /// Proves: Q1
    #[tokio::test]
    async fn a_caller_who_leaves_before_the_answer_is_written_down() {
        let mut machine = Machine::running();
        let peer = "192.0.2.3:1003";
        let request = Request::post("/cairn.v1.Public/PowerOff").extension(machine.owner(peer));
        drop(machine.gate.call(request.body(Body::empty()).expect("a request")));
        let lines = audited(peer).await;
        assert!(matches!(&lines[..], [line] if line.ends_with("outcome=left")), "{lines:?}");
    }
}
