//! Bytes of a desired state against damage, and which state a machine follows.

use std::path::Path;

use keys::cold_start::Epoch;
use model::{Chain, POD_PREFIX, VPN_PREFIX};
use proptest::prelude::*;

use super::*;
use crate::fixture;

const AT: StateVersion = StateVersion { recoveries: 1, revision: 1000 };

const LOOK: Look = Look { revision: 1001, applied: 3000 };

fn name(text: &str) -> NodeName {
    NodeName::chosen(text).expect("a name")
}

fn holding(number: u32) -> ShareOrder {
    let holders = [1, 2, 3].map(|n| MachineId([n; 16])).into();
    ShareOrder {
        epoch: Epoch::new(number, holders).expect("an epoch"),
        stands: Some(4),
        disk: DiskUuid(Uuid([7; 16])),
        generations: Generations::Rotating(2),
    }
}

fn good() -> Desired {
    let coordinator = |n: u8| {
        let (name, vpn_ip) = (name(&format!("m{n}")), Ipv4Addr::new(10, 118, 0, n));
        (MachineId([n; 16]), KnownCoordinator { name, vpn_ip, votes: n == 1, control_plane: n == 2 })
    };
    let (role, kubernetes) = (ClusterRole::Coordinator, [KubernetesRole::ControlPlane].into());
    let members = [1, 2].map(|n| (name(&format!("m{n}")), Ipv4Addr::new(10, 118, 0, n))).to_vec();
    Desired {
        at: Some(AT),
        look: Some(LOOK),
        standing: Standing::Draining,
        assignment: Assignment::new(Ipv4Addr::new(10, 118, 0, 2), role, kubernetes, None).expect("they fit"),
        prefixes: Prefixes::of(VPN_PREFIX),
        coordinators: [1, 2].map(coordinator).into(),
        etcd: EtcdPart::Learner { members },
        shares: DesiredShares { stands: Some(holding(4)), next: Some(holding(5)) },
        owners: fixture::cluster().owners,
        level: Level::Authenticated,
        cold_start: ColdStart::Manual,
    }
}

/// A desired state of a worker, whose pods have these addresses.
fn worker(pods: [u8; 4]) -> Desired {
    let pods = Ipv4Prefix::new(pods.into(), 24).expect("a prefix");
    let assignment = Assignment::new(Ipv4Addr::new(10, 118, 0, 2), ClusterRole::Node, fixture::worker(), Some(pods));
    Desired { assignment: assignment.expect("they fit"), ..good().as_node() }
}

fn edited(edit: impl FnOnce(&mut DesiredWire)) -> String {
    let mut wire = DesiredWire::decode(good().encode().as_slice()).expect("our own");
    edit(&mut wire);
    let refused = Desired::decode(&wire.encode_to_vec()).expect_err("it makes no sense");
    Chain(&refused).to_string()
}

