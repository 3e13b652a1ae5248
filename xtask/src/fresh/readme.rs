//! The commands that the README tells a person to paste. It must never know them from elsewhere: what is carried out in the
//! fresh root is what stands there.

use anyhow::{Context, Result};

/// Commands that the README tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commands {
    /// To be pasted first, as root.
    pub(super) first: String,
    /// The words behind `cargo xtask` that run all tests.
    pub(super) test: Vec<String>,
}

/// Reads them: the first line of the first block of commands, and the line that tests.
///
/// # Errors
/// One of them is not there.
pub(super) fn commands(text: &str) -> Result<Commands> {
    let mut blocks = text.split("```").skip(1).step_by(2);
    let first = blocks.next().and_then(|block| block.lines().find(|line| !line.trim().is_empty()));
    let first = first.context("the README has no block of commands")?.to_owned();
    let test = blocks.flat_map(str::lines).find_map(|line| line.strip_prefix("cargo xtask test"));
    let words = test.context("the README has no line `cargo xtask test`")?.split('#').next().unwrap_or_default();
    let test = ["test"].into_iter().chain(words.split_whitespace()).map(str::to_owned).collect();
    Ok(Commands { first, test })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages;

    #[test]
    fn the_readme_of_this_checkout_begins_with_what_cargo_needs() {
        let readme = include_str!("../../../README.md");
        let commands = commands(readme).expect("read");
        assert_eq!(commands.first, packages::first_command());
        assert_eq!(commands.test, ["test"]);
    }

    #[test]
    fn a_readme_without_a_command_is_refused() {
        commands("no block").expect_err("nothing to paste");
        commands("```\napt-get\n```\n").expect_err("no test command");
        let more = commands("```\nfirst && second\n```\n\n```\ncargo xtask up\ncargo xtask test --all   # all\n```\n");
        assert_eq!(more.expect("read").test, ["test", "--all"]);
    }
}
