//! Entry to the port: a rate of handshakes for each source and for all, and places that are never simply full.
//!
//! ```text
//!   handshake (32) ─┬─► stranger (32)      a place more than there are: the oldest place of the source that holds
//!                   ├─► owner    (64)      most is taken away; strangers never take an owner's
//!                   ├─► user     (32)      four of each: the oldest of who holds most is taken away
//!                   ├─► member             two of each machine that the records know: its own oldest is taken away
//!                   └─► newcomer (64)      of other machines; full: it is refused
//! ```
//! A handshake costs a token of its source and one of all; an owner gets both back, a machine of the cluster that of all: one that
//! comes too often keeps itself out and nobody else. Of those of all, some are kept for sources that were not here lately, and some
//! for sources an owner came from: whoever floods finds the rest empty.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use model::{MachineId, UserName};

use crate::bucket::{Bucket, Rate};
use crate::seats::{NewPlace, Place, Room, gives_way};

/// Handshakes under way: 64 KiB each at worst, which a client's certificate may take.
pub const HANDSHAKES: Room = Room { all: 32, each: 8 };
/// Connections without a certificate: a TLS record, an HTTP/2 frame and their plaintext each, 64 KiB at worst.
pub const STRANGERS: Room = Room { all: 32, each: 8 };
/// Connections of owners, which cost what owners do.
pub const OWNERS: Room = Room { all: 64, each: 64 };
/// Connections of users, each of which may carry a few to the Kubernetes API.
pub const USERS: Room = Room { all: 32, each: 4 };
/// Machines that the records know, each with one connection, and a second one while the first is found to be dead: records bound them.
pub const MEMBERS: Room = Room { all: usize::MAX, each: 2 };
/// Machines with a certificate of the cluster that the records do not know: removed, or let in a moment ago by another coordinator.
pub const NEWCOMERS: Room = Room { all: 64, each: 2 };

/// Handshakes of one source: a person with a few windows and a script stay below, and owners get theirs back.
const OF_SOURCE: Rate = Rate { every: Duration::from_millis(250), burst: 16 };
/// Handshakes of all sources: eight a second are half of one emulated processor and a hundredth of a real one.
const OF_ALL: Rate = Rate { every: Duration::from_millis(125), burst: 48 };
/// Kept for sources an owner came from.
const KEPT_FOR_KNOWN: u32 = 8;
/// Kept for those and for sources that were not here lately: one handshake for each of sixteen that flood from now on,
/// and some for those who just come.
const KEPT_FOR_NEW: u32 = 32;
/// A source that has not shaken hands for so long is a new one; by then its bucket is full.
const LATELY: Duration = Duration::from_secs(10);
/// Sources of owners that are remembered: a few people with a few networks each.
const KNOWN: usize = 16;

/// Why there is no handshake. The next one may get in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnockError {
    /// This source had too many lately.
    Source,
    /// All sources together had.
    All,
}

/// Kind of caller, as the handshake has proved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// A caller without a certificate, or with a key that anybody can draw.
    Stranger,
    /// An owner.
    Owner,
    /// A user of Kubernetes, whose handshakes cost what a stranger's do.
    User(UserName),
    /// A machine that the records know.
    Member(MachineId),
    /// A machine of the cluster that they do not know.
    Newcomer(MachineId),
}

/// Why somebody who has shaken hands is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleError {
    /// The place was taken away meanwhile.
    Left,
    /// There is no place for one more machine without a record.
    Full,
}

/// All connections of the port.
#[derive(Debug, Default)]
pub struct Door {
    places: BTreeMap<Place, Held>,
    next: u64,
    sources: HashMap<IpAddr, Source>,
    known: VecDeque<IpAddr>,
    all: Bucket,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    whose: Whose,
    stage: Stage,
}

/// By what places are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Source(IpAddr),
    Machine(MachineId),
    User(UserName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Stranger,
    Owner,
    User,
    Member,
    Newcomer,
}

/// A source that shook hands lately, and was no owner.
#[derive(Debug)]
struct Source {
    bucket: Bucket,
    last: Instant,
}

impl KnockError {
    /// The reason in words, for the log.
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::Source => "too many handshakes of this source",
            Self::All => "too many handshakes",
        }
    }
}

