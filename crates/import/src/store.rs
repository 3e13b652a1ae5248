//! containerd's store of images: blobs by digest, names, and the lease that holds blobs which no name holds yet.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;

use containerd_client::Client;
use containerd_client::services::v1::{
    CreateImageRequest, CreateRequest, DeleteImageRequest, DeleteRequest, GetImageRequest, Image, InfoRequest,
    ListImagesRequest, ReadContentRequest, UpdateImageRequest, WriteAction, WriteContentRequest,
};
use containerd_client::types::Descriptor;
use oci::{Blob, BlobDigest, ImageManifest, ImageOrigin};
use services::images::{IMAGES, PINNED_LABEL};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use crate::error::ImportError;

/// The store of the containerd that runs here.
pub struct Store {
    client: Client,
    /// Lease of an import, which holds its blobs until the image's name does.
    lease: &'static str,
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// An image that is to be in the store.
#[derive(Debug, Clone)]
pub struct ImageToStore {
    /// Name that containers are started by.
    pub name: String,
    /// Media type of the manifest.
    pub media_type: &'static str,
    /// Bytes of the manifest.
    pub manifest: Vec<u8>,
    /// The same, read.
    pub parts: ImageManifest,
}

/// Giver of blobs that the store lacks, one after the other.
pub trait Source: Send {
    /// Why it does not give any more.
    type Error: std::error::Error;

    /// Says which blob is wanted now.
    fn begin(&mut self, blob: &Blob) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The next bytes of that blob, at most 1 MiB. Called until the blob is whole, and not after that.
    fn next(&mut self) -> impl Future<Output = Result<Vec<u8>, Self::Error>> + Send;
}

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    /// Name by which containers are started.
    pub name: String,
    /// Digest of what the name stands for, as containerd writes it.
    pub digest: String,
    /// Bytes of its blobs; absent where the store has no manifest that can be read.
    pub size: Option<u64>,
    /// Where it came from.
    pub origin: ImageOrigin,
}

/// Why an image stays.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// No image has the name.
    #[error("no image is called `{0}`")]
    Unknown(String),
    /// The root carries it.
    #[error("`{0}` is an image that the machine brings along")]
    Carried(String),
    /// containerd refuses.
    #[error("remove the image")]
    Store(#[source] Box<Status>),
}

impl Store {
    /// The store behind containerd's socket, for an owner.
    ///
    /// # Errors
    /// The socket does not answer.
    pub async fn open() -> Result<Self, tonic::transport::Error> {
        Self::leasing("cairn-import").await
    }

    /// The same for the images of the root, whose import may run beside an owner's.
    pub(crate) async fn of_root() -> Result<Self, tonic::transport::Error> {
        Self::leasing("cairn-carried").await
    }

    async fn leasing(lease: &'static str) -> Result<Self, tonic::transport::Error> {
        Ok(Self { client: Client::from_path(services::CONTAINERD_SOCKET).await?, lease })
    }

    /// Takes an image that an owner gives, within `room` bytes. One that carries a name of the root's is refused.
    ///
    /// # Errors
    /// [`ImportError`]: no name stands for the image that did not before, and its blobs are gone.
    pub async fn import<S: Source>(
        &self,
        image: &ImageToStore,
        source: S,
        room: u64,
    ) -> Result<(), ImportError<S::Error>> {
        if is_carried(&image.name) {
            return Err(ImportError::Carried(image.name.clone()));
        }
        self.take(image, source, room).await
    }