#[test]
fn a_desired_state_that_makes_no_sense_names_what_is_wrong() {
    assert_eq!(edited(|it| it.version = 2), "it was written by a newer Cairn (version 2)");
    assert_eq!(edited(|it| it.standing = 4), "it contradicts itself: whoever is removed is to be nothing");
    assert_eq!(edited(|it| it.etcd = 4), "its part in etcd is the unknown number 4");
    let of_learner = "it contradicts itself: a learner, and nobody else, is told of all members of etcd";
    assert_eq!(edited(|it| it.members.clear()), of_learner);
    assert_eq!(edited(|it| it.etcd = 3), of_learner);
    assert_eq!(edited(|it| it.members = vec![it.members[0].clone(); MOST_MEMBERS + 1]), of_learner);
    let seven = "it contradicts itself: coordinators are at most seven, each once and in order";
    assert_eq!(edited(|it| it.coordinators.reverse()), seven);
    assert_eq!(edited(|it| it.coordinators[1].machine_id = vec![1; 16]), seven);
    let many = (0..8).map(|n| CoordinatorWire { machine_id: vec![n; 16], ..CoordinatorWire::default() });
    assert_eq!(edited(|it| it.coordinators = many.collect()), seven);
    assert_eq!(edited(|it| it.owners.clear()), "it contradicts itself: a cluster has 1 to 16 owners");
    let generation = "it contradicts itself: key generations count from 1";
    assert_eq!(edited(|it| it.next.as_mut().expect("one").key_generation = 0), generation);
    let holders = "its epoch makes no sense: an epoch has 1 to 7 holders, not 0";
    assert_eq!(edited(|it| it.stands.as_mut().expect("one").epoch.holders.clear()), holders);
    assert!(edited(|it| it.assignment.truncate(it.assignment.len() - 1)).starts_with("its assignment cannot be used"));
    let member = "it contradicts itself: a member of etcd is a coordinator";
    assert_eq!(edited(|it| it.assignment = assignment::encode(&good().as_node().assignment)), member);
    let bits = "its prefixes cannot be used: the prefix of the VPN has 8 to 24 bits, not 30";
    assert_eq!(edited(|it| it.vpn_prefix = prefix_to_wire("10.118.0.0/30".parse().expect("a prefix"))), bits);
    let in_pods = "its prefixes cannot be used: 10.244.0.0/16, the prefix of the VPN, overlaps 10.244.0.0/16, which is kept for pods";
    assert_eq!(edited(|it| it.vpn_prefix = it.pods_prefix.clone()), in_pods);
    let address = "it contradicts itself: the machine's address is one of the VPN prefix";
    for foreign in [[10, 119, 0, 2], [10, 118, 0, 0], [10, 118, 255, 255]] {
        let moved = Assignment::new(foreign.into(), ClusterRole::Coordinator, [].into(), None).expect("they fit");
        assert_eq!(edited(|it| it.assignment = assignment::encode(&moved)), address, "{foreign:?}");
    }
    let pods = "it contradicts itself: the machine's pod prefix is one of the cluster's";
    let half = prefix_to_wire("10.244.128.0/17".parse().expect("a prefix"));
    let elsewhere = |it: &mut DesiredWire| {
        (it.etcd, it.members) = (1, vec![]);
        it.assignment = assignment::encode(&worker([10, 244, 127, 0]).assignment);
        it.pods_prefix = half.clone();
    };
    assert_eq!(edited(elsewhere), pods);
    let too_large = BadRecord::TooLarge { found: MOST_DESIRED_BYTES + 1, most: MOST_DESIRED_BYTES };
    assert_eq!(Desired::decode(&[0; MOST_DESIRED_BYTES + 1]), Err(too_large));
}

#[test]
fn a_cluster_may_keep_another_prefix_for_pods() {
    let pods = "10.32.0.0/16".parse().expect("a prefix");
    let elsewhere = Desired { prefixes: Prefixes { pods, ..good().prefixes }, ..worker([10, 32, 7, 0]) };
    assert_eq!(Desired::decode(&elsewhere.encode()), Ok(elsewhere.clone()));
    let foreign = Desired { assignment: worker([10, 244, 7, 0]).assignment, ..elsewhere.clone() };
    let refused = BadRecord::Contradiction("the machine's pod prefix is one of the cluster's");
    assert_eq!(Desired::decode(&foreign.encode()), Err(refused));
    let prefixes = Prefixes { vpn: pods, ..elsewhere.prefixes };
    let overlapping = Desired::decode(&Desired { prefixes, ..elsewhere }.encode()).expect_err("they overlap");
    let words = "its prefixes cannot be used: 10.32.0.0/16, the prefix of the VPN, overlaps 10.32.0.0/16, which is kept for pods";
    assert_eq!(Chain(&overlapping).to_string(), words);
}

