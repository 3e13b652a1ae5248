//! Images the machine brings along, from OCI archives in the root into containerd's store, through its API.
//!
//! Blobs go in leaves first, each under its digest, with the labels by which containerd's garbage collection finds
//! what belongs together (containerd `docs/garbage-collection.md`); then the image names its manifest. What is there
//! already is left alone, so every step may be repeated.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};

use containerd_client::Client;
use containerd_client::services::v1::{
    CreateImageRequest, GetImageRequest, Image, UpdateImageRequest, WriteAction, WriteContentRequest,
};
use containerd_client::types::Descriptor;
use serde::Deserialize;
use services::images::{IMAGES, PINNED_LABEL};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

/// Why an image could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// containerd's socket does not answer.
    #[error("connect to containerd")]
    Connect(#[source] tonic::transport::Error),
    /// An archive cannot be read.
    #[error("read `{0}`")]
    Archive(&'static str, #[source] io::Error),
    /// An archive is not an OCI layout with one image.
    #[error("`{0}` is no OCI archive with one image")]
    Layout(&'static str),
    /// containerd refuses.
    #[error("{step} of `{archive}`")]
    Refused { step: &'static str, archive: &'static str, source: Box<Status> },
}

/// OCI image index and manifest, as far as they say what refers to what (image-spec 1.1).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    media_type: String,
    digest: String,
    size: i64,
}

#[derive(Deserialize)]
struct Index {
    manifests: [Reference; 1],
}

#[derive(Deserialize)]
struct Manifest {
    config: Reference,
    layers: Vec<Reference>,
}

/// Imports all images of the root.
///
/// # Errors
/// [`Error`] names the archive; what was imported before it stays, and the same again goes on from there.
pub async fn import() -> Result<(), Error> {
    let client = Client::from_path(services::CONTAINERD_SOCKET).await.map_err(Error::Connect)?;
    for image in IMAGES {
        let blobs = read(image.archive).map_err(|error| Error::Archive(image.archive, error))?;
        import_one(&client, image.reference, image.archive, &blobs).await?;
        tracing::debug!(image = image.reference, "image is there");
    }
    Ok(())
}

async fn import_one(client: &Client, name: &str, archive: &'static str, blobs: &Blobs) -> Result<(), Error> {
    let Index { manifests: [target] } =
        serde_json::from_slice(part(blobs, "index.json", archive)?).map_err(|_| Error::Layout(archive))?;
    let refused = |step| move |status: Status| Error::Refused { step, archive, source: Box::new(status) };
    let known = client.images().get(request(GetImageRequest { name: name.to_owned() })).await;
    let known = known.ok().and_then(|answer| answer.into_inner().image);
    if known.as_ref().and_then(|image| image.target.as_ref()).is_some_and(|known| known.digest == target.digest) {
        return Ok(());
    }
    let blob = |reference: &Reference| part(blobs, &path(&reference.digest), archive);
    let manifest: Manifest = serde_json::from_slice(blob(&target)?).map_err(|_| Error::Layout(archive))?;
    let mut labels =
        HashMap::from([("containerd.io/gc.ref.content.config".to_owned(), manifest.config.digest.clone())]);
    for (index, layer) in manifest.layers.iter().enumerate() {
        write(client, layer, blob(layer)?, HashMap::new()).await.map_err(refused("store a layer"))?;
        labels.insert(format!("containerd.io/gc.ref.content.l.{index}"), layer.digest.clone());
    }
    write(client, &manifest.config, blob(&manifest.config)?, HashMap::new())
        .await
        .map_err(refused("store the config"))?;
    write(client, &target, blob(&target)?, labels).await.map_err(refused("store the manifest"))?;
    let image = Image {
        name: name.to_owned(),
        labels: HashMap::from([(PINNED_LABEL.0.to_owned(), PINNED_LABEL.1.to_owned())]),
        target: Some(Descriptor {
            media_type: target.media_type,
            digest: target.digest,
            size: target.size,
            ..Descriptor::default()
        }),
        ..Image::default()
    };
    if known.is_some() {
        let update = UpdateImageRequest { image: Some(image), ..UpdateImageRequest::default() };
        client.images().update(request(update)).await.map_err(refused("rename the image"))?;
    } else {
        let create = CreateImageRequest { image: Some(image), ..CreateImageRequest::default() };
        client.images().create(request(create)).await.map_err(refused("name the image"))?;
    }
    Ok(())
}

/// Stores one blob under its digest; containerd checks the digest.
async fn write(client: &Client, blob: &Reference, bytes: &[u8], labels: HashMap<String, String>) -> Result<(), Status> {
    // Below containerd's largest message.
    const CHUNK: usize = 1 << 20;
    let part = |action: WriteAction, offset: usize, data: &[u8]| WriteContentRequest {
        action: action.into(),
        r#ref: format!("cairn-{}", blob.digest),
        total: blob.size,
        expected: blob.digest.clone(),
        offset: i64::try_from(offset).unwrap_or(i64::MAX),
        data: data.to_vec(),
        labels: labels.clone(),
    };
    let mut parts: Vec<_> =
        bytes.chunks(CHUNK).enumerate().map(|(index, data)| part(WriteAction::Write, index * CHUNK, data)).collect();
    parts.push(part(WriteAction::Commit, bytes.len(), &[]));
    let mut answers = match client.content().write(request(tokio_stream::iter(parts))).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return there_already(status),
    };
    loop {
        match answers.message().await {
            Ok(Some(_progress)) => {}
            Ok(None) => return Ok(()),
            Err(status) => return there_already(status),
        }
    }
}

fn there_already(status: Status) -> Result<(), Status> {
    if status.code() == Code::AlreadyExists { Ok(()) } else { Err(status) }
}

/// A request in the namespace that kubelet's containers live in.
fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = MetadataValue::from_static(services::CONTAINERD_NAMESPACE);
    request.metadata_mut().insert("containerd-namespace", namespace);
    request
}

/// The files of an archive by their path in it.
type Blobs = HashMap<String, Vec<u8>>;

fn part<'a>(blobs: &'a Blobs, path: &str, archive: &'static str) -> Result<&'a Vec<u8>, Error> {
    blobs.get(path).ok_or(Error::Layout(archive))
}

fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn read(archive: &str) -> io::Result<Blobs> {
    let mut blobs = Blobs::new();
    for entry in tar::Archive::new(File::open(archive)?).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        blobs.insert(path, bytes);
    }
    Ok(blobs)
}
