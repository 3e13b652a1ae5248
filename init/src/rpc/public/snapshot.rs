//! Snapshots of Kubernetes' objects for owners. One is made at a time, whoever asks: a coordinator holds a page of objects for it.

use api::wire;
use model::Chain;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::Status;

use super::context::Context;
use super::streams::{self, Answers};
use crate::records::SnapshotStop;
use crate::runtime::tasks;

/// Makes a snapshot and tells it, piece by piece.
///
/// # Errors
/// When this machine is no coordinator, or makes another one.
pub(super) fn take(context: &Context) -> Result<Answers<wire::SnapshotKubernetesResponse>, Status> {
    let records = context.reach.records()?;
    let place = context.reach.snapshots.begin()?;
    // A piece is under way while the next is read.
    let (pieces, told) = mpsc::channel(1);
    let making = tasks::spawn(async move {
        let _held_to_the_end = place;
        match records.snapshot(&pieces).await {
            Ok(summary) => tracing::info!(objects = summary.entries, bytes = summary.bytes, "an owner has a snapshot"),
            Err(stop) => {
                let status = status(&stop);
                tracing::info!(why = status.message(), "an owner's snapshot is not whole");
                let _may_have_left = pieces.send(Err(status)).await;
            }
        }
    });
    let answers = streams::kept(told, making);
    Ok(Box::pin(answers.map(|piece| piece.map(|data| wire::SnapshotKubernetesResponse { data }))))
}

fn status(stop: &SnapshotStop) -> Status {
    let text = Chain(stop).to_string();
    match stop {
        SnapshotStop::Unread(unread) => (*unread).into(),
        SnapshotStop::Leaderless(_) => Status::failed_precondition(format!("{text}; ask another coordinator")),
        SnapshotStop::Restoring => Status::failed_precondition(format!("{text}; try again once they are")),
        SnapshotStop::Etcd(_) => Status::unavailable(text),
        SnapshotStop::Forgotten(_) => Status::out_of_range(text),
        SnapshotStop::Entry(_) => Status::internal(text),
        SnapshotStop::Left => Status::cancelled(text),
    }
}
