//! All commands of `cargo xtask`, whoever carries them out: the table that help, the driver and the workshop go by.

use std::fmt::Write;

/// Command of `cargo xtask`, as a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct CommandRow {
    /// Word that is typed behind `cargo xtask`.
    pub name: &'static str,
    /// Sentence of help about the command.
    pub about: &'static str,
    /// Program that carries it out.
    pub by: By,
}

/// Program that carries a command out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The driver itself.
    Driver,
    /// The workshop, on a machine that was looked at and set up for it: it builds, runs machines or tests.
    SetUp,
    /// The workshop, on any machine that has Rust.
    Workshop,
}

/// All of them, in the order of help.
#[rustfmt::skip] // one row per line
pub const COMMANDS: &[CommandRow] = &[
    row("up", By::SetUp, "Build everything, boot one machine, show it Ready with a pod, say how to go on"),
    row("test", By::SetUp, "Run all tests; the last line is `N passed, N failed, N skipped`"),
    row("ci", By::SetUp, "Run all that must hold before a change lands: format, lints, dependencies, tests"),
    row("fresh", By::Driver, "Run the tests, or another command, in a fresh Debian root"),
    row("tidy", By::Workshop, "Check the house rules: directions of dependencies, names, length of files"),
    row("packages", By::Driver, "Install the Debian packages that building and testing need, after naming them"),
    row("kernel", By::SetUp, "Build the kernel, or find it in the cache, and print where it is"),
    row("components", By::SetUp, "Build the upstream components, or find them in the cache, and print where they are"),
    row("image", By::SetUp, "Build an image: kernel, components, programs, root, disk"),
    row("fuzz", By::Workshop, "Search for bytes that panic a parser, for a while, by hand; `--help` says how"),
    row("campaign", By::Workshop, "Live through what seeds bring, simulated or on machines, by hand"),
    row("bench", By::SetUp, "Measure, beside the least that could do the same"),
    row("conformance", By::SetUp, "Run upstream's conformance tests against a cluster of two machines"),
    row("reproducible", By::SetUp, "Build an image twice, the second time elsewhere, and compare every byte"),
    row("programs", By::SetUp, "Build the machine's own programs, static, and print where they are"),
];

const fn row(name: &'static str, by: By, about: &'static str) -> CommandRow {
    CommandRow { name, about, by }
}

/// The row of a command.
#[must_use]
pub fn find(name: &str) -> Option<&'static CommandRow> {
    COMMANDS.iter().find(|row| row.name == name)
}

/// Text that `cargo xtask help` prints.
#[must_use]
pub fn help() -> String {
    let mut text = "Builds, runs and checks Cairn. What takes minutes is cached in ~/.cache/cairn.\n\n\
                    Usage: cargo xtask COMMAND [OPTION]…\n\nCommands:\n"
        .to_owned();
    for row in COMMANDS {
        let _cannot_fail = writeln!(text, "  {:<13} {}", row.name, row.about);
    }
    text + "\n`cargo xtask COMMAND --help` tells a command's options.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command_once_and_fits_a_terminal() {
        let text = help();
        for row in COMMANDS {
            let named = text.lines().filter(|line| line.split_whitespace().next() == Some(row.name)).count();
            assert_eq!(named, 1, "{}", row.name);
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
