//! Backends of etcd's members: which of them is to be defragmented, in which order, and what forbids it. Changes nothing itself.
//!
//! A member that defragments answers no reads or writes meanwhile, so one does so at a time, all others answer, and the leader is the last.
//! Learners take no such request (`isRPCSupportedForLearner`, server/etcdserver/api/v3rpc/util.go).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use model::{MachineId, NodeName};

/// Backends up to this many bytes are not defragmented by themselves: etcd reuses what is free in them soon.
pub const SMALL: u64 = 64 << 20;
/// Time for which nobody begins another defragmentation behind one whose end is not known: its request was given up, not the work.
pub const LONGEST: Duration = Duration::from_secs(600);

/// Backend of a member, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backend {
    /// Size of its file.
    pub size: u64,
    /// Part of it that is in use.
    pub in_use: u64,
    /// Size at which etcd takes no more writes.
    pub quota: u64,
}

impl Backend {
    /// Whether half of it is free, and that is worth a defragmentation.
    #[must_use]
    pub const fn is_half_free(&self) -> bool {
        self.size > SMALL && self.size.saturating_sub(self.in_use) >= self.size / 2
    }

    /// Whether a fifth of the quota or more is left: less would soon raise the alarm again.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.size <= self.quota / 5 * 4
    }
}

/// Alarm that etcd has raised for all of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EtcdAlarm {
    /// `NOSPACE`: the backend of a member has reached its quota, and nothing more is written.
    NoSpace,
    /// `CORRUPT`: members have different data, and nothing is read or written.
    Corrupt,
}

/// Part that a member has in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberPart {
    /// Leads the voters.
    Leader,
    /// Votes, and follows.
    Voter,
    /// Keeps a copy, and has no vote.
    Learner,
}

/// Member of etcd with its backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberBackend {
    /// Name of its machine.
    pub name: NodeName,
    /// Part that it has.
    pub part: MemberPart,
    /// None where the member does not answer, or knows no leader.
    pub backend: Option<Backend>,
}

/// Members of etcd with their backends, as one look has found them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backends {
    /// Members by machine.
    pub members: BTreeMap<MachineId, MemberBackend>,
    /// Alarms that are raised.
    pub alarms: BTreeSet<EtcdAlarm>,
}

/// Reason for which no member is to be defragmented now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefragmentRefusal {
    /// No leader.
    #[error("etcd has no leader, since most of its voters do not answer")]
    NoLeader,
    /// The members' data differs.
    #[error("etcd has raised the alarm CORRUPT: its members have different data")]
    Corrupt,
    /// A member that answers nothing, or follows nobody.
    #[error("the etcd of {0} does not answer, or follows no leader")]
    Silent(NodeName),
    /// etcd takes no such request of it.
    #[error("the etcd of {0} keeps a copy without a vote, and such are not defragmented")]
    Learner(NodeName),
    /// Somebody who is no member.
    #[error("machine {0} has no etcd")]
    NoMember(MachineId),
}

impl Backends {
    /// Voters among `asked`, or all of them, in the order in which they are defragmented: the leader is the last.
    ///
    /// # Errors
    /// [`DefragmentRefusal`] names the first thing that forbids it now.
    pub fn order(&self, asked: Option<&BTreeSet<MachineId>>) -> Result<Vec<MachineId>, DefragmentRefusal> {
        if self.alarms.contains(&EtcdAlarm::Corrupt) {
            return Err(DefragmentRefusal::Corrupt);
        }
        if !self.members.values().any(|member| member.part == MemberPart::Leader) {
            return Err(DefragmentRefusal::NoLeader);
        }
        if let Some(silent) = self.members.values().find(|member| member.backend.is_none()) {
            return Err(DefragmentRefusal::Silent(silent.name.clone()));
        }
        for machine in asked.into_iter().flatten() {
            let member = self.members.get(machine).ok_or(DefragmentRefusal::NoMember(*machine))?;
            if member.part == MemberPart::Learner {
                return Err(DefragmentRefusal::Learner(member.name.clone()));
            }
        }
        let is_asked = |machine: &&MachineId| asked.is_none_or(|asked| asked.contains(machine));
        let of = |part| {
            let members = self.members.iter().filter(move |(_, member)| member.part == part);
            members.map(|(machine, _)| machine).filter(is_asked).copied()
        };
        Ok(of(MemberPart::Voter).chain(of(MemberPart::Leader)).collect())
    }

    /// Member that is to be defragmented by itself, if there is one: half of its backend is free, and it `may` be its turn.
    pub fn due(&self, may: impl Fn(&MachineId) -> bool) -> Option<MachineId> {
        let order = self.order(None).ok()?;
        let is_due = |machine: &MachineId| self.members[machine].backend.is_some_and(|it| it.is_half_free());
        order.into_iter().find(|machine| is_due(machine) && may(machine))
    }

    /// Whether the backends of all members have room again.
    #[must_use]
    pub fn have_room(&self) -> bool {
        self.members.values().all(|member| member.backend.is_some_and(|backend| backend.has_room()))
    }
}

