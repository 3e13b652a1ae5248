//! Volumes on a disk that is cut anywhere: a model of what the file system keeps, and laws over every order of calls.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Size of the model's disk: room for four blocks beside what is kept.
const SIZE: u64 = (2 << 30) + 16 * BLOCK;

/// A folder of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Folder {
    project: Option<u32>,
    filled: bool,
    /// Mark that a pod wrote, by which one volume is told from another.
    written: Option<u32>,
}

/// A disk, as the steps change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Disk {
    folders: BTreeMap<EntryName, Folder>,
    limits: BTreeMap<u32, u64>,
    /// Projects that were drawn: none is drawn twice.
    drawn: u32,
}

impl Disk {
    fn inventory(&self) -> Inventory {
        let limit = |folder: &Folder| folder.project.and_then(|project| self.limits.get(&project).copied());
        let found = |(entry, folder): (&EntryName, &Folder)| FoundVolume {
            entry: *entry,
            bytes: limit(folder).unwrap_or(0),
            used: 0,
        };
        Inventory { size: SIZE, found: self.folders.iter().map(found).collect() }
    }

    fn folder(&mut self, entry: EntryName) -> &mut Folder {
        self.folders.get_mut(&entry).expect("a step names a folder that is there")
    }

    fn perform(&mut self, step: VolumeStep) {
        match step {
            VolumeStep::Make(entry) => {
                assert!(self.folders.insert(entry, Folder::default()).is_none(), "{entry} is there");
            }
            VolumeStep::Charge(entry) => {
                self.drawn += 1;
                self.folder(entry).project = Some(self.drawn);
            }
            VolumeStep::Limit(entry, bytes) => {
                let project = self.folder(entry).project.expect("it is charged before it is limited");
                self.limits.insert(project, bytes);
            }
            VolumeStep::Fill(entry) => self.folder(entry).filled = true,
            VolumeStep::Rename(from, to) => {
                let folder = self.folders.remove(&from).expect("there");
                assert!(self.folders.insert(to, folder).is_none(), "{to} is there");
            }
            VolumeStep::Empty(entry) => {
                let folder = self.folder(entry);
                (folder.filled, folder.written) = (false, None);
            }
            VolumeStep::Unlimit(entry) => {
                if let Some(project) = self.folder(entry).project {
                    self.limits.remove(&project);
                }
            }
            VolumeStep::Remove(entry) => {
                let folder = self.folders.remove(&entry).expect("there");
                assert!(!folder.filled, "only what is empty can be removed");
            }
            VolumeStep::Sync => {}
        }
    }

    /// Disks that a cut may leave: the disk behind each step since the last sync, and behind that sync.
    fn after_cut_at(&self, steps: &[VolumeStep], cut: usize) -> Vec<Self> {
        let (mut now, mut left) = (self.clone(), vec![self.clone()]);
        for step in &steps[..cut] {
            now.perform(*step);
            if *step == VolumeStep::Sync {
                left.clear();
            }
            left.push(now.clone());
        }
        left
    }

    /// Does what the next start does.
    fn recover(&mut self) {
        for step in self.inventory().leftovers().flat_map(|(_, steps)| steps) {
            self.perform(step);
        }
    }

    fn write(&mut self, id: VolumeId, mark: u32) {
        self.folder(EntryName::Whole(id)).written = Some(mark);
    }

    /// Each volume with its limit and what was written on it.
    fn volumes(&self) -> BTreeMap<VolumeId, (u64, Option<u32>)> {
        let whole = |entry: &EntryName| match entry {
            EntryName::Whole(id) => Some(*id),
            EntryName::Unfinished(_) | EntryName::Leaving(_) => None,
        };
        let volumes = self.folders.iter().filter_map(|(entry, folder)| Some((whole(entry)?, folder)));
        volumes
            .map(|(id, folder)| {
                assert!(folder.filled, "{id} is half there");
                let project = folder.project.expect("a volume has a project");
                (id, (*self.limits.get(&project).expect("a volume has a limit"), folder.written))
            })
            .collect()
    }
}

fn volume(number: u8) -> VolumeId {
    VolumeId::parse(&format!("01234567-89ab-cdef-0123-4567{number:08x}")).expect("a name")
}

/// Call that a coordinator makes.
#[derive(Debug, Clone, Copy)]
enum Call {
    Create(u8, u64),
    Expand(u8, u64),
    Delete(u8),
}

fn calls() -> impl Strategy<Value = Call> {
    let bytes = prop_oneof![0..20 * BLOCK, Just(u64::MAX), Just(BLOCK), Just(16 * BLOCK)];
    (0u8..3, bytes, 0..3).prop_map(|(volume, bytes, kind)| match kind {
        0 => Call::Create(volume, bytes),
        1 => Call::Expand(volume, bytes),
        _ => Call::Delete(volume),
    })
}

