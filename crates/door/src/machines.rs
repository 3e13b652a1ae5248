//! How often a machine of the cluster has something changed: everybody is told of a change, and writes it down. A machine that was
//! put off asks again; what it has to say by then is all that counts. And how often its refusal is written down, or that of a ticket.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use model::MachineId;

use crate::bucket::{Bucket, Rate};

/// Changes of one machine. A start makes up to five at once: it becomes a member, has the next key, a share, and two leases.
const OF_MACHINE: Rate = Rate { every: AGAIN, burst: 5 };
/// A machine that was put off is not put off again after this time, unless it asked for something else meanwhile.
pub const AGAIN: Duration = Duration::from_secs(10);

/// Time in which one refusal of a machine or a ticket is written down, whatever it is refused.
const MINUTE: Duration = Duration::from_secs(60);

/// The machine had too much changed lately; it may ask again after [`AGAIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOff;

/// Rates of the machines that had something changed lately.
#[derive(Debug, Default)]
pub struct Changes(HashMap<MachineId, Bucket>);

impl Changes {
    /// A machine asks for a change.
    ///
    /// # Errors
    /// [`PutOff`]: it is not to be made now.
    pub fn ask(&mut self, machine: MachineId, now: Instant) -> Result<(), PutOff> {
        // A full bucket is as good as none: only machines that had something changed lately are left.
        self.0.retain(|_, bucket| bucket.tokens(OF_MACHINE, now) < OF_MACHINE.burst);
        let bucket = self.0.entry(machine).or_default();
        if bucket.take(OF_MACHINE, 0, now) { Ok(()) } else { Err(PutOff) }
    }
}

/// Machines and tickets, by their ids, whose refusal was written down lately.
#[derive(Debug, Default)]
pub struct Refusals(HashMap<[u8; 16], Instant>);

impl Refusals {
    /// Whether a refusal of `whom` is written down now.
    #[must_use]
    pub fn may_write(&self, whom: [u8; 16], now: Instant) -> bool {
        self.0.get(&whom).is_none_or(|at| now.duration_since(*at) >= MINUTE)
    }

    /// Notes that a refusal of `whom` was written down at `now`.
    pub fn written(&mut self, whom: [u8; 16], now: Instant) {
        self.0.retain(|_, at| now.duration_since(*at) < MINUTE);
        self.0.insert(whom, now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn machine(n: u8) -> MachineId {
        MachineId([n; 16])
    }

    /// Proves: Q1
    #[test]
    fn one_machine_changes_little_and_the_others_are_not_put_off() {
        let (mut changes, begin) = (Changes::default(), testkit::origin());
        let asked = (0..500_u64).filter(|n| changes.ask(machine(1), begin + Duration::from_millis(2 * n)).is_ok());
        assert_eq!(asked.count(), 5, "of 500 in a second");
        let now = begin + Duration::from_secs(1);
        assert!((2..=250).all(|n| changes.ask(machine(n), now).is_ok()));
        assert_eq!(changes.0.len(), 250);
        assert_eq!(changes.ask(machine(1), begin + AGAIN), Ok(()), "and one each 10 s");
        assert_eq!(changes.ask(machine(1), begin + AGAIN), Err(PutOff));
        assert_eq!(changes.ask(machine(9), begin + AGAIN * 5), Ok(()));
        assert_eq!(changes.0.len(), 2, "those of whom nothing was heard for long are forgotten");
    }

    /// Proves: Q1
    #[test]
    fn one_refusal_of_a_machine_or_ticket_is_written_a_minute() {
        let (mut refusals, begin) = (Refusals::default(), testkit::origin());
        let mut refuse = |whom, millis| {
            let now = begin + Duration::from_millis(millis);
            let writes = refusals.may_write([whom; 16], now);
            if writes {
                refusals.written([whom; 16], now);
            }
            (writes, refusals.0.len())
        };
        assert_eq!((0..1000).filter(|n| refuse(1, n * 59).0).count(), 1, "of a thousand in a minute");
        assert_eq!(refuse(2, 59_999), (true, 2), "another one");
        assert_eq!((refuse(1, 60_000), refuse(1, 119_999)), ((true, 2), (false, 2)));
        assert_eq!(refuse(3, 180_000), (true, 1), "whoever was not refused lately is forgotten");
    }

    proptest! {
        /// However often it asked: the bucket is not emptied by a request that was put off.
        #[test]
        fn who_was_put_off_is_heard_after_ten_seconds(asks in prop::collection::vec(0_u64..4000, 1..200)) {
            let (mut changes, mut now) = (Changes::default(), testkit::origin());
            for millis in asks {
                now += Duration::from_millis(millis);
                if changes.ask(machine(1), now) == Err(PutOff) {
                    now += AGAIN;
                    prop_assert_eq!(changes.ask(machine(1), now), Ok(()));
                }
            }
        }
    }
}
