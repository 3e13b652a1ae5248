//! The machine's only program of our own, static and the same bytes wherever it is built. It must never depend on this
//! machine's folders: every one of them is mapped to a fixed name.

use std::{env, fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;

use crate::{
    notices,
    process::{answer, shown},
    progress::step,
    workspace::Workspace,
};

/// The only target; named explicitly, for static linking breaks procedural macros otherwise.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Which of Cargo.toml's profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// Small and reproducible: what is shipped.
    Release,
    /// Without link-time optimisation: seconds to build, while one works on `init`.
    Quick,
}

/// What was built.
#[derive(Debug, Clone)]
pub(crate) struct InitBinary {
    /// The executable.
    pub(crate) path: PathBuf,
    /// The licences of all crates linked into it.
    pub(crate) notices: PathBuf,
}

/// Builds `init`, and collects the licences of what is linked into it.
///
/// # Errors
/// It does not compile, or cargo cannot be run.
pub(crate) fn build(workspace: &Workspace, profile: Profile) -> Result<InitBinary> {
    // A folder of its own: other flags would rebuild everything in the common one, and its lock would stop other work.
    let target = workspace.target().join("image");
    let profile = match profile {
        Profile::Release => "release",
        Profile::Quick => "quick",
    };
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let cargo_home = cargo_home.context("find cargo's home: neither CARGO_HOME nor HOME is set")?;
    let sysroot = PathBuf::from(answer(Command::new("rustc").args(["--print", "sysroot"]))?);
    // The last match wins, so the target folder comes behind the workspace it may lie in.
    let folders =
        [(workspace.root(), "/cairn"), (&cargo_home, "/cargo"), (&sysroot, "/rust"), (target.as_path(), "/target")];

    let mut rust_flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    let mut c_flags = Vec::new();
    for (folder, name) in folders {
        rust_flags.push(format!("--remap-path-prefix={}={name}", folder.display()));
        c_flags.push(format!("-ffile-prefix-map={}={name}", folder.display()));
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--package", "init", "--bin", "init", "--profile", profile, "--target", TARGET]);
    cargo.arg("--target-dir").arg(&target).current_dir(workspace.root());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust_flags.join("\x1f")).env_remove("RUSTFLAGS");
    cargo.env("CFLAGS_x86_64_unknown_linux_gnu", c_flags.join(" ")).env_remove("CFLAGS");
    step("init", &format!("building (profile {profile})"), || shown(&mut cargo))?;
    let folder = target.join(TARGET).join(profile);
    let notices = folder.join("init.NOTICES.txt");
    let mut metadata = MetadataCommand::new();
    metadata.manifest_path(workspace.path("Cargo.toml")).other_options(vec!["--filter-platform".into(), TARGET.into()]);
    let metadata = metadata.exec().context("cargo metadata")?;
    fs::write(&notices, notices::of_rust(&metadata, "init")?).context("write the notices of init")?;
    Ok(InitBinary { path: folder.join("init"), notices })
}
