//! The keys of the owner that `cairnctl` works for: where they are, and their signing half. It never makes any, nor changes one.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use model::Secret;
use pki::PrivateKey;

/// The data directory of this person, below which `cairnctl` keeps what it has: `$XDG_DATA_HOME`, or `~/.local/share`. None
/// where neither variable is an absolute path.
pub(crate) fn data_home() -> Option<PathBuf> {
    let absolute = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
}

/// The key of an owner whose data directory is `home`, as `cairnctl` keeps it (`owner.keys`: the 32 bytes behind magic and
/// version, `cli/src/store/owner.rs`).
///
/// # Errors
/// There is none, or its file is cut.
pub(crate) fn key(home: &Path) -> Result<PrivateKey> {
    let file = std::fs::read(home.join("cairn/owner.keys")).context("read the owner's keys")?;
    let mut seed = *file.get(12..).and_then(<[u8]>::first_chunk::<32>).context("`owner.keys` is cut")?;
    Ok(PrivateKey::ed25519(&Secret::take(&mut seed))?)
}
