//! Abilities of this host for virtual machines: hardware acceleration, and which programs are there.
//!
//! Deciding is pure; only [`Host::look`], [`memory_mib`], [`free_mib`] and [`missing`] look.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How guest instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acceleration {
    /// The host's processor runs them.
    Kvm,
    /// QEMU translates them.
    Tcg,
}

impl Acceleration {
    /// QEMU's word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// Host, as far as it matters to the machines on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// How guest instructions are executed.
    pub acceleration: Acceleration,
    /// Rate of the time stamp counter in kHz, where it is known. An emulated machine has the host's counter.
    pub tsc_khz: Option<u32>,
}

impl Host {
    /// Looks at `/dev/kvm` and `/proc/cpuinfo`.
    #[must_use]
    pub fn look() -> Self {
        let opens = File::options().read(true).write(true).open("/dev/kvm").is_ok();
        Self::decide(opens, &fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    /// `/dev/kvm` may open and still be unable to boot a stock kernel: the processor must name `svm` or `vmx` too.
    /// The processor's frequency is the counter's where the host is a virtual machine itself, whose clock nobody scales.
    #[must_use]
    pub fn decide(kvm_opens: bool, cpuinfo: &str) -> Self {
        let has = |wanted: &str| {
            let flags = cpuinfo.lines().filter_map(|line| line.strip_prefix("flags"));
            flags.flat_map(str::split_whitespace).any(|flag| flag == wanted)
        };
        let virtualises = has("svm") || has("vmx");
        let acceleration = if kvm_opens && virtualises { Acceleration::Kvm } else { Acceleration::Tcg };
        let steady = has("constant_tsc") && has("hypervisor");
        Self { acceleration, tsc_khz: steady.then(|| processor_khz(cpuinfo)).flatten() }
    }
}

/// From a line like `cpu MHz : 2596.122`.
fn processor_khz(cpuinfo: &str) -> Option<u32> {
    let (_, megahertz) = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?.split_once(':')?;
    let (whole, thousandths) = megahertz.trim().split_once('.')?;
    let thousandths: u32 = thousandths.get(..3)?.parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(thousandths).filter(|khz| *khz > 0)
}

/// Processors that programs of this host may use; 1 where that cannot be found out.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Memory that programs of this host may use, in MiB: all of the host's, or what the control group we are in allows.
/// How much of it is free now is another question: a machine takes its memory as it touches it.
#[must_use]
pub fn memory_mib() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let limits: Vec<String> = own_groups().iter().map(|group| read(&group.join("memory.max"))).collect();
    usable_mib(&read(Path::new("/proc/meminfo")), &limits)
}

/// Memory that programs of this host could take now without its giving out, in MiB: the host's own estimate, or what the
/// control group we are in leaves. What cannot be found out is none.
#[must_use]
pub fn free_mib() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let groups: Vec<_> =
        own_groups().iter().map(|group| ["memory.max", "memory.current"].map(|file| read(&group.join(file)))).collect();
    free_of(&read(Path::new("/proc/meminfo")), &groups)
}

/// The control group we are in, and those above it.
fn own_groups() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // `0::/PATH`: the one of the unified hierarchy (cgroups(7)).
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    Path::new("/sys/fs/cgroup").join(own).ancestors().map(Path::to_owned).collect()
}

fn free_of(meminfo: &str, groups: &[[String; 2]]) -> Option<u64> {
    let left = groups.iter().filter_map(|[most, used]| {
        // `max` is no number and no limit.
        let (most, used) = (most.trim().parse::<u64>().ok()?, used.trim().parse::<u64>().ok()?);
        Some(most.saturating_sub(used) >> 20)
    });
    Some(left.fold(mib_of(meminfo, "MemAvailable:")?, u64::min))
}

/// From a line like `MemTotal:       24689764 kB`.
fn mib_of(meminfo: &str, name: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))?;
    Some(kib.trim().parse::<u64>().ok()? >> 10)
}

fn usable_mib(meminfo: &str, limits: &[String]) -> Option<u64> {
    let total = mib_of(meminfo, "MemTotal:")?;
    // `max` is no number and no limit.
    let limits = limits.iter().filter_map(|limit| limit.trim().parse::<u64>().ok());
    Some(limits.map(|bytes| bytes >> 20).fold(total, u64::min))
}

/// A program or file that virtual machines need, and the Debian package that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirement {
    /// Absolute path of a file, or a program's name to be found in `PATH`.
    pub file: &'static str,
    /// Debian package that brings it.
    pub package: &'static str,
}

