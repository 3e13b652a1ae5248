//! A plan: the effects of create, of join or of opening, in their order. The last is the cap, and with it the promise of a plan ends:
//! a machine whose TPM gives nothing away any more, and whose data is open.
//!
//! ```text
//!   Plan ──perform──► effect ► effect ► … ► Cap ──► Capped: services may start, `Claim` may be answered
//!                        └─ fails ─► Close ─► Halt: the machine waits; the next boot decides anew by what it reads
//! ```

use std::fmt;

use cluster::desired::Desired;
use cluster::peers::Known;
use keys::data_key::{Holder, Opened, Volume};
use keys::header::{HEADER_BYTES, Header, State};
use keys::pair::File;
use model::{DiskUuid, FirstContact, MasterSecret, VpnPrivKey};
use zeroize::Zeroizing;

use crate::found::{Leftover, Leftovers};
use crate::wait::{Failure, Layer, Wait};

/// Effects in the order in which they are performed. Made of a [`crate::found::Opening`], a [`crate::create::Draft`] or a
/// [`crate::join::Draft`].
#[derive(Debug)]
pub struct Plan {
    effects: Vec<Effect>,
    holder: Holder,
    purpose: Purpose,
}

/// Purpose of a plan: to enrol, or to open.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Enrol,
    Open,
}

/// Performs effects: PID 1, or in a test a machine in memory.
pub trait Performer {
    /// Why an effect failed.
    type Error: std::error::Error + Send + Sync + 'static;
    /// Why the data partition stays open after that.
    type Open;

    /// Performs one effect. It is durable when this returns.
    ///
    /// # Errors
    /// What the effects before it did stays.
    fn perform(&mut self, effect: Effect) -> Result<(), Self::Error>;

    /// Part of the disk that refused to be opened, if that is what the error says.
    fn refused_by(error: &Self::Error) -> Option<Refusal>;

    /// Closes what a failed plan left open, so that no key stays in the kernel.
    ///
    /// # Errors
    /// When it stays open.
    fn close(&mut self) -> Result<(), Self::Open>;
}

/// The TPM is capped, the data is open. Only [`Plan::perform`] makes one; what may run behind the cap only asks for it.
///
/// ```compile_fail,E0423
/// let capped = enrol::plan::Capped(()); // nothing was capped
/// ```
#[derive(Debug)]
#[must_use]
pub struct Capped(());

/// Part that refuses on a disk whose header opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A layer between the header and the files.
    Layer(Layer),
    /// A file that the machine needs.
    File,
}

/// How a plan failed.
#[derive(Debug)]
pub enum Halt<O> {
    /// An effect failed, and what was open is closed again.
    Failed(Wait),
    /// The data partition cannot be closed: only a restart makes sure that its key is gone.
    Open(O),
}

impl Plan {
    pub(crate) const fn enrol(effects: Vec<Effect>, holder: Holder) -> Self {
        Self { effects, holder, purpose: Purpose::Enrol }
    }

    pub(crate) fn open(
        opened: Opened,
        committed: Option<Header>,
        leftover: Leftovers,
        last: Vec<Effect>,
        holder: Holder,
    ) -> Self {
        let mut effects = vec![Effect::MendTable];
        effects.extend(leftover.attempt.map(|slot| Effect::EraseAttempt { slot }));
        if let Some(header) = committed {
            effects.extend(HeaderCopy::BOTH.map(|copy| Effect::header(copy, &header)));
        }
        let Opened { header, volume } = opened;
        effects.extend([Effect::MapVolume { disk: header.disk, volume, mapping: Mapping::Open }, Effect::Mount]);
        match leftover.config {
            Leftover::Remove => effects.push(Effect::RemoveConfig),
            Leftover::Absent | Leftover::Ignore => {}
        }
        effects.push(Effect::LoadKeys);
        effects.extend(last);
        Self { effects, holder, purpose: Purpose::Open }
    }

