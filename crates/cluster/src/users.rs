//! Users of a moment: who is let in by which key, and until when that is the whole truth.

use std::collections::BTreeMap;

use model::{UserName, UserPubKey};

use crate::record::UnixSeconds;
use crate::state::State;

/// Users who are let in at one moment, by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsersOfNow {
    names: BTreeMap<UserPubKey, UserName>,
    until: Option<UnixSeconds>,
}

impl UsersOfNow {
    /// Users whose time is not over at `now`.
    #[must_use]
    pub fn of(state: &State, now: UnixSeconds) -> Self {
        let holding = || state.users().map(|user| &user.terms).filter(|terms| terms.hold(now));
        let names = holding().flat_map(|terms| terms.keys.iter().map(|key| (*key, terms.name))).collect();
        Self { names, until: holding().filter_map(|terms| terms.expires).min() }
    }

    /// Name of the user who holds `key`.
    #[must_use]
    pub fn name(&self, key: &UserPubKey) -> Option<UserName> {
        self.names.get(key).copied()
    }

    /// Moment at which the first of them expires; none while nobody does.
    #[must_use]
    pub const fn until(&self) -> Option<UnixSeconds> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, NOW};
    use crate::key::Key;
    use crate::record::{UserRecord, UserTerms};
    use crate::state::KeyValue;

    /// Proves: W9
    #[test]
    fn users_are_known_by_each_of_their_keys_until_they_expire() {
        let pair = |user: &UserRecord| KeyValue {
            key: Key::User(user.terms.name).bytes(),
            value: user.encode(),
            mod_revision: 1,
        };
        let (alice, bob) = (fixture::user("alice", 1), fixture::user("bob", 3));
        let keys = [UserPubKey([1; 32]), UserPubKey([2; 32])].into();
        let alice = UserRecord { terms: UserTerms { keys, expires: None, ..alice.terms }, ..alice };
        let state = State::read([pair(&alice), pair(&bob)]).expect("our own");
        let end = bob.terms.expires.expect("it ends");
        let known = |now| {
            let users = UsersOfNow::of(&state, now);
            let names = [1, 2, 3, 4].map(|n| users.name(&UserPubKey([n; 32])).map(|name| name.to_string()));
            (names, users.until())
        };
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(known(NOW), ([name("alice"), name("alice"), name("bob"), None], Some(end)));
        assert_eq!(known(end), ([name("alice"), name("alice"), None, None], None));
        assert_eq!(UsersOfNow::of(&State::default(), NOW), UsersOfNow::default());
    }
}
