//! A UDP datagram in IPv4 in an Ethernet frame, for a link whose machine has no address yet (RFC 894, 791, 768).
//! It must never pass on a datagram whose lengths or checksums do not hold.

use std::net::{Ipv4Addr, SocketAddrV4};

use thiserror::Error;

use crate::HardwareAddress;

const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
const IPV4: [u8; 2] = [0x08, 0x00];
const UDP_PROTOCOL: u8 = 17;
/// Do not fragment; a datagram of ours fits every link.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
const TTL: u8 = 64;

/// UDP datagram with the addresses of its frame and packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Sending station.
    pub source_mac: HardwareAddress,
    /// Receiving station.
    pub destination_mac: HardwareAddress,
    /// Sending address and port.
    pub source: SocketAddrV4,
    /// Receiving address and port.
    pub destination: SocketAddrV4,
    /// Payload of the UDP datagram.
    pub payload: &'a [u8],
}

/// Why a datagram fits no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a payload of {0} bytes does not fit a datagram")]
pub struct DatagramTooLong(pub usize);

/// Why a frame carries no datagram for us. Most are other people's traffic, not mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A header is cut off, or a length says more than there is.
    #[error("the frame is cut off in its {0} part")]
    Cut(&'static str),
    /// Another Ethernet type.
    #[error("the frame is not IPv4")]
    NotIp,
    /// Another IP protocol.
    #[error("the packet is not UDP")]
    NotUdp,
    /// The packet is one part of a larger packet.
    #[error("the packet is a fragment")]
    Fragment,
    /// The header or the datagram was changed on its way.
    #[error("the {0} checksum does not hold")]
    Checksum(&'static str),
}

/// Builds the frame.
///
/// # Errors
/// [`DatagramTooLong`] for a payload above 65 507 bytes.
pub fn build(datagram: &Datagram<'_>) -> Result<Vec<u8>, DatagramTooLong> {
    let payload = datagram.payload;
    let too_long = |_| DatagramTooLong(payload.len());
    let ip_length = u16::try_from(IP + UDP + payload.len()).map_err(too_long)?.to_be_bytes();
    let udp_length = u16::try_from(UDP + payload.len()).map_err(too_long)?.to_be_bytes();
    let (source, destination) = (datagram.source.ip(), datagram.destination.ip());

    let mut ip = [0; IP];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_length);
    ip[6..8].copy_from_slice(&DONT_FRAGMENT);
    ip[8..10].copy_from_slice(&[TTL, UDP_PROTOCOL]);
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&destination.octets());
    let checksum = Checksum::default().add(&ip).finish();
    ip[10..12].copy_from_slice(&checksum);

    let mut udp = [0; UDP];
    udp[0..2].copy_from_slice(&datagram.source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&datagram.destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length);
    // Zero would mean that there is none (RFC 768).
    let checksum = match Checksum::pseudo_header(*source, *destination, udp_length).add(&udp).add(payload).finish() {
        [0, 0] => [0xff, 0xff],
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum);

    let mut frame = Vec::with_capacity(ETHERNET + IP + UDP + payload.len());
    frame.extend(datagram.destination_mac.0);
    frame.extend(datagram.source_mac.0);
    frame.extend(IPV4);
    frame.extend(ip);
    frame.extend(udp);
    frame.extend(payload);
    Ok(frame)
}

