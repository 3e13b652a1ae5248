//! Duties of a coordinator while a quorum keeps its records up. Each is looked at by itself; one that fails is tried again a second
//! later, and the others go on.
//!
//! ```text
//!   no records yet, and this machine created the cluster ─► Create, before all else
//!   own record · machines that are heard elsewhere ─► Decide      revoked machines are others ─► Revoke
//!   look ─ this etcd leads, and a step is due ─► ChangeMember ─► look      each 600 s ─► TrimAudit
//!        └ no step is, and half of a member's backend is free ─► Defragment ─► look
//!   a restore is ordered: nothing of a control plane runs here ─► Decide      the snapshot is here ─► Restore, step by step ─► Decide
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cluster::View;
use cluster::epochs::step;
use cluster::members::MemberStep;
use cluster::state::State;
use keys::endpoint::Endpoint;
use model::MachineId;

use crate::announcement::is_news;
use crate::defragment::DefragmentDuty;
use crate::effect::{Effect, EffectKind, EffectOutcome, OwnRequest};
use crate::restore::RestoreDuty;
use crate::role::AGAIN;

/// Time between two looks at etcd's members while they are not those that they should be: etcd takes such changes in about a second.
const UNSETTLED: Duration = Duration::from_millis(500);
/// Time between two looks otherwise: etcd's own health interval.
const SETTLED: Duration = Duration::from_secs(5);
/// Time between two looks where one machine coordinates: by themselves only the size of its backend and its alarms change.
const ALONE: Duration = Duration::from_secs(60);
/// etcd changes its members while it has been in touch with each voter for five seconds. It may lose sight of one that answers, until
/// their connection breaks (etcd issue 14523): another leader may see them all.
const REFUSES: Duration = Duration::from_secs(30);
/// Time between two looks at the audit, which grows by a line for each change, and for each key that is given out.
const TRIM: Duration = Duration::from_secs(600);
/// Reason for which nothing is done on a coordinator that joined, beside an empty etcd.
const EMPTY: &str = "etcd has no records of the cluster that this machine joined";

/// Facts that duties are decided over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    /// The machine itself.
    pub(crate) own: &'a MachineId,
    /// The machine's own records, which a quorum keeps up.
    pub(crate) view: &'a View,
    /// Whether nothing of a control plane runs here, or is to.
    pub(crate) has_stopped: bool,
    /// Whether the machine created the cluster, and was told nothing yet.
    pub(crate) created: bool,
    /// Places where the machine is reached now.
    pub(crate) endpoints: &'a [Endpoint],
    /// Effects that are under way.
    pub(crate) underway: &'a BTreeMap<EffectKind, Effect>,
}

/// Duties of a coordinator, from the moment on when its records are kept up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Duties {
    /// Whether the first records are written.
    created: bool,
    /// Places that the machine's own record names.
    said: Option<Vec<Endpoint>>,
    /// Machines that are heard where their records do not name them.
    heard: BTreeMap<MachineId, Endpoint>,
    /// When etcd's members are looked at next.
    look: Instant,
    /// Revision of the records at the last look.
    looked: Option<u64>,
    /// Whether this machine's etcd leads, by a look that has just ended.
    leads: Option<bool>,
    defragment: DefragmentDuty,
    restore: RestoreDuty,
    /// Step that this machine's etcd refuses, and since when.
    refused: Option<(MemberStep, Instant)>,
    /// Machines whose certificates etcd refuses.
    revoked: Option<BTreeSet<MachineId>>,
    trim: Instant,
    /// Effects that failed, and when they are tried again.
    again: BTreeMap<EffectKind, Instant>,
    due: Option<(Instant, &'static str)>,
}

