//! Inputs of an image: finished files, and where they are found now. It never makes anything of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::files::{self, FileError};
use crate::manifest::{ImageExtension, ImageProfile, KernelOrigin};

/// Everything an image is made of. Paths say where a thing is found now; they leave no trace in the image.
#[derive(Debug, Clone)]
pub struct ImageInputs {
    /// Version of Cairn.
    pub version: String,
    /// Whether the image may be as large as it comes.
    pub sizes: SizeLimits,
    /// PID 1, and with it the profile of the root.
    pub init: InitProgram,
    /// Extensions that the root has.
    pub extensions: BTreeSet<ImageExtension>,
    /// The kernel.
    pub kernel: KernelInput,
    /// All of [`RootProgram::ALL`] that a root of this profile and these extensions has, but PID 1.
    pub programs: BTreeMap<RootProgram, PathBuf>,
    /// Upstream components and their versions, for the manifest.
    pub components: BTreeMap<String, String>,
    /// Notices of everything in the image.
    pub licences: Vec<Licence>,
    /// systemd's stub, `linuxx64.efi.stub`.
    pub stub: PathBuf,
    /// systemd-boot, `systemd-bootx64.efi`.
    pub boot_loader: PathBuf,
}

/// Rule for the sizes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeLimits {
    /// Held to what is promised: it may be shipped.
    Held,
    /// Any: its programs were compiled in seconds, and are larger for it.
    Any,
}

/// PID 1 by the profile that it was compiled for. An image takes its own from it: no debug image is made of a release's.
#[derive(Debug, Clone)]
pub enum InitProgram {
    /// Without the feature `faults`.
    Release(PathBuf),
    /// With it.
    Debug(PathBuf),
}

impl InitProgram {
    /// Profile that it was compiled for.
    #[must_use]
    pub fn profile(&self) -> ImageProfile {
        match self {
            Self::Release(_) => ImageProfile::Release,
            Self::Debug(_) => ImageProfile::Debug,
        }
    }

    /// Where it is found now.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Release(path) | Self::Debug(path) => path,
        }
    }
}

/// Where Debian's package systemd-boot-efi puts the stub.
pub const DEBIAN_STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
/// Where it puts the boot loader.
pub const DEBIAN_BOOT_LOADER: &str = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi";

/// A kernel and its origin.
#[derive(Debug, Clone)]
pub struct KernelInput {
    /// A bzImage.
    pub bzimage: PathBuf,
    /// Version and hash of its source.
    pub origin: KernelOrigin,
}

/// A text of notices.
#[derive(Debug, Clone)]
pub struct Licence {
    /// Name in `/usr/share/doc/cairn/licences`.
    pub name: String,
    /// Where it is found now.
    pub text: PathBuf,
}

/// A static executable that goes into the root or into an OCI image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RootProgram {
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
    /// gVisor's runtime, and its kernel.
    Runsc,
    /// containerd's shim for gVisor.
    RunscShim,
    /// The Kubernetes multicall.
    Kube,
    /// CoreDNS.
    CoreDns,
    /// mkfs of XFS.
    MkfsXfs,
    /// CNI plugin ptp.
    CniPtp,
    /// CNI plugin host-local.
    CniHostLocal,
    /// CNI plugin loopback.
    CniLoopback,
    /// CNI plugin portmap.
    CniPortmap,
    /// The pause container's program.
    Pause,
    /// The web container's program.
    Web,
    /// Program by which tests break a machine from inside.
    Guest,
}

impl RootProgram {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Init,
        Self::Etcd,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Runc,
        Self::Runsc,
        Self::RunscShim,
        Self::Kube,
        Self::CoreDns,
        Self::MkfsXfs,
        Self::CniPtp,
        Self::CniHostLocal,
        Self::CniLoopback,
        Self::CniPortmap,
        Self::Pause,
        Self::Web,
        Self::Guest,
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
            Self::Runsc => "runsc",
            Self::RunscShim => "containerd-shim-runsc-v1",
            Self::Kube => "kube",
            Self::CoreDns => "coredns",
            Self::MkfsXfs => "mkfs.xfs",
            Self::CniPtp => "ptp",
            Self::CniHostLocal => "host-local",
            Self::CniLoopback => "loopback",
            Self::CniPortmap => "portmap",
            Self::Pause => "pause",
            Self::Web => "web",
            Self::Guest => "guest",
        }
    }
}

impl ImageInputs {
    /// The bytes of a program.
    pub(crate) fn program(&self, program: RootProgram) -> Result<Vec<u8>, InputError> {
        let init = (program == RootProgram::Init).then(|| self.init.path());
        let path = init.or_else(|| self.programs.get(&program).map(PathBuf::as_path));
        Ok(files::read(path.ok_or(InputError::Missing(program.file_name()))?)?)
    }
}

/// Why a program cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// An input was not given.
    #[error("the image needs the program `{0}`, which was not given")]
    Missing(&'static str),
}
