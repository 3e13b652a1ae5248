//! A machine that a case wants: the usual one, changed where the case says so. Starts it as often as asked, with the
//! same disk, TPM and firmware variables.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use model::PUBLIC_API_PORT;
use qemu::Vm;
use qemu::machine::{
    Boot, Cache, Clock, Content, Disk, EmulatedTpm, Firmware, Forward, FwCfg, GraphicsCard, Link, Mac, Machine, Nic,
    OnReset, Watchdog,
};
use qemu::run::Tie;

use crate::disk::RawDisk;
use crate::image::Image;

/// A machine to be.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    machine: Machine,
    image: Image,
    dir: PathBuf,
}

/// How a machine gets its kernel; the disk is the same in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// QEMU loads it, on q35.
    Direct,
    /// QEMU loads it, on microvm.
    Microvm,
    /// UEFI firmware and the boot loader on the disk's ESP.
    Uefi,
}

impl MachinePlan {
    /// Two processors, 1 GiB, the image's disk grown to 4 GiB, a user network with the public ports forwarded
    /// from free ports of the host ([`Vm::forward`]); no TPM.
    pub(crate) fn new(name: &str, image: &Image, dir: PathBuf) -> Self {
        let forwards = vec![Forward::tcp(PUBLIC_API_PORT), Forward::udp(model::VPN_PORT)];
        let machine = Machine {
            name: name.into(),
            boot: Boot::Direct(image.kernel()),
            cpus: 2,
            memory_mib: 1024,
            disks: vec![],
            tpm: None,
            nics: vec![Nic { mac: Mac::numbered(1), link: Link::User(forwards) }],
            fw_cfg: vec![],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Restart,
            clock: Clock::OfHost,
        };
        Self { machine, image: image.clone(), dir }.disk_gib(4)
    }

    /// A machine that runs already, with its files in `dir`.
    pub(crate) fn of(machine: Machine, image: &Image, dir: PathBuf) -> Self {
        Self { machine, image: image.clone(), dir }
    }

    /// Boots in this way.
    #[must_use]
    pub fn boot(mut self, via: Via) -> Self {
        self.machine.boot = match via {
            Via::Direct => Boot::Direct(self.image.kernel()),
            Via::Microvm => Boot::Microvm(self.image.kernel()),
            Via::Uefi => Boot::Uefi(Firmware::debian(self.dir.join("vars.fd"))),
        };
        self
    }

    /// Boots by UEFI, with a screen to draw on.
    #[must_use]
    pub fn screen(mut self) -> Self {
        self.machine.boot =
            Boot::Uefi(Firmware { screen: GraphicsCard::Vga, ..Firmware::debian(self.dir.join("vars.fd")) });
        self
    }

