//! Wiring of a network, and frames on their way in it: segments, their cables, and what is at the cables' ends. Pure:
//! frames and `now` in, frames and records of captures out.
//!
//! ```text
//!   machine ═ sent ═►┐        ┌═ received ═► queue ═► machine
//!                    ├ switch ┤                                  ═ one direction of a cable, with its faults
//!      host ═ sent ═►┤        ├═ received ═► host
//!   gateway ═ sent ═►┘        └═ received ═► gateway, which is the same one on all segments
//! ```
//! Every frame is counted in the direction that it travels; none is lost without a reason.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::counters::{DropReason, FrameCounters};
use super::fault::{Faults, Line, Random};
use super::frame::Frame;
use super::gateway::{BadGateway, Connection, Gateway, GatewaySetup, GatewayTarget, LegId};
use super::host::{BadSetup, NoReport, PortService, Setup, Station};
use super::leases::LeaseState;
use super::pcap::Direction;
use super::scan::{Report, Scan};
use super::switch::{Port, Switch};
use crate::machine::Mac;

/// A segment of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentId(usize);

/// Bytes that wait for a machine before more are dropped. A machine that is halted must not cost the host's memory;
/// one that is slow has a buffer as large as a switch's.
const BACKLOG: usize = 1 << 20;
/// A host of ours sends to a machine while less than this waits for it, so that its questions wait with the host, which
/// counts time for an answer from when they have left.
const ROOM: usize = 64 * 1024;

/// Wiring of all segments, with the frames in it.
pub(super) struct Wiring {
    random: Random,
    switches: Vec<Switch>,
    cables: Vec<Cable>,
    /// The gateway of all segments that have one.
    pub(super) gateway: Gateway,
    results: Vec<(Port, Result<Report, NoReport>)>,
    captured: Vec<Captured>,
}

/// A frame that went by the end of a cable whose frames are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) port: Port,
    pub(super) direction: Direction,
    pub(super) at: Duration,
    pub(super) frame: Frame,
}

struct Cable {
    segment: SegmentId,
    sent: Lane,
    received: Lane,
    end: End,
    capture: Capture,
}

struct Lane {
    line: Line,
    counters: FrameCounters,
}

/// End of a cable: a machine, a host of ours or the gateway.
enum End {
    /// A machine's network card that nobody has switched on.
    Off,
    /// A machine's network card, and what waits for it.
    Machine(Queue),
    /// A host of ours.
    Host(Box<Station>),
    /// The gateway, and its place on this segment.
    Gateway(LegId),
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capture {
    Off,
    On,
}

impl Wiring {
    /// Wiring without segments. What chance does to frames follows from the seed.
    pub(super) fn new(seed: u64) -> Self {
        let (switches, cables, results, captured) = (vec![], vec![], vec![], vec![]);
        Self { random: Random(seed), switches, cables, gateway: Gateway::default(), results, captured }
    }

    /// Adds a segment without cables.
    pub(super) fn add_segment(&mut self) -> SegmentId {
        self.switches.push(Switch::default());
        SegmentId(self.switches.len() - 1)
    }

    /// A cable for a machine's network card, which is off.
    pub(super) fn add_machine(&mut self, segment: SegmentId) -> Port {
        self.add(segment, End::Off)
    }

    /// A host of ours. `epoch` is the instant that every `now` counts from.
    pub(super) fn add_host(&mut self, segment: SegmentId, setup: &Setup, epoch: Instant) -> Result<Port, BadSetup> {
        Ok(self.add(segment, End::Host(Box::new(Station::new(setup, epoch)?))))
    }

    /// The gateway's place on this segment. `epoch` is the instant that every `now` counts from.
    pub(super) fn add_gateway(
        &mut self,
        segment: SegmentId,
        setup: &GatewaySetup,
        epoch: Instant,
    ) -> Result<Port, BadGateway> {
        let leg = self.gateway.add(setup, epoch)?;
        Ok(self.add(segment, End::Gateway(leg)))
    }

    fn add(&mut self, segment: SegmentId, end: End) -> Port {
        let port = Port(self.cables.len());
        let mut lane = || Lane { line: Line::new(self.random.draw()), counters: FrameCounters::default() };
        self.cables.push(Cable { segment, sent: lane(), received: lane(), end, capture: Capture::Off });
        self.switches[segment.0].plug(port);
        port
    }

    /// From now on the cable has these faults in that direction.
    pub(super) fn set_faults(&mut self, port: Port, direction: Direction, faults: Faults) {
        let lane = self.cables[port.0].lane(direction);
        lane.line.set_faults(faults, &mut lane.counters);
    }

    /// Counts of the frames of that direction, by what became of them.
    pub(super) fn counters(&mut self, port: Port, direction: Direction) -> FrameCounters {
        let cable = &mut self.cables[port.0];
        let waiting = match (&cable.end, direction) {
            (End::Machine(queue), Direction::Received) => queue.frames.len(),
            (End::Machine(_), Direction::Sent) | (End::Off | End::Host(_) | End::Gateway(_), _) => 0,
        };
        let lane = cable.lane(direction);
        FrameCounters { held: (lane.line.held() + waiting) as u64, ..lane.counters.clone() }
    }

