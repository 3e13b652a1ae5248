//! etcd as its clients see it: linearizable transactions over revisions, watches that may be compacted away, and members
//! that change one at a time by etcd's own strict rules (etcd 3.7, `server/etcdserver/server.go`, `api/membership`).
//! Knows nothing of what is stored.

use std::collections::BTreeMap;

use cluster::key::Key;
use cluster::members::{Learner, Look, MOST_LEARNERS, MemberStep, Members, Voter, quorum};
use cluster::state::{Change, KeyValue};
use cluster::txn::{KeyCondition, MOST_COMPARES, Outcome, Txn};
use model::MachineId;

/// The store and its members.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    revision: u64,
    keys: BTreeMap<Vec<u8>, Stored>,
    /// Changes of each revision, from behind the compacted one on.
    history: BTreeMap<u64, Vec<Change>>,
    compacted: u64,
    members: BTreeMap<MachineId, Member>,
    /// Members that were ever added.
    added: u64,
    /// Transactions and changes of members that were ever committed.
    applied: u64,
    /// Member that led last.
    leader: Option<MachineId>,
}

#[derive(Debug, Clone)]
struct Stored {
    value: Vec<u8>,
    modified: u64,
}

/// A member of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    /// Number of the member: one that is taken out and added again is another.
    number: u64,
    votes: bool,
    /// Whether it has run once; a member that was added has not.
    started: bool,
    /// Whether it runs, and others reach it.
    up: bool,
    /// The learner has what the leader has.
    caught_up: bool,
}

/// Why etcd does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EtcdRefusal {
    /// Too few voters run.
    #[error("no leader")]
    NoQuorum,
    /// `ErrNotEnoughStartedMembers`.
    #[error("re-configuration failed due to not enough started members")]
    NotEnoughStarted,
    /// `ErrUnhealthy`.
    #[error("unhealthy cluster")]
    Unhealthy,
    /// `ErrLearnerNotReady`.
    #[error("can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// `ErrTooManyLearners`.
    #[error("too many learner members in cluster")]
    TooManyLearners,
    /// `ErrIDNotFound`, or exists already.
    #[error("no such member, or it is one already")]
    NoSuchMember,
    /// More comparisons than [`MOST_COMPARES`].
    #[error("too many operations in txn request")]
    TooManyOperations,
}

/// The history before the asked revision is gone: read everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionError;

impl Etcd {
    /// An etcd of one voter.
    #[must_use]
    pub fn of(first: MachineId) -> Self {
        let member = Member { number: 0, votes: true, started: true, up: true, caught_up: true };
        Self { members: [(first, member)].into(), leader: Some(first), ..Self::default() }
    }

    /// Commits, all or nothing.
    ///
    /// # Errors
    /// [`EtcdRefusal`] when it takes no transaction at all.
    pub fn commit(&mut self, txn: &Txn) -> Result<Outcome, EtcdRefusal> {
        if txn.compares.len() > MOST_COMPARES || txn.puts.len() + txn.deletes.len() > MOST_COMPARES {
            return Err(EtcdRefusal::TooManyOperations);
        }
        if !self.has_quorum() {
            return Err(EtcdRefusal::NoQuorum);
        }
        let holds = txn.compares.iter().all(|compare| {
            let modified = self.keys.get(&compare.key.bytes()).map(|stored| stored.modified);
            match compare.condition {
                KeyCondition::Absent => modified.is_none(),
                KeyCondition::ModifiedIn(revision) => modified == Some(revision),
            }
        });
        if !holds {
            let version = self.keys.get(&Key::Version.bytes()).map_or(0, |stored| stored.modified);
            return Ok(Outcome::Differs { version });
        }
        if txn.writes() {
            (self.revision, self.applied) = (self.revision + 1, self.applied + 1);
            let mut changes = Vec::new();
            for (key, value) in &txn.puts {
                let pair = KeyValue { key: key.bytes(), value: value.clone(), mod_revision: self.revision };
                self.keys.insert(pair.key.clone(), Stored { value: value.clone(), modified: self.revision });
                changes.push(Change::Put(pair));
            }
            for key in &txn.deletes {
                if self.keys.remove(&key.bytes()).is_some() {
                    changes.push(Change::Delete { key: key.bytes(), mod_revision: self.revision });
                }
            }
            self.history.insert(self.revision, changes);
        }
        Ok(Outcome::Committed)
    }

