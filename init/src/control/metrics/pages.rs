//! Pages of the cluster's machines, each fetched from its machine by the public API and handed on piece by piece: none is kept here.

use std::sync::Arc;
use std::time::Duration;

use api::wire::MetricsRequest;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use model::{Chain, NodeName};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status};
use usage::UsageAnswer;

use crate::enrolment::Fellows;
use crate::records::Records;
use crate::runtime::tasks;

/// Body of an answer; one that breaks off has an error.
pub(super) type AnswerBody = UnsyncBoxBody<Bytes, Status>;

/// Longest time for a page: until the machine has made it, and whoever asked has read it.
const ANSWERS: Duration = Duration::from_secs(12);
/// Pages that are fetched at a time; who asks for more waits.
const AT_A_TIME: usize = 4;
/// The largest piece of a page, with its framing.
const PIECE_BYTES: usize = 64 << 10;

/// Way to the pages of all machines.
#[derive(Debug)]
pub(super) struct Pages {
    fellows: Fellows,
    records: Records,
    turns: Arc<Semaphore>,
}

impl Pages {
    pub(super) fn of(fellows: Fellows, records: Records) -> Self {
        Self { fellows, records, turns: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// Page of a machine's service, or of the machine where that is empty.
    ///
    /// # Errors
    /// Answer that says why there is none.
    pub(super) async fn fetch(&self, name: &NodeName, service: String) -> Result<AnswerBody, UsageAnswer> {
        let found = self.records.read(|view, _| {
            let named = view.state().machines().find(|(_, machine)| machine.belongs() && machine.name == *name);
            named.map(|(id, machine)| (*id, machine.vpn_ip))
        });
        let machine = found.map_err(|unread| usage::refusal(503, &Chain(&unread).to_string()))?;
        let machine = machine.ok_or_else(|| usage::refusal(404, &format!("no machine is called `{name}`")))?;
        let late = || usage::refusal(503, &format!("{name} does not answer within {} s", ANSWERS.as_secs()));
        let turn = timeout(ANSWERS, self.turns.clone().acquire_owned()).await.map_err(|_elapsed| late())?;
        let (pieces, mut told) = mpsc::channel::<Result<Vec<u8>, Status>>(1);
        let fellows = self.fellows.clone();
        let fetching = tasks::spawn(async move {
            let call = fellows.call(machine, PIECE_BYTES, async |client| {
                let mut page = client.metrics(MetricsRequest { service }).await?.into_inner();
                while let Some(piece) = page.message().await? {
                    if pieces.send(Ok(piece.data)).await.is_err() {
                        break;
                    }
                }
                Ok(Response::new(()))
            });
            let ended = timeout(ANSWERS, call).await;
            drop(turn);
            let status = match ended {
                Ok(Ok(Ok(()))) => return,
                Ok(Ok(Err(status))) => status,
                Ok(Err(silent)) => Status::unavailable(Chain(&silent).to_string()),
                Err(_elapsed) => Status::unavailable(format!("no answer within {} s", ANSWERS.as_secs())),
            };
            let _may_have_left = pieces.send(Err(status)).await;
        });
        let first = match told.recv().await {
            Some(Ok(first)) => first,
            Some(Err(status)) => return Err(refusal(name, &status)),
            None => return Err(late()),
        };
        let rest = ReceiverStream::new(told).map(move |piece| {
            let _ends_with_the_stream = &fetching;
            piece
        });
        let pieces = tokio_stream::once(Ok(first)).chain(rest);
        Ok(StreamBody::new(pieces.map(|piece| Ok(Frame::data(Bytes::from(piece?))))).boxed_unsync())
    }
}

/// Words of a machine that has no page, as Kubernetes has them.
fn refusal(name: &NodeName, status: &Status) -> UsageAnswer {
    let code = if status.code() == Code::NotFound { 404 } else { 503 };
    usage::refusal(code, &format!("{name}: {}", status.message()))
}
