//! Data types of keys and values in sets: their numbers in the kernel, their widths, and how a value is written
//! (nftables, `include/datatype.h`).

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use crate::attribute;
use crate::word::number;

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Datatype {
    /// Number in the byte order of the machine.
    Integer,
    /// Address of IPv4.
    Ipv4,
    /// Address of IPv6.
    Ipv6,
    /// Protocol above IP, such as tcp.
    Protocol,
    /// Port.
    Port,
    /// Mark of a packet.
    Mark,
    /// Name of a link.
    Link,
    /// Family of a packet.
    Family,
    /// Kind of a message of ICMP.
    IcmpType,
}

/// Each type with its name, its number and its bytes.
const TYPES: &[(Datatype, &str, u32, usize)] = &[
    (Datatype::Integer, "integer", 4, 4),
    (Datatype::Ipv4, "ipv4_addr", 7, 4),
    (Datatype::Ipv6, "ipv6_addr", 8, 16),
    (Datatype::Protocol, "inet_proto", 12, 1),
    (Datatype::Port, "inet_service", 13, 2),
    (Datatype::Mark, "mark", 19, 4),
    (Datatype::Link, "ifname", 41, 16),
    (Datatype::Family, "nf_proto", 2, 1),
    (Datatype::IcmpType, "icmp_type", 14, 1),
];

/// Protocols by the names that nftables gives them.
const PROTOCOLS: &[(&str, u8)] = &[("icmp", 1), ("tcp", 6), ("udp", 17), ("ipv6-icmp", 58), ("sctp", 132)];

/// Families of packets, and kinds of ICMP's messages (RFC 792), by the names that nftables gives them.
const FAMILIES: &[(&str, u8)] = &[("ipv4", 2), ("ipv6", 10)];
const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("echo-request", 8),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
];

/// Number of the kernel for data that are verdicts (`NFT_DATA_VERDICT`).
pub(crate) const VERDICTS: u32 = 0xffff_ff00;
/// Bits of one type in the number of a concatenation, and how many types fit.
const TYPE_BITS: u32 = 6;
const MOST_PARTS: u32 = 5;

/// A value that is none of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {of}")]
pub struct ValueError {
    /// The value as it is written.
    pub text: String,
    /// Name of the type.
    pub of: &'static str,
}

impl Datatype {
    pub(crate) fn named(name: &str) -> Option<Self> {
        TYPES.iter().find(|(_, known, ..)| *known == name).map(|(datatype, ..)| *datatype)
    }

    fn row(self) -> (&'static str, u32, usize) {
        let row = TYPES.iter().find(|(datatype, ..)| *datatype == self);
        row.map(|(_, name, number, bytes)| (*name, *number, *bytes)).expect("the table has a row for each")
    }

    /// Bytes of a value.
    pub(crate) fn bytes(self) -> usize {
        self.row().2
    }

