//! Everything that can be asked of a cluster's state. Who asks was proved before: an owner by certificate, a machine by its
//! key, the holder of a ticket by [`Redeem`].

use std::collections::BTreeSet;

use keys::endpoint::Endpoint;
use keys::identity::machine_id;
use model::{
    ClusterRole, DiskUuid, KubernetesRole, Level, MachineId, MachinePubKey, NodeName, OwnerPubKey, TicketId,
    TicketPubKey,
};

use crate::record::{Cluster, Machine, Owner, Release, UnixSeconds};
use crate::redeem::Redeem;
use crate::role::AnyRole;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first machine writes the cluster that it created.
    Create(Box<Creation>),
    /// An owner asks for something.
    Owner {
        /// Who.
        by: OwnerPubKey,
        /// For what.
        asks: Asks,
    },
    /// A machine redeems a ticket.
    Redeem(Box<Redeem>),
    /// A machine has begun to live as a member, or tells anew what it runs and where it may be reached.
    Announce {
        /// Who, by the key that its connection proved.
        machine: MachinePubKey,
        /// What it runs.
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
    /// A machine asks for its cluster key.
    ReleaseKey {
        /// Who, by the key that its connection proved.
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
        /// Who, by the key that its connection proved.
        machine: MachinePubKey,
        /// The epoch's number.
        number: u32,
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
            | Self::AcknowledgeEpoch { machine, .. } => Some(machine_id(&machine.0)),
            Self::Create(_) | Self::Owner { .. } | Self::Observe { .. } | Self::BeginEpoch => None,
        }
    }
}

/// What the first machine writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// The cluster. Its cursors stand behind the machine's address and pods.
    pub cluster: Cluster,
    /// The first machine.
    pub machine: Machine,
}

/// What owners ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// A ticket whose key they drew.
    IssueTicket(Offer),
    /// That a ticket admits nobody any more.
    RevokeTicket(TicketId),
    /// That a machine gets a role.
    AddRole(MachineId, AnyRole),
    /// That a machine loses a role.
    RemoveRole(MachineId, AnyRole),
    /// That a machine is to leave.
    Drain(MachineId),
    /// That the cluster goes on with this coordinator alone, whose copy of etcd is all that is left of it.
    Recover(MachineId),
    /// That a machine is of the cluster no longer.
    Remove(MachineId, Leaving),
    /// That a machine's disk is closed with the next cluster key.
    RotateKey(MachineId),
    /// One owner more.
    AddOwner(Owner),
    /// One owner less.
    RemoveOwner(OwnerPubKey),
}

/// What a ticket is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The ticket's public key.
    pub key: TicketPubKey,
    /// How many machines it may admit.
    pub uses: u32,
    /// From when on it admits nobody.
    pub not_after: UnixSeconds,
    /// What the machines become; coordinators, where no machine is named, once an owner has approved each.
    pub role: ClusterRole,
    /// What they do for Kubernetes.
    pub kubernetes: BTreeSet<KubernetesRole>,
    /// The one machine that it is for.
    pub machine: Option<MachinePubKey>,
    /// What that machine is called.
    pub node_name: Option<NodeName>,
}

/// How a machine leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It was drained, and its roles were taken away.
    Drained,
    /// It will not come back: what it held is taken away as it is.
    Lost,
}
