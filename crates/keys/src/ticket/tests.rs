//! Tickets against what people, tools and attackers make of them: every refusal has its own message.

use std::collections::HashSet;
use std::ops::Range;

use model::{Chain, Secret};
use proptest::prelude::*;

use super::*;
use crate::text::TextProblem;

fn good() -> Ticket {
    Ticket {
        cluster: ClusterId([0xc1; 16]),
        ca_spki: [0xca; 32],
        coordinator_public_endpoints: ["192.0.2.1:7836", "one.example.org:7836"].map(endpoint).to_vec(),
        key: SigningKey::from_seed(Secret::take(&mut [7; 32])),
        not_after: 1_800_000_000,
        machine: None,
    }
}

fn endpoint(text: &str) -> Endpoint {
    Endpoint::read(text).expect("an endpoint")
}

/// The bytes of a good ticket, edited.
fn edited(edit: impl FnOnce(&mut TicketWire)) -> Vec<u8> {
    let mut wire = TicketWire::decode(good().encode().as_slice()).expect("our own");
    edit(&mut wire);
    wire.encode_to_vec()
}

fn appended(bytes: &[u8]) -> Vec<u8> {
    [&good().encode()[..], bytes].concat()
}

/// Where the good ticket's fields lie.
const VERSION_AT: Range<usize> = 0..2;
const CLUSTER_AT: Range<usize> = 2..20;
const PIN_AT: Range<usize> = 20..54;
const SEED_AT: Range<usize> = 92..126;
const END_AT: Range<usize> = 126..132;

/// The bytes of a good ticket with others instead of one of its fields.
fn replaced(field: Range<usize>, bytes: &[u8]) -> Vec<u8> {
    let mut ticket = good().encode().to_vec();
    ticket.splice(field, bytes.iter().copied());
    ticket
}

/// The bytes of a good ticket that names one more coordinator.
fn naming(endpoint: &str) -> Vec<u8> {
    edited(|it| it.coordinator_public_endpoints.push(endpoint.to_owned()))
}

