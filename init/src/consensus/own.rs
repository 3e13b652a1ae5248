//! Records as the machine's own life sees and asks them: performs what the crate `member` decides.

use ::member::OwnRequest;
use cluster::View;
use cluster::key::Key;
use cluster::request::Request;
use etcd::wire::etcdserverpb::RangeRequest;

use super::keep::{self, Of, Unreadable};
use super::{NotGranted, Records};

impl Records {
    /// Answers a question about what was seen since these records were begun; there is no view before they were read.
    pub(crate) fn view<T>(&self, question: impl FnOnce(Option<&View>) -> T) -> T {
        question(self.seen.borrow().view.as_ref())
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
        keep::read(self, Of::ThisMachine).await.map(Some)
    }

    /// Has what this machine asks of itself decided.
    ///
    /// # Errors
    /// [`NotGranted`].
    pub(crate) async fn ask(&self, asked: OwnRequest) -> Result<(), NotGranted> {
        let request = match asked {
            OwnRequest::BeginEpoch => Request::BeginEpoch,
            OwnRequest::AcknowledgeEpoch(number) => Request::AcknowledgeEpoch { machine: self.first.key(), number },
        };
        self.decide(request).await.map(drop)
    }
}
