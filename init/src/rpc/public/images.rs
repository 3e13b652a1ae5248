//! Container images of this machine's store, for its owner: taken blob by blob as the store asks for them, listed, removed.
//! Images are taken one at a time, so that what is thrown away after a failure is known; its task goes on until it has cleaned up,
//! also when the caller has left.

use std::time::Duration;

use api::{ImportPart, ListedImage, wire};
use import::{ImageToStore, ImportError, RemoveError, Source, Store};
use model::Chain;
use oci::{Blob, ImageManifest};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::context::Takings;
use super::streams::Answers;

/// Longest silence of a caller who was asked for bytes.
const SILENCE: Duration = Duration::from_secs(60);
/// Share of the disk that stays free, in percent: kubelet begins to end pods where less is (`imagefs.available`).
const FREE_PERCENT: u64 = 15;

/// Takes the image that the first part names; the answers ask for its blobs.
///
/// # Errors
/// When the first part is no image that can be run, no containers run here, or another image is being taken.
pub(super) async fn import(
    imports: &Takings,
    mut parts: Streaming<wire::ImportImageRequest>,
) -> Result<Answers<wire::ImportImageResponse>, Status> {
    let first = parts.message().await?.ok_or_else(|| Status::invalid_argument("the stream is empty"))?;
    let ImportPart::Image(image) = ImportPart::try_from(first)? else {
        return Err(Status::invalid_argument("the first message names the image; nothing was done"));
    };
    let read = ImageManifest::parse(&image.manifest);
    let read = read.map_err(|wrong| Status::invalid_argument(format!("{}; nothing was done", Chain(&wrong))))?;
    let wanted = ImageToStore {
        name: image.name.to_string(),
        media_type: image.media_type,
        manifest: image.manifest,
        parts: read,
    };
    let (store, room) = (store().await?, room()?);
    // The caller is asked for one blob at a time.
    let (asks, asked) = mpsc::channel(1);
    imports.begin(async move {
        let caller = Caller { parts, asks: asks.clone() };
        match store.import(&wanted, caller, room).await {
            Ok(()) => tracing::info!(image = wanted.name, "an owner's image is in the store"),
            Err(error) => {
                tracing::info!(image = wanted.name, error = %Chain(&error), "an owner's image is not taken");
                let _may_have_left = asks.send(Err(refusal(&error))).await;
            }
        }
    })?;
    Ok(Box::pin(ReceiverStream::new(asked)))
}

/// All images of the store.
///
/// # Errors
/// No containers run here.
pub(super) async fn list() -> Result<Vec<ListedImage>, Status> {
    let images = store().await?.images().await.map_err(|status| failed("list the images", &status))?;
    let listed =
        images.into_iter().map(|it| ListedImage { name: it.name, digest: it.digest, size: it.size, origin: it.origin });
    Ok(listed.collect())
}

/// Takes a name from the store.
///
/// # Errors
/// There is no such name, or the machine brings the image along.
pub(super) async fn remove(name: &str) -> Result<(), Status> {
    store().await?.remove(name).await.map_err(|error| match &error {
        RemoveError::Unknown(_) => {
            Status::not_found(format!("{error}; nothing was done; `cairnctl image list` shows their names"))
        }
        RemoveError::Carried(_) => Status::failed_precondition(format!("{error}: it stays")),
        RemoveError::Store(_) => failed("remove the image", &error),
    })?;
    tracing::info!(image = name, "an owner removed an image");
    Ok(())
}

async fn store() -> Result<Store, Status> {
    Store::open().await.map_err(|_unreached| {
        Status::failed_precondition(
            "no containers run here: the machine is no worker, or containerd has not started; nothing was done; \
             `cairnctl machine services` shows which",
        )
    })
}

/// Bytes that images may take of the disk yet.
fn room() -> Result<u64, Status> {
    let disk = rustix::fs::statvfs(services::CONTAINERD_DATA);
    let disk = disk.map_err(|error| failed("look how full the disk is", &error))?;
    let kept = disk.f_blocks / 100 * FREE_PERCENT;
    Ok(disk.f_bavail.saturating_sub(kept).saturating_mul(disk.f_frsize))
}

fn failed(what: &str, error: &dyn std::error::Error) -> Status {
    Status::internal(format!("{what}: {}", Chain(error)))
}

/// The caller as the giver of blobs.
struct Caller {
    parts: Streaming<wire::ImportImageRequest>,
    asks: mpsc::Sender<Result<wire::ImportImageResponse, Status>>,
}

/// Why a caller gives nothing more.
#[derive(Debug, thiserror::Error)]
enum CallerError {
    /// The call or its connection ended.
    #[error("the caller left before the image was whole")]
    Left,
    /// Silence for too long.
    #[error("nothing came from the caller for {} s", SILENCE.as_secs())]
    Silent,
    /// Other words than bytes of a blob.
    #[error("what came after the image's name were no bytes of it")]
    NoBytes,
}

impl Source for Caller {
    type Error = CallerError;

    async fn begin(&mut self, blob: &Blob) -> Result<(), CallerError> {
        self.asks.send(Ok((*blob).into())).await.map_err(|_| CallerError::Left)
    }

    async fn next(&mut self) -> Result<Vec<u8>, CallerError> {
        let part = timeout(SILENCE, self.parts.message()).await.map_err(|_elapsed| CallerError::Silent)?;
        match part.ok().flatten().map(ImportPart::try_from) {
            None => Err(CallerError::Left),
            Some(Ok(ImportPart::Data(data))) if !data.is_empty() => Ok(data),
            Some(_) => Err(CallerError::NoBytes),
        }
    }
}

fn refusal(error: &ImportError<CallerError>) -> Status {
    let text = format!("{}; what came was thrown away", Chain(error));
    match error {
        ImportError::Source(CallerError::NoBytes) | ImportError::Digest(_) | ImportError::Long(_) => {
            Status::invalid_argument(text)
        }
        ImportError::Source(CallerError::Left | CallerError::Silent) => Status::cancelled(text),
        ImportError::Room { .. } | ImportError::Carried(_) => Status::failed_precondition(text),
        ImportError::Store { .. } => Status::internal(text),
    }
}
