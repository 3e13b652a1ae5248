//! A data partition whose header opened: finished where a cut came, with the seal's minimum as high as the ESP allows, and locked with
//! the next cluster key. Made by [`crate::found`] only.

use keys::binding::Binding;
use keys::data_key::{ClusterHalf, OpenDisk, OpenError};
use keys::header::{Copies, HeaderState};
use keys::identity::Identity;
use keys::seal::{self, Clear};
use keys::two_slot::{NextSlot, Slots, TooLarge};
use model::{SealRoot, Secret};
use unlock::directory;
use unlock::share::open_shares;

use crate::files::{Files, Leftover, Leftovers};
use crate::keeper::Keeper;
use crate::member::Membership;
use crate::plan::Plan;
use crate::rotation::{Locking, RotateError, Rotated};
use crate::seal::Seal;
use crate::step::{Effect, HeaderCopy};

/// A data partition whose header opened.
#[derive(Debug)]
pub struct OpenableDisk {
    seal: Seal,
    opened: OpenDisk,
    pub(crate) half: Option<ClusterHalf>,
    leftovers: Leftovers,
    locking: Locking,
    raising: Raising,
}

/// The rest of ESP and disk beside a seal that opened.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) leftovers: Leftovers,
    pub(crate) files: &'a Files,
    /// Both places of the header.
    pub(crate) header: &'a Copies,
    /// Where the seal may be written anew.
    pub(crate) next: Option<NextSlot>,
}

/// The seal's minimum, which rises with what lies on the ESP, or is lowered with what lies there by the owner's word.
#[derive(Debug)]
struct Raising {
    next: Option<NextSlot>,
    directory: Slots,
    raised: Option<Effect>,
}

/// Minimum of a seal: versions below it are not taken from the next boot on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minimum {
    /// The version of a directory.
    pub directory: u64,
    /// The generation of a data header.
    pub header: u64,
}

