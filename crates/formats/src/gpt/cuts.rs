//! Growing and mending a table, cut at every sector: what was not flushed is kept, torn or lost in any mixture. The same
//! reader always finds a table, and the same plan made of what it finds ends as if nothing had been cut.

use proptest::prelude::*;

use super::tests::{Disk, partition};
use super::*;

const MIB: u64 = 2048;
/// The one that grows.
const DATA: u32 = 2;

/// Fate of a sector that was written and not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// The new bytes up to half of the sector, or from there.
    Torn(Half),
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// The sectors between two flushes.
type Epoch = Vec<(u64, Vec<u8>)>;

fn epochs(steps: &[TableStep]) -> Vec<Epoch> {
    let mut epochs = vec![Epoch::new()];
    for step in steps {
        match step {
            TableStep::Write { at, bytes } => {
                let sectors = (at / SECTOR..).zip(bytes.chunks(512).map(<[u8]>::to_vec));
                epochs.last_mut().expect("one at least").extend(sectors);
            }
            TableStep::Flush => epochs.push(Epoch::new()),
        }
    }
    assert!(epochs.pop().is_some_and(|left| left.is_empty()), "a plan ends flushed");
    epochs
}

impl Disk {
    /// A cut in the last of these epochs, in which each sector has its fate; those before it are flushed.
    fn cut(mut self, epochs: &[Epoch], fate: impl Fn(usize) -> Fate) -> Self {
        let Some((last, flushed)) = epochs.split_last() else { return self };
        for (lba, new) in flushed.iter().flatten() {
            self.put(*lba, new.clone());
        }
        for (index, (lba, new)) in last.iter().enumerate() {
            let old = self.sector(*lba);
            match fate(index) {
                Fate::Kept => self.put(*lba, new.clone()),
                Fate::Torn(Half::First) => self.put(*lba, [&new[..256], &old[256..]].concat()),
                Fate::Torn(Half::Second) => self.put(*lba, [&old[..256], &new[256..]].concat()),
                Fate::Lost => {}
            }
        }
        self
    }

    fn grown(&self) -> Self {
        let (steps, _) = self.read().expect("a table").grow(DATA).expect("grows");
        let mut grown = self.clone();
        grown.perform(&steps);
        grown
    }

    /// The table is there, with these partitions or those.
    fn is_readable_as(&self, old: &Table, new: &Table) -> bool {
        self.read()
            .is_ok_and(|table| table.guid() == old.guid() && [old, new].iter().any(|one| one.entries == table.entries))
    }
}

