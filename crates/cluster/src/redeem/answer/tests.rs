//! Answers against what a coordinator of another version, or a hostile one, may send.

use std::collections::HashSet;
use std::path::Path;

use keys::directory::{Coordinator, Directory};
use keys::identity::machine_id;
use model::{Assignment, Chain, ClusterId, ClusterRole, ColdStart, Level, Secret};

use super::*;
use crate::desired::{DesiredShares, EtcdPart};
use crate::fixture::{self, OWNER, key};
use crate::record::Standing;

/// A good answer to machine 5, whose ticket makes it a worker. Its peers are machines 1 and 2.
fn good() -> RedeemAnswer {
    let coordinators =
        vec![Coordinator { machine: machine_id(&key(1).0), endpoints: vec!["192.0.2.1:7836".to_owned()] }];
    let directory = Directory { cluster: ClusterId([0xc1; 16]), version: 9, coordinators };
    let record = fixture::machine(5);
    let assignment = Assignment::new(record.vpn_ip, ClusterRole::Node, record.kubernetes, record.pods);
    let cluster = fixture::cluster();
    let desired = Desired {
        at: Some(StateVersion { recoveries: 1, revision: 77 }),
        look: None,
        standing: Standing::Admitted,
        assignment: assignment.expect("they fit"),
        prefixes: cluster.prefixes,
        coordinators: [].into(),
        etcd: EtcdPart::Out,
        shares: DesiredShares::default(),
        owners: cluster.owners,
        level: Level::Encrypted,
        cold_start: ColdStart::Automatic,
    };
    RedeemAnswer {
        time: fixture::NOW,
        certificate: b"machine certificate".to_vec(),
        ca_certificate: b"CA certificate".to_vec(),
        desired,
        node_name: NodeName::chosen("five").expect("a name"),
        key_generation: 1,
        cluster_key: ClusterKey(Secret::take(&mut [0x20; 32])),
        directory: directory.unsigned().signed(b"signature".to_vec()),
        peers: [1, 2].map(|n| Peer::of(&fixture::machine(n))).to_vec(),
    }
}

/// A good answer, edited.
fn edited(edit: impl FnOnce(&mut ResponseWire)) -> Vec<u8> {
    let mut wire = good().to_wire();
    edit(&mut wire);
    wire.encode_to_vec()
}

/// The same as values: what no coordinator of ours would say.
fn said(edit: impl FnOnce(&mut RedeemAnswer)) -> Vec<u8> {
    let mut answer = good();
    edit(&mut answer);
    answer.encode().to_vec()
}

