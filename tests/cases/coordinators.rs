//! That etcd follows the records, and outlives its members: machines that are to coordinate become voters while they run,
//! restart in turn, are cut off, and become nodes again. Nothing that was acknowledged is lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, ensure};
use qemu::Vm;
use qemu::network::{Cut, Direction, Faults};
use serde_json::Value;

use crate::{Case, Context, Need, Owner, Plan, SITE, Site, wait_state};

pub(crate) const CASES: &[Case] = &[
    case("three coordinators become three voters of etcd", &["S5"], voters),
    case("each of three coordinators restarts in turn, and no acknowledged write is lost", &["K4"], restarts),
    case("a coordinator that was cut off, or killed, is made up for and comes back", &["K4"], losses),
    case(
        "two of three that were all switched off open by themselves, and one alone opens nothing",
        &["K6", "K7", "D2"],
        all_off,
    ),
    case("one of three goes on alone by its owner's word, and the others do not", &["K6"], recovered),
    case("a coordinator becomes a node again, and leaves", &["S5"], leaves),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], run }
}

const NAME: &str = "one";
const NAMES: [&str; 3] = ["first", "second", "third"];
/// What a coordinator is given that runs no Kubernetes.
const MEMORY_MIB: u32 = 512;
const BOTH: [Direction; 2] = [Direction::Sent, Direction::Received];
/// What PID 1 says when it sees every change again.
const SEES_RECORDS: &str = "the cluster's records are read";
/// What PID 1 says of the cold-start key that three hold.
const EPOCH_STANDS: &str = "holders=3";

/// Three machines; the owner asks the first.
#[derive(Debug)]
struct Trio {
    site: Site,
    owner: Owner,
    plans: Vec<Plan>,
    machines: Vec<Vm>,
}

fn shared(t: &Context) -> anyhow::Result<Arc<Mutex<Trio>>> {
    t.shared("three coordinators", Trio::new)
}

impl Trio {
    fn new(t: &Context) -> anyhow::Result<Self> {
        let mut site = Site::new()?;
        let owner = t.owner()?;
        let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes", "--node-name", NAMES[0]])?;
        let plan = site.machine(t, NAMES[0])?.memory_mib(MEMORY_MIB).config(&config)?;
        let mut first = plan.start()?;
        owner.status_when_running(NAME, &mut first, t.within(30))?;
        let mut trio = Self { site, owner, plans: vec![plan], machines: vec![first] };
        let is_ours = |address: &Value| address.as_str().is_some_and(|address| address.starts_with(SITE));
        trio.listed(t, NAMES[0], |row| row["addresses"].as_array().is_some_and(|all| all.iter().any(is_ours)))?;
        let issued = trio.ask(&["ticket", "issue", "--uses", "2", "--role", "coordinator"])?;
        let ticket = issued["ticket"].as_str().context("a ticket has a text")?;
        for name in &NAMES[1..] {
            let joining = trio.owner.config_of_joiner(name, ticket, &["--level", "encrypted", "--node-name", name])?;
            let plan = trio.site.machine(t, name)?.memory_mib(MEMORY_MIB).config(&joining)?;
            trio.machines.push(plan.start()?);
            trio.plans.push(plan);
        }
        for machine in &mut trio.machines[1..] {
            wait_state(machine, "Running", t.within(60))?;
        }
        for name in NAMES {
            trio.listed(t, name, |row| row["role"] == "coordinator" && row["etcd"] == "voter")?;
        }
        Ok(trio)
    }

    fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        Ok(self.owner.ask(NAME, &self.machines[0], command)?)
    }

    /// Waits until the first machine lists that one as `wanted`.
    fn listed(&self, t: &Context, name: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let row = || {
            let listed = self.ask(&["machine", "list"]).ok()?;
            listed["machines"].as_array()?.iter().find(|row| row["name"] == name).cloned()
        };
        let found = self.machines[0].until(t.within(60), || row().filter(&wanted));
        found.map(drop).with_context(|| format!("{name} was last listed as {:#}", row().unwrap_or_default()))
    }

    /// Waits until any two of them can open each other.
    fn can_open(&mut self, t: &Context) -> anyhow::Result<()> {
        for machine in &mut self.machines {
            // An earlier case may have read over it.
            if !machine.console().lines().iter().any(|line| line.text.contains(EPOCH_STANDS)) {
                machine.wait_for(EPOCH_STANDS, t.within(60))?;
            }
        }
        Ok(())
    }

    /// The ids of all tickets.
    fn tickets(&self) -> anyhow::Result<BTreeSet<String>> {
        let listed = self.ask(&["ticket", "list"])?;
        let ids = listed["tickets"].as_array().context("a list of tickets")?.iter();
        Ok(ids.filter_map(|ticket| ticket["ticket_id"].as_str().map(str::to_owned)).collect())
    }
}

