//! A server for one virtual network: leases by Ethernet address, short ones where tests want to see them end.
//! It must never give one address to two clients, nor answer for another server. Not for hostile networks: a client
//! that changes its address all the time empties the pool until its reservations are over.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::wire::{DhcpMessage, HardwareAddress, MessageType, Prefix};

/// How long an offer is kept for the client it was made to.
const OFFER_KEPT: Duration = Duration::from_secs(10);

/// Network and pool of a server, and the options that it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Address of the server itself.
    pub address: Ipv4Addr,
    /// The network's prefix length.
    pub prefix: Prefix,
    /// First address given.
    pub first: Ipv4Addr,
    /// Last address given.
    pub last: Ipv4Addr,
    /// The clients' ways out (option 3), the first first.
    pub routers: Vec<Ipv4Addr>,
    /// The clients' resolvers (option 6), the first first.
    pub dns: Vec<Ipv4Addr>,
    /// How long a lease lasts, in seconds; `u32::MAX` is for ever. T1 and T2 are half and seven eighths of it.
    pub lease_seconds: u32,
}

/// Why a server cannot work like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidConfig {
    /// The pool is empty or reaches beyond the network.
    #[error("the pool from {first} to {last} is not part of the server's network")]
    Pool {
        /// First address of the pool.
        first: Ipv4Addr,
        /// Last address of the pool.
        last: Ipv4Addr,
    },
    /// The server's own address is none a host can have.
    #[error("{0} is not an address of a host in the server's network")]
    Address(Ipv4Addr),
}

/// An answer and where it goes, both on the link and in IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The receiving station.
    pub mac: HardwareAddress,
    /// The receiving address; from the server's address and port, to the client's port.
    pub destination: Ipv4Addr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// DHCP server with its leases, in memory only.
#[derive(Debug)]
pub struct Server {
    config: Config,
    reserved: BTreeMap<Ipv4Addr, HardwareAddress>,
    held: BTreeMap<Ipv4Addr, Hold>,
}

/// Hold of a client on an address, with its end.
#[derive(Debug, Clone, Copy)]
struct Hold {
    by: Holder,
    until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Client(HardwareAddress),
    /// A client found it in use by somebody who never asked.
    Stranger,
}

impl Server {
    /// A server without leases.
    ///
    /// # Errors
    /// [`InvalidConfig`] names what cannot be.
    pub fn new(config: Config) -> Result<Self, InvalidConfig> {
        let Config { address, prefix, first, last, .. } = config;
        if !prefix.is_host(address) {
            return Err(InvalidConfig::Address(address));
        }
        let in_network = |end| prefix.is_host(end) && prefix.joins(end, address);
        if first > last || !in_network(first) || !in_network(last) {
            return Err(InvalidConfig::Pool { first, last });
        }
        Ok(Self { config, reserved: BTreeMap::new(), held: BTreeMap::new() })
    }

    /// From now on `address` is for this client alone, and the only one that it is given.
    pub fn reserve(&mut self, address: Ipv4Addr, client: HardwareAddress) {
        self.reserved.insert(address, client);
    }

    /// The address that is reserved for a client.
    #[must_use]
    pub fn reservation(&self, client: HardwareAddress) -> Option<Ipv4Addr> {
        self.reserved.iter().find(|(_, holder)| **holder == client).map(|(&address, _)| address)
    }

    /// A client is known to have an address of an earlier run of this server: as if it had been given one now.
    pub fn remember(&mut self, address: Ipv4Addr, client: HardwareAddress, now: Instant) {
        self.hold(address, client, self.lease_until(now));
    }

    /// Answers one UDP payload that came to the server's port, if there is something to answer. What is malformed, for
    /// another server, or came through a relay gets no answer.
    pub fn handle(&mut self, payload: &[u8], now: Instant) -> Option<Reply> {
        let message = DhcpMessage::parse(payload).ok().filter(|message| message.giaddr.is_unspecified())?;
        self.held.retain(|_, hold| hold.until.is_none_or(|until| now < until));
        match message.message_type {
            MessageType::Discover => {
                let address = self.address_for(&message)?;
                let kept = self.held.get(&address).and_then(|hold| hold.until).unwrap_or(now);
                self.hold(address, message.chaddr, Some(kept.max(now + OFFER_KEPT)));
                Some(self.give(MessageType::Offer, &message, address))
            }
            MessageType::Request => self.request(&message, now),
            MessageType::Decline => {
                let address = self.named_to_us(&message)?;
                if self.is_held_by(address, message.chaddr) {
                    self.held.insert(address, Hold { by: Holder::Stranger, until: self.lease_until(now) });
                }
                None
            }
            MessageType::Release => {
                if message.server_id == Some(self.config.address) && self.is_held_by(message.ciaddr, message.chaddr) {
                    self.held.remove(&message.ciaddr);
                }
                None
            }
            // Nobody in a virtual network has an address from elsewhere, and the rest are servers' words.
            MessageType::Inform | MessageType::Offer | MessageType::Ack | MessageType::Nak => None,
        }
    }

