//! Between a TCP/IP stack (smoltcp) and the virtual network: two queues, of frames on a cable or of packets without one. Pure; it
//! looks into none.

use std::collections::VecDeque;
use std::time::Duration;

use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use super::frame::Frame;

/// Frames that wait for the cable before the stack has to wait, too.
pub(super) const OUTGOING: usize = 256;

/// The stack's word for a time of the network's clock.
pub(super) fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// Frame or packet that a stack sends and receives.
pub(super) trait Unit {
    const MEDIUM: Medium;
    const LONGEST: usize;

    fn bytes(&self) -> &[u8];

    /// The unit of bytes that a stack made.
    fn made(bytes: Vec<u8>) -> Self;
}

impl Unit for Frame {
    const MEDIUM: Medium = Medium::Ethernet;
    const LONGEST: usize = 1514;

    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn made(bytes: Vec<u8>) -> Self {
        Self::parse(&bytes).expect("what is sent on Ethernet has its header")
    }
}

/// IPv4 packet, without a frame.
pub(super) struct IpPacket(pub(super) Vec<u8>);

impl Unit for IpPacket {
    const MEDIUM: Medium = Medium::Ip;
    const LONGEST: usize = 1500;

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn made(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// Frames or packets between a stack and the network.
pub(super) struct Wire<U> {
    pub(super) incoming: VecDeque<U>,
    pub(super) outgoing: VecDeque<U>,
}

impl<U> Default for Wire<U> {
    fn default() -> Self {
        Self { incoming: VecDeque::new(), outgoing: VecDeque::new() }
    }
}

impl<U: Unit> Device for Wire<U> {
    type RxToken<'a>
        = Received<U>
    where
        U: 'a;
    type TxToken<'a>
        = Room<'a, U>
    where
        U: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<U>, Room<'_, U>)> {
        let unit = self.incoming.pop_front()?;
        Some((Received(unit), Room(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_, U>> {
        (self.outgoing.len() < OUTGOING).then_some(Room(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = U::MEDIUM;
        capabilities.max_transmission_unit = U::LONGEST;
        capabilities
    }
}

pub(super) struct Received<U>(U);

impl<U: Unit> phy::RxToken for Received<U> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(self.0.bytes())
    }
}

pub(super) struct Room<'a, U>(&'a mut VecDeque<U>);

impl<U: Unit> phy::TxToken for Room<'_, U> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut bytes = vec![0; length];
        let result = fill(&mut bytes);
        self.0.push_back(U::made(bytes));
        result
    }
}
