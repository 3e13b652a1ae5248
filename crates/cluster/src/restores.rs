//! A restore on a coordinator, by what it has seen of the records: what is due there, and for whom it waits. Decides nothing that the
//! records do not decide again.
//!
//! ```text
//!   ordered ─► Revoke ─► all control planes that answer have stopped ─► Replace, until nothing differs ─► Grant ─► End
//! ```
//! Each step may be taken twice, and after a cut all of them are: what was done is found done. The apiserver's user has its role again
//! before the record goes, since nobody would know later that it lacks one.

use std::collections::BTreeSet;

use model::{KubernetesRole, MachineId, NodeName};

use crate::members::Voter;
use crate::record::{MachineRecord, RestoreRecord};
use crate::state::State;

/// Step of a restore on the machine that has the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreStep {
    /// Take from the apiserver's user its role in etcd: no apiserver reads or writes any more, wherever it runs.
    Revoke,
    /// Make Kubernetes' objects in etcd those of the snapshot, while the record is of this revision.
    Replace {
        /// Revision that wrote the record last.
        revision: u64,
    },
    /// Give the user its role back.
    Grant,
    /// Delete the record: control planes run again.
    End,
}

/// How far a restore has come on the machine that has the snapshot, as it did itself in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestoreProgress {
    /// Ordered; no step is known to be taken.
    #[default]
    Begun,
    /// The apiserver's user has no role.
    Revoked,
    /// Objects are those of the snapshot.
    Replaced,
    /// The user has its role again.
    Granted,
}

impl RestoreProgress {
    /// Progress once a step was taken; `differed` says of a replacement whether it changed anything: then it is looked through again.
    #[must_use]
    pub const fn after(step: RestoreStep, differed: bool) -> Self {
        match (step, differed) {
            (RestoreStep::Revoke, _) | (RestoreStep::Replace { .. }, true) => Self::Revoked,
            (RestoreStep::Replace { .. }, false) => Self::Replaced,
            (RestoreStep::Grant | RestoreStep::End, _) => Self::Granted,
        }
    }
}

/// Restore that machine `itself` carries out.
#[must_use]
pub fn own<'a>(state: &'a State, itself: &MachineId) -> Option<&'a RestoreRecord> {
    state.restore().filter(|restore| restore.machine == *itself)
}

/// Whether a control plane of machine `itself` has to be stopped, and its end to be said: [`crate::Request::AcknowledgeRestore`].
#[must_use]
pub fn is_asked_to_stop(state: &State, itself: &MachineId) -> bool {
    state.restore().is_some_and(|restore| !restore.stopped.contains(itself)) && runs_control_plane(state, itself)
}

/// Control planes that a restore waits for. One whose etcd does not answer is none of them: its apiserver is refused by etcd as soon as it
/// is reached again.
#[must_use]
pub fn waits_for(state: &State) -> BTreeSet<MachineId> {
    let Some(restore) = state.restore() else { return BTreeSet::new() };
    let live = state.members().voters.iter().filter(|(_, voter)| **voter == Voter::Live).map(|(id, _)| *id);
    live.filter(|id| runs_control_plane(state, id) && !restore.stopped.contains(id)).collect()
}

/// Names of those control planes.
#[must_use]
pub fn waits_by_name(state: &State) -> Vec<NodeName> {
    waits_for(state).iter().filter_map(|id| state.machine(id).map(|machine| machine.name.clone())).collect()
}

/// Why the control plane of machine `itself` stands still, for people; none where it runs, or there is none.
#[must_use]
pub fn standstill(state: &State, itself: &MachineId) -> Option<String> {
    let restore = state.restore().filter(|_| runs_control_plane(state, itself))?;
    if !state.machine(&restore.machine).is_some_and(MachineRecord::coordinates) {
        // A recovery made a node of it.
        return Some(
            "the machine that was restoring Kubernetes' objects coordinates no more; restore the snapshot at another: cairnctl cluster \
             restore"
                .to_owned(),
        );
    }
    let names: Vec<_> = waits_by_name(state).iter().map(ToString::to_string).collect();
    let still = "a snapshot of Kubernetes' objects is being restored";
    Some(match names.is_empty() {
        true => still.to_owned(),
        false => format!("{still}, once the control planes of {} have stopped", names.join(", ")),
    })
}

/// The next step on machine `itself`, after so much progress; none where it has to wait, or has nothing to restore.
#[must_use]
pub fn next(state: &State, itself: &MachineId, progress: RestoreProgress) -> Option<RestoreStep> {
    own(state, itself)?;
    match progress {
        RestoreProgress::Begun => Some(RestoreStep::Revoke),
        // Before the first look at the members nobody is known to answer.
        RestoreProgress::Revoked if state.members().voters.is_empty() || !waits_for(state).is_empty() => None,
        RestoreProgress::Revoked => Some(RestoreStep::Replace { revision: state.restore_revision()? }),
        RestoreProgress::Replaced => Some(RestoreStep::Grant),
        RestoreProgress::Granted => Some(RestoreStep::End),
    }
}

fn runs_control_plane(state: &State, id: &MachineId) -> bool {
    let runs = |kubernetes: &BTreeSet<KubernetesRole>| kubernetes.contains(&KubernetesRole::ControlPlane);
    state.machine(id).is_some_and(|machine| machine.belongs() && runs(&machine.kubernetes))
}
