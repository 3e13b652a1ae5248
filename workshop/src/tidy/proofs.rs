//! Which test proves which requirement, by the tests' own word: behind `Proves:` above a test; for a case on a machine in the
//! table that it is run from, which is asked. `docs/proofs.md` is made of that. What is not proven yet is a person's sentence
//! there, and stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use ::tests::CaseTable;

use super::{
    finding::Finding,
    generated::{BLESS, wrapped},
};

/// The document that is made of all proofs.
pub(super) const DOCUMENT: &str = "docs/proofs.md";
/// The head of a file may say what it proves only here: the test is a step of its own, not a function.
const STEP: &str = "reproducible.rs";
/// Requirements that the machine of this version must meet, whether or not a test says so: each has a row, and a test.
const DUE: &[&str] = &[
    "O1", "O2", "O3", "O4", "O5", "O6", "O11", "O12", "O15", "O16", "D1", "D2", "D3", "D4", "D5", "D7", "D8", "D10",
    "D11", "D12", "D13", "D14", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S11", "S12", "A1", "A2", "A3",
    "A5", "A6", "A7", "A8", "F2", "F7", "N1", "N2", "N3", "N4", "N5", "N6", "M1", "M2", "M3", "M4", "M5", "M6", "M7",
    "M8", "M9", "K1", "K4", "K5", "K6", "K7", "K8", "K9", "H3", "W1", "W4", "W5", "W7", "Q1", "Q2", "Q6",
];

/// Proofs of each requirement, by its id.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    by_id: BTreeMap<String, Proof>,
    /// `Proves:` where no test is.
    misplaced: Vec<Finding>,
}

#[derive(Debug, Default)]
struct Proof {
    /// Files with host tests.
    files: BTreeSet<String>,
    /// File and name of cases.
    cases: BTreeSet<(String, String)>,
}

impl Proofs {
    /// Proofs by the cases on machines.
    pub(super) fn of_cases(tables: &[CaseTable]) -> Self {
        let mut proofs = Self::default();
        for CaseTable { file, cases, .. } in tables {
            for (case, id) in cases.iter().flat_map(|case| case.proves.iter().map(move |id| (case, id))) {
                let proof = proofs.by_id.entry((*id).to_owned()).or_default();
                proof.cases.insert(((*file).to_owned(), case.name.to_owned()));
            }
        }
        proofs
    }

    /// Adds what one file says above its tests.
    pub(super) fn read(&mut self, file: &str, source: &str) {
        let lines: Vec<&str> = source.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let ids: Vec<&str> = proved(line).collect();
            if ids.is_empty() {
                continue;
            }
            if line.starts_with("//!") && file.ends_with(STEP) || stands_on_a_test(&lines[index..]) {
                for id in ids {
                    self.by_id.entry(id.to_owned()).or_default().files.insert(file.to_owned());
                }
            } else {
                let place = format!("{file}:{}", index + 1);
                self.misplaced.push(Finding { place, rule: "`Proves:` stands on something that is no test".into() });
            }
        }
    }

    /// Everything that proves nothing, and every requirement that is due and that no test names.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let unproven = DUE.iter().filter(|id| !self.by_id.contains_key(**id));
        let unproven = unproven.map(|id| Finding { place: DOCUMENT.to_owned(), rule: format!("no test names {id}") });
        self.misplaced.iter().cloned().chain(unproven).collect()
    }

    /// The document: a section for every requirement that is due or proven, given the one that there is.
    pub(super) fn document(&self, written: &str) -> String {
        let mut document = format!(
            "# Proofs\nRequirements that are due in this version, or proven ahead of it, and their tests: files with host tests, then cases on\n\
             machines, which begin with their file in `tests/cases`. A host test holds the rule; only a case on a machine shows that the\n\
             machine keeps it. Written by {BLESS} from `Proves:` above tests and `proves` of cases; what is not\n\
             proven yet is a person's sentence, and stays.\n"
        );
        let sentences = sentences(written);
        let mut ids: Vec<&str> = DUE.iter().copied().chain(self.by_id.keys().map(String::as_str)).collect();
        ids.sort_by_key(|id| (&id[..1], id[1..].parse::<u8>().ok()));
        ids.dedup();
        for id in ids {
            let _cannot_fail = write!(document, "\n## {id}\n");
            if let Some(sentence) = sentences.get(id) {
                document += &wrapped(sentence, "");
            }
            document.extend(self.by_id.get(id).into_iter().flat_map(Proof::lines));
        }
        document
    }
}

