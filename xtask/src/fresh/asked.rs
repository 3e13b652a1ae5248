//! Words that the processes of a fresh root are started with: what is asked for, and which release it is. It never
//! starts one.

use anyhow::{Result, bail};

/// Debian's release, here and in the fresh root: the host's package lists serve both.
pub(super) const RELEASE: &str = "bookworm";
/// The first word of the two steps that the driver starts itself with.
pub const KEEPER: &str = "fresh-keeper";
/// As above.
pub const STAGE: &str = "fresh-stage";
/// Set inside: there is no fresh root in a fresh root.
pub(super) const INSIDE: &str = "CAIRN_FRESH_ROOT";

/// Options of a run in a fresh root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreshOptions {
    /// Also without what earlier runs have built: neither Cairn's cache nor a target folder.
    pub cold: bool,
    /// The words behind `cargo xtask`; none for the README's test command.
    pub command: Vec<String>,
}

impl FreshOptions {
    /// Reads the words behind `fresh`.
    ///
    /// # Errors
    /// An option that there is not.
    pub fn parse(words: &[&str]) -> Result<Self> {
        let (options, command) = match words.iter().position(|word| *word == "--") {
            Some(end) => (&words[..end], &words[end + 1..]),
            None => (words, &[][..]),
        };
        if let Some(unknown) = options.iter().find(|option| **option != "--cold") {
            bail!("`{unknown}` is no option of `fresh`; a command stands behind `--`: cargo xtask fresh -- {unknown}");
        }
        Ok(Self { cold: !options.is_empty(), command: command.iter().map(|word| (*word).to_owned()).collect() })
    }

    pub(super) fn words(&self) -> Vec<String> {
        let cold = self.cold.then(|| "--cold".to_owned());
        cold.into_iter().chain(["--".to_owned()]).chain(self.command.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_passed_on() {
        let up = FreshOptions::parse(&["--cold", "--", "up", "--exit"]).expect("read");
        assert_eq!(up, FreshOptions { cold: true, command: vec!["up".to_owned(), "--exit".to_owned()] });
        let words = up.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(FreshOptions::parse(&words).expect("read back"), up);
        assert_eq!(FreshOptions::parse(&[]).expect("read"), FreshOptions { cold: false, command: vec![] });
        FreshOptions::parse(&["up", "--exit"]).expect_err("a command without `--`");
    }
}
