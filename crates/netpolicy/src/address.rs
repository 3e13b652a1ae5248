//! Sets of IPv4 addresses as ranges, and sets of ports: how they are joined, cut and written. Knows no pod and no policy.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Range of numbers, both ends of it included.
pub(crate) type Range = (u32, u32);

/// Addresses as ranges in their order, between which some address is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AddressSet(Vec<Range>);

/// Why a text is no prefix of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPrefix {
    /// The prefix is one of IPv6.
    Ipv6,
    /// The text is no prefix at all.
    Unreadable,
}

/// Protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// Ports of one protocol, the first and the last.
pub(crate) type PortRange = (Protocol, u16, u16);

/// Ports as ranges in their order, which do not touch one another.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PortSet(Vec<PortRange>);

impl AddressSet {
    /// Set of all addresses of some ranges, which may overlap.
    pub(crate) fn of(mut ranges: Vec<Range>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                Some(_) | None => merged.push((first, last)),
            }
        }
        merged.shrink_to_fit();
        Self(merged)
    }

    /// Addresses of this set that are not in the other.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut cuts = other.0.iter().peekable();
        for &(mut first, last) in &self.0 {
            let mut is_over = false;
            while let Some(&&(begins, ends)) = cuts.peek().filter(|cut| cut.0 <= last) {
                if begins > first {
                    left.push((first, begins - 1));
                }
                if ends >= last {
                    is_over = true;
                    break;
                }
                first = first.max(ends + 1);
                cuts.next();
            }
            if !is_over {
                left.push((first, last));
            }
        }
        Self(left)
    }

    pub(crate) fn contains(&self, address: u32) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= address);
        behind > 0 && address <= self.0[behind - 1].1
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        &self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_all(&self) -> bool {
        self.0 == [(0, u32::MAX)]
    }

    /// Whether the ranges are those that [`Self::of`] makes of them.
    pub(crate) fn is_in_order(&self) -> bool {
        self.0.iter().all(|(first, last)| first <= last)
            && self.0.windows(2).all(|pair| pair[0].1.checked_add(1).is_some_and(|next| next < pair[1].0))
    }

    /// Addresses and prefixes that together are the set, as nftables writes them.
    pub(crate) fn prefixes(&self) -> Vec<String> {
        let mut prefixes = Vec::new();
        for &(first, last) in &self.0 {
            let (mut next, end) = (u64::from(first), u64::from(last) + 1);
            while next < end {
                let aligned = if next == 0 { 32 } else { next.trailing_zeros() };
                let bits = aligned.min((end - next).ilog2());
                let address = Ipv4Addr::from_bits(u32::try_from(next).expect("it is below the end"));
                prefixes.push(match bits {
                    0 => address.to_string(),
                    bits => format!("{address}/{}", 32 - bits),
                });
                next += 1 << bits;
            }
        }
        prefixes
    }
}

