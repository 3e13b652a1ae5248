//! The Debian packages that building and testing need, each with its reason and the programs it brings. They are named
//! before they are installed. It must never install anything that is not in the table, nor remove anything.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    cache::BuildCache,
    process::{answer, logged},
    progress::{clock_text, say, timed},
};

/// Debian package that is needed here.
#[derive(Debug)]
pub struct Package {
    /// Debian's name for it.
    pub name: &'static str,
    /// Programs of it that are started here, by a name in `PATH` or by their path.
    pub programs: &'static [&'static str],
    /// Use that is made of it.
    pub because: &'static str,
}

const fn package(name: &'static str, programs: &'static [&'static str], because: &'static str) -> Package {
    Package { name, programs, because }
}

/// Packages that cargo itself needs before it can compile this table: the README names them in its first command. Rust
/// and Go are nowhere here: they come from the person, in the versions that the checkout pins.
#[rustfmt::skip] // one row per line
pub const FIRST: &[Package] = &[
    package("ca-certificates", &[], "cargo and Go download over TLS"),
    package("gcc", &["gcc"], "links Rust; compiles the kernel and the C parts of crates and of runc"),
    package("git", &["git"], "gets the checkout, lists its files, and clones it into a fresh root"),
    package("libc6-dev", &[], "the C library, also static"),
];

/// All others.
#[rustfmt::skip] // one row per line
pub const PACKAGES: &[Package] = &[
    package("binutils", &["ld", "strip"], "links the kernel, strips mkfs.xfs"),
    package("make", &["make"], "drives the kernel's build"),
    package("flex", &["flex"], "the kernel's config parser"),
    package("bison", &["bison"], "the kernel's config parser"),
    package("bc", &["bc"], "the kernel's time constants"),
    package("libelf-dev", &[], "the kernel's objtool"),
    package("xz-utils", &["xz"], "unpacks the kernel's source"),
    package("zstd", &["zstd"], "compresses the kernel"),
    package("linux-source-6.12", &[], "the kernel's source"),
    package("protobuf-compiler", &["protoc"], "compiles containerd's protocols for its client"),
    package("libseccomp-dev", &[], "linked into runc"),
    package("pkg-config", &["pkg-config"], "finds libseccomp for runc"),
    package("uuid-dev", &[], "linked into mkfs.xfs"),
    package("libblkid-dev", &[], "linked into mkfs.xfs"),
    package("libinih-dev", &[], "linked into mkfs.xfs"),
    package("liburcu-dev", &[], "linked into mkfs.xfs"),
    package("erofs-utils", &["mkfs.erofs", "fsck.erofs", "dump.erofs"], "makes the root file system, and looks into it"),
    package("dosfstools", &["/usr/sbin/fsck.fat"], "checks the EFI system partition in a test"),
    package("systemd-boot-efi", &[], "the boot loader, and the stub of the unified kernel image"),
    package("qemu-system-x86", &["qemu-system-x86_64"], "runs the machines"),
    package("qemu-utils", &["qemu-img"], "makes overlays of disk images"),
    package("ovmf", &[], "their UEFI firmware"),
    package("swtpm", &["swtpm"], "their TPM"),
    package("faketime", &["faketime"], "has a restored machine find that days have gone by, in a test"),
    package("zsh", &["zsh"], "completes by its script in a test"),
    package("fish", &["fish"], "completes by its script in a test"),
    package("debootstrap", &["/usr/sbin/debootstrap"], "makes the fresh root that the tests run in"),
];

/// Programs that are started here and that every Debian has: of packages marked Essential, and apt. The person brings Rust
/// and Go.
#[rustfmt::skip] // by package: apt, coreutils, bash and dash, dpkg, libc-bin, tar, util-linux
pub const ALWAYS_THERE: &[&str] = &[
    "apt-config", "apt-get",
    "cat", "cp", "df", "echo", "false", "id", "ls", "mkfifo", "rm", "sha256sum", "true",
    "bash", "sh",
    "dpkg-query",
    "ldd",
    "tar",
    "unshare",
];

/// Every package, those for cargo itself first.
pub fn all() -> impl Iterator<Item = &'static Package> {
    FIRST.iter().chain(PACKAGES)
}

/// The command that a person pastes as root before anything else, as the README has it.
#[must_use]
pub fn first_command() -> String {
    let names: Vec<&str> = FIRST.iter().map(|package| package.name).collect();
    format!("apt-get update && apt-get install --yes --no-install-recommends {}", names.join(" "))
}

/// Installs what is missing, after naming it. Does nothing where nothing is missing.
///
/// # Errors
/// apt fails: with the end of what it said.
pub fn install(missing: &[&Package], become_root: BecomeRoot, cache: &BuildCache) -> Result<()> {
    let apt_get = || {
        let mut command = as_root(become_root, "apt-get");
        // Another apt may hold the lock, for instance the machine's own that looks for updates.
        command.args(["--quiet", "--option", "DPkg::Lock::Timeout=600"]);
        command
    };
    install_by(missing, apt_get, &cache.log("packages"), say)
}

