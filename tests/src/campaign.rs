//! A campaign: whatever a seed brings happens to real machines while somebody writes, and after each event they are one cluster
//! again, in which nothing is lost that was acknowledged. It must never choose by anything but the seed.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use model::ClusterRole;
use qemu::Deadline;
use qemu::deadline::{Stopwatch, since_1970};
use qemu::machine::Clock;
use qemu::network::{Chance, Cut, Direction, Faults};

use crate::fleet::{Departure, Fleet, FleetSize, Off, name};
use crate::premises::Premises;
use crate::writer::{Tickets, Writer};
use crate::{Context, FleetKind};

mod disks;
mod kube;
mod plan;

pub use disks::disks;
pub use kube::{KubeEvent, KubeEvents, KubeMachines};
pub use plan::{CutDirection, Event, Events, Last, Time};

pub(crate) use kube::KubeCampaign;

/// Leases of addresses, in seconds: short enough that a case may wait until they end.
const LEASE_SECONDS: u32 = 60;
/// Within this a lease has ended that nobody renews, on a busy host, too.
const LEASES_END: Duration = Duration::from_secs(180);
/// A year, as clocks are off by it.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// Words of PID 1 when a lease has ended.
const ADDRESS_LOST: &str = "address lost";
/// Words of PID 1 when it has set the clock that it found.
const CLOCK_SET: &str = "the clock was wrong: set";
/// How many events before a failure are shown.
const TRAIL: usize = 5;

/// Machines that live through events while somebody writes.
pub(crate) trait Endures {
    /// Something that happens to them.
    type Event: fmt::Display;

    /// Has the machines meet this event.
    fn happens(&mut self, t: &Context, event: &Self::Event) -> anyhow::Result<()>;

    /// Waits until all is well, and checks that nothing is lost.
    fn is_well(&self, t: &Context) -> anyhow::Result<()>;

    /// How many changes were acknowledged so far.
    fn acknowledged(&self) -> usize;

    /// Events up to now.
    fn past(&mut self) -> &mut Trail;

    /// Has this happen, and waits until all is well again; an error says what was before.
    fn live_through(&mut self, t: &Context, event: &Self::Event) -> anyhow::Result<()> {
        self.past().0.push(event.to_string());
        let lived = self.happens(t, event).context("while it happened");
        let lived = lived.and_then(|()| self.is_well(t).context("afterwards"));
        lived.with_context(|| self.past().text())
    }
}

/// Events that happened, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Trail(Vec<String>);

impl Trail {
    fn text(&self) -> String {
        let mut text = String::from("what happened:\n");
        for (number, event) in self.0.iter().enumerate().skip(self.0.len().saturating_sub(TRAIL)) {
            // Writing to a string cannot fail.
            let _written = writeln!(text, "  {}. {event}", number + 1);
        }
        text
    }
}

/// Five machines, and who writes.
#[derive(Debug)]
pub struct Campaign {
    fleet: Fleet,
    writer: Writer<Tickets>,
    past: Trail,
}

impl Campaign {
    /// Makes the machines and begins to write.
    ///
    /// # Errors
    /// When they do not become a cluster.
    pub fn begin(t: &Context) -> anyhow::Result<Self> {
        let (coordinators, nodes) = (plan::COORDINATORS, plan::MACHINES - plan::COORDINATORS);
        Self::of(t, Fleet::new(t, FleetSize { coordinators, nodes, lease_seconds: LEASE_SECONDS })?)
    }

    /// The same with a copy of the machines for this case.
    ///
    /// # Errors
    /// When they do not come back.
    pub fn copy(t: &Context) -> anyhow::Result<Self> {
        Self::of(t, Fleet::copy(t, FleetKind::Five)?)
    }

    fn of(t: &Context, fleet: Fleet) -> anyhow::Result<Self> {
        let writer = fleet.writer()?;
        writer.goes_on(1, t.within(30))?;
        Ok(Self { fleet, writer, past: Trail::default() })
    }

    /// Saves the machines as the fleet that this case makes, and ends them.
    ///
    /// # Errors
    /// When one of them is off, or cannot be saved.
    pub fn save(self, t: &Context) -> anyhow::Result<()> {
        drop(self.writer);
        self.fleet.save(t, FleetKind::Five)
    }

    /// Nodes of these numbers come, those of each wave at once; waits until all machines know each other, and nothing is lost.
    ///
    /// # Errors
    /// What is not.
    pub fn joined_by(&mut self, t: &Context, waves: impl IntoIterator<Item = Range<u32>>) -> anyhow::Result<()> {
        for wave in waves {
            let nodes: Vec<u32> = wave.collect();
            nodes.iter().try_for_each(|node| self.fleet.join(t, *node, ClusterRole::Node))?;
            self.run(&nodes, t.within(90))?;
        }
        self.fleet.know_each_other(t.within(60))?;
        self.fleet.read_back(&self.writer, t.within(20))
    }

