//! The comparison of all that is wanted with all that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use model::{Ipv4Prefix, MachineId, Prefixes, VpnPubKey};

use crate::answering::{PeerAnswers, SESSION};
use crate::kernel::{Counters, FoundPeer, KernelState, PeerChange, Route};
use crate::path::Moment;
use crate::peer::{MeshPeer, may_be_tried};
use crate::wanted::{Asks, Sight, Wanted, alone};
use crate::way::ways;

/// Between two looks at the kernel while all is well: what somebody else changed there is put right within it.
const LOOK: Duration = Duration::from_secs(3);
/// While a peer does not answer, or echoes of one are awaited; and while one talks that could be reached by another way.
const SOON: Duration = Duration::from_secs(1);
/// Changes in one message: each takes 200 bytes at most, and the kernel takes messages of 64 KiB.
const MOST_CHANGES: usize = 128;
/// An echo that asks whether a peer is there, and tells it where this machine is now: headers alone.
const SMALLEST: u16 = 28;
/// For so long answers are awaited where somebody wants to know who is there: a handshake and an echo of whoever is.
const CALLED: Duration = Duration::from_secs(1);
/// Paths that are measured at a time: 64 of the largest echoes are 90 KB.
const MOST_MEASURED: usize = 64;
/// How often a peer that does not answer after a standstill is made anew. WireGuard itself shakes hands again only after 5 s.
const MOST_ANEW: u8 = 3;

/// Event that the mesh is told of.
#[derive(Debug)]
pub enum Event {
    /// All machines of the cluster.
    Peers(BTreeMap<MachineId, MeshPeer>),
    /// Some of them are others now, are new, or are gone: all of that at once.
    Changed(BTreeMap<MachineId, Option<MeshPeer>>),
    /// The kernel has this.
    Looked(KernelState),
    /// A link has got or lost its carrier, so that packets may leave by other ways than at the last look.
    LinksChanged,
    /// An echo is back.
    Echoed(Echo),
    /// Somebody wants to know who is there: a mesh at rest says nothing by itself.
    Called,
    /// The machine may be a copy of another one, which has the session keys, too.
    Copied {
        /// The kernel has ended its sessions by itself.
        kernel_is_told: bool,
    },
    /// A deadline is due.
    Tick,
}

/// Effect that the shell performs; effects are performed in this order.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Configures the kernel by one message, so that nobody sees a part of it.
    Configure(Vec<PeerChange>),
    /// A route.
    Route(Route),
    /// Read what the kernel has.
    Look,
    /// Ask a peer for an echo, not to be cut on its way. One that cannot be sent is as one that is lost.
    Echo(Echo),
    /// Tell the log.
    Report(Overlap),
    /// On a coordinator, have the cluster told that this machine stays where the cluster does not say that it is.
    Learnt(MachineId, SocketAddrV4),
    /// Tell whoever called when each machine was heard last; those are missing that never were in this boot.
    Heard(BTreeMap<MachineId, Instant>),
}

/// A packet inside of the tunnel that a peer sends back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The peer's address in the VPN.
    pub vpn_ip: Ipv4Addr,
    /// The whole packet's, with its IP header.
    pub size: u16,
}

/// Two machines cannot have one key, nor speak for one address: the one that comes later is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{machine} is left out of the mesh: {other} has its key or a part of its addresses")]
pub struct Overlap {
    /// Left out.
    pub machine: MachineId,
    /// Stays.
    pub other: MachineId,
}

/// The mesh as one machine wants it and sees it.
#[derive(Debug)]
pub struct Mesh {
    own: VpnPubKey,
    kept: Prefixes,
    /// Each in a block of its own: a sorted map keeps half of its places free, and this one's would be the largest.
    wanted: BTreeMap<MachineId, Box<Wanted>>,
    /// Machines by their keys, and below by their prefixes: a change looks up no more than it changes.
    keys: BTreeMap<VpnPubKey, MachineId>,
    prefixes: BTreeMap<Ipv4Prefix, MachineId>,
    /// By the last look, and what was asked for since.
    found: KernelState,
    next_look: Option<Instant>,
    call: Option<Call>,
    /// Machines with higher keys that have not answered since the machine became a copy, and how often each was made anew for that.
    lost_touch: BTreeMap<MachineId, u8>,
}

