//! Last words of a machine and its programs, from the files of a run: for a person whose machine does not come up.
//!
//! Only reads. The machine may still be writing, and may start again while it is looked at.

use std::fs;
use std::io;
use std::path::Path;

use crate::console::plain;

/// How the kernel begins when it gives up (`kernel/panic.c`).
const PANIC: &str = "Kernel panic - not syncing";
/// How it ends.
const END: &str = "---[ end Kernel panic";
/// Lines told before it, which led to it: an allocation that failed, a disk that is not there.
const BEFORE: usize = 5;
/// Registers and a call trace follow; more of them help nobody who has the log.
const BEHIND: usize = 20;
/// Lines told of a program's own log: QEMU gives up with one to three.
const TAIL: usize = 10;

/// The last lines that a program wrote to the file at `log`; nothing where there are none, or no such file.
#[must_use]
pub fn of_program(log: &Path) -> String {
    let text = plain_lines(&fs::read(log).unwrap_or_default());
    let lines: Vec<&str> = text.iter().map(String::as_str).filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// The kernel's words in the console's log at `log`, if it ever panicked: the last of its panics, what came before it and
/// what it said of it.
///
/// # Errors
/// Where the log is there and cannot be read.
pub fn kernel_panic(log: &Path) -> io::Result<Option<String>> {
    match fs::read(log) {
        Ok(bytes) => Ok(panic_in(&plain_lines(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn panic_in(lines: &[String]) -> Option<String> {
    let panic = lines.iter().rposition(|line| line.contains(PANIC) && !line.contains(END))?;
    let behind = lines[panic..].iter().take(BEHIND);
    let end = behind.clone().position(|line| line.contains(END)).unwrap_or_else(|| behind.count());
    let first = panic.saturating_sub(BEFORE);
    let lines = lines[first..panic + end].iter().filter(|line| !line.trim().is_empty());
    Some(lines.map(String::as_str).collect::<Vec<_>>().join("\n"))
}

fn plain_lines(bytes: &[u8]) -> Vec<String> {
    bytes.split(|byte| *byte == b'\n').map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "\
[    0.1] booting\r
[    0.2] VFS: Cannot open root device\r
[    0.3] \u{1b}[31mKernel panic - not syncing: VFS: Unable to mount root fs\u{1b}[0m\r
[    0.3] CPU: 0 UID: 0 PID: 1\r
[    0.3] Call Trace:\r
[    0.4] ---[ end Kernel panic - not syncing: VFS: Unable to mount root fs ]---\r
";

    #[test]
    fn a_panic_is_told_with_what_led_to_it_and_nothing_else_is() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let told = |text: &str| {
            fs::write(log.path(), text).unwrap();
            kernel_panic(log.path()).unwrap()
        };
        let panic = told(&format!("{BOOT}[    0.1] the next boot\r\n")).unwrap();
        assert!(panic.starts_with("[    0.1] booting\n[    0.2] VFS: Cannot open"), "{panic}");
        assert!(panic.contains("\n[    0.3] Kernel panic - not syncing: VFS"), "{panic}");
        assert!(panic.ends_with("Call Trace:"), "neither its end nor the next boot: {panic}");
        // Cut while it was being written.
        let cut = told(&BOOT[..BOOT.find("CPU: 0").unwrap()]).unwrap();
        assert!(cut.contains("Kernel panic"), "{cut}");
        let long = told(&format!("{}{}", &BOOT[..BOOT.find("[    0.4]").unwrap()], "frame\n".repeat(100))).unwrap();
        assert_eq!(long.lines().count(), 2 + BEHIND, "{long}");
        let trace = BOOT.replace("Call Trace:\r\n", &format!("Call Trace:\r\n{}", "frame\r\n".repeat(8)));
        let whole = told(&trace).unwrap();
        assert!(whole.contains("] Kernel panic") && whole.ends_with("frame"), "{whole}");
        assert_eq!(told("  Cairn  \n  state      Running\n"), None);
        assert_eq!(kernel_panic(Path::new("/nonexistent/serial.log")).unwrap(), None);
    }

    #[test]
    fn the_last_lines_of_a_program_are_its_own_words() {
        let log = tempfile::NamedTempFile::new().unwrap();
        fs::write(log.path(), format!("{}\nlast\r\n\n", "line\n".repeat(50))).unwrap();
        let words = of_program(log.path());
        assert!(words.ends_with("line\nlast") && words.lines().count() == TAIL, "{words}");
        assert_eq!(of_program(Path::new("/nonexistent/qemu.log")), "");
    }
}
