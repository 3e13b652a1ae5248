//! A [`Machine`] in QEMU's words. Pure: the same machine on the same host gives the same arguments.
//!
//! Written for QEMU 7.2. The machine starts paused (`-S`), so that monitor and console are there before its first byte.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::{Acceleration, Host};
use crate::machine::{
    Boot, Cache, Clock, Content, Disk, EmulatedTpm, Forward, FwCfg, GraphicsCard, Link, Machine, Nic, OnReset,
    Protocol, Watchdog,
};

/// Processor of an emulated machine: all that QEMU knows, but for the two features that promise fast `rep movsb` and `rep stosb`
/// (arch/x86/lib/clear_page_64.S). QEMU carries those out byte by byte, and with them kernel, C library and Go clear and copy their pages:
/// without them a page fault takes half the time, and Kubernetes a fifth less of the host's processors.
const EMULATED: &str = "max,-erms,-fsrm";

/// Files of one run that QEMU is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFiles {
    /// Monitor socket; QEMU listens.
    pub qmp: PathBuf,
    /// Serial port's socket; QEMU listens, for a person who wants to type.
    pub serial: PathBuf,
    /// Everything the serial port ever said; QEMU appends.
    pub serial_log: PathBuf,
    /// Control socket of the TPM; swtpm listens.
    pub tpm: PathBuf,
}

impl Machine {
    /// The arguments behind the program's name.
    #[must_use]
    pub fn argv(&self, files: &RunFiles, host: &Host) -> Vec<String> {
        let mut argv = Argv(Vec::new());
        argv.pair("-name", escape(&self.name));
        for flag in ["-nodefaults", "-no-user-config", "-S"] {
            argv.0.push(flag.into());
        }
        argv.pair("-display", "none");
        argv.pair("-machine", self.board());
        match host.acceleration {
            Acceleration::Kvm => argv.pair("-accel", "kvm").pair("-cpu", "host"),
            Acceleration::Tcg => argv.pair("-accel", "tcg,thread=multi").pair("-cpu", EMULATED),
        };
        argv.pair("-smp", self.cpus.to_string());
        argv.pair("-m", format!("{}M", self.memory_mib));
        argv.pair("-action", self.actions());
        argv.listener("qmp", &files.qmp, "").pair("-mon", "chardev=qmp,mode=control");
        argv.listener("serial", &files.serial, &format!(",logfile={},logappend=on", escape_path(&files.serial_log)));
        argv.pair("-serial", "chardev:serial");
        argv.pair("-object", "rng-builtin,id=rng");
        argv.pair("-device", format!("{},rng=rng", self.virtio("virtio-rng")));
        // Another number at each start of QEMU: a restored guest draws new randomness by it. A microvm has no place for it.
        if !self.is_microvm() {
            argv.pair("-device", "vmgenid,guid=auto");
        }
        self.load(&mut argv, host);
        for (index, disk) in self.disks.iter().enumerate() {
            self.disk(&mut argv, index, disk);
        }
        for (index, nic) in self.nics.iter().enumerate() {
            self.nic(&mut argv, index, nic);
        }
        for FwCfg { name, path } in &self.fw_cfg {
            argv.pair("-fw_cfg", format!("name={},file={}", escape(name), escape_path(path)));
        }
        if let Some(EmulatedTpm { .. }) = self.tpm {
            argv.pair("-chardev", format!("socket,id=tpm,path={}", escape_path(&files.tpm)));
            argv.pair("-tpmdev", "emulator,id=tpm,chardev=tpm");
            // SeaBIOS clears a TPM when the guest asks for it by PPI; OVMF asks whoever sits there, and wipes memory by it.
            let asks_a_person = matches!(self.boot, Boot::Uefi(_));
            let model = if self.is_microvm() { "tpm-tis" } else { "tpm-crb" };
            argv.pair("-device", format!("{model},tpmdev=tpm{}", if asks_a_person { "" } else { ",ppi=off" }));
        }
        match self.watchdog {
            Watchdog::Absent => {}
            Watchdog::I6300esb => {
                argv.pair("-device", "i6300esb");
            }
        }
        match self.clock {
            // Of the other clock QEMU is not told here: for it the host's is another one.
            Clock::OfHost | Clock::Ahead(_) => {}
            Clock::Begins(since_1970) => drop(argv.pair("-rtc", format!("base={}", date(since_1970)))),
        }
        argv.0
    }

