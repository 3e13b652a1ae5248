//! Shows that etcd follows the records, and outlives its members: machines that are to coordinate become voters while
//! they run, restart in turn, are cut off, and become nodes again. Nothing that was acknowledged is lost. One case
//! makes three; each other one has a copy of its own.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use model::ClusterRole;
use qemu::network::{Direction, Faults};
use serde_json::Value;

use crate::{
    Case, CommandRefusal, Context, Departure, Fleet, FleetKind, FleetSize, LAID_DOWN, NAME, Off, PacketKind,
    Prerequisite, SEES_RECORDS, Starts, Tickets, Writer, name, wait_state,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        starts: Starts::Making(THREE),
        ..case("three coordinators become three voters of etcd", &["S5", "A2"], voters)
    },
    case("three coordinators restart in turn, and lose no write", &["K4"], restarts),
    case("a coordinator that is deaf or cut off is made up for", &["K4"], cut_off),
    case("a coordinator that sees no changes tells its lists' age", &["K4"], without_quorum),
    case("coordinators go on once they are a quorum, then the last one", &["K4"], quorum_again),
    case("coordinators take another cluster key, and open by it", &["K7", "D13"], rotated),
    Case {
        starts: Starts::From(FleetKind::Five),
        ..case("a share is due until a cut-off coordinator has taken it", &["K6"], share_due)
    },
    case("of three that were off one opens nothing, two each other", &["K6", "D2", "D3"], all_off),
    case("a cluster that has a leader is not recovered", &["K6"], not_recovered),
    case("one of three goes on alone for its owner, and loses nothing", &["K6"], recovered),
    case("machines that a recovery took out are coordinators again", &["K6"], taken_out),
    case("what a recovery leaves is erased by its owner's word", &["K6"], erased),
    case("all are switched off while two more come to vote", &["K6", "S5"], amid_votes),
    case("a promotion that is cut three times ends as it would", &["K4", "S5"], promotion_cut),
    case("a demotion that is cut three times ends as it would", &["K4", "S5"], demotion_cut),
    case("the first coordinator becomes a node, and keeps its address", &["N6", "S5"], becomes_node),
    case("etcd's members are seen and defragmented, the leader last", &["Q4"], defragmented),
    case("a coordinator that left is no peer, and may have kept keys", &["M4", "S5"], leaves),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(THREE), run }
}

const THREE: FleetKind = FleetKind::Three;
/// Has the first machine go on alone. Without the last word it is only asked whether it could.
const RECOVER: [&str; 5] = ["cluster", "recover", "--from", "m1", "--yes"];
/// Words of PID 1 when its copy of the records is not of now any more, whatever has noticed that.
const LOSES_RECORDS: &str = "the cluster's records are not kept up";
/// Words of PID 1 when etcd ends by itself.
const ETCD_ENDED: &str = "service ended service=etcd ";
/// Words of PID 1 when it runs what a coordinator runs.
const TAKEN_UP: &str = "this machine is a coordinator";
/// Words of PID 1 in front of the machines that its etcd refuses.
const REFUSES: &str = "etcd refuses the certificates of these machines machines=";
/// Words of PID 1 in front of the machine that its etcd, which led, has taken out.
const TAKEN_OUT: &str = "etcd's members are changed step=Remove";
/// Words of PID 1 when three machines hold the cold-start key.
const EPOCH_STANDS: &str = "holders=3";

/// Does `work` while somebody else writes through whichever coordinator answers; then all is well, and what was acknowledged is
/// there.
fn under_a_writer(
    t: &Context,
    fleet: &mut Fleet,
    work: impl FnOnce(&mut Fleet, &Writer<Tickets>) -> anyhow::Result<()>,
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
    let fleet = Fleet::new(t, FleetSize { coordinators: 3, nodes: 0, lease_seconds: u32::MAX })?;
    let listed = fleet.ask(&["machine", "list"])?;
    ensure!(listed["old_since_unix_ms"].is_null(), "{listed:#}");
    let rows = listed["machines"].as_array().context("a list of machines")?;
    let votes =
        rows.iter().all(|row| row["state"] == "Member" && row["role"] == "coordinator" && row["etcd"] == "voter");
    ensure!(rows.len() == 3 && votes, "{rows:#?}");
    fleet.hides_all()?;
    let talk = fleet.carried(1)?.get(&PacketKind::WireGuard).copied();
    ensure!(talk.is_some_and(|packets| packets > 100), "etcd's heartbeats are not seen: {talk:?}");
    // Any two of them can open each other.
    for machine in 1..=3 {
        fleet.says(machine, fleet.booted(machine)?, EPOCH_STANDS, t.within(60))?;
    }
    fleet.save(t, THREE)
}