/// Proves: S5
#[test]
fn a_desired_state_reads_as_it_was_written_and_has_its_bytes() {
    let first = Desired { at: None, etcd: EtcdPart::Voter, shares: DesiredShares::default(), ..good() };
    for desired in [good(), good().as_node(), worker([10, 244, 127, 0]), first] {
        assert_eq!(Desired::decode(&desired.encode()), Ok(desired));
    }
    let hex: String = good().encode().iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: Vec<_> = hex.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    let text = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/desired.hex");
    if std::env::var_os("CAIRN_BLESS").is_some() {
        std::fs::write(&path, &text).expect("golden files can be written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is committed");
    assert_eq!(text, golden, "a format is changed in FORMATS.md, the code and here in one step");
}

#[test]
fn a_node_is_in_no_etcd_and_runs_no_control_plane() {
    let node = good().as_node();
    assert_eq!((node.assignment.role(), &node.etcd), (ClusterRole::Node, &EtcdPart::Out));
    assert!(node.assignment.kubernetes().is_empty());
}

#[test]
fn the_largest_desired_state_fits() {
    let long = |n: u8| name(&format!("{}{n}", "m".repeat(62)));
    let coordinator = |n: u8| {
        let (name, vpn_ip) = (long(n), Ipv4Addr::new(255, 255, 255, n));
        (MachineId([0xf0 + n; 16]), KnownCoordinator { name, vpn_ip, votes: true, control_plane: true })
    };
    let holders = (0..7).map(|n| MachineId([0xf0 + n; 16])).collect();
    let epoch = Epoch::new(u32::MAX, holders).expect("an epoch");
    let share = ShareOrder { epoch, stands: Some(u32::MAX), generations: Generations::One(u32::MAX), ..holding(1) };
    let most = Desired {
        at: Some(StateVersion { recoveries: u64::MAX, revision: u64::MAX }),
        look: Some(Look { revision: u64::MAX, applied: u64::MAX }),
        coordinators: (0..7).map(coordinator).collect(),
        etcd: EtcdPart::Learner { members: (0..9).map(|n| (long(n), Ipv4Addr::BROADCAST)).collect() },
        shares: DesiredShares { stands: Some(share.clone()), next: Some(share) },
        owners: (0..16).map(|n| fixture::owner(model::OwnerPubKey([n; 32]))).collect(),
        ..good()
    };
    assert_eq!(Desired::decode(&most.encode()), Ok(most));
}

#[test]
fn a_state_is_behind_an_older_one_alone() {
    let at = |recoveries, revision| Desired { at: Some(StateVersion { recoveries, revision }), ..good() };
    for (recoveries, revision) in [(1, 1000), (1, 1001), (2, 0)] {
        assert!(!at(recoveries, revision).is_behind(Some(AT)), "{recoveries}, {revision}");
    }
    for (recoveries, revision) in [(1, 999), (0, u64::MAX)] {
        assert!(at(recoveries, revision).is_behind(Some(AT)), "{recoveries}, {revision}");
    }
    let untold = Desired { at: None, ..good() };
    assert!(untold.is_behind(Some(AT)) && !untold.is_behind(None) && !good().is_behind(None));
}

/// Proves: S14
#[test]
fn an_older_look_says_nothing_else_of_the_part_in_etcd() {
    let voter = Desired { etcd: EtcdPart::Voter, ..good() };
    let older = |desired: Desired| Desired { look: Some(Look { applied: LOOK.applied - 1, ..LOOK }), ..desired };
    let at = |recoveries| Some(StateVersion { recoveries, ..AT });
    assert!(older(good()).looked_before(&voter), "a learner that votes by now");
    assert!(Desired { look: None, ..good() }.looked_before(&voter));
    assert!(older(voter.clone().as_node()).looked_before(&voter));
    assert!(older(Desired { at: at(1), ..good() }).looked_before(&Desired { at: at(1), ..voter.clone() }));
    assert!(!older(Desired { at: at(2), ..good() }).looked_before(&voter), "a recovery begins another log");
    assert!(!older(Desired { shares: DesiredShares::default(), ..good() }).looked_before(&good()), "of something else");
    assert!(!good().looked_before(&voter) && !good().looked_before(&Desired { look: None, ..voter }), "a younger one");
}

#[test]
fn every_field_but_the_version_is_part_of_what_it_says() {
    let same = Desired { at: None, look: None, ..good() };
    assert!(same.says_the_same(&good()));
    let others: [fn(&mut Desired); 9] = [
        |it| it.standing = Standing::Member,
        |it| {
            let (ip, role) = (it.assignment.vpn_ip(), it.assignment.role());
            it.assignment = Assignment::new(ip, role, [].into(), None).expect("they fit");
        },
        |it| it.prefixes.services = POD_PREFIX,
        |it| it.coordinators.clear(),
        |it| it.etcd = EtcdPart::Voter,
        |it| it.shares.next = None,
        |it| it.owners.clear(),
        |it| it.level = Level::Insecure,
        |it| it.cold_start = ColdStart::Automatic,
    ];
    for (at, edit) in others.into_iter().enumerate() {
        let mut other = good();
        edit(&mut other);
        assert!(!other.says_the_same(&good()) && !good().says_the_same(&other), "field {at}");
    }
}

proptest! {
    #[test]
    fn damage_is_refused_or_means_the_same_when_written_again(at: prop::sample::Index, byte: u8, insert: bool) {
        let mut bytes = good().encode();
        let at = at.index(bytes.len());
        if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
        if let Ok(read) = Desired::decode(&bytes) {
            prop_assert_eq!(Desired::decode(&read.encode()), Ok(read));
        }
    }
}
