//! Steps of the role, one by one: what is next, when, and what a start makes of what it finds.

use super::*;
use crate::fixture::{desired, id, learner, member};

const AFTER: Duration = Duration::from_millis(1);

/// Facts of a coordinator whose etcd has begun.
fn begun() -> RoleFacts {
    RoleFacts { keys: true, begun: true, recovery: None, running: None }
}

fn role(found: &RoleFacts) -> (Role, Instant) {
    let now = testkit::origin();
    (Role::new(found, false, now), now)
}

fn coordinator() -> Desired {
    desired(10, model::ClusterRole::Coordinator, &[1, 2, 3])
}

fn givers() -> Vec<VpnPlace> {
    [2, 3].map(|n| (id(n), member(n).1)).into()
}

/// Next step of a coordinator with this desired state, which was heard.
fn towards(role: &mut Role, desired: &Desired, now: Instant) -> Step {
    role.step(Goal::Coordinator { desired, heard: true, givers: &givers() }, now)
}

/// Performs steps towards the goal until one is no effect, which is returned.
fn settle(role: &mut Role, goal: Goal<'_>, now: Instant) -> (Vec<Effect>, Step) {
    let mut done = Vec::new();
    for _ in 0..20 {
        match role.step(goal, now) {
            Step::Do(effect) => {
                let outcome =
                    if effect == Effect::LookAtEtcd { EffectOutcome::Begun(true) } else { EffectOutcome::Whole };
                role.done(&effect, Ok(outcome), now);
                done.push(effect);
            }
            other @ (Step::At(..) | Step::Rest | Step::Wait(_)) => return (done, other),
        }
    }
    panic!("no end: {done:?}")
}

const EXISTING: EtcdStart = EtcdStart::Existing { others: Vec::new() };

/// Proves: S14
#[test]
fn a_step_that_failed_is_tried_again_a_second_later() {
    let (mut role, now) = role(&begun());
    let units = Effect::Units(Some(EXISTING));
    assert_eq!(towards(&mut role, &coordinator(), now), Step::Do(units.clone()));
    assert_eq!(
        (role.busy(), towards(&mut role, &coordinator(), now)),
        (Some(EffectKind::Units), Step::Rest),
        "one at a time"
    );
    role.done(&units, Err(()), now);
    let again = now + AGAIN;
    for early in [now, again - AFTER] {
        assert!(matches!(towards(&mut role, &coordinator(), early), Step::At(due, _) if due == again));
    }
    // Half of them may run, so etcd may have begun.
    assert_eq!(towards(&mut role, &coordinator(), again), Step::Do(units.clone()));
    role.done(&units, Ok(EffectOutcome::Whole), again);
    assert_eq!(towards(&mut role, &coordinator(), again), Step::Do(Effect::Face(Face::Coordinator)));
}

/// Proves: S14
#[test]
fn keys_are_asked_of_the_next_coordinator_after_a_failure() {
    let (mut role, mut now) = role(&RoleFacts { keys: false, begun: false, ..begun() });
    let desired = learner(10, &[2, 3]);
    let note = towards(&mut role, &desired, now);
    assert_eq!(note, Step::Do(Effect::NoteJoin));
    role.done(&Effect::NoteJoin, Ok(EffectOutcome::Whole), now);
    let mut asked = Vec::new();
    for _ in 0..4 {
        let Step::Do(Effect::TakeKeys(giver)) = towards(&mut role, &desired, now) else { panic!("keys are due") };
        asked.push(giver.0);
        role.done(&Effect::TakeKeys(giver), Err(()), now);
        now += AGAIN;
    }
    assert_eq!(asked, [2, 3, 2, 3].map(id));
    let Step::Do(effect) = towards(&mut role, &desired, now) else { panic!("keys are due") };
    role.done(&effect, Ok(EffectOutcome::Whole), now);
    let others = vec![member(2), member(3)];
    assert_eq!(towards(&mut role, &desired, now), Step::Do(Effect::Units(Some(EtcdStart::Existing { others }))));
}

