//! Shares of the cold-start key that a coordinator holds: written as its records say, and acknowledged once they lie on the ESP. Before
//! its records are read, the old copy in its own etcd is obeyed, in the share of the next epoch alone: the machine may have opened by
//! the epoch before, which the others hold no shares of. Another coordinator acknowledges that share for it.
//!
//! ```text
//!   Match ─ the share that stands is another, or not there since the start ─► Write ─ durable ─► Match
//!     │   ─ one of the next epoch is due ─► Write ─ durable ─► Match ─ and lies there ─► Acknowledge ─► Match
//!     └─── others are to hold shares ─► Acknowledge: another epoch begins
//! ```

use std::time::Instant;

use cluster::View;
use cluster::epochs::{Due, ShareOrder, due, stands, takes};
use model::MachineId;

use crate::effect::{Effect, EffectOutcome, OwnRequest, ShareReason};
use crate::role::AGAIN;

/// Facts that the next step is decided over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    /// The machine itself.
    pub(crate) own: &'a MachineId,
    /// The machine's own records; none before they were read.
    pub(crate) view: Option<&'a View>,
    /// Whether no write of a share is under way.
    pub(crate) may_write: bool,
    /// Whether the records can decide something now.
    pub(crate) may_decide: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Match,
    Write,
    Acknowledge,
    ReadOwnCopy,
}

/// Shares of a coordinator, from the start of its units on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sharing {
    state: State,
    /// Share of the epoch that stands, as it was written last.
    mended: Option<ShareOrder>,
    /// Share of the next epoch that lies on the ESP.
    next: Option<ShareOrder>,
    /// Cluster key of the next start that was told last.
    takes: Option<Option<u32>>,
    /// Request that was granted last, which is not made again at once: the view may show it a moment later.
    granted: Option<(OwnRequest, Instant)>,
    again: Option<Instant>,
    /// When the own copy is read next.
    read: Instant,
    /// Revision of the own copy that was read last.
    since: Option<u64>,
    /// Share that the own copy says is due.
    by_own_copy: Option<ShareOrder>,
    /// Epoch whose share others are to acknowledge for the machine.
    epoch: Option<u32>,
    due: Option<(Instant, &'static str)>,
}

impl Sharing {
    /// Shares of a coordinator whose units start.
    pub(crate) fn begin(now: Instant) -> Self {
        Self {
            state: State::Match,
            mended: None,
            next: None,
            takes: None,
            granted: None,
            again: None,
            read: now + AGAIN,
            since: None,
            by_own_copy: None,
            epoch: None,
            due: None,
        }
    }

    /// Epoch whose share others are to acknowledge for the machine.
    pub(crate) const fn epoch(&self) -> Option<u32> {
        self.epoch
    }

    /// Next deadline, and why.
    pub(crate) const fn due(&self) -> Option<(Instant, &'static str)> {
        self.due
    }

    /// Waits for nothing: the machine runs nothing of a coordinator.
    pub(crate) const fn pause(&mut self) {
        self.due = None;
    }

    /// Asks for the next step.
    pub(crate) fn next(&mut self, ground: Ground<'_>, now: Instant, out: &mut Vec<Effect>) {
        self.due = None;
        if self.state != State::Match {
            return;
        }
        if let Some(again) = self.again.filter(|again| now < *again) {
            self.due = Some((again, "a share is tried again"));
            return;
        }
        let effect = match ground.view {
            Some(view) => self.by_records(view, ground, now, out),
            None => self.by_own_copy(ground, now),
        };
        self.state = match effect {
            Some(Effect::WriteShare(..)) => State::Write,
            Some(Effect::Decide(_)) => State::Acknowledge,
            Some(_) => State::ReadOwnCopy,
            None => return,
        };
        out.extend(effect);
    }

    fn by_records(&mut self, view: &View, ground: Ground<'_>, now: Instant, out: &mut Vec<Effect>) -> Option<Effect> {
        let (state, own) = (view.state(), ground.own);
        (self.by_own_copy, self.epoch) = (None, None);
        // A share that was lost is written again; one of a machine whose cluster key rotates carries what the cluster gives.
        if let Some(holding) = stands(state, own).filter(|holding| self.mended.as_ref() != Some(holding)) {
            let rotates = self.mended.as_ref().is_some_and(|before| before.generations != holding.generations);
            let reason = if rotates { ShareReason::Rotates } else { ShareReason::Stands };
            return ground.may_write.then_some(Effect::WriteShare(holding, reason));
        }
        let takes = takes(state, own, self.mended.as_ref());
        if self.takes.replace(takes) != Some(takes) {
            out.push(Effect::TakesKey(takes));
        }
        let request = match due(state, own)? {
            Due::Begin => OwnRequest::BeginEpoch,
            Due::Hold(holding) if self.next.as_ref() == Some(&holding) => {
                OwnRequest::AcknowledgeEpoch(holding.epoch.number())
            }
            Due::Hold(holding) => return ground.may_write.then_some(Effect::WriteShare(holding, ShareReason::Next)),
        };
        if let Some((granted, again)) = &self.granted
            && *granted == request
            && now < *again
        {
            self.due = Some((*again, "what was granted is not seen yet"));
            return None;
        }
        ground.may_decide.then_some(Effect::Decide(request))
    }

