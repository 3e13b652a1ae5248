//! Peer that the cluster wants: at which of its endpoints it is tried, and by which way. Must never change the kernel:
//! that is its mesh's.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use model::Ipv4Prefix;

use crate::answering::{DEAF_AFTER, PeerAnswers, SILENT_AFTER, TRY, TRY_WAY};
use crate::kernel::{FoundPeer, PeerChange, Way};
use crate::learning::Learning;
use crate::path::Path;
use crate::peer::MeshPeer;
use crate::surroundings::Surroundings;
use crate::way::{Detour, KEPT};

/// So often a peer that says nothing is tried before it is made anew, and each of its endpoints once at least. A peer whose
/// clock was set back is refused by the kernel that remembers a later time of it, until it is made anew there.
const TRIES: usize = 3;

/// A peer that is to be there.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// With those of its endpoints that may be tried.
    pub(crate) peer: MeshPeer,
    /// How often it was tried since it last answered.
    tries: usize,
    pub(crate) answering: PeerAnswers,
    pub(crate) path: Path,
    /// Where it was heard last, in this boot.
    heard_at: Option<SocketAddrV4>,
    /// When it said something last.
    pub(crate) heard: Option<Instant>,
    /// By which way it is reached, if not by the usual one; in a block of its own, since few have any.
    pub(crate) detour: Option<Box<Detour>>,
    /// When its ways were tried last, one after another.
    ways_tried: Option<Instant>,
    /// By which way it was reached last.
    way: Option<Way>,
    /// There are others.
    pub(crate) choice: bool,
    pub(crate) learning: Learning,
}

impl Wanted {
    /// Peer as the cluster names it now, with what is known of it since `old`, which has the same key.
    pub(crate) fn of(peer: MeshPeer, old: Option<&Self>) -> Self {
        Self {
            tries: 0,
            answering: old.map(|old| old.answering).unwrap_or_default(),
            path: old.map(|old| old.path).unwrap_or_default(),
            heard_at: old.and_then(|old| old.heard_at),
            heard: old.and_then(|old| old.heard),
            detour: old.and_then(|old| old.detour.clone()),
            ways_tried: old.and_then(|old| old.ways_tried),
            way: old.and_then(|old| old.way),
            choice: old.is_some_and(|old| old.choice),
            learning: old.map(|old| old.learning).unwrap_or_default(),
            peer,
        }
    }

