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
use enrol::files::Files;
use keys::two_slot::{self, SLOT_BYTES, Slots};
use rustix::mount::{MountFlags, mount, mount_remount};
use zeroize::Zeroizing;

use crate::runtime::{durable, lock};

/// Where it is mounted.
pub(crate) const PLACE: &str = "/run/cairn/esp";
/// Where the kernel shows QEMU's fw_cfg items (`drivers/firmware/qemu_fw_cfg.c`).
const FW_CFG: &str = "/sys/firmware/qemu_fw_cfg/by_name";
/// Options for a file system of which nothing is run, and that nobody but PID 1 reads.
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
const OPTIONS: &std::ffi::CStr = c"umask=0077";

/// Failed step with the ESP or the hypervisor's files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The mount point could not be made.
    #[error("make the mount point `{PLACE}`")]
    Place(#[source] io::Error),
    /// The partition does not mount.
    #[error("mount the ESP `{0}`")]
    Mount(PathBuf, #[source] io::Error),
    /// A file that the hypervisor passes could not be read.
    #[error("read `{0}`")]
    Read(PathBuf, #[source] io::Error),
    /// The ESP could not be made writable.
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
    /// The ESP could not be made read-only again.
    #[error("make the ESP read-only again")]
    ReadOnly(#[source] io::Error),
}

/// ESP, mounted read-only but while PID 1 writes.
#[derive(Debug, Clone)]
pub(crate) struct Esp {
    place: &'static Path,
    /// Lock under which the ESP is writable.
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
    /// [`Error::Read`]: what the hypervisor passes is there and cannot be read.
    pub(crate) fn read(&self) -> Result<Files, Error> {
        let fw_cfg = Path::new(FW_CFG).join(CONFIG_FW_CFG).join("raw");
        let fw_cfg = durable::read(&fw_cfg, MOST_CONFIG_BYTES).map_err(|error| Error::Read(fw_cfg, error))?;
        let mut unreadable = Vec::new();
        let mut slots = |file| self.readable_slots(file, &mut unreadable);
        let (seal, share) = (slots(two_slot::File::Seal), slots(two_slot::File::Share));
        let (directory, record) = (slots(two_slot::File::Directory), slots(two_slot::File::Record));
        let config = self.readable(CONFIG_PATH, MOST_CONFIG_BYTES, &mut unreadable);
        Ok(Files { seal, share, directory, record, config, fw_cfg, unreadable })
    }

    /// Reads both slots of a file; one that cannot be read is empty, as a torn one.
    pub(crate) fn slots(&self, file: two_slot::File) -> Slots {
        self.readable_slots(file, &mut Vec::new())
    }

    fn readable_slots(&self, file: two_slot::File, unreadable: &mut Vec<&'static str>) -> Slots {
        Slots(file.paths().map(|path| self.readable(path, SLOT_BYTES, unreadable).unwrap_or_default()))
    }

    /// A file, if it is there and the disk gives it. One that it does not give is told, and noted as `unreadable`.
    fn readable(
        &self,
        path: &'static str,
        most: usize,
        unreadable: &mut Vec<&'static str>,
    ) -> Option<Zeroizing<Vec<u8>>> {
        durable::read(&self.place.join(path), most).unwrap_or_else(|error| {
            tracing::warn!(path, %error, "a file of the ESP cannot be read");
            unreadable.push(path);
            None
        })
    }

    /// Overwrites one slot of a file, durably.
    ///
    /// # Errors
    /// [`Error`] names the step; the other slot is untouched.
    pub(crate) fn write_slot(&self, file: two_slot::File, slot: usize, bytes: &[u8]) -> Result<(), Error> {
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
        if !durable::exists(&path).map_err(|error| Error::Open(CONFIG_PATH, error))? {
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

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn esp(place: &'static Path) -> Esp {
        fs::create_dir(place.join("cairn")).expect("made");
        for path in two_slot::File::ALL.iter().flat_map(|file| file.paths()).chain([CONFIG_PATH]) {
            fs::write(place.join(path), [7; 9]).expect("written");
        }
        Esp { place, writes: Arc::default() }
    }

    /// Proves: D14, O1
    #[test]
    fn each_file_may_be_unreadable_and_the_others_are_read() {
        let place: &'static Path = Box::leak(tempfile::tempdir().expect("a place for files").keep().into_boxed_path());
        let esp = esp(place);
        assert!(esp.read().expect("reads").unreadable.is_empty());
        for path in two_slot::File::ALL.iter().flat_map(|file| file.paths()).chain([CONFIG_PATH]) {
            for errno in [Errno::IO, Errno::ILSEQ] {
                let mut files =
                    durable::faults::with(&place.join(path), errno, || esp.read()).expect("what can be read");
                assert_eq!(files.unreadable, [path]);
                let read = two_slot::File::ALL.iter().flat_map(|file| files.slots(*file).0.clone());
                let slots = read.filter(|bytes| bytes.len() == 9).count();
                assert_eq!(slots + usize::from(files.config.is_some()), 8, "{path}");
            }
        }
        fs::remove_dir_all(place).expect("its own");
    }
}
