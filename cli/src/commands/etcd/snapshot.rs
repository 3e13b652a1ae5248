//! `etcd snapshot`: what Kubernetes keeps in etcd, as a file of the owner's. Each piece is checked as it comes; the file has its name
//! only once it is whole.

use std::io::Write;

use ::snapshot::{SnapshotError, SnapshotHead, SnapshotPart, SnapshotReader, SnapshotSummary};
use clap::Args;
use data_encoding::HEXLOWER;
use serde::Serialize;

use crate::commands::out_file::{Begun, OutFile};
use crate::context::Context;
use crate::failure::{Advice, Code, Failure};
use crate::machine::{CallError, SnapshotPieces};
use crate::screen::{self, Format, Progress};
use crate::store::FileError;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl etcd snapshot --out home.snapshot
  cairnctl etcd snapshot --out home.snapshot --force

The file holds all objects of Kubernetes at one moment, but for events. Secrets
in it are encrypted with a key of the cluster's; all else in it can be read.
Neither machines, tickets, owners nor users are in it, nor what lies in volumes.

Nothing stops meanwhile. It must not take longer than five minutes: etcd
forgets what was changed by then.")]
pub(crate) struct Snapshot {
    #[command(flatten)]
    file: OutFile,
}

/// Why there is no snapshot in the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotFileError {
    /// Bytes that the machine told are no whole snapshot.
    #[error("the machine told no snapshot")]
    Told(#[from] SnapshotError),
    /// The machine stopped, or the connection did.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The file is not written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Advice for SnapshotFileError {
    fn code(&self) -> Code {
        match self {
            Self::Told(_) => Code::Failed,
            Self::Call(error) => error.code(),
            Self::File(error) => error.code(),
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Told(_) | Self::Call(_) => "no file was written, and the cluster is as it was",
            Self::File(error) => error.unchanged(),
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            // It took too long, or came to nothing on the way.
            Self::Told(_) | Self::Call(CallError::Failed { .. } | CallError::Gone { .. } | CallError::Late { .. }) => {
                Some("try again, from nearer to the cluster, or where a coordinator is less busy".to_owned())
            }
            Self::Call(error) => error.next(),
            Self::File(error) => error.next(),
        }
    }
}

#[derive(Debug, Serialize)]
struct SnapshotOut {
    file: String,
    cluster_id: String,
    kubernetes: String,
    revision: u64,
    objects: u64,
    bytes: u64,
    sha256: String,
}

impl Snapshot {
    pub(super) async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        self.file.check_free()?;
        let (mut session, meant) = context.open_coordinator().await?;
        let cluster = meant.pins().expect("a session is opened with a machine that is pinned").cluster;
        let mut file = self.file.begin()?;
        let pieces = session.snapshot_kubernetes().await.map_err(SnapshotFileError::from)?;
        let (head, summary) = receive(pieces, SnapshotReader::begin(cluster), &mut file).await?;
        file.write(&[]).map_err(SnapshotFileError::from)?;
        let SnapshotSummary { entries, bytes, hash } = summary;
        let path = self.file.path().display();
        match context.format {
            Format::Table => {
                let (release, size) = (head.release, screen::size(bytes));
                writeln!(out, "{path}: {entries} objects of Kubernetes {release}, revision {}, {size}", head.revision)?;
            }
            Format::Json => screen::json(
                out,
                &SnapshotOut {
                    file: path.to_string(),
                    cluster_id: head.cluster.to_string(),
                    kubernetes: head.release.to_string(),
                    revision: head.revision,
                    objects: entries,
                    bytes,
                    sha256: HEXLOWER.encode(&hash),
                },
            )?,
        }
        Ok(())
    }
}

/// Writes what the machine tells, as far as it is a snapshot.
async fn receive(
    mut pieces: SnapshotPieces,
    mut reader: SnapshotReader,
    file: &mut Begun<'_>,
) -> Result<(SnapshotHead, SnapshotSummary), SnapshotFileError> {
    let (mut progress, mut parts, mut head, mut bytes) = (Progress::start(), Vec::new(), None, 0_u64);
    while let Some(piece) = pieces.next().await? {
        reader.take(&piece, &mut parts)?;
        for part in parts.drain(..) {
            if let SnapshotPart::Head(first) = part {
                head = Some(first);
            }
        }
        file.append(&piece)?;
        bytes += piece.len() as u64;
        // A line for each MiB, where there is no terminal.
        if bytes >> 20 != (bytes - piece.len() as u64) >> 20 {
            progress.show(&format!("{} objects, {}", reader.entries(), screen::size(bytes)));
        }
    }
    let summary = reader.finish()?;
    Ok((head.ok_or(SnapshotError::Cut)?, summary))
}
