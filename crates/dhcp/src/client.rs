//! The client of one link: asks for an address and keeps it (RFC 2131 §4.4; without INIT-REBOOT at a boot, which has no address
//! from before, but with it when a link has its carrier again).
//! It must never use an address whose lease is over, nor believe an answer to a question it did not ask, nor take what
//! the cluster keeps for itself: such an answer is left alone, as if it had not come, and the question is asked again.
//!
//! ```text
//!    Selecting ── offer ──► Requesting ── ack ──► Bound ── T1 ──► Renewing ── T2 ──► Rebinding
//!        ▲                      │                   ▲                │ ack              │ ack
//!        │                      │                   └────────────────┴──────────────────┤
//!        └── nak, no answer ────┴──────────────────────── nak (from Renewing too), end ─┘
//! ```
//! Where the carrier comes back, Selecting and Requesting begin anew, and a lease is *confirmed*: Bound, Renewing or Rebinding
//! ──► Confirming, which an ack, or a while without any answer, ends in Bound, a nak in Selecting, and T2 in Rebinding.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use model::{Ipv4Prefix, Prefixes, UnfitLink};

use crate::wire::{self, DhcpMessage, HardwareAddress, MessageError, MessageType, Prefix};

/// Before the first repetition; doubled for each further one. RFC 2131 §4.1 says 4 s, but the machine's whole boot
/// waits here, and one more small packet harms nobody.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait between repetitions (RFC 2131 §4.1).
const LONGEST_WAIT: Duration = Duration::from_secs(64);
/// Requests for one offer before looking for another: 15 s with the waits above.
const MOST_REQUESTS: u32 = 4;
/// Between repetitions while renewing (RFC 2131 §4.4.5), or a tenth of a lease too short for that.
const SHORTEST_RENEWAL_WAIT: Duration = Duration::from_secs(60);
/// A lease shorter than this would be renewed all the time; taken for a mistake.
const SHORTEST_LEASE: u32 = 4;
/// The largest message taken: what fits an Ethernet frame.
const MAX_SIZE: u16 = 1500;
/// A lease time that means for ever (RFC 2131 §3.3).
const FOREVER: u32 = u32::MAX;

/// Client's station: the properties that do not change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// The link's Ethernet address.
    pub mac: HardwareAddress,
    /// Spreads waits and transaction ids: it need not be secret, but differ between machines.
    pub seed: u64,
}

/// Lease as the server gave it, checked: the address is one a host of this prefix can have, and none of the cluster's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The machine's address on this link.
    pub address: Ipv4Addr,
    /// The length of the link's prefix.
    pub prefix: Prefix,
    /// The way out, where there is one; a host of the same prefix.
    pub router: Option<Ipv4Addr>,
    /// Resolvers, best first.
    pub dns: Vec<Ipv4Addr>,
    /// The server that gave it, and is asked for more (option 54).
    pub server_id: Ipv4Addr,
    /// Until when it lasts, and when more is asked for.
    pub term: Term,
}

/// A lease and the moment it counts from: what a shell keeps beside its client, so that a client started anew goes on
/// with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The lease.
    pub lease: Lease,
    /// When it was asked for; the server cannot have begun to count later.
    pub since: Instant,
}

/// How long a lease lasts, counted from the request it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// The lease never ends and is never renewed.
    Forever,
    /// The lease ends; `renew_after < rebind_after < lasts`.
    Limited {
        /// T1: the server is asked for more.
        renew_after: Duration,
        /// T2: any server is asked.
        rebind_after: Duration,
        /// The address is no longer ours.
        lasts: Duration,
    },
}

/// Event that the client is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A UDP payload came to the client's port.
    Received {
        payload: &'a [u8],
        /// Prefixes that the machine's cluster keeps for itself, once it is known: no server may give of them.
        kept: Option<Prefixes>,
    },
    /// The link has its carrier again. What it is connected to may be another network.
    Carrier,
    /// A deadline is due.
    Tick,
}

