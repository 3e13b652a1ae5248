//! Performs the effects of a plan, one by one; each is durable when it returns. The order is the plan's.
//!
//! ```text
//!   Closed ─MapVolume─► Mapped ─MakeFilesystem─► Mapped ─Mount─► Mounted ─LoadKeys─► Loaded: the member's
//! ```

use api::MilestoneKind;
use enrol::failure::Layer;
use enrol::plan::{Performer, Refusal};
use enrol::step::{Effect, HeaderCopy, Step};
use keys::header::HeaderState;
use keys::two_slot::{File, SLOT_BYTES};
use model::Chain;
use unlock::renewal::DirectoryWrite;
use unlock::share::ShareWrite;

use super::vault::{self, Kept};
use crate::machine::disk::{self, Disk};
use crate::machine::esp::{self, Esp};
use crate::machine::tpm::{self, EndOf, Tpm};
use crate::runtime::child::Children;
use crate::runtime::tasks;
use crate::shown::board::Board;
use crate::storage::{self, CloseError, MakeError, MapError, Mapped, MountError, Mounted, StatusError};

/// Why an effect failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error(transparent)]
    Header(#[from] storage::HeaderError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Make(#[from] MakeError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Write(#[from] vault::WriteError),
    #[error(transparent)]
    Load(#[from] vault::LoadError),
    #[error(transparent)]
    Level(#[from] StatusError),
    #[error(transparent)]
    Esp(#[from] esp::Error),
    #[error(transparent)]
    Tpm(#[from] tpm::Error),
    /// The plan asks for something before what it stands on.
    #[error("the effect was asked for out of its order")]
    OutOfOrder,
}

/// Writes a share while the machine serves, durably.
///
/// # Errors
/// [`esp::Error`]; the other slot is untouched.
pub(super) fn write_share(esp: &Esp, write: &ShareWrite) -> Result<(), esp::Error> {
    esp.write_slot(File::Share, write.slot, &write.bytes)
}

/// How far the data partition is.
#[derive(Debug, Default)]
pub(super) enum Data {
    #[default]
    Closed,
    Mapped(Mapped),
    Mounted(Mounted),
    Loaded(Mounted, Box<Kept>),
}

/// Performs on this machine. It blocks: it runs on a thread of its own.
#[derive(Debug)]
pub(super) struct LocalPerformer {
    /// Holds what is written below the file system.
    pub(super) disk: Disk,
    /// Shows how far it is.
    pub(super) board: Board,
    /// Runs what makes the file system.
    pub(super) children: Children,
    /// Mounted.
    pub(super) esp: Esp,
    /// Until it is capped.
    pub(super) tpm: Option<Tpm>,
    /// Closed at first.
    pub(super) data: Data,
}

impl LocalPerformer {
    fn carry_out(&mut self, effect: Effect) -> Result<(), StepError> {
        let Self { disk, board, children, esp, .. } = &*self;
        match effect {
            Effect::MendTable => match disk.mend_table() {
                Ok(false) => {}
                Ok(true) => tracing::warn!("the primary partition table was damaged: mended from its backup"),
                // One copy is enough to run, and all there is: the screen says so.
                Err(error) => board.error(&format!("the partition table is not mended: {}", Chain(&error))),
            },
            Effect::GrowData => disk.grow_data()?,
            Effect::WriteHeader { copy, bytes, .. } => storage::write_header(&disk.data, copy, &bytes)?,
            Effect::MapVolume { disk: name, volume, mapping } => {
                self.data = Data::Mapped(Mapped::new(&disk.data, name, &volume, mapping)?);
            }
            Effect::MakeFilesystem => match &self.data {
                Data::Mapped(mapped) => tasks::wait_for(mapped.make_filesystem(children))?,
                Data::Closed | Data::Mounted(_) | Data::Loaded(..) => return Err(StepError::OutOfOrder),
            },
            Effect::Mount => self.mount()?,
            Effect::PopulateData(new) => vault::write(vault::ROOT, &new)?,
            Effect::WriteAttempt { slot, bytes } => esp.write_slot(File::Seal, slot, &bytes)?,
            Effect::EraseAttempt { slot } => esp.write_slot(File::Seal, slot, &[0; SLOT_BYTES])?,
            Effect::WriteEsp { file, slot, bytes } => esp.write_slot(file, slot, &bytes)?,
            Effect::RaiseMinimum { slot, bytes } => {
                if let Err(error) = esp.write_slot(File::Seal, slot, &bytes) {
                    board.error(&format!("the seal's minimum is not raised: {}", Chain(&error)));
                }
            }
            Effect::RemoveConfig => esp.remove_config()?,
            Effect::LoadKeys => self.load()?,
            Effect::Cap(holder) => {
                if let Some(tpm) = self.tpm.take() {
                    tpm.end(EndOf::Serving(holder))?;
                }
            }
        }
        Ok(())
    }

    fn mount(&mut self) -> Result<(), StepError> {
        let Data::Mapped(mapped) = std::mem::take(&mut self.data) else {
            return Err(StepError::OutOfOrder);
        };
        match mapped.mount() {
            Ok(mounted) => {
                self.data = Data::Mounted(mounted);
                Ok(())
            }
            Err((mapped, error)) => {
                self.data = Data::Mapped(mapped);
                Err(error.into())
            }
        }
    }

    fn load(&mut self) -> Result<(), StepError> {
        let Data::Mounted(mounted) = &self.data else { return Err(StepError::OutOfOrder) };
        let (kept, level) = (vault::load(vault::ROOT)?, mounted.level()?);
        self.board.facts().update(|now| now.level = Some(level));
        self.data = Data::Loaded(mounted.clone(), Box::new(kept));
        Ok(())
    }

    /// The open data partition and what it keeps, once a plan is done.
    pub(super) fn into_data(self) -> (Mounted, Kept) {
        match self.data {
            Data::Loaded(mounted, kept) => (mounted, *kept),
            Data::Closed | Data::Mapped(_) | Data::Mounted(_) => unreachable!("a plan loads the keys before its cap"),
        }
    }
}

/// Overwrites the slot of the directory's file that is not the one the machine has, durably. What was written.
///
/// # Errors
/// [`esp::Error`]; the other slot is untouched.
pub(super) async fn renewed(esp: Esp, write: DirectoryWrite) -> Result<DirectoryWrite, esp::Error> {
    tasks::blocking(move || esp.write_slot(File::Directory, write.slot(), write.bytes()).map(|()| write)).await
}

impl Performer for LocalPerformer {
    type Error = StepError;
    type Open = CloseError;

    fn perform(&mut self, effect: Effect) -> Result<(), StepError> {
        let step = effect.step();
        self.board.step(name(step));
        self.carry_out(effect)?;
        if let Some(name) = milestone(step) {
            self.board.reached(name, MilestoneKind::Step);
        }
        Ok(())
    }

    fn refused_by(error: &StepError) -> Option<Refusal> {
        match error {
            StepError::Map(refused) => Some(Refusal::Layer(refused.layer())),
            StepError::Mount(_) => Some(Refusal::Layer(Layer::Filesystem)),
            StepError::Load(_) => Some(Refusal::File),
            StepError::Disk(_)
            | StepError::Header(_)
            | StepError::Make(_)
            | StepError::Write(_)
            | StepError::Level(_)
            | StepError::Esp(_)
            | StepError::Tpm(_)
            | StepError::OutOfOrder => None,
        }
    }

    fn close(&mut self) -> Result<(), CloseError> {
        match std::mem::take(&mut self.data) {
            Data::Closed => Ok(()),
            Data::Mapped(mapped) => mapped.close().map_err(CloseError::Layer),
            Data::Mounted(mounted) | Data::Loaded(mounted, _) => storage::close(&mounted),
        }
    }
}

/// A step's name on the console.
const fn name(step: Step) -> &'static str {
    match step {
        Step::MendTable => "mend-table",
        Step::GrowData => "grow-data",
        Step::WriteHeader(HeaderState::Provisional, _) => "header",
        Step::WriteHeader(HeaderState::Committed, _) => "commit",
        Step::MapVolume => "layers",
        Step::MakeFilesystem => "mkfs",
        Step::Mount => "mount",
        Step::PopulateData => "keys",
        Step::WriteAttempt => "attempt",
        Step::EraseAttempt => "erase-attempt",
        Step::WriteEsp(File::Share) => "share",
        Step::WriteEsp(File::Record) => "record",
        Step::WriteEsp(File::Directory) => "directory",
        Step::WriteEsp(File::Seal) => "seal",
        Step::RaiseMinimum => "raise-minimum",
        Step::RemoveConfig => "remove-config",
        Step::LoadKeys => "load-keys",
        Step::Cap => "cap",
    }
}

/// Timeline's words when a step is done. A header is written when both copies are; reading is no milestone.
pub(super) const fn milestone(step: Step) -> Option<&'static str> {
    match step {
        Step::MendTable | Step::LoadKeys | Step::WriteHeader(_, HeaderCopy::First) => None,
        Step::WriteHeader(_, HeaderCopy::Second)
        | Step::GrowData
        | Step::MapVolume
        | Step::MakeFilesystem
        | Step::Mount
        | Step::PopulateData
        | Step::WriteAttempt
        | Step::EraseAttempt
        | Step::WriteEsp(_)
        | Step::RaiseMinimum
        | Step::RemoveConfig
        | Step::Cap => Some(name(step)),
    }
}
