//! Circles of modules: no module names one that names it back, by itself or by way of others. A module stands on those that
//! it declares; they may name it and its ancestors, which is no circle. It reads the text of files, as `rooms` does for
//! `init`; tests may name whom they like.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    finding::Finding,
    source::{Line, lines, without_tests},
};

/// A folder beside `src` whose files are modules of its crate, and the module that declares them.
const CASES: (&str, &str) = ("tests/cases/", "tables");

/// The way from a crate's root to a module; empty for the root itself.
type Module = Vec<String>;

/// Names in the files of all crates.
#[derive(Debug, Default)]
pub(super) struct Circles {
    crates: BTreeMap<String, BTreeMap<Module, Source>>,
}

/// Modules that a file declares and names.
#[derive(Debug, Default)]
struct Source {
    declares: Vec<Module>,
    /// Each path that begins with `crate`, `super` or `self`, with its place: from the crate's root, and on beyond the module.
    names: Vec<(String, Module)>,
}

impl Circles {
    /// Takes a file of a crate, given the crate's folder; a file that is no module of the crate is left out.
    pub(super) fn read(&mut self, member: &str, folder: &str, file: &str, source: &str) {
        let Some(module) = module(folder, file) else { return };
        let tokens = tokens(&without_tests(lines(source)));
        let declared = tokens.windows(3).filter(|three| three[0].1 == "mod" && three[2].1 == ";");
        let declares: Vec<Module> = declared.map(|three| below(&module, &three[1].1)).collect();
        let names = names(&tokens, &module).into_iter().map(|(line, path)| (format!("{file}:{line}"), path));
        // A crate may have two roots, a library's and a program's.
        let known = self.crates.entry(member.to_owned()).or_default().entry(module).or_default();
        known.declares.extend(declares);
        known.names.extend(names);
    }

    /// Every name in a file that closes a circle, with the crate.
    pub(super) fn findings(&self) -> Vec<(String, Finding)> {
        let found =
            |(member, modules): (&String, _)| findings(modules).into_iter().map(|one| (member.clone(), one)).collect();
        self.crates.iter().flat_map::<Vec<_>, _>(found).collect()
    }
}

/// The module that a file of a crate is.
fn module(folder: &str, file: &str) -> Option<Module> {
    let path = file.strip_suffix(".rs")?;
    let (cases, table) = CASES;
    let (above, path) = match path.strip_prefix(cases) {
        Some(path) => (Some(table), path),
        None => (None, path.strip_prefix(folder)?.strip_prefix("/src/")?),
    };
    let names = above.into_iter().chain(path.split('/'));
    let names: Vec<&str> = if path == table { vec![table] } else { names.collect() };
    Some(names.into_iter().filter(|_| !["lib", "main"].contains(&path)).map(str::to_owned).collect())
}

/// The modules that are compiled without tests: a declaration leads to each.
fn compiled(modules: &BTreeMap<Module, Source>) -> BTreeMap<&[String], &Source> {
    let mut compiled = BTreeMap::new();
    let mut left = vec![Module::new()];
    while let Some(module) = left.pop() {
        if let Some((module, source)) = modules.get_key_value(&module)
            && compiled.insert(module.as_slice(), source).is_none()
        {
            left.extend(source.declares.iter().cloned());
        }
    }
    compiled
}

fn findings(modules: &BTreeMap<Module, Source>) -> BTreeSet<Finding> {
    let modules = compiled(modules);
    // Those whom a module names beside its ancestors.
    let named = |module: &[String], path| owner(&modules, path).filter(|named| !module.starts_with(named));
    let mut arrows: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for (module, source) in &modules {
        let paths = source.names.iter().map(|(_, path)| path).chain(&source.declares);
        arrows.insert(module, paths.filter_map(|path| named(module, path)).collect());
    }
    let mut findings = BTreeSet::new(); // a line that names two things of a module is one finding
    for (module, source) in &modules {
        for (place, path) in &source.names {
            if let Some(back) = named(module, path).and_then(|named| way(&arrows, named, module)) {
                let rule = format!("a circle of modules: {} → {}", shown(module), back.join(" → "));
                findings.insert(Finding { place: place.clone(), rule });
            }
        }
    }
    findings
}

