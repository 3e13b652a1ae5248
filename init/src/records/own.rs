//! Records as the machine's own life sees and asks them: performs what the crate `member` decides.

use ::member::OwnRequest;
use cluster::key::Key;
use cluster::request::Request;
use cluster::txn::Grant;
use cluster::{Denial, View};
use etcd::Progress;
use etcd::audit::AuditTrimmer;
use etcd::wire::etcdserverpb::RangeRequest;
use services::EtcdUsers;

use super::link::NoAnswer;
use super::read::{self, Of, Unreadable};
use super::{GrantError, Records, users};
use crate::runtime::clock;

/// Why it is not known whether this machine's etcd votes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VoteError {
    /// etcd does not say.
    #[error("ask etcd whether it votes")]
    Etcd(#[from] NoAnswer),
    /// etcd does not ask yet who calls.
    #[error("etcd's users are not made yet")]
    NoUsers,
    /// Whether the users are made cannot be seen.
    #[error(transparent)]
    Users(#[from] users::Error),
}

impl Records {
    /// Answers a question about what was seen since these records were begun; there is no view before they were read.
    pub(crate) fn view<T>(&self, question: impl FnOnce(Option<&View>) -> T) -> T {
        question(self.seen.borrow().view.as_ref())
    }

    /// Whether this machine's etcd votes. Before its users are made it is not asked: each of them is another revision of etcd's rights,
    /// and questions of the one before are refused.
    ///
    /// # Errors
    /// [`VoteError`].
    pub(crate) async fn votes(&self) -> Result<bool, VoteError> {
        if users::known()? == EtcdUsers::Unknown {
            return Err(VoteError::NoUsers);
        }
        Ok(self.link.health().await?.votes)
    }

    /// Copy of the records that this machine's etcd has, however old; none where its epochs are no newer than `since`.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub(crate) async fn own_copy(&self, since: Option<u64>) -> Result<Option<View>, Unreadable> {
        if let Some(since) = since {
            let asked = RangeRequest { key: Key::ColdStart.bytes(), serializable: true, ..RangeRequest::default() };
            let answer = self.link.range(asked).await?;
            let written = answer.kvs.first().map_or(0, |epochs| epochs.mod_revision);
            if u64::try_from(written).unwrap_or_default() <= since {
                return Ok(None);
            }
        }
        read::all(&self.link, Of::ThisMachine).await.map(Some)
    }

    /// Has what this machine asks of itself decided. Whatever others have done before it is done.
    ///
    /// # Errors
    /// [`GrantError`].
    pub(crate) async fn ask(&self, asked: OwnRequest) -> Result<(), GrantError> {
        match asked {
            OwnRequest::BeginEpoch => self.decide(Request::BeginEpoch).await.map(|_| ()),
            OwnRequest::AcknowledgeEpoch(number) => {
                let request = Request::AcknowledgeEpoch { machine: self.first.key(), number };
                self.decide(request).await.map(|_| ())
            }
            OwnRequest::Create => {
                let creation = self.first.creation(clock::unix().as_secs());
                match self.decide(Request::Create(Box::new(creation))).await {
                    Err(GrantError::Denied(Denial::ClusterExists)) => Ok(()),
                    Err(error) => Err(error),
                    Ok(_) => {
                        tracing::info!("the cluster's first records are written");
                        Ok(())
                    }
                }
            }
            OwnRequest::Announce(endpoints) => match self.decide(self.first.announces(endpoints)).await {
                Err(error @ GrantError::Denied(_)) => {
                    tracing::warn!(%error, "this machine does not belong to its cluster any more");
                    Ok(())
                }
                said => said.map(|_| ()),
            },
            OwnRequest::AcknowledgeRestore(..) => {
                let request = Request::AcknowledgeRestore { machine: self.first.key() };
                self.decide(request).await.map(|_| ())
            }
            OwnRequest::EndRestore(hash) => {
                self.decide(Request::EndRestore { machine: self.first.key(), hash }).await?;
                tracing::info!("Kubernetes' objects are restored");
                Ok(())
            }
            OwnRequest::Observe { machine, endpoint: at } => {
                match self.decide(Request::Observe { machine, endpoint: at.clone() }).await {
                    Ok(Grant::Done) => {
                        tracing::info!(%machine, %at, "a machine is heard where it does not say that it is")
                    }
                    Ok(_) => {} // another coordinator was first
                    Err(refused) => tracing::info!(%machine, %at, %refused, "where a machine is heard is not noted"),
                }
                Ok(())
            }
        }
    }

    /// Deletes the audit's oldest lines, if there are too many.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(crate) async fn trim_audit(&self) -> Result<(), NoAnswer> {
        let mut trimming = AuditTrimmer::begin();
        while trimming.take(self.link.range(trimming.page()).await?)? == Progress::More {}
        for deletes in trimming.deletes() {
            self.link.transact(deletes).await?;
        }
        Ok(())
    }
}
