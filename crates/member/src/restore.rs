//! Restore of Kubernetes' objects, on the coordinator that has the snapshot: the step that is due, as far as this machine has come. What
//! is to be done says `cluster::restores`.

use cluster::restores::{self, RestoreProgress, RestoreStep};
use cluster::state::State;
use model::MachineId;

use crate::effect::{Effect, OwnRequest};

/// Restore on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RestoreDuty {
    /// Hash of the snapshot that is restored.
    of: Option<[u8; 32]>,
    progress: RestoreProgress,
    /// Whether the records have heard of its end, which they show a moment later.
    has_ended: bool,
    /// Revision of the record for which they were last asked to note that no control plane runs here.
    asked: Option<u64>,
    /// The one for which they have heard it, which they show a moment later. The same snapshot may be restored again.
    stopped_for: Option<u64>,
    /// Whether no snapshot of an earlier restore lies here any more.
    is_tidy: bool,
}

impl RestoreDuty {
    /// Effect that is due, as long as none is under way.
    pub(crate) fn next(&mut self, state: &State, own: &MachineId) -> Option<Effect> {
        let hash = restores::own(state, own).map(|restore| restore.hash);
        if self.of != hash {
            *self = Self { of: hash, asked: self.asked, stopped_for: self.stopped_for, ..Self::default() };
        }
        let Some(hash) = hash else { return (!self.is_tidy).then_some(Effect::DropSnapshot) };
        match restores::next(state, own, self.progress)? {
            step @ (RestoreStep::Revoke | RestoreStep::Replace { .. } | RestoreStep::Grant) => {
                Some(Effect::Restore { hash, step })
            }
            RestoreStep::End => None, // the records decide it
        }
    }

    /// Request to the records that is due; `has_stopped` says that nothing of a control plane runs here, or is to.
    pub(crate) fn request(&mut self, state: &State, own: &MachineId, has_stopped: bool) -> Option<OwnRequest> {
        let (restore, revision) = (state.restore()?, state.restore_revision());
        if has_stopped && self.stopped_for != revision && restores::is_asked_to_stop(state, own) {
            self.asked = revision;
            return Some(OwnRequest::AcknowledgeRestore(restore.machine, restore.hash));
        }
        let is_own = restore.machine == *own && self.of == Some(restore.hash);
        let ends = is_own && !self.has_ended && restores::next(state, own, self.progress) == Some(RestoreStep::End);
        ends.then_some(OwnRequest::EndRestore(restore.hash))
    }

    /// The records have heard that no control plane runs here.
    pub(crate) const fn said(&mut self) {
        self.stopped_for = self.asked;
    }

    /// The records have heard that the restore of this snapshot is over.
    pub(crate) fn ended(&mut self, hash: &[u8; 32]) {
        self.has_ended |= self.of.as_ref() == Some(hash);
    }

    /// Takes a step that was taken; `differed` says of a replacement whether it changed anything.
    pub(crate) fn done(&mut self, hash: &[u8; 32], step: RestoreStep, differed: bool) {
        if self.of.as_ref() == Some(hash) {
            self.progress = RestoreProgress::after(step, differed);
        }
    }

