//! Stage 0, in the initramfs: find the system slot, set up dm-verity, switch root, run the same binary from there.
//!
//! ```text
//!   kernel ─► /init (initramfs) ─► command line and extras refused? ─► slot by PARTUUID ─► dm-verity ─► erofs ─► /bin/init
//! ```
//! It trusts only what lies inside the initramfs, which a UKI measures: root hash and expected command line. It never
//! touches the TPM, the ESP or the data partition.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use formats::verity::Verity;
use model::{BootClass, Uuid};
use rustix::mount::{MountFlags, mount, mount_move};
use sys::device_mapper::{Access, Device, DmTarget};

use crate::machine::disk::Refused;
use crate::machine::kernel;
use crate::runtime::{clock, durable};

/// Stage 0's own files in the initramfs.
const VERITY: &str = "/cairn/verity";
const COMMAND_LINE: &str = "/cairn/cmdline";
/// Directory that the systemd stub leaves when credentials, addons or extensions were passed next to the UKI.
const EXTRAS: &str = "/.extra";
/// Disks that spin up or sit behind USB take their time.
const SLOT_DEADLINE: Duration = Duration::from_secs(20);

/// Obstacle between the machine and its verified root.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A base file system did not mount.
    #[error("mount `{0}`")]
    Mount(&'static str, #[source] io::Error),
    /// A file of the initramfs cannot be read.
    #[error("read `{0}`")]
    Read(&'static str, #[source] io::Error),
    /// `/cairn/verity` is not what the image build writes.
    #[error("parse `{VERITY}`")]
    Verity(#[source] formats::verity::BadVerity),
    /// Somebody changed the command line.
    #[error("the kernel was started with another command line than the image's: refused; found `{found}`")]
    CommandLine { found: String },
    /// Somebody passed credentials or addons.
    #[error("the boot loader passed credentials or addons (`{EXTRAS}`): refused; remove them from the ESP")]
    Extras,
    /// No disk has the slot of this image.
    #[error("no disk has a system partition {0}, which this kernel's root lies on; waited 20 s")]
    NoSlot(Uuid),
    /// The kernel refused the verity table.
    #[error("set up dm-verity")]
    DeviceMapper(#[source] sys::device_mapper::Error),
    /// The verified root could not be entered.
    #[error("switch to the verified root: {0}")]
    Switch(&'static str, #[source] io::Error),
}

/// Whether this process runs from the initramfs.
pub(crate) fn is_stage0() -> bool {
    matches!(durable::exists(Path::new(VERITY)), Ok(true))
}

/// Runs stage 0; returns only what went wrong.
pub(crate) fn run() -> Result<Infallible, Error> {
    let began = clock::uptime();
    for (kind, target) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(kind, target, kind, flags, None).map_err(|error| Error::Mount(target, error.into()))?;
    }
    crate::runtime::console::attach();
    let command_line = read("/proc/cmdline")?;
    if kernel::boot_class() == BootClass::Uefi {
        let extras = durable::exists(Path::new(EXTRAS)).unwrap_or(true);
        refuse_changes(&command_line, &read(COMMAND_LINE)?, extras)?;
    }
    let verity: Verity = read(VERITY)?.parse().map_err(Error::Verity)?;
    let slot = find_slot(verity.root.partition_uuid())?;
    let table = verity.table(&slot.to_string_lossy());
    let target = DmTarget { kind: "verity", sectors: verity.sectors(), parameters: &table };
    let root = Device::create("root", Access::ReadOnly, &target).map_err(Error::DeviceMapper)?;
    switch(&root.path())?;
    let environment = [(kernel::ROOT_HASH, verity.root.to_string()), (kernel::BEGAN, began.as_micros().to_string())];
    let error = sys::process::execute("/bin/init", &["init"], &environment);
    Err(Error::Switch("execute /bin/init", error))
}

/// Under UEFI only the measured command line runs, and nothing passed beside it.
fn refuse_changes(found: &str, expected: &str, extras: bool) -> Result<(), Error> {
    if found.trim_end() != expected.trim_end() {
        return Err(Error::CommandLine { found: found.trim_end().to_owned() });
    }
    if extras { Err(Error::Extras) } else { Ok(()) }
}

fn read(path: &'static str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::Read(path, error))
}

/// Looks for the partition on all disks until the deadline: whenever the kernel announces a device, and every tenth of a
/// second, since an announcement between two looks is not heard. What is skipped is said once.
fn find_slot(wanted: Uuid) -> Result<PathBuf, Error> {
    let deadline = clock::uptime() + SLOT_DEADLINE;
    let mut said = BTreeSet::new();
    let mut say = |disk: &Path, refused: &Refused| {
        let sentence = format!("disk {} is skipped and left alone: {refused}", disk.display());
        if said.insert(sentence.clone()) {
            // An error to the kernel, so that all consoles show it; the log of the kernel keeps it.
            let _there_is_nowhere_else_to_say_it = fs::write("/dev/kmsg", format!("<3>init: {sentence}"));
        }
    };
    loop {
        if let Some(path) = crate::machine::disk::partition_by_uuid(wanted, &mut say) {
            return Ok(path);
        }
        if clock::uptime() > deadline {
            return Err(Error::NoSlot(wanted));
        }
        wait_for_uevent(Duration::from_millis(100));
    }
}

/// Waits until the kernel announces a device, at most `longest`.
fn wait_for_uevent(longest: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netlink, socket_with};
    let kind = SocketType::DGRAM;
    let Ok(socket) = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, Some(netlink::KOBJECT_UEVENT))
    else {
        return;
    };
    let _then_only_the_timeout_counts = bind(&socket, &netlink::SocketAddrNetlink::new(0, 1));
    let timeout = Timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
    let _either_way_it_looks_again = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout));
}

