//! Where voters are that were all switched off, as one of them has heard in this boot: all addresses but one may have changed, and no
//! record says so before a quorum is back.

use keys::cold_start::Sightings;
use keys::endpoint::{Endpoint, MOST_ENDPOINTS};
use model::MachineId;

/// Places where voters were heard of in this boot; small, whatever is said, since each voter has few of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Whereabouts {
    /// By their own word, or where they came from.
    pub heard: Sightings,
    /// By the word of others.
    pub hearsay: Sightings,
}

impl Whereabouts {
    /// Places of a voter: where it was heard, then where others have heard it; each once.
    #[must_use]
    pub fn of(&self, machine: MachineId) -> Vec<Endpoint> {
        let all = [&self.heard, &self.hearsay].into_iter().filter_map(|seen| seen.get(&machine)).flatten().cloned();
        each_once(all)
    }

    /// Voters that were heard of.
    pub fn machines(&self) -> impl Iterator<Item = MachineId> {
        self.heard.keys().chain(self.hearsay.keys()).copied()
    }

    /// Learns what `machine` says, which has proved to be that machine and came from `source`: of voters only.
    pub(crate) fn learn(
        &mut self,
        machine: MachineId,
        source: Option<Endpoint>,
        seen: Sightings,
        is_voter: impl Fn(MachineId) -> bool,
    ) {
        for (of, endpoints) in seen {
            if of == machine {
                self.heard.insert(machine, bounded(endpoints));
            } else if is_voter(of) {
                self.hearsay.insert(of, bounded(endpoints));
            }
        }
        if let Some(source) = source {
            let heard = self.heard.entry(machine).or_default();
            if !heard.contains(&source) {
                heard.insert(0, source);
                heard.truncate(MOST_ENDPOINTS);
            }
        }
    }
}

/// As many places as one machine is said to have.
pub(crate) fn bounded(mut endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
    endpoints.truncate(MOST_ENDPOINTS);
    endpoints
}

/// The same places in their order, without those that stand there twice.
pub(crate) fn each_once(all: impl Iterator<Item = Endpoint>) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for endpoint in all {
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_named_that_were_heard_of() {
        let machine = |n| MachineId([n; 16]);
        let place = || Endpoint::read("192.0.2.1:7838").expect("a place");
        let mut whereabouts = Whereabouts::default();
        let seen = [(machine(2), vec![place()]), (machine(3), vec![place()])].into();
        whereabouts.learn(machine(1), Some(place()), seen, |of| of == machine(2));
        assert_eq!(
            whereabouts.machines().collect::<Vec<_>>(),
            [machine(1), machine(2)],
            "and no machine that is no voter"
        );
    }
}
