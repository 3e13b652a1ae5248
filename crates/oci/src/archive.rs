//! Archives of images, as `docker save`, `podman save`, `skopeo copy` and builders write them: a tar of an OCI layout
//! (`index.json`, `blobs/sha256/…`), or of Docker's older form (`manifest.json` and files of any name).
//!
//! Layers stay where they are in the file: what is kept of it is where each begins and ends. Of an index of several platforms the
//! one of these machines is taken.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::digest::BlobDigest;
use crate::manifest::{Blob, Descriptor, ImageManifest, ImageManifestError, MANIFEST_TYPES};
use crate::name::{BadImageName, ImageName};

/// Where a file's bytes are in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    offset: u64,
    size: u64,
}

/// An image of an archive.
#[derive(Debug, Clone)]
pub struct ArchivedImage {
    /// Names that the archive gives it; there may be none.
    pub names: Vec<ImageName>,
    /// Media type, one of [`MANIFEST_TYPES`].
    pub media_type: &'static str,
    /// Bytes of the manifest.
    pub manifest: Vec<u8>,
    /// The same, read.
    pub parts: ImageManifest,
    blobs: BTreeMap<BlobDigest, Span>,
}

/// An archive that was looked through.
#[derive(Debug)]
pub struct Archive<R> {
    reader: R,
    length: u64,
    files: BTreeMap<String, Span>,
}

/// Why a file is no archive of images that can be run.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read.
    #[error("read the archive")]
    Read(#[from] io::Error),
    /// The file is compressed as a whole.
    #[error("the archive is compressed with {0}: unpack it first, with {0} -d")]
    Compressed(&'static str),
    /// More files than any image has.
    #[error("the archive has more than {MOST_FILES} files")]
    Files,
    /// No archive of images, of either form.
    #[error("it is no archive of images: neither `index.json` nor `manifest.json` is in it")]
    NoImages,
    /// A file that the others refer to.
    #[error("the archive has no `{0}`")]
    Missing(String),
    /// The file ends within one of the archive's.
    #[error("the archive is cut off: {lacks} bytes of `{path}` are missing")]
    CutOff { path: String, lacks: u64 },
    /// A document larger than any.
    #[error("`{path}` has {size} bytes, over {MOST_DOCUMENT_BYTES}")]
    Large { path: String, size: u64 },
    /// A document of another form.
    #[error("read `{path}`")]
    Json { path: String, source: serde_json::Error },
    /// A blob that is not what it is called.
    #[error("`{path}` is not what its name says: its bytes have the digest {is}")]
    Digest { path: String, is: BlobDigest },
    /// A blob whose size is not what the manifest says.
    #[error("`{path}` has {is} bytes, and its manifest says {said}")]
    Size { path: String, is: u64, said: u64 },
    /// A manifest that cannot be run.
    #[error(transparent)]
    Manifest(#[from] ImageManifestError),
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] BadImageName),
    /// Indices that name indices that name indices.
    #[error("its indices are more than {MOST_INDICES} deep")]
    Nested,
    /// Images of other platforms only.
    #[error("the image is for {0}; machines here run linux/amd64")]
    Platform(String),
}

/// No image has so many: a layer is one file, however many are in it.
const MOST_FILES: usize = 65_536;
/// The largest index or configuration.
const MOST_DOCUMENT_BYTES: u64 = 4 << 20;
/// Indices within indices: an archive's, and that of an image of several platforms.
const MOST_INDICES: usize = 3;

const OCI_INDEX: &str = "index.json";
const DOCKER_INDEX: &str = "manifest.json";
const OCI_INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

#[derive(Deserialize)]
struct Index {
    manifests: Vec<IndexRow>,
}