/// Effect that the shell performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send this from the client's port to the server's.
    Send {
        to: Destination,
        /// The UDP payload.
        bytes: Vec<u8>,
    },
    /// Give the link this lease, in place of the one it has.
    Configure(HeldLease),
    /// Take the address away.
    Deconfigure,
    /// Tell the log.
    Report(Report),
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To all, from 0.0.0.0 or the present address: see [`crate::frame`].
    Broadcast { from: Ipv4Addr },
    /// To one server, from the leased address.
    Unicast {
        from: Ipv4Addr,
        /// The server.
        to: Ipv4Addr,
    },
}

/// Report for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// No server has answered so many messages; the client goes on.
    NoAnswer {
        /// Messages sent.
        tries: u32,
    },
    /// The server whose offer was taken does not answer any more; looking for another.
    OfferLost(Ipv4Addr),
    /// A server refused the request or the lease.
    Refused,
    /// The lease is over.
    Expired,
    /// A message was not used.
    Ignored(IgnoreReason),
    /// The lease of this server is taken, but not a resolver of it.
    LeftOut { server: Ipv4Addr, why: UnfitLink },
}

/// Why a message was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The message is no DHCP message.
    Malformed(MessageError),
    /// The message belongs to another transaction or another client.
    NotOurs,
    /// The message's type does not fit the state.
    Unexpected(MessageType),
    /// The message comes from another server than the one asked.
    ForeignServer,
    /// The message does not say which server it is from.
    NoServer,
    /// The message gives another address than the one asked for.
    OtherAddress(Ipv4Addr),
    /// The message's address, prefix or lease time is missing or cannot be used.
    Unusable,
    /// The message gives away what the cluster keeps for itself, or a prefix that no link has.
    Unfit { server: Ipv4Addr, why: UnfitLink },
}

/// The client's state on one link.
#[derive(Debug)]
pub struct Client {
    mac: HardwareAddress,
    random: Random,
    /// The address whose lease ended: wanted again (RFC 2131, 4.4.1), since others know the machine by it.
    wanted: Option<Ipv4Addr>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Looks for an offer. `refusals`: so many naks in a row brought it here.
    Selecting {
        exchange: Exchange,
        refusals: u32,
    },
    Requesting {
        exchange: Exchange,
        offer: Lease,
        refusals: u32,
    },
    Bound {
        lease: Lease,
        since: Instant,
    },
    Renewing {
        lease: Lease,
        since: Instant,
        exchange: Exchange,
    },
    Rebinding {
        lease: Lease,
        since: Instant,
        exchange: Exchange,
    },
    /// Asks any server whether the lease holds in the network that the link is connected to now.
    Confirming {
        lease: Lease,
        since: Instant,
        exchange: Exchange,
    },
}

/// Transaction with a server: the same question until it is answered.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    xid: u32,
    /// When the question was first due; a lease counts from here.
    began: Instant,
    tries: u32,
    /// When it is asked next.
    next: Instant,
}

impl Client {
    /// Begins to look for a server at once: RFC 2131's random wait is for rooms full of machines switched on at once,
    /// where the waits between repetitions spread them too.
    #[must_use]
    pub fn start(station: Station, now: Instant, out: &mut Vec<Effect>) -> Self {
        let Station { mac, seed } = station;
        let mut random = Random(seed);
        let exchange = Exchange::begin(&mut random, now);
        let state = State::Selecting { exchange, refusals: 0 };
        let mut client = Self { mac, random, wanted: None, state };
        client.handle(Event::Tick, now, out);
        client
    }

    /// Goes on with a lease that an earlier client of this link was given: it is kept, renewed and given up as if that
    /// client had lived on.
    #[must_use]
    pub fn resume(station: Station, held: HeldLease, now: Instant, out: &mut Vec<Effect>) -> Self {
        let Station { mac, seed } = station;
        let HeldLease { lease, since } = held.clone();
        if lease.term.ends(since).is_none_or(|ends| now < ends.end) {
            // How far the earlier client came with it is not known.
            out.push(Effect::Configure(held));
        }
        let state = State::Bound { lease, since };
        let mut client = Self { mac, random: Random(seed), wanted: None, state };
        client.handle(Event::Tick, now, out);
        client
    }

