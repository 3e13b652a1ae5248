//! A world: machines that join, live, reboot and leave; owners who change things; coordinators that decide over what they
//! have seen so far, which may be old; an etcd that loses its leader, answers, and members. Events happen in the order of
//! virtual time, all of it from one seed.
//!
//! ```text
//!   machine, owner ── Ask ──► coordinator: decide over its State ── Commit ──► etcd ──► laws ── Answer ──► asker
//!        ▲                            ▲                                │ differs: read again, decide again
//!        └── again, elsewhere, if no answer came ◄── lost ◄────────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Instant;

use cluster::Word;
use cluster::decision::{Decision, Proposal};
use cluster::desired::{Desired, DesiredShares, EtcdPart, KnownCoordinator};
use cluster::epochs::ShareOrder;
use cluster::record::{Generations, Standing, UnixSeconds};
use cluster::redeem::RedeemRequest;
use cluster::request::{Asks, Offer, Request};
use cluster::txn::Outcome;
use cluster::view::View;
use keys::cold_start::Epoch;
use keys::endpoint::Endpoint;
use keys::ticket::Ticket;
use member::{Effect, EtcdStart, Face};
use model::{Assignment, ClusterRole, Ipv4Prefix, Level, MachineId, Prefixes, VPN_PREFIX};
use testkit::Random;

use crate::cast;
use crate::esp::Esps;
use crate::etcd::Etcd;
use crate::laws::{Breach, Laws};

mod cables;
mod decided;
mod end;
#[cfg(test)]
mod faults;
mod kubernetes;
mod life;
mod listen;
mod machine;
mod owner;
mod parts;
mod records;
mod recovery;
mod shares;
mod trail;
mod waves;

use cables::Versions;
use listen::Tells;
use machine::{Cable, Lie, Machine, Power, Running};
use parts::Parts;
use records::{MembersLook, RecordsCopy};
use trail::brief;
pub use waves::{WAVE, WAVES, waves};

/// How often a machine asks before it gives up for good: worlds end.
const MOST_TRIES: u32 = 40;

/// How large a world is, and how long it lasts.
#[derive(Debug, Clone, Copy)]
pub struct WorldPlan {
    /// Machines, beside the first.
    pub machines: u16,
    /// How many of them are members from the beginning; the others join by ticket.
    pub members: u16,
    /// Tickets that owners issue.
    pub tickets: u16,
    /// Milliseconds of virtual time at most.
    pub lasts: u64,
    /// Events at most.
    pub events: u64,
}

impl WorldPlan {
    /// World of which tests run hundreds: a tenth of a second each, and most that happens to a cluster happens in it.
    pub const SMALL: Self = Self { machines: 29, members: 0, tickets: 12, lasts: 50_000, events: u64::MAX };
}

/// Counts of a world in which all laws held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Events.
    pub events: u64,
    /// Revisions of etcd.
    pub revisions: u64,
    /// Machines that became members.
    pub members: usize,
    /// Cluster keys given out.
    pub released: u64,
    /// Disks that took another one.
    pub rotated: u64,
    /// Changes of etcd's members.
    pub steps: u64,
    /// Epochs of the cold-start key that came to stand.
    pub epochs: u64,
    /// How often a machine heard what had changed of the others.
    pub heard: u64,
    /// How often a machine was cut off from all others.
    pub cuts: u64,
    /// How often one coordinator went on alone.
    pub recoveries: u64,
    /// How long too few voters reached each other, in milliseconds.
    pub without_quorum: u64,
    /// How often each reason was given.
    pub denied: BTreeMap<String, u64>,
}

/// A world in which a law was broken.
#[derive(Debug)]
pub struct WorldFailure {
    /// Makes the same world again.
    pub seed: u64,
    /// The law.
    pub broken: Breach,
    /// The events before it.
    pub trail: Vec<String>,
}

