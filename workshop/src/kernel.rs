//! The kernel: tinyconfig, our fragments over it, the check of what the kernel's tools made of them, one bzImage.
//! It must never build a kernel whose final config was not checked against the table.
//!
//! ```text
//! source ──unpack──► tinyconfig + fragments ──olddefconfig──► final .config ──check──► bzImage, config, version, notices
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result, bail};
use kernel_config::{FRAGMENTS, KernelConfig, NEEDS};
use xtask::{
    cache::{BuildCache, BuildRoom, CacheKey},
    digest::{self, DigestInputs},
    process::{answer, logged},
    progress::step,
};

use crate::pinned::Pinned;

/// The kernel's source. A newer one is a change of this line, after a look at what changed.
const DEBIAN_SOURCE: Pinned = Pinned {
    path: "/usr/src/linux-source-6.12.tar.xz",
    package: "linux-source-6.12 6.12.117-1~deb12u1",
    sha256: "585a4a074597aefa2b1a68ada83a3184ba351c127544dea80618bbcceaa3961f",
};
/// Raised when this file builds differently from the same inputs.
const RECIPE: &str = "1";
/// The kernel names its builder and the time of its build; both are fixed, so that the same source gives the same bytes.
const FIXED: &[(&str, &str)] = &[
    ("KBUILD_BUILD_USER", "cairn"),
    ("KBUILD_BUILD_HOST", "cairn"),
    ("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 1970"),
    ("KBUILD_BUILD_VERSION", "1"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
];
/// ≤ 9 MiB is promised in SPECIFICATION.md.
const BZIMAGE_LIMIT: u64 = 9 << 20;

/// A built kernel: paths into the cache.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// The kernel itself, also an EFI program.
    pub(crate) bzimage: PathBuf,
    /// The final config, checked against the table.
    pub(crate) config: PathBuf,
    /// The kernel's licence.
    pub(crate) notices: PathBuf,
    /// The release, for example `6.12.117`.
    pub(crate) version: String,
    /// SHA-256 of the source tarball, in hexadecimal.
    pub(crate) source_sha256: String,
}

/// Builds the kernel, or takes it from the cache. `source` is a tarball of the kernel's source, used as it is and recorded;
/// without one it is Debian's, which must be the pinned one. What the cache holds needs no source.
///
/// # Errors
/// There is no source, or it is not the pinned one; a tool fails; the final config lacks options of the table, which are
/// all named; the kernel is over its size.
pub(crate) fn build(cache: &BuildCache, source: Option<&Path>) -> Result<Kernel> {
    let source_sha256 = match source {
        Some(path) => {
            digest::of_file(path).with_context(|| format!("read the kernel's source `{}`", path.display()))?.to_string()
        }
        None => DEBIAN_SOURCE.sha256.to_owned(),
    };
    let asked = kernel_config::merge(FRAGMENTS).context("merge the fragments")?;

    let mut inputs = DigestInputs::new("kernel").text("recipe", RECIPE).text("source", &source_sha256);
    inputs = inputs.text("asked", &asked.to_string());
    for tool in ["gcc", "ld", "flex", "bison", "zstd"] {
        inputs = inputs.text(tool, &answer(Command::new(tool).arg("--version"))?);
    }
    let key = CacheKey { kind: "kernel", inputs: inputs.finish()? };
    let entry = cache.entry(&key, |room| {
        let source = source.map_or_else(|| DEBIAN_SOURCE.check(), |path| Ok(path.to_owned()))?;
        step("kernel", "building (6 to 20 minutes on two cores)", || compile(room, &source, &asked))
    })?;

    // Again, for the table may have changed since: it is no input of the build, so that a better reason costs nothing.
    check(&read(&entry.join("config"))?)?;
    let version = fs::read_to_string(entry.join("version")).context("read the kernel's version")?;
    Ok(Kernel {
        bzimage: entry.join("bzImage"),
        config: entry.join("config"),
        notices: entry.join("NOTICES.txt"),
        version: version.trim_end().to_owned(),
        source_sha256,
    })
}

fn compile(room: &BuildRoom<'_>, source: &Path, asked: &KernelConfig) -> Result<()> {
    let unpack = ["--extract", "--strip-components=1", "--file"];
    logged(Command::new("tar").args(unpack).arg(source).arg("--directory").arg(room.work), room.log)?;
    logged(&mut make(room.work, "tinyconfig"), room.log)?;
    let dot_config = room.work.join(".config");
    let tiny = fs::read_to_string(&dot_config).context("read tinyconfig")?;
    fs::write(&dot_config, overlay(&tiny, asked)?).context("write the merged config")?;
    logged(&mut make(room.work, "olddefconfig"), room.log)?;

    let text = fs::read_to_string(&dot_config).context("read the final config")?;
    check(&text)?; // before the minutes of compiling
    logged(&mut make(room.work, "bzImage"), room.log)?;
    let version = answer(make(room.work, "kernelrelease").arg("--silent"))?;
    fs::write(room.out.join("version"), version + "\n").context("write the version")?;
    fs::write(room.out.join("config"), text).context("write the final config")?;
    let notices = ["COPYING", "LICENSES/preferred/GPL-2.0", "LICENSES/exceptions/Linux-syscall-note"];
    let notices: Result<Vec<_>> = notices.iter().map(|path| read(&room.work.join(path))).collect();
    fs::write(room.out.join("NOTICES.txt"), notices?.join("\n\n")).context("write the notices")?;
    let size = fs::copy(room.work.join("arch/x86/boot/bzImage"), room.out.join("bzImage")).context("copy bzImage")?;
    if size > BZIMAGE_LIMIT {
        bail!("bzImage has {size} bytes; its limit is {BZIMAGE_LIMIT}");
    }
    Ok(())
}

/// Compares a final config with the table.
fn check(text: &str) -> Result<()> {
    let config = KernelConfig::parse(text).context("parse the final config")?;
    match kernel_config::check(&config, NEEDS) {
        Ok(()) => Ok(()),
        Err(violations) => {
            let lines: Vec<String> = violations.iter().map(|violation| format!("  {violation}")).collect();
            bail!("the final kernel config is not what it must be:\n{}", lines.join("\n"))
        }
    }
}

/// Our options over another config's: its lines about them go, ours come behind the rest.
fn overlay(base: &str, asked: &KernelConfig) -> Result<String> {
    let mut text = String::new();
    for line in base.lines() {
        let config = KernelConfig::parse(line).context("parse tinyconfig")?;
        if !config.options().any(|option| asked.get(option).is_some()) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text + &asked.to_string())
}

fn make(tree: &Path, goal: &str) -> Command {
    let mut command = Command::new("make");
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    command.arg("--directory").arg(tree).arg(format!("--jobs={jobs}")).arg(goal);
    command.envs(FIXED.iter().copied()).env_remove("MAKEFLAGS").env_remove("ARCH").env_remove("CROSS_COMPILE");
    command
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: O4
    #[test]
    fn a_final_config_that_lacks_an_option_is_refused_by_name() {
        let refused = check("CONFIG_A=y\n").map_err(|error| error.to_string());
        assert!(refused.is_err_and(|text| text.contains("DM_VERITY")));
    }

    #[test]
    fn our_options_replace_those_below() {
        let asked = KernelConfig::parse("CONFIG_A=y\n# CONFIG_B is not set\n").expect("a config");
        let text = overlay("# head\n# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=1\n", &asked).expect("merged");
        assert_eq!(text, "# head\nCONFIG_C=1\nCONFIG_A=y\n# CONFIG_B is not set\n");
        KernelConfig::parse(&text).expect("no option twice");
    }
}
