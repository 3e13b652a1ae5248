//! Which test proves which requirement, by the sources' own word: behind `Proves:` above a test; for a case on a machine in
//! the list behind its name. SPECIFICATION.md has a row per requirement that is due; what a row says of tests
//! is held to be what the sources say. What is not proven yet is a person's sentence, behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;

/// The document with the rows.
pub(super) const DOCUMENT: &str = "SPECIFICATION.md";
/// Where cases on machines are.
const CASES: &str = "tests/cases/";

/// What proves each requirement, by its id.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    by_id: BTreeMap<String, Proof>,
}

#[derive(Debug, Default)]
struct Proof {
    /// Files with host tests.
    files: BTreeSet<String>,
    /// File and name of cases.
    cases: BTreeSet<(String, String)>,
}

impl Proofs {
    /// Adds what one file says.
    pub(super) fn read(&mut self, file: &str, source: &str) {
        if let Some(case_file) = file.strip_prefix(CASES) {
            for (name, id) in cases(source) {
                self.by_id.entry(id).or_default().cases.insert((case_file.to_owned(), name));
            }
        } else {
            for id in source.lines().flat_map(proved) {
                self.by_id.entry(id.to_owned()).or_default().files.insert(file.to_owned());
            }
        }
    }

    /// Every row of the document that says something else.
    pub(super) fn findings(&self, document: &str) -> Vec<Finding> {
        let nothing = Proof::default();
        let mut findings = Vec::new();
        for (index, row) in document.lines().enumerate() {
            let Some(id) = row.strip_prefix("| ").and_then(|rest| rest.split(" | ").next()).filter(|id| is_id(id))
            else {
                continue;
            };
            let proof = self.by_id.get(id).unwrap_or(&nothing);
            let place = format!("{DOCUMENT}:{}", index + 1);
            let expected = proof.row(id);
            if proof.files.is_empty() && proof.cases.is_empty() {
                findings.push(Finding { place, rule: format!("no test names {id}") });
            } else if !row.starts_with(&expected) {
                findings.push(Finding { place, rule: format!("by the tests the row begins `{expected}`") });
            }
        }
        findings
    }
}

impl Proof {
    fn row(&self, id: &str) -> String {
        let or_dash = |text: String| if text.is_empty() { "–".to_owned() } else { text };
        let files: Vec<String> = self.files.iter().map(|file| format!("`{file}`")).collect();
        let cases: Vec<String> = self.cases.iter().map(|(file, name)| format!("`{file}` {name}")).collect();
        format!("| {id} | {} | {} |", or_dash(files.join(" · ")), or_dash(cases.join("<br>")))
    }
}

/// A letter and a number.
fn is_id(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && letters.as_str().parse::<u8>().is_ok_and(|number| number > 0)
}

/// The ids that a line of documentation names.
fn proved(line: &str) -> impl Iterator<Item = &str> {
    let said = line.trim_start().strip_prefix("//").filter(|rest| rest.starts_with(['/', '!']));
    let said = said.and_then(|said| said.split_once("Proves: ")).map_or("", |(_, said)| said);
    said.split([' ', ',', '.']).filter(|word| !word.is_empty()).take_while(|word| is_id(word))
}

/// Name and id of each case: a text, and behind it a list of ids.
fn cases(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut before = "";
    for (index, piece) in source.split("&[").enumerate() {
        let list = piece.split(']').next().unwrap_or_default();
        let ids: Vec<&str> = list.split(',').map(|id| id.trim().trim_matches('"')).filter(|id| is_id(id)).collect();
        // The last text before the list; quotes come in pairs.
        if let (true, Some(name)) = (index > 0, before.rsplit('"').nth(1)) {
            found.extend(ids.into_iter().map(|id| (name.to_owned(), id.to_owned())));
        }
        before = piece;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proofs() -> Proofs {
        let mut proofs = Proofs::default();
        proofs
            .read("b/src/x.rs", "    /// Proves: O1, D2. And more.\n//! So. Proves: S6\n// Proves: O9\n\"Proves: O9\"");
        proofs.read("a/src/x.rs", "/// Proves: O1 A1, among O9.\n");
        let named = "Case { name: \"one\", proves: &[\"O1\", \"D4\"], needs: &[Need::Swtpm] },\n";
        proofs.read("tests/cases/boot.rs", &format!("{named}case(\"two\", &[\"O1\"], two),\n&[\"word\"]"));
        proofs
    }

    #[test]
    fn rows_that_say_what_the_tests_say_are_good() {
        let document = "| O1 | `a/src/x.rs` · `b/src/x.rs` | `boot.rs` one<br>`boot.rs` two | – |\n\
                        | D2 | `b/src/x.rs` | – | much |\n| D4 | – | `boot.rs` one | – |\n\
                        | what | must |\n| S6 | `b/src/x.rs` | – | – |";
        assert_eq!(proofs().findings(document), []);
    }

    #[test]
    fn a_row_that_says_too_much_or_too_little_is_found_and_one_without_a_test() {
        let document = "| O1 | `a/src/x.rs` | – | – |\n| D2 | `b/src/x.rs` | `boot.rs` one | – |\n| O9 | – | – | all |";
        let findings = proofs().findings(document);
        let places: Vec<&str> = findings.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["SPECIFICATION.md:1", "SPECIFICATION.md:2", "SPECIFICATION.md:3"]);
        assert_eq!(findings[1].rule, "by the tests the row begins `| D2 | `b/src/x.rs` | – |`");
        assert_eq!(findings[2].rule, "no test names O9");
    }
}
