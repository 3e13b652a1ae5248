//! References from texts into the repository: a requirement's id has its line in the specification, a path that a
//! document names is there, and no text speaks of documents that lie elsewhere or of commands that do not exist.

use std::{collections::BTreeSet, path::Path};

use super::{finding::Finding, source};

/// The document with a line for every requirement.
pub(super) const DOCUMENT: &str = "SPECIFICATION.md";
/// The letters that ids of requirements begin with.
const GROUPS: &str = "ABDFHKMNOPQSTUW";
/// Words that look like ids and are somebody else's, below this folder.
const FOREIGN: &[(&str, &str)] = &[
    ("T1", "crates/dhcp/"), // RFC 2131: when a lease is renewed
    ("T2", "crates/dhcp/"),
    ("P6", "tests/src/screen.rs"), // a pixmap's magic
];
/// Words that nobody can look up, each in two parts, so that the table does not find itself; and what to write instead.
const DEAD: &[(&str, &str)] = &[
    (concat!("formats", ".md"), "FORMATS.md"),
    (concat!("design", ".md"), "ARCHITECTURE.md"),
    (concat!("cluster", ".md"), "ARCHITECTURE.md"),
    (concat!("platform", ".md"), "ARCHITECTURE.md"),
    (concat!("house", ".md"), "STYLE.md"),
    (concat!("product", ".md"), "SPECIFICATION.md"),
    (concat!("image", " flash"), "a command that exists"),
];

/// The requirements that have a line: `- **O1** …`.
#[derive(Debug)]
pub(super) struct Requirements<'a>(BTreeSet<&'a str>);

impl<'a> Requirements<'a> {
    /// Requirements of the specification; and every second line for one, by its number.
    pub(super) fn of(specification: &'a str) -> (Self, Vec<(usize, &'a str)>) {
        let mut lines = BTreeSet::new();
        let mut second = Vec::new();
        for (index, line) in specification.lines().enumerate() {
            let id = line.strip_prefix("- **").and_then(|rest| rest.split("**").next()).filter(|id| is_id(id));
            second.extend(id.filter(|id| !lines.insert(*id)).map(|id| (index + 1, id)));
        }
        (Self(lines), second)
    }

    /// Every dead word of a file, and every id without a line: in its comments where it is Rust, else anywhere.
    pub(super) fn findings(&self, file: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let comments = source::lines(text).into_iter().map(|line| line.comment);
        let read: Vec<&str> = if file.ends_with(".rs") { comments.collect() } else { text.lines().collect() };
        for (index, (line, read)) in text.lines().zip(read).enumerate() {
            let mut report = |rule| findings.push(Finding { place: format!("{file}:{}", index + 1), rule });
            for (dead, instead) in DEAD.iter().filter(|(dead, _)| line.contains(dead)) {
                report(format!("`{dead}` cannot be looked up: write {instead}"));
            }
            let words = read.split(|letter: char| !letter.is_alphanumeric()).filter(|word| is_id(word));
            let foreign = |id: &str| FOREIGN.iter().any(|(word, folder)| *word == id && file.starts_with(folder));
            for id in words.filter(|id| !self.0.contains(id) && !foreign(id)) {
                report(format!("{id} has no line in {}", DOCUMENT));
            }
        }
        findings
    }
}

/// A letter of a group and a number of one or two digits.
fn is_id(word: &str) -> bool {
    let number = word.strip_prefix(|letter| GROUPS.contains(letter)).unwrap_or_default();
    matches!(number.len(), 1 | 2) && !number.starts_with('0') && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// Every path of a document that is not there: in backticks, where it begins with one of the folders, and behind a link.
pub(super) fn lost(root: &Path, folders: &BTreeSet<String>, file: &str, document: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let beside = Path::new(file).parent().unwrap_or(Path::new(""));
    for (index, line) in document.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let paths = quoted.filter(|word| word.split_once('/').is_some_and(|(folder, _)| folders.contains(folder)));
        let text = line.split('`').step_by(2).flat_map(|text| text.split("](").skip(1));
        let links = text.filter_map(|rest| rest.split([')', '#']).next()).filter(|link| !link.contains(':'));
        let here = paths.map(|path| (path, root.join(path)));
        let linked = links.map(|link| (link, root.join(beside).join(link)));
        for (path, _) in here.chain(linked).filter(|(_, place)| !place.exists()) {
            findings.push(Finding { place: format!("{file}:{}", index + 1), rule: format!("`{path}` is not there") });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, source: &str) -> Vec<String> {
        let (requirements, second) = Requirements::of("# Head\n- **O1** PID 1 …\n- **word** no\n| O2 | in a table |\n");
        assert_eq!(second, []);
        requirements.findings(file, source).into_iter().map(|finding| finding.place + ": " + &finding.rule).collect()
    }

    #[test]
    fn an_id_without_a_line_is_found_where_people_read() {
        assert_eq!(
            found("a.rs", "/// Proves: O1, O2\nlet o = \"O2\"; // (O12)\n"),
            ["a.rs:1: O2 has no line in SPECIFICATION.md", "a.rs:2: O12 has no line in SPECIFICATION.md",]
        );
        assert_eq!(found("A.md", "D9–D10: X25519, P-256, SHA-256, K8s, O100, O0, O01, T1, O1.").len(), 3);
        assert_eq!(found("crates/dhcp/src/client.rs", "// T1, then T2\n"), Vec::<String>::new());
    }

    #[test]
    fn a_requirement_has_one_line() {
        assert_eq!(Requirements::of("- **O1** a\n- **O2** b\n- **O1** c\n").1, [(3, "O1")]);
    }

    #[test]
    fn dead_words_are_found_in_code_too_and_living_ones_are_not() {
        for (dead, instead) in DEAD {
            let rule = format!("`{dead}` cannot be looked up: write {instead}");
            assert_eq!(found("a.rs", &format!("say(\"{} {dead}\");", &dead[..4])), [format!("a.rs:1: {rule}")]);
        }
        assert_eq!(found("A.md", "FORMATS.md and image.flash"), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_is_not_there_is_found() {
        let root = tempfile::tempdir().expect("a place for files");
        std::fs::create_dir_all(root.path().join("init/src")).expect("made");
        let folders = BTreeSet::from(["init".to_owned()]);
        let document = "`init/src` `init/src/` `init/gone.rs` init/gone `boot/x`\nand `a` `init/src/gone`";
        let shown = |file: &str, document: &str| {
            let findings = lost(root.path(), &folders, file, document).into_iter();
            findings.map(|finding| format!("{}: {}", finding.place, finding.rule)).collect::<Vec<_>>()
        };
        let gone = ["A.md:1: `init/gone.rs` is not there", "A.md:2: `init/src/gone` is not there"];
        assert_eq!(shown("A.md", document), gone);
        let links = "[a](init/src#b) [b](https://x.org) `[c](init/gone)` [d](gone.md) and [e](init)";
        assert_eq!(shown("A.md", links), ["A.md:1: `gone.md` is not there"]);
        assert_eq!(shown("init/B.md", "[a](src) [b](../init)\n[c](init)"), ["init/B.md:2: `init` is not there"]);
    }
}
