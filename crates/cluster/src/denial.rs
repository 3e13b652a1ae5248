//! Why a request is refused: one variant for each reason, in words for whoever asked. Nothing was changed then.

use std::net::Ipv4Addr;

use keys::endpoint::BadEndpoint;
use model::{Level, MachineId, NodeName, PublishId, UplinkPort, UserName};

use crate::members::MOST_COORDINATORS;
use crate::record::{MOST_OWNERS, MOST_PUBLISHED, MOST_REGISTRIES, MOST_USER_KEYS, MOST_USERS, Release};

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No cluster was created here yet.
    #[error("there is no cluster here yet")]
    NoCluster,
    /// Created before.
    #[error("there is a cluster here already")]
    ClusterExists,
    /// The cluster and the first machine that are to be created do not fit together.
    #[error("the first machine does not fit its cluster: {0}")]
    BadCreation(&'static str),
    /// The caller, or the owner of a config, is none.
    #[error("the cluster does not know this owner")]
    UnknownOwner,
    /// No such ticket.
    #[error("the cluster does not know this ticket")]
    UnknownTicket,
    /// The ticket's time is over.
    #[error("the ticket has expired")]
    TicketExpired,
    /// The ticket admitted as many machines as it may.
    #[error("the ticket is used up: it has admitted {0} of {0} machines")]
    TicketUsedUp(u32),
    /// The ticket was taken back.
    #[error("the ticket was revoked")]
    TicketRevoked,
    /// Another offer under the same key.
    #[error("there is a ticket with this key, and it says something else")]
    TicketDiffers,
    /// The ticket would admit no machine, or too many.
    #[error("a ticket admits 1 to {MOST_USES} machines, not {0}")]
    TicketUses(u32),
    /// The ticket would be expired from the start.
    #[error("the ticket would have expired before it is issued")]
    TicketNeverHolds,
    /// For one machine, with several uses.
    #[error("a ticket for one machine has one use")]
    TicketForOne,
    /// A control plane on a node.
    #[error("only a coordinator runs the Kubernetes control plane")]
    ControlPlaneOnNode,
    /// A control plane beside an etcd that decides nothing.
    #[error(
        "the machine keeps a copy of etcd without a vote, and a Kubernetes control plane writes to its own etcd: one more coordinator comes first"
    )]
    ControlPlaneWithoutVote,
    /// A cluster that has a control plane would have none.
    #[error("it is the last machine with the Kubernetes control plane: give that role to another coordinator first")]
    LastControlPlane,
    /// A control plane for whoever has the ticket.
    #[error(
        "a ticket that gives the Kubernetes control plane names its machine: without, the machine is a node until it is approved"
    )]
    ControlPlaneUnnamed,
    /// The machine's ticket is for another machine.
    #[error("the ticket is for another machine")]
    OtherMachine,
    /// Ticket and config call the machine differently.
    #[error("the ticket calls the machine {ticket}, and its config {config}")]
    OtherName {
        /// The machine's name by its ticket.
        ticket: NodeName,
        /// The machine's name by its config.
        config: NodeName,
    },
    /// Below policy.
    #[error("the machine's disk is {found}, and the cluster asks for {least} at least")]
    LevelTooLow {
        /// The machine's.
        found: Level,
        /// The policy's.
        least: Level,
    },
    /// Older than policy.
    #[error("the machine runs Cairn {found}, and the cluster asks for {least} at least")]
    ReleaseTooOld {
        /// The machine's.
        found: Release,
        /// The policy's.
        least: Release,
    },
    /// Somebody has the name.
    #[error("another machine is called {0}")]
    NameTaken(NodeName),
    /// No VPN address is left.
    #[error("all VPN addresses are given out")]
    AddressesExhausted,
    /// No pod prefix is left.
    #[error("all pod prefixes are given out: no more machine can be a Kubernetes worker")]
    PodsExhausted,
    /// The disk is or was another machine's.
    #[error("this disk is known as another machine's")]
    DiskSeen,
    /// The VPN key is or was another machine's.
    #[error("this VPN key is known as another machine's")]
    VpnKeySeen,
    /// The same machine with another disk, VPN key or level.
    #[error("the machine was admitted with another disk, VPN key or level")]
    OtherAttempt,
    /// The machine redeems a second ticket.
    #[error("the machine was admitted by another ticket")]
    OtherTicket,
    /// The machine is a member already.
    #[error("the machine is a member already")]
    AlreadyMember,
    /// The machine was removed.
    #[error("the machine was removed from the cluster")]
    MachineRemoved,
    /// No such machine.
    #[error("the cluster does not know this machine")]
    UnknownMachine,
    /// Names, or too many.
    #[error(transparent)]
    Endpoints(#[from] BadEndpoint),
    /// Not this machine's disk.
    #[error("this is not the machine's disk")]
    OtherDisk,
    /// A generation that the record does not hold.
    #[error("this disk has no key of generation {0}")]
    UnknownGeneration(u32),
    /// The machine's disk is in clear.
    #[error("the machine's disk is not encrypted: there is no key to rotate")]
    NothingLocked,
    /// The owner opens.
    #[error("the cluster's policy is that its owner opens it after a total power-off: there is no cold-start key")]
    ColdStartManual,
    /// Not an epoch that is held or being made, or not by this machine.
    #[error("the machine holds no share of a cold-start key of epoch {0}")]
    UnknownEpoch(u32),
    /// An epoch would stand by which somebody who votes would not be opened.
    #[error("{voter} votes and holds no share of the cold-start key of epoch {number}: another epoch begins first")]
    VoterWithoutShare {
        /// Voter without a share.
        voter: MachineId,
        /// The epoch.
        number: u32,
    },
    /// No epoch is left.
    #[error("there were as many epochs of the cold-start key as can be")]
    EpochsExhausted,
    /// Records that were just read show no member of etcd before the first look at them.
    #[error("etcd's members are not known here yet; ask again")]
    NoVoters,
    /// No generation is left.
    #[error("the disk's key was rotated as often as it can be")]
    GenerationsExhausted,
    /// The machine has not announced itself.
    #[error("the machine is admitted, and has not announced itself yet")]
    NotMember,
    /// The machine is on its way out.
    #[error("the machine is being drained")]
    MachineDraining,
    /// The machine is to be drained first.
    #[error("the machine is not drained; drain it first, or remove it as lost if it will not come back")]
    NotDrained,
    /// The machine holds a role that is to be taken first.
    #[error("the machine is still a coordinator; take that role away first")]
    StillCoordinator,
    /// The machine is no coordinator, and its etcd still is a member.
    #[error("the machine's etcd has not left yet; try again when it has")]
    StillLeaving,
    /// A control plane needs the coordinator's role.
    #[error("the machine runs the Kubernetes control plane; take that role away first")]
    StillControlPlane,
    /// The cluster would have nobody to decide.
    #[error("it is the last coordinator")]
    LastCoordinator,
    /// Others could not decide without it.
    #[error("without this coordinator too few would answer to decide anything")]
    WouldLoseQuorum,
    /// The coordinator's successor has not caught up.
    #[error("no other coordinator has caught up yet")]
    SuccessorBehind,
    /// Enough.
    #[error("a cluster has at most {MOST_COORDINATORS} coordinators")]
    CoordinatorsExhausted,
    /// Enough.
    #[error("a cluster has at most {MOST_OWNERS} owners")]
    OwnersExhausted,
    /// Enough.
    #[error("the cluster says something of {MOST_REGISTRIES} registries already; remove one first")]
    RegistriesExhausted,
    /// Too much for one word to a worker.
    #[error("the certificates of all registries together are too large; give fewer of them")]
    RegistriesTooLarge,
    /// Enough.
    #[error("the cluster has {MOST_PUBLISHED} rules that publish ports already; remove one first")]
    PublishedExhausted,
    /// Another rule opens the port of the same machine.
    #[error(
        "rule {rule} publishes {port} of the same machines already; remove that rule first, or name other machines"
    )]
    PortPublished {
        /// Port that both name.
        port: UplinkPort,
        /// Rule that has it.
        rule: PublishId,
    },
    /// A floating address that another rule has.
    #[error("{address} is of rule {rule} already: remove that first")]
    AddressPublished {
        /// Which address.
        address: Ipv4Addr,
        /// Which rule has it.
        rule: PublishId,
    },
    /// A floating address of the cluster's own.
    #[error("{0} is an address inside the cluster: take a free one of the machines' network")]
    AddressInside(Ipv4Addr),
    /// A floating address that a machine has for itself.
    #[error("{address} is the address of {machine}: take a free one of the machines' network")]
    AddressOfMachine {
        /// Which address.
        address: Ipv4Addr,
        /// Which machine has it.
        machine: NodeName,
    },
    /// A floating address for a machine that is not to hold it.
    #[error("no rule has machine {machine} hold {address}")]
    AddressNotPublished {
        /// Which address.
        address: Ipv4Addr,
        /// Which machine.
        machine: MachineId,
    },
    /// A snapshot on a machine that has no etcd to write it into.
    #[error("only a coordinator restores what Kubernetes keeps")]
    RestoreOnNode,
    /// The machine has the snapshot that is to be restored.
    #[error(
        "the machine restores what Kubernetes keeps, and nobody else has the snapshot; wait for its end, or order the restore at another \
         coordinator"
    )]
    StillRestores,
    /// Another snapshot is to be restored by now.
    #[error("another snapshot is to be restored by now")]
    OtherRestore,
    /// Without this owner nobody could ask for anything.
    #[error("it is the last owner, and without one nobody could ask the cluster for anything; add another owner first")]
    LastOwner,
    /// The same owner with another recovery key.
    #[error(
        "this owner is known with another recovery key; to give the owner this one, remove the owner and add them again"
    )]
    OtherRecoveryKey,
    /// Enough.
    #[error("a cluster has at most {MOST_USERS} users")]
    UsersExhausted,
    /// The same user with other keys or another end.
    #[error("there is a user {0} with other keys or another end; to change that, remove the user and add them again")]
    UserDiffers(UserName),
    /// No key, or too many.
    #[error("a user has 1 to {MOST_USER_KEYS} keys, not {0}")]
    UserKeys(usize),
    /// Another user has the key.
    #[error("user {0} has this key: a key tells one person from all others")]
    UserKeyTaken(UserName),
    /// An owner has the key.
    #[error("this is an owner's key, and an owner may do all that a user may")]
    UserIsOwner,
    /// The user would be expired from the start.
    #[error("the user would have expired before they are added")]
    UserNeverHolds,
}

/// More machines than one ticket ever needs to admit.
pub const MOST_USES: u32 = 10_000;
