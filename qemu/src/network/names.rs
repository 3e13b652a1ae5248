//! DNS queries into answers (RFC 1035), for the few names that a virtual network has. Pure; it asks nobody else. It answers
//! one question at a time, and must never answer an answer.

use std::net::Ipv4Addr;

use dhcp::frame::{self as datagram, Datagram};

use super::frame::Frame;

/// The header's length, and the longest a name may be (RFC 1035, sections 4.1.1 and 2.3.4).
const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: u8 = 63;
/// Types and the class of the internet.
const A: u16 = 1;
const IN: u16 = 1;
/// Bits of the header's third and fourth byte.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const AUTHORITATIVE: u8 = 0x04;
const RECURSION_DESIRED: u8 = 0x01;
/// Seconds that an answer may be kept: a lease may be another one soon.
const KEPT: u32 = 1;

/// How a query went (RFC 1035, section 4.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Answered = 0,
    Malformed = 1,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// Port of a resolver.
pub(super) const PORT: u16 = 53;

/// Takes a frame; none when it is not for a resolver whose address `is_own`. The answer is a frame, too, if there is one.
pub(super) fn handle(
    frame: &Frame,
    is_own: impl FnOnce(Ipv4Addr) -> bool,
    find: impl FnOnce(&str) -> Option<Ipv4Addr>,
) -> Option<Option<Frame>> {
    let asked = datagram::parse(frame.bytes()).ok()?;
    if asked.destination.port() != PORT || !is_own(*asked.destination.ip()) {
        return None;
    }
    Some(answer(asked.payload, find).and_then(|answer| {
        let bytes = datagram::build(&Datagram {
            source_mac: asked.destination_mac,
            destination_mac: asked.source_mac,
            source: asked.destination,
            destination: asked.source,
            payload: &answer,
        });
        Frame::parse(&bytes.ok()?).ok()
    }))
}

/// Whether an answer of [`handle`] says that there is no such name here.
pub(super) fn is_unknown(answer: &Frame) -> bool {
    let code = datagram::parse(answer.bytes()).ok().and_then(|answer| Some(answer.payload.get(3)? & 0x0f));
    code == Some(Code::NoSuchName as u8)
}

/// The answer to a query; none for what is no query at all. `find` is asked for the address of a name in small letters.
pub fn answer(query: &[u8], find: impl FnOnce(&str) -> Option<Ipv4Addr>) -> Option<Vec<u8>> {
    let header = query.first_chunk::<HEADER>().filter(|header| header[2] & RESPONSE == 0)?;
    if header[2] & OPCODE != 0 {
        return Some(reply(header, Code::NotImplemented, &[], None));
    }
    let counts = [4, 6, 8].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    // What comes behind the question says what the asker can do (EDNS), and changes nothing here.
    let Some(question) = Question::read(&query[HEADER..]).filter(|_| counts == [1, 0, 0]) else {
        return Some(reply(header, Code::Malformed, &[], None));
    };
    Some(match find(&question.name) {
        None => reply(header, Code::NoSuchName, question.bytes, None),
        Some(address) => {
            let asked = question.kind == A && question.class == IN;
            reply(header, Code::Answered, question.bytes, asked.then_some(address))
        }
    })
}

/// Question of a query, as it came.
struct Question<'a> {
    name: String,
    kind: u16,
    class: u16,
    /// All of it, as it came.
    bytes: &'a [u8],
}

impl<'a> Question<'a> {
    /// A name in labels, none of them a pointer: there is nothing before it to point at.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (mut name, mut at) = (String::new(), 0);
        loop {
            let length = *bytes.get(at)?;
            at += 1;
            if length == 0 {
                break;
            }
            let label = bytes.get(at..at + usize::from(length)).filter(|_| length <= LONGEST_LABEL)?;
            at += label.len();
            let text = str::from_utf8(label).ok().filter(|text| !text.contains('.') && at < LONGEST_NAME)?;
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&text.to_ascii_lowercase());
        }
        let [a, b, c, d] = *bytes[at..].first_chunk()?;
        let (kind, class) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Some(Self { name, kind, class, bytes: &bytes[..at + 4] })
    }
}

