//! Invariants by the sources' own word: a list below `# Invariants` in the head of a file, each entry with the tests
//! that break with it. `docs/invariants.md` is made of these lists.
//!
//! ```text
//! # Invariants
//! - One half of the key opens nothing: `a_test_of_this_workspace`, `crates/keys/tests/whole_file.rs`
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{
    finding::Finding,
    generated::{BLESS, wrapped},
};

/// The document that is made of all lists.
pub(super) const DOCUMENT: &str = "docs/invariants.md";
const HEADING: &str = "# Invariants";

/// All lists, by their crates.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    by_crate: BTreeMap<String, Vec<Invariant>>,
    /// Entries that name no test.
    bare: Vec<Finding>,
}

#[derive(Debug, PartialEq, Eq)]
struct Invariant {
    place: String,
    says: String,
    /// Names of tests, and paths of files with nothing else in them.
    held_by: Vec<String>,
}

impl Invariants {
    /// Adds the list of a file of a crate, if it has one.
    pub(super) fn read(&mut self, member: &str, file: &str, source: &str) {
        for (line, entry) in entries(source) {
            let place = format!("{file}:{line}");
            match entry.rsplit_once(": `") {
                Some((says, tests)) => {
                    let names = tests.split('`').step_by(2).filter(|name| !name.is_empty());
                    let held_by = names.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned());
                    let invariant = Invariant { place, says: says.to_owned(), held_by: held_by.collect() };
                    self.by_crate.entry(member.to_owned()).or_default().push(invariant);
                }
                None => self.bare.push(Finding { place, rule: "an invariant without its test: `…: `name``".into() }),
            }
        }
    }

    /// Every entry without a test, or with one that is not there. Files are found by the document that names them.
    pub(super) fn findings(&self, tests: &BTreeSet<String>) -> Vec<Finding> {
        let mut findings = self.bare.clone();
        for invariant in self.by_crate.values().flatten() {
            let lost = invariant.held_by.iter().filter(|name| !name.contains('/') && !tests.contains(*name));
            findings.extend(lost.map(|name| Finding {
                place: invariant.place.clone(),
                rule: format!("the test `{name}` is not there"),
            }));
        }
        findings
    }

    /// The document: a section for every crate with a list.
    pub(super) fn document(&self) -> String {
        let mut document = format!(
            "{HEADING}\nWhat always holds, crate by crate, and the test or file of tests that breaks with it. Written by {BLESS} from the\n\
             lists in the heads of sources; ARCHITECTURE.md has those that every change has to know.\n"
        );
        for (member, invariants) in &self.by_crate {
            let _cannot_fail = write!(document, "\n## {member}\n");
            for Invariant { says, held_by, .. } in invariants {
                let tests: Vec<String> = held_by.iter().map(|name| format!("`{name}`")).collect();
                document += &wrapped(&format!("- {says}: {}", tests.join(", ")), "  ");
            }
        }
        document
    }
}

/// Entries of the list in a file's head: the line that each begins at, and its text in one line.
fn entries(source: &str) -> Vec<(usize, String)> {
    let head =
        source.lines().enumerate().map_while(|(index, line)| Some((index + 1, line.strip_prefix("//!")?.trim())));
    let mut fenced = false;
    let plain = head.filter(|(_, line)| {
        fenced ^= line.starts_with("```");
        !fenced
    });
    let list = plain.skip_while(|(_, line)| *line != HEADING).skip(1).take_while(|(_, line)| !line.starts_with('#'));
    let mut entries: Vec<(usize, String)> = Vec::new();
    for (number, line) in list {
        match (line.strip_prefix("- "), entries.last_mut()) {
            (Some(begins), _) => entries.push((number, begins.to_owned())),
            (None, Some((_, entry))) if !line.is_empty() => *entry += &format!(" {line}"),
            (None, _) => {}
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Owns x.\n//!\n//! # Invariants\n//! - `x` is y: `a_test`\n//! - It is\n//!   so: `tests::b_test`, `b/tests/c.rs`\n\
                          //! # More\n//! - no: `d`\n\n//! # Invariants\n//! - behind the head: `e`\n";

    fn read(source: &str) -> Invariants {
        let mut invariants = Invariants::default();
        invariants.read("b", "b/src/lib.rs", source);
        invariants
    }

    #[test]
    fn the_list_of_a_head_is_read_and_written_with_its_tests() {
        let document = read(SOURCE).document();
        let (_, sections) = document.split_once("\n\n").expect("a head");
        assert_eq!(sections, "## b\n- `x` is y: `a_test`\n- It is so: `b_test`, `b/tests/c.rs`\n");
        assert_eq!(read("//! # Other\n//! - a: `b`\n").by_crate, BTreeMap::new());
        assert_eq!(read("//! ```\n//! # Invariants\n//! - a: `b`\n//! ```\n").by_crate, BTreeMap::new(), "an example");
    }

    #[test]
    fn an_invariant_names_a_test_that_is_there() {
        let tests = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(read(SOURCE).findings(&tests(&["a_test", "b_test"])), []);
        let lost = read(SOURCE).findings(&tests(&["a_test"]));
        assert_eq!(lost, [Finding { place: "b/src/lib.rs:5".into(), rule: "the test `b_test` is not there".into() }]);
        let bare = read("//! # Invariants\n//! - Nothing holds this.\n").findings(&tests(&[]));
        assert_eq!(bare.len(), 1);
        assert!(bare[0].rule.starts_with("an invariant without its test"), "{bare:?}");
    }
}