impl Trio {
    /// Does `work` while somebody else writes through the first machine without a pause; what was acknowledged is there
    /// when it is done.
    fn under_a_writer(
        &mut self,
        t: &Context,
        work: impl FnOnce(&mut [Vm], &Site) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { site, owner, machines, .. } = self;
        let address = machines[0].forward(model::PUBLIC_API_PORT).context("the first machine has a port")?.to_string();
        let done = AtomicBool::new(false);
        let (worked, written) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = BTreeSet::new();
                while !done.load(Ordering::Relaxed) {
                    let command = ["-c", NAME, "--address", &address, "-o", "json", "ticket", "issue"];
                    let answer =
                        owner.run(&command).ok().and_then(|answer| serde_json::from_str::<Value>(&answer).ok());
                    written.extend(answer.and_then(|ticket| ticket["ticket_id"].as_str().map(str::to_owned)));
                }
                written
            });
            let worked = work(machines, site);
            done.store(true, Ordering::Relaxed);
            (worked, writer.join())
        });
        worked?;
        let written = written.map_err(|_panic| anyhow::anyhow!("the writer panicked"))?;
        ensure!(!written.is_empty(), "nothing was acknowledged at all");
        let there = self.tickets()?;
        let lost: Vec<_> = written.difference(&there).collect();
        ensure!(lost.is_empty(), "acknowledged, and lost: {lost:?} of {}", written.len());
        t.measured(&format!("{} writes were acknowledged, none is lost", written.len()));
        Ok(())
    }
}

fn voters(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let trio = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = trio.ask(&["machine", "list"])?;
    ensure!(listed["old_since_unix_ms"].is_null(), "{listed:#}");
    let rows = listed["machines"].as_array().context("a list of machines")?;
    ensure!(rows.len() == 3 && rows.iter().all(|row| row["state"] == "Member"), "{rows:#?}");
    Ok(())
}

fn restarts(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut trio = shared.lock().unwrap_or_else(PoisonError::into_inner);
    trio.under_a_writer(t, |machines, _| {
        for n in [1, 2, 0] {
            machines[n].reset(t.within(5))?;
            comes_back(t, &mut machines[n])?;
        }
        Ok(())
    })
}

fn losses(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut trio = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = trio.plans[2].clone();
    trio.under_a_writer(t, |machines, site| {
        // One of three hears nothing and is not heard; then it speaks and hears nothing.
        for directions in [&BOTH[..], &[Direction::Received]] {
            cable(site, 1, directions, Cut::Cut);
            machines[1].wait_for("watch the cluster's records", t.within(60))?;
            cable(site, 1, directions, Cut::Whole);
            machines[1].wait_for(SEES_RECORDS, t.within(60))?;
        }
        Ok(())
    })?;
    // Two of three are gone: nothing is written, and what is read says how old it is.
    let third = trio.machines.pop().context("there are three")?;
    third.kill();
    cable(&trio.site, 1, &[Direction::Sent], Cut::Cut);
    let old = trio.machines[0].until(t.within(60), || {
        trio.ask(&["machine", "list"]).ok().filter(|listed| !listed["old_since_unix_ms"].is_null())
    });
    old.context("a coordinator without quorum says that its list is old")?;
    ensure!(trio.ask(&["ticket", "issue"]).is_err(), "without quorum nothing is written");
    cable(&trio.site, 1, &[Direction::Sent], Cut::Whole);
    trio.machines[1].wait_for(SEES_RECORDS, t.within(60))?;
    trio.machines.push(plan.start()?);
    trio.under_a_writer(t, |machines, _| comes_back(t, &mut machines[2]))
}

