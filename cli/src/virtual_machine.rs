//! A cluster's virtual machine on this host: what it is made of, started, found again, ended.
//!
//! Its files are copies in the cluster's own directory, so that a later build of the image changes no running cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use image::{DiskError, Manifest, names};
use model::NodeName;
use qemu::Vm;
use qemu::host::{self, Acceleration, Requirement};
use qemu::machine::{
    Boot, Cache, Clock, Content, Disk, EmulatedTpm, Firmware, Kernel, Link, Machine, Nic, OnReset, Watchdog,
};
use qemu::network::control;
use qemu::run::{RunError, Tie};

use crate::failure::{Advice, Code, NOTHING};
use crate::store::{BootWay, ClusterName, FileError, VirtualMachine};

/// The least memory that a machine is made with. Cases of the tests make clusters of such machines, with three coordinators.
const LEAST_MIB: u64 = 128;
/// The same with Kubernetes: its services alone hold 730 MiB at rest, and pods and the images' files want their place.
const LEAST_KUBERNETES_MIB: u64 = 2048;

/// Why there is no virtual machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VirtualMachineError {
    /// The host lacks programs.
    #[error("this host lacks {}", missing.iter().map(|one| one.file).collect::<Vec<_>>().join(", "))]
    Host { missing: Vec<Requirement> },
    /// The machine would not come up with so little.
    #[error("a machine {} needs {} of memory, and {} is less", if *kubernetes { "with Kubernetes" } else { "without Kubernetes" }, memory(*needed_mib), memory(*wanted_mib))]
    TooLittleMemory {
        /// Whether pods will run.
        kubernetes: bool,
        wanted_mib: u64,
        needed_mib: u64,
    },
    /// The host has not as much.
    #[error("this host has {} of memory, and {} is more", memory(*has_mib), memory(*wanted_mib))]
    TooMuchMemory { wanted_mib: u64, has_mib: u64 },
    /// The host has not as much left.
    #[error("{} of memory, and this host has {} left", needs(*machines, *each_mib), memory(*free_mib))]
    NoRoom {
        /// How many are to run.
        machines: usize,
        /// In the largest of them.
        each_mib: u64,
        free_mib: u64,
        /// Memory that a machine needs at least.
        least_mib: u64,
    },
    /// There is no image there.
    #[error("there is no image in `{directory}`")]
    NoImage { directory: PathBuf },
    /// The image's manifest is not one.
    #[error("read `{path}`")]
    Manifest { path: PathBuf, source: serde_json::Error },
    /// A file of the machine could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The machine's disk could not be made.
    #[error("make the machine's disk")]
    Disk(#[from] DiskError),
    /// QEMU.
    #[error("run the virtual machine")]
    Run(#[from] RunError),
    /// The cluster has none.
    #[error("cluster `{name}` has no virtual machine: it is hardware")]
    Hardware { name: ClusterName },
}

impl Advice for VirtualMachineError {
    fn code(&self) -> Code {
        match self {
            Self::NoImage { .. } => Code::NotFound,
            Self::Hardware { .. } | Self::TooLittleMemory { .. } | Self::TooMuchMemory { .. } => Code::Usage,
            Self::Disk(DiskError::TooSmall { .. }) => Code::Usage,
            Self::NoRoom { .. }
            | Self::Host { .. }
            | Self::Manifest { .. }
            | Self::File(_)
            | Self::Disk(_)
            | Self::Run(_) => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Host { .. }
            | Self::TooLittleMemory { .. }
            | Self::TooMuchMemory { .. }
            | Self::NoRoom { .. }
            | Self::NoImage { .. }
            | Self::Manifest { .. }
            | Self::Hardware { .. } => NOTHING,
            // Making files is part of commands that say what became of them.
            Self::File(_) | Self::Disk(_) => "no virtual machine was started",
            Self::Run(RunError::Running(_)) => "the machine runs as before",
            Self::Run(RunError::StillUp { .. }) => "the machine was told to power off and has not done so yet",
            Self::Run(RunError::Unkillable(_)) => "the machine may still be there; none of its files were removed",
            Self::Run(
                RunError::Prepare(_)
                | RunError::Tpm(_)
                | RunError::Spawn(_)
                | RunError::Watch(_)
                | RunError::Start { .. },
            ) => "no virtual machine was started",
            // Of one that starts and does not answer nothing is left; one that was running is not touched.
            Self::Run(RunError::Monitor(_)) => "a machine that was running goes on; none was started",
        }
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
            Self::TooLittleMemory { .. } => Some("give it more: --memory".to_owned()),
            Self::TooMuchMemory { .. } => Some("give it less: --memory".to_owned()),
            Self::NoRoom { machines, each_mib, free_mib, least_mib } => {
                Some(what_fits(*machines, *each_mib, *free_mib, *least_mib))
            }
            Self::Hardware { name } => Some(format!("steer the machine itself: cairnctl -c {name} machine --help")),
            Self::Run(RunError::StillUp { .. }) => {
                Some("wait and try again, or cut its power: cairnctl cluster stop --now".to_owned())
            }
            Self::File(error) => error.next(),
            Self::Manifest { .. } => Some("build the image with this version: cargo xtask image".to_owned()),
            Self::Disk(DiskError::TooSmall { .. }) => Some("give it more: --disk-size".to_owned()),
            Self::Disk(_) | Self::Run(_) => None,
        }
    }
}

