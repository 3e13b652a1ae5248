//! A snapshot on its way to a machine that restores it: sent in pieces, then the machine says how far it has come.

use api::RestoreStage;
use api::public_client::PublicClient;
use api::wire::{RestoreKubernetesRequest, RestoreKubernetesResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::call::CallError;

const METHOD: &str = "RestoreKubernetes";
/// Pieces on their way to the machine: enough to keep the wire busy, 256 KiB at most.
const IN_FLIGHT: usize = 8;

/// A restore that a machine has begun.
#[derive(Debug)]
pub(crate) struct Restore {
    /// Way of the pieces; none behind the last one.
    pieces: Option<mpsc::Sender<RestoreKubernetesRequest>>,
    stages: Streaming<RestoreKubernetesResponse>,
}

impl Restore {
    pub(super) async fn begin(client: &mut PublicClient<Channel>) -> Result<Self, CallError> {
        let (pieces, requests) = mpsc::channel(IN_FLIGHT);
        let stages = client.restore_kubernetes(ReceiverStream::new(requests)).await.map_err(CallError::of(METHOD))?;
        Ok(Self { pieces: Some(pieces), stages: stages.into_inner() })
    }

    /// Sends the next piece. False when the machine takes no more: it says why when it is asked for its stage.
    pub(crate) async fn give(&self, data: Vec<u8>) -> bool {
        match &self.pieces {
            Some(pieces) => pieces.send(RestoreKubernetesRequest { data }).await.is_ok(),
            None => false,
        }
    }

    /// Says that there are no more pieces.
    pub(crate) fn whole(&mut self) {
        self.pieces = None;
    }

    /// The next stage; none once it is over.
    pub(crate) async fn next(&mut self) -> Result<Option<RestoreStage>, CallError> {
        let stage = self.stages.message().await.map_err(CallError::of(METHOD))?;
        stage.map(RestoreStage::try_from).transpose().map_err(CallError::answer(METHOD))
    }
}
