//! Keeps the newest directory of the cluster on the ESP of a member that serves. Which one that is, where it is written and when
//! is `enrol`'s matter; who heard of it tells it here. Must never believe it.

use std::collections::BTreeMap;
use std::sync::Arc;

use enrol::member::Membership;
use enrol::renewal::{Giver, Renewal};
use keys::identity::Identity;
use keys::pair::{File, TooLarge};
use model::{Chain, MachineId};
use pki::CertificateDer;
use tokio::sync::watch;

use super::perform;
use crate::machine::esp::{self, Esp};
use crate::runtime::clock;
use crate::runtime::services::until;
use crate::runtime::tasks;

/// Directories that were heard of, as the cluster signed them, or somebody else; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directories {
    /// The last one that each side gave.
    heard: watch::Sender<BTreeMap<Giver, Vec<u8>>>,
    /// Which coordinators should be heard, too.
    missing: watch::Sender<Vec<MachineId>>,
}

impl Directories {
    /// Tells what `by` said; it is not believed yet.
    pub(crate) fn tell(&self, by: Giver, signed: Vec<u8>) {
        self.heard.send_modify(|heard| drop(heard.insert(by, signed)));
    }

    /// What each side gave last.
    pub(super) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.borrow().values().cloned().collect()
    }

    /// Tells which coordinators should be heard, too, so that what one of them says does not raise the seal's minimum alone.
    pub(crate) fn missing(&self) -> watch::Receiver<Vec<MachineId>> {
        self.missing.subscribe()
    }
}

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
        let (mut heard, mut taken) = (self.directories.heard.subscribe(), BTreeMap::new());
        heard.mark_changed(); // also what was heard before this task began
        let ca_spki = pki::public_key_of(&CertificateDer::from(self.identity.ca_certificate.as_slice()))?.spki();
        let esp = self.esp.clone();
        let slots = tasks::blocking(move || esp.slots(File::Directory)).await;
        let mut renewal = Renewal::of(&slots, ca_spki, self.minimum);
        loop {
            tokio::select! {
                Ok(()) = heard.changed() => {
                    let now = heard.borrow_and_update().clone();
                    let news = now.iter().filter(|(by, signed)| taken.get(*by) != Some(*signed));
                    for (by, signed) in news {
                        if let Err(error) = renewal.hear(signed.clone(), *by) {
                            tracing::warn!(reason = %Chain(&error), ?by, "a directory is not believed");
                        }
                    }
                    taken = now;
                }
                () = until(renewal.due(clock::now())) => {}
            }
            if let Some(write) = renewal.take(clock::now())? {
                let esp = self.esp.clone();
                let write = tasks::blocking(move || perform::renew(&esp, &write).map(|()| write)).await?;
                tracing::info!(version = write.version(), "the cluster's directory is renewed");
                renewal.written(write, clock::now());
            }
            self.directories.missing.send_if_modified(|before| {
                let missing = renewal.missing();
                *before != missing && {
                    *before = missing;
                    true
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sides may speak before anybody has listened to the first.
    ///
    /// Proves: D11
    #[tokio::test]
    async fn what_each_side_said_last_is_heard() {
        let directories = Directories::default();
        let mut heard = directories.heard.subscribe();
        let coordinator = |n| Giver::Coordinator(MachineId([n; 16]));
        directories.tell(coordinator(1), vec![1]);
        directories.clone().tell(coordinator(2), vec![2]);
        directories.tell(coordinator(1), vec![3]);
        heard.changed().await.expect("the sender is here");
        let expected = BTreeMap::from([(coordinator(1), vec![3]), (coordinator(2), vec![2])]);
        assert_eq!(*heard.borrow_and_update(), expected);
    }
}
