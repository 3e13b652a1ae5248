//! Budget for the bytes of all requests that are under way, from all callers; strangers have a small part of it, and users of Kubernetes one of theirs.

use model::Caller;

/// Bytes that requests under way may take in all: 128 of the owner's largest.
pub const BUDGET: usize = 8 << 20;
/// As much of it is for strangers: two requests of 9 KiB, and its framing, for each of their places. So many has whoever activates
/// a machine, and a machine that redeems a ticket: nobody keeps them out by asking slowly.
pub const STRANGERS_BUDGET: usize = 640 << 10;

/// As much of it is for users: 24 connections that they have carried to Kubernetes, with the largest pieces, and some requests beside.
pub const USERS_BUDGET: usize = 2 << 20;

/// Bytes taken of [`BUDGET`] by strangers, by users and by owners. A caller that took some gives back the same.
#[derive(Debug, Default)]
pub struct Budget {
    strangers: usize,
    users: usize,
    owners: usize,
}

impl Budget {
    /// Takes `bytes` for a request of `caller`; whether they are there.
    pub fn take(&mut self, caller: Caller, bytes: usize) -> bool {
        let (taken, most) = match caller {
            Caller::Stranger | Caller::Machine => (&mut self.strangers, STRANGERS_BUDGET),
            Caller::User => (&mut self.users, USERS_BUDGET),
            // What strangers and users may take is kept free for them, so none can starve the others.
            Caller::Owner | Caller::Member => (&mut self.owners, BUDGET - STRANGERS_BUDGET - USERS_BUDGET),
        };
        let fits = bytes <= most.saturating_sub(*taken);
        if fits {
            *taken += bytes;
        }
        fits
    }

    /// Gives back what [`Self::take`] took.
    pub fn give_back(&mut self, caller: Caller, bytes: usize) {
        let taken = match caller {
            Caller::Stranger | Caller::Machine => &mut self.strangers,
            Caller::User => &mut self.users,
            Caller::Owner | Caller::Member => &mut self.owners,
        };
        *taken = taken.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q1
    #[test]
    fn bytes_are_bounded_and_no_side_takes_anothers() {
        let mut budget = Budget::default();
        let strangers =
            std::iter::repeat_with(|| budget.take(Caller::Stranger, 1 << 10)).take_while(|took| *took).count();
        assert_eq!(strangers, STRANGERS_BUDGET >> 10);
        let owners = std::iter::repeat_with(|| budget.take(Caller::Owner, 64 << 10)).take_while(|took| *took).count();
        assert_eq!(owners, (BUDGET - STRANGERS_BUDGET - USERS_BUDGET) >> 16);
        let users = std::iter::repeat_with(|| budget.take(Caller::User, 64 << 10)).take_while(|took| *took).count();
        assert_eq!(users, USERS_BUDGET >> 16);
        assert_eq!(strangers * (1 << 10) + (users + owners) * (64 << 10), BUDGET, "and not a byte more");
        budget.give_back(Caller::User, 64 << 10);
        assert!(!budget.take(Caller::Owner, 1) && budget.take(Caller::User, 64 << 10), "a user has left, no owner");
        budget.give_back(Caller::Stranger, 1 << 10);
        assert!(!budget.take(Caller::Owner, 64 << 10), "strangers have left, but that is no owner's");
        assert!(budget.take(Caller::Machine, 1 << 10) && !budget.take(Caller::Stranger, 1), "they share theirs");
        budget.give_back(Caller::Machine, 1 << 10);
        assert!(budget.take(Caller::Stranger, 1 << 10), "and what one gives back the others take");
        budget.give_back(Caller::Member, 64 << 10);
        assert!(budget.take(Caller::Owner, 64 << 10) && !budget.take(Caller::Member, 1), "so do those who belong");
    }
}
