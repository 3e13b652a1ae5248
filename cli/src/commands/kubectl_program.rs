//! The kubectl that this host has, and why it does not run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::failure::{Advice, Code};
use crate::store::FileError;

/// State after a kubectl was started and lost.
pub(super) const UNKNOWN: &str = "kubectl ran; whether it did what it was told is unknown";

/// Why kubectl did not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubectlError {
    /// No kubectl was found in any of the places.
    #[error("there is no kubectl: not $CAIRN_KUBECTL, none beside cairnctl, none in PATH")]
    Missing,
    /// The program does not start.
    #[error("run `{path}`")]
    Run { path: PathBuf, source: std::io::Error },
    /// The program runs and cannot be watched.
    #[error("wait for `{path}`")]
    Wait { path: PathBuf, source: std::io::Error },
    /// No place for its kubeconfig.
    #[error("make a directory for kubectl's files")]
    Directory(#[source] std::io::Error),
    /// The kubeconfig for kubectl cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Advice for KubectlError {
    fn code(&self) -> Code {
        match self {
            Self::Missing => Code::NotFound,
            Self::File(error) => error.code(),
            Self::Run { .. } | Self::Wait { .. } | Self::Directory(_) => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Missing | Self::Run { .. } | Self::Directory(_) | Self::File(_) => "kubectl did not run",
            Self::Wait { .. } => UNKNOWN,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Missing => Some("install kubectl, or set CAIRN_KUBECTL to one".to_owned()),
            Self::File(error) => error.next(),
            Self::Run { .. } => Some("set CAIRN_KUBECTL to a kubectl that runs on this host".to_owned()),
            Self::Wait { .. } | Self::Directory(_) => None,
        }
    }
}

/// The kubectl that the help names.
///
/// # Errors
/// [`KubectlError::Missing`].
pub(super) fn program() -> Result<PathBuf, KubectlError> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("kubectl")));
    let path = std::env::var_os("PATH");
    find(std::env::var_os("CAIRN_KUBECTL"), beside, path.as_deref()).ok_or(KubectlError::Missing)
}

/// The first kubectl of those the help names.
fn find(named: Option<OsString>, beside: Option<PathBuf>, path: Option<&OsStr>) -> Option<PathBuf> {
    if let Some(named) = named {
        // Named means meant: if it does not run, that is the error.
        return Some(named.into());
    }
    let installed = path.map(|path| std::env::split_paths(path).map(|directory| directory.join("kubectl")));
    beside.into_iter().chain(installed.into_iter().flatten()).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_named_kubectl_wins_then_the_near_then_the_installed_one() {
        let root = tempfile::tempdir().unwrap();
        let program = |name: &str, mode| {
            let file = root.path().join(name).join("kubectl");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let (beside, plain, installed) = (program("beside", 0o755), program("plain", 0o644), program("bin", 0o755));
        let path = std::env::join_paths([plain.parent().unwrap(), installed.parent().unwrap()]).unwrap();
        let path = Some(path.as_os_str());
        assert_eq!(find(Some("/k".into()), Some(beside.clone()), path), Some("/k".into()));
        assert_eq!(find(None, Some(beside.clone()), path), Some(beside));
        assert_eq!(find(None, Some(plain), path), Some(installed));
        assert_eq!(find(None, None, Some(OsStr::new("/nonexistent"))), None);
    }
}