fn restarts(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    under_a_writer(t, &mut fleet, |fleet, writer| {
        for machine in [2, 3, 1] {
            fleet.reset(&[machine], t.within(5))?;
            writer.goes_on(1, t.within(30)).context("the other two take changes")?;
            fleet.comes_back(t, machine)?;
        }
        Ok(())
    })
}

fn cut_off(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    under_a_writer(t, &mut fleet, |fleet, writer| {
        // Each in turn, so that one of them leads: one hears nothing and speaks, two are not heard either.
        for (machine, directions) in [(2, &[Direction::Received][..]), (1, &Direction::BOTH), (3, &Direction::BOTH)] {
            let before = fleet.mark(machine)?;
            fleet.set_faults(machine, directions, Faults::cut())?;
            fleet.says(machine, before, LOSES_RECORDS, t.within(60))?;
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
    fleet.set_faults(2, &[Direction::Sent], Faults::cut())?;
    lists_are_old(t, &fleet)?;
    let refused = fleet.until(t.within(60), || {
        let refused = fleet.ask(&["ticket", "issue"]).err().context("written without a quorum")?;
        let why = format!("{refused:#}");
        ensure!(why.contains("has seen no change for") && why.contains("nothing was changed"), "{why}");
        Ok(())
    });
    refused.context("a coordinator without quorum says that it changes nothing")
}

fn lists_are_old(t: &Context, fleet: &Fleet) -> anyhow::Result<()> {
    let old = fleet.until(t.within(60), || {
        for list in ["machine", "ticket"] {
            let listed = fleet.ask(&[list, "list"])?;
            ensure!(!listed["old_since_unix_ms"].is_null(), "{listed:#}");
        }
        Ok(())
    });
    old.context("a coordinator without quorum says that its lists are old")
}

fn quorum_again(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    fleet.switch_off(&[3], Off::AtOnce, t.within(10))?;
    fleet.is_listed(t, 3, |row| row["etcd"] == "voter" && row["etcd_silent"] == true)?;
    fleet.set_faults(2, &[Direction::Sent], Faults::cut())?;
    lists_are_old(t, &fleet)?;
    let before = fleet.mark(2)?;
    fleet.set_faults(2, &[Direction::Sent], Faults::default())?;
    fleet.says(2, before, SEES_RECORDS, t.within(60))?;
    fleet.start(3)?;
    under_a_writer(t, &mut fleet, |fleet, _| fleet.comes_back(t, 3))
}

/// A key that is rotated is taken at the next start, and given out by the others from then on.
fn rotated(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let is = |generation: u32, rotates: bool| {
        move |row: &Value| row["key_generation"] == generation && row["key_rotates"] == rotates
    };
    for machine in [2, 1] {
        fleet.is_listed(t, machine, is(1, false))?;
        let before = fleet.mark(machine)?;
        fleet.ask(&["machine", "rotate-key", &name(machine)])?;
        fleet.is_listed(t, machine, is(1, true))?;
        fleet.says(machine, before, "carries the cluster keys that are given now", t.within(30))?;
        fleet.reset(&[machine], t.within(5))?;
        fleet.comes_back(t, machine)?;
        fleet.is_listed(t, machine, is(2, false))?;
    }
    fleet.is_listed(t, 3, is(1, false))?;
    fleet.switch_off(&[1, 2, 3], Off::AtOnce, t.within(10))?;
    (1..=3).try_for_each(|machine| fleet.start(machine))?;
    (1..=3).try_for_each(|machine| fleet.comes_back(t, machine))?;
    fleet.is_whole(t.within(60))
}

/// A voter of five leaves while another is cut off: the latter holds no share of the cold-start key of those who stay.
fn share_due(t: &Context) -> anyhow::Result<()> {
    const LEAVES: u32 = 4;
    const CUT_OFF: u32 = 5;
    let mut fleet = Fleet::copy(t, FleetKind::Five)?;
    for machine in [LEAVES, CUT_OFF] {
        fleet.set_role(t, machine, ClusterRole::Coordinator)?;
    }
    let votes = |due: bool| move |row: &Value| row["etcd"] == "voter" && row["share_due"] == due;
    for machine in [LEAVES, CUT_OFF] {
        fleet.until(t.within(120), || fleet.is_listed(t, machine, votes(false)))?;
    }
    fleet.set_faults(CUT_OFF, &Direction::BOTH, Faults::cut())?;
    fleet.set_role(t, LEAVES, ClusterRole::Node)?;
    fleet.is_listed(t, CUT_OFF, votes(true))?;
    fleet.is_listed(t, 1, votes(false)).context("who runs has taken its own")?;
    fleet.is_listed(t, CUT_OFF, votes(true)).context("nobody takes it for another one")?;
    fleet.set_faults(CUT_OFF, &Direction::BOTH, Faults::default())?;
    fleet.is_listed(t, CUT_OFF, votes(false))
}

/// A coordinator alone has not its key, whether the others are off or run where it does not reach them. Two have each
/// other's, and the third has its own from them as soon as it hears them.
fn all_off(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    fleet.switch_off(&[1, 2, 3], Off::AtOnce, t.within(10))?;
    fleet.start(1)?;
    wait_state(fleet.vm(1)?, fleet.booted(1)?, "AwaitingKeys", t.within(30))?;
    opens_nothing(t, &fleet)?;
    // As if it had been carried to where its owner reaches it, and no other machine does.
    fleet.set_faults(1, &Direction::BOTH, Faults::cut())?;
    [2, 3].iter().try_for_each(|machine| fleet.start(*machine))?;
    [2, 3].iter().try_for_each(|machine| fleet.comes_back(t, *machine))?;
    fleet.writer()?.goes_on(1, t.within(60)).context("two of three have a leader, and take changes")?;
    opens_nothing(t, &fleet)?;
    fleet.set_faults(1, &Direction::BOTH, Faults::default())?;
    fleet.comes_back(t, 1)?;
    fleet.is_whole(t.within(60))
}

/// The first machine has asked all others once more and again, and waits.
fn opens_nothing(t: &Context, fleet: &Fleet) -> anyhow::Result<()> {
    let mut from = fleet.mark(1)?;
    for _ in 0..2 {
        from = fleet.says(1, from, "no share from another voter", t.within(60))?.end;
    }
    let alone = fleet.ask(&["machine", "status"])?;
    ensure!(alone["state"] == "AwaitingKeys", "{alone:#}");
    Ok(())
}

fn defragmented(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, THREE)?;
    let leader = fleet.until(t.within(10), || {
        let listed = fleet.ask(&["etcd", "status"])?;
        let members = listed["members"].as_array().context("a list of members")?;
        ensure!(members.len() == 3 && members.iter().all(|member| member["answers"] == true), "{listed:#}");
        let mut leaders = members.iter().filter(|member| member["role"] == "leader");
        let leader = leaders.next().context("one leads")?;
        ensure!(leaders.next().is_none(), "{listed:#}");
        Ok(leader.clone())
    })?;
    let done = fleet.ask(&["etcd", "defragment"])?;
    let names: Vec<_> = done["defragmented"].as_array().into_iter().flatten().map(|member| &member["name"]).collect();
    let once: BTreeSet<_> = names.iter().filter_map(|name| name.as_str()).collect();
    ensure!(names.len() == 3 && once.len() == 3 && names.last() == Some(&&leader["name"]), "{done:#}");
    fleet.is_whole(t.within(30))
}

fn not_recovered(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, THREE)?;
    let refused = fleet.ask(&RECOVER).expect_err("there is a quorum").to_string();
    ensure!(refused.contains("etcd has a leader"), "{refused}");
    fleet.is_whole(t.within(10))
}

fn recovered(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let before = tickets(&fleet)?;
    fleet.switch_off(&[2, 3], Off::AtOnce, t.within(10))?;
    let plan = fleet.until(t.within(60), || fleet.ask(&RECOVER[..RECOVER.len() - 1]));
    let plan = plan.context("without quorum it can be recovered")?;
    ensure!(plan["done"] == false && plan["taken_out"].as_array().is_some_and(|out| out.len() == 2), "{plan:#}");
    ensure!(fleet.ask(&["ticket", "issue"]).is_err(), "it was only asked");
    let done = fleet.ask(&RECOVER)?;
    ensure!(done["done"] == true, "{done:#}");
    fleet.is_listed(t, 1, |row| row["etcd"] == "voter")?;
    for machine in [2, 3] {
        let is_node = |row: &Value| row["role"] == "node" && row["etcd"].is_null() && row["state"] == "Member";
        fleet.is_listed(t, machine, is_node)?;
    }
    fleet.ask(&["ticket", "issue"])?;
    ensure!(tickets(&fleet)?.is_superset(&before), "acknowledged before, and lost");
    Ok(())
}

/// Coordinators that were taken out open each other by their shares, and are a quorum of their own: they would have no
/// reason to ask anybody before they lose their leader, if the first one's etcd did not tell theirs that they are none
/// of its members.
fn taken_out(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let before = tickets(&fleet)?;
    fleet.switch_off(&[2, 3], Off::AtOnce, t.within(10))?;
    fleet.until(t.within(60), || fleet.ask(&RECOVER))?;
    fleet.set_faults(1, &Direction::BOTH, Faults::cut())?;
    [2, 3].iter().try_for_each(|machine| fleet.start(*machine))?;
    [2, 3].iter().try_for_each(|machine| fleet.comes_back(t, *machine))?;
    fleet.set_faults(1, &Direction::BOTH, Faults::default())?;
    for machine in [2, 3] {
        fleet.says(machine, fleet.booted(machine)?, LAID_DOWN, t.within(90))?;
    }
    let told = |machine| anyhow::Ok(fleet.vm(machine)?.said().iter().any(|line| line.text.contains(ETCD_ENDED)));
    ensure!(told(2)? || told(3)?, "the first one's etcd has not told the others'");
    for machine in [2, 3] {
        fleet.ask(&["machine", "role", "add", &name(machine), "coordinator"])?;
    }
    fleet.is_whole(t.within(60))?;
    ensure!(tickets(&fleet)?.is_superset(&before), "acknowledged before, and lost");
    Ok(())
}

/// A machine that one coordinator alone calls a node keeps what it has of a coordinator, until its owner says otherwise.
fn erased(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    fleet.switch_off(&[2, 3], Off::AtOnce, t.within(10))?;
    fleet.until(t.within(60), || fleet.ask(&RECOVER))?;
    fleet.start(2)?;
    fleet.says(2, fleet.booted(2)?, LAID_DOWN, t.within(90))?;
    let machine = fleet.vm(2)?;
    let erase = || fleet.owner().ask(NAME, machine, &["machine", "role", "erase", &name(2), "--yes"]);
    erase().context("it keeps what it has")?;
    let refused = |refusal: CommandRefusal| refusal.to_string().contains("nothing was erased").then_some(());
    machine.until(t.within(30), || erase().err().and_then(refused)).context("there is something left to erase")
}

/// A coordinator alone becomes three, of which one is reset as it begins: whoever votes then holds a share already, or
/// etcd would need more machines than can open.
fn amid_votes(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    for machine in [3, 2] {
        fleet.becomes_node(t, machine)?;
    }
    let (before, alone) = (fleet.mark(2)?, fleet.mark(1)?);
    fleet.set_role(t, 2, ClusterRole::Coordinator)?;
    // It has what a coordinator has, and etcd has not begun: that needs the others, whom the next start has to hear of again.
    fleet.says(2, before, TAKEN_UP, t.within(90))?;
    fleet.reset(&[2], t.within(5))?;
    fleet.set_role(t, 3, ClusterRole::Coordinator)?;
    fleet.says(1, alone, "step=Promote", t.within(120)).context("nobody comes to vote")?;
    fleet.switch_off(&[1, 2, 3], Off::AtOnce, t.within(10))?;
    (1..=3).try_for_each(|machine| fleet.start(machine))?;
    (1..=3).try_for_each(|machine| fleet.comes_back(t, machine))?;
    fleet.is_whole(t.within(60))
}

/// QEMU is killed while etcd has the machine as a learner, when its units have started, and as soon as it votes.
fn promotion_cut(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    fleet.becomes_node(t, 3)?;
    under_a_writer(t, &mut fleet, |fleet, _| {
        fleet.set_role(t, 3, ClusterRole::Coordinator)?;
        fleet.is_listed(t, 3, |row| row["etcd"] == "learner")?;
        fleet.power_cut(t, 3)?;
        fleet.says(3, fleet.booted(3)?, TAKEN_UP, t.within(90))?;
        fleet.power_cut(t, 3)?;
        fleet.until(t.within(120), || fleet.is_listed(t, 3, |row| row["etcd"] == "voter"))?;
        fleet.power_cut(t, 3)?;
        fleet.comes_back(t, 3)
    })?;
    fleet.is_listed(t, 3, |row| row["role"] == "coordinator" && row["etcd"] == "voter" && row["share_due"] == false)
}

/// QEMU is killed as soon as the machine is to be a node, when etcd has let go of it, and when it says that it has erased all.
fn demotion_cut(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    under_a_writer(t, &mut fleet, |fleet, _| {
        fleet.set_role(t, 3, ClusterRole::Node)?;
        fleet.power_cut(t, 3)?;
        fleet.until(t.within(120), || fleet.is_listed(t, 3, |row| row["etcd"].is_null()))?;
        fleet.power_cut(t, 3)?;
        fleet.says(3, fleet.booted(3)?, LAID_DOWN, t.within(90))?;
        fleet.power_cut(t, 3)?;
        fleet.runs(3, t.within(90))
    })?;
    fleet.is_listed(t, 3, |row| row["role"] == "node" && row["etcd"].is_null() && row["state"] == "Member")?;
    let erase = fleet.owner().ask(NAME, fleet.vm(3)?, &["machine", "role", "erase", &name(3), "--yes"]);
    let nothing_left = erase.err().context("something was left to erase")?;
    ensure!(nothing_left.to_string().contains("nothing was erased"), "{nothing_left}");
    Ok(())
}

/// The machine that made the cluster is a coordinator like any other. Where it led, another one led first: a leader that takes
/// itself out leaves what it was asked without an answer.
fn becomes_node(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let its_own = |fleet: &Fleet| fleet.row(1, t.within(30)).map(|row| (row.id, row.vpn_ip));
    let before = its_own(&fleet)?;
    fleet.becomes_node(t, 1)?;
    fleet.is_whole(t.within(60))?;
    ensure!(its_own(&fleet)? == before, "{before:?} became {:?}", its_own(&fleet)?);
    let taken_out = format!("{TAKEN_OUT}(MachineId({}))", before.0);
    let by = (1..=3).map(|machine| Ok(fleet.vm(machine)?.said().iter().any(|line| line.text.contains(&taken_out))));
    let by = by.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!by[0] && (by[1] || by[2]), "whose etcd took it out: {by:?}");
    // The others' etcd takes its certificates no longer. What was saved has no such line.
    for machine in [2, 3] {
        let refused = format!("{REFUSES}{{MachineId({})}}", before.0);
        fleet.says(machine, fleet.booted(machine)?, &refused, t.within(5))?;
    }
    Ok(())
}

/// A coordinator that left may have kept keys, and does not get its own again. Its packets are nobody's: the kernels of
/// those that stay have each other for a peer, and nobody else.
fn leaves(t: &Context) -> anyhow::Result<()> {
    let mut fleet = Fleet::copy(t, THREE)?;
    let id = fleet.row(1, t.within(30))?.id;
    fleet.remove(t, 1, Departure::Drained)?;
    fleet.is_whole(t.within(60))?;
    let rows = fleet.through(t.within(30), |records| Ok(records.machines()?.rows))?;
    let may: Vec<_> = rows.iter().filter(|row| row.may_hold_keys).map(|row| row.id).collect();
    ensure!(may == [id], "it coordinated, and may have kept keys: {rows:#?}");
    for machine in [2, 3] {
        fleet.has_peers(machine, 1, t.within(10))?;
    }
    Ok(())
}

/// The ids of all tickets.
fn tickets(fleet: &Fleet) -> anyhow::Result<BTreeSet<String>> {
    let listed = fleet.ask(&["ticket", "list"])?;
    let ids = listed["tickets"].as_array().context("a list of tickets")?.iter();
    Ok(ids.filter_map(|ticket| ticket["ticket_id"].as_str().map(str::to_owned)).collect())
}