    fn is_microvm(&self) -> bool {
        matches!(self.boot, Boot::Microvm(_))
    }

    fn board(&self) -> &'static str {
        match (&self.boot, self.watchdog) {
            (Boot::Direct(_) | Boot::Uefi(_), _) => "q35",
            (Boot::Microvm(_), Watchdog::Absent) => "microvm,acpi=on,rtc=on",
            // The watchdog is a PCI device.
            (Boot::Microvm(_), Watchdog::I6300esb) => "microvm,acpi=on,rtc=on,pcie=on",
        }
    }

    /// A panicking guest restarts by itself (`panic=` on its command line): QEMU must not stop it before that.
    fn actions(&self) -> &'static str {
        match self.on_reset {
            OnReset::Restart => "reboot=reset,shutdown=poweroff,panic=none,watchdog=reset",
            OnReset::Exit => "reboot=shutdown,shutdown=poweroff,panic=none,watchdog=reset",
        }
    }

    /// Name of a virtio device on this board's bus.
    fn virtio(&self, kind: &str) -> String {
        format!("{kind}-{}", if self.is_microvm() { "device" } else { "pci" })
    }

    fn load(&self, argv: &mut Argv, host: &Host) {
        match &self.boot {
            Boot::Direct(kernel) | Boot::Microvm(kernel) => {
                argv.pair("-kernel", kernel.image.display().to_string());
                argv.pair("-initrd", kernel.initrd.display().to_string());
                argv.pair("-append", kernel.cmdline.clone() + &self.of_microvm(host));
            }
            Boot::Uefi(firmware) => {
                let flash = |unit: u8, access: &str, file: &Path| {
                    format!("if=pflash,unit={unit},format=raw,{access},file={}", escape_path(file))
                };
                argv.pair("-drive", flash(0, "readonly=on", &firmware.code));
                argv.pair("-drive", flash(1, "readonly=off", &firmware.vars));
                match firmware.screen {
                    GraphicsCard::Absent => {}
                    // OVMF has its own driver for it; an option ROM would change PCR 2.
                    GraphicsCard::Vga => drop(argv.pair("-device", "VGA,romfile=")),
                }
            }
        }
    }

    /// Parameters by which a kernel is told of the board microvm (kernel-parameters.txt); none on others.
    fn of_microvm(&self, host: &Host) -> String {
        if !self.is_microvm() {
            return String::new();
        }
        // By the board's reset register a machine with several processors may not restart: one goes on with the old kernel while
        // another is in the new one. A triple fault resets all of it.
        let mut told = " reboot=t".to_owned();
        if self.tpm.is_some() {
            // It is at a fixed address that nothing announces.
            told += " tpm_tis.force=1";
        }
        // There is no timer but the PIT to measure the time stamp counter against. Under emulation on a busy host that fails,
        // and the kernel then hangs for ever.
        if let Host { acceleration: Acceleration::Tcg, tsc_khz: Some(khz) } = host {
            told += &format!(" tsc_early_khz={khz}");
        }
        told
    }

    fn disk(&self, argv: &mut Argv, index: usize, disk: &Disk) {
        let cache = json!({ "direct": false, "no-flush": matches!(disk.cache, Cache::Unsafe) });
        let mut blockdev = blockdev(&disk.content, &cache);
        blockdev["node-name"] = json!(format!("disk{index}"));
        blockdev["discard"] = json!("unmap");
        argv.pair("-blockdev", blockdev.to_string());
        let device = self.virtio("virtio-blk");
        let boot = if matches!(self.boot, Boot::Uefi(_)) { format!(",bootindex={index}") } else { String::new() };
        // QEMU joins the guest's writes up to IOV_MAX pieces; the log puts its own before them, and one too many is an I/O error.
        let apart = if matches!(disk.content, Content::Logged { .. }) { ",request-merging=off" } else { "" };
        argv.pair(
            "-device",
            format!("{device},drive=disk{index},id=disk{index},serial={}{boot}{apart}", escape(&disk.serial)),
        );
    }

    fn nic(&self, argv: &mut Argv, index: usize, nic: &Nic) {
        let netdev = match &nic.link {
            Link::User(forwards) => {
                let forwards: String = forwards.iter().map(forward).collect();
                format!("user,id=nic{index},restrict=on{}{forwards}", user_network(index))
            }
            Link::Stream(socket) => {
                format!("stream,id=nic{index},server=on,addr.type=unix,addr.path={}", escape_path(socket))
            }
        };
        argv.pair("-netdev", netdev);
        // An option ROM would change PCR 2 and can boot what nobody asked for.
        let rom = if self.is_microvm() { "" } else { ",romfile=" };
        argv.pair("-device", format!("{},netdev=nic{index},mac={}{rom}", self.virtio("virtio-net"), nic.mac));
    }
}

