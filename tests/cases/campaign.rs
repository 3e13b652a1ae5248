//! What befalls a cluster of five machines, one thing after the other: what a seed brings, as `cargo xtask campaign cluster`
//! has it go on for hours, and what no seed may leave out.

use std::sync::PoisonError;

use model::ClusterRole;

use crate::campaign::{Campaign, Event, Events, Last, Time};
use crate::{Case, Context, Leaving, Need, Off};

pub(crate) const CASES: &[Case] = &[
    case("five machines live through what a seed brings", &["K4", "K6"], short),
    case("the first coordinator is gone for good, and a new one comes through another", &["N3", "N5"], first_gone),
    case(
        "clocks are off, leases end, and all are switched off, at other addresses and one with an old directory",
        &["D11", "K4", "K6", "M3"],
        elsewhere,
    ),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], run }
}

/// It begins with what other cases have none or little of among five: a role that is given and one that is taken, and a coordinator
/// that leaves for another.
const SEED: u64 = 596;
const EVENTS: usize = 3;
/// No machine of the seed has this number.
const NEW: u32 = 20;

/// What happens is said by who coordinates, and who does not.
fn live_through(t: &Context, events: impl FnOnce(&[u32], &[u32]) -> Vec<Event>) -> anyhow::Result<()> {
    let shared = t.shared("five machines", Campaign::begin)?;
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
        let order = [coordinators, nodes].concat();
        let moved = order[1..].to_vec();
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