    /// No snapshot of an earlier restore lies here any more.
    pub(crate) const fn tidied(&mut self) {
        self.is_tidy = true;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cluster::View;
    use cluster::key::Key;
    use cluster::record::{ColdStartEpochs, Generations, RestoreRecord};
    use cluster::state::{Change, KeyValue};
    use model::ClusterRole::Coordinator;
    use model::KubernetesRole;

    use super::*;
    use crate::fixture::{World, desired, id, ids, look, view, works};
    use crate::{EffectKind, Event, OwnRecords, Part};

    const HASH: [u8; 32] = [7; 32];

    /// Records of coordinators 1 to 3, of which these run control planes, and a restore by a machine for which some have stopped.
    fn records(revision: u64, control_planes: &[u8], restore: Option<(u8, &[u8])>) -> View {
        let mut view = view(revision - 1, &[1, 2, 3], &ColdStartEpochs::default(), Generations::One(1));
        let put = |key: Key, value| Change::Put(KeyValue { key: key.bytes(), value, mod_revision: revision });
        let machine = |n: &u8| {
            let mut machine = view.state().machine(&id(*n)).expect("it is there").clone();
            machine.kubernetes.insert(KubernetesRole::ControlPlane);
            put(Key::Machine(machine.id()), machine.encode())
        };
        let mut changes: Vec<_> = control_planes.iter().map(machine).collect();
        changes.extend(restore.map(|(n, stopped)| {
            put(Key::Restore, RestoreRecord { machine: id(n), hash: HASH, stopped: ids(stopped) }.encode())
        }));
        view.take(changes, revision).expect("our own");
        let members = view.state().members().clone();
        view.see(members, look(revision));
        view
    }

    fn decided(world: &mut World) -> Vec<OwnRequest> {
        let said = |effect| if let Effect::Decide(request) = effect { Some(request) } else { None };
        let all = world.past().into_iter().filter_map(said);
        all.filter(|it| matches!(it, OwnRequest::AcknowledgeRestore(..) | OwnRequest::EndRestore(_))).collect()
    }

    /// Steps that were taken, without the revisions.
    fn steps(world: &mut World) -> Vec<&'static str> {
        let name = |effect| {
            if let Effect::Restore { step, hash: HASH } = effect {
                return match step {
                    RestoreStep::Revoke => Some("revoke"),
                    RestoreStep::Replace { .. } => Some("replace"),
                    RestoreStep::Grant => Some("grant"),
                    RestoreStep::End => None,
                };
            }
            let ends = Effect::Decide(OwnRequest::EndRestore(HASH));
            [(ends, "end"), (Effect::DropSnapshot, "drop")]
                .into_iter()
                .find(|(it, _)| *it == effect)
                .map(|(_, name)| name)
        };
        world.past().into_iter().filter_map(name).collect()
    }

    /// Proves: Q4
    #[test]
    fn a_control_plane_is_said_to_have_stopped_once_it_has() {
        let mut world = World::new(works(desired(10, Coordinator, &[1, 2, 3])));
        (world.keys, world.shares, world.begun, world.electorate) = (true, true, true, Some(ids(&[2, 3])));
        world.start().settle().past();
        assert!(world.kubernetes.as_ref().is_some_and(crate::kubernetes::runs_control_plane));
        world.sees(records(11, &[1, 2], Some((2, &[])))).settle().pass(5);
        assert_eq!(decided(&mut world), [], "it runs on, until the word is kept that it is to stop");
        let stops = Some(Box::new(desired(11, Coordinator, &[1, 2, 3])));
        world.handle(Event::Records(OwnRecords::Kept { desired: stops, peers: None }));
        let at = world.queue.iter().position(|effect| effect.kind() == Some(EffectKind::Keep)).expect("it is kept");
        let kept = world.queue.remove(at);
        world.perform(kept);
        world.handle(Event::Done(EffectKind::Keep, Ok(crate::EffectOutcome::Whole)));
        world.fails(EffectKind::Kubernetes).settle();
        assert_eq!(decided(&mut world), [], "something of it may still run");
        world.pass(2);
        assert_eq!(decided(&mut world).first(), Some(&OwnRequest::AcknowledgeRestore(id(2), HASH)));
        world.sees(records(12, &[1, 2], Some((2, &[1])))).settle().pass(5);
        assert_eq!(decided(&mut world), [], "once");
        world.sees(records(13, &[2], Some((2, &[])))).settle().pass(5);
        assert_eq!(decided(&mut world), [], "who has no control plane says nothing");
    }

