//! What a boot does, decided by reading and nothing else: seal × header → [`Verdict`]. Never writes, never asks.
//!
//! | seal | header | verdict |
//! |---|---|---|
//! | none | none, or each copy blank or a valid provisional | `Create` with a config, `Blank` without one |
//! | none | a committed copy, or anything else that is not blank | `NeedsOwner`: nothing is formatted |
//! | there, does not unseal | any | `NeedsOwner`: names the cause |
//! | good | blank | `NeedsOwner`: the disk is not this seal's |
//! | good | provisional, opens | `CommitThenOpen` |
//! | good | committed, cluster half not at hand | `AwaitingKeys` |
//! | good | committed, opens | `Open` |
//! | good | does not open | `NeedsOwner`: says which half is wrong, or that the header is damaged |
//! | good | opens, but a layer above refuses | `Failed` (the shell says so when it happens) |

use keys::binding::Binding;
use keys::data_key::{ClusterHalf, OpenError, Opened, open};
use keys::header::{Copies, Copy, HeaderError, State};
use keys::seal::{Body, SealError};
use model::{BootClass, Stay};

use crate::config::{self, ConfigError, Tpm, Verified};

/// What was read of the seal.
#[derive(Debug)]
pub enum FoundSeal<'a> {
    /// No slot whose checksum holds; a torn first seal is none.
    None,
    /// A newer Cairn wrote it.
    Newer(u32),
    /// A checksum holds, but what is under it makes no sense.
    Malformed(SealError),
    /// It is there and does not unseal.
    Locked(Locked),
    /// It opened.
    Open(&'a Body),
}

/// Why a seal does not unseal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Locked {
    /// Started another way than when it sealed.
    #[error("the machine was sealed when started as {sealed}, and is now started as {now}")]
    BootClass {
        /// What the seal names.
        sealed: BootClass,
        /// What this boot is.
        now: BootClass,
    },
    /// No TPM.
    #[error("the machine was sealed to a TPM, and has none now")]
    NoTpm,
    /// Another storage key: another TPM, or a cleared one.
    #[error("the machine was sealed to another TPM, or its TPM was cleared")]
    OtherTpm,
    /// PCRs have other values: firmware, boot loader, kernel or their order changed.
    #[error("the machine's firmware, boot loader or kernel is not what it was sealed with (PCR policy)")]
    Pcrs,
    /// The firmware does not measure.
    #[error("the machine's firmware measures nothing into PCR {0}: it is broken")]
    ZeroPcr(u8),
    /// It lies in clear, and there is a TPM that would have held it.
    #[error("the machine has a working TPM, and its secret lies in clear beside it: somebody else may have written it")]
    InClear,
    /// Unsealed, but the body does not open or makes no sense.
    #[error("{0}")]
    Body(SealError),
}

impl Locked {
    /// What keeps the secret of `binding` shut on a machine with this TPM, before the TPM is asked. None: it may be asked,
    /// or there is nothing to ask.
    #[must_use]
    pub const fn before_asking(binding: &Binding, tpm: Tpm) -> Option<Self> {
        match (binding, tpm) {
            (Binding::Unprotected(_), Tpm::Present) => Some(Self::InClear),
            (Binding::Tpm(_), Tpm::Absent) => Some(Self::NoTpm),
            (Binding::Tpm(_), Tpm::ZeroPcr(pcr)) => Some(Self::ZeroPcr(pcr)),
            (Binding::Unprotected(_), Tpm::Absent | Tpm::ZeroPcr(_)) | (Binding::Tpm(_), Tpm::Present) => None,
        }
    }
}

/// What was read of the enrolment config.
#[derive(Debug)]
pub enum FoundConfig {
    /// None: the machine waits.
    Absent,
    /// One that is refused.
    Refused(ConfigError),
    /// One that can be served.
    Good(Box<Verified>),
}

impl FoundConfig {
    /// Reads the config that counts: QEMU's item wins over the file.
    #[must_use]
    pub fn read(fw_cfg: Option<&[u8]>, file: Option<&[u8]>) -> Self {
        match fw_cfg.or(file).map(config::read) {
            None => Self::Absent,
            Some(Err(error)) => Self::Refused(error),
            Some(Ok(verified)) => Self::Good(Box::new(verified)),
        }
    }
}