/// Reads a frame; padding behind the packet is ignored, IP options are skipped.
///
/// # Errors
/// [`FrameError`] says why there is no datagram in it.
pub fn parse(frame: &[u8]) -> Result<Datagram<'_>, FrameError> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET>().ok_or(FrameError::Cut("Ethernet"))?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, kind @ ..] = *ethernet;
    if kind != IPV4 {
        return Err(FrameError::NotIp);
    }

    let ip = packet.first_chunk::<IP>().ok_or(FrameError::Cut("IP"))?;
    if ip[0] >> 4 != 4 {
        return Err(FrameError::NotIp);
    }
    let header = usize::from(ip[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let packet = packet.get(..total).ok_or(FrameError::Cut("IP"))?;
    let (header, datagram) = packet.split_at_checked(header).ok_or(FrameError::Cut("IP"))?;
    if header.len() < IP {
        return Err(FrameError::Cut("IP"));
    }
    if Checksum::default().add(header).finish() != [0, 0] {
        return Err(FrameError::Checksum("IP"));
    }
    if u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0 {
        return Err(FrameError::Fragment);
    }
    if ip[9] != UDP_PROTOCOL {
        return Err(FrameError::NotUdp);
    }
    let source = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
    let destination = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);

    let udp = *datagram.first_chunk::<UDP>().ok_or(FrameError::Cut("UDP"))?;
    let length = [udp[4], udp[5]];
    let datagram = datagram.get(..usize::from(u16::from_be_bytes(length))).ok_or(FrameError::Cut("UDP"))?;
    let payload = datagram.get(UDP..).ok_or(FrameError::Cut("UDP"))?;
    let has_checksum = [udp[6], udp[7]] != [0, 0];
    if has_checksum && Checksum::pseudo_header(source, destination, length).add(datagram).finish() != [0, 0] {
        return Err(FrameError::Checksum("UDP"));
    }
    Ok(Datagram {
        source_mac: HardwareAddress([s0, s1, s2, s3, s4, s5]),
        destination_mac: HardwareAddress([d0, d1, d2, d3, d4, d5]),
        source: SocketAddrV4::new(source, u16::from_be_bytes([udp[0], udp[1]])),
        destination: SocketAddrV4::new(destination, u16::from_be_bytes([udp[2], udp[3]])),
        payload,
    })
}