/// Nobody does anything but switch machines on: two of three have their keys back, the third from them. One alone has not,
/// wherever it was taken.
fn all_off(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut trio = shared.lock().unwrap_or_else(PoisonError::into_inner);
    trio.can_open(t)?;
    trio.machines.drain(..).for_each(Vm::kill);

    let mut first = trio.plans[0].start()?;
    wait_state(&mut first, "AwaitingKeys", t.within(30))?;
    for _ in 0..2 {
        first.wait_for("no share from another voter", t.within(60))?;
    }
    let alone = trio.owner.ask(NAME, &first, &["machine", "status"])?;
    ensure!(alone["state"] == "AwaitingKeys", "{alone:#}");

    let mut second = trio.plans[1].start()?;
    comes_back(t, &mut second)?;
    comes_back(t, &mut first)?;
    trio.machines.extend([first, second]);
    let issues = || trio.ask(&["ticket", "issue"]).ok();
    trio.machines[0].until(t.within(60), issues).context("two of three have a leader, and take changes")?;
    let mut third = trio.plans[2].start()?;
    comes_back(t, &mut third)?;
    trio.machines.push(third);
    Ok(())
}

/// Two of three are lost, or so it seems: the first goes on by its owner's word. When the two come back and are a quorum, they
/// are not another cluster for longer than they hear of nobody else.
fn recovered(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut trio = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let before = trio.tickets()?;
    // So its owner called it first of all.
    let recover = ["cluster", "recover", "--from", "m1"];
    let proceed = [&recover[..], &["--yes"]].concat();
    let refused = trio.ask(&proceed).expect_err("there is a quorum").to_string();
    ensure!(refused.contains("etcd has a leader"), "{refused}");
    trio.can_open(t)?;
    trio.machines.drain(1..).for_each(Vm::kill);

    let plan = trio.machines[0].until(t.within(60), || trio.ask(&recover).ok());
    let plan = plan.context("without quorum it can be recovered")?;
    ensure!(plan["done"] == false && plan["taken_out"].as_array().is_some_and(|out| out.len() == 2), "{plan:#}");
    ensure!(trio.ask(&["ticket", "issue"]).is_err(), "it was only asked");
    let done = trio.ask(&proceed)?;
    ensure!(done["done"] == true, "{done:#}");
    trio.listed(t, NAMES[0], |row| row["etcd"] == "voter")?;
    for name in &NAMES[1..] {
        trio.listed(t, name, |row| row["role"] == "node" && row["etcd"].is_null() && row["state"] == "Member")?;
    }
    trio.ask(&["ticket", "issue"])?;
    ensure!(trio.tickets()?.is_superset(&before), "acknowledged before, and lost");

    // They open each other by their shares, and decide.
    cable(&trio.site, 0, &BOTH, Cut::Cut);
    let back = trio.plans[1..].iter().map(Plan::start).collect::<Result<Vec<_>, _>>()?;
    trio.machines.extend(back);
    for machine in &mut trio.machines[1..] {
        comes_back(t, machine)?;
    }
    cable(&trio.site, 0, &BOTH, Cut::Whole);
    for machine in &mut trio.machines[1..] {
        machine.wait_for("this machine is no coordinator any more", t.within(90))?;
    }
    for name in &NAMES[1..] {
        trio.ask(&["machine", "role", "add", name, "coordinator"])?;
    }
    for name in NAMES {
        trio.listed(t, name, |row| row["role"] == "coordinator" && row["etcd"] == "voter")?;
    }
    ensure!(trio.tickets()?.is_superset(&before), "acknowledged before, and lost");
    Ok(())
}

fn leaves(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut trio = shared.lock().unwrap_or_else(PoisonError::into_inner);
    trio.ask(&["machine", "role", "remove", NAMES[2], "coordinator", "--wait"])?;
    trio.listed(t, NAMES[2], |row| row["role"] == "node" && row["etcd"].is_null())?;
    trio.machines[2].wait_for("this machine is no coordinator any more", t.within(30))?;
    trio.listed(t, NAMES[1], |row| row["etcd"] == "voter")?;
    trio.ask(&["machine", "remove", NAMES[2]])?;
    trio.listed(t, NAMES[2], |row| row["state"] == "Removed")?;
    // It does not get its key again, and says why to whoever stands in front of it.
    trio.machines[2].reset(t.within(5))?;
    trio.machines[2].wait_for("the machine was removed from the cluster", t.within(60))?;
    Ok(())
}

/// Pulls the cable of the `n`-th machine, or mends it.
fn cable(site: &Site, n: usize, directions: &[Direction], cable: Cut) {
    directions.iter().for_each(|it| site.cable(n).set_faults(*it, Faults { cable, ..Faults::default() }));
}

/// Waits until a coordinator that started again runs, and sees the cluster's records.
fn comes_back(t: &Context, machine: &mut Vm) -> anyhow::Result<()> {
    wait_state(machine, "Running", t.within(90))?;
    machine.wait_for(SEES_RECORDS, t.within(60))?;
    Ok(())
}
