//! Each law of a member's life is set off by the fault that it is there for, and not by the same without that fault.

use std::collections::BTreeMap;

use cluster::desired::{Desired, DesiredShares, EtcdPart, KnownCoordinator};
use cluster::record::Standing;
use cluster::state::{HandOverError, StateVersion};
use member::{Effect, EffectKind, EtcdStart, KeptFile};
use model::{Assignment, ColdStart, KubernetesRole, Level, MachineId, NodeName, Prefixes, VPN_PREFIX};
use sim::cast;
use sim::laws::Breach;
use sim::laws::life::{self as law, Facts, Voices};

const BOTH: [KubernetesRole; 2] = [KubernetesRole::ControlPlane, KubernetesRole::Worker];

/// Desired state of machine 1: the coordinator that created the cluster.
fn coordinator() -> Desired {
    let prefixes = Prefixes::of(VPN_PREFIX);
    let assignment = Assignment::first(&prefixes, BOTH.into());
    let name = NodeName::derived(cast::id(1));
    let own = KnownCoordinator { name, vpn_ip: assignment.vpn_ip(), votes: true, control_plane: true };
    Desired {
        at: None,
        look: None,
        standing: Standing::Member,
        assignment,
        prefixes,
        coordinators: BTreeMap::from([(cast::id(1), own)]),
        etcd: EtcdPart::Voter,
        shares: DesiredShares::default(),
        owners: vec![cast::owner(1)],
        level: Level::Encrypted,
        cold_start: ColdStart::Automatic,
    }
}

/// Facts of a member of etcd whose units are off, and about which nobody says anything.
const fn facts(kept: &Desired) -> Facts<'_> {
    Facts {
        kept,
        goes_on_as_node: false,
        keys: true,
        has_begun: true,
        is_member: true,
        runs: None,
        voices: Voices::Others { said: 0, of: 2 },
        is_doubted: false,
        noted_before: false,
        is_noted: false,
        is_recovered: true,
        is_alone: false,
        may_be_uncounted: false,
        is_uncounted: false,
        others_lead: false,
        others_tell: false,
    }
}

/// Law that an effect breaks before these facts; none that breaks none.
fn broken(effect: &Effect, facts: &Facts<'_>) -> Option<&'static str> {
    law_of(law::performs(1, effect, facts))
}

fn law_of(checked: Result<(), Breach>) -> Option<&'static str> {
    checked.err().map(|breach| breach.law)
}

#[test]
fn each_law_of_an_effect_is_broken_by_its_fault() {
    let coordinates = coordinator();
    let node = coordinator().as_node();
    let (is, was) = (facts(&coordinates), facts(&node));
    let member = (NodeName::derived(cast::id(2)), VPN_PREFIX.nth(2).expect("an address"));
    let [founds, joins, goes_on] =
        [EtcdStart::New, EtcdStart::Existing { others: vec![member] }, EtcdStart::Existing { others: vec![] }];
    let units = |start: &EtcdStart| Effect::Units(Some(start.clone()));
    let kubernetes = Effect::Kubernetes { assignment: coordinates.assignment.clone(), signer: None };
    let keeps_node = Effect::Keep(KeptFile::Desired(Box::new(node.clone())));
    let said = |said| Facts { voices: Voices::Others { said, of: 2 }, ..is };
    let unrecovered = |is_alone| Facts { is_recovered: false, is_alone, ..was };
    for (law, effect, fault, control) in [
        (law::ERASED, Effect::EraseKeys, Facts { runs: Some(&goes_on), ..was }, was),
        (law::NEEDED, Effect::EraseEtcd, is, was),
        (law::NEEDED, Effect::EraseShares, is, Facts { goes_on_as_node: true, ..is }),
        (law::NOTE, Effect::EraseEtcd, unrecovered(true), unrecovered(false)),
        (law::NOTE, Effect::DropRecovery, unrecovered(true), unrecovered(false)),
        (law::ROLE, units(&goes_on), Facts { keys: false, ..is }, is),
        (law::ROLE, units(&goes_on), was, is),
        (law::BEGUN, units(&founds), is, Facts { has_begun: false, ..is }),
        (law::BEGUN, units(&joins), is, Facts { has_begun: false, ..is }),
        (law::BEGUN, Effect::Units(None), Facts { runs: Some(&joins), ..is }, Facts { runs: Some(&goes_on), ..is }),
        (law::UNCOUNTED, units(&goes_on), Facts { is_uncounted: true, ..is }, is),
        (law::UNCOUNTED, Effect::NoteJoin, Facts { is_uncounted: true, ..is }, is),
        (
            law::CLUSTERS,
            units(&EtcdStart::Recovered),
            Facts { noted_before: true, others_lead: true, ..is },
            Facts { noted_before: true, ..is },
        ),
        (law::KUBERNETES, kubernetes.clone(), is, Facts { runs: Some(&goes_on), ..is }),
        (law::KUBERNETES, kubernetes, Facts { runs: Some(&goes_on), ..was }, Facts { runs: Some(&goes_on), ..is }),
        (law::VOICE, keeps_node.clone(), said(1), said(2)),
        (law::VOICE, keeps_node, said(1), Facts { has_begun: false, ..said(1) }),
    ] {
        assert_eq!(broken(&effect, &fault), Some(law), "{effect:?}");
        assert_eq!(broken(&effect, &control), None, "the control of {law}: {effect:?}");
    }
}

#[test]
fn each_law_of_a_word_is_broken_by_its_fault() {
    let at = |revision| Some(StateVersion { recoveries: 0, revision });
    let underway = Some(EffectKind::Keep);
    for (law, fault, control) in [
        (law::STEP, law::one_step(1, underway, EffectKind::Keep), law::one_step(1, None, EffectKind::Keep)),
        (law::VERSION, law::version(1, (at(7), at(6)), (1, 2)), law::version(1, (at(7), at(8)), (1, 2))),
        (law::VERSION, law::version(1, (at(7), at(6)), (1, 2)), law::version(1, (at(7), at(6)), (2, 2))),
        (law::LOOK, law::told_node(1, true), law::told_node(1, false)),
        (law::KEYS, law::handed_over(1, Err(HandOverError::NotAdded)), law::handed_over(1, Ok(()))),
        (law::CERTIFIED, law::certified(1, false), law::certified(1, true)),
        (law::GIVEN, law::given(1, false), law::given(1, true)),
        (law::SHARE, law::acknowledged(MachineId([1; 16]), 2, false), law::acknowledged(MachineId([1; 16]), 2, true)),
        (law::CARRIED, law::takes(1, 2, false), law::takes(1, 2, true)),
    ] {
        assert_eq!(law_of(fault), Some(law));
        assert_eq!(law_of(control), None, "the control of {law}");
    }
    for (fault, control) in
        [(law::knows(1, false), law::knows(1, true)), (law::waits(1, true, "due"), law::waits(1, false, ""))]
    {
        assert!(fault.is_err() && control.is_ok());
    }
    assert!(!Voices::Others { said: 0, of: 1 }.are_enough() && Voices::Others { said: 1, of: 1 }.are_enough());
}
