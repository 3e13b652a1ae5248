//! Several machines of one cluster, most of them coordinators: how they come to be, what is done to them, and what has to hold
//! when all is well again. They are called m1, m2, …; a machine that left gives its number to nobody.
//!
//! It knows which machines there should be and which of them coordinate, and must never take that from the cluster itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, Error, ensure};
use api::wire::{StatusRequest, StatusResponse};
use api::{EtcdMember, ListedMachine, MachineChange};
use cluster::record::Standing;
use keys::endpoint::Endpoint;
use keys::ticket::Ticket;
use model::{ClusterId, ClusterRole, MachineState, PUBLIC_API_PORT, TicketPubKey};
use qemu::machine::{Clock, Link, Mac};
use qemu::network::{Cable, Cut, Direction, Faults};
use qemu::{Deadline, Vm};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capture::{Kind, kinds, others};
use crate::owner::wait_state;
use crate::records::{NOT_AFTER, Records};
use crate::writer::{Places, Writer, drawn};
use crate::{Context, Copied, Copy, FleetKind, Owner, Plan, SITE, Site, Stranger};

/// What a coordinator is given that runs no Kubernetes: the least that `cairnctl` makes one of.
const MEMORY_MIB: u32 = 384;
/// What PID 1 says when it sees every change again.
pub const SEES_RECORDS: &str = "the cluster's records are read";
/// What PID 1 says when it has changed the kernel's peers or routes, with how many peers there are then.
pub const MESH_CHANGED: &str = "the kernel's mesh is changed";
/// What PID 1 says when it has erased what a coordinator has.
pub const LAID_DOWN: &str = "this machine is no coordinator any more";
/// What PID 1 of a machine says that is let in no more.
const REMOVED: &str = "the machine was removed from the cluster";
/// The cluster's name.
pub const NAME: &str = "one";

/// What a fleet is in the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Cluster {
    /// Machines that coordinate, from m1 on.
    pub coordinators: u32,
    /// Those that follow.
    pub nodes: u32,
    /// How long an address is theirs, in seconds.
    pub lease_seconds: u32,
}

/// What a fleet is beside its machines, as it is saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Beside {
    cluster: [u8; 16],
    ca_spki: [u8; 32],
    lease_seconds: u32,
    coordinators: BTreeSet<u32>,
    /// Number of the cable of each machine.
    cables: BTreeMap<u32, usize>,
    /// Addresses that cards hold.
    held: Vec<(Mac, Ipv4Addr)>,
    cards: u32,
}

/// The machines.
#[derive(Debug)]
pub struct Fleet {
    /// Where the files of all its machines lie, whichever case has one join: they live as long as the fleet.
    home: Context,
    site: Site,
    owner: Owner,
    cluster: ClusterId,
    ca_spki: [u8; 32],
    machines: BTreeMap<u32, Machine>,
    places: Places,
    lease_seconds: u32,
    /// Cards that were ever given to a machine.
    cards: u32,
}

#[derive(Debug)]
struct Machine {
    plan: Plan,
    role: ClusterRole,
    /// None while it is off.
    vm: Option<Vm>,
    cable: usize,
}

/// How a machine leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// While it runs, in order.
    Drained,
    /// It was switched off, and is given up.
    Lost,
}

/// How machines are switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// QEMU is killed.
    AtOnce,
    /// The power button is pressed.
    InOrder,
}

/// What a machine is called.
#[must_use]
pub fn name(machine: u32) -> String {
    format!("m{machine}")
}