/// The emulator.
pub const QEMU: Requirement = Requirement { file: "qemu-system-x86_64", package: "qemu-system-x86" };
/// Makes overlays of disk images.
pub const QEMU_IMG: Requirement = Requirement { file: "qemu-img", package: "qemu-utils" };
/// The software TPM.
pub const SWTPM: Requirement = Requirement { file: "swtpm", package: "swtpm" };
/// Has a program see another time of day (libfaketime, for programs of several threads).
pub const FAKETIME: Requirement =
    Requirement { file: "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", package: "faketime" };
/// UEFI firmware, code part.
pub const OVMF_CODE: Requirement = Requirement { file: "/usr/share/OVMF/OVMF_CODE_4M.fd", package: "ovmf" };
/// UEFI firmware, template of its variables.
pub const OVMF_VARS: Requirement = Requirement { file: "/usr/share/OVMF/OVMF_VARS_4M.fd", package: "ovmf" };

/// Has a program, and all that it starts, see this much more than the host's time of day. Timers go on as the host's do.
pub fn see_ahead(program: &mut Command, by: Duration) {
    program.env("LD_PRELOAD", FAKETIME.file).env("FAKETIME", format!("+{}s", by.as_secs()));
    program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// Requirements among `wanted` that this host does not meet.
#[must_use]
pub fn missing(wanted: &[Requirement]) -> Vec<Requirement> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| {
        let name = Path::new(name);
        if name.is_absolute() { name.exists() } else { std::env::split_paths(&path).any(|dir| dir.join(name).exists()) }
    };
    wanted.iter().copied().filter(|one| !there(one.file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerates_only_where_device_and_processor_agree() {
        let intel = "processor\t: 0\nflags\t\t: fpu vmx sse2\n";
        let amd = "flags\t\t: fpu svm\n";
        let guest = "model name\t: svm vmx\nflags\t\t: fpu svm_lock vmxoff\n";
        let acceleration = |opens, cpuinfo| Host::decide(opens, cpuinfo).acceleration;
        assert_eq!(acceleration(true, intel), Acceleration::Kvm);
        assert_eq!(acceleration(true, amd), Acceleration::Kvm);
        assert_eq!(acceleration(false, intel), Acceleration::Tcg);
        assert_eq!(acceleration(true, guest), Acceleration::Tcg);
        assert_eq!(acceleration(true, ""), Acceleration::Tcg);
    }

    #[test]
    fn the_counters_rate_is_known_only_where_nobody_scales_it() {
        let cpuinfo = |flags: &str, mhz: &str| format!("cpu MHz\t\t: {mhz}\nflags\t\t: {flags}\n");
        let rate = |flags, mhz| Host::decide(false, &cpuinfo(flags, mhz)).tsc_khz;
        assert_eq!(rate("constant_tsc hypervisor", "2596.122"), Some(2_596_122));
        assert_eq!(rate("constant_tsc", "800.000"), None);
        assert_eq!(rate("hypervisor", "2596.122"), None);
        for nonsense in ["", "fast", "1", "1.2", "0.000", "99999999.000"] {
            assert_eq!(rate("constant_tsc hypervisor", nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_smallest_limit_says_what_memory_there_is() {
        let meminfo = "MemTotal:       24689764 kB\nMemFree:          100000 kB\n";
        let limits =
            |limits: &[&str]| usable_mib(meminfo, &limits.iter().map(|limit| (*limit).to_owned()).collect::<Vec<_>>());
        assert_eq!(limits(&[]), Some(24_111));
        assert_eq!(limits(&["max\n", ""]), Some(24_111));
        assert_eq!(limits(&["max\n", "8589934592\n", "17179869184\n"]), Some(8192));
        assert_eq!(usable_mib("", &[]), None);
        assert!(memory_mib().is_some_and(|mib| mib > 0));
    }

    #[test]
    fn what_is_free_is_what_the_host_has_left_or_less_by_a_limit() {
        let meminfo = "MemTotal:       24689764 kB\nMemAvailable:    8388608 kB\n";
        let group = |most: &str, used: &str| [most.to_owned(), used.to_owned()];
        assert_eq!(free_of(meminfo, &[]), Some(8192));
        assert_eq!(free_of(meminfo, &[group("max\n", "5\n"), group("", "")]), Some(8192));
        assert_eq!(free_of(meminfo, &[group("4294967296\n", "1073741824\n")]), Some(3072));
        assert_eq!(free_of(meminfo, &[group("1048576\n", "2097152\n")]), Some(0), "over its limit");
        assert_eq!(free_of("", &[]), None);
        assert!(free_mib().is_some() && free_mib() <= memory_mib());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let nonsense = Requirement { file: "/nonexistent/file", package: "none" };
        let shell = Requirement { file: "sh", package: "dash" };
        assert_eq!(missing(&[nonsense, shell]), [nonsense]);
    }
}
