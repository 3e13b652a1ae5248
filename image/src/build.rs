//! One image from finished files: which files it takes, and the order in which one part needs another.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use formats::uki::{self, Uki};
use formats::verity;

use crate::disk::{self, DiskError};
use crate::files::{self, FileError, hex};
use crate::limits::{OverLimit, weigh};
use crate::manifest::{Entry, KernelOrigin, Manifest, Profile, VerityPlace};
use crate::{cmdline, esp, initrd, names, root};

/// Everything an image is made of. Paths say where a thing is found now; they leave no trace in the image.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Version of Cairn.
    pub version: String,
    /// Profile of the root.
    pub profile: Profile,
    /// The kernel.
    pub kernel: Kernel,
    /// All of [`Program::ALL`].
    pub programs: BTreeMap<Program, PathBuf>,
    /// Upstream components and their versions, for the manifest.
    pub components: BTreeMap<String, String>,
    /// Notices of everything in the image.
    pub licences: Vec<Licence>,
    /// systemd's stub, `linuxx64.efi.stub`.
    pub stub: PathBuf,
    /// systemd-boot, `systemd-bootx64.efi`.
    pub boot_loader: PathBuf,
}

/// Where Debian's package systemd-boot-efi puts the stub.
pub const DEBIAN_STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
/// Where it puts the boot loader.
pub const DEBIAN_BOOT_LOADER: &str = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi";

/// A kernel and its origin.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// A bzImage.
    pub bzimage: PathBuf,
    /// Version and hash of its source.
    pub origin: KernelOrigin,
}

/// A text of notices.
#[derive(Debug, Clone)]
pub struct Licence {
    /// Its name in `/usr/share/doc/cairn/licences`.
    pub name: String,
    /// Where it is found now.
    pub text: PathBuf,
}

/// A static executable that goes into the root or into an OCI image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// PID 1, also stage 0 in the initramfs.
    Init,
    /// etcd.
    Etcd,
    /// containerd.
    Containerd,
    /// containerd's shim for runc.
    ContainerdShim,
    /// runc.
    Runc,
    /// The Kubernetes multicall.
    Kube,
    /// mkfs of XFS.
    MkfsXfs,
    /// CNI plugin ptp.
    CniPtp,
    /// CNI plugin host-local.
    CniHostLocal,
    /// CNI plugin loopback.
    CniLoopback,
    /// The pause container's program.
    Pause,
    /// The web container's program.
    Web,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Init,
        Self::Etcd,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Runc,
        Self::Kube,
        Self::MkfsXfs,
        Self::CniPtp,
        Self::CniHostLocal,
        Self::CniLoopback,
        Self::Pause,
        Self::Web,
    ];

    /// The name its build gives it, and its name in the image.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Runc => "runc",
            Self::Kube => "kube",
            Self::MkfsXfs => "mkfs.xfs",
            Self::CniPtp => "ptp",
            Self::CniHostLocal => "host-local",
            Self::CniLoopback => "loopback",
            Self::Pause => "pause",
            Self::Web => "web",
        }
    }
}

impl Inputs {
    pub(crate) fn program(&self, program: Program) -> Result<Vec<u8>, BuildError> {
        let path = self.programs.get(&program).ok_or(BuildError::MissingProgram(program.file_name()))?;
        Ok(files::read(path)?)
    }
}

/// Why no image was made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A program was not given.
    #[error("the image needs the program `{0}`, which was not given")]
    MissingProgram(&'static str),
    /// A notice's name is empty, hidden, a path, or used twice.
    #[error("`{0}` is no name for a notice, or is used twice")]
    LicenceName(String),
    /// mkfs.erofs is not there.
    #[error("start mkfs.erofs (Debian package erofs-utils)")]
    StartMkfs(#[source] io::Error),
    /// mkfs.erofs refused.
    #[error("mkfs.erofs: {stderr}")]
    Mkfs { stderr: String },
    /// An OCI image could not be put together.
    #[error("put an OCI image together")]
    Image(#[source] io::Error),
    /// The erofs image is no whole number of blocks.
    #[error("hash the root")]
    Verity(#[from] verity::NotBlocks),
    /// The initramfs has a path that it cannot have.
    #[error("lay out the initramfs")]
    Initramfs(#[from] initramfs::BadPath),
    /// The initramfs is too large.
    #[error("archive the initramfs")]
    Archive(#[from] initramfs::TooLarge),
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

/// Makes all artefacts of [`names`] in `out`, which is created; files there are replaced. The manifest comes last: where
/// it is, the others are complete and within the limits.
///
/// # Errors
/// [`BuildError`] names the step; a manifest of an earlier build is gone then.
pub fn build(inputs: &Inputs, out: &Path) -> Result<Manifest, BuildError> {
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
    let stage0 = initrd::tree(inputs.program(Program::Init)?, &verity)?;
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
        artefacts.insert(name.to_owned(), Entry::file(bytes));
    }
    artefacts.insert(names::DISK.to_owned(), Entry::of_file(&out.join(names::DISK))?);

    let esp_files = esp::files(&mut esp).map_err(BuildError::Esp)?;
    let manifest = Manifest {
        version: inputs.version.clone(),
        profile: inputs.profile,
        kernel: inputs.kernel.origin.clone(),
        cmdline: command_line.clone(),
        verity: VerityPlace::from(&verity),
        pcr11: hex(&parts.pcr11()),
        components: inputs.components.clone(),
        artefacts,
        initramfs: initrd::list(&stage0),
        esp: esp_files.into_iter().map(|(path, bytes)| (format!("/{path}"), Entry::file(&bytes))).collect(),
        root: root_files,
    };
    weigh(&manifest)?;
    files::write(&manifest_path, &manifest.to_json()?)?;
    Ok(manifest)
}