#[derive(Deserialize)]
struct IndexRow {
    #[serde(flatten)]
    target: Descriptor,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerRow {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Platform {
    fn is_ours(&self) -> bool {
        self.os == "linux" && self.architecture == "amd64"
    }

    fn name(&self) -> String {
        format!("{}/{}", self.os, self.architecture)
    }
}

impl<R: Read + Seek> Archive<R> {
    /// Looks an archive through: where each of its files is. Layers are not read.
    ///
    /// # Errors
    /// [`ArchiveError`] where it is no tar, or compressed as a whole.
    pub fn open(mut reader: R) -> Result<Self, ArchiveError> {
        let length = reader.seek(SeekFrom::End(0))?;
        reader.seek(SeekFrom::Start(0))?;
        let mut magic = Vec::new();
        (&mut reader).take(4).read_to_end(&mut magic)?;
        match magic[..] {
            [0x1f, 0x8b, ..] => return Err(ArchiveError::Compressed("gzip")),
            [0x28, 0xb5, 0x2f, 0xfd] => return Err(ArchiveError::Compressed("zstd")),
            [0xfd, 0x37, 0x7a, 0x58] => return Err(ArchiveError::Compressed("xz")),
            _ => {}
        }
        reader.seek(SeekFrom::Start(0))?;
        let mut tar = tar::Archive::new(reader);
        let mut files = BTreeMap::new();
        for entry in tar.entries_with_seek()? {
            let entry = entry?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            files.insert(path, Span { offset: entry.raw_file_position(), size: entry.size() });
            if files.len() > MOST_FILES {
                return Err(ArchiveError::Files);
            }
        }
        Ok(Self { reader: tar.into_inner(), length, files })
    }

    /// The images of the archive that these machines can run; all that each is made of is in it.
    ///
    /// # Errors
    /// [`ArchiveError`] names the file that is wrong.
    pub fn images(&mut self) -> Result<Vec<ArchivedImage>, ArchiveError> {
        if self.files.contains_key(OCI_INDEX) {
            let index = self.document(OCI_INDEX)?;
            return self.of_index(OCI_INDEX, &index, 1);
        }
        if !self.files.contains_key(DOCKER_INDEX) {
            return Err(ArchiveError::NoImages);
        }
        let rows: Vec<DockerRow> = from_json(DOCKER_INDEX, &self.document(DOCKER_INDEX)?)?;
        rows.into_iter().map(|row| self.of_docker(row)).collect()
    }

    /// Checks all blobs of an image by their digests.
    ///
    /// # Errors
    /// [`ArchiveError`] names one that is not what it is called.
    pub fn verify(&mut self, image: &ArchivedImage) -> Result<(), ArchiveError> {
        for (digest, span) in &image.blobs {
            let is = BlobDigest::of_reader(self.at(*span)?)?;
            if is != *digest {
                return Err(ArchiveError::Digest { path: blob_path(digest), is });
            }
        }
        Ok(())
    }

    /// Bytes of a blob of an image of this archive.
    ///
    /// # Errors
    /// The file cannot be sought in.
    ///
    /// # Panics
    /// Where the blob is of another archive's image.
    pub fn blob(&mut self, image: &ArchivedImage, digest: &BlobDigest) -> io::Result<impl Read + use<'_, R>> {
        let span = *image.blobs.get(digest).expect("an image's blobs were looked up when it was read");
        self.at(span)
    }

    fn at(&mut self, span: Span) -> io::Result<impl Read + use<'_, R>> {
        self.reader.seek(SeekFrom::Start(span.offset))?;
        Ok((&mut self.reader).take(span.size))
    }

    /// Where a file is; all of it is there.
    fn span(&self, path: &str) -> Result<Span, ArchiveError> {
        let span = *self.files.get(path).ok_or_else(|| ArchiveError::Missing(path.to_owned()))?;
        let lacks = span.offset.saturating_add(span.size).saturating_sub(self.length);
        if lacks > 0 { Err(ArchiveError::CutOff { path: path.to_owned(), lacks }) } else { Ok(span) }
    }

