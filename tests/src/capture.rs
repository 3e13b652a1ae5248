//! Packets that a cable of the virtual network carried, read from its capture: their kinds, by their headers alone. It
//! never looks into what they carry.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use model::{PUBLIC_API_PORT, VPN_PORT};

/// A kind of packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketKind {
    /// How machines find each other on a link.
    Arp,
    /// QEMU's word that a card is at this cable now, behind a restore (docs/devel/migration.rst): from no machine.
    Rarp,
    /// How they come by an address.
    Dhcp,
    /// Messages of hosts to each other about the network.
    Icmp,
    /// UDP of WireGuard.
    WireGuard,
    /// TCP of the public API.
    PublicApi,
    /// Any other packet, in words.
    Other(String),
}

/// How many packets of each kind a capture has.
///
/// # Errors
/// When it is no capture.
pub fn kinds(capture: &[u8]) -> anyhow::Result<BTreeMap<PacketKind, usize>> {
    let mut kinds = BTreeMap::new();
    for frame in frames(capture)? {
        *kinds.entry(kind(frame)).or_default() += 1;
    }
    Ok(kinds)
}

/// How many of WireGuard's packets in a capture came from this address.
///
/// # Errors
/// When it is no capture.
pub fn wireguard_from(capture: &[u8], from: Ipv4Addr) -> anyhow::Result<usize> {
    let is_its = |frame: &&&[u8]| source(frame.get(14..).unwrap_or_default()) == Some(from);
    Ok(frames(capture)?.iter().filter(is_its).filter(|frame| kind(frame) == PacketKind::WireGuard).count())
}

/// A capture's frames (draft-ietf-opsawg-pcapng, as the virtual network writes it). A last block that is not whole yet is left out.
fn frames(capture: &[u8]) -> anyhow::Result<Vec<&[u8]>> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const PACKET: u32 = 6;
    /// Interface, time and both lengths stand in front of a packet's bytes.
    const BYTES: usize = 8 + 20;
    ensure!(word(capture, 0) == Some(SECTION as usize), "no capture");
    let (mut frames, mut rest) = (Vec::new(), capture);
    while let (Some(block), Some(length)) = (word(rest, 0), word(rest, 4)) {
        ensure!(length >= 12 && length.is_multiple_of(4), "a block of {length} bytes");
        let Some(body) = rest.get(..length) else { break };
        if block == PACKET as usize {
            let length = word(body, 20).context("a packet has a length")?;
            frames.push(body.get(BYTES..BYTES + length).context("a packet is cut")?);
        }
        rest = &rest[length..];
    }
    Ok(frames)
}

/// Kinds of packets that machines have no business with outside of the VPN.
#[must_use]
pub fn others(kinds: &BTreeMap<PacketKind, usize>) -> Vec<&str> {
    kinds
        .keys()
        .filter_map(|kind| if let PacketKind::Other(what) = kind { Some(what.as_str()) } else { None })
        .collect()
}

fn kind(frame: &[u8]) -> PacketKind {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const DHCP: [u16; 2] = [67, 68];
    match half(frame, 12) {
        Some(0x0806) => return PacketKind::Arp,
        Some(0x8035) => return PacketKind::Rarp,
        Some(0x0800) => {}
        kind => return PacketKind::Other(format!("a frame of type {:#06x}", kind.unwrap_or_default())),
    }
    let packet = frame.get(14..).unwrap_or_default();
    let (protocol, begins) = (packet.get(9).copied(), 4 * usize::from(packet.first().unwrap_or(&0) & 0xf));
    if half(packet, 6).is_some_and(|fragment| fragment & 0x1fff != 0) {
        return PacketKind::Other("a part of a packet that was cut".to_owned());
    }
    let ports = [half(packet, begins), half(packet, begins + 2)].map(Option::unwrap_or_default);
    let one_is = |port: u16| ports.contains(&port);
    match protocol {
        Some(1) => PacketKind::Icmp,
        Some(UDP) if one_is(VPN_PORT) => PacketKind::WireGuard,
        Some(UDP) if DHCP.into_iter().any(one_is) => PacketKind::Dhcp,
        Some(TCP) if one_is(PUBLIC_API_PORT) => PacketKind::PublicApi,
        protocol => {
            let [from, to] = [source(packet), destination(packet)].map(|it| it.unwrap_or(Ipv4Addr::UNSPECIFIED));
            let protocol = protocol.unwrap_or_default();
            PacketKind::Other(format!("protocol {protocol} from {from}:{} to {to}:{}", ports[0], ports[1]))
        }
    }
}