    /// Proves: Q4 S7
    #[test]
    fn why_a_control_plane_stands_still_is_told() {
        let mut world = World::new(works(desired(10, Coordinator, &[1, 2, 3])));
        (world.keys, world.shares, world.begun, world.electorate) = (true, true, true, Some(ids(&[2, 3])));
        world.start().settle().past();
        let told = |world: &mut World| {
            let all = world.past().into_iter();
            let still =
                all.filter_map(|effect| if let Effect::Report(Part::Restore, why) = effect { Some(why) } else { None });
            still.collect::<Vec<_>>()
        };
        world.sees(records(11, &[1], Some((2, &[])))).settle();
        assert!(matches!(&told(&mut world)[..], [Some(_)]));
        world.sees(records(12, &[1], None)).settle();
        assert_eq!(told(&mut world), [None]);
    }

    /// Proves: Q4
    #[test]
    fn a_restore_goes_step_by_step_and_waits_for_others() {
        let mut world = World::coordinator();
        world.start().settle().past();
        world.sees(records(11, &[], None)).settle().pass(5);
        assert_eq!(steps(&mut world), ["drop"], "what an earlier one has left");
        world.sees(records(12, &[2], Some((1, &[])))).fails(EffectKind::Restore).settle();
        assert_eq!(steps(&mut world), [""; 0]);
        world.pass(5);
        assert_eq!(steps(&mut world), ["revoke"], "another one runs a control plane");
        world.differs = true;
        world.sees(records(13, &[2], Some((1, &[2])))).settle();
        assert_eq!(steps(&mut world)[..4], ["replace", "replace", "grant", "end"], "until nothing differs");
        world.sees(records(14, &[2], None)).settle().pass(5);
        assert_eq!(steps(&mut world), ["drop"]);
        world.sees(records(15, &[2], Some((3, &[])))).settle().pass(5);
        assert_eq!(steps(&mut world), [""; 0], "another machine has that snapshot");
    }

    /// Proves: Q4
    #[test]
    fn the_same_snapshot_is_restored_a_second_time() {
        let (mut duty, own) = (RestoreDuty::default(), id(1));
        let stopped = Some(OwnRequest::AcknowledgeRestore(own, HASH));
        let first = records(11, &[1], Some((1, &[])));
        assert_eq!(duty.request(first.state(), &own, true), stopped);
        assert_eq!(duty.request(first.state(), &own, true), stopped, "until it is heard");
        duty.said();
        assert_eq!(duty.request(first.state(), &own, true), None, "the records show it in a moment");
        let second = records(14, &[1], Some((1, &[])));
        assert_eq!(duty.request(second.state(), &own, true), stopped);
    }

    /// Proves: Q4
    #[test]
    fn a_later_order_begins_from_the_first_step() {
        let (mut duty, own) = (RestoreDuty::default(), id(1));
        let first = records(11, &[], Some((1, &[])));
        let revoke = Effect::Restore { hash: HASH, step: RestoreStep::Revoke };
        assert_eq!(duty.next(first.state(), &own), Some(revoke.clone()));
        duty.done(&[8; 32], RestoreStep::Grant, false);
        assert_eq!(duty.next(first.state(), &own), Some(revoke), "the end of a step of another one");
        duty.done(&HASH, RestoreStep::Grant, false);
        let ends = Some(OwnRequest::EndRestore(HASH));
        assert_eq!((duty.next(first.state(), &own), duty.request(first.state(), &own, true)), (None, ends));
        let mut second = first;
        let value = RestoreRecord { machine: own, hash: [8; 32], stopped: BTreeSet::new() }.encode();
        second
            .take([Change::Put(KeyValue { key: Key::Restore.bytes(), value, mod_revision: 12 })], 12)
            .expect("our own");
        assert_eq!(duty.request(second.state(), &own, true), None);
        let anew = Effect::Restore { hash: [8; 32], step: RestoreStep::Revoke };
        assert_eq!(duty.next(second.state(), &own), Some(anew));
    }
}
