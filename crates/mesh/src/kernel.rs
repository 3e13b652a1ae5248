//! State of the kernel's WireGuard, and the changes it is asked for (`include/uapi/linux/wireguard.h`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;

use model::{Ipv4Prefix, VpnPubKey};

use crate::surroundings::Surroundings;

/// A look at the interface, and at how packets leave the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelState {
    /// Peers of the interface, by their keys.
    pub peers: BTreeMap<VpnPubKey, FoundPeer>,
    /// Prefixes that have a route of their own to the interface: pods, and peers with a narrow path. With the largest
    /// packet that may go there, where that is less than the interface allows.
    pub routes: BTreeMap<Ipv4Prefix, Option<u16>>,
    /// Routes by uplinks whose link has a carrier, in the kernel's order; no detours.
    pub uplinks: Vec<UplinkRoute>,
    /// Which single address is reached by another way than these say.
    pub detours: BTreeMap<Ipv4Addr, Way>,
    /// Addresses near the machine.
    pub surroundings: Surroundings,
}

/// A route by an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UplinkRoute {
    /// Where it leads.
    pub to: Ipv4Prefix,
    /// Metric: among routes to the same prefix the lowest is taken.
    pub metric: u32,
    /// How.
    pub way: Way,
}

/// How packets leave the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The kernel's number for the link.
    pub link: u32,
    /// Gateway that passes packets on; none where they go straight to their destination.
    pub gateway: Option<Ipv4Addr>,
}

/// A peer, as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPeer {
    /// Where packets go: what was set, or where the last one that was genuine came from.
    pub endpoint: Option<SocketAddrV4>,
    /// Prefixes whose packets are the peer's.
    pub allowed: BTreeSet<Ipv4Prefix>,
    /// Bytes to the peer, handshakes included, and from it.
    pub counters: Counters,
}

/// Bytes since the peer was made, and its last handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// To the peer; tries to shake hands are counted.
    pub sent: u64,
    /// From the peer, or made by it once: an initiation counts although nothing tells one from its replay as long as this machine
    /// remembers no later one (`wg_receive_handshake_packet`, `drivers/net/wireguard/receive.c`).
    pub received: u64,
    /// When the last handshake was finished, which takes the peer itself (`wg_timers_handshake_complete`, `timers.c`): nanoseconds of
    /// Unix time, only to be compared, since clocks are set.
    pub handshake: Option<NonZeroU64>,
}

/// A change of one peer, inside of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerChange {
    /// Takes it away, with its session and all that it holds.
    Remove(VpnPubKey),
    /// Makes it, or sets what it is allowed; an endpoint of none leaves the kernel's.
    Set {
        /// Key of the peer.
        key: VpnPubKey,
        /// Where packets go from now on.
        endpoint: Option<SocketAddrV4>,
        /// Prefixes whose packets are the peer's, instead of what was allowed before.
        allowed: BTreeSet<Ipv4Prefix>,
    },
    /// Sets where packets go, and nothing else.
    Move {
        /// Key of the peer.
        key: VpnPubKey,
        /// Where.
        endpoint: SocketAddrV4,
    },
}

/// A change of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To be routed to the interface, with this limit or none.
    Set(Ipv4Prefix, Option<u16>),
    /// To be routed there no more.
    Remove(Ipv4Prefix),
    /// This address alone is reached by this way from now on.
    Detour(Ipv4Addr, Way),
    /// This address is reached by the usual way again.
    Return(Ipv4Addr),
}
