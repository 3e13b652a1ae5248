//! Circles of modules: in the crates named here no module names one that names it back, by itself or by way of others. A
//! module stands on those that it declares, so what it shares with them is a module of its own. It reads the text of files,
//! as `rooms` does for `init`; tests may name whom they like.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::text::code;

/// Folders of the crates that have no circle.
const CRATES: &[&str] = &["crates/pki/src/", "image/src/", "workshop/src/", "xtask/src/"];

/// The way from a crate's root to a module; empty for the root itself.
type Module = Vec<String>;

/// What the files of the crates name.
#[derive(Debug, Default)]
pub(super) struct Circles {
    crates: BTreeMap<&'static str, BTreeMap<Module, Source>>,
}

/// What one module says of others.
#[derive(Debug, Default)]
struct Source {
    declares: Vec<Module>,
    /// Each path that begins with `crate`, `super` or `self`, with its place: from the crate's root, and on beyond the module.
    names: Vec<(String, Module)>,
}

impl Circles {
    /// Takes a file, where it belongs to one of the crates.
    pub(super) fn read(&mut self, file: &str, source: &str) {
        let Some((folder, module)) = CRATES.iter().find_map(|folder| Some((*folder, file.strip_prefix(folder)?)))
        else {
            return;
        };
        let mut module: Module = module.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module == ["lib"] || module == ["main"] {
            module.clear();
        }
        let tokens = tokens(source.split_once("#[cfg(test)]").map_or(source, |(before, _tests)| before));
        let declared = tokens.windows(3).filter(|three| three[0].1 == "mod" && three[2].1 == ";");
        let declares: Vec<Module> = declared.map(|three| below(&module, &three[1].1)).collect();
        let names = names(&tokens, &module).into_iter().map(|(line, path)| (format!("{file}:{line}"), path));
        // A crate may have two roots, a library's and a program's.
        let known = self.crates.entry(folder).or_default().entry(module).or_default();
        known.declares.extend(declares);
        known.names.extend(names);
    }

    /// Every name in a file that closes a circle.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.crates.values().flat_map(findings).collect()
    }
}

fn findings(modules: &BTreeMap<Module, Source>) -> BTreeSet<Finding> {
    let mut arrows: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for (module, source) in modules {
        let named = source.names.iter().map(|(_, path)| path).chain(&source.declares);
        let named = named.filter_map(|path| owner(modules, path));
        arrows.insert(module, named.filter(|named| *named != module.as_slice()).collect());
    }
    let mut findings = BTreeSet::new(); // a line that names two things of a module is one finding
    for (module, source) in modules {
        for (place, path) in &source.names {
            let Some(named) = owner(modules, path).filter(|named| *named != module.as_slice()) else { continue };
            if let Some(back) = way(&arrows, named, module) {
                let rule = format!("a circle of modules: {} → {}", shown(module), back.join(" → "));
                findings.insert(Finding { place: place.clone(), rule });
            }
        }
    }
    findings
}

/// The module that a path leads into: the longest of its beginnings that is one.
fn owner<'a>(modules: &BTreeMap<Module, Source>, path: &'a [String]) -> Option<&'a [String]> {
    (0..=path.len()).rev().map(|end| &path[..end]).find(|path| modules.contains_key(*path))
}

/// The shortest way along the arrows, both ends included.
fn way(arrows: &BTreeMap<&[String], BTreeSet<&[String]>>, from: &[String], to: &[String]) -> Option<Vec<String>> {
    let mut seen = BTreeSet::from([from]);
    let mut ways = VecDeque::from([vec![from]]);
    while let Some(way) = ways.pop_front() {
        let end = *way.last()?;
        if end == to {
            return Some(way.into_iter().map(shown).collect());
        }
        for next in arrows.get(end).into_iter().flatten().filter(|next| seen.insert(**next)) {
            ways.push_back([&way[..], &[*next]].concat());
        }
    }
    None
}

fn shown(module: &[String]) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

fn below(module: &[String], name: &str) -> Module {
    [module, &[name.to_owned()]].concat()
}

/// Words and signs of the code, with their lines; `::` is one sign.
fn tokens(source: &str) -> Vec<(usize, String)> {
    let mut tokens: Vec<(usize, String)> = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let code = code(line).replace("::", " \u{2237} ");
        for word in code.split_whitespace() {
            for part in word.split_inclusive(|letter: char| !letter.is_alphanumeric() && letter != '_') {
                let sign = part.chars().last().filter(|letter| !letter.is_alphanumeric() && *letter != '_');
                let name = &part[..part.len() - sign.map_or(0, char::len_utf8)];
                tokens.extend(
                    [name.to_owned(), sign.map(String::from).unwrap_or_default()].map(|part| (index + 1, part)),
                );
            }
        }
    }
    tokens.retain(|(_, token)| !token.is_empty());
    tokens
}

/// `::`
const IN: &str = "\u{2237}";

