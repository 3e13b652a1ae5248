//! The access table in front of every call of an API: decided by the owners of now, before the body is read; refusals
//! answered here, what is to be known of a call afterwards written down, and what a request may cost held to, all in this
//! one place.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::access::{self, CallRefusal, Permission, decide};
use door::{Budget, Visit};
use http_body_util::{BodyExt, Limited};
use model::{Caller, MachineId, MachineState};
use pki::client_auth::Who;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Body as AnyBody, BoxFuture, Bytes, StdError};
use tonic::{Code, Status};

use super::Front;
use super::audit::{Audit, Call};
use super::session::Origin;
use crate::facts::{Facts, Now};
use crate::runtime::clock;
use crate::runtime::lock;

/// From a stranger's request's head to its answer, body and all.
const STRANGER_ASKS: Duration = Duration::from_secs(5);
/// The same of who redeems a ticket or announces itself, in which etcd has a say; and of a user, up to the answer's head: a tunnel
/// goes on.
const MACHINE_ASKS: Duration = Duration::from_secs(12);
/// gRPC's head before a message.
const FRAMING: usize = 5;

/// Methods of one API, behind the access table.
pub(super) trait Methods: fmt::Debug + Send + Sync + 'static {
    /// Facts by which calls are decided.
    fn facts(&self) -> &Facts;

    /// Whether a machine that shows the cluster's certificate is one of its records.
    fn knows(&self, machine: &MachineId) -> bool;

    /// A call that only an owner may make was let in.
    fn owner_called(&self);

    /// A machine, which has proved to be that machine, called from there for what is not answered in this state.
    fn called_early(&self, machine: MachineId, source: IpAddr);

    /// Answers a call that was let in.
    fn call(&self, request: Request<Body>) -> BoxFuture<Response<Body>, Infallible>;
}

/// The boot has not read yet what it decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine has just begun to start; nothing was done; ask again")]
pub(super) struct Undecided;

impl From<Undecided> for Status {
    fn from(error: Undecided) -> Self {
        Self::unavailable(error.to_string())
    }
}

/// The machine's state.
///
/// # Errors
/// [`Undecided`] for a call that comes before the boot decided anything.
pub(super) fn state(facts: &Facts) -> Result<MachineState, Undecided> {
    facts.read(Now::state).ok_or(Undecided)
}

/// An API's methods, and what calls of all connections share.
#[derive(Debug)]
pub(super) struct Guarded {
    methods: Box<dyn Methods>,
    pub(super) audit: Audit,
    budget: Arc<Mutex<Budget>>,
}

impl Guarded {
    /// Guards these methods; nobody has called yet.
    pub(super) fn new(methods: Box<dyn Methods>) -> Arc<Self> {
        Arc::new(Self { methods, audit: Audit::default(), budget: Arc::default() })
    }

    /// By what calls are decided.
    pub(super) fn facts(&self) -> &Facts {
        self.methods.facts()
    }

    /// Whether the records know the machine.
    pub(super) fn knows(&self, machine: &MachineId) -> bool {
        self.methods.knows(machine)
    }
}

/// The methods as one connection reaches them: answers what the table refuses and passes on the rest.
#[derive(Debug)]
pub(super) struct Gate {
    guarded: Arc<Guarded>,
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
    /// Makes the gate of one connection.
    pub(super) const fn new(
        guarded: Arc<Guarded>,
        front: watch::Receiver<Front>,
        origin: Origin,
        visit: Arc<watch::Sender<Visit>>,
    ) -> Self {
        Self { guarded, front, origin, visit }
    }

