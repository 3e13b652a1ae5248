//! A snapshot of Kubernetes' objects as a fake tells one and takes one.

use std::sync::Arc;

use api::RestoreStage;
use api::wire::{RestoreKubernetesRequest, RestoreKubernetesResponse, SnapshotKubernetesResponse};
use model::NodeName;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Answers, Api};

impl Api {
    /// Tells its snapshot in pieces; where it refuses, half of it and a reason.
    pub(super) fn tells_snapshot(&self) -> Answers<SnapshotKubernetesResponse> {
        let (bytes, refuses) = (self.snapshot.lock().unwrap().clone(), *self.refuses.lock().unwrap());
        let told = if refuses { &bytes[..bytes.len() / 2] } else { &bytes };
        let piece = |piece: &[u8]| Ok(SnapshotKubernetesResponse { data: piece.to_vec() });
        let mut answers: Vec<_> = told.chunks(7).map(piece).collect();
        answers.extend(refuses.then(|| Err(Status::out_of_range("etcd has forgotten revision 7 while it was read"))));
        Box::pin(tokio_stream::iter(answers))
    }

    /// Takes a snapshot, and restores it; where it refuses, the order was changed meanwhile.
    pub(super) fn takes_snapshot(
        &self,
        mut parts: Streaming<RestoreKubernetesRequest>,
    ) -> Answers<RestoreKubernetesResponse> {
        let (state, refuses) = (Arc::clone(&self.state), *self.refuses.lock().unwrap());
        let (told, stages) = mpsc::channel(4);
        let mut taking = JoinSet::new();
        taking.spawn(async move {
            let mut bytes = Vec::new();
            while let Some(part) = parts.next().await {
                bytes.extend(part.unwrap().data);
            }
            *state.snapshot.lock().unwrap() = bytes;
            let waits = RestoreStage::Waits(vec![NodeName::stored("m2").unwrap()]);
            for stage in [waits, RestoreStage::Replaces] {
                told.send(Ok(stage.into())).await.unwrap();
            }
            if refuses {
                told.send(Err(Status::aborted("another snapshot was ordered in place of this one"))).await.unwrap();
            }
        });
        Box::pin(ReceiverStream::new(stages).map(move |stage| {
            let _as_long_as_this = &taking;
            stage
        }))
    }
}
