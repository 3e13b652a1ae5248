//! A virtual machine as data. It says what there is; [`crate::argv`] says it to QEMU, [`crate::run`] makes it run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Virtual machine, as QEMU is to be started for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Shown in process lists and messages.
    pub name: String,
    /// Board and way of loading the kernel.
    pub boot: Boot,
    /// Virtual processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Disks in the order the guest sees them; QEMU calls them `disk0`, `disk1`, …
    pub disks: Vec<Disk>,
    /// TPM 2.0, if there is one.
    pub tpm: Option<EmulatedTpm>,
    /// Network cards in the order the guest sees them.
    pub nics: Vec<Nic>,
    /// Files handed to the guest by the firmware configuration device.
    pub fw_cfg: Vec<FwCfg>,
    /// Hardware watchdog.
    pub watchdog: Watchdog,
    /// Effect of a reset by the guest.
    pub on_reset: OnReset,
    /// Time that the clock on its board shows.
    pub clock: Clock,
}

/// Board and way of loading the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boot {
    /// q35; QEMU loads the kernel.
    Direct(Kernel),
    /// microvm with ACPI (without it a guest cannot power off); QEMU loads the kernel, and tells it on its command line what this
    /// board has and does not announce.
    Microvm(Kernel),
    /// q35 with UEFI firmware that boots from the first disk.
    Uefi(Firmware),
}

/// Kernel that QEMU loads by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// bzImage.
    pub image: PathBuf,
    /// Initramfs, compressed or not.
    pub initrd: PathBuf,
    /// Kernel command line.
    pub cmdline: String,
}

/// UEFI firmware: code shared by all, variables of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Firmware {
    /// Code, read-only.
    pub code: PathBuf,
    /// Template that `vars` is copied from where there is none yet.
    pub template: PathBuf,
    /// This machine's variables; kept over runs.
    pub vars: PathBuf,
    /// Screen to draw on. Without firmware a kernel has no screen either: nothing else sets a graphics mode.
    pub screen: GraphicsCard,
}

/// A graphics card and its screen, which nobody sees: the monitor's `screendump` shows what is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphicsCard {
    /// No card.
    Absent,
    /// A standard VGA card.
    Vga,
}

impl Machine {
    /// The same machine with its files elsewhere: whatever lies below `from` lies below `to`. Below the empty path lies
    /// whatever is relative.
    #[must_use]
    pub fn moved(mut self, from: &Path, to: &Path) -> Self {
        let moved = |path: &mut PathBuf| {
            if let Ok(inner) = path.strip_prefix(from) {
                *path = to.join(inner);
            }
        };
        self.files().into_iter().for_each(moved);
        self
    }

    /// Every file and directory that it names; but for sockets of cables, which belong to the network.
    fn files(&mut self) -> Vec<&mut PathBuf> {
        let mut files = Vec::new();
        match &mut self.boot {
            Boot::Direct(kernel) | Boot::Microvm(kernel) => files.extend([&mut kernel.image, &mut kernel.initrd]),
            Boot::Uefi(firmware) => files.extend([&mut firmware.code, &mut firmware.template, &mut firmware.vars]),
        }
        self.disks.iter_mut().for_each(|disk| disk.content.files(&mut files));
        files.extend(self.tpm.iter_mut().map(|tpm| &mut tpm.state));
        files.extend(self.fw_cfg.iter_mut().map(|file| &mut file.path));
        files
    }
}

impl Content {
    /// Lays a new file in `dir` over the content, of the disk with this number among a machine's, `bytes` long as the guest sees
    /// it. The content below is never written again.
    #[must_use]
    pub fn overlaid(self, disk: usize, dir: &Path, bytes: u64) -> Self {
        let file = dir.join(format!("disk{disk}.{}.qcow2", self.layers().len()));
        Self::Overlay { base: Box::new(self), file, bytes }
    }

    /// Files that hold its bytes, from the one that is written down.
    #[must_use]
    pub fn layers(&self) -> Vec<&Path> {
        match self {
            Self::Raw(file) => vec![file],
            Self::Overlay { base, file, .. } => [vec![file.as_path()], base.layers()].concat(),
            Self::Logged { content, .. } => content.layers(),
        }
    }

    fn files<'a>(&'a mut self, files: &mut Vec<&'a mut PathBuf>) {
        match self {
            Self::Raw(file) => files.push(file),
            Self::Overlay { base, file, .. } => {
                files.push(file);
                base.files(files);
            }
            Self::Logged { content, log } => {
                files.push(log);
                content.files(files);
            }
        }
    }
}

impl Firmware {
    /// Debian's OVMF with this machine's variables in `vars`, without a screen.
    #[must_use]
    pub fn debian(vars: PathBuf) -> Self {
        let (code, template) = (crate::host::OVMF_CODE.file.into(), crate::host::OVMF_VARS.file.into());
        Self { code, template, vars, screen: GraphicsCard::Absent }
    }
}

/// Virtio disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Where its bytes are.
    pub content: Content,
    /// Serial number that the guest sees (at most 20 bytes).
    pub serial: String,
    /// Meaning of a flush by the guest.
    pub cache: Cache,
}