/// Every state from which a table is grown, by name.
fn starts() -> [(&'static str, Disk); 5] {
    let partitions = [partition(1, MIB, 2 * MIB - 1), partition(DATA, 2 * MIB, 3 * MIB - 1)];
    let image = Disk::made(4 * MIB, &partitions);
    let flashed = Disk { sectors: 16 * MIB + 1, ..image };
    let exact = Disk::made(8 * MIB, &partitions);
    let mut damaged = exact.clone();
    damaged.put(1, vec![0xee; 512]);
    let mut torn_array = exact.clone();
    torn_array.put(2, vec![0xee; 512]);
    let again = flashed.grown();
    [
        ("an image on a larger disk", flashed),
        ("an image on a disk of its size", exact),
        ("a damaged primary header", damaged),
        ("a damaged primary array", torn_array),
        ("grown already", again),
    ]
}

/// For each cut: the fate of the sector it falls on, of those before it and of those behind it.
const CUTS: [[Fate; 3]; 7] = [
    [Fate::Kept, Fate::Torn(Half::First), Fate::Lost],
    [Fate::Kept, Fate::Torn(Half::Second), Fate::Lost],
    [Fate::Kept, Fate::Lost, Fate::Kept],
    [Fate::Kept, Fate::Torn(Half::First), Fate::Kept],
    [Fate::Kept, Fate::Torn(Half::Second), Fate::Kept],
    [Fate::Lost, Fate::Kept, Fate::Lost],
    [Fate::Lost, Fate::Kept, Fate::Kept],
];

fn every_cut(disk: &Disk, steps: &[TableStep], mut look: impl FnMut(Disk)) {
    let epochs = epochs(steps);
    for epoch in 1..=epochs.len() {
        for at in 0..epochs[epoch - 1].len() {
            for [before, on, behind] in CUTS {
                let fate = |index: usize| match index.cmp(&at) {
                    std::cmp::Ordering::Less => before,
                    std::cmp::Ordering::Equal => on,
                    std::cmp::Ordering::Greater => behind,
                };
                look(disk.clone().cut(&epochs[..epoch], fate));
            }
        }
    }
}

/// Proves: D4
#[test]
fn growing_cut_anywhere_leaves_a_table_and_ends_the_same_later() {
    for (start, disk) in starts() {
        let old = disk.read().expect("a table");
        let (steps, _) = old.grow(DATA).expect("grows");
        let done = disk.grown();
        let new = done.read().expect("grown");
        every_cut(&disk, &steps, |cut| {
            assert!(cut.is_readable_as(&old, &new), "{start}: {cut:?}");
            assert_eq!(cut.grown().written, done.written, "{start}: {cut:?}");
        });
    }
}

#[test]
fn mending_cut_anywhere_leaves_a_table_and_the_backup_alone() {
    for (start, disk) in starts() {
        let table = disk.read().expect("a table");
        let steps = table.mend();
        assert_eq!(steps.is_empty(), table.copy() == TableCopy::Primary, "{start}");
        let mut mended = disk.clone();
        mended.perform(&steps);
        let whole = mended.read().expect("mended");
        assert_eq!((whole.copy(), whole.entries()), (TableCopy::Primary, table.entries()), "{start}");
        every_cut(&disk, &steps, |cut| {
            assert!(cut.is_readable_as(&table, &table), "{start}: {cut:?}");
            assert!((34..disk.sectors).all(|lba| cut.written.get(&lba) == disk.written.get(&lba)), "{start}");
        });
    }
}

/// Proves: D4
#[test]
fn a_partition_grows_to_the_end_in_whole_mebibytes_alone() {
    let mut disk = starts()[0].1.clone();
    for _again in 0..2 {
        let old = disk.read().expect("a table");
        let (steps, entry) = old.grow(DATA).expect("grows");
        disk.perform(&steps);
        let new = disk.read().expect("grown");
        // The backup takes the last sectors of the disk, which ends 512 bytes behind a whole number.
        assert_eq!((entry.start(), entry.length()), (2 << 20, 13 << 20));
        assert_eq!(new.entries(), [old.entries()[0].clone(), entry]);
        let mut from_backup = disk.clone();
        from_backup.put(1, vec![0; 512]);
        let backup = from_backup.read().expect("at the end of the disk");
        assert_eq!((backup.copy(), backup.entries()), (TableCopy::Backup, new.entries()));
    }
}

#[test]
fn a_partition_grows_up_to_the_last_sector_there_is() {
    let last = |sectors: u64| {
        let disk = Disk::made(sectors, &[partition(DATA, 2 * MIB, 3 * MIB - 1)]);
        disk.read().expect("a table").grow(DATA).expect("grows").1.last
    };
    // The backup copy takes 33 sectors behind it.
    assert_eq!(last(4 * MIB + 33), 4 * MIB - 1);
    assert_eq!(last(4 * MIB + 32), 3 * MIB - 1);
}

#[test]
fn unused_entries_and_attributes_stay_as_they_were() {
    let mut disk = starts()[1].1.clone();
    let mut table = disk.read().expect("a table");
    table.array[48] = 0x05; // attributes of the first
    table.array[5 * 128 + 70] = 0xaa; // of an entry without a type
    let mut steps = Vec::new();
    table.copy = TableCopy::Backup;
    steps.extend(table.mend());
    disk.perform(&steps);
    let grown = disk.grown().read().expect("grown");
    assert_eq!((grown.array[48], grown.array[5 * 128 + 70]), (0x05, 0xaa));
}

#[test]
fn what_cannot_grow_is_left_alone() {
    let exact = starts()[1].1.read().expect("a table");
    assert_eq!(exact.grow(3), Err(CannotGrow::Missing(3)));
    assert_eq!(exact.grow(1), Err(CannotGrow::NotLast(2)));
    // Less than a mebibyte to the end.
    let short = Disk::made(4 * MIB, &[partition(1, 4 * MIB - 100, 4 * MIB - 90)]);
    assert_eq!(short.read().expect("a table").grow(1), Err(CannotGrow::Room));
    // It would shrink to whole ones: it stays.
    let odd = Disk::made(4 * MIB, &[partition(1, MIB, 4 * MIB - 34)]);
    let (_, entry) = odd.read().expect("a table").grow(1).expect("stays");
    assert_eq!(entry.last, 4 * MIB - 34);
    // A table of fewer entries leaves its backup less room than ours takes.
    let mut small = odd.read().expect("a table");
    (small.header.last_usable, small.entries[0].last) = (4 * MIB - 3, 4 * MIB - 3);
    assert_eq!(small.grow(1), Err(CannotGrow::Room));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Proves: D4
    #[test]
    fn any_row_of_cuts_with_any_mixture_ends_the_same(
        start in 0usize..5,
        cuts in prop::collection::vec((0usize..4, prop::collection::vec(0u8..4, 40)), 1..4),
    ) {
        let disk = starts()[start].1.clone();
        let old = disk.read().expect("a table");
        let done = disk.grown();
        let new = done.read().expect("grown");
        let mut now = disk;
        for (epoch, fates) in cuts {
            let (steps, _) = now.read().expect("a table").grow(DATA).expect("grows");
            let epochs = epochs(&steps);
            let fate = |index: usize| match fates[index % fates.len()] {
                0 => Fate::Kept,
                1 => Fate::Torn(Half::First),
                2 => Fate::Torn(Half::Second),
                _ => Fate::Lost,
            };
            now = now.cut(&epochs[..epoch.min(epochs.len())], fate);
            prop_assert!(now.is_readable_as(&old, &new), "{now:?}");
        }
        prop_assert_eq!(now.grown().written, done.written);
    }
}