/// Where an IPv4 packet is from.
fn source(packet: &[u8]) -> Option<Ipv4Addr> {
    packet.get(12..)?.first_chunk::<4>().map(|it| Ipv4Addr::from(*it))
}

/// Where it is to go.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    packet.get(16..)?.first_chunk::<4>().map(|it| Ipv4Addr::from(*it))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

/// As headers have numbers.
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, from: u16, to: u16) -> Vec<u8> {
        let addresses = [203, 0, 113, 10, 203, 0, 113, 11];
        let header = [&[0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, protocol, 0, 0][..], &addresses].concat();
        [&[0; 12][..], &[8, 0], &header, &from.to_be_bytes(), &to.to_be_bytes(), &[0; 4]].concat()
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = u32::try_from(12 + body.len() + padding.len()).expect("short").to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
    }

    fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut capture = block(0x0a0d_0d0a, &[0; 16]);
        for frame in frames {
            let length = u32::try_from(frame.len()).expect("short").to_le_bytes();
            capture.extend(block(6, &[&[0; 12][..], &length, &length, frame].concat()));
        }
        capture
    }

    #[test]
    fn what_is_not_wireguards_is_seen() {
        let arp = [&[0; 12][..], &[8, 6], &[0; 28]].concat();
        let ours = [arp, frame(17, 7838, 7838), frame(6, 40_000, 7836), frame(17, 68, 67), frame(1, 0, 0)];
        let seen = kinds(&capture(&ours)).expect("a capture");
        assert_eq!((seen.len(), others(&seen)), (5, vec![]));
        let mut cut = frame(17, 7838, 7838);
        cut[14 + 7] = 5;
        for (other, what) in [
            (frame(6, 7836 + 1, 2380), "protocol 6 from 203.0.113.10:7837 to 203.0.113.11:2380"),
            (frame(6, 40_000, 7835), "protocol 6 from 203.0.113.10:40000 to 203.0.113.11:7835"),
            (frame(6, 7838, 40_000), "protocol 6 from 203.0.113.10:7838 to 203.0.113.11:40000"),
            (frame(17, 40_000, 7836), "protocol 17 from 203.0.113.10:40000 to 203.0.113.11:7836"),
            (cut, "a part of a packet that was cut"),
            (vec![0; 14], "a frame of type 0x0000"),
        ] {
            let seen = kinds(&capture(&[frame(17, 7838, 1), other])).expect("a capture");
            assert_eq!(others(&seen), [what]);
        }
    }

    #[test]
    fn whose_packets_they_are_is_seen() {
        let seen = capture(&[frame(17, 7838, 7838), frame(17, 68, 67), vec![0; 14]]);
        assert_eq!(wireguard_from(&seen, [203, 0, 113, 10].into()).expect("a capture"), 1);
        assert_eq!(wireguard_from(&seen, [203, 0, 113, 11].into()).expect("a capture"), 0);
    }

    #[test]
    fn a_capture_that_is_still_written_is_read_as_far_as_it_goes() {
        let whole = capture(&[frame(17, 7838, 1), frame(6, 1, 2)]);
        let seen = kinds(&whole[..whole.len() - 1]).expect("a capture");
        assert_eq!(seen, BTreeMap::from([(PacketKind::WireGuard, 1)]));
        assert!(kinds(b"something else").is_err());
        assert!(kinds(&[&whole[..28], &[6, 0, 0, 0, 4, 0, 0, 0]].concat()).is_err());
    }
}
