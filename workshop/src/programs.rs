//! Our own programs. The machine's are static and the same bytes wherever they are built: `init`, the two small ones of the
//! container images, and the guest, by which tests break a debug image from inside; no folder of this machine may get into
//! them: each is mapped to a fixed name. The debug profile's `init` is compiled by itself. `cairnctl` is built as this host builds
//! anything.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ::image::{ImageProfile, InitProgram};
use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use xtask::{
    process::{answer, shown},
    progress::talking_step,
    workspace::{self, Workspace},
};

use crate::notices;

/// The only target; named explicitly, for static linking breaks procedural macros otherwise.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The packages of every image; each makes one program of its own name.
const PACKAGES: [&str; 3] = ["init", "guest-pause", "guest-web"];
/// Package that only the debug image has.
const GUEST: &str = "guest";
/// Program that boots are measured against; in no image.
const FLOOR: &str = "floor";

/// How they are compiled: which of Cargo.toml's profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Build {
    /// Small and reproducible: what is shipped.
    Release,
    /// Without link-time optimisation: seconds to build, while one works on `init`.
    Quick,
}

/// Paths of what was built.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// PID 1 of the profile that was asked for.
    pub(crate) init: InitProgram,
    /// The pause container's program.
    pub(crate) pause: PathBuf,
    /// The web container's program.
    pub(crate) web: PathBuf,
    /// Program by which tests break a machine from inside; of the debug profile only.
    pub(crate) guest: Option<PathBuf>,
    /// The licences of all crates linked into them.
    pub(crate) notices: PathBuf,
}

/// Builds the programs of an image of this profile, and collects the licences of what is linked into them.
///
/// # Errors
/// One does not compile, cargo cannot be run, a crate has no licence.
pub(crate) fn build(workspace: &Workspace, build: Build, profile: ImageProfile) -> Result<Programs> {
    let (compilation, init, guest): (_, fn(PathBuf) -> InitProgram, _) = match profile {
        ImageProfile::Release => (&SHIPPED, InitProgram::Release, None),
        ImageProfile::Debug => (&WITH_FAULTS, InitProgram::Debug, Some(GUEST)),
    };
    let packages: Vec<&str> = PACKAGES.into_iter().chain(guest).collect();
    let folder = compile(workspace, build, compilation, &packages)?;
    let notices = folder.join("NOTICES.txt");
    let mut metadata = MetadataCommand::new();
    metadata.manifest_path(workspace.path("Cargo.toml")).other_options(vec!["--filter-platform".into(), TARGET.into()]);
    let metadata = metadata.exec().context("cargo metadata")?;
    fs::write(&notices, notices::of_rust(&metadata, &packages)?).context("write the notices of the programs")?;
    let [program, pause, web] = PACKAGES.map(|package| folder.join(package));
    let guest = guest.map(|package| folder.join(package));
    Ok(Programs { init: init(program), pause, web, guest, notices })
}

/// Builds the floor, static, in the same way, and returns its path: what boots are measured against is no slower for how it
/// was compiled.
///
/// # Errors
/// It does not compile, cargo cannot be run.
pub(crate) fn floor(workspace: &Workspace, build: Build) -> Result<PathBuf> {
    Ok(compile(workspace, build, &SHIPPED, &[FLOOR])?.join(FLOOR))
}

/// Builds the user's tool for this host, and returns its path.
///
/// # Errors
/// It does not compile, cargo cannot be run.
pub(crate) fn cairnctl(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--package", "cairnctl"]).current_dir(workspace.root());
    talking_step("cairnctl", "building", || shown(&mut cargo))?;
    Ok(workspace.target().join("debug/cairnctl"))
}

/// Builds a program that searches by hand, and runs it on this terminal. It is not linked here: what it searches may abort it, and
/// this tool is not rebuilt for each change of that.
///
/// # Errors
/// It does not compile, or it found something.
pub(crate) fn run<T: AsRef<OsStr>>(package: &str, program: &str, words: impl IntoIterator<Item = T>) -> Result<()> {
    let mut cargo = Command::new("cargo");
    shown(cargo.args(["run", "--locked", "--package", package, "--bin", program, "--"]).args(words))
}

/// Compilation with features. What packages depend on is compiled once for all of them.
struct Compilation {
    /// Name of its step.
    step: &'static str,
    /// Folder of its programs: cargo puts those of the next compilation in the place of the last one's.
    folder: &'static str,
    /// Features of the packages, `package/feature`.
    features: &'static [&'static str],
}

const SHIPPED: Compilation = Compilation { step: "programs", folder: "shipped", features: &[] };
const WITH_FAULTS: Compilation =
    Compilation { step: "programs with faults", folder: "with-faults", features: &["init/faults"] };

/// Compiles packages and returns the folder that their programs are in.
fn compile(workspace: &Workspace, build: Build, compilation: &Compilation, packages: &[&str]) -> Result<PathBuf> {
    // Other flags would rebuild everything in the common folder, and its lock would stop other work.
    let target = workspace.target().join("image");
    let profile = match build {
        Build::Release => "release",
        Build::Quick => "quick",
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--bins", "--profile", profile, "--target", TARGET, "--target-dir"]).arg(&target);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    cargo.args(compilation.features.iter().flat_map(|feature| ["--features", feature]));
    let (rust_flags, c_flags) = flags(workspace, &target)?;
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust_flags).env_remove("RUSTFLAGS");
    cargo.env("CFLAGS_x86_64_unknown_linux_gnu", c_flags).env_remove("CFLAGS").current_dir(workspace.root());
    talking_step(compilation.step, &format!("building (profile {profile})"), || shown(&mut cargo))?;
    let (built, folder) = (target.join(TARGET).join(profile), target.join(compilation.folder).join(profile));
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for package in packages {
        let (from, to) = (built.join(package), folder.join(package));
        fs::copy(&from, &to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    }
    Ok(folder)
}

/// Flags for rustc and for the C compiler: static, and with the machine's folders mapped to fixed names.
fn flags(workspace: &Workspace, target: &Path) -> Result<(String, String)> {
    let cargo_home = workspace::cargo_home()?;
    let sysroot = PathBuf::from(answer(Command::new("rustc").args(["--print", "sysroot"]))?);
    // The last match wins, so the target folder comes behind the workspace it may lie in.
    let folders = [(workspace.root(), "/cairn"), (&cargo_home, "/cargo"), (&sysroot, "/rust"), (target, "/target")];
    // Relocations of a static executable are read once and stay mapped: packed, they are 5 KiB of `init` instead of 422.
    let mut rust_flags =
        ["-Ctarget-feature=+crt-static", "-Clink-arg=-Wl,-z,pack-relative-relocs"].map(str::to_owned).to_vec();
    let mut c_flags = Vec::new();
    for (folder, name) in folders {
        rust_flags.push(format!("--remap-path-prefix={}={name}", folder.display()));
        c_flags.push(format!("-ffile-prefix-map={}={name}", folder.display()));
    }
    Ok((rust_flags.join("\x1f"), c_flags.join(" ")))
}
