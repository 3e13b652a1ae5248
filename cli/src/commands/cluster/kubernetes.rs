//! `cluster restore`: what Kubernetes keeps becomes what a snapshot has. The file is read and checked before a machine hears of it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ::snapshot::{SnapshotError, SnapshotHead, SnapshotPart, SnapshotReader, SnapshotSummary};
use api::RestoreStage;
use clap::Args;
use model::{ClusterId, NodeName};
use serde::Serialize;

use crate::commands::confirm::confirm;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::{PIECE, Restore as Restoring};
use crate::screen::{self, Format, Progress};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl etcd snapshot --out home.snapshot
  cairnctl cluster restore home.snapshot

All objects of Kubernetes become those of the snapshot; what was made since is
gone, and pods end and start as the objects say. Events stay as they are.
Meanwhile no apiserver and no controller runs; pods run on. Machines, tickets,
owners and users stay, and what lies in volumes.

Once a coordinator has the file it goes on by itself, also after a restart.
Where too few coordinators are left, first: cairnctl cluster recover.")]
pub(crate) struct Restore {
    /// The snapshot
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Why a file is not restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreFileError {
    /// The file cannot be read.
    #[error("read `{file}`")]
    Read { file: PathBuf, source: io::Error },
    /// The file is no snapshot of this cluster.
    #[error("look through `{file}`")]
    Snapshot { file: PathBuf, source: SnapshotError },
}

impl Advice for RestoreFileError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
            Self::Read { .. } | Self::Snapshot { .. } => Code::Failed,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Read { .. } => None,
            Self::Snapshot { source: SnapshotError::OtherCluster(_), .. } => {
                Some("see whether another cluster is meant: cairnctl cluster list".to_owned())
            }
            Self::Snapshot { .. } => Some("use another copy of the file, or an older snapshot".to_owned()),
        }
    }
}

#[derive(Debug, Serialize)]
struct RestoredOut {
    kubernetes: String,
    revision: u64,
    objects: u64,
    bytes: u64,
}

const GOES_ON: &str = "the machine may have the file, and then goes on by itself";
const SEE: &str = "see whether Kubernetes runs: cairnctl machine services; or repeat the command";

impl Restore {
    pub(super) async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, meant) = context.open_coordinator().await?;
        let cluster = meant.pins().expect("a session is opened with a machine that is pinned").cluster;
        let mut file = Snapshot::read(&self.file, cluster)?;
        if !self.yes {
            let name = meant.record.name.to_string();
            let since = file.head.revision;
            confirm(&format!("what Kubernetes of cluster `{name}` has taken since revision {since}"), &name, out)?;
        }
        let mut restoring = session.restore_kubernetes().await?;
        let sent = file.send(&restoring, &mut Progress::start()).await;
        sent.map_err(|source| RestoreFileError::Read { file: self.file.clone(), source })?;
        restoring.whole();
        follow(&mut restoring).await.map_err(|failure| failure.leaving(GOES_ON).going_on(SEE))?;
        let (SnapshotHead { release, revision, .. }, SnapshotSummary { entries, bytes, .. }) =
            (file.head, file.summary);
        match context.format {
            Format::Table => writeln!(out, "Kubernetes has the {entries} objects of revision {revision} again")?,
            Format::Json => {
                let kubernetes = release.to_string();
                screen::json(out, &RestoredOut { kubernetes, revision, objects: entries, bytes })?;
            }
        }
        Ok(())
    }
}

/// Shows each stage until the restore is over.
async fn follow(restoring: &mut Restoring) -> Result<(), Failure> {
    let mut progress = Progress::start();
    while let Some(stage) = restoring.next().await? {
        progress.show(&match stage {
            RestoreStage::Waits(names) => {
                let names: Vec<_> = names.iter().map(NodeName::as_str).collect();
                format!("control planes stop: {}", names.join(", "))
            }
            RestoreStage::Replaces => "objects are replaced".to_owned(),
            RestoreStage::Fails(why) => format!("a step failed and is tried again: {why}"),
        });
    }
    Ok(())
}

/// A file that is whole and of the cluster.
struct Snapshot {
    file: File,
    head: SnapshotHead,
    summary: SnapshotSummary,
}

impl Snapshot {
    fn read(path: &Path, cluster: ClusterId) -> Result<Self, RestoreFileError> {
        let unread = |source| RestoreFileError::Read { file: path.to_owned(), source };
        let wrong = |source| RestoreFileError::Snapshot { file: path.to_owned(), source };
        let mut file = File::open(path).map_err(unread)?;
        let (mut reader, mut head, mut parts) = (SnapshotReader::begin(cluster), None, Vec::new());
        let mut piece = vec![0; PIECE];
        loop {
            let read = file.read(&mut piece).map_err(unread)?;
            if read == 0 {
                break;
            }
            reader.take(&piece[..read], &mut parts).map_err(wrong)?;
            for part in parts.drain(..) {
                if let SnapshotPart::Head(first) = part {
                    head = Some(first);
                }
            }
        }
        let summary = reader.finish().map_err(wrong)?;
        let head = head.ok_or_else(|| wrong(SnapshotError::Cut))?;
        file.seek(SeekFrom::Start(0)).map_err(unread)?;
        Ok(Self { file, head, summary })
    }