    /// Takes one event and appends what is to be done, in order.
    pub fn handle(&mut self, event: Event<'_>, now: Instant, out: &mut Vec<Effect>) {
        // What is over is over, even where its answer comes with the deadline.
        self.expire(now, out);
        match event {
            Event::Received { payload, kept } => {
                if let Err(ignored) = self.receive(payload, kept, now, out) {
                    out.push(Effect::Report(Report::Ignored(ignored)));
                }
            }
            Event::Carrier => self.confirm(now),
            Event::Tick => return,
        }
        self.expire(now, out);
    }

    /// When [`Event::Tick`] is due next, and what for; `None` with a lease for ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match &self.state {
            State::Selecting { exchange, .. } => Some((exchange.next, "discover")),
            State::Requesting { exchange, .. } => Some((exchange.next, "request")),
            State::Bound { lease, since } => lease.term.ends(*since).map(|ends| (ends.renew, "renewal time")),
            State::Renewing { lease, since, exchange } => {
                lease.term.ends(*since).map(|ends| earlier((exchange.next, "renew"), (ends.rebind, "rebinding time")))
            }
            State::Rebinding { lease, since, exchange } => {
                lease.term.ends(*since).map(|ends| earlier((exchange.next, "rebind"), (ends.end, "end of the lease")))
            }
            State::Confirming { lease, since, exchange } => {
                let confirm = (exchange.next, "confirm");
                Some(lease.term.ends(*since).map_or(confirm, |ends| earlier(confirm, (ends.rebind, "rebinding time"))))
            }
        }
    }

    /// The lease in force.
    #[must_use]
    pub const fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound { lease, .. }
            | State::Renewing { lease, .. }
            | State::Rebinding { lease, .. }
            | State::Confirming { lease, .. } => Some(lease),
            State::Selecting { .. } | State::Requesting { .. } => None,
        }
    }

    fn select(&mut self, refusals: u32, now: Instant) {
        let mut exchange = Exchange::begin(&mut self.random, now);
        if refusals > 0 {
            exchange.next = now + self.random.spread(wait(refusals));
        }
        self.state = State::Selecting { exchange, refusals };
    }

    /// Asks again from the beginning, at once.
    fn confirm(&mut self, now: Instant) {
        match &self.state {
            // It has only just begun, as at a boot: the question comes again soon enough.
            State::Selecting { exchange, .. } | State::Requesting { exchange, .. } if exchange.tries <= 1 => {}
            State::Selecting { .. } | State::Requesting { .. } => self.select(0, now),
            State::Bound { lease, since }
            | State::Renewing { lease, since, .. }
            | State::Rebinding { lease, since, .. }
            | State::Confirming { lease, since, .. } => {
                let (lease, since, exchange) = (lease.clone(), *since, Exchange::begin(&mut self.random, now));
                self.state = State::Confirming { lease, since, exchange };
            }
        }
    }

    fn receive(
        &mut self,
        payload: &[u8],
        kept: Option<Prefixes>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) -> Result<(), IgnoreReason> {
        let message = DhcpMessage::parse(payload).map_err(IgnoreReason::Malformed)?;
        let unexpected = IgnoreReason::Unexpected(message.message_type);
        let exchange = match &self.state {
            State::Selecting { exchange, .. }
            | State::Requesting { exchange, .. }
            | State::Renewing { exchange, .. }
            | State::Rebinding { exchange, .. }
            | State::Confirming { exchange, .. } => *exchange,
            State::Bound { .. } => return Err(unexpected),
        };
        if message.xid != exchange.xid || message.chaddr != self.mac || exchange.tries == 0 {
            return Err(IgnoreReason::NotOurs);
        }
        let server = message.server_id.filter(|&id| wire::is_host_address(id)).ok_or(IgnoreReason::NoServer)?;
        let answer = Answer { message: &message, server, kept };
        let foreign = |asked: Ipv4Addr| if server == asked { Ok(()) } else { Err(IgnoreReason::ForeignServer) };
        match (&self.state, message.message_type) {
            (&State::Selecting { refusals, .. }, MessageType::Offer) => {
                let offer = answer.lease()?;
                let exchange = Exchange { began: now, tries: 0, next: now, ..exchange };
                self.state = State::Requesting { exchange, offer, refusals };
            }
            (State::Requesting { offer, .. }, MessageType::Ack) => {
                foreign(offer.server_id)?;
                let lease = answer.lease()?.for_address(offer.address)?;
                self.bind(lease, &answer, exchange, out);
            }
            (&State::Requesting { ref offer, refusals, .. }, MessageType::Nak) => {
                foreign(offer.server_id)?;
                out.push(Effect::Report(Report::Refused));
                self.wanted = None;
                self.select(refusals.saturating_add(1), now);
            }
            (
                State::Renewing { lease, .. } | State::Rebinding { lease, .. } | State::Confirming { lease, .. },
                MessageType::Ack,
            ) => {
                if matches!(self.state, State::Renewing { .. }) {
                    foreign(lease.server_id)?;
                }
                let lease = answer.lease()?.for_address(lease.address)?;
                self.bind(lease, &answer, exchange, out);
            }
            (
                State::Renewing { lease, .. } | State::Rebinding { lease, .. } | State::Confirming { lease, .. },
                MessageType::Nak,
            ) => {
                // Only renewing asks one server: elsewhere any may refuse.
                if matches!(self.state, State::Renewing { .. }) {
                    foreign(lease.server_id)?;
                }
                out.extend([Effect::Report(Report::Refused), Effect::Deconfigure]);
                self.wanted = None;
                self.select(0, now);
            }
            (
                State::Selecting { .. }
                | State::Requesting { .. }
                | State::Bound { .. }
                | State::Renewing { .. }
                | State::Rebinding { .. }
                | State::Confirming { .. },
                _any_other_type,
            ) => return Err(unexpected),
        }
        Ok(())
    }

    /// The lease counts from the question, not from the answer: the server cannot have begun later.
    fn bind(&mut self, lease: Lease, answer: &Answer<'_>, exchange: Exchange, out: &mut Vec<Effect>) {
        let unfit = answer.message.dns.iter().filter_map(|resolver| answer.judge_resolver(*resolver).err());
        out.extend(unfit.map(|why| Effect::Report(Report::LeftOut { server: lease.server_id, why })));
        let since = exchange.began;
        out.push(Effect::Configure(HeldLease { lease: lease.clone(), since }));
        self.state = State::Bound { lease, since };
    }

    /// Everything that is due by the clock: first what ends, then what is asked (again).
    fn expire(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.advance(now, out);
        let mac = self.mac;
        match &mut self.state {
            State::Selecting { exchange, .. } if exchange.next <= now => {
                if exchange.tries > 0 {
                    out.push(Effect::Report(Report::NoAnswer { tries: exchange.tries }));
                }
                let mut discover = exchange.message(MessageType::Discover, mac, now);
                discover.max_size = Some(MAX_SIZE);
                discover.requested_ip = self.wanted;
                exchange.asked(&mut self.random, now);
                out.push(broadcast(Ipv4Addr::UNSPECIFIED, &discover));
            }
            State::Requesting { exchange, offer, .. } if exchange.next <= now => {
                let mut request = exchange.message(MessageType::Request, mac, now);
                request.requested_ip = Some(offer.address);
                request.server_id = Some(offer.server_id);
                request.max_size = Some(MAX_SIZE);
                exchange.asked(&mut self.random, now);
                out.push(broadcast(Ipv4Addr::UNSPECIFIED, &request));
            }
            State::Renewing { lease, since, exchange } if exchange.next <= now => {
                let Some(ends) = lease.term.ends(*since) else { return };
                let to = Destination::Unicast { from: lease.address, to: lease.server_id };
                let bytes = exchange.renewal(lease, mac, now).emit();
                exchange.asked_until(ends.rebind, ends.shortest_wait, now);
                out.push(Effect::Send { to, bytes });
            }
            State::Rebinding { lease, since, exchange } if exchange.next <= now => {
                let Some(ends) = lease.term.ends(*since) else { return };
                let request = exchange.renewal(lease, mac, now);
                exchange.asked_until(ends.end, ends.shortest_wait, now);
                out.push(broadcast(lease.address, &request));
            }
            State::Confirming { lease, exchange, .. } if exchange.next <= now => {
                // RFC 2131 §4.3.2, INIT-REBOOT: the address in option 50 alone, from nowhere.
                let mut request = exchange.message(MessageType::Request, mac, now);
                request.requested_ip = Some(lease.address);
                request.max_size = Some(MAX_SIZE);
                exchange.asked(&mut self.random, now);
                out.push(broadcast(Ipv4Addr::UNSPECIFIED, &request));
            }
            State::Selecting { .. }
            | State::Requesting { .. }
            | State::Bound { .. }
            | State::Renewing { .. }
            | State::Rebinding { .. }
            | State::Confirming { .. } => {}
        }
    }

    /// Goes on to the state the clock demands, through several after a long sleep.
    fn advance(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if let State::Requesting { exchange, offer, .. } = &self.state {
            if exchange.next <= now && exchange.tries >= MOST_REQUESTS {
                out.push(Effect::Report(Report::OfferLost(offer.server_id)));
                self.select(0, now);
            }
            return;
        }
        if let State::Confirming { lease, since, exchange } = &self.state
            && exchange.next <= now
            && exchange.tries >= MOST_REQUESTS
        {
            // RFC 2131 §3.2: where nobody answers, the lease is good for as long as it lasts.
            self.state = State::Bound { lease: lease.clone(), since: *since };
        }
        let (lease, since) = match &self.state {
            State::Bound { lease, since }
            | State::Renewing { lease, since, .. }
            | State::Rebinding { lease, since, .. }
            | State::Confirming { lease, since, .. } => (lease, *since),
            State::Selecting { .. } | State::Requesting { .. } => return,
        };
        let Some(ends) = lease.term.ends(since) else { return };
        if ends.end <= now {
            self.wanted = Some(lease.address);
            out.extend([Effect::Report(Report::Expired), Effect::Deconfigure]);
            self.select(0, now);
        } else if ends.rebind <= now && !matches!(self.state, State::Rebinding { .. }) {
            let (lease, exchange) = (lease.clone(), Exchange::begin(&mut self.random, now));
            self.state = State::Rebinding { lease, since, exchange };
        } else if ends.renew <= now && matches!(self.state, State::Bound { .. }) {
            let (lease, exchange) = (lease.clone(), Exchange::begin(&mut self.random, now));
            self.state = State::Renewing { lease, since, exchange };
        }
    }
}

