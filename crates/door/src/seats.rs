//! Places of one kind, none of which is refused: a place more than there are costs whoever holds most of them its oldest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// How many connections of a kind there are at a time.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Most of them from all sources together.
    pub all: usize,
    /// Most of them from one source, or of one machine of the cluster.
    pub each: usize,
}

/// A connection's place; the order of places is that of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub(crate) u64);

/// A connection that got in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewPlace {
    /// Place of the connection, to be given back when it ends.
    pub place: Place,
    /// Connection that loses its place to this one, and is to be ended at once.
    pub instead_of: Option<Place>,
}

/// Connections from anybody, counted by their source.
#[derive(Debug)]
pub struct Seats<W> {
    room: Room,
    held: BTreeMap<Place, W>,
    next: u64,
}

impl<W: Copy + Eq + Hash> Seats<W> {
    /// So many, all free.
    #[must_use]
    pub const fn new(room: Room) -> Self {
        Self { room, held: BTreeMap::new(), next: 0 }
    }

    /// Takes a place for a connection of `whose`.
    pub fn take(&mut self, whose: W) -> NewPlace {
        let instead_of = gives_way(self.room, whose, self.held.iter().map(|(place, whose)| (*place, *whose)));
        if let Some(leaves) = instead_of {
            self.leave(leaves);
        }
        let place = Place(self.next);
        self.next += 1;
        self.held.insert(place, whose);
        NewPlace { place, instead_of }
    }

    /// The connection at `place` has ended.
    pub fn leave(&mut self, place: Place) {
        self.held.remove(&place);
    }
}

/// The place that is taken away for one more of `comes`, among those held in the order of arrival: the oldest of its own where it
/// holds as many as one may, or, where the room is full, of whoever holds most.
pub(crate) fn gives_way<W: Copy + Eq + Hash>(
    room: Room,
    comes: W,
    held: impl Iterator<Item = (Place, W)>,
) -> Option<Place> {
    let mut all = 0;
    let mut by_source: HashMap<W, (usize, Place)> = HashMap::new();
    for (place, whose) in held {
        by_source.entry(whose).or_insert((0, place)).0 += 1;
        all += 1;
    }
    match by_source.get(&comes) {
        Some((own, oldest)) if *own >= room.each => Some(*oldest),
        _ if all < room.all => None,
        // Of those that hold as many the one that is here longest.
        _ => by_source.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest))).map(|it| it.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken<const N: usize>(seats: &mut Seats<char>, sources: [char; N]) -> [NewPlace; N] {
        sources.map(|source| seats.take(source))
    }

    /// Proves: Q1
    #[test]
    fn who_has_few_places_gets_one_of_who_has_most() {
        let mut seats = Seats::new(Room { all: 4, each: 3 });
        let [first, second, third] = taken(&mut seats, ['a', 'a', 'a']);
        assert_eq!([first, second, third].map(|it| it.instead_of), [None; 3]);
        let fourth = seats.take('a');
        assert_eq!(fourth.instead_of, Some(first.place), "nobody has more than three");
        assert_eq!(seats.take('b').instead_of, None, "there is a fourth place");
        assert_eq!(seats.take('b').instead_of, Some(second.place), "none is left, and `a` has most");
        seats.leave(third.place);
        assert_eq!(seats.take('c').instead_of, None);
    }
}
