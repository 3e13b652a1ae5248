//! OCI image archives of one static program: what a machine without a registry runs its first pods from.
//!
//! Owns the archive's form (OCI image specification 1.1: layout, manifest, configuration). An image is one layer with
//! one file; it must hold nothing that depends on time or host.

use std::io;

use serde_json::{Value, json};

use crate::files::{hex, sha256};

/// An image: its name and what it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image<'a> {
    /// Name with tag, such as `cairn.local/pause:1`.
    pub(crate) reference: &'a str,
    /// Name of the only file, in the image's root.
    pub(crate) program: &'a str,
    /// The program's bytes: an executable that needs no other file.
    pub(crate) bytes: &'a [u8],
    /// Version of Cairn, for who looks at the image from outside.
    pub(crate) version: &'a str,
}

/// User and group the program runs as: nobody, so that a pod which demands a non-root image can use it.
const USER: &str = "65534:65534";

impl Image<'_> {
    /// The image as a tar archive of an OCI layout.
    ///
    /// # Errors
    /// Never for content that fits into memory; the writer's error type says otherwise.
    pub(crate) fn archive(&self) -> io::Result<Vec<u8>> {
        let layer = tar(&[(self.program.to_owned(), 0o555, self.bytes)])?;
        let configuration = to_bytes(&json!({
            "architecture": "amd64",
            "config": { "Entrypoint": [format!("/{}", self.program)], "User": USER, "WorkingDir": "/" },
            "os": "linux",
            "rootfs": { "diff_ids": [blob_name(&layer)], "type": "layers" },
        }));
        let manifest = to_bytes(&json!({
            "annotations": { "org.opencontainers.image.version": self.version },
            "config": descriptor("application/vnd.oci.image.config.v1+json", &configuration),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
            "mediaType": MANIFEST,
            "schemaVersion": 2,
        }));
        let mut reference = descriptor(MANIFEST, &manifest);
        let tag = self.reference.rsplit_once(':').map_or(self.reference, |(_, tag)| tag);
        // containerd names an imported image by the first, everybody else by the second.
        reference["annotations"] =
            json!({ "io.containerd.image.name": self.reference, "org.opencontainers.image.ref.name": tag });
        reference["platform"] = json!({ "architecture": "amd64", "os": "linux" });
        let index = to_bytes(&json!({
            "manifests": [reference],
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "schemaVersion": 2,
        }));
        let layout = to_bytes(&json!({ "imageLayoutVersion": "1.0.0" }));
        let mut blobs = [&layer[..], &configuration, &manifest].map(|blob| (blob_path(blob), 0o444, blob));
        blobs.sort();
        let [first, second, third] = blobs;
        tar(&[
            first,
            second,
            third,
            ("index.json".to_owned(), 0o444, &index),
            ("oci-layout".to_owned(), 0o444, &layout),
        ])
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({ "digest": blob_name(blob), "mediaType": media_type, "size": blob.len() })
}

fn blob_name(blob: &[u8]) -> String {
    format!("sha256:{}", hex(&sha256(blob)))
}

fn blob_path(blob: &[u8]) -> String {
    format!("blobs/sha256/{}", hex(&sha256(blob)))
}

fn to_bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// A tar archive of files that belong to root and have time 0.
fn tar(files: &[(String, u32, &[u8])]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_path(path)?;
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        archive.append(&header, *bytes)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    const IMAGE: Image<'_> =
        Image { reference: "cairn.local/pause:1", program: "pause", bytes: b"\x7fELF pause", version: "0.1.0" };

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().expect("a tar archive") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("in memory");
            files.insert(path, bytes);
        }
        files
    }

    /// Proves: W5
    #[test]
    fn every_descriptor_leads_from_the_index_to_the_program() {
        let files = unpack(&IMAGE.archive().expect("in memory"));
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let follow = |descriptor: &Value| {
            let (name, size) = (descriptor["digest"].as_str().expect("text"), descriptor["size"].as_u64());
            let blob = &files[&format!("blobs/{}", name.replace(':', "/"))];
            assert_eq!((name, size), (blob_name(blob).as_str(), Some(blob.len() as u64)));
            blob
        };
        assert_eq!(json(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
        let index = json(&files["index.json"]);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "cairn.local/pause:1");
        let manifest = json(follow(&index["manifests"][0]));
        let configuration = json(follow(&manifest["config"]));
        let layer = follow(&manifest["layers"][0]);
        assert_eq!(configuration["rootfs"]["diff_ids"][0], blob_name(layer).as_str());
        assert_eq!(configuration["config"]["Entrypoint"][0], "/pause");
        assert_eq!(unpack(layer), BTreeMap::from([("pause".to_owned(), IMAGE.bytes.to_vec())]));
    }

    /// Proves: O5
    #[test]
    fn the_archive_is_always_these_bytes() {
        assert_eq!(
            hex(&sha256(&IMAGE.archive().expect("in memory"))),
            "e407e9c8f667eece0247a793934a967037459f3da03f46bba7d0aae61dd05ee2"
        );
    }
}