/// Answer of a server, and the prefixes that it may give nothing of.
struct Answer<'a> {
    message: &'a DhcpMessage,
    server: Ipv4Addr,
    kept: Option<Prefixes>,
}

impl Answer<'_> {
    fn judge_resolver(&self, resolver: Ipv4Addr) -> Result<(), UnfitLink> {
        self.kept.map_or(Ok(()), |kept| kept.judge_resolver(resolver))
    }

    /// Checks what a server gives; T1 and T2 that make no sense give way to RFC 2131's defaults (§4.4.5).
    fn lease(&self) -> Result<Lease, IgnoreReason> {
        let Self { message, server, kept } = *self;
        let unfit = |why| IgnoreReason::Unfit { server, why };
        let (Some(prefix), Some(seconds)) = (message.prefix, message.lease_time) else {
            return Err(IgnoreReason::Unusable);
        };
        let address = message.yiaddr;
        if !prefix.is_host(address) || seconds < SHORTEST_LEASE {
            return Err(IgnoreReason::Unusable);
        }
        let judged = match kept {
            Some(kept) => kept.judge_link(address, prefix.bits()),
            None => Ipv4Prefix::of_link(address, prefix.bits()).map(drop),
        };
        judged.map_err(unfit)?;
        let is_resolver = |&asked: &Ipv4Addr| wire::is_host_address(asked) && self.judge_resolver(asked).is_ok();
        let is_router =
            |&router: &Ipv4Addr| prefix.is_host(router) && prefix.joins(router, address) && router != address;
        let term = if seconds == FOREVER {
            Term::Forever
        } else {
            let lasts = Duration::from_secs(seconds.into());
            let times = message.renewal_time.zip(message.rebinding_time);
            let (renew_after, rebind_after) = match times {
                Some((t1, t2)) if 0 < t1 && t1 < t2 && t2 < seconds => {
                    (Duration::from_secs(t1.into()), Duration::from_secs(t2.into()))
                }
                Some(_) | None => (lasts / 2, lasts * 7 / 8),
            };
            Term::Limited { renew_after, rebind_after, lasts }
        };
        Ok(Lease {
            address,
            prefix,
            router: message.routers.iter().copied().find(is_router),
            dns: message.dns.iter().copied().filter(is_resolver).collect(),
            server_id: server,
            term,
        })
    }
}