    /// Newest revision of the store.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Everything there is now.
    pub fn pairs(&self) -> impl Iterator<Item = KeyValue> {
        self.keys.iter().map(|(key, stored)| KeyValue {
            key: key.clone(),
            value: stored.value.clone(),
            mod_revision: stored.modified,
        })
    }

    /// Changes of one revision.
    #[must_use]
    pub fn changed_in(&self, revision: u64) -> &[Change] {
        self.history.get(&revision).map_or(&[], Vec::as_slice)
    }

    /// Changes of the revisions behind `after`, up to `until`.
    ///
    /// # Errors
    /// [`CompactionError`] when some of it is gone.
    pub fn watch(&self, after: u64, until: u64) -> Result<Vec<Change>, CompactionError> {
        if after < self.compacted {
            return Err(CompactionError);
        }
        let seen = self.history.range(after.saturating_add(1)..until.max(after).saturating_add(1));
        Ok(seen.flat_map(|(_, changes)| changes.clone()).collect())
    }

    /// Forgets what was before the newest revision.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// A machine's etcd runs from here on, or does not.
    pub fn set_up(&mut self, machine: MachineId, up: bool) {
        if let Some(member) = self.members.get_mut(&machine) {
            member.up = up;
            member.started |= up;
        }
        self.elects();
    }

    /// The learners that run have caught up with the leader, if there is one.
    pub fn catch_up(&mut self) {
        if self.has_quorum() {
            self.members.values_mut().filter(|member| member.up).for_each(|member| member.caught_up = true);
        }
    }