impl Duties {
    /// Duties of a coordinator whose records are kept up from now on.
    pub(crate) fn begin(now: Instant) -> Self {
        Self {
            created: false,
            said: None,
            heard: BTreeMap::new(),
            look: now,
            looked: None,
            leads: None,
            defragment: DefragmentDuty::default(),
            restore: RestoreDuty::default(),
            refused: None,
            revoked: None,
            trim: now,
            again: BTreeMap::new(),
            due: None,
        }
    }

    /// Next deadline, and why.
    pub(crate) const fn due(&self) -> Option<(Instant, &'static str)> {
        self.due
    }

    /// Takes where machines are heard.
    pub(crate) fn hear(&mut self, heard: BTreeMap<MachineId, Endpoint>) {
        self.heard.extend(heard);
    }

    /// Asks for all that is due; the reason for which nothing is done, if there is one.
    pub(crate) fn next(&mut self, ground: Ground<'_>, now: Instant, out: &mut Vec<Effect>) -> Option<&'static str> {
        self.again.retain(|_, again| now < *again);
        let state = ground.view.state();
        let is_empty = state.version().is_none();
        if self.may(EffectKind::Decide, ground) {
            out.extend(self.request(is_empty, ground).map(Effect::Decide));
        }
        if is_empty {
            self.due = self.again.values().min().map(|again| (*again, "the first records are written again"));
            return (!ground.created).then_some(EMPTY);
        }
        if let Some(machines) = state.revoked().filter(|machines| self.revoked.as_ref() != Some(machines))
            && self.may(EffectKind::Revoke, ground)
        {
            out.push(Effect::Revoke(machines));
        }
        if now >= self.trim && self.may(EffectKind::TrimAudit, ground) {
            out.push(Effect::TrimAudit);
        }
        out.extend(self.members(ground, now));
        // Not while its members change, or are to.
        let is_settled = step(state).is_none() && !ground.underway.contains_key(&EffectKind::ChangeMember);
        if is_settled && self.may(EffectKind::Defragment, ground) {
            out.extend(self.defragment.next(now).map(Effect::Defragment));
        }
        if self.may(EffectKind::Restore, ground) && self.may(EffectKind::DropSnapshot, ground) {
            out.extend(self.restore.next(state, ground.own));
        }
        self.due = self.deadline(ground, out);
        None
    }

    /// Whether an effect of this kind may begin.
    fn may(&self, kind: EffectKind, ground: Ground<'_>) -> bool {
        !ground.underway.contains_key(&kind) && !self.again.contains_key(&kind)
    }

    fn request(&mut self, is_empty: bool, ground: Ground<'_>) -> Option<OwnRequest> {
        if is_empty {
            return (ground.created && !self.created).then_some(OwnRequest::Create);
        }
        if self.said.as_ref().is_none_or(|said| is_news(said, ground.endpoints)) {
            return Some(OwnRequest::Announce(ground.endpoints.to_vec()));
        }
        let state = ground.view.state();
        if let Some(request) = self.restore.request(state, ground.own, ground.has_stopped) {
            return Some(request);
        }
        self.heard.pop_first().map(|(machine, endpoint)| OwnRequest::Observe { machine, endpoint })
    }

    /// The next look at etcd's members, or the change that the last one asks for.
    fn members(&mut self, ground: Ground<'_>, now: Instant) -> Option<Effect> {
        let (state, revision) = (ground.view.state(), Some(ground.view.revision()));
        if let Some(leads) = self.leads.take() {
            let step = step(state);
            self.looked = revision;
            self.look = now
                + match step {
                    Some(_) => UNSETTLED,
                    None if is_alone(state) => ALONE,
                    None => SETTLED,
                };
            if leads && let Some(step) = step {
                let members = state.members();
                let all_answer = members.live() == members.voters.len(); // otherwise etcd has its reason
                self.refused = self.refused.filter(|(refused, _)| *refused == step && all_answer);
                let passes = self.refused.take_if(|(_, since)| now >= *since + REFUSES).is_some();
                return Some(if passes { Effect::PassLead } else { Effect::ChangeMember(step) });
            }
        }
        let is_due = self.looked != revision || now >= self.look;
        let is_changing = ground.underway.contains_key(&EffectKind::ChangeMember);
        (is_due && !is_changing && self.may(EffectKind::LookAtMembers, ground)).then_some(Effect::LookAtMembers)
    }

    /// Next deadline of what is neither under way nor asked for now.
    fn deadline(&self, ground: Ground<'_>, asked: &[Effect]) -> Option<(Instant, &'static str)> {
        let rests =
            |kind| !ground.underway.contains_key(&kind) && !asked.iter().any(|effect| effect.kind() == Some(kind));
        let looks = rests(EffectKind::LookAtMembers) && rests(EffectKind::ChangeMember);
        let looks = looks && !self.again.contains_key(&EffectKind::LookAtMembers);
        let trims = rests(EffectKind::TrimAudit) && !self.again.contains_key(&EffectKind::TrimAudit);
        let trim = trims.then_some((self.trim, "the audit is looked at"));
        let again = self.again.values().min().map(|again| (*again, "a duty is tried again"));
        [looks.then_some((self.look, "etcd's members are looked at")), trim, again].into_iter().flatten().min()
    }

    /// Takes the end of an effect; the text to report of its kind, if that may have changed.
    pub(crate) fn done(
        &mut self,
        effect: &Effect,
        outcome: Result<EffectOutcome, String>,
        now: Instant,
    ) -> Option<Option<String>> {
        let is_heard = matches!(effect, Effect::Decide(OwnRequest::Observe { .. }));
        if is_heard {
            return None; // what still holds is heard again
        }
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => {
                self.again.extend(effect.kind().map(|kind| (kind, now + AGAIN)));
                if *effect == Effect::LookAtMembers {
                    self.defragment.look(None, now);
                } else if matches!(effect, Effect::Defragment(_)) {
                    self.defragment.fail(now);
                }
                return Some(Some(why));
            }
        };
        match (effect, outcome) {
            (Effect::Decide(OwnRequest::Create), _) => self.created = true,
            (Effect::Decide(OwnRequest::Announce(said)), _) => self.said = Some(said.clone()),
            (Effect::LookAtMembers, EffectOutcome::Leads(leads)) => {
                self.leads = Some(leads.is_some());
                self.defragment.look(leads, now);
            }
            (Effect::ChangeMember(step), outcome) => {
                let before = self.refused.take();
                self.refused = matches!(outcome, EffectOutcome::Refused).then(|| before.unwrap_or((*step, now)));
                self.look = now + UNSETTLED;
            }
            (Effect::Defragment(machine), outcome) => {
                self.look = now + UNSETTLED;
                if outcome == EffectOutcome::Refused {
                    self.defragment.refuse(machine, now);
                }
            }
            (Effect::Restore { hash, step }, outcome) => {
                self.restore.done(hash, *step, outcome == EffectOutcome::Differed);
            }
            (Effect::DropSnapshot, EffectOutcome::Whole) => self.restore.tidied(),
            (Effect::DropSnapshot, _) => self.again.extend([(EffectKind::DropSnapshot, now + AGAIN)]),
            (Effect::Decide(OwnRequest::AcknowledgeRestore(..)), _) => self.restore.said(),
            (Effect::Decide(OwnRequest::EndRestore(hash)), _) => self.restore.ended(hash),
            (Effect::PassLead, _) => self.look = now + UNSETTLED,
            (Effect::Revoke(machines), _) => self.revoked = Some(machines.clone()),
            (Effect::TrimAudit, _) => self.trim = now + TRIM,
            _ => return None, // no duty
        }
        Some(None)
    }
}

