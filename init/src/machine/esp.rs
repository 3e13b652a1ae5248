//! The ESP: mounted read-only, read once into memory, made writable for one overwrite at a time.
//!
//! ```text
//!   mount (ro) ─► read ─► … ─► remount rw ─► overwrite in place, fsync ─► remount ro
//! ```
//! It never creates or grows a file: the slots were allocated when the image was made, so a cut leaves the FAT as it was.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use enrol::config::{CONFIG_FW_CFG, CONFIG_PATH, MOST_CONFIG_BYTES};
use enrol::found::{Files, Slots};
use keys::pair::{self, SLOT_BYTES};
use rustix::mount::{MountFlags, mount, mount_remount};
use zeroize::Zeroizing;

use crate::runtime::lock;

/// Where it is mounted.
pub(crate) const PLACE: &str = "/run/cairn/esp";
/// Where the kernel shows QEMU's fw_cfg items (`drivers/firmware/qemu_fw_cfg.c`).
const FW_CFG: &str = "/sys/firmware/qemu_fw_cfg/by_name";
/// Nothing on it is run, and nobody but PID 1 reads it.
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
const OPTIONS: &std::ffi::CStr = c"umask=0077";

/// Which step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The mount point could not be made.
    #[error("make the mount point `{PLACE}`")]
    Place(#[source] io::Error),
    /// It does not mount.
    #[error("mount the ESP `{0}`")]
    Mount(PathBuf, #[source] io::Error),
    /// A file that is there could not be read.
    #[error("read `{0}`")]
    Read(PathBuf, #[source] io::Error),
    /// It could not be made writable.
    #[error("make the ESP writable")]
    Writable(#[source] io::Error),
    /// A file could not be opened for writing.
    #[error("open `{0}` on the ESP")]
    Open(&'static str, #[source] io::Error),
    /// A slot has another size than it was allocated with.
    #[error("`{0}` on the ESP does not have its 64 KiB")]
    Size(&'static str),
    /// An overwrite or its sync failed: the file is torn, or not durable.
    #[error("overwrite `{0}` on the ESP")]
    Overwrite(&'static str, #[source] io::Error),
    /// The overwritten config could not be removed.
    #[error("remove `{0}` from the ESP")]
    Remove(&'static str, #[source] io::Error),
    /// It could not be made read-only again.
    #[error("make the ESP read-only again")]
    ReadOnly(#[source] io::Error),
}

/// The mounted ESP.
#[derive(Debug, Clone)]
pub(crate) struct Esp {
    place: &'static Path,
    /// It is writable for one at a time.
    writes: Arc<Mutex<()>>,
}

impl Esp {
    /// Mounts the partition read-only.
    ///
    /// # Errors
    /// [`Error::Place`] or [`Error::Mount`].
    pub(crate) fn mount(device: &Path) -> Result<Self, Error> {
        fs::create_dir_all(PLACE).map_err(Error::Place)?;
        mount(device, PLACE, "vfat", FLAGS | MountFlags::RDONLY, Some(OPTIONS))
            .map_err(|error| Error::Mount(device.to_owned(), error.into()))?;
        Ok(Self { place: Path::new(PLACE), writes: Arc::default() })
    }

    /// Reads everything a boot decides by.
    ///
    /// # Errors
    /// [`Error::Read`]: what is there and cannot be read is not taken for absent.
    pub(crate) fn read(&self) -> Result<Files, Error> {
        Ok(Files {
            seal: self.slots(pair::File::Seal)?,
            share: self.slots(pair::File::Share)?,
            directory: self.slots(pair::File::Directory)?,
            record: self.slots(pair::File::Record)?,
            config: bounded(&self.place.join(CONFIG_PATH), MOST_CONFIG_BYTES)?,
            fw_cfg: bounded(&Path::new(FW_CFG).join(CONFIG_FW_CFG).join("raw"), MOST_CONFIG_BYTES)?,
        })
    }

    /// Reads both slots of a pair.
    ///
    /// # Errors
    /// [`Error::Read`], as above.
    pub(crate) fn slots(&self, file: pair::File) -> Result<Slots, Error> {
        let [first, second] = file.paths();
        let slot = |path| Ok(bounded(&self.place.join(path), SLOT_BYTES)?.unwrap_or_default());
        Ok(Slots([slot(first)?, slot(second)?]))
    }

    /// Overwrites one slot of a pair, durably.
    ///
    /// # Errors
    /// [`Error`] names the step; the pair's other slot is untouched.
    pub(crate) fn write_slot(&self, file: pair::File, slot: usize, bytes: &[u8]) -> Result<(), Error> {
        let path = file.paths()[slot];
        self.writable(|| {
            let mut file = open(&self.place.join(path)).map_err(|error| Error::Open(path, error))?;
            let size = file.metadata().map_err(|error| Error::Open(path, error))?.len();
            if size != SLOT_BYTES as u64 || bytes.len() != SLOT_BYTES {
                return Err(Error::Size(path));
            }
            file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| Error::Overwrite(path, error))
        })
    }

    /// Overwrites the enrolment config with zeros and removes it; each durable before the next. Nothing to do when
    /// there is none.
    ///
    /// # Errors
    /// [`Error`] names the step; a cut or failure in between leaves a config that the next boot removes.
    pub(crate) fn remove_config(&self) -> Result<(), Error> {
        let path = self.place.join(CONFIG_PATH);
        if !path.exists() {
            return Ok(());
        }
        self.writable(|| {
            let mut file = open(&path).map_err(|error| Error::Open(CONFIG_PATH, error))?;
            let size = file.metadata().map_err(|error| Error::Open(CONFIG_PATH, error))?.len();
            io::copy(&mut io::repeat(0).take(size), &mut file)
                .and_then(|_| file.sync_all())
                .map_err(|error| Error::Overwrite(CONFIG_PATH, error))?;
            let gone = fs::remove_file(&path).and_then(|()| Ok(rustix::fs::syncfs(&file)?));
            gone.map_err(|error| Error::Remove(CONFIG_PATH, error))
        })
    }

    /// Does `work` while the ESP is writable; it is read-only again afterwards, also when the work failed.
    fn writable(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let _one_at_a_time = lock::even_if_poisoned(&self.writes);
        mount_remount(self.place, FLAGS, OPTIONS).map_err(|error| Error::Writable(error.into()))?;
        let done = work();
        let again = mount_remount(self.place, FLAGS | MountFlags::RDONLY, OPTIONS);
        done?;
        again.map_err(|error| Error::ReadOnly(error.into()))
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path)
}

/// A file's first `most` bytes and one more if it has more, so that whoever reads it sees that it is too large.
fn bounded(path: &Path, most: usize) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let read = |error| Error::Read(path.to_owned(), error);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(read)?,
    };
    // Room for all of it at once: a buffer that grew would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(most + 32));
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(read)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_up_to_its_bound_and_no_further() {
        let directory = tempfile::tempdir().expect("a place for files");
        let path = directory.path().join("file");
        assert!(bounded(&path, 8).expect("absent is no error").is_none());
        for (written, read) in [(0, 0), (8, 8), (9, 9), (4096, 9)] {
            fs::write(&path, vec![7; written]).expect("writable");
            let bytes = bounded(&path, 8).expect("readable").expect("there");
            assert_eq!(bytes.len(), read, "{written} bytes");
        }
        assert!(matches!(bounded(directory.path(), 8), Err(Error::Read(..))), "unreadable is not absent");
    }
}