    /// Prefixes that are routed to the peer, and the largest packet that may go there. The VPN's own route does for its
    /// address where there is no limit.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (Ipv4Prefix, Option<u16>)> + use<> {
        let limit = self.path.limit();
        let own = limit.map(|_| alone(self.peer.vpn_ip));
        own.into_iter().chain(self.peer.pods).map(move |to| (to, limit))
    }

    pub(crate) fn set(&self, endpoint: Option<SocketAddrV4>) -> PeerChange {
        PeerChange::Set { key: self.peer.key, endpoint, allowed: self.peer.allowed() }
    }

    /// Makes the peer anew, without its session and what else it holds.
    pub(crate) fn anew(&self, endpoint: Option<SocketAddrV4>) -> Vec<PeerChange> {
        vec![PeerChange::Remove(self.peer.key), self.set(endpoint)]
    }

    /// The first endpoint in the list that is no place around this machine.
    pub(crate) fn first_endpoint(&self, around: &Surroundings) -> Option<SocketAddrV4> {
        self.endpoint_after(None, around)
    }

    /// The next one behind `found` in the list, the first one behind the last.
    fn endpoint_after(&self, found: Option<SocketAddrV4>, around: &Surroundings) -> Option<SocketAddrV4> {
        let endpoints = &self.peer.endpoints;
        let behind = endpoints.iter().position(|endpoint| Some(*endpoint) == found).map_or(0, |place| place + 1);
        let in_turn = endpoints.iter().skip(behind).chain(endpoints.iter().take(behind));
        in_turn.copied().find(|endpoint| !around.include(*endpoint.ip()))
    }

    /// The address where it was heard in this boot, and has not been given up since: a detour for another peer there would lead this
    /// one's packets astray.
    pub(crate) fn holds(&self, now: Instant) -> Option<Ipv4Addr> {
        let silent = self.answering.silent_at(self.patience(), TRY).is_some_and(|due| due <= now);
        let answers = self.answering.has_answered() && !silent;
        self.heard_at.filter(|_| answers).map(|at| *at.ip())
    }

    /// Where there is another way, the peer is asked, so that it is known sooner.
    const fn patience(&self) -> Duration {
        if self.choice { DEAF_AFTER } else { SILENT_AFTER }
    }

    /// Whether it was heard so shortly ago that it is hardly switched off: it is looked for as long.
    fn is_looked_for(&self, now: Instant) -> bool {
        self.heard.is_some_and(|heard| now.saturating_duration_since(heard) < KEPT)
    }

    /// Has packets go to `endpoint`, unless they go there.
    pub(crate) fn try_at(&mut self, endpoint: Option<SocketAddrV4>, found: Option<SocketAddrV4>) -> Option<PeerChange> {
        self.answering.try_again();
        let endpoint = endpoint.filter(|endpoint| Some(*endpoint) != found)?;
        Some(PeerChange::Move { key: self.peer.key, endpoint })
    }

    /// Changes that are to be made, given the kernel's state; and who is to be asked for an echo.
    pub(crate) fn put_right(&mut self, sight: &Sight<'_>, now: Instant) -> (Vec<PeerChange>, Asks) {
        let Sight { found, ways, around, .. } = *sight;
        let Some(found) = found else {
            (self.answering, self.detour, self.way) = (PeerAnswers::default(), None, None);
            return (vec![self.set(self.first_endpoint(around))], Asks::Nobody);
        };
        let mut changes = Vec::new();
        if found.allowed != self.peer.allowed() {
            changes.push(self.set(None));
        }
        self.answering.look(found.counters, now);
        if self.answering.is_heard() {
            (self.heard, self.heard_at) = (Some(now), found.endpoint);
        }
        self.choice = ways.len() > 1;
        // Whoever only listens is told nothing by its own packets: they are not answered because there are none.
        if self.choice && self.answering.talks() && !self.answering.is_heard() {
            self.answering.ask(now);
        }
        let in_touch = self.answering.works() || self.answering.waits();
        let address = found.endpoint.map(|endpoint| *endpoint.ip());
        self.detour.take_if(|detour| !address.is_some_and(|address| detour.holds(address, ways)));
        let first = if self.detour.is_some() { TRY_WAY } else { TRY };
        let silent = self.answering.silent_at(self.patience(), first).is_some_and(|due| due <= now);
        let by_another = if silent { self.another_way(found.endpoint, sight, now) } else { AnotherWay::None };
        if self.answering.works() {
            self.tries = 0;
        }
        if self.detour.take_if(|detour| detour.is_over(now)).is_some() {
            self.answering.try_again();
        } else if let AnotherWay::Is(detour) = by_another {
            if self.detour.replace(Box::new(detour)).is_none() {
                self.ways_tried = Some(now);
            }
            self.answering.try_again();
        } else if silent {
            self.detour = None;
            self.path.doubt();
            let endpoint = self.endpoint_after(found.endpoint, around);
            self.tries += 1;
            if self.tries.is_multiple_of(TRIES.max(self.peer.endpoints.len())) {
                self.answering = PeerAnswers::default();
                changes = self.anew(endpoint.or(found.endpoint));
            } else {
                changes.extend(self.try_at(endpoint, found.endpoint));
            }
        } else if found.endpoint.is_none() {
            changes.extend(self.try_at(self.first_endpoint(around), None));
        } else if self.heard_at != found.endpoint && address.is_some_and(|address| around.include(address)) {
            // It is not left there until somebody has sent it something: the machine has got that address, or that gateway, since.
            self.answering = PeerAnswers::default();
            changes = self.anew(self.first_endpoint(around));
        }
        let asks = if self.goes_by(ways, in_touch, now) {
            Asks::It
        } else if matches!(by_another, AnotherWay::IsNotIts) {
            Asks::WhoElseIsThere
        } else {
            Asks::Nobody
        };
        (changes, asks)
    }

    /// The way that is tried behind the present one, once the peer is silent. Only where this very key was heard: whoever names an
    /// address says nothing of how it is reached. And only while the peer is hardly switched off, or seldom: each try takes
    /// the address another way for a while.
    fn another_way(&self, at: Option<SocketAddrV4>, sight: &Sight<'_>, now: Instant) -> AnotherWay {
        let goes_on = self.detour.is_some() || self.is_looked_for(now);
        let is_due = goes_on || self.ways_tried.is_none_or(|tried| tried + KEPT <= now);
        let Some(at) = at.filter(|at| is_due && self.heard_at == Some(*at)) else { return AnotherWay::None };
        match Detour::next(self.detour.as_deref(), *at.ip(), sight.ways, now) {
            None => AnotherWay::None,
            Some(_) if sight.around.include(*at.ip()) => AnotherWay::None,
            Some(_) if sight.is_held => AnotherWay::IsNotIts,
            Some(detour) => AnotherWay::Is(detour),
        }
    }

    /// Notes by which way the peer is reached now. One that answers, or is waited for, is asked for an echo where that is another way, so that it
    /// answers by that way from then on; and as long as it says nothing though there are others.
    fn goes_by(&mut self, ways: &[Way], in_touch: bool, now: Instant) -> bool {
        let Some(way) = self.detour.as_ref().map(|detour| detour.way).or(ways.first().copied()) else { return false };
        let moved = self.way.replace(way).is_some_and(|before| before != way);
        if in_touch && moved {
            self.path.doubt();
            self.answering.ask(now);
            return true;
        }
        self.choice && self.answering.waits()
    }
}

/// Sight of one peer at a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight<'a> {
    /// Peer as the kernel has it.
    pub(crate) found: Option<&'a FoundPeer>,
    /// By which ways its endpoint is reached.
    pub(crate) ways: &'a [Way],
    /// Another peer holds the address of that endpoint.
    pub(crate) is_held: bool,
    /// Addresses that are no endpoint of any peer.
    pub(crate) around: &'a Surroundings,
}

/// Whether a silent peer is tried by another way.
#[derive(Debug, Clone, Copy)]
enum AnotherWay {
    None,
    /// Another peer holds the address, and is asked first.
    IsNotIts,
    Is(Detour),
}

/// Peers that are asked for an echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The peer.
    It,
    /// Peers that hold its address: they may not have been sent anything for long.
    WhoElseIsThere,
    Nobody,
}

/// A prefix of one address.
pub(crate) fn alone(address: Ipv4Addr) -> Ipv4Prefix {
    Ipv4Prefix::new(address, 32).expect("32 bits leave no host bits")
}
