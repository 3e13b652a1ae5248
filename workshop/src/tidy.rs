//! The house rules that no compiler knows: which crate may name which, how files begin, how long they are, what they are
//! called, how comments and documents are written, and whether what they point at is there. It reads the checkout and reports;
//! with `CAIRN_BLESS` set it writes `docs/proofs.md` and `docs/invariants.md` anew, and nothing else ever.

mod cases;
mod circles;
mod directions;
mod documents;
mod finding;
mod generated;
mod invariants;
mod lists;
mod names;
mod programs;
mod proofs;
mod references;
mod rooms;
mod source;
mod text;
mod words;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};

use self::{
    circles::Circles,
    finding::Finding,
    generated::Generated,
    invariants::Invariants,
    lists::{Breach, Breaches, Rule},
    names::PublicTypes,
    proofs::Proofs,
    references::Requirements,
    source::Kind,
};
use xtask::{progress::say, workspace::Workspace};

/// `cargo xtask tidy`: prints every broken rule.
///
/// # Errors
/// At least one rule is broken, or the checkout cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let findings = House::read(workspace)?.findings;
    for finding in &findings {
        say(format_args!("{}: {}", finding.place, finding.rule));
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} house rules are broken"),
    }
}

/// `cargo xtask tidy --count`: how often the rules are broken that have a list, and by whom.
///
/// # Errors
/// The checkout cannot be read.
pub(crate) fn count(workspace: &Workspace) -> Result<String> {
    Ok(House::read(workspace)?.breaches.table())
}

/// All that is found in the checkout.
#[derive(Debug)]
struct House {
    findings: Vec<Finding>,
    breaches: Breaches,
}

impl House {
    fn read(workspace: &Workspace) -> Result<Self> {
        let metadata = MetadataCommand::new().manifest_path(workspace.path("Cargo.toml")).exec();
        let metadata = metadata.context("cargo metadata")?;
        let specification =
            fs::read_to_string(workspace.path(references::DOCUMENT)).context("read the specification")?;
        let (requirements, second) = Requirements::of(&specification);
        let mut findings = directions::findings(&metadata);
        findings.extend(second.into_iter().map(|(line, id)| Finding {
            place: format!("{}:{line}", references::DOCUMENT),
            rule: format!("a second line for {id}"),
        }));
        let mut code = Code::new(findings);
        let bans = bans(workspace)?;
        let members = members(&metadata);
        let mut folders = BTreeSet::from(["docs".to_owned()]);
        for (member, folder) in &members {
            folders.extend(shown(workspace, folder).split('/').next().map(str::to_owned));
            code.findings.extend(manifest(workspace, folder, &bans)?);
            // A crate's folder may hold another crate's.
            let inner = |file: &PathBuf| {
                members.iter().any(|(_, other)| other.starts_with(folder) && other != folder && file.starts_with(other))
            };
            for file in files(folder, &["proto", "txt", "rs"])?.into_iter().filter(|file| !inner(file)) {
                let source = fs::read_to_string(&file).with_context(|| format!("read `{}`", file.display()))?;
                let name = shown(workspace, &file);
                code.findings.extend(requirements.findings(&name, &source));
                if ends_so(&file, &["rs"]) {
                    code.read(member, &shown(workspace, folder), &name, &source);
                }
            }
        }
        code.hold_generated(workspace)?;
        let documents = documents(workspace)?;
        for (name, source) in &documents {
            code.findings.extend(requirements.findings(name, source));
            code.findings.extend(references::lost(workspace.root(), &folders, name, source));
            code.findings.extend(documents::lost_tests(name, source, &code.functions));
            code.breaches.extend(documents::breaches(name, source));
        }
        code.breaches.extend(documents::breach_of_all(&documents));
        Ok(code.judged())
    }
}

/// Rust files of the checkout, as far as they are read.
struct Code {
    findings: Vec<Finding>,
    breaches: Breaches,
    circles: Circles,
    invariants: Invariants,
    proofs: Proofs,
    types: PublicTypes,
    /// Names of all functions, and of the cases on machines as documents write them.
    functions: BTreeSet<String>,
}

impl Code {
    /// Begins with what was found before, and with the cases on machines: their tables are asked.
    fn new(findings: Vec<Finding>) -> Self {
        let mut code = Self {
            findings,
            breaches: Breaches::default(),
            circles: Circles::default(),
            invariants: Invariants::default(),
            proofs: Proofs::of_cases(::tests::TABLES),
            types: PublicTypes::default(),
            functions: BTreeSet::new(),
        };
        for (file, case) in ::tests::TABLES.iter().flat_map(|table| table.cases.iter().map(|case| (table.file, case))) {
            code.functions.insert(documents::word_of_case(case.name));
            code.breaches.extend(names::long(case.name).map(|(rule, wrong)| {
                let finding = Finding { place: format!("tests/cases/{file}"), rule: wrong };
                Breach { rule, by: "tests".to_owned(), finding }
            }));
        }
        code
    }

