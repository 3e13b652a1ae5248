//! Manifest: the blobs of one image. Of all that it may say, only what has to be stored and unpacked is read.

use serde::Deserialize;

use crate::digest::{BadDigest, BlobDigest};

/// Media types of a manifest: OCI's, and Docker's of the same form.
pub const MANIFEST_TYPES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// The largest manifest that a machine takes: some 200 bytes for each of [`MOST_LAYERS`], and as much for annotations.
pub const MOST_MANIFEST_BYTES: usize = 48 << 10;

/// The most layers an image has: overlayfs takes 500, and Docker 127.
const MOST_LAYERS: usize = 127;

/// The largest blob, so that sums of them are numbers.
const MOST_BLOB_BYTES: u64 = 1 << 40;

/// Layers that containerd unpacks.
const LAYER_TYPES: [&str; 5] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];

/// A blob that a manifest refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blob {
    /// Digest of its bytes.
    pub digest: BlobDigest,
    /// Number of its bytes.
    pub size: u64,
}

/// Blobs that an image is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageManifest {
    /// Configuration: what the image runs.
    pub config: Blob,
    /// Layers, lowest first.
    pub layers: Vec<Blob>,
}

/// Why bytes are no manifest of an image that can be run.
#[derive(Debug, thiserror::Error)]
pub enum ImageManifestError {
    /// Larger than a machine takes.
    #[error("the manifest has {0} bytes, over {MOST_MANIFEST_BYTES}")]
    Large(usize),
    /// No JSON of that form.
    #[error("read the manifest")]
    Json(#[from] serde_json::Error),
    /// A digest of another form.
    #[error(transparent)]
    Digest(#[from] BadDigest),
    /// Another version.
    #[error("the manifest is of schema {0}, not 2")]
    Schema(u64),
    /// Too many layers, or none.
    #[error("the manifest has {0} layers: there are 1 to {MOST_LAYERS}")]
    Layers(usize),
    /// A size that nothing has.
    #[error("{0} is said to have {1} bytes")]
    Size(BlobDigest, u64),
    /// A layer that cannot be unpacked: of another kind, encrypted, or to be fetched elsewhere.
    #[error("the layer {0} is a `{1}`, which cannot be unpacked here")]
    LayerType(BlobDigest, String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u64,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl ImageManifest {
    /// Manifest that these bytes are, of one of [`MANIFEST_TYPES`].
    ///
    /// # Errors
    /// [`ImageManifestError`] says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageManifestError> {
        if bytes.len() > MOST_MANIFEST_BYTES {
            return Err(ImageManifestError::Large(bytes.len()));
        }
        let Document { schema_version, config, layers } = serde_json::from_slice(bytes)?;
        if schema_version != 2 {
            return Err(ImageManifestError::Schema(schema_version));
        }
        if !(1..=MOST_LAYERS).contains(&layers.len()) {
            return Err(ImageManifestError::Layers(layers.len()));
        }
        let config = config.blob()?;
        let layer = |layer: Descriptor| {
            let blob = layer.blob()?;
            let unpacks = LAYER_TYPES.contains(&layer.media_type.as_str());
            if unpacks { Ok(blob) } else { Err(ImageManifestError::LayerType(blob.digest, layer.media_type)) }
        };
        Ok(Self { config, layers: layers.into_iter().map(layer).collect::<Result<_, _>>()? })
    }

    /// All blobs, layers first, each once.
    pub fn blobs(&self) -> Vec<Blob> {
        let mut blobs: Vec<Blob> = Vec::with_capacity(self.layers.len() + 1);
        for blob in self.layers.iter().chain([&self.config]) {
            if blobs.iter().all(|known| known.digest != blob.digest) {
                blobs.push(*blob);
            }
        }
        blobs
    }
}

impl Descriptor {
    pub(crate) fn blob(&self) -> Result<Blob, ImageManifestError> {
        let (digest, size) = (self.digest.parse()?, self.size);
        if size > MOST_BLOB_BYTES { Err(ImageManifestError::Size(digest, size)) } else { Ok(Blob { digest, size }) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
        json!({ "mediaType": media_type, "digest": BlobDigest::of(bytes).to_string(), "size": bytes.len() })
    }

    fn manifest() -> Value {
        let layer = |bytes: &[u8]| descriptor(LAYER_TYPES[1], bytes);
        json!({
            "schemaVersion": 2,
            "config": descriptor("application/vnd.oci.image.config.v1+json", b"config"),
            "layers": [layer(b"one"), layer(b"two"), layer(b"one")],
            "annotations": { "any": "thing" },
        })
    }

    fn parse(value: &Value) -> Result<ImageManifest, ImageManifestError> {
        ImageManifest::parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_manifest_lists_each_blob_once_and_layers_first() {
        let parsed = parse(&manifest()).expect("a manifest");
        let digests: Vec<_> = parsed.blobs().iter().map(|blob| (blob.digest, blob.size)).collect();
        let of = |bytes: &[u8]| (BlobDigest::of(bytes), bytes.len() as u64);
        assert_eq!(digests, [of(b"one"), of(b"two"), of(b"config")]);
        assert_eq!(parsed.layers.len(), 3);
    }

    #[test]
    fn a_manifest_that_cannot_be_run_is_refused_by_name() {
        let refused = |edit: fn(&mut Value)| {
            let mut value = manifest();
            edit(&mut value);
            parse(&value).expect_err("refused").to_string()
        };
        assert_eq!(refused(|it| it["schemaVersion"] = json!(1)), "the manifest is of schema 1, not 2");
        assert_eq!(refused(|it| it["layers"] = json!([])), "the manifest has 0 layers: there are 1 to 127");
        assert!(refused(|it| it["layers"][1]["digest"] = json!("sha512:1")).contains("`sha512:1` is no digest"));
        assert!(refused(|it| it["layers"][1]["mediaType"] = json!("x+encrypted")).contains("cannot be unpacked"));
        assert!(refused(|it| it["config"]["size"] = json!(1_u64 << 41)).contains("is said to have"));
        assert_eq!(refused(|it| it["config"]["size"] = json!(-1)), "read the manifest");
        assert!(refused(|it| it["annotations"]["any"] = json!("x".repeat(48 << 10))).contains("over 49152"));
    }
}