    pub(crate) async fn take<S: Source>(
        &self,
        image: &ImageToStore,
        source: S,
        room: u64,
    ) -> Result<(), ImportError<S::Error>> {
        let target = Blob { digest: BlobDigest::of(&image.manifest), size: image.manifest.len() as u64 };
        let known = match self.client.images().get(request(GetImageRequest { name: image.name.clone() })).await {
            Ok(known) => known.into_inner().image,
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => return Err(ImportError::step("look for the image's name")(status)),
        };
        let stands_for = known.as_ref().and_then(|image| image.target.as_ref());
        let is_pinned = known.as_ref().is_some_and(|image| image.labels.contains_key(PINNED_LABEL.0));
        if is_pinned && stands_for.is_some_and(|known| known.digest == target.digest.to_string()) {
            return Ok(());
        }
        self.begin_lease().await.map_err(ImportError::step("begin to store blobs"))?;
        let stored = self.store(image, target, source, room).await;
        // Whatever no name holds now goes with it.
        self.end_lease().await.map_err(ImportError::step("let go of what was stored"))?;
        stored
    }

    async fn store<S: Source>(
        &self,
        image: &ImageToStore,
        target: Blob,
        mut source: S,
        room: u64,
    ) -> Result<(), ImportError<S::Error>> {
        let mut missing = Vec::new();
        for blob in image.parts.blobs() {
            if !self.has(&blob.digest).await.map_err(ImportError::step("look for a blob"))? {
                missing.push(blob);
            }
        }
        let needed = missing.iter().map(|blob| blob.size).sum::<u64>().saturating_mul(2);
        if needed > room {
            return Err(ImportError::Room { needed, free: room });
        }
        for blob in &missing {
            source.begin(blob).await.map_err(ImportError::Source)?;
            self.write(blob, HashMap::new(), Pieces::Of(&mut source)).await?;
        }
        let config = ("containerd.io/gc.ref.content.config".to_owned(), image.parts.config.digest.to_string());
        let layer = |(index, blob): (usize, &Blob)| {
            (format!("containerd.io/gc.ref.content.l.{index}"), blob.digest.to_string())
        };
        let labels = image.parts.layers.iter().enumerate().map(layer).chain([config]).collect();
        self.write(&target, labels, Pieces::<S>::Whole(image.manifest.clone())).await?;
        self.name(image, target).await.map_err(ImportError::step("name the image"))
    }

