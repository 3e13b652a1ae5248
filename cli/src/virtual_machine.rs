//! A cluster's virtual machine on this host: what it is made of, started, found again, ended.
//!
//! Its files are copies in the cluster's own directory, so that a later build of the image changes no running cluster.

use std::fs;
use std::path::{Path, PathBuf};

use image::{DiskError, Manifest, names};
use model::PUBLIC_API_PORT;
use qemu::Vm;
use qemu::host::{self, Requirement};
use qemu::machine::{
    Boot, Cache, Content, Disk, Firmware, Forward, Kernel, Link, Mac, Machine, Nic, OnReset, Tpm, Watchdog,
};
use qemu::run::{RunError, Tie};

use crate::failure::{Advice, Code};
use crate::machine::Address;
use crate::store::{BootWay, ClusterName, FileError, VirtualMachine};

/// What a microvm's kernel is told beside the image's command line: its TPM is in no table. Elsewhere it would make the
/// driver poke the place of another TPM.
const MICROVM_TPM: &str = "tpm_tis.force=1";

/// Why there is no virtual machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VirtualMachineError {
    /// The host lacks programs.
    #[error("this host lacks {}", missing.iter().map(|one| one.file).collect::<Vec<_>>().join(", "))]
    Host {
        /// What is not there.
        missing: Vec<Requirement>,
    },
    /// There is no image there.
    #[error("there is no image in `{directory}`")]
    NoImage {
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// The image's manifest is not one.
    #[error("read `{path}`")]
    Manifest {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A file of the machine could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its disk could not be made.
    #[error("make the machine's disk")]
    Disk(#[from] DiskError),
    /// QEMU.
    #[error("run the virtual machine")]
    Run(#[from] RunError),
    /// QEMU runs but forwards nothing.
    #[error("the virtual machine has no port on this host")]
    NoPort,
    /// The cluster has none.
    #[error("cluster `{name}` has no virtual machine: it is hardware")]
    Hardware {
        /// Which.
        name: ClusterName,
    },
}

impl Advice for VirtualMachineError {
    fn code(&self) -> Code {
        match self {
            Self::NoImage { .. } => Code::NotFound,
            Self::Hardware { .. } => Code::Usage,
            Self::Disk(DiskError::TooSmall { .. }) => Code::Usage,
            Self::Host { .. } | Self::Manifest { .. } | Self::File(_) | Self::Disk(_) | Self::Run(_) | Self::NoPort => {
                Code::Failed
            }
        }
    }

    fn unchanged(&self) -> &'static str {
        "no virtual machine was left running"
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Host { missing } => {
                let packages: Vec<&str> = missing.iter().map(|one| one.package).collect();
                Some(format!("sudo apt-get install {}", packages.join(" ")))
            }
            Self::NoImage { .. } => {
                Some("cargo xtask image --out out/image, or name one: --image DIR or $CAIRN_IMAGE_DIR".to_owned())
            }
            Self::File(error) => error.next(),
            Self::Manifest { .. } => Some("build the image with this version: cargo xtask image".to_owned()),
            Self::Disk(DiskError::TooSmall { .. }) => Some("give it more: --disk-size".to_owned()),
            Self::Disk(_) | Self::Run(_) | Self::NoPort | Self::Hardware { .. } => None,
        }
    }
}

/// The kernel's command line that the image was built with.
pub(crate) fn cmdline(image: &Path) -> Result<String, VirtualMachineError> {
    let path = image.join(names::MANIFEST);
    let text = fs::read(&path).map_err(|_| VirtualMachineError::NoImage { directory: image.to_owned() })?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|source| VirtualMachineError::Manifest { path, source })?;
    Ok(manifest.cmdline)
}

/// Makes a machine's files in `directory`: kernel, a disk of `disk_bytes`, the signed config on its ESP.
pub(crate) fn build(image: &Path, directory: &Path, disk_bytes: u64, config: &[u8]) -> Result<(), VirtualMachineError> {
    fs::create_dir_all(directory).map_err(FileError::at("make the directory", directory))?;
    for file in [names::KERNEL, names::INITRAMFS] {
        let from = image.join(file);
        fs::copy(&from, directory.join(file)).map_err(FileError::at("copy", &from))?;
    }
    let disk = directory.join(names::DISK);
    image::instantiate(image, &disk, disk_bytes)?;
    Ok(image::put_enrolment(&disk, config)?)
}

impl VirtualMachine {
    /// Whether this host can run it.
    pub(crate) fn fits_host(&self) -> Result<(), VirtualMachineError> {
        let mut wanted = vec![host::QEMU, host::QEMU_IMG];
        wanted.extend(self.tpm.then_some(host::SWTPM));
        if self.boot == BootWay::Uefi {
            wanted.extend([host::OVMF_CODE, host::OVMF_VARS]);
        }
        let missing = host::missing(&wanted);
        if missing.is_empty() { Ok(()) } else { Err(VirtualMachineError::Host { missing }) }
    }

