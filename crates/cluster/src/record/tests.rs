//! Records against other versions and against damage: each refusal has its own message.

use std::collections::BTreeSet;

use formats::strict::FormatError;
use keys::cold_start::Epoch;
use model::{Chain, ClusterRole, KubernetesRole, MirrorUrl, NodeName, RegistryHost};
use proptest::prelude::*;

use super::*;
use crate::fixture;

fn epoch(number: u32, holders: u8) -> Epoch {
    Epoch::new(number, (1..=holders).map(|n| MachineId([n; 16])).collect()).expect("an epoch")
}

fn epochs() -> ColdStartEpochs {
    let next = NextEpoch { epoch: epoch(2, 3), acknowledged: [MachineId([1; 16])].into() };
    ColdStartEpochs { current: Some(epoch(1, 1)), next: Some(next) }
}

fn restore() -> RestoreRecord {
    RestoreRecord { machine: MachineId([1; 16]), hash: [7; 32], stopped: [MachineId([2; 16])].into() }
}

/// Reads a record and writes it again.
type Again = fn(&[u8]) -> Result<Vec<u8>, BadRecord>;

/// Every kind of record: its name and its bytes.
fn samples() -> Vec<(&'static str, Vec<u8>, Again)> {
    vec![
        ("Changes", ChangeCount(7).encode(), |bytes| ChangeCount::decode(bytes).map(ChangeCount::encode)),
        ("Holder", HolderRecord(MachineId([1; 16])).encode(), |bytes| {
            HolderRecord::decode(bytes).map(HolderRecord::encode)
        }),
        ("Cluster", fixture::cluster().encode(), |bytes| Cluster::decode(bytes).map(|it| it.encode())),
        ("Machine", fixture::machine(1).encode(), |bytes| MachineRecord::decode(bytes).map(|it| it.encode())),
        ("Ticket", fixture::ticket(1).encode(), |bytes| TicketRecord::decode(bytes).map(|it| it.encode())),
        ("Registry", fixture::registry(1, 2).encode(), |bytes| RegistryRecord::decode(bytes).map(|it| it.encode())),
        ("User", fixture::user("alice", 1).encode(), |bytes| UserRecord::decode(bytes).map(|it| it.encode())),
        ("Publish", fixture::published(1).encode(), |bytes| PublishRecord::decode(bytes).map(|it| it.encode())),
        ("Restore", restore().encode(), |bytes| RestoreRecord::decode(bytes).map(|it| it.encode())),
        ("ColdStart", epochs().encode(), |bytes| ColdStartEpochs::decode(bytes).map(|it| it.encode())),
    ]
}

#[test]
fn every_record_is_read_as_written_and_nothing_else_is() {
    for (name, bytes, again) in samples() {
        assert_eq!(again(&bytes).as_ref(), Ok(&bytes), "{name}");
        let refused = |bytes: &[u8]| again(bytes).expect_err(name);
        assert_eq!(refused(&[]), BadRecord::Malformed(FormatError::Empty(name)));
        assert_eq!(refused(&[&[8, 0], &bytes[2..]].concat()), BadRecord::Version, "{name}");
        assert_eq!(refused(&[&[8, 2], &bytes[2..]].concat()), BadRecord::Newer(2), "{name}");
        assert_eq!(refused(&[8, 3, 0x7a, 1, 1]), BadRecord::Newer(3), "{name}: with fields of its own");
        assert!(matches!(refused(&bytes[2..]), BadRecord::Malformed(FormatError::Missing { field: "version", .. })));
        let unknown = BadRecord::Malformed(FormatError::Unknown { message: name, number: 99 });
        assert_eq!(refused(&[&bytes[..], &[0x98, 0x06, 0]].concat()), unknown);
        assert!(refused(&[&bytes[..], &bytes].concat()).to_string() == "it is malformed", "{name} twice");
        assert!(again(&bytes[..bytes.len() - 1]).is_err(), "{name} cut");
        let too_large = BadRecord::TooLarge { found: MOST_RECORD_BYTES + 1, most: MOST_RECORD_BYTES };
        assert_eq!(refused(&[0; MOST_RECORD_BYTES + 1]), too_large);
    }
}

fn machine(edit: impl FnOnce(&mut MachineRecord)) -> Result<(), String> {
    let mut record = fixture::machine(1);
    edit(&mut record);
    MachineRecord::decode(&record.encode()).map(|_| ()).map_err(|error| Chain(&error).to_string())
}

fn ticket(edit: impl FnOnce(&mut TicketRecord)) -> Result<(), String> {
    let mut record = fixture::ticket(1);
    edit(&mut record);
    TicketRecord::decode(&record.encode()).map(|_| ()).map_err(|error| Chain(&error).to_string())
}

