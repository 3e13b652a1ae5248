//! Peers that this machine knows, on its data partition: written when it joins, and when it hears more, at most once in
//! 10 s, so that it reaches somebody at its next boot. They must never be believed against what a coordinator says.

use std::io;
use std::path::Path;

use cluster::peers::{MOST_KNOWN_BYTES, PeerBook};
use cluster::record::BadRecord;
use keys::endpoint::MOST_ENDPOINTS;

use crate::runtime::durable;

/// Name of the file in `/data/cairn`.
pub(crate) const FILE: &str = "peers";

/// Why what was known is not known any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The file cannot be read.
    #[error("read the file of peers")]
    File(#[source] io::Error),
    /// The file holds no such record.
    #[error("understand the file of peers")]
    Record(#[from] BadRecord),
}

/// Peers that were known last; none where none were ever kept.
///
/// # Errors
/// [`ReadError`] when it is there and cannot be used.
pub(crate) fn read(root: &Path) -> Result<Option<PeerBook>, ReadError> {
    let bytes = durable::read(&root.join(FILE), MOST_KNOWN_BYTES).map_err(ReadError::File)?;
    Ok(bytes.map(|bytes| PeerBook::decode(&bytes)).transpose()?)
}

/// Puts it in the place of what was there, unless the next boot would not read it.
///
/// # Errors
/// What the file system says; what was there is there still.
pub(crate) fn write(root: &Path, known: &PeerBook) -> io::Result<()> {
    let kept = match known.encode() {
        Ok(None) => return Ok(()),
        Ok(Some(kept)) => kept,
        Err(error) => {
            tracing::warn!(%error, "the file of peers is left as it was");
            return Ok(());
        }
    };
    if kept.endpoints < MOST_ENDPOINTS {
        tracing::warn!(most = kept.endpoints, "the file of peers is full: it has not all endpoints of each");
    }
    durable::replace(root, FILE, &kept.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cluster::peer::Peer;
    use cluster::state::StateVersion;
    use keys::endpoint::Endpoint;
    use model::{MachineId, VpnPubKey};

    use super::*;

    /// Proves: M2
    #[test]
    fn what_was_known_last_is_known_at_the_next_boot() {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path();
        assert!(read(root).expect("reads").is_none());
        write(root, &PeerBook::default()).expect("nothing is to be kept");
        assert!(read(root).expect("reads").is_none());
        for revision in [7, 8] {
            let known = PeerBook::of_answer(StateVersion { recoveries: 0, revision }, vec![]);
            write(root, &known).expect("writes");
            assert_eq!(read(root).expect("reads"), Some(known));
        }
        // A large cluster, each of whose machines names as many places as it may.
        let places =
            (1..=MOST_ENDPOINTS).map(|n| Endpoint::read(&format!("198.51.100.{n}:65535")).expect("an endpoint"));
        let places: Vec<_> = places.collect();
        let peer = |n: u16| {
            let mut id = [7; 16];
            id[..2].copy_from_slice(&n.to_be_bytes());
            let (vpn_key, vpn_ip) = (VpnPubKey([9; 32]), [10, 118, id[0], id[1]].into());
            Peer { machine: MachineId(id), vpn_key, vpn_ip, pods: None, endpoints: places.clone() }
        };
        let known = PeerBook::of_answer(StateVersion { recoveries: 0, revision: 9 }, (0..2000).map(peer).collect());
        write(root, &known).expect("writes");
        assert_eq!(read(root).expect("reads"), Some(known));
        fs::write(root.join(FILE), [0; 3]).expect("writable");
        assert!(matches!(read(root), Err(ReadError::Record(_))));
    }
}
