//! Order in which an image is built from finished files: each part after those that it needs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use formats::uki::{self, Uki};
use formats::verity;

use crate::disk::{self, DiskError};
use crate::files::{self, FileError, hex};
use crate::inputs::{ImageInputs, InputError, RootProgram};
use crate::limits::{OverLimit, weigh};
use crate::manifest::{ImageProfile, Manifest, ManifestEntry, VerityPlace};
use crate::root::{self, RootError};
use crate::{cmdline, esp, initrd, names};

/// Why no image was made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// PID 1 could not be taken into the initramfs.
    #[error(transparent)]
    Input(#[from] InputError),
    /// PID 1 of a release holds what only tests need.
    #[error(
        "the program `init` of a release holds the word `{word}`: {because}; no image was made, build `init` without it"
    )]
    Forbidden {
        /// Word that was found.
        word: &'static str,
        /// Why a release has no such word.
        because: &'static str,
    },
    /// The root.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The erofs image is no whole number of blocks.
    #[error("hash the root")]
    Verity(#[from] verity::BlockLengthError),
    /// The initramfs has a path that it cannot have.
    #[error("lay out the initramfs")]
    Initramfs(#[from] initramfs::BadPath),
    /// The initramfs is too large.
    #[error("archive the initramfs")]
    Archive(#[from] initramfs::FileTooLarge),
    /// The initramfs could not be compressed.
    #[error("compress the initramfs")]
    Compress(#[source] io::Error),
    /// The stub does not take the kernel.
    #[error("build the unified kernel image")]
    Uki(#[from] uki::CannotBuild),
    /// The ESP has no room.
    #[error("fill the ESP")]
    Esp(#[source] io::Error),
    /// The disk.
    #[error("make the disk image")]
    Disk(#[from] DiskError),
    /// More than what is promised.
    #[error("keep the image within its limits")]
    Limits(#[from] OverLimit),
    /// The manifest.
    #[error("write the manifest")]
    Manifest(#[from] serde_json::Error),
}

/// Words that PID 1 of a release does not hold, and why: each is part of something that only tests need.
const FORBIDDEN: &[(&str, &str)] = &[("test-", "programs that tests start are the guest's")];

/// Makes all artefacts of [`names`] in `out`, which is created; files there are replaced. The manifest comes last: where
/// it is, the others are complete and within the limits.
///
/// # Errors
/// [`BuildError`] names the step; a manifest of an earlier build is gone then.
pub fn build(inputs: &ImageInputs, out: &Path) -> Result<Manifest, BuildError> {
    fs::create_dir_all(out).map_err(FileError::new("create directory", out))?;
    let manifest_path = out.join(names::MANIFEST);
    match fs::remove_file(&manifest_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(FileError::new("remove", &manifest_path)(error).into());
        }
        Ok(()) | Err(_) => {} // gone either way
    }
    let init = inputs.program(RootProgram::Init)?;
    refuse_forbidden(inputs.init.profile(), &init)?;
    let (mut root_image, root_files) = root::make(inputs, &out.join("root.stage"))?;
    let (tree, verity) = verity::tree(&root_image)?;
    root_image.extend(tree);

    let kernel = files::read(&inputs.kernel.bzimage)?;
    let stage0 = initrd::tree(init, &verity)?;
    let initrd = initramfs::compress(&stage0.archive()?).map_err(BuildError::Compress)?;
    let (os_release, command_line) = (root::os_release(&inputs.version), cmdline::text());
    let parts = Uki {
        linux: &kernel,
        os_release: os_release.as_bytes(),
        command_line: command_line.as_bytes(),
        initrd: &initrd,
    };
    let unified = parts.build(&files::read(&inputs.stub)?)?;

    let mut esp = esp::make(&files::read(&inputs.boot_loader)?, &unified).map_err(BuildError::Esp)?;
    disk::make(&out.join(names::DISK), &esp, &root_image, verity.root)?;
    let mut artefacts = BTreeMap::new();
    for (name, bytes) in
        [(names::KERNEL, &kernel), (names::INITRAMFS, &initrd), (names::ROOT, &root_image), (names::UKI, &unified)]
    {
        files::write(&out.join(name), bytes)?;
        artefacts.insert(name.to_owned(), ManifestEntry::file(bytes));
    }
    artefacts.insert(names::DISK.to_owned(), ManifestEntry::of_file(&out.join(names::DISK))?);

    let esp_files = esp::files(&mut esp).map_err(BuildError::Esp)?;
    let manifest = Manifest {
        version: inputs.version.clone(),
        profile: inputs.init.profile(),
        kernel: inputs.kernel.origin.clone(),
        cmdline: command_line.clone(),
        verity: VerityPlace::from(&verity),
        pcr11: hex(&parts.pcr11()),
        components: inputs.components.clone(),
        artefacts,
        initramfs: initrd::list(&stage0),
        esp: esp_files.into_iter().map(|(path, bytes)| (format!("/{path}"), ManifestEntry::file(&bytes))).collect(),
        root: root_files,
    };
    weigh(&manifest)?;
    files::write(&manifest_path, &manifest.to_json()?)?;
    Ok(manifest)
}

/// Refuses a release's PID 1 that holds one of [`FORBIDDEN`].
fn refuse_forbidden(profile: ImageProfile, init: &[u8]) -> Result<(), BuildError> {
    let holds = |word: &str| init.windows(word.len()).any(|bytes| bytes == word.as_bytes());
    match FORBIDDEN.iter().find(|(word, _)| profile == ImageProfile::Release && holds(word)) {
        Some((word, because)) => Err(BuildError::Forbidden { word, because }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_no_init_that_holds_a_forbidden_word() {
        for (word, _) in FORBIDDEN {
            let init = format!("\x7fELF\0{word}\0");
            let refused = refuse_forbidden(ImageProfile::Release, init.as_bytes());
            assert!(matches!(refused, Err(BuildError::Forbidden { word: found, .. }) if found == *word), "{word}");
            assert!(refuse_forbidden(ImageProfile::Debug, init.as_bytes()).is_ok(), "{word}: tests need it");
            let (short, _) = word.split_at(word.len() - 1);
            assert!(refuse_forbidden(ImageProfile::Release, short.as_bytes()).is_ok(), "{short}");
        }
        assert!(refuse_forbidden(ImageProfile::Release, b"").is_ok());
    }
}
