//! Table of the kernel by which policies judge what the machine's pods say and hear: `inet cairn-policy`, replaced as a whole. Its text is
//! crate `netpolicy`'s. Decides nothing.

use std::sync::Arc;

use keys::derive::sha256;
use model::Ipv4Prefix;
use tokio::sync::Mutex as AsyncMutex;

use super::nftables::{self, Error, TextFile};
use crate::runtime::child::Children;

/// The table; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct PolicyTable {
    children: Children,
    /// By what the kernel goes now; whoever changes that holds it.
    in_force: Arc<AsyncMutex<Option<InForce>>>,
}

/// Text that the kernel has performed last, for pods of this prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InForce {
    pods: Ipv4Prefix,
    text: [u8; 32],
}

impl PolicyTable {
    /// Table that is not there yet.
    pub(crate) fn of(children: &Children) -> Self {
        Self { children: children.clone(), in_force: Arc::default() }
    }

    /// Gives pods of this prefix no new connection until it is known which they may have. A table for the same prefix is left as it is.
    ///
    /// # Errors
    /// [`Error`]; the table is as it was.
    pub(crate) async fn begin(&self, pods: Ipv4Prefix) -> Result<(), Error> {
        let has_begun = self.in_force.lock().await.is_some_and(|it| it.pods == pods);
        if has_begun { Ok(()) } else { self.set(pods, &netpolicy::unheard(pods)).await }
    }

    /// Has the kernel go by this text; the same again changes nothing.
    ///
    /// # Errors
    /// [`Error`]; the table is as it was.
    pub(crate) async fn set(&self, pods: Ipv4Prefix, text: &str) -> Result<(), Error> {
        let mut in_force = self.in_force.lock().await;
        let wanted = Some(InForce { pods, text: sha256(&[text.as_bytes()]) });
        if *in_force != wanted {
            nftables::perform(&self.children, TextFile::Policies, text).await?;
            *in_force = wanted;
        }
        Ok(())
    }

    /// Takes the table away from a machine that has no pods any more.
    ///
    /// # Errors
    /// [`Error`]; the table is as it was.
    pub(crate) async fn end(&self) -> Result<(), Error> {
        let mut in_force = self.in_force.lock().await;
        if in_force.is_some() {
            nftables::perform(&self.children, TextFile::Policies, netpolicy::NO_TABLE).await?;
            *in_force = None;
        }
        Ok(())
    }
}