/// Steps of a call, none where it is refused.
fn steps(disk: &Disk, call: Call) -> Vec<VolumeStep> {
    let inventory = disk.inventory();
    match call {
        Call::Create(id, bytes) => inventory.create(volume(id), bytes).unwrap_or_default(),
        Call::Expand(id, bytes) => {
            let found = inventory.volume(volume(id));
            found.map_or_else(|_| Vec::new(), |found| inventory.grow(volume(id), found, bytes).unwrap_or_default())
        }
        Call::Delete(id) => inventory.delete(volume(id), false).expect("nobody mounts it"),
    }
}

proptest! {
    /// Every call is cut behind each of its steps, and the next start finds each of what the cut may have left.
    ///
    /// Proves: D14
    #[test]
    fn behind_any_cut_a_volume_is_whole_or_not_there(history in prop::collection::vec(calls(), 0..8), last in calls()) {
        let mut disk = Disk::default();
        for (mark, call) in (0..).zip(&history) {
            for step in steps(&disk, *call) {
                disk.perform(step);
            }
            if let Call::Create(id, _) = call && disk.folders.contains_key(&EntryName::Whole(volume(*id))) {
                disk.write(volume(*id), mark);
            }
        }
        let before = disk.volumes();
        let steps = steps(&disk, last);
        for cut in 0..=steps.len() {
            for mut left in disk.after_cut_at(&steps, cut) {
                left.recover();
                let after = left.volumes();
                prop_assert_eq!(left.folders.len(), after.len(), "nothing half is left");
                prop_assert_eq!(left.limits.len(), after.len(), "no limit is left behind");
                for id in [0, 1, 2] {
                    let (was, is) = (before.get(&volume(id)), after.get(&volume(id)));
                    match last {
                        Call::Create(named, _) | Call::Expand(named, _) if named == id => {
                            // As it was or as it is to be, with all that was written.
                            prop_assert!(was.is_none() || is.is_some_and(|is| is.0 >= was.unwrap().0 && is.1 == was.unwrap().1));
                            if cut == steps.len() && !steps.is_empty() {
                                prop_assert!(is.is_some() && is != was, "what was answered is durable");
                            }
                        }
                        Call::Delete(named) if named == id => {
                            prop_assert!(is.is_none() || is == was);
                            prop_assert!(cut < steps.len() || is.is_none());
                        }
                        Call::Create(..) | Call::Expand(..) | Call::Delete(_) => prop_assert_eq!(was, is, "it was not named"),
                    }
                }
            }
        }
    }

    #[test]
    fn no_order_of_calls_promises_more_than_there_is(history in prop::collection::vec(calls(), 0..20)) {
        let mut disk = Disk::default();
        for call in history {
            for step in steps(&disk, call) {
                disk.perform(step);
                let room = disk.inventory().room();
                prop_assert!(room.promised <= room.capacity(), "{call:?}: {room:?}");
            }
        }
    }
}

fn of(found: &[(EntryName, u64)]) -> Inventory {
    let found = found.iter().map(|(entry, bytes)| FoundVolume { entry: *entry, bytes: *bytes, used: 0 }).collect();
    Inventory { size: SIZE, found }
}

#[test]
fn what_is_there_is_not_made_again_and_never_smaller() {
    let there = of(&[(EntryName::Whole(volume(0)), 4 * BLOCK)]);
    for bytes in [0, 1, 4 * BLOCK] {
        assert_eq!(there.create(volume(0), bytes), Ok(Vec::new()));
    }
    let more = [VolumeStep::Limit(EntryName::Whole(volume(0)), 5 * BLOCK), VolumeStep::Sync];
    assert_eq!(there.create(volume(0), 4 * BLOCK + 1), Ok(more.to_vec()));
    assert_eq!(there.create(volume(0), 17 * BLOCK), Err(NoRoom { asked: 13 * BLOCK, free: 12 * BLOCK }));
    assert_eq!(there.create(volume(1), 13 * BLOCK), Err(NoRoom { asked: 13 * BLOCK, free: 12 * BLOCK }));
    assert!(there.create(volume(1), 12 * BLOCK).is_ok_and(|steps| !steps.is_empty()));
    assert_eq!(there.volume(volume(1)), Err(NoSuchVolume(volume(1))));
}

#[test]
fn what_is_half_gone_takes_room_until_it_is_gone() {
    let leaving = of(&[(EntryName::Leaving(volume(0)), 16 * BLOCK)]);
    assert_eq!(leaving.room().free(), 0);
    assert_eq!(leaving.volume(volume(0)), Err(NoSuchVolume(volume(0))));
    let leftovers: Vec<_> = leaving.leftovers().collect();
    assert_eq!(leftovers, [(EntryName::Leaving(volume(0)), finish(EntryName::Leaving(volume(0))))]);
    assert_eq!(
        of(&[(EntryName::Whole(volume(0)), BLOCK)]).leftovers().count(),
        0,
        "what is whole is nobody's leftover"
    );
}

#[test]
fn what_a_pod_uses_is_not_deleted() {
    let there = of(&[(EntryName::Whole(volume(0)), BLOCK)]);
    assert_eq!(there.delete(volume(0), true), Err(DeleteRefusal::Mounted(volume(0))));
    assert!(there.delete(volume(0), false).is_ok_and(|steps| !steps.is_empty()));
    assert_eq!(there.delete(volume(1), true), Ok(Vec::new()), "it is not there");
}