/// Each card has a user network of its own, so that whoever comes through its forwards has an address of its own: 10.0.2.2
/// through the first card, 10.0.3.2 through the second. The first network is QEMU's default.
fn user_network(index: usize) -> String {
    if index == 0 { String::new() } else { format!(",net=10.0.{}.0/24", index + 2) }
}

/// Block device that serves a disk's bytes. A log sits above it: it is told of each flush, whatever that means below.
fn blockdev(content: &Content, cache: &Value) -> Value {
    let image = |driver: &str, file: &Path| {
        let file = json!({ "driver": "file", "filename": file, "cache": cache });
        json!({ "driver": driver, "cache": cache, "file": file })
    };
    match content {
        Content::Raw(file) => image("raw", file),
        Content::Overlay { file, .. } => image("qcow2", file),
        Content::Logged { content, log } => json!({
            "driver": "blklogwrites",
            "file": blockdev(content, cache),
            "log": { "driver": "file", "filename": log, "cache": cache },
            "log-sector-size": 512,
        }),
    }
}

fn forward(forward: &Forward) -> String {
    let protocol = match forward.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    // Port 0: the host chooses, `info usernet` tells.
    format!(",hostfwd={protocol}:127.0.0.1:{}-:{}", forward.host.unwrap_or(0), forward.guest)
}

struct Argv(Vec<String>);

impl Argv {
    fn pair(&mut self, option: &str, value: impl Into<String>) -> &mut Self {
        self.0.extend([option.into(), value.into()]);
        self
    }

    fn listener(&mut self, id: &str, socket: &Path, more: &str) -> &mut Self {
        self.pair("-chardev", format!("socket,id={id},path={},server=on,wait=off{more}", escape_path(socket)))
    }
}

