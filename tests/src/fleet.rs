//! Several machines of one cluster, most of them coordinators: how they come to be, what is done to them, and what has to hold
//! when all is well again. They are called m1, m2, …; a machine that left gives its number to nobody.
//!
//! It knows which machines there should be and which of them coordinate, and must never take that from the cluster itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::PoisonError;

use anyhow::{Context as _, ensure};
use api::{LeavingData, ListedMachine, MachineChange, RoleDirection};
use cluster::record::Standing;
use cluster::role::AnyRole;
use keys::endpoint::Endpoint;
use keys::ticket::Ticket;
use model::{ClusterId, ClusterRole, TicketPubKey};
use qemu::console::Mark;
use qemu::machine::{Clock, Link, Mac};
use qemu::network::{Cable, Cut, Direction, Faults};
use qemu::{Deadline, Vm};
use serde::{Deserialize, Serialize};

use crate::owner::wait_state;
use crate::records::{NOT_AFTER, Records};
use crate::writer::{Places, drawn};
use crate::{Context, CopiedMachine, FleetCopy, FleetKind, MachinePlan, Owner, SITE, Site};

mod looks;

pub use looks::has_peers;

/// Memory of a coordinator without Kubernetes: the least that `cairnctl` makes a coordinator with.
const MEMORY_MIB: u32 = 128;
/// Words of PID 1 when it sees every change again.
pub const SEES_RECORDS: &str = "the cluster's records are read";
/// Words of PID 1 when it has changed the kernel's peers or routes, with how many peers there are then.
pub const MESH_CHANGED: &str = "the kernel's mesh is changed";
/// Words of PID 1 when it has erased what a coordinator has.
pub const LAID_DOWN: &str = "this machine is no coordinator any more";
/// Words of PID 1 of a machine that is let in no more.
const REMOVED: &str = "the machine was removed from the cluster";
/// The cluster's name.
pub const NAME: &str = "one";

/// Size and leases of a fleet in the beginning.
#[derive(Debug, Clone, Copy)]
pub struct FleetSize {
    /// Machines that coordinate, from m1 on.
    pub coordinators: u32,
    /// Machines that follow.
    pub nodes: u32,
    /// How long an address is theirs, in seconds.
    pub lease_seconds: u32,
}

/// State of a fleet beside its machines, as it is saved.
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

/// The machines of one cluster, with their site and their owner.
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
    plan: MachinePlan,
    role: ClusterRole,
    /// None while it is off.
    vm: Option<Running>,
    cable: usize,
}

#[derive(Debug)]
struct Running {
    vm: Vm,
    /// Where its console was when this boot began, or when it came back as it was saved.
    booted: Mark,
}

/// How a machine leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// While it runs, in order.
    Drained,
    /// The machine was switched off, and is given up.
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

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtOnce => "killed",
            Self::InOrder => "switched off in order",
        })
    }
}

/// Name of the machine with this number.
#[must_use]
pub fn name(machine: u32) -> String {
    format!("m{machine}")
}

