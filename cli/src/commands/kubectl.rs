//! `kubectl …`: somebody else's kubectl, with a kubeconfig and a tunnel for as long as it runs.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use clap::Args;
use tokio::process::Command;

use super::kubeconfig::{KubeconfigError, keep_open, render};
use crate::context::Context;
use crate::failure::{Advice, Code, Failure};
use crate::machine::{Listener, ask_certificate};
use crate::store::{FileError, write_private};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl kubectl get nodes -o wide
  cairnctl --cluster home kubectl logs -n kube-system pod/x

Options of cairnctl go before the word kubectl; all behind it is kubectl's.
The program is $CAIRN_KUBECTL, else `kubectl` beside cairnctl, else the one
installed.")]
pub(crate) struct Arguments {
    /// Arguments for kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// State after a kubectl was started and lost.
const UNKNOWN: &str = "kubectl ran; whether it did what it was told is unknown";

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

pub(crate) async fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Failure> {
    let program = program()?;
    let (mut session, meant) = context.open_coordinator().await?;
    let listener = Listener::bind(0).await?;
    let granted = ask_certificate(&mut session).await.map_err(KubeconfigError::from)?;
    let text = render(context, &meant.record, &granted, listener.address())?;
    // In the cluster's own directory, which nobody else can enter; gone with the command.
    let directory = tempfile::Builder::new()
        .prefix("kubectl-")
        .tempdir_in(context.store.directory(&meant.record.name))
        .map_err(KubectlError::Directory)?;
    let file = directory.path().join("kubeconfig");
    write_private(&file, text.as_bytes()).map_err(KubeconfigError::from)?;

    let failed = |source| KubectlError::Run { path: program.clone(), source };
    let mut child =
        Command::new(&program).args(&arguments.arguments).env("KUBECONFIG", &file).spawn().map_err(failed)?;
    let lost = |source| KubectlError::Wait { path: program.clone(), source };
    let tunnel = keep_open(context, session, &listener);
    tokio::pin!(tunnel);
    loop {
        tokio::select! {
            status = child.wait() => return Ok(code_of(status.map_err(lost)?)),
            // kubectl has seen its connections end and says so itself; its own exit is what counts.
            Err(failure) = &mut tunnel => {
                let status = child.wait().await.map_err(lost)?;
                return if status.success() { Ok(ExitCode::SUCCESS) } else { Err(failure.leaving(UNKNOWN)) };
            }
            // The terminal sends it to kubectl as well, which decides.
            _interrupted = tokio::signal::ctrl_c() => {}
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

/// kubectl's own exit code; 128 and the signal where one ended it, as shells have it.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(Code::Failed as i32);
    ExitCode::from(u8::try_from(code).unwrap_or(Code::Failed as u8))
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

    #[test]
    fn its_exit_code_is_ours() {
        let same = |raw: i32, code: u8| {
            assert_eq!(format!("{:?}", code_of(ExitStatus::from_raw(raw))), format!("{:?}", ExitCode::from(code)));
        };
        same(0, 0);
        same(3 << 8, 3);
        same(2, 130);
    }
}
