//! The access table in front of every call: decided before the body is read, refusals answered here.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use api::access::{Caller, Permission, decide};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};

use super::context::Context;
use super::session::Origin;

/// Puts [`Gate`] in front of a service.
#[derive(Debug, Clone)]
pub(super) struct Layer(pub(super) Arc<Context>);

impl<S> tower::Layer<S> for Layer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { inner, context: self.0.clone() }
    }
}

/// Answers what the table refuses and passes on the rest.
#[derive(Debug, Clone)]
pub(super) struct Gate<S> {
    inner: S,
    context: Arc<Context>,
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
        let origin = request.extensions().get::<Origin>();
        let caller = origin.map_or(Caller::Unknown, |origin| origin.caller);
        let path = request.uri().path();
        let state = match self.context.state() {
            Ok(state) => state,
            Err(undecided) => return Answer::Refused(ready(Ok(tonic::Status::from(undecided).into_http()))),
        };
        match decide(path, self.context.board.boot().profile, state, caller) {
            Ok(row) => {
                if row.permission == Permission::Owner {
                    self.context.owner_called();
                }
                let peer = origin.map(|origin| origin.peer);
                tracing::debug!(call = path, peer = ?peer, because = row.because, "call");
                Answer::Passed(Box::pin(self.inner.call(request)))
            }
            Err(refused) => {
                tracing::debug!(call = path, %refused, "call refused");
                Answer::Refused(ready(Ok(tonic::Status::from(refused).into_http())))
            }
        }
    }
}

/// The inner service's answer, or a refusal.
pub(super) enum Answer<F, E> {
    Passed(Pin<Box<F>>),
    Refused(Ready<Result<Response<Body>, E>>),
}

impl<F: Future<Output = Result<Response<Body>, E>>, E> Future for Answer<F, E> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        match self.get_mut() {
            Self::Passed(answer) => answer.as_mut().poll(cx),
            Self::Refused(answer) => Pin::new(answer).poll(cx),
        }
    }
}

impl<F, E> Unpin for Answer<F, E> {}
