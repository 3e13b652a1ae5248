//! `user …`: the people who use a cluster's Kubernetes and own nothing of it: list, add, remove; the text by which this host's person is
//! added; and the certificate that a user's kubectl asks for.
//!
//! ```text
//!   user: user key ─► cairn-user-… ─► an owner: user add ─► cairn-place-… ─► user: cluster connect --user, kubectl
//! ```

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use api::{ListPage, UnixMillis};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use cluster::record::{UnixSeconds, UserRecord, UserTerms};
use keys::introduction::{self, BadIntroduction};
use model::{UserName, UserPubKey};
use pki::{CertificateDer, KeyError};
use serde::Serialize;
use zeroize::Zeroizing;

use super::{owner, secret_input};
use crate::complete;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::length;
use crate::machine::{Granted, ask_certificate};
use crate::screen::{self, Format, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The users of the cluster's Kubernetes, their keys, and until when
    List,
    /// Print the text by which an owner of a cluster lets you use its Kubernetes
    ///
    /// The text holds your public key and is no secret. Your keys are made where
    /// there are none yet.
    Key,
    /// Let a person use the cluster's Kubernetes
    Add(Add),
    /// Let a user use it no more: their connections end within two seconds
    Remove(Remove),
    /// Print a certificate for kubectl, and its private key, as a user
    ///
    /// The kubeconfig of a user runs this, and reads an ExecCredential of the version
    /// client.authentication.k8s.io/v1. The certificate ends after an hour.
    Credential,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl user key > alice.key               on the host of the new user
  cairnctl user add alice --key alice.key     on the host of an owner
  cairnctl kubectl create rolebinding alice -n web --clusterrole edit --user alice
  cairnctl cluster connect --user cairn-place-…     on the new user's again
  cairnctl kubectl get pods -n web

A user reaches the Kubernetes API and nothing else of the machines, and may do
there what roles allow that are bound to their name: none, to begin with. Be
sure whose text it is: it proves nothing.")]
pub(crate) struct Add {
    /// Name of the user, in Kubernetes, too: 1 to 32 of a-z, 0-9 and hyphens
    #[arg(value_name = "NAME")]
    name: UserName,
    /// File with what `cairnctl user key` printed for the person, or - for
    /// standard input; once for each of their hosts, at most 8
    #[arg(long, value_name = "FILE", required = true)]
    key: Vec<PathBuf>,
    /// How long they may use it: 10m, 1h30m, 30d [default: until removed]
    #[arg(long, value_name = "LENGTH", value_parser = length::parse)]
    expires: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A certificate that such a person carried elsewhere ends within the hour. What is
bound to the name in Kubernetes stays, for whoever is added by that name next:
cairnctl kubectl get rolebindings,clusterrolebindings -A -o wide")]
pub(crate) struct Remove {
    /// Name of the user
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::users))]
    name: UserName,
}

/// Why users stay as they are.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserChangeError {
    /// A file could not be read.
    #[error("read the user's key in `{path}`")]
    Read { path: PathBuf, source: io::Error },
    /// Not what `user key` prints.
    #[error("understand the user's key in `{path}`")]
    Text { path: PathBuf, source: BadIntroduction },
    /// No user has the name.
    #[error("the cluster has no user `{0}`")]
    Unknown(UserName),
    /// The user could not be told where to go.
    #[error("the cluster does not know an address of a coordinator")]
    Nowhere,
    /// The key of a certificate cannot be printed.
    #[error("write the key for kubectl")]
    Key(#[source] KeyError),
}

impl Advice for UserChangeError {
    fn code(&self) -> Code {
        match self {
            Self::Read { .. } | Self::Nowhere | Self::Key(_) => Code::Failed,
            Self::Unknown(_) => Code::NotFound,
            Self::Text { .. } => Code::Usage,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Read { .. } | Self::Key(_) => return None,
            Self::Text { .. } => "have the user print it again: cairnctl user key".to_owned(),
            Self::Unknown(_) => "see which there are: cairnctl user list".to_owned(),
            Self::Nowhere => "see its addresses: cairnctl machine list; then try again".to_owned(),
        })
    }
}

#[derive(Debug, Serialize)]
struct UserOut {
    name: String,
    public_keys: Vec<String>,
    /// Absent: until they are removed.
    not_after_unix_s: Option<u64>,
    added_by: String,
    added_at_unix_s: u64,
}

#[derive(Debug, Serialize)]
struct UsersOut {
    /// Absent: it is of now.
    old_since_unix_ms: Option<u64>,
    users: Vec<UserOut>,
}

#[derive(Debug, Serialize)]
struct KeyOut<'a> {
    public_key: String,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct AddedOut<'a> {
    did: &'a str,
    name: String,
    /// Text for `cairnctl cluster connect --user` on the host of the user.
    place: &'a str,
}

/// As kubectl reads it (client.authentication.k8s.io/v1).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CredentialOut<'a> {
    api_version: &'static str,
    kind: &'static str,
    status: CredentialStatusOut<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CredentialStatusOut<'a> {
    expiration_timestamp: String,
    client_certificate_data: String,
    client_key_data: &'a str,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::List => list(context, out).await,
        Command::Key => key(context, out),
        Command::Add(arguments) => arguments.run(context, out).await,
        Command::Remove(arguments) => arguments.run(context, out).await,
        Command::Credential => credential(context, out).await,
    }
}

