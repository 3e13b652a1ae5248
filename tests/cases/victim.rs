//! A member without Kubernetes, for what faults and strangers do to it. One case makes it of the release image, one of the debug image,
//! and one with six uplinks; each case that does something to it has a copy of its own.

use std::net::SocketAddr;

use crate::{
    Case, Context, CopiedMachine, FleetKind, Image, MachinePlan, Owner, Prerequisite, ServiceStatus, Starts, Status,
    Stranger,
};
use anyhow::{Context as _, ensure};
use qemu::Vm;
use qemu::machine::{Forward, Link};
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    making(MEMBER, "a member of the release image runs and meets its owner", &["S12"], made_member),
    making(VICTIM, "a member of the debug profile runs and meets its owner", &["S12"], made),
    making(BESIEGED, "a member with six uplinks has six addresses and is claimed", &["S12"], made_besieged),
];

const fn making(
    fleet: FleetKind,
    name: &'static str,
    proves: &'static [&'static str],
    run: fn(&Context) -> anyhow::Result<()>,
) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::Making(fleet), run }
}

pub(crate) const MEMBER: FleetKind = FleetKind::Member;
pub(crate) const VICTIM: FleetKind = FleetKind::Victim;
pub(crate) const BESIEGED: FleetKind = FleetKind::Besieged;

/// Name by which the owner calls the victim.
pub(crate) const NAME: &str = "victim";

/// The machine, its owner, and a connection of the owner that lasts.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) vm: Vm,
    pub(crate) owner: Owner,
    pub(crate) session: Stranger,
    /// Config that the machine was enrolled with.
    pub(crate) config: Vec<u8>,
}

fn made_member(t: &Context) -> anyhow::Result<()> {
    let plan = t.machine("m").tpm();
    Enrolled::new(t, plan)?.save(t, MEMBER)
}

fn made(t: &Context) -> anyhow::Result<()> {
    let plan = t.debug_machine("m")?.tpm();
    Enrolled::new(t, plan)?.save(t, VICTIM)
}

/// The same behind six networks, each with an address of its own for whoever comes through it. It belongs to the cases
/// that attack its port: strangers by four of the networks, the owner by the first and, as a newcomer, by the last. Here the owner
/// comes by the first alone: whoever was authenticated has more room at the port from then on, and the addresses of strangers must not.
fn made_besieged(t: &Context) -> anyhow::Result<()> {
    let network = || Link::User(vec![Forward::tcp(model::PUBLIC_API_PORT)]);
    let plan = (1..ADDRESSES).fold(t.debug_machine("m")?.tpm(), |plan, _| plan.nic(network()));
    let enrolled = Enrolled::new(t, plan)?;
    let has_all = || {
        let addresses = enrolled.owner.status(NAME, &enrolled.vm).ok()?.public_addresses;
        (addresses.len() == ADDRESSES).then_some(())
    };
    enrolled.vm.until(t.within(10), has_all).context("it has an address of each network")?;
    enrolled.save(t, BESIEGED)
}

/// How many addresses the besieged machine is reached from.
const ADDRESSES: usize = 6;

/// A machine that runs for the first time and has met its owner.
struct Enrolled {
    vm: Vm,
    owner: Owner,
    config: Vec<u8>,
}

impl Enrolled {
    fn new(t: &Context, plan: MachinePlan) -> anyhow::Result<Self> {
        let owner = t.owner()?;
        let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes"])?;
        let vm = plan.config(&config)?.start()?;
        owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
        Ok(Self { vm, owner, config })
    }

    fn save(mut self, t: &Context, fleet: FleetKind) -> anyhow::Result<()> {
        t.save(fleet, &image_of(t, fleet)?, &self.owner, &mut [("m", &mut self.vm)], self.config)
    }
}

/// Image of the fleet's machine.
fn image_of(t: &Context, fleet: FleetKind) -> anyhow::Result<Image> {
    Ok(if fleet == MEMBER { t.image().clone() } else { Image::debug_of_environment()? })
}