    /// Whether the call to `path` may go on.
    fn judge(&self, path: &str) -> Result<Passed, Status> {
        let Guarded { methods, audit, budget } = &*self.guarded;
        let (facts, peer) = (methods.facts(), self.origin.peer);
        let state = state(facts)?;
        let callers = self.front.borrow().callers.clone();
        let who = self.origin.who(&callers).map_err(|error| {
            audit.refused(Who::Stranger, peer, path, error.into());
            CallRefusal::from(error)
        })?;
        let caller = who.caller();
        let row = match decide(path, facts.boot().profile, state, caller) {
            Ok(row) => row,
            Err(refused) => {
                if let (Who::Machine(key), CallRefusal::State { .. }) = (&who, refused) {
                    methods.called_early(keys::identity::machine_id(&key.0), peer.ip());
                }
                let refused = callers.refusal(&who, refused);
                audit.refused(who, peer, path, refused);
                return Err(refused.into());
            }
        };
        let share = Share::take(budget, caller, bytes(caller, row.permission)).ok_or_else(busy)?;
        // What owners may call as anybody may says nothing of who met the machine.
        if caller == Caller::Owner
            && matches!(row.permission, Permission::Owner | Permission::OwnerOrMachine | Permission::User)
        {
            methods.owner_called();
            tracing::debug!(call = path, %peer, because = row.because, "call");
        }
        let call = match row.audit {
            access::Audit::Recorded => Some(audit.begin(who.clone(), peer, path)),
            access::Audit::Silent => None,
        };
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
        request.extensions_mut().insert(Reader(self.visit.clone()));
        let guarded = self.guarded.clone();
        async move {
            let _ends_with_the_answer = asks;
            let Passed { who, call, share } = match passed {
                Ok(passed) => passed,
                Err(refused) => return refused.into_http(),
            };
            let caller = who.caller();
            request.extensions_mut().insert(who);
            let request = request.map(|body| match caller {
                Caller::Stranger | Caller::Machine | Caller::Member => {
                    let most = share.bytes;
                    Body::new(Limited::new(share.held_by(body), most))
                }
                // A tunnel's bytes have no end; each of its pieces has.
                Caller::User | Caller::Owner => Body::new(share.held_by(body)),
            });
            let answer = guarded.methods.call(request);
            let answer = match caller {
                Caller::Stranger => timeout(STRANGER_ASKS, answer).await.unwrap_or_else(|_| Ok(late().into_http())),
                Caller::Machine | Caller::Member | Caller::User => {
                    timeout(MACHINE_ASKS, answer).await.unwrap_or_else(|_| Ok(undecided().into_http()))
                }
                Caller::Owner => answer.await,
            };
            let answer = answer.unwrap_or_else(|infallible| match infallible {});
            if let Some(call) = call {
                call.end(refused(&answer));
            }
            answer
        }
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

/// Reader of one connection's answers, to report a caller that takes none; requests carry it as an extension.
#[derive(Debug, Clone)]
pub(super) struct Reader(pub(super) Arc<watch::Sender<Visit>>);

impl Reader {
    /// An answer waits that nobody reads: ends the connection, with all that waits in it.
    pub(super) fn reads_nothing(&self) {
        self.0.send_modify(Visit::leaves_unread);
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
    caller: Caller,
    bytes: usize,
}

impl Share {
    fn take(budget: &Arc<Mutex<Budget>>, caller: Caller, bytes: usize) -> Option<Self> {
        let taken = lock::even_if_poisoned(budget).take(caller, bytes);
        taken.then(|| Self { budget: budget.clone(), caller, bytes })
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
        lock::even_if_poisoned(&self.budget).give_back(self.caller, self.bytes);
    }
}

/// Bytes that a request may take, by caller and permission.
const fn bytes(caller: Caller, permission: Permission) -> usize {
    FRAMING
        + match (caller, permission) {
            (Caller::Stranger, Permission::Code) => api::limits::ACTIVATION_REQUEST_BYTES,
            (
                Caller::Stranger,
                Permission::Anyone
                | Permission::Newcomer
                | Permission::Machine
                | Permission::OwnerOrMachine
                | Permission::Member
                | Permission::User
                | Permission::Owner,
            ) => api::limits::STRANGER_REQUEST_BYTES,
            (Caller::Machine | Caller::Member, _the_same_for_all) => api::limits::MACHINE_REQUEST_BYTES,
            (Caller::User | Caller::Owner, _the_same_for_all) => api::limits::REQUEST_BYTES,
        }
}

fn busy() -> Status {
    Status::resource_exhausted("too many requests at a time; nothing was done; try again")
}

fn late() -> Status {
    Status::deadline_exceeded("the request was not complete within 5 s; nothing was done")
}

fn undecided() -> Status {
    Status::deadline_exceeded("it was not decided within 12 s; ask again: what is asked twice is done once")
}

/// Refusal in the answer's head, if there is one; a stream that has begun is a call that was answered.
fn refused(response: &Response<Body>) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

#[cfg(test)]
mod tests;
