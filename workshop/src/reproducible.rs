//! Builds the image a second time, in another checkout, with another cargo home and another target folder, and compares
//! every byte. It must never compare a build with itself: nothing but the cache of kernel and components is shared.
//!
//! ```text
//! this checkout ──────────────► image ─┐
//!      └─copy─► other checkout         ├─► equal digests, or the names of the files that differ
//!               other cargo home  ──► image
//!               other target
//! ```
//! Proves: O5, for the host part: the same bytes. A pass is remembered by the digests of the tools and of every file of the
//! checkout but those that no image is made of, and shown as remembered.

use std::{collections::BTreeMap, env, fs, path::Path, process::Command};

use ::image::Manifest;
use anyhow::{Context, Result, bail};
use xtask::{
    cache::{BuildCache, BuildRoom, CacheKey},
    digest::{self, DigestInputs},
    process::{answer, logged},
    progress::{say, step},
    workspace::{self, Workspace},
};

/// Parts of its home that cargo needs to build without the network: what was downloaded, and where from.
const CARGO_HOME_PARTS: &[&str] = &["registry/index", "registry/cache", "config.toml"];

/// Folders that no image is made of, and no texts either.
const BESIDE: &[&str] = &[".ci/", "benches/", "fuzz/", "tests/"];

/// Builds again and compares with the image in `first`, or finds that this was done for the same inputs before.
///
/// # Errors
/// The second build fails, or differs: then with the names of the files.
pub(crate) fn check(workspace: &Workspace, cache: &BuildCache, first: &Path) -> Result<()> {
    let files = files(workspace)?;
    let mut inputs = DigestInputs::new("reproducible").text("rustc", &answer(Command::new("rustc").arg("--version"))?);
    let decides = |file: &&String| !file.ends_with(".md") && !BESIDE.iter().any(|folder| file.starts_with(folder));
    for file in files.iter().filter(decides) {
        inputs = inputs.file(file, &workspace.path(file)).with_context(|| format!("read `{file}`"))?;
    }
    // Kernel, components and the tools that pack them come in by what they became.
    for (name, digest) in digests(first)? {
        inputs = inputs.text(&name, &digest);
    }
    let mut remembered = true;
    let key = CacheKey { kind: "reproducible", inputs: inputs.finish()? };
    cache.entry(&key, |room| {
        remembered = false;
        step("reproducible", "building the image a second time, elsewhere", || again(room, workspace, &files, first))
    })?;
    if remembered {
        say("✓ reproducible: remembered from an earlier run with the same inputs");
    }
    Ok(())
}

fn again(room: &BuildRoom<'_>, workspace: &Workspace, files: &[String], first: &Path) -> Result<()> {
    let (checkout, cargo_home) = (room.work.join("another-checkout"), room.work.join("another-cargo-home"));
    for file in files {
        copy(&workspace.path(file), &checkout.join(file))?;
    }
    for part in CARGO_HOME_PARTS {
        let (from, to) = (workspace::cargo_home()?.join(part), cargo_home.join(part));
        if from.exists() {
            fs::create_dir_all(to.parent().context("a part has a folder")?).context("create the cargo home")?;
            logged(Command::new("cp").arg("--recursive").arg(from).arg(to), room.log)?;
        }
    }
    let second = room.work.join("image");
    let mut workshop = Command::new(env::current_exe().context("find this program")?);
    workshop.arg("image").arg("--out").arg(&second).current_dir(&checkout);
    workshop.env("CARGO_MANIFEST_DIR", checkout.join("workshop")).env("CARGO_HOME", cargo_home);
    workshop.env("CARGO_TARGET_DIR", room.work.join("another-target"));
    logged(&mut workshop, room.log)?;

    let (one, two) = (digests(first)?, digests(&second)?);
    let names: Vec<&str> = one.keys().chain(two.keys()).map(String::as_str).collect();
    let mut differing: Vec<&str> = names.into_iter().filter(|name| one.get(*name) != two.get(*name)).collect();
    differing.sort_unstable();
    differing.dedup();
    if !differing.is_empty() {
        bail!("two builds of the same source differ in {}", differing.join(", "));
    }
    let lines: String = one.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
    fs::write(room.out.join("equal-in-both-builds"), lines).context("write the verdict")
}

/// Digest of every file that an image's manifest names, and of the manifest.
fn digests(folder: &Path) -> Result<BTreeMap<String, String>> {
    let path = folder.join(::image::names::MANIFEST);
    let text = fs::read(&path).with_context(|| format!("read `{}`", path.display()))?;
    let manifest: Manifest = serde_json::from_slice(&text).with_context(|| format!("parse `{}`", path.display()))?;
    let names = manifest.artefacts.keys().map(String::as_str).chain([::image::names::MANIFEST]);
    names
        .map(|name| {
            let path = folder.join(name);
            let digest = digest::of_file(&path).with_context(|| format!("read `{}`", path.display()))?;
            Ok((name.to_owned(), digest.to_string()))
        })
        .collect()
}

/// Every file of the checkout that is not ignored, committed or not.
fn files(workspace: &Workspace) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(workspace.root());
    let listed = answer(&mut git)?;
    let mut files: Vec<String> = listed.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect();
    files.retain(|file| workspace.path(file).is_file()); // a deleted file is listed until that is committed
    files.sort();
    files.dedup();
    Ok(files)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file has a folder")?).context("create the other checkout")?;
    fs::copy(from, to).with_context(|| format!("copy `{}`", from.display()))?;
    Ok(())
}
