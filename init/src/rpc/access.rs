//! The access table in front of every call: decided by the owners of now, before the body is read; refusals answered
//! here, what is to be known of a call afterwards written down, and what a request may cost held to, all in this one place.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::access::{self, Permission, decide};
use api::debug_server::DebugServer;
use api::public_server::PublicServer;
use door::{Budget, Guest, Visit};
use http_body_util::{BodyExt, Limited};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Body as AnyBody, Bytes, Service as _, StdError};
use tonic::{Code, Status};

use super::Front;
use super::audit::{Audit, Call};
use super::context::Context;
use super::debug::Debug;
use super::public::Public;
use super::session::{Origin, Who};
use crate::runtime::clock;
use crate::runtime::lock;

/// From a stranger's request's head to its answer, body and all.
const STRANGER_ASKS: Duration = Duration::from_secs(5);
/// gRPC's head before a message.
const FRAMING: usize = 5;
/// Where the debug profile's methods are.
const DEBUG: &str = "/cairn.v1.Debug/";

/// The methods, and what calls of all connections share.
#[derive(Debug)]
pub(super) struct Methods {
    context: Arc<Context>,
    pub(super) audit: Audit,
    budget: Arc<Mutex<Budget>>,
    public: PublicServer<Public>,
    debug: Option<DebugServer<Debug>>,
}

impl Methods {
    /// Those that read `context`; faults are injected into the trees of `main`.
    pub(super) fn new(context: Arc<Context>, main: tokio::runtime::Handle) -> Arc<Self> {
        let public = PublicServer::new(Public(context.clone()))
            .max_decoding_message_size(api::limits::REQUEST_BYTES)
            .max_encoding_message_size(api::limits::RESPONSE_BYTES);
        let debug = (context.facts.boot().profile == api::Profile::Debug)
            .then(|| DebugServer::new(Debug { context: context.clone(), main }));
        Arc::new(Self { context, audit: Audit::default(), budget: Arc::default(), public, debug })
    }
}

/// The methods as one connection reaches them: answers what the table refuses and passes on the rest.
#[derive(Debug)]
pub(super) struct Gate {
    methods: Arc<Methods>,
    front: watch::Receiver<Front>,
    origin: Origin,
    visit: Arc<watch::Sender<Visit>>,
}

/// A call that may go on.
struct Passed {
    who: Who,
    /// How it is written down, where it is.
    call: Option<Call>,
    share: Share,
}

impl Gate {
    /// For one connection.
    pub(super) const fn new(
        methods: Arc<Methods>,
        front: watch::Receiver<Front>,
        origin: Origin,
        visit: Arc<watch::Sender<Visit>>,
    ) -> Self {
        Self { methods, front, origin, visit }
    }

    /// Whether the call to `path` may go on.
    fn judge(&self, path: &str) -> Result<Passed, Status> {
        let Methods { context, audit, budget, .. } = &*self.methods;
        let (who, peer) = (self.origin.who(&self.front.borrow().owners), self.origin.peer);
        let state = context.state()?;
        let row = decide(path, context.facts.boot().profile, state, who.caller())
            .inspect_err(|refused| audit.refused(who, peer, path, *refused))?;
        let share = Share::take(budget, who.guest()).ok_or_else(busy)?;
        if row.permission == Permission::Owner {
            context.owner_called();
            tracing::debug!(call = path, %peer, because = row.because, "call");
        }
        let call = (row.audit == access::Audit::Recorded).then(|| audit.begin(who, peer, path));
        Ok(Passed { who, call, share })
    }

    /// The answer, which is always there in the end.
    pub(super) fn answer<B>(&self, mut request: Request<B>) -> impl Future<Output = Response<Body>> + Send + use<B>
    where
        B: AnyBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError>,
    {
        let asks = Asks::begin(&self.visit);
        let passed = self.judge(request.uri().path());
        request.extensions_mut().insert(self.origin.clone());
        let methods = self.methods.clone();
        async move {
            let _ends_with_the_answer = asks;
            let Passed { who, call, share } = match passed {
                Ok(passed) => passed,
                Err(refused) => return refused.into_http(),
            };
            let request = request.map(|body| match who.guest() {
                Guest::Stranger => Body::new(Limited::new(share.held_by(body), bytes(Guest::Stranger))),
                Guest::Owner => Body::new(share.held_by(body)),
            });
            let answer = methods.call(request);
            let answer = match who.guest() {
                Guest::Stranger => timeout(STRANGER_ASKS, answer).await.unwrap_or_else(|_| late().into_http()),
                Guest::Owner => answer.await,
            };
            if let Some(call) = call {
                call.end(outcome(&answer));
            }
            answer
        }
    }
}

impl Methods {
    fn call(&self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send + use<> {
        let answer = match self.debug.clone().filter(|_| request.uri().path().starts_with(DEBUG)) {
            Some(mut debug) => debug.call(request),
            None => self.public.clone().call(request),
        };
        async move { answer.await.unwrap_or_else(|infallible| match infallible {}) }
    }
}

impl<B> hyper::service::Service<Request<B>> for Gate
where
    B: AnyBody<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let answer = self.answer(request);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// As long as it is there, its connection has a request under way.
struct Asks(Arc<watch::Sender<Visit>>);

impl Asks {
    fn begin(visit: &Arc<watch::Sender<Visit>>) -> Self {
        visit.send_modify(Visit::asks);
        Self(visit.clone())
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        let now = clock::now();
        self.0.send_modify(|visit| visit.asked(now));
    }
}

/// A request's share of the bytes that all requests may take; given back when dropped.
struct Share {
    budget: Arc<Mutex<Budget>>,
    guest: Guest,
}

impl Share {
    fn take(budget: &Arc<Mutex<Budget>>, guest: Guest) -> Option<Self> {
        let taken = lock::even_if_poisoned(budget).take(guest, bytes(guest));
        taken.then(|| Self { budget: budget.clone(), guest })
    }

    /// The body, which keeps its share until it is gone.
    fn held_by<B: AnyBody<Data = Bytes> + Send + 'static>(
        self,
        body: B,
    ) -> impl AnyBody<Data = Bytes, Error = B::Error> + Send + 'static {
        body.map_frame(move |frame| {
            let _held = &self;
            frame
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock::even_if_poisoned(&self.budget).give_back(self.guest, bytes(self.guest));
    }
}

/// What a request may take at a time.
const fn bytes(guest: Guest) -> usize {
    match guest {
        Guest::Stranger => FRAMING + api::limits::STRANGER_REQUEST_BYTES,
        Guest::Owner => FRAMING + api::limits::REQUEST_BYTES,
    }
}

fn busy() -> Status {
    Status::resource_exhausted("too many requests at a time; nothing was done; try again")
}

fn late() -> Status {
    Status::deadline_exceeded("the request was not complete within 5 s; nothing was done")
}

/// What the answer's head says; a stream that has begun is a call that was answered.
fn outcome(response: &Response<Body>) -> Code {
    Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
}

#[cfg(test)]
mod tests;
