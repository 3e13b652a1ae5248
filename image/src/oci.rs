//! OCI image archives: of one static program, what a machine without a registry runs its first pods from; and of any files.
//!
//! Owns the archive's form (OCI image specification 1.1: layout, manifest, configuration). An image is one layer, uncompressed,
//! of files that belong to root; it must hold nothing that depends on time or host.

use std::{collections::BTreeMap, io};

use serde_json::{Map, Value, json};

use crate::files::{hex, sha256};

/// Image of one program that needs no other file.
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
        let file = LayerEntry::File { mode: 0o555, bytes: self.bytes };
        let process = ImageProcess {
            entrypoint: vec![format!("/{}", self.program)],
            user: Some(USER.to_owned()),
            ..ImageProcess::default()
        };
        let layer = BTreeMap::from([(self.program.to_owned(), file)]);
        ContainerImage { reference: self.reference, layer, process, version: self.version }.archive()
    }
}

/// Image of any files.
#[derive(Debug, Clone)]
pub struct ContainerImage<'a> {
    /// Name with tag, such as `registry.k8s.io/pause:3.10`.
    pub reference: &'a str,
    /// Content by path, without a leading slash. Folders that are not named have no row, and whoever unpacks it makes them.
    pub layer: BTreeMap<String, LayerEntry<'a>>,
    /// Process that a container runs which says nothing else.
    pub process: ImageProcess,
    /// Version, for who looks at the image from outside.
    pub version: &'a str,
}

/// Entry of an image's layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerEntry<'a> {
    /// Regular file.
    File {
        /// Permissions.
        mode: u32,
        /// Content.
        bytes: &'a [u8],
    },
    /// Symbolic link.
    Link {
        /// Path that it leads to, absolute or from its own folder.
        target: String,
    },
    /// Folder.
    Directory {
        /// Permissions.
        mode: u32,
    },
}

/// Process of an image's containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageProcess {
    /// Program and first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments, or the program where there is no entrypoint; a pod replaces them.
    pub command: Vec<String>,
    /// User, `uid` or `uid:gid`; root where absent.
    pub user: Option<String>,
    /// Variables, `NAME=value`.
    pub environment: Vec<String>,
}

impl ContainerImage<'_> {
    /// The image as a tar archive of an OCI layout.
    ///
    /// # Errors
    /// A path or a link's target is too long for a tar archive.
    pub fn archive(&self) -> io::Result<Vec<u8>> {
        let layer = tar(self.layer.iter().map(|(path, entry)| (path.as_str(), entry)))?;
        let configuration = to_bytes(&json!({
            "architecture": "amd64",
            "config": self.process.configuration(),
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
        let file = |bytes| LayerEntry::File { mode: 0o444, bytes };
        let mut files: BTreeMap<String, LayerEntry<'_>> =
            [&layer[..], &configuration, &manifest].into_iter().map(|blob| (blob_path(blob), file(blob))).collect();
        files.extend([("index.json".to_owned(), file(&index)), ("oci-layout".to_owned(), file(&layout))]);
        tar(files.iter().map(|(path, entry)| (path.as_str(), entry)))
    }
}

impl ImageProcess {
    /// The `config` of an image's configuration; what says nothing is left out.
    fn configuration(&self) -> Value {
        let lists = [("Entrypoint", &self.entrypoint), ("Cmd", &self.command), ("Env", &self.environment)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let mut all: Map<String, Value> = lists.map(|(name, list)| (name.to_owned(), json!(list))).collect();
        all.extend(self.user.iter().map(|user| ("User".to_owned(), json!(user))));
        all.insert("WorkingDir".to_owned(), json!("/"));
        Value::Object(all)
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

/// A tar archive of entries that belong to root and have time 0, in the given order.
fn tar<'a>(entries: impl Iterator<Item = (&'a str, &'a LayerEntry<'a>)>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_path(path)?;
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        let bytes: &[u8] = match entry {
            LayerEntry::File { mode, bytes } => {
                header.set_mode(*mode);
                header.set_size(bytes.len() as u64);
                bytes
            }
            LayerEntry::Link { target } => {
                header.set_mode(0o777);
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_link_name(target)?;
                &[]
            }
            LayerEntry::Directory { mode } => {
                header.set_mode(*mode);
                header.set_entry_type(tar::EntryType::Directory);
                &[]
            }
        };
        header.set_cksum();
        archive.append(&header, bytes)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn files_links_and_folders_are_unpacked_as_they_were_given() {
        let layer = BTreeMap::from([
            ("bin/busybox".to_owned(), LayerEntry::File { mode: 0o755, bytes: b"program" }),
            ("bin/sh".to_owned(), LayerEntry::Link { target: "busybox".to_owned() }),
            ("tmp".to_owned(), LayerEntry::Directory { mode: 0o1777 }),
        ]);
        let bytes = tar(layer.iter().map(|(path, entry)| (path.as_str(), entry))).expect("in memory");
        let folder = tempfile::tempdir().expect("a folder");
        let mut archive = tar::Archive::new(&bytes[..]);
        archive.set_preserve_permissions(true);
        archive.unpack(folder.path()).expect("unpacked");
        assert_eq!(std::fs::read(folder.path().join("bin/sh")).expect("through the link"), b"program");
        let tmp = std::fs::metadata(folder.path().join("tmp")).expect("a folder");
        assert!(tmp.is_dir());
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&tmp.permissions()) & 0o7777, 0o1777);
    }

    #[test]
    fn a_configuration_says_only_what_was_given() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let process = ImageProcess {
            entrypoint: words(&["/agnhost"]),
            command: words(&["pause"]),
            user: Some("1000".to_owned()),
            environment: words(&["PATH=/bin"]),
        };
        let all = json!({
            "Cmd": ["pause"], "Entrypoint": ["/agnhost"], "Env": ["PATH=/bin"], "User": "1000", "WorkingDir": "/",
        });
        assert_eq!(process.configuration(), all);
        assert_eq!(ImageProcess::default().configuration(), json!({ "WorkingDir": "/" }));
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
