//! Which control plane a machine's Kubernetes clients are led to, by what was seen of each.
//!
//! ```text
//!            two misses in a row               lost
//!     In ──────────────────────────► Slow ──────────────► Out ◄─── lost ─── In
//!      ▲                              │                    │
//!      └── two answers in a row ──────┴────────────────────┘
//! ```
//! A control plane that is slow keeps the connections that it has, and gets new ones only where no better one is. One that is lost
//! loses its connections by TCP itself: its machine resets them, or leaves bytes without an acknowledgement.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Outcome of a look at an apiserver: `/readyz` over a connection that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthCheck {
    /// An answer in time says that it is ready.
    Answer,
    /// No answer in time, or one that says that it is not ready.
    Miss,
    /// A connection is refused, was reset, or its bytes are not acknowledged.
    Loss,
}

/// Looks in a row that say another thing than those before, until they are believed.
const ROW: u8 = 2;
/// Pause between two looks of a machine that has an apiserver itself.
const OFTEN: Duration = Duration::from_millis(500);
/// The same of others, of which there may be many.
const SELDOM: Duration = Duration::from_secs(2);

/// Apiservers that are known, and what was seen of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    machine: Ipv4Addr,
    servers: BTreeMap<SocketAddrV4, Server>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Server {
    health: Health,
    /// Looks in a row that speak against the health.
    row: u8,
}

/// In the order in which servers are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    /// Also before the first look.
    #[default]
    In,
    Slow,
    Out,
}

impl Balancer {
    /// Balancer of the machine with this VPN address, which knows no apiserver yet.
    #[must_use]
    pub const fn of(machine: Ipv4Addr) -> Self {
        Self { machine, servers: BTreeMap::new() }
    }

    /// Goes by these apiservers from now on; what was seen of those that stay is kept.
    pub fn know(&mut self, servers: impl IntoIterator<Item = SocketAddrV4>) {
        let seen = std::mem::take(&mut self.servers);
        self.servers = servers.into_iter().map(|at| (at, seen.get(&at).copied().unwrap_or_default())).collect();
    }

    /// Apiservers that are to be looked at: none where there is no choice.
    pub fn looked_at(&self) -> impl Iterator<Item = SocketAddrV4> {
        let has_choice = self.servers.len() > 1;
        self.servers.keys().copied().filter(move |_| has_choice)
    }

    /// Pause between two looks at one of them.
    #[must_use]
    pub fn pause(&self) -> Duration {
        if self.servers.keys().any(|at| self.is_own(at)) { OFTEN } else { SELDOM }
    }

    /// Takes the outcome of a look; who is not known any more is left alone.
    pub fn saw(&mut self, at: SocketAddrV4, look: HealthCheck) {
        let Some(server) = self.servers.get_mut(&at) else { return };
        let speaks_for = match (look, server.health) {
            (HealthCheck::Loss, _) => Some(Health::Out),
            (HealthCheck::Answer, Health::Slow | Health::Out) => Some(Health::In),
            (HealthCheck::Miss, Health::In) => Some(Health::Slow),
            (HealthCheck::Answer, Health::In) | (HealthCheck::Miss, Health::Slow | Health::Out) => None,
        };
        server.row = if speaks_for.is_some() { server.row + 1 } else { 0 };
        if let Some(health) = speaks_for.filter(|_| look == HealthCheck::Loss || server.row == ROW) {
            *server = Server { health, row: 0 };
        }
    }

    /// All apiservers in the order in which a new connection tries them: by health, that of the machine itself first among equals.
    /// Machines without one spread over the others by their addresses.
    #[must_use]
    pub fn order(&self) -> Vec<SocketAddrV4> {
        let mut order: Vec<_> = self.servers.iter().collect();
        let turn = usize::from(self.machine.octets()[3]) % order.len().max(1);
        order.rotate_left(turn);
        order.sort_by_key(|(at, server)| (server.health, !self.is_own(at)));
        order.into_iter().map(|(at, _)| *at).collect()
    }