impl Fleet {
    /// Makes them: the first creates the cluster, the others join it by tickets.
    ///
    /// # Errors
    /// When they do not become one cluster in time.
    pub fn new(t: &Context, wanted: FleetSize) -> anyhow::Result<Self> {
        let mut site = Site::with_leases(wanted.lease_seconds)?;
        let owner = t.owner()?;
        let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes", "--node-name", &name(1)])?;
        let plan = small(site.machine(t, &name(1))?).config(&config)?;
        let vm = plan.start()?;
        owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
        let issued = vm.until(t.within(30), || owner.ask(NAME, &vm, &["ticket", "issue"]).ok())?;
        let text = issued["ticket"].as_str().context("a ticket has a text")?;
        let Ticket { cluster, ca_spki, .. } = Ticket::from_text(text)?;
        let first = Machine { plan, role: ClusterRole::Coordinator, vm: Some(vm.into()), cable: 0 };
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
            let running = known.vm.as_mut().with_context(|| format!("{name} is off"))?;
            machines.push((name.as_str(), &mut running.vm));
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

    fn come_back(t: &Context, copy: FleetCopy<Beside>) -> anyhow::Result<Self> {
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
        let mut copied = copy.go_on(links, plugged_in)?;
        let mut machines = BTreeMap::new();
        for (machine, cable) in &cables {
            let CopiedMachine { plan, vm } = copied.remove(&name(*machine)).context("each machine comes back")?;
            let coordinates = coordinators.contains(machine);
            let role = if coordinates { ClusterRole::Coordinator } else { ClusterRole::Node };
            machines.insert(*machine, Machine { plan, role, vm: Some(vm.into()), cable: *cable });
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
        let ticket =
            Ticket { cluster, ca_spki, coordinator_public_endpoints, key, not_after: NOT_AFTER.0, machine: None };
        self.join_by(machine, role, &ticket)
    }

    /// The same by this ticket.
    ///
    /// # Errors
    /// When the machine does not start.
    pub fn join_by(&mut self, machine: u32, role: ClusterRole, ticket: &Ticket) -> anyhow::Result<()> {
        let cable = self.site.machines();
        let config = self.joining(machine, ticket)?;
        let plan = self.newcomer(machine)?.config(&config)?;
        self.machines.insert(machine, Machine { plan, role, vm: None, cable });
        self.capture(machine)?;
        self.start(machine)
    }

    /// A machine more at the site, without a config: the fleet does not count it among those that there should be.
    ///
    /// # Errors
    /// When the network has no cable for it.
    pub fn newcomer(&mut self, machine: u32) -> anyhow::Result<MachinePlan> {
        Ok(small(self.site.machine(&self.home, &name(machine))?))
    }

    /// Config by which a machine asks to be let in with this ticket.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn joining(&self, machine: u32, ticket: &Ticket) -> anyhow::Result<Vec<u8>> {
        let (called, file) = (name(machine), format!("{}-{}", name(machine), ticket.id()));
        self.owner.config_of_joiner(&file, &ticket.to_text(), &["--level", "encrypted", "--node-name", &called])
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
        known.vm = Some(plan.start()?.into());
        self.tell_places();
        Ok(())
    }

    /// Waits until a machine runs in the boot that was begun last.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn runs(&self, machine: u32, deadline: Deadline) -> anyhow::Result<()> {
        let Running { vm, booted } = self.running(machine)?;
        let runs = wait_state(vm, *booted, "Running", deadline);
        runs.map(drop).with_context(|| format!("{} does not come back", name(machine)))
    }

