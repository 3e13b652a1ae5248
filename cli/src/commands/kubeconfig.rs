//! `kubeconfig`: writes one and keeps its tunnel open; and what `kubectl` shares with it.
//!
//! The private key is made here and stays here; the machine signs a certificate for it, for 24 hours at most.

use std::io::Write;
use std::net::SocketAddr;

use api::{ClientCertificate, Target};
use clap::Args;
use data_encoding::BASE64;
use pki::{BadRequest, CertificateDer, KeyError, PrivateKey};
use zeroize::Zeroizing;

use super::out_file::OutFile;
use crate::clock::Deadline;
use crate::context::{Context, OpenError};
use crate::failure::{Advice, Failure, NOTHING};
use crate::machine::{CallError, Listener, Session, TunnelError};
use crate::screen::{self, Progress};
use crate::store::{ClusterName, FileError, remove_private};

/// How long a lost machine is waited for before the tunnel gives up: a reboot and then some.
const COMES_BACK: std::time::Duration = std::time::Duration::from_secs(300);

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl kubeconfig --out ~/.kube/cairn --port 16443
  kubectl --kubeconfig ~/.kube/cairn get nodes        (in another terminal)

The tunnel is open until the command is interrupted. The certificate in the
file ends after 24 hours; the file is removed when the command ends.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    file: OutFile,
    /// The loopback port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// The key could not be made.
    #[error("make a key for kubectl")]
    Key(#[from] KeyError),
    /// The request could not be made.
    #[error("make a certificate request for kubectl")]
    Request(#[from] BadRequest),
    /// The machine did not sign it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Advice for KubeconfigError {
    fn code(&self) -> crate::failure::Code {
        match self {
            Self::Call(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Key(_) | Self::Request(_) => crate::failure::Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Call(error) => error.unchanged(),
            Self::File(error) => error.unchanged(),
            Self::Key(_) | Self::Request(_) => NOTHING,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Call(error) => error.next(),
            Self::File(error) => error.next(),
            Self::Key(_) | Self::Request(_) => None,
        }
    }
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    arguments.file.check_free()?;
    let (mut session, meant) = context.open_coordinator().await?;
    let listener = Listener::bind(arguments.port).await?;
    let granted = grant(&mut session).await?;
    let expires = screen::instant(granted.certificate.expires.0);
    let text = render(&meant.record.name, &granted, listener.address())?;
    arguments.file.write(text.as_bytes()).map_err(KubeconfigError::from)?;
    let (file, address) = (arguments.file.path().display(), listener.address());
    let did = format!("wrote {file}, good until {expires}; the tunnel listens on {address}, Ctrl-C ends it");
    let told = screen::did(context.format, out, &did).and_then(|()| out.flush());
    let served = match told {
        Ok(()) => tokio::select! {
            ended = keep_open(context, session, &listener) => ended,
            _interrupted = tokio::signal::ctrl_c() => Ok(()),
        },
        Err(nobody_reads) => Err(nobody_reads.into()),
    };
    // It points to a port nobody listens on any more.
    let removed = remove_private(arguments.file.path());
    served.map_err(|failure| {
        failure.leaving(match removed {
            Ok(()) => format!("the tunnel is closed, and {file} removed"),
            Err(_) => format!("the tunnel is closed; {file} is still there and leads nowhere"),
        })
    })
}

/// A key and what the machine signed for it.
#[derive(Debug)]
pub(crate) struct Granted {
    key: PrivateKey,
    certificate: ClientCertificate,
}

/// Has a certificate signed for a fresh key.
pub(crate) async fn grant(session: &mut Session) -> Result<Granted, KubeconfigError> {
    let key = PrivateKey::generate()?;
    let request = pki::make_request(&key)?;
    let certificate = session.kubeconfig(request.to_vec()).await?;
    Ok(Granted { key, certificate })
}

/// Carries connections until something other than the machine's absence stops it.
pub(crate) async fn keep_open(context: &Context, session: Session, listener: &Listener) -> Result<(), Failure> {
    let mut session = session;
    loop {
        match session.tunnel().serve(listener, Target::KubernetesApi).await {
            Ok(never) => match never {},
            Err(TunnelError::Call(CallError::Gone { .. })) => {
                let mut progress = Progress::start();
                let deadline = Deadline::after(COMES_BACK);
                // Where the cluster has several, another one carries what comes from then on.
                let shown = |error: &OpenError| progress.show(&error.to_string());
                (session, _) = context.open_coordinator_until(&deadline, shown).await?;
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// The file's text. Strings are quoted as JSON, which YAML reads alike.
pub(crate) fn render(
    name: &ClusterName,
    granted: &Granted,
    server: SocketAddr,
) -> Result<Zeroizing<String>, KubeconfigError> {
    let Granted { key, certificate } = granted;
    let pem = |der: &[u8]| BASE64.encode(pki::certificate_pem(&CertificateDer::from(der)).as_bytes());
    let key = Zeroizing::new(BASE64.encode(pki::private_key_pem(&key.to_pkcs8()?).as_bytes()));
    Ok(Zeroizing::new(format!(
        "\
apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: https://{server}
    tls-server-name: {tls_name}
    certificate-authority-data: {ca}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}-owner
users:
- name: {name}-owner
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
",
        tls_name = serde_json::Value::from(certificate.tls_server_name.as_str()),
        ca = pem(&certificate.ca_certificate),
        certificate = pem(&certificate.client_certificate),
        key = key.as_str(),
    )))
}

#[cfg(test)]
mod tests {
    use api::UnixMillis;

    use super::*;

    #[test]
    fn a_kubeconfig_names_the_tunnel_and_the_name_to_verify() {
        let granted = Granted {
            key: PrivateKey::generate().unwrap(),
            certificate: ClientCertificate {
                ca_certificate: vec![1],
                client_certificate: vec![2],
                tls_server_name: "kubernetes\"\n".into(),
                expires: UnixMillis(0),
            },
        };
        let text = render(&"home".parse().unwrap(), &granted, "127.0.0.1:16443".parse().unwrap()).unwrap();
        assert!(text.contains("    server: https://127.0.0.1:16443\n"));
        assert!(text.contains("    tls-server-name: \"kubernetes\\\"\\n\"\n"), "{}", text.as_str());
        let key = text.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).unwrap();
        let key = String::from_utf8(BASE64.decode(key.as_bytes()).unwrap()).unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    }
}
