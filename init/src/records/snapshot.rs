//! Kubernetes' objects of one revision, read from this machine's etcd and told as a snapshot, piece by piece. Holds a page of them.

use std::time::Duration;

use ::snapshot::{EntryError, RegistryEntry, SnapshotHead, SnapshotSummary, SnapshotWriter};
use etcd::{ForgottenRevision, Progress, RegistryReader};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

use super::link::NoAnswer;
use super::{LEADERLESS, Records, Unread};
use crate::version;

/// Bytes of a piece.
const PIECE: usize = api::limits::TUNNEL_CHUNK;
/// Longest time in which a caller takes no piece.
const SILENCE: Duration = Duration::from_secs(60);

/// Pieces of a snapshot on their way to whoever asked for it.
pub(crate) type Pieces = mpsc::Sender<Result<Vec<u8>, Status>>;

/// Why a snapshot does not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotStop {
    /// Which cluster it would be of is not known.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// This machine's etcd has no leader, which would say what the newest revision is.
    #[error("this coordinator has seen no change for {} s, since most of the others do not answer it", .0.as_secs())]
    Leaderless(Duration),
    /// etcd does not tell a page.
    #[error("read Kubernetes' objects")]
    Etcd(#[from] NoAnswer),
    /// Reading took too long.
    #[error(transparent)]
    Forgotten(#[from] ForgottenRevision),
    /// etcd holds what no snapshot can.
    #[error("what etcd holds for Kubernetes does not go into a snapshot")]
    Entry(#[from] EntryError),
    /// Half of another snapshot may be there.
    #[error("Kubernetes' objects are being restored from a snapshot")]
    Restoring,
    /// Caller takes no more.
    #[error("whoever asked for it has left, or took nothing for {} s", SILENCE.as_secs())]
    Left,
}

impl Records {
    /// Tells Kubernetes' objects as they are now.
    ///
    /// # Errors
    /// [`SnapshotStop`]: the pieces that were told are no whole snapshot.
    pub(crate) async fn snapshot(&self, pieces: &Pieces) -> Result<SnapshotSummary, SnapshotStop> {
        if let Some(silent) = self.silent_for().filter(|silent| *silent >= LEADERLESS) {
            return Err(SnapshotStop::Leaderless(silent));
        }
        let cluster = self.cluster()?;
        if self.read(|view, _| view.state().restore().is_some())? {
            return Err(SnapshotStop::Restoring);
        }
        let (mut reading, mut out) = (RegistryReader::begin(), Vec::new());
        let (mut entries, mut progress) = self.page(&mut reading).await?;
        let revision = reading.revision().expect("the first page was taken");
        let head = SnapshotHead { cluster, release: version::KUBERNETES, revision };
        let mut writer = SnapshotWriter::begin(&head, &mut out);
        loop {
            for entry in entries {
                writer.add(&entry.key, &entry.value, &mut out)?;
                let whole = out.len() - out.len() % PIECE;
                tell(&out[..whole], pieces).await?;
                out.drain(..whole);
            }
            if progress == Progress::Done {
                break;
            }
            (entries, progress) = self.page(&mut reading).await?;
        }
        let summary = writer.finish(&mut out);
        tell(&out, pieces).await?;
        Ok(summary)
    }

    async fn page(&self, reading: &mut RegistryReader) -> Result<(Vec<RegistryEntry>, Progress), SnapshotStop> {
        match self.link.range(reading.page()).await {
            Ok(page) => Ok(reading.take(page).map_err(NoAnswer::from)?),
            Err(NoAnswer::Refused(status)) => match reading.forgotten(&status) {
                Some(forgotten) => Err(forgotten.into()),
                None => Err(NoAnswer::Refused(status).into()),
            },
            Err(error @ (NoAnswer::Silent(_) | NoAnswer::Answer(_))) => Err(error.into()),
        }
    }
}

async fn tell(bytes: &[u8], pieces: &Pieces) -> Result<(), SnapshotStop> {
    for piece in bytes.chunks(PIECE) {
        let taken = timeout(SILENCE, pieces.send(Ok(piece.to_vec()))).await;
        taken.map_err(|_elapsed| SnapshotStop::Left)?.map_err(|_gone| SnapshotStop::Left)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q1
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_is_waited_for_a_minute() {
        let (pieces, mut taken) = mpsc::channel(1);
        tell(&[7; PIECE], &pieces).await.expect("there is room for one");
        assert!(matches!(tell(&[7; 1], &pieces).await, Err(SnapshotStop::Left)));
        assert_eq!(taken.recv().await.expect("the first").expect("a piece").len(), PIECE);
        drop(taken);
        assert!(matches!(tell(&[7; 1], &pieces).await, Err(SnapshotStop::Left)), "at once");
    }
}
