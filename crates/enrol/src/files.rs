//! Files on a machine's ESP, as they were read: where each file is written next, which config counts, and what enrolment left over.
//! Decides nothing of what they mean.

use keys::seal::{self, Body};
use keys::two_slot::{File, NextSlot, Slots, TwoSlotFile};
use zeroize::Zeroizing;

use crate::config::{self, CONFIG_PATH, ConfigError, VerifiedConfig};

/// Both slots of every two-slot file, and the enrolment config, as they were read.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Files {
    /// The seal's slots; in clear parts and unprotected seals they hold secrets.
    pub seal: Slots,
    /// The share's slots: a lone coordinator's cluster key, sealed.
    pub share: Slots,
    /// The directory's slots: signed, no secret.
    pub directory: Slots,
    /// The recovery record's slots: only the owner opens them.
    pub record: Slots,
    /// The enrolment config on the ESP.
    pub config: Option<Zeroizing<Vec<u8>>>,
    /// The enrolment config that QEMU passed.
    pub fw_cfg: Option<Zeroizing<Vec<u8>>>,
    /// Paths of files that are there and cannot be read; above they are empty, or absent. Where it has two slots the other is enough.
    pub unreadable: Vec<&'static str>,
}

impl Files {
    /// The two slots of `file`.
    pub const fn slots(&mut self, file: File) -> &mut Slots {
        match file {
            File::Seal => &mut self.seal,
            File::Share => &mut self.share,
            File::Directory => &mut self.directory,
            File::Record => &mut self.record,
        }
    }

    /// A slot of `file` that is there and cannot be read.
    pub(crate) fn unreadable(&self, file: File) -> Option<&'static str> {
        file.paths().into_iter().find(|path| self.unreadable.contains(path))
    }

    pub(crate) fn next_writes(&self) -> NextWrites {
        NextWrites {
            seal: seal::read(self.seal.bytes()).1,
            share: TwoSlotFile::read(File::Share, self.share.bytes()).next,
            directory: TwoSlotFile::read(File::Directory, self.directory.bytes()).next,
            record: TwoSlotFile::read(File::Record, self.record.bytes()).next,
        }
    }

    /// The config that counts: one that was given wins over QEMU's item, and that over the file.
    pub(crate) fn config(&self, given: Option<&Zeroizing<Vec<u8>>>) -> Option<Result<VerifiedConfig, ConfigError>> {
        let bytes = given.or(self.fw_cfg.as_ref()).or(self.config.as_ref());
        let unreadable = || self.unreadable.contains(&CONFIG_PATH).then_some(Err(ConfigError::Unreadable));
        bytes.map(|bytes| config::read(bytes)).or_else(unreadable)
    }
}

/// Where the next write of each file goes, as read from the ESP: behind a seal, and behind what an abandoned attempt left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextWrites {
    pub(crate) seal: NextSlot,
    pub(crate) share: NextSlot,
    pub(crate) directory: NextSlot,
    pub(crate) record: NextSlot,
}

/// Leftovers of enrolment on the ESP of a machine whose seal opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// The config.
    pub config: Leftover,
    /// The slot of the seal's file that holds an attempt.
    pub attempt: Option<usize>,
}

/// Fate of a config that a sealed machine still finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Leftover {
    /// No config is there.
    #[default]
    Absent,
    /// The config is the one that enrolled the machine, or what a cut left of removing it.
    Remove,
    /// Another one: stays where it is, with one line in the log.
    Ignore,
}

impl Leftover {
    /// Judges the file of a machine whose seal opened.
    pub(crate) fn of(seal: &Body, file: Option<&[u8]>) -> Self {
        match file {
            None => Self::Absent,
            Some(bytes) if config::digest(bytes) == seal.config || bytes.iter().all(|byte| *byte == 0) => Self::Remove,
            Some(_) => Self::Ignore,
        }
    }
}
