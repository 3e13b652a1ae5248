//! The snapshot that is to be restored, as a file on DATA: taken piece by piece, whole and verified before it has its name, which says its
//! hash; read as often as a restore needs it, and removed after it. One that is taken touches no other.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::snapshot::{RegistryEntry, SnapshotError, SnapshotHead, SnapshotPart, SnapshotReader, SnapshotSummary};
use model::ClusterId;

use crate::runtime::durable;
use crate::storage::DATA;

/// Beginning of the names of all that may lie here; the hash follows.
const NAME: &str = "kubernetes-snapshot";
/// Name of one that is being taken.
const NEW: &str = "kubernetes-snapshot.new";
/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// Share of the disk that stays free, in percent: kubelet begins to end pods where less is (`nodefs.available`).
const FREE_PERCENT: u64 = 10;

/// Why a snapshot is not taken, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptSnapshotError {
    /// Bytes that are no snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The disk would be too full.
    #[error("the machine's disk has no room for it beside the {FREE_PERCENT} % that stay free")]
    Full,
    /// The file is not there.
    #[error("the snapshot that is to be restored is not there; restore it again: cairnctl cluster restore")]
    Gone,
    /// Another snapshot has its name.
    #[error("another snapshot has the name of the one that is to be restored")]
    Other,
    /// The disk fails.
    #[error("{0} `{DATA}/{NAME}.…`")]
    File(&'static str, #[source] io::Error),
}

fn name(hash: [u8; 32]) -> String {
    hash.iter().fold(format!("{NAME}."), |name, byte| name + &format!("{byte:02x}"))
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> KeptSnapshotError {
    move |error| KeptSnapshotError::File(doing, error)
}

/// Snapshot that is being taken. Unless it is kept, nothing of it stays.
#[derive(Debug)]
pub(super) struct NewSnapshot {
    file: File,
    reader: SnapshotReader,
    head: Option<SnapshotHead>,
    /// Bytes that it may have yet.
    room: u64,
    unfinished: Unfinished,
}

/// File that goes when this is dropped.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _gone_once_it_has_its_name = fs::remove_file(&self.0);
    }
}

impl NewSnapshot {
    /// Begins a file of this cluster's.
    ///
    /// # Errors
    /// [`KeptSnapshotError`].
    pub(super) fn begin(cluster: ClusterId) -> Result<Self, KeptSnapshotError> {
        let disk = rustix::fs::statvfs(DATA).map_err(|error| failed("look how full the disk is for")(error.into()))?;
        let kept = disk.f_blocks / 100 * FREE_PERCENT;
        let room = disk.f_bavail.saturating_sub(kept).saturating_mul(disk.f_frsize);
        Self::begin_in(Path::new(DATA), cluster, room)
    }

    fn begin_in(data: &Path, cluster: ClusterId, room: u64) -> Result<Self, KeptSnapshotError> {
        let new = data.join(NEW);
        durable::remove(&new).map_err(failed("remove what was left of"))?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&new).map_err(failed("make"))?;
        let unfinished = Unfinished(new);
        Ok(Self { file, reader: SnapshotReader::begin(cluster), head: None, room, unfinished })
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// [`KeptSnapshotError`]: nothing of it stays.
    pub(super) fn take(mut self, piece: &[u8]) -> Result<Self, KeptSnapshotError> {
        self.room = self.room.checked_sub(piece.len() as u64).ok_or(KeptSnapshotError::Full)?;
        let mut parts = Vec::new();
        self.reader.take(piece, &mut parts)?;
        if let Some(SnapshotPart::Head(head)) = parts.first() {
            self.head = Some(*head);
        }
        self.file.write_all(piece).map_err(failed("write"))?;
        Ok(self)
    }

    /// Origin of the objects, once it has come.
    pub(super) const fn head(&self) -> Option<SnapshotHead> {
        self.head
    }

    /// Gives the file its name, behind its last piece: from now on it lasts.
    ///
    /// # Errors
    /// [`KeptSnapshotError`]: nothing of it stays.
    pub(super) fn keep(self) -> Result<SnapshotSummary, KeptSnapshotError> {
        let summary = self.reader.finish()?;
        self.file.sync_all().map_err(failed("write"))?;
        let data = self.unfinished.0.parent().expect("it lies in a folder");
        fs::rename(&self.unfinished.0, data.join(name(summary.hash))).map_err(failed("name"))?;
        File::open(data).and_then(|data| data.sync_all()).map_err(failed("name"))?;
        Ok(summary)
    }
}