/// Everything a decision needs.
#[derive(Debug)]
pub struct Found<'a> {
    /// The seal.
    pub seal: FoundSeal<'a>,
    /// Both places of the data header.
    pub header: &'a Copies,
    /// The cluster's half of the key, where a share or the cluster gave it.
    pub cluster: Option<&'a ClusterHalf>,
    /// The config.
    pub config: FoundConfig,
    /// The TPM.
    pub tpm: Tpm,
}

/// What this boot does.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing here and nothing asked for: waits to be activated.
    Blank,
    /// Creates a cluster; whatever an abandoned attempt left is overwritten.
    Create(Box<Verified>),
    /// Opens the data partition.
    Open(Opened),
    /// A cut came between seal and commit: commits the header, then opens.
    CommitThenOpen(Opened),
    /// Waits for the cluster's half of the key.
    AwaitingKeys {
        /// The generation that is needed.
        generation: u32,
    },
    /// Cannot go on without its owner; nothing was changed.
    NeedsOwner(Reason),
    /// A layer above the header refuses the data; nothing was written.
    Failed(Layer),
}

/// Why the owner is needed. The text says what is wrong, what was left alone, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The config is refused.
    #[error(
        "{0}. Nothing was changed. Write another with `cairnctl enrol config`, put it on the ESP as \
         cairn/enrolment.pb and start the machine again"
    )]
    Config(#[from] ConfigError),
    /// No seal, but data.
    #[error(
        "the disk holds data of an enrolled machine, but the ESP holds no seal for it. Nothing was formatted. Put back \
         the ESP that belongs to this disk; to give the disk up, write a fresh image over it"
    )]
    LiveDisk,
    /// No seal, and bytes that no create left.
    #[error(
        "{0}, and there is no seal. Nothing was formatted: it may be somebody's data. Check that this is the right \
         disk; to give it up, write a fresh image over it"
    )]
    ForeignDisk(HeaderError),
    /// A newer Cairn's disk.
    #[error("the {what} was written by a newer Cairn (version {version}). Nothing was changed. Start the newer image")]
    Newer {
        /// Seal or data header.
        what: &'static str,
        /// Its version.
        version: u32,
    },
    /// A seal that makes no sense.
    #[error("the seal makes no sense: {0}. Nothing was changed. Put back the ESP that belongs to this disk")]
    Seal(SealError),
    /// A seal that does not unseal.
    #[error("{cause}. Nothing was changed. {remedy}", cause = .0, remedy = .0.remedy())]
    Locked(Locked),
    /// A header that does not open.
    #[error("{cause}. Nothing was changed. {remedy}", cause = .0, remedy = remedy(.0))]
    Header(OpenError),
}

/// The layers above the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// dm-integrity.
    Integrity,
    /// dm-crypt.
    Crypt,
    /// XFS.
    Filesystem,
}

/// Decides. Consumes what was read: nobody decides twice.
#[must_use]
pub fn decide(found: Found<'_>) -> Verdict {
    match found.seal {
        FoundSeal::None => unsealed(found.header, found.config, found.tpm),
        FoundSeal::Newer(version) => Verdict::NeedsOwner(Reason::Newer { what: "seal", version }),
        FoundSeal::Malformed(error) => Verdict::NeedsOwner(Reason::Seal(error)),
        FoundSeal::Locked(locked) => Verdict::NeedsOwner(Reason::Locked(locked)),
        FoundSeal::Open(body) => sealed(body, found.header, found.cluster),
    }
}

fn unsealed(header: &Copies, config: FoundConfig, tpm: Tpm) -> Verdict {
    for copy in &header.0 {
        match copy {
            Copy::Valid(header) if header.state == State::Committed => return Verdict::NeedsOwner(Reason::LiveDisk),
            Copy::Refused(HeaderError::Newer(version)) => {
                return Verdict::NeedsOwner(Reason::Newer { what: "data header", version: *version });
            }
            Copy::Blank | Copy::Valid(_) | Copy::Refused(_) => {}
        }
    }
    if let Some(error) = header.refused() {
        return Verdict::NeedsOwner(Reason::ForeignDisk(error));
    }
    match config {
        FoundConfig::Absent => Verdict::Blank,
        FoundConfig::Refused(error) => Verdict::NeedsOwner(Reason::Config(error)),
        FoundConfig::Good(verified) => match verified.config.fits(tpm) {
            Ok(()) => Verdict::Create(verified),
            Err(unserved) => Verdict::NeedsOwner(Reason::Config(unserved.into())),
        },
    }
}

