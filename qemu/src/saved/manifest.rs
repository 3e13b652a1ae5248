//! `fleet.json`: what a saved fleet is, beside the bytes of its machines. Strict: what is unknown or repeated is refused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::{FilesError, SavedFile};
use super::traits::HostTraits;
use super::{files, stays_below};
use crate::argv::RunFiles;
use crate::machine::Machine;

/// The format that is written and read. A later one has a higher number.
pub const FORMAT: u32 = 1;

/// The file's name in the folder.
pub const MANIFEST: &str = "fleet.json";

/// Bytes of the longest `fleet.json`: a hundred machines with their lists of files are shorter by far.
const LONGEST: u64 = 4 << 20;

/// All of it; `T` is what the caller adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest<T> {
    pub(super) format: u32,
    pub(super) made: Maker,
    /// Root hash of the image, in hex.
    pub(super) image: String,
    pub(super) host: HostTraits,
    pub(super) machines: Vec<SavedMachine>,
    pub(super) more: T,
}

/// Program that saved a fleet, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maker {
    /// Program and version.
    pub by: String,
    /// In seconds since 1970, by the host's clock.
    pub unix_seconds: u64,
}

/// Machine of a saved fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedMachine {
    /// Name of its folder.
    pub(super) name: String,
    /// Machine as it was started; its own files have relative paths.
    pub(super) machine: Machine,
    /// The arguments that QEMU was given for that, but for the run's own sockets.
    pub(super) board: Vec<String>,
    /// Length of `serial.log` when its run began, in bytes.
    pub(super) serial_from: u64,
    pub(super) files: Vec<SavedFile>,
}

/// Why a `fleet.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// There is no saved fleet.
    #[error("there is no saved fleet in `{0}`")]
    Absent(PathBuf),
    /// The manifest cannot be read.
    #[error("read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    /// The manifest is not what this program writes.
    #[error("`{path}` is damaged")]
    Damaged { path: PathBuf, source: serde_json::Error },
    /// The manifest names what cannot be a machine or a file of one.
    #[error("`{path}` names `{name}`, which is no name for a part of a saved fleet")]
    Name { path: PathBuf, name: String },
    /// The manifest was written in another format.
    #[error("`{path}` has format {found}, and this version reads format {FORMAT}")]
    Format { path: PathBuf, found: u32 },
}

/// Enough to tell another format from damage.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl<T: Serialize> Manifest<T> {
    pub(super) fn write(&self, folder: &Path) -> Result<(), FilesError> {
        let path = file(folder);
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from).map_err(FilesError::at(&path))?;
        files::write(&path, &text)
    }
}

impl<T: DeserializeOwned> Manifest<T> {
    pub(super) fn read(folder: &Path) -> Result<Self, ManifestError> {
        let path = file(folder);
        let text = match fs::metadata(&path).and_then(|there| {
            if there.len() > LONGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { fs::read(&path) }
        }) {
            Ok(text) => text,
            Err(error) if super::not_there(&error) => return Err(ManifestError::Absent(folder.to_owned())),
            Err(source) => return Err(ManifestError::Read { path, source }),
        };
        Self::parse(&text, &path)
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self, ManifestError> {
        let path = path.to_owned();
        if let Ok(FormatOnly { format: found }) = serde_json::from_slice(text)
            && found != FORMAT
        {
            return Err(ManifestError::Format { path, found });
        }
        let manifest: Self = match serde_json::from_slice(text) {
            Ok(manifest) => manifest,
            Err(source) => return Err(ManifestError::Damaged { path, source }),
        };
        let names = manifest.machines.iter().map(|part| Path::new(&part.name));
        let files = manifest.machines.iter().flat_map(|part| part.files.iter().map(|file| file.path.as_path()));
        let wrong = names.filter(|name| name.components().count() != 1).chain(files).find(|name| !stays_below(name));
        match wrong.map(|name| name.display().to_string()) {
            Some(name) => Err(ManifestError::Name { path, name }),
            None => Ok(manifest),
        }
    }
}

/// Names in the place of a run's own files: two boards are the same whatever their sockets are called.
pub(super) fn board_files() -> RunFiles {
    RunFiles { qmp: "qmp".into(), serial: "serial".into(), serial_log: "serial.log".into(), tpm: "tpm".into() }
}

fn file(folder: &Path) -> PathBuf {
    folder.join(MANIFEST)
}
