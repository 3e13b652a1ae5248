//! `mkfs.xfs` as one static executable, from the source of Debian's package. It must never change the machine's own list
//! of package sources: sources are switched on in a private copy of it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result};
use xtask::{
    cache::{BuildCache, BuildRoom, CacheKey},
    digest::DigestInputs,
    process::{answer, logged},
    progress::{say, step},
};

use crate::{component::Component, notices, pinned::Pinned};

/// Raised when this file builds differently from the same inputs.
const RECIPE: &str = "1";
const PACKAGE: &str = "xfsprogs";
const VERSION: &str = "6.1.0";
/// Upstream's tarball as Debian ships it; Debian adds no patch to it. A newer one is a change of this line.
const SOURCE: Pinned = Pinned {
    path: "xfsprogs_6.1.0.orig.tar.xz",
    package: "xfsprogs 6.1.0",
    sha256: "eceb9015c4ebefa56fa85faff756ccb51ed2cf9c39ba239767f8e78705e85251",
};
/// Debian packages whose libraries are linked into it.
const LINKED: &[&str] = &["libblkid-dev", "libc6-dev", "libinih-dev", "liburcu-dev", "uuid-dev"];

/// Builds `mkfs.xfs`, or takes it from the cache.
///
/// # Errors
/// The source cannot be fetched or is another one than pinned; a tool fails.
pub(crate) fn build(cache: &BuildCache) -> Result<Component> {
    let mut inputs = DigestInputs::new(PACKAGE).text("recipe", RECIPE).text("source", SOURCE.sha256);
    inputs = inputs.text("notices", notices::RECIPE).text("gcc", &answer(Command::new("gcc").arg("--version"))?);
    inputs = inputs.text("linked", &answer(Command::new("dpkg-query").arg("--show").args(LINKED))?);
    let key = CacheKey { kind: PACKAGE, inputs: inputs.finish()? };
    let what = format!("building mkfs.xfs {VERSION}");
    let folder = cache.entry(&key, |room| step(PACKAGE, &what, || compile(room)))?;
    Ok(Component { name: PACKAGE, version: VERSION.to_owned(), folder, executables: vec!["mkfs.xfs"] })
}

fn compile(room: &BuildRoom<'_>) -> Result<()> {
    let tarball = fetch(room)?;
    let tree = room.work.join("tree");
    fs::create_dir(&tree).context("create the source's folder")?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--strip-components=1", "--file"]).arg(tarball).arg("--directory").arg(&tree);
    logged(&mut unpack, room.log)?;

    let mut configure = Command::new("./configure");
    configure.args(["--disable-scrub", "--disable-libicu", "--enable-gettext=no"]);
    // No debug data and no assertions, and the folder's name in neither: the same source gives the same bytes.
    configure.env("OPTIMIZER", format!("-O2 -ffile-prefix-map={}=.", tree.display())).env("DEBUG", "-DNDEBUG");
    configure.env("LDFLAGS", "-Wl,--build-id=none").current_dir(&tree);
    logged(&mut configure, room.log)?;
    logged(Command::new("make").arg("headers").current_dir(&tree), room.log)?;
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    make.arg(format!("--jobs={jobs}")).args(["mkfs", "LLDFLAGS=-all-static"]).current_dir(&tree);
    logged(&mut make, room.log)?;

    let built = tree.join("mkfs/mkfs.xfs");
    let mut strip = Command::new("strip");
    logged(strip.args(["--strip-all", "-o"]).arg(room.out.join("mkfs.xfs")).arg(built), room.log)?;
    let mut text = String::new();
    for licence in ["LICENSES/GPL-2.0", "debian/copyright"] {
        let path = tree.join(licence);
        text += &fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
        text += "\n\n";
    }
    text += &notices::of_debian(LINKED)?;
    fs::write(room.out.join("NOTICES.txt"), text).context("write the notices")
}

/// Fetches the tarball with apt, and checks it against the pinned hash besides apt's own signatures.
fn fetch(room: &BuildRoom<'_>) -> Result<PathBuf> {
    let apt = room.work.join("apt");
    for folder in ["lists/partial", "cache/archives/partial", "parts", "source"] {
        let path = apt.join(folder);
        fs::create_dir_all(&path).with_context(|| format!("create `{}`", path.display()))?;
    }
    for list in package_lists()? {
        let text = fs::read_to_string(&list).with_context(|| format!("read `{}`", list.display()))?;
        let name = list.file_name().unwrap_or(OsStr::new("sources.list"));
        fs::write(apt.join("parts").join(name), as_source_list(&text)).context("write the private package list")?;
    }
    let folder = apt.display();
    let config = format!(
        "Dir::Etc::SourceList \"/dev/null\";\nDir::Etc::SourceParts \"{folder}/parts\";\n\
         Dir::State::Lists \"{folder}/lists\";\nDir::Cache \"{folder}/cache\";\nAPT::Sandbox::User \"\";\n"
    );
    fs::write(apt.join("apt.conf"), config).context("write apt's private configuration")?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", apt.join("apt.conf")).current_dir(apt.join("source"));
        command
    };
    // A foreign list without sources makes the update fail, and does no harm: what counts is whether the source comes.
    if logged(apt_get().args(["--quiet", "update"]), room.log).is_err() {
        say(format_args!("! {PACKAGE}: a package list has no sources; trying with the others"));
    }
    logged(apt_get().args(["--quiet", "--download-only", "source", PACKAGE]), room.log)?;

    Ok(SOURCE.check_at(&apt.join("source").join(SOURCE.path))?)
}

/// The machine's own lists of package sources that are in force.
fn package_lists() -> Result<Vec<PathBuf>> {
    let mut lists = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = Path::new("/etc/apt/sources.list.d");
    for item in fs::read_dir(parts).with_context(|| format!("list `{}`", parts.display()))? {
        lists.push(item.with_context(|| format!("list `{}`", parts.display()))?.path());
    }
    lists.retain(|path| {
        path.is_file() && path.extension().is_some_and(|ending| ending == "list" || ending == "sources")
    });
    lists.sort();
    Ok(lists)
}

/// Turns a list of binary packages into one of source packages, in either of apt's two formats.
fn as_source_list(text: &str) -> String {
    let mut turned = String::new();
    for line in text.lines() {
        match (line.split_once(' '), line.strip_prefix("Types:")) {
            (Some(("deb" | "deb-src", rest)), _) => turned += &format!("deb-src {rest}"),
            (_, Some(_)) => turned += "Types: deb-src",
            _ => turned += line, // the other fields, comments, empty lines
        }
        turned.push('\n');
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_package_lists_are_turned() {
        let old = "# comment\ndeb [signed-by=/k] http://host/debian bookworm main\ndeb-src http://host/debian bookworm main\n";
        let turned = "# comment\ndeb-src [signed-by=/k] http://host/debian bookworm main\ndeb-src http://host/debian bookworm main\n";
        assert_eq!(as_source_list(old), turned);
        let new = "Types: deb\nURIs: http://host/debian\nSuites: bookworm\n";
        assert_eq!(as_source_list(new), "Types: deb-src\nURIs: http://host/debian\nSuites: bookworm\n");
    }
}
