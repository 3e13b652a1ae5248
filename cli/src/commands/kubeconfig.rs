//! `kubeconfig`: writes one and keeps its tunnel open; and what `kubectl` shares with it.
//!
//! The private key is made here and stays here; the machine signs a certificate for it: an owner's for 24 hours,
//! a user's for one, of which kubectl fetches the next by `cairnctl user credential`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use api::Target;
use clap::Args;
use data_encoding::BASE64;
use pki::CertificateDer;
use zeroize::Zeroizing;

use self::merged::{MergeError, MergedContext};
use super::out_file::OutFile;
use crate::clock::Deadline;
use crate::context::{Context, OpenError};
use crate::failure::{Advice, Failure, NOTHING};
use crate::machine::{AskError, CallError, Granted, Listener, Session, TunnelError, ask_certificate};
use crate::screen::{self, Progress};
use crate::store::{CallsAs, ClusterName, ClusterRecord, FileError, remove_private};

mod merged;

/// How long a lost machine is waited for before the tunnel gives up: a reboot and then some.
const COMES_BACK: std::time::Duration = std::time::Duration::from_secs(300);

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl kubeconfig --out ~/.kube/cairn --port 16443
  kubectl --kubeconfig ~/.kube/cairn get nodes        (in another terminal)
  cairnctl kubeconfig --merge                         context `cairn-NAME`

The tunnel is open until the command is interrupted; then the file is removed,
and so is the context.
The certificate in an owner's file ends after 24 hours. In a user's file there
is none: kubectl has this program fetch one, which ends after an hour.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    file: Option<OutFile>,
    /// Add a context to kubectl's own kubeconfig, and have it used
    #[arg(long, required_unless_present = "out", conflicts_with = "out")]
    merge: bool,
    /// The loopback port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// There is no certificate for it.
    #[error(transparent)]
    Certificate(#[from] AskError),
    /// Which program fetches a user's next certificate is not known.
    #[error("find out which program this is")]
    Program(#[source] std::io::Error),
    /// The file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// kubectl's own file could not be edited.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

impl Advice for KubeconfigError {
    fn code(&self) -> crate::failure::Code {
        match self {
            Self::Certificate(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Merge(error) => error.code(),
            Self::Program(_) => crate::failure::Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Certificate(error) => error.unchanged(),
            Self::File(error) => error.unchanged(),
            Self::Merge(error) => error.unchanged(),
            Self::Program(_) => NOTHING,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Certificate(error) => error.next(),
            Self::File(error) => error.next(),
            Self::Merge(error) => error.next(),
            Self::Program(_) => None,
        }
    }
}

/// Place where a kubeconfig is wanted.
enum Place<'a> {
    File(&'a OutFile),
    /// The file that this kubectl reads by itself.
    Kubectl(PathBuf),
}

/// Place of a kubeconfig while its tunnel is open.
enum Written<'a> {
    File(&'a OutFile),
    Context(MergedContext),
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let place = match &arguments.file {
        Some(file) => {
            file.check_free()?;
            Place::File(file)
        }
        None => Place::Kubectl(super::kubectl_program::program()?),
    };
    let (mut session, meant) = context.open_coordinator().await?;
    let listener = Listener::bind(arguments.port).await?;
    let granted = ask_certificate(&mut session).await.map_err(KubeconfigError::from)?;
    let lasts = match meant.record.calls {
        CallsAs::Owner => format!("good until {}", screen::instant(granted.certificate.expires.0)),
        CallsAs::User => "good as long as you are a user of the cluster".to_owned(),
    };
    let written = match place {
        Place::File(file) => {
            let text = render(context, &meant.record, &granted, listener.address())?;
            file.write(text.as_bytes()).map_err(KubeconfigError::from)?;
            Written::File(file)
        }
        Place::Kubectl(kubectl) => {
            let of = (context, &meant.record);
            Written::Context(MergedContext::add(kubectl, of, &granted, listener.address()).await?)
        }
    };
    let (what, address) = (written.name(), listener.address());
    let did = format!("wrote {what}, {lasts}; the tunnel listens on {address}, Ctrl-C ends it");
    let told = screen::did(context.format, out, &did).and_then(|()| out.flush());
    let served = match told {
        Ok(()) => tokio::select! {
            ended = keep_open(context, session, &listener) => ended,
            _interrupted = tokio::signal::ctrl_c() => Ok(()),
        },
        Err(nobody_reads) => Err(nobody_reads.into()),
    };
    // It points to a port nobody listens on any more.
    let left = match written.remove().await {
        Ok(()) => format!("the tunnel is closed, and {what} removed"),
        Err(_) => format!("the tunnel is closed; {what} is still there and leads nowhere"),
    };
    served.map_err(|failure| failure.leaving(left))
}

impl Written<'_> {
    fn name(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            Self::Context(merged) => format!("context `{}`", merged.name()),
        }
    }

    async fn remove(&self) -> Result<(), KubeconfigError> {
        match self {
            Self::File(file) => Ok(remove_private(file.path())?),
            Self::Context(merged) => Ok(merged.remove().await?),
        }
    }
}

/// Holder of the certificate that kubectl shows.
enum Holder {
    /// An owner, whose certificate lasts for a day, and is in the file.
    Owner,
    /// A user, whose certificate lasts for an hour: kubectl has this program fetch the next.
    User { program: PathBuf, arguments: Vec<String> },
}

impl Holder {
    fn of(context: &Context, record: &ClusterRecord) -> Result<Self, KubeconfigError> {
        match record.calls {
            CallsAs::Owner => Ok(Self::Owner),
            CallsAs::User => {
                let program = std::env::current_exe().map_err(KubeconfigError::Program)?;
                Ok(Self::User { program, arguments: fetching(context, &record.name) })
            }
        }
    }
}

/// Version of the API by which kubectl has a program fetch a certificate.
const EXEC_API: &str = "client.authentication.k8s.io/v1";

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
    context: &Context,
    record: &ClusterRecord,
    granted: &Granted,
    server: SocketAddr,
) -> Result<Zeroizing<String>, KubeconfigError> {
    let (name, certificate) = (&record.name, &granted.certificate);
    let (role, user) = match Holder::of(context, record)? {
        Holder::Owner => ("owner", by_certificate(granted)?),
        Holder::User { program, arguments } => ("user", Zeroizing::new(by_program(&program, &arguments))),
    };
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
    user: {name}-{role}
users:
- name: {name}-{role}
  user:
{user}",
        tls_name = serde_json::Value::from(certificate.tls_server_name.as_str()),
        ca = certificate_in_base64(&certificate.ca_certificate),
        user = user.as_str(),
    )))
}