/// Turn of whoever defragments a member on this machine: one at a time. A turn that is not given back, as nobody waits for its end any
/// more, ends after [`LONGEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DefragmentTurn(Option<Instant>);

impl DefragmentTurn {
    /// Takes the turn; whether it was free.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_free = self.0.is_none_or(|ends| now >= ends);
        if is_free {
            self.0 = Some(now + LONGEST);
        }
        is_free
    }

    /// Gives the turn back: the member has answered.
    pub const fn give_back(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> MachineId {
        MachineId([n; 16])
    }

    fn name(n: u8) -> NodeName {
        NodeName::stored(&format!("m{n}")).expect("a name")
    }

    fn backend(size: u64, in_use: u64) -> Backend {
        Backend { size: size << 20, in_use: in_use << 20, quota: 2 << 30 }
    }

    /// Members 1 to 3 vote and the first leads, each with 100 MiB of which `in_use` are in use.
    fn three(in_use: [u64; 3]) -> Backends {
        let member = |(n, in_use)| {
            let part = if n == 1 { MemberPart::Leader } else { MemberPart::Voter };
            (id(n), MemberBackend { name: name(n), part, backend: Some(backend(100, in_use)) })
        };
        Backends { members: (1..).zip(in_use).map(member).collect(), alarms: BTreeSet::new() }
    }

    /// Proves: Q4
    #[test]
    fn a_backend_is_due_when_half_of_over_64_mib_is_free() {
        for (size, in_use, is_due) in
            [(64, 1, false), (65, 32, true), (65, 33, false), (100, 50, true), (100, 51, false), (100, 101, false)]
        {
            assert_eq!(backend(size, in_use).is_half_free(), is_due, "{in_use} of {size} MiB");
        }
        assert!(backend(1638, 1).has_room() && !backend(1639, 1).has_room(), "four fifths of 2 GiB");
    }

    /// Proves: Q4
    #[test]
    fn the_leader_is_defragmented_last() {
        let all = three([10, 10, 10]);
        assert_eq!(all.order(None), Ok(vec![id(2), id(3), id(1)]));
        assert_eq!(all.order(Some(&[id(1), id(3)].into())), Ok(vec![id(3), id(1)]));
        assert_eq!(all.due(|_| true), Some(id(2)));
        assert_eq!(all.due(|machine| *machine != id(2)), Some(id(3)));
        assert_eq!(three([10, 90, 90]).due(|_| true), Some(id(1)), "the others are not due");
        assert_eq!(three([90, 90, 90]).due(|_| true), None);
    }

    /// Proves: Q4
    #[test]
    fn nobody_is_defragmented_while_a_member_is_not_healthy() {
        let silent = |n: u8| {
            let mut all = three([10, 10, 10]);
            all.members.get_mut(&id(n)).expect("a member").backend = None;
            all
        };
        for n in 1..=3 {
            assert_eq!(silent(n).order(Some(&[id(2)].into())), Err(DefragmentRefusal::Silent(name(n))));
            assert_eq!(silent(n).due(|_| true), None);
        }
        let mut leaderless = three([10, 10, 10]);
        leaderless.members.get_mut(&id(1)).expect("a member").part = MemberPart::Voter;
        assert_eq!(leaderless.order(None), Err(DefragmentRefusal::NoLeader));
        let corrupt = Backends { alarms: [EtcdAlarm::Corrupt].into(), ..three([10, 10, 10]) };
        assert_eq!((corrupt.order(None), corrupt.due(|_| true)), (Err(DefragmentRefusal::Corrupt), None));
        let full = Backends { alarms: [EtcdAlarm::NoSpace].into(), ..three([10, 10, 10]) };
        assert_eq!(full.due(|_| true), Some(id(2)), "that is what it helps against");
    }

    /// Proves: Q4
    #[test]
    fn learners_and_strangers_are_not_defragmented() {
        let mut all = three([10, 10, 10]);
        all.members.get_mut(&id(3)).expect("a member").part = MemberPart::Learner;
        assert_eq!(all.order(None), Ok(vec![id(2), id(1)]));
        assert_eq!(all.order(Some(&[id(3)].into())), Err(DefragmentRefusal::Learner(name(3))));
        assert_eq!(all.order(Some(&[id(9)].into())), Err(DefragmentRefusal::NoMember(id(9))));
        assert!(all.have_room());
        all.members.get_mut(&id(3)).expect("a member").backend = Some(backend(2000, 1));
        assert!(!all.have_room(), "it would raise the alarm again");
    }

    /// Proves: Q4
    #[test]
    fn a_turn_is_free_once_given_back_or_over() {
        let (mut turn, now) = (DefragmentTurn::default(), testkit::origin());
        assert!(turn.take(now) && !turn.take(now));
        assert!(!turn.take(now + LONGEST - Duration::from_secs(1)));
        assert!(turn.take(now + LONGEST), "nobody waits for it any more");
        turn.give_back();
        assert!(turn.take(now + LONGEST));
    }
}