/// Reads a prefix as Kubernetes writes it. Bits behind the prefix do not count.
pub(crate) fn prefix(text: &str) -> Result<Range, NoPrefix> {
    if text.contains(':') {
        return Err(NoPrefix::Ipv6);
    }
    let (address, length) = text.split_once('/').ok_or(NoPrefix::Unreadable)?;
    let address: Ipv4Addr = address.parse().map_err(|_| NoPrefix::Unreadable)?;
    let is_number = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
    let length = length.parse::<u32>().ok().filter(|length| is_number && *length <= 32).ok_or(NoPrefix::Unreadable)?;
    let host = u32::MAX.checked_shr(length).unwrap_or(0);
    let first = address.to_bits() & !host;
    Ok((first, first | host))
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Protocol by the name that Kubernetes gives it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(name) && name.to_uppercase() == name)
    }

    /// Name that nftables gives it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl PortSet {
    /// Set of all ports of some ranges, which may overlap.
    pub(crate) fn of(mut ranges: Vec<PortRange>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<PortRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(before) if before.0 == range.0 && range.1 <= before.2.saturating_add(1) => {
                    before.2 = before.2.max(range.2);
                }
                Some(_) | None => merged.push(range),
            }
        }
        Self(merged)
    }

    pub(crate) fn ranges(&self) -> &[PortRange] {
        &self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the ranges are those that [`Self::of`] makes of them.
    pub(crate) fn is_in_order(&self) -> bool {
        self.0.iter().all(|(_, first, last)| first <= last) && *self == Self::of(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Vec<Range>> {
        let near = prop::collection::vec((0_u32..40, 0_u32..12), 0..6);
        (near, any::<bool>()).prop_map(|(pairs, high)| {
            let place = |number: u32| if high { u32::MAX - number } else { number };
            let both = |(first, length): (u32, u32)| (place(first), place(first + length));
            pairs.into_iter().map(both).map(|(one, other)| (one.min(other), one.max(other))).collect()
        })
    }

    fn has(ranges: &[Range], address: u32) -> bool {
        ranges.iter().any(|(first, last)| (*first..=*last).contains(&address))
    }

    proptest! {
        #[test]
        fn sets_hold_what_their_ranges_hold(all in ranges(), cut in ranges()) {
            let (set, other) = (AddressSet::of(all.clone()), AddressSet::of(cut.clone()));
            let left = set.without(&other);
            let written = AddressSet::of(set.prefixes().iter().map(|text| {
                prefix(text).or_else(|_| prefix(&format!("{text}/32"))).expect("it was just written")
            }).collect());
            prop_assert_eq!(&written, &set);
            prop_assert!(set.is_in_order() && left.is_in_order());
            for address in (0..60).chain(u32::MAX - 60..=u32::MAX) {
                prop_assert_eq!(set.contains(address), has(&all, address));
                prop_assert_eq!(left.contains(address), has(&all, address) && !has(&cut, address), "{}", address);
            }
        }
    }

    #[test]
    fn prefixes_are_read_as_kubernetes_writes_them() {
        let bits = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_bits();
        assert_eq!(prefix("10.1.2.3/8"), Ok((bits("10.0.0.0"), bits("10.255.255.255"))));
        assert_eq!(prefix("0.0.0.0/0"), Ok((0, u32::MAX)));
        assert_eq!(prefix("10.0.0.7/32"), Ok((bits("10.0.0.7"), bits("10.0.0.7"))));
        assert_eq!(prefix("fd00::/8"), Err(NoPrefix::Ipv6));
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "x/8", ""] {
            assert_eq!(prefix(text), Err(NoPrefix::Unreadable), "{text}");
        }
    }

    #[test]
    fn ranges_out_of_order_are_told() {
        for wrong in [vec![(5, 4)], vec![(5, 6), (7, 8)], vec![(5, 6), (1, 2)], vec![(0, u32::MAX), (0, u32::MAX)]] {
            assert!(!AddressSet(wrong.clone()).is_in_order(), "{wrong:?}");
        }
        assert!(AddressSet(vec![(5, 6), (8, 9)]).is_in_order());
        let tcp = |first, last| (Protocol::Tcp, first, last);
        for wrong in [vec![tcp(2, 1)], vec![tcp(1, 2), tcp(3, 4)], vec![(Protocol::Udp, 1, 1), tcp(1, 1)]] {
            assert!(!PortSet(wrong.clone()).is_in_order(), "{wrong:?}");
        }
        assert!(PortSet(vec![tcp(1, 2), tcp(4, 4), (Protocol::Udp, 5, 5)]).is_in_order());
    }

    #[test]
    fn the_whole_and_the_nothing_are_written() {
        let all = AddressSet::of(vec![(0, 9), (10, u32::MAX)]);
        assert!(all.is_all() && !all.is_empty() && AddressSet::default().is_empty());
        assert_eq!(all.prefixes(), ["0.0.0.0/0"]);
        assert_eq!(AddressSet::of(vec![(1, 6)]).prefixes(), ["0.0.0.1", "0.0.0.2/31", "0.0.0.4/31", "0.0.0.6"]);
        assert_eq!(
            ["TCP", "tcp", "SCTP", "ICMP"].map(Protocol::named),
            [Some(Protocol::Tcp), None, Some(Protocol::Sctp), None]
        );
    }
}
