//! Epochs of the cold-start key: a new one begins when others are to hold it ([`crate::epochs`] says who), or when a voter's
//! cluster key is another, and holds as soon as each holder acknowledged it.

use keys::cold_start::{BadEpoch, Epoch};
use keys::identity::machine_id;
use model::{ColdStart, Level, MachinePubKey};

use super::{Draft, Ground};
use crate::denial::Denial;
use crate::epochs::electorate;
use crate::key::Key;
use crate::record::{Cluster, ColdStartEpochs, MachineRecord, NextEpoch};
use crate::txn::{Grant, Txn};

/// The first machine holds the whole key of the first epoch, where it needs one.
pub(super) fn first(cluster: &Cluster, machine: &MachineRecord) -> ColdStartEpochs {
    let current = match (cluster.policy.cold_start, machine.level) {
        (ColdStart::Automatic, Level::Encrypted | Level::Authenticated) => Some(Epoch::first(machine.id())),
        (ColdStart::Automatic, Level::Insecure) | (ColdStart::Manual, _) => None,
    };
    ColdStartEpochs { current, next: None }
}

/// Begins an epoch of those who vote and vote next, where the newest one is of others.
pub(super) fn begin(ground: &Ground<'_>) -> Result<Txn, Denial> {
    if ground.cluster.policy.cold_start == ColdStart::Manual {
        return Err(Denial::ColdStartManual);
    }
    let holders = electorate(ground.state);
    if ground.state.cold_start().newest().is_some_and(|newest| *newest.holders() == holders) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let epoch = following(ground)?;
    let mut draft = ground.change("cold-start epoch begun", &epoch.number(), None);
    put(ground, &mut draft, epoch);
    Ok(draft.grants(Grant::Done))
}

/// Has a change begin one, too: `by` has another cluster key from now on, which its share is to carry.
pub(super) fn begin_with(ground: &Ground<'_>, draft: &mut Draft) -> Result<(), Denial> {
    put(ground, draft, following(ground)?);
    Ok(())
}

fn following(ground: &Ground<'_>) -> Result<Epoch, Denial> {
    let number = ground.state.cold_start().newest().map_or(0, Epoch::number);
    let number = number.checked_add(1).ok_or(Denial::EpochsExhausted)?;
    Epoch::new(number, electorate(ground.state)).map_err(|bad| match bad {
        BadEpoch::Number => Denial::EpochsExhausted,
        BadEpoch::Holders(_) => Denial::NoVoters,
    })
}

fn put(ground: &Ground<'_>, draft: &mut Draft, epoch: Epoch) {
    let next = Some(NextEpoch { epoch, acknowledged: [].into() });
    let current = ground.state.cold_start().current.clone();
    draft.put(Key::ColdStart, ColdStartEpochs { current, next }.encode());
}

/// A holder has its share of epoch `number` on its ESP. The last one has the epoch stand, unless somebody votes meanwhile who holds
/// none of it: another epoch begins then ([`crate::epochs::due`]).
pub(super) fn acknowledge(ground: &Ground<'_>, machine: &MachinePubKey, number: u32) -> Result<Txn, Denial> {
    let known = ground.belonging(&machine_id(&machine.0))?;
    let id = known.id();
    let epochs = ground.state.cold_start();
    let holds = |epoch: &Epoch| epoch.number() == number && epoch.holders().contains(&id);
    if epochs.current.as_ref().is_some_and(holds) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let next = epochs.next.as_ref().filter(|next| holds(&next.epoch)).ok_or(Denial::UnknownEpoch(number))?;
    let mut acknowledged = next.acknowledged.clone();
    if !acknowledged.insert(id) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let after = if acknowledged == *next.epoch.holders() {
        let mut voters = ground.members()?.voters.keys();
        if let Some(voter) = voters.find(|voter| !next.epoch.holders().contains(*voter)) {
            return Err(Denial::VoterWithoutShare { voter: *voter, number });
        }
        ColdStartEpochs { current: Some(next.epoch.clone()), next: None }
    } else {
        ColdStartEpochs { next: Some(NextEpoch { epoch: next.epoch.clone(), acknowledged }), ..epochs.clone() }
    };
    let mut draft = ground.change_by("cold-start epoch acknowledged", id);
    draft.put(Key::ColdStart, after.encode());
    Ok(draft.grants(Grant::Done))
}