fn reply(query: &[u8; HEADER], code: Code, question: &[u8], address: Option<Ipv4Addr>) -> Vec<u8> {
    let flags = RESPONSE | AUTHORITATIVE | query[2] & (OPCODE | RECURSION_DESIRED);
    let (asked, answered) = (u8::from(!question.is_empty()), u8::from(address.is_some()));
    let mut bytes = vec![query[0], query[1], flags, code as u8, 0, asked, 0, answered, 0, 0, 0, 0];
    bytes.extend_from_slice(question);
    if let Some(address) = address {
        // A pointer to the question's name, which follows the header.
        bytes.extend_from_slice(&[0xc0, 12]);
        bytes.extend_from_slice(&A.to_be_bytes());
        bytes.extend_from_slice(&IN.to_be_bytes());
        bytes.extend_from_slice(&KEPT.to_be_bytes());
        bytes.extend_from_slice(&[0, 4]);
        bytes.extend_from_slice(&address.octets());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 100);

    fn query(question: &[u8]) -> Vec<u8> {
        [&[0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], question].concat()
    }

    fn asked(question: &[u8]) -> Option<Vec<u8>> {
        answer(&query(question), |name| (name == "m1" || name == "m1.cairn").then_some(ADDRESS))
    }

    /// Code of the answer, and its number of records.
    fn outcome(question: &[u8]) -> (u8, u8) {
        let answer = asked(question).unwrap();
        (answer[3], answer[7])
    }

    #[test]
    fn a_known_name_by_the_byte() {
        let question = b"\x02M1\0\0\x01\0\x01";
        #[rustfmt::skip]
        let expected = [
            &[0xab, 0xcd, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 0], &question[..],
            &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 192, 168, 7, 100],
        ].concat();
        assert_eq!(asked(question), Some(expected));
    }

    #[test]
    fn names_have_labels_and_those_that_nobody_has_are_no_names() {
        assert_eq!(outcome(b"\x02m1\x05cairn\0\0\x01\0\x01"), (0, 1));
        assert_eq!(outcome(b"\x02m2\0\0\x01\0\x01"), (3, 0));
        assert_eq!(outcome(b"\x02m1\x03org\0\0\x01\0\x01"), (3, 0));
        assert_eq!(outcome(b"\0\0\x01\0\x01"), (3, 0), "the root");
        assert_eq!(outcome(b"\x08m1.cairn\0\0\x01\0\x01").0, 1, "a label with a dot in it");
    }

    #[test]
    fn a_name_without_the_kind_of_address_asked_for_is_a_name() {
        assert_eq!(outcome(b"\x02m1\0\0\x1c\0\x01"), (0, 0), "AAAA");
        assert_eq!(outcome(b"\x02m1\0\0\x01\0\x03"), (0, 0), "another class");
    }

    #[test]
    fn what_is_wrong_is_said_and_what_is_no_query_is_left_alone() {
        assert_eq!(outcome(b"\x02m1\0\0\x01\0"), (1, 0), "cut off");
        assert_eq!(outcome(b"\xc0\x0c\0\x01\0\x01"), (1, 0), "a pointer");
        assert_eq!(outcome(&[&b"\x3f".repeat(64 * 5)[..], b"\0\0\x01\0\x01"].concat()), (1, 0), "a name without end");
        let mut two = query(b"\x02m1\0\0\x01\0\x01");
        two[5] = 2;
        assert_eq!(answer(&two, |_| Some(ADDRESS)).unwrap()[3], 1);
        let mut other = query(b"\x02m1\0\0\x01\0\x01");
        other[2] |= 0x28;
        assert_eq!(answer(&other, |_| Some(ADDRESS)).unwrap()[3], 4, "an update");
        assert_eq!(answer(&asked(b"\x02m1\0\0\x01\0\x01").unwrap(), |_| Some(ADDRESS)), None, "an answer");
        assert_eq!(answer(&[0; 11], |_| Some(ADDRESS)), None);
    }
}
