//! World for tests: the disk of one machine, its units, and the effects that it performs. Machine 1 is the one whose life it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use cluster::backends::Backends;
use cluster::desired::{Desired, DesiredShares, EtcdPart, KnownCoordinator};
use cluster::epochs::ShareOrder;
use cluster::key::Key;
use cluster::members::{Look, Members, Voter};
use cluster::record::{ChangeCount, ColdStartEpochs, Generations, MachineRecord, Standing};
use cluster::restores::RestoreStep;
use cluster::state::{KeyValue, StateVersion};
use cluster::{View, Word};
use model::{
    Assignment, ClusterRole, ColdStart, DiskUuid, KubernetesRole, Level, MachineId, MachinePubKey, NodeName,
    POD_PREFIX, Prefixes, SERVICE_PREFIX, Uuid, VPN_PREFIX, VpnPubKey,
};
use sim::cast;

use crate::{
    Announcement, Effect, EffectKind, EffectOutcome, EtcdStart, Event, Face, KeptFile, Life, LifeFacts, OwnRecords,
    OwnRequest, RecoveryNote, RoleFacts,
};

pub(crate) fn id(n: u8) -> MachineId {
    keys::identity::machine_id(&[n; 32])
}

pub(crate) fn ids(of: &[u8]) -> BTreeSet<MachineId> {
    of.iter().copied().map(id).collect()
}

fn vpn_ip(n: u8) -> Ipv4Addr {
    VPN_PREFIX.nth(n.into()).expect("an address")
}

pub(crate) fn member(n: u8) -> (NodeName, Ipv4Addr) {
    (NodeName::derived(id(n)), vpn_ip(n))
}

pub(crate) const fn version(revision: u64) -> Option<StateVersion> {
    Some(StateVersion { recoveries: 0, revision })
}

/// Look at etcd's members behind a revision.
pub(crate) const fn look(revision: u64) -> Look {
    Look { revision, applied: revision }
}

/// Desired state of machine 1 as of a revision, in a cluster of these coordinators.
pub(crate) fn desired(revision: u64, role: ClusterRole, coordinators: &[u8]) -> Desired {
    let coordinator = |n: &u8| {
        let (name, vpn_ip) = member(*n);
        (id(*n), KnownCoordinator { name, vpn_ip, votes: true, control_plane: false })
    };
    Desired {
        at: version(revision),
        look: Some(look(revision)),
        standing: Standing::Member,
        assignment: Assignment::new(vpn_ip(1), role, [].into(), None).expect("they fit"),
        prefixes: Prefixes { vpn: VPN_PREFIX, pods: POD_PREFIX, services: SERVICE_PREFIX },
        coordinators: coordinators.iter().map(coordinator).collect(),
        etcd: if role == ClusterRole::Coordinator { EtcdPart::Voter } else { EtcdPart::Out },
        shares: DesiredShares::default(),
        owners: vec![cast::owner(1)],
        level: Level::Encrypted,
        cold_start: ColdStart::Automatic,
    }
}

/// The same of a machine that runs pods, and a control plane where it coordinates.
pub(crate) fn works(mut desired: Desired) -> Desired {
    let assignment = desired.assignment;
    let roles = KubernetesRole::ALL.iter().copied();
    let roles = roles.filter(|role| assignment.role() == ClusterRole::Coordinator || *role == KubernetesRole::Worker);
    desired.assignment =
        Assignment::new(assignment.vpn_ip(), assignment.role(), roles.collect(), Some(model::pod_prefix(1)))
            .expect("they fit");
    desired
}

/// The same, of a machine that etcd has added beside these.
pub(crate) fn learner(revision: u64, members: &[u8]) -> Desired {
    let members: Vec<_> = members.iter().chain(&[1]).map(|n| member(*n)).collect();
    Desired { etcd: EtcdPart::Learner { members }, ..desired(revision, ClusterRole::Coordinator, &[1, 2, 3]) }
}

