//! The shape of documents: how long their lines, the cells of their tables and they themselves are, and that the tests they
//! name are there.

use std::collections::BTreeSet;

use super::{
    finding::Finding,
    invariants,
    lists::{Breach, Rule},
    proofs,
};

/// Longest line outside tables and longest cell, in characters.
const LINE: usize = 160;
const CELL: usize = 120;
/// Most bytes of all documents together; what is generated does not count.
const ALL: usize = 120 * 1024;
/// Name that all documents together break a rule by.
const TOGETHER: &str = "all documents";
/// Documents that a program writes.
const GENERATED: &[&str] = &[proofs::DOCUMENT, invariants::DOCUMENT];

/// How large a document may be.
enum Most {
    Lines(usize),
    Bytes(usize),
}

/// Documents with a limit, by how their paths begin, and why.
const SIZES: &[(&str, Most, &str)] = &[
    ("README.md", Most::Lines(150), "a stranger has typed the first command after five minutes"),
    ("ARCHITECTURE.md", Most::Bytes(15 * 1024), "whoever changes something reads all of it first"),
    ("docs/ways/", Most::Lines(60), "a way through the machine is one page"),
];
/// Parts that a word in backticks has at least that is a test's name.
const PARTS: usize = 5;
/// Words that look like a test's name and are somebody else's.
const FOREIGN: &[&str] = &["multiple_unsafe_ops_per_block"];

/// Every limit that one document exceeds.
pub(super) fn breaches(file: &str, document: &str) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut report = |rule, line: usize, wrong: String| {
        let finding = Finding { place: format!("{file}:{line}"), rule: wrong };
        breaches.push(Breach { rule, by: file.to_owned(), finding });
    };
    let mut quoted = false;
    for (index, line) in document.lines().enumerate() {
        quoted ^= line.trim_start().starts_with("```");
        let row = line.trim().strip_prefix('|').filter(|_| !quoted);
        let parts = row.map_or_else(|| vec![line], cells);
        let (rule, most, what) = if row.is_some() { (Rule::Cell, CELL, "cell") } else { (Rule::Line, LINE, "line") };
        for length in parts.iter().map(|part| part.trim_end().chars().count()).filter(|length| *length > most) {
            report(rule, index + 1, format!("a {what} of {length} characters: at most {most}"));
        }
    }
    for (_, most, because) in SIZES.iter().filter(|(begins, ..)| file.starts_with(begins)) {
        let (size, most, unit) = match most {
            Most::Lines(most) => (document.lines().count(), *most, "lines"),
            Most::Bytes(most) => (document.len(), *most, "bytes"),
        };
        if size > most {
            report(Rule::Size, 1, format!("has {size} {unit}, at most {most}: {because}"));
        }
    }
    breaches
}

/// The limit of all documents together, where it is exceeded.
pub(super) fn breach_of_all(documents: &[(String, String)]) -> Option<Breach> {
    let written = documents.iter().filter(|(file, _)| !GENERATED.contains(&file.as_str()));
    let size: usize = written.map(|(_, document)| document.len()).sum();
    let finding =
        Finding { place: TOGETHER.to_owned(), rule: format!("have {size} bytes, at most {ALL}: nobody reads more") };
    (size > ALL).then(|| Breach { rule: Rule::Size, by: TOGETHER.to_owned(), finding })
}

/// Every test that a document names in backticks and that is not there.
pub(super) fn lost_tests(file: &str, document: &str, tests: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in document.lines().enumerate() {
        let named = line.split('`').skip(1).step_by(2).filter(|word| is_test(word));
        for name in named.filter(|name| !tests.contains(*name)) {
            let rule = format!("the test `{name}` is not there");
            findings.push(Finding { place: format!("{file}:{}", index + 1), rule });
        }
    }
    findings
}

/// The cells of a row, given behind its first sign; one in a backticked text or behind a backslash ends none.
fn cells(row: &str) -> Vec<&str> {
    let (mut cells, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in row.char_indices() {
        match letter {
            '`' => quoted = !quoted,
            '|' if !quoted && !escaped => {
                cells.push(row[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        escaped = letter == '\\';
    }
    cells.push(row[start..].trim());
    cells
}

/// The word that documents name a case on machines by.
pub(super) fn word_of_case(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric() || *letter == ' ');
    letters.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '_' } else { letter }).collect()
}

fn is_test(word: &str) -> bool {
    let part =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) && !part.is_empty();
    word.split('_').count() >= PARTS && word.split('_').all(part) && !FOREIGN.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, document: &str) -> Vec<(Rule, String)> {
        breaches(file, document).into_iter().map(|one| (one.rule, one.finding.place)).collect()
    }

    #[test]
    fn a_long_line_is_found_outside_tables() {
        assert_eq!(rules("A.md", &format!("# A\n{}\n", "ä".repeat(160))), []);
        assert_eq!(rules("A.md", &format!("# A\n{}\n", "ä".repeat(161))), [(Rule::Line, "A.md:2".to_owned())]);
        let quoted = format!("```\n| {} |\n```\n| {0} |\n", "a".repeat(160));
        assert_eq!(rules("A.md", &quoted), [(Rule::Line, "A.md:2".to_owned()), (Rule::Cell, "A.md:4".to_owned())]);
    }

    #[test]
    fn a_long_cell_is_found_and_a_long_row_is_not() {
        let row = |cell: usize| format!("| {} | {} |\n", "a".repeat(120), "ö".repeat(cell));
        assert_eq!(rules("A.md", &row(120)), []);
        assert_eq!(rules("A.md", &row(121)), [(Rule::Cell, "A.md:1".to_owned())]);
        assert_eq!(cells(" `a|b` | c \\| d |"), ["`a|b`", "c \\| d", ""]);
    }

    #[test]
    fn a_document_over_its_size_is_found_and_so_are_all_together() {
        for (file, good, bad) in [
            ("README.md", "a\n".repeat(150), "a\n".repeat(151)),
            ("ARCHITECTURE.md", "aaaa\n".repeat(3072), "aaaa\n".repeat(3073)),
            ("docs/ways/boot.md", "a\n".repeat(60), "a\n".repeat(61)),
        ] {
            assert_eq!(rules(file, &good), [], "{file}");
            assert_eq!(rules(file, &bad), [(Rule::Size, format!("{file}:1"))], "{file}");
            assert_eq!(rules("FORMATS.md", &bad), [], "{file}");
        }
        let document = |file: &str, size: usize| (file.to_owned(), "a".repeat(size));
        assert_eq!(breach_of_all(&[document("A.md", ALL), document(GENERATED[0], 1)]), None);
        assert!(breach_of_all(&[document("A.md", ALL), document("B.md", 1)]).is_some());
    }

    #[test]
    fn a_test_that_is_named_and_not_there_is_found() {
        let functions = BTreeSet::from([word_of_case("The line's this one, no 1"), "the_line_is_this_one".to_owned()]);
        let document =
            "`the_line_is_this_one` the_line_is_not_there\n`the_line_is_not_there` `node_vpn_ip` `a b_c_d_e_f`\n";
        let findings = lost_tests("A.md", document, &functions);
        let shown: Vec<_> = findings.iter().map(|one| (one.place.as_str(), one.rule.as_str())).collect();
        assert_eq!(shown, [("A.md:2", "the test `the_line_is_not_there` is not there")]);
        assert_eq!(lost_tests("A.md", &format!("`{}`", FOREIGN[0]), &functions), []);
    }
}