fn sealed(body: &Body, header: &Copies, cluster: Option<&ClusterHalf>) -> Verdict {
    match open(header, &body.local_key, cluster, &body.expected()) {
        Ok(opened) => match opened.header.state {
            State::Provisional => Verdict::CommitThenOpen(opened),
            State::Committed => Verdict::Open(opened),
        },
        Err(OpenError::ClusterHalfMissing { generation }) => Verdict::AwaitingKeys { generation },
        Err(OpenError::Header(HeaderError::Newer(version))) => {
            Verdict::NeedsOwner(Reason::Newer { what: "data header", version })
        }
        Err(error) => Verdict::NeedsOwner(Reason::Header(error)),
    }
}

impl Verdict {
    /// What the machine waits for, if there is nothing it can do by itself.
    #[must_use]
    pub const fn stay(&self) -> Option<Stay> {
        match self {
            Self::Create(_) | Self::Open(_) | Self::CommitThenOpen(_) => None,
            Self::Blank => Some(Stay::Blank),
            Self::AwaitingKeys { .. } => Some(Stay::AwaitingKeys),
            Self::NeedsOwner(_) => Some(Stay::NeedsOwner),
            Self::Failed(_) => Some(Stay::Failed),
        }
    }

    /// One paragraph for console and API.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Blank => "no enrolment config: waiting. Make one with `cairnctl enrol config`, put it on the ESP as \
                            cairn/enrolment.pb and start the machine again"
                .to_owned(),
            Self::Create(_) => "creating a cluster".to_owned(),
            Self::Open(_) => "opening the data partition".to_owned(),
            Self::CommitThenOpen(_) => "finishing an interrupted create, then opening the data partition".to_owned(),
            Self::AwaitingKeys { generation } => {
                format!("waiting for the cluster's half of the data key (generation {generation})")
            }
            Self::NeedsOwner(reason) => reason.to_string(),
            Self::Failed(layer) => format!(
                "the data partition opens, but {} refuses it. Nothing was written. `cairnctl machine logs` has the \
                 kernel's words",
                layer.name()
            ),
        }
    }
}

impl Layer {
    const fn name(self) -> &'static str {
        match self {
            Self::Integrity => "dm-integrity",
            Self::Crypt => "dm-crypt",
            Self::Filesystem => "XFS",
        }
    }
}

impl Locked {
    const fn remedy(self) -> &'static str {
        match self {
            Self::BootClass { .. } | Self::Pcrs => {
                "Start the image it was sealed with, the same way and with the same firmware settings and cards"
            }
            Self::NoTpm => "Turn the TPM on in the firmware settings, or put the disk back into its machine",
            Self::OtherTpm => "Put the disk back into the machine it was sealed in",
            Self::InClear => {
                "Put back the ESP that belongs to this disk; a machine that was enrolled without a TPM opens while its TPM \
                 is turned off in the firmware settings"
            }
            Self::ZeroPcr(_) => "Update the firmware, or turn its measurements on",
            Self::Body(_) => "Put back the ESP that belongs to this disk",
        }
    }
}

const fn remedy(error: &OpenError) -> &'static str {
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

/// What becomes of a config that a sealed machine still finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// There is none.
    Absent,
    /// It is the one that enrolled the machine, or what a cut left of removing it.
    Remove,
    /// Another one: stays where it is, with one line in the log.
    Ignore,
}

impl Leftover {
    /// The line in the log for an ignored config.
    pub const IGNORED: &'static str = "ignoring the enrolment config: this machine is enrolled already";

    /// Judges the file of a machine whose seal opened.
    #[must_use]
    pub fn of(seal: &Body, file: Option<&[u8]>) -> Self {
        match file {
            None => Self::Absent,
            Some(bytes) if config::digest(bytes) == seal.config || bytes.iter().all(|byte| *byte == 0) => Self::Remove,
            Some(_) => Self::Ignore,
        }
    }
}
