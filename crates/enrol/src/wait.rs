//! Why a machine waits, and the paragraph that tells a person what is wrong, what was left alone, and what to do.

use keys::data_key::OpenError;
use keys::endpoint::Endpoint;
use keys::header::HeaderError;
use keys::seal::SealError;
use model::{Chain, WaitState};
use unlock::locked::{LockedDisk, LockedMember};

use crate::config::{ConfigError, TpmPresence};
use crate::failure::Failure;
use crate::join::Asker;
use crate::keeper::SealLock;
use crate::seal::Seal;

/// Why there is nothing that the machine can do by itself.
#[derive(Debug)]
pub enum Wait {
    /// A blank machine, of which nothing is asked: waits to be activated, with this TPM.
    Blank(TpmPresence),
    /// Waits for a cluster to let it in.
    LetIn(Box<Asker>),
    /// Waits for the cluster's half of the data key.
    AwaitingKeys(Box<LockedDisk>),
    /// Cannot go on without its owner; nothing was changed.
    NeedsOwner(Reason),
    /// Something does not work.
    Failed(Failure),
}

/// Why the owner is needed. The text says what is wrong, what was left alone, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The config is refused.
    #[error(
        "{}. Nothing was changed. Write another with `cairnctl enrol config`, put it on the ESP as \
         cairn/enrolment.pb and start the machine again",
        Chain(.0)
    )]
    Config(ConfigError),
    /// No seal, but data.
    #[error(
        "the disk holds data of an enrolled machine, but the ESP holds no seal for it. Nothing was formatted. Put back \
         the ESP that belongs to this disk; to give the disk up, write a fresh image over it"
    )]
    LiveDisk,
    /// No seal, and bytes that no create left.
    #[error(
        "{}, and there is no seal. Nothing was formatted: it may be somebody's data. Check that this is the right \
         disk; to give it up, write a fresh image over it",
        Chain(.0)
    )]
    ForeignDisk(HeaderError),
    /// A newer Cairn's disk.
    #[error("the {what} was written by a newer Cairn (version {version}). Nothing was changed. Start the newer image")]
    Newer {
        /// Seal or data header.
        what: &'static str,
        /// As that says; above the one that this Cairn writes.
        version: u32,
    },
    /// A seal that makes no sense.
    #[error("the seal makes no sense: {}. Nothing was changed. Put back the ESP that belongs to this disk", Chain(.0))]
    Seal(SealError),
    /// A seal that does not unseal.
    #[error("{cause}. Nothing was changed. {remedy}", cause = Chain(.0), remedy = locked_remedy(.0))]
    Locked(SealLock),
    /// A header that does not open.
    #[error("{cause}. Nothing was changed. {remedy}", cause = Chain(.0), remedy = header_remedy(.0))]
    Header(OpenError),
    /// A file of the ESP is there and cannot be read, and there is no other one in its place.
    #[error(
        "the file {0} on the ESP cannot be read. Nothing was changed. `cairnctl machine logs` has the kernel's words. Put back the \
         ESP that belongs to this disk, or have the machine join anew with a fresh image"
    )]
    Unreadable(&'static str),
}

impl Wait {
    /// The state that everybody may know.
    #[must_use]
    pub const fn state(&self) -> WaitState {
        match self {
            Self::Blank(_) => WaitState::Blank,
            Self::LetIn(_) => WaitState::Joining,
            Self::AwaitingKeys(_) => WaitState::AwaitingKeys,
            Self::NeedsOwner(_) | Self::Failed(Failure::Damaged(_)) => WaitState::NeedsOwner,
            Self::Failed(_) => WaitState::Failed,
        }
    }

    /// The member that waits for its key, with the seal that opened; none where a machine waits for something else.
    #[must_use]
    pub fn locked_member<'a>(&'a self, seal: Option<&'a Seal>) -> Option<LockedMember<'a>> {
        match (self, seal) {
            (Self::AwaitingKeys(disk), Some(seal)) => Some(LockedMember::new(&seal.body, seal.generation, disk)),
            (Self::Blank(_) | Self::LetIn(_) | Self::AwaitingKeys(_) | Self::NeedsOwner(_) | Self::Failed(_), _) => {
                None
            }
        }
    }

    /// Message of one paragraph for console and API.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Blank(_) => "waiting to be activated: `cairnctl machine activate` has this machine join a cluster, \
                               `cairnctl cluster init` create one. Or put a config on its ESP: `cairnctl enrol config`"
                .to_owned(),
            Self::LetIn(asker) => {
                let asked: Vec<_> = asker.ticket().coordinator_public_endpoints.iter().map(Endpoint::as_str).collect();
                format!("asking the ticket's cluster to let this machine in: {}", asked.join(", "))
            }
            Self::AwaitingKeys(disk) => {
                format!(
                    "waiting for the cluster's half of the data key (generation {}). Its owner can give it: \
                     `cairnctl recover`",
                    disk.generation
                )
            }
            Self::NeedsOwner(reason) => reason.to_string(),
            Self::Failed(failure) => failure.to_string(),
        }
    }
}

const fn locked_remedy(locked: &SealLock) -> &'static str {
    match locked {
        SealLock::BootClass { .. } | SealLock::Pcrs => {
            "Start the image it was sealed with, the same way and with the same firmware settings and cards"
        }
        SealLock::NoTpm => "Turn the TPM on in the firmware settings, or put the disk back into its machine",
        SealLock::OtherTpm => "Put the disk back into the machine it was sealed in",
        SealLock::InClear => {
            "Put back the ESP that belongs to this disk; a machine that was enrolled without a TPM opens while its TPM is \
             turned off in the firmware settings"
        }
        SealLock::ZeroPcr(_) => "Update the firmware, or turn its measurements on",
        SealLock::Body(_) => "Put back the ESP that belongs to this disk",
    }
}

const fn header_remedy(error: &OpenError) -> &'static str {
    match error {
        OpenError::Blank | OpenError::OtherDisk { .. } => "Attach the disk that belongs to this ESP",
        OpenError::Header(_) | OpenError::Changed => {
            "Check the disk and its cables; the data is not lost while the owner's recovery key exists"
        }
        OpenError::Level { .. } | OpenError::Older { .. } => {
            "Somebody put an older or another header on the disk: find out who had it"
        }
        OpenError::LocalHalf | OpenError::BothHalves => "Put back the ESP that belongs to this disk",
        OpenError::ClusterHalf | OpenError::ClusterHalfMissing { .. } => {
            "Make sure that the machine talks to its own cluster, then restart it with `cairnctl machine reboot`"
        }
    }
}
