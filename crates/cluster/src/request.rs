//! Everything that can be asked of a cluster's state. Who asks was proved before: an owner by certificate, a machine by its
//! key, the holder of a ticket by [`RedeemRequest`].

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use keys::endpoint::Endpoint;
use keys::identity::machine_id;
use model::{
    ClusterRole, DiskUuid, KubernetesRole, Level, MachineId, MachinePubKey, NodeName, OwnerPubKey, PublishId,
    RegistryHost, TicketId, TicketPubKey, UserName,
};

use crate::record::{
    Cluster, MachineRecord, OwnerRecord, PublishTerms, RegistryRecord, Release, UnixSeconds, UserTerms,
};
use crate::redeem::RedeemRequest;
use crate::role::AnyRole;

/// A request to a cluster: anything that can be asked of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first machine writes the cluster that it created.
    Create(Box<FirstRecords>),
    /// An owner asks for something.
    Owner {
        /// The owner who asks.
        by: OwnerPubKey,
        /// The wish of the owner.
        asks: Asks,
    },
    /// A machine redeems a ticket.
    Redeem(Box<RedeemRequest>),
    /// A machine has begun to live as a member, or tells anew what it runs and where it may be reached.
    Announce {
        /// The machine, by the key that its connection proved.
        machine: MachinePubKey,
        /// The release that the machine runs.
        release: Release,
        /// Where it may be reached.
        endpoints: Vec<Endpoint>,
        /// Which cluster key its disk is locked with: while that rotates, this is what ends it.
        generation: u32,
    },
    /// A coordinator hears a machine at a place that its record does not name.
    Observe {
        /// Which machine.
        machine: MachineId,
        /// Where.
        endpoint: Endpoint,
    },
    /// A coordinator has another machine hold a floating address, which that takes once the one before has let go of it.
    Hold {
        /// Which address.
        address: Ipv4Addr,
        /// Which machine.
        machine: MachineId,
    },
    /// A machine asks for its cluster key.
    ReleaseKey {
        /// The machine, by the key that its connection proved.
        machine: MachinePubKey,
        /// The disk that is to be opened.
        disk: DiskUuid,
        /// Which key it was closed with.
        generation: u32,
        /// How it is protected.
        level: Level,
    },
    /// A coordinator sees other voters than hold the cold-start key.
    BeginEpoch,
    /// A voter has its share of an epoch of the cold-start key on its ESP.
    AcknowledgeEpoch {
        /// The machine, by the key that its connection proved.
        machine: MachinePubKey,
        /// The epoch's number.
        number: u32,
    },
    /// A machine has stopped its control plane, for the sake of a restore.
    AcknowledgeRestore {
        /// The machine, by the key that its connection proved.
        machine: MachinePubKey,
    },
    /// A machine has restored the snapshot with this hash.
    EndRestore {
        /// The machine, by the key that its connection proved.
        machine: MachinePubKey,
        /// Hash of the snapshot.
        hash: [u8; 32],
    },
}

impl Request {
    /// The machine at whose asking it is decided, by the key that its connection proved; none for what owners and coordinators ask.
    #[must_use]
    pub fn machine(&self) -> Option<MachineId> {
        match self {
            Self::Redeem(redeem) => Some(machine_id(&redeem.machine().0)),
            Self::Announce { machine, .. }
            | Self::ReleaseKey { machine, .. }
            | Self::AcknowledgeEpoch { machine, .. }
            | Self::AcknowledgeRestore { machine }
            | Self::EndRestore { machine, .. } => Some(machine_id(&machine.0)),
            Self::Create(_) | Self::Owner { .. } | Self::Observe { .. } | Self::Hold { .. } | Self::BeginEpoch => None,
        }
    }
}

/// Records that the first machine writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstRecords {
    /// The cluster. Its cursors stand behind the machine's address and pods.
    pub cluster: Cluster,
    /// The first machine.
    pub machine: MachineRecord,
}

/// A wish of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// Issue a ticket whose key the owner drew.
    IssueTicket(Offer),
    /// Let a ticket admit no machine any more.
    RevokeTicket(TicketId),
    /// Give a machine a role.
    AddRole(MachineId, AnyRole),
    /// Take a role from a machine.
    RemoveRole(MachineId, AnyRole),
    /// Have a machine leave.
    Drain(MachineId),
    /// Let the cluster go on with this coordinator alone, whose copy of etcd is all that is left of it.
    Recover(MachineId),
    /// Remove a machine from the cluster.
    Remove(MachineId, Removal),
    /// Close a machine's disk with the next cluster key.
    RotateKey(MachineId),
    /// Add an owner.
    AddOwner(OwnerRecord),
    /// Remove an owner.
    RemoveOwner(OwnerPubKey),
    /// Say how images of a registry are pulled, in place of what was said before.
    SetRegistry(Box<RegistryRecord>),
    /// Say nothing of a registry.
    RemoveRegistry(RegistryHost),
    /// Let a person use Kubernetes.
    AddUser(UserTerms),
    /// Let a person use Kubernetes no more.
    RemoveUser(UserName),
    /// Publish ports.
    Publish(Box<PublishTerms>),
    /// Publish no ports by this rule any more.
    Unpublish(PublishId),
    /// Have a coordinator restore the snapshot of Kubernetes' objects that it has, by its hash.
    Restore(MachineId, [u8; 32]),
}

/// Terms of a ticket that an owner asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The ticket's public key.
    pub key: TicketPubKey,
    /// How many machines it may admit.
    pub uses: u32,
    /// From when on it admits nobody.
    pub not_after: UnixSeconds,
    /// The role that the machines get; coordinator, where no machine is named, once an owner has approved each.
    pub role: ClusterRole,
    /// The roles that the machines get in Kubernetes.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// The one machine that it is for.
    pub machine: Option<MachinePubKey>,
    /// The name that the one machine gets.
    pub node_name: Option<NodeName>,
}

/// How a machine leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The machine was drained, and its roles were taken away.
    Drained,
    /// The machine will not come back: what it held is taken away as it is.
    Lost,
}
