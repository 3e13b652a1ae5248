//! The rotation of the cluster's half: a disk whose half comes with the next one is locked with that, before the cap of the boot that
//! opened it. A cut at any place leaves a disk that opens with one of the two, and the cluster gives both until the machine
//! has said that both places of the header hold the newer. Must never write over what gives the older one before that.
//!
//! ```text
//!   half with a next one ─► the owner's record of the next, beside that of now ─► header, both places ─► cap ─► the cluster is told
//!        └ a share of the machine's own that does not carry it: not in this boot
//! ```

use keys::data_key::{ClusterHalf, OpenDisk, Rotation};
use keys::header::{Copies, Copy, Header, HeaderError};
use keys::record::Record;
use keys::recovery::{OwnerSealError, SecretContext, SecretKind};
use keys::seal::Body;
use keys::two_slot::{File, Slots, TooLarge};
use unlock::share::OpenShare;

use crate::making;
use crate::step::{Effect, HeaderCopy};

/// Locks of the disk in more places than the header that opened.
#[derive(Debug)]
pub(crate) struct Locking {
    /// Both places of the header.
    pub(crate) copies: Copies,
    /// The recovery record's slots.
    pub(crate) record: Slots,
    /// The machine's own shares.
    pub(crate) shares: Vec<OpenShare>,
}

/// Why a disk does not take the next cluster key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RotateError {
    /// The owner's key does not take a secret.
    #[error(transparent)]
    Owner(#[from] OwnerSealError),
    /// Never in fact.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Locks of a disk that takes the next cluster key.
pub(crate) struct Rotated {
    /// The owner's way to that key, where the machine keeps the key itself for its owner.
    pub(crate) record: Option<Effect>,
    /// The header that both places hold from now on.
    pub(crate) header: Header,
}

impl Locking {
    /// Whether the disk takes the next cluster key in this boot: the half brings it along, nothing that a newer Cairn wrote is in the
    /// way, and each share of the machine's own gives it, too. One that did not would leave it behind when all are switched off.
    pub(crate) fn takes_next(&self, half: &ClusterHalf) -> bool {
        let next = half.generation.checked_add(1).filter(|_| half.next.is_some());
        next.is_some_and(|next| !self.newer() && self.shares.iter().all(|held| held.carries(next)))
    }

    /// Locks the disk with the next cluster key. None where it is locked with that already: a cut came behind it.
    ///
    /// # Errors
    /// [`RotateError`]; nothing was written.
    pub(crate) fn rotate(
        &self,
        body: &Body,
        opened: &OpenDisk,
        half: &ClusterHalf,
        salt: [u8; 32],
    ) -> Result<Option<Rotated>, RotateError> {
        let (disk, holder, owner) = (body.disk, &body.holder(), &body.owner_recovery);
        let generation = self.copies.latest_first().first().map_or(0, |header| header.generation).saturating_add(1);
        let rotation = Rotation { local: &body.local_key, half, holder, owner, generation, salt };
        let (Some(header), Some(next)) = (opened.rotate(&rotation)?, &half.next) else { return Ok(None) };
        let slots = self.record.bytes();
        let of_all = |record: Record| record.context.kind == SecretKind::MasterSecret && record.context.disk == disk;
        let record = if Record::fitting(slots, disk, half.generation).is_some_and(of_all) {
            None
        } else {
            let (cluster, machine) = (holder.cluster, holder.machine);
            let key_generation = half.generation.saturating_add(1);
            let context = SecretContext { kind: SecretKind::ClusterKey, cluster, machine, disk, key_generation };
            let place = Record::place(slots, disk, half.generation);
            let record = making::record(owner, context, &next.0)?;
            Some(making::esp(File::Record, place, record.emit(place.generation)?))
        };
        Ok(Some(Rotated { record, header }))
    }

    fn newer(&self) -> bool {
        self.copies.0.iter().any(|copy| matches!(copy, Copy::Refused(HeaderError::Newer(_))))
    }

    /// The places that do not hold `header` and hold nothing newer.
    pub(crate) fn behind(&self, header: &Header) -> impl Iterator<Item = HeaderCopy> {
        let newer = self.newer() || self.copies.latest_first().iter().any(|it| it.generation > header.generation);
        let behind = self.copies.0.each_ref().map(|copy| !newer && !is(copy, header));
        HeaderCopy::BOTH.into_iter().zip(behind).filter(|(_, behind)| *behind).map(|(copy, _)| copy)
    }
}

fn is(copy: &Copy, header: &Header) -> bool {
    matches!(copy, Copy::Valid(other) if other == header)
}
