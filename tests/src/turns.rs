//! Turns of the cases. Machines wait much: for their clocks, for each other, for what they were told to wait for; so
//! cases run beside each other, but those of one file one after the other, because they share machines. Pure.
//!
//! All cases wait from the start, each in a thread of its own. The first in the order of the tables goes first whose file has
//! none running, and that has [`Load`] enough to spare. One that must be alone waits until nobody runs, and nobody behind it
//! begins meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use crate::{FleetKind, Starts};

/// Load of a file's cases on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A machine or two: runs beside anything that may.
    Light,
    /// An answer in time, or a few machines: runs beside anything but many machines.
    Prompt,
    /// Many machines: one such case at a time, and light ones beside it.
    Heavy,
    /// All that the host has, for Kubernetes or because times are compared: nothing runs beside it.
    Alone,
}

/// A case's place among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the case, in the order of the tables.
    pub(crate) number: usize,
    /// File of the case.
    pub(crate) file: &'static str,
    /// Load of the case on the host.
    pub(crate) load: Load,
    /// From what it starts.
    pub(crate) starts: Starts,
}

/// Cases that wait, and cases that run.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeMap<usize, Place>,
    running: BTreeMap<usize, Place>,
    /// Fleets whose making has ended, well or not.
    over: BTreeSet<FleetKind>,
}

impl Turns {
    /// Adds a case that waits.
    pub(crate) fn wait(&mut self, place: Place) {
        self.waiting.insert(place.number, place);
    }

    /// Whether it is this one's turn, where so many run at once; from then on it runs.
    pub(crate) fn take(&mut self, place: Place, at_once: usize) -> bool {
        let its_turn = self.running.len() < at_once && self.next() == Some(place);
        if its_turn {
            self.waiting.remove(&place.number);
            self.running.insert(place.number, place);
        }
        its_turn
    }

    /// Takes away a case that has ended. Whether it was the last of its file.
    pub(crate) fn end(&mut self, place: Place) -> bool {
        self.running.remove(&place.number);
        if let Starts::Making(fleet) = place.starts {
            self.over.insert(fleet);
        }
        !self.waiting.values().chain(self.running.values()).any(|other| other.file == place.file)
    }

    fn next(&self) -> Option<Place> {
        let runs = |load| self.running.values().any(|place| place.load == load);
        // Cases with a copy of their own share nothing with others of their file.
        let sharing = self.running.values().filter(|place| !place.has_a_copy());
        let busy: BTreeSet<&str> = sharing.map(|place| place.file).collect();
        let is_free = |place: &Place| match place.starts {
            Starts::From(fleet) => self.over.contains(&fleet),
            Starts::Cold | Starts::Making(_) => !busy.contains(place.file),
        };
        let fits = |place: &&Place| match place.load {
            // What it waits for has to begin before it.
            Load::Alone => !matches!(place.starts, Starts::From(_)) || is_free(place),
            Load::Prompt => !runs(Load::Heavy) && is_free(place),
            Load::Heavy => !runs(Load::Heavy) && !runs(Load::Prompt) && is_free(place),
            Load::Light => is_free(place),
        };
        let first = self.waiting.values().find(fits)?;
        (!runs(Load::Alone) && (first.load != Load::Alone || self.running.is_empty())).then_some(*first)
    }
}

