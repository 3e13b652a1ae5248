//! How types and tests are named. A type is named for what it is, and no two public ones share a name, so that a name means
//! one thing in the whole workspace. Exceptions stand here with their reasons.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    finding::Finding,
    lists::{Breach, Rule},
    source::{Item, Kind},
};

/// Types whose last word only looks like a participle, or that prove that something was done, and why.
const PARTICIPLES: &[(&str, &str)] = &[
    ("Binding", "a noun: what a secret is bound to"),
    ("BadBinding", "a noun: a binding that does not fit"),
    ("Capped", "proves that the TPM was capped"),
    ("Desired", "the word of all documents for what a machine is to be"),
    ("Ending", "a noun: how a run of a service ended"),
    ("Halted", "proves that nothing but the next boot leads on"),
    ("Mapping", "a noun of the device mapper"),
    ("Need", "a noun: what a service cannot do without"),
    ("Paused", "proves that a machine's processors stand still"),
    ("Seed", "a noun: what randomness grows from"),
    ("Settled", "proves that the boot has made a member, whose data is open"),
    ("Standing", "a noun: how far a machine belongs to the cluster"),
    ("Waiting", "proves that the boot waits, and decides again"),
];
/// Names that several public types may share, and why.
const SHARED: &[(&str, &str)] = &[
    ("Event", "what a pure machine takes, by its module's name"),
    ("Effect", "what a pure machine asks for, by its module's name"),
    ("Report", "what a pure machine says, by its module's name"),
    ("Error", "the one error of a crate, by the crate's name"),
];
/// Participles that do not end as others do.
const IRREGULAR: &[&str] = &[
    "Begun", "Bound", "Broken", "Built", "Done", "Drawn", "Found", "Given", "Gone", "Held", "Kept", "Known", "Lost",
    "Made", "Met", "Read", "Seen", "Sent", "Shown", "Taken", "Told", "Written",
];
/// Longest name of a test, in characters: with its module's path it fits a line of a terminal.
const TEST_NAME: usize = 60;

/// Rules that an item's name breaks by itself, each with what is wrong. What is public is seen from other crates.
pub(super) fn broken(item: &Item) -> Vec<(Rule, String)> {
    let name = item.name.as_str();
    let mut broken = Vec::new();
    match item.kind {
        Kind::Test => broken.extend(long(name)),
        Kind::Type { public } => {
            if public && is_participle(name) && !PARTICIPLES.iter().any(|(listed, _)| *listed == name) {
                broken.push((Rule::Participle, format!("`{name}` says what happened: name it for what it is")));
            }
            if name.strip_prefix("Not").is_some_and(|rest| rest.starts_with(char::is_uppercase)) {
                broken.push((Rule::Not, format!("`{name}` says what did not happen: name what was wrong")));
            }
        }
        Kind::Function | Kind::Other => {}
    }
    broken
}

/// The rule that a test's or a case's name breaks by its length.
pub(super) fn long(name: &str) -> Option<(Rule, String)> {
    let length = name.chars().count();
    let rule = format!("the test's name `{name}` has {length} characters: at most {TEST_NAME}");
    (length > TEST_NAME).then_some((Rule::TestName, rule))
}

fn is_participle(name: &str) -> bool {
    let last = name.rfind(char::is_uppercase).map_or(name, |start| &name[start..]);
    last.ends_with("ed") || last.ends_with("ing") || IRREGULAR.contains(&last)
}

/// Where public types are declared, by their names.
#[derive(Debug, Default)]
pub(super) struct PublicTypes(BTreeMap<String, BTreeSet<(String, String)>>);

impl PublicTypes {
    /// Takes an item of a crate's library.
    pub(super) fn read(&mut self, member: &str, place: &str, item: &Item) {
        if item.kind == (Kind::Type { public: true }) {
            let places = self.0.entry(item.name.clone()).or_default();
            places.insert((member.to_owned(), place.to_owned()));
        }
    }

