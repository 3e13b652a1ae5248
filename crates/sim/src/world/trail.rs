//! Trail of a world that broke a law: its last events, in words.

use cluster::Word;
use cluster::request::Request;
use member::{Effect, KeptFile};
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
        | Request::Hold { .. }
        | Request::ReleaseKey { .. }
        | Request::BeginEpoch
        | Request::AcknowledgeEpoch { .. }
        | Request::AcknowledgeRestore { .. }
        | Request::EndRestore { .. } => format!("{request:?}"),
    };
    match event {
        Event::Ask { who, decision, via } => format!("{who:?} asks {}: {}", short(*via), asked(decision.request())),
        Event::Commit { who, decision, via, .. } => {
            format!("{} commits for {who:?}: {}", short(*via), asked(decision.request()))
        }
        Event::Told(n, _, word) => match &**word {
            Word::Desired(desired) => {
                format!("{n} is told {:?} {:?} {:?}", desired.at, desired.assignment.role(), desired.etcd)
            }
            Word::News(_) | Word::Directory(_) | Word::Order(_) => format!("{n} is told news"),
        },
        Event::Performs { n, effect, .. } => {
            if let Effect::Keep(KeptFile::Desired(desired)) = &**effect {
                return format!("{n} keeps {:?} {:?} {:?}", desired.at, desired.assignment.role(), desired.etcd);
            }
            format!("{n} performs {effect:?}")
        }
        Event::Looked { n, .. } => format!("{n} has looked at etcd's members"),
        Event::Opens(_)
        | Event::Begins(..)
        | Event::Wakes(..)
        | Event::Tells(..)
        | Event::Left { .. }
        | Event::Lost { .. }
        | Event::Own(_)
        | Event::Owner
        | Event::Recover
        | Event::Watch(_)
        | Event::Power(..)
        | Event::Cut(..)
        | Event::Ages
        | Event::CatchUp
        | Event::Compact
        | Event::AllOff => format!("{event:?}"),
    }
}