/// Where a disk's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// A raw image, written in place.
    Raw(PathBuf),
    /// A qcow2 file over an image that is never written; made where there is none yet, then kept over runs.
    Overlay {
        /// The image below: a raw one, or such a file again.
        base: Box<Self>,
        /// The qcow2 file.
        file: PathBuf,
        /// Size that the guest sees, in bytes; at least that of `base`.
        bytes: u64,
    },
    /// A disk like those above, with every write and flush of the guest kept in their order.
    Logged {
        /// Where the bytes are.
        content: Box<Self>,
        /// File of the writes, in the form of dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst)
        /// with sectors of 512 bytes; made anew at every start.
        log: PathBuf,
    },
}

/// Meaning of a flush by the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Flushes reach the host's disk.
    Writeback,
    /// Flushes end in the host's page cache: faster, and still safe against the death of QEMU (not of the host).
    Unsafe,
}

/// A TPM 2.0: tpm-crb on q35, tpm-tis on microvm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmulatedTpm {
    /// Directory of its state; an empty or absent one is a new TPM.
    pub state: PathBuf,
}

/// A virtio network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Hardware address.
    pub mac: Mac,
    /// Other end of the card's cable.
    pub link: Link,
}

/// Hardware address of a network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The `number`th address under QEMU's prefix 52:54:00; numbers repeat after 2^24.
    #[must_use]
    pub const fn numbered(number: u32) -> Self {
        let [_, a, b, c] = number.to_be_bytes();
        Self([0x52, 0x54, 0x00, a, b, c])
    }

    /// Whether it stands for a group of stations, or for all (IEEE 802.3, clause 3.2.3).
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Other end of a network card's cable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// QEMU's user network, always restricted: it gives an address by DHCP and forwards ports, and nothing gets out.
    User(Vec<Forward>),
    /// Ethernet frames over a unix socket on which QEMU listens, and which a [`crate::network::Cable`] connects to: who
    /// comes again is taken again, so that a network may end and begin beside a machine that runs. (As the one that
    /// connects, QEMU tries again from version 8.0 on only.)
    Stream(PathBuf),
}

/// A port of the host's loopback address that leads to a port of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// Which protocol.
    pub protocol: Protocol,
    /// Port on 127.0.0.1; none lets the host choose a free one (ask [`crate::Vm::forward`]).
    pub host: Option<u16>,
    /// Port in the guest.
    pub guest: u16,
}

impl Forward {
    /// A free TCP port of the host to the guest's port `guest`.
    #[must_use]
    pub const fn tcp(guest: u16) -> Self {
        Self { protocol: Protocol::Tcp, host: None, guest }
    }

    /// The same for UDP.
    #[must_use]
    pub const fn udp(guest: u16) -> Self {
        Self { protocol: Protocol::Udp, host: None, guest }
    }
}

/// Protocol of a [`Forward`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A file that the guest finds under `/sys/firmware/qemu_fw_cfg/by_name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FwCfg {
    /// Name, by convention `opt/<reversed domain>/…`.
    pub name: String,
    /// File on the host.
    pub path: PathBuf,
}

/// Hardware watchdog of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watchdog {
    /// No watchdog.
    Absent,
    /// Intel 6300ESB; when it bites the machine is reset.
    I6300esb,
}

/// Effect of a reset by the guest (a reboot, a triple fault, the watchdog).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnReset {
    /// The machine starts again.
    Restart,
    /// QEMU ends.
    Exit,
}

/// The clock on a board. It goes on from where it begins; what a guest sets it to is forgotten with QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The time of the host.
    OfHost,
    /// At power-on, this long since 1970-01-01 00:00 UTC.
    Begins(Duration),
    /// This much more than the host has: all that QEMU asks the host about the time of day is answered so (libfaketime).
    Ahead(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_differ_by_number() {
        assert_eq!(Mac::numbered(0x01_02_03).to_string(), "52:54:00:01:02:03");
        assert_ne!(Mac::numbered(1), Mac::numbered(2));
    }

    #[test]
    fn a_moved_machine_keeps_what_is_not_its_own() {
        let overlay = |base: &str, file: &str| Content::Overlay {
            base: Box::new(Content::Raw(base.into())),
            file: file.into(),
            bytes: 1,
        };
        let machine = |dir: &str| Machine {
            name: "m1".into(),
            boot: Boot::Direct(Kernel {
                image: "/image/k".into(),
                initrd: format!("{dir}i").into(),
                cmdline: "/m/".into(),
            }),
            cpus: 1,
            memory_mib: 128,
            disks: vec![Disk {
                content: overlay("/image/disk", &format!("{dir}a/disk")),
                serial: "/m/".into(),
                cache: Cache::Unsafe,
            }],
            tpm: Some(EmulatedTpm { state: format!("{dir}tpm").into() }),
            nics: vec![Nic { mac: Mac::numbered(1), link: Link::Stream("/m/cable".into()) }],
            fw_cfg: vec![FwCfg { name: "opt/x".into(), path: format!("{dir}config").into() }],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Restart,
            clock: Clock::OfHost,
        };
        let (here, saved) = (machine("/m/"), machine(""));
        assert_eq!(here.clone().moved(Path::new("/m"), Path::new("")), saved);
        assert_eq!(saved.moved(Path::new(""), Path::new("/m")), here);
        let uefi =
            |dir: &str| Machine { boot: Boot::Uefi(Firmware::debian(format!("{dir}vars").into())), ..here.clone() };
        assert_eq!(uefi("/m/").moved(Path::new("/m"), Path::new("/n")).boot, uefi("/n/").boot);
    }
}