/// A machine without keys waits for what it is told, and says for what. Proves: S14
#[test]
fn a_machine_without_keys_says_what_it_waits_for() {
    let next = |desired: &Desired, heard, givers: &[VpnPlace]| {
        let (mut role, now) = role(&RoleFacts { keys: false, begun: false, ..begun() });
        role.step(Goal::Coordinator { desired, heard, givers }, now)
    };
    let (out, voter) = (Desired { etcd: EtcdPart::Out, ..coordinator() }, coordinator());
    let waits = |step: Step, word: &str| matches!(step, Step::Wait(text) if text.contains(word));
    assert!(waits(next(&learner(10, &[2]), false, &givers()), "no coordinator has said"));
    assert!(waits(next(&out, true, &givers()), "not added"));
    assert!(waits(next(&voter, true, &givers()), "none of its data"));
    assert_eq!(next(&voter, true, &[]), Step::Do(Effect::NeedOwner(OwnerReason::Alone)));
    // The same of one whose keys are there, and whose etcd has not begun in this boot.
    let (mut role, now) = role(&RoleFacts { begun: false, running: Some(EXISTING), ..begun() });
    role.done(&Effect::Units(None), Ok(EffectOutcome::Whole), now);
    role.done(&Effect::LookAtEtcd, Ok(EffectOutcome::Begun(false)), now);
    assert!(waits(towards(&mut role.clone(), &out, now), "not added"));
    assert!(waits(towards(&mut role, &voter, now), "none of its data"));
}

/// Proves: S14
#[test]
fn an_etcd_beside_other_members_is_given_ten_seconds() {
    let (mut role, now) = role(&RoleFacts { begun: false, ..begun() });
    role.stale = false;
    let (first, second) = (learner(10, &[2]), learner(11, &[2, 3]));
    let goal = Goal::Coordinator { desired: &first, heard: true, givers: &givers() };
    let Step::Do(effect) = role.step(goal, now) else { panic!("units are due") };
    assert_eq!(effect, Effect::Units(Some(EtcdStart::Existing { others: vec![member(2)] })));
    role.done(&effect, Ok(EffectOutcome::Whole), now);
    role.done(&Effect::Face(Face::Coordinator), Ok(EffectOutcome::Whole), now);
    assert_eq!(towards(&mut role, &first, now), Step::Rest, "its members are those that there are");
    let due = now + BEGINS;
    for early in [now, due - AFTER] {
        assert!(matches!(towards(&mut role, &second, early), Step::At(at, _) if at == due));
    }
    assert_eq!(towards(&mut role, &second, due), Step::Do(Effect::LookAtEtcd));
    let mut begins = role.clone();
    begins.done(&Effect::LookAtEtcd, Ok(EffectOutcome::Begun(true)), due);
    assert_eq!(towards(&mut begins, &second, due), Step::Rest, "it has begun, and is told by etcd itself");
    role.done(&Effect::LookAtEtcd, Ok(EffectOutcome::Begun(false)), due);
    assert_eq!(towards(&mut role, &second, due), Step::Do(Effect::Units(None)));
}

/// Proves: K6
#[test]
fn a_noted_recovery_is_due_ten_seconds_after_the_first_round() {
    let noted = RoleFacts { recovery: Some(RecoveryNote::Ordered), ..begun() };
    let (mut role, now) = role(&noted);
    let is_due = |role: &Role| role.recovery == Recovery::Due;
    assert!(role.asks_who_leads() && matches!(towards(&mut role, &coordinator(), now), Step::Wait(_)));
    for early in [now, now + STARTS_ANEW - AFTER] {
        role.nobody_leads(early);
        assert!(!is_due(&role));
    }
    let mut heard = role.clone();
    heard.somebody_may_lead();
    heard.nobody_leads(now + STARTS_ANEW);
    assert!(!is_due(&heard), "the rounds begin anew");
    role.nobody_leads(now + STARTS_ANEW);
    assert!(is_due(&role) && !role.asks_who_leads());
    let (mut none, _) = self::role(&begun());
    none.nobody_leads(now);
    none.nobody_leads(now + 2 * STARTS_ANEW);
    assert!(!is_due(&none) && !none.others_lead(), "nothing was noted");
    let (mut alone, _) = self::role(&noted);
    let goal = Goal::Coordinator { desired: &coordinator(), heard: false, givers: &[] };
    assert_eq!(alone.step(goal, now), Step::Do(Effect::Units(Some(EtcdStart::Recovered))), "nobody is there to ask");
}