/// The module that a path leads into: the longest of its beginnings that is one.
fn owner<'a>(modules: &BTreeMap<&[String], &Source>, path: &'a [String]) -> Option<&'a [String]> {
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
fn tokens(lines: &[Line<'_>]) -> Vec<(usize, String)> {
    let mut tokens: Vec<(usize, String)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.code.replace("::", " \u{2237} ");
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
            let folder = file.split_once("/src/").map_or("tests", |(folder, _)| folder);
            circles.read("member", folder, file, source);
        }
        circles.findings().into_iter().map(|(_, finding)| format!("{}: {}", finding.place, finding.rule)).collect()
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
    fn a_circle_by_way_of_others_is_found_and_nothing_beside_it() {
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
    fn a_child_may_name_its_ancestors_and_no_sibling_that_names_it() {
        let files = |part, shared| {
            let whole = ("crates/pki/src/a.rs", "mod part;\nmod shared;\nfn f() { part::g() }\n");
            [
                ("crates/pki/src/lib.rs", "mod a;\n"),
                whole,
                ("crates/pki/src/a/part.rs", part),
                ("crates/pki/src/a/shared.rs", shared),
            ]
        };
        for part in ["use super::shared::S;\n", "use super::f;\n", "use crate::a::f;\n", "use crate::X;\n"] {
            assert_eq!(broken(&files(part, "")), Vec::<String>::new(), "{part}");
        }
        let circle = broken(&files("use super::shared::S;\n", "use crate::a::part;\n"));
        assert_eq!(circle.len(), 2, "{circle:?}");
    }

    #[test]
    fn a_circle_by_way_of_a_child_is_found() {
        let files = [
            ROOT,
            ("image/src/a.rs", "mod part;\n"),
            ("image/src/a/part.rs", "use crate::b;\n"),
            ("image/src/b.rs", "use crate::a::X;\n"),
            ("image/src/c.rs", ""),
        ];
        let places = [
            "a/part.rs:1: a circle of modules: a::part → b → a → a::part",
            "b.rs:1: a circle of modules: b → a → a::part → b",
        ];
        assert_eq!(broken(&files), places.map(|place| format!("image/src/{place}")));
    }

    #[test]
    fn a_module_for_tests_alone_closes_no_circle() {
        let root = "mod a;\n#[cfg(test)]\nmod fake;\n#[cfg(test)]\nmod world;\nmod b;\n";
        let files = |root| {
            [
                ("image/src/lib.rs", root),
                ("image/src/a.rs", "#[cfg(test)]\nuse crate::fake;\nuse crate::b;\n"),
                ("image/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
                ("image/src/b/tests.rs", "use crate::a;\n"),
                ("image/src/fake.rs", "use crate::world;\n"),
                ("image/src/world.rs", "use crate::fake;\n"),
            ]
        };
        assert_eq!(broken(&files(root)), Vec::<String>::new());
        let mut circle = files(root);
        circle[2].1 = "use crate::a;\n#[cfg(test)]\nmod tests;\n";
        assert_eq!(broken(&circle).len(), 2, "code between tests is read");
    }

    #[test]
    fn cases_on_machines_are_modules_and_their_program_is_not() {
        let files = |main| {
            [
                ("tests/src/lib.rs", "#[path = \"../cases/tables.rs\"]\nmod tables;\nmod plan;\n"),
                ("tests/src/plan.rs", "use crate::tables::boot;\n"),
                ("tests/cases/tables.rs", "mod boot;\n"),
                ("tests/cases/boot.rs", main),
                ("tests/cases/main.rs", "use crate::plan;\n"),
            ]
        };
        assert_eq!(broken(&files("")), Vec::<String>::new());
        assert_eq!(broken(&files("use crate::plan;\n")).len(), 2);
    }
}
