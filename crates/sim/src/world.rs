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
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::decision::{Decision, Next, Proposal};
use cluster::denied::Denied;
use cluster::epochs::{self, Due, Holding};
use cluster::key::AUDIT;
use cluster::peers::{Known, News};
use cluster::record::{Generations, UnixSeconds};
use cluster::redeem::Redeem;
use cluster::request::{Asks, Offer, Request};
use cluster::state::Change;
use cluster::txn::{Granted, Outcome};
use cluster::view::View;
use keys::cold_start::Epoch;
use keys::endpoint::Endpoint;
use keys::ticket::Ticket;
use model::{ClusterRole, Level, MachineId, VPN_PREFIX};
use testkit::Random;

use crate::cast;
use crate::esp::Esps;
use crate::etcd::Etcd;
use crate::laws::{Broken, Laws};

mod cables;
#[cfg(test)]
mod faults;
mod owner;
mod parts;
mod recovery;
mod shares;
mod trail;
mod waves;

use cables::{INTERVAL, Versions};
use parts::Parts;
use trail::{brief, short};
pub use waves::{WAVE, WAVES, waves};

/// How often a machine asks before it gives up for good: worlds end.
const MOST_TRIES: u32 = 40;

/// How large a world is, and how long it lasts.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
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

impl Plan {
    /// What tests live through by the hundred: a tenth of a second each, and most that happens to a cluster happens in it.
    pub const SMALL: Self = Self { machines: 29, members: 0, tickets: 12, lasts: 20_000, events: u64::MAX };
}

/// What happened in a world in which all laws held.
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
pub struct Failure {
    /// Makes the same world again.
    pub seed: u64,
    /// The law.
    pub broken: Broken,
    /// The events before it.
    pub trail: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trail.iter().try_for_each(|event| writeln!(f, "  {event}"))?;
        write!(f, "seed {}: {}", self.seed, self.broken)
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Somebody asks a coordinator.
    Ask { who: Who, decision: Decision, via: MachineId },
    /// What a coordinator decided reaches etcd.
    Commit { who: Who, decision: Decision, via: MachineId, proposal: Proposal },
    /// A machine goes on, in whatever it is at.
    Live(u16),
    /// A member asks who the others are.
    Peers(u16),
    /// What a coordinator answered it.
    News(u16, Box<News>),
    /// An owner asks for something.
    Owner,
    /// An owner looks whether the cluster is to go on with one coordinator alone.
    Recover,
    /// A coordinator sees what was changed.
    Watch(MachineId),
    /// A coordinator makes the next change of etcd's members.
    Reconcile(MachineId),
    /// A machine stops, or a stopped one starts.
    Power(u16, Power),
    /// A voter looks whether it is to hold a share.
    Hold(MachineId),
    /// A machine is cut off from all others, or is so no more.
    Cut(u16, Cable),
    /// Learners catch up.
    CatchUp,
    /// History is forgotten.
    Compact,
    /// What would be if all machines were switched off now is looked at.
    AllOff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    Off,
    On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cable {
    Cut,
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Machine(u16),
    Coordinator,
    Owner,
}

/// What a machine is at, as it knows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Joining,
    Admitted,
    Member,
    /// It was told no for good.
    Refused,
}

struct Machine {
    stage: Stage,
    power: Power,
    cable: Cable,
    /// Since when it is on, a member, and coordinators reach it.
    reached_since: u64,
    ticket: u16,
    tries: u32,
    /// What it says of itself that is not so.
    lies: Lie,
    /// What it asks to join with, made and verified once: that costs more than the rest of its life here.
    redeem: Option<Box<Redeem>>,
    /// Which cluster key its disk is locked with.
    locked_with: u32,
    /// Which one it has told.
    told: u32,
    /// Whom it knows.
    known: Known,
}

