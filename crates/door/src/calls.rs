//! How many calls of one machine are answered at a time, from wherever and over however many connections they come.

use std::collections::HashMap;

use model::MachineId;

/// Calls that are under way. Whoever began one ends it.
#[derive(Debug)]
pub struct Calls {
    most: u32,
    underway: HashMap<MachineId, u32>,
}

impl Calls {
    /// At most so many of one machine.
    #[must_use]
    pub fn at_most(most: u32) -> Self {
        Self { most, underway: HashMap::new() }
    }

    /// A machine calls; whether it is answered.
    pub fn begin(&mut self, machine: MachineId) -> bool {
        let underway = self.underway.get(&machine).copied().unwrap_or(0);
        let begins = underway < self.most;
        if begins {
            self.underway.insert(machine, underway + 1);
        }
        begins
    }

    /// A call that [`Self::begin`] let begin has ended.
    pub fn end(&mut self, machine: MachineId) {
        let left = self.underway.remove(&machine).map_or(0, |underway| underway.saturating_sub(1));
        if left > 0 {
            self.underway.insert(machine, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q1
    #[test]
    fn one_machine_has_few_calls_at_a_time_and_others_have_theirs() {
        let [one, other] = [1, 2].map(|n| MachineId([n; 16]));
        let mut calls = Calls::at_most(8);
        assert_eq!((0..100).filter(|_| calls.begin(one)).count(), 8);
        assert!(calls.begin(other), "nobody else is kept waiting");
        calls.end(one);
        assert!(calls.begin(one) && !calls.begin(one), "one was given back");
        (0..7).for_each(|_| calls.end(one));
        assert_eq!((0..100).filter(|_| calls.begin(one)).count(), 7, "the last one that is under way counts, too");
        (0..8).for_each(|_| calls.end(one));
        calls.end(other);
        assert!(calls.underway.is_empty(), "whoever does not call is forgotten");
    }
}