    fn document(&mut self, path: &str) -> Result<Vec<u8>, ArchiveError> {
        let span = self.span(path)?;
        if span.size > MOST_DOCUMENT_BYTES {
            return Err(ArchiveError::Large { path: path.to_owned(), size: span.size });
        }
        let mut bytes = Vec::new();
        self.at(span)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A document that is called by its digest.
    fn addressed(&mut self, blob: Blob) -> Result<Vec<u8>, ArchiveError> {
        let path = blob_path(&blob.digest);
        let bytes = self.document(&path)?;
        match BlobDigest::of(&bytes) {
            is if is == blob.digest => Ok(bytes),
            is => Err(ArchiveError::Digest { path, is }),
        }
    }

    fn of_index(&mut self, path: &str, index: &[u8], depth: usize) -> Result<Vec<ArchivedImage>, ArchiveError> {
        let Index { manifests } = from_json(path, index)?;
        let (mut images, mut others) = (Vec::new(), Vec::new());
        for row in manifests {
            let ours = row.platform.as_ref().is_none_or(Platform::is_ours);
            if !ours {
                others.extend(row.platform.as_ref().map(Platform::name));
                continue;
            }
            let target = row.target.blob()?;
            let bytes = self.addressed(target)?;
            let mut found = if OCI_INDEX_TYPES.contains(&row.target.media_type.as_str()) {
                if depth == MOST_INDICES {
                    return Err(ArchiveError::Nested);
                }
                self.of_index(&blob_path(&target.digest), &bytes, depth + 1)?
            } else if let Some(known) = MANIFEST_TYPES.into_iter().find(|known| *known == row.target.media_type) {
                vec![self.of_manifest(bytes, known)?]
            } else {
                // What builders lay beside an image: signatures, where it came from.
                continue;
            };
            if let Some(name) = name_of(&row.annotations)? {
                found.iter_mut().for_each(|image| image.names.push(name.clone()));
            }
            images.extend(found);
        }
        match others.into_iter().next() {
            Some(platform) if images.is_empty() => Err(ArchiveError::Platform(platform)),
            _ => Ok(images),
        }
    }

    fn of_manifest(&mut self, manifest: Vec<u8>, media_type: &'static str) -> Result<ArchivedImage, ArchiveError> {
        let parts = ImageManifest::parse(&manifest)?;
        let config = blob_path(&parts.config.digest);
        is_for_us(&config, &self.addressed(parts.config)?)?;
        let mut blobs = BTreeMap::new();
        for blob in parts.blobs() {
            let path = blob_path(&blob.digest);
            let span = self.span(&path)?;
            if span.size != blob.size {
                return Err(ArchiveError::Size { path, is: span.size, said: blob.size });
            }
            blobs.insert(blob.digest, span);
        }
        Ok(ArchivedImage { names: Vec::new(), media_type, manifest, parts, blobs })
    }

    /// Docker's older form has no manifest: one is made of what its files are.
    fn of_docker(&mut self, row: DockerRow) -> Result<ArchivedImage, ArchiveError> {
        let config = self.document(&row.config)?;
        is_for_us(&row.config, &config)?;
        let mut blobs = BTreeMap::from([(BlobDigest::of(&config), self.span(&row.config)?)]);
        let mut layers = Vec::with_capacity(row.layers.len());
        for path in &row.layers {
            let span = self.span(path)?;
            let mut magic = Vec::new();
            self.at(Span { size: span.size.min(2), ..span })?.read_to_end(&mut magic)?;
            let packed = if magic == [0x1f, 0x8b] { "+gzip" } else { "" };
            let digest = BlobDigest::of_reader(self.at(span)?)?;
            blobs.insert(digest, span);
            layers.push(descriptor(&format!("application/vnd.oci.image.layer.v1.tar{packed}"), digest, span.size));
        }
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPES[0],
            "config": descriptor("application/vnd.oci.image.config.v1+json", BlobDigest::of(&config), config.len() as u64),
            "layers": layers,
        })
        .to_string()
        .into_bytes();
        let names = row.repo_tags.unwrap_or_default();
        let names = names.iter().map(|name| ImageName::parse(name)).collect::<Result<_, _>>()?;
        let parts = ImageManifest::parse(&manifest)?;
        Ok(ArchivedImage { names, media_type: MANIFEST_TYPES[0], manifest, parts, blobs })
    }
}

fn blob_path(digest: &BlobDigest) -> String {
    format!("blobs/{}", digest.to_string().replacen(':', "/", 1))
}

fn descriptor(media_type: &str, digest: BlobDigest, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": digest.to_string(), "size": size })
}

fn from_json<'a, T: Deserialize<'a>>(path: &str, bytes: &'a [u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|source| ArchiveError::Json { path: path.to_owned(), source })
}

/// Whether a configuration is of this platform.
fn is_for_us(path: &str, config: &[u8]) -> Result<(), ArchiveError> {
    let platform: Platform = from_json(path, config)?;
    if platform.is_ours() { Ok(()) } else { Err(ArchiveError::Platform(platform.name())) }
}

