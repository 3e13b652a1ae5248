//! Belief: which word of a coordinator a member takes. A lower version is refused, and one that no cluster comes to while a machine
//! is away; whatever one coordinator said wrongly is ended by two others.

use std::collections::BTreeSet;

use cluster::desired::Desired;
use cluster::state::StateVersion;
use model::MachineId;

/// So many coordinators end what one said; all of them, where there are fewer.
const VOICES: usize = 2;

/// Why a word is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Disbelief {
    /// The coordinator has not seen yet what the machine has.
    #[error("knows less than this machine")]
    Behind,
    /// The version lies further ahead than a cluster comes while a machine is away.
    #[error("says what no cluster comes to while a machine is away")]
    Jump,
    /// The coordinator has looked at etcd's members before the one that told the machine its part.
    #[error("has an older look at etcd's members than this machine was told of")]
    OldLook,
}

/// Desired state that a member goes by, and what it judges others by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Belief {
    desired: Desired,
    /// Version of the peers that it knows.
    peers: Option<StateVersion>,
    /// Coordinators whose word did not go with it, since the last that did.
    doubts: BTreeSet<MachineId>,
    /// Whether the next word is taken whatever its version.
    anew: bool,
}

impl Belief {
    /// Belief at a start: what is kept.
    pub(crate) const fn new(desired: Desired, peers: Option<StateVersion>) -> Self {
        Self { desired, peers, doubts: BTreeSet::new(), anew: false }
    }

    pub(crate) const fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Version that coordinators are asked with; none asks for everything.
    pub(crate) const fn asks_with(&self) -> Option<StateVersion> {
        if self.anew { None } else { self.peers }
    }

    /// Judges a version that `by` tells, one of `others`.
    ///
    /// # Errors
    /// [`Disbelief`]: the word is not taken.
    pub(crate) fn judge(
        &mut self,
        by: MachineId,
        version: Option<StateVersion>,
        others: &BTreeSet<MachineId>,
    ) -> Result<(), Disbelief> {
        if self.anew {
            return Ok(());
        }
        let known = self.desired.at.max(self.peers);
        if version < known {
            self.doubt(by, others);
            return Err(Disbelief::Behind);
        }
        if let (Some(known), Some(version)) = (known, version)
            && version.jumps_from(known)
        {
            self.doubt(by, others);
            return Err(Disbelief::Jump);
        }
        Ok(())
    }

    /// Judges desired state that `by` tells, one of `others`.
    ///
    /// # Errors
    /// [`Disbelief`]: the word is not taken.
    pub(crate) fn judge_desired(
        &mut self,
        by: MachineId,
        desired: &Desired,
        others: &BTreeSet<MachineId>,
    ) -> Result<(), Disbelief> {
        self.judge(by, desired.at, others)?;
        if !self.anew && desired.looked_before(&self.desired) {
            self.doubt(by, others);
            return Err(Disbelief::OldLook);
        }
        Ok(())
    }

    /// Notes that the word of `by` does not go with what the machine knows.
    pub(crate) fn doubt(&mut self, by: MachineId, others: &BTreeSet<MachineId>) {
        self.doubts.insert(by);
        let doubts = self.doubts.intersection(others).count();
        self.anew = doubts > 0 && doubts >= VOICES.min(others.len());
    }

    /// Takes desired state that was judged, or that is the machine's own.
    pub(crate) fn take(&mut self, desired: Desired) {
        if self.anew {
            self.peers = None;
        }
        self.desired = desired;
        self.settle();
    }

    /// Takes the version of peers that were judged; whether it is another one.
    pub(crate) fn take_peers(&mut self, version: StateVersion) -> bool {
        let is_other = self.peers.replace(version) != Some(version);
        self.desired.at = self.desired.at.max(Some(version));
        self.settle();
        is_other
    }

    fn settle(&mut self) {
        self.doubts.clear();
        self.anew = false;
    }
}

/// Whether enough of `electorate` are among `voices`: two of them, or all where there are fewer.
pub(crate) fn is_confirmed(voices: &BTreeSet<MachineId>, electorate: &BTreeSet<MachineId>) -> bool {
    !electorate.is_empty() && voices.intersection(electorate).count() >= VOICES.min(electorate.len())
}

#[cfg(test)]
mod tests {
    use model::ClusterRole;

    use super::*;
    use crate::fixture::{desired, id, ids, version};

    fn belief() -> Belief {
        Belief::new(desired(5, ClusterRole::Node, &[2, 3]), version(5))
    }

    /// Proves: K6
    #[test]
    fn two_doubts_have_everything_told_anew_and_one_has_not() {
        let mut belief = belief();
        assert_eq!(belief.asks_with(), version(5));
        belief.doubt(id(2), &ids(&[2, 3]));
        assert_eq!(belief.asks_with(), version(5), "one coordinator alone");
        belief.doubt(id(3), &ids(&[2, 3]));
        assert_eq!(belief.asks_with(), None);
        assert_eq!(belief.judge(id(2), version(1), &ids(&[2, 3])), Ok(()), "whatever its version");
    }

    /// A word that goes with the belief ends the doubts of before. Proves: K6
    #[test]
    fn doubts_end_with_a_word_that_is_taken() {
        let mut belief = belief();
        belief.doubt(id(2), &ids(&[2, 3]));
        assert!(!belief.take_peers(version(5).expect("a version")), "the same as before");
        belief.doubt(id(3), &ids(&[2, 3]));
        assert_eq!(belief.asks_with(), version(5), "the two did not doubt one belief");
        belief.doubt(id(2), &ids(&[2, 3]));
        belief.take(desired(6, ClusterRole::Node, &[2, 3]));
        assert_eq!(belief.judge(id(2), version(1), &ids(&[2, 3])), Err(Disbelief::Behind));
    }

    /// Proves: K6
    #[test]
    fn who_is_no_coordinator_ends_no_belief() {
        let mut belief = belief();
        belief.doubt(id(2), &ids(&[]));
        belief.doubt(id(9), &ids(&[3]));
        assert_eq!(belief.asks_with(), version(5));
    }
}
