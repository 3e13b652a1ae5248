//! Where things are: in the checkout, and in cargo's home. It must never look into either.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The root of the checkout this tool was started in.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The checkout that cargo runs this tool from; not the one it was compiled in, which may have moved.
    ///
    /// # Errors
    /// Not started by cargo.
    pub fn of_cargo() -> Result<Self> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run this tool as `cargo xtask`")?;
        let root = Path::new(&manifest).parent().context("the tool's folder has a parent")?;
        Ok(Self { root: root.to_owned() })
    }

    /// A path in the checkout.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Folder of the checkout itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo builds: `$CARGO_TARGET_DIR`, or `target`.
    pub fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.path("target"), |target| self.root.join(target))
    }
}

/// Cargo's home: `$CARGO_HOME`, or `~/.cargo`.
///
/// # Errors
/// Neither variable is set.
pub fn cargo_home() -> Result<PathBuf> {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || env::home_dir().map(|home| home.join(".cargo"));
    named.or_else(home).context("find cargo's home: neither CARGO_HOME nor HOME is set")
}
