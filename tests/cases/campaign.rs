//! What befalls a cluster of five machines, one thing after the other: what a seed brings, as `cargo xtask campaign cluster`
//! has it go on for hours, and what no seed may leave out.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use model::ClusterRole;

use crate::campaign::{Campaign, Event, Events, Last, Time};
use crate::{Case, Context, Leaving, Need, Off, Starts};

pub(crate) const CASES: &[Case] = &[
    case("five machines live through what a seed brings", &["K4"], short),
    case("the first coordinator is gone for good, and a new one comes through another", &["N3", "N5"], first_gone),
    case(
        "clocks are off, leases end, and all are switched off, at other addresses and one with an old directory",
        &["D11", "K4", "K6", "M3"],
        elsewhere,
    ),
    case("three coordinators and nine nodes, which come in waves, reach one another", &["N2", "N4"], waves),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], starts: Starts::Cold, run }
}

/// It begins with what no other case has among five: a coordinator and a node that hear and are not heard, cables that are slow and
/// lose frames, and reset lines.
const SEED: u64 = 2_265_468;
const EVENTS: usize = 3;
/// No machine of the seed has this number.
const NEW: u32 = 20;
/// Of nodes that come while there are two: nine in the end.
const WAVES: [std::ops::Range<u32>; 3] = [21..23, 23..25, 25..28];

fn shared(t: &Context) -> anyhow::Result<Arc<Mutex<Campaign>>> {
    t.shared("five machines", Campaign::begin)
}

/// What happens is said by who coordinates, and who does not.
fn live_through(t: &Context, events: impl FnOnce(&[u32], &[u32]) -> Vec<Event>) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut campaign = shared.lock().unwrap_or_else(PoisonError::into_inner);
    for event in events(&campaign.coordinators(), &campaign.nodes()) {
        t.measured(&event.to_string());
        campaign.live_through(t, &event)?;
    }
    t.measured(&format!("{} changes were acknowledged, none is lost", campaign.acknowledged()));
    Ok(())
}

fn short(t: &Context) -> anyhow::Result<()> {
    live_through(t, |_, _| Events::of(SEED).take(EVENTS).collect())
}

/// A node hears of it only when it comes back: the directory on its ESP still names the one that is gone.
fn first_gone(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| {
        let role = ClusterRole::Coordinator;
        let event = Event::Replaced { machine: coordinators[0], how: Leaving::Lost, by: NEW, role };
        vec![Event::Without { machine: nodes[0], events: vec![event] }]
    })
}

fn elsewhere(t: &Context) -> anyhow::Result<()> {
    live_through(t, |coordinators, nodes| {
        let away =
            |machines: [u32; 2], clock| Event::Away { machines: machines.into(), how: Off::AtOnce, changes: 1, clock };
        // One coordinator is where it was: by it the others find one another. The last was off when another one became a node again,
        // so the directory on its ESP is older than that of all others. (etcd takes nobody new while a voter is off.)
        let order: Vec<u32> = nodes.iter().chain(coordinators.iter().rev()).copied().collect();
        let moved = order.iter().copied().filter(|machine| *machine != coordinators[0]).collect();
        let old = coordinators[coordinators.len() - 1];
        let becomes = |role| Event::Role { machine: nodes[0], role };
        let all_off = Event::AllOff { how: Off::InOrder, order, last: Last::WithOthers, moved };
        vec![
            away([coordinators[0], nodes[0]], Time::YearAhead),
            away([coordinators[1], nodes[0]], Time::YearBehind),
            Event::NoLeases,
            becomes(ClusterRole::Coordinator),
            Event::Without { machine: old, events: vec![becomes(ClusterRole::Node), all_off] },
        ]
    })
}

/// The last case of this file: there are too many machines for any other.
fn waves(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut campaign = shared.lock().unwrap_or_else(PoisonError::into_inner);
    campaign.joined_by(t, WAVES)?;
    let [coordinators, nodes] = [campaign.coordinators(), campaign.nodes()].map(|machines| machines.len());
    ensure!([coordinators, nodes] == [3, 9], "{coordinators} coordinators and {nodes} nodes");
    campaign.hides_all()
}
