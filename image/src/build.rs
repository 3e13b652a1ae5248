//! Order in which an image is built from finished files: each part after those that it needs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use formats::uki::{self, Uki};
use formats::verity;

use crate::disk::{self, DiskError};
use crate::files::{self, FileError, hex};
use crate::inputs::{ImageInputs, InitProgram};
use crate::limits::{OverLimit, weigh};
use crate::manifest::{Manifest, ManifestEntry, VerityPlace};
use crate::root::{self, RootError};
use crate::{cmdline, esp, initrd, names};

/// Why no image was made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// PID 1 of a release holds what only tests need.
    #[error(
        "`{path}` holds the word `{word}`, so it was built with what only tests need; nothing was written: give the release an \
         `init` without the feature `faults`, or build the debug profile"
    )]
    TestsOnly {
        /// The word that was found.
        word: &'static str,
        /// Where PID 1 was found.
        path: PathBuf,
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

/// Words that are in no release's PID 1: whoever finds one there finds a way to break the machine.
const TESTS_ONLY: &[&str] = &[
    "Inject", // the method by which faults are injected, in its path
    "test-",  // programs that tests start: the guest's
];

/// Makes all artefacts of [`names`] in `out`, which is created; files there are replaced. The manifest comes last: where
/// it is, the others are complete and within the limits.
///
/// # Errors
/// [`BuildError`] names the step; a manifest of an earlier build is gone then, but where PID 1 was refused.
pub fn build(inputs: &ImageInputs, out: &Path) -> Result<Manifest, BuildError> {
    let init = take(&inputs.init)?;
    fs::create_dir_all(out).map_err(FileError::new("create directory", out))?;
    let manifest_path = out.join(names::MANIFEST);
    match fs::remove_file(&manifest_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(FileError::new("remove", &manifest_path)(error).into());
        }
        Ok(()) | Err(_) => {} // gone either way
    }
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
        extensions: inputs.extensions.clone(),
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
    weigh(&manifest, inputs.sizes)?;
    files::write(&manifest_path, &manifest.to_json()?)?;
    Ok(manifest)
}

/// The bytes of PID 1; a release's hold none of [`TESTS_ONLY`].
fn take(init: &InitProgram) -> Result<Vec<u8>, BuildError> {
    let bytes = files::read(init.path())?;
    let holds = |word: &str| bytes.windows(word.len()).any(|part| part == word.as_bytes());
    match (init, TESTS_ONLY.iter().find(|word| holds(word))) {
        (InitProgram::Release(path), Some(word)) => Err(BuildError::TestsOnly { word, path: path.clone() }),
        (InitProgram::Release(_), None) | (InitProgram::Debug(_), _) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Whether PID 1 of these bytes is taken, in a release and in a debug image.
    fn taken(bytes: &[u8]) -> [Result<Vec<u8>, String>; 2] {
        let dir = tempfile::tempdir().expect("room for temporary files");
        let path = dir.path().join("init");
        fs::write(&path, bytes).expect("our own file");
        [InitProgram::Release, InitProgram::Debug].map(|profile| {
            take(&profile(path.clone())).map_err(|error| error.to_string().replace(&path.display().to_string(), "INIT"))
        })
    }

    /// Proves: S8
    #[test]
    fn a_release_whose_init_can_inject_faults_is_refused() {
        for word in TESTS_ONLY {
            let holds = format!("\u{7f}ELF\0/cairn.v1.Debug/{word}\0").into_bytes();
            let [release, debug] = taken(&holds);
            let refused = release.expect_err("a release with faults");
            assert!(refused.starts_with(&format!("`INIT` holds the word `{word}`")), "{refused}");
            assert_eq!(debug, Ok(holds));
        }
        let clean = b"\x7fELF\0/cairn.v1.Public/GetState\0inject Injec".to_vec();
        assert_eq!(taken(&clean), [Ok(clean.clone()), Ok(clean)]);
    }
}
