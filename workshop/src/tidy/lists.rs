//! The rules that are not kept everywhere yet, and who still breaks each. A list only shrinks: who is not on it must keep the
//! rule, and who keeps it must not be on it. To see what one of them breaks, take it off its list.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::finding::Finding;

/// A rule with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Pronoun,
    Short,
    Participle,
    Unique,
    Not,
    TestName,
    Circle,
    Line,
    Cell,
    Size,
}

impl Rule {
    const ALL: [Self; 10] = [
        Self::Pronoun,
        Self::Short,
        Self::Participle,
        Self::Unique,
        Self::Not,
        Self::TestName,
        Self::Circle,
        Self::Line,
        Self::Cell,
        Self::Size,
    ];

    /// The table's word for what breaks the rule.
    const fn counts(self) -> &'static str {
        match self {
            Self::Pronoun => "doc comments that begin with a pronoun",
            Self::Short => "functions and types with at most three words",
            Self::Participle => "public types named by a participle",
            Self::Unique => "public types with another's name",
            Self::Not => "types named Not…",
            Self::TestName => "test names over 60 characters",
            Self::Circle => "names that close a circle of files",
            Self::Line => "lines of documents over 160 characters",
            Self::Cell => "cells of tables over 120 characters",
            Self::Size => "documents over their size",
        }
    }

    /// Crates by their names, and documents by their paths, that still break the rule.
    const fn list(self) -> &'static [&'static str] {
        match self {
            Self::Pronoun => &[],
            Self::Short => &[],
            Self::Participle => &[],
            Self::Unique => &[],
            Self::Not => &[],
            Self::TestName => &[],
            Self::Circle => &[],
            Self::Line => &[],
            Self::Cell => &[],
            Self::Size => &[],
        }
    }
}

/// A place where a rule with a list is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) rule: Rule,
    /// The crate or document that breaks it.
    pub(super) by: String,
    pub(super) finding: Finding,
}

/// All places where rules with lists are broken.
#[derive(Debug, Default)]
pub(super) struct Breaches(BTreeMap<Rule, BTreeMap<String, BTreeSet<Finding>>>);

impl Extend<Breach> for Breaches {
    fn extend<T: IntoIterator<Item = Breach>>(&mut self, breaches: T) {
        for Breach { rule, by, finding } in breaches {
            self.0.entry(rule).or_default().entry(by).or_default().insert(finding);
        }
    }
}

impl Breaches {
    /// Every breach by one that is not listed, and every entry of a list for one that keeps the rule.
    pub(super) fn findings(&self) -> Vec<Finding> {
        Rule::ALL.iter().flat_map(|rule| self.beside(*rule, rule.list())).collect()
    }

    /// The findings of one rule, given its list.
    fn beside(&self, rule: Rule, list: &[&str]) -> Vec<Finding> {
        let breaks = |by: &str| self.0.get(&rule).is_some_and(|broken| broken.contains_key(by));
        let idle = list.iter().filter(|listed| !breaks(listed)).map(|listed| Finding {
            place: "workshop/src/tidy/lists.rs".to_owned(),
            rule: format!("`{listed}` has no {}: take it off the list", rule.counts()),
        });
        let broken = self.0.get(&rule).into_iter().flatten();
        let broken = broken.filter(|(by, _)| !list.contains(&by.as_str())).flat_map(|(_, findings)| findings);
        idle.chain(broken.cloned()).collect()
    }

    /// A row for every rule: how often it is broken, and how often by whom, most first.
    pub(super) fn table(&self) -> String {
        let mut table = row("broken", "times", "by");
        for rule in Rule::ALL {
            let mut counts: Vec<_> =
                self.0.get(&rule).into_iter().flatten().map(|(by, found)| (found.len(), by)).collect();
            counts.sort_by_key(|(count, by)| (usize::MAX - count, *by));
            let all: usize = counts.iter().map(|(count, _)| count).sum();
            let each: Vec<_> = counts.iter().map(|(count, by)| format!("{by} {count}")).collect();
            let mut lines = wrapped(&each).into_iter();
            table += &row(rule.counts(), &all.to_string(), &lines.next().unwrap_or_default());
            table.extend(lines.map(|line| row("", "", &line)));
        }
        table
    }
}

/// Width of the last column: with the others a row fits a terminal of 120 columns.
const WIDTH: usize = 66;

fn row(what: &str, count: &str, by: &str) -> String {
    let row = format!("{what:<45} {count:>5}  {by}");
    format!("{}\n", row.trim_end())
}

/// Parts with commas between them, in lines of the last column's width.
fn wrapped(parts: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let comma = if index + 1 < parts.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 2 <= WIDTH => {
                let _cannot_fail = write!(line, " {part}{comma}");
            }
            _ => lines.push(format!("{part}{comma}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(by: &[(&str, usize)]) -> Breaches {
        let mut breaches = Breaches::default();
        for (by, line) in by {
            let finding = Finding { place: format!("{by}.rs:{line}"), rule: "is wrong".to_owned() };
            breaches.extend([Breach { rule: Rule::Short, by: (*by).to_owned(), finding }]);
        }
        breaches
    }

    #[test]
    fn a_list_excuses_those_on_it_and_nobody_else() {
        let breaches = breaches(&[("a", 1), ("b", 1), ("b", 2)]);
        let places =
            |list: &[&str]| breaches.beside(Rule::Short, list).into_iter().map(|one| one.place).collect::<Vec<_>>();
        assert_eq!(places(&["a", "b"]), Vec::<String>::new());
        assert_eq!(places(&["a"]), ["b.rs:1", "b.rs:2"]);
        assert_eq!(breaches.beside(Rule::Pronoun, &[]), [], "another rule");
    }

    #[test]
    fn a_list_only_shrinks() {
        let findings = breaches(&[("a", 1)]).beside(Rule::Short, &["a", "b"]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].rule.starts_with("`b` has no functions and types with"), "{findings:?}");
    }

    #[test]
    fn every_rule_is_counted_and_who_breaks_it_most_is_first() {
        let many: Vec<String> = (0..30).map(|number| format!("crate-{number}")).collect();
        let mut by = vec![("few", 1), ("more", 1), ("more", 2)];
        by.extend(many.iter().map(|name| (name.as_str(), 1)));
        let table = breaches(&by).table();
        let rows: Vec<&str> = table.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(rows.len(), 1 + Rule::ALL.len(), "{table}");
        assert!(
            rows[2].starts_with("functions and types with at most three words     33  more 2, crate-0 1,"),
            "{table}"
        );
        assert!(rows[1].ends_with("    0"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
        assert!(by.iter().all(|(name, _)| table.contains(&format!("{name} "))), "{table}");
    }
}