/// Call of all machines that finds out which of them are there.
#[derive(Debug)]
struct Call {
    /// Machines that have not answered yet.
    missing: BTreeSet<MachineId>,
    /// How long that is waited for.
    until: Instant,
}

impl Mesh {
    /// Starts the mesh of the machine with this key, in a cluster that keeps these prefixes, whose kernel has what was
    /// `found`: before that is known nobody knows which endpoints are to be left alone.
    #[must_use]
    pub fn start(own: VpnPubKey, kept: Prefixes, found: KernelState, now: Instant) -> Self {
        Self {
            own,
            kept,
            wanted: BTreeMap::new(),
            keys: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            found,
            next_look: Some(now),
            call: None,
            lost_touch: BTreeMap::new(),
        }
    }

    /// Takes one event and appends what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Peers(peers) => {
                let gone = self.wanted.keys().map(|id| (*id, None));
                // Those that are named take the place of what is gone.
                let changed = gone.chain(peers.into_iter().map(|(id, peer)| (id, Some(peer)))).collect();
                self.change(changed, now, out);
            }
            Event::Changed(changed) => self.change(changed, now, out),
            Event::Looked(found) => {
                self.found = found;
                self.put_right(now, out);
                self.shake_hands_again(out);
                let waits = |wanted: &Wanted| {
                    let talks = wanted.choice && wanted.answering.talks();
                    talks || wanted.answering.waits() || wanted.path.is_measuring()
                };
                let soon = !self.lost_touch.is_empty() || self.wanted.values().any(|wanted| waits(wanted));
                self.next_look = Some(now + if soon { SOON } else { LOOK });
            }
            Event::LinksChanged => self.next_look = self.next_look.map(|_| now),
            Event::Echoed(Echo { vpn_ip, size }) => {
                let machine = self.prefixes.get(&alone(vpn_ip)).copied();
                if let Some(wanted) = machine.and_then(|machine| self.wanted.get_mut(&machine)) {
                    wanted.heard = Some(now);
                    let before = wanted.path.limit();
                    wanted.path.echoed(size, now);
                    if wanted.path.limit() != before {
                        self.put_routes_right(out);
                    }
                }
                if let Some(machine) = machine {
                    self.lost_touch.remove(&machine);
                    if let Some(call) = &mut self.call {
                        call.missing.remove(&machine);
                    }
                }
            }
            Event::Called => self.call(now, out),
            Event::Copied { kernel_is_told } => self.begin_sessions(kernel_is_told, now, out),
            Event::Tick => {}
        }
        if self.call.take_if(|call| call.missing.is_empty() || call.until <= now).is_some() {
            let heard = self.wanted.iter().filter_map(|(id, wanted)| Some((*id, wanted.heard?)));
            out.push(Effect::Heard(heard.collect()));
        }
        if self.next_look.is_some_and(|due| due <= now) {
            self.next_look = None;
            out.push(Effect::Look);
        }
    }

    /// How many peers the kernel has once all that was asked of it is done.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.wanted.len()
    }

    /// When to come back, and why; none while a look is all that is awaited.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let look = self.next_look.map(|due| (due, "look at the kernel's peers"));
        let call = self.call.as_ref().map(|call| (call.until, "tell who is there"));
        look.into_iter().chain(call).min()
    }

    /// Asks everybody for an echo, unless that is under way.
    fn call(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.call.is_some() {
            return;
        }
        self.call = Some(Call { missing: self.wanted.keys().copied().collect(), until: now + CALLED });
        let echoes = self.wanted.values().map(|wanted| Echo { vpn_ip: wanted.peer.vpn_ip, size: SMALLEST });
        out.extend(echoes.map(Effect::Echo));
    }

    /// Begins new sessions with all who may have had one, and asks them for an echo: their own sessions carry nothing to here any
    /// more, and they would learn that only after 15 s in which they hear nothing. A kernel that was not told makes all peers
    /// anew, which leaves nothing of their sessions, where they are and as they were allowed.
    fn begin_sessions(&mut self, kernel_is_told: bool, now: Instant, out: &mut Vec<Effect>) {
        let mut message = Message::default();
        let mut echoes = Vec::new();
        self.lost_touch.clear();
        for (id, wanted) in &self.wanted {
            let Some(found) = self.found.peers.get(&wanted.peer.key) else { continue };
            if !kernel_is_told {
                message.add(wanted.anew(found.endpoint));
            }
            if wanted.heard.is_some_and(|heard| now.saturating_duration_since(heard) < SESSION) {
                if self.own < wanted.peer.key {
                    self.lost_touch.insert(*id, 0);
                }
                echoes.push(Effect::Echo(Echo { vpn_ip: wanted.peer.vpn_ip, size: SMALLEST }));
            }
        }
        self.ask(message, Vec::new(), out);
        out.extend(echoes);
        self.next_look = self.next_look.map(|_| now + SOON);
    }

    /// Makes those anew that have not answered since the machine became a copy: then WireGuard shakes hands at once. Where two do that
    /// at the same time, each takes the other's initiation in place of its own (`wg_noise_handshake_consume_initiation`,
    /// `drivers/net/wireguard/noise.c`), neither takes an answer, and both wait for 5 s. So only the one with the lower key does this.
    fn shake_hands_again(&mut self, out: &mut Vec<Effect>) {
        let mut message = Message::default();
        let mut echoes = Vec::new();
        let (wanted, found) = (&self.wanted, &self.found.peers);
        self.lost_touch.retain(|id, times| {
            let Some(wanted) = wanted.get(id).filter(|_| *times < MOST_ANEW) else { return false };
            let Some(peer) = found.get(&wanted.peer.key) else { return false };
            *times += 1;
            message.add(wanted.anew(peer.endpoint));
            echoes.push(Effect::Echo(Echo { vpn_ip: wanted.peer.vpn_ip, size: SMALLEST }));
            true
        });
        self.ask(message, Vec::new(), out);
        out.extend(echoes);
    }

    /// Takes what the cluster says of some machines. All that is given up is free before anything is taken.
    fn change(&mut self, changed: BTreeMap<MachineId, Option<MeshPeer>>, now: Instant, out: &mut Vec<Effect>) {
        let mut message = Message::default();
        let mut routes = Vec::new();
        let news = |(id, peer): &(MachineId, Option<MeshPeer>)| {
            self.wanted.get(id).map(|wanted| &wanted.peer) != peer.as_ref()
        };
        let may_be_tried = |peer| self.with_what_may_be_tried(peer);
        let changed = changed.into_iter().map(|(id, peer)| (id, peer.map(may_be_tried)));
        let changed: Vec<_> = changed.filter(news).collect();
        let given_up: Vec<_> = changed.iter().map(|(id, _)| self.give_up(*id)).collect();
        let mut steps = Vec::new();
        for ((id, peer), old) in changed.into_iter().zip(given_up) {
            let mut changes = Vec::new();
            if let Some(peer) = peer.filter(|peer| peer.key != self.own) {
                match self.overlap(id, &peer) {
                    Some(overlap) => out.push(Effect::Report(overlap)),
                    None => changes = self.want(id, peer, old.as_deref(), now),
                }
            }
            steps.push((id, old, changes));
        }
        // Only now is it known what nobody has any more.
        for (id, old, mut changes) in steps {
            let key = old.as_ref().map(|old| old.peer.key).filter(|key| !self.keys.contains_key(key));
            // In front of the new key, which takes over its addresses, and in one message with it.
            changes.splice(..0, key.map(PeerChange::Remove));
            let given_up = old.iter().flat_map(|old| old.routes()).map(|(to, _)| to).filter(|to| !self.is_routed(to));
            routes.extend(given_up.map(Route::Remove));
            routes.extend(
                self.wanted
                    .get(&id)
                    .into_iter()
                    .flat_map(|wanted| wanted.routes())
                    .map(|(to, limit)| Route::Set(to, limit)),
            );
            message.add(changes);
        }
        self.ask(message, routes, out);
    }

    /// Compares all that is wanted with all that was found.
    fn put_right(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let mut message = Message::default();
        for key in self.found.peers.keys().filter(|key| !self.keys.contains_key(key)) {
            message.add(vec![PeerChange::Remove(*key)]);
        }
        let mut measured = self.wanted.values().filter(|wanted| wanted.path.is_measuring()).count();
        let mut echoes = Vec::new();
        let mut held: BTreeMap<Ipv4Addr, Vec<MachineId>> = BTreeMap::new();
        for (id, wanted) in &self.wanted {
            wanted.holds(now).into_iter().for_each(|address| held.entry(address).or_default().push(*id));
        }
        let mut doubted = BTreeSet::new();
        for (id, wanted) in &mut self.wanted {
            let found = self.found.peers.get(&wanted.peer.key);
            let endpoint = found.and_then(|peer| peer.endpoint);
            let ways = endpoint.map(|endpoint| ways(&self.found.uplinks, *endpoint.ip())).unwrap_or_default();
            let holders = endpoint.and_then(|endpoint| held.get(endpoint.ip()));
            let others = || holders.into_iter().flatten().filter(|holder| *holder != id);
            let around = &self.found.surroundings;
            let sight = Sight { found, ways: &ways, is_held: others().next().is_some(), around };
            let (changes, asks) = wanted.put_right(&sight, now);
            doubted.extend(others().copied().filter(|_| asks == Asks::WhoElseIsThere));
            message.add(changes);
            if wanted.answering.is_heard() {
                let named = |at: &SocketAddrV4| wanted.peer.endpoints.contains(at);
                let unnamed = endpoint.filter(|at| !named(at) && may_be_tried(*at, self.kept));
                out.extend(wanted.learning.heard(unnamed, now).map(|at| Effect::Learnt(*id, at)));
            }
            let goes_on = wanted.path.is_measuring();
            let good = wanted.answering.is_heard() && measured < MOST_MEASURED;
            let sizes = wanted.path.look(endpoint, if good { Moment::Good } else { Moment::Bad }, now);
            measured += usize::from(!goes_on && wanted.path.is_measuring());
            let vpn_ip = wanted.peer.vpn_ip;
            let asked = (asks == Asks::It).then_some(SMALLEST);
            echoes.extend(asked.iter().chain(sizes).map(|size| Effect::Echo(Echo { vpn_ip, size: *size })));
        }
        for id in doubted {
            let wanted = self.wanted.get_mut(&id).filter(|wanted| !wanted.answering.waits());
            echoes.extend(wanted.map(|wanted| {
                wanted.answering.ask(now);
                Effect::Echo(Echo { vpn_ip: wanted.peer.vpn_ip, size: SMALLEST })
            }));
        }
        self.ask(message, Vec::new(), out);
        self.put_routes_right(out);
        // By the ways that are set by now.
        out.extend(echoes);
    }

    /// Compares all routes that are wanted with all that were found.
    fn put_routes_right(&mut self, out: &mut Vec<Effect>) {
        let wanted: BTreeMap<_, _> = self.wanted.values().flat_map(|wanted| wanted.routes()).collect();
        let gone = self.found.routes.keys().filter(|to| !wanted.contains_key(to)).copied().map(Route::Remove);
        let mut routes: Vec<_> = gone.chain(wanted.iter().map(|(to, limit)| Route::Set(*to, *limit))).collect();
        let mut detours = BTreeMap::new();
        for detour in self.wanted.values().filter_map(|wanted| wanted.detour.as_ref()) {
            // Peers behind one address go one way.
            detours.entry(detour.address).or_insert(detour.way);
        }
        let over = self.found.detours.keys().filter(|address| !detours.contains_key(address));
        routes.extend(over.copied().map(Route::Return));
        routes.extend(detours.into_iter().map(|(address, way)| Route::Detour(address, way)));
        self.ask(Message::default(), routes, out);
    }

    fn is_routed(&self, to: &Ipv4Prefix) -> bool {
        let owner = self.prefixes.get(to).and_then(|machine| self.wanted.get(machine));
        owner.is_some_and(|wanted| wanted.routes().any(|(routed, _)| routed == *to))
    }

    /// The machine is as if it had never been named.
    fn give_up(&mut self, id: MachineId) -> Option<Box<Wanted>> {
        let wanted = self.wanted.remove(&id)?;
        self.keys.remove(&wanted.peer.key);
        for prefix in wanted.peer.allowed() {
            self.prefixes.remove(&prefix);
        }
        Some(wanted)
    }

    fn overlap(&self, machine: MachineId, peer: &MeshPeer) -> Option<Overlap> {
        let allowed = peer.allowed();
        let of_prefix = allowed.iter().find_map(|prefix| self.prefixes.get(prefix));
        let other = *self.keys.get(&peer.key).or(of_prefix)?;
        Some(Overlap { machine, other })
    }

    fn with_what_may_be_tried(&self, mut peer: MeshPeer) -> MeshPeer {
        peer.endpoints.retain(|endpoint| may_be_tried(*endpoint, self.kept));
        peer
    }

    fn want(&mut self, id: MachineId, peer: MeshPeer, old: Option<&Wanted>, now: Instant) -> Vec<PeerChange> {
        let mut changes = Vec::new();
        // Its key is who it is: with another one it has answered nothing.
        let old = old.filter(|old| old.peer.key == peer.key);
        let mut wanted = Wanted::of(peer, old);
        match self.found.peers.get(&wanted.peer.key) {
            None => changes.push(wanted.set(wanted.first_endpoint(&self.found.surroundings))),
            Some(found) => {
                if old.is_none() {
                    wanted.answering = PeerAnswers::since(found.counters, now);
                }
                if found.allowed != wanted.peer.allowed() {
                    changes.push(wanted.set(None));
                }
                let moved = old.is_none_or(|old| old.peer.endpoints != wanted.peer.endpoints);
                if moved && !wanted.answering.works() {
                    changes.extend(wanted.try_at(wanted.first_endpoint(&self.found.surroundings), found.endpoint));
                }
            }
        }
        self.keys.insert(wanted.peer.key, id);
        self.prefixes.extend(wanted.peer.allowed().into_iter().map(|prefix| (prefix, id)));
        self.wanted.insert(id, Box::new(wanted));
        changes
    }

    /// Asks the kernel for what it has not got yet, and takes it for done: the next look tells.
    fn ask(&mut self, message: Message, routes: Vec<Route>, out: &mut Vec<Effect>) {
        let found = &mut self.found;
        message.0.iter().flatten().for_each(|change| found.take(change));
        out.extend(message.0.into_iter().map(Effect::Configure));
        let news = routes.into_iter().filter(|route| match route {
            Route::Set(to, limit) => found.routes.insert(*to, *limit) != Some(*limit),
            Route::Remove(to) => found.routes.remove(to).is_some(),
            Route::Detour(address, way) => found.detours.insert(*address, *way) != Some(*way),
            Route::Return(address) => found.detours.remove(address).is_some(),
        });
        out.extend(news.map(Effect::Route));
    }
}

