//! Electorate of a coordinator: the other coordinators, as its own records named them last while etcd had a leader. Whoever says that this
//! machine is a node is counted by it. It lies beside etcd's data, and goes with that.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use cluster::members::MOST_COORDINATORS;
use model::MachineId;

use super::users::{ELECTORATE, Error};
use crate::runtime::{durable, tasks};
use crate::storage::DATA;

/// Length of an id in the file.
const ID_BYTES: usize = 16;

/// Electorate that was kept last; none on a machine whose own records never named one.
///
/// # Errors
/// [`Error::Unseen`] where it cannot be read, or makes no sense.
pub(crate) async fn read() -> Result<Option<BTreeSet<MachineId>>, Error> {
    tasks::blocking(|| read_from(Path::new(DATA))).await.map_err(|error| Error::Unseen(ELECTORATE, error))
}

/// Replaces the electorate on DATA durably.
///
/// # Errors
/// [`Error::Note`].
pub(crate) async fn keep(electorate: BTreeSet<MachineId>) -> Result<(), Error> {
    tasks::blocking(move || keep_in(Path::new(DATA), &electorate)).await.map_err(|error| Error::Note(ELECTORATE, error))
}

fn read_from(data: &Path) -> io::Result<Option<BTreeSet<MachineId>>> {
    let most = MOST_COORDINATORS * ID_BYTES;
    let Some(bytes) = durable::read(&data.join(ELECTORATE), most)? else { return Ok(None) };
    let (ids, []) = bytes.as_chunks::<ID_BYTES>() else { return Err(io::ErrorKind::InvalidData.into()) };
    if bytes.len() > most || !ids.is_sorted_by(|one, next| one < next) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(ids.iter().copied().map(MachineId).collect()))
}

fn keep_in(data: &Path, electorate: &BTreeSet<MachineId>) -> io::Result<()> {
    let bytes: Vec<u8> = electorate.iter().flat_map(|id| id.0).collect();
    durable::replace(data, ELECTORATE, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: S14, O1
    #[test]
    fn an_electorate_is_read_as_it_was_kept_or_not_at_all() {
        let data = tempfile::tempdir().expect("a place for files");
        assert_eq!(read_from(data.path()).expect("reads"), None);
        for ids in [&[][..], &[2], &[2, 3, 4, 5, 6, 7, 8]] {
            let electorate = ids.iter().map(|n| MachineId([*n; ID_BYTES])).collect();
            keep_in(data.path(), &electorate).expect("kept");
            assert_eq!(read_from(data.path()).expect("reads"), Some(electorate));
        }
        let file = data.path().join(ELECTORATE);
        for bytes in [vec![2; 15], vec![2; 32], [[3; 16], [2; 16]].concat(), vec![2; 17]] {
            durable::replace(data.path(), ELECTORATE, &bytes).expect("written");
            assert!(read_from(data.path()).is_err(), "{} bytes", bytes.len());
        }
        let broken = durable::faults::with(&file, rustix::io::Errno::ILSEQ, || read_from(data.path()));
        assert!(durable::is_damage(&broken.expect_err("it may name somebody")));
    }
}
