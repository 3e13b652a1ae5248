//! The question that a host asks behind the questions of a scan, so that its answer shows that they were worked through:
//! an ARP probe (RFC 5227, section 2.1.1; the bytes are those of RFC 826). Pure; when to ask is the scan's to say.
//!
//! A probe names no address of the sender's (0.0.0.0), so that who answers keeps nothing of it. The answer repeats the
//! hardware address that asked, which is another one in each round: by it an answer to an earlier round is known.

use std::net::Ipv4Addr;

use super::super::frame::Frame;
use crate::machine::Mac;

/// A frame that belongs to a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Somebody asks for an address.
    Question { from: Mac, about: Ipv4Addr },
    /// The station that has the address answers.
    Answer { to: Mac, about: Ipv4Addr },
}

/// Behind the addresses of Ethernet: ARP, of Ethernet and IPv4, with addresses of 6 and 4 bytes.
const KIND: [u8; 8] = [8, 6, 0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];
const NOBODY: [u8; 4] = Ipv4Addr::UNSPECIFIED.octets();
const ALL: [u8; 6] = [0xff; 6];

/// The hardware address that asks in a round of a scan. No machine has it, since QEMU's begin with other bytes, and its
/// end is that of the host's own, so that no two hosts ask by the same.
pub(super) fn asker(host: Mac, scan: u8, round: u8) -> Mac {
    let [.., a, b, c] = host.0;
    Mac([0x02, scan, round, a, b, c])
}

/// Asks who has an address.
pub(super) fn question(from: Mac, about: Ipv4Addr) -> Frame {
    frame([ALL, from.0], REQUEST, &[&from.0, &NOBODY, &[0; 6], &about.octets()])
}

/// Answers that `own` has it.
pub(super) fn answer(own: Mac, to: Mac, about: Ipv4Addr) -> Frame {
    frame([to.0, own.0], REPLY, &[&own.0, &about.octets(), &to.0, &NOBODY])
}

fn frame(addresses: [[u8; 6]; 2], operation: [u8; 2], said: &[&[u8]]) -> Frame {
    let bytes = [&addresses.concat(), &KIND[..], &operation, &said.concat()].concat();
    Frame::parse(&bytes).expect("it has its header")
}

/// Reads a frame. ARP between two that have addresses is no part of a barrier.
pub(super) fn read(frame: &Frame) -> Option<Part> {
    let bytes = frame.bytes().get(12..)?.strip_prefix(&KIND)?;
    let (operation, rest) = bytes.split_first_chunk::<2>()?;
    let (from, rest) = rest.split_first_chunk::<6>()?;
    let (sender, rest) = rest.split_first_chunk::<4>()?;
    let (to, rest) = rest.split_first_chunk::<6>()?;
    // What is behind it fills a short frame up.
    let (target, _padding) = rest.split_first_chunk::<4>()?;
    match (*operation, *sender, *target) {
        (REQUEST, NOBODY, about) => Some(Part::Question { from: Mac(*from), about: about.into() }),
        (REPLY, about, NOBODY) => Some(Part::Answer { to: Mac(*to), about: about.into() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 2);
    const OWN: Mac = Mac::numbered(2);

    /// As Linux sends and takes them (net/ipv4/arp.c, `arp_process`: what it says of duplicate address detection).
    #[test]
    fn known_bytes() {
        let from = asker(Mac::numbered(1), 7, 3);
        assert_eq!(from.0, [2, 7, 3, 0, 0, 1]);
        let asked = [
            255, 255, 255, 255, 255, 255, 2, 7, 3, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 7, 3, 0, 0, 1, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 192, 168, 7, 2,
        ];
        assert_eq!(question(from, ABOUT).bytes(), asked);
        let answered = [
            2, 7, 3, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 0x52, 0x54, 0, 0, 0, 2, 192, 168,
            7, 2, 2, 7, 3, 0, 0, 1, 0, 0, 0, 0,
        ];
        assert_eq!(answer(OWN, from, ABOUT).bytes(), answered);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_whole_only() {
        let from = asker(Mac::numbered(1), 7, 3);
        let question = (question(from, ABOUT), Part::Question { from, about: ABOUT });
        let answer = (answer(OWN, from, ABOUT), Part::Answer { to: from, about: ABOUT });
        for (frame, part) in [question, answer] {
            assert_eq!(read(&frame), Some(part));
            let padded = Frame::parse(&[frame.bytes(), &[0; 18]].concat()).unwrap();
            assert_eq!(read(&padded), Some(part));
            let cut = Frame::parse(&frame.bytes()[..41]).unwrap();
            assert_eq!(read(&cut), None);
        }
    }

    #[test]
    fn arp_between_two_that_have_addresses_is_no_part_of_it() {
        // Where each of them says nothing.
        for (frame, at) in [(question(OWN, ABOUT), 28), (answer(OWN, Mac::numbered(1), ABOUT), 38)] {
            let mut bytes = frame.bytes().to_vec();
            assert_eq!(bytes[at..at + 4], NOBODY);
            bytes[at..at + 4].copy_from_slice(&[192, 168, 7, 9]);
            assert_eq!(read(&Frame::parse(&bytes).unwrap()), None);
        }
    }
}
