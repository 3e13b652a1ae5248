//! Difference of a snapshot and of what etcd holds: both come in the order of their keys, and one is carried to the other by puts and
//! deletions. An object that both have alike is left alone, so that it keeps its revision, and one that differs is never gone.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::{MOST_ENTRY_BYTES, RegistryEntry};

/// Changes of one transaction, of which etcd takes 128 (`--max-txn-ops`).
pub const MOST_CHANGES: usize = 100;
/// Bytes of keys and values of one transaction of several changes; a request with a single one is as large as its object.
pub const MOST_BATCH_BYTES: usize = 1 << 20;

const _: () = assert!(MOST_BATCH_BYTES + MOST_CHANGES * 64 < MOST_ENTRY_BYTES);

/// Change of what etcd holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryChange {
    /// Writes an object.
    Put(RegistryEntry),
    /// Deletes the object with this key.
    Delete(Vec<u8>),
}

impl RegistryChange {
    fn bytes(&self) -> usize {
        match self {
            Self::Put(entry) => entry.key.len() + entry.value.len(),
            Self::Delete(key) => key.len(),
        }
    }
}

/// Side whose next objects are wanted, before the difference is known further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectSide {
    /// The snapshot's.
    Snapshot,
    /// etcd's.
    Etcd,
    /// Neither: both have ended.
    Nothing,
}

/// Objects of one side that were not compared yet.
#[derive(Debug, Clone, Default)]
struct Side {
    next: VecDeque<RegistryEntry>,
    has_ended: bool,
}

impl Side {
    fn is_wanted(&self) -> bool {
        self.next.is_empty() && !self.has_ended
    }
}

/// Difference, as far as both sides have come.
#[derive(Debug, Clone, Default)]
pub struct RegistryDifference {
    snapshot: Side,
    etcd: Side,
    batch: Vec<RegistryChange>,
    bytes: usize,
}

impl RegistryDifference {
    /// Side of which more is wanted.
    #[must_use]
    pub fn wants(&self) -> ObjectSide {
        match (self.snapshot.is_wanted(), self.etcd.is_wanted()) {
            (true, _) => ObjectSide::Snapshot,
            (false, true) => ObjectSide::Etcd,
            (false, false) => ObjectSide::Nothing,
        }
    }

    /// Takes the snapshot's next objects.
    pub fn snapshot(&mut self, entries: impl IntoIterator<Item = RegistryEntry>) {
        self.snapshot.next.extend(entries);
    }

    /// Takes etcd's next objects.
    pub fn etcd(&mut self, entries: impl IntoIterator<Item = RegistryEntry>) {
        self.etcd.next.extend(entries);
    }

    /// The snapshot has no more.
    pub const fn snapshot_ends(&mut self) {
        self.snapshot.has_ended = true;
    }

    /// etcd has no more.
    pub const fn etcd_ends(&mut self) {
        self.etcd.has_ended = true;
    }

    /// The next transaction's changes; none before more is taken, or once all was told.
    pub fn batch(&mut self) -> Option<Vec<RegistryChange>> {
        while let Some(compared) = self.compare() {
            let Some(change) = compared else { continue };
            let bytes = change.bytes();
            let has_room = self.batch.len() < MOST_CHANGES && self.bytes + bytes <= MOST_BATCH_BYTES;
            if has_room || self.batch.is_empty() {
                self.batch.push(change);
                self.bytes += bytes;
            } else {
                self.bytes = bytes;
                return Some(std::mem::replace(&mut self.batch, vec![change]));
            }
        }
        let is_over = self.wants() == ObjectSide::Nothing && !self.batch.is_empty();
        self.bytes = if is_over { 0 } else { self.bytes };
        is_over.then(|| std::mem::take(&mut self.batch))
    }

