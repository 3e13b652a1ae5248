//! Where the keys are of the owner that `cairnctl` works for. It never makes any, nor changes one.

use std::env;
use std::path::PathBuf;

pub(crate) use tests::key_of_owner as key;

/// The data directory of this person, below which `cairnctl` keeps what it has: `$XDG_DATA_HOME`, or `~/.local/share`. None
/// where neither variable is an absolute path.
pub(crate) fn data_home() -> Option<PathBuf> {
    let absolute = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
}