/// Whether one machine coordinates, and etcd has no other member: nothing changes then but by its own records.
fn is_alone(state: &State) -> bool {
    let members = state.members();
    members.voters.len() == 1 && members.learners.is_empty() && state.coordinators().len() == 1
}

#[cfg(test)]
mod tests {
    use cluster::members::{Learner, Look, Members, Voter};
    use cluster::record::{ColdStartEpochs, Generations};
    use model::ClusterRole::Coordinator;

    use super::*;
    use crate::RecoveryNote;
    use crate::fixture::{World, desired, id, ids, look, view};
    use crate::{Event, OwnRecords, Part};

    fn at(host: u8) -> Vec<Endpoint> {
        vec![Endpoint::read(&format!("192.0.2.{host}:7838")).expect("an endpoint")]
    }

    fn records(revision: u64, coordinators: &[u8]) -> View {
        view(revision, coordinators, &ColdStartEpochs::default(), Generations::One(1))
    }

    /// The same, with these voters and learners in etcd.
    fn with_members(revision: u64, coordinators: &[u8], voters: &[u8], learners: &[u8]) -> View {
        let mut view = records(revision, coordinators);
        let voters = voters.iter().map(|n| (id(*n), Voter::Live)).collect();
        let learners = learners.iter().map(|n| (id(*n), Learner::Ready)).collect();
        view.see(Members { voters, learners }, look(revision));
        view
    }