impl Lease {
    fn for_address(self, asked: Ipv4Addr) -> Result<Self, IgnoreReason> {
        if self.address == asked { Ok(self) } else { Err(IgnoreReason::OtherAddress(self.address)) }
    }
}

/// A limited term as instants.
struct Ends {
    renew: Instant,
    rebind: Instant,
    end: Instant,
    shortest_wait: Duration,
}

impl Term {
    fn ends(self, since: Instant) -> Option<Ends> {
        match self {
            Self::Forever => None,
            Self::Limited { renew_after, rebind_after, lasts } => Some(Ends {
                renew: since + renew_after,
                rebind: since + rebind_after,
                end: since + lasts,
                shortest_wait: SHORTEST_RENEWAL_WAIT.min(lasts / 10),
            }),
        }
    }
}

impl Exchange {
    fn begin(random: &mut Random, now: Instant) -> Self {
        let [a, b, c, d, ..] = random.next().to_be_bytes();
        Self { xid: u32::from_be_bytes([a, b, c, d]), began: now, tries: 0, next: now }
    }

    fn message(&self, message_type: MessageType, mac: HardwareAddress, now: Instant) -> DhcpMessage {
        let mut message = DhcpMessage::new(message_type, self.xid, mac);
        message.secs = u16::try_from(now.saturating_duration_since(self.began).as_secs()).unwrap_or(u16::MAX);
        message
    }