fn cluster(edit: impl FnOnce(&mut Cluster)) -> Result<(), String> {
    let mut record = fixture::cluster();
    edit(&mut record);
    Cluster::decode(&record.encode()).map(|_| ()).map_err(|error| Chain(&error).to_string())
}

/// Proves: H3
#[test]
fn a_cluster_keeps_the_prefixes_that_were_chosen() {
    let [pods, services] = ["172.29.0.0/16", "172.30.0.0/20"].map(|prefix| prefix.parse().expect("a prefix"));
    let usual = fixture::cluster();
    let prefixes = model::Prefixes { pods, services, ..usual.prefixes };
    for cluster in [Cluster { prefixes, ..usual.clone() }, usual] {
        assert_eq!(Cluster::decode(&cluster.encode()), Ok(cluster));
    }
}

fn cold_start(edit: impl FnOnce(&mut ColdStartEpochs)) -> Result<(), String> {
    let mut record = epochs();
    edit(&mut record);
    ColdStartEpochs::decode(&record.encode()).map(|_| ()).map_err(|error| Chain(&error).to_string())
}

#[test]
fn a_record_that_contradicts_itself_is_refused() {
    let name = || NodeName::chosen("one").expect("a name");
    let control_plane = BTreeSet::from([KubernetesRole::ControlPlane]);
    for (result, message) in [
        (machine(|it| it.pods = None), "it contradicts itself: a worker has a pod prefix"),
        (machine(|it| it.kubernetes = BTreeSet::new()), "it contradicts itself: who is no worker has no pod prefix"),
        (
            machine(|it| it.standing = Standing::Removed),
            "it contradicts itself: who is removed has a time of it, and nobody else",
        ),
        (
            machine(|it| it.times.removed = Some(fixture::NOW)),
            "it contradicts itself: who is removed has a time of it, and nobody else",
        ),
        (machine(|it| it.times.member = None), "it contradicts itself: a member has been one since a time"),
        (machine(|it| it.standing = Standing::Admitted), "it contradicts itself: who is Admitted was no member yet"),
        (
            machine(|it| it.awaits_approval = true),
            "it contradicts itself: who waits to be a coordinator is a node, and not removed",
        ),
        (machine(|it| it.generations = Generations::One(0)), "it contradicts itself: key generations count from 1"),
        (
            machine(|it| it.generations = Generations::Rotating(0)),
            "it contradicts itself: key generations count from 1",
        ),
        (
            machine(|it| it.generations = Generations::Rotating(u32::MAX)),
            "it contradicts itself: key generations count from 1",
        ),
        (
            machine(|it| (it.role, it.kubernetes) = (ClusterRole::Node, control_plane)),
            "its roles make no sense: a Kubernetes control plane on a machine that is no coordinator",
        ),
        (ticket(|it| it.uses = 0), "it contradicts itself: it has no use, or is used more often than it may be"),
        (ticket(|it| it.used = 2), "it contradicts itself: it has no use, or is used more often than it may be"),
        (
            ticket(|it| (it.uses, it.node_name) = (2, Some(name()))),
            "it contradicts itself: it has several uses, and is for one machine",
        ),
        (
            ticket(|it| (it.uses, it.machine) = (2, Some(fixture::key(3)))),
            "it contradicts itself: it has several uses, and is for one machine",
        ),
        (cluster(|it| it.owners.clear()), "it contradicts itself: a cluster has 1 to 16 owners"),
        (cluster(|it| it.owners.push(it.owners[0].clone())), "it contradicts itself: an owner is named twice"),
        (
            cluster(|it| it.prefixes.services = it.prefixes.pods),
            "its prefixes cannot be used: 10.244.0.0/16, the prefix of pods, overlaps 10.244.0.0/16, which is kept for services",
        ),
        (
            cluster(|it| it.prefixes.vpn = "10.0.0.0/25".parse().expect("a prefix")),
            "its prefixes cannot be used: the prefix of the VPN has 8 to 24 bits, not 25",
        ),
        (
            cold_start(|it| it.next.as_mut().expect("one").epoch = epoch(1, 3)),
            "it contradicts itself: the next epoch is not behind the current one",
        ),
        (
            cold_start(|it| it.next.as_mut().expect("one").acknowledged = [MachineId([9; 16])].into()),
            "it contradicts itself: an epoch is acknowledged by who does not hold it",
        ),
        (
            cold_start(|it| it.next.as_mut().expect("one").epoch = epoch(2, 1)),
            "it contradicts itself: the next epoch is acknowledged by all its holders",
        ),
    ] {
        assert_eq!(result, Err(message.to_owned()));
    }
}

