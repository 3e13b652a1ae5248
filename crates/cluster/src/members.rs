//! etcd's members as a coordinator sees them, and the next change of them: one at a time, quorum first. Changes nothing
//! itself; a step that was taken shows in what is seen next.
//!
//! Voters are odd while growing: a coordinator joins as a learner, and two that are ready are promoted back to back. Shrinking
//! may leave an even number; then one that is ready is promoted by itself. Who leaves is removed before anybody is added, and nobody is
//! added while the one before has not started. Nobody votes who holds no share of the cold-start key: were all switched off
//! then, fewer could open their disks than etcd needs.

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
    /// Members that vote.
    pub voters: BTreeMap<MachineId, Voter>,
    /// Members that hold a copy and do not vote.
    pub learners: BTreeMap<MachineId, Learner>,
}

/// Moment of a look at the members, in the words of the etcd that listed them: whatever it had applied before is in the list. Looks at
/// any members' etcd are in the order of their moments, as long as the cluster is not recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look {
    /// Newest revision of the records that was applied.
    pub revision: u64,
    /// Newest entry of etcd's log that was applied: members change without a revision.
    pub applied: u64,
}

/// Health of a voter, as it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voter {
    /// The voter answers.
    Live,
    /// The voter has not answered for as long as etcd's health interval.
    Silent,
}

/// Progress of a learner, as it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learner {
    /// Not started, or behind.
    Behind,
    /// Has caught up, and answers.
    Ready,
}

