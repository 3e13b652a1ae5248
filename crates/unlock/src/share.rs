//! A machine's own shares of the cold-start key: read from its ESP, written when another epoch begins or its cluster key rotates,
//! erased once the epoch stands that follows. Must never write over the newest share of the epoch that stands.

use cluster::epochs::ShareOrder;
use keys::cold_start::{Epoch, Shares, UnknownHolder, WrappedKey};
use keys::data_key::{ClusterHalf, Holder};
use keys::derive::Unauthentic;
use keys::identity::cluster_key;
use keys::share::{self, Share, ShareKey};
use keys::two_slot::{File, SLOT_BYTES, Slot, Slots, TooLarge};
use model::{DiskUuid, MachineId, MasterSecret, Secret};

/// A share of this machine that opened, and what the key of its epoch opens.
#[derive(Debug)]
pub struct OpenShare {
    pub(crate) epoch: Epoch,
    pub(crate) wrapped: WrappedKey,
    pub(crate) value: Secret<32>,
}

impl OpenShare {
    /// The half that this share gives by itself to the machine whose it is: none where others hold shares of its epoch, too.
    ///
    /// # Errors
    /// [`UnknownHolder`] where it is no share of that machine's.
    pub fn alone(&self, machine: MachineId) -> Result<Option<ClusterHalf>, UnknownHolder> {
        Shares::new(self.epoch.clone(), self.wrapped).give(machine, self.value.duplicate())
    }

    /// The epoch of the share.
    #[must_use]
    pub const fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Whether its epoch's key opens the cluster key of `generation`, too.
    #[must_use]
    pub fn carries(&self, generation: u32) -> bool {
        self.wrapped.includes(generation)
    }

    /// The same share once more, for whoever keeps it.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { epoch: self.epoch.clone(), wrapped: self.wrapped, value: self.value.duplicate() }
    }
}

/// The shares for `disk` in the two slots that open, the newest first; and the epochs of those that do not.
#[must_use]
pub fn open_shares(slots: &Slots, disk: DiskUuid, key: &ShareKey) -> (Vec<OpenShare>, Vec<u32>) {
    let (mut held, mut senseless) = (Vec::new(), Vec::new());
    for share in share::read(slots.bytes(), disk).0 {
        match share.open(key) {
            Ok(value) => held.push(OpenShare { epoch: share.epoch, wrapped: share.wrapped, value }),
            Err(Unauthentic) => senseless.push(share.epoch.number()),
        }
    }
    (held, senseless)
}

/// A share that is to be written while the machine serves: a slot of the share's file, whole, to be synced.
#[derive(Debug)]
#[must_use]
pub struct ShareWrite {
    /// 0 or 1.
    pub slot: usize,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Why a share cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// The epoch is of others.
    #[error("this machine holds no share of epoch {0}")]
    NoHolder(u32),
    /// Never in fact.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Has `holder` hold what it is to hold: derived from the master secret, closed with `key`, and not written over the newest share
/// of the epoch that stands, nor that of the epoch that stands over one of a newer epoch. None where it lies there already.
///
/// # Errors
/// [`HoldError`].
pub fn hold(
    holding: &ShareOrder,
    holder: &Holder,
    master: &MasterSecret,
    key: &ShareKey,
    slots: &Slots,
) -> Result<Option<ShareWrite>, HoldError> {
    let slots = slots.bytes();
    let ShareOrder { epoch, stands, disk, generations } = holding;
    let derived = epoch.derive(master, holder.cluster, &holder.machine);
    let (cold_start, value) = derived.ok_or(HoldError::NoHolder(epoch.number()))?;
    let (generation, of) = (generations.oldest(), |of| cluster_key(master, holder.cluster, *disk, of));
    let half =
        ClusterHalf { key: of(generation), disk: *disk, generation, next: generations.behind(generation).map(of) };
    let share = Share::close(key, epoch.clone(), &value, cold_start.wrap(&half));
    let number = epoch.number();
    let (lie_there, _) = share::read(slots, *disk);
    // Beside one of a newer epoch there is no place for another one of this: the one that opens has to do until the newer epoch stands.
    let is_followed = *stands == Some(number) && lie_there.iter().any(|other| other.epoch.number() > number);
    let does = |other: &Share| other.epoch == *epoch && other.wrapped.includes(generation);
    if lie_there.contains(&share) || is_followed && lie_there.iter().any(does) {
        return Ok(None);
    }
    let next = share::place(slots, *disk, number, *stands);
    Ok(Some(ShareWrite { slot: next.slot, bytes: share.emit(next.generation)? }))
}

/// Writes that erase superseded shares once the epoch `stands`, whose share lies there: those of epochs before it, for which
/// fewer may have been enough, and one of its own that was written before and carries other cluster keys.
pub fn superseded(slots: &Slots, stands: u32) -> impl Iterator<Item = ShareWrite> {
    let written = slots.bytes().map(|bytes| {
        let slot = Slot::read(File::Share, bytes).ok()?;
        let share = Share::decode(slot.clear()).ok()?;
        Some((share.epoch.number(), slot.generation))
    });
    let counts = written.into_iter().flatten().filter(|(epoch, _)| *epoch == stands).max();
    let over = written.into_iter().enumerate().filter(move |(_, it)| it.is_some_and(|it| Some(it) < counts));
    over.map(|(slot, _)| ShareWrite { slot, bytes: vec![0; SLOT_BYTES] })
}

#[cfg(test)]
mod tests;