    /// Checks that only WireGuard and the public API were ever on the cable of a machine that is on.
    ///
    /// # Errors
    /// What else was.
    pub fn hides_all(&self) -> anyhow::Result<()> {
        self.fleet.hides_all()
    }

    /// The machines that coordinate.
    #[must_use]
    pub fn coordinators(&self) -> Vec<u32> {
        self.fleet.coordinators()
    }

    /// The machines that are on and do not coordinate.
    #[must_use]
    pub fn nodes(&self) -> Vec<u32> {
        let coordinators = self.fleet.coordinators();
        self.fleet.on().into_iter().filter(|machine| !coordinators.contains(machine)).collect()
    }

    /// Cables have these faults in these directions until so many changes are made.
    fn have_faults(
        &self,
        t: &Context,
        machines: &[u32],
        directions: &[Direction],
        faults: Faults,
        changes: usize,
    ) -> anyhow::Result<()> {
        machines.iter().try_for_each(|it| self.fleet.set_faults(*it, directions, faults))?;
        self.goes_on(t, changes)?;
        machines.iter().try_for_each(|it| self.fleet.set_faults(*it, directions, Faults::default()))
    }

    /// Machines that are off are switched on with such clocks; those that are wrong are set.
    fn come_back_at(&mut self, t: &Context, machines: &[u32], clock: Time) -> anyhow::Result<()> {
        let shows = match clock {
            Time::Right => Clock::OfHost,
            Time::YearAhead => Clock::Begins(since_1970() + YEAR),
            Time::YearBehind => Clock::Begins(since_1970() - YEAR),
        };
        machines.iter().try_for_each(|it| self.fleet.start_at(*it, shows))?;
        self.run(machines, t.within(60))?;
        for machine in machines.iter().filter(|_| clock != Time::Right) {
            let was_set = self.fleet.vm(*machine)?.said().iter().any(|line| line.text.contains(CLOCK_SET));
            ensure!(was_set, "{} runs with a wrong clock", name(*machine));
        }
        Ok(())
    }

    fn all_come_back(&mut self, t: &Context, order: &[u32], last: Last) -> anyhow::Result<()> {
        let late = match last {
            Last::WithOthers => 0,
            Last::Afterwards => 1,
        };
        let (first, late) = order.split_at(order.len() - late);
        for back in [first, late] {
            back.iter().try_for_each(|machine| self.fleet.start(*machine))?;
            self.run(back, t.within(60))?;
            self.goes_on(t, 1)?;
        }
        Ok(())
    }

    fn leases_end(&self) -> anyhow::Result<()> {
        let on = self.fleet.on();
        let before: Vec<_> = on.iter().map(|it| self.fleet.mark(*it)).collect::<anyhow::Result<_>>()?;
        self.fleet.set_leases(Cut::Cut);
        for (machine, before) in on.into_iter().zip(before) {
            self.fleet.says(machine, before, ADDRESS_LOST, Deadline::after(LEASES_END))?;
        }
        self.fleet.set_leases(Cut::Whole);
        Ok(())
    }

    fn happen_without(&mut self, t: &Context, machine: u32, events: &[Event]) -> anyhow::Result<()> {
        self.fleet.switch_off(&[machine], Off::AtOnce, t.within(20))?;
        for event in events {
            self.happens(t, event)?;
            self.is_well(t)?;
        }
        if !self.fleet.on().contains(&machine) {
            self.fleet.start(machine)?;
            self.run(&[machine], t.within(60))?;
        }
        Ok(())
    }

    /// So many changes are acknowledged from now on.
    fn goes_on(&self, t: &Context, changes: usize) -> anyhow::Result<()> {
        self.writer.goes_on(changes, t.within(20))
    }

    fn run(&mut self, machines: &[u32], deadline: Deadline) -> anyhow::Result<()> {
        machines.iter().try_for_each(|machine| self.fleet.runs(*machine, deadline))
    }
}

impl Endures for Campaign {
    type Event = Event;

