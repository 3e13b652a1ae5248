//! The shares of a member whose data is open: read from its ESP for voters that wait, written when another epoch of the cold-start
//! key begins, and erased when the machine coordinates no more. What is written, and where, is `unlock`'s matter.

use std::sync::Arc;

use cluster::epochs::ShareOrder;
use enrol::member::Membership;
use keys::directory::{DirectoryError, DirectoryMinimum};
use keys::identity::Identity;
use keys::share::ShareKey;
use keys::two_slot::{File, SLOT_BYTES, Slot, SlotError};
use model::DiskUuid;
use pki::CertificateDer;
use unlock::exchange::{OnEsp, ShareHolder};
use unlock::share::{self, HoldError, ShareWrite};

use super::vault::{self, LoadError};
use super::{Directories, perform};
use crate::machine::esp::{self, Esp};
use crate::runtime::tasks;

/// Reads and writes a member's shares on its ESP; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Shares(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    esp: Esp,
    identity: Arc<Identity>,
    key: ShareKey,
    disk: DiskUuid,
    minimum: DirectoryMinimum,
    /// Directories that were heard; they may be newer than the one on the ESP.
    directories: Directories,
}

/// Why they cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The ESP.
    #[error(transparent)]
    Esp(#[from] esp::Error),
    /// The CA's key is none.
    #[error("read the cluster's CA")]
    Authority(#[from] pki::KeyError),
    /// The machine does not know who coordinates.
    #[error("believe this machine's directory")]
    Directory(#[from] DirectoryError),
    /// There is none.
    #[error("this machine has no directory")]
    NoDirectory,
}

/// Why one is not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The ESP.
    #[error(transparent)]
    Esp(#[from] esp::Error),
    /// The master secret is not there.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is nothing to write.
    #[error(transparent)]
    Hold(#[from] HoldError),
}

impl Shares {
    /// Makes the access to this member's shares on this ESP.
    pub(super) fn of(member: &Membership, esp: &Esp, directories: &Directories) -> Self {
        let (identity, disk) = (member.identity.clone(), member.recorded.disk);
        let key = member.share_key.duplicate();
        let (minimum, directories) = (member.minimum.duplicate(), directories.clone());
        let kept = Kept { esp: esp.clone(), identity, key, disk, minimum, directories };
        Self(Arc::new(kept))
    }

    /// Shares that the machine may give, and to whom, by what lies on the ESP now and the directory that came with its
    /// key.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(super) async fn voter(&self) -> Result<ShareHolder, ReadError> {
        let Self(kept) = self.clone();
        tasks::blocking(move || {
            let ca = CertificateDer::from(kept.identity.ca_certificate.as_slice());
            let ca_spki = pki::public_key_of(&ca)?.spki();
            let heard = kept.directories.heard();
            let on_esp = OnEsp {
                itself: kept.identity.holder.machine,
                disk: kept.disk,
                key: &kept.key,
                ca_spki: &ca_spki,
                minimum: &kept.minimum,
                share: &kept.esp.slots(File::Share),
                directory: &kept.esp.slots(File::Directory),
                heard: &heard,
            };
            ShareHolder::on_esp(on_esp)?.ok_or(ReadError::NoDirectory)
        })
        .await
    }

    /// Has the machine hold what it is to hold; whether anything had to be written. It is durable when this returns.
    ///
    /// # Errors
    /// [`WriteError`]; the share of the epoch that stands is whole.
    pub(crate) async fn hold(&self, holding: ShareOrder) -> Result<bool, WriteError> {
        let Self(kept) = self.clone();
        tasks::blocking(move || {
            let master = vault::load_master_secret(vault::ROOT)?;
            let slots = kept.esp.slots(File::Share);
            let written = share::hold(&holding, &kept.identity.holder, &master, &kept.key, &slots)?;
            written.as_ref().map_or(Ok(()), |write| perform::write_share(&kept.esp, write))?;
            // Only once the one that stands lies there.
            if holding.stands == Some(holding.epoch.number()) {
                for before in share::superseded(&kept.esp.slots(File::Share), holding.epoch.number()) {
                    perform::write_share(&kept.esp, &before)?;
                }
            }
            Ok(written.is_some())
        })
        .await
    }

    /// Erases them: the machine coordinates no more.
    ///
    /// # Errors
    /// [`esp::Error`]; then they may still lie there.
    pub(crate) async fn erase(&self) -> Result<(), esp::Error> {
        let Self(kept) = self.clone();
        tasks::blocking(move || {
            let slots = kept.esp.slots(File::Share);
            let holds = |bytes: &[u8]| Slot::read(File::Share, bytes).err() != Some(SlotError::Blank);
            let mut held = slots.0.iter().enumerate().filter(|(_, bytes)| holds(bytes));
            held.try_for_each(|(slot, _)| {
                perform::write_share(&kept.esp, &ShareWrite { slot, bytes: vec![0; SLOT_BYTES] })
            })
        })
        .await
    }
}
