//! Requests to redeem against what strangers send: every refusal has its own message, whatever is signed.

use std::collections::HashSet;
use std::ops::Range;

use keys::identity::SigningKey;
use model::{Chain, ClusterId, Secret};

use super::*;
use crate::fixture::{self, OWNER, key};

const EXPORTER: [u8; 32] = [0xe0; 32];

fn ticket(n: u8) -> Ticket {
    Ticket {
        cluster: ClusterId([0xc1; 16]),
        ca_spki: [0xca; 32],
        coordinator_public_endpoints: vec![Endpoint::read("192.0.2.1:7836").expect("an endpoint")],
        key: SigningKey::from_seed(Secret::take(&mut [n; 32])),
        not_after: 0,
        machine: None,
    }
}

fn good() -> RedeemBody {
    fixture::body(1, 5)
}

/// A good body, edited and then signed by its ticket.
fn edited(edit: impl FnOnce(&mut BodyWire)) -> Vec<u8> {
    let mut wire = good().to_wire();
    edit(&mut wire);
    sign(wire.encode_to_vec(), &ticket(1), &EXPORTER)
}

/// A good body with bytes appended, signed by its ticket.
fn appended(bytes: &[u8]) -> Vec<u8> {
    sign([&good().to_wire().encode_to_vec(), bytes].concat(), &ticket(1), &EXPORTER)
}

/// Where the good body's fields lie.
const OWNER_AT: Range<usize> = 36..70;
const VPN_KEY_AT: Range<usize> = 70..104;
const DISK_AT: Range<usize> = 104..122;
const LEVEL_AT: Range<usize> = 122..124;
const CLASS_AT: Range<usize> = 124..126;
const RELEASE_AT: Range<usize> = 126..133;
const ROOT_AT: Range<usize> = 133..167;

/// A good body with other bytes instead of one of its fields, signed by its ticket.
fn replaced(field: Range<usize>, bytes: &[u8]) -> Vec<u8> {
    let mut body = good().to_wire().encode_to_vec();
    body.splice(field, bytes.iter().copied());
    sign(body, &ticket(1), &EXPORTER)
}

/// A good request of a machine that names one more endpoint.
fn naming(endpoint: &str) -> Vec<u8> {
    edited(|it| it.public_endpoints.push(endpoint.to_owned()))
}

/// A good request of a machine that runs this.
fn running(release: &str) -> Vec<u8> {
    edited(|it| it.release = release.to_owned())
}

/// A good request with its envelope edited, not signed again.
fn envelope(edit: impl FnOnce(&mut RequestWire)) -> Vec<u8> {
    let mut request = RequestWire::decode(good().sign(&ticket(1), &EXPORTER).as_slice()).expect("our own");
    edit(&mut request);
    request.encode_to_vec()
}