    /// A coordinator at level insecure, so that no shares are in the way, whose units run.
    fn coordinator() -> World {
        let mut world = World::coordinator();
        world.start().settle().past();
        world
    }

    /// Kinds of what was done since it was asked last, of duties alone.
    fn done(world: &mut World) -> Vec<EffectKind> {
        let kinds = world.past().into_iter().filter(|effect| {
            !matches!(effect, Effect::Decide(OwnRequest::BeginEpoch | OwnRequest::AcknowledgeEpoch(_)))
        });
        kinds.filter_map(|effect| effect.kind()).filter(|kind| kind.asks_etcd()).collect()
    }

    fn count(world: &mut World, kind: EffectKind) -> usize {
        done(world).into_iter().filter(|it| *it == kind).count()
    }

    /// Proves: S5
    #[test]
    fn first_records_come_before_all_else() {
        let mut world = World::new(cluster::desired::Desired { at: None, ..desired(0, Coordinator, &[1]) });
        (world.keys, world.begun) = (true, true);
        world.start().settle().past();
        world.sees(View::default()).fails(EffectKind::Decide).settle();
        assert_eq!(done(&mut world), []);
        world.pass(1);
        let second = [Effect::Decide(OwnRequest::Create), Effect::Report(Part::Duty(EffectKind::Decide), None)];
        assert_eq!(world.past(), second, "nothing else");
        world.handle(Event::Tick).settle().pass(5);
        assert_eq!(done(&mut world), [], "it is seen later");
        world.sees(records(2, &[1])).settle();
        assert_eq!(
            done(&mut world),
            [EffectKind::Decide, EffectKind::Revoke, EffectKind::TrimAudit, EffectKind::LookAtMembers]
        );
    }

    /// Proves: S5
    #[test]
    fn an_empty_etcd_of_a_cluster_that_others_created_is_left_alone() {
        let mut world = coordinator();
        world.sees(View::default()).settle().pass(5);
        let said = Effect::Report(Part::Duty(EffectKind::Decide), Some(EMPTY.to_owned()));
        let past = world.past();
        assert_eq!(past.iter().filter(|effect| **effect == said).count(), 1);
        assert!(!past.iter().any(|effect| effect.kind().is_some_and(|kind| kind.asks_etcd())), "{past:?}");
    }

