//! That etcd follows the records, and outlives its members: machines that are to coordinate become voters while they run,
//! restart in turn, are cut off, and become nodes again. Nothing that was acknowledged is lost. One case makes three; each other
//! one has a copy of its own.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use model::ClusterRole;
use qemu::network::{Cut, Direction, Faults};
use serde_json::Value;

use crate::{
    Case, Cluster, Context, Fleet, FleetKind, Kind, LAID_DOWN, Leaving, MESH_CHANGED, Need, Off, SEES_RECORDS, Starts,
    Writer, name, wait_state,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        starts: Starts::Making(THREE),
        ..case("three coordinators become three voters of etcd", &["S5", "A2"], voters)
    },
    case("each of three coordinators restarts in turn, and no acknowledged write is lost", &["K4"], restarts),
    case("a coordinator that hears nothing, or is cut off, is made up for and comes back", &["K4"], cut_off),
    case("a coordinator that sees no changes says how old its lists are, and changes nothing", &["K4"], without_quorum),
    case(
        "coordinators take another cluster key, and when all were off two open by it, and one alone opens nothing",
        &["K6", "K7", "D2", "D3", "D13"],
        all_off,
    ),
    case("one of three goes on alone by its owner's word, and the others do not", &["K6"], recovered),
    case("all are switched off while two more come to vote", &["K6", "S5"], amid_votes),
    case("the first coordinator becomes a node, keeps its address, and leaves", &["M4", "N6", "S5"], leaves),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], starts: Starts::From(THREE), run }
}

const THREE: FleetKind = FleetKind::Three;
const BOTH: [Direction; 2] = [Direction::Sent, Direction::Received];
/// What PID 1 says of an etcd that ends by itself.
const ETCD_ENDED: &str = "service ended service=etcd ";
/// What PID 1 says when it runs what a coordinator runs.
const TAKEN_UP: &str = "this machine is a coordinator";
/// What PID 1 says of whom its etcd refuses.
const REFUSES: &str = "etcd refuses the certificates of these machines machines=";
/// What PID 1 says of whom its etcd, which led, has taken out.
const TAKEN_OUT: &str = "etcd's members are changed step=Remove";
/// What PID 1 says of the cold-start key that three hold.
const EPOCH_STANDS: &str = "holders=3";

/// Does `work` while somebody else writes through whichever coordinator answers; then all is well, and what was acknowledged is
/// there.
fn under_a_writer(
    t: &Context,
    fleet: &mut Fleet,
    work: impl FnOnce(&mut Fleet, &Writer) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let writer = fleet.writer()?;
    writer.goes_on(1, t.within(30))?;
    work(fleet, &writer)?;
    fleet.is_whole(t.within(60))?;
    fleet.read_back(&writer, t.within(30))?;
    t.measured(&format!("{} writes were acknowledged, none is lost", writer.acknowledged()));
    // Of etcd, the VPN API and all else nothing was outside; shares and keys go by the public API.
    fleet.hides_all()
}

/// On their cables is nothing but WireGuard and the public API, from before the first of them had an address.
fn voters(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::new(t, Cluster { coordinators: 3, nodes: 0, lease_seconds: u32::MAX })?;
    let listed = fleet.ask(&["machine", "list"])?;
    ensure!(listed["old_since_unix_ms"].is_null(), "{listed:#}");
    let rows = listed["machines"].as_array().context("a list of machines")?;
    let votes =
        rows.iter().all(|row| row["state"] == "Member" && row["role"] == "coordinator" && row["etcd"] == "voter");
    ensure!(rows.len() == 3 && votes, "{rows:#?}");
    fleet.hides_all()?;
    let talk = fleet.carried(1)?.get(&Kind::WireGuard).copied();
    ensure!(talk.is_some_and(|packets| packets > 100), "etcd's heartbeats are not seen: {talk:?}");
    can_open(t, &fleet)?;
    fleet.save(t, THREE)
}

fn restarts(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    under_a_writer(t, &mut fleet, |fleet, writer| {
        for machine in [2, 3, 1] {
            fleet.reset(&[machine], t.within(5))?;
            writer.goes_on(1, t.within(30)).context("the other two take changes")?;
            comes_back(t, fleet, machine)?;
        }
        Ok(())
    })
}

