//! ARP over Ethernet (RFC 826), as far as RFC 5227 wants it of a machine that is to have an address: whether somebody has it, and that
//! the machine has it from now on.

use std::net::Ipv4Addr;

use crate::HardwareAddress;

/// Bytes of a frame: its Ethernet header, and a packet for IPv4.
const BYTES: usize = 14 + 28;
/// EtherType, hardware type Ethernet, protocol IPv4, lengths of both addresses.
const HEAD: [u8; 8] = [0x08, 0x06, 0x00, 0x01, 0x08, 0x00, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const EVERYBODY: HardwareAddress = HardwareAddress([0xff; 6]);
const NOBODY: HardwareAddress = HardwareAddress([0; 6]);

/// Frame that asks who has an address; it says nothing of who asks (RFC 5227, section 2.1.1).
#[must_use]
pub fn probe(mac: HardwareAddress, address: Ipv4Addr) -> Vec<u8> {
    frame(mac, Ipv4Addr::UNSPECIFIED, address)
}

/// Frame that tells all that whoever sends it has an address (RFC 5227, section 2.3).
#[must_use]
pub fn announcement(mac: HardwareAddress, address: Ipv4Addr) -> Vec<u8> {
    frame(mac, address, address)
}

fn frame(mac: HardwareAddress, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let HardwareAddress(mac) = mac;
    let mut frame = Vec::with_capacity(BYTES);
    for part in [&EVERYBODY.0[..], &mac, &HEAD, &REQUEST, &mac, &sender.octets(), &NOBODY.0, &target.octets()] {
        frame.extend_from_slice(part);
    }
    frame
}

/// Station that says that it has an address, or asks for it at the same time; none where the frame says neither.
#[must_use]
pub fn claims(frame: &[u8], address: Ipv4Addr) -> Option<HardwareAddress> {
    let packet = frame.get(12..BYTES)?;
    let (head, rest) = packet.split_first_chunk::<8>()?;
    if *head != HEAD {
        return None;
    }
    let (mac, rest) = rest.get(2..)?.split_first_chunk::<6>()?;
    let (sender, rest) = rest.split_first_chunk::<4>()?;
    let target = rest.get(6..10)?;
    let has = *sender == address.octets();
    let probes = *sender == [0; 4] && target == address.octets();
    (has || probes).then_some(HardwareAddress(*mac))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: HardwareAddress = HardwareAddress([0x52, 0x54, 0, 0, 0, 1]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);

    /// Bytes as RFC 826 and RFC 5227 have them. Proves: W8
    #[test]
    fn probes_and_announcements_are_requests_to_all() {
        let head = [&[0xff; 6][..], &MAC.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &MAC.0].concat();
        let probed = [&head[..], &[0; 4], &[0; 6], &[192, 0, 2, 50]].concat();
        assert_eq!(probe(MAC, ADDRESS), probed);
        let announced = [&head[..], &[192, 0, 2, 50], &[0; 6], &[192, 0, 2, 50]].concat();
        assert_eq!(announcement(MAC, ADDRESS), announced);
    }

    /// Proves: W8
    #[test]
    fn whoever_has_an_address_or_is_about_to_claims_it() {
        let other = Ipv4Addr::new(192, 0, 2, 51);
        let asks = frame(MAC, other, ADDRESS);
        for (said, claimed) in [(probe(MAC, ADDRESS), true), (announcement(MAC, ADDRESS), true), (asks, false)] {
            assert_eq!(claims(&said, ADDRESS), claimed.then_some(MAC));
            assert_eq!(claims(&said[..BYTES - 1], ADDRESS), None, "cut off");
        }
        assert_eq!(claims(&probe(MAC, other), ADDRESS), None);
        let mut ip = announcement(MAC, ADDRESS);
        ip[12..14].copy_from_slice(&[8, 0]);
        assert_eq!(claims(&ip, ADDRESS), None, "no ARP");
    }

    proptest! {
        #[test]
        fn no_bytes_panic_it(frame in prop::collection::vec(any::<u8>(), 0..64)) {
            let _whoever_it_is = claims(&frame, ADDRESS);
        }
    }
}