    /// Reads a file of a crate, given the crate's folder.
    fn read(&mut self, member: &str, folder: &str, file: &str, source: &str) {
        let in_src = file.strip_prefix(folder).is_some_and(|path| path.starts_with("/src/"));
        self.findings.extend(text::findings(file, source));
        self.findings.extend(rooms::findings(file, source));
        self.findings.extend(cases::findings(file, source));
        if directions::is_pure(member) && in_src {
            self.findings.extend(text::world(file, source));
        }
        if directions::runs_on_a_persons_machine(member) {
            self.findings.extend(programs::findings(file, source));
        }
        self.circles.read(member, folder, file, source);
        self.invariants.read(member, file, source);
        self.proofs.read(file, source);
        for item in source::items(source) {
            let place = format!("{file}:{}", item.line);
            if matches!(item.kind, Kind::Function | Kind::Test) {
                self.functions.insert(item.name.clone());
            }
            if in_src {
                self.types.read(member, &place, &item);
            }
            let named = names::broken(&item).into_iter().map(|(rule, wrong)| (rule, place.clone(), wrong));
            let said =
                words::broken(&item).into_iter().map(|(rule, line, wrong)| (rule, format!("{file}:{line}"), wrong));
            self.breaches.extend(named.chain(said).map(|(rule, place, wrong)| Breach {
                rule,
                by: member.to_owned(),
                finding: Finding { place, rule: wrong },
            }));
        }
    }

    /// Holds the documents that are made of the sources to them, or writes them.
    fn hold_generated(&mut self, workspace: &Workspace) -> Result<()> {
        let invariants = Generated::read(workspace, invariants::DOCUMENT);
        let proofs = Generated::read(workspace, proofs::DOCUMENT);
        let wanted = [(&invariants, self.invariants.document()), (&proofs, self.proofs.document(proofs.text()))];
        for (document, wanted) in wanted {
            self.findings.extend(document.hold_to(workspace, &wanted)?);
        }
        Ok(())
    }

    /// Judges what can be judged only when all is read.
    fn judged(self) -> House {
        let Self { mut findings, mut breaches, circles, invariants, proofs, types, functions } = self;
        breaches.extend(types.breaches());
        breaches.extend(circles.findings().into_iter().map(|(by, finding)| Breach { rule: Rule::Circle, by, finding }));
        findings.extend(types.findings());
        findings.extend(proofs.findings());
        findings.extend(invariants.findings(&functions));
        findings.extend(breaches.findings());
        findings.sort();
        House { findings, breaches }
    }
}

/// Findings in a crate's own manifest and lint settings.
fn manifest(workspace: &Workspace, folder: &Path, bans: &str) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).context("read a member's manifest")?;
    if !manifest.contains("\n[lints]\nworkspace = true\n") {
        let place = shown(workspace, &folder.join("Cargo.toml"));
        findings.push(Finding { place, rule: "does not take the workspace's lints".to_owned() });
    }
    if let Ok(own) = fs::read_to_string(folder.join("clippy.toml")) {
        let place = shown(workspace, &folder.join("clippy.toml"));
        findings.extend(bans.lines().filter(|ban| !own.contains(ban)).map(|ban| Finding {
            place: place.clone(),
            rule: format!("hides the root's line `{}`: repeat it", ban.trim()),
        }));
    }
    Ok(findings)
}

/// Settings of the root's `clippy.toml`. Clippy reads the nearest one alone, so a crate with its own repeats all of it.
fn bans(workspace: &Workspace) -> Result<String> {
    let text = fs::read_to_string(workspace.path("clippy.toml")).context("read the lints' settings")?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect())
}

/// Name and folder of every member.
fn members(metadata: &Metadata) -> Vec<(String, PathBuf)> {
    let folder =
        |package: &Package| package.manifest_path.parent().map(|folder| folder.to_path_buf().into_std_path_buf());
    let packages = metadata.workspace_packages().into_iter();
    packages.filter_map(|package| Some((package.name.to_string(), folder(package)?))).collect()
}

/// All files below a folder whose names end so.
fn files(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for path in list(&folder)? {
            if path.is_dir() {
                left.push(path);
            } else if ends_so(&path, endings) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The documents beside the workspace's manifest and below `docs`: name and text.
fn documents(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let mut paths = list(workspace.root())?;
    paths.extend(files(&workspace.path("docs"), &["md"])?);
    paths.retain(|path| path.is_file() && ends_so(path, &["md"]));
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
        Ok((shown(workspace, &path), text))
    };
    paths.into_iter().map(read).collect()
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let items = fs::read_dir(folder).and_then(|items| items.map(|item| Ok(item?.path())).collect());
    items.with_context(|| format!("list `{}`", folder.display()))
}

fn ends_so(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted))
}

fn shown(workspace: &Workspace, path: &Path) -> String {
    path.strip_prefix(workspace.root()).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: A3. And the other house rules: dependency directions, file heads, names, lengths, banned words.
    #[test]
    fn the_house_is_in_order() {
        let workspace = Workspace::of_cargo().expect("run by cargo");
        let findings = House::read(&workspace).expect("the checkout is readable").findings;
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