/// The name that an index gives a row: containerd's and Docker's annotation has it whole, the specification's whole or its tag alone,
/// which names nothing.
fn name_of(annotations: &BTreeMap<String, String>) -> Result<Option<ImageName>, BadImageName> {
    let whole = annotations.get("io.containerd.image.name");
    let other = annotations.get("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':']));
    whole.or(other).map(|name| ImageName::parse(name)).transpose()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, &bytes[..]).expect("in memory");
        }
        tar.into_inner().expect("in memory")
    }

    fn config(architecture: &str) -> Vec<u8> {
        json!({ "os": "linux", "architecture": architecture }).to_string().into_bytes()
    }

    fn row(media_type: &str, bytes: &[u8]) -> Value {
        descriptor(media_type, BlobDigest::of(bytes), bytes.len() as u64)
    }

    fn blob(bytes: &[u8]) -> (String, Vec<u8>) {
        (blob_path(&BlobDigest::of(bytes)), bytes.to_vec())
    }

    const LAYER: &[u8] = b"a layer of some bytes";

    fn manifest(config: &[u8]) -> Vec<u8> {
        let layer = row("application/vnd.oci.image.layer.v1.tar", LAYER);
        let config = row("application/vnd.oci.image.config.v1+json", config);
        json!({ "schemaVersion": 2, "config": config, "layers": [layer] }).to_string().into_bytes()
    }

    /// Files of a layout with one image of this name.
    fn layout(architecture: &str, annotations: &Value) -> Vec<(String, Vec<u8>)> {
        let (config, mut files) = (config(architecture), vec![]);
        let manifest = manifest(&config);
        let mut target = row(MANIFEST_TYPES[0], &manifest);
        target["annotations"] = annotations.clone();
        let index = json!({ "schemaVersion": 2, "manifests": [target] }).to_string().into_bytes();
        files.extend([blob(LAYER), blob(&config), blob(&manifest), (OCI_INDEX.to_owned(), index)]);
        files
    }

    fn images(files: &[(String, Vec<u8>)]) -> Result<Vec<ArchivedImage>, ArchiveError> {
        Archive::open(Cursor::new(tar(files)))?.images()
    }

    fn refused(files: &[(String, Vec<u8>)]) -> String {
        images(files).expect_err("refused").to_string()
    }

    /// Proves: W5
    #[test]
    fn a_layout_of_several_platforms_has_the_image_for_these() {
        let (ours, other) = (manifest(&config("amd64")), manifest(&config("arm64")));
        let platform = |manifest: &[u8], architecture: &str| {
            let mut row = row(MANIFEST_TYPES[1], manifest);
            row["platform"] = json!({ "os": "linux", "architecture": architecture });
            row
        };
        let inner =
            json!({ "manifests": [platform(&other, "arm64"), platform(&ours, "amd64")] }).to_string().into_bytes();
        let mut whole = row(OCI_INDEX_TYPES[0], &inner);
        whole["annotations"] =
            json!({ "io.containerd.image.name": "docker.io/library/web:1", "org.opencontainers.image.ref.name": "1" });
        let index = json!({ "manifests": [whole] }).to_string().into_bytes();
        let mut files = vec![blob(LAYER), blob(&config("amd64")), blob(&ours), blob(&inner)];
        files.push((OCI_INDEX.to_owned(), index));
        let mut archive = Archive::open(Cursor::new(tar(&files))).expect("an archive");
        let [image] = archive.images().expect("images").try_into().expect("one");
        assert_eq!(image.names, [ImageName::parse("web:1").expect("a name")]);
        assert_eq!((image.manifest.clone(), image.media_type), (ours, MANIFEST_TYPES[1]));
        let mut layer = Vec::new();
        archive.blob(&image, &BlobDigest::of(LAYER)).expect("there").read_to_end(&mut layer).expect("in memory");
        assert_eq!(layer, LAYER);
        let alone = json!({ "manifests": [platform(&other, "arm64")] }).to_string().into_bytes();
        assert_eq!(
            refused(&[(OCI_INDEX.to_owned(), alone)]),
            "the image is for linux/arm64; machines here run linux/amd64"
        );
    }

    #[test]
    fn a_tag_alone_names_nothing() {
        let names = |annotations| images(&layout("amd64", &annotations)).expect("images").remove(0).names;
        assert_eq!(names(json!({ "org.opencontainers.image.ref.name": "1.2" })), []);
        let named = names(json!({ "org.opencontainers.image.ref.name": "quay.io/a/b:1.2" }));
        assert_eq!(named, [ImageName::parse("quay.io/a/b:1.2").expect("a name")]);
    }

    /// Proves: W5
    #[test]
    fn dockers_older_form_gets_a_manifest_of_what_its_files_are() {
        let config = config("amd64");
        let rows =
            json!([{ "Config": "c.json", "RepoTags": ["web:1", "web:2"], "Layers": ["l/layer.tar", "m/layer.tar"] }]);
        let packed = [&[0x1f, 0x8b][..], b"packed"].concat();
        let files = [
            ("c.json", config.clone()),
            ("l/layer.tar", LAYER.to_vec()),
            ("m/layer.tar", packed.clone()),
            (DOCKER_INDEX, rows.to_string().into_bytes()),
        ]
        .map(|(path, bytes)| (path.to_owned(), bytes));
        let [image] = images(&files).expect("images").try_into().expect("one");
        assert_eq!(image.names.len(), 2);
        let digests: Vec<_> = image.parts.blobs().iter().map(|blob| blob.digest).collect();
        assert_eq!(digests, [BlobDigest::of(LAYER), BlobDigest::of(&packed), BlobDigest::of(&config)]);
        let text = String::from_utf8(image.manifest).expect("text");
        assert_eq!(text.matches("layer.v1.tar+gzip").count(), 1, "{text}");
        assert_eq!(refused(&files[1..]), "the archive has no `c.json`");
    }

    #[test]
    fn what_is_no_archive_of_images_is_told_by_name() {
        let open = |bytes: &[u8]| {
            Archive::open(Cursor::new(bytes)).and_then(|mut archive| archive.images()).expect_err("refused").to_string()
        };
        assert_eq!(open(&[0x1f, 0x8b, 8, 0]), "the archive is compressed with gzip: unpack it first, with gzip -d");
        assert_eq!(open(b""), ArchiveError::NoImages.to_string());
        assert_eq!(open(&[b'x'; 2000]), "read the archive");
        let named = |path: &str, bytes: &[u8]| {
            let mut files = layout("amd64", &json!({}));
            files.retain(|(known, _)| known != path);
            files.push((path.to_owned(), bytes.to_vec()));
            refused(&files)
        };
        let path = blob_path(&BlobDigest::of(LAYER));
        assert_eq!(named(&path, b"shorter"), format!("`{path}` has 7 bytes, and its manifest says 21"));
        let lied = blob_path(&BlobDigest::of(&config("amd64")));
        let is = BlobDigest::of(&config("arm64"));
        assert_eq!(
            named(&lied, &config("arm64")),
            format!("`{lied}` is not what its name says: its bytes have the digest {is}")
        );
        assert_eq!(named(OCI_INDEX, b"[]"), "read `index.json`");
        assert_eq!(
            refused(&layout("arm64", &json!({}))),
            "the image is for linux/arm64; machines here run linux/amd64"
        );
    }

    /// Proves: W5
    #[test]
    fn an_archive_cut_anywhere_is_refused() {
        let whole = tar(&layout("amd64", &json!({})));
        // Two empty blocks, and what pads them, end a tar and hold nothing.
        let needed = whole.iter().rposition(|byte| *byte != 0).expect("bytes") + 1;
        for length in 0..needed {
            let cut = Archive::open(Cursor::new(&whole[..length])).and_then(|mut archive| archive.images());
            assert!(cut.is_err(), "cut at {length} of {needed}");
        }
        assert!(Archive::open(Cursor::new(&whole[..needed])).and_then(|mut archive| archive.images()).is_ok());
    }

    proptest! {
        #[test]
        fn an_archive_with_a_flipped_byte_never_panics(at in 0_usize..8192, with in any::<u8>()) {
            let mut bytes = tar(&layout("amd64", &json!({})));
            let at = at % bytes.len();
            bytes[at] = with;
            let _any = Archive::open(Cursor::new(bytes)).and_then(|mut archive| archive.images());
        }
    }
}