    /// From now on what the cable's end sends and receives is kept for [`Self::captured`].
    pub(super) fn capture(&mut self, port: Port) {
        self.cables[port.0].capture = Capture::On;
    }

    /// From now on it is not.
    pub(super) fn end_capture(&mut self, port: Port) {
        self.cables[port.0].capture = Capture::Off;
    }

    /// Frames that were captured since the last time.
    pub(super) fn captured(&mut self) -> Vec<Captured> {
        std::mem::take(&mut self.captured)
    }

    /// A machine was switched on, perhaps in the place of another one.
    pub(super) fn connect(&mut self, port: Port) {
        self.disconnect(port);
        self.cables[port.0].end = End::Machine(Queue::default());
    }

    /// The machine is gone, and with it what waited for it.
    pub(super) fn disconnect(&mut self, port: Port) {
        let cable = &mut self.cables[port.0];
        if let End::Machine(queue) = &cable.end {
            cable.received.counters.drop(DropReason::Unplugged, queue.frames.len());
            cable.end = End::Off;
        }
        self.switches[cable.segment.0].forget(port);
    }

    /// Takes what a machine sends.
    pub(super) fn send(&mut self, port: Port, bytes: &[u8], now: Duration) {
        let cable = &mut self.cables[port.0];
        let Ok(frame) = Frame::parse(bytes) else {
            cable.sent.counters.taken += 1;
            cable.sent.counters.drop(DropReason::Runt, 1);
            return;
        };
        self.carry(port, &frame, now);
    }

    fn carry(&mut self, port: Port, frame: &Frame, now: Duration) {
        let cable = &mut self.cables[port.0];
        if cable.capture == Capture::On {
            let captured = Captured { port, direction: Direction::Sent, at: now, frame: frame.clone() };
            self.captured.push(captured);
        }
        cable.sent.line.send(frame, now, &mut cable.sent.counters);
    }

    /// The next frame for a machine.
    pub(super) fn receive(&mut self, port: Port) -> Option<Frame> {
        let cable = &mut self.cables[port.0];
        let End::Machine(queue) = &mut cable.end else { return None };
        let frame = queue.frames.pop_front()?;
        queue.bytes -= frame.bytes().len();
        cable.received.counters.delivered += 1;
        Some(frame)
    }

    /// Begins a scan by a host of ours; one that still runs is forgotten.
    pub(super) fn scan(&mut self, host: Port, scan: Scan) {
        if let End::Host(station) = &mut self.cables[host.0].end {
            station.start(scan);
        }
    }

    /// The scans that have ended since the last time.
    pub(super) fn results(&mut self) -> Vec<(Port, Result<Report, NoReport>)> {
        std::mem::take(&mut self.results)
    }

    /// The address that the card `mac` holds of that host or gateway, or has been offered.
    pub(super) fn lease(&self, giver: Port, mac: Mac) -> Option<Ipv4Addr> {
        match &self.cables[giver.0].end {
            End::Host(station) => station.lease(mac),
            End::Gateway(leg) => self.gateway.lease(*leg, mac),
            End::Off | End::Machine(_) => None,
        }
    }

    /// Tells a host of ours which address of its own a card has of an earlier network.
    pub(super) fn remember(&mut self, host: Port, card: Mac, address: Ipv4Addr, now: Duration) {
        if let End::Host(station) = &mut self.cables[host.0].end {
            station.remember(card, address, now);
        }
    }

    /// Has a host of ours answer this name.
    pub(super) fn name(&mut self, host: Port, name: &str, address: Ipv4Addr) {
        if let End::Host(station) = &mut self.cables[host.0].end {
            station.name(name, address);
        }
    }

    /// Has a program listen at a port of a host of ours.
    pub(super) fn serve(&mut self, host: Port, port: u16, service: Box<dyn PortService>) {
        if let End::Host(station) = &mut self.cables[host.0].end {
            station.serve(port, service);
        }
    }

    /// Keeps an address of the gateway's on that cable for one card alone.
    pub(super) fn reserve(&mut self, gateway: Port, card: Mac, address: Ipv4Addr, held: LeaseState, now: Duration) {
        if let End::Gateway(leg) = self.cables[gateway.0].end {
            self.gateway.reserve(leg, card, address, held, now);
        }
    }

    /// The network card of the machine of this name.
    pub(super) fn named(&self, name: &str) -> Option<Mac> {
        self.gateway.named(name)
    }

    /// Begins a connection by the gateway on that cable; none when it is not known where the machine is.
    pub(super) fn open(&mut self, gateway: Port, target: GatewayTarget, port: u16) -> Option<Connection> {
        match self.cables[gateway.0].end {
            End::Gateway(leg) => self.gateway.open(leg, target, port),
            End::Off | End::Machine(_) | End::Host(_) => None,
        }
    }

