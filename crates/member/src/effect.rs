//! Effects that a member's life asks for, and events that tell what became of them. No key is in either.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use cluster::backends::Backends;
use cluster::desired::Desired;
use cluster::epochs::ShareOrder;
use cluster::members::MemberStep;
use cluster::orders::Order;
use cluster::peers::News;
use cluster::restores::RestoreStep;
use cluster::state::StateVersion;
use cluster::{View, Word};
use keys::endpoint::Endpoint;
use model::{Assignment, MachineId, NodeName};

use crate::announcement::Announcement;
use crate::source::VpnPlace;

/// How etcd is started, as long as it has no data of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdStart {
    /// A cluster's first etcd.
    New,
    /// A further member beside those that there are.
    Existing {
        /// The other members, name and VPN address; none needed once etcd has begun.
        others: Vec<(NodeName, Ipv4Addr)>,
    },
    /// A lone member that goes on with the data, and takes all others out.
    Recovered,
}

/// Face of the machine: what its APIs show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// A node.
    Node,
    /// Still a coordinator in name; records and shares are given no more.
    Leaving,
    /// A coordinator with its certificate, its records and its shares.
    Coordinator,
}

/// KeptFile that is replaced durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptFile {
    /// Desired state of the machine.
    Desired(Box<Desired>),
    /// Other coordinators by the machine's own records, read while etcd had a leader.
    Electorate(BTreeSet<MachineId>),
    /// Peers as the mesh knows them.
    Peers,
}

/// Reason for which a share of the cold-start key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareReason {
    /// The epoch stands: its share has to lie on the ESP in each boot.
    Stands,
    /// The machine's cluster key rotates, and the share carries it.
    Rotates,
    /// The epoch is the next one, by records that a quorum keeps up.
    Next,
    /// The epoch is the next one, by the machine's own old copy.
    OwnCopy,
}

/// Request to the cluster's records that a coordinator makes of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnRequest {
    /// Begin another epoch of the cold-start key.
    BeginEpoch,
    /// Acknowledge the share of this epoch, which is durable on the ESP.
    AcknowledgeEpoch(u32),
    /// Write the first records of the cluster, which this machine created.
    Create,
    /// Have the machine's own record say what it runs, and that it is reached at these places.
    Announce(Vec<Endpoint>),
    /// Have the record of a machine name a place where that one is heard.
    Observe {
        /// The machine.
        machine: MachineId,
        /// The place.
        endpoint: Endpoint,
    },
    /// Acknowledge that nothing of a control plane runs here, for the sake of the restore of this snapshot on this machine.
    AcknowledgeRestore(MachineId, [u8; 32]),
    /// End the restore of the snapshot with this hash.
    EndRestore([u8; 32]),
}