    async fn name(&self, image: &ImageToStore, target: Blob) -> Result<(), Status> {
        let named = Image {
            name: image.name.clone(),
            labels: HashMap::from([(PINNED_LABEL.0.to_owned(), PINNED_LABEL.1.to_owned())]),
            target: Some(Descriptor {
                media_type: image.media_type.to_owned(),
                digest: target.digest.to_string(),
                size: i64::try_from(target.size).unwrap_or(i64::MAX),
                ..Descriptor::default()
            }),
            ..Image::default()
        };
        let create = CreateImageRequest { image: Some(named.clone()), ..CreateImageRequest::default() };
        match self.client.images().create(request(create)).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::AlreadyExists => {
                let update = UpdateImageRequest { image: Some(named), ..UpdateImageRequest::default() };
                self.client.images().update(request(update)).await.map(drop)
            }
            Err(status) => Err(status),
        }
    }

    /// All images by the names that people gave them, in the order of those.
    ///
    /// # Errors
    /// containerd does not list them.
    pub async fn images(&self) -> Result<Vec<StoredImage>, Box<Status>> {
        let images = self.all().await?;
        let pairs = pairs(&images);
        let mut listed = Vec::new();
        for (image, &(name, digest)) in images.iter().zip(&pairs).filter(|(_, pair)| is_shown(pair, &pairs)) {
            let origin = match () {
                () if is_carried(name) => ImageOrigin::Carried,
                () if image.labels.contains_key(PINNED_LABEL.0) => ImageOrigin::Imported,
                () => ImageOrigin::Pulled,
            };
            let size = self.size(digest).await;
            listed.push(StoredImage { name: name.to_owned(), digest: digest.to_owned(), size, origin });
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Takes a name from the store, and with the last one what it stood for. A container that runs goes on.
    ///
    /// # Errors
    /// [`RemoveError`]: all is as it was.
    pub async fn remove(&self, name: &str) -> Result<(), RemoveError> {
        if is_carried(name) {
            return Err(RemoveError::Carried(name.to_owned()));
        }
        let images = self.all().await.map_err(RemoveError::Store)?;
        let names = names_with(name, &pairs(&images)).ok_or_else(|| RemoveError::Unknown(name.to_owned()))?;
        for name in names {
            let delete = DeleteImageRequest { name, sync: true, ..DeleteImageRequest::default() };
            match self.client.images().delete(request(delete)).await {
                Ok(_) => {}
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(RemoveError::Store(Box::new(status))),
            }
        }
        Ok(())
    }

    async fn all(&self) -> Result<Vec<Image>, Box<Status>> {
        let listed = self.client.images().list(request(ListImagesRequest::default())).await.map_err(Box::new)?;
        Ok(listed.into_inner().images)
    }

    async fn has(&self, digest: &BlobDigest) -> Result<bool, Status> {
        match self.client.content().info(request(InfoRequest { digest: digest.to_string() })).await {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Bytes of an image's blobs, by its manifest.
    async fn size(&self, digest: &str) -> Option<u64> {
        let read = ReadContentRequest { digest: digest.to_owned(), ..ReadContentRequest::default() };
        let mut pieces = self.client.content().read(request(read)).await.ok()?.into_inner();
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.message().await.ok()? {
            bytes.extend(piece.data);
            if bytes.len() > oci::MOST_MANIFEST_BYTES {
                return None;
            }
        }
        Some(ImageManifest::parse(&bytes).ok()?.blobs().iter().map(|blob| blob.size).sum())
    }

    /// Stores one blob under its digest, which containerd checks.
    async fn write<S: Source>(
        &self,
        blob: &Blob,
        labels: HashMap<String, String>,
        mut source: Pieces<'_, S>,
    ) -> Result<(), ImportError<S::Error>> {
        // One piece is written while the next is fetched.
        let (pieces, sent) = mpsc::channel(1);
        let part = |action: WriteAction, offset: u64, data: Vec<u8>| WriteContentRequest {
            action: action.into(),
            r#ref: format!("cairn-{}", blob.digest),
            total: i64::try_from(blob.size).unwrap_or(i64::MAX),
            expected: blob.digest.to_string(),
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            data,
            labels: labels.clone(),
        };
        let call = async {
            let mut leased = request(ReceiverStream::new(sent));
            leased.metadata_mut().insert("containerd-lease", MetadataValue::from_static(self.lease));
            let mut answers = match self.client.content().write(leased).await {
                Ok(answers) => answers.into_inner(),
                Err(status) => return Err(status),
            };
            while answers.message().await?.is_some() {}
            Ok(())
        };
        let feed = async {
            let mut offset = 0;
            while offset < blob.size {
                let data = source.next().await.map_err(ImportError::Source)?;
                let end = offset + data.len() as u64;
                if end > blob.size {
                    return Err(ImportError::Long(blob.digest));
                }
                // Whoever reads has failed, and says why.
                if pieces.send(part(WriteAction::Write, offset, data)).await.is_err() {
                    return Ok(());
                }
                offset = end;
            }
            let _says_why_itself = pieces.send(part(WriteAction::Commit, offset, Vec::new())).await;
            drop(pieces);
            Ok(())
        };
        let (written, fed) = tokio::join!(call, feed);
        fed?;
        match written {
            Ok(()) => Ok(()),
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            Err(status) if status.code() == Code::FailedPrecondition => Err(ImportError::Digest(blob.digest)),
            Err(status) => Err(ImportError::step("store a blob")(status)),
        }
    }

    async fn begin_lease(&self) -> Result<(), Status> {
        self.end_lease().await?;
        let create = CreateRequest { id: self.lease.to_owned(), ..CreateRequest::default() };
        self.client.leases().create(request(create)).await.map(drop)
    }

    /// Ends a lease, of this import or of one that was cut; what nothing else holds is gone when this returns.
    async fn end_lease(&self) -> Result<(), Status> {
        let delete = DeleteRequest { id: self.lease.to_owned(), sync: true };
        match self.client.leases().delete(request(delete)).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(status),
        }
    }
}

/// Pieces of one blob.
enum Pieces<'a, S> {
    Of(&'a mut S),
    Whole(Vec<u8>),
}

impl<S: Source> Pieces<'_, S> {
    async fn next(&mut self) -> Result<Vec<u8>, S::Error> {
        match self {
            Self::Of(source) => source.next().await,
            Self::Whole(bytes) => Ok(std::mem::take(bytes)),
        }
    }
}

/// A request in the namespace that kubelet's containers live in.
fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = MetadataValue::from_static(services::CONTAINERD_NAMESPACE);
    request.metadata_mut().insert("containerd-namespace", namespace);
    request
}