    /// Moves every frame that can move by now. Ends, since what hosts of ours say to each other does.
    pub(super) fn poll(&mut self, now: Duration) {
        let (mut moved, mut ways) = (true, Vec::new());
        while std::mem::take(&mut moved) {
            for index in 0..self.cables.len() {
                moved |= self.hear_host(Port(index), now) || self.hear_gateway(Port(index), now);
                while let Some(frame) = self.cables[index].sent.line.receive(now) {
                    moved = true;
                    self.switch(Port(index), &frame, now, &mut ways);
                }
            }
            for index in 0..self.cables.len() {
                while let Some(frame) = self.cables[index].received.line.receive(now) {
                    moved = true;
                    self.deliver(Port(index), frame, now);
                }
            }
        }
    }

    /// Time until [`Self::poll`] has to be called even if no frame comes.
    pub(super) fn poll_delay(&mut self, now: Duration) -> Option<Duration> {
        let next = self.cables.iter_mut().flat_map(|cable| {
            let lines = [&cable.sent, &cable.received].map(|lane| lane.line.next_arrival());
            let host = match &mut cable.end {
                End::Host(station) => station.poll_delay(now),
                End::Gateway(leg) => self.gateway.poll_delay(*leg, now),
                End::Off | End::Machine(_) => None,
            };
            lines.map(|at| at.map(|at| at.saturating_sub(now))).into_iter().chain([host]).flatten()
        });
        next.min()
    }

    /// Lets a host of ours work; whether it sent anything.
    fn hear_host(&mut self, port: Port, now: Duration) -> bool {
        let mut sent = false;
        let cable = &mut self.cables[port.0];
        let End::Host(station) = &mut cable.end else { return false };
        if let Some(result) = station.poll(now) {
            self.results.push((port, result));
        }
        while let Some(frame) = self.next_of_host(port, now) {
            self.carry(port, &frame, now);
            sent = true;
        }
        sent
    }

    /// Lets the gateway work on one of its segments; whether it sent anything.
    fn hear_gateway(&mut self, port: Port, now: Duration) -> bool {
        let End::Gateway(leg) = self.cables[port.0].end else { return false };
        self.gateway.poll(leg, now);
        let mut sent = false;
        while let Some(frame) = self.gateway.send(leg) {
            self.carry(port, &frame, now);
            sent = true;
        }
        sent
    }

    /// Next frame that a host of ours has to send, unless it is for a machine for which too much waits already.
    fn next_of_host(&mut self, port: Port, now: Duration) -> Option<Frame> {
        let cable = &self.cables[port.0];
        let End::Host(station) = &cable.end else { return None };
        let place = self.switches[cable.segment.0].place(station.next_destination()?, now);
        if let Some(place) = place
            && let End::Machine(queue) = &self.cables[place.0].end
            && queue.bytes >= ROOM
        {
            return None;
        }
        match &mut self.cables[port.0].end {
            End::Host(station) => station.send(),
            End::Off | End::Machine(_) | End::Gateway(_) => None,
        }
    }

    /// Takes a frame that arrived at the switch.
    fn switch(&mut self, from: Port, frame: &Frame, now: Duration, ways: &mut Vec<Port>) {
        let cable = &mut self.cables[from.0];
        match self.switches[cable.segment.0].pass(from, frame, now, ways) {
            Ok(()) => cable.sent.counters.delivered += 1,
            Err(reason) => cable.sent.counters.drop(reason, 1),
        }
        for way in ways {
            let received = &mut self.cables[way.0].received;
            received.line.send(frame, now, &mut received.counters);
        }
    }

    /// Takes a frame that arrived at the end of its cable.
    fn deliver(&mut self, port: Port, frame: Frame, now: Duration) {
        let cable = &mut self.cables[port.0];
        let counters = &mut cable.received.counters;
        let length = frame.bytes().len();
        match &cable.end {
            End::Off => return counters.drop(DropReason::Unplugged, 1),
            End::Machine(queue) if queue.bytes + length > BACKLOG => return counters.drop(DropReason::Backlog, 1),
            End::Machine(_) | End::Host(_) | End::Gateway(_) => {}
        }
        if cable.capture == Capture::On {
            let captured = Captured { port, direction: Direction::Received, at: now, frame: frame.clone() };
            self.captured.push(captured);
        }
        match &mut cable.end {
            End::Off => {}
            End::Machine(queue) => {
                queue.bytes += length;
                queue.frames.push_back(frame);
            }
            End::Host(station) => {
                counters.delivered += 1;
                station.receive(frame, now);
            }
            End::Gateway(leg) => {
                counters.delivered += 1;
                self.gateway.receive(*leg, frame, now);
            }
        }
    }
}

impl Cable {
    fn lane(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Sent => &mut self.sent,
            Direction::Received => &mut self.received,
        }
    }
}

#[cfg(test)]
mod tests;
