//! How often a machine of the cluster has something changed: everybody is told of a change, and writes it down. A machine that was
//! put off asks again; what it has to say by then is all that counts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use model::MachineId;

use crate::bucket::{Bucket, Rate};

/// Changes of one machine. A start makes up to five at once: it becomes a member, has the next key, a share, and two leases.
const OF_MACHINE: Rate = Rate { every: AGAIN, burst: 5 };
/// A machine that was put off is not put off again after this time, unless it asked for something else meanwhile.
pub const AGAIN: Duration = Duration::from_secs(10);

/// The machine had too much changed lately; it may ask again after [`AGAIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOff;

/// What machines had changed lately.
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