    #[cfg(test)]
    pub(crate) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Performs all effects, each when the one before it is durable, and then the cap.
    ///
    /// # Errors
    /// [`Halt`] at the first effect that fails.
    pub fn perform<P: Performer>(self, performer: &mut P) -> Result<Capped, Halt<P::Open>> {
        let Self { effects, holder, purpose } = self;
        for effect in effects.into_iter().chain([Effect::Cap(holder)]) {
            let step = effect.step();
            if let Err(error) = performer.perform(effect) {
                performer.close().map_err(Halt::Open)?;
                return Err(Halt::Failed(purpose.wait(step, error, P::refused_by)));
            }
        }
        Ok(Capped(()))
    }
}

impl Purpose {
    fn wait<E>(self, step: Step, error: E, refused_by: impl FnOnce(&E) -> Option<Refusal>) -> Wait
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        match (self, refused_by(&error)) {
            (Self::Enrol, _) => Wait::Failed(Failure::Create(step, Box::new(error))),
            (Self::Open, None) => Wait::Failed(Failure::Open(step, Box::new(error))),
            (Self::Open, Some(Refusal::Layer(layer))) => Wait::Failed(Failure::Refused(layer, Box::new(error))),
            (Self::Open, Some(Refusal::File)) => Wait::Damaged(Box::new(error)),
        }
    }
}

/// An effect of a plan. It is durable before the next begins.
#[derive(Debug)]
pub enum Effect {
    /// Write the primary partition table anew from its backup, if this boot had to take that one. Only where the disk is the
    /// machine's own; without it the machine runs as well.
    MendTable,
    /// Grow the data partition to the end of the disk: backup GPT, primary GPT, then the kernel's view.
    GrowData,
    /// Write one copy of the data header at its [`keys::header::HEADER_OFFSETS`], flush.
    WriteHeader {
        /// Which of the two places.
        copy: HeaderCopy,
        /// The header's state: its create goes on, or is committed.
        state: State,
        /// The whole copy.
        bytes: Box<[u8; HEADER_BYTES]>,
    },
    /// Make the block layers of the volume.
    MapVolume {
        /// Names the layers for device-mapper.
        disk: DiskUuid,
        /// The layers and their key.
        volume: Volume,
        /// Whether there is anything on it yet.
        mapping: Mapping,
    },
    /// mkfs.xfs on the uppermost layer.
    MakeFilesystem,
    /// Mount it.
    Mount,
    /// Write what a new member keeps on its data partition; syncfs.
    PopulateData(Box<NewData>),
    /// Write what a machine that joins made for itself, over a slot of the seal's pair, sync: before it asks for anything.
    WriteAttempt {
        /// 0 or 1: which of [`File::paths`].
        slot: usize,
        /// All of its bytes.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// Overwrite that slot with zeros, sync: there is a member's seal.
    EraseAttempt {
        /// 0 or 1: which of [`File::paths`].
        slot: usize,
    },
    /// Overwrite one slot of a pair in place, sync.
    WriteEsp {
        /// The file whose slot it is.
        file: File,
        /// 0 or 1: which of [`File::paths`].
        slot: usize,
        /// All of its bytes.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// Overwrite the seal's slot that did not open with the same seal and a higher minimum, sync. Without it the machine runs as
    /// well, by the one that opened.
    RaiseMinimum {
        /// 0 or 1: which of [`File::paths`].
        slot: usize,
        /// All of its bytes.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// Overwrite the enrolment config with zeros, sync, remove it, sync.
    RemoveConfig,
    /// Read what the data partition keeps: the same way after create as at every later boot.
    LoadKeys,
    /// Extend PCR 11 with the cap of this machine, where there is a TPM, and close it. The last effect of every plan.
    Cap(Holder),
}

/// The two places of the data header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderCopy {
    /// At the start of the partition.
    First,
    /// Half a MiB on.
    Second,
}

impl HeaderCopy {
    /// In the order in which they are written.
    pub(crate) const BOTH: [Self; 2] = [Self::First, Self::Second];
}

/// How block layers are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// For the first time: dm-integrity formats itself, with `recalculate`.
    Format,
    /// Over what is there; never with `recalculate`.
    Open,
}

/// Contents of a new member's data partition.
#[derive(Debug)]
pub enum NewData {
    /// Contents for a cluster's first machine; beside CA keys and VPN key, which the shell made.
    Created {
        /// Desired state of the machine, told by nobody yet.
        desired: Desired,
        /// Secret that every cluster key derives from; until etcd holds it wrapped.
        master_secret: MasterSecret,
        /// Until the owner's first authenticated call.
        first_contact: FirstContact,
    },
    /// Contents for a machine that joined.
    Joined {
        /// Desired state of the machine, as the cluster's answer says it.
        desired: Desired,
        /// The machine's key in the VPN.
        vpn_key: VpnPrivKey,
        /// Peers that the machine exchanges packets with first.
        peers: Known,
    },
}

/// Kind of an effect, without what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// [`Effect::MendTable`].
    MendTable,
    /// [`Effect::GrowData`].
    GrowData,
    /// [`Effect::WriteHeader`].
    WriteHeader(State, HeaderCopy),
    /// [`Effect::MapVolume`].
    MapVolume,
    /// [`Effect::MakeFilesystem`].
    MakeFilesystem,
    /// [`Effect::Mount`].
    Mount,
    /// [`Effect::PopulateData`].
    PopulateData,
    /// [`Effect::WriteAttempt`].
    WriteAttempt,
    /// [`Effect::EraseAttempt`].
    EraseAttempt,
    /// [`Effect::WriteEsp`].
    WriteEsp(File),
    /// [`Effect::RaiseMinimum`].
    RaiseMinimum,
    /// [`Effect::RemoveConfig`].
    RemoveConfig,
    /// [`Effect::LoadKeys`].
    LoadKeys,
    /// [`Effect::Cap`].
    Cap,
}