    /// Switches machines off.
    ///
    /// # Errors
    /// When one does not go down in time.
    pub fn switch_off(&mut self, machines: &[u32], how: Off, deadline: Deadline) -> anyhow::Result<()> {
        let mut going = Vec::new();
        for machine in machines {
            let running = self.known_mut(*machine)?.vm.take();
            going.push((*machine, running.with_context(|| format!("{} is off", name(*machine)))?.vm));
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

    /// Kills a machine's QEMU, and starts the machine again.
    ///
    /// # Errors
    /// When it was off, or does not start.
    pub fn power_cut(&mut self, t: &Context, machine: u32) -> anyhow::Result<()> {
        self.switch_off(&[machine], Off::AtOnce, t.within(10))?;
        self.start(machine)
    }

    /// Pulls the reset lines of machines that run.
    ///
    /// # Errors
    /// When one has no monitor any more.
    pub fn reset(&mut self, machines: &[u32], deadline: Deadline) -> anyhow::Result<()> {
        for machine in machines {
            let running = self.running_mut(*machine)?;
            running.booted = running.vm.mark()?;
            running.vm.reset(deadline)?;
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

    /// Cuts or mends the cable of the host that gives addresses: nobody gets one any more, or everybody does again.
    pub fn set_leases(&self, cable: Cut) {
        let faults = Faults { cable, ..Faults::default() };
        let cable = self.site.host().cable();
        Direction::BOTH.iter().for_each(|direction| cable.set_faults(*direction, faults));
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
        let direction = match role {
            ClusterRole::Coordinator => RoleDirection::Add,
            ClusterRole::Node => RoleDirection::Remove,
        };
        self.change(t, machine, MachineChange::Role(AnyRole::Coordinator, direction))?;
        self.known_mut(machine)?.role = role;
        self.tell_places();
        Ok(())
    }

    /// Has the cluster make a node of a coordinator, and waits until that has erased what a coordinator has.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn becomes_node(&mut self, t: &Context, machine: u32) -> anyhow::Result<()> {
        let before = self.mark(machine)?;
        self.set_role(t, machine, ClusterRole::Node)?;
        self.says(machine, before, LAID_DOWN, t.within(90)).map(drop)
    }

    /// Has the cluster let go of a machine. When that comes back it gets no key, and says why on its screen.
    ///
    /// # Errors
    /// When it does not leave in time, or does not say so.
    pub fn remove(&mut self, t: &Context, machine: u32, how: Departure) -> anyhow::Result<()> {
        match how {
            Departure::Lost => {
                self.change(t, machine, MachineChange::RemoveLost)?;
                self.start(machine)?;
            }
            Departure::Drained => {
                self.change(t, machine, MachineChange::Drain(LeavingData::GivenUp))?;
                if self.known(machine)?.role == ClusterRole::Coordinator {
                    // Nobody would tell it afterwards: it would keep what a coordinator has.
                    self.becomes_node(t, machine)?;
                }
                self.through(t.within(60), |records| {
                    let row = row_of(records, machine)?;
                    ensure!(row.etcd.is_none(), "{} is of etcd still: {row:?}", name(machine));
                    records.change(row.id, MachineChange::Remove)
                })?;
                self.reset(&[machine], t.within(5))?;
            }
        }
        let told = self.says(machine, self.booted(machine)?, REMOVED, t.within(60));
        self.machines.remove(&machine);
        self.tell_places();
        told.map(drop)
    }

    fn change(&self, t: &Context, machine: u32, change: MachineChange) -> anyhow::Result<()> {
        self.through(t.within(60), |records| {
            let row = row_of(records, machine)?;
            records.change(row.id, change)
        })
        .with_context(|| format!("ask for {change:?} of {}", name(machine)))
    }
}

impl Fleet {
    /// Tells writers where coordinators are now.
    fn tell_places(&self) {
        let places = self.coordinators().into_iter().filter_map(|machine| self.place(machine).ok()).collect();
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// Keeps what the machine's cable carries beside what its console says.
    fn capture(&self, machine: u32) -> anyhow::Result<()> {
        let known = self.known(machine)?;
        self.site.cable(known.cable).capture(&name(machine), &capture_of(&known.plan)).context("capture a cable")
    }

    fn running(&self, machine: u32) -> anyhow::Result<&Running> {
        self.known(machine)?.vm.as_ref().with_context(|| format!("{} is off", name(machine)))
    }

    fn running_mut(&mut self, machine: u32) -> anyhow::Result<&mut Running> {
        self.known_mut(machine)?.vm.as_mut().with_context(|| format!("{} is off", name(machine)))
    }

    fn known(&self, machine: u32) -> anyhow::Result<&Machine> {
        self.machines.get(&machine).with_context(|| format!("there is no {}", name(machine)))
    }

    fn known_mut(&mut self, machine: u32) -> anyhow::Result<&mut Machine> {
        self.machines.get_mut(&machine).with_context(|| format!("there is no {}", name(machine)))
    }
}

impl From<Vm> for Running {
    fn from(vm: Vm) -> Self {
        let booted = vm.started();
        Self { vm, booted }
    }
}

fn capture_of(plan: &MachinePlan) -> PathBuf {
    plan.dir().join("network.pcapng")
}

/// A plan with one processor and little memory: a fleet has many machines.
fn small(plan: MachinePlan) -> MachinePlan {
    plan.memory_mib(MEMORY_MIB).cpus(1)
}

/// How the cluster lists a machine.
fn row_of(records: &mut Records, machine: u32) -> anyhow::Result<ListedMachine> {
    let called = name(machine);
    let rows = records.machines()?.rows;
    let row = rows.into_iter().find(|row| row.name == called && row.standing != Standing::Removed);
    row.with_context(|| format!("{called} is not listed"))
}