/// Coordinator number `n`, with its generations of the cluster key.
fn machine(n: u8, generations: Generations) -> MachineRecord {
    let (key, (name, vpn_ip)) = (MachinePubKey([n; 32]), member(n));
    let (vpn_key, disk) = (VpnPubKey([n; 32]), DiskUuid(Uuid([n; 16])));
    let first = cast::creation(VPN_PREFIX).machine;
    MachineRecord { key, name, vpn_ip, vpn_key, disk, generations, pods: None, kubernetes: [].into(), ..first }
}

/// Records of one revision, of a cluster of these coordinators, all of which vote; `generations` are those of machine 1.
pub(crate) fn view(revision: u64, coordinators: &[u8], epochs: &ColdStartEpochs, generations: Generations) -> View {
    let cluster = cast::creation(VPN_PREFIX).cluster;
    let put = |key: Key, value| KeyValue { key: key.bytes(), value, mod_revision: revision };
    let machines = coordinators.iter().map(|n| {
        let machine = machine(*n, if *n == 1 { generations } else { Generations::One(1) });
        put(Key::Machine(machine.id()), machine.encode())
    });
    let records = [
        put(Key::Version, ChangeCount(revision).encode()),
        put(Key::Cluster, cluster.encode()),
        put(Key::ColdStart, epochs.encode()),
    ];
    let mut view = View::read(records.into_iter().chain(machines), revision).expect("our own");
    let voters = coordinators.iter().map(|n| (id(*n), Voter::Live)).collect();
    view.see(Members { voters, ..Members::default() }, look(revision));
    view
}

/// Disk, units and face of one machine.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) kept: Desired,
    pub(crate) electorate: Option<BTreeSet<MachineId>>,
    pub(crate) keys: bool,
    pub(crate) shares: bool,
    /// Whether etcd has a log of its own.
    pub(crate) begun: bool,
    pub(crate) note: Option<RecoveryNote>,
    pub(crate) units: Option<EtcdStart>,
    /// Assignment of which Kubernetes runs.
    pub(crate) kubernetes: Option<Assignment>,
    pub(crate) face: Option<Face>,
    pub(crate) life: Option<Life>,
    /// The machine's own records, as they were seen since its units were started.
    pub(crate) view: Option<View>,
    /// Copy of them in the machine's own etcd.
    pub(crate) own_copy: Option<View>,
    /// Whether the machine's etcd votes.
    pub(crate) votes: bool,
    /// Whether the machine's etcd leads.
    pub(crate) leads: bool,
    /// Backends of etcd's members, where it does.
    pub(crate) backends: Backends,
    /// Whether the machine's etcd refuses to change its members.
    pub(crate) refuses: bool,
    /// Whether what Kubernetes keeps differs from the snapshot that is restored.
    pub(crate) differs: bool,
    /// Shares on the ESP that were written in these tests.
    pub(crate) esp: Vec<ShareOrder>,
    /// Effects that were asked for and not performed.
    pub(crate) queue: Vec<Effect>,
    /// All that was performed since [`Self::past`] was asked.
    performed: Vec<Effect>,
    /// Whether etcd begins as soon as it runs.
    pub(crate) etcd_begins: bool,
}

impl World {
    /// A machine that is off.
    pub(crate) fn new(kept: Desired) -> Self {
        Self {
            now: testkit::origin(),
            kept,
            electorate: None,
            keys: false,
            shares: false,
            begun: false,
            note: None,
            units: None,
            kubernetes: None,
            face: None,
            life: None,
            view: None,
            own_copy: None,
            votes: true,
            leads: false,
            backends: Backends::default(),
            refuses: false,
            differs: false,
            esp: Vec::new(),
            queue: Vec::new(),
            performed: Vec::new(),
            etcd_begins: true,
        }
    }

    /// A coordinator beside 2 and 3, that is off.
    pub(crate) fn coordinator() -> Self {
        let mut world = Self::new(desired(10, ClusterRole::Coordinator, &[1, 2, 3]));
        (world.keys, world.shares, world.begun) = (true, true, true);
        world.electorate = Some(ids(&[2, 3]));
        world
    }