/// Removes all snapshots but the one with this hash, and what is left of one that was being taken.
///
/// # Errors
/// [`KeptSnapshotError::File`].
pub(super) fn remove_but(hash: Option<[u8; 32]>) -> Result<(), KeptSnapshotError> {
    remove_from(Path::new(DATA), hash).map_err(failed("remove"))
}

/// Removes from a folder all snapshots but the one with this hash.
///
/// # Errors
/// Errors of the file system; some of them may be gone.
pub(super) fn remove_from(data: &Path, but: Option<[u8; 32]>) -> io::Result<()> {
    let stays = but.map(name);
    for entry in fs::read_dir(data)? {
        let found = entry?.file_name();
        let is_one = found.to_str().is_some_and(|found| found.starts_with(NAME));
        if is_one && found.to_str() != stays.as_deref() {
            durable::remove(&data.join(found))?;
        }
    }
    Ok(())
}

/// Snapshot that lies here whole, read from its beginning.
#[derive(Debug)]
pub(super) struct KeptSnapshot {
    file: File,
    reader: SnapshotReader,
    piece: Vec<u8>,
}

impl KeptSnapshot {
    /// Opens the one with this hash; all of it is read once.
    ///
    /// # Errors
    /// [`KeptSnapshotError`].
    pub(super) fn open(cluster: ClusterId, hash: [u8; 32]) -> Result<Self, KeptSnapshotError> {
        Self::open_in(Path::new(DATA), cluster, hash)
    }

    fn open_in(data: &Path, cluster: ClusterId, hash: [u8; 32]) -> Result<Self, KeptSnapshotError> {
        let file = match File::open(data.join(name(hash))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(KeptSnapshotError::Gone),
            opened => opened.map_err(failed("open"))?,
        };
        let mut first = Self { file, reader: SnapshotReader::begin(cluster), piece: vec![0; PIECE] };
        while !first.read()?.is_empty() {}
        if first.reader.finish()?.hash != hash {
            return Err(KeptSnapshotError::Other);
        }
        first.file.seek(SeekFrom::Start(0)).map_err(failed("read"))?;
        Ok(Self { reader: SnapshotReader::begin(cluster), ..first })
    }

    /// The next objects, one or more; none at the end.
    ///
    /// # Errors
    /// [`KeptSnapshotError`].
    pub(super) fn next(mut self) -> Result<(Self, Vec<RegistryEntry>), KeptSnapshotError> {
        loop {
            let parts = self.read()?;
            let is_over = parts.is_empty();
            let entry = |part| match part {
                SnapshotPart::Entry(entry) => Some(entry),
                SnapshotPart::Head(_) => None,
            };
            let entries: Vec<_> = parts.into_iter().filter_map(entry).collect();
            if is_over || !entries.is_empty() {
                return Ok((self, entries));
            }
        }
    }