fn cut_off(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    under_a_writer(t, &mut fleet, |fleet, writer| {
        // Each in turn, so that one of them leads: one hears nothing and speaks, two are not heard either.
        for (machine, directions) in [(2, &[Direction::Received][..]), (1, &BOTH), (3, &BOTH)] {
            let before = fleet.mark(machine)?;
            fleet.set_faults(machine, directions, cut())?;
            // Whichever of its tasks notices first ends the service.
            fleet.says(machine, before, "service ended service=cluster ", t.within(60))?;
            writer.goes_on(2, t.within(30)).context("the other two take changes")?;
            let before = fleet.mark(machine)?;
            fleet.set_faults(machine, directions, Faults::default())?;
            fleet.says(machine, before, SEES_RECORDS, t.within(60))?;
        }
        Ok(())
    })
}

/// Two of three are gone: nothing is written, and what is read says how old it is.
fn without_quorum(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    fleet.switch_off(&[3], Off::AtOnce, t.within(10))?;
    listed(t, &fleet, 3, |row| row["etcd"] == "voter" && row["etcd_silent"] == true)?;
    fleet.set_faults(2, &[Direction::Sent], cut())?;
    let old = fleet.until(t.within(60), || {
        for list in ["machine", "ticket"] {
            let listed = fleet.ask(&[list, "list"])?;
            ensure!(!listed["old_since_unix_ms"].is_null(), "{listed:#}");
        }
        Ok(())
    });
    old.context("a coordinator without quorum says that its list is old")?;
    let refused = fleet.until(t.within(60), || {
        let refused = fleet.ask(&["ticket", "issue"]).err().context("written without a quorum")?;
        let why = format!("{refused:#}");
        ensure!(why.contains("has seen no change for") && why.contains("nothing was changed"), "{why}");
        Ok(())
    });
    refused.context("a coordinator without quorum says that it changes nothing")?;
    let before = fleet.mark(2)?;
    fleet.set_faults(2, &[Direction::Sent], Faults::default())?;
    fleet.says(2, before, SEES_RECORDS, t.within(60))?;
    fleet.start(3)?;
    under_a_writer(t, &mut fleet, |fleet, _| comes_back(t, fleet, 3))
}

/// Two of three take another key, one after the other. Then nobody does anything but switch machines on: one alone has not its
/// key, neither while the others are off nor in a network without them while they run; the other two have, the third from them.
fn all_off(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let is = |generation: u32, rotates: bool| {
        move |row: &Value| row["key_generation"] == generation && row["key_rotates"] == rotates
    };
    for machine in [2, 1] {
        listed(t, &fleet, machine, is(1, false))?;
        let before = fleet.mark(machine)?;
        fleet.ask(&["machine", "rotate-key", &name(machine)])?;
        listed(t, &fleet, machine, is(1, true))?;
        fleet.says(machine, before, "carries the cluster keys that are given now", t.within(30))?;
        fleet.reset(&[machine], t.within(5))?;
        comes_back(t, &fleet, machine)?;
        listed(t, &fleet, machine, is(2, false))?;
    }
    fleet.switch_off(&[1, 2, 3], Off::AtOnce, t.within(10))?;

    let opens_nothing = |fleet: &Fleet| {
        let mut from = fleet.mark(1)?;
        for _ in 0..2 {
            from = fleet.says(1, from, "no share from another voter", t.within(60))?.end;
        }
        let alone = fleet.ask(&["machine", "status"])?;
        ensure!(alone["state"] == "AwaitingKeys", "{alone:#}");
        Ok(())
    };
    fleet.start(1)?;
    wait_state(fleet.vm(1)?, fleet.booted(1)?, "AwaitingKeys", t.within(30))?;
    opens_nothing(&fleet)?;

    // As if it had been carried to where its owner reaches it, and no other machine does.
    fleet.set_faults(1, &BOTH, cut())?;
    [2, 3].iter().try_for_each(|machine| fleet.start(*machine))?;
    [2, 3].iter().try_for_each(|machine| comes_back(t, &fleet, *machine))?;
    let writer = fleet.writer()?;
    writer.goes_on(1, t.within(60)).context("two of three have a leader, and take changes")?;
    drop(writer);
    opens_nothing(&fleet)?;
    fleet.set_faults(1, &BOTH, Faults::default())?;
    comes_back(t, &fleet, 1)?;
    listed(t, &fleet, 1, is(2, false))?;
    listed(t, &fleet, 3, is(1, false))?;
    fleet.is_whole(t.within(60))
}