impl Machine {
    fn new(stage: Stage, ticket: u16, lies: Lie) -> Self {
        Self {
            stage,
            power: Power::On,
            cable: Cable::Whole,
            reached_since: 0,
            ticket,
            tries: 0,
            lies,
            redeem: None,
            locked_with: 1,
            told: 1,
            known: Known::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Lie {
    None,
    Disk(u16),
    VpnKey(u16),
    Level,
}

/// Everything there is now, as a coordinator sees it.
fn seen(etcd: &Etcd) -> View {
    View::read(etcd.pairs(), etcd.revision()).expect("the laws read the same")
}

struct World {
    parts: Parts,
    random: Random,
    now: u64,
    sequence: u64,
    agenda: BTreeMap<(u64, u64), Event>,
    etcd: Etcd,
    checked: u64,
    coordinators: BTreeMap<MachineId, View>,
    machines: BTreeMap<u16, Machine>,
    numbers: BTreeMap<MachineId, u16>,
    tickets: Vec<Ticket>,
    laws: Laws,
    esps: Esps,
    store: Versions,
    plan: Plan,
    report: Report,
    trail: VecDeque<String>,
    /// No machine is switched off by chance any more.
    calm: bool,
}

/// Lives through the world of a seed.
///
/// # Errors
/// [`Failure`] when a law was broken.
pub fn run(seed: u64, plan: Plan) -> Result<Report, Box<Failure>> {
    let mut world = World::new(seed, plan);
    match world.live() {
        Ok(()) => Ok(world.report),
        Err(broken) => Err(Box::new(Failure { seed, broken, trail: world.trail.into() })),
    }
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let first = cast::id(1);
        let etcd = Etcd::of(first);
        let mut world = Self {
            parts: Parts::SOUND,
            random: Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)),
            now: 0,
            sequence: 0,
            agenda: BTreeMap::new(),
            checked: 0,
            coordinators: [(first, seen(&etcd))].into(),
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
            world.machines.insert(n, Machine::new(Stage::Member, 0, Lie::None));
        }
        let epoch = Epoch::first(first);
        let generations = Generations::One(1);
        world.esps.write(first, &Holding { epoch, stands: None, disk: cast::disk(1), generations });
        for n in plan.members + 2..plan.machines + 2 {
            let lies = match world.random.below(20) {
                0 => Lie::Disk(world.other()),
                1 => Lie::VpnKey(world.other()),
                2 => Lie::Level,
                _ => Lie::None, // most tell the truth
            };
            let ticket = u16::try_from(world.random.below(usize::from(plan.tickets))).expect("few tickets");
            world.machines.insert(n, Machine::new(Stage::Joining, ticket, lies));
            let after = world.below(plan.lasts / 2);
            world.put(after, Event::Live(n));
            world.put(after, Event::Peers(n));
        }
        world
    }

    fn live(&mut self) -> Result<(), Broken> {
        let vpn_prefix = if self.random.below(4) == 0 { "10.0.0.0/24".parse().expect("a prefix") } else { VPN_PREFIX };
        let request = Request::Create(Box::new(cast::creation(vpn_prefix)));
        if self.plan.members > 0 {
            self.begin_with_members()?;
        } else {
            self.put(0, Event::Ask { who: Who::Owner, decision: Decision::new(request), via: cast::id(1) });
        }
        self.put(50, Event::Owner);
        self.put(30, Event::Reconcile(cast::id(1)));
        self.put(700, Event::Cut(1, Cable::Cut));
        self.put(2000, Event::Recover);
        self.put(500, Event::CatchUp);
        self.put(3000, Event::Compact);
        self.put(900, Event::AllOff);
        for n in 1..self.plan.members + 2 {
            let after = 10 + self.below(1000);
            self.put(after, Event::Live(n));
            self.put(after, Event::Peers(n));
        }
        while let Some(((at, _), event)) = self.agenda.pop_first() {
            if at > self.plan.lasts || self.report.events == self.plan.events {
                break;
            }
            if !self.etcd.has_quorum() {
                self.report.without_quorum += at - self.now;
            }
            self.now = at;
            self.report.events += 1;
            self.note(format!("{at:>6} ms  {}", brief(&event)));
            self.happen(event)?;
        }
        self.report.revisions = self.etcd.revision();
        let members = self.machines.values().filter(|machine| machine.stage == Stage::Member);
        self.report.members = members.count();
        self.comes_back()?;
        self.converges()
    }

