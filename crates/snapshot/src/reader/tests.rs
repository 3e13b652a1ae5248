//! Files as they are written, cut anywhere and changed anywhere.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::{MOST_ENTRY_BYTES, SnapshotWriter};

const CLUSTER: ClusterId = ClusterId([7; 16]);
const HEAD: SnapshotHead =
    SnapshotHead { cluster: CLUSTER, release: KubernetesRelease(1, 36, 3), revision: 0x0102_0304 };

fn entry(key: &str, value: &[u8]) -> RegistryEntry {
    RegistryEntry { key: key.into(), value: value.to_vec() }
}

/// A file of these objects, and what it says of itself.
fn written(entries: &[RegistryEntry]) -> (Vec<u8>, SnapshotSummary) {
    let mut file = Vec::new();
    let mut writer = SnapshotWriter::begin(&HEAD, &mut file);
    for RegistryEntry { key, value } in entries {
        writer.add(key, value, &mut file).expect("in order, and Kubernetes'");
    }
    let summary = writer.finish(&mut file);
    (file, summary)
}

/// All that is read of a file in pieces of `size`.
fn read(file: &[u8], size: usize) -> Result<(Vec<SnapshotPart>, SnapshotSummary), SnapshotError> {
    let (mut reader, mut parts) = (SnapshotReader::begin(CLUSTER), Vec::new());
    for piece in file.chunks(size) {
        reader.take(piece, &mut parts)?;
    }
    Ok((parts, reader.finish()?))
}

fn two() -> Vec<RegistryEntry> {
    vec![entry("/registry/namespaces/web", b"k8s\0web"), entry("/registry/pods/web/a", b"")]
}

/// A file whose entries are put there unjudged.
fn forged(entries: &[(&str, &[u8])], count: u64) -> Vec<u8> {
    let mut file = written(&[]).0;
    file.truncate(HEAD_BYTES);
    for (key, value) in entries {
        file.extend(
            [key.len(), value.len()].into_iter().flat_map(|it| u32::try_from(it).expect("short").to_le_bytes()),
        );
        file.extend([key.as_bytes(), value].concat());
    }
    file.extend([0; LENGTH_BYTES]);
    file.extend(count.to_le_bytes());
    let hash = aws_lc_rs::digest::digest(&SHA256, &file);
    file.extend(hash.as_ref());
    file
}

/// Proves: Q4
#[test]
fn a_file_is_these_bytes() {
    let (file, summary) = written(&two());
    let hex: String =
        file.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/snapshot.hex");
    if std::env::var_os("CAIRN_BLESS").is_some() {
        std::fs::write(&golden, &hex).expect("written");
    }
    assert_eq!(std::fs::read_to_string(golden).expect("it is there"), hex);
    assert_eq!((summary.entries, summary.bytes), (2, u64::try_from(file.len()).expect("short")));
    assert_eq!(file[file.len() - HASH_BYTES..], summary.hash);
    assert_eq!(forged(&[("/registry/namespaces/web", b"k8s\0web"), ("/registry/pods/web/a", b"")], 2), file);
}

/// Each under its own name, and none of them by chance: the hash is right in all.
///
/// Proves: Q4
#[test]
fn each_thing_that_is_wrong_has_its_name() {
    let refused = |file: &[u8]| read(file, 7).map(|_| ()).expect_err("it is wrong");
    let (file, _) = written(&two());
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        refused(&file)
    };
    assert_eq!(with(0, b"CAIRNCUB"), SnapshotError::Foreign);
    assert_eq!(with(8, &[2, 0, 0, 0]), SnapshotError::Version(2));
    assert_eq!(with(12, &[8; 16]), SnapshotError::OtherCluster(ClusterId([8; 16])));
    assert_eq!(with(40, &[9]), SnapshotError::Hash, "another revision");
    assert_eq!(with(HEAD_BYTES, &[0xff; 8]), EntryError::Large(0x1_ffff_fffe).into());
    assert_eq!(refused(&[&*file, b"x"].concat()), SnapshotError::Trailing);
    assert_eq!(refused(&file[..file.len() - 1]), SnapshotError::Cut);
    assert_eq!(refused(&[]), SnapshotError::Cut);
    assert_eq!(refused(&forged(&[("/registry/a", b"1")], 2)), SnapshotError::Count { said: 2, found: 1 });
    let of = |keys: &[&str]| {
        let entries: Vec<_> = keys.iter().map(|key| (*key, &b"1"[..])).collect();
        let refused = refused(&forged(&entries, u64::try_from(keys.len()).expect("few")));
        let SnapshotError::Entry(error) = refused else { panic!("{refused:?}") };
        error
    };
    let (b, events) = ("/registry/b".to_owned(), "/registry/events/a".to_owned());
    assert_eq!(of(&["/registry/b", "/registry/b"]), EntryError::OutOfOrder(b.clone()));
    assert_eq!(of(&["/registry/c", "/registry/b"]), EntryError::OutOfOrder(b));
    assert_eq!(of(&["/cairn/v1/cluster"]), EntryError::Outside("/cairn/v1/cluster".to_owned()));
    assert_eq!(of(&["/registry/events/a"]), EntryError::NotKept(events));
    assert_eq!(of(&["", "/registry/a"]), EntryError::Outside(String::new()));
}

/// Proves: Q1
#[test]
fn a_reader_holds_no_more_than_an_entry() {
    let key = "/registry/a";
    let value = vec![7; MOST_ENTRY_BYTES - key.len()];
    let (file, summary) = written(&[entry(key, &value)]);
    let (mut reader, mut parts) = (SnapshotReader::begin(CLUSTER), Vec::new());
    for piece in file.chunks(32 << 10) {
        reader.take(piece, &mut parts).expect("our own");
        assert!(reader.rest.len() < MOST_ENTRY_BYTES && reader.rest.capacity() <= 2 * MOST_ENTRY_BYTES);
    }
    assert_eq!((reader.rest.capacity(), reader.entries()), (0, 1));
    assert_eq!((parts.len(), reader.finish()), (2, Ok(summary)));
}

fn objects() -> impl Strategy<Value = Vec<RegistryEntry>> {
    let one = ("[a-d]{1,3}(/[a-d]{1,2})?", proptest::collection::vec(any::<u8>(), 0..20));
    proptest::collection::btree_map(one.0, one.1, 0..8).prop_map(|objects| {
        let all = objects.into_iter().map(|(key, value)| entry(&format!("{}{key}", crate::REGISTRY), &value));
        all.collect()
    })
}

proptest! {
    /// Proves: Q4
    #[test]
    fn what_is_written_is_read_in_pieces_of_any_size(objects in objects(), size in 1_usize..99) {
        let (file, summary) = written(&objects);
        let (parts, found) = read(&file, size).expect("our own");
        prop_assert_eq!(found, summary);
        let expected = [SnapshotPart::Head(HEAD)].into_iter().chain(objects.into_iter().map(SnapshotPart::Entry));
        prop_assert_eq!(parts, expected.collect::<Vec<_>>());
    }

    /// Proves: Q4
    #[test]
    fn no_part_or_changed_bit_of_a_file_is_whole(objects in objects(), at in any::<prop::sample::Index>(), bit in 0..8, size in 1_usize..99) {
        let (mut file, _) = written(&objects);
        let at = at.index(file.len());
        prop_assert_eq!(read(&file[..at], size).map(|_| ()), Err(SnapshotError::Cut));
        file[at] ^= 1_u8 << bit;
        prop_assert!(read(&file, size).is_err());
    }
}