/// The same with a given apt-get. Nothing of apt's own output is shown unless it fails.
fn install_by(
    missing: &[&Package],
    apt_get: impl Fn() -> Command,
    log: &Path,
    mut say: impl FnMut(String),
) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    say("These Debian packages are missing and are installed now:".to_owned());
    for package in missing {
        say(format!("  {:<20} {}", package.name, package.because));
    }
    let (result, took) = timed(|| {
        logged(apt_get().arg("update"), log).context("update the package lists")?;
        let names = missing.iter().map(|package| package.name);
        let mut install = apt_get();
        install.args(["install", "--yes", "--no-install-recommends"]).args(names);
        logged(&mut install, log).context("install the packages")
    });
    result?;
    say(format!("✓ packages: done, {}", clock_text(took)));
    Ok(())
}

/// How to run a program as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BecomeRoot {
    /// This user is root.
    Already,
    /// This user has sudo.
    Sudo,
}

fn as_root(how: BecomeRoot, program: &str) -> Command {
    match how {
        BecomeRoot::Already => {
            let mut command = Command::new(program);
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        }
        BecomeRoot::Sudo => {
            let mut command = Command::new("sudo");
            command.args(["DEBIAN_FRONTEND=noninteractive", program]);
            command
        }
    }
}

/// How this user can run a program as root, if at all.
///
/// # Errors
/// `id` or `sudo` cannot be started.
pub fn root() -> Result<Option<BecomeRoot>> {
    if answer(Command::new("id").arg("--user"))? == "0" {
        return Ok(Some(BecomeRoot::Already));
    }
    let sudo = Path::new("/usr/bin/sudo").exists();
    // On a terminal sudo asks for the password; without one it works only if it needs none.
    let usable = sudo && Command::new("sudo").args(["--validate"]).stdout(Stdio::null()).status()?.success();
    Ok(usable.then_some(BecomeRoot::Sudo))
}

/// The packages of the table that are not installed.
///
/// # Errors
/// There is no dpkg here.
pub fn missing() -> Result<Vec<&'static Package>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"]);
    query.args(all().map(|package| package.name));
    // It fails when one is unknown, and still lists the others: the list is what counts.
    let output = query.stderr(Stdio::null()).output().context("ask dpkg-query; this needs Debian or a child of it")?;
    let installed = installed(&String::from_utf8_lossy(&output.stdout));
    Ok(all().filter(|package| !installed.contains(package.name)).collect())
}

fn installed(listed: &str) -> BTreeSet<String> {
    listed.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let listed = "installed gcc\nconfig-files make\nnot-installed bc\n";
        assert_eq!(installed(listed), BTreeSet::from(["gcc".to_owned()]));
    }

    #[test]
    fn no_package_stands_twice_or_brings_what_every_debian_has() {
        let names: BTreeSet<&str> = all().map(|package| package.name).collect();
        assert_eq!(names.len(), all().count());
        let brought: Vec<&str> = all().flat_map(|package| package.programs).copied().collect();
        assert!(ALWAYS_THERE.iter().all(|program| !brought.contains(program)));
    }

    /// The README's first line is what a person pastes, and what the fresh root begins with.
    #[test]
    fn the_readme_names_what_cargo_itself_needs() {
        let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).expect("the README");
        assert!(readme.lines().any(|line| line == first_command()), "README.md has no line `{}`", first_command());
    }

    /// Installs two packages with an apt-get of one line of shell: what was said, what came into the log, how it ended.
    fn said(script: &str) -> (Vec<String>, String, Result<()>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, mut lines) = (folder.path().join("log"), Vec::new());
        let apt_get = || {
            let mut command = Command::new("sh");
            command.args(["-c", script, "apt-get"]);
            command
        };
        let result = install_by(&[&PACKAGES[0], &PACKAGES[1]], apt_get, &log, |line| lines.push(line));
        (lines, fs::read_to_string(log).unwrap_or_default(), result)
    }

    #[test]
    fn packages_are_named_before_apt_runs_quietly() {
        let (lines, log, result) = said("echo noise; echo noise >&2");
        result.expect("installed");
        let (named, done) = (&lines[1..3], &lines[3]);
        for (line, package) in named.iter().zip(PACKAGES) {
            assert!(line.contains(package.name) && line.contains(package.because), "{line}");
        }
        assert!(done.contains("done") && lines.len() == 4, "{lines:?}");
        assert!(!lines.concat().contains("noise"), "{lines:?}");
        assert_eq!(log, "noise\n".repeat(4), "both outputs, of the update and of the installation");
    }

    #[test]
    fn what_apt_says_is_shown_when_it_fails() {
        let (lines, _log, result) = said("echo no such package >&2; exit 100");
        assert!(format!("{:#}", result.expect_err("it failed")).contains("no such package"));
        assert!(!lines.concat().contains("done"), "{lines:?}");
    }
}
