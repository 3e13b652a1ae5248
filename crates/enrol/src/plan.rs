//! A plan: the effects of create, of join or of opening, in their order. The last is the cap, and with it the promise of a plan ends:
//! a machine whose TPM gives nothing away any more, and whose data is open.
//!
//! ```text
//!   Plan ──perform──► effect ► effect ► … ► Cap ──► Capped: services may start, `Claim` may be answered
//!                        └─ fails ─► Close ─► Halt: the machine waits; the next boot decides anew by what it reads
//! ```

use keys::data_key::{Holder, OpenDisk};
use keys::header::Header;

use crate::failure::{Failure, Layer};
use crate::files::{Leftover, Leftovers};
use crate::step::{Effect, HeaderCopy, Mapping, Step};

/// Effects in the order in which they are performed. Made of a [`crate::opening::OpenableDisk`], a [`crate::create::CreationDraft`] or a
/// [`crate::join::Draft`].
#[derive(Debug)]
pub struct Plan {
    effects: Vec<Effect>,
    holder: Holder,
    purpose: Purpose,
}

/// Purpose of a plan: to enrol, or to open.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Enrol,
    Open,
}

/// Performs effects: PID 1, or in a test a machine in memory.
pub trait Performer {
    /// Why an effect failed.
    type Error: std::error::Error + Send + Sync + 'static;
    /// Why the data partition stays open after that.
    type Open;

    /// Performs one effect. It is durable when this returns.
    ///
    /// # Errors
    /// What the effects before it did stays.
    fn perform(&mut self, effect: Effect) -> Result<(), Self::Error>;

    /// Part of the disk that refused to be opened, if that is what the error says.
    fn refused_by(error: &Self::Error) -> Option<Refusal>;

    /// Closes what a failed plan left open, so that no key stays in the kernel.
    ///
    /// # Errors
    /// When it stays open.
    fn close(&mut self) -> Result<(), Self::Open>;
}

/// The TPM is capped, the data is open. Only [`Plan::perform`] makes one; what may run behind the cap only asks for it.
///
/// ```compile_fail,E0423
/// let capped = enrol::plan::Capped(()); // nothing was capped
/// ```
#[derive(Debug)]
#[must_use]
pub struct Capped(());

/// Part that refuses on a disk whose header opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A layer between the header and the files.
    Layer(Layer),
    /// A file that the machine needs.
    File,
}

/// How a plan failed.
#[derive(Debug)]
pub enum Halt<O> {
    /// An effect failed, and what was open is closed again.
    Failed(Failure),
    /// The data partition cannot be closed: only a restart makes sure that its key is gone.
    Open(O),
}

impl Plan {
    pub(crate) const fn enrol(effects: Vec<Effect>, holder: Holder) -> Self {
        Self { effects, holder, purpose: Purpose::Enrol }
    }

    pub(crate) fn open(
        opened: OpenDisk,
        committed: Option<Header>,
        leftover: Leftovers,
        last: Vec<Effect>,
        holder: Holder,
    ) -> Self {
        let mut effects = vec![Effect::MendTable];
        effects.extend(leftover.attempt.map(|slot| Effect::EraseAttempt { slot }));
        if let Some(header) = committed {
            effects.extend(HeaderCopy::BOTH.map(|copy| Effect::header(copy, &header)));
        }
        let OpenDisk { header, volume } = opened;
        effects.extend([Effect::MapVolume { disk: header.disk, volume, mapping: Mapping::Open }, Effect::Mount]);
        match leftover.config {
            Leftover::Remove => effects.push(Effect::RemoveConfig),
            Leftover::Absent | Leftover::Ignore => {}
        }
        effects.push(Effect::LoadKeys);
        effects.extend(last);
        Self { effects, holder, purpose: Purpose::Open }
    }

    #[cfg(test)]
    pub(crate) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Performs all effects, each when the one before it is durable, and then the cap.
    ///
    /// # Errors
    /// [`Halt`] at the first effect that fails.
    pub fn perform<P: Performer>(self, performer: &mut P) -> Result<Capped, Halt<P::Open>> {
        let Self { effects, holder, purpose } = self;
        for effect in effects.into_iter().chain([Effect::Cap(holder)]) {
            let step = effect.step();
            if let Err(error) = performer.perform(effect) {
                performer.close().map_err(Halt::Open)?;
                return Err(Halt::Failed(purpose.failure(step, error, P::refused_by)));
            }
        }
        Ok(Capped(()))
    }
}

impl Purpose {
    fn failure<E>(self, step: Step, error: E, refused_by: impl FnOnce(&E) -> Option<Refusal>) -> Failure
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        match (self, refused_by(&error)) {
            (Self::Enrol, _) => Failure::Create(step, Box::new(error)),
            (Self::Open, None) => Failure::Open(step, Box::new(error)),
            (Self::Open, Some(Refusal::Layer(layer))) => Failure::Refused(layer, Box::new(error)),
            (Self::Open, Some(Refusal::File)) => Failure::Damaged(Box::new(error)),
        }
    }
}
