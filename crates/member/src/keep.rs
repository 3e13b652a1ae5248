//! Files that a member keeps: desired state before it is obeyed, the electorate as its own records say it, and peers after they are
//! obeyed, at most once in ten seconds, since somebody may be moving all the time and each write is a sync of every machine's disk.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::desired::Desired;
use model::{ClusterRole, KubernetesRole, MachineId};

use crate::effect::{Effect, KeptFile};
use crate::role::AGAIN;

/// Least time between two writes of the peers.
const BETWEEN: Duration = Duration::from_secs(10);

/// Sum of all desired states that were written since such a write ended well: the file may hold any of them, or what is obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unsure {
    coordinates: bool,
    kubernetes: BTreeSet<KubernetesRole>,
}

/// Files that are to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Keeping {
    desired: Option<Box<Desired>>,
    /// Some as long as a write of desired state has not ended well: the file may hold what nobody obeys.
    unsure: Option<Unsure>,
    electorate: Option<BTreeSet<MachineId>>,
    again: Option<Instant>,
    peers: bool,
    next_peers: Option<Instant>,
}

impl Keeping {
    /// Has this be kept, in place of what was to be.
    pub(crate) fn desired(&mut self, desired: Option<Box<Desired>>) {
        self.desired = desired;
    }

    /// A write of desired state has ended well.
    pub(crate) fn kept(&mut self) {
        self.unsure = None;
    }

    /// Whether the file may hold other desired state than what is obeyed.
    pub(crate) const fn is_unsure(&self) -> bool {
        self.unsure.is_some()
    }

    /// Whether a coordinator by what is obeyed is one whatever the file holds.
    pub(crate) fn may_coordinate(&self) -> bool {
        self.unsure.as_ref().is_none_or(|unsure| unsure.coordinates)
    }

    /// Whether roles by what is obeyed are the machine's whatever the file holds.
    pub(crate) fn may_run(&self, roles: &BTreeSet<KubernetesRole>) -> bool {
        self.unsure.as_ref().is_none_or(|unsure| roles.is_subset(&unsure.kubernetes))
    }

    /// Takes down what is about to be written.
    fn writes(&mut self, desired: &Desired) {
        let coordinates = desired.assignment.role() == ClusterRole::Coordinator;
        let kubernetes = desired.assignment.kubernetes();
        self.unsure = Some(match self.unsure.take() {
            None => Unsure { coordinates, kubernetes: kubernetes.clone() },
            Some(before) => {
                Unsure { coordinates: coordinates && before.coordinates, kubernetes: &before.kubernetes & kubernetes }
            }
        });
    }

    /// Has the electorate be kept.
    pub(crate) fn electorate(&mut self, electorate: BTreeSet<MachineId>) {
        self.electorate = Some(electorate);
    }

    /// The mesh knows other peers than the file.
    pub(crate) const fn peers(&mut self) {
        self.peers = true;
    }

    /// Next write that is due, of those that are not under way: `keeps` is of desired state or electorate.
    pub(crate) fn next(&mut self, keeps: bool, keeps_peers: bool, now: Instant, out: &mut Vec<Effect>) {
        if !keeps && self.again.is_none_or(|again| now >= again) {
            // The electorate first: whoever is a node by desired state needs none.
            if let Some(electorate) = self.electorate.take() {
                out.push(Effect::Keep(KeptFile::Electorate(electorate)));
            } else if let Some(desired) = self.desired.take() {
                self.writes(&desired);
                out.push(Effect::Keep(KeptFile::Desired(desired)));
            }
        }
        if !keeps_peers && self.peers && self.next_peers.is_none_or(|next| now >= next) {
            self.peers = false;
            self.next_peers = Some(now + BETWEEN);
            out.push(Effect::Keep(KeptFile::Peers));
        }
    }

    /// A write of `file` failed: it is tried again, unless another one is wanted by now.
    pub(crate) fn failed(&mut self, file: &KeptFile, now: Instant) {
        match file {
            KeptFile::Desired(desired) => {
                self.desired.get_or_insert_with(|| desired.clone());
                self.again = Some(now + AGAIN);
            }
            KeptFile::Electorate(electorate) => {
                self.electorate.get_or_insert_with(|| electorate.clone());
                self.again = Some(now + AGAIN);
            }
            KeptFile::Peers => self.peers = true,
        }
    }

