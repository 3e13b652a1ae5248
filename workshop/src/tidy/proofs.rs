//! Which test proves which requirement, by the tests' own word: behind `Proves:` above a test; for a case on a machine in the
//! table that it is run from, which is asked. SPECIFICATION.md has a row per requirement that is due or proven; what a row says of tests
//! is held to be what the sources say. What is not proven yet is a person's sentence, behind it.

use std::collections::{BTreeMap, BTreeSet};

use ::tests::Table;

use super::finding::Finding;

/// The document with the rows.
pub(super) const DOCUMENT: &str = "SPECIFICATION.md";
/// The head of a file may say what it proves only here: the test is a step of its own, not a function.
const STEP: &str = "reproducible.rs";
/// Requirements that the machine of this version must meet, whether or not a test says so: each has a row, and a test.
const DUE: &[&str] = &[
    "O1", "O2", "O3", "O4", "O5", "O6", "O11", "O12", "O15", "O16", "D1", "D2", "D3", "D4", "D5", "D7", "D8", "D10",
    "D11", "D12", "D13", "D14", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S11", "S12", "A1", "A2", "A3",
    "A5", "A6", "A7", "A8", "F2", "F7", "N1", "N2", "N3", "N4", "N5", "N6", "M1", "M2", "M3", "M4", "M5", "M6", "M7",
    "M8", "M9", "K1", "K4", "K5", "K6", "K7", "K8", "K9", "W1", "W5", "W7", "Q1", "Q2", "Q6",
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
    pub(super) fn of_cases(tables: &[Table]) -> Self {
        let mut proofs = Self::default();
        for Table { file, cases, .. } in tables {
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

    /// Every row of the document that says something else, every requirement without a row, everything that proves nothing.
    pub(super) fn findings(&self, document: &str) -> Vec<Finding> {
        let mut findings = self.misplaced.clone();
        let mut missing: BTreeSet<&str> = DUE.iter().copied().chain(self.by_id.keys().map(String::as_str)).collect();
        for (index, row) in document.lines().enumerate() {
            let Some(id) = id_of(row) else { continue };
            let place = format!("{DOCUMENT}:{}", index + 1);
            if !missing.remove(id) && self.by_id.contains_key(id) {
                findings.push(Finding { place: place.clone(), rule: format!("a second row for {id}") });
            }
            match self.by_id.get(id) {
                None => findings.push(Finding { place, rule: format!("no test names {id}") }),
                Some(proof) if !row.starts_with(&proof.row(id)) => {
                    let rule = format!("by the tests the row begins `{}`; {BLESS} writes it", proof.row(id));
                    findings.push(Finding { place, rule });
                }
                Some(_) => {}
            }
        }
        let absent = |id| Finding { place: DOCUMENT.into(), rule: format!("no row for {id}") };
        findings.extend(missing.into_iter().map(absent));
        findings
    }

    /// The document with its rows as the tests have them. A row's last column, which a person wrote, stays.
    pub(super) fn blessed(&self, document: &str) -> String {
        let row = |line: &str| {
            let told = id_of(line).and_then(|id| Some((id, self.by_id.get(id)?, line.rsplit_once(" | ")?.1)));
            told.map_or_else(|| line.to_owned(), |(id, proof, last)| format!("{} {last}", proof.row(id)))
        };
        document.lines().map(|line| row(line) + "\n").collect()
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

/// How the rows are written anew; their last column is a person's.
const BLESS: &str = "`CAIRN_BLESS=1 cargo xtask tidy`";

/// Requirement that a line of the document is the row of.
fn id_of(line: &str) -> Option<&str> {
    line.strip_prefix("| ").and_then(|rest| rest.split(" | ").next()).filter(|id| is_id(id))
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
        let mut proofs = Proofs::of_cases(&[Table { file: "boot.rs", cases: CASES, load: Load::Light }]);
        proofs.read("b/src/x.rs", &format!("    /// Proves: O1, D2. And more.\n{TEST}// Proves: O9\n\"Proves: O9\""));
        proofs.read("b/src/reproducible.rs", "//! So. Proves: S6\n");
        proofs.read("a/src/x.rs", "/// Proves: O1 A1, among O9.\n/// And so on.\n#[expect(x)]\n#[test]\nfn y() {}\n");
        proofs
    }

    /// Findings about rows that are there, and not about the many due ones that are not.
    fn of_rows(document: &str) -> Vec<(String, String)> {
        let findings = proofs().findings(document).into_iter();
        findings.filter(|it| it.place != DOCUMENT).map(|it| (it.place, it.rule)).collect()
    }

    #[test]
    fn rows_that_say_what_the_tests_say_are_good() {
        let document = "| O1 | `a/src/x.rs` · `b/src/x.rs` | `boot.rs` one<br>`boot.rs` two | – |\n\
                        | D2 | `b/src/x.rs` | – | much |\n| D4 | – | `boot.rs` one | – |\n\
                        | what | must |\n| S6 | `b/src/reproducible.rs` | – | – |";
        assert_eq!(of_rows(document), []);
    }

    #[test]
    fn a_row_that_says_something_else_or_twice_is_found() {
        let document = "| O1 | `a/src/x.rs` | – | – |\n| D2 | `b/src/x.rs` | `boot.rs` one | – |\n| O9 | – | – | all |\n\
                        | D4 | – | `boot.rs` one | – |\n| D4 | – | `boot.rs` one | – |";
        let findings = of_rows(document);
        let places: Vec<&str> = findings.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["SPECIFICATION.md:1", "SPECIFICATION.md:2", "SPECIFICATION.md:3", "SPECIFICATION.md:5"]);
        assert!(findings[1].1.starts_with("by the tests the row begins `| D2 | `b/src/x.rs` | – |`"), "{findings:?}");
        assert_eq!(findings[2].1, "no test names O9");
        assert_eq!(findings[3].1, "a second row for D4");
    }

    #[test]
    fn what_is_due_or_proven_has_a_row() {
        let rules = |document: &str| -> Vec<String> {
            let findings = proofs().findings(document).into_iter();
            findings.filter(|it| it.place == DOCUMENT).map(|it| it.rule).collect()
        };
        let none = rules("");
        assert!(none.contains(&"no row for O16".into()), "due, and no test names it: {none:?}");
        assert!(none.contains(&"no row for D4".into()), "a test names it: {none:?}");
        assert!(!rules("| D4 | – | `boot.rs` one | – |").contains(&"no row for D4".into()));
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

    #[test]
    fn blessing_writes_the_tests_and_keeps_what_a_person_wrote() {
        let document = "# Head\n| O1 | old | – | not yet: much |\n| O9 | – | – | all |\n";
        let expected = "# Head\n| O1 | `a/src/x.rs` · `b/src/x.rs` | `boot.rs` one<br>`boot.rs` two | not yet: much |\n\
                        | O9 | – | – | all |\n";
        assert_eq!(proofs().blessed(document), expected);
    }
}
