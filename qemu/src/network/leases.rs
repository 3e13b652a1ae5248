//! A host's DHCP server: [`dhcp::server`] on the host's segment. Pure but for the type of its clock.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use dhcp::frame::{self, Datagram};
use dhcp::server::{Config, InvalidConfig, Server};

use super::frame::Frame;
use crate::machine::Mac;

#[derive(Debug)]
pub(super) struct Leases {
    server: Server,
    mac: Mac,
    address: Ipv4Addr,
    /// The instant that the network's clock counts from.
    epoch: Instant,
}

/// Whether a card has its address already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The card will ask for its address.
    NotYet,
    /// An earlier network gave it.
    FromBefore,
}

impl Leases {
    pub(super) fn new(config: Config, mac: Mac, epoch: Instant) -> Result<Self, InvalidConfig> {
        let address = config.address;
        Ok(Self { server: Server::new(config)?, mac, address, epoch })
    }

    /// Takes a frame; none when it is not for a DHCP server. The answer is a frame, too, if there is one.
    pub(super) fn handle(&mut self, frame: &[u8], now: Duration) -> Option<Option<Frame>> {
        let datagram = frame::parse(frame).ok()?;
        if datagram.destination.port() != dhcp::SERVER_PORT {
            return None;
        }
        let reply = self.server.handle(datagram.payload, self.epoch + now);
        Some(reply.and_then(|reply| {
            let bytes = frame::build(&Datagram {
                source_mac: dhcp::HardwareAddress(self.mac.0),
                destination_mac: reply.mac,
                source: SocketAddrV4::new(self.address, dhcp::SERVER_PORT),
                destination: SocketAddrV4::new(reply.destination, dhcp::CLIENT_PORT),
                payload: &reply.bytes,
            });
            // A lease always fits a frame.
            Frame::parse(&bytes.ok()?).ok()
        }))
    }

    /// From now on this address is for that card alone.
    pub(super) fn reserve(&mut self, mac: Mac, address: Ipv4Addr, held: LeaseState, now: Duration) {
        self.server.reserve(address, dhcp::HardwareAddress(mac.0));
        match held {
            LeaseState::NotYet => {}
            LeaseState::FromBefore => self.remember(mac, address, now),
        }
    }

    /// The card has this address of an earlier network, and a whole lease from now on: no less than it knows of.
    pub(super) fn remember(&mut self, mac: Mac, address: Ipv4Addr, now: Duration) {
        self.server.remember(address, dhcp::HardwareAddress(mac.0), self.epoch + now);
    }

    /// The address that the card `mac` holds, or has been offered.
    pub(super) fn of(&self, mac: Mac) -> Option<Ipv4Addr> {
        self.server.leases().find(|(_, holder)| holder.0 == mac.0).map(|(address, _)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcp::wire::{DhcpMessage, MessageType};

    const CARD: Mac = Mac::numbered(9);
    const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
    const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 100);

    fn config() -> Config {
        Config {
            address: SERVER,
            prefix: dhcp::Prefix::new(24).unwrap(),
            first: FIRST,
            last: Ipv4Addr::new(192, 168, 7, 109),
            routers: vec![],
            dns: vec![],
            lease_seconds: 10,
        }
    }

    fn leases() -> Leases {
        Leases::new(config(), Mac::numbered(1), crate::deadline::Stopwatch::start().began()).unwrap()
    }

    fn broadcast(port: u16, payload: &[u8]) -> Vec<u8> {
        frame::build(&Datagram {
            source_mac: dhcp::HardwareAddress(CARD.0),
            destination_mac: dhcp::HardwareAddress::BROADCAST,
            source: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, dhcp::CLIENT_PORT),
            destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, port),
            payload,
        })
        .unwrap()
    }

    #[test]
    fn a_card_gets_its_lease_and_loses_it_when_it_ends() {
        let mut leases = leases();
        let discover = DhcpMessage::new(MessageType::Discover, 7, dhcp::HardwareAddress(CARD.0));
        let offer = leases.handle(&broadcast(dhcp::SERVER_PORT, &discover.emit()), Duration::ZERO).unwrap().unwrap();
        let offer = DhcpMessage::parse(frame::parse(offer.bytes()).unwrap().payload).unwrap();
        assert_eq!((offer.message_type, offer.yiaddr), (MessageType::Offer, FIRST));

        let mut request = DhcpMessage::new(MessageType::Request, 7, dhcp::HardwareAddress(CARD.0));
        (request.requested_ip, request.server_id) = (Some(FIRST), Some(SERVER));
        let ack = leases.handle(&broadcast(dhcp::SERVER_PORT, &request.emit()), Duration::ZERO).unwrap().unwrap();
        assert_eq!(ack.source(), Mac::numbered(1));
        let ack = DhcpMessage::parse(frame::parse(ack.bytes()).unwrap().payload).unwrap();
        assert_eq!((ack.message_type, ack.lease_time), (MessageType::Ack, Some(10)));
        assert_eq!(leases.of(CARD), Some(FIRST));

        // Any word to the server makes it look at its clock.
        assert_eq!(leases.handle(&broadcast(dhcp::SERVER_PORT, b"garbage"), Duration::from_secs(11)), Some(None));
        let late = DhcpMessage::new(MessageType::Inform, 8, dhcp::HardwareAddress([2; 6]));
        assert_eq!(leases.handle(&broadcast(dhcp::SERVER_PORT, &late.emit()), Duration::from_secs(11)), Some(None));
        assert_eq!(leases.of(CARD), None);
    }

    #[test]
    fn a_card_with_an_earlier_address_is_known_and_a_new_awaited() {
        let mut leases = leases();
        let (other, second) = (Mac::numbered(8), Ipv4Addr::new(192, 168, 7, 101));
        leases.reserve(CARD, FIRST, LeaseState::FromBefore, Duration::ZERO);
        leases.reserve(other, second, LeaseState::NotYet, Duration::ZERO);
        assert_eq!((leases.of(CARD), leases.of(other)), (Some(FIRST), None));
    }

    #[test]
    fn other_frames_are_left_to_the_stack() {
        assert_eq!(leases().handle(&broadcast(53, b"x"), Duration::ZERO), None);
        assert_eq!(leases().handle(&[0; 60], Duration::ZERO), None);
    }
}