impl Stage {
    const fn room(self) -> Room {
        match self {
            Self::Handshake => HANDSHAKES,
            Self::Stranger => STRANGERS,
            Self::Owner => OWNERS,
            Self::User => USERS,
            Self::Member => MEMBERS,
            Self::Newcomer => NEWCOMERS,
        }
    }
}

impl Door {
    /// A connection from `source` wants to shake hands.
    ///
    /// # Errors
    /// [`KnockError`]: to be closed at once.
    pub fn knock(&mut self, source: IpAddr, now: Instant) -> Result<NewPlace, KnockError> {
        // Only sources that got a token of all lately are left, so there are never many.
        self.sources.retain(|_, seen| now.duration_since(seen.last) < LATELY);
        let seen = self.sources.get(&source);
        let keep = match seen {
            _ if self.known.contains(&source) => 0,
            None => KEPT_FOR_KNOWN,
            Some(_) => KEPT_FOR_NEW,
        };
        let mut bucket = seen.map_or_else(Bucket::default, |seen| seen.bucket);
        if !bucket.take(OF_SOURCE, 0, now) {
            return Err(KnockError::Source);
        }
        if !self.all.take(OF_ALL, keep, now) {
            return Err(KnockError::All);
        }
        self.sources.insert(source, Source { bucket, last: now });
        let held = Held { whose: Whose::Source(source), stage: Stage::Handshake };
        let instead_of = self.make_room(held);
        let place = Place(self.next);
        self.next += 1;
        self.places.insert(place, held);
        Ok(NewPlace { place, instead_of })
    }

    /// The handshake at `place` is finished; whoever loses their place for the guest is to be ended at once.
    ///
    /// # Errors
    /// [`SettleError`]: the guest is to be ended.
    pub fn settle(&mut self, place: Place, guest: Guest) -> Result<Option<Place>, SettleError> {
        let Held { whose, .. } = *self.places.get(&place).ok_or(SettleError::Left)?;
        let held = match guest {
            Guest::Stranger => Held { whose, stage: Stage::Stranger },
            Guest::Owner => Held { whose, stage: Stage::Owner },
            Guest::User(name) => Held { whose: Whose::User(name), stage: Stage::User },
            Guest::Member(machine) => Held { whose: Whose::Machine(machine), stage: Stage::Member },
            Guest::Newcomer(machine) => Held { whose: Whose::Machine(machine), stage: Stage::Newcomer },
        };
        if held.stage == Stage::Newcomer && self.is_full_for(held) {
            self.places.remove(&place);
            return Err(SettleError::Full);
        }
        self.welcome(whose, guest);
        let instead_of = self.make_room(held);
        self.places.insert(place, held);
        Ok(instead_of)
    }

    /// The connection at `place` has ended.
    pub fn leave(&mut self, place: Place) {
        self.places.remove(&place);
    }

    /// Gives back what the handshake cost: to an owner all of it, and the next one from there finds a token; to a machine of the
    /// cluster what others would miss.
    fn welcome(&mut self, whose: Whose, guest: Guest) {
        match (guest, whose) {
            (Guest::Stranger | Guest::User(_), _) | (Guest::Owner, Whose::Machine(_) | Whose::User(_)) => {}
            (Guest::Member(_) | Guest::Newcomer(_), _) => self.all.put_back(OF_ALL),
            (Guest::Owner, Whose::Source(source)) => {
                self.all.put_back(OF_ALL);
                if let Some(seen) = self.sources.get_mut(&source) {
                    seen.bucket.put_back(OF_SOURCE);
                }
                self.known.retain(|known| *known != source);
                self.known.push_back(source);
                if self.known.len() > KNOWN {
                    self.known.pop_front();
                }
            }
        }
    }

    /// Whether only somebody else could make room.
    fn is_full_for(&self, comes: Held) -> bool {
        let room = comes.stage.room();
        let held = self.places.values().filter(|held| held.stage == comes.stage);
        let (all, own) = held.fold((0, 0), |(all, own), held| (all + 1, own + usize::from(held.whose == comes.whose)));
        all >= room.all && own < room.each
    }

    /// Takes a place away if there is none left for one more.
    fn make_room(&mut self, comes: Held) -> Option<Place> {
        let alike = self.places.iter().filter(|(_, held)| held.stage == comes.stage);
        let held = alike.map(|(place, held)| (*place, held.whose));
        let leaves = gives_way(comes.stage.room(), comes.whose, held)?;
        self.places.remove(&leaves);
        Some(leaves)
    }
}

#[cfg(test)]
mod tests;