    fn happens(&mut self, t: &Context, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Cut { machines, way, changes } => {
                let directions = match way {
                    CutDirection::Both => &Direction::BOTH[..],
                    CutDirection::Sent => &[Direction::Sent],
                    CutDirection::Received => &[Direction::Received],
                };
                let cut = Faults::cut();
                self.have_faults(t, machines, directions, cut, *changes)
            }
            Event::Slow { machines, delay, loss, changes } => {
                let (delay, loss) = (Duration::from_millis(*delay), Chance::per_million(loss * 10_000)?);
                self.have_faults(t, machines, &Direction::BOTH, Faults { delay, loss, ..Faults::default() }, *changes)
            }
            Event::Away { machines, how, changes, clock } => {
                self.fleet.switch_off(machines, *how, t.within(20))?;
                self.goes_on(t, *changes)?;
                self.come_back_at(t, machines, *clock)
            }
            Event::Moves { machine } => {
                self.fleet.switch_off(&[*machine], Off::AtOnce, t.within(20))?;
                self.fleet.move_away(*machine)?;
                self.come_back_at(t, &[*machine], Time::Right)
            }
            Event::Reset { machines } => {
                self.fleet.reset(machines, t.within(5))?;
                self.run(machines, t.within(60))
            }
            Event::AllOff { how, order, last, moved } => {
                let on = self.fleet.on();
                let going: Vec<u32> = order.iter().copied().filter(|machine| on.contains(machine)).collect();
                self.fleet.switch_off(&going, *how, t.within(20))?;
                moved.iter().try_for_each(|machine| self.fleet.move_away(*machine))?;
                self.all_come_back(t, order, *last)
            }
            Event::Role { machine, role } => self.fleet.set_role(t, *machine, *role),
            Event::Replaced { machine, how, by, role } => {
                if *how == Departure::Lost {
                    self.fleet.switch_off(&[*machine], Off::AtOnce, t.within(20))?;
                }
                self.fleet.remove(t, *machine, *how)?;
                self.fleet.join(t, *by, *role)?;
                self.fleet.runs(*by, t.within(60))
            }
            Event::NoLeases => self.leases_end(),
            Event::Without { machine, events } => self.happen_without(t, *machine, events),
        }
    }

    fn is_well(&self, t: &Context) -> anyhow::Result<()> {
        self.fleet.is_whole(t.within(30))?;
        self.fleet.read_back(&self.writer, t.within(20))
    }

    fn acknowledged(&self) -> usize {
        self.writer.acknowledged()
    }

    fn past(&mut self) -> &mut Trail {
        &mut self.past
    }
}

/// How long a campaign goes on.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// No event begins later than this after the first.
    Time(Duration),
    /// So many events.
    Events(usize),
}

/// Has five machines live through the events of a seed, with all files below `out`, and tells `say` how it goes.
///
/// # Errors
/// What was not well, with the seed and where to look.
pub fn campaign(seed: u64, length: Length, out: &Path, say: impl FnMut(&str)) -> anyhow::Result<()> {
    live(Campaign::begin, "five machines are a cluster", (seed, Events::of(seed)), length, out, say)
}

/// The same with machines that run Kubernetes.
///
/// # Errors
/// The same.
pub fn kube_campaign(
    seed: u64,
    machines: KubeMachines,
    length: Length,
    out: &Path,
    say: impl FnMut(&str),
) -> anyhow::Result<()> {
    let begin = |t: &Context| KubeCampaign::begin(t, machines);
    live(begin, "the machines run Kubernetes and a shop", (seed, KubeEvents::of(seed, machines)), length, out, say)
}

fn live<C: Endures>(
    begin: impl FnOnce(&Context) -> anyhow::Result<C>,
    begun: &str,
    (seed, events): (u64, impl Iterator<Item = C::Event>),
    length: Length,
    out: &Path,
    mut say: impl FnMut(&str),
) -> anyhow::Result<()> {
    // Programs that the machines need are told where their files lie, and take nothing that is relative.
    let premises = Arc::new(Premises::open(&std::path::absolute(out)?)?);
    let dir = premises.dir_of("campaign");
    let t = Context::new(premises, dir.clone(), "campaign.rs");
    let clock = Stopwatch::start();
    let mut say = |what: &str| say(&format!("{:>6} s  {what}", clock.elapsed().as_secs()));
    let lived = begin(&t).and_then(|mut machines| {
        say(begun);
        let first = clock.elapsed();
        for (number, event) in events.enumerate() {
            let over = match length {
                Length::Time(time) => clock.elapsed() - first >= time,
                Length::Events(events) => number >= events,
            };
            if over {
                break;
            }
            say(&format!("{}. {event}", number + 1));
            machines.live_through(&t, &event)?;
        }
        say(&format!("all is well: {} changes were acknowledged, and none is lost", machines.acknowledged()));
        Ok(())
    });
    lived.with_context(|| format!("seed {seed}; consoles and captures of all machines: {}", dir.display()))
}