/// Messages under way: what belongs together stays in one.
#[derive(Debug, Default)]
struct Message(Vec<Vec<PeerChange>>);

impl Message {
    fn add(&mut self, together: Vec<PeerChange>) {
        match self.0.last_mut() {
            _ if together.is_empty() => {}
            Some(last) if last.len() + together.len() <= MOST_CHANGES => last.extend(together),
            Some(_) | None => self.0.push(together),
        }
    }
}

impl KernelState {
    /// Takes a change as the kernel does (`set_peer`, `drivers/net/wireguard/netlink.c`), but for prefixes that a peer
    /// loses because another one is allowed them now.
    fn take(&mut self, change: &PeerChange) {
        match change {
            PeerChange::Remove(key) => {
                self.peers.remove(key);
            }
            PeerChange::Set { key, endpoint, allowed } => {
                let new = FoundPeer { endpoint: None, allowed: BTreeSet::new(), counters: Counters::default() };
                let peer = self.peers.entry(*key).or_insert(new);
                peer.allowed.clone_from(allowed);
                peer.endpoint = endpoint.or(peer.endpoint);
            }
            PeerChange::Move { key, endpoint } => {
                if let Some(peer) = self.peers.get_mut(key) {
                    peer.endpoint = Some(*endpoint);
                }
            }
        }
    }
}
