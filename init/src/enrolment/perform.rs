//! Performs the effects of a plan, one by one; each is durable when it returns. The order is the plan's.
//!
//! ```text
//!   Closed ─MapVolume─► Mapped ─MakeFilesystem─► Mapped ─Mount─► Mounted ─take_mounted─► the member's
//! ```

use enrol::create::{Effect, HeaderCopy, Step};
use keys::data_key::Holder;
use keys::header::State;
use keys::pair::File;
use model::DiskUuid;

use super::Site;
use super::vault::{self, Keys};
use crate::machine::disk;
use crate::machine::esp::{self, Esp};
use crate::machine::tpm::{self, Tpm};
use crate::runtime::tasks;
use crate::storage::{self, CloseError, MakeError, MapError, Mapped, MountError, Mounted};

/// Why an effect failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The disk's table.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The data header.
    #[error(transparent)]
    Header(#[from] storage::HeaderError),
    /// The block layers.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The new file system.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The files on the data partition.
    #[error(transparent)]
    Vault(#[from] vault::WriteError),
    /// The ESP.
    #[error(transparent)]
    Esp(#[from] esp::Error),
    /// The cap.
    #[error(transparent)]
    Tpm(#[from] tpm::Error),
    /// The plan asks for something before what it stands on.
    #[error("the effect was asked for out of its order")]
    OutOfOrder,
}

/// How far the data partition is.
#[derive(Debug)]
enum Data {
    Closed,
    Mapped(Mapped),
    Mounted(Mounted),
}

/// What effects need beyond what they carry.
#[derive(Debug)]
pub(super) struct Performer {
    disk: DiskUuid,
    holder: Holder,
    esp: Esp,
    tpm: Option<Tpm>,
    /// A new cluster's, until they are written.
    keys: Option<Keys>,
    data: Data,
}

impl Performer {
    /// For the data partition named `disk`, which is `holder`'s; `keys` are those of a cluster that is being created.
    pub(super) const fn new(disk: DiskUuid, holder: Holder, esp: Esp, tpm: Option<Tpm>, keys: Option<Keys>) -> Self {
        Self { disk, holder, esp, tpm, keys, data: Data::Closed }
    }

    /// Performs one effect.
    ///
    /// # Errors
    /// [`StepError`]; what the effects before it did stays.
    pub(super) async fn perform(&mut self, effect: Effect, site: Site<'_>) -> Result<(), StepError> {
        let (disk, esp) = (site.disk.clone(), self.esp.clone());
        match effect {
            Effect::GrowData => tasks::blocking(move || disk.grow_data()).await?,
            Effect::WriteHeader { copy, bytes, .. } => {
                tasks::blocking(move || storage::write_header(&disk.data, copy, &bytes)).await?;
            }
            Effect::MapVolume { volume, mapping } => {
                let name = self.disk;
                let mapped = tasks::blocking(move || Mapped::new(&disk.data, name, &volume, mapping)).await?;
                self.data = Data::Mapped(mapped);
            }
            Effect::MakeFilesystem => match &self.data {
                Data::Mapped(mapped) => mapped.make_filesystem(site.children).await?,
                Data::Closed | Data::Mounted(_) => return Err(StepError::OutOfOrder),
            },
            Effect::Mount => self.mount().await?,
            Effect::PopulateData(new) => {
                let keys = self.keys.take().ok_or(StepError::OutOfOrder)?;
                tasks::blocking(move || vault::write(vault::ROOT, &keys, &new)).await?;
            }
            Effect::WriteEsp { file, slot, bytes } => {
                tasks::blocking(move || esp.write_slot(file, slot, &bytes)).await?;
            }
            Effect::RemoveConfig => tasks::blocking(move || esp.remove_config()).await?,
            Effect::ExtendCap => {
                if let Some(tpm) = self.tpm.take() {
                    let holder = self.holder;
                    tasks::blocking(move || tpm.end(holder)).await?;
                }
            }
            Effect::StartServices | Effect::Announce | Effect::Report(_) => return Err(StepError::OutOfOrder),
        }
        Ok(())
    }

    async fn mount(&mut self) -> Result<(), StepError> {
        let Data::Mapped(mapped) = std::mem::replace(&mut self.data, Data::Closed) else {
            return Err(StepError::OutOfOrder);
        };
        match tasks::blocking(move || mapped.mount()).await {
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

    /// The mounted data partition, once the plan is done.
    pub(super) fn take_mounted(&mut self) -> Option<Mounted> {
        match std::mem::replace(&mut self.data, Data::Closed) {
            Data::Mounted(mounted) => Some(mounted),
            Data::Closed | Data::Mapped(_) => None,
        }
    }

    /// Closes what a failed plan left open, so that no key stays in the kernel.
    ///
    /// # Errors
    /// [`CloseError`] when it stays open.
    pub(super) async fn undo(&mut self) -> Result<(), CloseError> {
        let data = std::mem::replace(&mut self.data, Data::Closed);
        let closed = tasks::blocking(move || match data {
            Data::Closed => Ok(()),
            Data::Mapped(mapped) => mapped.close().map_err(CloseError::Layer),
            Data::Mounted(mounted) => storage::close(&mounted),
        });
        closed.await
    }
}

/// A step's name on the console.
pub(super) const fn name(step: Step) -> &'static str {
    match step {
        Step::GrowData => "grow-data",
        Step::WriteHeader(State::Provisional, _) => "header",
        Step::WriteHeader(State::Committed, _) => "commit",
        Step::MapVolume => "layers",
        Step::MakeFilesystem => "mkfs",
        Step::Mount => "mount",
        Step::PopulateData => "keys",
        Step::WriteEsp(File::Share) => "share",
        Step::WriteEsp(File::Record) => "record",
        Step::WriteEsp(File::Directory) => "directory",
        Step::WriteEsp(File::Seal) => "seal",
        Step::RemoveConfig => "remove-config",
        Step::ExtendCap => "cap",
        Step::StartServices => "start-services",
        Step::Announce => "announce",
        Step::Report => "report",
    }
}

/// What the timeline says when a step is done. A header is written when both copies are.
pub(super) const fn milestone(step: Step) -> Option<&'static str> {
    match step {
        Step::WriteHeader(_, HeaderCopy::First) => None,
        Step::WriteHeader(_, HeaderCopy::Second)
        | Step::GrowData
        | Step::MapVolume
        | Step::MakeFilesystem
        | Step::Mount
        | Step::PopulateData
        | Step::WriteEsp(_)
        | Step::RemoveConfig
        | Step::ExtendCap
        | Step::StartServices
        | Step::Announce
        | Step::Report => Some(name(step)),
    }
}