    /// Parts of the next pieces, one or more; none at the end.
    fn read(&mut self) -> Result<Vec<SnapshotPart>, KeptSnapshotError> {
        let mut parts = Vec::new();
        while parts.is_empty() {
            match self.file.read(&mut self.piece).map_err(failed("read"))? {
                0 => break,
                read => self.reader.take(&self.piece[..read], &mut parts)?,
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use ::snapshot::{KubernetesRelease, MOST_ENTRY_BYTES, SnapshotWriter};

    use super::*;

    const CLUSTER: ClusterId = ClusterId([7; 16]);

    fn snapshot(objects: u8) -> (Vec<u8>, SnapshotSummary) {
        let head = SnapshotHead { cluster: CLUSTER, release: KubernetesRelease(1, 36, 3), revision: 7 };
        let mut bytes = Vec::new();
        let mut writer = SnapshotWriter::begin(&head, &mut bytes);
        let value = vec![7; MOST_ENTRY_BYTES / 2];
        for n in 0..objects {
            writer.add(format!("/registry/{n:03}").as_bytes(), &value, &mut bytes).expect("in order");
        }
        let summary = writer.finish(&mut bytes);
        (bytes, summary)
    }

    fn take(data: &Path, bytes: &[u8]) -> Result<SnapshotSummary, KeptSnapshotError> {
        let new = NewSnapshot::begin_in(data, CLUSTER, 1 << 30)?;
        bytes.chunks(32 << 10).try_fold(new, NewSnapshot::take)?.keep()
    }

    fn names(data: &Path) -> Vec<String> {
        let names = fs::read_dir(data).expect("listed").map(|entry| entry.expect("listed").file_name());
        names.map(|name| name.into_string().expect("text")).collect()
    }

    /// Proves: Q4
    #[test]
    fn what_is_taken_is_private_and_read_as_often_as_asked() {
        let data = tempfile::tempdir().expect("a folder");
        let (bytes, summary) = snapshot(3);
        assert_eq!(take(data.path(), &bytes).expect("our own"), summary);
        assert_eq!(names(data.path()), [name(summary.hash)]);
        let mode = fs::metadata(data.path().join(name(summary.hash))).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for _ in 0..2 {
            let mut kept = KeptSnapshot::open_in(data.path(), CLUSTER, summary.hash).expect("our own");
            let mut keys = Vec::new();
            loop {
                let (next, entries) = kept.next().expect("our own");
                kept = next;
                if entries.is_empty() {
                    break;
                }
                keys.extend(entries.into_iter().map(|entry| entry.key));
            }
            assert_eq!(keys, [0, 1, 2].map(|n| format!("/registry/{n:03}").into_bytes()));
        }
        let (other, _) = snapshot(1);
        take(data.path(), &other).expect("our own");
        fs::write(data.path().join("etcd-users"), "").expect("written");
        remove_from(data.path(), Some(summary.hash)).expect("removed");
        let mut left = names(data.path());
        left.sort_unstable();
        assert_eq!(left, ["etcd-users".to_owned(), name(summary.hash)]);
        remove_from(data.path(), None).expect("removed");
        remove_from(data.path(), None).expect("nothing is left to do");
        assert_eq!(names(data.path()), ["etcd-users"]);
    }

    /// Proves: Q4
    #[test]
    fn what_is_not_whole_leaves_nothing_and_what_was_there() {
        let data = tempfile::tempdir().expect("a folder");
        let (bytes, _) = snapshot(1);
        let mut flipped = bytes.clone();
        *flipped.last_mut().expect("bytes") ^= 1;
        let refused = |bytes: &[u8]| take(data.path(), bytes).expect_err("it is not whole");
        let cut = refused(&bytes[..bytes.len() - 1]);
        assert!(matches!(cut, KeptSnapshotError::Snapshot(SnapshotError::Cut)), "{cut}");
        assert!(matches!(refused(&flipped), KeptSnapshotError::Snapshot(SnapshotError::Hash)));
        assert_eq!(names(data.path()), [""; 0]);
        fs::write(data.path().join(NEW), "of an earlier boot").expect("written");
        let summary = take(data.path(), &bytes).expect("our own");
        refused(&flipped);
        assert_eq!(names(data.path()), [name(summary.hash)], "another one that is not whole changes nothing");
        assert!(KeptSnapshot::open_in(data.path(), CLUSTER, summary.hash).is_ok());
    }

    /// Proves: Q4
    #[test]
    fn a_file_that_is_gone_changed_or_another_is_told_apart() {
        let data = tempfile::tempdir().expect("a folder");
        let open = |hash| KeptSnapshot::open_in(data.path(), CLUSTER, hash).map(|_| ());
        assert!(matches!(open([7; 32]), Err(KeptSnapshotError::Gone)));
        let (bytes, summary) = snapshot(1);
        take(data.path(), &bytes).expect("our own");
        fs::copy(data.path().join(name(summary.hash)), data.path().join(name([7; 32]))).expect("copied");
        assert!(matches!(open([7; 32]), Err(KeptSnapshotError::Other)));
        fs::write(data.path().join(name(summary.hash)), &bytes[..99]).expect("written");
        assert!(matches!(open(summary.hash), Err(KeptSnapshotError::Snapshot(SnapshotError::Cut))));
    }

    /// Proves: Q1
    #[test]
    fn a_snapshot_that_fills_the_disk_is_not_taken() {
        let data = tempfile::tempdir().expect("a folder");
        let (bytes, _) = snapshot(1);
        let new = NewSnapshot::begin_in(data.path(), CLUSTER, 99).expect("begun");
        assert!(matches!(new.take(&bytes[..100]), Err(KeptSnapshotError::Full)));
        assert_eq!(names(data.path()), [""; 0]);
    }
}