fn switch(device: &Path) -> Result<(), Error> {
    const NEW: &str = "/root";
    let step = |name| move |error: rustix::io::Errno| Error::Switch(name, error.into());
    refuse_blank(device).map_err(|error| Error::Switch("read the verified device", error))?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    mount(device, NEW, "erofs", flags, None).map_err(step("mount the root"))?;
    for target in ["/dev", "/proc", "/sys"] {
        mount_move(target, format!("{NEW}{target}")).map_err(step("move /dev, /proc, /sys"))?;
    }
    // The initramfs is memory: what is not needed any more is given back.
    for path in ["/init", VERITY, COMMAND_LINE] {
        fs::remove_file(path).map_err(|error| Error::Switch("empty the initramfs", error))?;
    }
    rustix::process::chdir(NEW).map_err(step("enter the root"))?;
    mount_move(".", "/").map_err(step("make it the root"))?;
    rustix::process::chroot(".").map_err(step("make it the root"))?;
    rustix::process::chdir("/").map_err(step("enter the root"))
}

/// Reads the superblock through dm-verity: a wrong root hash shows here, before anything is mounted.
fn refuse_blank(device: &Path) -> io::Result<()> {
    let mut file = File::open(device)?;
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut [0; 4096])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: O15
    #[test]
    fn under_uefi_only_the_images_own_command_line_runs() {
        let ours = "console=ttyS0 panic=10\n";
        assert!(refuse_changes("console=ttyS0 panic=10", ours, false).is_ok());
        for changed in ["", "console=ttyS0 panic=10 init=/bin/sh", "console=ttyS0  panic=10", "panic=10 console=ttyS0"]
        {
            let refused = refuse_changes(changed, ours, false);
            assert!(matches!(refused, Err(Error::CommandLine { found }) if found == changed), "{changed}");
        }
        assert!(matches!(refuse_changes("console=ttyS0 panic=10", ours, true), Err(Error::Extras)));
    }
}