    /// Whether enough voters run.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        let voters = self.members.values().filter(|member| member.votes);
        let (all, up) = voters.fold((0, 0), |(all, up), member| (all + 1, up + usize::from(member.up)));
        up >= quorum(all)
    }

    /// Member that leads; none without a quorum.
    #[must_use]
    pub fn leader(&self) -> Option<MachineId> {
        self.leader.filter(|_| self.has_quorum())
    }

    /// Has another voter lead, where one can; whether it does.
    pub fn moves_leader(&mut self) -> bool {
        let next = self.next_leader();
        self.leader = next.or(self.leader);
        next.is_some()
    }

    /// Voters elect another leader where the last one does not run any more.
    fn elects(&mut self) {
        let leads = |leader| self.members.get(&leader).is_some_and(|member| member.votes && member.up);
        if !self.leader.is_some_and(leads) {
            self.leader = self.next_leader();
        }
    }

    /// Next voter that runs behind the one that leads, in a circle.
    fn next_leader(&self) -> Option<MachineId> {
        let can = |(id, member): (&MachineId, &Member)| (member.votes && member.up).then_some(*id);
        let behind = self.members.iter().filter(|(id, _)| Some(**id) > self.leader).find_map(can);
        let before = || self.members.iter().filter(|(id, _)| Some(**id) < self.leader).find_map(can);
        behind.or_else(before)
    }

    /// Number under which a machine is a member; none where it is none.
    #[must_use]
    pub fn added(&self, machine: &MachineId) -> Option<u64> {
        self.members.get(machine).map(|member| member.number)
    }

    /// Members, as a coordinator sees them.
    #[must_use]
    pub fn members(&self) -> Members {
        let mut seen = Members::default();
        for (id, member) in &self.members {
            if member.votes {
                seen.voters.insert(*id, if member.up { Voter::Live } else { Voter::Silent });
            } else {
                let ready = member.up && member.caught_up;
                seen.learners.insert(*id, if ready { Learner::Ready } else { Learner::Behind });
            }
        }
        seen
    }

    /// Moment of a look at the members now.
    #[must_use]
    pub const fn look(&self) -> Look {
        Look { revision: self.revision, applied: self.applied }
    }

    /// Changes its members, by the rules of `--strict-reconfig-check`.
    ///
    /// # Errors
    /// [`EtcdRefusal`] as etcd would.
    pub fn change(&mut self, step: MemberStep) -> Result<(), EtcdRefusal> {
        if !self.has_quorum() {
            return Err(EtcdRefusal::NoQuorum);
        }
        match step {
            MemberStep::Add(id) => self.add(id),
            MemberStep::Promote(id) => self.promote(id),
            MemberStep::Remove(id) => self.remove(id),
        }?;
        self.applied += 1;
        self.elects();
        Ok(())
    }

    /// This voter goes on alone, with all that was committed: the others are taken out, and stop as soon as they hear of it
    /// (`--force-new-cluster`).
    ///
    /// # Errors
    /// [`EtcdRefusal::NoSuchMember`] when it does not vote, or does not run.
    pub fn go_on_alone(&mut self, id: MachineId) -> Result<(), EtcdRefusal> {
        let member =
            self.members.get(&id).filter(|member| member.votes && member.up).ok_or(EtcdRefusal::NoSuchMember)?;
        (self.members, self.leader) = ([(id, *member)].into(), Some(id));
        self.applied += 1;
        Ok(())
    }

    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.votes)
    }

    fn add(&mut self, id: MachineId) -> Result<(), EtcdRefusal> {
        if self.members.contains_key(&id) {
            return Err(EtcdRefusal::NoSuchMember);
        }
        if self.members.values().filter(|member| !member.votes).count() >= MOST_LEARNERS {
            return Err(EtcdRefusal::TooManyLearners);
        }
        // isConnectedFullySince
        if self.voters().any(|member| !member.up) {
            return Err(EtcdRefusal::Unhealthy);
        }
        self.added += 1;
        let member = Member { number: self.added, votes: false, started: false, up: false, caught_up: false };
        self.members.insert(id, member);
        Ok(())
    }

    fn promote(&mut self, id: MachineId) -> Result<(), EtcdRefusal> {
        let learner = self.members.get(&id).filter(|member| !member.votes).ok_or(EtcdRefusal::NoSuchMember)?;
        if !(learner.up && learner.caught_up) {
            return Err(EtcdRefusal::LearnerNotReady);
        }
        // IsReadyToPromoteMember: the learner counts as started
        let started = 1 + self.voters().filter(|member| member.started).count();
        if started < quorum(1 + self.voters().count()) {
            return Err(EtcdRefusal::NotEnoughStarted);
        }
        self.members.entry(id).and_modify(|member| member.votes = true);
        Ok(())
    }

    fn remove(&mut self, id: MachineId) -> Result<(), EtcdRefusal> {
        let leaving = *self.members.get(&id).ok_or(EtcdRefusal::NoSuchMember)?;
        if leaving.votes {
            let (voters, up) = (self.voters().count(), self.voters().filter(|member| member.up).count());
            // IsReadyToRemoveVotingMember
            let started = self.voters().filter(|member| member.started).count() - usize::from(leaving.started);
            if voters > 1 && started < quorum(voters - 1) {
                return Err(EtcdRefusal::NotEnoughStarted);
            }
            // mayRemoveMember: one that is down is no part of the active quorum
            if leaving.up && up - 1 < quorum(voters - 1) {
                return Err(EtcdRefusal::Unhealthy);
            }
        }
        self.members.remove(&id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> MachineId {
        MachineId([n; 16])
    }

    #[test]
    fn members_change_by_etcds_own_strict_rules() {
        let mut etcd = Etcd::of(id(1));
        assert_eq!(etcd.change(MemberStep::Add(id(2))), Ok(()));
        assert_eq!(etcd.change(MemberStep::Promote(id(2))), Err(EtcdRefusal::LearnerNotReady), "not started");
        assert_eq!(etcd.change(MemberStep::Add(id(3))), Ok(()));
        assert_eq!(etcd.change(MemberStep::Add(id(4))), Err(EtcdRefusal::TooManyLearners));
        etcd.set_up(id(2), true);
        etcd.set_up(id(3), true);
        assert_eq!(etcd.change(MemberStep::Promote(id(2))), Err(EtcdRefusal::LearnerNotReady), "behind");
        etcd.catch_up();
        assert_eq!(etcd.change(MemberStep::Promote(id(2))), Ok(()));
        assert_eq!(etcd.change(MemberStep::Promote(id(3))), Ok(()));
        etcd.set_up(id(3), false);
        assert_eq!(etcd.change(MemberStep::Add(id(4))), Err(EtcdRefusal::Unhealthy), "a lost voter is removed first");
        assert_eq!(etcd.change(MemberStep::Remove(id(2))), Err(EtcdRefusal::Unhealthy), "one of two would be left");
        assert_eq!(etcd.change(MemberStep::Remove(id(3))), Ok(()), "the lost one may go");
        etcd.set_up(id(2), false);
        assert_eq!(etcd.change(MemberStep::Remove(id(2))), Err(EtcdRefusal::NoQuorum));
    }
}
