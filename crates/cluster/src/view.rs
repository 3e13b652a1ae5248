//! View of etcd that a coordinator has: the state, and the revision that it is of. Read once, then kept up by what a watch
//! tells; when that has lost something, read again. It may be old: whoever decides over it has etcd say whether it still holds.

use crate::members::{Look, Members};
use crate::state::{BadState, Change, KeyValue, State};

/// A state with its revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    state: State,
    revision: u64,
}

impl View {
    /// Everything there was in one revision.
    ///
    /// # Errors
    /// [`BadState`] names the key that cannot be understood.
    pub fn read(pairs: impl IntoIterator<Item = KeyValue>, revision: u64) -> Result<Self, BadState> {
        Ok(Self { state: State::read(pairs)?, revision })
    }

    /// Takes what was changed since, up to `revision`: all changes of a revision in one call. Changes that were seen before are
    /// passed over.
    ///
    /// # Errors
    /// [`BadState`] names the key that cannot be understood; nothing was taken then.
    pub fn take(&mut self, changes: impl IntoIterator<Item = Change>, revision: u64) -> Result<(), BadState> {
        let seen = self.revision;
        self.state.apply(changes.into_iter().filter(|change| change.mod_revision() > seen))?;
        self.revision = seen.max(revision);
        Ok(())
    }

    /// Takes what a look at etcd's members shows; whether somebody may wait for it: the members are others than before, or a record
    /// was younger than the look before.
    pub fn see(&mut self, members: Members, look: Look) -> bool {
        let was_awaited = self.state.look().is_none_or(|look| look.revision < self.state.state_version().revision);
        let is_news = was_awaited || *self.state.members() != members;
        self.state.see(members, look);
        is_news
    }

    /// The state that is decided over.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The revision that the state is of.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }
}

#[cfg(test)]
mod tests {
    use model::MachineId;

    use super::*;
    use crate::key::Key;
    use crate::members::Learner;
    use crate::record::{ChangeCount, ColdStartEpochs};

    fn version(count: u64, mod_revision: u64) -> KeyValue {
        KeyValue { key: Key::Version.bytes(), value: ChangeCount(count).encode(), mod_revision }
    }

    #[test]
    fn a_look_is_news_by_other_members_or_a_younger_record() {
        let mut view = View::read([version(2, 7)], 9).expect("our own");
        let look = |revision| Look { revision, applied: revision };
        let learner = [(MachineId([1; 16]), Learner::Behind)];
        let with_one = Members { learners: learner.into(), ..Members::default() };
        assert!(view.see(Members::default(), look(9)), "the first");
        assert!(!view.see(Members::default(), look(9)), "nothing is younger");
        assert!(view.see(with_one.clone(), look(9)), "another member");
        let cluster =
            KeyValue { key: Key::ColdStart.bytes(), value: ColdStartEpochs::default().encode(), mod_revision: 12 };
        view.take([Change::Put(cluster)], 12).expect("our own");
        assert!(view.see(with_one.clone(), look(12)), "the last look was older than a record");
        assert!(!view.see(with_one, look(12)), "this one is not");
    }

    #[test]
    fn older_and_unreadable_changes_do_not_change_the_view() {
        let mut view = View::read([version(2, 7)], 9).expect("our own");
        assert_eq!((view.state().version(), view.revision()), (Some((ChangeCount(2), 7)), 9));
        // A watch that began too early tells of the past.
        view.take([Change::Put(version(1, 5))], 5).expect("our own");
        assert_eq!((view.state().version(), view.revision()), (Some((ChangeCount(2), 7)), 9));
        let unread = KeyValue { key: b"/cairn/v1/other".to_vec(), value: vec![], mod_revision: 10 };
        assert!(view.take([Change::Put(version(3, 10)), Change::Put(unread)], 10).is_err());
        assert_eq!((view.state().version(), view.revision()), (Some((ChangeCount(2), 7)), 9));
        view.take([Change::Put(version(3, 10))], 12).expect("our own");
        assert_eq!((view.state().version(), view.revision()), (Some((ChangeCount(3), 10)), 12));
    }
}