#[test]
fn an_answer_reads_as_it_was_written_and_has_its_known_bytes() {
    let lone = said(|it| {
        it.peers.clear();
        let assignment = Assignment::new([10, 118, 0, 9].into(), ClusterRole::Node, [].into(), None);
        it.desired.assignment = assignment.expect("they fit");
    });
    let bytes = good().encode();
    for bytes in [lone.as_slice(), &bytes] {
        let read = RedeemAnswer::decode(bytes).expect("it is good");
        assert_eq!(read.encode().as_slice(), bytes);
    }
    let read = RedeemAnswer::decode(&bytes).expect("it is good");
    assert_eq!((&read.desired, read.version()), (&good().desired, StateVersion { recoveries: 1, revision: 77 }));
    assert_eq!(read.cluster_key.expose(), &[0x20; 32]);
    assert_eq!((read.peers, read.directory), (good().peers, good().directory));

    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: Vec<_> = hex.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    let text = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/redeem-response.hex");
    if std::env::var_os("CAIRN_BLESS").is_some() {
        std::fs::write(&path, &text).expect("golden files can be written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is committed");
    assert_eq!(text, golden, "a format is changed in FORMATS.md, the code and here in one step");
}

#[test]
fn the_largest_answer_is_read_and_shows_no_key() {
    let endpoint = |n: u16| {
        let text = format!("[2001:db8:1111:2222:3333:4444:5555:6666]:{}", 60_000 + n);
        keys::endpoint::Endpoint::read(&text).expect("an endpoint")
    };
    let peer = |n: u8| Peer {
        vpn_ip: [10, 118, 1, n].into(),
        endpoints: (0..8).map(endpoint).collect(),
        ..Peer::of(&fixture::machine(n))
    };
    let answer = RedeemAnswer {
        peers: (1..=64).map(peer).collect(),
        directory: vec![1; keys::two_slot::SLOT_BYTES],
        certificate: vec![1; MOST_CERTIFICATE_BYTES],
        ca_certificate: vec![1; MOST_CERTIFICATE_BYTES],
        desired: Desired {
            owners: (1..=16).map(|n| fixture::owner(model::OwnerPubKey([n; 32]))).collect(),
            ..good().desired
        },
        ..good()
    };
    let bytes = answer.encode();
    assert!(bytes.len() <= MOST_ANSWER_BYTES, "{} bytes", bytes.len());
    RedeemAnswer::decode(&bytes).expect("it is good");
    assert!(format!("{answer:?} {:?}", answer.to_wire()).contains("Secret(32 bytes)"));
    assert!(!format!("{answer:?} {:?}", answer.to_wire()).contains("32, 32, 32"));
}

/// Proves: S3
#[test]
fn every_malformed_answer_is_refused_with_its_own_message() {
    let whole = good().encode();
    let appended = |bytes: &[u8]| [&whole[..], bytes].concat();
    let peer = |n: u8| Peer::of(&fixture::machine(n)).to_wire();
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", vec![], "it is malformed: RedeemResponse is empty"),
        ("zeros", vec![0; 64], "it is malformed: RedeemResponse has an unknown field 0"),
        ("too much", vec![0; MOST_ANSWER_BYTES + 1], "it has 262145 bytes, at most 262144 are read"),
        ("cut", whole[..whole.len() - 1].to_vec(), "it is malformed: RedeemResponse ends in the middle of a field"),
        ("two", appended(&whole), "it is malformed: field version of RedeemResponse occurs twice"),
        ("an unknown field", appended(&[0x58, 0]), "it is malformed: RedeemResponse has an unknown field 11"),
        ("a second time", appended(&[0x10, 1]), "it is malformed: field time of RedeemResponse occurs twice"),
        ("a second key", appended(&[0x42, 0]), "it is malformed: field cluster_key of RedeemResponse occurs twice"),
        ("version 0", edited(|it| it.version = 0), "it has the unknown version 0"),
        ("a newer one", edited(|it| it.version = 2), "it was written by a newer Cairn (version 2)"),
        ("a newer one with newer fields", vec![8, 3, 0x92, 1, 1, 7], "it was written by a newer Cairn (version 3)"),
        ("only a version", vec![8, 1], "it is malformed: RedeemResponse lacks field time"),
        (
            "no certificate",
            edited(|it| it.machine_certificate.clear()),
            "its machine certificate has no size that a certificate has",
        ),
        (
            "a large one",
            edited(|it| it.ca_certificate = vec![1; 4097]),
            "its CA certificate has no size that a certificate has",
        ),
        ("no desired state", edited(|it| it.desired.clear()), "it is malformed: Desired is empty"),
        ("a newer one", edited(|it| it.desired[1] = 2), "it was written by a newer Cairn (version 2)"),
        ("no owner", said(|it| it.desired.owners.clear()), "it contradicts itself: a cluster has 1 to 16 owners"),
        (
            "an owner twice",
            said(|it| it.desired.owners.push(fixture::owner(OWNER))),
            "it contradicts itself: an owner is named twice",
        ),
        (
            "no version",
            said(|it| it.desired.at = None),
            "it contradicts itself: it is made from some version of the records",
        ),
        (
            "a name in capitals",
            edited(|it| it.node_name = "Five".into()),
            "its name cannot be used: a node name is 1 to 63 of a-z, 0-9 and inner hyphens",
        ),
        ("key generation 0", said(|it| it.key_generation = 0), "it contradicts itself: key generations count from 1"),
        ("a short cluster key", edited(|it| it.cluster_key.truncate(31)), "its cluster key has 31 bytes instead of 32"),
        (
            "no directory",
            said(|it| it.directory.clear()),
            "it contradicts itself: there is no cluster without a directory",
        ),
        ("a short peer", edited(|it| it.peers[1].machine_id.truncate(15)), "its peer's id has 15 bytes instead of 16"),
        ("a peer's zero key", edited(|it| it.peers[1].vpn_public_key.fill(0)), "its peer's VPN key is no usable key"),
        (
            "a peer's port of 0",
            edited(|it| it.peers[0].endpoints.push("a:0".into())),
            "its endpoints cannot be used: an endpoint's port is 1 to 65535",
        ),
        (
            "a peer elsewhere",
            said(|it| it.peers[0].vpn_ip = [192, 0, 2, 1].into()),
            "it contradicts itself: a peer's address is one of the VPN prefix",
        ),
        (
            "a peer at the machine's address",
            said(|it| it.peers[0].vpn_ip = it.desired.assignment.vpn_ip()),
            "it contradicts itself: no peer has the machine's own address",
        ),
        (
            "a peer twice",
            edited(|it| it.peers.push(peer(1))),
            "it contradicts itself: no two peers are one machine, or share a key or an address",
        ),
        (
            "two peers at one address",
            said(|it| it.peers[0].vpn_ip = it.peers[1].vpn_ip),
            "it contradicts itself: no two peers are one machine, or share a key or an address",
        ),
        (
            "65 peers",
            edited(|it| it.peers = (10..75).map(peer).collect()),
            "it contradicts itself: it names at most 64 peers",
        ),
    ];
    for (what, bytes, message) in &rows {
        let error = RedeemAnswer::decode(bytes).map(|_| ()).expect_err(what);
        assert_eq!(Chain(&error).to_string(), *message, "{what}");
    }
    let distinct: HashSet<_> = rows.iter().map(|(_, bytes, _)| bytes).collect();
    assert_eq!(distinct.len(), rows.len(), "each row is another answer");
    assert!(rows.len() >= 25);
}