/// A change of etcd's members, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberStep {
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
        live >= quorum(voters) && self.live() >= quorum(self.voters.len())
    }

    /// Whether those who answer still decide when one more votes, though that one never answers again.
    fn survives_one_more(&self) -> bool {
        // One voter and its successor is the one step where both must answer: there is no other way from one to three.
        self.live() >= quorum(self.voters.len() + 1) || self.voters.len() == 1
    }

    /// Learners of `ready` that are to vote next: a pair, or one for a voter that leaves or was lost.
    fn candidates(&self, wanted: &BTreeSet<MachineId>, ready: &BTreeSet<MachineId>) -> BTreeSet<MachineId> {
        let ready = self.learners.keys().filter(|id| wanted.contains(*id) && ready.contains(*id));
        let succeeds = self.voters.keys().any(|voter| !wanted.contains(voter));
        let even = self.voters.len().is_multiple_of(2);
        match (succeeds || even, ready.clone().count()) {
            (true, _) => ready.take(1).copied().collect(),
            (false, MOST_LEARNERS..) => ready.take(MOST_LEARNERS).copied().collect(),
            (false, _) => BTreeSet::new(),
        }
    }

    fn ready(&self) -> BTreeSet<MachineId> {
        self.learners.iter().filter(|(_, learner)| **learner == Learner::Ready).map(|(id, _)| *id).collect()
    }

    /// Machines that are to hold shares of the cold-start key: the voters, and those that are to vote next. Whoever is among
    /// the `holders` of now counts as ready, so that a learner that is behind for a moment ends no epoch.
    #[must_use]
    pub fn electorate(&self, wanted: &BTreeSet<MachineId>, holders: &BTreeSet<MachineId>) -> BTreeSet<MachineId> {
        let ready = self.ready().union(holders).copied().collect();
        self.voters.keys().copied().chain(self.candidates(wanted, &ready)).collect()
    }

    /// The next change towards `wanted` (who is to coordinate), if there is one that loses no quorum. Only `holders` of the
    /// cold-start key may come to vote, where there is one.
    #[must_use]
    pub fn next(&self, wanted: &BTreeSet<MachineId>, holders: Option<&BTreeSet<MachineId>>) -> Option<MemberStep> {
        if self.live() < quorum(self.voters.len()) {
            return None; // etcd takes no change, and none is to wait for it there
        }
        if let Some(learner) = self.learners.keys().find(|learner| !wanted.contains(*learner)) {
            return Some(MemberStep::Remove(*learner));
        }
        let leaving = || self.voters.iter().filter(|(id, _)| !wanted.contains(*id));
        let silent_first = leaving().filter(|(_, voter)| **voter == Voter::Silent).chain(leaving());
        if let Some((voter, _)) = silent_first.into_iter().find(|(id, _)| self.survives_without(id)) {
            return Some(MemberStep::Remove(*voter));
        }
        // A voter that is to go and cannot yet: whoever is ready takes its place first.
        let may_vote = |learner: &&MachineId| holders.is_none_or(|holders| holders.contains(*learner));
        if let Some(learner) = self.candidates(wanted, &self.ready()).iter().find(may_vote)
            && self.survives_one_more()
        {
            return Some(MemberStep::Promote(*learner));
        }
        if self.learners.len() >= MOST_LEARNERS || self.live() < self.voters.len() {
            return None; // etcd adds nobody while a voter does not answer
        }
        if self.learners.values().any(|learner| *learner == Learner::Behind) {
            return None; // a member starts only with the very members that there are, and was told them of now
        }
        wanted.iter().find(|id| !self.has(id)).map(|id| MemberStep::Add(*id))
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
            (1, 1, &[], 1..=2, Some(MemberStep::Add(id(2)))),
            (1, 1, &[Ready], 1..=2, None), // one more than odd stays a learner
            (1, 1, &[Ready], 1..=3, Some(MemberStep::Add(id(3)))),
            (1, 1, &[Behind], 1..=3, None), // it has not started, and would with one member too few
            (1, 1, &[Ready, Behind], 1..=3, None),
            (1, 1, &[Ready, Ready], 1..=3, Some(MemberStep::Promote(id(2)))),
            (2, 2, &[Ready], 1..=3, Some(MemberStep::Promote(id(3)))), // the second of the pair
            (2, 2, &[Behind], 1..=3, None),
            (2, 1, &[Ready], 1..=3, None), // without quorum
            (3, 3, &[], 1..=3, None),
            (3, 2, &[], 1..=4, None), // a lost voter is removed before its successor is added
            (3, 2, &[], 1..=2, Some(MemberStep::Remove(id(3)))),
            (3, 2, &[], 2..=4, None), // the first leaves, and the third is silent: two are left, one answers
            (3, 3, &[], 2..=4, Some(MemberStep::Remove(id(1)))),
            (1, 1, &[Ready], 2..=2, Some(MemberStep::Promote(id(2)))), // the last voter's successor first
            (2, 2, &[], 2..=2, Some(MemberStep::Remove(id(1)))),
            (1, 1, &[Behind], 2..=2, None),
            (1, 1, &[], 2..=2, Some(MemberStep::Add(id(2)))),
            (1, 1, &[Ready], 1..=1, Some(MemberStep::Remove(id(2)))),
            (3, 3, &[Ready, Ready], 1..=6, Some(MemberStep::Promote(id(4)))),
            (3, 2, &[Ready], 2..=4, None), // the first cannot leave yet, and of four that vote two would answer
            (3, 1, &[Ready], 1..=3, None), // without quorum nobody is taken out, either
        ] {
            let (seen, wanted) = (members(voters, live, learners), ids(wanted));
            assert_eq!(seen.next(&wanted, None), step, "{voters} voters, {live} live, {learners:?}, {wanted:?}");
        }
    }

    /// Proves: K6
    #[test]
    fn who_votes_next_holds_a_share_first() {
        use Learner::{Behind, Ready};
        for (voters, learners, wanted, holders, electorate, step) in [
            (1, &[Ready, Ready][..], 1..=3, 1..=1, 1..=3, None),
            (1, &[Ready, Ready], 1..=3, 1..=3, 1..=3, Some(MemberStep::Promote(id(2)))),
            (1, &[Ready, Behind], 1..=3, 1..=3, 1..=3, None), // behind for a moment: the epoch stays
            (1, &[Ready, Behind], 1..=3, 1..=1, 1..=1, None),
            (1, &[Ready], 1..=2, 1..=2, 1..=1, None), // it is to be a pair, and one of them is gone
            (2, &[Ready], 1..=3, 1..=2, 1..=3, None),
            (2, &[Ready], 1..=3, 1..=3, 1..=3, Some(MemberStep::Promote(id(3)))),
            (2, &[Ready, Ready], 1..=4, 1..=2, 1..=3, None), // one is enough for an odd number
            (1, &[Ready], 2..=2, 1..=1, 1..=2, None),        // the last voter's successor
            (1, &[Ready], 2..=2, 1..=2, 1..=2, Some(MemberStep::Promote(id(2)))),
            (3, &[Ready], 1..=4, 1..=3, 1..=3, None),
            (3, &[], 1..=3, 1..=5, 1..=3, None),
            (3, &[Ready], 2..=4, 1..=3, 1..=4, None), // one of them leaves
        ] {
            let (seen, wanted, holders) = (members(voters, voters, learners), ids(wanted), ids(holders));
            let case = format!("{voters} voters, {learners:?}, {wanted:?}, {holders:?}");
            assert_eq!(seen.electorate(&wanted, &holders), ids(electorate), "{case}");
            assert_eq!(
                seen.next(&wanted, Some(&holders)).filter(|step| matches!(step, MemberStep::Promote(_))),
                step,
                "{case}"
            );
        }
    }

    #[test]
    fn who_leaves_in_silence_leaves_first_and_takes_no_quorum_along() {
        for silent in [1, 2] {
            let mut five = members(5, 5, &[]);
            five.voters.insert(id(silent), Voter::Silent);
            assert_eq!(
                five.next(&ids(3..=5), None),
                Some(MemberStep::Remove(id(silent))),
                "and not the one that answers"
            );
        }
        assert!(!members(2, 1, &[]).survives_without(&id(2)), "etcd takes no change while one of two answers");
    }

    #[test]
    fn no_more_learn_than_may() {
        let seen = members(1, 1, &[Learner::Ready, Learner::Ready]);
        assert_eq!(seen.next(&ids(1..=4), Some(&ids(1..=1))), None, "a pair waits for its shares");
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
                let Some(step) = seen.next(&wanted, None) else { break };
                match step {
                    MemberStep::Add(id) => drop(seen.learners.insert(id, Learner::Ready)),
                    MemberStep::Remove(id) => drop((seen.voters.remove(&id), seen.learners.remove(&id))),
                    MemberStep::Promote(id) => {
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