impl fmt::Display for WorldFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trail.iter().try_for_each(|event| writeln!(f, "  {event}"))?;
        write!(f, "seed {}: {}", self.seed, self.broken)
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Somebody asks a coordinator.
    Ask { who: Who, decision: Decision, via: MachineId },
    /// A decision of a coordinator reaches etcd.
    Commit { who: Who, decision: Decision, via: MachineId, proposal: Proposal },
    /// A machine asks for what opens its disk, or to be let in.
    Opens(u16),
    /// The life of a machine begins in a boot.
    Begins(u16, u64),
    /// A deadline of a life has come.
    Wakes(u16, u64),
    /// An effect of a life ends.
    Performs { n: u16, number: u64, units: u64, effect: Box<Effect> },
    /// A look at etcd's members is shown.
    Looked { n: u16, number: u64, units: u64, look: Box<MembersLook> },
    /// The records of a life are not kept up any more.
    Lost { n: u16, number: u64, units: u64 },
    /// A coordinator looks for something to tell on a stream.
    Tells(u16, u64, Tells),
    /// A word arrives on a stream.
    Told(u16, u64, Box<Word>),
    /// The end of a stream is seen.
    Left {
        n: u16,
        number: u64,
        /// Whether the coordinator may have a leader, and cannot tell yet, or knows no such machine.
        may_lead: bool,
    },
    /// A coordinator's own life hears of its records.
    Own(u16),
    /// An owner asks for something.
    Owner,
    /// An owner looks whether the cluster is to go on with one coordinator alone.
    Recover,
    /// A coordinator sees what was changed.
    Watch(MachineId),
    /// A machine stops, or a stopped one starts.
    Power(u16, Power),
    /// A machine is cut off from all others, or is so no more.
    Cut(u16, Cable),
    /// Certificates get older.
    Ages,
    /// Learners catch up.
    CatchUp,
    /// History is forgotten.
    Compact,
    /// Look at what would be if all machines were switched off now.
    AllOff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A machine that is closed, or asks for its key once more.
    Machine(u16),
    /// A life, by the number of the stream on which it listens.
    Life(u16, u64),
    /// A life that asks its own records, by its number and with these units.
    Own {
        n: u16,
        number: u64,
        units: u64,
    },
    /// A coordinator, for a machine that it hears.
    Coordinator,
    Owner,
}

/// Everything there is now, as a coordinator sees it.
fn seen(etcd: &Etcd) -> View {
    View::read(etcd.pairs(), etcd.revision()).expect("the laws read the same")
}

struct World {
    parts: Parts,
    random: Random,
    /// Instant at which it begins.
    begin: Instant,
    now: u64,
    sequence: u64,
    agenda: BTreeMap<(u64, u64), Event>,
    etcd: Etcd,
    checked: u64,
    coordinators: BTreeMap<MachineId, RecordsCopy>,
    machines: BTreeMap<u16, Machine>,
    numbers: BTreeMap<MachineId, u16>,
    tickets: Vec<Ticket>,
    laws: Laws,
    esps: Esps,
    store: Versions,
    plan: WorldPlan,
    report: Report,
    trail: VecDeque<String>,
    /// No machine is switched off by chance any more.
    calm: bool,
}

/// Lives through the world of a seed.
///
/// # Errors
/// [`WorldFailure`] when a law was broken.
pub fn run(seed: u64, plan: WorldPlan) -> Result<Report, Box<WorldFailure>> {
    let mut world = World::new(seed, plan);
    match world.live() {
        Ok(()) => Ok(world.report),
        Err(broken) => Err(Box::new(WorldFailure { seed, broken, trail: world.trail.into() })),
    }
}