/// Manifest by which an image describes itself.
pub(crate) fn manifest(image: &Path) -> Result<Manifest, VirtualMachineError> {
    let path = image.join(names::MANIFEST);
    let text = fs::read(&path).map_err(|_| VirtualMachineError::NoImage { directory: image.to_owned() })?;
    serde_json::from_slice(&text).map_err(|source| VirtualMachineError::Manifest { path, source })
}

/// Whether this much memory is enough for what a machine is to run, and not more than the host has. What cannot be found
/// out about the host is left to QEMU.
pub(crate) fn fits_memory(mib: u32, kubernetes: bool, has_mib: Option<u64>) -> Result<(), VirtualMachineError> {
    let wanted_mib = u64::from(mib);
    let needed_mib = least_mib(kubernetes);
    match has_mib {
        _ if wanted_mib < needed_mib => {
            Err(VirtualMachineError::TooLittleMemory { kubernetes, wanted_mib, needed_mib })
        }
        Some(has_mib) if wanted_mib > has_mib => Err(VirtualMachineError::TooMuchMemory { wanted_mib, has_mib }),
        Some(_) | None => Ok(()),
    }
}

/// Whether so many machines find the memory that they will use. What cannot be found out about the host is left to QEMU.
pub(crate) fn fits_beside(
    machines: usize,
    each_mib: u32,
    kubernetes: bool,
    free_mib: Option<u64>,
) -> Result<(), VirtualMachineError> {
    let (each_mib, least_mib) = (u64::from(each_mib), least_mib(kubernetes));
    let needed = each_mib.saturating_mul(u64::try_from(machines).unwrap_or(u64::MAX));
    match free_mib {
        Some(free_mib) if needed > free_mib => {
            Err(VirtualMachineError::NoRoom { machines, each_mib, free_mib, least_mib })
        }
        Some(_) | None => Ok(()),
    }
}

/// Virtual processors that each of so many machines gets where nobody says. Emulated ones beyond the host's own make machines wait for
/// each other: three control planes of two on two processors were not Ready after nine minutes, of one after three and a half.
pub(crate) fn cpus(machines: usize, acceleration: Acceleration, processors: usize) -> u32 {
    match acceleration {
        Acceleration::Tcg if machines > processors => 1,
        Acceleration::Tcg | Acceleration::Kvm => 2,
    }
}

const fn least_mib(kubernetes: bool) -> u64 {
    if kubernetes { LEAST_KUBERNETES_MIB } else { LEAST_MIB }
}

fn needs(machines: usize, each_mib: u64) -> String {
    match machines {
        1 => format!("a machine needs {}", memory(each_mib)),
        _ => {
            let all = each_mib.saturating_mul(u64::try_from(machines).unwrap_or(u64::MAX));
            format!("{machines} machines of {} need {}", memory(each_mib), memory(all))
        }
    }
}

