//! Addresses and ports: what listens where, and prefixes that divide the cluster's networks.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// TCP, all addresses: the public API.
pub const PUBLIC_API_PORT: u16 = 7836;
/// UDP, all addresses: WireGuard.
pub const VPN_PORT: u16 = 7838;
/// TCP, VPN addresses only: etcd between coordinators.
pub const ETCD_PEER_PORT: u16 = 7834;
/// TCP, VPN addresses only: the members' API.
pub const VPN_API_PORT: u16 = 7835;
/// TCP, VPN address and loopback: etcd's clients.
pub const ETCD_CLIENT_PORT: u16 = 2379;
/// TCP, VPN address and loopback: the Kubernetes API.
pub const KUBERNETES_API_PORT: u16 = 6443;

/// Where VPN addresses come from unless the config says otherwise.
pub const VPN_PREFIX: Ipv4Prefix = Ipv4Prefix { address: Ipv4Addr::new(10, 118, 0, 0), bits: 16 };
/// Where pod addresses come from; a /24 per machine.
pub const POD_PREFIX: Ipv4Prefix = Ipv4Prefix { address: Ipv4Addr::new(10, 244, 0, 0), bits: 16 };
/// Where Kubernetes service addresses come from.
pub const SERVICE_PREFIX: Ipv4Prefix = Ipv4Prefix { address: Ipv4Addr::new(10, 96, 0, 0), bits: 16 };

/// An IPv4 prefix whose host bits are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Prefix {
    address: Ipv4Addr,
    bits: u8,
}

/// Why a text or pair is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPrefix {
    /// Not `a.b.c.d/n`.
    #[error("not an IPv4 prefix of the form a.b.c.d/n")]
    Form,
    /// More than 32 bits.
    #[error("an IPv4 prefix has at most 32 bits")]
    Bits,
    /// The address has bits set beyond the prefix.
    #[error("the address has bits set beyond the prefix")]
    HostBits,
}

impl Ipv4Prefix {
    /// A prefix from its parts.
    ///
    /// # Errors
    /// [`BadPrefix`] when there are too many bits or host bits are set.
    pub fn new(address: Ipv4Addr, bits: u8) -> Result<Self, BadPrefix> {
        if bits > 32 {
            return Err(BadPrefix::Bits);
        }
        let prefix = Self { address, bits };
        if u32::from(address) & !prefix.mask_bits() != 0 { Err(BadPrefix::HostBits) } else { Ok(prefix) }
    }

    /// The prefix that `address` lies in.
    ///
    /// # Errors
    /// [`BadPrefix::Bits`] when there are more than 32.
    pub fn around(address: Ipv4Addr, bits: u8) -> Result<Self, BadPrefix> {
        if bits > 32 {
            return Err(BadPrefix::Bits);
        }
        let mask = Self { address, bits }.mask_bits();
        Ok(Self { address: Ipv4Addr::from(u32::from(address) & mask), bits })
    }

    /// The network address.
    #[must_use]
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The length, 0 to 32.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The netmask.
    #[must_use]
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from(self.mask_bits())
    }

    /// The `index`th address of the prefix (0 is the network address), if it has that many.
    #[must_use]
    pub fn nth(self, index: u32) -> Option<Ipv4Addr> {
        let size = 1u64 << (32 - u32::from(self.bits));
        (u64::from(index) < size).then(|| Ipv4Addr::from(u32::from(self.address) + index))
    }

    /// Whether `address` lies in the prefix.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask_bits() == u32::from(self.address)
    }

    /// Whether the two share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    fn mask_bits(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0)
    }
}

impl fmt::Display for Ipv4Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Ipv4Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (address, bits) = text.split_once('/').ok_or(BadPrefix::Form)?;
        Self::new(address.parse().map_err(|_| BadPrefix::Form)?, bits.parse().map_err(|_| BadPrefix::Form)?)
    }
}

/// How a machine gets its public addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NetworkConfig {
    /// DHCPv4 on every Ethernet link.
    #[default]
    Dhcp,
    /// The same address on the first link that has carrier.
    Static {
        /// The machine's address.
        address: Ipv4Addr,
        /// Length of the prefix it lies in.
        prefix_bits: u8,
        /// Default route, where there is one.
        gateway: Option<Ipv4Addr>,
        /// Resolvers, in order.
        dns: Vec<Ipv4Addr>,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_read_strictly() {
        assert_eq!("10.118.0.0/16".parse(), Ok(VPN_PREFIX));
        assert_eq!("10.118.0.1/16".parse::<Ipv4Prefix>(), Err(BadPrefix::HostBits));
        assert_eq!("10.118.0.0/33".parse::<Ipv4Prefix>(), Err(BadPrefix::Bits));
        assert_eq!("10.118.0.0".parse::<Ipv4Prefix>(), Err(BadPrefix::Form));
        assert_eq!(VPN_PREFIX.nth(1), Some(Ipv4Addr::new(10, 118, 0, 1)));
        assert_eq!(VPN_PREFIX.nth(1 << 16), None);
        assert!(!VPN_PREFIX.overlaps(POD_PREFIX));
    }

    proptest! {
        #[test]
        fn a_prefix_round_trips_and_holds_its_own(address: u32, bits in 0u8..=32) {
            let address = Ipv4Addr::from(address);
            let prefix = Ipv4Prefix::around(address, bits).expect("at most 32 bits");
            prop_assert!(prefix.contains(address) && prefix.overlaps(prefix));
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
    }
}