/// Proves: S3 S4
#[test]
fn every_malformed_ticket_is_refused_with_its_own_message() {
    let whole = good().encode().to_vec();
    let host = "'s coordinators cannot be reached: an endpoint's host is a name in lower case, an IPv4 address, or an IPv6 \
                address in brackets";
    let port = "'s coordinators cannot be reached: an endpoint's port is 1 to 65535";
    let form = "'s coordinators cannot be reached: an endpoint is a host and a port: host:port";
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        // as a whole
        ("nothing", vec![], " is malformed: Ticket is empty"),
        ("zeros", vec![0; 64], " is malformed: Ticket has an unknown field 0"),
        ("text", b"cairn-ticket-".to_vec(), " is malformed: Ticket ends in the middle of a field"),
        ("cut short", whole[..whole.len() - 1].to_vec(), " is malformed: Ticket ends in the middle of a field"),
        ("two tickets", [&whole[..], &whole].concat(), " is malformed: field version of Ticket occurs twice"),
        ("too much", vec![8; MOST_TICKET_BYTES + 1], " has 4097 bytes, at most 4096 are read"),
        ("zeros behind it", appended(&[0; 2]), " is malformed: Ticket has an unknown field 0"),
        ("a newline behind it", appended(b"\n"), " is malformed: Ticket ends in the middle of a field"),
        // its fields
        ("an unknown field", appended(&[0x40, 1]), " is malformed: Ticket has an unknown field 8"),
        (
            "an unknown field, by 32 bits a known one",
            appended(&[0xb0, 0x80, 0x80, 0x80, 0x10, 1]),
            " is malformed: Ticket has an unknown field 536870918",
        ),
        ("a second seed", appended(&[0x2a, 1, 1]), " is malformed: field seed of Ticket occurs twice"),
        ("a second end", appended(&[0x30, 1]), " is malformed: field not_after of Ticket occurs twice"),
        ("a second cluster", appended(&[0x12, 0]), " is malformed: field cluster_id of Ticket occurs twice"),
        ("a second pin", appended(&[0x1a, 0]), " is malformed: field ca_spki_sha256 of Ticket occurs twice"),
        ("only a version", vec![8, 1], " is malformed: Ticket lacks field cluster_id"),
        ("no version", replaced(VERSION_AT, &[]), " is malformed: Ticket lacks field version"),
        ("no pin", replaced(PIN_AT, &[]), " is malformed: Ticket lacks field ca_spki_sha256"),
        ("no seed", replaced(SEED_AT, &[]), " is malformed: Ticket lacks field seed"),
        ("no end", replaced(END_AT, &[]), " is malformed: Ticket lacks field not_after"),
        // how they are written
        (
            "a text for the version",
            replaced(VERSION_AT, &[0x0a, 1, b'1']),
            " is malformed: field version of Ticket has the wrong wire type",
        ),
        (
            "a number for the cluster",
            replaced(CLUSTER_AT, &[0x10, 1]),
            " is malformed: field cluster_id of Ticket has the wrong wire type",
        ),
        (
            "four bytes for the pin",
            replaced(PIN_AT, &[0x1d, 1, 2, 3, 4]),
            " is malformed: field ca_spki_sha256 of Ticket has the wrong wire type",
        ),
        (
            "a number for an endpoint",
            appended(&[0x20, 1]),
            " is malformed: field coordinator_public_endpoints of Ticket has the wrong wire type",
        ),
        (
            "a group for the seed",
            replaced(SEED_AT, &[0x2b, 0x2c]),
            " is malformed: field seed of Ticket has the wrong wire type",
        ),
        (
            "eight bytes for the end",
            replaced(END_AT, &[0x31, 1, 2, 3, 4, 5, 6, 7, 8]),
            " is malformed: field not_after of Ticket has the wrong wire type",
        ),
        (
            "no UTF-8",
            appended(&[0x22, 1, 0xff]),
            " is malformed: field coordinator_public_endpoints of Ticket is not UTF-8",
        ),
        ("an overlong field number", appended(&[0xb0, 0x00, 1]), " is malformed: Ticket holds an overlong number"),
        (
            "an overlong length",
            replaced(CLUSTER_AT, &[&[0x12, 0x90, 0x00][..], &[1; 16]].concat()),
            " is malformed: Ticket holds an overlong number",
        ),
        (
            "an overlong version",
            replaced(VERSION_AT, &[8, 0x81, 0x00]),
            " is malformed: Ticket holds an overlong number",
        ),
        (
            "an end beyond 64 bits",
            replaced(END_AT, &[&[0x30][..], &[0xff; 9], &[2]].concat()),
            " is malformed: Ticket holds an overlong number",
        ),
        (
            "a length beyond any memory",
            appended(&[&[0x22][..], &[0xff; 9], &[1]].concat()),
            " is malformed: Ticket ends in the middle of a field",
        ),
        // what they say
        ("version 0", edited(|it| it.version = 0), " has the unknown version 0"),
        ("a newer version", edited(|it| it.version = 2), " was written by a newer Cairn (version 2)"),
        ("a newer one with newer fields", vec![8, 9, 0x7a, 1, 1], " was written by a newer Cairn (version 9)"),
        (
            "a newer one, by 32 bits this one",
            replaced(VERSION_AT, &[8, 0x81, 0x80, 0x80, 0x80, 0x10]),
            " was written by a newer Cairn (version 4294967297)",
        ),
        ("a short cluster id", edited(|it| it.cluster_id.truncate(15)), "'s cluster id has 15 bytes instead of 16"),
        ("a long cluster id", edited(|it| it.cluster_id.push(0)), "'s cluster id has 17 bytes instead of 16"),
        ("an empty cluster id", edited(|it| it.cluster_id.clear()), "'s cluster id has 0 bytes instead of 16"),
        ("a short pin", edited(|it| it.ca_spki_sha256.truncate(31)), "'s CA pin has 31 bytes instead of 32"),
        ("a long pin", edited(|it| it.ca_spki_sha256.push(0)), "'s CA pin has 33 bytes instead of 32"),
        ("a short seed", edited(|it| it.seed.truncate(31)), "'s seed has 31 bytes instead of 32"),
        ("a long seed", edited(|it| it.seed.push(0)), "'s seed has 33 bytes instead of 32"),
        (
            "a short machine's key",
            edited(|it| it.machine_public_key = Some(vec![1; 31])),
            "'s machine has a key of 31 bytes instead of 32",
        ),
        ("a zero seed", edited(|it| it.seed.fill(0)), "'s seed is all zeros"),
        // where it leads
        ("no endpoint", edited(|it| it.coordinator_public_endpoints.clear()), " names no coordinator"),
        (
            "nine endpoints",
            edited(|it| it.coordinator_public_endpoints = (1..=9).map(|port| format!("a:{port}")).collect()),
            "'s coordinators cannot be reached: at most 8 endpoints are named, not 9",
        ),
        (
            "an endpoint twice",
            naming("192.0.2.1:7836"),
            "'s coordinators cannot be reached: an endpoint is named twice",
        ),
        ("an empty endpoint", naming(""), form),
        ("an endpoint without a port", naming("192.0.2.2"), form),
        ("port 0", naming("192.0.2.2:0"), port),
        ("a port beyond all", naming("192.0.2.2:65536"), port),
        ("a port by its name", naming("192.0.2.2:https"), port),
        ("a space behind a port", naming("192.0.2.2:7836 "), port),
        ("a port without a host", naming(":7836"), host),
        ("a URL", naming("https://192.0.2.2:7836"), host),
        ("half an address", naming("192.0.2:7836"), host),
        ("a number too large for an address", naming("192.0.2.256:7836"), host),
        ("an IPv6 address without brackets", naming("2001:db8::1:7836"), host),
        ("an address of one link", naming("[fe80::1%eth0]:7836"), host),
        ("a name in capitals", naming("One.example.org:7836"), host),
        ("a name with its last dot", naming("one.example.org.:7836"), host),
    ];
    for (what, bytes, message) in &rows {
        let error = Ticket::decode(bytes).map(|_| ()).expect_err(what);
        assert_eq!(Chain(&error).to_string(), format!("the ticket{message}"), "{what}");
    }
    let distinct: HashSet<_> = rows.iter().map(|(_, bytes, _)| bytes).collect();
    assert_eq!(distinct.len(), rows.len(), "each row is another ticket");
    assert!(rows.len() >= 50);
}