/// Advice on what would fit instead.
fn what_fits(machines: usize, each_mib: u64, free_mib: u64, least_mib: u64) -> String {
    let fewer = free_mib / each_mib.max(1);
    let smaller = free_mib / u64::try_from(machines).unwrap_or(u64::MAX).max(1);
    let fewer = (fewer > 0).then(|| format!("{fewer} of {}", memory(each_mib)));
    let smaller = (smaller >= least_mib).then(|| format!("{machines} of {smaller} MiB each (--memory {smaller}M)"));
    match (fewer, smaller) {
        (Some(fewer), Some(smaller)) => format!("{fewer} would fit, or {smaller}"),
        (Some(one), None) | (None, Some(one)) => format!("{one} would fit"),
        (None, None) => "end what uses the host's memory, or stop another cluster: cairnctl cluster list".to_owned(),
    }
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

    /// The machine in QEMU's terms.
    fn machine(&self, place: &Place<'_>) -> Machine {
        let Place { cluster, name, number, directory, socket } = *place;
        let kernel = || Kernel {
            image: directory.join(names::KERNEL),
            initrd: directory.join(names::INITRAMFS),
            cmdline: self.cmdline.clone(),
        };
        let boot = match self.boot {
            BootWay::Direct => Boot::Direct(kernel()),
            BootWay::Microvm => Boot::Microvm(kernel()),
            BootWay::Uefi => Boot::Uefi(Firmware::debian(directory.join("ovmf-vars.fd"))),
        };
        let disk = directory.join(names::DISK);
        // For an overlay that somebody has removed: what is made in its place shows the disk as it was saved.
        let bytes = fs::metadata(&disk).map_or(0, |there| there.len());
        let content = (0..self.overlays).fold(Content::Raw(disk), |below, _| below.overlaid(0, directory, bytes));
        Machine {
            name: title(cluster, name),
            boot,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            disks: vec![Disk { content, serial: "cairn-0".to_owned(), cache: Cache::Writeback }],
            tpm: self.tpm.then(|| EmulatedTpm { state: directory.join("tpm") }),
            nics: vec![Nic { mac: control::card(number), link: Link::Stream(socket.to_owned()) }],
            fw_cfg: vec![],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Restart,
            clock: Clock::OfHost,
        }
    }

    /// Starts the machine, detached from this program.
    pub(crate) fn start(&self, place: &Place<'_>) -> Result<(), VirtualMachineError> {
        Vm::launch(&self.machine(place), place.directory, Tie::Detached)?;
        Ok(())
    }
}

/// Name that QEMU gives a cluster's machine, and a list of processes shows.
pub(crate) fn title(cluster: &ClusterName, name: &NodeName) -> String {
    format!("cairn-{cluster}-{name}")
}

/// Which of a cluster's machines one is, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The cluster.
    pub cluster: &'a ClusterName,
    /// Name of the machine.
    pub name: &'a NodeName,
    /// Number of the machine on the virtual network.
    pub number: u8,
    /// Directory of the machine's files.
    pub directory: &'a Path,
    /// Where the virtual network looks for its card.
    pub socket: &'a Path,
}

fn memory(mib: u64) -> String {
    crate::screen::size(mib << 20)
}

/// Whether a machine runs whose processors stand still.
pub(crate) fn stands_still(directory: &Path) -> Result<bool, VirtualMachineError> {
    let Some(mut vm) = Vm::attach(directory)? else { return Ok(false) };
    Ok(vm.stands_still().map_err(RunError::from)?)
}

/// Has a machine go on that stands still since a save of it was cut short; whether it did stand still.
pub(crate) fn wake(directory: &Path) -> Result<bool, VirtualMachineError> {
    Ok(Vm::wake_detached(directory)?)
}