#[test]
fn an_epoch_has_a_number_and_holders_each_once_and_in_order() {
    // The current epoch's number, its one holder's id, and an acknowledgement of nothing.
    let current = |number: u8, holders: &[u8]| {
        let ids: Vec<u8> = holders.iter().flat_map(|id| [&[0x12, 16][..], &[*id; 16]].concat()).collect();
        let epoch = [&[8, number][..], &ids].concat();
        let length = u8::try_from(epoch.len()).expect("short");
        let bytes = [&[8, 1, 0x12, length][..], &epoch].concat();
        ColdStartEpochs::decode(&bytes).map(|it| it.current).map_err(|error| Chain(&error).to_string())
    };
    assert_eq!(current(1, &[1]), Ok(Some(epoch(1, 1))));
    let senseless = |why: &str| Err(format!("its epoch makes no sense: {why}"));
    assert_eq!(current(0, &[1]), senseless("an epoch's number is 1 or more"));
    assert_eq!(current(1, &[]), senseless("an epoch has 1 to 7 holders, not 0"));
    for twice in [[1, 1], [2, 1]] {
        let out_of_order = Err("it contradicts itself: machines are not each once and in order".to_owned());
        assert_eq!(current(1, &twice), out_of_order);
    }
    let of_nothing = [&[8, 1, 0x22, 16][..], &[1; 16]].concat();
    let refused = ColdStartEpochs::decode(&of_nothing).map_err(|error| error.to_string());
    assert_eq!(refused, Err("it contradicts itself: an epoch is acknowledged that is not being made".to_owned()));
}

#[test]
fn a_release_is_compared_number_by_number_and_spelled_one_way() {
    assert_eq!(Release::read("0.10.2"), Ok(Release(0, 10, 2)));
    assert!(Release(0, 9, 9) < Release(0, 10, 0) && Release(0, 10, 0) < Release(1, 0, 0));
    for bad in ["", "1", "1.2", "1.2.3.4", "1.2.x", "01.2.3", "+1.2.3", "1.2.3-debug", "1.2.4294967296"] {
        assert_eq!(Release::read(bad), Err(BadRelease), "{bad}");
    }
}

#[test]
fn a_rotating_key_is_given_out_in_both_generations() {
    assert!(Generations::One(2).include(2) && !Generations::One(2).include(1) && !Generations::One(2).include(3));
    let rotating = Generations::Rotating(2);
    assert!(!rotating.include(1) && rotating.include(2) && rotating.include(3) && !rotating.include(4));
    assert_eq!((Generations::One(2).newest(), rotating.newest()), (2, 3));
}

proptest! {
    #[test]
    fn damage_is_refused_or_means_the_same_when_written_again(
        which in 0_usize..6, at: prop::sample::Index, byte: u8, insert: bool,
    ) {
        let (name, mut bytes, again) = samples().swap_remove(which);
        let at = at.index(bytes.len());
        if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
        if let Ok(written) = again(&bytes) {
            prop_assert_eq!(again(&written), Ok(written), "{}", name);
        }
    }
}

/// Proves: W5
#[test]
fn a_registry_that_says_nothing_or_too_much_is_refused() {
    let host = RegistryHost::read("ghcr.io").expect("a host");
    let mirrors = |count: usize| {
        let mirror = |n| MirrorUrl::read(&format!("https://m{n}.example.org")).expect("a URL");
        (0..count).map(mirror).collect::<Vec<_>>()
    };
    let new = |mirrors, authorities| RegistryRecord::new(host, mirrors, authorities);
    assert_eq!(new(vec![], vec![]), Err(BadRegistry::Nothing));
    assert_eq!(new(mirrors(MOST_MIRRORS + 1), vec![]), Err(BadRegistry::Mirrors));
    assert_eq!(new([mirrors(2), mirrors(1)].concat(), vec![]), Err(BadRegistry::Twice));
    assert_eq!(new(vec![], vec![vec![]]), Err(BadRegistry::Authorities));
    assert_eq!(new(vec![], vec![vec![1; MOST_AUTHORITIES_BYTES - 7]]), Err(BadRegistry::Authorities));
    let largest = new(mirrors(MOST_MIRRORS), vec![vec![1; MOST_AUTHORITIES_BYTES - 8]]).expect("it has room");
    assert_eq!(RegistryRecord::decode(&largest.encode()), Ok(largest));
    // One that another version wrote is judged as one of this.
    let edited = |edit: fn(&mut RegistryWire)| {
        let mut wire = fixture::registry(1, 1).to_wire();
        edit(&mut wire);
        RegistryRecord::decode(&wire.encode_to_vec())
    };
    let refused = |why| Err(BadRecord::Registry(why));
    assert_eq!(edited(|wire| wire.host.push('/')), refused(BadRegistry::Host));
    assert_eq!(edited(|wire| wire.mirrors = vec!["ghcr.io".to_owned()]), refused(BadRegistry::Mirror));
    assert_eq!(edited(|wire| wire.mirrors.push(wire.mirrors[0].clone())), refused(BadRegistry::Twice));
}