/// Proves: S3
#[test]
fn a_text_that_was_mistyped_is_called_that() {
    let text = good().to_text();
    let letters = text.strip_prefix(TEXT_PREFIX).expect("its prefix");
    let swapped = {
        let mut swapped = letters.to_owned().into_bytes();
        let at = (1..swapped.len()).find(|at| swapped[*at] != swapped[at - 1]).expect("two letters");
        swapped.swap(at, at - 1);
        String::from_utf8(swapped).expect("letters")
    };
    let prefix = "the ticket's text has to begin with cairn-ticket-";
    let base32 = "the ticket's text is not base32 in lower case";
    let checksum = "the ticket's text was mistyped or cut: its checksum is another";
    let rows: Vec<(&str, String, &str)> = vec![
        ("nothing", String::new(), prefix),
        ("no prefix", letters.to_owned(), prefix),
        ("another prefix", format!("cairn-code-{letters}"), prefix),
        ("the prefix in capitals", format!("CAIRN-TICKET-{letters}"), prefix),
        ("a word before it", format!("ticket: {}", text.as_str()), prefix),
        ("quotes around it", format!("\"{}\"", text.as_str()), prefix),
        (
            "a megabyte",
            format!("{TEXT_PREFIX}{}", "a".repeat(1 << 20)),
            "the ticket's text has 1048576 letters, more than any",
        ),
        (
            "a letter more than the largest has",
            format!("{TEXT_PREFIX}{}", "a".repeat(6561)),
            "the ticket's text has 6561 letters, more than any",
        ),
        ("capitals", format!("{TEXT_PREFIX}{}", letters.to_uppercase()), base32),
        ("one capital", format!("{TEXT_PREFIX}{}{}", letters[..1].to_uppercase(), &letters[1..]), base32),
        ("padding", format!("{}=", text.as_str()), base32),
        ("a digit that is none", format!("{TEXT_PREFIX}1{}", &letters[1..]), base32),
        ("a letter of another alphabet", format!("{TEXT_PREFIX}ä{}", &letters[2..]), base32),
        ("a space inside", format!("{TEXT_PREFIX}{} {}", &letters[..8], &letters[8..]), base32),
        ("a line that was wrapped", format!("{TEXT_PREFIX}{}\n{}", &letters[..60], &letters[60..]), base32),
        ("twice", [text.as_str(), text.as_str()].concat(), base32),
        ("one letter more", format!("{}a", text.as_str()), base32),
        ("one letter less", text[..text.len() - 1].to_owned(), base32),
        ("bits behind the last byte", format!("{}b", &text[..text.len() - 1]), base32),
        ("the prefix alone", TEXT_PREFIX.to_owned(), "the ticket's text is cut short"),
        ("a few letters", format!("{TEXT_PREFIX}aaaa"), "the ticket's text is cut short"),
        ("two letters swapped", format!("{TEXT_PREFIX}{swapped}"), checksum),
        ("cut", text[..text.len() - 8].to_owned(), checksum),
        ("cut in front", format!("{TEXT_PREFIX}{}", &letters[8..]), checksum),
        (
            "a whole text of no ticket",
            TEXT.write(&[]).to_string(),
            "the ticket's text is whole: the ticket is malformed: Ticket is empty",
        ),
        (
            "a whole text of a newer one",
            TEXT.write(&[8, 2, 0x7a, 1, 1]).to_string(),
            "the ticket's text is whole: the ticket was written by a newer Cairn (version 2)",
        ),
    ];
    for (what, text, message) in &rows {
        let error = Ticket::from_text(text).map(|_| ()).expect_err(what);
        assert_eq!(Chain(&error).to_string(), *message, "{what}");
    }
    let distinct: HashSet<_> = rows.iter().map(|(_, text, _)| text).collect();
    assert_eq!(distinct.len(), rows.len(), "each row is another text");
}

