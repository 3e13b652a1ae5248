//! The kernel's command line, fixed when the image is built.
//!
//! It stands in the UKI, in the initramfs (stage 0 compares under UEFI) and in the manifest, from where whoever boots
//! the kernel directly takes it. Direct boot measures nothing and compares nothing, so who starts a microvm may append what
//! that board needs (`qemu/src/argv.rs`). Must never hold a secret or anything that differs between machines.

/// A parameter and its reason.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// As the kernel reads it.
    pub text: &'static str,
    /// Why it is there.
    pub because: &'static str,
}

/// All parameters, in order: of several consoles the last one becomes /dev/console.
pub const PARAMETERS: &[Parameter] = &[
    Parameter { text: "console=tty0", because: "a person in front of the machine reads the screen" },
    Parameter { text: "console=ttyS0,115200", because: "tests and remote hands read the serial line" },
    Parameter { text: "panic=10", because: "a corrupt root or a dead PID 1 is readable for 10 s, then rebooted" },
    Parameter {
        text: "loglevel=4",
        because: "a serial line is slow: warnings only, all else stays in the kernel's ring",
    },
    Parameter { text: "rdinit=/init", because: "a missing stage 0 panics instead of searching for another root" },
    Parameter {
        text: "gpt",
        because: "the kernel takes the backup of a partition table whose primary a power cut has torn (block/partitions/efi.c)",
    },
    Parameter {
        text: "no_timer_check",
        because: "the check counts ticks for an instant: emulated on a busy host they are late, and the kernel panics (arch/x86/kernel/apic/io_apic.c)",
    },
];

/// The command line, one space between parameters, no line feed.
#[must_use]
pub fn text() -> String {
    PARAMETERS.iter().map(|parameter| parameter.text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: O15
    #[test]
    fn the_line_is_this_one() {
        assert_eq!(text(), "console=tty0 console=ttyS0,115200 panic=10 loglevel=4 rdinit=/init gpt no_timer_check");
    }
}