impl Fleet {
    /// Makes them: the first creates the cluster, the others join it by tickets.
    ///
    /// # Errors
    /// When they do not become one cluster in time.
    pub fn new(t: &Context, wanted: Cluster) -> anyhow::Result<Self> {
        let mut site = Site::with_leases(wanted.lease_seconds)?;
        let owner = t.owner()?;
        let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes", "--node-name", &name(1)])?;
        let plan = small(site.machine(t, &name(1))?).config(&config)?;
        let mut vm = plan.start()?;
        owner.status_when_running(NAME, &mut vm, t.within(30))?;
        let issued = vm.until(t.within(30), || owner.ask(NAME, &vm, &["ticket", "issue"]).ok())?;
        let text = issued["ticket"].as_str().context("a ticket has a text")?;
        let Ticket { cluster, ca_spki, .. } = Ticket::from_text(text)?;
        let first = Machine { plan, role: ClusterRole::Coordinator, vm: Some(vm), cable: 0 };
        let (machines, places) = ([(1, first)].into(), Places::default());
        let home = t.clone();
        let (lease_seconds, cards) = (wanted.lease_seconds, wanted.coordinators + wanted.nodes);
        let mut fleet = Self { home, site, owner, cluster, ca_spki, machines, places, lease_seconds, cards };
        fleet.capture(1)?;
        fleet.tell_places();
        for machine in 2..=wanted.coordinators + wanted.nodes {
            let coordinates = machine <= wanted.coordinators;
            let role = if coordinates { ClusterRole::Coordinator } else { ClusterRole::Node };
            fleet.join(t, machine, role)?;
        }
        for machine in 2..=wanted.coordinators + wanted.nodes {
            fleet.runs(machine, t.within(60))?;
        }
        fleet.is_whole(t.within(60))?;
        Ok(fleet)
    }

    /// Saves them as the fleet that this case makes, and ends them.
    ///
    /// # Errors
    /// When one of them is off, or cannot be saved.
    pub fn save(mut self, t: &Context, kind: FleetKind) -> anyhow::Result<()> {
        let coordinators = self.coordinators().into_iter().collect();
        let cables = self.machines.iter().map(|(machine, known)| (*machine, known.cable)).collect();
        let held = |known: &Machine| {
            let card = known.plan.clone().machine().nics.last()?.mac;
            Some((card, self.site.host().lease(card)?))
        };
        let held = self.machines.values().filter_map(held).collect();
        let (cluster, ca_spki, lease_seconds, cards) = (self.cluster.0, self.ca_spki, self.lease_seconds, self.cards);
        let more = Beside { cluster, ca_spki, lease_seconds, coordinators, cables, held, cards };
        let names: Vec<String> = self.machines.keys().map(|machine| name(*machine)).collect();
        let mut machines = Vec::new();
        for (known, name) in self.machines.values_mut().zip(&names) {
            let vm = known.vm.as_mut().with_context(|| format!("{name} is off"))?;
            machines.push((name.as_str(), vm));
        }
        t.save(kind, t.image(), &self.owner, &mut machines, more)
    }