/// Proves: S3
#[test]
fn a_ticket_reads_as_it_was_written_as_bytes_and_as_text() {
    let (written, text) = (good(), good().to_text());
    let named = Ticket { machine: Some(MachinePubKey([5; 32])), ..good() };
    assert_eq!(Ticket::from_text(&named.to_text()).expect("reads").machine, named.machine);
    for read in [
        Ticket::decode(&written.encode()).expect("reads"),
        Ticket::from_text(&text).expect("reads"),
        Ticket::from_text(&format!("\n {}\r\n", text.as_str())).expect("reads with space around it"),
    ] {
        assert_eq!((read.cluster, read.ca_spki, read.not_after), (written.cluster, written.ca_spki, written.not_after));
        assert_eq!(read.coordinator_public_endpoints, written.coordinator_public_endpoints);
        assert_eq!(read.machine, None);
        assert_eq!((read.public(), read.id()), (written.public(), written.id()));
    }
    assert!(text.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'2'..=b'7' | b'-')), "survives any terminal");
    assert_eq!(format!("{:?}", TicketWire::default()), "TicketWire");
    assert_eq!(ticket_id(&written.public()).to_string(), "2f6c27a4f60dbff465e2b6c731a5570f");
}

/// Proves: S4
#[test]
fn the_proof_holds_for_its_ticket_connection_and_body_only() {
    let ticket = good();
    let proof = ticket.prove(&[1; 32], b"body");
    assert_eq!(verify(&ticket.public(), &[1; 32], b"body", &proof), Ok(()));
    let other = TicketPubKey(SigningKey::from_seed(Secret::take(&mut [8; 32])).public());
    assert_eq!(verify(&other, &[1; 32], b"body", &proof), Err(BadSignature), "another ticket");
    assert_eq!(verify(&ticket.public(), &[2; 32], b"body", &proof), Err(BadSignature), "a relay");
    assert_eq!(verify(&ticket.public(), &[1; 32], b"bodY", &proof), Err(BadSignature), "another body");
    assert_eq!(verify(&ticket.public(), &[1; 32], b"body", &proof[..63]), Err(BadSignature), "cut short");
}

proptest! {
    #[test]
    fn any_one_letter_mistyped_is_noticed(at: prop::sample::Index, letter in "[a-z2-7]") {
        let text = good().to_text();
        let at = TEXT_PREFIX.len() + at.index(text.len() - TEXT_PREFIX.len());
        let typed = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
        prop_assert_eq!(Ticket::from_text(&typed).is_ok(), typed == *text);
    }
}

#[test]
fn the_largest_ticket_is_looked_at_and_none_that_is_larger() {
    let bytes = |more: usize| vec![0xff; MOST_TICKET_BYTES + more];
    assert!(matches!(Ticket::decode(&bytes(0)), Err(BadTicket::Malformed(_))));
    assert_eq!(Ticket::decode(&bytes(1)).map(|_| ()), Err(BadTicket::TooLarge(MOST_TICKET_BYTES + 1)));
    let letters = |count: usize| format!("{TEXT_PREFIX}{}", "a".repeat(count));
    let most = 6560;
    let refused = |count| {
        let problem = match Ticket::from_text(&letters(count)) {
            Err(BadTicketText::Text(BadText { problem, .. })) => Some(problem),
            Ok(_) | Err(BadTicketText::Ticket(_)) => None,
        };
        problem.expect("it is no text")
    };
    assert_eq!(refused(most), TextProblem::Checksum);
    assert_eq!(refused(most + 1), TextProblem::Letters(most + 1));
}