    fn is_own(&self, at: &SocketAddrV4) -> bool {
        *at.ip() == self.machine
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(last: u8) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 118, 0, last), 6443)
    }

    /// Balancer of machine `own`, which knows control planes on 1, 2 and 3.
    fn of(own: u8) -> Balancer {
        let mut balancer = Balancer::of(*at(own).ip());
        balancer.know([1, 2, 3].map(at));
        balancer
    }

    fn saw(balancer: &mut Balancer, last: u8, looks: &[HealthCheck]) {
        looks.iter().for_each(|look| balancer.saw(at(last), *look));
    }

    /// Proves: W1
    #[test]
    fn the_own_apiserver_comes_first_while_it_is_as_healthy() {
        let mut balancer = of(2);
        assert_eq!(balancer.order()[0], at(2));
        saw(&mut balancer, 2, &[HealthCheck::Miss, HealthCheck::Answer, HealthCheck::Miss]);
        assert_eq!(balancer.order()[0], at(2), "two misses in a row are a sign, one is none");
        saw(&mut balancer, 2, &[HealthCheck::Miss]);
        assert_eq!(balancer.order()[2], at(2));
        saw(&mut balancer, 2, &[HealthCheck::Answer, HealthCheck::Miss, HealthCheck::Answer]);
        assert_eq!(balancer.order()[2], at(2), "an answer, and two in a row are another thing");
        saw(&mut balancer, 2, &[HealthCheck::Answer]);
        assert_eq!(balancer.order()[0], at(2));
    }

    /// Proves: W1
    #[test]
    fn one_that_is_lost_is_tried_last_and_at_once_so() {
        let mut balancer = of(1);
        saw(&mut balancer, 1, &[HealthCheck::Loss]);
        saw(&mut balancer, 3, &[HealthCheck::Miss, HealthCheck::Miss]);
        assert_eq!(balancer.order(), [2, 3, 1].map(at));
        saw(&mut balancer, 2, &[HealthCheck::Loss]);
        assert_eq!(balancer.order(), [3, 1, 2].map(at), "where none is healthy all are tried all the same");
        saw(&mut balancer, 1, &[HealthCheck::Answer, HealthCheck::Answer]);
        assert_eq!(balancer.order()[0], at(1));
    }

    /// Proves: W1
    #[test]
    fn workers_spread_over_the_control_planes() {
        let first: Vec<_> = (4..10).map(|own| of(own).order()[0]).collect();
        for last in 1..=3 {
            assert_eq!(first.iter().filter(|first| **first == at(last)).count(), 2, "{first:?}");
        }
    }

    #[test]
    fn control_planes_look_often_and_whoever_has_no_choice_never() {
        let mut balancer = of(1);
        assert_eq!(balancer.looked_at().count(), 3);
        assert_eq!([balancer.pause(), of(9).pause()], [OFTEN, SELDOM]);
        balancer.know([at(1)]);
        assert_eq!(balancer.looked_at().count(), 0);
        balancer.know([]);
        assert_eq!(balancer.order(), []);
    }

    proptest! {
        /// Each server that is known stays reachable, whatever was seen, and no other one is tried.
        #[test]
        fn all_that_are_known_are_tried_once(
            looks in prop::collection::vec((1_u8..6, prop::sample::select(vec![HealthCheck::Answer, HealthCheck::Miss, HealthCheck::Loss])), 0..40),
            known in prop::collection::btree_set(1_u8..6, 0..6),
            own in 1_u8..9,
        ) {
            let mut balancer = of(own);
            let half = looks.len() / 2;
            looks[..half].iter().for_each(|(last, look)| balancer.saw(at(*last), *look));
            balancer.know(known.iter().map(|last| at(*last)));
            looks[half..].iter().for_each(|(last, look)| balancer.saw(at(*last), *look));
            let mut order = balancer.order();
            order.sort_unstable();
            prop_assert_eq!(order, known.iter().map(|last| at(*last)).collect::<Vec<_>>());
        }
    }
}
