//! What is shown of a world that broke a law: its last events, in words.

use cluster::request::Request;
use model::MachineId;

use super::{Event, World};

/// How many events before a failure are shown.
const TRAIL: usize = 30;

impl World {
    pub(super) fn note(&mut self, text: String) {
        if self.trail.len() == TRAIL {
            self.trail.pop_front();
        }
        self.trail.push_back(text);
    }
}

pub(super) fn short(id: MachineId) -> String {
    id.to_string()[..8].to_owned()
}

pub(super) fn brief(event: &Event) -> String {
    let asked = |request: &Request| match request {
        Request::Create(_) => "create".to_owned(),
        Request::Redeem(redeem) => format!("redeem for {}", short(keys::identity::machine_id(&redeem.machine().0))),
        Request::Owner { asks, .. } => format!("{asks:?}"),
        Request::Announce { .. }
        | Request::Observe { .. }
        | Request::ReleaseKey { .. }
        | Request::BeginEpoch
        | Request::AcknowledgeEpoch { .. } => format!("{request:?}"),
    };
    match event {
        Event::Ask { who, decision, via } => format!("{who:?} asks {}: {}", short(*via), asked(decision.request())),
        Event::Commit { who, decision, via, .. } => {
            format!("{} commits for {who:?}: {}", short(*via), asked(decision.request()))
        }
        Event::News(n, _) => format!("machine {n} hears of others"),
        Event::Live(_)
        | Event::Peers(_)
        | Event::Owner
        | Event::Recover
        | Event::Watch(_)
        | Event::Reconcile(_)
        | Event::Power(..)
        | Event::Cut(..)
        | Event::Hold(_)
        | Event::CatchUp
        | Event::Compact
        | Event::AllOff => format!("{event:?}"),
    }
}
