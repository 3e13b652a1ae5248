//! A caller of the loopback who wants a port of whichever machine has it open: machines are called one after the other, a little
//! apart, and the first that answers has the caller (as RFC 8305 has it for the addresses of a name).

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Duration;

use super::super::gateway::{Connection, GatewayTarget, Incoming};
use super::super::switch::Port;
use super::super::wiring::Wiring;
use crate::machine::Mac;

/// Time that a machine has alone before the next one is called as well. A machine whose port is closed is silent.
const APART: Duration = Duration::from_millis(300);
/// Time after which nobody will answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Caller whom no machine has answered yet.
pub(super) struct Race {
    pub(super) socket: TcpStream,
    /// Number of the door that he came by.
    pub(super) door: usize,
    gateway: Port,
    port: u16,
    uncalled: VecDeque<Mac>,
    called: Vec<(Mac, Connection)>,
    /// When the next machine is called, though others may answer.
    next: Duration,
    until: Duration,
}

/// How far it is.
pub(super) enum Lap {
    /// No machine has answered.
    Goes,
    /// This machine has.
    Won(Mac, Connection),
    /// None will.
    Lost,
}

impl Race {
    /// Race for a port of machines with these cards, of which the first is called first.
    pub(super) fn new(
        socket: TcpStream,
        (door, gateway): (usize, Port),
        port: u16,
        cards: VecDeque<Mac>,
        now: Duration,
    ) -> Self {
        let (called, until) = (Vec::new(), now + PATIENCE);
        Self { socket, door, gateway, port, uncalled: cards, called, next: now, until }
    }

    /// When it has to be looked at, even if no machine says anything.
    pub(super) fn next(&self) -> Duration {
        if self.uncalled.is_empty() { self.until } else { self.next.min(self.until) }
    }

    /// Looks who has answered, and calls the next machine when it is time to.
    pub(super) fn look(&mut self, wiring: &mut Wiring, now: Duration) -> Lap {
        let gateway = &mut wiring.gateway;
        if let Some((card, won)) = self.called.iter().find(|(_, connection)| gateway.takes(*connection)).copied() {
            self.called.iter().filter(|(_, other)| *other != won).for_each(|(_, other)| gateway.abort(*other));
            return Lap::Won(card, won);
        }
        self.called.retain(|(_, connection)| {
            let rings = matches!(gateway.incoming(*connection), Incoming::Later | Incoming::Bytes);
            if !rings {
                gateway.release(*connection);
            }
            rings
        });
        if now >= self.until {
            self.called.drain(..).for_each(|(_, connection)| gateway.abort(connection));
            return Lap::Lost;
        }
        while self.called.is_empty() || now >= self.next {
            let Some(card) = self.uncalled.pop_front() else { break };
            // One whose address is not known is passed over.
            if let Some(connection) = wiring.open(self.gateway, GatewayTarget::Card(card), self.port) {
                self.called.push((card, connection));
                self.next = now + APART;
            }
        }
        if self.called.is_empty() { Lap::Lost } else { Lap::Goes }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::super::super::fault::Faults;
    use super::super::super::gateway::GatewaySetup;
    use super::super::super::leases::LeaseState;
    use super::super::super::pcap::Direction;
    use super::super::super::peer::Peer;
    use super::*;
    use crate::deadline::Stopwatch;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

    /// Two machines on a segment, and a race between them.
    struct Track {
        wiring: Wiring,
        machines: Vec<(Port, Peer)>,
        race: Race,
        now: Duration,
    }

    impl Track {
        fn new() -> Self {
            let mut wiring = Wiring::new(7);
            let (segment, now) = (wiring.add_segment(), Duration::from_secs(1));
            let address = |number| Ipv4Addr::new(10, 0, 2, number);
            let setup = GatewaySetup {
                mac: Mac::numbered(0x00ff_fffe),
                address: ROUTER,
                prefix: dhcp::Prefix::new(24).unwrap(),
                pool: (address(15), address(16)),
                lease_seconds: 60,
            };
            let gateway = wiring.add_gateway(segment, &setup, Stopwatch::start().began()).unwrap();
            let (mut machines, mut cards) = (Vec::new(), VecDeque::new());
            for number in [15, 16] {
                let (card, port) = (Mac::numbered(number.into()), wiring.add_machine(segment));
                wiring.connect(port);
                wiring.reserve(gateway, card, address(number), LeaseState::FromBefore, now);
                machines.push((port, Peer::new(card, address(number), ROUTER)));
                cards.push_back(card);
            }
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let race = Race::new(socket, (0, gateway), 80, cards, now + Duration::from_secs(2));
            let mut track = Self { race, wiring, machines, now };
            // From now on the machines know where the gateway is.
            for number in [15, 16] {
                track.wiring.open(gateway, GatewayTarget::Card(Mac::numbered(number)), 81);
            }
            (0..200).for_each(|_| track.step());
            track
        }

        fn step(&mut self) {
            self.now += Duration::from_millis(10);
            self.wiring.poll(self.now);
            for (port, peer) in &mut self.machines {
                let (wiring, port) = (&mut self.wiring, *port);
                let received: Vec<_> = std::iter::from_fn(|| wiring.receive(port)).collect();
                for frame in peer.exchange(received.into_iter(), self.now) {
                    wiring.send(port, frame.bytes(), self.now);
                }
            }
            self.wiring.poll(self.now);
        }

        /// Runs it: who has won, how many were called, and how long it took.
        fn run(&mut self) -> (Option<u8>, usize, Duration) {
            let (began, mut called) = (self.now, 0);
            loop {
                let lap = self.race.look(&mut self.wiring, self.now);
                called = called.max(2 - self.race.uncalled.len());
                match lap {
                    Lap::Goes => {}
                    Lap::Won(card, _) => return (Some(card.0[5]), called, self.now - began),
                    Lap::Lost => return (None, called, self.now - began),
                }
                self.step();
            }
        }

        fn is_silent(&mut self, machine: usize) {
            self.wiring.set_faults(self.machines[machine].0, Direction::Received, Faults::cut());
        }
    }

    #[test]
    fn the_first_that_answers_has_the_caller_and_no_other_is_called() {
        let mut track = Track::new();
        track.machines.iter_mut().for_each(|(_, peer)| peer.listen(80));
        let (won, called, _) = track.run();
        assert_eq!((won, called), (Some(15), 1));
    }

    #[test]
    fn a_refusal_is_followed_at_once_and_silence_soon() {
        let mut track = Track::new();
        track.machines[1].1.listen(80);
        let (won, called, took) = track.run();
        assert!((won, called) == (Some(16), 2) && took < APART, "{won:?} {called} {took:?}");

        let mut track = Track::new();
        track.machines.iter_mut().for_each(|(_, peer)| peer.listen(80));
        track.is_silent(0);
        let (won, called, took) = track.run();
        assert!((won, called) == (Some(16), 2) && took >= APART && took < 2 * APART, "{won:?} {called} {took:?}");
    }

    #[test]
    fn a_caller_whom_nobody_answers_is_told() {
        let (won, called, took) = Track::new().run();
        assert!((won, called) == (None, 2) && took < APART, "{won:?} {called} {took:?}");
        let mut track = Track::new();
        (0..2).for_each(|machine| track.is_silent(machine));
        let (won, called, took) = track.run();
        assert!((won, called) == (None, 2) && took >= PATIENCE, "{won:?} {called} {took:?}");
    }
}