/// Why the minimum does not rise in this boot.
#[derive(Debug, thiserror::Error)]
pub enum RaiseError<E: std::error::Error + 'static, K: std::error::Error + 'static> {
    /// There are no random bytes.
    #[error("draw random bytes")]
    Random(#[source] E),
    /// The TPM does not seal.
    #[error("seal to the TPM")]
    Keeper(#[source] K),
    /// The new seal does not fit its file.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Why an opened header cannot be acted on.
#[derive(Debug, thiserror::Error)]
pub enum PlanError<E: std::error::Error + 'static> {
    /// There are no random bytes.
    #[error("draw random bytes")]
    Random(#[source] E),
    /// The header cannot be committed.
    #[error("commit the data header")]
    Commit(#[from] OpenError),
    /// The disk cannot be locked with the next cluster key.
    #[error("lock the disk with the next cluster key")]
    Rotate(#[from] RotateError),
}

impl OpenableDisk {
    pub(crate) fn new(seal: Seal, opened: OpenDisk, half: Option<ClusterHalf>, beside: Beside<'_>) -> Self {
        let Beside { leftovers, files, header, next } = beside;
        let locking = Locking {
            copies: header.clone(),
            record: files.record.clone(),
            shares: open_shares(&files.share, seal.body.disk, &seal.body.share_key()).0,
        };
        let raising = Raising { next, directory: files.directory.clone(), raised: None };
        Self { seal, opened, half, leftovers, locking, raising }
    }

    /// The seal that opened.
    pub(crate) const fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Whether a cut came before the last step of create or join, so that this boot still performs some of them.
    #[must_use]
    pub fn finishes_create(&self) -> bool {
        self.opened.header.state == HeaderState::Provisional || self.leftovers.config == Leftover::Remove
    }

    /// Message of one line for console and API.
    #[must_use]
    pub const fn message(&self) -> &'static str {
        match self.opened.header.state {
            HeaderState::Committed => "opening the data partition",
            HeaderState::Provisional => "finishing an interrupted create, then opening the data partition",
        }
    }

    /// When the seal was made, in seconds of Unix time: this boot is later.
    #[must_use]
    pub const fn sealed_at(&self) -> u64 {
        self.seal.clear.sealed_at
    }

    /// The machine's identity, by its seal.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.seal.body.identity
    }

    /// Has the plan raise the seal's minimum, where both slots of the directory hold one that the CA with this
    /// SubjectPublicKeyInfo (DER) signed and that is above it: to the older of the two, so that a slot that is lost later loses
    /// nothing; and where the header is locked with a cluster key that the seal does not name yet: to that header. What lies there by
    /// the owner's word is sealed, too, although it is lower. What was an
    /// interrupted create or join is finished first, in a boot of its own. The new minimum; `now` is in seconds of Unix time.
    ///
    /// # Errors
    /// [`RaiseError`]; the machine opens all the same.
    pub fn raise<K: Keeper, E: std::error::Error + 'static>(
        &mut self,
        ca_spki: &[u8],
        keeper: Option<&mut K>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
        now: u64,
    ) -> Result<Option<Minimum>, RaiseError<E, K::Error>> {
        let minimum = self.seal.minimum().beside(self.raising.directory.bytes());
        let directory = directory::durable(&self.raising.directory, ca_spki, minimum).unwrap_or(minimum);
        let header = self.rotated().map(|key_generation| (self.opened.header.generation, key_generation));
        let finishes = self.finishes_create() || self.leftovers.attempt.is_some();
        let changes = directory != self.seal.body.minimum_directory || header.is_some();
        let Some(next) = self.raising.next.filter(|_| changes && !finishes) else { return Ok(None) };
        let root = SealRoot(Secret::fill(|bytes| fill(bytes)).map_err(RaiseError::Random)?);
        let (mut salt, mut nonce) = ([0; 32], [0; 12]);
        fill(&mut salt).map_err(RaiseError::Random)?;
        fill(&mut nonce).map_err(RaiseError::Random)?;
        let Seal { clear, body, generation } = &mut self.seal;
        let binding = match (&clear.binding, keeper) {
            (Binding::Tpm(_), Some(keeper)) => Binding::Tpm(keeper.seal(&root.0).map_err(RaiseError::Keeper)?),
            // What opened without a TPM goes on without one.
            (Binding::Unprotected(_), _) => Binding::Unprotected(root.0.duplicate()),
            (Binding::Tpm(_), None) => return Ok(None),
        };
        let clear = Clear {
            binding,
            boot_class: clear.boot_class,
            salt,
            network: clear.network.clone(),
            prefixes: clear.prefixes,
            node_name: clear.node_name.clone(),
            sealed_at: now.max(clear.sealed_at),
        };
        let before = (body.minimum_directory, (body.minimum_header, body.key_generation));
        let after = (directory, header.unwrap_or(before.1));
        (body.minimum_directory, (body.minimum_header, body.key_generation)) = after;
        match seal::emit(next.generation, &clear, body, &root, nonce) {
            Ok(bytes) => {
                *generation = next.generation;
                self.raising.raised = Some(Effect::RaiseMinimum { slot: next.slot, bytes: bytes.into() });
                Ok(Some(Minimum { directory: body.minimum_directory, header: body.minimum_header }))
            }
            Err(error) => {
                (body.minimum_directory, (body.minimum_header, body.key_generation)) = before;
                Err(error.into())
            }
        }
    }

    /// The generation of the cluster key that the disk is locked with, where the seal names another one. By the time that the seal is
    /// written both copies of the header are: the plan has their effects first.
    fn rotated(&self) -> Option<u32> {
        let generation = self.opened.header.lock.as_ref()?.key_generation;
        Some(generation).filter(|generation| *generation != self.seal.body.key_generation)
    }

    /// Plans the effects, and says for which member. A header that a cut left provisional is committed before its data is
    /// opened, under a salt that `fill` fills with random bytes. Where the half brings the next cluster key along, the disk is
    /// locked with that from the end of this plan on; and where a cut left two headers, both places hold the one that opened.
    ///
    /// # Errors
    /// [`PlanError`]; nothing was written.
    pub fn plan<E: std::error::Error + 'static>(
        self,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(Plan, Membership), PlanError<E>> {
        let Self { seal, opened, half, leftovers, locking, raising } = self;
        let holder = seal.body.holder();
        let salt = || {
            let mut salt = [0; 32];
            fill(&mut salt).map_err(PlanError::Random)?;
            Ok::<_, PlanError<E>>(salt)
        };
        let mut last = Vec::new();
        let mut locked = opened.header.clone();
        let committed = match opened.header.state {
            HeaderState::Provisional => Some(opened.commit(&seal.body.local_key, half.as_ref(), salt()?, &holder)?),
            HeaderState::Committed => {
                let rotated = match half.as_ref().filter(|half| locking.takes_next(half)) {
                    Some(half) => locking.rotate(&seal.body, &opened, half, salt()?)?,
                    None => None,
                };
                if let Some(Rotated { record, header }) = rotated {
                    last.extend(record);
                    last.extend(HeaderCopy::BOTH.map(|copy| Effect::header(copy, &header)));
                    locked = header;
                } else {
                    last.extend(locking.behind(&locked).map(|copy| Effect::header(copy, &locked)));
                }
                None
            }
        };
        last.extend(raising.raised);
        let plan = Plan::open(opened, committed, leftovers, last, holder);
        let mut membership = Membership::of(seal);
        if let Some(lock) = &locked.lock {
            membership.recorded.key_generation = lock.key_generation;
        }
        Ok((plan, membership))
    }
}