    /// Whether values are in the byte order of the machine.
    pub(crate) const fn is_host_order(self) -> bool {
        match self {
            Self::Integer | Self::Mark | Self::Link | Self::Family => true,
            Self::Ipv4 | Self::Ipv6 | Self::Protocol | Self::Port | Self::IcmpType => false,
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`ValueError`].
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>, ValueError> {
        let read = match self {
            Self::Integer | Self::Mark => number(text).map(|number| number.to_ne_bytes().to_vec()),
            Self::Ipv4 => text.parse().ok().map(|address: Ipv4Addr| address.octets().to_vec()),
            Self::Ipv6 => text.parse().ok().map(|address: Ipv6Addr| address.octets().to_vec()),
            Self::Protocol => one_of(PROTOCOLS, text),
            Self::Family => one_of(FAMILIES, text),
            Self::IcmpType => one_of(ICMP_TYPES, text),
            Self::Port => {
                number(text).and_then(|port| u16::try_from(port).ok()).map(|port| port.to_be_bytes().to_vec())
            }
            Self::Link => {
                let fits = !text.is_empty() && text.len() < self.bytes() && !text.contains(['*', '\0']);
                fits.then(|| padded(text.as_bytes(), self.bytes()))
            }
        };
        read.ok_or_else(|| ValueError { text: text.to_owned(), of: self.row().0 })
    }

    /// Value as `nft --json` shows it; none where there are too few bytes.
    pub(crate) fn shown(self, value: &[u8]) -> Option<Value> {
        let value = value.get(..self.bytes())?;
        let named = |names: &[(&str, u8)]| {
            let name = names.iter().find(|(_, number)| *number == value[0]).map(|(name, _)| *name);
            name.map_or_else(|| Value::from(value[0]), Value::from)
        };
        Some(match self {
            Self::Integer | Self::Mark => u32::from_ne_bytes(value.try_into().ok()?).into(),
            Self::Ipv4 => Ipv4Addr::from_octets(value.try_into().ok()?).to_string().into(),
            Self::Ipv6 => Ipv6Addr::from_octets(value.try_into().ok()?).to_string().into(),
            Self::Port => u16::from_be_bytes(value.try_into().ok()?).into(),
            Self::Link => attribute::name(value).into(),
            Self::Protocol => named(PROTOCOLS),
            Self::Family => named(FAMILIES),
            Self::IcmpType => named(ICMP_TYPES),
        })
    }

    /// Reads an address or a prefix of addresses, a port or a range of ports: the first and the last, as numbers.
    ///
    /// # Errors
    /// [`ValueError`].
    pub(crate) fn range(self, text: &str) -> Result<(u128, u128), ValueError> {
        let wrong = || ValueError { text: text.to_owned(), of: "address or prefix" };
        let number_of =
            |text| self.read(text).map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)));
        if self == Self::Port {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (number_of(first)?, number_of(last)?);
            let wrong = || ValueError { text: text.to_owned(), of: "range of ports" };
            return (first <= last).then_some((first, last)).ok_or_else(wrong);
        }
        let (first, length) = match text.split_once('/') {
            Some((first, length)) => (first, number(length).ok_or_else(wrong)?),
            None => (text, self.bits()),
        };
        if !matches!(self, Self::Ipv4 | Self::Ipv6) || length > self.bits() {
            return Err(wrong());
        }
        let first = number_of(first)?;
        let host = host_bits(self.bits() - length);
        Ok((first & !host, first & !host | host))
    }

    /// Bits of a value.
    pub(crate) fn bits(self) -> u32 {
        u32::try_from(8 * self.bytes()).expect("a value is short")
    }

    /// The highest value, as a number.
    pub(crate) fn highest(self) -> u128 {
        host_bits(self.bits())
    }
}

/// Byte by its name, or by its number.
fn one_of(names: &[(&str, u8)], text: &str) -> Option<Vec<u8>> {
    let named = names.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| number(text)?.try_into().ok()).map(|byte| vec![byte])
}

/// A number whose lowest bits are set, so many.
const fn host_bits(bits: u32) -> u128 {
    if bits == u128::BITS { u128::MAX } else { (1 << bits) - 1 }
}

/// Types of a key or value: one, or a concatenation of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Concatenation(Vec<Datatype>);

impl Concatenation {
    /// The types in their order; none where there are none, or more than fit.
    pub(crate) fn of(types: Vec<Datatype>) -> Option<Self> {
        (1..=MOST_PARTS as usize).contains(&types.len()).then_some(Self(types))
    }

    /// Reads the number that the kernel was given for the types.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let parts = (0..MOST_PARTS).rev().map(|part| number >> (part * TYPE_BITS) & ((1 << TYPE_BITS) - 1));
        let known = |number| TYPES.iter().find(|(_, _, known, _)| *known == number).map(|(datatype, ..)| *datatype);
        Self::of(parts.skip_while(|part| *part == 0).map(known).collect::<Option<_>>()?)
    }

    /// The number of the types: those of its parts, six bits each.
    pub(crate) fn number(&self) -> u32 {
        self.0.iter().fold(0, |number, datatype| number << TYPE_BITS | datatype.row().1)
    }

    pub(crate) fn parts(&self) -> &[Datatype] {
        &self.0
    }

    /// Whether it has several parts, each of which fills whole registers of four bytes.
    pub(crate) const fn is_joined(&self) -> bool {
        self.0.len() > 1
    }

    /// Bytes of a value.
    pub(crate) fn bytes(&self) -> usize {
        match self.0.as_slice() {
            [one] => one.bytes(),
            parts => parts.iter().map(|part| part.bytes().next_multiple_of(4)).sum(),
        }
    }

    /// Whether values are in the byte order of the machine.
    pub(crate) fn is_host_order(&self) -> bool {
        self.0.iter().all(|part| part.is_host_order())
    }

    /// Reads a value, one word for each part.
    ///
    /// # Errors
    /// [`ValueError`], also where there are more words than parts, or fewer.
    pub(crate) fn read(&self, words: &[String]) -> Result<Vec<u8>, ValueError> {
        if words.len() != self.0.len() {
            return Err(ValueError {
                text: words.join(" . "),
                of: "key of this set, which has another number of parts",
            });
        }
        let mut value = Vec::new();
        for (part, word) in self.0.iter().zip(words) {
            let part = part.read(word)?;
            let length = if self.is_joined() { part.len().next_multiple_of(4) } else { part.len() };
            value.extend(padded(&part, length));
        }
        Ok(value)
    }
}