    /// Proves: M6
    #[test]
    fn own_record_is_announced_once_and_when_the_machine_moves() {
        let mut world = coordinator();
        let announced = |world: &mut World| {
            let said = |effect| if let Effect::Decide(OwnRequest::Announce(said)) = effect { Some(said) } else { None };
            world.past().into_iter().filter_map(said).collect::<Vec<_>>()
        };
        world.handle(Event::Endpoints(at(1))).settle();
        assert!(announced(&mut world).is_empty(), "before its records are read");
        world.sees(records(5, &[1, 2, 3])).fails(EffectKind::Decide).settle().pass(1);
        assert_eq!(announced(&mut world), [at(1)]);
        world.handle(Event::Endpoints(vec![])).settle().pass(30);
        assert!(announced(&mut world).is_empty(), "an address that is gone may come back");
        world.handle(Event::Endpoints(at(2))).settle();
        assert_eq!(announced(&mut world), [at(2)]);
        world.handle(Event::Records(OwnRecords::Lost)).settle();
        world.sees(records(6, &[1, 2, 3])).settle();
        assert_eq!(announced(&mut world), [at(2)], "what was written by others meanwhile is not known");
    }

    /// Proves: M6
    #[test]
    fn machines_are_observed_by_coordinators_and_none_from_before() {
        let mut world = coordinator();
        let observed = |world: &mut World| {
            let said = |effect| {
                let Effect::Decide(OwnRequest::Observe { machine, endpoint }) = effect else { return None };
                Some((machine, vec![endpoint]))
            };
            world.past().into_iter().filter_map(said).collect::<Vec<_>>()
        };
        let heard = |n: u8| Event::Learnt([(id(n), at(n).remove(0))].into());
        world.handle(heard(7)).settle();
        world.sees(records(5, &[1, 2, 3])).settle();
        assert!(observed(&mut world).is_empty(), "nobody knows how long ago that was");
        world.handle(heard(8)).fails(EffectKind::Decide).settle().pass(5);
        assert!(observed(&mut world).is_empty(), "what still holds is heard again");
        world.handle(heard(8)).settle();
        assert_eq!(observed(&mut world), [(id(8), at(8))]);
    }

    /// Proves: K4
    #[test]
    fn members_are_looked_at_each_five_seconds_or_twice_a_second() {
        let mut world = coordinator();
        world.sees(records(5, &[1, 2, 3])).settle();
        assert_eq!(count(&mut world, EffectKind::LookAtMembers), 1);
        world.pass(20);
        assert_eq!(count(&mut world, EffectKind::LookAtMembers), 4, "settled");
        world.sees(with_members(6, &[1, 2, 3, 4, 5], &[1, 2, 3], &[])).settle();
        assert_eq!(count(&mut world, EffectKind::LookAtMembers), 1, "the records have changed");
        world.pass(5);
        let kinds = done(&mut world);
        assert_eq!(kinds, [EffectKind::LookAtMembers; 10], "a step is due, and this etcd does not lead");
        world.sees(records(7, &[1])).settle();
        done(&mut world);
        world.pass(59);
        assert_eq!(count(&mut world, EffectKind::LookAtMembers), 0, "alone, only its backend changes by itself");
        world.sees(records(8, &[1])).settle();
        assert_eq!(count(&mut world, EffectKind::LookAtMembers), 1);
    }

    /// Proves: K4
    #[test]
    fn one_member_is_changed_behind_each_look_where_this_etcd_leads() {
        let mut world = coordinator();
        world.leads = true;
        world.sees(with_members(6, &[1, 2, 3, 4], &[1, 2, 3], &[])).settle();
        let changes = |world: &mut World| {
            let kinds = done(world).into_iter();
            let of_members = [EffectKind::LookAtMembers, EffectKind::ChangeMember];
            kinds.filter(|kind| of_members.contains(kind)).collect::<Vec<_>>()
        };
        assert_eq!(changes(&mut world), [EffectKind::LookAtMembers, EffectKind::ChangeMember]);
        world.view = Some(with_members(6, &[1, 2, 3, 4], &[1, 2, 3], &[4]));
        world.now += UNSETTLED;
        world.handle(Event::Tick);
        assert_eq!(world.queue, [Effect::LookAtMembers]);
        world.settle().pass(4);
        assert_eq!(changes(&mut world), [EffectKind::LookAtMembers], "an even one stays a learner");
        world.sees(with_members(7, &[1, 2, 3], &[1, 2, 3], &[4]));
        world.queue.retain(|effect| *effect == Effect::LookAtMembers);
        world.settle();
        assert!(world.past().contains(&Effect::ChangeMember(MemberStep::Remove(id(4)))));
    }