    /// Next deadline, and why. None for a write that waits for the end of the one before.
    pub(crate) fn due(&self, keeps: bool, keeps_peers: bool) -> Option<(Instant, &'static str)> {
        let again = self.again.filter(|_| !keeps && (self.desired.is_some() || self.electorate.is_some()));
        let peers = self.next_peers.filter(|_| !keeps_peers && self.peers);
        let due = |at: Option<Instant>, why| at.map(|at| (at, why));
        [due(again, "a file is written again"), due(peers, "peers are written")].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use model::ClusterRole;

    use super::*;
    use crate::fixture::{desired, ids, works};

    const AFTER: Duration = Duration::from_millis(1);

    fn wanted(revision: u64) -> Box<Desired> {
        Box::new(desired(revision, ClusterRole::Node, &[2, 3]))
    }

    /// Writes that are due while none, or one, is under way.
    fn next(keeping: &mut Keeping, keeps: bool, keeps_peers: bool, now: Instant) -> Vec<Effect> {
        let mut out = Vec::new();
        keeping.next(keeps, keeps_peers, now, &mut out);
        out
    }

    fn of_desired(revision: u64) -> Effect {
        Effect::Keep(KeptFile::Desired(wanted(revision)))
    }

    /// Proves: S14
    #[test]
    fn the_electorate_is_kept_before_desired_state() {
        let (mut keeping, now) = (Keeping::default(), testkit::origin());
        assert_eq!(next(&mut keeping, false, false, now), []);
        keeping.desired(Some(wanted(1)));
        keeping.electorate(ids(&[2, 3]));
        assert_eq!(next(&mut keeping, true, false, now), [], "one write at a time");
        assert!(!keeping.is_unsure());
        assert_eq!(next(&mut keeping, false, false, now), [Effect::Keep(KeptFile::Electorate(ids(&[2, 3])))]);
        assert_eq!(next(&mut keeping, false, false, now), [of_desired(1)]);
        assert!(keeping.is_unsure(), "until it has ended well");
        keeping.kept();
        assert!(!keeping.is_unsure());
        assert_eq!((next(&mut keeping, false, false, now), keeping.due(false, false)), (vec![], None));
    }

    /// Proves: S14
    #[test]
    fn a_write_that_failed_is_made_again_unless_another_is_wanted() {
        let now = testkit::origin();
        let again = now + AGAIN;
        for (file, newer) in [
            (KeptFile::Desired(wanted(1)), of_desired(2)),
            (KeptFile::Electorate(ids(&[2])), Effect::Keep(KeptFile::Electorate(ids(&[3])))),
        ] {
            let mut keeping = Keeping::default();
            keeping.failed(&file, now);
            let mut changed = keeping.clone();
            assert_eq!(keeping.due(false, false).map(|(due, _)| due), Some(again));
            assert_eq!(keeping.due(true, false), None, "its end is waited for");
            assert_eq!(next(&mut keeping, false, false, again - AFTER), []);
            assert_eq!(next(&mut keeping, false, false, again), [Effect::Keep(file.clone())]);
            changed.desired(Some(wanted(2)));
            changed.electorate(ids(&[3]));
            changed.failed(&file, now);
            let all = [next(&mut changed, false, false, again), next(&mut changed, false, false, again)].concat();
            assert!(all.contains(&newer) && !all.contains(&Effect::Keep(file)), "{all:?}");
        }
    }

    /// Proves: S14
    #[test]
    fn a_file_that_is_unsure_says_what_all_say_that_were_written() {
        let (mut keeping, mut now) = (Keeping::default(), testkit::origin());
        let coordinator = Box::new(works(desired(1, ClusterRole::Coordinator, &[2, 3])));
        let worker = Box::new(works(desired(2, ClusterRole::Node, &[2, 3])));
        let roles = |of: &Desired| of.assignment.kubernetes().clone();
        let [both, one, none] = [roles(&coordinator), roles(&worker), BTreeSet::new()];
        assert!(one.len() == 1 && both.len() == 2);
        let mut may = |wanted: Box<Desired>| {
            keeping.desired(Some(wanted.clone()));
            let written = next(&mut keeping, false, false, now);
            assert_eq!(written, [Effect::Keep(KeptFile::Desired(wanted.clone()))]);
            keeping.failed(&KeptFile::Desired(wanted), now);
            now += AGAIN;
            (keeping.may_coordinate(), [&both, &one, &none].map(|roles| keeping.may_run(roles)))
        };
        assert_eq!(may(coordinator.clone()), (true, [true, true, true]));
        assert_eq!(may(worker), (false, [false, true, true]));
        assert_eq!(may(wanted(3)), (false, [false, false, true]));
        assert_eq!(may(coordinator), (false, [false, false, true]), "the file may hold the one before");
        keeping.kept();
        assert!(keeping.may_coordinate() && keeping.may_run(&both));
    }

    /// Proves: Q1
    #[test]
    fn peers_are_written_once_in_ten_seconds() {
        let (mut keeping, now) = (Keeping::default(), testkit::origin());
        let peers = [Effect::Keep(KeptFile::Peers)];
        keeping.peers();
        assert_eq!(keeping.due(false, false), None, "they are due at once");
        assert_eq!(next(&mut keeping, false, true, now), [], "one write at a time");
        assert_eq!(next(&mut keeping, true, false, now), peers);
        assert_eq!(next(&mut keeping, false, false, now + BETWEEN), [], "nothing is new");
        keeping.peers();
        assert_eq!(keeping.due(false, false).map(|(due, _)| due), Some(now + BETWEEN));
        assert_eq!(keeping.due(false, true), None);
        assert_eq!(next(&mut keeping, false, false, now + BETWEEN - AFTER), []);
        assert_eq!(next(&mut keeping, false, false, now + BETWEEN), peers);
        keeping.failed(&KeptFile::Peers, now + BETWEEN);
        assert_eq!(next(&mut keeping, false, false, now + 2 * BETWEEN), peers);
    }

    #[test]
    fn the_earlier_of_two_deadlines_is_told() {
        let (mut keeping, now) = (Keeping::default(), testkit::origin());
        keeping.peers();
        assert_eq!(next(&mut keeping, false, false, now), [Effect::Keep(KeptFile::Peers)]);
        keeping.peers();
        keeping.failed(&KeptFile::Desired(wanted(1)), now);
        assert_eq!(keeping.due(false, false), Some((now + AGAIN, "a file is written again")));
        assert_eq!(keeping.due(true, false), Some((now + BETWEEN, "peers are written")));
    }
}
