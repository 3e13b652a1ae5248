//! The house rules that no compiler knows: which crate may name which, how files begin, how long they are, what they are
//! called, what the specification says of tests, and whether what they point at is there. It reads the checkout and reports; with `CAIRN_BLESS` set it writes the
//! specification's rows of tests anew, and nothing else ever.

mod circles;
mod directions;
mod finding;
mod programs;
mod proofs;
mod references;
mod rooms;
mod text;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};

use self::{circles::Circles, finding::Finding, proofs::Proofs, references::Requirements};
use xtask::{progress::say, workspace::Workspace};

/// `cargo xtask tidy`: prints every broken rule.
///
/// # Errors
/// At least one rule is broken, or the checkout cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let findings = findings(workspace)?;
    for finding in &findings {
        say(format_args!("{}: {}", finding.place, finding.rule));
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} house rules are broken"),
    }
}

fn findings(workspace: &Workspace) -> Result<Vec<Finding>> {
    let metadata =
        MetadataCommand::new().manifest_path(workspace.path("Cargo.toml")).exec().context("cargo metadata")?;
    let mut findings = directions::findings(&metadata);
    let mut circles = Circles::default();
    let mut proofs = Proofs::of_cases(::tests::TABLES);
    let document = workspace.path(proofs::DOCUMENT);
    let mut specification = fs::read_to_string(&document).context("read the specification")?;
    let written = specification.clone();
    let (requirements, second) = Requirements::of(&written);
    for (line, id) in second {
        let place = format!("{}:{line}", proofs::DOCUMENT);
        findings.push(Finding { place, rule: format!("a second line for {id}") });
    }
    let bans = bans(workspace)?;
    let mut folders = BTreeSet::new();
    for (member, folder) in members(&metadata) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).context("read a member's manifest")?;
        let name = shown(workspace, &folder.join("Cargo.toml"));
        folders.extend(name.split('/').next().map(str::to_owned));
        if !manifest.contains("\n[lints]\nworkspace = true\n") {
            findings.push(Finding { place: name, rule: "does not take the workspace's lints".to_owned() });
        }
        if let Ok(own) = fs::read_to_string(folder.join("clippy.toml")) {
            let place = shown(workspace, &folder.join("clippy.toml"));
            findings.extend(bans.lines().filter(|ban| !own.contains(ban)).map(|ban| Finding {
                place: place.clone(),
                rule: format!("hides the root's line `{}`: repeat it", ban.trim()),
            }));
        }
        for file in files(&folder, &["proto", "txt"])? {
            let source = fs::read_to_string(&file).with_context(|| format!("read `{}`", file.display()))?;
            findings.extend(requirements.findings(&shown(workspace, &file), &source));
        }
        for file in files(&folder, &["rs"])? {
            let source = fs::read_to_string(&file).with_context(|| format!("read `{}`", file.display()))?;
            let name = shown(workspace, &file);
            findings.extend(text::findings(&name, &source));
            findings.extend(rooms::findings(&name, &source));
            circles.read(&name, &source);
            findings.extend(requirements.findings(&name, &source));
            if directions::is_pure(&member) && file.starts_with(folder.join("src")) {
                findings.extend(text::world(&name, &source));
            }
            if directions::runs_on_a_persons_machine(&member) {
                findings.extend(programs::findings(&name, &source));
            }
            proofs.read(&name, &source);
        }
    }
    for file in documents(workspace.root())? {
        let source = fs::read_to_string(&file).with_context(|| format!("read `{}`", file.display()))?;
        let name = shown(workspace, &file);
        findings.extend(requirements.findings(&name, &source));
        findings.extend(references::lost(workspace.root(), &folders, &name, &source));
    }
    if env::var_os("CAIRN_BLESS").is_some() {
        specification = proofs.blessed(&specification);
        fs::write(&document, &specification).context("write the specification")?;
    }
    findings.extend(proofs.findings(&specification));
    findings.extend(circles.findings());
    findings.sort();
    Ok(findings)
}

/// What the root's `clippy.toml` says. Clippy reads the nearest one alone, so a crate with its own repeats all of it.
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

/// What people read first: the documents beside the workspace's manifest.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    Ok(list(root)?.into_iter().filter(|path| ends_so(path, &["md"])).collect())
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
        let findings = findings(&workspace).expect("the checkout is readable");
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
