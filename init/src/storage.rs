//! The data partition: its header, the block layers over it, the file system on top. Formats and opens when told,
//! decides nothing, and keeps no key longer than one call.
//!
//! ```text
//!   header copy 1 │ header copy 2 │ from +1 MiB: [dm-integrity ▸] dm-crypt ▸ XFS     (insecure: dm-linear ▸ XFS)
//!
//!   Mapped::new ──► Mapped ──mount──► Mounted ──close──► unmounted, layers removed from the top
//! ```

mod filesystem;
mod layers;
mod table;
mod tagger;
mod volumes;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use enrol::step::HeaderCopy;
use keys::header::{Copies, Copy, HEADER_BYTES, HEADER_OFFSETS};
use model::Chain;
use services::names;

use crate::facts::Now;
use crate::runtime::child::Children;
use crate::runtime::services::{Services, Snapshot};
use crate::runtime::tasks;
use crate::shown::board::Board;

pub(crate) use self::volumes::{VolumeError, Volumes};
pub(crate) use filesystem::{MakeError, MountError};
pub(crate) use layers::{MapError, Mapped, StatusError};
use tagger::Way;

/// Where the file system is mounted.
pub(crate) const DATA: &str = "/data";

/// Why the data header cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The partition does not open.
    #[error("open `{0}`")]
    Open(PathBuf, #[source] io::Error),
    /// A copy cannot be written, or not be made durable.
    #[error("write the data header")]
    Write(#[source] io::Error),
}

/// Reads both places of the data header.
///
/// # Errors
/// [`HeaderError::Open`]. A copy that cannot be read is refused, not blank; the other one is enough.
pub(crate) fn read_header(data: &Path) -> Result<Copies, HeaderError> {
    let device = File::open(data).map_err(|error| HeaderError::Open(data.to_owned(), error))?;
    let mut copies = [[0; HEADER_BYTES]; 2];
    let read = std::array::from_fn(|at| match device.read_exact_at(&mut copies[at], HEADER_OFFSETS[at]) {
        Ok(()) => Copy::read(&copies[at]),
        Err(error) => {
            tracing::warn!(copy = at, %error, "a copy of the data header cannot be read");
            Copy::Refused(keys::header::HeaderError::Unreadable)
        }
    });
    Ok(Copies(read))
}

/// Writes one copy of the data header and flushes the disk's cache.
///
/// # Errors
/// [`HeaderError`]; the other copy is untouched.
pub(crate) fn write_header(data: &Path, copy: HeaderCopy, bytes: &[u8; HEADER_BYTES]) -> Result<(), HeaderError> {
    let offset = match copy {
        HeaderCopy::First => HEADER_OFFSETS[0],
        HeaderCopy::Second => HEADER_OFFSETS[1],
    };
    let device = File::options().write(true).open(data).map_err(|error| HeaderError::Open(data.to_owned(), error))?;
    device.write_all_at(bytes, offset).and_then(|()| device.sync_all()).map_err(HeaderError::Write)
}

/// The mounted data partition; clones share it. Closing it is a step of shutdown; dropping it leaves it mounted.
#[derive(Debug, Clone)]
pub(crate) struct Mounted(Arc<Mapped>);

/// Why the data partition could not be closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloseError {
    /// Something still uses it.
    #[error("unmount `{DATA}`")]
    Unmount(#[source] io::Error),
    /// A block layer stays.
    #[error("remove a block layer")]
    Layer(#[source] sys::device_mapper::Error),
}

impl Mapped {
    /// Makes the file system. Whatever was there is gone.
    ///
    /// # Errors
    /// [`MakeError`] names the step.
    pub(crate) async fn make_filesystem(&self, children: &Children) -> Result<(), MakeError> {
        self.make_way(Way::Behind);
        filesystem::make(self.top(), children).await
    }

    /// Mounts the file system.
    ///
    /// # Errors
    /// [`MountError`], with the layers to be closed by the caller.
    pub(crate) fn mount(self) -> Result<Mounted, (Self, MountError)> {
        match filesystem::mount(&self.top()) {
            Ok(()) => Ok(Mounted(Arc::new(self))),
            Err(error) => Err((self, error)),
        }
    }

    /// Has tagging make way or not. Where nothing is tagged, no thread is looked for.
    fn make_way(&self, way: Way) {
        let put = match self {
            Self::CryptOverIntegrity { .. } => tagger::put(way),
            Self::Linear(_) | Self::Crypt(_) => Ok(()),
        };
        if let Err(error) = put {
            // Slower, and no harm: it is tried again at the next look.
            tracing::warn!(%error, "the priority of tagging cannot be set");
        }
    }
}

impl Mounted {
    /// How the data is protected right now.
    ///
    /// # Errors
    /// [`StatusError`] when the kernel does not say.
    pub(crate) fn level(&self) -> Result<api::LevelInForce, StatusError> {
        self.0.level()
    }
}

/// Unmounts, then removes the layers from the top. Whoever used it has been stopped; `volumes` end here.
///
/// # Errors
/// [`CloseError`]; what is above the layer it names is gone.
pub(crate) async fn close_with(volumes: &Volumes, data: Mounted) -> Result<(), CloseError> {
    volumes.end().await;
    tasks::blocking(move || close(&data)).await
}

/// Unmounts, then removes the layers from the top. Blocks. Whoever used it has been stopped.
///
/// # Errors
/// [`CloseError`]; what is above the layer it names is gone.
pub(crate) fn close(data: &Mounted) -> Result<(), CloseError> {
    filesystem::unmount().map_err(CloseError::Unmount)?;
    data.0.close().map_err(CloseError::Layer)
}

/// The block layers that the kernel has, by their names, as it lists them (`/sys/block/dm-*/dm/name`). Behind
/// [`close`] the root's is left.
///
/// # Errors
/// When the kernel does not say.
pub(crate) fn layers() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b"dm-") {
            names.push(std::fs::read_to_string(entry.path().join("dm/name"))?.trim_end().to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Often enough for a person who watches a percentage.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the level in force a fact until every block has its tag, and tagging out of the way of what comes up meanwhile. It
/// ends at once at other levels.
pub(crate) async fn report(board: Board, data: Mounted, services: Services) {
    let facts = board.facts();
    let (mut changes, mut units) = (facts.watch(), services.watch());
    let ready = |now: &Now| now.has_held(api::ConditionName::NodeReady);
    loop {
        let level = match data.level() {
            Ok(level) => level,
            Err(error) => {
                // The layers are gone: the machine shuts down.
                tracing::debug!(error = %Chain(&error), "tagging can no longer be followed");
                return;
            }
        };
        let tagging = matches!(level, api::LevelInForce::Tagging { .. });
        let awaited = node_awaited(&units.borrow(), facts.read(ready));
        let way = tagger::way(tagging, awaited);
        data.0.make_way(way);
        let meanwhile = match way {
            Way::Behind => "tagging makes way until the node is ready",
            Way::Equal => "",
        };
        facts.update(|now| now.level = Some(level));
        board.meanwhile(meanwhile);
        if !tagging {
            return;
        }
        // Or sooner, when what it makes way for is there, or comes; not where the services have ended.
        let changed = async {
            if awaited {
                changes.wait_for(ready).await.is_ok()
            } else {
                units.wait_for(|units| node_awaited(units, facts.read(ready))).await.is_ok()
            }
        };
        match tokio::time::timeout(LOOK, changed).await {
            Ok(true) | Err(_) => {}
            Ok(false) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Whether people wait for a node: kubelet is to run, and the node was not Ready in this boot. A machine with Kubernetes roles that
/// has no kubelet will never have one.
fn node_awaited(units: &[Snapshot], has_been_ready: bool) -> bool {
    !has_been_ready && units.iter().any(|unit| unit.status.name == *names::KUBELET)
}

#[cfg(test)]
mod tests {
    use keys::header::{Copy, Header, HeaderState};
    use model::{DiskUuid, Uuid};

    use super::*;
    use crate::runtime::services::{Ends, Run, Unit};

    /// A node of the cluster has Kubernetes roles, but nobody that would make it Ready.
    #[tokio::test]
    async fn tagging_makes_way_only_while_kubelet_is_wanted() {
        let tree = Services::start(&Children::default(), Vec::new()).expect("a tree");
        let unit = |name: &str| Unit::task(name, Ends::Never, Run::steady(std::future::pending));
        let mut awaited = Vec::new();
        for wanted in [vec![unit("etcd")], vec![unit("etcd"), unit("kube.kubelet")], Vec::new()] {
            tree.want(wanted).await.expect("a table");
            awaited.push([false, true].map(|has_been_ready| node_awaited(&tree.snapshots(), has_been_ready)));
        }
        assert_eq!(awaited, [[false, false], [true, false], [false, false]]);
    }

    #[test]
    fn each_copy_of_the_header_is_written_to_its_own_place() {
        let file = tempfile::NamedTempFile::new().expect("a place for a disk");
        file.as_file().set_len(2 << 20).expect("sparse");
        assert!(read_header(file.path()).expect("reads").is_blank());
        let header =
            Header { state: HeaderState::Provisional, generation: 1, disk: DiskUuid(Uuid([7; 16])), lock: None };
        write_header(file.path(), HeaderCopy::Second, &header.to_bytes()).expect("writes");
        let read = read_header(file.path()).expect("reads");
        assert_eq!(read, Copies([Copy::Blank, Copy::Valid(header.clone())]));
        write_header(file.path(), HeaderCopy::First, &header.to_bytes()).expect("writes");
        assert_eq!(read_header(file.path()).expect("reads").0[0], Copy::Valid(header));
    }

    /// Proves: D14
    #[test]
    fn a_partition_that_cannot_be_read_is_not_blank() {
        let file = tempfile::NamedTempFile::new().expect("a place for a disk");
        file.as_file().set_len(HEADER_BYTES as u64).expect("sparse");
        let Copies([first, second]) = read_header(file.path()).expect("what can be read");
        assert_eq!((first, second), (Copy::Blank, Copy::Refused(keys::header::HeaderError::Unreadable)));
        assert!(matches!(read_header(Path::new("/nonexistent")), Err(HeaderError::Open(..))));
    }
}