    /// The machine in QEMU's terms, with its files in `directory`.
    fn machine(&self, name: &ClusterName, directory: &Path) -> Machine {
        let kernel = |more: &str| Kernel {
            image: directory.join(names::KERNEL),
            initrd: directory.join(names::INITRAMFS),
            cmdline: format!("{} {more}", self.cmdline).trim_end().to_owned(),
        };
        let boot = match self.boot {
            BootWay::Direct => Boot::Direct(kernel("")),
            BootWay::Microvm => Boot::Microvm(kernel(if self.tpm { MICROVM_TPM } else { "" })),
            BootWay::Uefi => Boot::Uefi(Firmware::debian(directory.join("ovmf-vars.fd"))),
        };
        Machine {
            name: format!("cairn-{name}"),
            boot,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            disks: vec![Disk {
                content: Content::Raw(directory.join(names::DISK)),
                serial: "cairn-0".to_owned(),
                cache: Cache::Writeback,
            }],
            tpm: self.tpm.then(|| Tpm { state: directory.join("tpm") }),
            nics: vec![Nic { mac: Mac::numbered(1), link: Link::User(vec![Forward::tcp(PUBLIC_API_PORT)]) }],
            fw_cfg: vec![],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Restart,
        }
    }

    /// Starts it detached; where its public API is.
    pub(crate) fn start(&self, name: &ClusterName, directory: &Path) -> Result<Address, VirtualMachineError> {
        let vm = Vm::launch(&self.machine(name, directory), directory, Tie::Detached)?;
        let address = vm.forward(PUBLIC_API_PORT).ok_or(VirtualMachineError::NoPort)?;
        address.to_string().parse().map_err(|_| VirtualMachineError::NoPort)
    }
}

/// Ends the machine whose files are in `directory`, if it runs; only one started from there is ever touched.
pub(crate) fn end(directory: &Path) -> Result<(), VirtualMachineError> {
    Ok(Vm::end_detached(directory)?)
}

/// Whether the machine whose files are in `directory` runs.
pub(crate) fn runs(directory: &Path) -> Result<bool, VirtualMachineError> {
    Ok(Vm::runs(directory)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(boot: BootWay, tpm: bool) -> Machine {
        let machine = VirtualMachine { boot, cpus: 2, memory_mib: 512, tpm, cmdline: "console=ttyS0".into() };
        machine.machine(&"home".parse().unwrap(), Path::new("/d"))
    }

    #[test]
    fn each_way_of_boot_gets_what_it_needs() {
        let line = |machine: Machine| match machine.boot {
            Boot::Direct(kernel) | Boot::Microvm(kernel) => Some(kernel.cmdline),
            Boot::Uefi(_) => None,
        };
        assert_eq!(line(machine(BootWay::Direct, true)).as_deref(), Some("console=ttyS0"));
        assert_eq!(line(machine(BootWay::Microvm, true)).as_deref(), Some("console=ttyS0 tpm_tis.force=1"));
        assert_eq!(line(machine(BootWay::Microvm, false)).as_deref(), Some("console=ttyS0"));
        assert_eq!(line(machine(BootWay::Uefi, true)), None);
        assert_eq!(machine(BootWay::Uefi, false).tpm, None);
    }

    /// The config travels on the ESP, as on hardware, and only the public API is forwarded.
    #[test]
    fn nothing_but_the_disk_and_the_public_api_connects_host_and_machine() {
        let machine = machine(BootWay::Direct, true);
        assert_eq!(machine.fw_cfg, []);
        assert_eq!(machine.nics.len(), 1);
        assert_eq!(machine.nics[0].link, Link::User(vec![Forward::tcp(PUBLIC_API_PORT)]));
        assert!(
            matches!(&machine.disks[..], [Disk { content: Content::Raw(file), .. }] if file == Path::new("/d/disk.img"))
        );
    }

    #[test]
    fn without_an_image_the_way_to_one_is_named() {
        let root = tempfile::tempdir().unwrap();
        let missing = cmdline(root.path()).unwrap_err();
        assert!(matches!(missing, VirtualMachineError::NoImage { .. }));
        assert!(missing.next().unwrap().contains("cargo xtask image"));
        fs::write(root.path().join(names::MANIFEST), "{}").unwrap();
        assert!(matches!(cmdline(root.path()), Err(VirtualMachineError::Manifest { .. })));
    }

    #[test]
    fn ending_what_never_ran_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(end(root.path()).is_ok() && end(&root.path().join("absent")).is_ok());
        assert!(!runs(root.path()).unwrap());
    }
}
