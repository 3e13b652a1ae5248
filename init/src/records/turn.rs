//! The turn of a request: one is decided at a time, and what machines ask for is held to its bounds before etcd hears of it.
//! Performs nothing: the proposal that comes of it is committed elsewhere.

use std::time::Instant;

use cluster::decision::{Decision, Next, Proposal};
use cluster::record::UnixSeconds;
use cluster::request::Request;
use cluster::state::State;
use cluster::txn::Outcome;
use door::{Changes, PutOff, Refusals};
use model::MachineId;

/// Changes and refusals that machines had written lately by this coordinator.
#[derive(Debug, Default)]
pub(super) struct Turn {
    changes: Changes,
    refusals: Refusals,
}

/// A request that is being decided.
#[derive(Debug)]
pub(super) struct Asked {
    decision: Decision,
    /// The machine whose change is still to be counted; once, however often others are first.
    counts: Option<MachineId>,
}

impl Asked {
    /// A request at a coordinator, whose own changes are not bounded: nobody else makes them.
    pub(super) fn of(request: Request, coordinator: MachineId) -> Self {
        let counts = request.machine().filter(|machine| *machine != coordinator);
        Self { decision: Decision::new(request), counts }
    }
}

impl Turn {
    /// Proposal for etcd, by the cluster's clock `now` and this machine's own `at`.
    ///
    /// # Errors
    /// [`PutOff`]: the machine had too much changed lately.
    pub(super) fn propose(
        &mut self,
        asked: &mut Asked,
        state: &State,
        (now, at): (UnixSeconds, Instant),
    ) -> Result<Proposal, PutOff> {
        let proposal = asked.decision.propose(state, now);
        if proposal.writes_of_refused().is_some_and(|whom| !self.refusals.may_write(whom, at)) {
            return Ok(proposal.unwritten());
        }
        if proposal.grants_a_write()
            && let Some(machine) = asked.counts.take()
        {
            self.changes.ask(machine, at)?;
        }
        Ok(proposal)
    }

    /// Decides the next step by what etcd made of `proposal`, and counts a refusal that was written.
    pub(super) fn after(&mut self, asked: &mut Asked, proposal: Proposal, outcome: Outcome, at: Instant) -> Next {
        if outcome == Outcome::Committed
            && let Some(whom) = proposal.writes_of_refused()
        {
            self.refusals.written(whom, at);
        }
        asked.decision.after(proposal, outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::Denial;
    use cluster::key::Key;
    use cluster::record::{self, Release, Standing};
    use cluster::state::{Change, KeyValue};
    use keys::endpoint::Endpoint;
    use model::MachinePubKey;

    use super::*;
    use crate::records::fixture::{cluster, machine, put};
    use crate::runtime::clock;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    /// The machines 1, 2 and 9 of a cluster.
    fn state() -> State {
        let pair = |key: Key, value| KeyValue { key: key.bytes(), value, mod_revision: 4 };
        let records = [pair(Key::Version, record::ChangeCount(1).encode()), pair(Key::Cluster, cluster().encode())];
        let machines = [1, 2, 9].map(|n| put(&machine(n, Standing::Member), 4));
        State::read(records.into_iter().chain(machines)).expect("our own")
    }

    /// Machine `n` tells machine 9 where it is, if anywhere.
    fn announces(n: u8, place: Option<u16>) -> Asked {
        let endpoints = place.map(|port| Endpoint::read(&format!("192.0.2.1:{port}")).expect("an endpoint"));
        let request = Request::Announce {
            machine: MachinePubKey([n; 32]),
            release: Release(0, 3, 0),
            endpoints: endpoints.into_iter().collect(),
            generation: 1,
        };
        Asked::of(request, machine(9, Standing::Member).id())
    }

    /// However fast it asks, and whatever it says. Proves: Q1
    #[tokio::test(start_paused = true)]
    async fn one_machine_does_not_rewrite_everybody() {
        let (state, mut turn, now) = (state(), Turn::default(), clock::now());
        let mut asks = |n, place, at| turn.propose(&mut announces(n, place), &state, (NOW, at)).is_ok();
        let made = (1..=500).filter(|place| asks(1, Some(*place), now + Duration::from_millis(u64::from(*place))));
        assert_eq!(made.count(), 5);
        let now = now + Duration::from_secs(1);
        assert!(asks(1, None, now), "what changes nothing is answered at once");
        assert!(asks(2, Some(1), now), "another machine is not put off");
        assert!((1..=500).all(|place| asks(9, Some(place), now)), "nor is the coordinator itself");
        assert!(!asks(1, Some(1), now), "yet the one still is");
        assert!(asks(1, Some(1), now + door::AGAIN), "what it says when it asks again is heard");
    }

    /// A thousand requests of a machine that was removed are one revision of etcd. Proves: Q1
    #[tokio::test(start_paused = true)]
    async fn refusals_of_a_minute_are_written_down_once() {
        let (mut turn, begin) = (Turn::default(), clock::now());
        let removed = machine(3, Standing::Removed);
        let mut state = state();
        state.apply([Change::Put(put(&removed, 5))]).expect("our own");
        let asks = |turn: &mut Turn, seconds, outcome| {
            let mut asked = announces(3, None);
            let at = begin + Duration::from_secs(seconds);
            let proposal = turn.propose(&mut asked, &state, (NOW, at)).expect("not put off");
            let written = proposal.txn().writes();
            assert_eq!(proposal.txn().compares.len(), 1, "asked of etcd all the same");
            let next = turn.after(&mut asked, proposal, outcome, at);
            if outcome == Outcome::Committed {
                assert_eq!(next, Next::Answer(Err(Denial::MachineRemoved)));
            }
            written
        };
        assert!(asks(&mut turn, 0, Outcome::Differs { version: 9 }), "others were first, and nothing is written");
        let written = (0..1000).filter(|n| asks(&mut turn, n * 59 / 1000, Outcome::Committed));
        assert_eq!(written.count(), 1);
        assert!(asks(&mut turn, 60, Outcome::Committed), "the next minute");
    }

    /// Others were first: it is decided again, and is one change.
    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_decided_again_counts_once() {
        let (state, mut turn, now) = (state(), Turn::default(), clock::now());
        let mut asked = announces(1, Some(1));
        for _ in 0..40 {
            assert!(turn.propose(&mut asked, &state, (NOW, now)).expect("one change").txn().writes());
        }
    }
}
