//! Shows that a machine joins a cluster by its ticket, and comes back to it by itself. One case makes the coordinator
//! that is joined; each other one has a copy of its own. Where only the coordinator's answer counts, whoever asks is
//! made by the case.

use std::collections::BTreeSet;

use anyhow::{Context as _, Error, bail, ensure};
use api::KeyRequest;
use cluster::redeem::{RedeemAnswer, RedeemBody};
use keys::endpoint::Endpoint;
use keys::identity::SigningKey;
use keys::ticket::Ticket;
use model::{ClusterRole, DiskUuid, Level, PUBLIC_API_PORT, PartitionKind, Secret, TicketPubKey, Uuid};
use qemu::{Deadline, Vm};

use crate::writer::drawn;
use crate::{
    Case, Context, Fleet, FleetKind, FleetSize, Joiner, MachinePlan, NAME, Off, Prerequisite, RawDisk, SITE, Starts,
    name, wait_state,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        starts: Starts::Making(LONE),
        ..case("the first machine is listed, and its tickets say where it is", &["S3"], alone)
    },
    case("a machine joins as a node, and is reached through another", &["M2", "S3", "S8"], joins),
    Case {
        starts: Starts::From(FIVE),
        ..case("a node that restarts is given its key, and logs it", &["K4", "K9", "M3", "S8"], restarts)
    },
    Case {
        starts: Starts::From(FIVE),
        ..case("a list tells when each machine was last seen, also one off", &["M2"], unseen)
    },
    case("a join cut at any step goes on by the same use of its ticket", &["S4", "D4", "D7"], cut),
    case("a ticket that lets nobody in says why, and leaves the disk", &["S3", "S4"], refused),
    case("a machine whose ticket was revoked joins by one that holds", &["S4"], revoked),
    Case { starts: Starts::From(FIVE), ..case("a node in a coordinator's place lets nobody in", &["S3"], impostor) },
    case("a ticket admits as many machines as it says, and no more", &["S4"], used_up),
    case("a joined coordinator is a node until it is approved", &["S4", "S5"], approved),
    case("a coordinator that its ticket names by key is one at once", &["S4"], named),
    case("of two that come at once by a ticket for one, one is let in", &["S4"], at_once),
    case("a ticket for one machine lets no other in", &["S3", "S4"], anothers_ticket),
    case("a machine with another's disk or key is not let in", &["S3", "K7"], anothers_disk),
    case("a key is released for its disk, generation and level", &["K7", "K9"], anothers_key),
    case("a removed machine is given no key, and not let in again", &["K9"], removed),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(LONE), run }
}

const LONE: FleetKind = FleetKind::Lone;
const FIVE: FleetKind = FleetKind::Five;
/// Size of a disk that a case looks at.
const DISK_MIB: u64 = 1024;
/// A node of [`FIVE`].
const NODE: u32 = 4;

fn alone(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::new(t, FleetSize { coordinators: 1, nodes: 0, lease_seconds: u32::MAX })?;
    let listed = fleet.ask(&["machine", "list"])?;
    let first = &listed["machines"][0];
    ensure!(first["name"] == name(1) && first["role"] == "coordinator" && first["state"] == "Member", "{listed:#}");
    ensure!(first["vpn_ip"] == "10.118.0.1" && first["last_seen_unix_ms"].is_u64(), "{listed:#}");
    ensure!(listed["machines"].as_array().is_some_and(|rows| rows.len() == 1), "{listed:#}");
    fleet.until(t.within(40), || {
        let places = fleet.ticket(&[])?.coordinator_public_endpoints;
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        ensure!(places.iter().any(|place| place.starts_with(SITE)), "none at the site: {places:?}");
        ensure!(places.iter().all(|place| place.ends_with(&format!(":{PUBLIC_API_PORT}"))), "{places:?}");
        Ok(())
    })?;
    fleet.save(t, LONE)
}

