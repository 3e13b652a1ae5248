//! The bytes of a capture, as Wireshark reads them: pcapng with one interface, nanoseconds, and the direction of each
//! frame (draft-ietf-opsawg-pcapng). Pure: whoever has the file writes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::frame::Frame;

/// Which way a frame went, as the end of the cable sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The machine sent the frame.
    Sent,
    /// The machine received the frame.
    Received,
}

impl Direction {
    /// Each of them.
    pub const BOTH: [Self; 2] = [Self::Sent, Self::Received];
}

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
const OPTION_END: (u16, &[u8]) = (0, &[]);
/// if_name of an interface description block.
const INTERFACE_NAME: u16 = 2;
/// if_tsresol of the same: time stamps count units of 10^-9 seconds.
const NANOSECONDS: (u16, &[u8]) = (9, &[9]);
/// epb_flags of an enhanced packet block.
const FLAGS: u16 = 2;

/// How a capture begins: a section with the interface `name`.
pub(super) fn header(name: &str) -> Vec<u8> {
    // The magic number says that integers are little-endian; version 1.0; a section of unknown length.
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &1_u16.to_le_bytes(), &[0; 2], &[0xff; 8]].concat();
    // No limit to what is kept of a frame.
    let mut interface = [&ETHERNET.to_le_bytes()[..], &[0; 2], &[0; 4]].concat();
    for (code, value) in [(INTERFACE_NAME, name.as_bytes()), NANOSECONDS, OPTION_END] {
        interface.extend(option(code, value));
    }
    [block(0x0a0d_0d0a, &section), block(1, &interface)].concat()
}

/// Record of a frame that went by at `time`, counted from 1970.
pub(super) fn record(frame: &Frame, direction: Direction, time: Duration) -> Vec<u8> {
    let [high, low] = halves(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let length = length(frame.bytes().len());
    let flags: u32 = match direction {
        Direction::Received => 1,
        Direction::Sent => 2,
    };
    let mut body = Vec::with_capacity(40 + frame.bytes().len());
    for number in [0, high, low, length, length] {
        body.extend(u32::to_le_bytes(number));
    }
    pad(&mut body, frame.bytes());
    body.extend(option(FLAGS, &flags.to_le_bytes()));
    body.extend(option(OPTION_END.0, OPTION_END.1));
    block(6, &body)
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = length(12 + body.len()).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    // Names are short.
    let length = u16::try_from(value.len()).expect("an option's value is shorter than 64 KiB");
    let mut bytes = [code.to_le_bytes(), length.to_le_bytes()].concat();
    pad(&mut bytes, value);
    bytes
}

/// To whole words of 32 bits.
fn pad(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(bytes);
    into.resize(into.len().next_multiple_of(4), 0);
}

fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("frames are shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_by_the_byte() {
        #[rustfmt::skip]
        let expected = [
            // Section header block
            0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0,
            // Interface description block: Ethernet, if_name "m1", if_tsresol 9, end
            1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 2, 0, b'm', b'1', 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0,
        ];
        assert_eq!(header("m1"), expected);
        let frame = Frame::parse(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0, 0xaa]).unwrap();
        #[rustfmt::skip]
        let expected = [
            // Enhanced packet block: interface 0, 2^32 + 5 ns, 15 of 15 bytes
            6, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 15, 0, 0, 0, 15, 0, 0, 0,
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0, 0xaa, 0,
            // epb_flags: outbound; end
            2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0,
        ];
        assert_eq!(record(&frame, Direction::Sent, Duration::new(4, 294_967_301)), expected);
        assert_eq!(record(&frame, Direction::Received, Duration::ZERO)[48], 1, "inbound");
    }
}