/// Has the machine power itself off and waits for it.
pub(crate) fn stop(directory: &Path, patience: Duration) -> Result<(), VirtualMachineError> {
    wake(directory)?;
    Ok(Vm::stop_detached(directory, qemu::Deadline::after(patience))?)
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

    #[test]
    fn emulated_machines_beyond_the_hosts_processors_get_one_each() {
        let emulated = |machines, processors| cpus(machines, Acceleration::Tcg, processors);
        assert_eq!([emulated(1, 1), emulated(2, 2), emulated(3, 2), emulated(3, 8)], [2, 2, 1, 2]);
        assert_eq!(cpus(3, Acceleration::Kvm, 2), 2);
    }

    fn virtual_machine(boot: BootWay, tpm: bool) -> VirtualMachine {
        let (cmdline, image) = ("console=ttyS0".to_owned(), String::new());
        VirtualMachine { boot, cpus: 2, memory_mib: 512, tpm, cmdline, image, overlays: 0 }
    }

    fn machine(boot: BootWay, tpm: bool) -> Machine {
        placed(&virtual_machine(boot, tpm))
    }

    fn placed(machine: &VirtualMachine) -> Machine {
        let (cluster, name) = ("home".parse().unwrap(), NodeName::stored("m2").unwrap());
        let (directory, socket) = (Path::new("/d"), Path::new("/s/m2.cable"));
        machine.machine(&Place { cluster: &cluster, name: &name, number: 2, directory, socket })
    }

    #[test]
    fn each_way_of_boot_gets_what_it_needs() {
        let line = |machine: Machine| match machine.boot {
            Boot::Direct(kernel) | Boot::Microvm(kernel) => Some(kernel.cmdline),
            Boot::Uefi(_) => None,
        };
        assert_eq!(line(machine(BootWay::Direct, true)).as_deref(), Some("console=ttyS0"));
        assert_eq!(line(machine(BootWay::Microvm, true)).as_deref(), Some("console=ttyS0"));
        assert_eq!(line(machine(BootWay::Uefi, true)), None);
        assert_eq!(machine(BootWay::Uefi, false).tpm, None);
    }

    /// The config travels on the ESP, as on hardware, and the one card is on the virtual network.
    #[test]
    fn only_disk_and_virtual_network_connect_host_and_machine() {
        let machine = machine(BootWay::Direct, true);
        assert_eq!(machine.fw_cfg, []);
        assert_eq!(machine.nics.len(), 1);
        assert_eq!(machine.nics[0].link, Link::Stream("/s/m2.cable".into()));
        assert_eq!(machine.nics[0].mac, qemu::machine::Mac::numbered(2));
        assert!(
            matches!(&machine.disks[..], [Disk { content: Content::Raw(file), .. }] if file == Path::new("/d/disk.img"))
        );
    }

    /// A restored machine's disk is one file for all copies.
    ///
    /// Proves: S13
    #[test]
    fn a_restored_machine_that_starts_again_writes_to_an_overlay() {
        let restored = VirtualMachine { overlays: 2, ..virtual_machine(BootWay::Direct, true) };
        let machine = placed(&restored);
        let layers = machine.disks[0].content.layers();
        assert_eq!(layers, ["/d/disk0.2.qcow2", "/d/disk0.1.qcow2", "/d/disk.img"].map(Path::new));
    }

    #[test]
    fn memory_is_refused_below_the_machines_need_or_above_the_hosts() {
        let said = |mib, kubernetes| {
            let refused = fits_memory(mib, kubernetes, Some(24_000)).unwrap_err();
            assert_eq!((refused.code(), refused.unchanged()), (Code::Usage, NOTHING));
            assert!(refused.next().unwrap().contains("--memory"));
            refused.to_string()
        };
        assert_eq!(said(64, true), "a machine with Kubernetes needs 2.0 GiB of memory, and 64 MiB is less");
        assert_eq!(said(127, false), "a machine without Kubernetes needs 128 MiB of memory, and 127 MiB is less");
        assert_eq!(said(921_600, true), "this host has 23.4 GiB of memory, and 900.0 GiB is more");
        for (mib, kubernetes) in [(128, false), (2048, true), (24_000, true)] {
            fits_memory(mib, kubernetes, Some(24_000)).unwrap();
        }
        fits_memory(u32::MAX, true, None).unwrap();
    }

    #[test]
    fn machines_beyond_the_hosts_memory_are_refused_with_what_fits() {
        let said = |machines, mib, kubernetes, free| {
            let refused = fits_beside(machines, mib, kubernetes, Some(free)).unwrap_err();
            assert_eq!((refused.code(), refused.unchanged()), (Code::Failed, NOTHING));
            (refused.to_string(), refused.next().unwrap())
        };
        let (what, next) = said(5, 3072, true, 12_288);
        assert_eq!(what, "5 machines of 3.0 GiB need 15.0 GiB of memory, and this host has 12.0 GiB left");
        assert_eq!(next, "4 of 3.0 GiB would fit, or 5 of 2457 MiB each (--memory 2457M)");
        assert_eq!(said(5, 3072, true, 9000).1, "2 of 3.0 GiB would fit", "less would not do for Kubernetes");
        assert_eq!(said(1, 3072, false, 600).1, "1 of 600 MiB each (--memory 600M) would fit");
        let (what, next) = said(1, 3072, true, 600);
        assert_eq!(what, "a machine needs 3.0 GiB of memory, and this host has 600 MiB left");
        assert!(next.contains("cairnctl cluster list"), "{next}");
        fits_beside(4, 3072, true, Some(12_288)).unwrap();
        fits_beside(usize::MAX, u32::MAX, true, None).unwrap();
    }

    #[test]
    fn without_an_image_the_way_to_one_is_named() {
        let root = tempfile::tempdir().unwrap();
        let missing = manifest(root.path()).unwrap_err();
        assert!(matches!(missing, VirtualMachineError::NoImage { .. }));
        assert!(missing.next().unwrap().contains("cargo xtask image"));
        fs::write(root.path().join(names::MANIFEST), "{}").unwrap();
        assert!(matches!(manifest(root.path()), Err(VirtualMachineError::Manifest { .. })));
    }

    #[test]
    fn ending_what_never_ran_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(end(root.path()).is_ok() && end(&root.path().join("absent")).is_ok());
        assert!(!runs(root.path()).unwrap());
    }
}