    /// This many virtual processors.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.machine.cpus = cpus;
        self
    }

    /// This much memory, in MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.machine.memory_mib = mib;
        self
    }

    /// The image's disk, seen as this large (sparse on the host).
    #[must_use]
    pub fn disk_gib(mut self, gib: u64) -> Self {
        let (base, file) = (Box::new(Content::Raw(self.image.disk())), self.disk());
        let content = Content::Overlay { base, file, bytes: gib << 30 };
        self.machine.disks = vec![Disk { content, serial: "cairn-0".into(), cache: Cache::Unsafe }];
        self
    }

    /// A raw copy of the image's disk in its place, `mib` MiB long, for a case that looks into it from outside.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn raw_disk(self, mib: u64) -> anyhow::Result<(Self, RawDisk)> {
        fs::create_dir_all(&self.dir).context("make the machine's directory")?;
        let path = self.dir.join("disk.img");
        ::image::instantiate(self.image.dir(), &path, mib << 20).context("copy the image's disk")?;
        Ok((self.disk_of(Content::Raw(path.clone())), RawDisk::new(path)))
    }

    /// The machine as it lies there, off, once more: its raw disk, its TPM's state and its firmware's variables are copied
    /// below `dir`, so that what is done to the copy is done to nothing else.
    ///
    /// # Errors
    /// When its disk is no raw one, or a file cannot be copied.
    pub fn copied(&self, dir: &Path, name: &str) -> anyhow::Result<(Self, RawDisk)> {
        let dir = dir.join(name);
        let tpm = dir.join("tpm");
        fs::create_dir_all(&tpm).context("make the copy's directory")?;
        let mut machine = Machine { name: name.into(), ..self.machine.clone() };
        let [Disk { content: Content::Raw(path), .. }] = &mut machine.disks[..] else { bail!("no single raw disk") };
        let from = std::mem::replace(path, dir.join("disk.img"));
        ::image::disk::copy(&from, path, None).context("copy the machine's disk")?;
        let disk = RawDisk::new(path.clone());
        if let Some(EmulatedTpm { state }) = &mut machine.tpm {
            let from = std::mem::replace(state, tpm);
            for entry in fs::read_dir(from).context("list the TPM's state")? {
                let entry = entry.context("list the TPM's state")?;
                if entry.file_type().context("look at the TPM's state")?.is_file() {
                    fs::copy(entry.path(), state.join(entry.file_name())).context("copy the TPM's state")?;
                }
            }
        }
        if let Boot::Uefi(firmware) = &mut machine.boot {
            let from = std::mem::replace(&mut firmware.vars, dir.join("vars.fd"));
            fs::copy(from, &firmware.vars).context("copy the firmware's variables")?;
        }
        Ok((Self { machine, image: self.image.clone(), dir }, disk))
    }

    /// Another disk in its place (for a case that has changed one from outside).
    #[must_use]
    pub fn disk_of(mut self, content: Content) -> Self {
        self.machine.disks = vec![Disk { content, serial: "cairn-0".into(), cache: Cache::Unsafe }];
        self
    }

    /// Every write and flush of its first disk is kept, from the start to the end of a run: [`crate::WriteLog`] reads them.
    #[must_use]
    pub fn logged(mut self) -> Self {
        let log = self.write_log();
        if let Some(Disk { content, .. }) = self.machine.disks.first_mut() {
            *content = Content::Logged { content: Box::new(content.clone()), log };
        }
        self
    }

    /// Where [`Self::logged`] keeps them.
    #[must_use]
    pub fn write_log(&self) -> PathBuf {
        self.dir.join("writes.log")
    }

    /// Another disk, which the guest sees before all others.
    #[must_use]
    pub fn foreign_disk(mut self, path: PathBuf) -> Self {
        let serial = format!("foreign-{}", self.machine.disks.len());
        self.machine.disks.insert(0, Disk { content: Content::Raw(path), serial, cache: Cache::Unsafe });
        self
    }

    /// No disk at all.
    #[must_use]
    pub fn diskless(mut self) -> Self {
        self.machine.disks.clear();
        self
    }

    /// A TPM, new at the first start.
    #[must_use]
    pub fn tpm(mut self) -> Self {
        self.machine.tpm = Some(EmulatedTpm { state: self.dir.join("tpm") });
        self
    }

    /// A hardware watchdog, as QEMU emulates it.
    #[must_use]
    pub fn watchdog(mut self) -> Self {
        self.machine.watchdog = Watchdog::I6300esb;
        self
    }

    /// Another network card, with this at the other end of its cable.
    #[must_use]
    pub fn nic(self, link: Link) -> Self {
        let number = u32::try_from(self.machine.nics.len()).expect("a machine has a few cards") + 1;
        self.nic_of(Mac::numbered(number), link)
    }

    /// The same, with this address: cards of two machines on one network need addresses of their own.
    #[must_use]
    pub fn nic_of(mut self, mac: Mac, link: Link) -> Self {
        self.machine.nics.push(Nic { mac, link });
        self
    }

    /// No network card; [`Self::nic`] adds.
    #[must_use]
    pub fn without_nics(mut self) -> Self {
        self.machine.nics.clear();
        self
    }

    /// An enrolment config by the firmware configuration device.
    ///
    /// # Errors
    /// When it cannot be written to the case's directory.
    pub fn config(self, bytes: &[u8]) -> anyhow::Result<Self> {
        self.fw_cfg("opt/org.cairn/enrolment", bytes)
    }

    /// A file by the firmware configuration device.
    ///
    /// # Errors
    /// When it cannot be written to the case's directory.
    pub fn fw_cfg(mut self, name: &str, bytes: &[u8]) -> anyhow::Result<Self> {
        let path = self.dir.join(name.replace('/', "-"));
        fs::create_dir_all(&self.dir).and_then(|()| fs::write(&path, bytes)).context("write a fw_cfg file")?;
        self.machine.fw_cfg.push(FwCfg { name: name.into(), path });
        Ok(self)
    }

    /// Words added to the kernel's command line (not by UEFI, where it is part of what is measured).
    #[must_use]
    pub fn cmdline(mut self, words: &str) -> Self {
        match &mut self.machine.boot {
            Boot::Direct(kernel) | Boot::Microvm(kernel) => kernel.cmdline = format!("{} {words}", kernel.cmdline),
            Boot::Uefi(_) => {}
        }
        self
    }

    /// The machine itself, for a case that wants something of it that nobody wanted before.
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Where its files lie.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The overlay that is this machine's disk.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.dir.join("disk.qcow2")
    }

    /// Starts it, for the first time or again.
    ///
    /// # Errors
    /// When it does not start; what the guest does is not looked at.
    pub fn start(&self) -> anyhow::Result<Vm> {
        Vm::launch(&self.machine, &self.dir, Tie::Launcher).with_context(|| format!("start `{}`", self.machine.name))
    }
}
