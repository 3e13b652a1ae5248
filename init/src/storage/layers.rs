//! The block layers of a volume, made from its keys in one go on one thread, and removed from the top.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::LevelInForce;
use enrol::failure::Layer;
use enrol::step::Mapping;
use keys::data_key::{DataKey, Volume};
use keys::header::DATA_OFFSET;
use model::DiskUuid;
use rustix::fs::OFlags;
use sys::device_mapper::{self, Access, Device, DmTarget};
use sys::keyring::LogonKey;

use super::table::{self, BadStatus, BadSuperblock, Status};

/// The layer that the file system lies on.
const TOP: &str = "cairn-data";
/// The layer below it at level authenticated.
const INTEGRITY: &str = "cairn-integrity";

/// Why the layers cannot be made. Nothing of them is left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// The partition does not open.
    #[error("open `{0}`")]
    Open(PathBuf, #[source] io::Error),
    /// The partition's size cannot be read.
    #[error("measure `{0}`")]
    Size(PathBuf, #[source] io::Error),
    /// The partition has no room behind the headers.
    #[error("the data partition is too small")]
    TooSmall,
    /// The place of dm-integrity's superblock cannot be cleared.
    #[error("clear the place of dm-integrity's superblock")]
    Clear(#[source] io::Error),
    /// The superblock cannot be read.
    #[error("read dm-integrity's superblock")]
    ReadSuperblock(#[source] io::Error),
    /// The superblock is none that may be loaded.
    #[error(transparent)]
    Superblock(#[from] BadSuperblock),
    /// The kernel refused dm-integrity.
    #[error("set up dm-integrity")]
    Integrity(#[source] device_mapper::Error),
    /// The kernel does not tag sectors that were never written, so reads would fail later.
    #[error("dm-integrity does not tag the disk")]
    NotTagging,
    /// The kernel does not say how far the tags are.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The kernel's keyring does not take the key.
    #[error("hand the data key to the kernel")]
    Key(#[source] io::Error),
    /// The kernel refused dm-crypt.
    #[error("set up dm-crypt")]
    Crypt(#[source] device_mapper::Error),
    /// The kernel refused dm-linear.
    #[error("set up dm-linear")]
    Linear(#[source] device_mapper::Error),
}

impl MapError {
    /// The layer that refuses.
    pub(crate) const fn layer(&self) -> Layer {
        match self {
            Self::Key(_) | Self::Crypt(_) | Self::Linear(_) => Layer::Crypt,
            Self::Open(..)
            | Self::Size(..)
            | Self::TooSmall
            | Self::Clear(_)
            | Self::ReadSuperblock(_)
            | Self::Superblock(_)
            | Self::Integrity(_)
            | Self::NotTagging
            | Self::Status(_) => Layer::Integrity,
        }
    }
}

/// Why the level in force is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    /// The kernel does not answer.
    #[error("ask dm-integrity how far it is")]
    Ask(#[source] device_mapper::Error),
    /// The kernel's answer is no status of dm-integrity.
    #[error(transparent)]
    Parse(#[from] BadStatus),
}

/// The layers, up and running.
#[derive(Debug)]
pub(crate) enum Mapped {
    /// Plain, behind the headers.
    Linear(Device),
    /// Encrypted.
    Crypt(Device),
    /// Encrypted, and below that authenticated.
    CryptOverIntegrity { crypt: Device, integrity: Device },
}

impl Mapped {
    /// Makes the layers of `volume`. Blocks, and must stay on one thread: dm-crypt looks for its key in the keyring of
    /// the thread that loads it.
    ///
    /// # Errors
    /// [`MapError`] names the step; layers made before it are removed again.
    pub(crate) fn new(partition: &Path, disk: DiskUuid, volume: &Volume, mapping: Mapping) -> Result<Self, MapError> {
        match volume {
            Volume::Raw => {
                let table = table::linear(partition);
                let target = DmTarget { kind: "linear", sectors: sectors(partition)?, parameters: &table };
                Device::create(TOP, Access::ReadWrite, &target).map(Self::Linear).map_err(MapError::Linear)
            }
            Volume::Encrypted(key) => crypt(partition, table::START, sectors(partition)?, disk, key).map(Self::Crypt),
            Volume::Authenticated(key) => {
                let (integrity, sectors) = match mapping {
                    Mapping::Format => format(partition, key)?,
                    Mapping::Open => open(partition, key)?,
                };
                match crypt(&integrity.path(), 0, sectors, disk, key) {
                    Ok(crypt) => Ok(Self::CryptOverIntegrity { crypt, integrity }),
                    Err(error) => {
                        let _the_first_error_counts = integrity.remove();
                        Err(error)
                    }
                }
            }
        }
    }

    /// The device that the file system lies on.
    pub(crate) fn top(&self) -> PathBuf {
        match self {
            Self::Linear(top) | Self::Crypt(top) | Self::CryptOverIntegrity { crypt: top, .. } => top.path(),
        }
    }

    /// How the data is protected right now.
    ///
    /// # Errors
    /// [`StatusError`] when dm-integrity does not say how far it is.
    pub(crate) fn level(&self) -> Result<LevelInForce, StatusError> {
        match self {
            Self::Linear(_) => Ok(LevelInForce::Insecure),
            Self::Crypt(_) => Ok(LevelInForce::Encrypted),
            Self::CryptOverIntegrity { integrity, .. } => Ok(status(integrity)?.level()),
        }
    }

    /// Removes the layers from the top.
    ///
    /// # Errors
    /// When one is in use; those below it stay too.
    pub(crate) fn close(&self) -> Result<(), device_mapper::Error> {
        match self {
            Self::Linear(top) | Self::Crypt(top) => top.remove(),
            Self::CryptOverIntegrity { crypt, integrity } => {
                crypt.remove()?;
                integrity.remove()
            }
        }
    }
}

fn status(integrity: &Device) -> Result<Status, StatusError> {
    Ok(Status::parse(&integrity.status().map_err(StatusError::Ask)?)?)
}

fn sectors(partition: &Path) -> Result<u64, MapError> {
    let device = File::open(partition).map_err(|error| MapError::Open(partition.to_owned(), error))?;
    let bytes = sys::block::size(&device).map_err(|error| MapError::Size(partition.to_owned(), error))?;
    table::sectors(bytes).ok_or(MapError::TooSmall)
}

/// dm-crypt over `device`. The key leaves the keyring as soon as the kernel has its own copy.
fn crypt(device: &Path, offset: u64, sectors: u64, disk: DiskUuid, key: &DataKey) -> Result<Device, MapError> {
    let _in_the_keyring = LogonKey::add(&table::key_description(disk), key.xts().expose()).map_err(MapError::Key)?;
    let table = table::crypt(device, offset, disk);
    let target = DmTarget { kind: "crypt", sectors, parameters: &table };
    Device::create(TOP, Access::ReadWrite, &target).map_err(MapError::Crypt)
}

/// dm-integrity for the first time: loaded small over a cleared superblock it formats itself, for as much as the
/// partition holds; then it is opened as at every later boot.
fn format(partition: &Path, key: &DataKey) -> Result<(Device, u64), MapError> {
    sectors(partition)?;
    let device = direct(partition, File::options().write(true))?;
    device.write_all_at(&Page([0; 4096]).0, DATA_OFFSET).map_err(MapError::Clear)?;
    drop(device);
    let small =
        DmTarget { kind: "integrity", sectors: 8, parameters: &table::integrity(partition, key, Mapping::Format) };
    let formatted = Device::create(INTEGRITY, Access::ReadWrite, &small).map_err(MapError::Integrity)?;
    formatted.remove().map_err(MapError::Integrity)?;
    open(partition, key)
}

/// dm-integrity over what is there. A superblock the kernel would format anew never reaches it.
fn open(partition: &Path, key: &DataKey) -> Result<(Device, u64), MapError> {
    let device = direct(partition, File::options().read(true))?;
    let mut superblock = Page([0; 4096]);
    device.read_exact_at(&mut superblock.0, DATA_OFFSET).map_err(MapError::ReadSuperblock)?;
    drop(device);
    let sectors = table::provided(&superblock.0)?;
    let parameters = table::integrity(partition, key, Mapping::Open);
    let target = DmTarget { kind: "integrity", sectors, parameters: &parameters };
    let integrity = Device::create(INTEGRITY, Access::ReadWrite, &target).map_err(MapError::Integrity)?;
    let tags = status(&integrity).map_err(MapError::from).and_then(|status| match status.tagged {
        Some(_) if status.provided == sectors => Ok(()),
        Some(_) | None => Err(MapError::NotTagging),
    });
    match tags {
        Ok(()) => Ok((integrity, sectors)),
        Err(error) => {
            let _the_first_error_counts = integrity.remove();
            Err(error)
        }
    }
}

/// dm-integrity writes its superblock past the page cache, so we read and clear it past the page cache too.
fn direct(partition: &Path, options: &mut std::fs::OpenOptions) -> Result<File, MapError> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("O_DIRECT is one of the lower bits");
    options.custom_flags(flags).open(partition).map_err(|error| MapError::Open(partition.to_owned(), error))
}

/// Direct I/O wants its buffer aligned to the disk's blocks.
#[repr(align(4096))]
struct Page([u8; 4096]);
