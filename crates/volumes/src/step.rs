//! Steps by which a volume comes, grows and goes. Each may be done twice; what is durable is a beginning of what was done, in
//! order, up to the last [`VolumeStep::Sync`] at least: the file system writes its changes in the order of its log.

use crate::name::{EntryName, VolumeId};

/// Step of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeStep {
    /// Makes the folder, readable by root alone.
    Make(EntryName),
    /// Makes the folder a project of its own, to which all that comes to lie in it is charged.
    Charge(EntryName),
    /// Limits the folder's project to so many bytes.
    Limit(EntryName, u64),
    /// Makes the folder inside that pods see, writable by anybody whose pod mounts it.
    Fill(EntryName),
    /// Gives the folder another name.
    Rename(EntryName, EntryName),
    /// Removes all that lies in the folder.
    Empty(EntryName),
    /// Takes the limit from the folder's project, if it has one.
    Unlimit(EntryName),
    /// Removes the folder, which is empty.
    Remove(EntryName),
    /// Makes durable what was done.
    Sync,
}

/// Makes a volume that is not there.
pub(crate) fn create(id: VolumeId, bytes: u64) -> Vec<VolumeStep> {
    let new = EntryName::Unfinished(id);
    vec![
        VolumeStep::Make(new),
        VolumeStep::Charge(new),
        VolumeStep::Limit(new, bytes),
        VolumeStep::Fill(new),
        // Before it has its name: a whole volume has its limit.
        VolumeStep::Sync,
        VolumeStep::Rename(new, EntryName::Whole(id)),
        VolumeStep::Sync,
    ]
}

/// Gives a volume that is there more room.
pub(crate) fn expand(id: VolumeId, bytes: u64) -> Vec<VolumeStep> {
    vec![VolumeStep::Limit(EntryName::Whole(id), bytes), VolumeStep::Sync]
}

/// Deletes a volume that is there.
pub(crate) fn delete(id: VolumeId) -> Vec<VolumeStep> {
    let gone = EntryName::Leaving(id);
    let renamed = [VolumeStep::Rename(EntryName::Whole(id), gone), VolumeStep::Sync];
    renamed.into_iter().chain(finish(gone)).collect()
}

/// Removes a folder that is no whole volume. What is one already is left alone.
pub(crate) fn finish(left: EntryName) -> Vec<VolumeStep> {
    match left {
        EntryName::Whole(_) => Vec::new(),
        EntryName::Unfinished(_) | EntryName::Leaving(_) => vec![
            VolumeStep::Empty(left),
            // While its folder says which project it is: no limit is left behind.
            VolumeStep::Unlimit(left),
            VolumeStep::Remove(left),
            VolumeStep::Sync,
        ],
    }
}
