//! Snapshots of Kubernetes' objects: files of owners.

use model::ClusterId;
use snapshot::{SnapshotError, SnapshotPart, SnapshotReader, SnapshotWriter};

use crate::ParseVerdict;

/// A snapshot of Kubernetes' objects, whole and in small pieces: what is read is written to the same bytes.
pub fn snapshot(bytes: &[u8]) -> ParseVerdict {
    let read = |size: usize| {
        let (mut reader, mut parts) = (SnapshotReader::begin(ClusterId([7; 16])), Vec::new());
        for piece in bytes.chunks(size) {
            reader.take(piece, &mut parts)?;
        }
        Ok::<_, SnapshotError>((parts, reader.finish()?))
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(whole, read(5), "a file reads otherwise in pieces");
    let Ok((parts, summary)) = whole else { return ParseVerdict::Refused };
    let (mut parts, mut again) = (parts.into_iter(), Vec::new());
    let Some(SnapshotPart::Head(head)) = parts.next() else { panic!("a snapshot begins with its head") };
    let mut writer = SnapshotWriter::begin(&head, &mut again);
    for part in parts {
        let SnapshotPart::Entry(entry) = part else { panic!("a snapshot has one head") };
        writer.add(&entry.key, &entry.value, &mut again).expect("what was read is written");
    }
    assert_eq!((writer.finish(&mut again), &*again), (summary, bytes), "a snapshot says the same again");
    ParseVerdict::Accepted
}