fn joins(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, LONE)?;
    let ticket = fleet.ticket(&[])?;
    fleet.join_by(2, ClusterRole::Node, &ticket)?;
    fleet.runs(2, t.within(60))?;
    // It announces itself, and hears its answer, through WireGuard alone.
    fleet.is_whole(t.within(40))?;
    let row = fleet.row(2, t.within(10))?;
    ensure!(row.role == ClusterRole::Node && row.vpn_ip.octets() == [10, 118, 0, 2], "{row:?}");
    let ticket = fleet.ticket_row(&ticket)?;
    ensure!(ticket["used"] == 1, "{ticket:#}");
    let status = fleet.ask(&["-m", &name(2), "--through", &name(1), "machine", "status"])?;
    ensure!(status["name"] == name(2) && status["machine_id"] == row.id.to_string(), "{status:#}");
    Ok(())
}

/// A node's key is with the coordinators, whom it asks for it after a reset: nobody else does anything. Copies drop WireGuard's sessions,
/// and where two begin anew at the same moment none comes about for some seconds.
fn restarts(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, FIVE)?;
    let (node, before) = (fleet.row(NODE, t.within(10))?, fleet.until(t.within(40), || released(&fleet))?);
    fleet.reset(&[NODE], t.within(5))?;
    wait_state(fleet.vm(NODE)?, fleet.booted(NODE)?, "AwaitingKeys", t.within(30))?;
    fleet.runs(NODE, t.within(60))?;
    fleet.says(NODE, fleet.booted(NODE)?, &format!("  {:<10} {}/", "vpn", node.vpn_ip), t.within(30))?;
    let after = released(&fleet)?;
    let new: Vec<&String> = after.difference(&before).collect();
    ensure!(matches!(new[..], [line] if line.contains(&node.id.to_string())), "{node:?}: {new:?}");
    fleet.is_whole(t.within(60))
}

fn unseen(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, FIVE)?;
    is_unseen_for(t, &fleet, |ago| ago < 3000).context("it is on")?;
    fleet.switch_off(&[NODE], Off::AtOnce, t.within(10))?;
    is_unseen_for(t, &fleet, |ago| ago > 5000).context("it is off")
}

/// Waits until a node was last seen so many milliseconds ago, by the clock of the first machine, which lists it and looks who is there.
fn is_unseen_for(t: &Context, fleet: &Fleet, fits: impl Fn(u64) -> bool) -> anyhow::Result<()> {
    fleet.until(t.within(30), || {
        let listed = fleet.ask(&["machine", "list"])?;
        let rows = listed["machines"].as_array().context("a list of machines")?;
        let seen = |machine| rows.iter().find(|row| row["name"] == name(machine))?["last_seen_unix_ms"].as_u64();
        let ago = seen(1).context("never seen")?.saturating_sub(seen(NODE).context("never seen")?);
        ensure!(fits(ago), "seen {ago} ms ago");
        Ok(())
    })
}

/// A machine that is switched off at each step of its join, one after the other, and on again.
fn cut(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, LONE)?;
    let ticket = fleet.ticket(&[])?;
    let plan = fleet.newcomer(2)?.config(&fleet.joining(2, &ticket)?)?;
    let (mut ids, mut cuts) = (BTreeSet::new(), 0);
    for step in STEPS {
        cuts += usize::from(is_cut_at(t, &plan, step)?);
        ids.extend(machines(&fleet)?);
    }
    t.measured(&format!("cut at {cuts} of {} steps", STEPS.len()));
    ensure!(cuts >= 10, "only {cuts} cuts");
    let second = plan.start()?;
    wait_state(&second, second.started(), "Running", t.within(60))?;
    fleet.until(t.within(40), || {
        let listed = fleet.ask(&["machine", "list"])?;
        ensure!(listed["machines"][1]["state"] == "Member", "{listed:#}");
        Ok(())
    })?;
    ids.extend(machines(&fleet)?);
    ensure!(ids.len() == 2, "more machines than two were ever listed: {ids:?}");
    let ticket = fleet.ticket_row(&ticket)?;
    ensure!(ticket["used"] == 1, "{ticket:#}");
    Ok(())
}

const STEPS: [&str; 11] = [
    "attempt",
    "redeem",
    "grow-data",
    "layers",
    "mkfs",
    "keys",
    "directory",
    "seal",
    "erase-attempt",
    "commit",
    "remove-config",
];