/// Names with the digests of what they stand for.
fn pairs(images: &[Image]) -> Vec<(&str, &str)> {
    images
        .iter()
        .map(|image| (image.name.as_str(), image.target.as_ref().map_or("", |target| &target.digest)))
        .collect()
}

fn is_carried(name: &str) -> bool {
    IMAGES.iter().any(|image| image.reference == name)
}

/// A name that somebody chose; the others are of the CRI plugin, which adds them to what was pulled or imported.
fn is_chosen(name: &str) -> bool {
    !name.starts_with("sha256:") && !name.contains('@')
}

/// Whether a name is to be shown: it was chosen, or a pod called so what nobody gave a name.
fn is_shown((name, target): &(&str, &str), images: &[(&str, &str)]) -> bool {
    let is_named = || images.iter().any(|(other, same)| is_chosen(other) && same == target);
    is_chosen(name) || (name.contains('@') && !is_named())
}

/// Names that go with one: where it is the last that was chosen, all that stand for the same. None where it is not there.
fn names_with(name: &str, images: &[(&str, &str)]) -> Option<Vec<String>> {
    let (_, target) = images.iter().find(|(known, _)| *known == name)?;
    let others: Vec<&str> =
        images.iter().filter(|(other, same)| same == target && *other != name).map(|(other, _)| *other).collect();
    let stays = others.iter().any(|other| is_chosen(other));
    let go = others.into_iter().filter(|_| !stays);
    Some([name].into_iter().chain(go).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: [(&str, &str); 7] = [
        ("docker.io/library/web:1", "sha256:a"),
        ("docker.io/library/web@sha256:a", "sha256:a"),
        ("docker.io/library/web:2", "sha256:a"),
        ("sha256:c", "sha256:a"),
        ("quay.io/x/y@sha256:b", "sha256:b"),
        ("sha256:d", "sha256:b"),
        ("cairn.local/pause:1", "sha256:e"),
    ];

    /// Proves: W5
    #[test]
    fn an_image_goes_with_the_last_name_that_was_chosen() {
        let gone = |name, images: &[_]| names_with(name, images);
        assert_eq!(gone("docker.io/library/web:1", &STORE), Some(vec!["docker.io/library/web:1".to_owned()]));
        let last = gone("docker.io/library/web:1", &[&STORE[..2], &STORE[3..]].concat()).expect("there");
        assert_eq!(last, ["docker.io/library/web:1", "docker.io/library/web@sha256:a", "sha256:c"]);
        assert_eq!(gone("quay.io/x/y@sha256:b", &STORE).expect("there"), ["quay.io/x/y@sha256:b", "sha256:d"]);
        assert_eq!(gone("docker.io/library/web:3", &STORE), None);
    }

    #[test]
    fn only_names_that_somebody_gave_are_shown() {
        let names: Vec<_> = STORE.iter().filter(|pair| is_shown(pair, &STORE)).map(|(name, _)| *name).collect();
        let chosen =
            ["docker.io/library/web:1", "docker.io/library/web:2", "quay.io/x/y@sha256:b", "cairn.local/pause:1"];
        assert_eq!(names, chosen);
    }
}