impl Concatenation {
    /// Value as `nft --json` shows it; none where there are too few bytes.
    pub(crate) fn shown(&self, value: &[u8]) -> Option<Value> {
        let mut place = 0;
        let mut parts = Vec::new();
        for part in &self.0 {
            parts.push(part.shown(value.get(place..)?)?);
            place += part.bytes().next_multiple_of(4);
        }
        Some(if self.is_joined() { json!({ "concat": parts }) } else { parts.remove(0) })
    }
}

fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(length, 0);
    padded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(" . ").map(str::to_owned).collect()
    }

    #[test]
    fn values_are_read_as_the_kernel_has_them() {
        let read = |datatype: Datatype, text| datatype.read(text).ok();
        assert_eq!(read(Datatype::Ipv4, "10.96.0.1"), Some(vec![10, 96, 0, 1]));
        assert_eq!(read(Datatype::Port, "443"), Some(vec![1, 187]));
        assert_eq!(read(Datatype::Protocol, "udp"), Some(vec![17]));
        assert_eq!(read(Datatype::Mark, "0x4000"), Some(0x4000_u32.to_ne_bytes().to_vec()));
        assert_eq!(read(Datatype::Link, "wg0"), Some([b"wg0".as_slice(), &[0; 13]].concat()));
        let wrong = [
            (Datatype::Ipv4, "10.96.0"),
            (Datatype::Ipv4, "::1"),
            (Datatype::Port, "65536"),
            (Datatype::Protocol, "quic"),
            (Datatype::Link, "a-name-that-is-too-long"),
            (Datatype::Link, ""),
            (Datatype::Link, "veth*"),
        ];
        for (datatype, text) in wrong {
            assert_eq!(read(datatype, text), None, "{text}");
        }
    }

    #[test]
    fn parts_of_a_concatenation_fill_whole_registers() {
        let service = Concatenation::of(vec![Datatype::Ipv4, Datatype::Protocol, Datatype::Port]).expect("three fit");
        assert_eq!((service.number(), service.bytes()), ((7 << 6 | 12) << 6 | 13, 12));
        assert_eq!(service.read(&words("10.96.0.1 . tcp . 443")), Ok(vec![10, 96, 0, 1, 6, 0, 0, 0, 1, 187, 0, 0]));
        assert!(service.read(&words("10.96.0.1 . tcp")).is_err());
        assert_eq!(Concatenation::of(vec![Datatype::Ipv4; 6]), None);
    }

    #[test]
    fn prefixes_are_the_first_and_the_last_address() {
        let range = |text| Datatype::Ipv4.range(text).ok();
        let number = |address: &str| u128::from(address.parse::<Ipv4Addr>().expect("an address").to_bits());
        assert_eq!(range("10.0.0.7"), Some((number("10.0.0.7"), number("10.0.0.7"))));
        assert_eq!(range("10.244.7.9/16"), Some((number("10.244.0.0"), number("10.244.255.255"))));
        assert_eq!(range("0.0.0.0/0"), Some((0, u128::from(u32::MAX))));
        assert_eq!(Datatype::Ipv6.range("::/0").ok(), Some((0, u128::MAX)));
        assert_eq!(Datatype::Ipv6.range("fd00::/8").map(|(first, _)| first >> 120), Ok(0xfd));
        assert!([range("10.0.0.0/33"), range("10.0.0.0/"), range("x/8")].iter().all(Option::is_none));
        assert!(Datatype::Protocol.range("80").is_err());
        let ports = ["80", "80-90", "7-7"].map(|text| Datatype::Port.range(text).ok());
        assert_eq!(ports, [Some((80, 80)), Some((80, 90)), Some((7, 7))]);
        assert!(
            ["90-80", "80-", "-80", "80-65536", "1-2-3", "80/8"].iter().all(|text| Datatype::Port.range(text).is_err())
        );
    }

    proptest! {
        #[test]
        fn types_are_found_again_by_their_number(parts in prop::collection::vec(0..TYPES.len(), 1..=5)) {
            let types = Concatenation::of(parts.into_iter().map(|row| TYPES[row].0).collect()).expect("they fit");
            prop_assert_eq!(Concatenation::from_number(types.number()), Some(types));
        }
    }
}