impl Effect {
    /// Which effect it is.
    #[must_use]
    pub const fn step(&self) -> Step {
        match self {
            Self::MendTable => Step::MendTable,
            Self::GrowData => Step::GrowData,
            Self::WriteHeader { copy, state, .. } => Step::WriteHeader(*state, *copy),
            Self::MapVolume { .. } => Step::MapVolume,
            Self::MakeFilesystem => Step::MakeFilesystem,
            Self::Mount => Step::Mount,
            Self::PopulateData(_) => Step::PopulateData,
            Self::WriteAttempt { .. } => Step::WriteAttempt,
            Self::EraseAttempt { .. } => Step::EraseAttempt,
            Self::WriteEsp { file, .. } => Step::WriteEsp(*file),
            Self::RaiseMinimum { .. } => Step::RaiseMinimum,
            Self::RemoveConfig => Step::RemoveConfig,
            Self::LoadKeys => Step::LoadKeys,
            Self::Cap(_) => Step::Cap,
        }
    }

    pub(crate) fn header(copy: HeaderCopy, header: &Header) -> Self {
        Self::WriteHeader { copy, state: header.state, bytes: header.to_bytes() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MendTable => "mend the partition table",
            Self::GrowData => "grow the data partition",
            Self::WriteHeader(State::Provisional, HeaderCopy::First) => "write the first copy of the data header",
            Self::WriteHeader(State::Provisional, HeaderCopy::Second) => "write the second copy of the data header",
            Self::WriteHeader(State::Committed, HeaderCopy::First) => "commit the first copy of the data header",
            Self::WriteHeader(State::Committed, HeaderCopy::Second) => "commit the second copy of the data header",
            Self::MapVolume => "set up the block layers",
            Self::MakeFilesystem => "make the filesystem",
            Self::Mount => "mount the data partition",
            Self::PopulateData => "write the cluster's keys",
            Self::WriteAttempt => "write the attempt to join",
            Self::EraseAttempt => "erase the attempt to join",
            Self::WriteEsp(File::Seal) => "write the seal",
            Self::WriteEsp(File::Share) => "write the share",
            Self::WriteEsp(File::Directory) => "write the directory",
            Self::WriteEsp(File::Record) => "write the recovery record",
            Self::RaiseMinimum => "raise the seal's minimum",
            Self::RemoveConfig => "remove the enrolment config",
            Self::LoadKeys => "read the cluster's keys",
            Self::Cap => "cap the TPM",
        })
    }
}