/// The Internet checksum (RFC 1071). Every part but the last has an even length.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, udp_length: [u8; 2]) -> Self {
        Self::default().add(&source.octets()).add(&destination.octets()).add(&[0, UDP_PROTOCOL]).add(&udp_length)
    }

    fn add(self, bytes: &[u8]) -> Self {
        let (words, odd) = bytes.as_chunks::<2>();
        let sum: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
        let last: u64 = odd.iter().map(|&byte| u64::from(byte) << 8).sum();
        Self(self.0 + sum + last)
    }

    fn finish(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!u16::try_from(sum).expect("folded to 16 bits above")).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            source_mac: HardwareAddress([2, 0, 0, 0, 0, 1]),
            destination_mac: HardwareAddress::BROADCAST,
            source: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
            destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, 67),
            payload,
        }
    }

    #[test]
    fn a_frame_is_built_by_the_byte() {
        let frame = build(&datagram(b"abc")).expect("short");
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 0]);
        let words: [u16; 9] = [0x4500, 31, 0, 0x4000, 0x4011, 0, 0, 0xffff, 0xffff];
        let sum: u32 = words.into_iter().map(u32::from).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([frame[24], frame[25]])), 0xffff - folded);
        assert_eq!(frame[34..40], [0, 68, 0, 67, 0, 11]);
        assert_eq!(&frame[42..], b"abc");
        // Pseudo-header (RFC 768), header, and the odd byte with a zero behind it.
        let words: [u16; 11] = [0, 0, 0xffff, 0xffff, 17, 11, 68, 67, 11, 0x6162, 0x6300];
        let sum: u32 = words.into_iter().map(u32::from).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([frame[40], frame[41]])), 0xffff - folded);
    }

    /// The example header of many textbooks: its checksum is b861.
    #[test]
    fn the_checksum_of_a_known_header() {
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(Checksum::default().add(&header).finish(), [0xb8, 0x61]);
    }

    #[test]
    fn other_traffic_is_told_from_damage() {
        let edited = |edit: fn(&mut Vec<u8>)| {
            let mut frame = build(&datagram(b"abcd")).expect("short");
            edit(&mut frame);
            parse(&frame).expect_err("refused")
        };
        assert_eq!(edited(|frame| frame.truncate(13)), FrameError::Cut("Ethernet"));
        assert_eq!(edited(|frame| frame[13] = 6), FrameError::NotIp);
        assert_eq!(edited(|frame| frame[14] = 0x65), FrameError::NotIp);
        assert_eq!(edited(|frame| frame.truncate(33)), FrameError::Cut("IP"));
        assert_eq!(edited(|frame| frame.truncate(45)), FrameError::Cut("IP"));
        assert_eq!(edited(|frame| frame[14] = 0x44), FrameError::Cut("IP"));
        assert_eq!(edited(|frame| frame[22] = 63), FrameError::Checksum("IP"));
        assert_eq!(edited(|frame| frame[43] ^= 1), FrameError::Checksum("UDP"));
        assert_eq!(edited(|frame| frame[39] = 200), FrameError::Cut("UDP"));
        assert_eq!(edited(|frame| frame[39] = 7), FrameError::Cut("UDP"));
        // Each keeps the header's sum: what one field gains the other loses.
        assert_eq!(edited(|frame| (frame[20], frame[22]) = (0x20, 0x60)), FrameError::Fragment);
        assert_eq!(edited(|frame| (frame[21], frame[25]) = (1, frame[25].wrapping_sub(1))), FrameError::Fragment);
        assert_eq!(edited(|frame| (frame[23], frame[25]) = (6, frame[25].wrapping_add(11))), FrameError::NotUdp);
    }

    /// RFC 768: a checksum of zero says that there is none, so one that comes to zero is written as ones.
    #[test]
    fn no_checksum_is_right_and_is_never_written() {
        let mut frame = build(&datagram(b"abcd")).expect("short");
        frame[40..42].fill(0);
        assert_eq!(parse(&frame), Ok(datagram(b"abcd")));
        let checksum = |word: u16| {
            let frame = build(&datagram(&word.to_be_bytes())).expect("short");
            [frame[40], frame[41]]
        };
        let written: Vec<_> = (0..=u16::MAX).map(checksum).collect();
        assert!(written.contains(&[0xff, 0xff]) && !written.contains(&[0, 0]));
    }

    #[test]
    fn what_cannot_fit_is_refused() {
        assert!(build(&datagram(&vec![0; 65_507])).is_ok());
        assert_eq!(build(&datagram(&vec![0; 65_508])), Err(DatagramTooLong(65_508)));
    }

    proptest! {
        #[test]
        fn what_is_built_is_read_with_or_without_padding(
            payload in proptest::collection::vec(any::<u8>(), 0..700),
            macs in any::<([u8; 6], [u8; 6])>(),
            ends in any::<(u32, u16, u32, u16)>(),
            padding in 0..50_usize,
        ) {
            let datagram = Datagram {
                source_mac: HardwareAddress(macs.0),
                destination_mac: HardwareAddress(macs.1),
                source: SocketAddrV4::new(Ipv4Addr::from_bits(ends.0), ends.1),
                destination: SocketAddrV4::new(Ipv4Addr::from_bits(ends.2), ends.3),
                payload: &payload,
            };
            let mut frame = build(&datagram).expect("short");
            frame.resize(frame.len() + padding, 0);
            prop_assert_eq!(parse(&frame), Ok(datagram));
        }

        #[test]
        fn a_flipped_bit_behind_the_ethernet_header_is_noticed(
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            place: prop::sample::Index,
            bit in 0..8_u8,
        ) {
            let mut frame = build(&datagram(&payload)).expect("short");
            let at = ETHERNET + place.index(frame.len() - ETHERNET);
            frame[at] ^= 1 << bit;
            // A checksum of zero is none at all.
            prop_assume!(frame[40..42] != [0, 0]);
            prop_assert!(parse(&frame).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _outcome = parse(&bytes);
        }
    }
}
