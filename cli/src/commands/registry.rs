//! `registry …`: where the cluster's workers pull container images from: set, list, remove. Credentials are in secrets of Kubernetes,
//! which pods name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use api::{ListPage, ListedRegistry};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use cluster::record::{BadRegistry, RegistryRecord};
use model::{BadRegistryHost, MirrorUrl, RegistryHost};
use pki::{BadAuthority, CertificateDer, judge_authority};
use rustls::pki_types::pem::{self, PemObject};
use serde::Serialize;

use crate::complete;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::screen::{self, Format, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say where a registry's images are pulled from, and who vouches for it
    Set(Set),
    /// The registries that something was said of
    List,
    /// Say nothing of a registry any more; images that were pulled stay
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl registry set docker.io --mirror https://mirror.example.org
  cairnctl registry set registry.lan:5000 --ca registry-ca.pem
  cairnctl registry set ghcr.io --mirror http://10.0.0.7:5000

Mirrors are asked in their order, the registry itself last. Every worker goes by
it within two seconds, and at its next pull. What was said of the registry
before is replaced as a whole. Registries of the public web need none of this.

Whoever answers as a mirror decides what containers run, unless a pod names its
image by digest; http:// lets anybody in between do so.

Credentials: a secret of type docker-registry, which the pod names in
imagePullSecrets. A mirror is shown them, too.")]
pub(crate) struct Set {
    /// The registry, as the names of its images begin: ghcr.io, 10.0.0.7:5000
    #[arg(value_name = "HOST", value_parser = typed_host)]
    host: RegistryHost,
    /// Where its images are pulled from first: https://… or http://…
    #[arg(long = "mirror", value_name = "URL", required_unless_present = "ca", value_parser = MirrorUrl::read)]
    mirrors: Vec<MirrorUrl>,
    /// File of the certificates that vouch for it and its mirrors (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The registry as `cairnctl registry list` shows it
    #[arg(value_name = "HOST", value_parser = typed_host, add = ArgValueCandidates::new(complete::registries))]
    host: RegistryHost,
}

/// More of a file of certificates is not read: it is another file.
const MOST_FILE_BYTES: u64 = 1 << 20;
/// Digits of a certificate's hash that tell it from others.
const SHOWN_DIGITS: usize = 12;

/// Why nothing is said of a registry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// The file could not be read.
    #[error("read `{file}`", file = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file is too large to be one of certificates.
    #[error("`{file}` is no file of certificates: it has more than 1 MiB", file = .0.display())]
    Large(PathBuf),
    /// The file is damaged.
    #[error("read the certificates in `{file}`", file = .0.display())]
    Pem(PathBuf, #[source] pem::Error),
    /// The file holds something else.
    #[error("`{file}` holds no certificate in PEM", file = .0.display())]
    Empty(PathBuf),
    /// Bytes in place of a certificate.
    #[error("certificate {number} in `{file}` cannot be used", file = .path.display())]
    Certificate {
        path: PathBuf,
        /// Place in the file, from 1.
        number: usize,
        source: BadAuthority,
    },
    /// Too much, or a mirror twice.
    #[error("the registry cannot be kept so")]
    Registry(#[source] BadRegistry),
}

impl Advice for RegistryError {
    fn code(&self) -> Code {
        match self {
            Self::Read(..) => Code::Failed,
            Self::Large(_) | Self::Pem(..) | Self::Empty(_) | Self::Certificate { .. } | Self::Registry(_) => {
                Code::Usage
            }
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Read(..) => return None,
            Self::Large(_) | Self::Pem(..) | Self::Empty(_) | Self::Certificate { .. } => {
                "give the certificates of the registry's authority in PEM: --ca FILE".to_owned()
            }
            Self::Registry(_) => "see what a registry may have: cairnctl registry set --help".to_owned(),
        })
    }
}

#[derive(Debug, Serialize)]
struct RegistryOut {
    host: String,
    mirrors: Vec<String>,
    authority_sha256: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RegistriesOut {
    /// Absent: it is of now.
    old_since_unix_ms: Option<u64>,
    registries: Vec<RegistryOut>,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Set(arguments) => arguments.run(context, out).await,
        Command::List => list(context, out).await,
        Command::Remove(arguments) => arguments.run(context, out).await,
    }
}

/// The name of a registry, however it is typed.
fn typed_host(text: &str) -> Result<RegistryHost, BadRegistryHost> {
    let lower = text.to_ascii_lowercase();
    // Docker's own other name of it.
    RegistryHost::read(if lower == "index.docker.io" { "docker.io" } else { &lower })
}

impl Set {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let authorities = self.ca.as_deref().map_or(Ok(Vec::new()), certificates)?;
        let registry = RegistryRecord::new(self.host, self.mirrors.clone(), authorities);
        let registry = registry.map_err(RegistryError::Registry)?;
        let (mut session, _) = context.open_coordinator().await?;
        let set = session.set_registry(registry).await;
        set.map_err(|error| Failure::from(error).going_on(SEE))?;
        let host = self.host;
        let did = match self.mirrors.len() {
            0 => format!("images of {host} are pulled by those certificates, too"),
            1 => format!("images of {host} are pulled from {} first", self.mirrors[0]),
            count => format!("images of {host} are pulled from {count} mirrors first"),
        };
        Ok(screen::did(context.format, out, &did)?)
    }
}

