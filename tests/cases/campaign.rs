//! Events that befall a cluster of five machines: those of a seed, as `cargo xtask campaign cluster` has it go on for hours, and what
//! no seed may leave out. One case makes the five; each other one has a copy of its own, and one thing happens to it.

use anyhow::ensure;
use model::ClusterRole;

use crate::campaign::{Campaign, Endures, Event, Events, KubeCampaign, KubeEvent, Last, Time};
use crate::{Case, Context, Departure, FleetKind, Off, Prerequisite, Starts};

pub(crate) const CASES: &[Case] = &[
    Case {
        starts: Starts::Making(FIVE),
        ..case("three coordinators and two nodes reach one another", &["A2", "N4"], made)
    },
    case("a coordinator and a node that only hear come back", &["K4"], unheard),
    case("five machines go on over slow cables that lose frames", &["K4"], slow),
    case("a coordinator and a node that are reset come back", &["K4"], reset),
    case("a new coordinator joins through another than the lost first", &["N3", "N5"], first_gone),
    case("a coordinator and a node come back with clocks a year ahead", &["K4"], ahead),
    case("a coordinator and a node come back with clocks a year behind", &["K4"], behind),
    case("all leases end, and with new ones all are a cluster again", &["M3"], leases),
    case("a fourth coordinator has no vote, and becomes a node again", &["S5", "M3"], fourth),
    case("all come back at other addresses, one with an old directory", &["D11", "K4", "K6", "M3"], elsewhere),
    case("three coordinators and nine nodes reach one another", &["N2", "N4"], waves),
];

/// A case on a copy of the two machines of `workers.rs`.
pub(crate) const KUBE: &[Case] = &[Case {
    starts: Starts::From(FleetKind::Workers),
    ..case("all workers lose power, and each pod finds its volume", &["W1", "S10"], powerless)
}];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(FIVE), run }
}

const FIVE: FleetKind = FleetKind::Five;
/// Seed whose events begin with what no other case has among five: a coordinator and a node that hear and are not
/// heard, cables that are slow and lose frames, and reset lines.
const SEED: u64 = 2_265_468;
/// No machine of the seed has this number.
const NEW: u32 = 20;
/// Numbers of the nodes in each wave, which come to two nodes: nine in the end.
const WAVES: [std::ops::Range<u32>; 3] = [21..23, 23..25, 25..28];

fn made(t: &Context) -> anyhow::Result<()> {
    let campaign = Campaign::begin(t)?;
    campaign.hides_all()?;
    campaign.save(t)
}

/// Has happen to a copy what `events` says for those that coordinate and those that do not.
fn live_through(t: &Context, events: impl FnOnce(&[u32], &[u32]) -> Vec<Event>) -> anyhow::Result<()> {
    let mut campaign = Campaign::copy(t)?;
    for event in events(&campaign.coordinators(), &campaign.nodes()) {
        t.measured(&event.to_string());
        campaign.live_through(t, &event)?;
    }
    t.measured(&format!("{} changes were acknowledged, none is lost", campaign.acknowledged()));
    Ok(())
}

fn unheard(t: &Context) -> anyhow::Result<()> {
    live_through(t, |_, _| Events::of(SEED).take(1).collect())
}

fn slow(t: &Context) -> anyhow::Result<()> {
    live_through(t, |_, _| Events::of(SEED).skip(1).take(1).collect())
}

fn reset(t: &Context) -> anyhow::Result<()> {
    live_through(t, |_, _| Events::of(SEED).skip(2).take(1).collect())
}

/// A node hears of it only when it comes back: the directory on its ESP still names the one that is gone.
fn first_gone(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| {
        let role = ClusterRole::Coordinator;
        let event = Event::Replaced { machine: coordinators[0], how: Departure::Lost, by: NEW, role };
        vec![Event::Without { machine: nodes[0], events: vec![event] }]
    })
}

fn ahead(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| vec![away([coordinators[0], nodes[0]], Time::YearAhead)])
}

fn behind(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| vec![away([coordinators[1], nodes[0]], Time::YearBehind)])
}

fn away(machines: [u32; 2], clock: Time) -> Event {
    Event::Away { machines: machines.into(), how: Off::AtOnce, changes: 1, clock }
}

fn leases(t: &Context) -> anyhow::Result<()> {
    live_through(t, |_, _| vec![Event::NoLeases])
}

/// Etcd takes nobody new while a voter is off, and lets go of who has no vote.
fn fourth(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| {
        let becomes = |role| Event::Role { machine: nodes[0], role };
        let off = coordinators[coordinators.len() - 1];
        vec![
            becomes(ClusterRole::Coordinator),
            Event::Without { machine: off, events: vec![becomes(ClusterRole::Node)] },
        ]
    })
}

/// A coordinator stays where it was: by it the others find one another. The last was off when another one moved, so the directory on
/// its ESP is older than that of all others.
fn elsewhere(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| {
        let order: Vec<u32> = nodes.iter().chain(coordinators.iter().rev()).copied().collect();
        let moved = order.iter().copied().filter(|machine| *machine != coordinators[0]).collect();
        let all_off = Event::AllOff { how: Off::InOrder, order, last: Last::WithOthers, moved };
        let old = coordinators[coordinators.len() - 1];
        vec![Event::Without { machine: old, events: vec![Event::Moves { machine: coordinators[1] }, all_off] }]
    })
}

fn waves(t: &Context) -> anyhow::Result<()> {
    let mut campaign = Campaign::copy(t)?;
    campaign.joined_by(t, WAVES)?;
    let [coordinators, nodes] = [campaign.coordinators(), campaign.nodes()].map(|machines| machines.len());
    ensure!([coordinators, nodes] == [3, 9], "{coordinators} coordinators and {nodes} nodes");
    campaign.hides_all()
}

/// Objects in etcd and the number that each pod told were durable before they were acknowledged.
fn powerless(t: &Context) -> anyhow::Result<()> {
    let mut campaign = KubeCampaign::copy(t)?;
    campaign.live_through(t, &KubeEvent::AllOff { how: Off::AtOnce })?;
    t.measured(&format!("{} changes were acknowledged, none is lost", campaign.acknowledged()));
    Ok(())
}