async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let listed = session.users().await?;
    match context.format {
        Format::Json => {
            let row = |row: &UserRecord| UserOut {
                name: row.terms.name.to_string(),
                public_keys: row.terms.keys.iter().map(ToString::to_string).collect(),
                not_after_unix_s: row.terms.expires.map(|end| end.0),
                added_by: row.added_by.to_string(),
                added_at_unix_s: row.added_at.0,
            };
            let users = listed.rows.iter().map(row).collect();
            screen::json(out, &UsersOut { old_since_unix_ms: listed.old_since.map(|at| at.0), users })?;
        }
        Format::Table => {
            let now = session.status().await?.now;
            table(&listed, now).print(out)?;
            super::old(listed.old_since, now, out)?;
        }
    }
    Ok(())
}

/// A row for each key, whose user is named in the first.
fn table(listed: &ListPage<UserRecord>, now: UnixMillis) -> Table<3> {
    let mut table = Table::new(["USER", "EXPIRES", "KEY"]);
    for UserRecord { terms, .. } in &listed.rows {
        let ends = match terms.expires {
            None => "-".to_owned(),
            Some(_) if !terms.hold(UnixSeconds(now.0 / 1000)) => "expired".to_owned(),
            Some(end) => format!("in {}", screen::span(end.0.saturating_mul(1000).saturating_sub(now.0))),
        };
        for (at, key) in terms.keys.iter().enumerate() {
            let first = |text: &str| if at == 0 { text.to_owned() } else { String::new() };
            table.row([first(terms.name.as_str()), first(&ends), key.to_string()]);
        }
    }
    table
}

fn key(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let key = UserPubKey(context.store.owner_or_new()?.signing_key().public());
    let text = introduction::user_text(key);
    match context.format {
        Format::Table => writeln!(out, "{text}")?,
        Format::Json => screen::json(out, &KeyOut { public_key: key.to_string(), text: &text })?,
    }
    Ok(())
}

impl Add {
    fn keys(&self) -> Result<BTreeSet<UserPubKey>, UserChangeError> {
        let read = |path: &PathBuf| {
            let text = secret_input::read(path, "the user's key")
                .map_err(|source| UserChangeError::Read { path: path.clone(), source })?;
            introduction::user_key(&text).map_err(|source| UserChangeError::Text { path: path.clone(), source })
        };
        self.key.iter().map(read).collect()
    }

    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let keys = self.keys()?;
        let (mut session, meant) = context.open_coordinator().await?;
        // First: a new user has to be told where to go.
        let place = owner::place(&meant, &session.machines().await?.rows).ok_or(UserChangeError::Nowhere)?;
        let expires = match self.expires {
            None => None,
            Some(lasts) => {
                let now = session.status().await?.now;
                Some(UnixSeconds((now.0 / 1000).saturating_add(lasts.as_secs())))
            }
        };
        let added = session.add_user(UserTerms { name: self.name, keys, expires }).await;
        added.map_err(|error| Failure::from(error).going_on("see who is a user: cairnctl user list"))?;
        let (name, place) = (self.name, place.to_text());
        let did = format!("user {name} may use Kubernetes of `{}`", meant.record.name);
        match context.format {
            Format::Table => writeln!(
                out,
                "{did}; on that user's host:\n  cairnctl cluster connect --user {place}\nwhat they may do there is yours to say, as in:\n  \
                 cairnctl kubectl create rolebinding {name} -n NAMESPACE --clusterrole edit --user {name}"
            )?,
            Format::Json => screen::json(out, &AddedOut { did: &did, name: name.to_string(), place: &place })?,
        }
        Ok(())
    }
}

impl Remove {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, meant) = context.open_coordinator().await?;
        let (name, cluster) = (self.name, &meant.record.name);
        if session.users().await?.rows.iter().all(|row| row.terms.name != name) {
            return Err(UserChangeError::Unknown(name).into());
        }
        let removed = session.remove_user(name).await;
        removed.map_err(|error| Failure::from(error).going_on("see who is a user: cairnctl user list"))?;
        Ok(screen::did(context.format, out, &format!("user {name} may use Kubernetes of `{cluster}` no more"))?)
    }
}

/// The certificate, whatever the format: kubectl reads it.
async fn credential(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let granted = ask_certificate(&mut session).await?;
    out.write_all(exec_credential(&granted)?.as_bytes())?;
    Ok(())
}

fn exec_credential(granted: &Granted) -> Result<Zeroizing<String>, UserChangeError> {
    let Granted { key, certificate } = granted;
    let key = Zeroizing::new(pki::private_key_pem(&key.to_pkcs8().map_err(UserChangeError::Key)?));
    let der = CertificateDer::from(certificate.client_certificate.as_slice());
    let credential = CredentialOut {
        api_version: "client.authentication.k8s.io/v1",
        kind: "ExecCredential",
        status: CredentialStatusOut {
            expiration_timestamp: screen::instant(certificate.expires.0),
            client_certificate_data: pki::certificate_pem(&der),
            client_key_data: &key,
        },
    };
    let text = serde_json::to_string(&credential).expect("strings are always JSON");
    Ok(Zeroizing::new(text + "\n"))
}

#[cfg(test)]
mod tests;
