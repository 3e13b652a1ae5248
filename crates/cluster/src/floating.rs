//! Floating addresses: one machine holds each at a time, whatever clocks, networks and coordinators do.
//!
//! ```text
//!   record: m1 ─────────────── m2 (Request::Hold)
//!   m1 asks ─ a coordinator reads what a quorum has: m1 ─ yes ─► m1 holds for HOLDS, counted from when it asked
//!                              │ m2 asks ─ no ─ … ─ RESTS after the coordinator first saw this record: yes ─► m2 holds
//! ```
//! The last machine that was told yes had asked before the record was another one, so its time is over [`HOLDS`] later; the next one is told
//! yes by no coordinator before [`RESTS`]. Nobody compares clocks; they run at the same pace, within a third.
//!
//! Part of a machine's orders that names the addresses that it is to ask for:
//! ```text
//! message Floating { uint32 version = 1; repeated string addresses = 2; }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use model::MachineId;
use prost::Message as _;

use crate::part::{MOST_PART_BYTES, OrderPart};
use crate::record::{self, BadRecord, MOST_PUBLISHED, in_order, texts};
use crate::state::State;

/// Time for which a machine holds an address, behind a question that was answered with yes.
pub const HOLDS: Duration = Duration::from_secs(8);
/// Time for which a coordinator tells nobody yes, behind its first look at a record that names another holder.
pub const RESTS: Duration = Duration::from_secs(12);
/// Time between two questions of a machine.
const ASKS: Duration = Duration::from_secs(2);
/// Time behind a question that nobody answered, before another coordinator is asked.
const AGAIN: Duration = Duration::from_millis(500);

const VERSION: u32 = 1;

impl State {
    /// Addresses that a machine is to ask for, as a part of its orders; none where it is to have none.
    pub(crate) fn floating_part(&self, machine: &MachineId) -> Option<OrderPart> {
        self.worker(machine)?;
        let named = self.floating().iter().filter(|(_, (holder, _))| holder == machine);
        let addresses: Vec<String> = named.map(|(address, _)| address.to_string()).collect();
        let is_there = !addresses.is_empty();
        is_there.then(|| OrderPart::of(FloatingWire { version: VERSION, addresses }.encode_to_vec()))
    }
}

/// Reads the part that names the addresses that a machine is to ask for.
///
/// # Errors
/// [`BadRecord`] names what makes no sense.
pub fn decode_floating(contents: &[u8]) -> Result<BTreeSet<Ipv4Addr>, BadRecord> {
    let wire: FloatingWire = record::decode_within(MOST_PART_BYTES, contents, &FLOATING)?;
    let mut addresses: Vec<Ipv4Addr> = texts("addresses", &wire.addresses)?;
    addresses.truncate(MOST_PUBLISHED + 1);
    let addresses = in_order(addresses)?;
    if addresses.is_empty() || addresses.len() > MOST_PUBLISHED {
        return Err(BadRecord::Contradiction("it names 1 to 64 addresses in their order, each once"));
    }
    Ok(addresses)
}

/// Knowledge of a coordinator of who holds an address since when, by which it tells a machine whether it may.
#[derive(Debug, Default)]
pub struct FloatingGrants(BTreeMap<Ipv4Addr, Known>);

/// Record of a holder, as it was seen first.
#[derive(Debug)]
struct Known {
    holder: MachineId,
    revision: u64,
    since: Instant,
}

impl FloatingGrants {
    /// Sees the records as they are now. Whoever does so at each change of theirs lets a holder go on that comes from another coordinator.
    pub fn see(&mut self, state: &State, now: Instant) {
        let records = state.floating();
        let is_known = |known: &Known, record: &(MachineId, u64)| (known.holder, known.revision) == *record;
        self.0.retain(|address, known| records.get(address).is_some_and(|record| is_known(known, record)));
        for (address, (holder, revision)) in records {
            let known = Known { holder: *holder, revision: *revision, since: now };
            self.0.entry(*address).or_insert(known);
        }
    }

    /// Addresses that a machine may hold, of those that it asks for. `state` is what a quorum has, read behind the question.
    pub fn grant(
        &mut self,
        state: &State,
        (machine, asked): (&MachineId, &BTreeSet<Ipv4Addr>),
        now: Instant,
    ) -> BTreeSet<Ipv4Addr> {
        self.see(state, now);
        let may = |address: &&Ipv4Addr| {
            let known = self.0.get(*address).filter(|known| known.holder == *machine);
            known.is_some_and(|known| now >= known.since + RESTS)
        };
        if state.worker(machine).is_none() {
            return BTreeSet::new();
        }
        asked.iter().filter(may).copied().collect()
    }
}

/// Addresses that a machine asks for, and those that it may have.
#[derive(Debug)]
pub struct AddressKeeper {
    named: BTreeSet<Ipv4Addr>,
    /// Addresses with the end of the time for which the machine may have them.
    held: BTreeMap<Ipv4Addr, Instant>,
    /// When the question was asked that is not answered yet.
    asked: Option<Instant>,
    next: Instant,
    /// Questions that nobody answered.
    tries: usize,
}

impl AddressKeeper {
    /// Keeper of a machine that has none.
    #[must_use]
    pub const fn begin(now: Instant) -> Self {
        Self { named: BTreeSet::new(), held: BTreeMap::new(), asked: None, next: now, tries: 0 }
    }

    /// Takes the addresses that the machine is named for from now on; it lets go of all others.
    pub fn name(&mut self, named: BTreeSet<Ipv4Addr>) {
        self.held.retain(|address, _| named.contains(address));
        self.named = named;
    }

    /// Question that is due: the addresses, and which coordinator is asked, counted around all of them.
    pub fn question(&mut self, now: Instant) -> Option<(usize, BTreeSet<Ipv4Addr>)> {
        if self.named.is_empty() || self.asked.is_some() || now < self.next {
            return None;
        }
        self.asked = Some(now);
        Some((self.tries, self.named.clone()))
    }

    /// Takes the answer to the question that was asked last; none where nobody answers.
    pub fn answered(&mut self, granted: Option<BTreeSet<Ipv4Addr>>, now: Instant) {
        let Some(asked) = self.asked.take() else { return };
        match granted {
            Some(granted) => {
                let granted = granted.intersection(&self.named);
                self.held.extend(granted.map(|address| (*address, asked + HOLDS)));
                self.next = asked + ASKS;
            }
            None => {
                self.tries = self.tries.wrapping_add(1);
                self.next = now + AGAIN;
            }
        }
    }

    /// Addresses that the machine may have now.
    pub fn held(&mut self, now: Instant) -> BTreeSet<Ipv4Addr> {
        self.held.retain(|_, until| now < *until);
        self.held.keys().copied().collect()
    }

    /// When something is due next: a question, or the end of an address.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let question = (!self.named.is_empty() && self.asked.is_none()).then_some(self.next);
        self.held.values().copied().chain(question).min()
    }
}

formats::strict_message! {
    struct FloatingWire, FLOATING = "Floating" {
        1 required u32 version;
        2 repeated text addresses;
    }
}

#[cfg(test)]
mod tests;
