//! An owner who hands a machine whatever container image a case says, without the owner's tool, which checks a file first.

use std::time::Duration;

use api::wire::ListImagesRequest;
use api::{ImageToImport, ImportPart, ListedImage};
use oci::{Blob, BlobDigest};
use qemu::{Deadline, Vm};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::client::{Client, Shown};
use crate::owner::Owner;

/// A machine under emulation stores some bytes, and asks containerd a few times.
const ANSWER: Duration = Duration::from_secs(60);

/// An owner's connection to one machine, for its store.
#[derive(Debug)]
pub struct Importer(Client);

impl Importer {
    /// Connects to a machine.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn dial(vm: &Vm, owner: &Owner, deadline: Deadline) -> anyhow::Result<Self> {
        Client::dial_until(vm, Shown::Owner(&owner.key()?), deadline).map(Self)
    }

    /// Offers an image, and answers each wish by the bytes that `give` has for it; none: the caller leaves. The digests asked for.
    ///
    /// # Errors
    /// No answer in time; inside: what the machine says.
    pub fn import(
        &self,
        image: ImageToImport,
        give: impl Fn(&Blob) -> Option<Vec<u8>>,
    ) -> anyhow::Result<Result<Vec<BlobDigest>, Status>> {
        self.0.within(ANSWER, async |client| {
            let (pieces, requests) = mpsc::channel(1);
            let _queued = pieces.send(ImportPart::Image(image).into()).await;
            let mut asks = client.import_image(ReceiverStream::new(requests)).await?.into_inner();
            let mut asked = Vec::new();
            while let Some(ask) = asks.message().await? {
                let blob = Blob::try_from(ask).map_err(|wrong| Status::internal(wrong.to_string()))?;
                asked.push(blob.digest);
                let Some(bytes) = give(&blob) else { return Ok(asked) };
                for piece in bytes.chunks(32 << 10) {
                    let _told_by_the_answer = pieces.send(ImportPart::Data(piece.to_vec()).into()).await;
                }
            }
            Ok(asked)
        })
    }

    /// The images of the machine's store.
    ///
    /// # Errors
    /// No answer that makes sense.
    pub fn images(&self) -> anyhow::Result<Vec<ListedImage>> {
        let listed = self.0.within(ANSWER, async |client| {
            let mut pieces = client.list_images(ListImagesRequest {}).await?.into_inner();
            let mut images = Vec::new();
            while let Some(image) = pieces.message().await? {
                images.push(image);
            }
            Ok::<_, Status>(images)
        })??;
        Ok(listed.into_iter().map(ListedImage::try_from).collect::<Result<_, _>>()?)
    }
}