    /// Stations that hold a lease or an offer, by address.
    pub fn leases(&self) -> impl Iterator<Item = (Ipv4Addr, HardwareAddress)> {
        self.held.iter().filter_map(|(&address, hold)| match hold.by {
            Holder::Client(mac) => Some((address, mac)),
            Holder::Stranger => None,
        })
    }

    fn request(&mut self, message: &DhcpMessage, now: Instant) -> Option<Reply> {
        let mac = message.chaddr;
        let address = if message.server_id.is_some() {
            let Some(address) = self.named_to_us(message) else {
                // It took another server's offer: ours is free again.
                self.held.retain(|_, hold| hold.by != Holder::Client(mac));
                return None;
            };
            address
        } else {
            // Renewing and rebinding; a client that rebooted names its old address in option 50.
            message.requested_ip.unwrap_or(message.ciaddr)
        };
        // A server that came back without memory takes its clients' word for what is free.
        if self.is_held_by(address, mac) || self.is_free_for(address, mac) {
            self.held.retain(|_, hold| hold.by != Holder::Client(mac));
            self.hold(address, mac, self.lease_until(now));
            return Some(self.give(MessageType::Ack, message, address));
        }
        let mut nak = DhcpMessage::new(MessageType::Nak, message.xid, mac);
        nak.server_id = Some(self.config.address);
        Some(Reply { mac: HardwareAddress::BROADCAST, destination: Ipv4Addr::BROADCAST, bytes: nak.emit() })
    }

    /// The address a message names, if it names us with it.
    fn named_to_us(&self, message: &DhcpMessage) -> Option<Ipv4Addr> {
        message.requested_ip.filter(|_| message.server_id == Some(self.config.address))
    }

    /// The one it has, the one it would like, the first that is free.
    fn address_for(&self, message: &DhcpMessage) -> Option<Ipv4Addr> {
        let has = self.held.iter().find(|(_, hold)| hold.by == Holder::Client(message.chaddr));
        if let Some((&address, _)) = has {
            return Some(address);
        }
        let is_free = |&address: &Ipv4Addr| self.is_free_for(address, message.chaddr);
        message.requested_ip.filter(is_free).or_else(|| {
            let pool = self.config.first.to_bits()..=self.config.last.to_bits();
            pool.map(Ipv4Addr::from_bits).find(is_free)
        })
    }

    fn is_free_for(&self, address: Ipv4Addr, client: HardwareAddress) -> bool {
        let is_meant = match (self.reserved.get(&address), self.reservation(client)) {
            (Some(holder), _) => *holder == client,
            (None, reserved) => reserved.is_none(),
        };
        self.is_in_pool(address) && is_meant && !self.held.contains_key(&address)
    }

    fn is_in_pool(&self, address: Ipv4Addr) -> bool {
        (self.config.first..=self.config.last).contains(&address) && address != self.config.address
    }

    fn is_held_by(&self, address: Ipv4Addr, mac: HardwareAddress) -> bool {
        self.held.get(&address).is_some_and(|hold| hold.by == Holder::Client(mac))
    }

    fn hold(&mut self, address: Ipv4Addr, mac: HardwareAddress, until: Option<Instant>) {
        self.held.insert(address, Hold { by: Holder::Client(mac), until });
    }

    fn lease_until(&self, now: Instant) -> Option<Instant> {
        let seconds = self.config.lease_seconds;
        (seconds != u32::MAX).then(|| now + Duration::from_secs(seconds.into()))
    }

    fn give(&self, message_type: MessageType, to: &DhcpMessage, address: Ipv4Addr) -> Reply {
        let config = &self.config;
        let mut message = DhcpMessage::new(message_type, to.xid, to.chaddr);
        message.broadcast = to.broadcast;
        message.ciaddr = if message_type == MessageType::Ack { to.ciaddr } else { Ipv4Addr::UNSPECIFIED };
        message.yiaddr = address;
        message.server_id = Some(config.address);
        message.prefix = Some(config.prefix);
        message.routers.clone_from(&config.routers);
        message.dns.clone_from(&config.dns);
        message.lease_time = Some(config.lease_seconds);
        if config.lease_seconds != u32::MAX {
            message.renewal_time = Some(config.lease_seconds / 2);
            message.rebinding_time = Some(config.lease_seconds - config.lease_seconds.div_ceil(8));
        }
        // RFC 2131 §4.1: to its address where it has one, to all where it asks, else to the one it is about to get.
        let (mac, destination) = match (to.ciaddr.is_unspecified(), to.broadcast) {
            (false, _) => (to.chaddr, to.ciaddr),
            (true, true) => (HardwareAddress::BROADCAST, Ipv4Addr::BROADCAST),
            (true, false) => (to.chaddr, address),
        };
        Reply { mac, destination, bytes: message.emit() }
    }
}
