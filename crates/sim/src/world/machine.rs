//! A machine of a world: what lies on its disk, what runs in this boot, and the life that reconciles the two with what the cluster
//! says. A boot without its key, and a machine that is not let in yet, are closed: they ask for that alone.

use std::collections::{BTreeMap, BTreeSet};

use cluster::desired::Desired;
use cluster::peers::PeerBook;
use cluster::record::Standing;
use cluster::redeem::RedeemRequest;
use member::{EffectKind, EtcdStart, Face, Life, RecoveryNote, RoleFacts};
use model::{ClusterRole, MachineId};

use super::kubernetes::Kubernetes;
use super::listen::Stream;
use crate::laws::life::Voices;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    Off,
    On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cable {
    Cut,
    Whole,
}

/// Claim of a machine about itself that is not so.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lie {
    None,
    Disk(u16),
    VpnKey(u16),
    Level,
}

/// Files on a machine's disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Desired state; none before the cluster has let the machine in.
    pub(super) desired: Option<Desired>,
    pub(super) electorate: Option<BTreeSet<MachineId>>,
    pub(super) peers: PeerBook,
    /// Whether a coordinator's keys are there.
    pub(super) keys: bool,
    /// Number of the member of etcd whose data lies here; none while there is none.
    pub(super) etcd: Option<u64>,
    /// Note of a recovery.
    pub(super) note: Option<Note>,
    /// Whether etcd's data has taken all other members out, which the records do not count yet.
    pub(super) alone: bool,
}

/// Note that the cluster is to go on with this machine alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    /// Boot in which it was written.
    pub(super) boot: u64,
    /// Recoveries that the records counted then.
    pub(super) recoveries: u64,
    /// Whether etcd was started for it, or may have been.
    pub(super) begun: bool,
}

/// Units of a coordinator that run.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) plan: EtcdStart,
    /// Whether its etcd votes and has a leader.
    pub(super) led: bool,
    /// Time at which the units were started.
    pub(super) since: u64,
}

/// Life of a machine whose data is open.
#[derive(Debug)]
pub(super) struct Living {
    pub(super) life: Life,
    /// Number of this life: what an earlier one has begun is over.
    pub(super) number: u64,
    /// Time at which it is woken next.
    pub(super) wakes: Option<u64>,
    pub(super) stream: Option<Stream>,
    /// When each coordinator was asked last.
    pub(super) asked: BTreeMap<MachineId, u64>,
    /// Step of the role that is under way.
    pub(super) step: Option<EffectKind>,
    /// How often other units were to run: what an etcd was asked before is not answered any more.
    pub(super) units: u64,
}

/// Words that a machine has heard in its life, as the laws count them.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Coordinators that said Node, and did not take it back, since the machine took a word that says Coordinator. When that word comes to
    /// be kept says nothing: others may have said Node while it was written.
    pub(super) nodes: BTreeSet<MachineId>,
    /// Whether the machine's own records, or an owner, said so.
    pub(super) itself: bool,
    /// Coordinators that knew less than the machine since it was told something that it took.
    pub(super) behind: BTreeSet<MachineId>,
    /// Whether it may go on as a node, since it does not know yet that it has kept something else.
    pub(super) unsure: bool,
}

impl Heard {
    /// The machine took a word that says Coordinator: what was said before is over.
    pub(super) fn coordinates(&mut self) {
        self.nodes.clear();
        self.itself = false;
    }
}

pub(super) struct Machine {
    /// Whether it was told no for good.
    pub(super) refused: bool,
    pub(super) power: Power,
    pub(super) cable: Cable,
    /// Number of this boot.
    pub(super) boot: u64,
    pub(super) disk: Disk,
    pub(super) running: Option<Running>,
    pub(super) kubernetes: Kubernetes,
    pub(super) face: Option<Face>,
    pub(super) living: Option<Living>,
    pub(super) heard: Heard,
    /// Time since when it hears a coordinator.
    pub(super) reached_since: u64,
    pub(super) ticket: u16,
    pub(super) tries: u32,
    /// Whether its next question is on the agenda.
    pub(super) asks: bool,
    /// Claim about itself that is not so.
    pub(super) lies: Lie,
    /// Request to join, made and verified once: that costs more than the rest of its life here.
    pub(super) redeem: Option<Box<RedeemRequest>>,
    /// Generation of the cluster key that its disk is locked with.
    pub(super) locked_with: u32,
    /// Peers that its mesh knows.
    pub(super) known: PeerBook,
}

impl Machine {
    pub(super) fn new(ticket: u16, lies: Lie) -> Self {
        Self {
            refused: false,
            power: Power::On,
            cable: Cable::Whole,
            boot: 0,
            disk: Disk::default(),
            running: None,
            kubernetes: Kubernetes::default(),
            face: None,
            living: None,
            heard: Heard::default(),
            reached_since: 0,
            ticket,
            tries: 0,
            asks: false,
            lies,
            redeem: None,
            locked_with: 1,
            known: PeerBook::default(),
        }
    }

    /// Whether it has announced itself, as far as it knows.
    pub(super) fn is_member(&self) -> bool {
        !self.refused && self.disk.desired.as_ref().is_some_and(|desired| desired.standing != Standing::Admitted)
    }

    /// Number of the disk that it says to have, by its own number.
    pub(super) const fn disk_of(&self, n: u16) -> u16 {
        match self.lies {
            Lie::Disk(of) => of,
            Lie::None | Lie::VpnKey(_) | Lie::Level => n,
        }
    }

    /// Whether it is on, and its cable whole.
    pub(super) fn is_reached(&self) -> bool {
        (self.power, self.cable) == (Power::On, Cable::Whole)
    }

    /// Whether its etcd has a leader, and others reach it.
    pub(super) fn leads(&self) -> bool {
        self.is_reached() && self.running.as_ref().is_some_and(|running| running.led)
    }

    /// Whether it is a coordinator by the desired state that it keeps.
    pub(super) fn coordinates(&self) -> bool {
        self.disk.desired.as_ref().is_some_and(|desired| desired.assignment.role() == ClusterRole::Coordinator)
    }

    /// Voices that say of it that it is a node.
    pub(super) fn voices(&self) -> Voices {
        match &self.disk.electorate {
            Some(electorate) if !self.heard.itself => {
                Voices::Others { said: self.heard.nodes.intersection(electorate).count(), of: electorate.len() }
            }
            Some(_) | None => Voices::Itself,
        }
    }

    /// Facts of its role that a start reads.
    pub(super) fn found(&self) -> RoleFacts {
        RoleFacts {
            keys: self.disk.keys,
            begun: self.disk.etcd.is_some(),
            recovery: self.disk.note.map(|note| if note.begun { RecoveryNote::Begun } else { RecoveryNote::Ordered }),
            running: self.running.as_ref().map(|running| running.plan.clone()),
        }
    }

    /// Stream that it listens to, by its number.
    pub(super) fn stream(&mut self, number: u64) -> Option<&mut Stream> {
        self.living.as_mut()?.stream.as_mut().filter(|stream| stream.number == number)
    }
}
