//! The licences of what others wrote and we ship: one text per component. It must never pass over a part in silence: a
//! module without a licence file stops the build.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};
use xtask::process::answer;

/// Raised when the texts change for the same parts; goes into the keys of the cache.
pub(crate) const RECIPE: &str = "2";
/// How licence files begin, in capitals.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "PATENTS", "UNLICENSE"];
const RULE: &str = "================================================================================";

/// The notices of all Go modules linked into packages, and of Go itself. `go` gives the go command in the module's folder.
///
/// # Errors
/// The go command fails, or a linked module has no licence file.
pub(crate) fn of_go(go: impl Fn() -> Command, tags: &str, packages: &[&str]) -> Result<String> {
    // Per linked package: its folder, and its module's name, version and folder; nothing for the standard library.
    let form = "{{with .Module}}{{if not .Main}}{{$.Dir}}\t{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}";
    let listed = answer(go().args(["list", "-mod=readonly", "-deps", "-tags", tags, "-f", form]).args(packages))?;
    let mut modules: BTreeMap<String, BTreeMap<PathBuf, String>> = BTreeMap::new();
    for line in listed.lines().filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [package, module, version, root] = fields[..] else { bail!("go list printed {line:?}") };
        let files = modules.entry(format!("{module} {version}")).or_default();
        // From the package up to the module's root: a package copied from elsewhere has its own licence beside it.
        for folder in Path::new(package).ancestors().take_while(|folder| folder.starts_with(root)) {
            files.extend(licence_files(folder)?);
        }
    }
    let root = answer(go().args(["env", "GOROOT"]))?;
    modules.insert("the Go standard library and runtime".to_owned(), licence_files(Path::new(&root))?);
    render(&modules)
}

/// The notices of Debian packages whose libraries are linked statically.
///
/// # Errors
/// A package without a copyright file.
pub(crate) fn of_debian(packages: &[&str]) -> Result<String> {
    let mut parts = BTreeMap::new();
    for package in packages {
        let path = PathBuf::from(format!("/usr/share/doc/{package}/copyright"));
        let text = fs::read(&path).with_context(|| format!("read `{}`", path.display()))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        parts.insert(format!("Debian package {package}"), BTreeMap::from([(path, text)]));
    }
    render(&parts)
}

/// The notices of all crates that workspace members link, the members themselves left out. A crate that ships no
/// licence file is named with the licence that its manifest declares.
///
/// # Errors
/// A member or a crate of [`DATA`] is not in the metadata, a crate declares no licence at all.
pub(crate) fn of_rust(metadata: &Metadata, members: &[&str]) -> Result<String> {
    let mut parts = BTreeMap::new();
    for data in DATA {
        let package = metadata.packages.iter().find(|package| package.name == *data);
        let (name, files) = of_package(package.with_context(|| format!("find the crate `{data}`"))?)?;
        parts.insert(name, files);
    }
    for member in members {
        let package = metadata.workspace_packages().into_iter().find(|package| package.name == *member);
        let package = package.with_context(|| format!("find the member `{member}`"))?;
        for id in linked(metadata, &package.id)?.iter().filter(|id| !metadata.workspace_members.contains(id)) {
            let (name, files) = of_package(&metadata[id])?;
            parts.insert(name, files);
        }
    }
    render(&parts)
}

/// Crates whose data is in the image, though nothing there is linked with them.
const DATA: &[&str] = &["webpki-root-certs"];

/// Name of a crate with its version, and its licence files.
fn of_package(package: &Package) -> Result<(String, BTreeMap<PathBuf, String>)> {
    let folder = package.manifest_path.parent().context("a manifest has a folder")?;
    let mut files = licence_files(folder.as_std_path())?;
    let name = format!("{} {}", package.name, package.version);
    if files.is_empty() {
        let licence = package.license.as_ref().with_context(|| format!("{name} declares no licence"))?;
        files.insert(PathBuf::from("Cargo.toml"), format!("licensed under {licence}"));
    }
    Ok((name, files))
}

/// Packages that end up in a member's executable: ordinary dependencies of ordinary dependencies.
fn linked(metadata: &Metadata, member: &PackageId) -> Result<Vec<PackageId>> {
    let resolve = metadata.resolve.as_ref().context("metadata without a dependency graph")?;
    let mut found: Vec<PackageId> = vec![member.clone()];
    let mut next = 0;
    while let Some(id) = found.get(next).cloned() {
        next += 1;
        let node = resolve.nodes.iter().find(|node| node.id == id).context("a package is missing in the graph")?;
        for dependency in &node.deps {
            let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if normal && !found.contains(&dependency.pkg) {
                found.push(dependency.pkg.clone());
            }
        }
    }
    Ok(found)
}

/// The licence files directly in a folder, with their texts.
fn licence_files(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    for item in fs::read_dir(folder).with_context(|| format!("list `{}`", folder.display()))? {
        let path = item.with_context(|| format!("list `{}`", folder.display()))?.path();
        if is_licence(&path) && path.is_file() {
            let text = fs::read(&path).with_context(|| format!("read `{}`", path.display()))?;
            found.insert(path, String::from_utf8_lossy(&text).into_owned());
        }
    }
    Ok(found)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_uppercase()).unwrap_or_default();
    let source = [".GO", ".RS", ".C", ".H"].iter().any(|ending| name.ends_with(ending));
    !source && NAMES.iter().any(|start| name.starts_with(start))
}

/// Writes one text: each licence once, under the names of all parts that carry it. Paths are left out but for the
/// file's name: they differ between machines.
fn render(parts: &BTreeMap<String, BTreeMap<PathBuf, String>>) -> Result<String> {
    let mut licences: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (part, files) in parts {
        if files.is_empty() {
            bail!("{part} has no licence file");
        }
        for (path, content) in files {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            licences.entry(content.trim_end()).or_default().insert(format!("{part}: {name}"));
        }
    }
    let mut texts: Vec<String> = Vec::new();
    for (content, carriers) in licences {
        let carriers: Vec<String> = carriers.into_iter().collect();
        texts.push(format!("{RULE}\n{}\n{RULE}\n{content}\n\n", carriers.join("\n")));
    }
    texts.sort(); // by the first part's name
    Ok(texts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_files_are_told_from_source() {
        for name in ["LICENSE", "LICENSE-MIT", "license.txt", "COPYING.LESSER", "NOTICE", "Licence.md"] {
            assert!(is_licence(Path::new(name)), "{name}");
        }
        for name in ["license.go", "README", "notices.rs", "src"] {
            assert!(!is_licence(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_part_without_a_licence_stops() {
        let parts = BTreeMap::from([("x 1".to_owned(), BTreeMap::new())]);
        assert_eq!(render(&parts).expect_err("no licence").to_string(), "x 1 has no licence file");
    }

    #[test]
    fn the_same_text_stands_once_under_all_that_carry_it() {
        let part = |path: &str| BTreeMap::from([(PathBuf::from(path), "text\n".to_owned())]);
        let parts = BTreeMap::from([("x 1".to_owned(), part("/a/LICENSE")), ("y 2".to_owned(), part("/b/COPYING"))]);
        let text = render(&parts).expect("rendered");
        assert_eq!(text, format!("{RULE}\nx 1: LICENSE\ny 2: COPYING\n{RULE}\ntext\n\n"));
    }
}
