//! The cold-start key on a coordinator, by what it has seen of the records: which of its shares is missing, and when another
//! epoch is to begin. Decides nothing that the records do not decide again.
//!
//! ```text
//!   growing:   an epoch of voters and those that vote next stands ─► they vote
//!   shrinking: who leaves votes no more ─► an epoch without it stands ─► it may erase its share
//! ```
//! So all voters hold shares of the epoch that stands, at each moment: whoever of them is switched on again is opened by it.

use std::collections::BTreeSet;

use keys::cold_start::Epoch;
use model::{ColdStart, DiskUuid, Level, MachineId};

use crate::members::MemberStep;
use crate::record::{ColdStartEpochs, Generations, Policy};
use crate::state::State;

/// Task of a coordinator for the cold-start key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Others are to hold shares than those of the newest epoch: [`Request::BeginEpoch`](crate::Request).
    Begin,
    /// This machine writes its share, and then says so: [`Request::AcknowledgeEpoch`](crate::Request).
    Hold(ShareOrder),
}

/// A share that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareOrder {
    /// Epoch of the share.
    pub epoch: Epoch,
    /// The number of the epoch that stands, whose share is not written over.
    pub stands: Option<u32>,
    /// Disk that the cluster key beside the share opens.
    pub disk: DiskUuid,
    /// Which of that disk's keys: while they rotate, both.
    pub generations: Generations,
}

/// The share of the epoch that stands, which machine `itself` is to have already; none where it holds none. Nor where it has said that
/// it holds one of the next epoch: the two have a place, and nothing else.
#[must_use]
pub fn stands(state: &State, itself: &MachineId) -> Option<ShareOrder> {
    if state.cold_start().next.as_ref().is_some_and(|next| next.acknowledged.contains(itself)) {
        return None;
    }
    let epoch = state.cold_start().current.as_ref().filter(|epoch| epoch.holders().contains(itself))?;
    holding(state, itself, epoch)
}

/// Which cluster key the next start of machine `itself` takes, by its generation: the newest that it is given, once the share on its
/// ESP carries it. `carried` is what that was written for last. None while it is still to be written, and while the machine is to hold
/// shares of two epochs: the older one is not written over.
#[must_use]
pub fn takes(state: &State, itself: &MachineId, carried: Option<&ShareOrder>) -> Option<u32> {
    let newest = state.machine(itself)?.generations.newest();
    let epochs = state.cold_start();
    let holds_next = epochs.next.as_ref().is_some_and(|next| next.epoch.holders().contains(itself));
    let carries = stands(state, itself).is_none_or(|holding| carried == Some(&holding));
    (carries && !holds_next).then_some(newest)
}

fn holding(state: &State, itself: &MachineId, epoch: &Epoch) -> Option<ShareOrder> {
    let machine = state.machine(itself)?;
    let stands = state.cold_start().current.as_ref().map(Epoch::number);
    Some(ShareOrder { epoch: epoch.clone(), stands, disk: machine.disk, generations: machine.generations })
}

/// Whether there are shares: none under policy `manual`, and nobody needs any at level insecure.
fn shared(state: &State) -> bool {
    let shares = |policy: &Policy| policy.cold_start != ColdStart::Manual && policy.level != Level::Insecure;
    state.cluster().is_some_and(|cluster| shares(&cluster.policy))
}

/// Machines that are to hold the newest epoch: see [`crate::members::Members::electorate`].
#[must_use]
pub fn electorate(state: &State) -> BTreeSet<MachineId> {
    let nobody = BTreeSet::new();
    let holders = state.cold_start().newest().map_or(&nobody, Epoch::holders);
    state.members().electorate(state.coordinators(), holders)
}

/// The next change of etcd's members towards who is to coordinate: see [`crate::members::Members::next`]. Who comes to vote holds a
/// share of the epoch that stands, and of the next one where that has begun: it may stand at any moment.
#[must_use]
pub fn step(state: &State) -> Option<MemberStep> {
    let epochs = state.cold_start();
    let mut holders = epochs.current.as_ref().map(Epoch::holders).cloned().unwrap_or_default();
    if let Some(next) = &epochs.next {
        holders.retain(|holder| next.epoch.holders().contains(holder));
    }
    state.members().next(state.coordinators(), shared(state).then_some(&holders))
}

/// Whether the voters cannot open their disks without the share of this machine: too few of them are holders of the epoch that
/// stands.
#[must_use]
pub fn is_needed(state: &State, machine: &MachineId) -> bool {
    let Some(epoch) = state.cold_start().current.as_ref().filter(|epoch| epoch.holders().contains(machine)) else {
        return false;
    };
    let others = state.members().voters.keys().filter(|voter| *voter != machine && epoch.holders().contains(*voter));
    others.count() < epoch.threshold()
}

/// Coordinators that have not acknowledged the epoch of those who coordinate now: until each of them has, shares of an epoch before it
/// open disks, and one that was removed may hold one of these.
#[must_use]
pub fn unacknowledged(state: &State) -> BTreeSet<MachineId> {
    if !shared(state) {
        return BTreeSet::new();
    }
    let holders: BTreeSet<_> = electorate(state).intersection(state.coordinators()).copied().collect();
    let ColdStartEpochs { current, next } = state.cold_start();
    match next {
        Some(next) if *next.epoch.holders() == holders => holders.difference(&next.acknowledged).copied().collect(),
        None if current.as_ref().is_some_and(|current| *current.holders() == holders) => BTreeSet::new(),
        Some(_) | None => holders,
    }
}

/// Task that is due on machine `itself`. None under policy `manual`, at level insecure, and while nothing is seen of the
/// voters.
#[must_use]
pub fn due(state: &State, itself: &MachineId) -> Option<Due> {
    let epochs = state.cold_start();
    if !shared(state) {
        return None;
    }
    if let Some(next) = &epochs.next
        && next.epoch.holders().contains(itself)
        && !next.acknowledged.contains(itself)
    {
        return holding(state, itself, &next.epoch).map(Due::Hold);
    }
    let others = |newest: &Epoch| *newest.holders() != electorate(state);
    (state.members().voters.contains_key(itself) && epochs.newest().is_none_or(others)).then_some(Due::Begin)
}
