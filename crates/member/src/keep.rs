//! Files that a member keeps: desired state before it is obeyed, the electorate as its own records say it, and peers after they are
//! obeyed, at most once in ten seconds, since somebody may be moving all the time and each write is a sync of every machine's disk.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::desired::Desired;
use model::MachineId;

use crate::effect::{Effect, KeptFile};
use crate::role::AGAIN;

/// Least time between two writes of the peers.
const BETWEEN: Duration = Duration::from_secs(10);

/// Files that are to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Keeping {
    desired: Option<Box<Desired>>,
    /// Whether a write of desired state has not ended well: the file may hold what nobody obeys.
    unsure: bool,
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
    pub(crate) const fn kept(&mut self) {
        self.unsure = false;
    }

    /// Whether the file may hold other desired state than what is obeyed.
    pub(crate) const fn is_unsure(&self) -> bool {
        self.unsure
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
                self.unsure = true;
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