fn names(tokens: &[(usize, String)], module: &[String]) -> Vec<(usize, Module)> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some((_, token)) = tokens.get(at) {
        let begins = ["crate", "super", "self"].contains(&token.as_str()) && is(tokens, at + 1, IN);
        if begins && !(at > 0 && is(tokens, at - 1, IN)) {
            at = tree(tokens, at, module.to_vec(), &mut names);
        } else {
            at += 1;
        }
    }
    names
}

fn is(tokens: &[(usize, String)], at: usize, wanted: &str) -> bool {
    tokens.get(at).is_some_and(|(_, token)| token == wanted)
}

/// Reads a path or, behind `::`, a group of them, that goes on from `path`; where the next token is.
fn tree(tokens: &[(usize, String)], mut at: usize, mut path: Module, names: &mut Vec<(usize, Module)>) -> usize {
    while let Some((line, token)) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some() && !is(tokens, at, "}") {
                    at = if is(tokens, at, ",") { at + 1 } else { tree(tokens, at, path.clone(), names) };
                }
                return at + 1;
            }
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
        if !is(tokens, at, IN) {
            names.push((*line, path));
            return if is(tokens, at, "as") { at + 2 } else { at };
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules that a crate of these files breaks, with their places.
    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let mut circles = Circles::default();
        for (file, source) in files {
            circles.read(file, source);
        }
        circles.findings().into_iter().map(|finding| format!("{}: {}", finding.place, finding.rule)).collect()
    }

    const ROOT: (&str, &str) = ("image/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use a::X;\n");

    #[test]
    fn modules_that_stand_on_each_other_are_good() {
        let files = [
            ROOT,
            (
                "image/src/a.rs",
                "mod part;\nuse crate::b::{self, B};\nuse crate::c;\nfn f() { part::g(self::part::h()) }\n",
            ),
            ("image/src/a/part.rs", "use crate::b::B;\nuse super::super::c::C;\n"),
            ("image/src/b.rs", "use crate::c::C as A;\n// crate::a\nfn f() { say(\"crate::a\") }\n"),
            ("image/src/c.rs", "fn c() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n"),
        ];
        assert_eq!(broken(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let back = [
            "use crate::a::A;",
            "use crate::{c, a};",
            "use crate::{\n    c::{self, C},\n    a::{A, other},\n};",
            "fn f() { crate::a::g() }",
            "use super::a;",
            "use crate::c as other; use super::{c::C as D, a};",
        ];
        for back in back {
            let files = [ROOT, ("image/src/a.rs", "use crate::b;\n"), ("image/src/b.rs", back), ("image/src/c.rs", "")];
            let broken = broken(&files);
            assert_eq!(broken.len(), 2, "{back}: {broken:?}");
            assert_eq!(broken[0], "image/src/a.rs:1: a circle of modules: a → b → a");
        }
    }

    #[test]
    fn a_circle_by_way_of_others_is_found_and_a_name_beside_it_is_not() {
        let files = [
            ("xtask/src/lib.rs", "pub mod a;\npub mod b;\npub mod c;\npub mod d;\n"),
            ("xtask/src/a.rs", "use crate::b;\n"),
            ("xtask/src/b.rs", "use crate::d;\nuse crate::c;\n"),
            ("xtask/src/c.rs", "\nuse crate::a;\n"),
            ("xtask/src/d.rs", ""),
        ];
        let places = ["a.rs:1: a circle of modules: a → b → c → a", "b.rs:2: a circle of modules: b → c → a → b"];
        let places = [places[0], places[1], "c.rs:2: a circle of modules: c → a → b → c"];
        assert_eq!(broken(&files), places.map(|place| format!("xtask/src/{place}")));
    }

    #[test]
    fn who_is_declared_names_neither_the_declaring_module_nor_the_root() {
        let files = |part| {
            let whole = ("crates/pki/src/a.rs", "mod part;\nmod shared;\nfn f() { part::g() }\n");
            [
                ("crates/pki/src/lib.rs", "mod a;\n"),
                whole,
                ("crates/pki/src/a/part.rs", part),
                ("crates/pki/src/a/shared.rs", ""),
            ]
        };
        assert_eq!(broken(&files("use super::shared::S;\n")), Vec::<String>::new());
        let with_a_program = [&files("use crate::X;\n")[..], &[("crates/pki/src/main.rs", "fn main() {}\n")]].concat();
        assert_eq!(broken(&with_a_program).len(), 1, "whose root declares nothing");
        for (part, back) in [
            ("use super::f;\n", "a → a::part"),
            ("use crate::a::f;\n", "a → a::part"),
            ("use crate::X;\n", "the root → a → a::part"),
        ] {
            assert_eq!(
                broken(&files(part)),
                [format!("crates/pki/src/a/part.rs:1: a circle of modules: a::part → {back}")]
            );
        }
    }

    #[test]
    fn other_crates_are_left_alone() {
        assert_eq!(
            broken(&[("cli/src/a.rs", "use crate::b;\n"), ("cli/src/b.rs", "use crate::a;\n")]),
            Vec::<String>::new()
        );
    }
}