/// A moment in UTC, as `-rtc` reads it. The day is Hinnant's (chrono-compatible low-level date algorithms, `civil_from_days`).
fn date(since_1970: Duration) -> String {
    let (days, seconds) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
    let (era, day_of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// QEMU splits option values at commas; a doubled comma stands for one.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

fn escape_path(path: &Path) -> String {
    escape(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Firmware, Kernel, Mac};

    fn kernel() -> Kernel {
        Kernel { image: "/i/bzImage".into(), initrd: "/i/initramfs".into(), cmdline: "console=ttyS0 quiet".into() }
    }

    fn overlay() -> Disk {
        let content = Content::Overlay {
            base: Box::new(Content::Raw("/i/disk.img".into())),
            file: "/m/disk.qcow2".into(),
            bytes: 8 << 30,
        };
        Disk { content, serial: "m1-0".into(), cache: Cache::Unsafe }
    }

    fn machine(boot: Boot) -> Machine {
        Machine {
            name: "m1".into(),
            boot,
            cpus: 2,
            memory_mib: 1024,
            disks: vec![overlay()],
            tpm: Some(EmulatedTpm { state: "/m/tpm".into() }),
            nics: vec![Nic { mac: Mac::numbered(1), link: Link::User(vec![Forward::tcp(7836), Forward::udp(7838)]) }],
            fw_cfg: vec![],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Restart,
            clock: Clock::OfHost,
        }
    }

    fn files() -> RunFiles {
        RunFiles {
            qmp: "/r/qmp".into(),
            serial: "/r/serial".into(),
            serial_log: "/m/serial.log".into(),
            tpm: "/r/tpm".into(),
        }
    }

    /// Each option begins a line.
    fn line(arg: &String) -> String {
        if arg.starts_with('-') { format!("\n{arg}") } else { format!(" {arg}") }
    }

    /// Compares with `golden/<name>.argv`; `CAIRN_REWRITE_GOLDEN=1` writes it anew.
    fn golden(name: &str, machine: &Machine, acceleration: Acceleration) {
        let host = Host { acceleration, tsc_khz: Some(2_500_000) };
        let lines: Vec<String> = machine.argv(&files(), &host).iter().map(line).collect();
        let text = lines.concat().trim_start().to_owned() + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.argv"));
        if std::env::var_os("CAIRN_REWRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{}", path.display());
    }

    #[test]
    fn direct_boot() {
        golden("direct", &machine(Boot::Direct(kernel())), Acceleration::Tcg);
    }

    #[test]
    fn accelerated() {
        golden("kvm", &machine(Boot::Direct(kernel())), Acceleration::Kvm);
    }

    #[test]
    fn microvm() {
        golden("microvm", &machine(Boot::Microvm(kernel())), Acceleration::Tcg);
    }

    #[test]
    fn uefi() {
        golden("uefi", &machine(Boot::Uefi(Firmware::debian("/m/vars.fd".into()))), Acceleration::Tcg);
    }

    #[test]
    fn uefi_with_a_screen() {
        let firmware = Firmware { screen: GraphicsCard::Vga, ..Firmware::debian("/m/vars.fd".into()) };
        golden("screen", &machine(Boot::Uefi(firmware)), Acceleration::Tcg);
    }

    #[test]
    fn everything_else() {
        let mut all = machine(Boot::Microvm(kernel()));
        all.name = "a,b".into();
        all.nics.push(Nic { mac: Mac::numbered(2), link: Link::Stream("/p/cable".into()) });
        all.disks.push(Disk {
            content: Content::Raw("/m/second, with comma.img".into()),
            serial: "m1-1".into(),
            cache: Cache::Writeback,
        });
        let content = Box::new(Content::Raw("/m/third.img".into()));
        all.disks.push(Disk {
            content: Content::Logged { content, log: "/m/third.log".into() },
            serial: "m1-2".into(),
            cache: Cache::Unsafe,
        });
        all.fw_cfg.push(FwCfg { name: "opt/org.cairn/enrolment".into(), path: "/m/enrolment.pb".into() });
        all.watchdog = Watchdog::I6300esb;
        all.on_reset = OnReset::Exit;
        all.clock = Clock::Begins(Duration::from_secs(951_827_696));
        golden("everything", &all, Acceleration::Tcg);
    }

    #[test]
    fn a_date_is_as_date_prints_it() {
        // date --utc --date=@SECONDS +%Y-%m-%dT%H:%M:%S
        for (seconds, printed) in [
            (0, "1970-01-01T00:00:00"),
            (951_827_696, "2000-02-29T12:34:56"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(date(Duration::from_secs(seconds)), printed);
        }
    }

    #[test]
    fn user_networks_do_not_overlap() {
        let mut several = machine(Boot::Direct(kernel()));
        several.nics.push(Nic { mac: Mac::numbered(2), link: Link::User(vec![Forward::tcp(7836)]) });
        let argv = several.argv(&files(), &Host { acceleration: Acceleration::Tcg, tsc_khz: None });
        assert!(argv.contains(&"user,id=nic1,restrict=on,net=10.0.3.0/24,hostfwd=tcp:127.0.0.1:0-:7836".to_owned()));
    }

    #[test]
    fn user_networking_is_always_restricted() {
        let host = Host { acceleration: Acceleration::Tcg, tsc_khz: None };
        let argv = machine(Boot::Direct(kernel())).argv(&files(), &host);
        assert!(argv.iter().filter(|arg| arg.starts_with("user,")).all(|arg| arg.contains(",restrict=on")));
    }
}
