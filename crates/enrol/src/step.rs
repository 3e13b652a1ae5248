//! Effects of a plan, and steps: the kind of each effect, in words for people.

use std::fmt;

use cluster::desired::Desired;
use cluster::peers::PeerBook;
use keys::coordinator::CoordinatorKeys;
use keys::data_key::{Holder, Volume};
use keys::header::{HEADER_BYTES, Header, HeaderState};
use keys::two_slot::File;
use model::{DiskUuid, FirstContact, VpnPrivKey};
use zeroize::Zeroizing;

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
        state: HeaderState,
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
    /// Write what a machine that joins made for itself, over a slot of the seal's file, sync: before it asks for anything.
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
    /// Overwrite one slot of a file in place, sync.
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
    /// Contents for a cluster's first machine.
    Created {
        /// Desired state of the machine, told by nobody yet.
        desired: Desired,
        /// The machine's key in the VPN.
        vpn_key: VpnPrivKey,
        /// Until the owner's first authenticated call.
        first_contact: FirstContact,
        /// The keys of the new cluster.
        keys: CoordinatorKeys,
    },
    /// Contents for a machine that joined.
    Joined {
        /// Desired state of the machine, as the cluster's answer says it.
        desired: Desired,
        /// The machine's key in the VPN.
        vpn_key: VpnPrivKey,
        /// Peers that the machine exchanges packets with first.
        peers: PeerBook,
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
    WriteHeader(HeaderState, HeaderCopy),
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
            Self::WriteHeader(HeaderState::Provisional, HeaderCopy::First) => "write the first copy of the data header",
            Self::WriteHeader(HeaderState::Provisional, HeaderCopy::Second) => {
                "write the second copy of the data header"
            }
            Self::WriteHeader(HeaderState::Committed, HeaderCopy::First) => "commit the first copy of the data header",
            Self::WriteHeader(HeaderState::Committed, HeaderCopy::Second) => {
                "commit the second copy of the data header"
            }
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