    /// A cluster in which others than the first machine are members before anything happens.
    fn begin_with_members(&mut self) -> Result<(), Broken> {
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
        }
        Ok(())
    }

    /// Has the first coordinator decide a request that nobody else is in the way of.
    fn at_once(&mut self, request: Request) -> Result<(), Broken> {
        self.at_once_by(cast::id(1), request)
    }

    fn at_once_by(&mut self, id: MachineId, request: Request) -> Result<(), Broken> {
        let proposal = (self.parts.decide)(&Decision::new(request), self.coordinators[&id].state(), cast::BEGIN);
        let committed = (self.parts.commit)(&mut self.etcd, proposal.txn());
        assert!(matches!(committed, Ok(Outcome::Committed)), "{committed:?}");
        self.watch(id);
        self.check()
    }

    /// Every member that is on hears once more of a coordinator that has seen all, and knows what etcd holds.
    fn converges(&mut self) -> Result<(), Broken> {
        let all = seen(&self.etcd);
        for (n, machine) in &mut self.machines {
            if (machine.stage, machine.power) == (Stage::Member, Power::On) {
                let news = all.state().news(machine.known.version());
                (self.parts.hear)(&mut machine.known, news);
                if *machine.known.peers() != all.state().peers() {
                    let law = "every live machine converges to the store's peers";
                    return Err(Broken { law, how: format!("machine {n} does not") });
                }
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Ask { who, decision, via } => self.ask(who, decision, via)?,
            Event::Commit { who, decision, via, proposal } => self.commit(who, decision, via, proposal)?,
            Event::Live(n) => self.machine_goes_on(n),
            Event::Peers(n) => self.asks_for_peers(n)?,
            Event::News(n, news) => self.hears(n, *news)?,
            Event::Owner => self.owner_asks(),
            Event::Recover => self.recovers()?,
            Event::Watch(id) => self.watch(id),
            Event::Reconcile(id) => self.reconcile(id)?,
            Event::Power(n, power) => self.power(n, power),
            Event::Cut(n, cable) => self.cut(n, cable),
            Event::Hold(id) => self.hold(id)?,
            Event::AllOff => {
                self.comes_back()?;
                let after = 1000 + self.below(4000);
                self.put(after, Event::AllOff);
            }
            Event::CatchUp => {
                self.etcd.catch_up();
                self.put(400, Event::CatchUp);
            }
            Event::Compact => {
                self.etcd.compact();
                let after = 2000 + self.below(3000);
                self.put(after, Event::Compact);
            }
        }
        Ok(())
    }

    /// A coordinator decides over what it has seen, unless it is off.
    fn ask(&mut self, who: Who, decision: Decision, via: MachineId) -> Result<(), Broken> {
        let members = self.etcd.members();
        let now = self.clock(via);
        if !self.hears_from(who, via) {
            self.unanswered(who);
            return Ok(());
        }
        let Some(seen) = self.coordinators.get_mut(&via) else {
            self.unanswered(who); // no coordinator any more
            return Ok(());
        };
        seen.see(members);
        let proposal = catch_unwind(AssertUnwindSafe(|| (self.parts.decide)(&decision, seen.state(), now)));
        let how = || format!("{:?}", decision.request());
        let proposal = proposal.map_err(|_| Broken { law: "decide never panics", how: how() })?;
        let after = 1 + self.below(40);
        self.put(after, Event::Commit { who, decision, via, proposal });
        Ok(())
    }

    fn commit(&mut self, who: Who, mut decision: Decision, via: MachineId, proposal: Proposal) -> Result<(), Broken> {
        // The leader changes: whether it was committed, nobody is told.
        let (reaches, answered) = match self.random.below(30) {
            0 => (false, false),
            1 => (true, false),
            _ => (true, true), // most of the time nothing happens
        };
        // Nor has one that was taken out an etcd that takes anything.
        if !reaches || self.is_cut(via) || !self.etcd.members().has(&via) {
            self.unanswered(who);
            return Ok(());
        }
        let before = self.etcd.revision();
        let Ok(outcome) = (self.parts.commit)(&mut self.etcd, proposal.txn()) else {
            self.unanswered(who);
            return Ok(());
        };
        match decision.after(proposal, outcome) {
            Next::Answer(answer) => {
                self.check()?;
                let line =
                    |change: &Change| matches!(change, Change::Put(pair) if pair.key.starts_with(AUDIT.as_bytes()));
                let changed = |revision| !self.etcd.changed_in(revision).iter().all(line);
                if let Err(denied) = &answer
                    && (before + 1..=self.etcd.revision()).any(changed)
                {
                    let how = format!("{denied:?} to {:?}", decision.request());
                    return Err(Broken { law: "a refusal changes nothing but the audit", how });
                }
                if let Ok(granted) = answer {
                    self.laws.granted(granted)?;
                }
                match answer {
                    Ok(granted) if answered => self.granted(who, granted),
                    Err(denied) if answered => self.refused(who, decision.request(), &denied)?,
                    Ok(_) | Err(_) => self.unanswered(who),
                }
            }
            Next::Again { seen } => {
                self.watch(via);
                let version = |view: &View| view.state().version().map_or(0, |(_, revision)| revision);
                let version = self.coordinators.get(&via).map(version);
                let how = || format!("{} has not seen revision {seen}", short(via));
                if version.is_some_and(|version| version < seen) {
                    return Err(Broken { law: "a watch tells what a transaction was refused for", how: how() });
                }
                let after = 1 + self.below(10);
                self.put(after, Event::Ask { who, decision, via });
            }
            Next::GiveUp => self.unanswered(who),
        }
        Ok(())
    }

    /// Every revision that was not checked yet.
    fn check(&mut self) -> Result<(), Broken> {
        while self.checked < self.etcd.revision() {
            self.checked += 1;
            self.laws.changed(self.etcd.changed_in(self.checked))?;
            self.store.changed(self.etcd.changed_in(self.checked), self.checked, self.now);
            if let Some(epoch) = self.laws.stands() {
                self.laws.voters(&self.etcd.members())?;
                let disks = self.disks();
                self.esps.opens(&epoch, &disks, &mut self.random)?;
                self.report.epochs += 1;
            }
            for id in self.coordinators.keys().copied().collect::<Vec<_>>() {
                let after = 1 + self.below(120);
                self.put(after, Event::Watch(id));
            }
        }
        Ok(())
    }

    fn watch(&mut self, id: MachineId) {
        if self.is_cut(id) {
            return;
        }
        let until = self.etcd.revision();
        let Some(view) = self.coordinators.get_mut(&id) else { return };
        match (self.parts.watch)(&self.etcd, view.revision(), until) {
            Ok(changes) => view.take(changes, until).expect("the laws read the same"),
            Err(_) => *view = seen(&self.etcd),
        }
        // Whoever is to coordinate runs the API as soon as etcd has it.
        let members = self.etcd.members();
        let begins = |id: &MachineId| {
            let machine = &self.machines[&self.numbers[id]];
            members.has(id) && (machine.power, machine.cable) == (Power::On, Cable::Whole)
        };
        let wanted: Vec<_> = view.state().coordinators().iter().copied().filter(begins).collect();
        for id in wanted {
            if !self.coordinators.contains_key(&id) {
                self.coordinators.insert(id, seen(&self.etcd));
                self.etcd.set_up(id, true);
                self.put(60, Event::Reconcile(id));
            }
        }
    }

    /// One change of etcd's members, by what this coordinator has seen.
    fn reconcile(&mut self, id: MachineId) -> Result<(), Broken> {
        let after = 150 + self.below(300);
        let Some(seen) = self.coordinators.get(&id) else { return Ok(()) };
        let mut now = seen.clone();
        now.see(self.etcd.members());
        let (step, begins) = (epochs::step(now.state()), epochs::due(now.state(), &id) == Some(Due::Begin));
        self.put(after, Event::Reconcile(id));
        // Its etcd has no leader.
        let step = step.filter(|_| !self.is_cut(id));
        if begins {
            let decision = Decision::new(Request::BeginEpoch);
            self.put(1, Event::Ask { who: Who::Coordinator, decision, via: id });
        }
        self.put(2, Event::Hold(id));
        if let Some(step) = step {
            let done = (self.parts.change)(&mut self.etcd, step);
            self.note(format!("{:>6} ms  {step:?} by {}: {done:?}", self.now, short(id)));
            // What is seen of the members is never old here, so etcd has no reason to refuse.
            let law = "no change of members begins that etcd refuses";
            done.map_err(|refused| Broken { law, how: format!("{step:?}: {refused}") })?;
            self.report.steps += 1;
            let members = self.etcd.members();
            self.laws.members(&members)?;
            self.coordinators.retain(|id, _| members.has(id));
            for id in self.coordinators.keys().copied().collect::<Vec<_>>() {
                self.put(10, Event::Watch(id));
            }
        }
        Ok(())
    }

    fn power(&mut self, n: u16, power: Power) {
        let Some(machine) = self.machines.get_mut(&n) else { return };
        (machine.power, machine.reached_since) = (power, self.now);
        let (id, cable) = (cast::id(n), machine.cable);
        match power {
            Power::Off => {
                self.coordinators.remove(&id);
                self.etcd.set_up(id, false);
                let after = 200 + self.below(1500);
                self.put(after, Event::Power(n, Power::On));
            }
            Power::On => {
                if cable == Cable::Whole && self.etcd.members().has(&id) {
                    self.coordinators.insert(id, seen(&self.etcd));
                    self.etcd.set_up(id, true);
                    self.put(80, Event::Reconcile(id));
                }
                self.put(30, Event::Live(n));
            }
        }
    }

    fn machine_goes_on(&mut self, n: u16) {
        let Some(via) = self.reached_by(n) else { return self.later(n) };
        let (other_key, moves) = (self.random.below(8) == 0, self.random.below(6) == 0);
        let place = cast::endpoint(self.random.below(250));
        let Some(machine) = self.machines.get_mut(&n) else { return };
        if machine.power == Power::Off {
            return;
        }
        machine.tries += 1;
        if machine.tries > MOST_TRIES {
            return;
        }
        let request = match machine.stage {
            Stage::Refused => return,
            Stage::Joining => {
                let ticket = &self.tickets[usize::from(machine.ticket)];
                let lies = machine.lies;
                let redeem = machine.redeem.get_or_insert_with(|| Box::new(asks_to_join(n, ticket, lies)));
                Request::Redeem(redeem.clone())
            }
            Stage::Admitted => announces(n, vec![], machine.locked_with),
            Stage::Member if moves || machine.told != machine.locked_with => {
                machine.told = machine.locked_with;
                announces(n, vec![place], machine.locked_with)
            }
            Stage::Member => {
                let generation = machine.locked_with;
                let disk = if other_key { cast::disk(n + 1) } else { cast::disk(n) };
                let level = Level::Encrypted;
                Request::ReleaseKey { machine: cast::machine_key(n), disk, generation, level }
            }
        };
        let who = Who::Machine(n);
        if self.random.below(12) == 0 {
            // It asks two at once.
            let (request, after) = (request.clone(), 1 + self.below(20));
            let via = self.reached_by(n).unwrap_or(via);
            self.put(after, Event::Ask { who, decision: Decision::new(request), via });
        }
        let after = 1 + self.below(20);
        self.put(after, Event::Ask { who, decision: Decision::new(request), via });
        if self.random.below(15) == 0 && !self.calm {
            self.put(5, Event::Power(n, Power::Off));
        }
    }

    fn asks_for_peers(&mut self, n: u16) -> Result<(), Broken> {
        let after = 500 + self.below(INTERVAL - 500);
        self.put(after, Event::Peers(n));
        let now = self.now;
        let Some(via) = self.reached_by(n) else {
            if let Some(machine) = self.machines.get_mut(&n) {
                machine.reached_since = now;
            }
            return Ok(());
        };
        self.is_up_to_date(n)?;
        let (machine, state) = (&self.machines[&n], self.coordinators[&via].state());
        // A coordinator knows its caller by its record.
        let belongs = state.machine(&cast::id(n)).is_some_and(cluster::record::Machine::belongs);
        if machine.power == Power::On && belongs {
            let news = Box::new(state.news(machine.known.version()));
            let after = 1 + self.below(800);
            self.put(after, Event::News(n, news));
        }
        Ok(())
    }

    fn hears(&mut self, n: u16, news: News) -> Result<(), Broken> {
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        if machine.cable == Cable::Cut {
            return Ok(());
        }
        let before = machine.known.version();
        self.report.heard += u64::from(!(self.parts.hear)(&mut machine.known, news).is_empty());
        if machine.known.version() < before {
            return Err(Broken { law: "nobody forgets who the others are", how: format!("machine {n}") });
        }
        Ok(())
    }

    /// What an asker makes of a yes.
    fn granted(&mut self, who: Who, granted: Granted) {
        let Who::Machine(n) = who else { return };
        let Some(machine) = self.machines.get_mut(&n) else { return };
        machine.stage = match (machine.stage, granted) {
            (Stage::Joining, Granted::Admitted(_)) => Stage::Admitted,
            (Stage::Admitted, Granted::Done | Granted::Already) => {
                machine.reached_since = self.now;
                Stage::Member
            }
            (stage, _) => stage, // a key, or an answer to what was asked before
        };
        if let Granted::ClusterKey { generation, next, .. } = granted {
            self.report.released += 1;
            // Its disk takes the next one in this boot. It may be switched off before it tells that, and starts with the new one.
            if let Some(next) = next.filter(|_| generation == machine.locked_with)
                && self.esps.carry(cast::id(n), cast::disk(n), next)
            {
                machine.locked_with = next;
                self.report.rotated += 1;
            }
        } else {
            machine.tries = 0;
        }
        self.later(n);
    }

    fn refused(&mut self, who: Who, request: &Request, denied: &Denied) -> Result<(), Broken> {
        self.note(format!("{:>6} ms    denied: {denied}", self.now));
        let kind = format!("{denied:?}");
        *self.report.denied.entry(kind.split(['(', ' ']).next().unwrap_or_default().to_owned()).or_default() += 1;
        if let Who::Machine(n) = who {
            if let Some(machine) = self.machines.get_mut(&n) {
                if let (Request::ReleaseKey { generation, .. }, Denied::UnknownGeneration(_)) = (request, denied)
                    && *generation == machine.locked_with
                {
                    let law = "the cluster gives the key that a member's disk is locked with";
                    return Err(Broken { law, how: format!("machine {n}, generation {generation}") });
                }
                if *denied == Denied::MachineRemoved {
                    machine.stage = Stage::Refused;
                }
                // Told that it is in already: the answer to its announcement was lost.
                if *denied == Denied::AlreadyMember {
                    (machine.stage, machine.reached_since) = (Stage::Member, self.now);
                }
            }
            self.later(n);
        }
        Ok(())
    }

    /// No answer came: whoever asked asks again, some time, somewhere.
    fn unanswered(&mut self, who: Who) {
        if let Who::Machine(n) = who {
            self.later(n);
        }
    }

    fn later(&mut self, n: u16) {
        let after = 100 + self.below(900);
        self.put(after, Event::Live(n));
    }

    /// A coordinator that is on.
    fn somewhere(&mut self) -> Option<MachineId> {
        let at = self.random.below(self.coordinators.len());
        self.coordinators.keys().nth(at).copied()
    }

    /// A machine's number.
    fn other(&mut self) -> u16 {
        1 + u16::try_from(self.random.below(usize::from(self.plan.machines) + 1)).expect("few machines")
    }

    /// What a coordinator takes for now: up to two seconds off.
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

/// What machine `n` joins with.
fn asks_to_join(n: u16, ticket: &Ticket, lies: Lie) -> Redeem {
    let mut body = cast::body(n, ticket);
    match lies {
        Lie::None => {}
        Lie::Disk(of) => body.disk = cast::disk(of),
        Lie::VpnKey(of) => body.vpn_key = cast::vpn_key(of),
        Lie::Level => body.level = Level::Insecure,
    }
    cast::redeem(n, ticket, &body)
}
