//! etcd's members as a coordinator sees them, and the next change of them: one at a time, quorum first. Changes nothing
//! itself; a step that was taken shows in what is seen next.
//!
//! Voters are odd while growing: a coordinator joins as a learner, and two that are ready are promoted back to back. Shrinking
//! may leave an even number; then one that is ready is promoted by itself. Who leaves is removed before anybody is added, and nobody is
//! added while the one before has not started.

use std::collections::{BTreeMap, BTreeSet};

pub use keys::cold_start::quorum;
use model::MachineId;

/// etcd's `--max-learners`: a pair.
pub const MOST_LEARNERS: usize = model::MOST_ETCD_LEARNERS;
/// More voters only make every write slower (etcd's FAQ: at most seven).
pub const MOST_COORDINATORS: usize = keys::cold_start::MOST_HOLDERS;

/// etcd's members, by machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Who votes.
    pub voters: BTreeMap<MachineId, Voter>,
    /// Who holds a copy and does not vote.
    pub learners: BTreeMap<MachineId, Learner>,
}

/// What is seen of a voter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voter {
    /// It answers.
    Live,
    /// It has not answered for as long as etcd's health interval.
    Silent,
}

/// What is seen of a learner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learner {
    /// Not started, or behind.
    Behind,
    /// Has caught up, and answers.
    Ready,
}

/// One change of etcd's members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Add this machine, as a learner.
    Add(MachineId),
    /// Let this learner vote.
    Promote(MachineId),
    /// Take this member out.
    Remove(MachineId),
}

impl Members {
    /// Whether `machine` is a member, voting or not.
    #[must_use]
    pub fn has(&self, machine: &MachineId) -> bool {
        self.voters.contains_key(machine) || self.learners.contains_key(machine)
    }

    /// How many voters answer.
    #[must_use]
    pub fn live(&self) -> usize {
        self.voters.values().filter(|voter| **voter == Voter::Live).count()
    }

    /// Whether those who answer still decide when this voter is gone.
    #[must_use]
    pub fn survives_without(&self, machine: &MachineId) -> bool {
        let left = |voter: &&MachineId| *voter != machine;
        let voters = self.voters.keys().filter(left).count();
        let live = self.voters.iter().filter(|(id, voter)| left(id) && **voter == Voter::Live).count();
        voters > 0 && live >= quorum(voters) && self.live() >= quorum(self.voters.len())
    }

    /// Whether those who answer still decide when one more votes, though that one never answers again.
    fn survives_one_more(&self) -> bool {
        // One voter and its successor is the one step where both must answer: there is no other way from one to three.
        self.live() >= quorum(self.voters.len() + 1) || (self.voters.len() == 1 && self.live() == 1)
    }

    fn ready(&self) -> impl Iterator<Item = MachineId> {
        self.learners.iter().filter(|(_, learner)| **learner == Learner::Ready).map(|(id, _)| *id)
    }