/// Effect to be performed. One of a [`EffectKind`] is under way at a time; each may be done twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Listen to this coordinator, and to no other.
    Attend {
        /// The coordinator, by id and VPN address.
        coordinator: VpnPlace,
        /// Version of the peers that the machine knows; none asks for all.
        known: Option<StateVersion>,
    },
    /// Listen to nobody.
    Leave,
    /// Announce the machine to the coordinator that is attended.
    Announce(Announcement),
    /// Ask a further coordinator for its directory alone.
    AskDirectory(VpnPlace),
    /// Pass on the directory that a coordinator told; it is not believed yet.
    Directory {
        /// Coordinator that told it.
        by: MachineId,
        /// Bytes as they came.
        signed: Vec<u8>,
    },
    /// Tell the mesh.
    Mesh(News),
    /// Go by this part of what coordinators order.
    Order(Order),
    /// Replace a file.
    Keep(KeptFile),
    /// Note that etcd knows its users, and that no recovery is due: etcd comes as a further member.
    NoteJoin,
    /// Have this coordinator hand its keys over, and keep them.
    TakeKeys(VpnPlace),
    /// Look whether etcd has begun here.
    LookAtEtcd,
    /// Run what a coordinator runs, with an etcd started like this; or none of it. What is asked of an etcd then ends without a word:
    /// see [`EffectKind::asks_etcd`]. A recovery is noted as begun before its etcd starts.
    Units(Option<EtcdStart>),
    /// Run what the roles of Kubernetes want that are assigned, and nothing else of it; renew all certificates of services that are due.
    Kubernetes {
        /// Assignment with those roles; a control plane among them only where a coordinator's units run.
        assignment: Assignment,
        /// Coordinator that signs a worker's certificates, where they are not there or are due to be renewed; none where the machine
        /// does it itself.
        signer: Option<VpnPlace>,
    },
    /// Show the machine so.
    Face(Face),
    /// Have the share of an epoch lie durably on the ESP, and those go that it supersedes.
    WriteShare(ShareOrder, ShareReason),
    /// Tell which cluster key the next start takes, by its generation; none while no share carries it.
    TakesKey(Option<u32>),
    /// Read the copy of the records that the machine's own etcd has, unless the epochs in it are older than this revision.
    ReadOwnCopy {
        /// Revision of the copy that was read last.
        since: Option<u64>,
    },
    /// Ask the machine's own etcd whether it votes, once its users are made.
    AskVote,
    /// Read the records and keep the view of them up, which is told by [`Event::Records`]; ends when they are not kept up any more.
    KeepRecords,
    /// Have the records decide this.
    Decide(OwnRequest),
    /// Look at etcd's members, and show them in the view of the records.
    LookAtMembers,
    /// Change etcd's members by one, as they were at the last look.
    ChangeMember(MemberStep),
    /// Have another voter's etcd lead, as they were at the last look: this machine's refuses a step that is due.
    PassLead,
    /// Have the etcd of this member defragment its backend, and nothing else meanwhile.
    Defragment(MachineId),
    /// Take a step of the restore of the snapshot with this hash.
    Restore {
        /// Hash of the snapshot.
        hash: [u8; 32],
        /// Step of the restore.
        step: RestoreStep,
    },
    /// Remove the snapshot of an earlier restore, unless one is just being taken.
    DropSnapshot,
    /// Have etcd refuse the certificates of these machines, now and after the next start.
    Revoke(BTreeSet<MachineId>),
    /// Delete the oldest lines of the audit, if there are too many.
    TrimAudit,
    /// Erase the shares of the cold-start key.
    EraseShares,
    /// Erase a coordinator's keys, on DATA and in memory.
    EraseKeys,
    /// Erase etcd's notes, then its data.
    EraseEtcd,
    /// Erase etcd's notes, and put its data aside: another etcd is to begin in its place. The note of a recovery goes last.
    PutEtcdAside,
    /// Write the recovery into the records, then remove its note.
    CommitRecovery,
    /// Remove the note of a recovery that is not to be done.
    DropRecovery,
    /// Stop here: only an owner can go on, for this reason.
    NeedOwner(OwnerReason),
    /// Show this text of this part, or that it has nothing to say.
    Report(Part, Option<String>),
}

/// Part of a member's life that has something to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The coordinator role.
    Role,
    /// Word that the machine is a node, which too few coordinators say.
    Doubt,
    /// Coordinators that the machine listens to.
    Source,
    /// Files on the data partition.
    Keep,
    /// Copy of the records.
    Copy,
    /// Shares of the cold-start key.
    Shares,
    /// Kubernetes.
    Kubernetes,
    /// Restore for which the own control plane stands still.
    Restore,
    /// Duty of a coordinator that is done by effects of this kind.
    Duty(EffectKind),
}

/// Reason for which only an owner can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OwnerReason {
    /// The only coordinator has lost its keys.
    #[error(
        "this machine is the cluster's only coordinator, and its keys or etcd's data are not there; nothing was erased"
    )]
    Alone,
}