    /// Every declaration of a name that another one has, too.
    pub(super) fn breaches(&self) -> Vec<Breach> {
        let twice = self.0.iter().filter(|(_, places)| places.len() > 1);
        let twice = twice.filter(|(name, _)| !SHARED.iter().any(|(shared, _)| shared == name));
        let mut breaches = Vec::new();
        for (name, places) in twice {
            for (member, place) in places {
                let others = places.iter().filter(|(_, other)| other != place).map(|(_, other)| other.as_str());
                let rule = format!("`{name}` is declared at {}, too", others.collect::<Vec<_>>().join(", "));
                let finding = Finding { place: place.clone(), rule };
                breaches.push(Breach { rule: Rule::Unique, by: member.clone(), finding });
            }
        }
        breaches
    }

    /// Every exception that no public type needs any more.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let participles = PARTICIPLES.iter().filter(|(name, _)| !self.0.contains_key(*name) || !is_participle(name));
        let shared = SHARED.iter().filter(|(name, _)| self.0.get(*name).is_none_or(|places| places.len() < 2));
        let rule = |name: &str| format!("no public type needs the exception for `{name}`: take it off");
        let idle = participles.chain(shared).map(|(name, _)| rule(name));
        idle.map(|rule| Finding { place: "workshop/src/tidy/names.rs".to_owned(), rule }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::source::items, *};

    fn rules(source: &str) -> Vec<Rule> {
        items(source).iter().flat_map(broken).map(|(rule, _)| rule).collect()
    }

    #[test]
    fn a_public_type_that_is_named_by_a_participle_is_found() {
        for name in ["Sealed", "KeyAsked", "Gathering", "Told", "PeersSeen"] {
            assert_eq!(rules(&format!("pub struct {name};\n")), [Rule::Participle], "{name}");
            assert_eq!(rules(&format!("pub(crate) struct {name};\n")), [], "{name}");
        }
        for name in ["PeerBook", "Sealer", "SealedShare", "Ingest", "Edge", "Foretold"] {
            assert_eq!(rules(&format!("pub enum {name} {{\n")), [], "{name}");
        }
        assert_eq!(rules("pub fn Sealed() {}\n"), []);
    }

    #[test]
    fn an_error_that_says_what_did_not_happen_is_found() {
        assert_eq!(rules("pub(crate) enum NotGiven {\n"), [Rule::Not]);
        assert_eq!(rules("struct NotAnOwner;\n"), [Rule::Not]);
        assert_eq!(rules("pub struct Notice;\npub struct Not;\npub struct IsNotSo;\nfn f() {\n"), []);
    }

    #[test]
    fn a_test_with_a_long_name_is_found() {
        let test = |length| format!("#[test]\nfn {}() {{}}\n", "a".repeat(length));
        assert_eq!(rules(&test(60)), []);
        assert_eq!(rules(&test(61)), [Rule::TestName]);
        assert_eq!(rules(test(61).trim_start_matches("#[test]")), [], "no test");
        assert_eq!(long(&"ä".repeat(60)), None);
        assert!(long(&"ä".repeat(61)).is_some());
    }

    #[test]
    fn public_types_of_one_name_are_found_wherever_they_are() {
        let mut types = PublicTypes::default();
        for (member, source) in [
            ("a", "pub struct Key;\npub enum Event {\nstruct Row;\n"),
            ("b", "pub type Key = u8;\npub enum Event {\npub struct Row;\n"),
            ("b", "pub struct Only;\n"),
        ] {
            for item in items(source) {
                types.read(member, &format!("{member}.rs:{}", item.line), &item);
            }
        }
        let breaches = types.breaches();
        let found: Vec<_> = breaches.iter().map(|one| (one.by.as_str(), one.finding.rule.as_str())).collect();
        assert_eq!(found, [("a", "`Key` is declared at b.rs:1, too"), ("b", "`Key` is declared at a.rs:1, too")]);
    }

    #[test]
    fn an_exception_that_nothing_needs_is_found() {
        let idle = PublicTypes::default().findings().len();
        assert_eq!(idle, PARTICIPLES.len() + SHARED.len());
        let mut types = PublicTypes::default();
        for place in ["a.rs:1", "b.rs:1"] {
            items("pub enum Event {\n").iter().for_each(|item| types.read("a", place, item));
        }
        assert_eq!(types.findings().len(), idle - 1);
    }
}