    fn by_own_copy(&mut self, ground: Ground<'_>, now: Instant) -> Option<Effect> {
        if let Some(holding) = &self.by_own_copy {
            return ground.may_write.then(|| Effect::WriteShare(holding.clone(), ShareReason::OwnCopy));
        }
        if now < self.read {
            self.due = Some((self.read, "the own copy is read"));
            return None;
        }
        Some(Effect::ReadOwnCopy { since: self.since })
    }

    /// Takes the end of a step; what there is to report, if anything changed. An own copy that cannot be read is none: etcd is not ready
    /// yet.
    pub(crate) fn done(
        &mut self,
        effect: &Effect,
        outcome: Result<EffectOutcome, String>,
        own: &MachineId,
        now: Instant,
    ) -> Option<Option<String>> {
        match (self.state, effect) {
            (State::Write, Effect::WriteShare(..))
            | (State::Acknowledge, Effect::Decide(_))
            | (State::ReadOwnCopy, Effect::ReadOwnCopy { .. }) => {}
            _ => return None, // it began before these units did
        }
        (self.state, self.again) = (State::Match, None);
        match (effect, outcome) {
            (Effect::ReadOwnCopy { .. }, outcome) => {
                self.read = now + AGAIN;
                if let Ok(EffectOutcome::OwnCopy(view)) = outcome {
                    self.since = Some(view.revision());
                    self.by_own_copy = match due(view.state(), own) {
                        Some(Due::Hold(holding)) => Some(holding),
                        Some(Due::Begin) | None => None,
                    };
                }
                return None;
            }
            (_, Err(why)) => {
                self.again = Some(now + AGAIN);
                return Some(Some(why));
            }
            (Effect::WriteShare(holding, reason), Ok(_)) => match reason {
                ShareReason::Stands | ShareReason::Rotates => self.mended = Some(holding.clone()),
                ShareReason::Next => self.next = Some(holding.clone()),
                ShareReason::OwnCopy => {
                    self.epoch = Some(holding.epoch.number());
                    self.by_own_copy = None;
                }
            },
            (Effect::Decide(request), Ok(_)) => self.granted = Some((request.clone(), now + AGAIN)),
            (_, Ok(_)) => {} // no step of the shares
        }
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cluster::record::{ColdStartEpochs, Generations, NextEpoch};
    use keys::cold_start::Epoch;
    use model::ClusterRole::Node;

    use super::*;
    use crate::fixture::{World, desired, ids, view};
    use crate::{EffectKind, Event, OwnRecords, Part};

    fn epoch(number: u32) -> Epoch {
        Epoch::new(number, ids(&[1, 2, 3])).expect("an epoch")
    }

    fn stands(number: u32) -> ColdStartEpochs {
        ColdStartEpochs { current: Some(epoch(number)), next: None }
    }

    /// Epochs of which the next one is acknowledged by these.
    fn next(number: u32, acknowledged: &[u8]) -> ColdStartEpochs {
        let next = NextEpoch { epoch: epoch(number + 1), acknowledged: ids(acknowledged) };
        ColdStartEpochs { current: Some(epoch(number)), next: Some(next) }
    }

    fn records(revision: u64, epochs: &ColdStartEpochs) -> View {
        view(revision, &[1, 2, 3], epochs, Generations::One(1))
    }

    /// A coordinator whose units run.
    fn coordinator() -> World {
        let mut world = World::coordinator();
        world.start().settle().past();
        world
    }

    /// Effects on the shares since this was asked last.
    fn done(world: &mut World) -> Vec<String> {
        let said = |effect: Effect| {
            if let Effect::WriteShare(holding, reason) = &effect {
                return Some(format!("{} {reason:?}", holding.epoch.number()));
            }
            if let Effect::Decide(request @ (OwnRequest::BeginEpoch | OwnRequest::AcknowledgeEpoch(_))) = &effect {
                return Some(format!("{request:?}"));
            }
            if let Effect::Announce(said) = &effect {
                return Some(format!("announces {:?}", said.epoch));
            }
            let Effect::TakesKey(takes) = effect else { return None };
            Some(format!("takes {takes:?}"))
        };
        world.past().into_iter().filter_map(said).collect()
    }

    /// Proves: K6
    #[test]
    fn a_share_is_mended_once_and_when_another_epoch_stands() {
        let mut world = coordinator();
        world.sees(records(5, &stands(1))).settle();
        assert_eq!(done(&mut world), ["1 Stands", "takes Some(1)"]);
        world.sees(records(6, &stands(1))).settle().pass(60);
        assert_eq!(done(&mut world), [""; 0], "once");
        world.sees(records(7, &stands(2))).settle();
        assert_eq!(done(&mut world), ["2 Stands"]);
        world.cut().start().settle().past();
        world.sees(records(7, &stands(2))).settle();
        assert_eq!(done(&mut world), ["2 Stands", "takes Some(1)"], "a share may have been lost meanwhile");
    }

    /// Proves: K4
    #[test]
    fn a_share_carries_the_cluster_key_before_a_start_takes_it() {
        let mut world = coordinator();
        world.sees(records(5, &stands(1))).settle();
        done(&mut world);
        world.sees(view(6, &[1, 2, 3], &stands(1), Generations::Rotating(1))).fails(EffectKind::WriteShare).settle();
        assert_eq!(done(&mut world), [""; 0], "the share does not carry it yet");
        world.pass(1);
        assert_eq!(done(&mut world), ["1 Rotates", "takes Some(2)"]);
    }

    /// Proves: K6
    #[test]
    fn a_share_is_durable_before_it_is_acknowledged() {
        let mut world = coordinator();
        world.sees(records(5, &stands(1))).settle();
        done(&mut world);
        world.sees(records(6, &next(1, &[2]))).fails(EffectKind::WriteShare).settle();
        assert_eq!(
            done(&mut world),
            ["takes None"],
            "no share, no word; and shares of two epochs are not written over"
        );
        world.pass(1);
        assert_eq!(done(&mut world), ["2 Next", "AcknowledgeEpoch(2)"]);
        world.sees(records(7, &next(1, &[1, 2]))).settle().pass(5);
        assert_eq!(done(&mut world), [""; 0], "until the next epoch stands");
        world.sees(records(8, &stands(2))).settle();
        assert_eq!(done(&mut world), ["2 Stands", "takes Some(1)"]);
    }

    /// Proves: K6
    #[test]
    fn what_the_records_refuse_is_asked_again_a_second_later() {
        let mut world = coordinator();
        let others = ColdStartEpochs { current: Some(Epoch::new(1, ids(&[1, 2])).expect("an epoch")), next: None };
        world.sees(records(5, &others)).settle();
        assert_eq!(done(&mut world), ["1 Stands", "takes Some(1)", "BeginEpoch"]);
        let tries = |world: &mut World| {
            world.now += AGAIN;
            world.handle(Event::Tick).fails(EffectKind::Decide);
            std::mem::take(&mut world.queue)
        };
        assert_eq!(tries(&mut world), [Effect::Report(Part::Shares, Some(String::from("fails")))]);
        assert_eq!(tries(&mut world), [], "an equal text is reported once");
        world.pass(2);
        assert_eq!(done(&mut world), ["BeginEpoch", "BeginEpoch"], "once a second, until the view shows it");
        world.sees(records(6, &ColdStartEpochs { next: next(1, &[]).next, ..others })).settle();
        assert_eq!(done(&mut world), ["takes None", "2 Next", "AcknowledgeEpoch(2)"]);
    }

    /// Proves: K6
    #[test]
    fn records_that_no_quorum_keeps_up_are_told_nothing() {
        let mut world = coordinator();
        world.sees(records(5, &stands(1))).settle();
        world.handle(Event::Records(OwnRecords::Lost)).settle();
        done(&mut world);
        world.view = Some(records(6, &next(1, &[])));
        world.handle(Event::Tick).settle().pass(3);
        assert_eq!(done(&mut world), ["takes None", "2 Next"]);
        world.sees(records(6, &next(1, &[]))).settle();
        assert_eq!(done(&mut world), ["AcknowledgeEpoch(2)"]);
    }

    /// Proves: K6
    #[test]
    fn an_own_old_copy_is_obeyed_in_the_next_share_alone() {
        let mut world = coordinator();
        world.own_copy = Some(records(5, &stands(1)));
        world.pass(3);
        assert_eq!(done(&mut world), [""; 0], "nothing of the epoch that stands");
        world.own_copy = Some(records(6, &next(1, &[2])));
        world.pass(1);
        assert_eq!(done(&mut world), ["2 OwnCopy"]);
        world.pass(6);
        assert_eq!(
            done(&mut world),
            ["announces Some(2)"],
            "another one acknowledges it, once own records have lapsed"
        );
    }

    /// A share that comes to lie there behind the erasure would stay. Proves: S14
    #[test]
    fn shares_are_erased_behind_a_write_that_is_under_way() {
        let mut world = coordinator();
        world.sees(records(5, &stands(1)));
        let write = world.queue.pop().expect("a share is written");
        let says = BTreeMap::from([(2, desired(11, Node, &[2, 3])), (3, desired(11, Node, &[2, 3]))]);
        world.handle(Event::Records(OwnRecords::Lost)).settle().pass(6).hears(&says);
        assert!(world.units.is_none() && world.keys, "{:?}", world.queue);
        let (kind, outcome) = world.perform(write).expect("it ends");
        world.handle(Event::Done(kind, Ok(outcome))).settle();
        assert!(world.esp.is_empty() && !world.keys);
    }
}