/// Proves: K6
#[test]
fn others_that_lead_end_a_noted_recovery_and_what_it_began() {
    for (note, running, expected) in [
        (
            RecoveryNote::Ordered,
            false,
            vec![Effect::DropRecovery, Effect::Units(Some(EXISTING)), Effect::Face(Face::Coordinator)],
        ),
        (RecoveryNote::Begun, false, vec![Effect::PutEtcdAside]),
        (RecoveryNote::Begun, true, vec![Effect::Units(None), Effect::PutEtcdAside]),
    ] {
        let (mut role, now) = role(&RoleFacts { recovery: Some(note), ..begun() });
        assert!(role.others_lead());
        role.half = running;
        let desired = Desired { etcd: EtcdPart::Out, ..coordinator() };
        let (done, _) = settle(&mut role, Goal::Coordinator { desired: &desired, heard: true, givers: &givers() }, now);
        assert_eq!(done, expected, "{note:?}, running {running}");
        assert!(!role.others_lead(), "once");
    }
}

/// Proves: S14
#[test]
fn a_machine_in_doubt_stops_and_shows_a_node_in_vain_only() {
    let (mut role, now) = role(&begun());
    let desired = coordinator();
    settle(&mut role, Goal::Coordinator { desired: &desired, heard: true, givers: &givers() }, now);
    let (done, rests) = settle(&mut role.clone(), Goal::Stopped { in_vain: true }, now);
    assert_eq!(
        (done, rests),
        (vec![Effect::Face(Face::Leaving), Effect::Units(None), Effect::Face(Face::Node)], Step::Rest)
    );
    let (done, rests) = settle(&mut role, Goal::Stopped { in_vain: false }, now);
    assert_eq!((done, rests), (vec![Effect::Face(Face::Leaving), Effect::Units(None)], Step::Rest));
    assert!(role.is_worth_confirming() && role.has_begun() && !role.runs());
    let (done, _) = settle(&mut role, Goal::Node, now);
    assert_eq!(done, [Effect::EraseShares, Effect::EraseKeys, Effect::EraseEtcd, Effect::Face(Face::Node)]);
    assert!(!role.is_worth_confirming() && !role.has_begun());
}

/// Shares, keys and etcd: as long as one of them is left a second voice is worth seeking. Proves: S14
#[test]
fn what_is_erased_in_part_is_worth_confirming_still() {
    let (mut role, now) = role(&begun());
    for (effect, worth) in [(Effect::EraseShares, true), (Effect::EraseKeys, true), (Effect::EraseEtcd, false)] {
        assert!(role.is_worth_confirming());
        assert_eq!(role.step(Goal::Node, now), Step::Do(effect.clone()));
        role.done(&effect, Ok(EffectOutcome::Whole), now);
        assert_eq!(role.is_worth_confirming(), worth, "{effect:?}");
    }
    let (fresh, _) = self::role(&RoleFacts { keys: false, begun: false, ..begun() });
    assert!(!fresh.is_worth_confirming(), "there was never anything");
    let (keys, _) = self::role(&RoleFacts { begun: false, ..begun() });
    assert!(!keys.is_worth_confirming(), "an etcd that never began holds no word of others");
}

/// Proves: S14
#[test]
fn an_etcd_of_another_membership_is_put_aside_once_nothing_runs() {
    let (mut role, now) = role(&begun());
    let desired = coordinator();
    settle(&mut role, Goal::Coordinator { desired: &desired, heard: true, givers: &givers() }, now);
    let mut steps = Vec::new();
    for _ in 0..3 {
        let Step::Do(effect) = role.step(Goal::Rejoin, now) else { panic!("it goes on") };
        role.done(&effect, Ok(EffectOutcome::Whole), now);
        steps.push(effect);
    }
    assert_eq!(steps, [Effect::Face(Face::Leaving), Effect::Units(None), Effect::PutEtcdAside]);
    assert!(!role.has_begun());
}

/// Proves: S14
#[test]
fn a_new_cluster_begins_by_who_was_told_nothing() {
    let new = Desired { at: None, ..coordinator() };
    let now = testkit::origin();
    let mut creates = Role::new(&RoleFacts { begun: false, ..begun() }, true, now);
    assert_eq!(towards(&mut creates, &new, now), Step::Do(Effect::Units(Some(EtcdStart::New))));
    let (mut begun_already, _) = role(&begun());
    assert_eq!(towards(&mut begun_already, &new, now), Step::Do(Effect::Units(Some(EXISTING))), "by its own data");
    // Keys of a join that never began are of no use to the next one.
    let (mut stale, _) = role(&RoleFacts { begun: false, ..begun() });
    assert_eq!(towards(&mut stale, &learner(11, &[2]), now), Step::Do(Effect::EraseKeys));
}
