//! `kubectl …`: somebody else's kubectl, with a kubeconfig and a tunnel for as long as it runs.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use clap::Args;
use tokio::process::Command;

use super::kubeconfig::{KubeconfigError, keep_open, render};
use super::kubectl_program::{KubectlError, UNKNOWN, program};
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::machine::{Listener, ask_certificate};
use crate::store::write_private;

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

/// kubectl's own exit code; 128 and the signal where one ended it, as shells have it.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(Code::Failed as i32);
    ExitCode::from(u8::try_from(code).unwrap_or(Code::Failed as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

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