/// EffectKind of an effect that ends with [`Event::Done`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EffectKind {
    /// [`Effect::Announce`].
    Announce,
    /// [`Effect::AskDirectory`].
    AskDirectory,
    /// [`Effect::Keep`] of desired state or of the electorate.
    Keep,
    /// [`Effect::Keep`] of peers.
    KeepPeers,
    /// [`Effect::NoteJoin`].
    NoteJoin,
    /// [`Effect::TakeKeys`].
    TakeKeys,
    /// [`Effect::LookAtEtcd`].
    LookAtEtcd,
    /// [`Effect::Units`].
    Units,
    /// [`Effect::Kubernetes`].
    Kubernetes,
    /// [`Effect::Face`].
    Face,
    /// [`Effect::WriteShare`].
    WriteShare,
    /// [`Effect::ReadOwnCopy`].
    ReadOwnCopy,
    /// [`Effect::Decide`].
    Decide,
    /// [`Effect::AskVote`].
    AskVote,
    /// [`Effect::KeepRecords`].
    KeepRecords,
    /// [`Effect::LookAtMembers`].
    LookAtMembers,
    /// [`Effect::ChangeMember`], [`Effect::PassLead`].
    ChangeMember,
    /// [`Effect::Defragment`].
    Defragment,
    /// [`Effect::Restore`].
    Restore,
    /// [`Effect::DropSnapshot`].
    DropSnapshot,
    /// [`Effect::Revoke`].
    Revoke,
    /// [`Effect::TrimAudit`].
    TrimAudit,
    /// [`Effect::EraseShares`].
    EraseShares,
    /// [`Effect::EraseKeys`].
    EraseKeys,
    /// [`Effect::EraseEtcd`].
    EraseEtcd,
    /// [`Effect::PutEtcdAside`].
    PutEtcdAside,
    /// [`Effect::CommitRecovery`].
    CommitRecovery,
    /// [`Effect::DropRecovery`].
    DropRecovery,
}

impl EffectKind {
    /// Whether the effect is a step of the coordinator role.
    #[must_use]
    pub const fn is_of_the_role(&self) -> bool {
        !matches!(
            self,
            Self::Announce
                | Self::AskDirectory
                | Self::Keep
                | Self::KeepPeers
                | Self::WriteShare
                | Self::DropSnapshot
                | Self::Kubernetes
        ) && !self.asks_etcd()
    }

    /// Whether the effect asks the machine's etcd, or the records in it. Such effects end with [`Effect::Units`], and their ends are told
    /// no more.
    #[must_use]
    pub const fn asks_etcd(&self) -> bool {
        matches!(
            self,
            Self::ReadOwnCopy
                | Self::AskVote
                | Self::KeepRecords
                | Self::Decide
                | Self::LookAtMembers
                | Self::ChangeMember
                | Self::Defragment
                | Self::Restore
                | Self::Revoke
                | Self::TrimAudit
        )
    }
}