/// Switches a machine off at a step of its join, or when it runs: what an earlier attempt has made durable is not done twice.
fn is_cut_at(t: &Context, plan: &MachinePlan, step: &str) -> anyhow::Result<bool> {
    let (vm, at) = (plan.start()?, format!(" ({step})"));
    let is_there = vm.console().wait_until(vm.started(), &at, t.within(60), |line| {
        let state = line.text.contains("  state      ");
        (state && (line.text.contains(&at) || line.text.contains("Running"))).then(|| line.text.contains(&at))
    })?;
    vm.kill();
    Ok(is_there)
}

/// All come at the same time.
fn refused(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, LONE)?;
    let (expired, spent, good) = (fleet.ticket(&["--for", "5s"])?, fleet.ticket(&[])?, fleet.ticket(&[])?);
    let other = Joiner::new(fleet.vm(1)?)?;
    other.redeem(&spent, &Joiner::body(&fleet.owner().key()?, &spent, 1)?)?.map_err(Error::msg)?;
    let forged = Ticket { key: SigningKey::from_seed(Secret::take(&mut [7; 32])), ..again(&good)? };
    let at_the_site = |place: &&Endpoint| place.to_string().starts_with(SITE);
    let place = good.coordinator_public_endpoints.iter().find(at_the_site).context("no place of the site")?.clone();
    let tickets = [
        (expired, "the ticket has expired".to_owned()),
        (spent, "the ticket is used up: it has admitted 1 of 1 machines".to_owned()),
        (forged, "the cluster does not know this ticket".to_owned()),
        (leading_to(&place, Ticket { ca_spki: [7; 32], ..good }), is_nobody(&place)),
    ];
    fleet.until(t.within(30), || one_has_expired(&fleet))?;
    let start = |(number, (ticket, why)): (u32, (Ticket, _))| Ok((Newcomer::of(&mut fleet, number, &ticket)?, why));
    let come = (2..).zip(tickets).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    come.into_iter().try_for_each(|(newcomer, why)| newcomer.stays_out(&why, t.within(60)))?;
    ensure!(machines(&fleet)?.len() == 2, "the first one and another: {:?}", machines(&fleet)?);
    // Whoever looks after the cluster is told of tickets that it issued.
    ensure!(!logged(&fleet, 1, "audit", "the ticket has expired")?.is_empty(), "the coordinator does not say so");
    Ok(())
}

fn one_has_expired(fleet: &Fleet) -> anyhow::Result<()> {
    let listed = fleet.ask(&["ticket", "list"])?;
    let mut rows = listed["tickets"].as_array().context("a list of tickets")?.iter();
    ensure!(rows.any(|row| row["state"] == "expired"), "none has expired: {listed:#}");
    Ok(())
}

fn revoked(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, LONE)?;
    let (revoked, good) = (fleet.ticket(&[])?, fleet.ticket(&[])?);
    fleet.ask(&["ticket", "revoke", &revoked.id().to_string()])?;
    let (plan, disk) = fleet.newcomer(2)?.raw_disk(DISK_MIB)?;
    let before = disk.whole(PartitionKind::Data)?;
    Newcomer::start(&plan.clone().config(&fleet.joining(2, &revoked)?)?, disk.clone())?
        .stays_out("the ticket was revoked", t.within(60))?;
    ensure!(machines(&fleet)?.len() == 1, "{:?}", machines(&fleet)?);
    ensure!(!logged(&fleet, 1, "audit", "the ticket was revoked")?.is_empty(), "the coordinator does not say so");
    let vm = plan.config(&fleet.joining(2, &good)?)?.start()?;
    vm.wait_for(vm.started(), "grow-data", t.within(60))?;
    wait_state(&vm, vm.started(), "Running", t.within(60))?;
    ensure!(disk.whole(PartitionKind::Data)? != before, "a machine that joined has written its data partition");
    Ok(())
}