    /// A node that is off.
    pub(crate) fn node() -> Self {
        Self::new(desired(10, ClusterRole::Node, &[2, 3]))
    }

    /// Begins a life from what lies there.
    pub(crate) fn start(&mut self) -> &mut Self {
        let found = LifeFacts {
            own: id(1),
            desired: self.kept.clone(),
            peers: None,
            electorate: self.electorate.clone(),
            announcement: Announcement::default(),
            role: RoleFacts { keys: self.keys, begun: self.begun, recovery: self.note, running: self.units.clone() },
            kubernetes: self.kubernetes.clone(),
        };
        self.queue.clear();
        self.life = Some(Life::start(found, self.now, &mut self.queue));
        self
    }

    /// Ends the boot: what ran is gone.
    pub(crate) fn cut(&mut self) -> &mut Self {
        (self.life, self.units, self.kubernetes, self.face, self.view) = (None, None, None, None, None);
        self.queue.clear();
        self
    }

    pub(crate) fn handle(&mut self, event: Event) -> &mut Self {
        self.life.as_mut().expect("it lives").handle(event, self.view.as_ref(), self.now, &mut self.queue);
        self
    }

    /// Shows these records, which a quorum keeps up.
    pub(crate) fn sees(&mut self, view: View) -> &mut Self {
        let peers = view.state().version().map(|_| view.state().state_version());
        self.view = Some(view);
        self.handle(Event::Records(OwnRecords::Kept { desired: None, peers }))
    }

    /// Performs what was asked for until nothing more is.
    pub(crate) fn settle(&mut self) -> &mut Self {
        while !self.queue.is_empty() {
            let effect = self.queue.remove(0);
            if let Some((kind, outcome)) = self.perform(effect) {
                self.handle(Event::Done(kind, Ok(outcome)));
            }
        }
        self
    }

    /// Has the effect of this kind, which is asked for, fail.
    pub(crate) fn fails(&mut self, kind: EffectKind) -> &mut Self {
        let at = self.queue.iter().position(|effect| effect.kind() == Some(kind)).expect("it is asked for");
        self.queue.remove(at);
        self.handle(Event::Done(kind, Err(String::from("fails"))))
    }

