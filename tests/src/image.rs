//! The image under test: a directory that `cargo xtask image` made. Only looked at, never built or changed here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use qemu::machine::Kernel;
use serde::Deserialize;

/// The environment variable that names the image directory.
const VARIABLE: &str = "CAIRN_IMAGE_DIR";
/// The same for an image of the debug profile.
const DEBUG_VARIABLE: &str = "CAIRN_DEBUG_IMAGE_DIR";

/// The same for an image with gVisor.
const GVISOR_VARIABLE: &str = "CAIRN_GVISOR_IMAGE_DIR";

/// An image directory whose files are there.
#[derive(Debug, Clone)]
pub struct Image {
    dir: PathBuf,
    cmdline: String,
    root_hash: String,
}

/// Why there is no image to test.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No variable names an image.
    #[error(
        "no image to test: run `cargo xtask image{options} --out DIR`, then set {variable}=DIR (`cargo xtask test` does \
         both)"
    )]
    Unset {
        /// The environment variable that should say it.
        variable: &'static str,
        /// Options of `cargo xtask image` that make the one needed.
        options: &'static str,
    },
    /// The directory lacks a file.
    #[error("no image in `{dir}`, `{file}` is missing: run `cargo xtask image --out {dir}`")]
    Missing { dir: PathBuf, file: &'static str },
    /// The image's manifest cannot be read.
    #[error("read `{0}`")]
    Read(PathBuf, #[source] io::Error),
    /// The image's manifest cannot be parsed.
    #[error("parse `{0}`: run `cargo xtask image` again")]
    Manifest(PathBuf, #[source] serde_json::Error),
}

/// Part of `manifest.json` that is read; the rest is the image's business.
#[derive(Deserialize)]
struct Manifest {
    cmdline: String,
    verity: Verity,
}

#[derive(Deserialize)]
struct Verity {
    root_hash: String,
}

const KERNEL: &str = "bzImage";
const INITRAMFS: &str = "initramfs.cpio.zst";
const DISK: &str = "disk.img";
const MANIFEST: &str = "manifest.json";

impl Image {
    /// The one that the environment names.
    ///
    /// # Errors
    /// [`ImageError`]
    pub fn of_environment() -> Result<Self, ImageError> {
        Self::named_by(VARIABLE, "")
    }

    /// The one of the debug profile that the environment names.
    ///
    /// # Errors
    /// [`ImageError`]
    pub fn debug_of_environment() -> Result<Self, ImageError> {
        Self::named_by(DEBUG_VARIABLE, " --debug")
    }

    /// The one with gVisor that the environment names.
    ///
    /// # Errors
    /// [`ImageError`]
    pub fn gvisor_of_environment() -> Result<Self, ImageError> {
        Self::named_by(GVISOR_VARIABLE, " --with gvisor")
    }

    /// Whether the environment names one with gVisor.
    #[must_use]
    pub fn is_gvisor_named() -> bool {
        std::env::var_os(GVISOR_VARIABLE).is_some()
    }

    fn named_by(variable: &'static str, options: &'static str) -> Result<Self, ImageError> {
        let dir = std::env::var_os(variable).ok_or(ImageError::Unset { variable, options })?;
        Self::open(Path::new(&dir))
    }

    /// The one in `dir`.
    ///
    /// # Errors
    /// [`ImageError`]
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        let dir = fs::canonicalize(dir).map_err(|error| ImageError::Read(dir.to_owned(), error))?;
        for file in [KERNEL, INITRAMFS, DISK, MANIFEST] {
            if !dir.join(file).is_file() {
                return Err(ImageError::Missing { dir, file });
            }
        }
        let path = dir.join(MANIFEST);
        let text = fs::read(&path).map_err(|error| ImageError::Read(path.clone(), error))?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| ImageError::Manifest(path, error))?;
        Ok(Self { dir, cmdline: manifest.cmdline, root_hash: manifest.verity.root_hash })
    }

    /// Kernel that QEMU loads by itself, as the image means it.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        Kernel { image: self.dir.join(KERNEL), initrd: self.dir.join(INITRAMFS), cmdline: self.cmdline.clone() }
    }

    /// The hash by which it is known, in hex.
    #[must_use]
    pub fn root_hash(&self) -> &str {
        &self.root_hash
    }

    /// The disk; never written, machines get overlays.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// The directory of the image.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Another file of the directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_missing_and_what_to_run() {
        let dir = std::env::temp_dir();
        let error = Image::open(&dir).unwrap_err().to_string();
        assert!(error.contains(KERNEL) && error.contains("cargo xtask image"), "{error}");
        assert!(ImageError::Unset { variable: VARIABLE, options: "" }.to_string().contains("cargo xtask image"));
    }
}