fn approved(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, LONE)?;
    fleet.join_by(2, ClusterRole::Node, &fleet.ticket(&["--role", "coordinator"])?)?;
    fleet.is_whole(t.within(90))?;
    fleet.is_listed(t, 2, |row| row["awaits_approval"] == true)?;
    fleet.ask(&["machine", "approve", &name(2)])?;
    // For the fleet; the cluster takes the same again for nothing new.
    fleet.set_role(t, 2, ClusterRole::Coordinator)?;
    fleet.is_whole(t.within(90))?;
    fleet.is_listed(t, 2, |row| row["awaits_approval"] == false)
}

/// The key stays the machine's when another config takes the place of one whose ticket let nobody in.
fn named(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, LONE)?;
    let (revoked, plan) = (fleet.ticket(&[])?, fleet.newcomer(2)?);
    fleet.ask(&["ticket", "revoke", &revoked.id().to_string()])?;
    let vm = plan.clone().config(&fleet.joining(2, &revoked)?)?.start()?;
    let shown = vm.wait_for(vm.started(), "  key        ", t.within(60))?;
    let key = shown.text.split_whitespace().last().context("a key behind its name")?.to_owned();
    vm.kill();
    let ticket = fleet.ticket(&["--role", "coordinator", "--machine-key", &key])?;
    let vm = plan.config(&fleet.joining(2, &ticket)?)?.start()?;
    wait_state(&vm, vm.started(), "Running", t.within(60))?;
    fleet.is_listed(t, 2, |row| row["role"] == "coordinator" && row["etcd"].is_string())
}

/// A node whose address stands in a ticket that holds is not taken for a coordinator.
fn impostor(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, FIVE)?;
    let node = fleet.row(NODE, t.within(10))?;
    let its = node.addresses.iter().find(|place| place.starts_with(SITE)).context("no address of the site")?;
    let good = fleet.ticket(&[])?;
    let place = Endpoint::read(&format!("{its}:{PUBLIC_API_PORT}"))?;
    let ticket = leading_to(&place, again(&good)?);
    Newcomer::of(&mut fleet, 6, &ticket)?.stays_out(&is_nobody(&place), t.within(60))?;
    // Nothing else is wrong with it.
    let joiner = Joiner::new(fleet.vm(1)?)?;
    joiner.redeem(&good, &Joiner::body(&fleet.owner().key()?, &good, 1)?)?.map_err(Error::msg)?;
    Ok(())
}

fn used_up(t: &Context) -> anyhow::Result<()> {
    let door = Door::copy(t, &["--uses", "2"])?;
    for number in 1..=2 {
        door.lets_in(&door.joiner()?, number)?;
    }
    denied(
        door.joiner()?.redeem(&door.ticket, &door.body(3)?)?,
        "the ticket is used up: it has admitted 2 of 2 machines",
    )?;
    door.let_in(2)
}

fn at_once(t: &Context) -> anyhow::Result<()> {
    let door = Door::copy(t, &[])?;
    let come = [(door.joiner()?, door.body(1)?), (door.joiner()?, door.body(2)?)];
    let answers = std::thread::scope(|scope| {
        let asked = come.each_ref().map(|(joiner, body)| {
            let ticket = &door.ticket;
            scope.spawn(move || joiner.redeem_by(ticket, body, t.within(20)))
        });
        asked.map(|asked| asked.join().map_err(|_panicked| Error::msg("a joiner panicked")).flatten())
    });
    let [one, two] = answers;
    let (granted, refused): (Vec<_>, Vec<_>) = [one?, two?].into_iter().partition(Result::is_ok);
    ensure!(granted.len() == 1, "{} were let in", granted.len());
    refused.into_iter().try_for_each(|answer| denied(answer, "the ticket is used up"))?;
    door.let_in(1)
}

fn anothers_ticket(t: &Context) -> anyhow::Result<()> {
    let Door { fleet, ticket } = Door::copy(t, &[])?;
    let (joiner, other, key) = (Joiner::new(fleet.vm(1)?)?, Joiner::new(fleet.vm(1)?)?, drawn()?);
    fleet.through(t.within(20), |records| records.issue_for(TicketPubKey(key.public()), joiner.machine()?))?;
    let door = Door { ticket: Ticket { key, ..ticket }, fleet };
    denied(other.redeem(&door.ticket, &door.body(1)?)?, "the ticket is for another machine")?;
    door.lets_in(&joiner, 1)?;
    door.let_in(1)
}