    /// Performs one effect; its end, if it has one.
    pub(crate) fn perform(&mut self, effect: Effect) -> Option<(EffectKind, EffectOutcome)> {
        let mut outcome = EffectOutcome::Whole;
        match &effect {
            Effect::Keep(KeptFile::Desired(desired)) => self.kept = (**desired).clone(),
            Effect::Keep(KeptFile::Electorate(electorate)) => self.electorate = Some(electorate.clone()),
            Effect::NoteJoin | Effect::CommitRecovery | Effect::DropRecovery => self.note = None,
            Effect::TakeKeys(_) => self.keys = true,
            Effect::LookAtEtcd => outcome = EffectOutcome::Begun(self.begun),
            Effect::Units(plan) => {
                assert!(plan.is_none() || self.keys, "units without keys: {effect:?}");
                self.units.clone_from(plan);
                if *plan == Some(EtcdStart::Recovered) {
                    self.note = Some(RecoveryNote::Begun);
                }
                self.view = None;
                self.begun |= plan.is_some() && self.etcd_begins;
                self.shares |= plan.is_some();
            }
            Effect::Kubernetes { assignment, .. } => self.kubernetes = Some(assignment.clone()),
            Effect::Face(face) => self.face = Some(*face),
            Effect::EraseShares => {
                assert_eq!(self.units, None, "units run");
                self.shares = false;
                self.esp.clear();
            }
            Effect::EraseKeys => {
                assert_eq!(self.units, None, "units run");
                self.keys = false;
            }
            Effect::EraseEtcd | Effect::PutEtcdAside => {
                assert_eq!(self.units, None, "units run");
                (self.begun, self.note, self.electorate) = (false, None, None);
            }
            Effect::WriteShare(holding, _) => {
                assert!(self.keys, "a share is made of the master secret");
                self.esp.push(holding.clone());
            }
            Effect::Decide(OwnRequest::AcknowledgeEpoch(number)) => {
                assert!(self.esp.iter().any(|share| share.epoch.number() == *number), "it is not on the ESP");
            }
            Effect::AskVote => outcome = EffectOutcome::Votes(self.votes),
            Effect::LookAtMembers => outcome = EffectOutcome::Leads(self.leads.then(|| self.backends.clone())),
            Effect::ChangeMember(_) if self.refuses => outcome = EffectOutcome::Refused,
            Effect::ChangeMember(_) => {}
            Effect::Restore { step: RestoreStep::Replace { .. }, .. } if self.differs => {
                (self.differs, outcome) = (false, EffectOutcome::Differed);
            }
            Effect::ReadOwnCopy { since } => {
                if let Some(view) = self.own_copy.clone().filter(|view| Some(view.revision()) > *since) {
                    outcome = EffectOutcome::OwnCopy(view.into());
                }
            }
            Effect::Announce(_)
            | Effect::Decide(_)
            | Effect::KeepRecords
            | Effect::PassLead
            | Effect::Defragment(_)
            | Effect::Restore { .. }
            | Effect::DropSnapshot
            | Effect::Revoke(_)
            | Effect::TrimAudit
            | Effect::TakesKey(_)
            | Effect::AskDirectory(_)
            | Effect::Keep(KeptFile::Peers)
            | Effect::Attend { .. }
            | Effect::Leave
            | Effect::Directory { .. }
            | Effect::Mesh(_)
            | Effect::Order(_)
            | Effect::NeedOwner(_)
            | Effect::Report(..) => {}
        }
        if matches!(effect, Effect::EraseShares | Effect::EraseKeys | Effect::EraseEtcd) {
            let is_node = self.kept.assignment.role() == ClusterRole::Node;
            assert!(is_node || !self.begun, "{effect:?} of a coordinator whose etcd has begun");
        }
        // The copy is kept up until a test ends it.
        let kind = effect.kind().filter(|kind| *kind != EffectKind::KeepRecords);
        self.performed.push(effect);
        kind.map(|kind| (kind, outcome))
    }

    /// Effects that were performed since this was asked last.
    pub(crate) fn past(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.performed)
    }

    /// Steps of the role among them, by kind.
    pub(crate) fn steps(&mut self) -> Vec<EffectKind> {
        let kinds = self.past().into_iter().filter_map(|effect| effect.kind());
        kinds.filter(|kind| kind.is_of_the_role() || *kind == EffectKind::Keep).collect()
    }

    /// Passes time, deadline by deadline; all that is asked for is performed.
    pub(crate) fn pass(&mut self, seconds: u64) -> &mut Self {
        let end = self.now + Duration::from_secs(seconds);
        while let Some((due, _why)) = self.life.as_ref().expect("it lives").poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            self.handle(Event::Tick).settle();
        }
        self.now = end;
        self
    }

    /// Coordinator that is listened to.
    pub(crate) fn attended(&self) -> Option<MachineId> {
        self.life.as_ref().expect("it lives").attended()
    }

    /// Passes time until a coordinator is listened to, has it tell desired state, and performs what follows.
    pub(crate) fn hears(&mut self, says: &BTreeMap<u8, Desired>) -> &mut Self {
        for _ in 0..20 {
            let Some(by) = self.attended() else {
                self.pass(1);
                continue;
            };
            match says.iter().find(|(n, _)| id(**n) == by).map(|(_, desired)| desired) {
                Some(desired) => {
                    self.handle(Event::Told { by, word: Word::Desired(desired.clone().into()) }).settle();
                    if self.attended() == Some(by) {
                        return self;
                    }
                }
                None => drop(self.handle(Event::Left { by, why: String::from("refuses"), may_lead: false }).settle()),
            }
        }
        self
    }
}