impl Remove {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, _) = context.open_coordinator().await?;
        let removed = session.remove_registry(self.host).await;
        removed.map_err(|error| Failure::from(error).going_on(SEE))?;
        Ok(screen::did(context.format, out, &format!("images of {} are pulled from itself alone", self.host))?)
    }
}

const SEE: &str = "see what is said of registries: cairnctl registry list";

async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let listed = session.registries().await?;
    match context.format {
        Format::Json => {
            let row = |row: &ListedRegistry| RegistryOut {
                host: row.host.to_string(),
                mirrors: row.mirrors.iter().map(ToString::to_string).collect(),
                authority_sha256: row.authorities.iter().map(digits).collect(),
            };
            let registries = listed.rows.iter().map(row).collect();
            let old_since_unix_ms = listed.old_since.map(|at| at.0);
            screen::json(out, &RegistriesOut { old_since_unix_ms, registries })?;
        }
        Format::Table => {
            let now = session.status().await?.now;
            table(&listed).print(out)?;
            super::old(listed.old_since, now, out)?;
        }
    }
    Ok(())
}

fn table(listed: &ListPage<ListedRegistry>) -> Table<3> {
    let mut table = Table::new(["REGISTRY", "MIRRORS", "CERTIFICATES (SHA-256)"]);
    let joined = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join(" ") };
    for row in &listed.rows {
        let certificates = row.authorities.iter().map(|hash| digits(hash)[..SHOWN_DIGITS].to_owned()).collect();
        let mirrors = row.mirrors.iter().map(ToString::to_string).collect();
        table.row([row.host.to_string(), joined(mirrors), joined(certificates)]);
    }
    table
}

fn digits(hash: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(hash)
}

/// The certificates in a file, in DER.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, RegistryError> {
    let (mut text, read) = (Vec::new(), |error| RegistryError::Read(path.to_owned(), error));
    let file = File::open(path).map_err(read)?;
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut text).map_err(read)?;
    if text.len() as u64 > MOST_FILE_BYTES {
        return Err(RegistryError::Large(path.to_owned()));
    }
    let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| RegistryError::Pem(path.to_owned(), error))?;
    if read.is_empty() {
        return Err(RegistryError::Empty(path.to_owned()));
    }
    for (number, certificate) in (1..).zip(&read) {
        let refused = |source| RegistryError::Certificate { path: path.to_owned(), number, source };
        judge_authority(certificate).map_err(refused)?;
    }
    Ok(read.into_iter().map(|certificate| certificate.to_vec()).collect())
}

#[cfg(test)]
mod tests;