fn anothers_disk(t: &Context) -> anyhow::Result<()> {
    let door = Door::copy(t, &["--uses", "5"])?;
    let (one, two) = (door.joiner()?, door.joiner()?);
    door.lets_in(&one, 1)?;
    let body = |number| door.body(number);
    for (joiner, body, why) in [
        (&two, RedeemBody { disk: body(1)?.disk, ..body(2)? }, "this disk is known as another machine's"),
        (&two, RedeemBody { vpn_key: body(1)?.vpn_key, ..body(2)? }, "this VPN key is known as another machine's"),
        (&one, RedeemBody { disk: body(2)?.disk, ..body(1)? }, "the machine was admitted with another disk"),
        (&two, RedeemBody { level: Level::Insecure, ..body(2)? }, "the cluster asks for encrypted at least"),
    ] {
        denied(joiner.redeem(&door.ticket, &body)?, why)?;
    }
    door.let_in(1)?;
    // Nothing of what was refused was kept: the same disk and key are the other machine's by now.
    door.lets_in(&two, 2)?;
    door.let_in(2)
}

fn anothers_key(t: &Context) -> anyhow::Result<()> {
    let door = Door::copy(t, &["--uses", "5"])?;
    let (one, two, nobody) = (door.joiner()?, door.joiner()?, door.joiner()?);
    let answer = door.lets_in(&one, 1)?;
    door.lets_in(&two, 2)?;
    for (joiner, asked, why) in [
        (&two, asked(1), "this is not the machine's disk"),
        (&nobody, asked(1), "the cluster does not know this machine"),
        (&one, KeyRequest { generation: 2, ..asked(1) }, "this disk has no key of generation 2"),
        (&one, KeyRequest { level: Level::Insecure, ..asked(1) }, "the cluster asks for encrypted at least"),
    ] {
        denied(joiner.release(asked)?, why)?;
    }
    let released = one.release(asked(1))?.map_err(Error::msg)?;
    ensure!(released.key.expose() == answer.cluster_key.expose(), "another half than the one it was let in with");
    Ok(())
}

fn removed(t: &Context) -> anyhow::Result<()> {
    let door = Door::copy(t, &["--uses", "5"])?;
    let (one, two) = (door.joiner()?, door.joiner()?);
    let answer = door.lets_in(&one, 1)?;
    door.lets_in(&two, 2)?;
    one.release(asked(1))?.map_err(Error::msg)?;
    door.fleet.ask(&["machine", "remove", answer.node_name.as_str(), "--lost"])?;
    denied(one.release(asked(1))?, "the machine was removed from the cluster")?;
    denied(one.redeem(&door.ticket, &door.body(1)?)?, "the machine was removed from the cluster")?;
    // Who stays has its key, and of what was refused nothing was recorded.
    two.release(asked(2))?.map_err(Error::msg)?;
    door.let_in(2)
}

/// The coordinator, and a ticket by which machines ask it to be let in.
struct Door {
    fleet: Fleet,
    ticket: Ticket,
}

impl Door {
    /// Copies the coordinator, and has a ticket issued with these options.
    fn copy(t: &Context, options: &[&str]) -> anyhow::Result<Self> {
        let fleet = Fleet::copy(t, LONE)?;
        let ticket = fleet.ticket(options)?;
        Ok(Self { fleet, ticket })
    }

    fn joiner(&self) -> anyhow::Result<Joiner> {
        Joiner::new(self.fleet.vm(1)?)
    }

    fn body(&self, number: u8) -> anyhow::Result<RedeemBody> {
        Joiner::body(&self.fleet.owner().key()?, &self.ticket, number)
    }

    fn lets_in(&self, joiner: &Joiner, number: u8) -> anyhow::Result<RedeemAnswer> {
        joiner.redeem(&self.ticket, &self.body(number)?)?.map_err(Error::msg)
    }

