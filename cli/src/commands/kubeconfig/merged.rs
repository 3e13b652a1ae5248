//! A context in the kubeconfig that kubectl reads by itself, for as long as its tunnel is open. kubectl edits the file: it knows where it
//! is, and leaves all else in it as it was.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pki::CertificateDer;
use tokio::process::Command;

use super::{Holder, KubeconfigError};
use crate::commands::kubectl_program::KubectlError;
use crate::context::Context;
use crate::failure::{Advice, Code};
use crate::machine::{AskError, Granted};
use crate::store::{ClusterRecord, FileError, write_private};

/// Why the context is not there, or not gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MergeError {
    /// There is no kubectl, or it does not run.
    #[error(transparent)]
    Kubectl(#[from] KubectlError),
    /// No place for the certificates that kubectl reads.
    #[error("make a directory for kubectl's files")]
    Directory(#[source] io::Error),
    /// A certificate cannot be written for kubectl.
    #[error(transparent)]
    File(#[from] FileError),
    /// kubectl refuses to edit its file.
    #[error("`kubectl config {verb}`: {said}")]
    Refused { verb: &'static str, said: String },
}

impl Advice for MergeError {
    fn code(&self) -> Code {
        match self {
            Self::Kubectl(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Directory(_) | Self::Refused { .. } => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        "the contexts of other clusters are as they were; of this one a part may be there, which the next `--merge` replaces"
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Kubectl(error) => error.next(),
            Self::File(error) => error.next(),
            Self::Directory(_) => None,
            Self::Refused { .. } => Some("look at the file that $KUBECONFIG names, or ~/.kube/config".to_owned()),
        }
    }
}

/// Context of a cluster, which kubectl uses unless it is told another.
#[derive(Debug)]
pub(super) struct MergedContext {
    kubectl: Kubectl,
    /// Name of the context, its cluster and its user.
    name: String,
    /// Context that kubectl used before.
    before: Option<String>,
}

impl MergedContext {
    /// Adds the context, in place of one that was left behind, and has kubectl use it.
    ///
    /// # Errors
    /// [`MergeError`].
    pub(super) async fn add(
        kubectl: PathBuf,
        (context, record): (&Context, &ClusterRecord),
        granted: &Granted,
        server: SocketAddr,
    ) -> Result<Self, KubeconfigError> {
        let kubectl = Kubectl(kubectl);
        let name = format!("cairn-{}", record.name);
        let before = kubectl.config("current-context", &[]).await.ok().filter(|before| *before != name);
        // Fields that are not set again would stay.
        kubectl.forget(&name).await;
        let directory = tempfile::Builder::new()
            .prefix("kubeconfig-")
            .tempdir_in(context.store.directory(&record.name))
            .map_err(MergeError::Directory)?;
        let certificate = &granted.certificate;
        let authority = file(directory.path(), "ca.crt", certificate.ca_certificate.as_slice())?;
        let set = |option: &str, value: &str| format!("--{option}={value}");
        let (server, tls_name) = (format!("https://{server}"), certificate.tls_server_name.as_str());
        let cluster =
            [set("server", &server), set("tls-server-name", tls_name), set("certificate-authority", &authority)];
        kubectl.set("set-cluster", &name, &[&cluster[..], &[EMBED.to_owned()]].concat()).await?;
        let user = match Holder::of(context, record)? {
            Holder::Owner => {
                let key = directory.path().join("user.key");
                let pem = pki::private_key_pem(&granted.key.to_pkcs8().map_err(AskError::from)?);
                write_private(&key, pem.as_bytes()).map_err(MergeError::from)?;
                let shown = file(directory.path(), "user.crt", certificate.client_certificate.as_slice())?;
                vec![set("client-certificate", &shown), set("client-key", &key.to_string_lossy()), EMBED.to_owned()]
            }
            Holder::User { program, arguments } => {
                let arguments = arguments.iter().map(|argument| set("exec-arg", argument));
                let program = set("exec-command", &program.to_string_lossy());
                let rest = [set("exec-api-version", super::EXEC_API), set("exec-interactive-mode", "Never")];
                [program].into_iter().chain(rest).chain(arguments).collect()
            }
        };
        kubectl.set("set-credentials", &name, &user).await?;
        kubectl.set("set-context", &name, &[set("cluster", &name), set("user", &name)]).await?;
        kubectl.set("use-context", &name, &[]).await?;
        Ok(Self { kubectl, name, before })
    }

    /// Name of the context.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes the context out, and has kubectl use the one of before, unless somebody has chosen another meanwhile.
    ///
    /// # Errors
    /// [`MergeError`].
    pub(super) async fn remove(&self) -> Result<(), MergeError> {
        let now = self.kubectl.config("current-context", &[]).await.unwrap_or_default();
        if now == self.name {
            match &self.before {
                Some(before) => self.kubectl.config("use-context", &[before]).await?,
                None => self.kubectl.config("unset", &["current-context"]).await?,
            };
        }
        self.kubectl.forget(&self.name).await;
        match self.kubectl.config("get-contexts", &[&self.name]).await {
            Err(_) => Ok(()),
            Ok(_) => Err(MergeError::Refused { verb: "delete-context", said: "it is there still".to_owned() }),
        }
    }
}

/// kubectl keeps what the files hold, which are gone soon.
const EMBED: &str = "--embed-certs=true";

/// Certificate of a folder, as kubectl reads it.
fn file(directory: &Path, name: &str, der: &[u8]) -> Result<String, MergeError> {
    let path = directory.join(name);
    write_private(&path, pki::certificate_pem(&CertificateDer::from(der)).as_bytes())?;
    Ok(path.to_string_lossy().into_owned())
}

/// The program that edits its file.
#[derive(Debug)]
struct Kubectl(PathBuf);

impl Kubectl {
    async fn set(&self, verb: &'static str, name: &str, options: &[String]) -> Result<(), MergeError> {
        let arguments: Vec<_> = [name].into_iter().chain(options.iter().map(String::as_str)).collect();
        self.config(verb, &arguments).await.map(drop)
    }

    /// Removes what has the name, if something has.
    async fn forget(&self, name: &str) {
        for verb in ["delete-context", "delete-cluster", "delete-user"] {
            let _is_not_there = self.config(verb, &[name]).await;
        }
    }

    /// Runs `kubectl config`; the answer is its first line.
    async fn config(&self, verb: &'static str, arguments: &[&str]) -> Result<String, MergeError> {
        let ran = Command::new(&self.0).args(["config", verb]).args(arguments).output().await;
        let ran = ran.map_err(|source| KubectlError::Run { path: self.0.clone(), source })?;
        let first = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned();
        if ran.status.success() {
            Ok(first(&ran.stdout))
        } else {
            Err(MergeError::Refused { verb, said: first(&ran.stderr) })
        }
    }
}

#[cfg(test)]
mod tests;