    /// The next change towards `wanted` (who is to coordinate), if there is one that loses no quorum.
    #[must_use]
    pub fn next(&self, wanted: &BTreeSet<MachineId>) -> Option<Step> {
        if self.live() < quorum(self.voters.len()) {
            return None; // etcd takes no change, and none is to wait for it there
        }
        if let Some(learner) = self.learners.keys().find(|learner| !wanted.contains(*learner)) {
            return Some(Step::Remove(*learner));
        }
        let leaving = || self.voters.iter().filter(|(id, _)| !wanted.contains(*id));
        let silent_first = leaving().filter(|(_, voter)| **voter == Voter::Silent).chain(leaving());
        if let Some((voter, _)) = silent_first.into_iter().find(|(id, _)| self.survives_without(id)) {
            return Some(Step::Remove(*voter));
        }
        // A voter that is to go and cannot yet: whoever is ready takes its place first.
        let succeeds = leaving().next().is_some();
        let ready: Vec<_> = self.ready().collect();
        let even = self.voters.len().is_multiple_of(2);
        let promotes = succeeds || even || ready.len() >= MOST_LEARNERS;
        if let Some(learner) = ready.first().filter(|_| promotes && self.survives_one_more()) {
            return Some(Step::Promote(*learner));
        }
        if self.learners.len() >= MOST_LEARNERS || self.live() < self.voters.len() {
            return None; // etcd adds nobody while a voter does not answer
        }
        if self.learners.values().any(|learner| *learner == Learner::Behind) {
            return None; // a member starts only with the very members that there are, and was told them of now
        }
        wanted.iter().find(|id| !self.has(id)).map(|id| Step::Add(*id))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(n: u8) -> MachineId {
        MachineId([n; 16])
    }

    fn ids(range: std::ops::RangeInclusive<u8>) -> BTreeSet<MachineId> {
        range.map(id).collect()
    }

    /// `live` of `voters` answer, and then learners.
    fn members(voters: u8, live: u8, learners: &[Learner]) -> Members {
        Members {
            voters: (1..=voters).map(|n| (id(n), if n <= live { Voter::Live } else { Voter::Silent })).collect(),
            learners: learners.iter().zip(voters + 1..).map(|(learner, n)| (id(n), *learner)).collect(),
        }
    }

    #[test]
    fn voters_grow_in_pairs_and_shrink_one_by_one() {
        use Learner::{Behind, Ready};
        for (voters, live, learners, wanted, step) in [
            (1, 1, &[][..], 1..=1, None),
            (1, 1, &[], 1..=2, Some(Step::Add(id(2)))),
            (1, 1, &[Ready], 1..=2, None), // one more than odd stays a learner
            (1, 1, &[Ready], 1..=3, Some(Step::Add(id(3)))),
            (1, 1, &[Behind], 1..=3, None), // it has not started, and would with one member too few
            (1, 1, &[Ready, Behind], 1..=3, None),
            (1, 1, &[Ready, Ready], 1..=3, Some(Step::Promote(id(2)))),
            (2, 2, &[Ready], 1..=3, Some(Step::Promote(id(3)))), // the second of the pair
            (2, 2, &[Behind], 1..=3, None),
            (2, 1, &[Ready], 1..=3, None), // without quorum
            (3, 3, &[], 1..=3, None),
            (3, 2, &[], 1..=4, None), // a lost voter is removed before its successor is added
            (3, 2, &[], 1..=2, Some(Step::Remove(id(3)))),
            (3, 2, &[], 2..=4, None), // the first leaves, and the third is silent: two are left, one answers
            (3, 3, &[], 2..=4, Some(Step::Remove(id(1)))),
            (1, 1, &[Ready], 2..=2, Some(Step::Promote(id(2)))), // the last voter's successor first
            (2, 2, &[], 2..=2, Some(Step::Remove(id(1)))),
            (1, 1, &[Behind], 2..=2, None),
            (1, 1, &[], 2..=2, Some(Step::Add(id(2)))),
            (1, 1, &[Ready], 1..=1, Some(Step::Remove(id(2)))),
            (3, 3, &[Ready, Ready], 1..=6, Some(Step::Promote(id(4)))),
        ] {
            let (seen, wanted) = (members(voters, live, learners), ids(wanted));
            assert_eq!(seen.next(&wanted), step, "{voters} voters, {live} live, {learners:?}, {wanted:?}");
        }
    }

    proptest! {
        /// Proves: S5
        #[test]
        fn no_step_loses_quorum_and_all_steps_come_to_an_end(
            voters in 1_u8..=5, silent in 0_u8..=5, first in 1_u8..=5, last in 1_u8..=9,
        ) {
            let wanted = ids(first..=last.max(first));
            let mut seen = members(voters, voters.saturating_sub(silent), &[]);
            for steps in 0.. {
                prop_assert!(steps < 64, "it comes to an end");
                let Some(step) = seen.next(&wanted) else { break };
                match step {
                    Step::Add(id) => drop(seen.learners.insert(id, Learner::Ready)),
                    Step::Remove(id) => drop((seen.voters.remove(&id), seen.learners.remove(&id))),
                    Step::Promote(id) => {
                        prop_assert!(seen.learners.remove(&id).is_some());
                        seen.voters.insert(id, Voter::Live);
                    }
                }
                prop_assert!(seen.live() >= quorum(seen.voters.len()) && !seen.voters.is_empty(), "{:?}", step);
                prop_assert!(seen.learners.len() <= MOST_LEARNERS);
            }
            if silent == 0 {
                prop_assert!(seen.voters.keys().all(|id| wanted.contains(id)), "who is to leave has left");
                let spare = wanted.len() - seen.voters.len();
                prop_assert!(spare <= 1, "all but one vote: {:?}", seen);
            }
        }
    }
}
