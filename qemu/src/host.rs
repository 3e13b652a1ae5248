//! What this host can do for a virtual machine: hardware acceleration, and which programs are there.
//!
//! Deciding is pure; only [`Acceleration::of_this_host`] and [`missing`] look.

use std::fs::{self, File};
use std::path::Path;

/// How guest instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceleration {
    /// The host's processor runs them.
    Kvm,
    /// QEMU translates them.
    Tcg,
}

impl Acceleration {
    /// Looks at `/dev/kvm` and `/proc/cpuinfo`.
    #[must_use]
    pub fn of_this_host() -> Self {
        let opens = File::options().read(true).write(true).open("/dev/kvm").is_ok();
        Self::decide(opens, &fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    /// `/dev/kvm` may open and still be unable to boot a stock kernel: the processor must name `svm` or `vmx` too.
    #[must_use]
    pub fn decide(kvm_opens: bool, cpuinfo: &str) -> Self {
        let virtualises = cpuinfo
            .lines()
            .filter_map(|line| line.strip_prefix("flags"))
            .any(|flags| flags.split_whitespace().any(|flag| flag == "svm" || flag == "vmx"));
        if kvm_opens && virtualises { Self::Kvm } else { Self::Tcg }
    }
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
/// UEFI firmware, code part.
pub const OVMF_CODE: Requirement = Requirement { file: "/usr/share/OVMF/OVMF_CODE_4M.fd", package: "ovmf" };
/// UEFI firmware, template of its variables.
pub const OVMF_VARS: Requirement = Requirement { file: "/usr/share/OVMF/OVMF_VARS_4M.fd", package: "ovmf" };

/// Those of `wanted` that this host does not have.
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
    fn accelerates_only_when_both_the_device_and_the_processor_agree() {
        let intel = "processor\t: 0\nflags\t\t: fpu vmx sse2\n";
        let amd = "flags\t\t: fpu svm\n";
        let guest = "model name\t: svm vmx\nflags\t\t: fpu svm_lock vmxoff\n";
        assert_eq!(Acceleration::decide(true, intel), Acceleration::Kvm);
        assert_eq!(Acceleration::decide(true, amd), Acceleration::Kvm);
        assert_eq!(Acceleration::decide(false, intel), Acceleration::Tcg);
        assert_eq!(Acceleration::decide(true, guest), Acceleration::Tcg);
        assert_eq!(Acceleration::decide(true, ""), Acceleration::Tcg);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let nonsense = Requirement { file: "/nonexistent/file", package: "none" };
        let shell = Requirement { file: "sh", package: "dash" };
        assert_eq!(missing(&[nonsense, shell]), [nonsense]);
    }
}