    /// So many were let in: the ticket says so, and they are listed behind the first machine.
    fn let_in(&self, many: usize) -> anyhow::Result<()> {
        let (machines, ticket) = (machines(&self.fleet)?, self.fleet.ticket_row(&self.ticket)?);
        ensure!(machines.len() == 1 + many && ticket["used"] == many, "{machines:?}, {ticket:#}");
        Ok(())
    }
}

/// A machine that asks to be let in, and its disk.
struct Newcomer {
    vm: Vm,
    disk: RawDisk,
    before: Vec<u8>,
}

impl Newcomer {
    fn of(fleet: &mut Fleet, machine: u32, ticket: &Ticket) -> anyhow::Result<Self> {
        let config = fleet.joining(machine, ticket)?;
        let (plan, disk) = fleet.newcomer(machine)?.raw_disk(DISK_MIB)?;
        Self::start(&plan.config(&config)?, disk)
    }

    fn start(plan: &MachinePlan, disk: RawDisk) -> anyhow::Result<Self> {
        let before = disk.whole(PartitionKind::Data)?;
        Ok(Self { vm: plan.start()?, disk, before })
    }

    /// Waits until the machine says why it is not let in, and ends it; its data partition is as it was.
    fn stays_out(self, why: &str, deadline: Deadline) -> anyhow::Result<()> {
        self.vm.wait_for(self.vm.started(), why, deadline)?;
        ensure!(self.vm.said().iter().all(|line| !line.text.contains("grow-data")), "{why}: it goes on");
        self.vm.kill();
        ensure!(self.disk.whole(PartitionKind::Data)? == self.before, "{why}: its data partition is another");
        Ok(())
    }
}

/// A request was refused, and the answer says why.
fn denied<T>(answer: Result<T, String>, why: &str) -> anyhow::Result<()> {
    let Err(said) = answer else { bail!("granted, and should not be: {why}") };
    ensure!(said.contains(why), "`{said}` instead of `{why}`");
    Ok(())
}

/// The key of the disk with this number, as it was given first.
fn asked(disk: u8) -> KeyRequest {
    KeyRequest { disk: DiskUuid(Uuid([disk; 16])), generation: 1, level: Level::Encrypted }
}

/// The same ticket once more.
fn again(ticket: &Ticket) -> anyhow::Result<Ticket> {
    Ok(Ticket::from_text(&ticket.to_text())?)
}

/// A ticket that names one place alone. Every machine has 10.0.2.15 for one of its own addresses: it would meet itself there.
fn leading_to(place: &Endpoint, ticket: Ticket) -> Ticket {
    Ticket { coordinator_public_endpoints: vec![place.clone()], ..ticket }
}

/// Words of a machine that finds no coordinator of its ticket's cluster in a place.
fn is_nobody(place: &Endpoint) -> String {
    format!("connect to {place}: invalid peer certificate")
}

/// The ids of all machines that are listed.
fn machines(fleet: &Fleet) -> anyhow::Result<BTreeSet<String>> {
    let listed = fleet.ask(&["machine", "list"])?;
    let rows = listed["machines"].as_array().context("a list of machines")?.iter();
    rows.map(|row| Ok(row["machine_id"].as_str().context("a machine has an id")?.to_owned())).collect()
}

/// Lines that coordinators log of keys that they released.
fn released(fleet: &Fleet) -> anyhow::Result<BTreeSet<String>> {
    let logs = fleet.coordinators().into_iter().map(|machine| logged(fleet, machine, "init", "a key is released"));
    Ok(logs.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Lines of a machine's log with these words in them, as its owner reads them through the first machine.
fn logged(fleet: &Fleet, machine: u32, log: &str, words: &str) -> anyhow::Result<Vec<String>> {
    let (first, another) = (name(1), name(machine));
    let through: &[&str] = if machine == 1 { &[] } else { &["-m", &another, "--through", &first] };
    let mut lines = fleet.owner().lines(NAME, fleet.vm(1)?, &[&[log], through].concat())?;
    lines.retain(|line| line.contains(words));
    Ok(lines)
}
