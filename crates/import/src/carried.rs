//! Images that the root carries: OCI archives of one image each, imported whenever containerd starts.

use std::fs::File;
use std::future::{Future, ready};
use std::io::{self, Read};

use oci::{Archive, ArchiveError, ArchivedImage, Blob};
use services::images::IMAGES;

use crate::error::ImportError;
use crate::store::{ImageToStore, Source, Store};

/// Why the images of the root are not in containerd.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// containerd's socket does not answer.
    #[error("connect to containerd")]
    Connect(#[from] tonic::transport::Error),
    /// An archive cannot be opened.
    #[error("open `{0}`")]
    Open(&'static str, #[source] io::Error),
    /// An archive cannot be used.
    #[error("look through `{0}`")]
    Archive(&'static str, #[source] ArchiveError),
    /// An archive has no image, or several.
    #[error("`{0}` does not hold one image")]
    Several(&'static str),
    /// containerd does not take it.
    #[error("import `{0}`")]
    Import(&'static str, #[source] ImportError<io::Error>),
}

/// Imports all images of the root.
///
/// # Errors
/// [`Error`] names the archive; what was imported before it stays, and the same again goes on from there.
pub async fn import() -> Result<(), Error> {
    let store = Store::of_root().await?;
    for image in IMAGES {
        let path = image.archive;
        let file = File::open(path).map_err(|error| Error::Open(path, error))?;
        let mut archive = Archive::open(file).map_err(|error| Error::Archive(path, error))?;
        let images = archive.images().map_err(|error| Error::Archive(path, error))?;
        let [found] = <[ArchivedImage; 1]>::try_from(images).map_err(|_| Error::Several(path))?;
        let wanted = ImageToStore {
            name: image.reference.to_owned(),
            media_type: found.media_type,
            manifest: found.manifest.clone(),
            parts: found.parts.clone(),
        };
        let source = RootArchive { archive, image: found, rest: Vec::new() };
        store.take(&wanted, source, u64::MAX).await.map_err(|error| Error::Import(path, error))?;
    }
    Ok(())
}

/// Piece that containerd is sent at a time: below its largest message.
const PIECE: usize = 1 << 20;

/// Archive of the root as a source; its blobs are small.
struct RootArchive {
    archive: Archive<File>,
    image: ArchivedImage,
    /// Rest of the blob that was begun.
    rest: Vec<u8>,
}

impl Source for RootArchive {
    type Error = io::Error;

    fn begin(&mut self, blob: &Blob) -> impl Future<Output = io::Result<()>> + Send {
        let mut bytes = Vec::new();
        let read = self.archive.blob(&self.image, &blob.digest).and_then(|mut blob| blob.read_to_end(&mut bytes));
        self.rest = bytes;
        ready(read.map(drop))
    }

    fn next(&mut self) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        let rest = self.rest.split_off(self.rest.len().min(PIECE));
        ready(Ok(std::mem::replace(&mut self.rest, rest)))
    }
}