impl Place {
    pub(crate) fn has_a_copy(&self) -> bool {
        matches!(self.starts, Starts::From(_))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILES: [(&str, Load); 8] = [
        ("a.rs", Load::Light),
        ("b.rs", Load::Light),
        ("c.rs", Load::Light),
        ("alone.rs", Load::Alone),
        ("heavy.rs", Load::Heavy),
        ("heavier.rs", Load::Heavy),
        ("prompt.rs", Load::Prompt),
        ("prompter.rs", Load::Prompt),
    ];

    fn place(number: usize, file: usize) -> Place {
        let (file, load) = FILES[file];
        Place { number, file, load, starts: Starts::Cold }
    }

    /// All that may begin now.
    fn begin(turns: &mut Turns, places: &[Place], at_once: usize) -> Vec<usize> {
        let mut began = Vec::new();
        while let Some(place) = places.iter().find(|place| turns.take(**place, at_once)) {
            began.push(place.number);
        }
        began
    }

    fn all_wait(files: &[usize]) -> (Turns, Vec<Place>) {
        let places: Vec<_> = files.iter().enumerate().map(|(number, file)| place(number, *file)).collect();
        let mut turns = Turns::default();
        places.iter().for_each(|place| turns.wait(*place));
        (turns, places)
    }

    #[test]
    fn files_run_beside_each_other_and_the_cases_of_one_do_not() {
        let (mut turns, places) = all_wait(&[0, 0, 1, 2]);
        assert_eq!(begin(&mut turns, &places, 2), [0, 2]);
        assert!(turns.end(places[2]), "the only one of its file");
        assert_eq!(begin(&mut turns, &places, 2), [3], "1 waits for 0");
        assert!(!turns.end(places[0]), "1 is of that file");
        assert_eq!(begin(&mut turns, &places, 2), [1]);
    }

    #[test]
    fn who_must_be_alone_waits_for_all_and_is_passed_by_nobody() {
        let (mut turns, places) = all_wait(&[0, 3, 1]);
        assert_eq!(begin(&mut turns, &places, 2), [0]);
        turns.end(places[0]);
        assert_eq!(begin(&mut turns, &places, 2), [1]);
        turns.end(places[1]);
        assert_eq!(begin(&mut turns, &places, 2), [2]);
    }

    #[test]
    fn of_those_that_load_the_host_one_runs_at_a_time() {
        let (mut turns, places) = all_wait(&[4, 5, 0, 1]);
        assert_eq!(begin(&mut turns, &places, 3), [0, 2, 3]);
        turns.end(places[2]);
        assert_eq!(begin(&mut turns, &places, 3), [0; 0]);
        turns.end(places[0]);
        assert_eq!(begin(&mut turns, &places, 3), [1]);
    }

    #[test]
    fn who_is_to_answer_in_time_has_no_many_machines_beside_it() {
        let (mut turns, places) = all_wait(&[6, 4, 7, 0]);
        assert_eq!(begin(&mut turns, &places, 3), [0, 2, 3]);
        turns.end(places[0]);
        assert_eq!(begin(&mut turns, &places, 3), [0; 0]);
        turns.end(places[2]);
        assert_eq!(begin(&mut turns, &places, 3), [1]);
    }

    /// Proves: S13
    #[test]
    fn a_copy_waits_until_its_fleet_is_saved_and_runs_beside_others() {
        let of = |number, file, starts| Place { starts, ..place(number, file) };
        let from = Starts::From(FleetKind::Three);
        let places =
            [of(0, 0, from), of(1, 0, from), of(2, 1, Starts::Making(FleetKind::Three)), of(3, 0, Starts::Cold)];
        let mut turns = Turns::default();
        places.iter().for_each(|place| turns.wait(*place));
        assert_eq!(begin(&mut turns, &places, 4), [2, 3]);
        turns.end(places[2]);
        assert_eq!(begin(&mut turns, &places, 4), [0, 1], "beside each other and one of their file that shares");
    }

    proptest! {
        /// Cases end in any order: all get their turn, never too many, never two of a file, never one beside who is
        /// alone, never two that load the host, nor one beside who is to answer in time.
        #[test]
        fn everybody_gets_a_turn(
            files in prop::collection::vec(0..FILES.len(), 1..30),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 30),
            at_once in 1..4_usize,
        ) {
            let (mut turns, places) = all_wait(&files);
            let mut ran = BTreeSet::new();
            for end in ends.iter().take(places.len()) {
                ran.extend(begin(&mut turns, &places, at_once));
                let running: Vec<Place> = turns.running.values().copied().collect();
                prop_assert!(!running.is_empty() && running.len() <= at_once);
                let of_files: BTreeSet<_> = running.iter().map(|place| place.file).collect();
                prop_assert_eq!(of_files.len(), running.len());
                let load = |load| running.iter().filter(|place| place.load == load).count();
                prop_assert!(load(Load::Heavy) <= 1 && (running.len() == 1 || load(Load::Alone) == 0));
                prop_assert!(load(Load::Heavy) == 0 || load(Load::Prompt) == 0);
                turns.end(*end.get(&running));
            }
            prop_assert_eq!(ran.len(), places.len());
        }
    }
}
