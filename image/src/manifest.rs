//! `manifest.json`: what an image is made of. Public values only; written by the build, read by people and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::num::ParseIntError;
use std::path::Path;

use formats::verity::Verity;
use serde::{Deserialize, Serialize};

use crate::files::{self, FileError, hex, sha256};

/// Which set of services an image has: each profile has an `init` of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageProfile {
    /// The image that users have.
    Release,
    /// With fault injection and test services; shows itself as such everywhere.
    Debug,
}

impl ImageProfile {
    /// The word that `/etc/cairn/profile` holds.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Debug => "debug",
        }
    }
}

/// Part that an image has only if it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageExtension {
    /// gVisor: pods of the class `gvisor` run on a kernel of their own. The machine's kernel lets root trace processes for it.
    Gvisor,
}

impl ImageExtension {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Gvisor];

    /// The word that `/etc/cairn/extensions` holds.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gvisor => "gvisor",
        }
    }
}

/// All that is known of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of Cairn.
    pub version: String,
    /// Profile of the root.
    pub profile: ImageProfile,
    /// Extensions of the root.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub extensions: BTreeSet<ImageExtension>,
    /// Where the kernel comes from.
    pub kernel: KernelOrigin,
    /// The command line of every way of boot.
    pub cmdline: String,
    /// Root hash and the shape of `root.img`.
    pub verity: VerityPlace,
    /// SHA-256 PCR 11 after systemd's stub measured the UKI, in hex.
    pub pcr11: String,
    /// Upstream components and their versions.
    pub components: BTreeMap<String, String>,
    /// The artefacts in the image's directory, except the manifest itself.
    pub artefacts: BTreeMap<String, ManifestEntry>,
    /// Files of the initramfs, by path.
    pub initramfs: BTreeMap<String, ManifestEntry>,
    /// Files of the ESP, by path.
    pub esp: BTreeMap<String, ManifestEntry>,
    /// Everything in the root, by path.
    pub root: BTreeMap<String, ManifestEntry>,
}

impl Manifest {
    /// The bytes of `manifest.json`.
    pub(crate) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Where the kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelOrigin {
    /// Version of the source.
    pub version: String,
    /// SHA-256 of the source's archive, in hex.
    pub source_sha256: String,
}

/// The parameters of dm-verity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerityPlace {
    /// Root hash in hex; its first 16 bytes are the slot's PARTUUID.
    pub root_hash: String,
    /// Where the tree begins in `root.img`, in bytes.
    pub hash_offset: u64,
    /// Count of 4096-byte data blocks.
    pub data_blocks: u64,
}

impl From<&Verity> for VerityPlace {
    fn from(verity: &Verity) -> Self {
        let Verity { root, hash_offset, data_blocks } = *verity;
        Self { root_hash: root.to_string(), hash_offset, data_blocks }
    }
}

/// Entry of the image at one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum ManifestEntry {
    /// A file.
    File {
        /// Length in bytes.
        size: u64,
        /// SHA-256 of the content, in hex.
        sha256: String,
        /// Mode, where the file has one: artefacts and files of the ESP have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
    },
    /// A symbolic link.
    Link {
        /// Path that the link points to.
        target: String,
    },
    /// A directory.
    Directory,
    /// A device node.
    Device,
}

/// Permission bits, set-user-ID and set-group-ID among them (inode(7)); in the manifest as octal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(pub u32);

impl From<Mode> for String {
    fn from(Mode(bits): Mode) -> Self {
        format!("{bits:04o}")
    }
}

impl TryFrom<String> for Mode {
    type Error = ParseIntError;

    fn try_from(text: String) -> Result<Self, ParseIntError> {
        u32::from_str_radix(&text, 8).map(Self)
    }
}

impl ManifestEntry {
    /// A file that has no mode.
    pub(crate) fn file(bytes: &[u8]) -> Self {
        Self::File { size: bytes.len() as u64, sha256: hex(&sha256(bytes)), mode: None }
    }

    /// A file that has one.
    pub(crate) fn file_with_mode(bytes: &[u8], mode: u32) -> Self {
        Self::File { size: bytes.len() as u64, sha256: hex(&sha256(bytes)), mode: Some(Mode(mode)) }
    }

    /// Bytes of content; what is no file has none.
    pub(crate) const fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Link { .. } | Self::Directory | Self::Device => 0,
        }
    }

    /// The permission bits of a file that has them.
    pub(crate) fn mode(&self) -> Option<u32> {
        match self {
            Self::File { mode, .. } => mode.map(|Mode(bits)| bits),
            Self::Link { .. } | Self::Directory | Self::Device => None,
        }
    }

    /// The file at `path`, read piece by piece.
    pub(crate) fn of_file(path: &Path) -> Result<Self, FileError> {
        let (size, hash) = files::measure(path)?;
        Ok(Self::File { size, sha256: hex(&hash), mode: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_has_its_known_bytes() {
        let file = |mode| ManifestEntry::File { size: 6, sha256: "ab".repeat(32), mode };
        let map = |rows: &[(&str, ManifestEntry)]| {
            rows.iter().map(|(path, entry)| ((*path).to_owned(), entry.clone())).collect()
        };
        let manifest = Manifest {
            version: "0.1.0".to_owned(),
            profile: ImageProfile::Release,
            extensions: [ImageExtension::Gvisor].into(),
            kernel: KernelOrigin { version: "6.12.1".to_owned(), source_sha256: "cd".repeat(32) },
            cmdline: "panic=10".to_owned(),
            verity: VerityPlace { root_hash: "ef".repeat(32), hash_offset: 8192, data_blocks: 2 },
            pcr11: "01".repeat(32),
            components: BTreeMap::from([("etcd".to_owned(), "v3.6.5".to_owned())]),
            artefacts: map(&[("bzImage", file(None))]),
            initramfs: map(&[("/dev/console", ManifestEntry::Device), ("/init", file(Some(Mode(0o555))))]),
            esp: map(&[("/loader/loader.conf", file(None))]),
            root: map(&[
                ("/bin", ManifestEntry::Directory),
                ("/bin/mount", ManifestEntry::Link { target: "init".to_owned() }),
            ]),
        };
        let text = manifest.to_json().expect("strings and numbers");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/manifest.json");
        if std::env::var_os("CAIRN_BLESS").is_some() {
            std::fs::write(path, &text).expect("golden files can be written");
        }
        let golden = std::fs::read(path).expect("the golden file is committed");
        assert!(text == golden, "a format is changed in FORMATS.md, the code and here in one step");
        assert_eq!(serde_json::from_slice::<Manifest>(&golden).expect("reads"), manifest);
        let unknown = String::from_utf8(golden).expect("text").replacen("\"size\"", "\"colour\": 1, \"size\"", 1);
        assert!(serde_json::from_str::<Manifest>(&unknown).is_err(), "an unknown key");
    }
}