    /// Where one coordinates alone, etcd's members change by its own records only. Proves: K4
    #[test]
    fn who_coordinates_alone_looks_at_etcds_members_each_minute() {
        for (coordinators, voters, learners, looks) in [
            (&[1][..], &[1][..], &[][..], false),
            (&[1, 2], &[1], &[], true),
            (&[1, 2], &[1], &[2], true),
            (&[1], &[1, 2], &[], true),
        ] {
            let mut world = coordinator();
            world.sees(with_members(6, coordinators, voters, learners)).settle().past();
            world.pass(59);
            let looked = count(&mut world, EffectKind::LookAtMembers) > 0;
            world.pass(1);
            assert!(count(&mut world, EffectKind::LookAtMembers) > 0);
            assert_eq!(looked, looks, "{coordinators:?} coordinate, {voters:?} vote, {learners:?} learn");
        }
    }

    /// An etcd that has lost sight of a voter that answers refuses each change, until another one leads. Proves: K4
    #[test]
    fn a_step_that_is_refused_for_half_a_minute_is_another_leaders() {
        let mut world = coordinator();
        (world.leads, world.refuses) = (true, true);
        world.sees(with_members(6, &[1, 2, 3, 4], &[1, 2, 3], &[])).settle();
        let passes = |world: &mut World| world.past().iter().filter(|effect| **effect == Effect::PassLead).count();
        world.pass(29);
        assert_eq!(passes(&mut world), 0, "it may have been in touch with somebody for less than five seconds");
        let mut past = Vec::new();
        for _ in 0..2 {
            world.pass(1);
            past.extend(world.past());
            if past.contains(&Effect::PassLead) {
                break;
            }
        }
        assert_eq!(past.last(), Some(&Effect::PassLead), "and nobody looks again in the same moment: {past:?}");
        world.pass(20);
        assert_eq!(passes(&mut world), 0, "it leads still: the half minute begins anew");
        world.refuses = false;
        world.pass(2);
        world.refuses = true;
        world.pass(25);
        assert_eq!(passes(&mut world), 0, "a step was taken in between");
        let mut silent = with_members(7, &[1, 3], &[1, 2, 3], &[]);
        let voters = [(id(1), Voter::Live), (id(2), Voter::Silent), (id(3), Voter::Live)].into();
        silent.see(Members { voters, ..Members::default() }, Look { revision: 7, applied: 8 });
        world.sees(silent).pass(60);
        let past = world.past();
        assert!(past.contains(&Effect::ChangeMember(MemberStep::Remove(id(2)))), "{past:?}");
        assert!(!past.contains(&Effect::PassLead), "a voter is silent: etcd has its reason");
        world.leads = false;
        world.sees(with_members(8, &[1, 2, 3, 4], &[1, 2, 3], &[])).pass(60);
        assert_eq!(passes(&mut world), 0, "another one leads");
    }