    /// RFC 2131 §4.3.2: the address in `ciaddr`, neither option 50 nor 54.
    fn renewal(&self, lease: &Lease, mac: HardwareAddress, now: Instant) -> DhcpMessage {
        let mut request = self.message(MessageType::Request, mac, now);
        request.ciaddr = lease.address;
        request.max_size = Some(MAX_SIZE);
        request
    }

    fn asked(&mut self, random: &mut Random, now: Instant) {
        self.tries = self.tries.saturating_add(1);
        self.next = now + random.spread(wait(self.tries));
    }

    /// Half of what is left until then, but not too often (RFC 2131 §4.4.5).
    fn asked_until(&mut self, until: Instant, shortest: Duration, now: Instant) {
        self.tries = self.tries.saturating_add(1);
        self.next = now + (until.saturating_duration_since(now) / 2).max(shortest);
    }
}

fn wait(tries: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(LONGEST_WAIT)
}

fn earlier(one: (Instant, &'static str), other: (Instant, &'static str)) -> (Instant, &'static str) {
    if one.0 < other.0 { one } else { other }
}

fn broadcast(from: Ipv4Addr, message: &DhcpMessage) -> Effect {
    Effect::Send { to: Destination::Broadcast { from }, bytes: message.emit() }
}

/// SplitMix64: spreads transaction ids and waits; nothing secret depends on it.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between three and five quarters of it, so that machines switched on together drift apart.
    fn spread(&mut self, wait: Duration) -> Duration {
        let [share, ..] = self.next().to_be_bytes();
        wait * 3 / 4 + wait * u32::from(share) / 2 / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's published values for this seed: transaction ids of two machines differ as it promises.
    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        let mut random = Random(1_234_567);
        let first: [u64; 5] = std::array::from_fn(|_| random.next());
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn waits_are_spread_over_their_whole_range_and_not_beyond() {
        let (mut random, wait) = (Random(7), Duration::from_millis(1020));
        let waits: Vec<_> = (0..5000).map(|_| random.spread(wait).as_millis()).collect();
        assert_eq!(waits.iter().min().zip(waits.iter().max()), Some((&765, &1275)));
    }
}
