//! A restore of Kubernetes' objects for an owner: takes the snapshot, has it ordered, and tells how far it has come. Once it is ordered it
//! goes on by itself; the owner may leave.

use std::time::Duration;

use api::{RestoreStage, wire};
use model::{Chain, OwnerPubKey};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::context::Context;
use super::streams::Answers;
use crate::records::{GrantError, KeptSnapshotError, Records, RestoreError, RestoreOrder, RestoreSnapshot};

/// Longest silence of a caller whose file is not whole.
const SILENCE: Duration = Duration::from_secs(60);

/// Why a restore is not ordered, or not followed to its end.
#[derive(Debug, thiserror::Error)]
enum RestoreStop {
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("the caller left before the snapshot was whole")]
    Left,
    #[error("nothing came from the caller for {} s", SILENCE.as_secs())]
    Silent,
    #[error("another snapshot was ordered to be restored in place of this one")]
    Replaced,
}

/// Takes a snapshot, has it restored, and tells so until it is over.
///
/// # Errors
/// When this machine is no coordinator, or takes another one.
pub(super) fn restore(
    context: &Context,
    by: OwnerPubKey,
    parts: Streaming<wire::RestoreKubernetesRequest>,
) -> Result<Answers<wire::RestoreKubernetesResponse>, Status> {
    let records = context.reach.records()?;
    // A stage is told while the next comes.
    let (told, stages) = mpsc::channel(1);
    context.reach.restores.begin(async move {
        let done = async {
            let new = receive(records.begin_restore().await?, parts).await?;
            let order = records.order_restore(by, new).await?;
            follow(&records, order, &told).await
        };
        if let Err(stop) = done.await {
            let status = status(&stop);
            tracing::info!(why = status.message(), "a snapshot is not restored for an owner");
            let _may_have_left = told.send(Err(status)).await;
        }
    })?;
    Ok(Box::pin(ReceiverStream::new(stages).map(|stage: Result<RestoreStage, _>| stage.map(Into::into))))
}

async fn receive(
    mut new: RestoreSnapshot,
    mut parts: Streaming<wire::RestoreKubernetesRequest>,
) -> Result<RestoreSnapshot, RestoreStop> {
    loop {
        let part = timeout(SILENCE, parts.message()).await.map_err(|_elapsed| RestoreStop::Silent)?;
        match part.map_err(|_broken| RestoreStop::Left)? {
            Some(part) => new = new.take(part.data).await?,
            None => return Ok(new),
        }
    }
}

/// Tells each other stage, until the restore is over or the caller has left.
async fn follow(
    records: &Records,
    order: RestoreOrder,
    told: &mpsc::Sender<Result<RestoreStage, Status>>,
) -> Result<(), RestoreStop> {
    let (mut changes, mut failure, mut last) = (records.changes(), records.step_failure(), None);
    loop {
        let stage = match records.restore_stage(&order).map_err(RestoreError::from)? {
            Some(Ok(stage)) => stage,
            Some(Err(_other)) => return Err(RestoreStop::Replaced),
            None => return Ok(()),
        };
        if last.as_ref() != Some(&stage) {
            if told.send(Ok(stage.clone())).await.is_err() {
                return Ok(()); // it goes on
            }
            last = Some(stage);
        }
        tokio::select! {
            () = changes.next() => {}
            Ok(()) = failure.changed() => {}
            () = told.closed() => return Ok(()),
        }
    }
}

fn status(stop: &RestoreStop) -> Status {
    const NOTHING: &str = "nothing was restored, and what came was thrown away";
    let text = format!("{}; {NOTHING}", Chain(stop));
    match stop {
        RestoreStop::Left | RestoreStop::Silent => Status::cancelled(text),
        RestoreStop::Replaced => Status::aborted(Chain(stop).to_string()),
        RestoreStop::Restore(error) => match error {
            RestoreError::Unread(unread) => (*unread).into(),
            RestoreError::File(KeptSnapshotError::Snapshot(_)) | RestoreError::Newer { .. } => {
                Status::invalid_argument(text)
            }
            RestoreError::File(KeptSnapshotError::Full) | RestoreError::Quota { .. } => {
                Status::failed_precondition(text)
            }
            RestoreError::File(_) => Status::internal(text),
            RestoreError::Members(_) => Status::unavailable(text),
            RestoreError::Order(GrantError::Unanswered(_)) | RestoreError::Etcd(_) | RestoreError::OtherOrder => {
                Status::unknown(Chain(stop).to_string())
            }
            RestoreError::Order(_) => Status::failed_precondition(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use ::snapshot::SnapshotError;
    use tonic::Code;

    use super::*;

    /// Proves: Q4
    #[test]
    fn a_file_of_no_use_is_told_from_a_machine_without_room() {
        let of = |error: RestoreError| status(&error.into());
        let cut = of(KeptSnapshotError::from(SnapshotError::Cut).into());
        assert_eq!(cut.code(), Code::InvalidArgument);
        assert_eq!(cut.message(), "the snapshot is cut off; nothing was restored, and what came was thrown away");
        assert_eq!(of(KeptSnapshotError::Full.into()).code(), Code::FailedPrecondition);
        let full = of(RestoreError::Quota { bytes: 9, free: 5 });
        assert!(full.message().starts_with("etcd has room for 5 bytes more, and the snapshot has 9; "), "{full}");
        assert_eq!(status(&RestoreStop::Left).code(), Code::Cancelled);
        assert!(!status(&RestoreStop::Replaced).message().contains("nothing"), "another restore goes on");
    }
}
