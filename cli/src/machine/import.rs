//! An image on its way into a machine's store: the machine asks for one blob after the other, and is sent its bytes.

use api::limits::{REQUEST_BYTES, TUNNEL_CHUNK};
use api::public_client::PublicClient;
use api::wire::{ImportImageRequest, ImportImageResponse};
use api::{ImageToImport, ImportPart};
use oci::Blob;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::call::CallError;

const METHOD: &str = "ImportImage";

/// Most bytes that are sent at a time.
pub(crate) const PIECE: usize = TUNNEL_CHUNK;
const _: () = assert!(PIECE + 64 <= REQUEST_BYTES);

/// Pieces on their way to the machine: enough to keep the wire busy, 256 KiB at most.
const IN_FLIGHT: usize = 8;

/// An import that a machine has begun.
#[derive(Debug)]
pub(crate) struct Import {
    pieces: mpsc::Sender<ImportImageRequest>,
    asks: Streaming<ImportImageResponse>,
}

impl Import {
    pub(super) async fn begin(client: &mut PublicClient<Channel>, image: ImageToImport) -> Result<Self, CallError> {
        let (pieces, requests) = mpsc::channel(IN_FLIGHT);
        // The channel is empty, so this never waits; it fails only if the receiver below were gone.
        let _queued = pieces.send(ImportPart::Image(image).into()).await;
        let asks = client.import_image(ReceiverStream::new(requests)).await.map_err(CallError::of(METHOD))?;
        Ok(Self { pieces, asks: asks.into_inner() })
    }

    /// The blob that the machine wants next; none when it has the image.
    pub(crate) async fn wanted(&mut self) -> Result<Option<Blob>, CallError> {
        let ask = self.asks.message().await.map_err(CallError::of(METHOD))?;
        ask.map(Blob::try_from).transpose().map_err(CallError::answer(METHOD))
    }

    /// Sends bytes of that blob, at most [`PIECE`]. False when the machine takes no more: it says why when it is asked what it wants.
    pub(crate) async fn give(&self, piece: Vec<u8>) -> bool {
        self.pieces.send(ImportPart::Data(piece).into()).await.is_ok()
    }
}
