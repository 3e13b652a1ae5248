//! Reads all of the cluster's records at once, from the quorum or from this machine's etcd alone. Keeps nothing of them.

use cluster::state::BadState;
use cluster::view::View;
use etcd::wire::etcdserverpb::RangeRequest;
use etcd::{Progress, RecordsReader};

use super::link::{Link, NoAnswer};

/// Why the records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// etcd does not tell them.
    #[error("read the cluster's records")]
    Etcd(#[from] NoAnswer),
    /// A record says what this version does not understand: a newer one wrote it.
    #[error("understand the cluster's records")]
    State(#[from] BadState),
}

/// Which records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Records of now, which takes a quorum of etcd's voters.
    Now,
    /// Copy that this machine's etcd has, however old.
    ThisMachine,
}

/// Reads all records, page by page.
///
/// # Errors
/// [`Unreadable`].
pub(super) async fn all(link: &Link, of: Of) -> Result<View, Unreadable> {
    let mut reading = RecordsReader::begin();
    loop {
        let asked = RangeRequest { serializable: of == Of::ThisMachine, ..reading.page() };
        let page = link.range(asked).await?;
        match reading.take(page).map_err(NoAnswer::from)? {
            Progress::More => {}
            Progress::Done => return Ok(reading.view()?),
        }
    }
}