/// A certificate (DER) as a kubeconfig holds it: PEM, in base64.
fn certificate_in_base64(der: &[u8]) -> String {
    BASE64.encode(pki::certificate_pem(&CertificateDer::from(der)).as_bytes())
}

fn by_certificate(granted: &Granted) -> Result<Zeroizing<String>, KubeconfigError> {
    let Granted { key, certificate } = granted;
    let key = Zeroizing::new(BASE64.encode(pki::private_key_pem(&key.to_pkcs8().map_err(AskError::from)?).as_bytes()));
    let certificate = certificate_in_base64(&certificate.client_certificate);
    let key = key.as_str();
    Ok(Zeroizing::new(format!("    client-certificate-data: {certificate}\n    client-key-data: {key}\n")))
}

/// Arguments by which this program fetches a user's next certificate.
fn fetching(context: &Context, name: &ClusterName) -> Vec<String> {
    let mut arguments = vec!["--cluster".to_owned(), name.to_string()];
    if let Some(machine) = &context.machine {
        arguments.extend(["--machine".to_owned(), machine.as_str().to_owned()]);
    }
    if let Some(address) = &context.address {
        arguments.extend(["--address".to_owned(), address.to_string()]);
    }
    arguments.extend(["user".to_owned(), "credential".to_owned()]);
    arguments
}

fn by_program(program: &Path, arguments: &[String]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let arguments = arguments.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(", ");
    format!(
        "    exec:\n      apiVersion: {EXEC_API}\n      command: {program}\n      \
         args: [{arguments}]\n      interactiveMode: Never\n",
        program = quoted(&program.display().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use api::{ClientCertificate, UnixMillis};
    use pki::PrivateKey;

    use super::*;
    use crate::context::home;

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
        let (_root, context, _) = home::begun();
        let mut record = ClusterRecord::of_config(home::name(), model::ConfigDigest([5; 32]));
        let text = render(&context, &record, &granted, "127.0.0.1:16443".parse().unwrap()).unwrap();
        assert!(text.contains("    server: https://127.0.0.1:16443\n"));
        assert!(text.contains("    tls-server-name: \"kubernetes\\\"\\n\"\n"), "{}", text.as_str());
        let key = text.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).unwrap();
        let key = String::from_utf8(BASE64.decode(key.as_bytes()).unwrap()).unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
        // A user's holds no secret, and says who fetches one.
        record.calls = CallsAs::User;
        let text = render(&context, &record, &granted, "127.0.0.1:16443".parse().unwrap()).unwrap();
        assert!(text.contains("    user: home-user\n") && !text.contains("client-"), "{}", text.as_str());
        let program = serde_json::Value::from(std::env::current_exe().unwrap().display().to_string());
        let arguments = r#"["--cluster", "home", "user", "credential"]"#;
        assert!(text.contains(&format!("      command: {program}\n      args: {arguments}\n")), "{}", text.as_str());
        let at = Context { address: Some("192.0.2.1".parse().unwrap()), ..context };
        let text = render(&at, &record, &granted, "127.0.0.1:16443".parse().unwrap()).unwrap();
        assert!(text.contains(r#""--address", "192.0.2.1:7836", "user""#), "{}", text.as_str());
    }
}
