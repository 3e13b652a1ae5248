//! Documents that the house rules write from what the sources say. It owns how one is compared and written anew, and must
//! never know what stands in it.

use std::{env, fs};

use anyhow::{Context, Result};

use super::finding::Finding;
use xtask::workspace::Workspace;

/// How generated documents are written anew.
pub(super) const BLESS: &str = "`CAIRN_BLESS=1 cargo xtask tidy`";
/// Longest line that is written, in characters, where words allow it.
const WIDTH: usize = 150;

/// A generated document of the checkout, by its path there.
#[derive(Debug)]
pub(super) struct Generated {
    file: &'static str,
    text: String,
}

impl Generated {
    /// Reads the document; one that is not there is empty.
    pub(super) fn read(workspace: &Workspace, file: &'static str) -> Self {
        Self { file, text: fs::read_to_string(workspace.path(file)).unwrap_or_default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Where the document begins to differ from what it should be. With `CAIRN_BLESS` set it is written instead.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn hold_to(&self, workspace: &Workspace, wanted: &str) -> Result<Option<Finding>> {
        if env::var_os("CAIRN_BLESS").is_none() {
            return Ok(self.difference(wanted));
        }
        fs::write(workspace.path(self.file), wanted).with_context(|| format!("write `{}`", self.file))?;
        Ok(None)
    }

    fn difference(&self, wanted: &str) -> Option<Finding> {
        let same = self.text.lines().zip(wanted.lines()).take_while(|(is, should)| is == should).count();
        let rule = match wanted.lines().nth(same) {
            Some(line) => format!("by the sources here stands `{line}`; {BLESS} writes it"),
            None => format!("by the sources the document ends here; {BLESS} writes it"),
        };
        (self.text != wanted).then(|| Finding { place: format!("{}:{}", self.file, same + 1), rule })
    }
}

/// A text in lines of the documents' width, each but the first after so much space.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &format!("{line}\n");
            line = indent.to_owned();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_found() {
        let differs = |text: &str, wanted: &str| {
            let document = Generated { file: "A.md", text: text.to_owned() };
            document.difference(wanted).map(|finding| (finding.place, finding.rule))
        };
        assert_eq!(differs("# A\n- b\n", "# A\n- b\n"), None);
        let (place, rule) = differs("# A\n- b\n- c\n", "# A\n- x\n- c\n").expect("another line");
        assert_eq!(place, "A.md:2");
        assert!(rule.starts_with("by the sources here stands `- x`;"), "{rule}");
        assert_eq!(differs("# A\n", "# A\n- b\n").expect("a line more").0, "A.md:2");
        assert!(differs("# A\n- b\n", "# A\n").expect("a line less").1.contains("ends here"));
    }

    #[test]
    fn a_text_is_broken_between_words() {
        let word = "a".repeat(WIDTH - 2);
        assert_eq!(wrapped(&format!("- {word} b\n c"), "  "), format!("- {word}\n  b c\n"));
        assert_eq!(wrapped("- a b", "  "), "- a b\n");
    }
}