    /// A copy of its own for this case, at the moment in which the fleet was saved.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn copy(t: &Context, kind: FleetKind) -> anyhow::Result<Self> {
        Self::come_back(t, t.copy(kind, t.image())?)
    }

    /// The same with this clock on the board of each.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn copy_at(t: &Context, kind: FleetKind, clock: Clock) -> anyhow::Result<Self> {
        let mut copy = t.copy(kind, t.image())?;
        copy.clock = Some(clock);
        Self::come_back(t, copy)
    }

    fn come_back(t: &Context, copy: Copy<Beside>) -> anyhow::Result<Self> {
        let Beside { cluster, ca_spki, lease_seconds, coordinators, cables, held, cards } = copy.more.clone();
        let number = cables.values().max().map_or(0, |last| last + 1);
        let site = Site::again(lease_seconds, number, &held)?;
        let cable = |called: &str| {
            cables.iter().find(|(machine, _)| name(**machine) == called).map(|(_, cable)| site.cable(*cable))
        };
        let links = |called: &str, before: &[Link]| {
            let own = before.iter().filter(|link| matches!(link, Link::User(_))).cloned();
            own.chain(cable(called).map(Cable::link)).collect()
        };
        let plugged_in = || cables.values().all(|cable| site.cable(*cable).is_plugged_in());
        let mut copied = copy.go_on(links, plugged_in, t.within(3))?;
        let mut machines = BTreeMap::new();
        for (machine, cable) in &cables {
            let Copied { plan, vm } = copied.remove(&name(*machine)).context("each machine comes back")?;
            let coordinates = coordinators.contains(machine);
            let role = if coordinates { ClusterRole::Coordinator } else { ClusterRole::Node };
            machines.insert(*machine, Machine { plan, role, vm: Some(vm), cable: *cable });
        }
        let (home, owner, cluster, places) = (t.clone(), copy.owner, ClusterId(cluster), Places::default());
        let fleet = Self { home, site, owner, cluster, ca_spki, machines, places, lease_seconds, cards };
        for machine in fleet.on() {
            fleet.capture(machine)?;
        }
        fleet.tell_places();
        Ok(fleet)
    }

    /// A machine more, by a ticket of its own, which whichever coordinator answers issues. It is started and not waited for.
    ///
    /// # Errors
    /// When no ticket is issued, or the machine does not start.
    pub fn join(&mut self, t: &Context, machine: u32, role: ClusterRole) -> anyhow::Result<()> {
        let key = drawn()?;
        let public = TicketPubKey(key.public());
        let issued = self.through(t.within(30), |records| {
            let issued = records.issue(public, 1, role)?;
            let site = issued.coordinators.iter().any(|place| place.starts_with(SITE));
            ensure!(site, "no coordinator is known at an address of the site: {:?}", issued.coordinators);
            Ok(issued)
        })?;
        let coordinator_public_endpoints =
            issued.coordinators.iter().map(|place| Endpoint::read(place)).collect::<Result<_, _>>()?;
        let (cluster, ca_spki) = (self.cluster, self.ca_spki);
        let ticket = Ticket { cluster, ca_spki, coordinator_public_endpoints, key, not_after: NOT_AFTER.0 };
        let choices = ["--level", "encrypted", "--node-name", &name(machine)];
        let config = self.owner.config_of_joiner(&name(machine), &ticket.to_text(), &choices)?;
        let cable = self.site.machines();
        let plan = small(self.site.machine(&self.home, &name(machine))?).config(&config)?;
        self.machines.insert(machine, Machine { plan, role, vm: None, cable });
        self.capture(machine)?;
        self.start(machine)
    }
    /// Starts a machine that is off, on the right time.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&mut self, machine: u32) -> anyhow::Result<()> {
        self.start_at(machine, Clock::OfHost)
    }

    /// The same with this clock on its board, until it is off again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_at(&mut self, machine: u32, clock: Clock) -> anyhow::Result<()> {
        let known = self.known_mut(machine)?;
        let mut plan = known.plan.clone();
        plan.machine().clock = clock;
        known.vm = Some(plan.start()?);
        self.tell_places();
        Ok(())
    }

    /// Waits until a machine runs that has just started, or started again.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn runs(&mut self, machine: u32, deadline: Deadline) -> anyhow::Result<()> {
        let vm = self.vm(machine)?;
        wait_state(vm, "Running", deadline).with_context(|| format!("{} does not come back", name(machine)))
    }

    /// Switches machines off.
    ///
    /// # Errors
    /// When one does not go down in time.
    pub fn switch_off(&mut self, machines: &[u32], how: Off, deadline: Deadline) -> anyhow::Result<()> {
        let mut going = Vec::new();
        for machine in machines {
            let vm = self.known_mut(*machine)?.vm.take();
            going.push((*machine, vm.with_context(|| format!("{} is off", name(*machine)))?));
        }
        self.tell_places();
        match how {
            Off::AtOnce => going.into_iter().for_each(|(_, vm)| vm.kill()),
            Off::InOrder => {
                for (_, vm) in &mut going {
                    vm.qmp().press_power_button(deadline)?;
                }
                for (machine, vm) in going {
                    vm.wait_shutdown(deadline).with_context(|| format!("{} does not go down", name(machine)))?;
                }
            }
        }
        Ok(())
    }

    /// Pulls the reset lines of machines that run.
    ///
    /// # Errors
    /// When one has no monitor any more.
    pub fn reset(&mut self, machines: &[u32], deadline: Deadline) -> anyhow::Result<()> {
        for machine in machines {
            let vm = self.vm(*machine)?;
            // What this boot has said is not what the next one says.
            while vm.console().wait_for("", Deadline::after(std::time::Duration::ZERO)).is_ok() {}
            vm.reset(deadline)?;
        }
        Ok(())
    }

    /// From now on the machine's cable has these faults in these directions.
    ///
    /// # Errors
    /// When there is no such machine.
    pub fn set_faults(&self, machine: u32, directions: &[Direction], faults: Faults) -> anyhow::Result<()> {
        let cable = self.site.cable(self.known(machine)?.cable);
        directions.iter().for_each(|direction| cable.set_faults(*direction, faults));
        Ok(())
    }

    /// Nobody gets an address any more, or everybody does again.
    pub fn set_leases(&self, cable: Cut) {
        let faults = Faults { cable, ..Faults::default() };
        let cable = self.site.host().cable();
        [Direction::Sent, Direction::Received].iter().for_each(|direction| cable.set_faults(*direction, faults));
    }

    /// A machine that is off gets another card: nobody knows its new address.
    ///
    /// # Errors
    /// When there is no such machine.
    pub fn move_away(&mut self, machine: u32) -> anyhow::Result<()> {
        self.cards += 1;
        let mac = Mac::numbered(1000 + self.cards);
        let plan = &mut self.known_mut(machine)?.plan;
        plan.machine().nics.last_mut().context("a machine has cards")?.mac = mac;
        Ok(())
    }

    /// Has the cluster make a coordinator of a node, or a node of a coordinator. It is not waited for.
    ///
    /// # Errors
    /// When no coordinator takes that in time.
    pub fn set_role(&mut self, t: &Context, machine: u32, role: ClusterRole) -> anyhow::Result<()> {
        let change = match role {
            ClusterRole::Coordinator => MachineChange::Coordinator,
            ClusterRole::Node => MachineChange::Node,
        };
        self.change(t, machine, change)?;
        self.known_mut(machine)?.role = role;
        self.tell_places();
        Ok(())
    }

    /// Has the cluster let go of a machine. When that comes back it gets no key, and says why on its screen.
    ///
    /// # Errors
    /// When it does not leave in time, or does not say so.
    pub fn remove(&mut self, t: &Context, machine: u32, how: Leaving) -> anyhow::Result<()> {
        match how {
            Leaving::Lost => {
                self.change(t, machine, MachineChange::RemoveLost)?;
                self.start(machine)?;
            }
            Leaving::Drained => {
                self.change(t, machine, MachineChange::Drain)?;
                if self.known(machine)?.role == ClusterRole::Coordinator {
                    self.set_role(t, machine, ClusterRole::Node)?;
                    // Nobody would tell it any more: it would keep what a coordinator has.
                    self.vm(machine)?.wait_for(LAID_DOWN, t.within(60))?;
                }
                self.through(t.within(60), |records| {
                    let row = row_of(records, machine)?;
                    ensure!(row.etcd.is_none(), "{} is of etcd still: {row:?}", name(machine));
                    records.change(row.id, MachineChange::Remove)
                })?;
                self.reset(&[machine], t.within(5))?;
            }
        }
        let mut left = self.machines.remove(&machine).context("it was there")?;
        self.tell_places();
        let vm = left.vm.as_mut().context("it was started")?;
        vm.wait_for(REMOVED, t.within(60))
            .with_context(|| format!("{} is not told that it has left", name(machine)))?;
        Ok(())
    }

    fn change(&self, t: &Context, machine: u32, change: MachineChange) -> anyhow::Result<()> {
        self.through(t.within(60), |records| {
            let row = row_of(records, machine)?;
            records.change(row.id, change)
        })
        .with_context(|| format!("ask for {change:?} of {}", name(machine)))
    }
}