/// Proves: S3 S4
#[test]
fn every_malformed_request_is_refused_with_its_own_message() {
    let whole = good().sign(&ticket(1), &EXPORTER);
    let unsigned = " is not signed by the ticket it names on this connection";
    let body = "'s body cannot be used: ";
    let shape = "'s body cannot be used: it is malformed: ";
    let name = format!("{body}its name cannot be used: a node name is 1 to 63 of a-z, 0-9 and inner hyphens");
    let release = format!("{body}its release cannot be read: a release is three numbers: 1.2.3");
    let rows: Vec<(&str, Vec<u8>, String)> = vec![
        // the envelope
        ("nothing", vec![], " is malformed: RedeemRequest is empty".into()),
        ("zeros", vec![0; 64], " is malformed: RedeemRequest has an unknown field 0".into()),
        (
            "a browser's",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            " is malformed: RedeemRequest has an unknown field 8".into(),
        ),
        ("too much", vec![0; MOST_REQUEST_BYTES + 1], " has 8193 bytes, at most 8192 are read".into()),
        ("cut", whole[..whole.len() - 1].to_vec(), " is malformed: RedeemRequest ends in the middle of a field".into()),
        ("two", [&whole[..], &whole].concat(), " is malformed: field body of RedeemRequest occurs twice".into()),
        ("trailing", [&whole[..], &[0x18, 0]].concat(), " is malformed: RedeemRequest has an unknown field 3".into()),
        (
            "a length beyond any memory",
            [&[0x0a][..], &[0xff; 9], &[1]].concat(),
            " is malformed: RedeemRequest ends in the middle of a field".into(),
        ),
        (
            "an overlong length",
            vec![0x0a, 0x81, 0x00, 1],
            " is malformed: RedeemRequest holds an overlong number".into(),
        ),
        (
            "a number for the body",
            vec![0x08, 1],
            " is malformed: field body of RedeemRequest has the wrong wire type".into(),
        ),
        ("no body", whole[whole.len() - 66..].to_vec(), " is malformed: RedeemRequest lacks field body".into()),
        (
            "no signature",
            whole[..whole.len() - 66].to_vec(),
            " is malformed: RedeemRequest lacks field signature".into(),
        ),
        (
            "two signatures",
            [&whole[..], &[0x12, 0]].concat(),
            " is malformed: field signature of RedeemRequest occurs twice".into(),
        ),
        ("a short one", envelope(|it| it.signature.truncate(63)), "'s signature has 63 bytes instead of 64".into()),
        ("a long one", envelope(|it| it.signature.push(0)), "'s signature has 65 bytes instead of 64".into()),
        // who signed
        ("a changed signature", envelope(|it| it.signature[5] ^= 1), unsigned.into()),
        ("a changed body", envelope(|it| *it.body.last_mut().expect("a body") ^= 1), unsigned.into()),
        ("another ticket's", good().sign(&ticket(2), &EXPORTER), unsigned.into()),
        ("another connection's", good().sign(&ticket(1), &[0xe1; 32]), unsigned.into()),
        ("another ticket named", edited(|it| it.ticket_public_key = vec![2; 32]), unsigned.into()),
        // the body's shape
        ("an empty body", sign(vec![], &ticket(1), &EXPORTER), format!("{shape}RedeemBody is empty")),
        ("version 0", edited(|it| it.version = 0), format!("{body}it has the unknown version 0")),
        ("a newer one", edited(|it| it.version = 2), format!("{body}it was written by a newer Cairn (version 2)")),
        (
            "a newer one with newer fields",
            sign(vec![8, 3, 0x7a, 1, 1], &ticket(1), &EXPORTER),
            format!("{body}it was written by a newer Cairn (version 3)"),
        ),
        (
            "a newer one, by 32 bits this one",
            replaced(0..2, &[8, 0x81, 0x80, 0x80, 0x80, 0x10]),
            format!("{body}it was written by a newer Cairn (version 4294967297)"),
        ),
        ("no version", replaced(0..2, &[]), format!("{shape}RedeemBody lacks field version")),
        (
            "only a version",
            sign(vec![8, 1], &ticket(1), &EXPORTER),
            format!("{shape}RedeemBody lacks field ticket_public_key"),
        ),
        ("no owner key", replaced(OWNER_AT, &[]), format!("{shape}RedeemBody lacks field owner_public_key")),
        ("no VPN key", replaced(VPN_KEY_AT, &[]), format!("{shape}RedeemBody lacks field vpn_public_key")),
        ("no disk", replaced(DISK_AT, &[]), format!("{shape}RedeemBody lacks field disk_uuid")),
        ("no boot class", replaced(CLASS_AT, &[]), format!("{shape}RedeemBody lacks field boot_class")),
        ("no release", replaced(RELEASE_AT, &[]), format!("{shape}RedeemBody lacks field release")),
        ("no root hash", replaced(ROOT_AT, &[]), format!("{shape}RedeemBody lacks field root_hash")),
        (
            "a cut body",
            sign(good().to_wire().encode_to_vec()[..90].to_vec(), &ticket(1), &EXPORTER),
            format!("{shape}RedeemBody ends in the middle of a field"),
        ),
        ("an unknown field", appended(&[0x6a, 0]), format!("{shape}RedeemBody has an unknown field 13")),
        ("a second name", appended(&[0x62, 0, 0x62, 0]), format!("{shape}field node_name of RedeemBody occurs twice")),
        ("a second disk", appended(&[0x2a, 0]), format!("{shape}field disk_uuid of RedeemBody occurs twice")),
        ("overlong", appended(&[0xb0, 0x00, 1]), format!("{shape}RedeemBody holds an overlong number")),
        ("no UTF-8", appended(&[0x62, 1, 0xff]), format!("{shape}field node_name of RedeemBody is not UTF-8")),
        ("a number", appended(&[0x60, 1]), format!("{shape}field node_name of RedeemBody has the wrong wire type")),
        (
            "a text for the level",
            replaced(LEVEL_AT, &[0x32, 1, b'2']),
            format!("{shape}field level of RedeemBody has the wrong wire type"),
        ),
        (
            "a level that is one by 32 bits",
            replaced(LEVEL_AT, &[0x30, 0x82, 0x80, 0x80, 0x80, 0x10]),
            format!("{shape}field level of RedeemBody is out of range"),
        ),
        // what it says
        (
            "a short ticket key",
            edited(|it| it.ticket_public_key.truncate(31)),
            format!("{body}its ticket key has 31 bytes instead of 32"),
        ),
        (
            "a short owner key",
            edited(|it| it.owner_public_key.truncate(31)),
            format!("{body}its owner key has 31 bytes instead of 32"),
        ),
        (
            "a long VPN key",
            edited(|it| it.vpn_public_key.push(1)),
            format!("{body}its VPN key has 33 bytes instead of 32"),
        ),
        ("a zero VPN key", edited(|it| it.vpn_public_key.fill(0)), format!("{body}its VPN key is no usable key")),
        (
            "a VPN key of small order",
            edited(|it| it.vpn_public_key = [&[1][..], &[0; 31]].concat()),
            format!("{body}its VPN key is no usable key"),
        ),
        (
            "a short disk UUID",
            edited(|it| it.disk_uuid.truncate(15)),
            format!("{body}its disk UUID has 15 bytes instead of 16"),
        ),
        ("level 0", edited(|it| it.level = 0), format!("{body}its level is the unknown number 0")),
        ("an unknown level", edited(|it| it.level = 9), format!("{body}its level is the unknown number 9")),
        ("boot class 0", edited(|it| it.boot_class = 0), format!("{body}its boot class is the unknown number 0")),
        ("an unknown class", edited(|it| it.boot_class = 7), format!("{body}its boot class is the unknown number 7")),
        ("a release of two numbers", running("0.2"), release.clone()),
        ("a release of four numbers", running("0.2.1.0"), release.clone()),
        ("a release with a zero in front", running("0.02.1"), release.clone()),
        ("a release beyond 32 bits", running("0.4294967296.1"), release.clone()),
        ("a release and its profile", running("0.2.1+debug"), release),
        (
            "a short root hash",
            edited(|it| it.root_hash.clear()),
            format!("{body}its root hash has 0 bytes instead of 32"),
        ),
        (
            "a short storage key's name",
            edited(|it| it.storage_key_name = Some(vec![0; 32])),
            format!("{body}its storage key's name has 32 bytes instead of 34"),
        ),
        (
            "an empty storage key's name",
            edited(|it| it.storage_key_name = Some(vec![])),
            format!("{body}its storage key's name has 0 bytes instead of 34"),
        ),
        ("a port of 0", naming("a:0"), format!("{body}its endpoints cannot be used: an endpoint's port is 1 to 65535")),
        (
            "no port",
            naming("192.0.2.9"),
            format!("{body}its endpoints cannot be used: an endpoint is a host and a port: host:port"),
        ),
        (
            "an address that is none",
            naming("192.0.2.256:7836"),
            format!(
                "{body}its endpoints cannot be used: an endpoint's host is a name in lower case, an IPv4 address, or \
                 an IPv6 address in brackets"
            ),
        ),
        (
            "an endpoint twice",
            edited(|it| it.public_endpoints = vec!["a:1".into(); 2]),
            format!("{body}its endpoints cannot be used: an endpoint is named twice"),
        ),
        (
            "nine endpoints",
            edited(|it| it.public_endpoints = (1..=9).map(|port| format!("a:{port}")).collect()),
            format!("{body}its endpoints cannot be used: at most 8 endpoints are named, not 9"),
        ),
        ("an empty name", edited(|it| it.node_name = Some(String::new())), name.clone()),
        ("a name in capitals", edited(|it| it.node_name = Some("One".into())), name.clone()),
        ("a long name", edited(|it| it.node_name = Some("a".repeat(64))), name),
        (
            "a derived name",
            edited(|it| it.node_name = Some("m-0123456789ab".into())),
            format!(
                "{body}its name cannot be used: names of the form m- and 12 hex digits are kept for names derived from \
                 the machine's id"
            ),
        ),
    ];
    for (what, bytes, message) in &rows {
        let error = RedeemRequest::verify(bytes, key(5), &EXPORTER).map(|_| ()).expect_err(what);
        assert_eq!(Chain(&error).to_string(), format!("the request{message}"), "{what}");
    }
    let distinct: HashSet<_> = rows.iter().map(|(_, bytes, _)| bytes).collect();
    assert_eq!(distinct.len(), rows.len(), "each row is another request");
    assert!(rows.len() >= 50);
}

/// Proves: S4
#[test]
fn a_signed_request_reads_as_it_was_written() {
    let named = RedeemBody {
        node_name: Some(NodeName::chosen("one").expect("a name")),
        endpoints: vec![Endpoint::read("192.0.2.9:7836").expect("an endpoint")],
        storage_key_name: None,
        owner: OWNER,
        ..good()
    };
    for body in [good(), named] {
        let taken = RedeemRequest::verify(&body.sign(&ticket(1), &EXPORTER), key(5), &EXPORTER).expect("it is signed");
        assert_eq!((taken.machine(), taken.body()), (&key(5), &body));
    }
}
