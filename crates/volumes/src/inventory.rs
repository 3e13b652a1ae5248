//! All volumes of a disk, as they were found, and the decision over each call: steps, or a refusal before any.

use crate::capacity::{BLOCK, DiskRoom};
use crate::name::{EntryName, VolumeId};
use crate::step::{self, VolumeStep, finish};
use crate::whole_blocks;

/// Folder among the volumes, with what its project says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundVolume {
    /// Name of the folder.
    pub entry: EntryName,
    /// Limit of its project in bytes; 0 where it has none.
    pub bytes: u64,
    /// Bytes that its project takes.
    pub used: u64,
}

/// Volumes of one disk, and the disk's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// Size of the file system in bytes.
    pub size: u64,
    /// All folders that are, were, or were to be volumes.
    pub found: Vec<FoundVolume>,
}

/// More than may be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{asked} bytes are asked for and {free} bytes may still be promised on this machine")]
pub struct NoRoom {
    /// Bytes that are asked for in addition to what the volume has.
    pub asked: u64,
    /// Bytes that may still be promised.
    pub free: u64,
}

/// No volume has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine has no volume {0}")]
pub struct NoSuchVolume(pub VolumeId);

/// Why a volume is not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefusal {
    /// A pod uses it.
    #[error("volume {0} is mounted")]
    Mounted(VolumeId),
}

impl Inventory {
    /// Room that the disk has. What is half made or half gone counts until it is gone.
    #[must_use]
    pub fn room(&self) -> DiskRoom {
        let promised = self.found.iter().fold(0, |sum: u64, found| sum.saturating_add(found.bytes));
        DiskRoom { size: self.size, promised }
    }

    /// Volumes that are whole.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeId, FoundVolume)> {
        self.found.iter().filter_map(|found| match found.entry {
            EntryName::Whole(id) => Some((id, *found)),
            EntryName::Unfinished(_) | EntryName::Leaving(_) => None,
        })
    }

    /// A whole volume.
    ///
    /// # Errors
    /// [`NoSuchVolume`].
    pub fn volume(&self, id: VolumeId) -> Result<FoundVolume, NoSuchVolume> {
        self.volumes().find(|(it, _)| *it == id).map(|(_, found)| found).ok_or(NoSuchVolume(id))
    }

    /// Folders of what was cut, each with the steps that end it: a creation is thrown away, a deletion gone on with.
    pub fn leftovers(&self) -> impl Iterator<Item = (EntryName, Vec<VolumeStep>)> {
        let steps = self.found.iter().map(|found| (found.entry, finish(found.entry)));
        steps.filter(|(_, steps)| !steps.is_empty())
    }

    /// Steps after which the volume is there with `bytes` at least.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing is to be done.
    pub fn create(&self, id: VolumeId, bytes: u64) -> Result<Vec<VolumeStep>, NoRoom> {
        match self.volume(id) {
            Ok(found) => self.grow(id, found, bytes),
            Err(NoSuchVolume(_)) => Ok(step::create(id, self.promise(0, bytes)?)),
        }
    }

    /// Steps after which a volume that is there has `bytes` at least; it is never made smaller.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing is to be done.
    pub fn grow(&self, id: VolumeId, found: FoundVolume, bytes: u64) -> Result<Vec<VolumeStep>, NoRoom> {
        if found.bytes >= bytes {
            return Ok(Vec::new());
        }
        Ok(step::expand(id, self.promise(found.bytes, bytes)?))
    }

    /// Steps after which the volume is not there; none where it is not.
    ///
    /// # Errors
    /// [`DeleteRefusal`]: nothing is to be done.
    pub fn delete(&self, id: VolumeId, mounted: bool) -> Result<Vec<VolumeStep>, DeleteRefusal> {
        match self.volume(id) {
            Err(NoSuchVolume(_)) => Ok(Vec::new()),
            Ok(_) if mounted => Err(DeleteRefusal::Mounted(id)),
            Ok(_) => Ok(step::delete(id)),
        }
    }

    /// Limit that holds `bytes`, where `has` of them are promised already.
    fn promise(&self, has: u64, bytes: u64) -> Result<u64, NoRoom> {
        let free = self.room().free();
        let refused = |asked| NoRoom { asked, free };
        // A volume of nothing gets the least that there is: a limit of nothing would be none.
        let limit = whole_blocks(bytes.max(BLOCK)).ok_or(refused(bytes))?;
        let asked = limit.saturating_sub(has);
        if asked > free { Err(refused(asked)) } else { Ok(limit) }
    }
}

#[cfg(test)]
mod tests;
