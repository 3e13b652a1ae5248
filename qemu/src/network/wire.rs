//! Between a TCP/IP stack (smoltcp) and a cable of the virtual network: two queues of frames. Pure; it looks into none.

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

/// Frames between the stack and the cable.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) incoming: VecDeque<Frame>,
    pub(super) outgoing: VecDeque<Frame>,
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Room<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((Received(frame), Room(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        (self.outgoing.len() < OUTGOING).then_some(Room(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

pub(super) struct Received(Frame);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(self.0.bytes())
    }
}

pub(super) struct Room<'a>(&'a mut VecDeque<Frame>);

impl phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        self.0.push_back(Frame::parse(&frame).expect("what is sent on Ethernet has its header"));
        result
    }
}
