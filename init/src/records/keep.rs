//! Keeps this coordinator's copy of the records up: reads everything, then takes what a watch tells. Whatever is lost ends it; when it is
//! begun again, the crate `member` says.

use std::convert::Infallible;

use cluster::state::BadState;
use etcd::wire::etcdserverpb::WatchResponse;
use etcd::{BadAnswer, WatchAnswer};
use tonic::Streaming;

use super::link::NoAnswer;
use super::read::{self, Of, Unreadable};
use super::{Records, recovery};
use crate::enrolment::MakeError;
use crate::runtime::clock;

/// Why the copy is not kept up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// The records cannot be read as a whole.
    #[error(transparent)]
    Read(#[from] Unreadable),
    /// A change says what this version does not understand: a newer one wrote it.
    #[error("understand what was changed in the cluster's records")]
    State(#[from] BadState),
    /// etcd tells nothing more.
    #[error("watch the cluster's records")]
    Watch(#[source] NoAnswer),
    /// etcd has forgotten what came next, or has no leader.
    #[error("the watch of the cluster's records ended: {0}")]
    Ended(String),
    /// The directory of coordinators cannot be signed.
    #[error("sign the directory")]
    Sign(#[from] MakeError),
    /// The note of a recovery cannot be read.
    #[error(transparent)]
    Recovery(#[from] recovery::Error),
}

/// As long as it is there, what was seen is of now.
struct Fresh<'a>(&'a Records);

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| seen.lost = Some(clock::unix_millis()));
    }
}

impl Records {
    /// Reads everything, then follows what is changed, until that fails.
    ///
    /// # Errors
    /// [`Lost`] says why nothing is kept up any more.
    pub(crate) async fn keep(&self) -> Result<Infallible, Lost> {
        let view = read::all(&self.link, Of::Now).await?;
        let revision = view.revision();
        let told = self.link.watch(revision).await.map_err(Lost::Watch)?;
        // While the cluster is being recovered its etcd is not here to stay.
        let lost = recovery::noted()?.map(|_| clock::unix_millis());
        self.shows(|seen| (seen.view, seen.lost) = (Some(view), lost))?;
        let _fresh = Fresh(self);
        tracing::info!(revision, "the cluster's records are read");
        follow(self, told).await
    }
}

/// Takes what the watch tells.
async fn follow(records: &Records, mut told: Streaming<WatchResponse>) -> Result<Infallible, Lost> {
    loop {
        let answer = told.message().await.map_err(|status| Lost::Watch(status.into()))?;
        let answer = answer.ok_or_else(|| Lost::Ended(String::from("etcd closed it")))?;
        match etcd::watched(answer).map_err(|bad: BadAnswer| Lost::Watch(bad.into()))? {
            WatchAnswer::Begun => {}
            WatchAnswer::Lost { reason } => return Err(Lost::Ended(reason)),
            WatchAnswer::Changes { changes, revision } => {
                let mut taken = Ok(());
                let shown = records.shows(|seen| {
                    if let Some(view) = &mut seen.view {
                        taken = view.take(changes, revision);
                    }
                });
                taken?;
                shown?;
            }
        }
    }
}