impl Proof {
    fn lines(&self) -> impl Iterator<Item = String> {
        let files = self.files.iter().map(|file| format!("- `{file}`\n"));
        files.chain(self.cases.iter().map(|(file, name)| wrapped(&format!("- `{file}` {name}"), "  ")))
    }
}

/// Sentences of a person about each requirement: the lines between its heading and its first test.
fn sentences(document: &str) -> BTreeMap<&str, String> {
    let sections = document.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    let said = sections.map(|(id, rest)| {
        let lines: Vec<&str> = rest.lines().take_while(|line| !line.starts_with("- ")).collect();
        (id, lines.join(" ").trim().to_owned())
    });
    said.filter(|(_, sentence)| !sentence.is_empty()).collect()
}

/// Whether the comment that the first line belongs to is that of a test function.
fn stands_on_a_test(lines: &[&str]) -> bool {
    let code = lines.iter().map(|line| line.trim_start()).skip_while(|line| line.starts_with("///"));
    let mut head = code.take_while(|line| line.starts_with("#["));
    head.any(|line| matches!(line, "#[test]") || line.starts_with("#[tokio::test"))
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

#[cfg(test)]
mod tests {
    use ::tests::{Case, Load, Starts};

    use super::*;

    const TEST: &str = "    #[test]\n    fn x() {}\n";

    const fn case(name: &'static str, proves: &'static [&'static str]) -> Case {
        Case { name, proves, needs: &[], starts: Starts::Cold, run: |_| Ok(()) }
    }

    fn proofs() -> Proofs {
        const CASES: &[Case] = &[case("one", &["O1", "D4"]), case("two", &["O1"]), case("three", &[])];
        let mut proofs = Proofs::of_cases(&[CaseTable { file: "boot.rs", cases: CASES, load: Load::Light }]);
        proofs.read("b/src/x.rs", &format!("    /// Proves: O1, D2. And more.\n{TEST}// Proves: O9\n\"Proves: O9\""));
        proofs.read("b/src/reproducible.rs", "//! So. Proves: S6\n");
        proofs.read("a/src/x.rs", "/// Proves: O1 A1, among O9.\n/// And so on.\n#[expect(x)]\n#[test]\nfn y() {}\n");
        proofs
    }

    #[test]
    fn the_document_has_the_tests_and_keeps_what_a_person_wrote() {
        let written = "# Proofs\nOld.\n\n## O1\nNot yet: much,\nand more.\n- `old`\n\n## O9\nLost.\n\n## D2\n- old\n";
        let document = proofs().document(written);
        let section = |id: &str| {
            let (_, rest) = document.split_once(&format!("\n## {id}\n")).expect("a section");
            rest.split("\n## ").next().expect("it has lines").trim_end().to_owned()
        };
        assert_eq!(
            section("O1"),
            "Not yet: much, and more.\n- `a/src/x.rs`\n- `b/src/x.rs`\n- `boot.rs` one\n- `boot.rs` two"
        );
        assert_eq!(section("D2"), "- `b/src/x.rs`");
        assert_eq!(section("S6"), "- `b/src/reproducible.rs`");
        assert_eq!(section("O16"), "", "due, and no test names it");
        assert!(!document.contains("## O9\n"), "neither due nor proven: {document}");
        assert!(document.find("## O2\n") < document.find("## O11\n"), "by number: {document}");
        assert_eq!(proofs().document(&document), document, "written again it stays");
    }

    #[test]
    fn what_is_due_and_proven_by_nothing_is_found() {
        let rules: Vec<String> = proofs().findings().into_iter().map(|finding| finding.rule).collect();
        assert!(rules.contains(&"no test names O16".to_owned()), "{rules:?}");
        assert!(!rules.contains(&"no test names D4".to_owned()), "{rules:?}");
    }

    #[test]
    fn a_proof_on_something_that_is_no_test_is_found() {
        let found = |source: &str| {
            let mut proofs = Proofs::default();
            proofs.read("a/src/x.rs", source);
            (proofs.misplaced.len(), proofs.by_id.len())
        };
        assert_eq!(found(&format!("/// Proves: O1\n{TEST}")), (0, 1));
        assert_eq!(found("    /// Proves: O1\n    #[tokio::test(start_paused = true)]\n    async fn x() {}\n"), (0, 1));
        assert_eq!(found("/// Proves: O1\nfn x() {}\n#[test]\nfn y() {}\n"), (1, 0));
        assert_eq!(found("/// Proves: O1\n#[derive(Debug)]\nstruct X;\n"), (1, 0));
        assert_eq!(found("//! Proves: O1\n\n#[test]\nfn x() {}\n"), (1, 0), "nor at the head of a file");
    }
}