    /// Sends all of it, as long as the machine takes it: why it does not, it says by itself.
    async fn send(&mut self, to: &Restoring, progress: &mut Progress) -> io::Result<()> {
        let (mut sent, whole) = (0_u64, self.summary.bytes);
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            (&mut self.file).take(PIECE as u64).read_to_end(&mut piece)?;
            sent += piece.len() as u64;
            if piece.is_empty() || !to.give(piece).await {
                return Ok(());
            }
            let tens = sent.saturating_mul(10).checked_div(whole).unwrap_or(10);
            progress.show(&format!("sending {}, {tens}0 %", screen::size(whole)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ::snapshot::{KubernetesRelease, SnapshotWriter};

    use super::*;
    use crate::args::{self, Cli};
    use crate::context::home;
    use crate::machine::fake::Fake;

    /// A snapshot of one object, larger than a piece.
    fn snapshot(cluster: ClusterId) -> Vec<u8> {
        let head = SnapshotHead { cluster, release: KubernetesRelease(1, 36, 3), revision: 7 };
        let mut bytes = Vec::new();
        let mut writer = SnapshotWriter::begin(&head, &mut bytes);
        writer.add(b"/registry/pods/web/a", &vec![7; 3 * PIECE], &mut bytes).unwrap();
        let _summary = writer.finish(&mut bytes);
        bytes
    }

    async fn restores(bytes: &[u8], more: &[&str], context: &Context) -> Result<String, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("home.snapshot");
        fs::write(&file, bytes).unwrap();
        let line = [&["cairnctl", "cluster", "restore", file.to_str().unwrap()], more].concat();
        let Cli { command, .. } = args::parse(line.iter().map(Into::into)).unwrap();
        let args::Command::Cluster(super::super::Command::Restore(restore)) = &command else { panic!("{command:?}") };
        let mut out = Vec::new();
        restore.run(context, &mut out).await?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn restored(coordinator: &Fake) -> bool {
        coordinator.calls().contains(&"RestoreKubernetes")
    }

    /// Proves: Q4 Q6
    #[tokio::test]
    async fn a_snapshot_is_sent_whole_and_followed_to_its_end() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        let bytes = snapshot(coordinator.pins().cluster);
        let said = restores(&bytes, &["--yes"], &context).await.unwrap();
        assert_eq!(said, "Kubernetes has the 1 objects of revision 7 again\n");
        assert_eq!(*coordinator.snapshot.lock().unwrap(), bytes);
        let json = Context { format: Format::Json, ..context };
        let said: serde_json::Value = serde_json::from_str(&restores(&bytes, &["-y"], &json).await.unwrap()).unwrap();
        assert_eq!((&said["objects"], &said["kubernetes"]), (&1.into(), &"v1.36.3".into()));
    }

    /// Proves: Q4
    #[tokio::test]
    async fn nothing_is_sent_unasked_or_of_a_file_that_is_no_use() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        let bytes = snapshot(coordinator.pins().cluster);
        let unasked = restores(&bytes, &[], &context).await.unwrap_err();
        assert_eq!((unasked.code(), unasked.next()), (Code::Usage, Some("add --yes".to_owned())));
        let cut = restores(&bytes[..bytes.len() - 1], &["--yes"], &context).await.unwrap_err();
        assert!(cut.reason().ends_with("the snapshot is cut off"), "{}", cut.reason());
        let mut flipped = bytes;
        flipped[99] ^= 1;
        let flipped = restores(&flipped, &["--yes"], &context).await.unwrap_err();
        assert!(flipped.reason().contains("damaged"), "{}", flipped.reason());
        let other = restores(&snapshot(ClusterId([9; 16])), &["--yes"], &context).await.unwrap_err();
        assert_eq!(other.next().as_deref(), Some("see whether another cluster is meant: cairnctl cluster list"));
        assert!(!restored(&coordinator));
    }

    /// Proves: Q4
    #[tokio::test]
    async fn a_restore_that_is_not_seen_to_end_says_that_it_may_go_on() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        *coordinator.refuses.lock().unwrap() = true;
        let stopped = restores(&snapshot(coordinator.pins().cluster), &["--yes"], &context).await.unwrap_err();
        let mut printed = Vec::new();
        stopped.print(&mut printed).unwrap();
        let printed = String::from_utf8(printed).unwrap();
        assert!(restored(&coordinator));
        assert!(printed.contains(&format!("\n  {GOES_ON}\n  next: {SEE}\n")), "{printed}");
    }
}