    /// Proves: Q4
    #[test]
    fn one_is_defragmented_at_a_time_none_while_a_step_is_due() {
        use cluster::backends::{Backend, Backends, MemberBackend, MemberPart};

        let mut world = coordinator();
        let member = |n: u8| {
            let part = if n == 1 { MemberPart::Leader } else { MemberPart::Voter };
            let backend = Some(Backend { size: 100 << 20, in_use: 1 << 20, quota: 2 << 30 });
            (id(n), MemberBackend { name: model::NodeName::derived(id(n)), part, backend })
        };
        (world.leads, world.backends) = (true, Backends { members: [1, 2].map(member).into(), ..Backends::default() });
        world.sees(with_members(6, &[1, 2, 3, 4], &[1, 2, 3], &[])).settle();
        world.pass(900);
        assert_eq!(count(&mut world, EffectKind::Defragment), 0, "another coordinator is to vote");
        world.sees(records(7, &[1, 2])).settle();
        world.handle(Event::Tick);
        let asked = |world: &mut World| {
            let past = world.past().into_iter();
            past.filter_map(|effect| if let Effect::Defragment(of) = effect { Some(of) } else { None })
                .collect::<Vec<_>>()
        };
        world.pass(10);
        assert_eq!(asked(&mut world), [id(2), id(1)], "each once, the leader last");
        world.pass(3580);
        assert_eq!(asked(&mut world), [], "not again within an hour");
    }

    /// A look that fails is no reason to change anybody. Proves: K4
    #[test]
    fn a_look_that_failed_is_followed_by_another_look() {
        let mut world = coordinator();
        world.leads = true;
        world.sees(with_members(6, &[1, 2, 3, 4], &[1, 2, 3], &[])).fails(EffectKind::LookAtMembers).settle();
        assert_eq!(count(&mut world, EffectKind::ChangeMember), 0);
        world.pass(1);
        assert_eq!(count(&mut world, EffectKind::ChangeMember), 1);
    }

    /// Proves: S5
    #[test]
    fn revoked_machines_are_listed_at_once_and_when_others_are() {
        let mut world = coordinator();
        let listed = |world: &mut World| {
            let said = |effect| if let Effect::Revoke(machines) = effect { Some(machines) } else { None };
            world.past().into_iter().filter_map(said).collect::<Vec<_>>()
        };
        world.sees(records(5, &[1, 2, 3])).fails(EffectKind::Revoke).settle();
        assert!(listed(&mut world).is_empty());
        world.pass(60);
        assert_eq!(listed(&mut world), [ids(&[])], "once it could be written");
    }

    /// Proves: Q1
    #[test]
    fn the_audit_is_looked_at_each_ten_minutes() {
        let mut world = coordinator();
        world.sees(records(5, &[1, 2, 3])).settle();
        assert_eq!(count(&mut world, EffectKind::TrimAudit), 1);
        world.pass(599);
        assert_eq!(count(&mut world, EffectKind::TrimAudit), 0);
        world.now += Duration::from_secs(1);
        world.handle(Event::Tick).fails(EffectKind::TrimAudit).settle();
        assert_eq!(count(&mut world, EffectKind::TrimAudit), 0);
        world.pass(1);
        assert_eq!(count(&mut world, EffectKind::TrimAudit), 1);
    }

    /// An answer that an etcd owes which is gone holds up nobody. Proves: K6
    #[test]
    fn what_asked_an_etcd_ends_with_its_units() {
        let mut world = coordinator();
        world.sees(records(5, &[1, 2, 3]));
        world.queue.retain(|effect| !matches!(effect, Effect::Decide(_)));
        world.settle();
        assert!(!done(&mut world).contains(&EffectKind::Decide));
        world.note = Some(RecoveryNote::Ordered);
        world.handle(Event::Recover).settle().past();
        world.sees(records(6, &[1, 2, 3])).settle();
        assert!(done(&mut world).contains(&EffectKind::Decide));
    }

    /// Proves: S14
    #[test]
    fn duties_end_when_records_are_lost_and_units_stop() {
        let mut world = coordinator();
        world.sees(records(5, &[1, 2, 3])).settle();
        world.handle(Event::Records(OwnRecords::Lost)).settle();
        done(&mut world);
        world.pass(700);
        let kinds = done(&mut world);
        assert!(!kinds.contains(&EffectKind::LookAtMembers) && !kinds.contains(&EffectKind::TrimAudit), "{kinds:?}");
    }
}
