//! Keeps the newest directory of the cluster on the ESP of a member that serves. Which one that is, where it is written and when
//! is `enrol`'s matter; who heard of it tells it here. Must never believe it.

use std::sync::Arc;

use enrol::member::Membership;
use enrol::renewal::Renewal;
use keys::identity::Identity;
use keys::pair::{File, TooLarge};
use model::Chain;
use pki::CertificateDer;
use tokio::sync::watch;

use super::perform;
use crate::machine::esp::{self, Esp};
use crate::runtime::clock;
use crate::runtime::services::until;
use crate::runtime::tasks;

/// The directory that was heard of last, as its cluster signed it, or somebody else.
pub(crate) type Directories = watch::Sender<Option<Vec<u8>>>;

/// What keeps a member's directory.
#[derive(Debug, Clone)]
pub(crate) struct Renewing {
    esp: Esp,
    identity: Arc<Identity>,
    minimum: u64,
    directories: Directories,
}

/// Why it is kept no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The CA's key is none.
    #[error("read the cluster's CA")]
    Authority(#[from] pki::KeyError),
    /// The ESP.
    #[error(transparent)]
    Esp(#[from] esp::Error),
    /// The cluster has more coordinators than its file has room for.
    #[error("write the directory")]
    TooLarge(#[from] TooLarge),
}

impl Renewing {
    pub(super) fn of(member: &Membership, esp: &Esp, directories: &Directories) -> Self {
        Self {
            esp: esp.clone(),
            identity: member.identity.clone(),
            minimum: member.minimum_directory,
            directories: directories.clone(),
        }
    }

    /// Where whoever hears of a directory tells it.
    pub(crate) fn directories(&self) -> Directories {
        self.directories.clone()
    }

    /// Writes what is heard, when it is due; a task for good.
    ///
    /// # Errors
    /// [`Error`]; the directory that lies there is whole.
    pub(crate) async fn keep(self) -> Result<(), Error> {
        let mut heard = self.directories.subscribe();
        heard.mark_changed(); // also what was heard before this task began
        let ca_spki = pki::public_key_of(&CertificateDer::from(self.identity.ca_certificate.as_slice()))?.spki();
        let esp = self.esp.clone();
        let slots = tasks::blocking(move || esp.slots(File::Directory)).await;
        let mut renewal = Renewal::of(&slots, ca_spki, self.minimum);
        loop {
            tokio::select! {
                Ok(()) = heard.changed() => {
                    let signed = heard.borrow_and_update().clone();
                    if let Some(Err(error)) = signed.map(|signed| renewal.hear(signed)) {
                        tracing::warn!(reason = %Chain(&error), "a directory is not believed");
                    }
                }
                () = until(renewal.due(clock::now())) => {}
            }
            if let Some(write) = renewal.take(clock::now())? {
                let esp = self.esp.clone();
                let write = tasks::blocking(move || perform::renew(&esp, &write).map(|()| write)).await?;
                tracing::info!(version = write.version(), "the cluster's directory is renewed");
                renewal.written(write, clock::now());
            }
        }
    }
}
