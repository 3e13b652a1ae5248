//! Restores of Kubernetes' objects: an owner orders one, control planes say that they have stopped, and the machine that has the snapshot
//! ends it. A later order takes the place of an earlier one: whoever had that snapshot may be gone.

use keys::identity::machine_id;
use model::{KubernetesRole, MachineId, MachinePubKey, OwnerPubKey};

use super::Ground;
use crate::denial::Denial;
use crate::key::Key;
use crate::record::RestoreRecord;
use crate::txn::{Grant, Txn};

/// Has the snapshot with this hash be restored by the machine that has it.
pub(super) fn order(ground: &Ground<'_>, by: OwnerPubKey, id: MachineId, hash: [u8; 32]) -> Result<Txn, Denial> {
    if !ground.member(&id)?.coordinates() {
        return Err(Denial::RestoreOnNode);
    }
    let before = ground.state.restore();
    if before.is_some_and(|before| before.machine == id && before.hash == hash) {
        return Ok(ground.unchanged(Grant::Already));
    }
    let stopped = before.map(|before| before.stopped.clone()).unwrap_or_default();
    let mut draft = ground.change("restore ordered", &id, Some(by));
    let record = RestoreRecord { machine: id, hash, stopped }.encode();
    match before {
        Some(_) => draft.put(Key::Restore, record),
        None => draft.create(Key::Restore, record),
    }
    Ok(draft.grants(Grant::Done))
}

/// Takes the word of a machine that nothing of its control plane runs any more.
pub(super) fn acknowledge(ground: &Ground<'_>, machine: &MachinePubKey) -> Result<Txn, Denial> {
    let known = ground.belonging(&machine_id(&machine.0))?;
    let id = known.id();
    let concerned = known.kubernetes.contains(&KubernetesRole::ControlPlane);
    let restore = ground.state.restore().filter(|restore| concerned && !restore.stopped.contains(&id));
    let Some(mut restore) = restore.cloned() else { return Ok(ground.unchanged(Grant::Already)) };
    restore.stopped.insert(id);
    let mut draft = ground.change_by("stopped for a restore", id);
    draft.put(Key::Restore, restore.encode());
    Ok(draft.grants(Grant::Done))
}

/// The objects of the snapshot with this hash are in etcd, and the apiserver's user may write again.
pub(super) fn end(ground: &Ground<'_>, machine: &MachinePubKey, hash: [u8; 32]) -> Result<Txn, Denial> {
    let id = ground.belonging(&machine_id(&machine.0))?.id();
    let Some(restore) = ground.state.restore() else { return Ok(ground.unchanged(Grant::Already)) };
    if restore.machine != id || restore.hash != hash {
        return Err(Denial::OtherRestore);
    }
    let mut draft = ground.change_by("restore ended", id);
    draft.delete(Key::Restore);
    Ok(draft.grants(Grant::Done))
}