/// A machine with strangers around it.
#[derive(Debug)]
pub(crate) struct Besieged {
    pub(crate) victim: Victim,
    /// Where each is seen with an address of its own.
    pub(crate) strangers: [SocketAddr; ADDRESSES - 2],
    /// Where nobody was before the owner tries.
    pub(crate) newcomer: SocketAddr,
}

impl Besieged {
    /// A copy of its own for this case.
    pub(crate) fn copy(t: &Context) -> anyhow::Result<Self> {
        let victim = Victim::copy_of(t, BESIEGED)?;
        let forwards = victim.vm.forwards(model::PUBLIC_API_PORT);
        let [_owners, strangers @ .., newcomer] = <[SocketAddr; ADDRESSES]>::try_from(forwards.as_slice())?;
        Ok(Self { victim, strangers, newcomer })
    }
}

impl Victim {
    /// A copy of its own for this case.
    pub(crate) fn copy(t: &Context) -> anyhow::Result<Self> {
        Self::copy_of(t, VICTIM)
    }

    /// The same of this fleet.
    pub(crate) fn copy_of(t: &Context, fleet: FleetKind) -> anyhow::Result<Self> {
        let copy = t.copy::<Vec<u8>>(fleet, &image_of(t, fleet)?)?;
        let mut machines = copy.go_on(|_, links| links.to_vec(), || true)?;
        let CopiedMachine { vm, .. } = machines.remove("m").context("the machine comes back")?;
        let (owner, config) = (copy.owner, copy.more);
        let session = Stranger::meet_as(&vm, Some(&owner.key()?), t.within(10))?;
        Ok(Self { vm, owner, session, config })
    }

    /// Answer of the owner's tool to a command.
    pub(crate) fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        Ok(self.owner.ask(NAME, &self.vm, command)?)
    }

    /// Status of the machine, as it tells its owner.
    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        self.owner.status(NAME, &self.vm)
    }

    /// The service of this name; an error when the machine does not list it.
    pub(crate) fn service(&self, name: &str) -> anyhow::Result<ServiceStatus> {
        let found = self.owner.services(NAME, &self.vm)?.into_iter().find(|service| service.name == name);
        found.with_context(|| format!("no service `{name}`"))
    }

    /// Waits until the machine lists the service so.
    pub(crate) fn service_when(
        &self,
        t: &Context,
        name: &str,
        mut wanted: impl FnMut(&ServiceStatus) -> bool,
    ) -> anyhow::Result<ServiceStatus> {
        let mut last = None;
        let found = self.vm.until(t.within(20), || {
            let seen = last.insert(self.service(name).ok()?);
            wanted(seen).then(|| seen.clone())
        });
        found.with_context(|| format!("last seen: {last:?}"))
    }

    /// Entries of the log, as `cairnctl machine logs` with these arguments shows them.
    pub(crate) fn logs(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        self.owner.logs(NAME, &self.vm, arguments)
    }

    /// Lines of `service` that hold `text`.
    pub(crate) fn lines(&self, service: &str, text: &str) -> anyhow::Result<Vec<String>> {
        let mut lines = self.owner.lines(NAME, &self.vm, &[service])?;
        lines.retain(|line| line.contains(text));
        Ok(lines)
    }
}

/// Kilobytes that PID 1 may hold after the worst.
const MOST_KILOBYTES: u64 = 16 << 10;

/// Checks that PID 1 does not hold too much, as it is told behind what was seen of a fault.
pub(crate) fn bounded(t: &Context, seen: &str) -> anyhow::Result<()> {
    t.measured(seen);
    let held = seen.rsplit_once("holds ").and_then(|(_, held)| held.strip_suffix(" kB")?.parse::<u64>().ok());
    let held = held.with_context(|| format!("no memory in `{seen}`"))?;
    ensure!(held <= MOST_KILOBYTES, "PID 1 holds {held} kB");
    Ok(())
}
