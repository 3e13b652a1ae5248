//! With whose certificates this machine's etcd takes no client: those of machines that were coordinators and are none. The list is
//! kept on DATA, so that the next start begins with what was known last, and shown to etcd below /run.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use model::MachineId;
use pki::{Authority, UnixTime};

use super::Records;
use crate::runtime::{clock, durable, tasks};
use crate::storage::DATA;

/// Name of the list on DATA, beside etcd's own folder.
pub(super) const REVOKED: &str = "etcd-revoked.crl";

/// Why there is no list, or why it is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The authority does not sign the list.
    #[error("sign the list of those whom etcd refuses")]
    Sign(#[from] pki::IssueError),
    /// The list that was kept last cannot be read.
    #[error("read `{DATA}/{REVOKED}`")]
    Read(#[source] io::Error),
    /// The list cannot be written, on DATA or where etcd reads it.
    #[error("write the list of those whom etcd refuses")]
    Write(#[source] io::Error),
}

/// List that etcd begins with: the one that was kept last, or an empty one.
///
/// # Errors
/// [`Error`] names the step.
pub(crate) fn list(authority: &Authority) -> Result<Vec<u8>, Error> {
    kept(Path::new(DATA), authority)
}

fn kept(data: &Path, authority: &Authority) -> Result<Vec<u8>, Error> {
    match fs::read(data.join(REVOKED)) {
        Ok(list) => Ok(list),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(signed(authority, &BTreeSet::new())?),
        Err(error) => Err(Error::Read(error)),
    }
}

impl Records {
    /// Has etcd refuse the certificates of these machines, now and after the next start.
    ///
    /// # Errors
    /// [`Error`] names the step.
    pub(crate) async fn revoke(&self, machines: &BTreeSet<MachineId>) -> Result<(), Error> {
        let list = signed(&self.authorities.etcd, machines)?;
        let written = move || write(Path::new(DATA), Path::new(services::ETCD_REVOKED), &list);
        tasks::blocking(written).await.map_err(Error::Write)?;
        if !machines.is_empty() {
            tracing::info!(?machines, "etcd refuses the certificates of these machines");
        }
        Ok(())
    }
}

fn signed(authority: &Authority, machines: &BTreeSet<MachineId>) -> Result<Vec<u8>, pki::IssueError> {
    authority.revoke(machines, UnixTime::since_unix_epoch(clock::unix()))
}

/// On DATA first: what etcd has once refused it refuses after the next start, too.
fn write(data: &Path, shown: &Path, list: &[u8]) -> io::Result<()> {
    durable::replace(data, REVOKED, list)?;
    let (Some(folder), Some(name)) = (shown.parent(), shown.file_name().and_then(|name| name.to_str())) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    durable::replace(folder, name, list)
}

#[cfg(test)]
mod tests {
    use pki::AuthorityKind;

    use super::*;

    /// Proves: S5
    #[test]
    fn what_was_listed_last_is_what_the_next_start_begins_with() {
        let place = tempfile::tempdir().expect("a place for files");
        let shown = place.path().join("shown.crl");
        let now = UnixTime::since_unix_epoch(clock::unix());
        let authority = Authority::create(AuthorityKind::Etcd, now).expect("a CA");
        let first = kept(place.path(), &authority).expect("an empty list");
        let list = signed(&authority, &[MachineId([7; 16])].into()).expect("signs");
        assert!(list.len() > first.len());
        write(place.path(), &shown, &list).expect("written");
        assert_eq!(fs::read(&shown).expect("etcd reads it"), list);
        assert_eq!(kept(place.path(), &authority).expect("kept"), list);
    }
}