/// Two of three are lost, or so it seems: the first goes on by its owner's word. When the two come back and are a quorum, they
/// are not another cluster for longer than they hear of nobody else.
fn recovered(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let before = tickets(&fleet)?;
    // So its owner called it first of all.
    let recover = ["cluster", "recover", "--from", "m1"];
    let proceed = [&recover[..], &["--yes"]].concat();
    let refused = fleet.ask(&proceed).expect_err("there is a quorum").to_string();
    ensure!(refused.contains("etcd has a leader"), "{refused}");
    fleet.switch_off(&[2, 3], Off::AtOnce, t.within(10))?;

    let plan = fleet.until(t.within(60), || fleet.ask(&recover));
    let plan = plan.context("without quorum it can be recovered")?;
    ensure!(plan["done"] == false && plan["taken_out"].as_array().is_some_and(|out| out.len() == 2), "{plan:#}");
    ensure!(fleet.ask(&["ticket", "issue"]).is_err(), "it was only asked");
    let done = fleet.ask(&proceed)?;
    ensure!(done["done"] == true, "{done:#}");
    listed(t, &fleet, 1, |row| row["etcd"] == "voter")?;
    for machine in [2, 3] {
        let is_node = |row: &Value| row["role"] == "node" && row["etcd"].is_null() && row["state"] == "Member";
        listed(t, &fleet, machine, is_node)?;
    }
    fleet.ask(&["ticket", "issue"])?;
    ensure!(tickets(&fleet)?.is_superset(&before), "acknowledged before, and lost");

    // They open each other by their shares, and decide.
    fleet.set_faults(1, &BOTH, cut())?;
    for machine in [2, 3] {
        fleet.start(machine)?;
    }
    for machine in [2, 3] {
        comes_back(t, &fleet, machine)?;
    }
    fleet.set_faults(1, &BOTH, Faults::default())?;
    for machine in [2, 3] {
        fleet.says(machine, fleet.booted(machine)?, LAID_DOWN, t.within(90))?;
    }
    // They are a quorum of their own, and would have no reason to ask anybody before they lose their leader.
    let told = |machine| anyhow::Ok(fleet.vm(machine)?.said().iter().any(|line| line.text.contains(ETCD_ENDED)));
    ensure!(told(2)? || told(3)?, "the first one's etcd has not told the others' that they are none of its members");
    for machine in [2, 3] {
        fleet.ask(&["machine", "role", "add", &name(machine), "coordinator"])?;
    }
    fleet.is_whole(t.within(60))?;
    ensure!(tickets(&fleet)?.is_superset(&before), "acknowledged before, and lost");
    Ok(())
}

/// One alone becomes three, of which one is cut off as it begins: whoever votes then holds a share already, or etcd would need more machines than can open.
fn amid_votes(t: &Context) -> anyhow::Result<()> {
    const VOTES: &str = "step=Promote";
    let mut fleet = Fleet::copy(t, THREE)?;
    for machine in [3, 2] {
        let before = fleet.mark(machine)?;
        fleet.set_role(t, machine, ClusterRole::Node)?;
        fleet.says(machine, before, LAID_DOWN, t.within(90))?;
    }
    let (before, alone) = (fleet.mark(2)?, fleet.mark(1)?);
    fleet.set_role(t, 2, ClusterRole::Coordinator)?;
    // It has what a coordinator has, and etcd has not begun: that needs the others, whom the next start has to hear of again.
    fleet.says(2, before, TAKEN_UP, t.within(90))?;
    fleet.reset(&[2], t.within(5))?;
    fleet.set_role(t, 3, ClusterRole::Coordinator)?;
    fleet.says(1, alone, VOTES, t.within(120)).context("nobody comes to vote")?;
    fleet.switch_off(&[1, 2, 3], Off::AtOnce, t.within(10))?;
    (1..=3).try_for_each(|machine| fleet.start(machine))?;
    (1..=3).try_for_each(|machine| comes_back(t, &fleet, machine))?;
    fleet.is_whole(t.within(60))
}

