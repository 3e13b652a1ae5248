//! The Debian packages that building and testing need, each with its reason. They are named before they are installed.
//! It must never install anything that is not in the table, nor remove anything.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    process::{answer, shown},
    progress::say,
};

/// One package.
#[derive(Debug)]
struct Package {
    name: &'static str,
    because: &'static str,
}

const fn package(name: &'static str, because: &'static str) -> Package {
    Package { name, because }
}

/// All of them. Rust and Go are not here: they come from the person, in the versions that the checkout pins.
#[rustfmt::skip] // one row per line
const PACKAGES: &[Package] = &[
    package("gcc", "compiles the kernel, the C parts of runc, and links Rust"),
    package("libc6-dev", "the C library, also static"),
    package("make", "drives the kernel's build"),
    package("flex", "the kernel's config parser"),
    package("bison", "the kernel's config parser"),
    package("bc", "the kernel's time constants"),
    package("libelf-dev", "the kernel's objtool"),
    package("xz-utils", "unpacks the kernel's source"),
    package("zstd", "compresses the kernel"),
    package("linux-source-6.12", "the kernel's source"),
    package("libseccomp-dev", "linked into runc"),
    package("pkg-config", "finds libseccomp for runc"),
    package("uuid-dev", "linked into mkfs.xfs"),
    package("libblkid-dev", "linked into mkfs.xfs"),
    package("libinih-dev", "linked into mkfs.xfs"),
    package("liburcu-dev", "linked into mkfs.xfs"),
    package("erofs-utils", "makes the root file system"),
    package("systemd-boot-efi", "the boot loader, and the stub of the unified kernel image"),
    package("qemu-system-x86", "runs the machines"),
    package("qemu-utils", "makes overlays of disk images"),
    package("ovmf", "their UEFI firmware"),
    package("swtpm", "their TPM"),
    package("swtpm-tools", "makes the TPM's state"),
];

/// Installs what is missing, after naming it. Does nothing, without being root, where nothing is missing.
///
/// # Errors
/// Packages are missing and this user can neither be root nor become it: the message says what to run.
pub fn install() -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    say("These Debian packages are missing and will be installed:");
    for package in &missing {
        say(format_args!("  {:<20} {}", package.name, package.because));
    }
    let names = missing.iter().map(|package| package.name);
    let Some(become_root) = root()? else {
        let names: Vec<&str> = names.collect();
        bail!("not root, and sudo does not work here; run as root: apt-get install {}", names.join(" "));
    };
    let apt_get = |arguments: &[&str]| {
        let mut command = as_root(become_root, "apt-get");
        command.args(["--quiet", "--quiet"]).args(arguments);
        command
    };
    shown(&mut apt_get(&["update"])).context("update the package lists")?;
    let mut command = apt_get(&["install", "--yes", "--no-install-recommends"]);
    shown(command.args(names)).context("install the packages")
}

/// How to run a program as root.
#[derive(Debug, Clone, Copy)]
enum BecomeRoot {
    Already,
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

fn root() -> Result<Option<BecomeRoot>> {
    if answer(Command::new("id").arg("--user"))? == "0" {
        return Ok(Some(BecomeRoot::Already));
    }
    let sudo = Path::new("/usr/bin/sudo").exists();
    // On a terminal sudo asks for the password; without one it works only if it needs none.
    let usable = sudo && Command::new("sudo").args(["--validate"]).stdout(Stdio::null()).status()?.success();
    Ok(usable.then_some(BecomeRoot::Sudo))
}

fn missing() -> Result<Vec<&'static Package>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"]);
    query.args(PACKAGES.iter().map(|package| package.name));
    // It fails when one is unknown, and still lists the others: the list is what counts.
    let output = query.stderr(Stdio::null()).output().context("ask dpkg-query; this needs Debian or a child of it")?;
    let installed = installed(&String::from_utf8_lossy(&output.stdout));
    Ok(PACKAGES.iter().filter(|package| !installed.contains(package.name)).collect())
}

fn installed(listed: &str) -> BTreeSet<String> {
    listed.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let listed = "installed gcc\nconfig-files make\nnot-installed bc\n";
        assert_eq!(installed(listed), BTreeSet::from(["gcc".to_owned()]));
    }

    #[test]
    fn no_package_stands_twice() {
        let names: BTreeSet<&str> = PACKAGES.iter().map(|package| package.name).collect();
        assert_eq!(names.len(), PACKAGES.len());
    }
}