impl World {
    fn new(seed: u64, plan: WorldPlan) -> Self {
        let first = cast::id(1);
        let etcd = Etcd::of(first);
        let mut world = Self {
            parts: Parts::SOUND,
            random: Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)),
            begin: testkit::origin(),
            now: 0,
            sequence: 0,
            agenda: BTreeMap::new(),
            checked: 0,
            coordinators: [(first, RecordsCopy::unkept(seen(&etcd)))].into(),
            store: Versions::new(seen(&etcd)),
            etcd,
            machines: BTreeMap::new(),
            numbers: (1..plan.machines + 2).map(|n| (cast::id(n), n)).collect(),
            tickets: (0..plan.tickets).map(cast::ticket).collect(),
            laws: Laws::default(),
            esps: Esps::new(cast::CLUSTER),
            plan,
            report: Report::default(),
            trail: VecDeque::new(),
            calm: false,
        };
        for n in 1..plan.members + 2 {
            world.machines.insert(n, Machine::new(0, Lie::None));
        }
        let epoch = Epoch::first(first);
        let generations = Generations::One(1);
        world.esps.write(first, &ShareOrder { epoch, stands: None, disk: cast::disk(1), generations });
        for n in plan.members + 2..plan.machines + 2 {
            let lies = match world.random.below(20) {
                0 => Lie::Disk(world.other()),
                1 => Lie::VpnKey(world.other()),
                2 => Lie::Level,
                _ => Lie::None, // most tell the truth
            };
            let ticket = u16::try_from(world.random.below(usize::from(plan.tickets))).expect("few tickets");
            world.machines.insert(n, Machine::new(ticket, lies));
            let after = world.below(plan.lasts / 4);
            world.asks_in(n, after);
        }
        world
    }

    fn live(&mut self) -> Result<(), Breach> {
        let vpn_prefix = if self.random.below(4) == 0 { "10.0.0.0/24".parse().expect("a prefix") } else { VPN_PREFIX };
        self.founds(vpn_prefix)?;
        if self.plan.members > 0 {
            self.begin_with_members()?;
        }
        self.put(50, Event::Owner);
        self.put(700, Event::Cut(1, Cable::Cut));
        self.put(2000, Event::Recover);
        self.put(500, Event::CatchUp);
        self.put(kubernetes::LOOK, Event::Ages);
        self.put(3000, Event::Compact);
        self.put(900, Event::AllOff);
        for n in 1..self.plan.members + 2 {
            let after = 10 + self.below(1000);
            self.asks_in(n, after);
        }
        while self.report.events < self.plan.events
            && let Some(next) = self.agenda.first_entry().filter(|next| next.key().0 <= self.plan.lasts)
        {
            let ((at, _), event) = next.remove_entry();
            if !self.etcd.has_quorum() {
                self.report.without_quorum += at - self.now;
            }
            self.now = at;
            self.report.events += 1;
            self.note(format!("{at:>6} ms  {}", brief(&event)));
            self.happen(event)?;
        }
        self.report.revisions = self.etcd.revision();
        let members = self.machines.values().filter(|machine| machine.is_member());
        self.report.members = members.count();
        self.comes_back()?;
        self.converges()?;
        if self.plan.events == u64::MAX { self.settles() } else { Ok(()) }
    }

    /// Has the first machine be as it is once it has created the cluster, with an etcd that runs.
    fn founds(&mut self, vpn_prefix: Ipv4Prefix) -> Result<(), Breach> {
        let prefixes = Prefixes::of(vpn_prefix);
        let assignment = Assignment::first(&prefixes, cast::worker());
        let name = model::NodeName::derived(cast::id(1));
        let own = KnownCoordinator { name, vpn_ip: assignment.vpn_ip(), votes: true, control_plane: false };
        let cluster = cast::creation(vpn_prefix).cluster;
        let first = self.machines.get_mut(&1).expect("it is the first");
        first.disk.desired = Some(Desired {
            at: None,
            look: None,
            standing: Standing::Member,
            assignment,
            prefixes,
            coordinators: [(cast::id(1), own)].into(),
            etcd: EtcdPart::Voter,
            shares: DesiredShares::default(),
            owners: cluster.owners,
            level: cluster.policy.level,
            cold_start: cluster.policy.cold_start,
        });
        (first.disk.keys, first.disk.etcd, first.face) = (true, Some(0), Some(Face::Coordinator));
        first.running = Some(Running { plan: EtcdStart::New, led: true, since: 0 });
        self.begins(1, 0)
    }

    /// A cluster in which others than the first machine are members before anything happens.
    fn begin_with_members(&mut self) -> Result<(), Breach> {
        let ticket = cast::ticket(u16::MAX);
        let offer = Offer {
            key: ticket.public(),
            uses: self.plan.members.into(),
            not_after: UnixSeconds(cast::BEGIN.0 + 1),
            role: ClusterRole::Node,
            kubernetes: [].into(), // there are pods for 256 workers
            machine: None,
            node_name: None,
        };
        let issue = Request::Owner { by: cast::owner(1).key, asks: Asks::IssueTicket(offer) };
        self.at_once(Request::Create(Box::new(cast::creation(VPN_PREFIX))))?;
        self.at_once(issue)?;
        for n in 2..self.plan.members + 2 {
            self.at_once(Request::Redeem(Box::new(cast::redeem(n, &ticket, &cast::body(n, &ticket)))))?;
            self.at_once(announces(n, vec![], 1))?;
            let desired = self.store.state().desired_of_newcomer(&cast::id(n));
            let machine = self.machines.get_mut(&n).expect("it is a member");
            machine.disk.desired = desired;
            self.begins(n, 0)?;
        }
        Ok(())
    }

    /// Has a request decided over all that there is, and committed.
    fn at_once(&mut self, request: Request) -> Result<(), Breach> {
        self.store.sees(&self.etcd);
        let proposal = (self.parts.decide)(&Decision::new(request), self.store.state(), cast::BEGIN);
        let committed = (self.parts.commit)(&mut self.etcd, proposal.txn());
        assert!(matches!(committed, Ok(Outcome::Committed)), "{committed:?}");
        self.check()
    }

    fn happen(&mut self, event: Event) -> Result<(), Breach> {
        match event {
            Event::Ask { who, decision, via } => self.ask(who, decision, via)?,
            Event::Commit { who, decision, via, proposal } => self.commit(who, decision, via, proposal)?,
            Event::Opens(n) => self.opens(n)?,
            Event::Begins(n, boot) => self.begins(n, boot)?,
            Event::Wakes(n, number) => self.wakes(n, number)?,
            Event::Performs { n, number, units, effect } => self.performs(n, (number, units), *effect)?,
            Event::Looked { n, number, units, look } => self.looked(n, (number, units), *look)?,
            Event::Lost { n, number, units } => self.lost(n, (number, units))?,
            Event::Tells(n, number, why) => self.tells(n, number, why)?,
            Event::Told(n, number, word) => self.told(n, number, *word)?,
            Event::Left { n, number, may_lead } => self.left(n, number, may_lead)?,
            Event::Own(n) => self.own_records(n)?,
            Event::Owner => self.owner_asks(),
            Event::Recover => self.recovers()?,
            Event::Watch(id) => self.watch(id),
            Event::Power(n, power) => self.power(n, power),
            Event::Cut(n, cable) => self.cut(n, cable),
            Event::AllOff => {
                self.comes_back()?;
                let after = 3000 + self.below(12_000);
                self.put(after, Event::AllOff);
            }
            Event::Ages => self.ages()?,
            Event::CatchUp => {
                self.catches_up();
                self.put(400, Event::CatchUp);
            }
            Event::Compact => {
                self.etcd.compact();
                let after = 6000 + self.below(9000);
                self.put(after, Event::Compact);
            }
        }
        Ok(())
    }

    /// A coordinator that is on.
    fn somewhere(&mut self) -> Option<MachineId> {
        let all: Vec<_> = self.coordinators.keys().copied().filter(|id| self.serves(*id)).collect();
        all.get(self.random.below(all.len())).copied()
    }

    /// Draws the number of a machine.
    fn other(&mut self) -> u16 {
        1 + u16::try_from(self.random.below(usize::from(self.plan.machines) + 1)).expect("few machines")
    }

    /// Time that a coordinator takes for now: up to two seconds off.
    fn clock(&self, id: MachineId) -> UnixSeconds {
        UnixSeconds(cast::BEGIN.0 + self.now / 1000 + u64::from(id.0[0] % 3))
    }

    fn below(&mut self, bound: u64) -> u64 {
        let bound = usize::try_from(bound).expect("a few seconds");
        u64::try_from(self.random.below(bound)).expect("below it")
    }

    fn put(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.agenda.insert((self.now + after, self.sequence), event);
    }
}

fn announces(n: u16, endpoints: Vec<Endpoint>, generation: u32) -> Request {
    Request::Announce { machine: cast::machine_key(n), release: cast::RELEASE, endpoints, generation }
}

/// Request with which machine `n` joins.
fn asks_to_join(n: u16, ticket: &Ticket, lies: Lie) -> RedeemRequest {
    let mut body = cast::body(n, ticket);
    match lies {
        Lie::None => {}
        Lie::Disk(of) => body.disk = cast::disk(of),
        Lie::VpnKey(of) => body.vpn_key = cast::vpn_key(of),
        Lie::Level => body.level = Level::Insecure,
    }
    cast::redeem(n, ticket, &body)
}