/// The machine that made the cluster is a coordinator like any other.
fn leaves(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let its_own = |fleet: &Fleet| fleet.row(1, t.within(30)).map(|row| (row.id, row.vpn_ip));
    let before = its_own(&fleet)?;
    let marks = [fleet.mark(1)?, fleet.mark(2)?, fleet.mark(3)?];
    fleet.set_role(t, 1, ClusterRole::Node)?;
    fleet.is_whole(t.within(60))?;
    fleet.says(1, marks[0], LAID_DOWN, t.within(30))?;
    ensure!(its_own(&fleet)? == before, "{before:?} became {:?}", its_own(&fleet)?);
    // Where it led, another one led first: a leader that takes itself out leaves what it was asked without an answer.
    let taken_out = format!("{TAKEN_OUT}(MachineId({}))", before.0);
    let by = (1..=3).map(|machine| Ok(fleet.vm(machine)?.said().iter().any(|line| line.text.contains(&taken_out))));
    let by = by.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!by[0] && (by[1] || by[2]), "whose etcd took it out: {by:?}");
    // The others' etcd takes its certificates no longer.
    for machine in [2, 3] {
        let refused = format!("{REFUSES}{{MachineId({})}}", before.0);
        fleet.says(machine, marks[machine as usize - 1], &refused, t.within(5))?;
    }
    // It does not get its key again, and says why to whoever stands in front of it.
    fleet.remove(t, 1, Leaving::Drained)?;
    fleet.is_whole(t.within(60))?;
    let rows = fleet.through(t.within(30), |records| Ok(records.machines()?.rows))?;
    let may: Vec<_> = rows.iter().filter(|row| row.may_hold_keys).map(|row| row.id).collect();
    ensure!(may == [before.0], "it coordinated, and may have kept keys: {rows:#?}");
    // Its packets are nobody's: the kernels of those that stay have each other for a peer, and nobody else.
    for machine in [2, 3] {
        let vm = fleet.vm(machine)?;
        let alone = vm.until(t.within(10), || {
            let last = vm.said().into_iter().rev().find(|line| line.text.contains(MESH_CHANGED))?;
            last.text.contains("peers=1").then_some(())
        });
        alone.with_context(|| format!("{} has another peer than the one that stays", name(machine)))?;
    }
    Ok(())
}

/// What is wrong with a cable that was pulled.
fn cut() -> Faults {
    Faults { cable: Cut::Cut, ..Faults::default() }
}

/// Waits until any two of three can open each other.
fn can_open(t: &Context, fleet: &Fleet) -> anyhow::Result<()> {
    for machine in 1..=3 {
        fleet.says(machine, fleet.booted(machine)?, EPOCH_STANDS, t.within(60))?;
    }
    Ok(())
}

/// Waits until the first machine lists that one as `wanted`.
fn listed(t: &Context, fleet: &Fleet, machine: u32, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    fleet.until(t.within(60), || {
        let listed = fleet.ask(&["machine", "list"])?;
        let mut rows = listed["machines"].as_array().context("a list of machines")?.iter();
        let row = rows.find(|row| row["name"] == name(machine)).context("it is not listed")?;
        ensure!(wanted(row), "it is listed as {row:#}");
        Ok(())
    })
}

/// The ids of all tickets.
fn tickets(fleet: &Fleet) -> anyhow::Result<BTreeSet<String>> {
    let listed = fleet.ask(&["ticket", "list"])?;
    let ids = listed["tickets"].as_array().context("a list of tickets")?.iter();
    Ok(ids.filter_map(|ticket| ticket["ticket_id"].as_str().map(str::to_owned)).collect())
}

/// Waits until a coordinator that started again runs, and sees the cluster's records.
fn comes_back(t: &Context, fleet: &Fleet, machine: u32) -> anyhow::Result<()> {
    fleet.runs(machine, t.within(90))?;
    fleet.says(machine, fleet.booted(machine)?, SEES_RECORDS, t.within(60)).map(drop)
}