impl Effect {
    /// EffectKind under which the effect ends; none where it has no end.
    #[must_use]
    pub const fn kind(&self) -> Option<EffectKind> {
        Some(match self {
            Self::Announce(_) => EffectKind::Announce,
            Self::AskDirectory(_) => EffectKind::AskDirectory,
            Self::Keep(KeptFile::Desired(_) | KeptFile::Electorate(_)) => EffectKind::Keep,
            Self::Keep(KeptFile::Peers) => EffectKind::KeepPeers,
            Self::NoteJoin => EffectKind::NoteJoin,
            Self::TakeKeys(_) => EffectKind::TakeKeys,
            Self::LookAtEtcd => EffectKind::LookAtEtcd,
            Self::Units(_) => EffectKind::Units,
            Self::Kubernetes { .. } => EffectKind::Kubernetes,
            Self::Face(_) => EffectKind::Face,
            Self::WriteShare(..) => EffectKind::WriteShare,
            Self::ReadOwnCopy { .. } => EffectKind::ReadOwnCopy,
            Self::Decide(_) => EffectKind::Decide,
            Self::AskVote => EffectKind::AskVote,
            Self::KeepRecords => EffectKind::KeepRecords,
            Self::LookAtMembers => EffectKind::LookAtMembers,
            Self::ChangeMember(_) | Self::PassLead => EffectKind::ChangeMember,
            Self::Defragment(_) => EffectKind::Defragment,
            Self::Restore { .. } => EffectKind::Restore,
            Self::DropSnapshot => EffectKind::DropSnapshot,
            Self::Revoke(_) => EffectKind::Revoke,
            Self::TrimAudit => EffectKind::TrimAudit,
            Self::EraseShares => EffectKind::EraseShares,
            Self::EraseKeys => EffectKind::EraseKeys,
            Self::EraseEtcd => EffectKind::EraseEtcd,
            Self::PutEtcdAside => EffectKind::PutEtcdAside,
            Self::CommitRecovery => EffectKind::CommitRecovery,
            Self::DropRecovery => EffectKind::DropRecovery,
            Self::Attend { .. }
            | Self::Leave
            | Self::Directory { .. }
            | Self::Mesh(_)
            | Self::Order(_)
            | Self::TakesKey(_)
            | Self::NeedOwner(_)
            | Self::Report(..) => return None,
        })
    }
}

/// Event that a member's life goes on by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Word of a coordinator.
    Told {
        /// Coordinator that speaks.
        by: MachineId,
        /// The word.
        word: Word,
    },
    /// The connection to a coordinator that was attended has ended.
    Left {
        /// Coordinator that is gone.
        by: MachineId,
        /// Reason, for people.
        why: String,
        /// Whether the coordinator may have a leader, since it answered that it does not know yet, or that this machine does not belong.
        may_lead: bool,
    },
    /// State of the machine's own records.
    Records(OwnRecords),
    /// Places where the machine is reached now.
    Endpoints(Vec<Endpoint>),
    /// Directory that lies on the ESP.
    Directory {
        /// Version of the state that it is of.
        at: StateVersion,
        /// Coordinators that it names, as far as their VPN addresses are known.
        coordinators: Vec<VpnPlace>,
    },
    /// Machines that are heard where their records do not name them, since this was told last.
    Learnt(BTreeMap<MachineId, Endpoint>),
    /// Coordinators whose directory should be heard, too.
    Missing(BTreeSet<MachineId>),
    /// An owner has noted that the cluster is to be recovered with this machine.
    Recover,
    /// An owner says at the machine itself that what is left of a coordinator is to be erased.
    Erase,
    /// Certificates of the machine's services are to be renewed; told again until that is done.
    Renew,
    /// End of an effect.
    Done(EffectKind, Result<EffectOutcome, String>),
    /// A deadline may have come.
    Tick,
}

/// State of the machine's own records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnRecords {
    /// Not kept up by a quorum.
    Lost,
    /// Kept up by a quorum.
    Kept {
        /// Desired state of the machine itself; none before etcd's members were looked at, or where its record does not belong.
        desired: Option<Box<Desired>>,
        /// Version of the peers that the mesh was told of by them.
        peers: Option<StateVersion>,
    },
}

/// EffectOutcome of an effect that was performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectOutcome {
    /// Performed.
    Whole,
    /// The coordinator asks for it later.
    PutOff,
    /// Whether etcd has begun.
    Begun(bool),
    /// Own copy of the records, however old.
    OwnCopy(Box<View>),
    /// Whether the machine's own etcd votes.
    Votes(bool),
    /// Backends of the members that were looked at, where the machine's own etcd leads them.
    Leads(Option<Backends>),
    /// Objects in etcd differed from the snapshot, and are replaced.
    Differed,
    /// etcd did not take the change of its members, or others have it defragment one.
    Refused,
}
