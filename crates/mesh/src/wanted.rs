//! One peer: at which of its endpoints it is tried, and by which way. Must never change the kernel: that is its mesh's.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use model::Ipv4Prefix;

use crate::answering::{Answering, DEAF_AFTER, SILENT_AFTER, TRY, TRY_WAY};
use crate::kernel::{Change, FoundPeer, Way};
use crate::learning::Learning;
use crate::path::Path;
use crate::peer::Peer;
use crate::way::Detour;

/// So often a peer that says nothing is tried before it is made anew, and each of its endpoints once at least. A peer whose
/// clock was set back is refused by the kernel that remembers a later time of it, until it is made anew there.
const TRIES: usize = 3;

/// A peer that is to be there.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// With those of its endpoints that may be tried.
    pub(crate) peer: Peer,
    /// How often it was tried since it last answered.
    tries: usize,
    pub(crate) answering: Answering,
    pub(crate) path: Path,
    /// Where it answered last.
    heard_at: Option<SocketAddrV4>,
    /// When it said something last.
    pub(crate) heard: Option<Instant>,
    /// By which way it is reached, if not by the usual one.
    pub(crate) detour: Option<Detour>,
    /// By which way it was reached last.
    way: Option<Way>,
    /// There are others.
    pub(crate) choice: bool,
    pub(crate) learning: Learning,
}

impl Wanted {
    /// What the cluster says of a peer now, with what is known of it since `old`, which has the same key.
    pub(crate) fn of(peer: Peer, old: Option<&Self>) -> Self {
        Self {
            tries: 0,
            answering: old.map(|old| old.answering).unwrap_or_default(),
            path: old.map(|old| old.path).unwrap_or_default(),
            heard_at: old.and_then(|old| old.heard_at),
            heard: old.and_then(|old| old.heard),
            detour: old.and_then(|old| old.detour),
            way: old.and_then(|old| old.way),
            choice: old.is_some_and(|old| old.choice),
            learning: old.map(|old| old.learning).unwrap_or_default(),
            peer,
        }
    }

    /// What is routed to the peer, and the largest packet that may go there. The VPN's own route does for its address where
    /// there is no limit.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (Ipv4Prefix, Option<u16>)> + use<> {
        let limit = self.path.limit();
        let own = limit.map(|_| alone(self.peer.vpn_ip));
        own.into_iter().chain(self.peer.pods).map(move |to| (to, limit))
    }

    pub(crate) fn set(&self, endpoint: Option<SocketAddrV4>) -> Change {
        Change::Set { key: self.peer.key, endpoint, allowed: self.peer.allowed() }
    }

    /// The endpoint behind `found` in the list, the first one behind the last.
    fn endpoint_after(&self, found: Option<SocketAddrV4>) -> Option<SocketAddrV4> {
        let place = self.peer.endpoints.iter().position(|endpoint| Some(*endpoint) == found);
        place.and_then(|place| self.peer.endpoints.get(place + 1)).or(self.peer.endpoints.first()).copied()
    }

    /// Has packets go to `endpoint`, unless they go there.
    pub(crate) fn try_at(&mut self, endpoint: Option<SocketAddrV4>, found: Option<SocketAddrV4>) -> Option<Change> {
        self.answering.try_again();
        let endpoint = endpoint.filter(|endpoint| Some(*endpoint) != found)?;
        Some(Change::Move { key: self.peer.key, endpoint })
    }

    /// What is to be changed, given what the kernel has of it and by which ways its endpoint is reached; and whether it is to be
    /// asked for an echo.
    pub(crate) fn put_right(&mut self, found: Option<&FoundPeer>, ways: &[Way], now: Instant) -> (Vec<Change>, Asks) {
        let Some(found) = found else {
            (self.answering, self.detour, self.way) = (Answering::default(), None, None);
            return (vec![self.set(self.peer.endpoints.first().copied())], Asks::No);
        };
        let mut changes = Vec::new();
        if found.allowed != self.peer.allowed() {
            changes.push(self.set(None));
        }
        self.answering.look(found.counters, now);
        if self.answering.is_heard() {
            self.heard = Some(now);
        }
        self.choice = ways.len() > 1;
        // Whoever only listens is told nothing by its own packets: they are not answered because there are none.
        if self.choice && self.answering.talks() && !self.answering.is_heard() {
            self.answering.ask(now);
        }
        let in_touch = self.answering.works() || self.answering.waits();
        let address = found.endpoint.map(|endpoint| *endpoint.ip());
        self.detour = self.detour.filter(|detour| address.is_some_and(|address| detour.holds(address, ways)));
        // Where there is another way, the peer is asked, so that it is known sooner.
        let patience = if self.choice { DEAF_AFTER } else { SILENT_AFTER };
        let first = if self.detour.is_some() { TRY_WAY } else { TRY };
        let silent = self.answering.silent_at(patience, first).is_some_and(|due| due <= now);
        // Where it never answered the next endpoint is likelier than another way, until all have been tried.
        let may_be_there = self.heard_at == found.endpoint || self.tries >= self.peer.endpoints.len();
        let next = address.filter(|_| silent && may_be_there);
        let next = next.and_then(|address| Detour::next(self.detour, address, ways, now));
        if self.answering.works() {
            (self.tries, self.heard_at) = (0, found.endpoint);
            if self.detour.is_some_and(|detour| detour.is_over(now)) {
                self.detour = None;
                self.answering.try_again();
            }
        } else if next.is_some() {
            self.detour = next;
            self.answering.try_again();
        } else if silent {
            self.detour = None;
            self.path.doubt();
            let endpoint = self.endpoint_after(found.endpoint);
            self.tries += 1;
            if self.tries.is_multiple_of(TRIES.max(self.peer.endpoints.len())) {
                self.answering = Answering::default();
                changes = vec![Change::Remove(self.peer.key), self.set(endpoint.or(found.endpoint))];
            } else {
                changes.extend(self.try_at(endpoint, found.endpoint));
            }
        } else if found.endpoint.is_none() {
            changes.extend(self.try_at(self.endpoint_after(None), None));
        }
        (changes, self.goes_by(ways, in_touch, now))
    }

    /// Notes by which way the peer is reached now. One that answers, or is waited for, is asked for an echo where that is another way, so that it
    /// answers by that way from then on; and as long as it says nothing though there are others.
    fn goes_by(&mut self, ways: &[Way], in_touch: bool, now: Instant) -> Asks {
        let Some(way) = self.detour.map(|detour| detour.way).or(ways.first().copied()) else { return Asks::No };
        let moved = self.way.replace(way).is_some_and(|before| before != way);
        if in_touch && moved {
            self.path.doubt();
            self.answering.ask(now);
            return Asks::Yes;
        }
        if self.choice && self.answering.waits() { Asks::Yes } else { Asks::No }
    }
}

/// Whether a peer is asked for an echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Yes,
    No,
}

/// A prefix of one address.
pub(crate) fn alone(address: Ipv4Addr) -> Ipv4Prefix {
    Ipv4Prefix::new(address, 32).expect("32 bits leave no host bits")
}