    /// Compares the next keys: none where more is wanted first; within it none where both have the object.
    fn compare(&mut self) -> Option<Option<RegistryChange>> {
        let order = match (self.snapshot.next.front(), self.etcd.next.front()) {
            (Some(wanted), Some(held)) => wanted.key.cmp(&held.key),
            (Some(_), None) if self.etcd.has_ended => Ordering::Less,
            (None, Some(_)) if self.snapshot.has_ended => Ordering::Greater,
            (Some(_), None) | (None, Some(_) | None) => return None,
        };
        let wanted = if order.is_le() { self.snapshot.next.pop_front() } else { None };
        let held = if order.is_ge() { self.etcd.next.pop_front() } else { None };
        Some(match (wanted, held) {
            (Some(wanted), Some(held)) => (wanted.value != held.value).then_some(RegistryChange::Put(wanted)),
            (Some(wanted), None) => Some(RegistryChange::Put(wanted)),
            (None, held) => held.map(|held| RegistryChange::Delete(held.key)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    type Objects = BTreeMap<Vec<u8>, Vec<u8>>;

    fn entries(objects: &Objects) -> Vec<RegistryEntry> {
        objects.iter().map(|(key, value)| RegistryEntry { key: key.clone(), value: value.clone() }).collect()
    }

    /// All batches that carry `held` to `wanted`, both told in pieces of these sizes.
    fn batches(wanted: &Objects, held: &Objects, (one, other): (usize, usize)) -> Vec<Vec<RegistryChange>> {
        let (mut difference, mut batches) = (RegistryDifference::default(), Vec::new());
        let (wanted, held) = (entries(wanted), entries(held));
        let (mut wanted, mut held) = (wanted.chunks(one), held.chunks(other));
        loop {
            while let Some(batch) = difference.batch() {
                batches.push(batch);
            }
            match difference.wants() {
                ObjectSide::Snapshot => match wanted.next() {
                    Some(piece) => difference.snapshot(piece.to_vec()),
                    None => difference.snapshot_ends(),
                },
                ObjectSide::Etcd => match held.next() {
                    Some(piece) => difference.etcd(piece.to_vec()),
                    None => difference.etcd_ends(),
                },
                ObjectSide::Nothing => return batches,
            }
        }
    }

    fn apply(objects: &mut Objects, batch: &[RegistryChange]) {
        for change in batch {
            match change {
                RegistryChange::Put(entry) => drop(objects.insert(entry.key.clone(), entry.value.clone())),
                RegistryChange::Delete(key) => assert!(objects.remove(key).is_some(), "it is there"),
            }
        }
    }

    fn objects(most: usize) -> impl Strategy<Value = Objects> {
        let (key, value) = ("[a-d]{1,3}", "[xy]?");
        let text = |it: String| it.into_bytes();
        proptest::collection::btree_map(key.prop_map(text), value.prop_map(text), 0..most)
    }

    proptest! {
        /// Proves: Q4
        #[test]
        fn what_etcd_holds_becomes_the_snapshot(wanted in objects(60), mut held in objects(60), sizes in (1_usize..9, 1_usize..9)) {
            let both: BTreeSet<_> = wanted.keys().filter(|key| held.contains_key(*key)).cloned().collect();
            let differ = wanted.keys().chain(held.keys()).collect::<BTreeSet<_>>();
            let differ = differ.into_iter().filter(|key| wanted.get(*key) != held.get(*key)).count();
            let batches = batches(&wanted, &held, sizes);
            prop_assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), differ, "what is alike is left alone");
            for batch in batches {
                apply(&mut held, &batch);
                prop_assert!(both.iter().all(|key| held.contains_key(key)), "an object of both is never gone");
            }
            prop_assert_eq!(held, wanted);
        }

        /// A cut behind any transaction: what is left to do is told anew, and no more than that. Proves: Q4
        #[test]
        fn a_cut_costs_no_change_twice(wanted in objects(400), mut held in objects(400), at in any::<prop::sample::Index>()) {
            let all = batches(&wanted, &held, (3, 3));
            let done = at.index(all.len() + 1);
            all.iter().take(done).for_each(|batch| apply(&mut held, batch));
            let left: Vec<_> = batches(&wanted, &held, (2, 5)).concat();
            prop_assert_eq!(left, all.into_iter().skip(done).flatten().collect::<Vec<_>>());
        }
    }

    /// Proves: Q1
    #[test]
    fn no_transaction_is_larger_than_etcd_takes() {
        let object = |n: usize, bytes: usize| (format!("/registry/{n:05}").into_bytes(), vec![7; bytes]);
        let wanted: Objects = (0..250).map(|n| object(n, 1)).chain((250..260).map(|n| object(n, 400 << 10))).collect();
        let largest = object(300, MOST_ENTRY_BYTES - "/registry/00300".len());
        let wanted: Objects = wanted.into_iter().chain([largest, object(301, 1)]).collect();
        let all = batches(&wanted, &Objects::new(), (7, 1));
        for batch in &all {
            let bytes: usize = batch.iter().map(RegistryChange::bytes).sum();
            assert!(batch.len() <= MOST_CHANGES && (bytes <= MOST_BATCH_BYTES || batch.len() == 1), "{bytes}");
        }
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 52, 2, 2, 2, 2, 1, 1]);
        assert_eq!(batches(&Objects::new(), &wanted, (1, 7)).iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 62]);
    }
}
