//! The kernel's consoles: standard streams of PID 1, and the devices that its log is written to.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::runtime::clock;

/// The kernel's console device: the last of its consoles.
pub(crate) const ANY: &str = "/dev/console";

/// Kind of device that shows a console's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A screen of the kernel's own: what is on it can be drawn over.
    Screen,
    /// A serial line, and whatever else only ever goes on: it may be a file.
    Line,
}

/// Console that the kernel has, open for writing.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) kind: Kind,
    /// Open for writing; whoever writes waits for it.
    pub(crate) device: File,
    /// Path of the device node.
    pub(crate) path: PathBuf,
}

/// Shows `text` on the console at `path`, past whatever waits to be shown there: as much of it as the console takes until `until`.
pub(crate) fn show_now(path: &Path, text: &str, until: Instant) {
    // A descriptor of its own: what it may not wait for, the one of the queue may.
    let Ok(device) = nonblocking(path) else { return };
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(&device, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::AGAIN | Errno::INTR) => {
                let left = until.saturating_duration_since(clock::now());
                let wait = Timespec::try_from(left).ok();
                let ready = rustix::event::poll(&mut [PollFd::new(&device, PollFlags::OUT)], wait.as_ref());
                if left.is_zero() || ready.is_err() {
                    return;
                }
            }
            Err(_nowhere_to_report_it) => return,
        }
    }
}

fn nonblocking(path: &Path) -> std::io::Result<File> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).map_err(std::io::Error::other)?;
    File::options().write(true).custom_flags(flags).open(path)
}

/// Makes /dev/console this process's standard streams, if there is one: a panic message then has a place to go.
pub(crate) fn attach() {
    if let Ok(console) = open() {
        let _as_good_as_before = rustix::stdio::dup2_stdin(&console);
        let _as_good_as_before = rustix::stdio::dup2_stdout(&console);
        let _as_good_as_before = rustix::stdio::dup2_stderr(&console);
    }
}

fn open() -> std::io::Result<File> {
    File::options().read(true).write(true).open(ANY)
}

/// Opens all of the kernel's consoles: serial line and screen, so that a person finds it wherever they stand.
pub(crate) fn open_all() -> Vec<Console> {
    let active = std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    let open = |name: &str| {
        let path = Path::new("/dev").join(name);
        let device = File::options().write(true).open(&path).ok()?;
        Some(Console { kind: kind(name), device, path })
    };
    active.split_whitespace().filter_map(open).collect()
}

/// `tty0`, `tty1`, … are the screen; `ttyS0`, `ttyAMA0`, `hvc0` and others are lines.
fn kind(name: &str) -> Kind {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    if name.strip_prefix("tty").is_some_and(is_number) { Kind::Screen } else { Kind::Line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screens_are_told_from_lines_by_their_names() {
        for (name, wanted) in
            [("tty0", Kind::Screen), ("tty12", Kind::Screen), ("ttyS0", Kind::Line), ("tty", Kind::Line)]
        {
            assert_eq!(kind(name), wanted, "{name}");
        }
        for name in ["ttyAMA0", "hvc0", "ttyUSB0", "netcon0"] {
            assert_eq!(kind(name), Kind::Line, "{name}");
        }
    }
}
