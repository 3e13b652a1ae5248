//! The kernel's consoles: standard streams of PID 1, and the devices that its log is written to.

use std::fs::File;

/// What kind of thing shows what a console is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A screen of the kernel's own: what is on it can be drawn over.
    Screen,
    /// A serial line, and whatever else only ever goes on: it may be a file.
    Line,
}

/// One of the kernel's consoles.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) kind: Kind,
    /// Open for writing.
    pub(crate) device: File,
}

/// Makes /dev/console this process's standard streams, if there is one: a panic message then has a place to go.
pub(crate) fn attach() {
    if let Ok(console) = open() {
        let _as_good_as_before = rustix::stdio::dup2_stdin(&console);
        let _as_good_as_before = rustix::stdio::dup2_stdout(&console);
        let _as_good_as_before = rustix::stdio::dup2_stderr(&console);
    }
}

/// Opens the kernel's console device, the last of its consoles.
///
/// # Errors
/// When there is none.
pub(crate) fn open() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/console")
}

/// Opens all of the kernel's consoles: serial line and screen, so that a person finds it wherever they stand.
pub(crate) fn open_all() -> Vec<Console> {
    let active = std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    let open = |name: &str| {
        let device = File::options().write(true).open(format!("/dev/{name}")).ok()?;
        Some(Console { kind: kind(name), device })
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