/// What is looked at.
impl Fleet {
    /// Machines that are on.
    #[must_use]
    pub fn on(&self) -> Vec<u32> {
        self.machines.iter().filter(|(_, known)| known.vm.is_some()).map(|(machine, _)| *machine).collect()
    }

    /// A machine that is on.
    ///
    /// # Errors
    /// When there is none.
    pub fn vm(&mut self, machine: u32) -> anyhow::Result<&mut Vm> {
        self.known_mut(machine)?.vm.as_mut().with_context(|| format!("{} is off", name(machine)))
    }

    /// Asks the first machine, by the owner's tool.
    ///
    /// # Errors
    /// What the tool says.
    pub fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        let vm = self.known(1)?.vm.as_ref().context("the first machine is off")?;
        Ok(self.owner.ask(NAME, vm, command)?)
    }

    /// What a machine says of itself.
    ///
    /// # Errors
    /// When it does not answer its owner.
    pub fn status(&self, machine: u32) -> anyhow::Result<StatusResponse> {
        let mut session = Stranger::call_at(self.place(machine)?, Some(&self.owner.key()?))?;
        Ok(session.call(async |client| client.status(StatusRequest {}).await)?.into_inner())
    }

    /// What a machine is listed as, by whichever coordinator answers.
    ///
    /// # Errors
    /// When none does in time, or it is not listed.
    pub fn row(&self, machine: u32, deadline: Deadline) -> anyhow::Result<ListedMachine> {
        self.through(deadline, |records| row_of(records, machine))
    }

    /// Somebody who writes through all coordinators, until it is dropped.
    ///
    /// # Errors
    /// When it does not start.
    pub fn writer(&self) -> anyhow::Result<Writer> {
        Writer::start(&self.owner, Arc::clone(&self.places))
    }

    /// Waits until all machines that are on are one cluster: each runs, and reaches each other one over the VPN; each coordinator that
    /// votes sees every change, and lists all machines as what they should be, with etcd's members as many as they should be.
    ///
    /// # Errors
    /// What is not so when the deadline passes.
    pub fn is_whole(&self, deadline: Deadline) -> anyhow::Result<()> {
        let mut rows = BTreeMap::new();
        for machine in self.coordinators() {
            rows = self.until(deadline, || self.listed_by(machine).or_else(|why| self.listed_without(machine, why)))?;
        }
        for machine in self.on() {
            self.until(deadline, || self.reaches_others(machine, &rows))?;
        }
        Ok(())
    }

    /// Each coordinator that votes takes a change, and tells all that was ever acknowledged.
    ///
    /// # Errors
    /// When one does not in time, or something is lost.
    pub fn read_back(&self, writer: &Writer, deadline: Deadline) -> anyhow::Result<()> {
        for machine in self.coordinators() {
            let place = self.place(machine)?;
            let read = self
                .until(deadline, || writer.read_back(place).or_else(|why| self.listed_without(machine, why).map(drop)));
            read.with_context(|| format!("read back from {}", name(machine)))?;
        }
        Ok(())
    }

    /// All machines, when another coordinator lists them as they should be, this one as one that keeps a copy without a vote: then
    /// it answers nothing. Else `why` it did not answer.
    fn listed_without(&self, silent: u32, why: Error) -> anyhow::Result<BTreeMap<u32, ListedMachine>> {
        let mut others = self.coordinators().into_iter().filter(|other| *other != silent);
        let listed = others.find_map(|other| self.listed_by(other).ok());
        listed.filter(|rows| rows[&silent].etcd == Some(EtcdMember::Learner)).ok_or(why)
    }

    /// All machines, when this coordinator lists them as they should be.
    fn listed_by(&self, coordinator: u32) -> anyhow::Result<BTreeMap<u32, ListedMachine>> {
        let who = name(coordinator);
        let listed =
            Records::at(self.place(coordinator)?, &self.owner.key()?).and_then(|mut records| records.machines());
        let listed = listed.with_context(|| format!("ask {who}"))?;
        ensure!(listed.old_since.is_none(), "{who} sees no changes");
        let rows: BTreeMap<&str, &ListedMachine> = listed
            .rows
            .iter()
            .filter(|row| row.standing != Standing::Removed)
            .map(|row| (row.name.as_str(), row))
            .collect();
        let mut machines = BTreeMap::new();
        for (machine, known) in &self.machines {
            let called = name(*machine);
            let row = rows.get(called.as_str()).with_context(|| format!("{who} does not list {called}"))?;
            let is_of_etcd = row.etcd.is_some() == (known.role == ClusterRole::Coordinator);
            let fits = row.standing == Standing::Member && row.role == known.role && is_of_etcd;
            ensure!(fits, "{who} lists {called}, which should be a {}, as {row:?}", known.role.word());
            machines.insert(*machine, (*row).clone());
        }
        ensure!(rows.len() == machines.len(), "{who} lists others, too: {:?}", rows.keys().collect::<BTreeSet<_>>());
        let voters = rows.values().filter(|row| row.etcd == Some(EtcdMember::Voter)).count();
        let coordinators = self.machines.values().filter(|known| known.role == ClusterRole::Coordinator).count();
        // One more than odd waits for a second one; after some have left their number may be even.
        let expected = voters == coordinators || voters + 1 == coordinators && voters % 2 == 1;
        ensure!(expected, "{who} lists {voters} voters of {coordinators} coordinators");
        Ok(machines)
    }

    /// Waits until the kernel of each machine that is on has all others for peers, and each reaches the one behind it: every pair
    /// takes minutes where there are many.
    ///
    /// # Errors
    /// What is not so when the deadline passes.
    pub fn know_each_other(&self, deadline: Deadline) -> anyhow::Result<()> {
        let (on, asked) = (self.on(), *self.coordinators().first().context("no coordinator is on")?);
        let rows = self.until(deadline, || self.listed_by(asked))?;
        let all = format!("peers={}", on.len() - 1);
        for (machine, behind) in on.iter().zip(on.iter().cycle().skip(1)) {
            let vm = self.known(*machine)?.vm.as_ref().context("it is on")?;
            let knows = || {
                let last = vm.said().into_iter().rev().find(|line| line.text.contains(MESH_CHANGED))?;
                last.text.contains(&all).then_some(())
            };
            vm.until(deadline, knows).with_context(|| format!("{} does not have {all}", name(*machine)))?;
            self.until(deadline, || self.reaches(*machine, &[*behind], &rows))?;
        }
        Ok(())
    }

    fn reaches_others(&self, machine: u32, rows: &BTreeMap<u32, ListedMachine>) -> anyhow::Result<()> {
        let others: Vec<u32> = self.on().into_iter().filter(|other| *other != machine).collect();
        self.reaches(machine, &others, rows)
    }

    fn reaches(&self, machine: u32, others: &[u32], rows: &BTreeMap<u32, ListedMachine>) -> anyhow::Result<()> {
        let place = self.place(machine)?;
        let state = Stranger::call_at(place, None).and_then(|mut stranger| stranger.state());
        let state = state.with_context(|| format!("ask {}", name(machine)))?.state;
        ensure!(state == MachineState::Running, "{} is {state}", name(machine));
        let mut through = Records::at(place, &self.owner.key()?)?;
        for other in others {
            through
                .reaches(rows[other].id)
                .with_context(|| format!("{} does not reach {}", name(machine), name(*other)))?;
        }
        Ok(())
    }

    /// Asks coordinators, one after the other, until one of them has done it.
    ///
    /// # Errors
    /// The last one's when the deadline passes.
    pub(crate) fn through<T>(
        &self,
        deadline: Deadline,
        ask: impl Fn(&mut Records) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let key = self.owner.key()?;
        self.until(deadline, || {
            let mut last = anyhow::anyhow!("no coordinator is on");
            for machine in self.coordinators() {
                match self.place(machine).and_then(|place| ask(&mut Records::at(place, &key)?)) {
                    Ok(done) => return Ok(done),
                    Err(error) => last = error.context(format!("ask {}", name(machine))),
                }
            }
            Err(last)
        })
    }

    /// Looks until all is well.
    ///
    /// # Errors
    /// What was not, the last time.
    pub fn until<T>(&self, deadline: Deadline, look: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let on = self.machines.values().find_map(|known| known.vm.as_ref()).context("all machines are off")?;
        let mut last = None;
        let found = on.until(deadline, || look().map_err(|error| last = Some(error)).ok());
        match (found, last) {
            (Err(waited), Some(last)) => Err(last.context(waited)),
            (found, _) => Ok(found?),
        }
    }

    /// Coordinators that are on.
    #[must_use]
    pub fn coordinators(&self) -> Vec<u32> {
        let on = |machine: &u32| self.machines[machine].role == ClusterRole::Coordinator;
        self.on().into_iter().filter(on).collect()
    }

    /// Where the owner finds a machine's public API.
    fn place(&self, machine: u32) -> anyhow::Result<SocketAddr> {
        let vm = self.known(machine)?.vm.as_ref();
        vm.and_then(|vm| vm.forward(PUBLIC_API_PORT)).with_context(|| format!("{} is off", name(machine)))
    }

    /// What a machine's cable has carried so far, through all that befell it.
    ///
    /// # Errors
    /// When there is no such machine, or no capture.
    pub fn carried(&self, machine: u32) -> anyhow::Result<BTreeMap<Kind, usize>> {
        kinds(&std::fs::read(capture_of(&self.known(machine)?.plan)).context("read a capture")?)
    }

    /// Nothing but WireGuard and the public API was ever on the cable of a machine that is on.
    ///
    /// # Errors
    /// What else was.
    pub fn hides_all(&self) -> anyhow::Result<()> {
        for machine in self.on() {
            let carried = self.carried(machine)?;
            ensure!(others(&carried).is_empty(), "{}: {carried:?}", name(machine));
        }
        Ok(())
    }

    /// Tells writers where coordinators are now.
    fn tell_places(&self) {
        let places = self.coordinators().into_iter().filter_map(|machine| self.place(machine).ok()).collect();
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// What the machine's cable carries is kept beside what its console says.
    fn capture(&self, machine: u32) -> anyhow::Result<()> {
        let known = self.known(machine)?;
        self.site.cable(known.cable).capture(&name(machine), &capture_of(&known.plan)).context("capture a cable")
    }

    fn known(&self, machine: u32) -> anyhow::Result<&Machine> {
        self.machines.get(&machine).with_context(|| format!("there is no {}", name(machine)))
    }

    fn known_mut(&mut self, machine: u32) -> anyhow::Result<&mut Machine> {
        self.machines.get_mut(&machine).with_context(|| format!("there is no {}", name(machine)))
    }
}

fn capture_of(plan: &Plan) -> PathBuf {
    plan.dir().join("network.pcapng")
}

/// One processor and little memory: there are many of them.
fn small(plan: Plan) -> Plan {
    plan.memory_mib(MEMORY_MIB).cpus(1)
}

/// How the cluster lists a machine.
fn row_of(records: &mut Records, machine: u32) -> anyhow::Result<ListedMachine> {
    let called = name(machine);
    let rows = records.machines()?.rows;
    let row = rows.into_iter().find(|row| row.name == called && row.standing != Standing::Removed);
    row.with_context(|| format!("{called} is not listed"))
}
